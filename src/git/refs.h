/*
 * Names and values of refs, read strictly: what a place wrote is hostile, and its names become
 * names of files.
 */
#pragma once

#include "git/repo.h"

#define GIT_REF_MAX 1024          /* bytes of a name */
#define GIT_REF_FILE_MAX 4096     /* of a loose ref, of HEAD */
#define GIT_PACKED_MAX (16 << 20) /* of packed-refs */
#define GIT_REFS_MAX 100000

struct git_ref {
	char *name;            /* "refs/..." */
	char oid[GIT_OID_MAX]; /* "" when it is symbolic, or gone */
	char *target;          /* of a symbolic ref, else NULL */
};
struct git_refs {
	struct git_ref *items;
	size_t count, cap;
};
void git_refs_clear(struct git_refs *refs);
/* NULL when there are too many. */
struct git_ref *git_refs_add(struct git_refs *refs, const char *name, size_t len);
const struct git_ref *git_refs_find(const struct git_refs *refs, const char *name);

/* The rules of git-check-ref-format(1) for a whole name below refs/, and none longer than ours. */
bool git_ref_is_valid(const char *name, size_t len);
/* Lower-case hex digits of one object's name. */
bool git_oid_is_valid(const char *text, size_t len, bool sha256);

/*
 * HEAD or a loose ref: "ref: refs/...\n" or an object's name. Of the out-parameters one is filled,
 * the other is "". false when it is neither.
 */
bool git_ref_parse(const char *text, size_t len, bool sha256, char oid[GIT_OID_MAX],
		   char target[GIT_REF_MAX + 1]);
/* packed-refs; names that are there already (loose ones win) are left. ERR_UNPROCESSABLE. */
int git_packed_parse(const char *text, size_t len, bool sha256, struct git_refs *refs,
		     struct error *err);

/* HEAD of the repository on this host, as it is now. */
struct git_head {
	char ref[GIT_REF_MAX + 1]; /* "" when detached */
	char oid[GIT_OID_MAX];     /* "" when the branch has no commit yet */
};
int git_head_read(const struct git_repo *repo, bool sha256, struct git_head *out,
		  struct error *err);
/* Every ref of the host but those that runs left. */
int git_host_refs(const struct git_repo *repo, bool sha256, struct git_refs *refs,
		  struct error *err);
bool git_ref_is_ours(const char *name);

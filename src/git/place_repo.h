/*
 * What a place made of its repository, read from the files that were fetched.
 */
#pragma once

#include "git/index.h"

#define GIT_PLACE_MAX_OBJECTS 2000000

struct git_place {
	char head_ref[GIT_REF_MAX + 1]; /* "" when detached */
	char head[GIT_OID_MAX];         /* "" when the branch has no commit */
	struct git_refs refs;           /* that the place wrote, loose and packed */
	struct index_entries index;
	bool has_index; /* it differs from what was staged */
	size_t objects; /* files that lie in the quarantine now */
};
void git_place_clear(struct git_place *place);

/* Whether anything of its .git was fetched: files that are new, changed or gone. */
bool git_place_wrote(int fetched_fd);
/*
 * Refs, HEAD and index, and with `objects` the objects into the quarantine. 0 with *why set (a
 * message to be freed) when the place's repository is not one that we take anything from.
 * An index that we do not take is only told in *index_why.
 */
int git_place_read(const struct git_quarantine *q, int fetched_fd, const json_t *about,
		   bool objects, struct git_place *out, char **why, char **index_why,
		   struct error *err);

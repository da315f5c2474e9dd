/*
 * Where what a place's repository holds is looked at before any of it enters the host's:
 *
 *     <common>/berth/<run>/git/place     objects as the place had them; nothing in it is believed
 *     <common>/berth/<run>/git/checked   a pack that git made of them and has verified
 *     <common>/berth/<run>/git/private   a git directory whose config we wrote, for commands that
 *                                        look into the work tree or read a hostile index
 *
 * Everything in it belongs to the repository's owner, as whom git runs.
 */
#pragma once

#include "base/id.h"
#include "git/about.h"

#define GIT_INDEX_MADE                                                                             \
	"git-index" /* beside it, until the run is dropped: hash of the index we made */

struct git_quarantine {
	const struct git_repo *repo; /* borrowed */
	bool sha256;
	char *run_dir; /* <common>/berth/<run> */
	char *dir, *place, *checked, *private;
};
/* Makes it anew: what an earlier try left is removed, its lock of the index as well. */
int git_quarantine_open(const struct git_repo *repo, const char *run_id, bool sha256,
			struct git_quarantine *out, struct error *err);
/* Only removes what an earlier try left. */
int git_quarantine_clean(const struct git_repo *repo, const char *run_id, struct error *err);
void git_quarantine_clear(struct git_quarantine *q); /* memory only */
#define _cleanup_quarantine_ _cleanup_(git_quarantine_clear)
int git_quarantine_remove(const struct git_quarantine *q, struct error *err);

/*
 * Git's own protocol: whoever makes index.lock holds the index. Ours is a second name of a file in
 * the quarantine, so that a lock which a crash of ours left behind is known and removed. *locked
 * false when another process keeps it for 2 s.
 */
int git_index_lock(const struct git_quarantine *q, bool *locked, struct error *err);
void git_index_unlock(const struct git_quarantine *q);

/* Fills `private` with HEAD, config and the host's `shallow`. */
int git_private_make(const struct git_quarantine *q, struct error *err);
/* Environment that reads objects of `objects` (NULL: none) and the host's. The caller frees it. */
char **git_objects_env(const struct git_quarantine *q, const char *objects);

/* One file of what was fetched, whole. Absent, or no regular file: 0 and *there false. */
int git_fetched_read(int fetched_fd, const char *name, size_t max, struct buf *out, bool *there,
		     struct error *err);
/* Copies an open file to an absolute path of the quarantine; directories on the way are made. */
int git_quarantine_copy(const struct git_quarantine *q, int from, const char *to,
			struct error *err);
int git_quarantine_write(const struct git_quarantine *q, const char *dir, const char *name,
			 const void *data, size_t len, struct error *err);

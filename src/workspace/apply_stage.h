/*
 * The staging directory of one run: .git/berth/files-<run> of a repository, else
 * .berth/files-<run> of the workspace. It is on the workspace's file system, so that everything
 * moves between it and the tree by renaming. In it, under the number of its change, is what is to
 * go in, and afterwards what came out.
 *
 * Beside it is the lock that lets one collect at a time work in a workspace.
 */
#pragma once

#include "base/error.h"
#include "filetree/entry.h"

/* How long one collect waits for another. */
#define STAGING_WAIT_MS 30000

struct staging {
	int workspace_fd; /* borrowed */
	int root_fd;      /* .git/berth or .berth */
	int fd;           /* of the run */
	int lock_fd;
	char *path; /* of the run's, in the workspace */
	uint64_t dev, ino;
	bool can_exchange; /* renameat2(RENAME_EXCHANGE) works here */
};

/* Waits for the lock (ERR_LOCKED after `wait_ms`, ERR_CANCELLED). */
int staging_open(int workspace_fd, const char *run_id, int64_t wait_ms, int cancel_fd,
		 struct staging *out, struct error *err);
/* Gives the lock back; a staging directory in which nothing is kept goes. */
void staging_close(struct staging *s);
/* Everything that is kept of the run goes. Absence is success. */
int staging_drop(int workspace_fd, const char *run_id, struct error *err);
/* The run's directory for reading, without the lock; -1 with errno. */
int staging_look(int workspace_fd, const char *run_id);

#define STAGED_NAME_SIZE 16
void staged_name(uint32_t number, char out[STAGED_NAME_SIZE]);

struct staged_owner {
	bool set;
	uid_t uid;
	gid_t gid;
};
/*
 * Makes the entry under its number: content from the run's blobs, checked against the hash; mode
 * masked to 0777 (a directory can be written to by its owner until all is done); owner if set.
 */
int staging_make(const struct staging *s, int run_fd, uint32_t number,
		 const struct tree_entry *entry, const struct staged_owner *owner, uint64_t *dev,
		 uint64_t *ino, struct error *err);
/* What was made and not used. */
int staging_discard(const struct staging *s, uint32_t number, struct error *err);
/* Everything made or moved so far is on disk. */
int staging_sync(const struct staging *s, struct error *err);

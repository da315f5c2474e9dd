/*
 * Where a repository is and whose it is. Files in it are read and made with the rights of the
 * workspace's owner (base/owner.h), so a `.git` file, a link or an alternate can lead the server nowhere
 * its owner could not go, and what it makes belongs to the owner.
 */
#pragma once

#include <sys/types.h>
#include "base/buf.h"
#include "base/error.h"
#include "base/owner.h"
#include "git/git.h"

#define GIT_OID_MAX 65 /* hex digits of SHA-256 and a NUL */

struct git_repo {
	enum git_kind kind;
	int root_fd;      /* borrowed */
	int cancel_fd;    /* borrowed */
	char *path;       /* of the work tree */
	char *git_dir;    /* HEAD and index; canonical */
	char *common_dir; /* objects and refs; canonical, often the same */
	uid_t uid;
	gid_t gid;
	bool as_owner;         /* the server is root, the owner is not */
	struct git_seen *seen; /* borrowed; NULL: git is asked every time */
};
/* kind GIT_NONE when there is no .git. ERR_UNPROCESSABLE for one that is a link or leads nowhere.
 */
int git_repo_find(int root_fd, const char *path, int cancel_fd, struct git_repo *out,
		  struct error *err);
void git_repo_clear(struct git_repo *repo);
#define _cleanup_repo_ _cleanup_(git_repo_clear)

/* owner_take with the rights of the repository's owner. */
int owner_enter(const struct git_repo *repo, struct owner_rights *as, struct error *err);

/*
 * A regular file of the repository, whole, through no link in its last part. Absent (or empty with
 * `empty_is_absent`): 0 and *there false.
 */
int git_read_file(const struct git_repo *repo, const char *dir, const char *name, size_t max,
		  struct buf *out, bool *there, struct error *err);
/* A directory of the repository by its absolute path; made when it is not there and `make`. */
int git_open_dir(const struct git_repo *repo, const char *path, bool make, int *fd,
		 struct error *err);
/* Names in a directory, in no order, and its descriptor; absent: none, and *fd is -1. */
int git_names_in(const struct git_repo *repo, const char *path, char ***names, int *fd,
		 struct error *err);

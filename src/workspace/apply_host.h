/*
 * The host's tree as applying sees it. Somebody else may be at work in it at any moment, and links
 * in it may have been made by a place: every way down is opened by openat2 beneath the workspace's
 * descriptor, through no link and into no other mount, and what is found there is told by
 * descriptor or by name in an open directory.
 */
#pragma once

#include <limits.h>
#include <sys/stat.h>
#include "base/error.h"
#include "filetree/entry.h"

/*
 * The directory that holds `path`, and the last segment. A descriptor (O_PATH), or -1 with errno:
 * ENOENT a directory is missing, ENOTDIR or ELOOP something else is in its place, EXDEV another
 * mount is.
 */
int host_open_parent(int root_fd, const char *path, const char **name);
/* The directory itself, likewise. */
int host_open_dir(int root_fd, const char *path, int flags);
/* Length of the shortest beginning of `path` that is there and is no directory; 0: none. */
size_t host_obstacle(int root_fd, const char *path);

struct host_view {
	struct tree_entry entry; /* TREE_NONE: nothing there; path is not set */
	struct stat st;
	char target[PATH_MAX];
};
/* 0, or -1 with errno when it cannot be said what is there. An absent name is TREE_NONE. */
int host_view(int dir_fd, const char *name, struct host_view *out);
/* By path: no way there is TREE_NONE as well, but for another mount (EXDEV). */
int host_look(int root_fd, const char *path, struct host_view *out);
/*
 * Hashes the file that was viewed. False when it cannot be read, or is not, or does not stay, what
 * was viewed: then nothing is known of its content and it counts as changed.
 */
bool host_hash(int dir_fd, const char *name, struct host_view *view);
bool host_hash_path(int root_fd, const char *path, struct host_view *view);

/*
 * Whether what now is at a name of ours is exactly `expected`: type, mode under the mask, content;
 * a directory must be empty. A file that somebody has open for writing is not: it may be about to
 * change.
 */
bool host_is_exactly(int dir_fd, const char *name, const struct tree_entry *expected,
		     uint32_t mode_mask);

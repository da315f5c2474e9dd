/*
 * Path text. Nothing here touches the file system; confinement beneath a directory is done with
 * openat2(RESOLVE_BENEATH), see path_open_beneath.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include "base/error.h"

char *path_join(const char *dir, const char *name); /* an absolute name wins */
bool path_is_absolute(const char *path);
/* Lexical: no empty, "." or ".." segment, no trailing slash; may be absolute, "/" included. */
bool path_is_clean(const char *path);
/* One segment fit for a file name: not empty, no slash, not "." or "..", at most 255 bytes. */
bool path_is_segment(const char *name);
/* What follows `root` in a path that is it or below it, beginning with a slash or empty; else NULL.
 * Lexical. */
const char *path_beneath(const char *root, const char *path);
/*
 * Opens a relative path that may not leave dirfd, through no link or magic link pointing outside.
 * ERR_BAD_PATH when it would; otherwise as error_errno. The descriptor is close-on-exec.
 */
int path_open_beneath(int dirfd, const char *path, int flags, mode_t mode, int *fd,
		      struct error *err);
/*
 * Opens the directory `name` (one segment, or "..") of dirfd without following a link and without
 * entering another mount, not even a bind mount of the same file system. Returns the fd, or -1 with
 * errno set: EXDEV for a mount point, ENOTDIR or ELOOP for anything that is no directory.
 */
int path_open_child_dir(int dirfd, const char *name);
/*
 * Opens `path` beneath dirfd through no link at all; mounts are entered. Returns the fd, or -1 with
 * errno set: ELOOP where a link is in the way.
 */
int path_open_unlinked(int dirfd, const char *path, int flags);
int path_open_dir(int dirfd, const char *path); /* the same for directories */

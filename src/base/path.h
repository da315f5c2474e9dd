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
/* Lexical: no empty, "." or ".." segment, no trailing slash. */
bool path_is_clean(const char *path);
/* One segment fit for a file name: not empty, no slash, not "." or "..", at most 255 bytes. */
bool path_is_segment(const char *name);
/* Opens a relative path that may not leave dirfd, through no link or magic link pointing outside.
 */
int path_open_beneath(int dirfd, const char *path, int flags, mode_t mode, int *fd,
		      struct error *err);

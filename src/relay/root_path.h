/*
 * Opening paths beneath the place's root. All functions return a descriptor or 0, or -errno.
 */
#pragma once

#include <sys/stat.h>
#include "relay/relay.h"

/* flags as open(2) without creation, O_CLOEXEC is added. -EXDEV: the path leads out. */
int root_path_open(const struct relay *relay, const char *path, int flags);
/*
 * The directory that holds the last segment, and that segment (a pointer into `path`). -EINVAL when
 * the path ends in nothing that can be made or removed: the root, ".", "..", a slash.
 */
int root_path_parent(const struct relay *relay, const char *path, const char **name);
/* Opens for reading only if it is a regular file; special files are not even opened. -ENOTSUP:
 * other type. */
int root_path_open_regular(const struct relay *relay, const char *path, struct stat *st);

/* One directory with exactly that mode. */
int root_path_mkdir(const struct relay *relay, const char *path, mode_t mode);
/* 0 if it is a directory within the root, else why not. */
int root_path_check_dir(const struct relay *relay, const char *path);
/* What is missing above the last segment, with mode 0755. */
int root_path_make_parents(const struct relay *relay, const char *path);
/* Of whatever the descriptor (O_PATH, too) stands for. */
int root_path_chmod(int fd, mode_t mode);

enum wire_error_code root_path_error(int errnum);
/* What to tell whoever asked for the path. */
const char *root_path_text(int errnum);

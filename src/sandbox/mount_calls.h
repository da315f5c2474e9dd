/*
 * The mount interface that works on descriptors instead of paths (Linux 5.2 and later). A path can
 * mean something else the second time it is looked at, a descriptor cannot; most escapes from
 * container runtimes were made of that difference.
 */
#pragma once

#include <stdint.h>

#define ATTR_RDONLY 0x1ull
#define ATTR_NOSUID 0x2ull
#define ATTR_NODEV 0x4ull
#define ATTR_NOEXEC 0x8ull

struct fs_option {
	const char *key, *value; /* value NULL: a flag */
};
/* A new file system that is mounted nowhere yet, or -1 with errno. A NULL key ends the options. */
int fs_make(const char *type, const struct fs_option *options, uint64_t attributes);

/* A copy of the mount at the path, mounted nowhere; an empty path: of the descriptor itself. */
int tree_clone(int dir_fd, const char *path, int recursive);
/* Adds attributes; userns_fd >= 0 also translates ids through that user namespace. */
int tree_change(int tree_fd, uint64_t attributes, int userns_fd, int recursive);
int tree_attach(int tree_fd, int target_fd, const char *path);
/* Nothing that is mounted or unmounted here from now on is seen elsewhere, nor the reverse. */
int tree_make_private(int dir_fd, const char *path);

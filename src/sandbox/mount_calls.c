#include "sandbox/mount_calls.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fd.h"

#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef SYS_open_tree
#define SYS_open_tree 428
#define SYS_move_mount 429
#define SYS_fsopen 430
#define SYS_fsconfig 431
#define SYS_fsmount 432
#endif

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
#define AT_RECURSIVE_ 0x8000
#define FSOPEN_CLOEXEC_ 1u
#define FSMOUNT_CLOEXEC_ 1u
#define FSCONFIG_SET_FLAG_ 0u
#define FSCONFIG_SET_STRING_ 1u
#define FSCONFIG_CMD_CREATE_ 6u
#define OPEN_TREE_CLONE_ 1u
#define MOVE_FROM_EMPTY 4u
#define MOVE_TO_EMPTY 0x40u
#define ATTR_IDMAP 0x00100000ull
#define PROPAGATION_PRIVATE (1ull << 18)

struct mount_attributes {
	uint64_t set, clear, propagation, userns_fd;
};

int fs_make(const char *type, const struct fs_option *options, uint64_t attributes)
{
	_cleanup_close_ int fs = (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC_);

	if (fs < 0)
		return -1;
	for (const struct fs_option *o = options; o && o->key; o++)
		if (syscall(SYS_fsconfig, fs, o->value ? FSCONFIG_SET_STRING_ : FSCONFIG_SET_FLAG_,
			    o->key, o->value, 0) < 0)
			return -1;
	if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE_, NULL, NULL, 0) < 0)
		return -1;
	return (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC_, attributes);
}

int tree_clone(int dir_fd, const char *path, int recursive)
{
	unsigned flags = OPEN_TREE_CLONE_ | O_CLOEXEC;

	if (path[0] == 0)
		flags |= AT_EMPTY_PATH;
	else
		flags |= AT_SYMLINK_NOFOLLOW;
	return (int)syscall(SYS_open_tree, dir_fd, path, flags | (recursive ? AT_RECURSIVE_ : 0u));
}

int tree_change(int tree_fd, uint64_t attributes, int userns_fd, int recursive)
{
	struct mount_attributes a = { .set = attributes };

	if (userns_fd >= 0) {
		a.set |= ATTR_IDMAP;
		a.userns_fd = (uint64_t)userns_fd;
	}
	return (int)syscall(SYS_mount_setattr, tree_fd, "",
			    AT_EMPTY_PATH | (recursive ? AT_RECURSIVE_ : 0), &a, sizeof(a));
}

int tree_attach(int tree_fd, int target_fd, const char *path)
{
	return (int)syscall(SYS_move_mount, tree_fd, "", target_fd, path,
			    MOVE_FROM_EMPTY | (path[0] == 0 ? MOVE_TO_EMPTY : 0u));
}

int tree_make_private(int dir_fd, const char *path)
{
	struct mount_attributes a = { .propagation = PROPAGATION_PRIVATE };

	return (int)syscall(SYS_mount_setattr, dir_fd, path, AT_RECURSIVE_, &a, sizeof(a));
}

#include "base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SEGMENT_MAX 255

/* openat2(2) has no wrapper in either libc, and musl comes without the kernel's headers. */
struct open_how_v0 {
	uint64_t flags;
	uint64_t mode;
	uint64_t resolve;
};
#define RESOLVE_NO_XDEV_ 0x01
#define RESOLVE_NO_MAGICLINKS_ 0x02
#define RESOLVE_NO_SYMLINKS_ 0x04
#define RESOLVE_BENEATH_ 0x08

/*
 * A rename elsewhere in the system may make the kernel unsure about ".."; it then asks to try
 * again.
 */
#define RACE_RETRIES 64

char *path_join(const char *dir, const char *name)
{
	if (path_is_absolute(name) || !*dir)
		return xstrdup(name);
	if (!*name)
		return xstrdup(dir);
	return xasprintf("%s%s%s", dir, dir[strlen(dir) - 1] == '/' ? "" : "/", name);
}

bool path_is_absolute(const char *path)
{
	return path[0] == '/';
}

static bool is_dots(const char *s, size_t len)
{
	return (len == 1 && s[0] == '.') || (len == 2 && s[0] == '.' && s[1] == '.');
}

bool path_is_clean(const char *path)
{
	if (*path == '/' && !*++path)
		return true;
	for (;;) {
		size_t len = strcspn(path, "/");

		if (len == 0 || is_dots(path, len))
			return false;
		if (!path[len])
			return true;
		path += len + 1;
	}
}

const char *path_beneath(const char *root, const char *path)
{
	size_t len = strlen(root);

	if (strcmp(root, "/") == 0)
		return strcmp(path, "/") == 0 ? "" : path;
	if (strncmp(root, path, len) != 0 || (path[len] && path[len] != '/'))
		return NULL;
	return path + len;
}

bool path_is_segment(const char *name)
{
	size_t len = strnlen(name, SEGMENT_MAX + 1);

	return len > 0 && len <= SEGMENT_MAX && !memchr(name, '/', len) && !is_dots(name, len);
}

static int open_resolving(int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve)
{
	bool creates = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
	struct open_how_v0 how = {
		.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
		.mode = creates ? mode : 0,
		.resolve = resolve,
	};
	long fd = -1;

	for (int i = 0; i < RACE_RETRIES; i++) {
		fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
		if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
	}
	return (int)fd;
}

int path_open_beneath(int dirfd, const char *path, int flags, mode_t mode, int *fd,
		      struct error *err)
{
	*fd = open_resolving(dirfd, path, flags, mode, RESOLVE_BENEATH_ | RESOLVE_NO_MAGICLINKS_);
	if (*fd >= 0)
		return 0;

	int errnum = errno;

	error_errno(err, errnum, "open %s", path);
	if (errnum == EXDEV) {
		error_set(err, ERR_BAD_PATH, "%s leads out of its directory", path);
		if (err)
			err->errnum = errnum;
	} else if (errnum == ELOOP || errnum == ENAMETOOLONG) {
		error_recode(err, ERR_BAD_PATH);
	}
	return -1;
}

int path_open_child_dir(int dirfd, const char *name)
{
	return open_resolving(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK, 0,
			      RESOLVE_NO_XDEV_ | RESOLVE_NO_SYMLINKS_);
}

int path_open_unlinked(int dirfd, const char *path, int flags)
{
	return open_resolving(dirfd, path, flags, 0,
			      RESOLVE_BENEATH_ | RESOLVE_NO_SYMLINKS_ | RESOLVE_NO_MAGICLINKS_);
}

int path_open_dir(int dirfd, const char *path)
{
	return path_open_unlinked(dirfd, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
}

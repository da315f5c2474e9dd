#include "relay/root_path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/path.h"
#include "wire/place.h"

#define RESOLVE_NO_MAGICLINKS_ 0x02
#define RESOLVE_BENEATH_ 0x08
#define RESOLVE_IN_ROOT_ 0x10
#define FCHMODAT2_NUMBER 452
/* The kernel says EAGAIN when a rename happens under a walk through "..". */
#define RACE_RETRIES 32

struct open_how_args {
	uint64_t flags, mode, resolve;
};

int root_path_open(const struct relay *relay, const char *path, int flags)
{
	struct open_how_args how = {
		.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
		.resolve = RESOLVE_NO_MAGICLINKS_ |
			   (relay->config.whole_host ? RESOLVE_IN_ROOT_ : RESOLVE_BENEATH_),
	};

	if (path[0] == 0 || (path[0] == '/') != relay->config.whole_host)
		return -EINVAL;
	for (int i = 0; i < RACE_RETRIES; i++) {
		int fd = (int)syscall(SYS_openat2, RELAY_FD_ROOT, path, &how, sizeof(how));

		if (fd >= 0)
			return fd;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return -EAGAIN;
}

int root_path_parent(const struct relay *relay, const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *parent = NULL;

	*name = slash ? slash + 1 : path;
	if (!path_is_segment(*name))
		return -EINVAL;
	if (!slash)
		parent = xstrdup(".");
	else if (slash == path)
		parent = xstrdup("/");
	else
		parent = xstrndup(path, (size_t)(slash - path));
	return root_path_open(relay, parent, O_PATH | O_DIRECTORY);
}

int root_path_open_regular(const struct relay *relay, const char *path, struct stat *st)
{
	int fd = root_path_open(relay, path, O_PATH);

	if (fd < 0)
		return fd;
	if (fstat(fd, st) < 0 || !S_ISREG(st->st_mode)) {
		close(fd);
		return -ENOTSUP;
	}
	close(fd);
	/* The name may mean something else by now; without blocking and looked at again, that is
	 * safe. */
	fd = root_path_open(relay, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0 && (fstat(fd, st) < 0 || !S_ISREG(st->st_mode))) {
		close(fd);
		return -ENOTSUP;
	}
	return fd;
}

int root_path_mkdir(const struct relay *relay, const char *path, mode_t mode)
{
	const char *name;
	_cleanup_close_ int parent = -1;
	int r = root_path_parent(relay, path, &name);

	if (r < 0)
		return r;
	parent = r;
	if (mkdirat(parent, name, mode & 0777) < 0)
		return -errno;
	/* The umask took its share, and set-id or sticky bits are not mkdir's to give. */
	return fchmodat(parent, name, mode, 0) < 0 ? -errno : 0;
}

int root_path_check_dir(const struct relay *relay, const char *path)
{
	int fd = root_path_open(relay, path, O_PATH | O_DIRECTORY);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

int root_path_make_parents(const struct relay *relay, const char *path)
{
	_cleanup_free_ char *prefix = xstrdup(path);

	for (char *slash = strchr(prefix + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int r;

		*slash = 0;
		r = root_path_check_dir(relay, prefix);
		if (r == -ENOENT)
			r = root_path_mkdir(relay, prefix, 0755);
		/* Another one may have been quicker. */
		if (r == -EEXIST)
			r = root_path_check_dir(relay, prefix);
		if (r < 0)
			return r;
		*slash = '/';
	}
	return 0;
}

/* The descriptor names the inode; its path could lead elsewhere by the time chmod follows it. */
int root_path_chmod(int fd, mode_t mode)
{
	char path[32];

	if (syscall(FCHMODAT2_NUMBER, fd, "", mode, AT_EMPTY_PATH) == 0)
		return 0;
	if (errno != ENOSYS && errno != EINVAL)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return chmod(path, mode) < 0 ? -errno : 0;
}

enum wire_error_code root_path_error(int errnum)
{
	switch (errnum) {
	case EXDEV:
	case ELOOP:
	case EINVAL:
	case ENAMETOOLONG:
		return WERR_BAD_PATH;
	case ENOENT:
	case ENOTDIR:
		return WERR_NOT_FOUND;
	case EEXIST:
		return WERR_EXISTS;
	case ESTALE:
		return WERR_CHANGED;
	case EACCES:
	case EPERM:
	case EROFS:
		return WERR_DENIED;
	case ENOTSUP:
	case EISDIR:
	case ENXIO:
		return WERR_FILE_TYPE;
	case ENOTEMPTY:
		return WERR_NOT_EMPTY;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return WERR_NO_SPACE;
	default:
		return WERR_IO;
	}
}

const char *root_path_text(int errnum)
{
	switch (errnum) {
	case EXDEV:
		return "the path leads out of the place";
	case ELOOP:
		return "the path goes through a link that is not followed: a loop, or one of /proc";
	case EINVAL:
		return "the path ends in nothing that can be made, changed or removed";
	case ENOTSUP:
	case ENXIO:
		return "it is not of the kind that this is for: a file to read or write, a "
		       "directory to list";
	case ESTALE:
		return "it has been changed meanwhile";
	default:
		return strerror(errnum);
	}
}

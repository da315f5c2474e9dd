#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include "base/id.h"
#include "base/path.h"
#include "base/text.h"

#define READ_CHUNK ((size_t)65536)

int fd_write_all(int fd, const void *data, size_t len, struct error *err)
{
	const char *p = data;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_errno(err, n < 0 ? errno : EIO, "write");
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int fd_pwrite_all(int fd, const void *data, size_t len, off_t offset, struct error *err)
{
	const char *p = data;

	while (len) {
		ssize_t n = pwrite(fd, p, len, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_errno(err, n < 0 ? errno : EIO, "write");
		p += n;
		len -= (size_t)n;
		offset += n;
	}
	return 0;
}

/* What a failed read appended is taken back, so that nobody uses half a file. */
static void truncate_buf(struct buf *b, size_t len)
{
	b->len = len;
	if (b->data)
		b->data[len] = '\0';
}

int fd_read_all(int fd, struct buf *out, size_t max, struct error *err)
{
	size_t start = out->len;

	if (out->max && max > out->max - MIN_OF(start, out->max))
		max = out->max - MIN_OF(start, out->max);
	for (;;) {
		size_t left = max - (out->len - start);
		/* One byte past the limit tells a file that just fits from one that does not. */
		size_t want = left < READ_CHUNK ? left + 1 : READ_CHUNK;

		buf_reserve(out, want);

		ssize_t n = read(fd, out->data + out->len, want);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			int errnum = errno;

			truncate_buf(out, start);
			return error_errno(err, errnum, "read");
		}
		if ((size_t)n > left) {
			truncate_buf(out, start);
			return error_set(err, ERR_TOO_LARGE, "more than %zu bytes", max);
		}
		truncate_buf(out, out->len + (size_t)n);
		if (n == 0)
			return 0;
	}
}

int fd_set_nonblock(int fd, bool on, struct error *err)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return error_errno(err, errno, "read descriptor flags");

	int wanted = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;

	if (wanted != flags && fcntl(fd, F_SETFL, wanted) < 0)
		return error_errno(err, errno, "set descriptor flags");
	return 0;
}

int fd_sync(int fd, struct error *err)
{
	while (fsync(fd) < 0) {
		if (errno != EINTR)
			return error_errno(err, errno, "fsync");
	}
	return 0;
}

int file_read(int dirfd, const char *path, struct buf *out, size_t max, struct error *err)
{
	/* Without O_NONBLOCK a fifo in the file's place would hold us for ever. */
	_cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return error_errno(err, errno, "open %s", path);
	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "stat %s", path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, ERR_IO, "%s is no regular file", path);
	if (fd_read_all(fd, out, max, err) < 0)
		return error_wrap(err, "%s", path);
	return 0;
}

#define TEMPORARY_RANDOM 8 /* bytes of the name of a temporary file, in hex */

static int write_file(int fd, const void *data, size_t len, mode_t mode, struct error *err)
{
	if (fd_write_all(fd, data, len, err) < 0)
		return -1;
	/* Given here and not to openat, where the umask would have a say. */
	if (fchmod(fd, mode) < 0)
		return error_errno(err, errno, "chmod");
	return fd_sync(fd, err);
}

/* Splits at the last slash: opens the directory and returns what is behind. */
static const char *open_parent(int dirfd, const char *path, int *parent, struct error *err)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		return dir_open(dirfd, ".", parent, err) < 0 ? NULL : path;

	_cleanup_free_ char *dir = xstrndup(path, slash == path ? 1 : (size_t)(slash - path));

	return dir_open(dirfd, dir, parent, err) < 0 ? NULL : slash + 1;
}

static int replace(int dirfd, const char *name, const void *data, size_t len, mode_t mode,
		   bool durable, struct error *err)
{
	_cleanup_close_ int dir = -1, fd = -1;
	const char *leaf = open_parent(dirfd, name, &dir, err);
	unsigned char random[TEMPORARY_RANDOM];
	char suffix[2 * sizeof(random) + 1], temporary[sizeof(suffix) + 8];

	if (!leaf)
		return -1;
	if (!path_is_segment(leaf))
		return error_set(err, ERR_BAD_PATH, "%s names no file", name);
	random_bytes(random, sizeof(random));
	hex_encode(suffix, random, sizeof(random));
	snprintf(temporary, sizeof(temporary), ".tmp-%s", suffix);

	fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_errno(err, errno, "create a temporary file for %s", name);
	if (write_file(fd, data, len, mode, err) < 0) {
		unlinkat(dir, temporary, 0);
		return error_wrap(err, "%s", name);
	}
	if (renameat(dir, temporary, dir, leaf) < 0) {
		int errnum = errno;

		unlinkat(dir, temporary, 0);
		return error_errno(err, errnum, "replace %s", name);
	}
	if (durable && dir_sync(dir, err) < 0)
		return error_wrap(err, "directory of %s", name);
	return 0;
}

int file_replace(int dirfd, const char *name, const void *data, size_t len, mode_t mode,
		 struct error *err)
{
	return replace(dirfd, name, data, len, mode, true, err);
}

int file_replace_soon(int dirfd, const char *name, const void *data, size_t len, mode_t mode,
		      struct error *err)
{
	return replace(dirfd, name, data, len, mode, false, err);
}

static bool is_temporary(const char *name)
{
	static const char prefix[] = ".tmp-";
	size_t hex = 2 * TEMPORARY_RANDOM;

	return strncmp(name, prefix, sizeof(prefix) - 1) == 0 &&
	       strlen(name) == sizeof(prefix) - 1 + hex &&
	       strspn(name + sizeof(prefix) - 1, "0123456789abcdef") == hex;
}

void dir_sweep_temporary(int dirfd)
{
	_cleanup_close_ int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir)
		return;
	fd = -1;
	while ((entry = readdir(dir))) {
		if (is_temporary(entry->d_name))
			unlinkat(dirfd, entry->d_name, 0);
	}
	closedir(dir);
}

int dir_open(int dirfd, const char *path, int *fd, struct error *err)
{
	*fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return *fd < 0 ? error_errno(err, errno, "open directory %s", path) : 0;
}

static int make_one(int dirfd, const char *path, mode_t mode, struct error *err)
{
	struct stat st;

	if (mkdirat(dirfd, path, mode) == 0)
		return 0;

	/* A directory that is there is fine whatever mkdir finds wrong (EEXIST, EROFS, EACCES). */
	int errnum = errno;

	if (fstatat(dirfd, path, &st, 0) == 0) {
		if (S_ISDIR(st.st_mode))
			return 0;
		errnum = ENOTDIR;
	}
	return error_errno(err, errnum, "make directory %s", path);
}

int dir_make(int dirfd, const char *path, mode_t mode, struct error *err)
{
	_cleanup_free_ char *copy = xstrdup(path);

	for (char *slash = strchr(copy, '/'); slash; slash = strchr(slash + 1, '/')) {
		/* The root, a doubled slash and a trailing one end no segment of their own. */
		if (slash == copy || slash[-1] == '/' || !slash[1])
			continue;
		*slash = '\0';
		if (make_one(dirfd, copy, mode, err) < 0)
			return -1;
		*slash = '/';
	}
	return make_one(dirfd, copy, mode, err);
}

int dir_sync(int dirfd, struct error *err)
{
	return fd_sync(dirfd, err);
}

int64_t dir_free_bytes(int dirfd)
{
	struct statvfs vfs;
	uint64_t bytes;

	if ((dirfd == AT_FDCWD ? statvfs(".", &vfs) : fstatvfs(dirfd, &vfs)) < 0)
		return -1;
	if (__builtin_mul_overflow((uint64_t)vfs.f_bavail, (uint64_t)vfs.f_frsize, &bytes) ||
	    bytes > INT64_MAX)
		return INT64_MAX;
	return (int64_t)bytes;
}

union fds_passed {
	struct cmsghdr header;
	char space[CMSG_SPACE(sizeof(int[FDS_PASSED_MAX]))];
};

ssize_t fd_send_with(int socket, const void *data, size_t len, const int *fds, size_t count,
		     int flags)
{
	struct iovec bytes = { (void *)(uintptr_t)data, len };
	union fds_passed control = { 0 };
	struct msghdr m = { .msg_iov = &bytes, .msg_iovlen = 1 };

	if (count > FDS_PASSED_MAX) {
		errno = EINVAL;
		return -1;
	}
	if (count > 0) {
		m.msg_control = control.space;
		m.msg_controllen = CMSG_SPACE(count * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
	}
	return sendmsg(socket, &m, flags);
}

ssize_t fd_recv_with(int socket, void *data, size_t len, int *fds, size_t *count, int flags)
{
	struct iovec bytes = { data, len };
	union fds_passed control;
	struct msghdr m = {
		.msg_iov = &bytes,
		.msg_iovlen = 1,
		.msg_control = control.space,
		.msg_controllen = CMSG_SPACE(MIN_OF(*count, FDS_PASSED_MAX) * sizeof(int)),
	};
	size_t room = *count;
	ssize_t n = recvmsg(socket, &m, flags | MSG_CMSG_CLOEXEC);

	*count = 0;
	for (struct cmsghdr *c = n >= 0 ? CMSG_FIRSTHDR(&m) : NULL; c; c = CMSG_NXTHDR(&m, c)) {
		size_t came = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < came; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			/* Alignment may have made room for one more than was asked for. */
			if (*count < room)
				fds[(*count)++] = fd;
			else
				close(fd);
		}
	}
	return n;
}

int latch_new(struct error *err)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	return fd < 0 ? error_errno(err, errno, "eventfd") : fd;
}

void latch_set(int fd)
{
	uint64_t one = 1;

	/* EAGAIN: the counter is full, so it is set already. */
	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void latch_clear(int fd)
{
	uint64_t count;

	while (read(fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

bool latch_is_set(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int n;

	do {
		n = poll(&p, 1, 0);
	} while (n < 0 && errno == EINTR);
	return n > 0 && (p.revents & POLLIN);
}

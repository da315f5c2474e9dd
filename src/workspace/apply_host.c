#include "workspace/apply_host.h"

#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/sha256.h"
#include "base/text.h"

#define READ_CHUNK ((size_t)262144)
/* The kernel gives up with EAGAIN when somebody renames on the way. */
#define RACE_RETRIES 64

static int open_beneath(int root_fd, const char *path, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
			   RESOLVE_NO_XDEV,
	};
	long fd = -1;

	for (int i = 0; i < RACE_RETRIES; i++) {
		fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
		if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
	}
	return (int)fd;
}

int host_open_dir(int root_fd, const char *path, int flags)
{
	return open_beneath(root_fd, *path ? path : ".", flags | O_DIRECTORY);
}

int host_open_parent(int root_fd, const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	char dir[TREE_PATH_MAX + 1];

	*name = slash ? slash + 1 : path;
	if (!slash)
		return open_beneath(root_fd, ".", O_PATH | O_DIRECTORY);
	if ((size_t)(slash - path) >= sizeof(dir)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(dir, path, (size_t)(slash - path));
	dir[slash - path] = '\0';
	return open_beneath(root_fd, dir, O_PATH | O_DIRECTORY);
}

size_t host_obstacle(int root_fd, const char *path)
{
	char prefix[TREE_PATH_MAX + 1];
	struct stat st;

	for (const char *end = strchr(path, '/'); end; end = strchr(end + 1, '/')) {
		size_t len = (size_t)(end - path);

		if (len >= sizeof(prefix))
			return 0;
		memcpy(prefix, path, len);
		prefix[len] = '\0';

		_cleanup_close_ int fd = open_beneath(root_fd, prefix, O_PATH | O_NOFOLLOW);

		if (fd < 0)
			return errno == ELOOP ? len : 0;
		if (fstat(fd, &st) < 0)
			return 0;
		if (!S_ISDIR(st.st_mode))
			return len;
	}
	return 0;
}

static int read_target(int dir_fd, const char *name, struct host_view *out)
{
	ssize_t len = readlinkat(dir_fd, name, out->target, sizeof(out->target) - 1);

	if (len < 0)
		return -1;
	out->target[len] = '\0';
	out->entry.target = out->target;
	out->entry.target_len = (uint32_t)len;
	return 0;
}

int host_view(int dir_fd, const char *name, struct host_view *out)
{
	memset(&out->entry, 0, sizeof(out->entry));
	if (fstatat(dir_fd, name, &out->st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -1;
	tree_entry_from_stat(&out->st, &out->entry);
	if (out->entry.type == TREE_SYMLINK && read_target(dir_fd, name, out) < 0) {
		/* Gone or something else in the moment between. */
		out->entry.type = TREE_SPECIAL;
	}
	return 0;
}

int host_look(int root_fd, const char *path, struct host_view *out)
{
	const char *name;
	_cleanup_close_ int parent = host_open_parent(root_fd, path, &name);

	memset(&out->entry, 0, sizeof(out->entry));
	if (parent < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -1;
	return host_view(parent, name, out);
}

static bool hash_fd(int fd, uint8_t sha256[TREE_HASH_SIZE], uint64_t *size)
{
	_cleanup_free_ uint8_t *chunk = xmalloc_pages(READ_CHUNK);
	struct sha256 hash;
	ssize_t n;

	*size = 0;
	sha256_init(&hash);
	while ((n = read(fd, chunk, READ_CHUNK)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		sha256_update(&hash, chunk, (size_t)n);
		*size += (uint64_t)n;
	}
	sha256_final(&hash, sha256);
	return true;
}

static bool same_moment(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool same_stat(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_mode == b->st_mode &&
	       a->st_size == b->st_size && same_moment(&a->st_mtim, &b->st_mtim) &&
	       same_moment(&a->st_ctim, &b->st_ctim);
}

/* O_NONBLOCK: somebody may put a fifo there between two looks. */
static int open_file(int dir_fd, const char *name)
{
	return openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

bool host_hash(int dir_fd, const char *name, struct host_view *view)
{
	_cleanup_close_ int fd = open_file(dir_fd, name);
	struct stat before, after;
	uint64_t size;

	if (fd < 0 || fstat(fd, &before) < 0 || !same_stat(&before, &view->st))
		return false;
	if (!hash_fd(fd, view->entry.sha256, &size) || fstat(fd, &after) < 0 ||
	    !same_stat(&before, &after) || size != view->entry.size)
		return false;
	view->entry.flags |= TREE_HAS_HASH;
	return true;
}

bool host_hash_path(int root_fd, const char *path, struct host_view *view)
{
	const char *name;
	_cleanup_close_ int parent = host_open_parent(root_fd, path, &name);

	return parent >= 0 && host_hash(parent, name, view);
}

/*
 * A lease for reading is given only while nobody has the file open for writing. It is given back at
 * once; where it is not ours to ask for, or the file system has none, nothing is known. The signal
 * of a lease that is broken would be SIGIO, which ends a program that does not expect it.
 */
static bool is_being_written(int fd)
{
	if (fcntl(fd, F_SETSIG, SIGURG) < 0)
		return false;
	if (fcntl(fd, F_SETLEASE, F_RDLCK) < 0)
		return errno == EAGAIN;
	fcntl(fd, F_SETLEASE, F_UNLCK);
	return false;
}

static bool is_exactly_file(int dir_fd, const char *name, const struct tree_entry *expected,
			    uint32_t mode_mask)
{
	_cleanup_close_ int fd = open_file(dir_fd, name);
	uint8_t sha256[TREE_HASH_SIZE];
	struct stat st;
	uint64_t size;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    ((st.st_mode ^ expected->mode) & mode_mask) || (uint64_t)st.st_size != expected->size)
		return false;
	/* First this: whoever opens it later can do so by another name only. */
	if (is_being_written(fd) || !hash_fd(fd, sha256, &size))
		return false;
	return size == expected->size && (expected->flags & TREE_HAS_HASH) &&
	       memcmp(sha256, expected->sha256, TREE_HASH_SIZE) == 0;
}

static bool is_empty_dir(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;
	bool empty = true;

	if (!dir) {
		close_fdp(&fd);
		return false;
	}
	while (empty && (errno = 0, entry = readdir(dir)))
		empty = streq(entry->d_name, ".") || streq(entry->d_name, "..");
	empty = empty && errno == 0;
	closedir(dir);
	return empty;
}

bool host_is_exactly(int dir_fd, const char *name, const struct tree_entry *expected,
		     uint32_t mode_mask)
{
	struct host_view now;

	if (host_view(dir_fd, name, &now) < 0 || now.entry.type != expected->type)
		return false;
	switch (expected->type) {
	case TREE_NONE:
		return true;
	case TREE_DIR:
		return is_empty_dir(dir_fd, name);
	case TREE_FILE:
		return is_exactly_file(dir_fd, name, expected, mode_mask);
	case TREE_SYMLINK:
		return now.entry.target_len == expected->target_len && expected->target &&
		       memcmp(now.entry.target, expected->target, expected->target_len) == 0;
	case TREE_SPECIAL:
		return false;
	}
	return false;
}

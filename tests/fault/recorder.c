/*
 * Preloaded into a server: what it writes to its database, its logs and its records of kept
 * commands, and what it waits for until it is on the disk, in the order in which it happened.
 * crash.py makes of that what a power loss could have left at any moment.
 *
 *   RECORD_DIR   the data directory; other files are of no interest
 *   RECORD_FILE  where the events go
 *   RECORD_FAIL  N: the Nth sync of the database or its WAL fails with EIO, once; +N: the Nth
 *                one of the WAL that covers more than one commit
 *
 * An event is a header and its bytes. A sync says of which earlier events it speaks: what another
 * thread writes while it is under way may not be covered. Nothing here is for speed.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, TRUNCATE, SYNC, FAILED, SYNC_DIR, RENAME, UNLINK };

struct event {
	uint32_t kind, path_len, len;
	uint32_t pad;
	uint64_t offset; /* of a write; the size of a truncation; the last event a sync covers */
	uint64_t time_ns;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t count; /* of events */
static long syncs;
static int commits; /* in the WAL since its last sync */
static int out = -1;

static const char *below_data(const char *path)
{
	const char *dir = getenv("RECORD_DIR");
	size_t n = dir ? strlen(dir) : 0;

	return n && strncmp(path, dir, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

static bool is_watched(const char *name)
{
	return strcmp(name, "berth.db") == 0 || strcmp(name, "berth.db-wal") == 0 ||
	       strncmp(name, "logs/", 5) == 0 || strncmp(name, "execs/kept/", 11) == 0 ||
	       strncmp(name, "execs/logs/", 11) == 0;
}

static const char *watched(int fd, char path[PATH_MAX])
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, PATH_MAX - 1);
	if (n <= 0)
		return NULL;
	path[n] = 0;

	const char *name = below_data(path);

	return name && is_watched(name) ? name : NULL;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void put(const void *data, size_t len)
{
	while (len) {
		ssize_t n = syscall(SYS_write, out, data, len);

		if (n <= 0)
			abort();
		data = (const char *)data + n;
		len -= (size_t)n;
	}
}

static void record_locked(uint32_t kind, const char *name, uint64_t offset, const void *data,
			  size_t len)
{
	struct event e = { .kind = kind,
			   .path_len = (uint32_t)strlen(name),
			   .len = (uint32_t)len,
			   .offset = offset,
			   .time_ns = now_ns() };

	if (out < 0)
		out = (int)syscall(SYS_openat, AT_FDCWD, getenv("RECORD_FILE"),
				   O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (out < 0)
		abort();
	put(&e, sizeof(e));
	put(name, e.path_len);
	put(data, len);
	count++;
}

/* The header of a frame names the size of the database if it is the last one of its commit. */
static void count_commit_locked(const char *name, const void *data, size_t len)
{
	static const char none[4];

	if (len == 24 && strcmp(name, "berth.db-wal") == 0 &&
	    memcmp((const char *)data + 4, none, sizeof(none)) != 0)
		commits++;
}

static ssize_t write_at(int fd, const void *data, size_t len, off_t offset)
{
	char path[PATH_MAX];
	const char *name = watched(fd, path);
	ssize_t n;

	if (!name)
		return syscall(SYS_pwrite64, fd, data, len, offset);
	pthread_mutex_lock(&lock);
	n = syscall(SYS_pwrite64, fd, data, len, offset);
	if (n > 0)
		record_locked(WRITE, name, (uint64_t)offset, data, (size_t)n);
	if (n > 0)
		count_commit_locked(name, data, (size_t)n);
	pthread_mutex_unlock(&lock);
	return n;
}

ssize_t pwrite(int fd, const void *data, size_t len, off_t offset)
{
	return write_at(fd, data, len, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t len, off64_t offset)
{
	return write_at(fd, data, len, offset);
}

ssize_t write(int fd, const void *data, size_t len)
{
	char path[PATH_MAX];
	const char *name = watched(fd, path);
	ssize_t n;

	if (!name)
		return syscall(SYS_write, fd, data, len);
	pthread_mutex_lock(&lock);

	off_t offset = lseek(fd, 0, SEEK_CUR);

	n = syscall(SYS_write, fd, data, len);
	if (n > 0)
		record_locked(WRITE, name, (uint64_t)offset, data, (size_t)n);
	pthread_mutex_unlock(&lock);
	return n;
}

static int cut(int fd, off_t size)
{
	char path[PATH_MAX];
	const char *name = watched(fd, path);
	int r;

	if (!name)
		return (int)syscall(SYS_ftruncate, fd, size);
	pthread_mutex_lock(&lock);
	r = (int)syscall(SYS_ftruncate, fd, size);
	if (r == 0)
		record_locked(TRUNCATE, name, (uint64_t)size, "", 0);
	pthread_mutex_unlock(&lock);
	return r;
}

int ftruncate(int fd, off_t size)
{
	return cut(fd, size);
}

int ftruncate64(int fd, off64_t size)
{
	return cut(fd, size);
}

/* True for the one sync that is to fail. */
static bool must_fail_locked(const char *name)
{
	const char *nth = getenv("RECORD_FAIL");
	bool is_wal = strcmp(name, "berth.db-wal") == 0, covers_some = commits > 1;

	if (is_wal)
		commits = 0;
	if (!nth || !(nth[0] == '+' ? is_wal && covers_some : strncmp(name, "berth.db", 8) == 0))
		return false;
	return ++syncs == atol(nth);
}

static int sync_file(long number, int fd)
{
	char path[PATH_MAX];
	const char *name = watched(fd, path);
	struct stat st;
	bool fails;
	int r;

	/* A directory counts although it is the data directory itself. */
	if (!name && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		const char *dir = getenv("RECORD_DIR");

		name = below_data(path);
		if (dir && strcmp(path, dir) == 0)
			name = "";
	}
	if (!name)
		return (int)syscall(number, fd);
	pthread_mutex_lock(&lock);

	uint64_t covered = count;

	fails = must_fail_locked(name);
	pthread_mutex_unlock(&lock);
	r = fails ? -1 : (int)syscall(number, fd);
	pthread_mutex_lock(&lock);
	if (fstat(fd, &st) == 0)
		record_locked(r < 0                 ? FAILED
			      : S_ISDIR(st.st_mode) ? SYNC_DIR
						    : SYNC,
			      name, covered, "", 0);
	pthread_mutex_unlock(&lock);
	if (fails)
		errno = EIO;
	return r;
}

int fsync(int fd)
{
	return sync_file(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	return sync_file(SYS_fdatasync, fd);
}

/* A name below a directory that is open. */
static const char *named(int dirfd, const char *leaf, char path[PATH_MAX])
{
	char link[64], dir[PATH_MAX];
	ssize_t n;

	if (leaf[0] == '/' || dirfd == AT_FDCWD) {
		snprintf(path, PATH_MAX, "%s", leaf);
	} else {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
		n = readlink(link, dir, sizeof(dir) - 1);
		if (n <= 0)
			return NULL;
		dir[n] = 0;
		if (snprintf(path, PATH_MAX, "%s/%s", dir, leaf) >= PATH_MAX)
			return NULL;
	}

	const char *name = below_data(path);

	return name && is_watched(name) ? name : NULL;
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
	char from_path[PATH_MAX], to_path[PATH_MAX];
	const char *a = named(from_fd, from, from_path), *b = named(to_fd, to, to_path);
	int r;

	if (!a || !b)
		return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
	pthread_mutex_lock(&lock);
	r = (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
	if (r == 0)
		record_locked(RENAME, a, 0, b, strlen(b));
	pthread_mutex_unlock(&lock);
	return r;
}

static int remove_name(int dirfd, const char *leaf, int flags)
{
	char path[PATH_MAX];
	const char *name = flags ? NULL : named(dirfd, leaf, path);
	int r;

	if (!name)
		return (int)syscall(SYS_unlinkat, dirfd, leaf, flags);
	pthread_mutex_lock(&lock);
	r = (int)syscall(SYS_unlinkat, dirfd, leaf, 0);
	if (r == 0)
		record_locked(UNLINK, name, 0, "", 0);
	pthread_mutex_unlock(&lock);
	return r;
}

int unlinkat(int dirfd, const char *leaf, int flags)
{
	return remove_name(dirfd, leaf, flags);
}

int unlink(const char *path)
{
	return remove_name(AT_FDCWD, path, 0);
}

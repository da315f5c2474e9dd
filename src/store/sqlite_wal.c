#include "store/sqlite_wal.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/mem.h"

/* Below that the blocks are left to those who need them. */
#define FREE_BYTES_MIN (256LL << 20)
#define CHUNK (64 << 10)

static const struct sql BEGIN = { "BEGIN", "BEGIN IMMEDIATE" };
static const struct sql ROLLBACK = { "ROLLBACK", "ROLLBACK" };

static bool disk_has_room(int fd)
{
	struct statvfs st;

	return fstatvfs(fd, &st) == 0 &&
	       (int64_t)st.f_bavail * (int64_t)st.f_frsize >= FREE_BYTES_MIN;
}

/* Beyond it writing is not refused but ends the program. */
static bool is_allowed(int64_t size)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
	       (limit.rlim_cur == RLIM_INFINITY || (uint64_t)size <= limit.rlim_cur);
}

/* How far it got; a disk that is full after all only ends it. */
static int64_t append_zeros(int fd, int64_t from, int64_t until)
{
	_cleanup_free_ char *zeros = xcalloc(1, CHUNK);

	while (from < until) {
		ssize_t n = pwrite(fd, zeros, (size_t)MIN_OF(until - from, CHUNK), from);

		if (n <= 0)
			break;
		from += n;
	}
	return from;
}

static int64_t grow_locked(int fd, int64_t enough, int64_t more, bool *grown)
{
	struct stat st;
	int64_t size, until;

	/* An empty one has no header yet, without which SQLite does not know what follows. */
	if (fstat(fd, &st) < 0 || st.st_size == 0)
		return -1;
	size = st.st_size;
	until = size + more * WAL_FRAME_BYTES;
	if (size / WAL_FRAME_BYTES < enough && is_allowed(until) && disk_has_room(fd)) {
		until = append_zeros(fd, size, until);
		*grown = until > size;
		size = until;
	}
	return size / WAL_FRAME_BYTES;
}

int64_t wal_grow(struct sqlite_conn *conn, int64_t enough, int64_t more, int *out)
{
	const char *path = sqlite3_filename_wal(sqlite3_db_filename(conn->handle, "main"));
	/* SQLite has no locks on this file that closing it could take away. */
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	bool grown = false;
	int64_t frames = -1;

	*out = -1;
	if (fd < 0)
		return -1;
	/* Another program that writes is not waited for. */
	sqlite3_busy_timeout(conn->handle, 0);
	if (sqlite_conn_control(conn, &BEGIN, NULL) == 0) {
		frames = grow_locked(fd, enough, more, &grown);
		sqlite_conn_control(conn, &ROLLBACK, NULL);
	}
	sqlite3_busy_timeout(conn->handle, conn->busy_timeout_ms);
	if (grown)
		*out = steal_fd(&fd);
	return frames;
}

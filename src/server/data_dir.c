#include "server/data_dir.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"

#define LOCK_BYTES 4096
#define LOCK_WAIT_MS 5000
#define LOCK_POLL_MS 5
#define BACKLOG 1024
#define RESERVE_NAME "reserve"
#define RESERVE_BYTES (4 << 20)
#define RESERVE_ROOM (16 << 20) /* so much must be free before it is taken */

int data_open(const char *path, int *out, struct error *err)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (dir_make(AT_FDCWD, path, 0700, err) < 0 || dir_open(AT_FDCWD, path, &fd, err) < 0)
		return error_wrap(err, "data directory");
	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot look at %s", path);
	if (st.st_uid != geteuid())
		return error_set(err, ERR_FORBIDDEN, "the data directory %s belongs to uid %u",
				 path, (unsigned)st.st_uid);
	if (st.st_mode & 077 && fchmod(fd, 0700) < 0)
		return error_errno(err, errno, "cannot make %s private", path);
	*out = steal_fd(&fd);
	return 0;
}

/* The holder wrote who it is; a lock without that is held by one that is just starting. */
static json_t *read_holder(int dirfd)
{
	_cleanup_buf_ struct buf text = { 0 };

	return file_read(dirfd, "lock", &text, LOCK_BYTES, NULL) == 0
		       ? json_parse(buf_str(&text), text.len, NULL)
		       : NULL;
}

static int tell_holder(int dirfd, const char *path, struct error *err)
{
	_cleanup_json_ json_t *holder = read_holder(dirfd);

	if (!holder)
		return error_set(err, ERR_LOCKED, "another server is using %s", path);
	error_set(err, ERR_LOCKED, "%s is in use by the server with pid %lld on %s, started %s",
		  path, (long long)json_int(holder, "pid", 0), json_str(holder, "host"),
		  json_str(holder, "startedAt"));
	error_set_details(err, json_text(holder));
	return -1;
}

static int sign_lock(int fd, struct clock *clock, struct error *err)
{
	_cleanup_json_ json_t *holder = json_object();
	char host[256] = "";

	gethostname(host, sizeof(host) - 1);
	json_put_int(holder, "pid", getpid());
	json_put_str(holder, "host", host);
	json_put_time(holder, "startedAt", clock_now(clock));

	_cleanup_free_ char *text = json_text(holder);

	if (ftruncate(fd, 0) < 0)
		return error_errno(err, errno, "cannot write the lock file");
	return fd_pwrite_all(fd, text, strlen(text), 0, err);
}

static bool holder_is_dead(int dirfd)
{
	_cleanup_json_ json_t *holder = read_holder(dirfd);
	int64_t pid = json_int(holder, "pid", 0);

	return pid > 1 && pid <= INT32_MAX && kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

/*
 * A server that was killed while it started a program leaves a child that has its descriptors, and
 * with them the lock, until it gets as far as its exec: a moment, on a busy machine a longer one.
 */
static int take_lock(int fd, int dirfd)
{
	for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; waited += LOCK_POLL_MS) {
		if (errno != EWOULDBLOCK)
			return -1;
		if (waited >= LOCK_WAIT_MS || !holder_is_dead(dirfd)) {
			errno = EWOULDBLOCK;
			return -1;
		}
		poll(NULL, 0, LOCK_POLL_MS);
	}
	return 0;
}

static void give_reserve_back(int dirfd)
{
	int64_t bytes = dir_free_bytes(dirfd);

	if (bytes >= 0 && bytes < RESERVE_BYTES && unlinkat(dirfd, RESERVE_NAME, 0) == 0)
		log_warn("the disk is full: the %d MiB that were kept for a start are used now",
			 RESERVE_BYTES >> 20);
}

void data_keep_reserve(int dirfd)
{
	_cleanup_close_ int fd = -1;

	if (faccessat(dirfd, RESERVE_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
	    dir_free_bytes(dirfd) < RESERVE_ROOM)
		return;
	fd = openat(dirfd, RESERVE_NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0 && posix_fallocate(fd, 0, RESERVE_BYTES) != 0)
		unlinkat(dirfd, RESERVE_NAME, 0);
}

int data_lock(int dirfd, const char *path, struct clock *clock, int *lock_fd, struct error *err)
{
	_cleanup_close_ int fd =
		openat(dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return error_errno(err, errno, "cannot open the lock file of %s", path);
	if (take_lock(fd, dirfd) < 0) {
		if (errno != EWOULDBLOCK)
			return error_errno(err, errno, "cannot lock %s", path);
		return tell_holder(dirfd, path, err);
	}
	give_reserve_back(dirfd);
	dir_sweep_temporary(dirfd);
	if (sign_lock(fd, clock, err) < 0)
		return -1;
	*lock_fd = steal_fd(&fd);
	return 0;
}

/* The address of `name` in an open directory, however long the directory's own path is. */
static int socket_address(int dirfd, const char *path, const char *name, struct sockaddr_un *out,
			  struct error *err)
{
	*out = (struct sockaddr_un){ .sun_family = AF_UNIX };

	int n = snprintf(out->sun_path, sizeof(out->sun_path), "%s", path);

	if (n >= (int)sizeof(out->sun_path))
		n = snprintf(out->sun_path, sizeof(out->sun_path), "/proc/self/fd/%d/%s", dirfd,
			     name);
	if (n >= (int)sizeof(out->sun_path))
		return error_set(err, ERR_VALIDATION, "the name of the socket %s is too long",
				 name);
	return 0;
}

static int split_path(const char *path, int *dirfd, const char **name, struct error *err)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *dir = slash ? xstrndup(path, (size_t)(slash - path)) : xstrdup(".");

	*name = slash ? slash + 1 : path;
	if (!path_is_segment(*name))
		return error_set(err, ERR_VALIDATION, "%s is not a valid path for a socket", path);
	return dir_open(AT_FDCWD, dir[0] ? dir : "/", dirfd, err);
}

/* Nobody answers there: what a server left that did not end by itself. */
static int remove_stale(int dirfd, const char *name, const struct sockaddr_un *address,
			struct error *err)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : error_errno(err, errno, "cannot look at %s", name);
	if (!S_ISSOCK(st.st_mode))
		return error_set(err, ERR_CONFLICT, "%s exists and is not a socket", name);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
		return error_set(err, ERR_LOCKED, "another server listens on %s", name);
	if (unlinkat(dirfd, name, 0) < 0)
		return error_errno(err, errno, "cannot remove the old socket %s", name);
	return 0;
}

int socket_listen(const char *path, int *out, struct error *err)
{
	_cleanup_close_ int dirfd = -1, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un address;
	const char *name;

	if (fd < 0)
		return error_errno(err, errno, "cannot make a unix socket");
	if (split_path(path, &dirfd, &name, err) < 0 ||
	    socket_address(dirfd, path, name, &address, err) < 0 ||
	    remove_stale(dirfd, name, &address, err) < 0)
		return -1;
	/* bind takes the mode from the socket, so there is no moment at which others can connect.
	 */
	if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, BACKLOG) < 0)
		return error_errno(err, errno, "cannot listen on %s", path);
	*out = steal_fd(&fd);
	return 0;
}

#include "workspace/apply_stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/sha256.h"
#include "base/text.h"
#include "workspace/apply_host.h"
#include "workspace/results.h"

#define LOCK_NAME "lock"
#define LOCK_POLL_MS 50
#define COPY_CHUNK ((size_t)262144)

static const char *const roots[] = { ".git/berth", ".berth" };

void staged_name(uint32_t number, char out[STAGED_NAME_SIZE])
{
	snprintf(out, STAGED_NAME_SIZE, "%u", number);
}

static char *run_dir_name(const char *run_id)
{
	return xasprintf("files-%s", run_id);
}

/* A directory that was begun is gone on with, even if a repository came or went meanwhile. */
static const char *choose_root(int workspace_fd, const char *run_name)
{
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", roots[i], run_name);
		_cleanup_close_ int fd = host_open_dir(workspace_fd, path, O_PATH);

		if (fd >= 0)
			return roots[i];
	}
	/* .git may be a file that points elsewhere: then it is not ours to write to. */
	return fstatat(workspace_fd, ".git", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)
		       ? roots[0]
		       : roots[1];
}

/* Of the owner of the directory it is in, so that people can remove what is theirs. */
static int make_dir_like_parent(int parent_fd, const char *name, struct error *err)
{
	struct stat st;

	if (mkdirat(parent_fd, name, 0700) < 0)
		return errno == EEXIST
			       ? 0
			       : error_errno(err, errno, "make the staging directory %s", name);
	if (geteuid() != 0)
		return 0;
	if (fstat(parent_fd, &st) < 0 ||
	    fchownat(parent_fd, name, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW) < 0)
		return error_errno(err, errno, "own the staging directory %s", name);
	return 0;
}

/* The same for a file: its owner's own server must be able to open it another time. */
static int own_like_dir(int fd, int dir_fd, struct error *err)
{
	struct stat dir, st;

	if (geteuid() != 0)
		return 0;
	if (fstat(dir_fd, &dir) < 0 || fstat(fd, &st) < 0 ||
	    ((st.st_uid != dir.st_uid || st.st_gid != dir.st_gid) &&
	     fchown(fd, dir.st_uid, dir.st_gid) < 0))
		return error_errno(err, errno, "own a file of the staging directory");
	return 0;
}

/* Where a .berth is seen by git, it says itself that it is to be ignored. */
static int make_unseen(int root_fd, struct error *err)
{
	_cleanup_close_ int fd = openat(root_fd, ".gitignore",
					O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

	if (fd < 0)
		/* ENOENT: it went with its last run in this moment; the lock tells the same. */
		return errno == EEXIST || errno == ENOENT
			       ? 0
			       : error_errno(err, errno, "make .berth/.gitignore");
	return fd_write_all(fd, "*\n", 2, err) < 0 ? -1 : own_like_dir(fd, root_fd, err);
}

static int open_root(int workspace_fd, const char *root, int *fd, struct error *err)
{
	const char *name;
	_cleanup_close_ int parent = host_open_parent(workspace_fd, root, &name);

	if (parent < 0)
		return error_errno(err, errno, "open the directory of %s", root);
	if (make_dir_like_parent(parent, name, err) < 0)
		return -1;
	*fd = host_open_dir(workspace_fd, root, O_RDONLY);
	if (*fd < 0)
		return error_errno(err, errno, "open the staging directory %s", root);
	return streq(root, ".berth") ? make_unseen(*fd, err) : 0;
}

/* Who waited may have got the lock of a file that is not there any more. */
static bool is_current(int root_fd, int lock_fd)
{
	struct stat a, b;

	return fstat(lock_fd, &a) == 0 &&
	       fstatat(root_fd, LOCK_NAME, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

static bool is_cancelled(int cancel_fd, int wait_ms)
{
	struct pollfd p = { .fd = cancel_fd, .events = POLLIN };

	return poll(&p, cancel_fd >= 0, wait_ms) > 0;
}

static int try_lock(int root_fd, int *lock_fd, struct error *err)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	_cleanup_close_ int fd =
		openat(root_fd, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return errno == ENOENT ? 0
				       : error_errno(err, errno, "open the lock of the workspace");
	if (fcntl(fd, F_OFD_SETLK, &lock) < 0)
		return errno == EAGAIN || errno == EACCES
			       ? 0
			       : error_errno(err, errno, "lock the workspace");
	if (own_like_dir(fd, root_fd, err) < 0)
		return -1;
	if (is_current(root_fd, fd))
		*lock_fd = steal_fd(&fd);
	return 0;
}

/* The root may go while we wait, with its last run; then it is made again. */
static int open_locked(int workspace_fd, const char *root, int64_t wait_ms, int cancel_fd,
		       struct staging *s, struct error *err)
{
	struct clock clock;

	clock_init_system(&clock);

	int64_t deadline = clock_mono(&clock) + wait_ms;

	for (;;) {
		close_fdp(&s->root_fd);
		if (open_root(workspace_fd, root, &s->root_fd, err) < 0 ||
		    try_lock(s->root_fd, &s->lock_fd, err) < 0)
			return -1;
		if (s->lock_fd >= 0)
			return 0;
		if (clock_mono(&clock) >= deadline)
			return error_set(err, ERR_LOCKED,
					 "another collect is at work in this workspace; try again "
					 "when it has ended");
		if (is_cancelled(cancel_fd, LOCK_POLL_MS))
			return error_set(err, ERR_CANCELLED,
					 "cancelled while waiting for another collect");
	}
}

/* Not every file system has it (NFS, some FUSE ones): found out before it matters. */
static bool try_exchange(int fd)
{
	bool works = false;

	if (FENCE_OFF("workspace.apply.probe"))
		return false;
	unlinkat(fd, "probe-a", 0);
	unlinkat(fd, "probe-b", 0);
	if (symlinkat("a", fd, "probe-a") == 0 && symlinkat("b", fd, "probe-b") == 0)
		works = renameat2(fd, "probe-a", fd, "probe-b", RENAME_EXCHANGE) == 0;
	unlinkat(fd, "probe-a", 0);
	unlinkat(fd, "probe-b", 0);
	return works;
}

static int open_run(struct staging *s, const char *name, struct error *err)
{
	struct stat st;

	if (make_dir_like_parent(s->root_fd, name, err) < 0)
		return -1;
	s->fd = host_open_dir(s->root_fd, name, O_RDONLY);
	if (s->fd < 0 || fstat(s->fd, &st) < 0)
		return error_errno(err, errno, "open the staging directory %s", name);
	s->dev = st.st_dev;
	s->ino = st.st_ino;
	s->can_exchange = try_exchange(s->fd);
	return 0; /* staging_sync makes its name durable before anything is moved into it */
}

int staging_open(int workspace_fd, const char *run_id, int64_t wait_ms, int cancel_fd,
		 struct staging *out, struct error *err)
{
	_cleanup_free_ char *name = run_dir_name(run_id);
	const char *root = choose_root(workspace_fd, name);

	*out = (struct staging){
		.workspace_fd = workspace_fd, .root_fd = -1, .fd = -1, .lock_fd = -1
	};
	out->path = xasprintf("%s/%s", root, name);
	if (open_locked(workspace_fd, root, wait_ms, cancel_fd, out, err) < 0 ||
	    open_run(out, name, err) < 0) {
		staging_close(out);
		return -1;
	}
	return 0;
}

static bool has_runs(int root_fd)
{
	struct dirent *entry;
	int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	bool found = false;

	if (!dir) {
		close_fdp(&fd);
		return true;
	}
	while (!found && (entry = readdir(dir)))
		found = !streq(entry->d_name, ".") && !streq(entry->d_name, "..") &&
			!streq(entry->d_name, LOCK_NAME) && !streq(entry->d_name, ".gitignore");
	closedir(dir);
	return found;
}

/*
 * With the lock held. A .berth in which no run is left goes, so that it is seen in a workspace only
 * while there is something in it; .git/berth is seen by nobody, and git's import uses it too.
 */
static void tidy_root(struct staging *s)
{
	if (!str_starts(s->path, ".berth/") || has_runs(s->root_fd))
		return;
	unlinkat(s->root_fd, ".gitignore", 0);
	unlinkat(s->root_fd, LOCK_NAME, 0);
	unlinkat(s->workspace_fd, ".berth", AT_REMOVEDIR);
}

void staging_close(struct staging *s)
{
	close_fdp(&s->fd);
	if (s->lock_fd >= 0) {
		/* Only when it is empty. */
		unlinkat(s->root_fd, strrchr(s->path, '/') + 1, AT_REMOVEDIR);
		tidy_root(s);
	}
	close_fdp(&s->root_fd);
	close_fdp(&s->lock_fd);
	free(s->path);
	s->path = NULL;
}

int staging_look(int workspace_fd, const char *run_id)
{
	_cleanup_free_ char *name = run_dir_name(run_id);
	_cleanup_free_ char *path = xasprintf("%s/%s", choose_root(workspace_fd, name), name);

	return host_open_dir(workspace_fd, path, O_RDONLY);
}

int staging_drop(int workspace_fd, const char *run_id, struct error *err)
{
	_cleanup_free_ char *name = run_dir_name(run_id);
	_cleanup_close_ int there = staging_look(workspace_fd, run_id);
	_cleanup_(staging_close) struct staging s = { .root_fd = -1, .fd = -1, .lock_fd = -1 };

	if (there < 0)
		return 0;
	if (staging_open(workspace_fd, run_id, STAGING_WAIT_MS, -1, &s, err) < 0)
		return -1;
	return dir_remove_tree(s.root_fd, name, err);
}

struct copy {
	int from, to;
	uint64_t size;
	struct sha256 hash;
	uint8_t *chunk;
};

static void hash_zeros(struct copy *c, uint64_t len)
{
	memset(c->chunk, 0, (size_t)MIN_OF(len, (uint64_t)COPY_CHUNK));
	while (len) {
		size_t n = (size_t)MIN_OF(len, (uint64_t)COPY_CHUNK);

		sha256_update(&c->hash, c->chunk, n);
		len -= n;
	}
}

static int copy_range(struct copy *c, uint64_t at, uint64_t end, struct error *err)
{
	while (at < end) {
		size_t want = (size_t)MIN_OF(end - at, (uint64_t)COPY_CHUNK);
		ssize_t n = pread(c->from, c->chunk, want, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_errno(err, n < 0 ? errno : EIO, "read kept contents");
		if (fd_pwrite_all(c->to, c->chunk, (size_t)n, (off_t)at, err) < 0)
			return error_wrap(err, "write to the staging directory");
		sha256_update(&c->hash, c->chunk, (size_t)n);
		at += (uint64_t)n;
	}
	return 0;
}

/* Holes stay holes. */
static int copy_sparse(struct copy *c, struct error *err)
{
	uint64_t at = 0;

	while (at < c->size) {
		off_t data = lseek(c->from, (off_t)at, SEEK_DATA);
		off_t hole;

		if (data < 0 && errno != ENXIO) /* no such thing here: all of it is data */
			return copy_range(c, at, c->size, err);
		if (data < 0 || (uint64_t)data > c->size)
			data = (off_t)c->size;
		hash_zeros(c, (uint64_t)data - at);
		if ((uint64_t)data == c->size)
			break;
		hole = lseek(c->from, data, SEEK_HOLE);
		if (hole < 0 || (uint64_t)hole > c->size)
			hole = (off_t)c->size;
		if (copy_range(c, (uint64_t)data, (uint64_t)hole, err) < 0)
			return -1;
		at = (uint64_t)hole;
	}
	if (ftruncate(c->to, (off_t)c->size) < 0)
		return error_errno(err, errno, "write to the staging directory");
	return 0;
}

static int copy_blob(int run_fd, int to, const struct tree_entry *entry, struct error *err)
{
	_cleanup_close_ int from = blob_open(run_fd, entry->sha256, err);
	_cleanup_free_ uint8_t *chunk = xmalloc_pages(COPY_CHUNK);
	struct copy c = { .from = from, .to = to, .size = entry->size, .chunk = chunk };
	uint8_t sha256[TREE_HASH_SIZE];
	struct stat st;

	if (from < 0)
		return -1;
	if (fstat(from, &st) < 0)
		return error_errno(err, errno, "read kept contents");
	sha256_init(&c.hash);
	if ((uint64_t)st.st_size == entry->size && copy_sparse(&c, err) < 0)
		return -1;
	sha256_final(&c.hash, sha256);
	if ((uint64_t)st.st_size != entry->size ||
	    memcmp(sha256, entry->sha256, TREE_HASH_SIZE) != 0)
		return error_set(err, ERR_INTERNAL,
				 "the stored content of a changed file is damaged on this disk");
	return 0;
}

/* What the place wrote later than now by its clock would look new to make and its like for ever. */
static void set_time(int fd, uint64_t mtime_ns)
{
	struct timespec now, times[2] = { { .tv_nsec = UTIME_OMIT }, { 0 } };

	clock_gettime(CLOCK_REALTIME, &now);
	if (!mtime_ns || mtime_ns > (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec)
		return;
	times[1].tv_sec = (time_t)(mtime_ns / 1000000000);
	times[1].tv_nsec = (long)(mtime_ns % 1000000000);
	futimens(fd, times);
}

static int make_file(const struct staging *s, int run_fd, const char *name,
		     const struct tree_entry *entry, const struct staged_owner *owner,
		     struct error *err)
{
	_cleanup_close_ int fd =
		openat(s->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return error_errno(err, errno, "make a file in the staging directory");
	if (copy_blob(run_fd, fd, entry, err) < 0)
		return -1;
	if ((owner->set && fchown(fd, owner->uid, owner->gid) < 0) ||
	    fchmod(fd, entry->mode & 0777) < 0)
		return error_errno(err, errno, "set owner and mode");
	set_time(fd, entry->mtime_ns);
	sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	return 0;
}

static int make_link(const struct staging *s, const char *name, const struct tree_entry *entry,
		     const struct staged_owner *owner, struct error *err)
{
	if (symlinkat(entry->target, s->fd, name) < 0 ||
	    (owner->set && fchownat(s->fd, name, owner->uid, owner->gid, AT_SYMLINK_NOFOLLOW) < 0))
		return error_errno(err, errno, "make a link in the staging directory");
	return 0;
}

static int make_dir(const struct staging *s, const char *name, const struct tree_entry *entry,
		    const struct staged_owner *owner, struct error *err)
{
	if (mkdirat(s->fd, name, 0700) < 0 ||
	    (owner->set &&
	     fchownat(s->fd, name, owner->uid, owner->gid, AT_SYMLINK_NOFOLLOW) < 0) ||
	    fchmodat(s->fd, name, (entry->mode & 0777) | 0700, 0) < 0)
		return error_errno(err, errno, "make a directory in the staging directory");
	return 0;
}

int staging_make(const struct staging *s, int run_fd, uint32_t number,
		 const struct tree_entry *entry, const struct staged_owner *owner, uint64_t *dev,
		 uint64_t *ino, struct error *err)
{
	char name[STAGED_NAME_SIZE];
	struct stat st;
	int r;

	staged_name(number, name);
	/* Of a try that ended before it was in the journal. */
	if (staging_discard(s, number, err) < 0)
		return -1;
	if (entry->type == TREE_FILE)
		r = make_file(s, run_fd, name, entry, owner, err);
	else if (entry->type == TREE_SYMLINK)
		r = make_link(s, name, entry, owner, err);
	else
		r = make_dir(s, name, entry, owner, err);
	if (r < 0)
		return -1;
	if (fstatat(s->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return error_errno(err, errno, "look at the staging directory");
	*dev = st.st_dev;
	*ino = st.st_ino;
	return 0;
}

int staging_discard(const struct staging *s, uint32_t number, struct error *err)
{
	char name[STAGED_NAME_SIZE];

	staged_name(number, name);
	if (unlinkat(s->fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno == EISDIR && unlinkat(s->fd, name, AT_REMOVEDIR) == 0)
		return 0;
	return error_errno(err, errno, "clear the staging directory");
}

int staging_sync(const struct staging *s, struct error *err)
{
	if (syncfs(s->fd) < 0)
		return error_errno(err, errno, "sync the workspace");
	return 0;
}

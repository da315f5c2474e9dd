/*
 * TREE_PUT: a tree is written as records come.
 *
 * A file takes its own name at once where nothing is there, since nobody looks before the put is
 * over; else it is written beside the old one, without a name where the file system can do that,
 * and replaces it when it is whole. A directory is open to its owner alone while it is filled and
 * gets mode and time when the first thing outside it comes: things come in order, so only the
 * directories above the present one wait for theirs. One that could not be written to is opened and
 * closed again in the same way.
 *
 * What is in the way of a file, a link or a directory goes, a directory with all that is in it. An
 * end before FINISH, whatever its cause, removes the file that was not whole. Nothing is synced: a
 * place does not survive what syncing is for. Set-id bits are never given.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/id.h"
#include "base/text.h"
#include "relay/file_tree_root.h"

#define MODE_MASK 0777u
#define CLOCK_WAITS 50

/* A directory above what is being put, which has not its final mode. */
struct open_dir {
	size_t len; /* of its path, the beginning of open_path */
	mode_t mode;
	uint64_t mtime_ns; /* 0: left as it is */
};

struct put {
	struct tree_out out;
	struct tree_in in;
	struct tree_dir dir;
	struct open_dir *open;
	size_t open_count, open_cap;
	char open_path[TREE_PATH_MAX + 1];
	uint64_t last_ctime_ns;

	char path[TREE_PATH_MAX + 1]; /* of the present record */
	size_t path_len;
	int parent; /* the cache's */
	const char *name;

	/* The file that was begun: fd < 0 when there is none. */
	int fd;
	bool fresh;    /* has its name already */
	char temp[48]; /* hidden name, or empty while it has none */
	mode_t mode;
	uint64_t mtime_ns, size, at;
	bool ends_in_hole;
};

static void times_of(uint64_t mtime_ns, struct timespec out[2])
{
	out[0] = (struct timespec){ .tv_nsec = UTIME_OMIT };
	out[1] = (struct timespec){ .tv_sec = (time_t)(mtime_ns / 1000000000u),
				    .tv_nsec = (long)(mtime_ns % 1000000000u) };
	if (mtime_ns == 0)
		out[1].tv_nsec = UTIME_OMIT;
}

/* Directories on the way. All functions below return 0 or an errno. */

static int dir_settle(struct put *p, const struct open_dir *d)
{
	struct timespec times[2];
	char path[TREE_PATH_MAX + 1];
	int fd, r;

	memcpy(path, d->len > 0 ? p->open_path : ".", MAX_OF(d->len, 1));
	path[MAX_OF(d->len, 1)] = 0;
	fd = tree_open(p->dir.root, path, O_PATH | O_DIRECTORY);
	if (fd < 0)
		return -fd;
	times_of(d->mtime_ns, times);
	r = d->mtime_ns > 0 && utimensat(fd, "", times, AT_EMPTY_PATH) < 0 ? errno : 0;
	if (r == 0)
		r = -root_path_chmod(fd, d->mode);
	close(fd);
	return r;
}

/* Those that do not hold the path are complete. */
static int dirs_settle(struct put *p, const char *path, size_t len)
{
	while (p->open_count > 0) {
		struct open_dir *d = &p->open[p->open_count - 1];
		int r;

		if (len > d->len && tree_path_is_within(path, len, p->open_path, d->len))
			return 0;
		p->open_count--;
		r = dir_settle(p, d);
		if (r != 0)
			return r;
	}
	return 0;
}

static void dirs_settle_all(struct put *p)
{
	while (p->open_count > 0)
		dir_settle(p, &p->open[--p->open_count]);
}

static void dir_remember(struct put *p, size_t len, mode_t mode, uint64_t mtime_ns)
{
	if (p->open_count == p->open_cap) {
		p->open_cap = MAX_OF(p->open_cap * 2, 16);
		p->open = xreallocarray(p->open, p->open_cap, sizeof(*p->open));
	}
	memcpy(p->open_path, p->path, len);
	p->open[p->open_count++] = (struct open_dir){ len, mode, mtime_ns };
}

/* The directory of the present path may be written to from now on; false when it could before. */
static bool dir_unlock(struct put *p)
{
	size_t len = p->name > p->path ? (size_t)(p->name - p->path) - 1 : 0;
	struct stat st;

	if (fstat(p->parent, &st) < 0 || (st.st_mode & 0700) == 0700 ||
	    root_path_chmod(p->parent, (st.st_mode & MODE_MASK) | 0700) < 0)
		return false;
	if (p->open_count == 0 || p->open[p->open_count - 1].len != len)
		dir_remember(p, len, st.st_mode & 07777, 0);
	return true;
}

static int make_parents(struct put *p)
{
	for (char *slash = strchr(p->path, '/'); slash; slash = strchr(slash + 1, '/')) {
		const char *name;
		int fd, r = 0;

		*slash = 0;
		fd = tree_dir_of(&p->dir, p->path, &name);
		if (fd < 0)
			r = -fd;
		else if (mkdirat(fd, name, 0755) < 0 && errno != EEXIST)
			r = errno;
		*slash = '/';
		if (r != 0)
			return r;
	}
	return 0;
}

/* Takes the path of a record that comes to it, and finds its directory. */
static int at_path(struct put *p, const char *path, size_t len, bool make)
{
	int r;

	memcpy(p->path, path, len);
	p->path[len] = 0;
	p->path_len = len;
	r = dirs_settle(p, path, len);
	if (r != 0)
		return r;
	p->parent = tree_dir_of(&p->dir, p->path, &p->name);
	if (p->parent == -ENOENT && make) {
		r = make_parents(p);
		if (r != 0)
			return r;
		p->parent = tree_dir_of(&p->dir, p->path, &p->name);
	}
	return p->parent < 0 ? -p->parent : 0;
}

static int clear_way(struct put *p)
{
	_cleanup_error_ struct error err = { 0 };

	/* The cache may be in what goes. */
	_cleanup_close_ int parent = dup(p->parent);

	if (parent < 0)
		return errno;
	errno = 0;
	if (dir_remove_tree(parent, p->name, &err) < 0)
		return errno ? errno : EIO;
	tree_dir_forget(&p->dir);
	p->parent = tree_dir_of(&p->dir, p->path, &p->name);
	return p->parent < 0 ? -p->parent : 0;
}

static void hidden_name(char out[48])
{
	uint8_t random[12];

	random_bytes(random, sizeof(random));
	snprintf(out, 48, ".berth-");
	hex_encode(out + strlen(out), random, sizeof(random));
}

/* The hidden one takes the name of the present path. */
static int take_name(struct put *p, const char *temp)
{
	int r = renameat(p->parent, temp, p->parent, p->name) < 0 ? errno : 0;

	if (r == EISDIR || r == ENOTEMPTY || r == EEXIST)
		r = clear_way(p);
	else
		return r;
	if (r == 0 && renameat(p->parent, temp, p->parent, p->name) < 0)
		r = errno;
	return r;
}

static int report(struct put *p, const struct stat *st, mode_t mode)
{
	struct tree_entry entry = { .path = p->path, .path_len = (uint32_t)p->path_len };

	tree_entry_from_stat(st, &entry);
	entry.mode = mode;
	p->last_ctime_ns = MAX_OF(p->last_ctime_ns, entry.ctime_ns);
	return tree_out_entry(&p->out, RECORD_ENTRY, &entry) < 0 ? EPIPE : 0;
}

/* Directories */

static int make_dir(struct put *p)
{
	for (;;) {
		if (mkdirat(p->parent, p->name, 0700) == 0)
			return 0;
		if (errno != EACCES || !dir_unlock(p))
			return errno;
	}
}

static int put_dir(struct put *p, const struct tree_entry *entry)
{
	mode_t mode = entry->mode & MODE_MASK;
	struct stat st;
	int r = make_dir(p);

	if (r == EEXIST) {
		if (fstatat(p->parent, p->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return errno;
		r = 0;
		if (!S_ISDIR(st.st_mode)) {
			if (unlinkat(p->parent, p->name, 0) < 0)
				return errno;
			r = make_dir(p);
		}
	}
	if (r != 0)
		return r;
	if (fstatat(p->parent, p->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno;
	dir_remember(p, p->path_len, mode, entry->mtime_ns);
	return report(p, &st, mode);
}

/* Links */

static int make_link(struct put *p, const char *target, const char *name)
{
	for (;;) {
		if (symlinkat(target, p->parent, name) == 0)
			return 0;
		if (errno != EACCES || !dir_unlock(p))
			return errno;
	}
}

static int put_symlink(struct put *p, const struct tree_entry *entry)
{
	struct timespec times[2];
	char temp[48];
	int r = make_link(p, entry->target, p->name);

	if (r == EEXIST) {
		hidden_name(temp);
		r = make_link(p, entry->target, temp);
		if (r == 0)
			r = take_name(p, temp);
		if (r != 0 && p->parent >= 0)
			unlinkat(p->parent, temp, 0);
	}
	times_of(entry->mtime_ns, times);
	if (r == 0 && entry->mtime_ns > 0)
		utimensat(p->parent, p->name, times, AT_SYMLINK_NOFOLLOW);
	return r;
}

/* Files */

static int open_named(struct put *p, const char *name)
{
	for (;;) {
		p->fd = openat(p->parent, name,
			       O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
			       p->mode);
		if (p->fd >= 0)
			return 0;
		if (errno != EACCES || !dir_unlock(p))
			return errno;
	}
}

static int open_beside(struct put *p)
{
	p->fd = openat(p->parent, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, p->mode);
	if (p->fd < 0 && errno == EACCES && dir_unlock(p))
		p->fd = openat(p->parent, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, p->mode);
	if (p->fd >= 0)
		return 0;
	hidden_name(p->temp);
	return open_named(p, p->temp);
}

static bool is_ours(const struct put *p, const char *name)
{
	struct stat mine, there;

	return fstat(p->fd, &mine) == 0 &&
	       fstatat(p->parent, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
	       mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

/* The file that was begun is not to be there. */
static void file_discard(struct put *p)
{
	if (p->fd < 0)
		return;
	if (p->fresh && is_ours(p, p->name))
		unlinkat(p->parent, p->name, 0);
	else if (p->temp[0])
		unlinkat(p->parent, p->temp, 0);
	close_fdp(&p->fd);
}

static int file_name(struct put *p)
{
	char self[32];

	if (p->fresh)
		return 0;
	if (!p->temp[0]) {
		hidden_name(p->temp);
		snprintf(self, sizeof(self), "/proc/self/fd/%d", p->fd);
		if (linkat(AT_FDCWD, self, p->parent, p->temp, AT_SYMLINK_FOLLOW) < 0) {
			p->temp[0] = 0;
			return errno;
		}
	}
	return take_name(p, p->temp);
}

static int file_finish(struct put *p)
{
	struct timespec times[2];
	struct stat st;
	int r;

	/* A hole at the end was only skipped. */
	if (p->ends_in_hole && ftruncate(p->fd, (off_t)p->size) < 0)
		return errno;
	times_of(p->mtime_ns, times);
	if (p->mtime_ns > 0 && futimens(p->fd, times) < 0)
		return errno;
	r = file_name(p);
	if (r != 0)
		return r;
	/* From here on it is there, whole, under its name. */
	p->fresh = false;
	p->temp[0] = 0;
	if (fstat(p->fd, &st) < 0)
		return errno;
	/* The directory may have a default ACL. */
	if ((st.st_mode & 07777) != p->mode &&
	    (fchmod(p->fd, p->mode) < 0 || fstat(p->fd, &st) < 0))
		return errno;
	close_fdp(&p->fd);
	return report(p, &st, p->mode);
}

static int put_file(struct put *p, const struct tree_entry *entry)
{
	int r;

	p->mode = entry->mode & MODE_MASK;
	p->mtime_ns = entry->mtime_ns;
	p->size = entry->size;
	p->at = 0;
	p->ends_in_hole = false;
	p->temp[0] = 0;
	r = open_named(p, p->name);
	p->fresh = r == 0;
	if (r == EEXIST)
		r = open_beside(p);
	if (r != 0)
		return r;
	return p->size == 0 ? file_finish(p) : 0;
}

static int file_content(struct put *p, const struct record *record)
{
	const uint8_t *data = record->payload;
	size_t left = record->length;

	while (left > 0) {
		ssize_t n = pwrite(p->fd, data, left, (off_t)(p->at + record->length - left));

		if (n < 0 && errno != EINTR)
			return errno;
		if (n > 0) {
			data += n;
			left -= (size_t)n;
		}
	}
	return 0;
}

static int file_advance(struct put *p, uint64_t len, bool hole)
{
	p->at += len;
	p->ends_in_hole = hole;
	return p->at == p->size ? file_finish(p) : 0;
}

/* CONTENT or HOLE */
static int file_take(struct put *p, const struct record *record)
{
	bool hole = record->kind == RECORD_HOLE;
	uint64_t len = hole ? get_le64(record->payload) : record->length;
	int r = 0;

	/* All that is to come of a content is bounded before any of it is poured. */
	if (p->fd < 0 || len > p->size - p->at ||
	    (!hole && p->in.content_left > p->size - p->at - len))
		return EPROTO;
	if (!hole)
		r = file_content(p, record);
	return r != 0 ? r : file_advance(p, len, hole);
}

/* As much as can be of the content that is coming goes by the shortest way. */
static int file_pour(struct put *p)
{
	ssize_t n;

	while (p->fd >= 0 && (n = tree_in_pour(&p->in, p->fd, p->at)) != 0) {
		int r = n < 0 ? (int)-n : file_advance(p, (uint64_t)n, false);

		if (r != 0)
			return r;
	}
	return 0;
}

static int put_entry(struct put *p, const struct record *record)
{
	struct tree_entry entry;
	int r;

	if (tree_entry_decode(record->payload, record->length, &entry, NULL) !=
	    (ssize_t)record->length)
		return EPROTO;
	r = at_path(p, entry.path, entry.path_len, true);
	if (r != 0)
		return r;
	switch (entry.type) {
	case TREE_DIR:
		return put_dir(p, &entry);
	case TREE_SYMLINK:
		return put_symlink(p, &entry);
	case TREE_FILE:
		return put_file(p, &entry);
	default:
		return EPROTO;
	}
}

/* The rest */

static int remove_path(struct put *p, const struct record *record)
{
	int r;

	if (!tree_path_is_valid((const char *)record->payload, record->length))
		return EPROTO;
	r = at_path(p, (const char *)record->payload, record->length, false);
	/* Where its directory is none, it is not there either. */
	if (r == ENOENT || r == ENOTDIR || r == ELOOP)
		return 0;
	while (r == 0 && unlinkat(p->parent, p->name, 0) < 0) {
		r = errno;
		if (r == EACCES && dir_unlock(p))
			r = 0;
	}
	if (r == EISDIR) {
		r = unlinkat(p->parent, p->name, AT_REMOVEDIR) < 0 ? errno : 0;
		tree_dir_forget(&p->dir);
	}
	return r == ENOENT || r == ENOTEMPTY || r == EEXIST ? 0 : r;
}

static int take_record(struct put *p, const struct record *record)
{
	bool in_file = p->fd >= 0;

	switch (record->kind) {
	case RECORD_CONTENT:
	case RECORD_HOLE:
		return file_take(p, record);
	case RECORD_SKIP:
		file_discard(p);
		return in_file ? 0 : EPROTO;
	case RECORD_PUT:
		return in_file ? EPROTO : put_entry(p, record);
	case RECORD_REMOVE:
		return in_file ? EPROTO : remove_path(p, record);
	default:
		return EPROTO;
	}
}

/*
 * The clock of files moves in steps of some milliseconds. Who was told the state of a file must see
 * every later change of it, so the last step has to be over before anybody can make one.
 */
static void wait_for_clock(uint64_t last_ctime_ns)
{
	struct timespec now, nap = { .tv_nsec = 500000 };

	for (int i = 0; i < CLOCK_WAITS; i++) {
		clock_gettime(CLOCK_REALTIME_COARSE, &now);
		if ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec > last_ctime_ns)
			return;
		nanosleep(&nap, NULL);
	}
}

static int put_failed(struct put *p, int errnum)
{
	if (errnum == EPIPE)
		return EPIPE;
	if (errnum == EPROTO)
		return tree_out_failed(&p->out, WERR_PROTOCOL, 0, "a record out of place");
	if (errnum == ENOSPC || errnum == EDQUOT)
		return tree_out_failed(&p->out, WERR_NO_SPACE, errnum,
				       "the place's disk is full, writing %s", p->path);
	return tree_out_failed(&p->out, root_path_error(errnum), errnum, "writing %s: %s", p->path,
			       strerror(errnum));
}

/* 0 behind FINISH; an errno, with EPIPE for an end before it. */
static int take_all(struct put *p)
{
	struct record record;
	int r;

	while ((r = tree_in_next(&p->in, &record, NULL)) > 0) {
		if (record.kind == RECORD_FINISH && p->fd < 0)
			return dirs_settle(p, "", 0);
		r = take_record(p, &record);
		if (r == 0)
			r = file_pour(p);
		if (r != 0)
			return r;
	}
	return r < 0 ? EPROTO : EPIPE;
}

static void put_free(struct put **put)
{
	struct put *p = *put;

	tree_in_free(&p->in);
	tree_out_free(&p->out);
	tree_dir_close(&p->dir);
	free(p->open);
	free(p);
}

int tree_put_work(struct tree_job *job)
{
	const struct wire_tree_put *m = &job->request->tree_put;
	_cleanup_(put_free) struct put *p = xcalloc(1, sizeof(*p));
	struct root_refusal why = { 0 };
	int r;

	p->out.fd = job->out_fd;
	p->fd = p->dir.fd = p->parent = -1;
	p->dir.root = tree_root_for_put(job->relay, m, &why);
	if (p->dir.root < 0)
		return tree_out_failed(&p->out, why.code, why.errnum, "%s %s", m->root, why.why);
	tree_in_init(&p->in, job->in_fd, &p->out);
	p->in.pours = true;
	r = take_all(p);
	file_discard(p);
	dirs_settle_all(p);
	if (r != 0)
		return put_failed(p, r);
	wait_for_clock(p->last_ctime_ns);
	return tree_out_done(&p->out);
}

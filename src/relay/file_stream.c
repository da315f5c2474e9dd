/*
 * FILE_READ and FILE_WRITE: content that flows with credit.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/id.h"
#include "base/text.h"
#include "relay/background.h"
#include "relay/file_info.h"
#include "relay/files.h"
#include "relay/root_path.h"

#define STRETCH_MAX (64u << 10)
#define CREDIT_PORTION (64u << 10)
#define STREAMS_MAX 64
#define RENAME_NOREPLACE_ 1u
#define RENAME_EXCHANGE_ 2u

struct file_stream {
	struct file_stream *next;
	struct session *session; /* NULL: it has ended, the result interests nobody */
	uint32_t stream;
	bool writing;
	int fd;
	uint64_t credit; /* what may still be sent, or received */

	uint64_t offset, end; /* reading */

	struct background aside; /* writing: the commit */
	bool committing;
	uint32_t owed;
	int parent_fd;
	char name[256];
	char temp[48]; /* hidden name, or empty while it has none */
	bool no_clobber;
	char if_match[FILE_TAG_SIZE + 1];
	mode_t mode;
};

static struct file_stream *stream_find(struct session *s, uint32_t stream)
{
	for (struct file_stream *f = s->files; f; f = f->next)
		if (f->stream == stream)
			return f;
	return NULL;
}

static void stream_free(struct file_stream *f)
{
	if (f->temp[0] && !f->committing)
		unlinkat(f->parent_fd, f->temp, 0);
	close_fdp(&f->fd);
	close_fdp(&f->parent_fd);
	free(f);
}

static void stream_end(struct file_stream *f)
{
	struct session *s = f->session;

	for (struct file_stream **p = &s->files; *p; p = &(*p)->next) {
		if (*p == f) {
			*p = f->next;
			break;
		}
	}
	f->session = NULL;
	if (!f->committing)
		stream_free(f);
}

static struct file_stream *stream_new(struct session *s, uint32_t stream)
{
	struct file_stream *f;
	size_t count = 0;

	for (f = s->files; f; f = f->next)
		count++;
	if (count >= STREAMS_MAX) {
		session_refuse(s, stream, WERR_TOO_MANY, 0, "%zu files are open already", count);
		return NULL;
	}
	f = xcalloc(1, sizeof(*f));
	f->session = s;
	f->stream = stream;
	f->fd = f->parent_fd = -1;
	f->next = s->files;
	s->files = f;
	return f;
}

static void stream_refuse(struct file_stream *f, int errnum)
{
	struct session *s = f->session;

	session_refuse(s, f->stream, root_path_error(errnum), errnum, "%s", root_path_text(errnum));
	stream_end(f);
}

void files_read(struct session *s, const struct wire_message *m)
{
	const struct wire_file_read *read_m = &m->file_read;
	struct file_stream *f = stream_new(s, m->stream);
	struct wire_file_info info;
	char tag[FILE_TAG_SIZE];
	struct stat st;

	if (!f)
		return;
	user_files_enter(&s->relay->config.payload);
	f->fd = root_path_open_regular(s->relay, read_m->path, &st);
	user_files_leave();
	if (f->fd < 0) {
		int errnum = -f->fd;

		f->fd = -1;
		stream_refuse(f, errnum);
		return;
	}
	f->credit = read_m->credit;
	f->offset = MIN_OF(read_m->offset, (uint64_t)INT64_MAX);
	f->end = INT64_MAX;
	if (read_m->length > 0 && read_m->length < (uint64_t)INT64_MAX - f->offset)
		f->end = f->offset + read_m->length;
	file_describe(&st, tag, &info);
	session_send(s, m->stream, WIRE_FILE_INFO, &info);
	session_pump(s);
}

/* One DATA frame; the last one is empty and carries the end. */
static bool read_pump(struct file_stream *f)
{
	struct session *s = f->session;
	struct buf *out = &s->conn.out;
	size_t start = out->len;
	size_t max = (size_t)MIN_OF((uint64_t)STRETCH_MAX, f->end - f->offset);
	ssize_t n = 0;

	if (max > 0 && f->credit == 0)
		return false;
	max = (size_t)MIN_OF((uint64_t)max, f->credit);
	buf_reserve(out, WIRE_HEADER_SIZE + max);
	frame_begin(out, WIRE_DATA, 0, f->stream, 0);
	if (max > 0)
		n = pread(f->fd, out->data + out->len, max, (off_t)f->offset);
	if (n < 0) {
		out->len = start;
		stream_refuse(f, errno);
		return true;
	}
	out->len += (size_t)n;
	frame_amend(out, start, n == 0 ? WIRE_END : 0);
	f->offset += (uint64_t)n;
	f->credit -= (uint64_t)n;
	if (n == 0)
		stream_end(f);
	return true;
}

bool files_pump(struct session *s)
{
	bool progress = false;

	for (struct file_stream *f = s->files, *next; f && session_has_room(s); f = next) {
		next = f->next;
		if (!f->writing)
			progress |= read_pump(f);
	}
	return progress;
}

void files_credit(struct session *s, uint32_t stream, uint32_t bytes)
{
	struct file_stream *f = stream_find(s, stream);

	if (!f || f->writing)
		return;
	if (f->credit + bytes > WIRE_CREDIT_MAX) {
		session_reject(s, WERR_PROTOCOL, "too much credit on stream %u", (unsigned)stream);
		return;
	}
	f->credit += bytes;
	session_pump(s);
}

static void hidden_name(char out[48])
{
	uint8_t random[12];

	random_bytes(random, sizeof(random));
	snprintf(out, 48, ".berth-");
	hex_encode(out + strlen(out), random, sizeof(random));
}

/* What is to be replaced must be a regular file, with the tag that was asked for. 0 or an errno. */
static int check_old(const struct file_stream *f, struct stat *st)
{
	char tag[FILE_TAG_SIZE];

	if (fstatat(f->parent_fd, f->name, st, AT_SYMLINK_NOFOLLOW) < 0) {
		st->st_mode = 0;
		if (errno != ENOENT)
			return errno;
		return f->if_match[0] ? ESTALE : 0;
	}
	if (f->no_clobber)
		return EEXIST;
	if (!S_ISREG(st->st_mode))
		return ENOTSUP;
	file_tag(st, tag);
	return f->if_match[0] && strcmp(tag, f->if_match) != 0 ? ESTALE : 0;
}

static int open_temp(struct file_stream *f)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", f->parent_fd);
	/* Without a name nothing is left behind by a crash; a link from /proc gives it one at the
	 * end. */
	f->fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (f->fd >= 0)
		return 0;
	hidden_name(f->temp);
	f->fd = openat(f->parent_fd, f->temp, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC,
		       0600);
	if (f->fd >= 0)
		return 0;
	f->temp[0] = 0;
	return errno;
}

static int write_open(struct file_stream *f, const struct wire_file_write *m)
{
	const char *name;
	struct stat old;
	int r = root_path_parent(f->session->relay, m->path, &name);

	if (r < 0)
		return -r;
	f->parent_fd = r;
	snprintf(f->name, sizeof(f->name), "%s", name);
	f->no_clobber = m->no_clobber;
	snprintf(f->if_match, sizeof(f->if_match), "%s", m->if_match ? m->if_match : "");
	r = check_old(f, &old);
	if (r != 0)
		return r;
	f->mode = m->mode ? m->mode : old.st_mode ? old.st_mode & 0777 : 0644;
	return open_temp(f);
}

void files_write(struct session *s, const struct wire_message *m)
{
	struct file_stream *f = stream_new(s, m->stream);
	int errnum;

	if (!f)
		return;
	f->writing = true;
	f->credit = WIRE_WRITE_CREDIT;
	user_files_enter(&s->relay->config.payload);
	errnum = write_open(f, &m->file_write);
	user_files_leave();
	if (errnum)
		stream_refuse(f, errnum);
}

/* Compares what was displaced with what was checked; ctime changes by the exchange itself. */
static bool same_content(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static int rename_flags(const struct file_stream *f, unsigned flags)
{
	return syscall(SYS_renameat2, f->parent_fd, f->temp, f->parent_fd, f->name, flags) < 0
		       ? errno
		       : 0;
}

/* Swaps first and looks afterwards: a writer between look and swap is noticed and gets its file
 * back. */
static int replace_matching(const struct file_stream *f, const struct stat *old)
{
	struct stat displaced;
	int r = rename_flags(f, RENAME_EXCHANGE_);

	if (r != 0)
		return r == ENOENT ? ESTALE : r;
	if (fstatat(f->parent_fd, f->temp, &displaced, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !same_content(old, &displaced)) {
		rename_flags(f, RENAME_EXCHANGE_);
		return ESTALE;
	}
	unlinkat(f->parent_fd, f->temp, 0);
	return 0;
}

static int give_name(struct file_stream *f)
{
	char path[32];

	if (f->temp[0])
		return 0;
	hidden_name(f->temp);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", f->fd);
	return linkat(AT_FDCWD, path, f->parent_fd, f->temp, AT_SYMLINK_FOLLOW) < 0 ? errno : 0;
}

static int sync_directory(int parent_fd)
{
	/* The parent is an O_PATH descriptor, which cannot be synced itself. */
	_cleanup_close_ int fd = openat(parent_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd >= 0 && fsync(fd) < 0 ? errno : 0;
}

static int commit_work(void *arg)
{
	struct file_stream *f = arg;
	struct stat old;
	int r;

	if (fchmod(f->fd, f->mode) < 0 || fsync(f->fd) < 0)
		return errno;
	r = check_old(f, &old);
	if (r == 0)
		r = give_name(f);
	if (r == 0 && f->if_match[0])
		r = replace_matching(f, &old);
	else if (r == 0)
		r = rename_flags(f, f->no_clobber ? RENAME_NOREPLACE_ : 0);
	if (r != 0 && f->temp[0])
		unlinkat(f->parent_fd, f->temp, 0);
	return r ? r : sync_directory(f->parent_fd);
}

static void commit_done(struct background *aside, int errnum)
{
	struct file_stream *f = container_of(aside, struct file_stream, aside);
	struct session *s = f->session;
	struct wire_file_info info;
	char tag[FILE_TAG_SIZE];
	struct stat st;

	/* The child has renamed or removed it. */
	f->temp[0] = 0;
	f->committing = false;
	if (!s) {
		stream_free(f);
		return;
	}
	if (errnum == 0 && fstat(f->fd, &st) < 0)
		errnum = errno;
	if (errnum) {
		stream_refuse(f, errnum);
	} else {
		file_describe(&st, tag, &info);
		session_send(s, f->stream, WIRE_FILE_INFO, &info);
		stream_end(f);
	}
	session_flush(s);
}

static void commit(struct file_stream *f)
{
	struct session *s = f->session;

	f->aside.done = commit_done;
	user_files_enter(&s->relay->config.payload);
	if (background_start(s->relay, &f->aside, commit_work, f) < 0)
		stream_refuse(f, errno);
	else
		f->committing = true;
	user_files_leave();
}

void files_data(struct session *s, uint32_t stream, const uint8_t *data, uint32_t len, bool end)
{
	struct file_stream *f = stream_find(s, stream);
	_cleanup_error_ struct error err = { 0 };

	if (!f)
		return;
	if (!f->writing || f->committing || len > f->credit) {
		session_reject(s, WERR_PROTOCOL, "content on stream %u that was not asked for",
			       (unsigned)stream);
		return;
	}
	f->credit -= len;
	f->owed += len;
	errno = 0;
	if (fd_write_all(f->fd, data, len, &err) < 0) {
		stream_refuse(f, err.code == ERR_DISK_FULL ? ENOSPC : EIO);
		return;
	}
	if (end) {
		commit(f);
	} else if (f->owed >= CREDIT_PORTION) {
		session_send(s, stream, WIRE_CREDIT, &(struct wire_credit){ .bytes = f->owed });
		f->credit += f->owed;
		f->owed = 0;
	}
}

void files_reset(struct session *s, uint32_t stream)
{
	struct file_stream *f = stream_find(s, stream);

	if (f)
		stream_end(f);
}

void files_detach(struct session *s)
{
	while (s->files)
		stream_end(s->files);
}

#include "relay/file_tree_work.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/text.h"
#include "relay/root_path.h"

#define RESOLVE_NO_MAGICLINKS_ 0x02
#define RESOLVE_NO_SYMLINKS_ 0x04
#define RESOLVE_BENEATH_ 0x08
#define RACE_RETRIES 32
#define IN_SIZE (2 * (size_t)(RECORD_HEADER_SIZE + RECORD_MAX))
/* Less is not worth two more calls. */
#define POUR_MIN (64u << 10)

int tree_out_flush(struct tree_out *out)
{
	int r = fd_write_all(out->fd, out->buf.data, out->buf.len, NULL);

	buf_reset(&out->buf);
	return r;
}

int tree_out_settle(struct tree_out *out)
{
	return out->buf.len >= TREE_OUT_PORTION ? tree_out_flush(out) : 0;
}

int tree_out_entry(struct tree_out *out, enum record_kind kind, const struct tree_entry *entry)
{
	size_t start = wire_record_begin(&out->buf, kind);

	tree_entry_encode(&out->buf, entry);
	wire_record_end(&out->buf, start);
	return tree_out_settle(out);
}

int tree_out_path(struct tree_out *out, enum record_kind kind, const char *path, size_t len)
{
	wire_record_append(&out->buf, kind, path, len);
	return tree_out_settle(out);
}

int tree_out_done(struct tree_out *out)
{
	wire_record_append(&out->buf, RECORD_DONE, NULL, 0);
	return tree_out_flush(out) < 0 ? EPIPE : 0;
}

int tree_out_failed(struct tree_out *out, enum wire_error_code code, int errnum, const char *fmt,
		    ...)
{
	_cleanup_buf_ struct buf text = { 0 };
	uint8_t numbers[8];
	char raw[400];
	size_t start;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(raw, sizeof(raw), fmt, ap);
	va_end(ap);
	/* Names are bytes; the word about them is text. */
	utf8_repair(&text, raw, strlen(raw));
	put_le32(numbers, code);
	put_le32(numbers + 4, (uint32_t)errnum);
	start = wire_record_begin(&out->buf, RECORD_FAILED);
	buf_append(&out->buf, numbers, sizeof(numbers));
	buf_append(&out->buf, text.data, MIN_OF(text.len, 500));
	wire_record_end(&out->buf, start);
	return tree_out_flush(out) < 0 ? EPIPE : 0;
}

void tree_out_free(struct tree_out *out)
{
	buf_free(&out->buf);
}

void tree_in_init(struct tree_in *in, int fd, struct tree_out *out)
{
	*in = (struct tree_in){ .fd = fd, .out = out, .data = xmalloc(IN_SIZE) };
}

void tree_in_free(struct tree_in *in)
{
	free(in->data);
}

/* What was answered so far is sent before waiting for what may depend on it. */
static int before_waiting(struct tree_in *in)
{
	struct pollfd p = { .fd = in->fd, .events = POLLIN };

	return in->out->buf.len > 0 && poll(&p, 1, 0) == 0 ? tree_out_flush(in->out) : 0;
}

static int fill(struct tree_in *in)
{
	size_t room;
	ssize_t n;

	if (before_waiting(in) < 0)
		return 0;
	memmove(in->data, in->data + in->begin, in->end - in->begin);
	in->end -= in->begin;
	in->begin = 0;
	room = in->lean && in->end == 0 ? RECORD_HEADER_SIZE : IN_SIZE - in->end;
	in->lean = false;
	do
		n = read(in->fd, in->data + in->end, room);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return 0;
	in->end += (size_t)n;
	return 1;
}

/* A stretch of content that is there, so that none is moved to be made whole. */
static int next_content(struct tree_in *in, struct record *record)
{
	size_t there = in->end - in->begin;

	if (there == 0 && !(in->pours && in->content_left >= POUR_MIN)) {
		if (fill(in) == 0)
			return 0;
		there = in->end - in->begin;
	}
	record->kind = RECORD_CONTENT;
	record->payload = in->data + in->begin;
	record->length = (uint32_t)MIN_OF(there, (size_t)in->content_left);
	in->begin += record->length;
	in->content_left -= record->length;
	return 1;
}

int tree_in_next(struct tree_in *in, struct record *record, struct error *err)
{
	while (in->content_left == 0) {
		const uint8_t *data = in->data + in->begin;
		size_t there = in->end - in->begin, used;
		int r = wire_record_parse(data, there, record, &used, err);

		if (r == 0 && there >= RECORD_HEADER_SIZE && data[4] == RECORD_CONTENT) {
			in->content_left = record->length;
			in->begin += RECORD_HEADER_SIZE;
			break;
		}
		if (r > 0) {
			in->begin += used;
			in->lean = in->pours && record->kind == RECORD_CONTENT &&
				   record->length >= POUR_MIN;
		}
		if (r != 0)
			return r;
		if (fill(in) == 0)
			return 0;
	}
	return next_content(in, record);
}

ssize_t tree_in_pour(struct tree_in *in, int fd, uint64_t at)
{
	off_t offset = (off_t)at;
	ssize_t n;

	if (!in->pours || in->content_left == 0 || in->begin < in->end ||
	    (in->content_left < POUR_MIN && !in->lean))
		return 0;
	if (before_waiting(in) < 0)
		return -EPIPE;
	do
		n = splice(in->fd, NULL, fd, &offset, in->content_left, SPLICE_F_MOVE);
	while (n < 0 && errno == EINTR);
	/* A file system that cannot; or the end of the pipe, which reading finds, too. */
	if (n == 0 || (n < 0 && errno == EINVAL)) {
		in->pours = false;
		return 0;
	}
	if (n < 0)
		return -errno;
	in->content_left -= (uint32_t)n;
	in->lean = true;
	return n;
}

bool tree_in_path(const void *bytes, size_t len, char out[TREE_PATH_MAX + 1])
{
	if (!tree_path_is_valid(bytes, len))
		return false;
	memcpy(out, bytes, len);
	out[len] = 0;
	return true;
}

int tree_root_open(const struct relay *relay, const char *root)
{
	return root_path_open(relay, root, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
}

int tree_open(int root, const char *path, int flags)
{
	struct {
		uint64_t flags, mode, resolve;
	} how = {
		.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
		.resolve = RESOLVE_BENEATH_ | RESOLVE_NO_SYMLINKS_ | RESOLVE_NO_MAGICLINKS_,
	};

	for (int i = 0; i < RACE_RETRIES; i++) {
		int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));

		if (fd >= 0)
			return fd;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return -EAGAIN;
}

int tree_dir_of(struct tree_dir *dir, const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;
	int fd;

	*name = slash ? slash + 1 : path;
	if (dir->fd >= 0 && dir->len == len && memcmp(dir->path, path, len) == 0)
		return dir->fd;
	tree_dir_forget(dir);
	memcpy(dir->path, len > 0 ? path : ".", MAX_OF(len, 1));
	dir->path[MAX_OF(len, 1)] = 0;
	fd = tree_open(dir->root, dir->path, O_PATH | O_DIRECTORY);
	if (fd < 0)
		return fd;
	dir->len = len;
	dir->fd = fd;
	return fd;
}

void tree_dir_forget(struct tree_dir *dir)
{
	close_fdp(&dir->fd);
}

void tree_dir_close(struct tree_dir *dir)
{
	tree_dir_forget(dir);
	close_fdp(&dir->root);
}

/*
 * Looked at before it is opened, so that a fifo is not, and looked at again: it may have been
 * swapped in between. Without blocking and without following, opening that is harmless.
 */
int tree_open_file(struct tree_dir *dir, const char *path, struct stat *st)
{
	const char *name;
	int parent = tree_dir_of(dir, path, &name), fd;

	if (parent < 0)
		return parent;
	if (fstatat(parent, name, st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISREG(st->st_mode))
		return -ENXIO;
	fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return errno == ELOOP ? -ENXIO : -errno;
	if (fstat(fd, st) < 0 || !S_ISREG(st->st_mode)) {
		close(fd);
		return -ENXIO;
	}
	return fd;
}

bool tree_same_stat(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

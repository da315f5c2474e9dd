/*
 * TREE_GET: contents of files. Not hashed here: whoever receives them hashes what came.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "relay/file_tree_work.h"
#include "relay/root_path.h"

struct get {
	struct tree_out out;
	struct tree_dir dir;
	uint64_t max_file;
};

/*
 * Up to `end` of what is there, straight into the buffer that is sent. Returns where it stopped,
 * which is before `end` when the file has become shorter or cannot be read on; -1: nobody listens.
 */
static int64_t send_data(struct get *g, int fd, int64_t at, int64_t end)
{
	struct buf *buf = &g->out.buf;

	while (at < end) {
		size_t max = (size_t)MIN_OF(end - at, (int64_t)RECORD_MAX);
		size_t start = wire_record_begin(buf, RECORD_CONTENT);
		ssize_t n;

		buf_reserve(buf, max);
		n = pread(fd, buf->data + buf->len, max, at);
		if (n <= 0) {
			buf->len = start;
			return at;
		}
		buf->len += (size_t)n;
		wire_record_end(buf, start);
		if (tree_out_settle(&g->out) < 0)
			return -1;
		at += n;
	}
	return at;
}

static int send_hole(struct get *g, int64_t len)
{
	uint8_t number[8];

	put_le64(number, (uint64_t)len);
	wire_record_append(&g->out.buf, RECORD_HOLE, number, sizeof(number));
	return tree_out_settle(&g->out);
}

/* Holes are only looked for where there must be some. */
static int64_t send_content(struct get *g, int fd, const struct stat *st)
{
	int64_t size = st->st_size, at = 0;

	if ((int64_t)st->st_blocks * 512 >= size)
		return send_data(g, fd, 0, size);
	while (at < size) {
		int64_t data = lseek(fd, at, SEEK_DATA), hole;

		/* ENXIO: nothing but a hole up to the end; else the file system knows none. */
		if (data < 0)
			data = errno == ENXIO ? size : at;
		data = MIN_OF(data, size);
		if (data > at && send_hole(g, data - at) < 0)
			return -1;
		hole = data < size ? lseek(fd, data, SEEK_HOLE) : size;
		if (hole <= data || hole > size)
			hole = size;
		at = send_data(g, fd, data, hole);
		if (at != hole)
			return at;
	}
	return at;
}

static int send_file(struct get *g, const char *path, int fd, struct stat *before)
{
	struct tree_entry entry = { .path = path, .path_len = (uint32_t)strlen(path) };
	struct stat after;
	bool whole;
	int64_t at;

	tree_entry_from_stat(before, &entry);
	if (g->max_file > 0 && (uint64_t)before->st_size > g->max_file)
		entry.flags = TREE_UNREADABLE;
	if (tree_out_entry(&g->out, RECORD_ENTRY, &entry) < 0)
		return -1;
	if (entry.flags & TREE_UNREADABLE)
		return 0;
	at = send_content(g, fd, before);
	if (at < 0)
		return -1;
	if (fstat(fd, &after) < 0)
		after = *before;
	whole = at == before->st_size && tree_same_stat(before, &after);
	tree_entry_from_stat(&after, &entry);
	return tree_out_entry(&g->out, whole ? RECORD_ENDED : RECORD_CHANGED, &entry);
}

static int get_file(struct get *g, const char *path)
{
	struct stat st = { 0 };
	_cleanup_close_ int fd = tree_open_file(&g->dir, path, &st);
	struct tree_entry entry = { .path = path, .path_len = (uint32_t)strlen(path) };

	if (fd >= 0)
		return send_file(g, path, fd, &st);
	if (!S_ISREG(st.st_mode))
		return tree_out_path(&g->out, RECORD_NONE, path, entry.path_len);
	tree_entry_from_stat(&st, &entry);
	entry.flags = TREE_UNREADABLE;
	return tree_out_entry(&g->out, RECORD_ENTRY, &entry);
}

static void get_close(struct get *g)
{
	tree_out_free(&g->out);
	tree_dir_close(&g->dir);
}

int tree_get_work(struct tree_job *job)
{
	const struct wire_tree_get *m = &job->request->tree_get;
	_cleanup_(get_close) struct get g = {
		.out.fd = job->out_fd,
		.dir = { .root = tree_root_open(job->relay, m->root), .fd = -1 },
		.max_file = m->max_file,
	};
	_cleanup_error_ struct error err = { 0 };
	char path[TREE_PATH_MAX + 1];
	_cleanup_tree_in_ struct tree_in in = { 0 };
	struct record record;
	int r;

	if (g.dir.root < 0)
		return tree_out_failed(&g.out, root_path_error(-g.dir.root), -g.dir.root, "%s: %s",
				       m->root, strerror(-g.dir.root));
	tree_in_init(&in, job->in_fd, &g.out);
	while ((r = tree_in_next(&in, &record, &err)) > 0) {
		if (record.kind == RECORD_FINISH)
			return tree_out_done(&g.out);
		if (record.kind != RECORD_PATH ||
		    !tree_in_path(record.payload, record.length, path))
			return tree_out_failed(&g.out, WERR_PROTOCOL, 0, "this is no path");
		if (get_file(&g, path) < 0)
			return EPIPE;
	}
	return r < 0 ? tree_out_failed(&g.out, WERR_PROTOCOL, 0, "%s", err.message) : EPIPE;
}

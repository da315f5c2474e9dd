/*
 * Contents of files in a place without a relay, a block at a time: reading asks for one block after
 * the other and sees by inode, size and time that it is still the same file; writing appends to a
 * file with a hidden name, which takes the place of the old one at the end. A server that dies in
 * between leaves that hidden file (.berth-...) and the old one as it was.
 */
#include <stdio.h>
#include <string.h>
#include "base/text.h"
#include "place/shell/shell_script.h"

#define BLOCK ((size_t)1 << 20)
/* Room for the line before a block. */
#define LINE_BYTES ((size_t)256)
#define HIDDEN_BYTES 12

struct shell_reader {
	struct open_place *place; /* a reference */
	struct shell_path path;
	struct shell_stat st;
	int64_t offset, end;
	struct buf block; /* what was read and not taken */
	size_t used;
};

/* The block that holds the offset, or only the line when `block` is below 0. */
static int ask_block(struct shell_reader *r, int64_t block, struct buf *answer, size_t *line,
		     struct shell_stat *st, struct error *err)
{
	char number[24], size[24];
	const struct shell_ask ask = { .verb = "read",
				       .words = { number, size },
				       .path = &r->path,
				       .output_max = BLOCK + LINE_BYTES };

	snprintf(number, sizeof(number), "%lld", (long long)block);
	snprintf(size, sizeof(size), "%zu", BLOCK);
	if (shell_ask(r->place, &ask, answer, err) < 0)
		return -1;
	*line = shell_stat_parse(buf_str(answer), answer->len, '\n', st);
	return *line ? 0 : error_set(err, ERR_PROTOCOL, "the place's stat answers in another way");
}

static int changed(struct error *err)
{
	return error_set(err, ERR_CONFLICT, "the file changed while it was read");
}

static int next_block(struct shell_reader *r, struct error *err)
{
	int64_t block = r->offset / (int64_t)BLOCK, begin = block * (int64_t)BLOCK;
	struct shell_stat st;
	size_t line;

	buf_free(&r->block);
	r->block = (struct buf){ 0 };
	if (ask_block(r, block, &r->block, &line, &st, err) < 0)
		return -1;
	if (st.inode != r->st.inode || st.info.size != r->st.info.size ||
	    st.info.mtime_ms != r->st.info.mtime_ms ||
	    (int64_t)(r->block.len - line) != MIN_OF((int64_t)BLOCK, st.info.size - begin))
		return changed(err);
	r->used = line + (size_t)(r->offset - begin);
	return 0;
}

int shell_reader_open(struct open_place *place, const char *path, int64_t offset, int64_t length,
		      struct file_info *info, struct shell_reader **out, struct error *err)
{
	struct shell_reader *r = xcalloc(1, sizeof(*r));
	_cleanup_buf_ struct buf answer = { 0 };
	size_t line;

	r->place = place_ref(place);
	if (shell_path_parse(path, &r->path, err) < 0 ||
	    ask_block(r, -1, &answer, &line, &r->st, err) < 0) {
		shell_reader_close(r);
		return -1;
	}
	*info = r->st.info;
	info->path = xstrdup(path);
	r->offset = offset;
	r->end = r->st.info.size;
	if (length >= 0 && length < r->end - MIN_OF(offset, r->end))
		r->end = offset + length;
	*out = r;
	return 0;
}

ssize_t shell_reader_next(struct shell_reader *r, void *buf, size_t max, struct error *err)
{
	size_t n;

	if (r->offset >= r->end || max == 0)
		return 0;
	if (r->used >= r->block.len && next_block(r, err) < 0)
		return -1;
	n = (size_t)MIN_OF((int64_t)MIN_OF(max, r->block.len - r->used), r->end - r->offset);
	memcpy(buf, r->block.data + r->used, n);
	r->used += n;
	r->offset += (int64_t)n;
	return (ssize_t)n;
}

void shell_reader_close(struct shell_reader *r)
{
	shell_path_clear(&r->path);
	buf_free(&r->block);
	place_unref(r->place);
	free(r);
}

struct shell_writer {
	struct open_place *place; /* a reference */
	struct shell_path path;
	char *shown; /* the path as it was given */
	char hidden[sizeof(".berth-") + (size_t)2 * HIDDEN_BYTES];
	char mode[8]; /* "" for the old one's */
	bool no_clobber, begun;
	int64_t sent;
	struct buf block;
};

static int begin(struct shell_writer *w, struct error *err)
{
	const struct shell_ask ask = { .verb = "begin",
				       .words = { w->hidden, w->no_clobber ? "1" : "0" },
				       .path = &w->path };

	w->begun = true;
	return shell_ask(w->place, &ask, NULL, err);
}

int shell_writer_open(struct open_place *place, const char *path,
		      const struct file_write_options *options, struct shell_writer **out,
		      struct error *err)
{
	struct shell_writer *w = xcalloc(1, sizeof(*w));
	uint8_t random[HIDDEN_BYTES];

	w->place = place_ref(place);
	w->shown = xstrdup(path);
	w->no_clobber = options->no_clobber;
	random_bytes(random, sizeof(random));
	snprintf(w->hidden, sizeof(w->hidden), ".berth-");
	hex_encode(w->hidden + strlen(w->hidden), random, sizeof(random));
	if (options->mode)
		snprintf(w->mode, sizeof(w->mode), "%03o", (unsigned)options->mode & 0777);
	if (shell_path_parse(path, &w->path, err) < 0)
		goto refused;
	if (streq(w->path.name, ".")) {
		error_set(err, ERR_UNPROCESSABLE, "the place's root is no file");
		goto refused;
	}
	*out = w;
	return 0;
refused:
	shell_writer_abandon(w);
	return -1;
}

static int send_block(struct shell_writer *w, struct error *err)
{
	char size[24];
	const struct shell_ask ask = { .verb = "append",
				       .words = { w->hidden, size },
				       .path = &w->path,
				       .input = w->block.data,
				       .input_len = w->block.len };

	if (!w->begun && begin(w, err) < 0)
		return -1;
	snprintf(size, sizeof(size), "%lld", (long long)(w->sent + (int64_t)w->block.len));
	if (shell_ask(w->place, &ask, NULL, err) < 0)
		return -1;
	w->sent += (int64_t)w->block.len;
	buf_reset(&w->block);
	return 0;
}

int shell_writer_append(struct shell_writer *w, const void *data, size_t len, struct error *err)
{
	const char *p = data;

	while (len > 0) {
		size_t n;

		/* Only now: what fits into one block is begun and committed by one call. */
		if (w->block.len == BLOCK && send_block(w, err) < 0)
			return -1;
		n = MIN_OF(len, BLOCK - w->block.len);
		buf_append(&w->block, p, n);
		p += n;
		len -= n;
	}
	return 0;
}

static void writer_free(struct shell_writer *w)
{
	shell_path_clear(&w->path);
	buf_free(&w->block);
	free(w->shown);
	place_unref(w->place);
	free(w);
}

int shell_writer_commit(struct shell_writer *w, struct file_info *info, struct error *err)
{
	_cleanup_buf_ struct buf answer = { 0 };
	char size[24];
	struct shell_ask ask = { .verb = "commit",
				 .words = { w->hidden, size, w->mode, w->no_clobber ? "1" : "0" },
				 .path = &w->path };
	int rc = 0;

	if (!w->begun) {
		ask.verb = "whole";
		ask.input = buf_str(&w->block);
		ask.input_len = w->block.len;
		w->begun = true;
	} else if (w->block.len > 0) {
		rc = send_block(w, err);
	}
	snprintf(size, sizeof(size), "%lld", (long long)(w->sent + (int64_t)ask.input_len));
	if (rc == 0)
		rc = shell_ask(w->place, &ask, &answer, err);
	if (rc == 0)
		rc = shell_info_parse(&answer, w->shown, info, err);
	if (rc < 0)
		shell_writer_abandon(w);
	else
		writer_free(w);
	return rc;
}

void shell_writer_abandon(struct shell_writer *w)
{
	const struct shell_ask ask = { .verb = "drop", .words = { w->hidden }, .path = &w->path };

	/* Best effort: a place that cannot be asked any more goes with all its files. */
	if (w->begun)
		shell_ask(w->place, &ask, NULL, NULL);
	writer_free(w);
}

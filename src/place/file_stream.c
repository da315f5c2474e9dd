/*
 * Content of files, streamed with bounded memory: at most READ_WINDOW bytes of a file wait here.
 */
#include <string.h>
#include "place/place_files.h"
#include "place/shell/shell_internal.h"

#define READ_WINDOW (512u << 10)
#define READ_PORTION (READ_WINDOW / 4)

/* `shell` does all of it in a place without a relay. */
struct file_reader {
	struct shell_reader *shell;
	struct stream *stream;
	struct item *items;
	size_t used; /* of the first item */
	uint32_t owed;
	bool ended;
};

struct file_writer {
	struct shell_writer *shell;
	struct stream *stream;
	char *path;
};

static int down(struct error *err)
{
	return error_set(err, ERR_UNAVAILABLE, "the connection to the place broke");
}

/* The next frames, or the error that ends the stream. */
static int more(struct stream *stream, struct item **items, struct error *err)
{
	int64_t deadline = boottime_ms() + FILE_WAIT_MS;
	int got;

	while ((got = stream_take(stream, deadline, items)) == 0)
		if (boottime_ms() >= deadline)
			return error_set(err, ERR_TIMEOUT, "the place does not answer");
	return got < 0 ? down(err) : 0;
}

/* What an item that is no data says: FILE_INFO into `info`, ERROR into `err`. */
static int take_message(struct stream *stream, const struct item *item, const char *path,
			struct file_info *info, struct error *err)
{
	_cleanup_wire_message_ struct wire_message m = { 0 };

	if (item_decode(stream_link(stream), item, &m, err) < 0)
		return -1;
	if (m.type == WIRE_ERROR)
		return wire_error_take(&m.error, err);
	if (m.type != WIRE_FILE_INFO || !info)
		return link_violated(stream_link(stream), err, "%s on a file's stream",
				     wire_type_name(m.type));
	file_info_take(&m.file_info, path, info);
	return 0;
}

static struct stream *open_stream(const struct place_ref *ref, enum wire_type type, void *msg,
				  const char *path, const char **to, uint32_t credit,
				  struct error *err)
{
	_cleanup_link_ struct link *link = NULL;
	_cleanup_place_ struct open_place *place =
		place_file_reach(ref, boottime_ms() + FILE_WAIT_MS, &link, err);
	_cleanup_free_ char *real = place ? place_file_path(place, path, err) : NULL;

	if (!real)
		return NULL;
	*to = real;
	return link_open(link, type, msg, credit, err);
}

static void drop_first(struct file_reader *r)
{
	struct item *first = r->items;

	r->items = first->next;
	r->used = 0;
	item_free(first);
}

static int open_shell(struct open_place *place, const char *path, int64_t offset, int64_t length,
		      struct file_info *info, struct file_reader **out, struct error *err)
{
	struct shell_reader *shell;

	if (shell_reader_open(place, path, offset, length, info, &shell, err) < 0)
		return -1;
	*out = xcalloc(1, sizeof(**out));
	(*out)->shell = shell;
	return 0;
}

int place_file_open(const struct place_ref *ref, const char *path, int64_t offset, int64_t length,
		    struct file_info *info, struct file_reader **out, struct error *err)
{
	/* On the wire 0 is "to the end"; who wants nothing gets one byte less than one. */
	struct wire_file_read m = {
		.offset = (uint64_t)MAX_OF(offset, 0),
		.length = length < 0 ? 0 : (uint64_t)MAX_OF(length, 1),
		.credit = length == 0 ? 0 : READ_WINDOW,
	};
	_cleanup_place_ struct open_place *shell = place_file_shell(ref);
	struct file_reader *r;
	struct stream *stream;

	*out = NULL;
	*info = (struct file_info){ 0 };
	if (offset < 0)
		return error_set(err, ERR_VALIDATION, "an offset is not negative");
	if (shell)
		return open_shell(shell, path, offset, length, info, out, err);
	stream = open_stream(ref, WIRE_FILE_READ, &m, path, &m.path, m.credit, err);
	if (!stream)
		return -1;
	r = xcalloc(1, sizeof(*r));
	r->stream = stream;
	r->ended = length == 0;
	if (more(stream, &r->items, err) < 0 ||
	    take_message(stream, r->items, path, info, err) < 0) {
		file_reader_close(r);
		return -1;
	}
	drop_first(r);
	*out = r;
	return 0;
}

static void give_back(struct file_reader *r, size_t bytes)
{
	r->owed += (uint32_t)bytes;
	if (r->owed < READ_PORTION)
		return;
	/* A link that is down is noticed by who waits for more. */
	stream_allow(r->stream, r->owed, NULL);
	r->owed = 0;
}

ssize_t file_reader_next(struct file_reader *r, void *buf, size_t max, struct error *err)
{
	if (r->shell)
		return shell_reader_next(r->shell, buf, max, err);
	while (!r->ended) {
		struct item *first = r->items;
		size_t n;

		if (!first) {
			if (more(r->stream, &r->items, err) < 0)
				return -1;
			continue;
		}
		if (first->type != WIRE_DATA)
			return take_message(r->stream, first, NULL, NULL, err);
		n = MIN_OF(max, first->len - r->used);
		memcpy(buf, first->data + r->used, n);
		r->used += n;
		if (r->used == first->len) {
			r->ended = first->flags & WIRE_END;
			drop_first(r);
		}
		give_back(r, n);
		if (n > 0)
			return (ssize_t)n;
	}
	return 0;
}

void file_reader_close(struct file_reader *r)
{
	if (!r)
		return;
	if (r->shell) {
		shell_reader_close(r->shell);
		free(r);
		return;
	}
	if (link_is_up(stream_link(r->stream)))
		stream_send(r->stream, WIRE_RESET, &(struct wire_reset){}, NULL);
	stream_close(r->stream);
	items_free(&r->items);
	free(r);
}

static int create_shell(struct open_place *place, const char *path,
			const struct file_write_options *options, struct file_writer **out,
			struct error *err)
{
	struct shell_writer *shell;

	if (shell_writer_open(place, path, options, &shell, err) < 0)
		return -1;
	*out = xcalloc(1, sizeof(**out));
	(*out)->shell = shell;
	return 0;
}

int place_file_create(const struct place_ref *ref, const char *path,
		      const struct file_write_options *options, struct file_writer **out,
		      struct error *err)
{
	struct wire_file_write m = { .mode = options->mode, .no_clobber = options->no_clobber };
	_cleanup_place_ struct open_place *shell = place_file_shell(ref);
	struct file_writer *w;
	struct stream *stream;

	*out = NULL;
	if (options->mode > 0777)
		return error_set(err, ERR_VALIDATION, "%o is not a file mode",
				 (unsigned)options->mode);
	if (shell)
		return create_shell(shell, path, options, out, err);
	stream = open_stream(ref, WIRE_FILE_WRITE, &m, path, &m.path, 0, err);
	if (!stream)
		return -1;
	stream_grant(stream, WIRE_WRITE_CREDIT);
	w = xcalloc(1, sizeof(*w));
	w->stream = stream;
	w->path = xstrdup(path);
	*out = w;
	return 0;
}

static void writer_free(struct file_writer *w)
{
	stream_close(w->stream);
	free(w->path);
	free(w);
}

/* The relay ends the stream early only to refuse it: what it said is the error. */
static int refusal(struct file_writer *w, int64_t deadline, struct error *err)
{
	struct item *items = NULL;
	struct file_info info = { 0 };
	int got = stream_take(w->stream, deadline, &items);
	int rc = 0;

	if (got < 0)
		return down(err);
	if (items)
		rc = take_message(w->stream, items, w->path, &info, err);
	/* It cannot be in place before it was ended. */
	if (items && rc == 0)
		rc = link_violated(stream_link(w->stream), err, "a file that was not written yet");
	file_info_clear(&info);
	items_free(&items);
	return rc;
}

int file_writer_append(struct file_writer *w, const void *data, size_t len, struct error *err)
{
	int64_t deadline = boottime_ms() + FILE_WAIT_MS;
	const char *p = data;

	if (w->shell)
		return shell_writer_append(w->shell, data, len, err);
	while (len > 0) {
		ssize_t n = stream_data(w->stream, p, len, false, err);

		if (n < 0)
			return -1;
		p += n;
		len -= (size_t)n;
		if (len == 0 || n > 0)
			continue;
		/* Credit and a refusal both wake. */
		if (refusal(w, deadline, err) < 0)
			return -1;
		if (stream_credit(w->stream) == 0 && boottime_ms() >= deadline)
			return error_set(err, ERR_TIMEOUT, "the place takes no more of the file");
	}
	return 0;
}

int file_writer_commit(struct file_writer *w, struct file_info *info, struct error *err)
{
	struct item *items = NULL;
	int rc;

	*info = (struct file_info){ 0 };
	if (w->shell) {
		rc = shell_writer_commit(w->shell, info, err);
		free(w);
		return rc;
	}
	rc = stream_data(w->stream, "", 0, true, err) < 0 ? -1 : 0;
	if (rc == 0)
		rc = more(w->stream, &items, err);
	if (rc == 0)
		rc = take_message(w->stream, items, w->path, info, err);
	items_free(&items);
	writer_free(w);
	return rc;
}

void file_writer_abandon(struct file_writer *w)
{
	if (!w)
		return;
	if (w->shell) {
		shell_writer_abandon(w->shell);
		free(w);
		return;
	}
	if (link_is_up(stream_link(w->stream)))
		stream_send(w->stream, WIRE_RESET, &(struct wire_reset){}, NULL);
	writer_free(w);
}

#include "api/output_events.h"
#include "base/text.h"

static const char *stream_name(enum runlog_stream stream)
{
	switch (stream) {
	case RUNLOG_STDERR:
		return "stderr";
	case RUNLOG_PTY:
		return "pty";
	default:
		return "stdout";
	}
}

void event_writer_clear(struct event_writer *writer)
{
	buf_free(&writer->out);
}

void event_line(struct event_writer *writer, json_t *event)
{
	_cleanup_free_ char *text = json_text(event);

	buf_puts(&writer->out, text);
	buf_putc(&writer->out, '\n');
	json_decref(event);
}

/* Many readers take a NUL in a JSON string for its end. */
static bool is_text(const char *data, size_t len)
{
	return utf8_valid(data, len) && !memchr(data, '\0', len);
}

static void put_data(json_t *event, const char *data, size_t len, bool text)
{
	_cleanup_buf_ struct buf encoded = { 0 };

	if (text) {
		json_put_new(event, "data", json_stringn(data, len));
		return;
	}
	base64_encode(&encoded, data, len);
	json_put_str(event, "data", buf_str(&encoded));
	json_put_str(event, "encoding", "base64");
}

static void write_data(struct event_writer *writer, const struct runlog_chunk *chunk, bool text)
{
	json_t *event = json_object();

	json_put_str(event, "type", stream_name(chunk->stream));
	if (writer->offsets == OFFSETS_OF_STREAM) {
		json_put_int(event, "offset", chunk->stream_offset);
	} else {
		json_put_int(event, "offset", chunk->offset);
		json_put_int(event, "streamOffset", chunk->stream_offset);
		json_put_time(event, "time", chunk->time_ms);
	}
	put_data(event, chunk->data, chunk->len, text);
	event_line(writer, event);
}

static void write_truncated(struct event_writer *writer, const struct runlog_chunk *chunk)
{
	json_t *event = json_object();

	json_put_str(event, "type", "truncated");
	json_put_int(event, "offset", chunk->offset + (int64_t)chunk->len);
	event_line(writer, event);
}

void event_flush(struct event_writer *writer)
{
	if (writer->held.len)
		write_data(writer, &writer->held, false);
	writer->held.len = 0;
}

void event_lost(struct event_writer *writer, int64_t offset, int64_t lost)
{
	json_t *event = json_object();

	event_flush(writer);
	json_put_str(event, "type", "truncated");
	json_put_int(event, "offset", offset);
	json_put_int(event, "lost", lost);
	event_line(writer, event);
}

/* Writes the text of a chunk up to its last whole character and holds the rest. */
static void write_text(struct event_writer *writer, const struct runlog_chunk *chunk)
{
	size_t tail = utf8_partial_tail(chunk->data, chunk->len);
	struct runlog_chunk whole = *chunk;

	whole.len -= tail;
	if (!is_text(whole.data, whole.len)) {
		write_data(writer, chunk, false);
		return;
	}
	if (whole.len)
		write_data(writer, &whole, true);
	memcpy(writer->held_data, chunk->data + whole.len, tail);
	writer->held = *chunk;
	writer->held.offset += (int64_t)whole.len;
	writer->held.stream_offset += (int64_t)whole.len;
	writer->held.data = writer->held_data;
	writer->held.len = tail;
	writer->held.truncated = false;
}

void event_chunk(struct event_writer *writer, const struct runlog_chunk *chunk)
{
	_cleanup_buf_ struct buf joined = { 0 };
	struct runlog_chunk whole = *chunk;

	/* A log has no gaps, and a chunk of the other stream would have let go of what is held. */
	if (writer->held.len && chunk->stream == writer->held.stream) {
		buf_append(&joined, writer->held_data, writer->held.len);
		buf_append(&joined, chunk->data, chunk->len);
		whole.offset = writer->held.offset;
		whole.stream_offset = writer->held.stream_offset;
		whole.data = joined.data;
		whole.len = joined.len;
		writer->held.len = 0;
	}
	if (whole.len) {
		event_flush(writer);
		write_text(writer, &whole);
	}
	if (whole.truncated) {
		event_flush(writer);
		write_truncated(writer, &whole);
	}
}

size_t event_take(struct event_writer *writer, char *buf, size_t max)
{
	size_t n = MIN_OF(max, writer->out.len);

	if (n) {
		memcpy(buf, writer->out.data, n);
		buf_consume(&writer->out, n);
	}
	return n;
}

/*
 * Output as lines of JSON, one event each. Text stays text: what is UTF-8 goes out as it is, cut
 * between characters; everything else in base64, with "encoding" saying so. Concatenating the data
 * of a stream's events gives exactly the bytes the command wrote.
 */
#pragma once

#include "base/buf.h"
#include "base/json.h"
#include "runlog/runlog.h"

enum event_offsets {
	OFFSETS_OF_STREAM, /* offset counts the bytes of the event's own stream */
	OFFSETS_OF_LOG,    /* offset counts all bytes, so that a reader can go on from there */
};

struct event_writer {
	enum event_offsets offsets;
	struct buf out;           /* lines not taken yet */
	struct runlog_chunk held; /* begins a character that the next chunk may complete */
	char held_data[4];
};
void event_writer_clear(struct event_writer *writer);

void event_line(struct event_writer *writer, json_t *event); /* takes it */
void event_chunk(struct event_writer *writer, const struct runlog_chunk *chunk);
/* No more chunks: what is held goes out as it is. */
void event_flush(struct event_writer *writer);
/* {type: truncated, offset, lost}: so much was written behind the offset and is gone. */
void event_lost(struct event_writer *writer, int64_t offset, int64_t lost);
/* Moves up to max bytes of lines to buf. */
size_t event_take(struct event_writer *writer, char *buf, size_t max);

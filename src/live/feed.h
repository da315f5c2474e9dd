/*
 * Live events to everybody who watches, made once and written by one thread.
 *
 * The feed's thread is woken after each commit, reads the new events of the companies that somebody
 * watches, encodes each once into a frame and puts it into the company's ring. A reader is only a
 * place in that ring and a socket: the thread writes the ring's frames to the sockets itself, so
 * that an event for a thousand readers costs a thousand writes and wakes nobody but those it is
 * for. A reader that is so slow that the ring has gone over it is told where to go on and dropped;
 * it holds nothing up.
 *
 * What is older than the ring comes from the database, read by the reader's own thread
 * (event_stream.c) before it attaches.
 */
#pragma once

#include "record/event.h"
#include "runlog/runlog.h"

struct feed;
struct feed_reader;

struct feed_options {
	struct db *db;
	struct clock *clock;
	struct runlog_store *logs; /* whose growth is announced as heartbeat.run.log */
	int max_readers;           /* 0: 2048 */
	int max_per_company;       /* 0: 1024 */
	size_t ring_frames;        /* of a company; 0: 1024 */
	size_t ring_bytes;         /* 0: 1 MiB */
	int64_t beat_ms;           /* a comment for those who hear nothing; 0: 15 s */
	int64_t drop_ms; /* how long a reader that is dropped may take to hear of it; 0: 10 s */
};
/* The feed listens to the database's commits: it must be freed after the last write. */
int feed_new(const struct feed_options *options, struct feed **feed, struct error *err);
/* Ends its thread; readers are given nothing more. They must have left before feed_free. */
void feed_stop(struct feed *feed);
void feed_free(struct feed *feed);
size_t feed_readers(struct feed *feed);

/* A bit per event_type. */
#define FEED_ALL_TYPES ((1u << EVENT_TYPE_COUNT) - 1)
/*
 * Takes part in the company's feed from here on, without a socket yet. `now` is a number from
 * events_after read before this call. ERR_UNAVAILABLE when there are too many.
 */
int feed_join(struct feed *feed, const char *company_id, unsigned types, int64_t now,
	      struct feed_reader **reader, struct error *err);
/*
 * From the first event after that number on. False when the ring does not reach back so far: read
 * the database up to a later number first. fd >= 0 is written to from now on until feed_leave, and
 * shut down when the reader is dropped; with -1 the reader takes its frames by feed_take.
 */
bool feed_attach(struct feed_reader *reader, int64_t after, int fd);
void feed_leave(struct feed_reader *reader);
static inline void feed_leavep(struct feed_reader **reader)
{
	if (*reader)
		feed_leave(*reader);
}

/* For readers without a socket: frames into buf. Bytes, 0 nothing now, -1 it was dropped. */
ssize_t feed_take(struct feed_reader *reader, char *buf, size_t max);
int feed_event(struct feed_reader *reader, struct error *err); /* latch; set when there is more */

/* One event as it goes over the wire. */
void frame_event(struct buf *out, const char *company_id, const struct event_row *row);

/* What feed.c (the thread), feed_reader.c and feed_ring.c share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include "live/feed.h"

#define ANY_TYPE (1u << 31) /* comments: for every reader */

struct frame {
	int refs; /* the ring's and those of readers in the middle of it */
	unsigned type;
	int64_t seq; /* 0: not in the sequence, nothing to go on from */
	size_t len;
	char data[];
};

/* The frames of one company, and those who read them. */
struct ring {
	struct ring *next;
	int refs; /* readers, and the thread while it looks at the database */
	char company_id[ID_SIZE];
	int64_t head;        /* the newest number read from the database */
	int64_t floor;       /* every event after this one up to head is in the ring */
	uint64_t first, end; /* positions of the frames that are there */
	size_t bytes, size;
	struct feed_reader *readers;
	int reader_count;
	struct frame *frames[];
};

struct feed_reader {
	struct feed *feed;
	struct ring *ring;
	struct feed_reader *prev, *next;         /* in the ring */
	struct feed_reader *lag_prev, *lag_next; /* among those whose socket is full */
	int fd;
	int latch; /* without a socket; -1 until asked for */
	unsigned types;
	bool attached, lagging, dropped, over;
	uint64_t position;   /* of the next frame */
	struct frame *frame; /* in the middle of this one; NULL: between two */
	size_t sent;         /* bytes of it */
	int64_t after;       /* the last number this reader has had */
	int64_t drop_at;     /* mono: a dropped reader that takes nothing is ended */
};

struct feed {
	struct feed_options options;
	struct db_listener listener;
	struct log_growth *growth;
	pthread_t thread;
	bool running;
	int wake_fd, epoll_fd;
	atomic_bool stopping, asked; /* asked: the latch is set and not looked at yet */
	atomic_int watched;          /* readers: commits wake nobody when there are none */

	pthread_mutex_t lock; /* the rest; writes to sockets under it do not block */
	struct ring *rings;
	struct feed_reader *laggards;
	int reader_count, log_readers;
};

/* feed_ring.c; all with the feed's lock held. */
struct frame *frame_new(unsigned type, int64_t seq, const struct buf *text);
void frame_put(struct frame *frame);
struct frame *frame_at(const struct ring *ring, uint64_t position);
/* A frame of that text at the end; the oldest go where there is no room. */
void ring_push(struct feed *feed, struct ring *ring, unsigned type, int64_t seq,
	       const struct buf *text);
void ring_put(struct feed *feed, struct ring *ring);
/* The company's; made where there is none, with nothing in it up to `now`. */
struct ring *ring_of(struct feed *feed, const char *company_id, int64_t now);

/* feed_reader.c; with the lock held as well. */
void tell_all(struct ring *ring); /* there is something new in it */
void flush_laggards(struct feed *feed);

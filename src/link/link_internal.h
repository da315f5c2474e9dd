/* What link.c, stream.c and link_input.c share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include "link/link.h"

#define BUCKETS 64
/* Requests that wait for a relay that does not read; data is bounded by its credit. */
#define BACKLOG_MAX ((size_t)4 << 20)
#define OUT_KEPT ((size_t)4096)
#define DATA_MAX ((size_t)128 << 10)
#define SOCKET_BUFFER (1 << 20)
/* Above this the link is not read until somebody takes something. */
#define QUEUED_MAX ((size_t)24 << 20)

struct stream {
	struct stream *next; /* in its bucket */
	struct link *link;   /* a reference */
	atomic_int refs;
	uint32_t id;
	pthread_cond_t changed;
	/* Below: under the link's lock. */
	struct item *head, **tail;
	size_t queued;
	unsigned messages; /* queued ones that are no data */
	uint64_t allowed;  /* bytes the other side may still send */
	uint64_t credit;   /* bytes we may still send */
	bool poked;
	bool closed;
	bool deaf;    /* nobody reads our data any more */
	bool stalled; /* it has no room before something is acknowledged */
};

/* Drawn at the head of link.c, which has the one function that changes it. */
enum link_phase {
	LINK_GREETING, /* a connection that was handed over: the WELCOME has not come yet */
	LINK_UP,
	LINK_BROKEN,  /* no more traffic; the loop has not seen it yet */
	LINK_RETIRED, /* the loop has let go of it, and the descriptor is closed or will be */
};

/* The one thread that may receive. */
enum link_reader {
	READER_NONE,   /* epoll watches for the loop */
	READER_LOOP,   /* the loop is in the middle of it */
	READER_THREAD, /* the waiter of `leader`, which so saves a wake-up */
};

/* No relay sets the last bit. */
#define FEATURES_UNKNOWN UINT64_MAX

struct link {
	struct link *list_next; /* the loop's */
	atomic_int refs;
	struct channel_loop *loop;
	int fd;
	char *name;
	int64_t ping_ms;
	void *owner;
	void (*down)(struct link *, void *);
	struct buf partial; /* the beginning of a frame; only whoever reads */

	pthread_mutex_t lock;
	enum link_phase phase;
	enum link_reader reader;
	uint64_t features;
	pthread_cond_t welcomed; /* or broken */
	struct stream *streams[BUCKETS];
	uint32_t last_stream;
	struct buf out;
	size_t out_pos;
	size_t out_data; /* how much of what waits there is data, at most */
	uint32_t wanted; /* what epoll was told */
	size_t queued;
	bool paused;           /* not read: too much is queued */
	struct stream *leader; /* the stream whose waiter reads, or NULL */
	int leader_latch;      /* wakes that waiter; -1: it was set already */
	unsigned waiting;      /* threads that wait without reading */
	bool unwatched;        /* taken out of epoll while the leader sees to its end */
	bool hostile;          /* it broke a rule */
	int64_t heard_ms, said_ms;
	int64_t pinged_ms; /* the first ping that nothing has answered; 0: none */
};

/* Frames come and go. */
static inline bool link_is_open_locked(const struct link *l)
{
	return l->phase == LINK_GREETING || l->phase == LINK_UP;
}

/* Requests and answers that wait for the other side. */
static inline size_t link_backlog_locked(const struct link *l)
{
	return l->out.len - l->out_pos - l->out_data;
}

void link_move_locked(struct link *l, enum link_phase phase);
void link_break_locked(struct link *l);
void link_violated_locked(struct link *l, const char *text);
/* As link_violated_locked, but nobody is to blame. */
void link_ended_locked(struct link *l, const char *text);
void link_flush_locked(struct link *l);
void link_want_locked(struct link *l);
/* Both fail when the link is down; a request opens the stream it is sent on. */
int link_send_locked(struct link *l, uint32_t stream, enum wire_type type, const void *msg,
		     struct error *err);
int link_request_locked(struct link *l, enum wire_type type, const void *msg, uint32_t *stream,
			struct error *err);
/* False: nothing was sent, since the socket does not take it now. */
bool link_hand_locked(struct link *l, uint32_t stream, enum wire_type type, const void *msg,
		      int fd);
/* A DATA frame; what the socket takes at once is not copied. */
struct led_data {
	const void *lead, *data;
	size_t lead_len, len;
};
void link_data_locked(struct link *l, uint32_t stream, uint8_t flags, const struct led_data *data);
int link_down_error(const struct link *l, struct error *err);
/*
 * Waits for something to happen on the stream, below 0 without end; false when the deadline has
 * passed. The lock is given up meanwhile.
 */
bool link_wait_locked(struct link *l, struct stream *s, int64_t deadline);
/* Wakes whoever waits on the stream, a leader too: for those who are not reading. */
void stream_wake_locked(struct stream *s);

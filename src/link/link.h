/*
 * One authenticated connection to a relay, or to the keeper: many streams of frames over one
 * socket. Whoever calls sends from its own thread; what comes in is sorted into the queue of its
 * stream, where one thread takes it: by the loop's thread, or, while only one thread waits for
 * something from this link, by that one, which saves a wake-up.
 *
 * The other side's bytes are hostile. Frames that break a rule of wire/message.h close the link and
 * are logged once. Memory is bounded: data by the credit of its stream, messages by their number,
 * and all of it by a limit above which the link is not read until somebody has taken something.
 *
 * Locks: the link's own lock is innermost; nothing is called with it held.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"
#include "link/loop.h"
#include "wire/message.h"

struct link;
struct stream;

/* A frame that came on a stream. */
struct item {
	struct item *next;
	uint8_t type; /* enum wire_type */
	uint8_t flags;
	uint32_t len;
	uint8_t data[];
};
void item_free(struct item *item); /* one */
void items_free(struct item **list);

struct link_options {
	const char *name;  /* for the log; copied */
	int64_t ping_ms;   /* at most this long between two things we say */
	uint64_t features; /* the other side's, WIRE_FEATURE_* */
	bool handed;       /* the first to come is WELCOME, which says the features */
	void *owner;       /* borrowed */
	/* Once, from the loop's thread, and never for a link that link_new refused; or NULL. */
	void (*down)(struct link *link, void *owner);
};

/*
 * Takes the connected socket in any case. The caller owns one reference of *out. `early` holds
 * bytes that were received behind the greeting.
 */
int link_new(struct channel_loop *loop, int fd, const struct link_options *options,
	     const void *early, size_t early_len, struct link **out, struct error *err);
struct link *link_ref(struct link *link);
void link_unref(struct link *link);
static inline void link_unrefp(struct link **link)
{
	if (*link)
		link_unref(*link);
}
#define _cleanup_link_ _cleanup_(link_unrefp)

bool link_is_up(struct link *link);
/*
 * What the other side can do. Of a connection that was handed over that comes with its WELCOME:
 * ERR_UNAVAILABLE when it is down before, ERR_TIMEOUT after WIRE_HELLO_MS.
 */
int link_features(struct link *link, uint64_t *features, struct error *err);
/* Ends it; whoever waits on a stream is woken. */
void link_close(struct link *link);
/* The other side broke a rule: logs what, and ends it. Returns -1 with ERR_PROTOCOL. */
int link_violated(struct link *link, struct error *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
bool link_was_hostile(struct link *link);

/*
 * Opens a stream with a request; the other side may then send `credit` bytes of data on it. NULL:
 * ERR_UNAVAILABLE when the link is down, ERR_TOO_LARGE when the request fits no frame. The stream
 * is ended by stream_close.
 */
struct stream *link_open(struct link *link, enum wire_type type, const void *msg, uint32_t credit,
			 struct error *err);
/*
 * The same with a descriptor for the other side, which stays the caller's. When the socket does not
 * take it at once, `plainly` is sent instead, alone.
 */
struct stream *link_open_handing(struct link *link, enum wire_type type, const void *msg, int fd,
				 const void *plainly, struct error *err);
/* A request whose answer interests nobody. */
int link_send(struct link *link, enum wire_type type, const void *msg, struct error *err);
/* One that may wait until something else is said, at the latest the next ping. */
int link_send_later(struct link *link, enum wire_type type, const void *msg, struct error *err);
/*
 * A request and its answer: every message before the last one, and the last one unless it is
 * ERROR, goes to `each` (may be NULL); -1 from it ends the call. Deadline: boottime_ms.
 */
typedef int link_answer_fn(void *arg, const struct wire_message *m, struct error *err);
/* The second half of it. */
int stream_await(struct stream *stream, enum wire_type last, link_answer_fn *each, void *arg,
		 int64_t deadline, struct error *err);
int link_call(struct link *link, enum wire_type type, const void *msg, enum wire_type last,
	      link_answer_fn *each, void *arg, int64_t deadline, struct error *err);

struct stream *stream_ref(struct stream *stream);
void stream_unref(struct stream *stream);
/* No more frames are wanted; gives back the caller's reference. NULL is nothing. */
void stream_close(struct stream *stream);
/* A message without an answer on the stream. -1: the link is down. */
int stream_send(struct stream *stream, enum wire_type type, const void *msg, struct error *err);
/* Data against the credit there is: at most that is taken. Returns how much, -1: the link is down.
 */
ssize_t stream_data(struct stream *stream, const void *data, size_t len, bool end,
		    struct error *err);
/*
 * Both as one frame, or nothing while there is not credit for all of it: 1, 0, -1 as above. They
 * must fit into one.
 */
int stream_data_led(struct stream *stream, const void *lead, size_t lead_len, const void *data,
		    size_t len, struct error *err);
/* Adds to the credit for our data: what an answer granted. */
void stream_grant(struct stream *stream, uint32_t bytes);
/* True when there is credit for data, false when the deadline passed or the link is down. */
bool stream_wait_credit(struct stream *stream, int64_t deadline);
size_t stream_credit(struct stream *stream);
/* Tells the other side that it may send that much more. */
int stream_allow(struct stream *stream, uint32_t bytes, struct error *err);
/* Both in one go: what is stored up to `offset`, and credit for more. */
int stream_acknowledge(struct stream *stream, uint64_t offset, uint32_t bytes, struct error *err);
bool stream_is_closed(struct stream *stream);    /* nobody reads our data */
bool stream_is_stalled(struct stream *stream);   /* it waits for an acknowledgement */
struct link *stream_link(struct stream *stream); /* borrowed */
/*
 * Takes everything that came, in order. 1: *items is a list, the caller's to free. 0: nothing until
 * the deadline (below 0: none), or stream_poke. -1: the link is down and nothing is left.
 */
int stream_take(struct stream *stream, int64_t deadline, struct item **items);
/* Lets stream_take return, or wake for credit that has come: data may be sent again. */
void stream_poke(struct stream *stream);

/* Decodes an item's message; a malformed one is a violation. */
int item_decode(struct link *link, const struct item *item, struct wire_message *m,
		struct error *err);
/* Fills err from an ERROR message. Returns -1. */
int wire_error_take(const struct wire_error *e, struct error *err);

/* For the loop. Ready and tick return false when the link is down. */
bool link_ready(struct link *link, uint32_t events, uint8_t *scratch, size_t size);
bool link_tick(struct link *link, int64_t now, int64_t *next);
int link_fd(const struct link *link);
struct link **link_list_next(struct link *link);
void link_retire(struct link *link);

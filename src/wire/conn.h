/*
 * A framed, non-blocking connection: bytes in, whole frames out of it; frames in, bytes out.
 * Bounded in both directions: input by the frame limit, output by the owner, who asks conn_backlog
 * before adding. Used by relay and keeper; the server's channel may use it too.
 */
#pragma once

#include <stdbool.h>
#include "base/buf.h"
#include "base/error.h"
#include "wire/frame.h"

#define CONN_FDS_MAX 8

struct conn {
	int fd; /* owned */
	uint32_t max_payload;
	bool bulk; /* a lot is on its way: larger buffers are used, and kept */
	bool wide; /* what comes is seldom short: an idle connection is read for more than a word */
	/*
	 * In bulk a long DATA frame comes in parts, so that its owner may take the rest of it from
	 * the descriptor by itself (conn_passed) and nothing is copied to make it whole.
	 */
	struct frame part; /* what it is; its END is on the last part only */
	uint32_t rest;     /* bytes of it that are still to come */
	bool lean;         /* the next is likely to be one, too: no more than its header is read */
	struct buf in;
	size_t in_pos; /* bytes of `in` already handed out as frames */
	struct buf out;
	size_t out_pos; /* bytes of `out` already sent */
	/* Descriptors that came along, in their order, for conn_take_fd. */
	bool takes_fds;
	unsigned fd_count;
	int fds[CONN_FDS_MAX];
};

void conn_init(struct conn *c, int fd, uint32_t max_payload);
void conn_close(struct conn *c);

/* Receives what is there, at most some 64 kB, in bulk some more. 1: something came, 0: nothing now,
 * -1: the end or an error. */
int conn_fill(struct conn *c);
/* 1: `frame` is the next one, valid until the next conn_fill. 0: none complete. -1: hostile bytes.
 */
int conn_next(struct conn *c, struct frame *frame, struct error *err);
/* The next bytes of c->part are in the descriptor, none of them was read. */
static inline bool conn_may_pass(const struct conn *c)
{
	return c->rest > 0 && c->in_pos == c->in.len;
}
/* So many of them were taken from there. */
void conn_passed(struct conn *c, size_t bytes);
/* The first descriptor that came and was not taken, the caller's now; -1: there is none. */
int conn_take_fd(struct conn *c);
/* Sends what the socket takes. 0, or -1 when the peer is gone. */
int conn_flush(struct conn *c);
static inline size_t conn_backlog(const struct conn *c)
{
	return c->out.len - c->out_pos;
}

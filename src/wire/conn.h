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

struct conn {
	int fd; /* owned */
	uint32_t max_payload;
	bool bulk; /* a lot is on its way: larger buffers are used, and kept */
	struct buf in;
	size_t in_pos; /* bytes of `in` already handed out as frames */
	struct buf out;
	size_t out_pos; /* bytes of `out` already sent */
};

void conn_init(struct conn *c, int fd, uint32_t max_payload);
void conn_close(struct conn *c);

/* Receives what is there, at most some 64 kB, in bulk some more. 1: something came, 0: nothing now,
 * -1: the end or an error. */
int conn_fill(struct conn *c);
/* 1: `frame` is the next one, valid until the next conn_fill. 0: none complete. -1: hostile bytes.
 */
int conn_next(struct conn *c, struct frame *frame, struct error *err);
/* Sends what the socket takes. 0, or -1 when the peer is gone. */
int conn_flush(struct conn *c);
static inline size_t conn_backlog(const struct conn *c)
{
	return c->out.len - c->out_pos;
}

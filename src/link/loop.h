/*
 * The one thread that moves the frames of every link that no waiting thread reads itself: out of
 * sockets into bounded queues, and what a socket did not take at once into it. It never touches a
 * disk and never waits for anybody but epoll; it also keeps the links alive with pings.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"
#include "base/error.h"

struct channel_loop;
struct link;

int channel_loop_new(struct channel_loop **out, struct error *err);
/* Closes every link, ends the thread, frees. */
void channel_loop_free(struct channel_loop *loop);

/*
 * Takes over one reference of the link, given back when the link is down, or at once when it cannot
 * be watched: then its end is not reported. It has to be ticked within that time for the first
 * time. From any thread.
 */
int channel_loop_add(struct channel_loop *loop, struct link *link, int64_t within_ms,
		     struct error *err);
/* What epoll shall report for the link besides its end. From any thread. */
void channel_loop_want(struct channel_loop *loop, struct link *link, uint32_t events);
/* Out of epoll altogether, and back into it; false: it cannot be watched and must end. */
void channel_loop_unwatch(struct channel_loop *loop, struct link *link);
bool channel_loop_watch(struct channel_loop *loop, struct link *link, uint32_t events);

/* What a thread needs that reads a connection by itself. */
#define SEAT_SCRATCH ((size_t)64 << 10)
struct seat {
	int latch; /* wakes it; given back unset */
	uint8_t *scratch;
};
/* False: there is none to be had. */
bool channel_loop_seat_get(struct channel_loop *loop, struct seat *seat);
void channel_loop_seat_put(struct channel_loop *loop, struct seat *seat);

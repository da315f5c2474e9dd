/*
 * Slow work in a forked child, so that the loop never waits for a disk: syncing a written file,
 * removing a tree. The relay is small, forking it is cheap.
 */
#pragma once

#include "relay/relay.h"

struct aside {
	struct aside *next;
	pid_t pid;
	/* errnum: what the work returned; EIO when it was cut short. */
	void (*done)(struct aside *, int errnum);
};

/* The work runs in the child and returns 0 or an errno below 256. -1: no child could be made. */
int aside_start(struct relay *relay, struct aside *aside, int (*work)(void *), void *arg);
/* True if the child was one of these; `done` has then been called. */
bool aside_reaped(struct relay *relay, pid_t pid, int status);

/*
 * Slow work in a forked child, so that the loop never waits for a disk: syncing a written file,
 * removing a tree. The relay is small, forking it is cheap.
 */
#pragma once

#include "relay/relay.h"

struct background {
	struct background *next;
	pid_t pid;
	/* errnum: what the work returned; EIO when it was cut short. */
	void (*done)(struct background *, int errnum);
};

/* The work runs in the child and returns 0 or an errno below 256. -1: no child could be made. */
int background_start(struct relay *relay, struct background *aside, int (*work)(void *), void *arg);
/* True if the child was one of these; `done` has then been called. */
bool background_reaped(struct relay *relay, pid_t pid, int status);

/*
 * What the files of the keeper's client share: keeper.c finds, starts and asks it, keeper_dialer.c
 * makes its places reachable.
 */
#pragma once

#include <pthread.h>
#include "link/keeper.h"
#include "link/link.h"

#define KEEPER_ATTEMPTS 3
#define PLACES_NAME "places"

struct keeper {
	struct dialer dialer; /* first: its functions find the keeper around it */
	struct channel_loop *loop;
	int dirfd;
	char *dir, *program, *relay;
	int64_t open_files;
	pthread_mutex_t lock; /* everything below; held while connecting, which is bounded */
	struct link *link;
	pid_t child; /* the keeper we started, until it was reaped; 0: none */
	int child_fd;
	pid_t pid;
	uint32_t version;
	char program_version[65];
};

extern const struct dialer KEEPER_DIALER;

/* Connects to a socket below the keeper's directory: its own, or that of a relay. */
int keeper_connect(struct keeper *k, const char *path, bool behind_walls, int *fd, pid_t *pid,
		   struct error *err);
/* The connection to the keeper; the caller unrefs. */
int keeper_link(struct keeper *k, bool may_start, int64_t deadline, struct link **out,
		struct error *err);
bool keeper_can(struct link *link, uint64_t feature);
/* Asks, and asks a new keeper when the old one died over the question. All verbs may be repeated. */
int keeper_ask(struct keeper *k, enum wire_type type, const void *msg, enum wire_type last,
	       link_answer_fn *each, void *arg, int64_t deadline, struct error *err);
/* PLACE_STATE into a struct relay_place; other answers are left alone. */
int keeper_take_place(void *place, const struct wire_message *m, struct error *err);

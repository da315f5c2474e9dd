/*
 * What makers are given of the server: filled once in main, borrowed by every maker. Each maker has
 * a directory of its own, and may keep state beside it.
 */
#pragma once

#include <stdbool.h>
#include "base/clock.h"
#include "base/error.h"

struct db;
struct maker_store;
struct places;

struct maker_host {
	struct maker_store *store; /* directories and state of makers */
	struct places *places;
	struct clock *clock;
	struct db *db;          /* where the values of an environment's env are; NULL: nowhere */
	const char *home_path;  /* where local commands without a directory run */
	const char *socket_dir; /* of the API's socket: no place may see it; NULL: none */
	bool allow_fake;        /* the fake provider may be saved and may be told to misbehave */
	bool no_local;          /* this server runs no command on its own host */
};

/* Below <data>/providers; the descriptor is duplicated. */
int maker_store_new(int dirfd, const char *path, struct maker_store **store, struct error *err);
void maker_store_free(struct maker_store *store);
/*
 * A directory of the maker's own, made on first use. The fd is borrowed; the path, if asked for, is
 * allocated.
 */
int maker_store_dir(struct maker_store *store, const char *key, int *dirfd, char **path,
		    struct error *err);

struct maker_state_kind {
	const char *key; /* of the maker */
	/* In the maker's directory, which outlives the state: fd and path may be kept. */
	int (*open)(struct maker_host *host, int dirfd, const char *path, void **state,
		    struct error *err);
	void (*free)(void *state);
};
/* Opened on first use, once whoever comes first; freed with the store. Borrowed. */
int maker_host_state(struct maker_host *host, const struct maker_state_kind *kind, void **state,
		     struct error *err);

/*
 * The server's side of the keeper: found by its socket, started when nobody listens there, asked
 * over one connection on which many threads' questions are under way at once. A keeper that died is
 * replaced by a new one, which adopts what is there.
 */
#pragma once

#include <stdbool.h>
#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"
#include "link/dialer.h"
#include "link/loop.h"
#include "wire/message.h"

struct keeper;

struct keeper_options {
	struct channel_loop *loop;
	int dirfd;           /* the keeper's directory; borrowed */
	const char *dir;     /* its path */
	const char *program; /* NULL: looked for beside this program, then in libexec */
	const char *relay;   /* NULL: beside the keeper */
	int64_t open_files;  /* its soft limit of descriptors; 0: as ours */
};
struct keeper *keeper_new(const struct keeper_options *options);
void keeper_free(struct keeper *keeper);
/* The dialer of places on this host; the keeper's own, for as long as the keeper lives. */
struct dialer *keeper_dialer(struct keeper *keeper);

struct relay_place {
	enum wire_place_phase state; /* as the keeper says */
	pid_t pid;
	char *root, *cgroup, *ended, *label;
	char *upper;    /* NULL: its workspace is no layer over the host's */
	uint64_t walls; /* wire/walls.h */
	bool pooled;    /* kept ready by the keeper, for nobody yet */
	bool handed;    /* the connection that went along is its relay's; see wire/message.h */
	char id[65];
};
void relay_place_clear(struct relay_place *place);

/* Deadlines: boottime_ms. All of them start a keeper if none runs, unless it says otherwise. */
/* A place that does not exist is success. */
int keeper_destroy(struct keeper *keeper, const char *place_id, int64_t deadline,
		   struct error *err);
/* The files kept under that name; none is success. */
int keeper_store_remove(struct keeper *keeper, const char *store, int64_t deadline,
			struct error *err);
/* ERR_NOT_FOUND: it knows no such place. */
int keeper_find(struct keeper *keeper, const char *place_id, int64_t deadline,
		struct relay_place *out, struct error *err);
struct relay_place_list {
	struct relay_place *items;
	size_t count;
};
void relay_place_list_clear(struct relay_place_list *list);
/* No keeper running and no place left behind is an empty list: none is started for that. */
int keeper_list(struct keeper *keeper, int64_t deadline, struct relay_place_list *out,
		struct error *err);
/*
 * Never starts one: {ok, running, pid, version, protocol, places, cgroup, program, error}. One of
 * the release before goes by the directories it was started with: startedWith is the list of them.
 */
json_t *keeper_health(struct keeper *keeper, int64_t deadline);
char *keeper_relay_program(struct keeper *keeper); /* allocated */
/* The cgroup below which it keeps places, whether it runs or not; NULL: none. */
char *keeper_cgroup(const char *dir);

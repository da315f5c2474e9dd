/*
 * What execs.c (commands that are going), exec_recovery.c, exec_records.c and terminal_holders.c share.
 */
#pragma once

#include <pthread.h>
#include "exec/exec_pad.h"
#include "exec/execs.h"

#define RECENT_EXECS 1024

enum { KEPT, RECENT, SHELVES };

/* Ended, without a key, and still to be had. */
struct recent {
	char id[ID_SIZE];
	int64_t ended_ms, bytes;
	struct live_exec *brief; /* a reference; NULL: its record is on the store */
};

struct execs {
	const struct drivers *drivers;
	struct places *places;
	struct clock *clock;
	struct exec_store store[SHELVES];
	struct pad pad; /* of those that may be brief */
	size_t max_running;
	struct leases *leases; /* NULL: whoever recovers has opened every place */
	/* Records that could not be taken up yet; of whoever recovers. */
	char **later[SHELVES];
	bool unlisted[SHELVES]; /* not even listed */

	pthread_mutex_t lock; /* a leaf */
	pthread_cond_t ended;
	struct live_exec *list; /* those whose command has not ended */
	size_t running;
	bool stopping;
	struct terminal_holder *seats;
	struct recent recent[RECENT_EXECS]; /* a ring, oldest at first_recent */
	size_t first_recent, recent_count;
	int64_t recent_bytes;
};

struct live_exec {
	struct execs *execs;
	struct live_exec *next;
	char id[ID_SIZE];
	struct exec_store *store;
	bool kill_when_left;
	bool adopting;       /* its command was started by an earlier server */
	bool left_behind;    /* its command goes on without this server */
	bool on_record;      /* the store has it */
	int slot;            /* of the pad, which has it until then; -1: none */
	bool start_deferred; /* live_exec_detach is due; of whoever started it */
	char lease_id[ID_SIZE], place_id[ID_SIZE];
	int64_t generation, created_ms;
	json_t *command; /* for people */
	bool stdin_stream, has_terminal;
	uint16_t rows, cols;
	json_t *found; /* the record of one that is adopted */
	struct exec *exec;
	struct runlog *log; /* NULL: it was brief and has ended; or it is not adopted yet */

	int refs; /* these under execs->lock */
	struct exec_outcome outcome;
	int64_t ended_ms;  /* of a brief one */
	char trouble[200]; /* why one that is adopted is not followed yet; "": it is */
	bool is_silent;    /* it has ended without a word, and has no log */
};

/* execs.c: one on its way; live_exec_free for what was never enlisted. */
struct live_exec *live_exec_new(struct execs *execs, struct exec_store *store);
void live_exec_free(struct live_exec *live);
int live_exec_enlist(struct live_exec *live, struct error *err);
/* Off the list, and the last that its thread has to do with any of this. */
void live_exec_leave(struct live_exec *live);
/* On a thread of its own until it has ended. */
int live_exec_follow(struct live_exec *live, struct error *err);

/*
 * exec_recovery.c: until its relay is there to be listened to. -1: ERR_UNAVAILABLE when the server
 * is going; else the command is lost, by its relay's or keeper's word.
 */
int live_exec_reach(struct live_exec *live, struct error *err);

/* exec_records.c */
void describe_order(struct live_exec *live, const struct exec_order *order);
json_t *running_record(const struct live_exec *live);
void record_ended(struct live_exec *live, const struct exec_outcome *outcome);
/* One more that has ended; older ones are forgotten for it. */
void remember_recent(struct execs *execs, const char *id, int64_t ended_ms, int64_t bytes);
/* The same of one that has no record on the store. */
void remember_brief(struct live_exec *live, int64_t bytes);

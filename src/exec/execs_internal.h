/*
 * What execs.c (commands that are going), exec_recovery.c, exec_records.c and terminal_holders.c share.
 */
#pragma once

#include <pthread.h>
#include "exec/execs.h"

#define RECENT_EXECS 1024

enum { KEPT, RECENT, STORES };

/* Ended, without a key, and still to be had. */
struct recent {
	char id[ID_SIZE];
	int64_t ended_ms, bytes;
	struct live_exec *brief; /* a reference; NULL: the store has its record */
};

struct execs {
	const struct makers *makers;
	struct places *places;
	struct clock *clock;
	int dirfd;
	struct exec_store store[STORES];
	size_t max_running;
	struct leases *leases; /* NULL: every place is open already */
	/* Records that could not be taken up yet; of the thread that recovers. */
	char **later[STORES];
	bool unlisted[STORES]; /* not even listed */

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

/* Drawn at the head of execs.c. */
enum exec_phase {
	EXEC_STARTING,
	EXEC_BRIEF,
	EXEC_SEEKING,
	EXEC_RUNNING,
	EXEC_ENDED,
	EXEC_LEFT,
	EXEC_PHASES,
};

struct live_exec {
	struct execs *execs;
	struct live_exec *next;
	char id[ID_SIZE];
	struct exec_store *store;
	char lease_id[ID_SIZE], place_id[ID_SIZE];
	int64_t generation, created_ms;
	json_t *command; /* for people */
	bool kill_when_left, stdin_stream, has_terminal;
	uint16_t rows, cols;
	json_t *record; /* of one that an earlier server started; NULL: made of the fields above */
	struct exec *exec;
	struct runlog *log; /* NULL: it was brief and has ended; or SEEKING, and not open yet */

	enum exec_phase phase; /* these under execs->lock */
	int refs;
	struct exec_outcome outcome;
	int64_t ended_ms;
	char trouble[200]; /* why one that is SEEKING is not followed yet; "": it is */
};

/* execs.c: one on its way; live_exec_free for what was never enlisted. */
struct live_exec *live_exec_new(struct execs *execs, struct exec_store *store,
				enum exec_phase phase);
void live_exec_free(struct live_exec *live);
/* The only way from phase to phase. */
void live_exec_move(struct live_exec *live, enum exec_phase phase);
enum exec_phase live_exec_phase(struct live_exec *live);
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
/* What its relay keeps for a later server; allocated. */
char *exec_note(const struct live_exec *live);
/* The record of a running command, made of its note. */
json_t *record_of_note(const struct found_exec *found);
int record_ended(struct live_exec *live, const struct exec_outcome *outcome);
/* One more that has ENDED; older ones are forgotten for it. Without a record memory has it. */
void remember_recent(struct live_exec *live, bool recorded);
/* The same of one that ended under an earlier server, and has a record. */
void remember_record(struct execs *execs, const char *id, int64_t ended_ms, int64_t bytes);

/*
 * The run's row, for the files of this room: reading it, and the few writes that move it along.
 * Each write names the state it leaves and touches nothing when the row is not in it any more, so
 * that a late writer (a slow thread, a second recovery) cannot undo what another has settled.
 */
#pragma once

#include "record/trust.h"
#include "run/run.h"

/* {items, nextCursor}; see run_list. */
json_t *run_page(struct db *db, const struct run_query *query, struct error *err);
int run_load_tx(struct tx *tx, const char *id, struct run *run, struct error *err);
int run_insert_tx(struct tx *tx, const struct run *run, struct error *err);

/* The server, in what it does for a run: as its agent, if it has one (spec 01 E.3). */
struct actor run_actor(const struct run *run);
/* The trust of who started it, or of the weakest who repeated it since. */
enum trust run_starter(const struct run *run);

struct files_report; /* run/files.h */

/* Why a run ended; strings are borrowed. */
struct run_ending {
	enum run_status status;
	bool has_exit_code;
	int exit_code;
	const char *signal, *reason, *error, *error_code; /* NULL for none */
	const json_t *result;
	const json_t *timings;            /* NULL: nothing was timed */
	int64_t place_kept_until;         /* 0: its leases end with it */
	const struct files_report *files; /* what came of its workspace; NULL: nothing new */
	const char *environment_id;       /* where it was to run; NULL: as the row has it */
};

/* queued -> (still queued): what it waits for, and where it will run (NULL: not known yet). */
int run_set_waiting(struct db *db, struct clock *clock, const char *id, const char *environment_id,
		    const char *reason, struct error *err);
/* queued -> running, for struct lease_also: in the transaction that makes its lease. */
struct run_start {
	const char *run_id;
	const struct node *node;
	struct clock *clock;
	bool cancelled; /* out: the run was not queued any more */
};
int run_set_running_tx(struct tx *tx, const struct lease *lease, void *run_start,
		       struct error *err);
/* Its place is ready for the command. */
struct run_staged {
	const char *lease_id;
	const json_t *context;
	const json_t *metadata;           /* of the lease; NULL: stays as it is */
	const struct files_report *files; /* NULL: it brought none */
};
int run_set_staged(struct db *db, struct clock *clock, const char *id,
		   const struct run_staged *staged, struct error *err);
int run_set_process(struct db *db, struct clock *clock, const char *id, int64_t pid,
		    struct error *err);
/* Why a running run is not followed at the moment. */
int run_set_reconnecting(struct db *db, struct clock *clock, const char *id, const char *reason,
			 struct error *err);
/* running -> running, in the care of this start of the server. */
int run_set_adopted(struct db *db, struct clock *clock, const struct node *node, const char *id,
		    struct error *err);
/* running -> queued: its command never began. */
int run_set_requeued(struct db *db, struct clock *clock, const struct node *node, const char *id,
		     struct error *err);
/* anything not final -> final. 1: ended by this call, 0: it had ended before. */
int run_set_end(struct db *db, struct clock *clock, const char *id, const struct run_ending *ending,
		int64_t log_bytes, struct error *err);
/* Again, with how long releasing took; the row is final already. */
int run_set_timings_tx(struct tx *tx, int64_t now, const char *id, const json_t *timings,
		       struct error *err);
/* What was kept of its files is gone. */
int run_set_dropped(struct db *db, struct clock *clock, const char *id, struct error *err);
/* Values of env and stdin go, names stay (run_secrets.c). */
int run_delete_secrets_tx(struct tx *tx, const char *id, struct error *err);
/* Whether all that the run was given is still there to be given again; err says what is not. */
bool run_can_repeat(const struct run *run, struct error *err);
/* A new queued row copying the request of `of`. */
int run_queue_retry(struct db *db, struct clock *clock, const struct node *node,
		    const struct actor *actor, const struct run *of, int64_t loss_count,
		    char new_id[ID_SIZE], struct error *err);

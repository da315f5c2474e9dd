/*
 * What an earlier server left behind. The command of a run is in the care of its place's relay, so
 * a run whose server died is taken up where its log ends and never notices. Two things can be found
 * instead: the command never began (the run is queued again), or the relay is gone as well, with
 * the command (or there never was one: channel/shell.h). Then the run fails with process_lost, its
 * leases are released as failed, and only then one retry is queued, so that the retry never meets
 * its predecessor's place.
 *
 * It is looked for before serving, and every few seconds while serving: a database that refused at
 * the start leaves a run for later, and another node may die at any time.
 */
#include "run/service.h"

#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "run/files.h"
#include "run/row.h"

#define BATCH 64
#define LOOK_EVERY_MS 5000
#define LOOKOUT_STACK_BYTES (512 * 1024)

/* Ours from an earlier start, or anybody's whose node has been silent too long. */
SQL(RUN_LOST,
    "SELECT r.id FROM runs r LEFT JOIN nodes n ON n.id = r.node_id"
    " WHERE r.status IN ('queued', 'running', 'scheduled_retry') AND r.status = 'running'"
    " AND ((r.node_id = $1 AND r.boot_epoch < CAST($2 AS BIGINT))"
    "  OR (r.node_id <> $1 AND (n.heartbeat_at IS NULL OR n.heartbeat_at < CAST($3 AS BIGINT))))"
    " ORDER BY r.created_at, r.id LIMIT CAST($4 AS BIGINT)");
/* Wants $1 = our node and $2 = the oldest heartbeat of a live one. */
#define QUEUED_ON_DEAD_NODE                                                                        \
	"status IN ('queued', 'running', 'scheduled_retry') AND status = 'queued'"                 \
	" AND node_id <> $1 AND node_id NOT IN"                                                    \
	" (SELECT id FROM nodes WHERE heartbeat_at >= CAST($2 AS BIGINT))"
SQL(RUN_QUEUED_ON_DEAD_NODE, "SELECT 1 FROM runs WHERE " QUEUED_ON_DEAD_NODE " LIMIT 1");
SQL(RUN_ADOPT_QUEUED, "UPDATE runs SET node_id = $1, boot_epoch = $3, updated_at = $4"
		      " WHERE " QUEUED_ON_DEAD_NODE);

struct lost {
	struct runs *runs;
	int64_t now;
	char ids[BATCH][ID_SIZE];
	size_t count;
	bool queued_elsewhere;
};

static int find_lost(struct tx *tx, void *arg, struct error *err)
{
	struct lost *l = arg;
	_cleanup_cursor_ struct cursor c = { 0 };
	int more;

	l->count = 0;
	if (tx_query(tx, &c, &RUN_LOST, err, B_TEXT(l->runs->node->id),
		     B_INT(l->runs->node->boot_epoch), B_INT(l->now - NODE_DEAD_MS),
		     B_INT(BATCH)) < 0)
		return -1;
	while ((more = cursor_next(&c, err)) > 0 && l->count < BATCH)
		id_copy(l->ids[l->count++], col_text(&c, 0));
	return more < 0 ? -1 : 0;
}

static int look_for_queued(struct tx *tx, void *arg, struct error *err)
{
	struct lost *l = arg;
	_cleanup_cursor_ struct cursor c = { 0 };
	int found;

	if (tx_query(tx, &c, &RUN_QUEUED_ON_DEAD_NODE, err, B_TEXT(l->runs->node->id),
		     B_INT(l->now - NODE_DEAD_MS)) < 0)
		return -1;
	found = cursor_next(&c, err);
	l->queued_elsewhere = found > 0;
	return found < 0 ? -1 : 0;
}

static int adopt_queued(struct tx *tx, void *arg, struct error *err)
{
	struct lost *l = arg;

	return tx_exec(tx, &RUN_ADOPT_QUEUED, err, B_TEXT(l->runs->node->id),
		       B_INT(l->now - NODE_DEAD_MS), B_INT(l->runs->node->boot_epoch),
		       B_INT(l->now)) < 0
		       ? -1
		       : 0;
}

static int end_lost(struct runs *runs, const struct run *run, struct error *err)
{
	_cleanup_json_ json_t *result = json_object();
	_cleanup_free_ char *text = NULL;
	int64_t log_bytes = runlog_size(runs->logs, run->id);
	struct run_ending ending = { .status = RUN_FAILED,
				     .error_code = error_code_name(ERR_PROCESS_LOST),
				     .result = result };

	json_put_str(result, "stopReason", error_code_name(ERR_PROCESS_LOST));
	if (run->cancel_requested_at > 0) {
		ending.status = RUN_CANCELLED;
		ending.error_code = error_code_name(ERR_CANCELLED);
		ending.reason = exec_reason_name(EXEC_CANCELLED);
		ending.error = "cancelled; the server stopped before it could confirm";
		ending.result = NULL;
	} else {
		if (run->process_pid > 0)
			text = xasprintf("the server and the relay that held process %lld are gone",
					 (long long)run->process_pid);
		else
			text = xstrdup(run->process_pid < 0
					       ? "the server stopped while the command ran in a "
						 "place without a relay: what became of it is not "
						 "known"
					       : "the server stopped before the command began");
		ending.error = text;
	}
	return run_note_end(runs->db, runs->clock, run->id, &ending, MAX_OF(log_bytes, 0), err);
}

/* 0: it goes on; -1: no relay knows of it. */
static int take_up(struct runs *runs, const struct run *run, struct error *err)
{
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };
	struct exec_spec spec = { .exec_id = run->id, .keep_exit = true };
	struct exec *exec = NULL;

	if (lease_get(runs->leases, run->lease_id, &lease, &place, err) < 0)
		return -1;
	spec.place_id = place.id;
	spec.generation = lease.generation;
	if (runlog_open(runs->logs, run->id, &spec.log, err) < 0)
		return -1;
	if (exec_adopt(runs->executor, &spec, &exec, err) < 0) {
		runlog_close(spec.log);
		return -1;
	}
	if (run_note_adopted(runs->db, runs->clock, runs->node, run->id, err) < 0)
		log_warn("run %s goes on, which could not be recorded: %s", run->id, err->message);
	runs_take_up(runs, run->id, exec, spec.log);
	return 0;
}

static int release_leases(struct runs *runs, const struct run *run, struct error *err)
{
	_cleanup_json_ json_t *report = lease_release_run(
		runs->leases, run->id, run->cancel_requested_at > 0 ? LEASE_RELEASED : LEASE_FAILED,
		NULL, &ACTOR_SYSTEM, err);

	return report ? 0 : -1;
}

/*
 * Its relay is gone, but what it wrote may be on this host still: it is brought home before a retry
 * looks at the same workspace.
 */
static void rescue(struct runs *runs, const struct run *run)
{
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };
	_cleanup_(workspace_state_clear) struct workspace_state state = { 0 };
	_cleanup_error_ struct error failure = { 0 };
	struct files files = { .runs = runs,
			       .id = run->id,
			       .run = run,
			       .state = &state,
			       .place = &place,
			       .cancel_fd = runs->rest_fd };

	if (!run->workspace || !runs->engine || run->process_pid == 0 ||
	    !streq(run->node_id, runs->node->id) ||
	    workspace_state_load(&runs->engine->results, run->id, &state, NULL) < 0 ||
	    state.phase < PHASE_STAGED ||
	    lease_get(runs->leases, run->lease_id, &lease, &place, NULL) < 0)
		return;
	files.generation = lease.generation;
	if (files_fetch(&files, &failure) == 0 && state.collect)
		files_apply(&files, false, &failure);
	if (failure.code != ERR_NONE)
		log_warn("run %s: its work is not home: %s", run->id, failure.message);
	if (files_note(&files, &failure, 0, EVENT_WORKSPACE_COLLECTED, NULL) < 0)
		log_warn("run %s: what came of its workspace is not on record", run->id);
}

static int give_up(struct runs *runs, const struct run *run, struct error *err)
{
	char retry_id[ID_SIZE];
	int ended;

	rescue(runs, run);
	if (latch_is_set(runs->rest_fd))
		return error_set(err, ERR_UNAVAILABLE, "the server is going");
	ended = end_lost(runs, run, err);
	if (ended < 0 || release_leases(runs, run, err) < 0)
		return -1;
	log_warn("run %s was lost %s", run->id,
		 run->process_pid < 0 ? "in a place without a relay" : "with its relay");
	if (ended == 0 || run->cancel_requested_at > 0 || run->process_pid == 0 ||
	    run->process_loss_retry_count > 0)
		return 0;
	return run_queue_retry(runs->db, runs->clock, runs->node, &ACTOR_SYSTEM, run,
			       run->process_loss_retry_count + 1, retry_id, err);
}

static int settle(struct runs *runs, const char *id, struct error *err)
{
	_cleanup_run_ struct run run = { 0 };
	_cleanup_error_ struct error why = { 0 };
	bool goes_on = false;

	/* Taken up already, which could not be recorded. */
	if (runs_has(runs, id))
		return 0;
	if (run_get(runs, id, &run, err) < 0)
		return -1;
	if (streq(run.node_id, runs->node->id) && id_is_set(run.lease_id))
		goes_on = take_up(runs, &run, &why) == 0;
	if (goes_on) {
		log_info("run %s goes on", id);
		return 0;
	}
	/* Its pid is on the row as soon as the command has begun. */
	if (run.process_pid == 0 && run.cancel_requested_at == 0 &&
	    streq(run.node_id, runs->node->id)) {
		log_info("run %s had not begun its command: queued again", id);
		return release_leases(runs, &run, err) < 0
			       ? -1
			       : run_note_requeued(runs->db, runs->clock, runs->node, id, err);
	}
	return give_up(runs, &run, err);
}

int runs_recover(struct runs *runs, struct error *err)
{
	_cleanup_free_ struct lost *l = xcalloc(1, sizeof(*l));
	size_t settled;

	l->runs = runs;
	l->now = clock_now(runs->clock);
	/* Asking before writing keeps a quiet look from being a transaction. */
	if (db_read(runs->db, look_for_queued, l, err) < 0 ||
	    (l->queued_elsewhere && DB_WRITE(runs->db, "run.adopt", adopt_queued, l, err) < 0))
		return -1;
	do {
		if (db_read(runs->db, find_lost, l, err) < 0)
			return -1;
		settled = 0;
		for (size_t i = 0; i < l->count; i++) {
			_cleanup_error_ struct error one = { 0 };

			if (settle(runs, l->ids[i], &one) == 0)
				settled++;
			else
				log_error("run %s could not be settled: %s", l->ids[i],
					  one.message);
		}
	} while (l->count == BATCH && settled > 0);
	return 0;
}

static void *look_out(void *arg)
{
	struct runs *runs = arg;

	runs_collect_rest(runs);
	while (runs_pause(runs, LOOK_EVERY_MS)) {
		_cleanup_error_ struct error err = { 0 };

		if (runs_recover(runs, &err) < 0)
			log_warn("lost runs could not be looked for: %s", err.message);
	}
	return NULL;
}

int lookout_start(struct runs *runs, struct error *err)
{
	pthread_attr_t attr;
	int failed;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, LOOKOUT_STACK_BYTES);
	failed = pthread_create(&runs->lookout, &attr, look_out, runs);
	pthread_attr_destroy(&attr);
	if (failed)
		return error_errno(err, failed, "cannot start the thread that finds lost runs");
	runs->looking_out = true;
	return 0;
}

void lookout_stop(struct runs *runs)
{
	if (runs->looking_out)
		pthread_join(runs->lookout, NULL);
	runs->looking_out = false;
}

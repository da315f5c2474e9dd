/*
 * What an earlier server left behind. The command of a run is in the care of its place's relay, so
 * a run whose server died is taken up where its log ends and never notices. Two things can be found
 * instead: the command never began (the run is queued again), or the relay is gone as well, with
 * the command (or there never was one: place/shell/shell.h). Then the run fails with process_lost, its
 * leases are released as failed, and only then one retry is queued, so that the retry never meets
 * its predecessor's place.
 *
 * Cannot be reached is not lost. Only the relay or the keeper can say that a command is lost, or
 * the absence: a relay that no server has spoken to for so long has ended it. Until then whatever
 * fails on the way (the database, the log, the place, the connection) is tried again by the run's
 * own thread, beside serving; the run stays `running`, its status_reason says why it is not
 * followed, and it can be cancelled.
 *
 * Runs are looked for before serving, and every few seconds while serving: a database that refused
 * at the start leaves a run for later, and another node may die at any time.
 */
#include "run/service.h"

#include <string.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "run/files.h"
#include "run/row.h"

#define LOOK_EVERY_MS 5000
#define LOOKOUT_STACK_BYTES (512 * 1024)
#define ATTACH_MS 2000 /* one try; between two of them other things are looked at */
#define RETRY_FIRST_MS 50
#define RETRY_MAX_MS 1000
/* A run that is to end and whose command cannot even be expected ends with its place after that. */
#define CANCEL_MS 30000

/* Ours from an earlier start, or anybody's whose node has been silent too long. */
SQL(RUN_LOST,
    "SELECT r.id, r.company_id FROM runs r LEFT JOIN nodes n ON n.id = r.node_id"
    " WHERE r.status IN ('queued', 'running', 'scheduled_retry') AND r.status = 'running'"
    " AND ((r.node_id = $1 AND r.boot_epoch < CAST($2 AS BIGINT))"
    "  OR (r.node_id <> $1 AND (n.heartbeat_at IS NULL OR n.heartbeat_at < CAST($3 AS BIGINT))))"
    " ORDER BY r.created_at, r.id");
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
	char **ids, **companies;
	bool queued_elsewhere;
};

static void lost_clear(struct lost *l)
{
	strv_free(l->ids);
	strv_free(l->companies);
	l->ids = l->companies = NULL;
}

static int find_lost(struct tx *tx, void *arg, struct error *err)
{
	struct lost *l = arg;
	_cleanup_cursor_ struct cursor c = { 0 };
	int more;

	lost_clear(l);
	if (tx_query(tx, &c, &RUN_LOST, err, B_TEXT(l->runs->node->id),
		     B_INT(l->runs->node->boot_epoch), B_INT(l->now - NODE_DEAD_MS)) < 0)
		return -1;
	while ((more = cursor_next(&c, err)) > 0) {
		strv_push(&l->ids, xstrdup(col_text(&c, 0)));
		strv_push(&l->companies, xstrdup(col_text(&c, 1)));
	}
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

static char *lost_words(const struct run *run)
{
	if (run->cancel_requested_at > 0)
		return xstrdup("cancelled; the server stopped before it could confirm");
	if (run->process_pid > 0)
		return xasprintf("the server and the relay that held process %lld are gone",
				 (long long)run->process_pid);
	return xstrdup(run->process_pid < 0
			       ? "the server stopped while the command ran in a place without a "
				 "relay: what became of it is not known"
			       : "the server stopped before the command began");
}

static int end_lost(struct runs *runs, const struct run *run, struct error *err)
{
	_cleanup_json_ json_t *result = json_object();
	_cleanup_free_ char *text = lost_words(run);
	int64_t log_bytes = runlog_settle(runs->logs, run->id, NULL);
	struct run_ending ending = { .status = RUN_FAILED,
				     .error = text,
				     .error_code = error_code_name(ERR_PROCESS_LOST),
				     .result = result };

	json_put_str(result, "stopReason", error_code_name(ERR_PROCESS_LOST));
	if (run->cancel_requested_at > 0) {
		ending.status = RUN_CANCELLED;
		ending.error_code = error_code_name(ERR_CANCELLED);
		ending.reason = exec_reason_name(EXEC_CANCELLED);
		ending.result = NULL;
	}
	return run_set_end(runs->db, runs->clock, run->id, &ending, MAX_OF(log_bytes, 0), err);
}

static int release_leases(struct runs *runs, const struct run *run, enum lease_status status,
			  struct error *err)
{
	const struct actor actor = run_actor(run);
	_cleanup_free_ char *why = lost_words(run);
	_cleanup_json_ json_t *report =
		lease_release_run(runs->leases, run->id, status, why, NULL, &actor, err);

	return report ? 0 : -1;
}

/*
 * Its relay is gone, but what it wrote may be on this host still: it is brought home before a retry
 * looks at the same workspace. -1: whether there is something is not known now.
 */
static int rescue(struct runs *runs, const struct run *run, struct error *err)
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
	    !streq(run->node_id, runs->node->id))
		return 0;
	if (workspace_state_load(&runs->engine->results, run->id, &state, err) < 0 ||
	    lease_get(runs->leases, run->lease_id, &lease, &place, err) < 0)
		return run_files_are_unknown(err) ? 0 : -1;
	if (state.phase < PHASE_STAGED)
		return 0;
	files.generation = lease.generation;
	if (files_fetch(&files, &failure) == 0 && state.collect)
		files_apply(&files, false, &failure);
	if (failure.code != ERR_NONE)
		log_warn("run %s: its work is not home: %s", run->id, failure.message);
	if (files_note(&files, &failure, 0, EVENT_WORKSPACE_COLLECTED, NULL) < 0)
		log_warn("run %s: what came of its workspace is not on record", run->id);
	return 0;
}

/* The search for one run's command: what of it has been found so far. */
struct search {
	struct runs *runs;
	char id[ID_SIZE];
	struct run run;
	struct runlog *log;
	struct exec *exec;     /* expected; its relay may not have been reached */
	int64_t cancelling_ms; /* since when it is known that it is to end; 0: it is not */
	bool rescued, ended;   /* what giving up has done already */
	bool retries;
};

enum verdict {
	NOT_YET, /* something failed; it is to be looked for again */
	GOES_ON,
	LOST, /* nothing will ever be heard of its command, or there was none */
	OVER, /* there is nothing to look for any more */
};

struct search *search_new(struct runs *runs, const char *run_id)
{
	struct search *s = xcalloc(1, sizeof(*s));

	s->runs = runs;
	id_copy(s->id, run_id);
	return s;
}

void search_free(struct search *s)
{
	if (!s)
		return;
	if (s->exec)
		exec_abandon(s->exec);
	if (s->log)
		runlog_close(s->log);
	run_clear(&s->run);
	free(s);
}

static int read_row(struct search *s, struct error *err)
{
	_cleanup_run_ struct run run = { 0 };

	if (FAULT_HERE("run.recover.row", err) < 0 || run_get(s->runs, s->id, &run, err) < 0)
		return -1;
	run_clear(&s->run);
	s->run = run;
	run = (struct run){ 0 };
	return 0;
}

static int open_log(struct search *s, struct error *err)
{
	if (FAULT_HERE("run.recover.log", err) < 0)
		return -1;
	return runlog_open(s->runs->logs, s->id, &s->log, err);
}

/* Its place is open and busy with it from here on; nobody has asked its relay yet. */
static enum verdict expect(struct search *s, struct error *err)
{
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };
	struct exec_spec spec = {
		.exec_id = s->id,
		.log = s->log,
		.keep_exit = true,
		.timeout_ms = s->run.timeout_ms,
	};

	if (lease_open_again(s->runs->leases, s->run.lease_id, &lease, &place, err) < 0)
		return err->code == ERR_LEASE_ENDED || err->code == ERR_NOT_FOUND ? LOST : NOT_YET;
	spec.place_id = place.id;
	spec.generation = lease.generation;
	if (exec_expect(s->runs->places, &spec, &s->exec, err) < 0)
		return err->code == ERR_PROCESS_LOST ? LOST : NOT_YET;
	return GOES_ON;
}

/* Everything that needs no relay. GOES_ON: that is to be asked now. */
static enum verdict prepare(struct search *s, struct error *err)
{
	if (read_row(s, err) < 0)
		return err->code == ERR_NOT_FOUND ? OVER : NOT_YET;
	if (s->run.status != RUN_RUNNING || (streq(s->run.node_id, s->runs->node->id) &&
					     s->run.boot_epoch == s->runs->node->boot_epoch))
		return OVER;
	if (!streq(s->run.node_id, s->runs->node->id) || !id_is_set(s->run.lease_id))
		return LOST;
	if (!s->log && open_log(s, err) < 0)
		return NOT_YET;
	return s->exec ? GOES_ON : expect(s, err);
}

static bool is_cancelled(struct search *s, int cancel_fd)
{
	if (s->run.cancel_requested_at == 0 && !(latch_is_set(cancel_fd) && runs_pause(s->runs, 0)))
		return false;
	if (s->cancelling_ms == 0)
		s->cancelling_ms = clock_mono(s->runs->clock);
	return true;
}

static enum verdict look(struct search *s, int cancel_fd, struct error *err)
{
	enum verdict found = prepare(s, err);

	if (found == LOST || found == OVER)
		return found;
	/* Its relay hears of it when it is reached. */
	if (is_cancelled(s, cancel_fd) && s->exec)
		places_cancel(s->runs->places, s->id, EXEC_CANCELLED, false);
	if (found == GOES_ON && exec_attach(s->exec, ATTACH_MS, err) == 0)
		return GOES_ON;
	if (found == GOES_ON && (err->code == ERR_LEASE_LOST || err->code == ERR_NOT_FOUND))
		return LOST;
	if (s->cancelling_ms > 0 && clock_mono(s->runs->clock) - s->cancelling_ms > CANCEL_MS &&
	    s->run.cancel_requested_at > 0)
		return LOST;
	return NOT_YET;
}

/* May be repeated after a failure: what was done is not done again. */
static int give_up(struct search *s, struct error *err)
{
	struct runs *runs = s->runs;
	const struct run *run = &s->run;
	char retry_id[ID_SIZE];

	if (!s->rescued && rescue(runs, run, err) < 0)
		return -1;
	s->rescued = true;
	if (latch_is_set(runs->rest_fd))
		return error_set(err, ERR_UNAVAILABLE, "the server is going");
	if (!s->ended) {
		int ended = end_lost(runs, run, err);

		if (ended < 0)
			return -1;
		s->ended = true;
		s->retries = ended > 0 && run->cancel_requested_at == 0 && run->process_pid != 0 &&
			     run->process_loss_retry_count == 0 && run_can_repeat(run, NULL);
		runs_notify(runs, run->id);
	}
	if (release_leases(runs, run, run->cancel_requested_at > 0 ? LEASE_RELEASED : LEASE_FAILED,
			   err) < 0)
		return -1;
	log_warn("run %s was lost %s", run->id,
		 run->process_pid < 0 ? "in a place without a relay" : "with its relay");
	if (!s->retries)
		return 0;
	return run_queue_retry(runs->db, runs->clock, runs->node, &ACTOR_SYSTEM, run,
			       run->process_loss_retry_count + 1, retry_id, err);
}

static int settle_lost(struct search *s, struct error *err)
{
	struct runs *runs = s->runs;

	/* What stops its place must not wait for somebody who waits for it. */
	if (s->exec)
		exec_abandon(steal(s->exec));
	if (s->log)
		runlog_close(steal(s->log));
	/* Its pid is on the row as soon as the command has begun. */
	if (s->ended || s->run.process_pid != 0 || s->run.cancel_requested_at != 0 ||
	    !streq(s->run.node_id, runs->node->id))
		return give_up(s, err);
	log_info("run %s had not begun its command: queued again", s->id);
	/* Nothing failed there that would be worth a look. */
	if (release_leases(runs, &s->run, LEASE_RELEASED, err) < 0)
		return -1;
	return run_set_requeued(runs->db, runs->clock, runs->node, s->id, err);
}

static void follow(struct search *s, struct orchestration *o)
{
	_cleanup_error_ struct error err = { 0 };

	if (run_set_adopted(s->runs->db, s->runs->clock, s->runs->node, s->id, &err) < 0)
		log_warn("run %s goes on, which could not be recorded: %s", s->id, err.message);
	else
		log_info("run %s goes on", s->id);
	runs_notify(s->runs, s->id);
	if (s->run.cancel_requested_at > 0)
		latch_set(o->cancel_fd);
	orchestrate_adopted(o, &s->run, steal(s->exec), steal(s->log));
}

/* On the row for people, once for each reason. */
static void explain(struct search *s, const struct error *why)
{
	_cleanup_free_ char *reason = xasprintf("reconnecting: %s", why->message);

	if (str_equal(s->run.status_reason, reason))
		return;
	log_warn("run %s is not followed yet: %s", s->id, why->message);
	if (run_set_reconnecting(s->runs->db, s->runs->clock, s->id, reason, NULL) == 0)
		runs_notify(s->runs, s->id);
}

void search_run(struct search *s, struct orchestration *o)
{
	int64_t pause_ms = RETRY_FIRST_MS;
	enum verdict found;

	for (;;) {
		_cleanup_error_ struct error err = { 0 };

		found = s->ended ? LOST : look(s, o->cancel_fd, &err);
		if (found == GOES_ON)
			follow(s, o);
		if (found == GOES_ON || found == OVER ||
		    (found == LOST && settle_lost(s, &err) == 0))
			return;
		if (found == LOST)
			log_error("run %s could not be settled: %s", s->id, err.message);
		if (!runs_pause(s->runs, 0))
			return;
		if (found == NOT_YET)
			explain(s, &err);
		if (!runs_pause(s->runs, pause_ms))
			return;
		pause_ms = MIN_OF(pause_ms * 2, RETRY_MAX_MS);
	}
}

/* What can be done at once is: its log is live and its place busy before anything is served. */
static void begin_search(struct runs *runs, const char *id, const char *company_id)
{
	struct search *s = search_new(runs, id);
	_cleanup_error_ struct error err = { 0 };

	prepare(s, &err);
	/* If there is no thread now, it is looked for again in a moment. */
	if (!runs_take_up(runs, id, company_id, s))
		search_free(s);
}

int runs_recover(struct runs *runs, struct error *err)
{
	_cleanup_(lost_clear) struct lost l = { .runs = runs, .now = clock_now(runs->clock) };

	/* Asking before writing keeps a quiet look from being a transaction. */
	if (db_read(runs->db, look_for_queued, &l, err) < 0 ||
	    (l.queued_elsewhere && DB_WRITE(runs->db, "run.adopt", adopt_queued, &l, err) < 0) ||
	    db_read(runs->db, find_lost, &l, err) < 0)
		return -1;
	for (size_t i = 0; l.ids && l.ids[i]; i++)
		if (!runs_has(runs, l.ids[i]))
			begin_search(runs, l.ids[i], l.companies[i]);
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

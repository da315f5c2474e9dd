#include "run/row.h"

#include <string.h>

#include "record/activity.h"
#include "run/files.h"
#include "run/run_events.h"

#define STILL_OPEN "status IN ('queued', 'running', 'scheduled_retry')"

SQL(RUN_SET_WAITING, "UPDATE runs SET status_reason = $2, updated_at = $3,"
		     " environment_id = COALESCE(CAST($4 AS TEXT), environment_id)"
		     " WHERE id = $1 AND status = 'queued'");
SQL(RUN_SET_RECONNECTING, "UPDATE runs SET status_reason = $2, updated_at = $3"
			  " WHERE id = $1 AND status = 'running'");
SQL(RUN_SET_RUNNING, "UPDATE runs SET status = 'running', status_reason = NULL, lease_id = $2,"
		     " started_at = $3, updated_at = $3, node_id = $4, boot_epoch = $5,"
		     " environment_id = $6"
		     " WHERE id = $1 AND status = 'queued' AND cancel_requested_at IS NULL"
		     " RETURNING " RUN_STATUS_COLUMNS);
SQL(RUN_SET_STAGED, "UPDATE runs SET context = $2, updated_at = $3,"
		    " workspace_report = COALESCE(CAST($4 AS TEXT), workspace_report)"
		    " WHERE id = $1");
SQL(RUN_SET_PROCESS, "UPDATE runs SET process_pid = $2, updated_at = $3 WHERE id = $1");
SQL(RUN_SET_ADOPTED, "UPDATE runs SET node_id = $2, boot_epoch = $3, updated_at = $4,"
		     " status_reason = NULL WHERE id = $1 AND status = 'running'");
SQL(RUN_SET_REQUEUED,
    "UPDATE runs SET status = 'queued', status_reason = NULL, lease_id = NULL, started_at = NULL,"
    " node_id = $2, boot_epoch = $3, updated_at = $4"
    " WHERE id = $1 AND status = 'running' RETURNING " RUN_STATUS_COLUMNS);
SQL(RUN_SET_END, "UPDATE runs SET status = $2, status_reason = NULL, exit_code = $3, signal = $4,"
		 " reason = $5, error = $6, error_code = $7, result = $8, log_bytes = $9,"
		 " finished_at = $10, updated_at = $10, place_kept_until = $11,"
		 " timings = COALESCE(CAST($12 AS TEXT), timings),"
		 " workspace_report = COALESCE(CAST($13 AS TEXT), workspace_report),"
		 " environment_id = COALESCE(CAST($14 AS TEXT), environment_id)"
		 " WHERE id = $1 AND " STILL_OPEN " RETURNING " RUN_STATUS_COLUMNS);
SQL(RUN_SET_TIMINGS, "UPDATE runs SET timings = $2, updated_at = $3 WHERE id = $1");
SQL(RUN_REPORT, "SELECT workspace_report FROM runs WHERE id = $1");
SQL(RUN_SET_REPORT, "UPDATE runs SET workspace_report = $2, place_kept_until = NULL,"
		    " updated_at = $3 WHERE id = $1");

/* Every write here shares one argument: what to say about which run, when. */
struct note {
	const char *id, *text, *environment_id;
	int64_t now, number;
	const struct node *node;
	const struct run_ending *ending;
	const struct actor *actor;
	const struct run *of;
	int64_t changed;
};

static int set_waiting(struct tx *tx, void *arg, struct error *err)
{
	struct note *n = arg;

	return tx_exec(tx, &RUN_SET_WAITING, err, B_TEXT(n->id), B_TEXT(n->text), B_INT(n->now),
		       B_TEXT(n->environment_id)) < 0
		       ? -1
		       : 0;
}

int run_set_waiting(struct db *db, struct clock *clock, const char *id, const char *environment_id,
		    const char *reason, struct error *err)
{
	struct note n = {
		.id = id, .text = reason, .environment_id = environment_id, .now = clock_now(clock)
	};

	return DB_WRITE(db, "run.waiting", set_waiting, &n, err);
}

static int set_reconnecting(struct tx *tx, void *arg, struct error *err)
{
	struct note *n = arg;

	return tx_exec(tx, &RUN_SET_RECONNECTING, err, B_TEXT(n->id), B_TEXT(n->text),
		       B_INT(n->now)) < 0
		       ? -1
		       : 0;
}

int run_set_reconnecting(struct db *db, struct clock *clock, const char *id, const char *reason,
			 struct error *err)
{
	struct note n = { .id = id, .text = reason, .now = clock_now(clock) };

	return DB_WRITE(db, "run.reconnecting", set_reconnecting, &n, err);
}

int run_set_running_tx(struct tx *tx, const struct lease *lease, void *arg, struct error *err)
{
	struct run_start *start = arg;
	const struct node *node = start->node;
	int64_t now = clock_now(start->clock);
	int changed = run_change_tx(tx, now, &RUN_SET_RUNNING, err, B_TEXT(start->run_id),
				    B_TEXT(lease->id), B_INT(now), B_TEXT(node->id),
				    B_INT(node->boot_epoch), B_TEXT(lease->environment_id));

	start->cancelled = changed == 0;
	if (changed <= 0)
		return changed;
	return issue_begin_run_tx(tx, now, start->run_id, err);
}

struct staging {
	const char *id, *context, *metadata;
	const struct run_staged *staged;
	int64_t now;
};

static int set_staged(struct tx *tx, void *arg, struct error *err)
{
	const struct staging *s = arg;
	const struct files_report *files = s->staged->files;

	if (files && files_event_tx(tx, s->now, files, err) < 0)
		return -1;
	if (s->metadata &&
	    lease_set_metadata_tx(tx, s->now, s->staged->lease_id, s->metadata, err) < 0)
		return -1;
	return tx_exec(tx, &RUN_SET_STAGED, err, B_TEXT(s->id), B_TEXT(s->context), B_INT(s->now),
		       B_TEXT(files ? files->text : NULL)) < 0
		       ? -1
		       : 0;
}

int run_set_staged(struct db *db, struct clock *clock, const char *id,
		   const struct run_staged *staged, struct error *err)
{
	_cleanup_free_ char *context = json_text(staged->context);
	_cleanup_free_ char *metadata = staged->metadata ? json_text(staged->metadata) : NULL;
	struct staging s = { id, context, metadata, staged, clock_now(clock) };

	return DB_WRITE(db, "run.staged", set_staged, &s, err);
}

static int set_process(struct tx *tx, void *arg, struct error *err)
{
	struct note *n = arg;

	return tx_exec(tx, &RUN_SET_PROCESS, err, B_TEXT(n->id), B_INT(n->number), B_INT(n->now)) <
			       0
		       ? -1
		       : 0;
}

int run_set_process(struct db *db, struct clock *clock, const char *id, int64_t pid,
		    struct error *err)
{
	struct note n = { .id = id, .number = pid, .now = clock_now(clock) };

	return DB_WRITE(db, "run.process", set_process, &n, err);
}

static int set_adopted(struct tx *tx, void *arg, struct error *err)
{
	struct note *n = arg;

	return tx_exec(tx, &RUN_SET_ADOPTED, err, B_TEXT(n->id), B_TEXT(n->node->id),
		       B_INT(n->node->boot_epoch), B_INT(n->now)) < 0
		       ? -1
		       : 0;
}

int run_set_adopted(struct db *db, struct clock *clock, const struct node *node, const char *id,
		    struct error *err)
{
	struct note n = { .id = id, .node = node, .now = clock_now(clock) };

	return DB_WRITE(db, "run.adopted", set_adopted, &n, err);
}

static int set_requeued(struct tx *tx, void *arg, struct error *err)
{
	struct note *n = arg;

	return run_change_tx(tx, n->now, &RUN_SET_REQUEUED, err, B_TEXT(n->id), B_TEXT(n->node->id),
			     B_INT(n->node->boot_epoch), B_INT(n->now)) < 0
		       ? -1
		       : 0;
}

int run_set_requeued(struct db *db, struct clock *clock, const struct node *node, const char *id,
		     struct error *err)
{
	struct note n = { .id = id, .node = node, .now = clock_now(clock) };

	return DB_WRITE(db, "run.requeued", set_requeued, &n, err);
}

static int set_end(struct tx *tx, void *arg, struct error *err)
{
	struct note *n = arg;
	const struct run_ending *e = n->ending;
	_cleanup_free_ char *timings = e->timings ? json_text(e->timings) : NULL;

	if (e->files && files_event_tx(tx, n->now, e->files, err) < 0)
		return -1;
	n->changed = run_change_tx(
		tx, n->now, &RUN_SET_END, err, B_TEXT(n->id), B_TEXT(run_status_name(e->status)),
		e->has_exit_code ? B_INT(e->exit_code) : B_NULL, B_TEXT(e->signal),
		B_TEXT(e->reason), B_TEXT(e->error), B_TEXT(e->error_code), B_TEXT(n->text),
		B_INT(n->number), B_INT(n->now),
		e->place_kept_until > 0 ? B_INT(e->place_kept_until) : B_NULL, B_TEXT(timings),
		B_TEXT(e->files ? e->files->text : NULL), B_TEXT(e->environment_id));
	if (n->changed <= 0)
		return n->changed < 0 ? -1 : 0;
	if ((e->status == RUN_SUCCEEDED || e->status == RUN_CANCELLED) &&
	    run_delete_secrets_tx(tx, n->id, err) < 0)
		return -1;
	return issue_end_run_tx(tx, n->now, n->id, err);
}

int run_set_end(struct db *db, struct clock *clock, const char *id, const struct run_ending *ending,
		int64_t log_bytes, struct error *err)
{
	_cleanup_free_ char *result = ending->result ? json_text(ending->result) : NULL;
	struct note n = { .id = id,
			  .text = result,
			  .number = log_bytes,
			  .now = clock_now(clock),
			  .ending = ending };

	if (DB_WRITE(db, "run.end", set_end, &n, err) < 0)
		return -1;
	return n.changed > 0 ? 1 : 0;
}

int run_set_timings_tx(struct tx *tx, int64_t now, const char *id, const json_t *timings,
		       struct error *err)
{
	_cleanup_free_ char *text = json_text(timings);

	return tx_exec(tx, &RUN_SET_TIMINGS, err, B_TEXT(id), B_TEXT(text), B_INT(now)) < 0 ? -1
											    : 0;
}

static json_t *report_tx(struct tx *tx, const char *id, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	const char *text;

	if (tx_query(tx, &c, &RUN_REPORT, err, B_TEXT(id)) < 0 || cursor_next(&c, err) < 0)
		return NULL;
	text = col_text(&c, 0);
	return text ? json_parse(text, strlen(text), NULL) : NULL;
}

static int set_dropped(struct tx *tx, void *arg, struct error *err)
{
	struct note *n = arg;
	_cleanup_json_ json_t *report = report_tx(tx, n->id, err);
	_cleanup_free_ char *text = NULL;

	if (!report)
		return err && err->code != ERR_NONE ? -1 : 0;
	json_put_str(report, "phase", "dropped");
	text = json_text(report);
	return tx_exec(tx, &RUN_SET_REPORT, err, B_TEXT(n->id), B_TEXT(text), B_INT(n->now)) < 0
		       ? -1
		       : 0;
}

int run_set_dropped(struct db *db, struct clock *clock, const char *id, struct error *err)
{
	struct note n = { .id = id, .now = clock_now(clock) };

	return DB_WRITE(db, "run.dropped", set_dropped, &n, err);
}

/* What was asked for goes along; what became of the first attempt does not. */
static json_t *request_of(const struct run *run, const struct actor *actor)
{
	json_t *context = json_object();
	json_t *asked = json_object_at(run->context, "request");
	json_t *request = asked ? json_deep_copy(asked) : json_object();

	/* Whoever repeats a run does not get further by it than by one of their own. */
	json_put_str(request, "trust",
		     trust_word(trust_weaker(run_starter(run), actor_trust(actor))));
	if (!actor_is_trusted(actor))
		json_put_bool(request, "byToken", true);
	json_put_new(context, "request", request);
	return context;
}

static int copy_run(struct tx *tx, void *arg, struct error *err)
{
	struct note *n = arg;
	struct activity activity = { .company_id = n->of->company_id,
				     .actor = n->actor,
				     .action = "run.retried",
				     .entity_type = "run",
				     .entity_id = n->id,
				     .agent_id =
					     id_is_set(n->of->agent_id) ? n->of->agent_id : NULL };
	_cleanup_json_ json_t *details = json_object();
	_cleanup_run_ struct run next = { 0 };

	if (run_load_tx(tx, n->of->id, &next, err) < 0)
		return -1;
	id_copy(next.retry_of_run_id, next.id);
	id_copy(next.id, n->id);
	next.status = RUN_QUEUED;
	free(next.invocation_source);
	next.invocation_source = xstrdup(n->number > 0 ? "process_lost_retry" : "retry");
	next.process_loss_retry_count = n->number;
	json_decref(next.context);
	next.context = request_of(n->of, n->actor);
	id_copy(next.node_id, n->node->id);
	next.boot_epoch = n->node->boot_epoch;
	next.created_at = next.updated_at = n->now;
	if (run_insert_tx(tx, &next, err) < 0)
		return -1;
	/* The issue of a run that was lost goes on with the next attempt (HB-5). */
	if (n->number > 0 && issue_begin_run_tx(tx, n->now, n->id, err) < 0)
		return -1;
	json_put_str(details, "retryOfRunId", n->of->id);
	activity.details = details;
	if (activity_write_tx(tx, n->now, &activity, err) < 0)
		return -1;
	return run_publish_queued_tx(tx, n->now, n->id, err);
}

int run_queue_retry(struct db *db, struct clock *clock, const struct node *node,
		    const struct actor *actor, const struct run *of, int64_t loss_count,
		    char new_id[ID_SIZE], struct error *err)
{
	struct note n = { .id = new_id,
			  .number = loss_count,
			  .now = clock_now(clock),
			  .node = node,
			  .actor = actor,
			  .of = of };

	id_new(new_id);
	return DB_WRITE(db, "run.retry", copy_run, &n, err);
}

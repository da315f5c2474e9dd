#include "run/run_events.h"

#include "base/text.h"
#include "record/event.h"

SQL(RUN_STATUS_GET, "SELECT " RUN_STATUS_COLUMNS " FROM runs WHERE id = $1");
/* The first condition repeats that of the partial index, which holds only open runs. */
SQL(RUN_AGENT_BUSY, "SELECT id FROM runs WHERE status IN ('queued', 'running', 'scheduled_retry')"
		    " AND status = 'running' AND agent_id = $1 LIMIT 1");

/* One that was paused, or waits for approval, stays so whatever its runs do. */
SQL(RUN_AGENT_STATUS, "UPDATE agents SET status = $2, updated_at = $3 WHERE id = $1"
		      " AND status IN ('active', 'idle', 'running', 'error')"
		      " AND status <> CAST($2 AS TEXT)");

struct told {
	char company_id[ID_SIZE], run_id[ID_SIZE], agent_id[ID_SIZE];
	enum run_status status;
	json_t *payload;
};

static void told_clear(struct told *told)
{
	json_decref(told->payload);
}

static void read_status(struct cursor *c, struct told *told)
{
	json_t *payload = json_object();

	id_copy(told->run_id, col_text(c, 0));
	id_copy(told->company_id, col_text(c, 1));
	id_copy(told->agent_id, col_text(c, 2));
	run_status_parse(col_text(c, 3), &told->status);
	json_put_str(payload, "runId", col_text(c, 0));
	json_put_str(payload, "agentId", col_text(c, 2));
	json_put_str(payload, "status", col_text(c, 3));
	json_put_str(payload, "invocationSource", col_text(c, 4));
	json_put_new(payload, "triggerDetail", NULL);
	json_put_str(payload, "error", col_text(c, 5));
	json_put_str(payload, "errorCode", col_text(c, 6));
	json_put_time(payload, "startedAt", col_int(c, 7));
	json_put_time(payload, "finishedAt", col_int(c, 8));
	json_put_int(payload, "logBytes", col_int(c, 9));
	told->payload = payload;
}

/* 1 a row, 0 none, -1. The statement has ended when this returns. */
static int query_status(struct tx *tx, const struct sql *sql, const struct bind *binds,
			struct told *told, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query_(tx, &c, sql, binds, err) < 0)
		return -1;

	int r = cursor_next(&c, err);

	if (r <= 0)
		return r;
	read_status(&c, told);
	return cursor_next(&c, err) < 0 ? -1 : 1;
}

static int publish_run(struct tx *tx, int64_t now, const struct told *told, enum event_type type,
		       struct error *err)
{
	const struct event event = { .company_id = told->company_id,
				     .type = type,
				     .run_id = told->run_id,
				     .payload = told->payload };

	return event_write_tx(tx, now, &event, err);
}

/* NULL: nothing changes for the agent, another run of it is going. */
static int agent_status(struct tx *tx, const struct told *told, const char **status,
			struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };

	*status = "running";
	if (told->status == RUN_RUNNING)
		return 0;
	if (tx_query(tx, &c, &RUN_AGENT_BUSY, err, B_TEXT(told->agent_id)) < 0)
		return -1;

	int busy = cursor_next(&c, err);
	bool failed = told->status == RUN_FAILED || told->status == RUN_TIMED_OUT;

	*status = busy ? NULL : failed ? "error" : "idle";
	return busy < 0 ? -1 : 0;
}

static int publish_agent(struct tx *tx, int64_t now, const struct told *told, struct error *err)
{
	const char *status = NULL;

	if (!id_is_set(told->agent_id))
		return 0;
	if (agent_status(tx, told, &status, err) < 0)
		return -1;
	if (!status)
		return 0;

	int64_t changed = tx_exec(tx, &RUN_AGENT_STATUS, err, B_TEXT(told->agent_id),
				  B_TEXT(status), B_INT(now));

	if (changed <= 0)
		return changed < 0 ? -1 : 0;

	_cleanup_json_ json_t *payload = json_object();
	const struct event event = { .company_id = told->company_id,
				     .type = EVENT_AGENT_STATUS,
				     .payload = payload };

	json_put_str(payload, "agentId", told->agent_id);
	json_put_str(payload, "status", status);
	json_put_str(payload, "runId", told->run_id);
	json_put_str(payload, "runStatus", run_status_name(told->status));
	return event_write_tx(tx, now, &event, err);
}

int run_change_tx_(struct tx *tx, int64_t now, const struct sql *sql, const struct bind *binds,
		   struct error *err)
{
	_cleanup_(told_clear) struct told told = { 0 };
	int r = query_status(tx, sql, binds, &told, err);

	if (r <= 0)
		return r;
	if (publish_run(tx, now, &told, EVENT_RUN_STATUS, err) < 0 ||
	    publish_agent(tx, now, &told, err) < 0)
		return -1;
	return 1;
}

int run_publish_queued_tx(struct tx *tx, int64_t now, const char *run_id, struct error *err)
{
	_cleanup_(told_clear) struct told told = { 0 };
	int r = query_status(tx, &RUN_STATUS_GET, B_ARRAY_(B_TEXT(run_id)), &told, err);

	if (r < 0)
		return -1;
	return r > 0 ? publish_run(tx, now, &told, EVENT_RUN_QUEUED, err)
		     : error_set(err, ERR_NOT_FOUND, "Run not found");
}

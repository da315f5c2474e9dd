#include "record/record.h"

#include "record/row.h"

/*
 * What is remembered about an agent between its runs. Two first runs of an agent may meet here, so
 * the row is made by an insert that yields to one that was faster.
 */

SQL(AGENT_STATE_EXISTS, "SELECT 1 FROM agent_runtime_state WHERE agent_id = $1");
SQL(AGENT_STATE_ENSURE,
    "INSERT INTO agent_runtime_state (agent_id, company_id, adapter_type, created_at, updated_at)"
    " VALUES ($1, $2, $3, $4, $4) ON CONFLICT (agent_id) DO NOTHING");
SQL(AGENT_STATE_NOTE_RUN,
    "INSERT INTO agent_runtime_state (agent_id, company_id, adapter_type, last_run_id,"
    " last_run_status, last_error, created_at, updated_at)"
    " SELECT id, company_id, adapter_type, CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT),"
    " CAST($5 AS BIGINT), CAST($5 AS BIGINT) FROM agents WHERE id = $1"
    " ON CONFLICT (agent_id) DO UPDATE SET adapter_type = excluded.adapter_type,"
    " last_run_id = excluded.last_run_id, last_run_status = excluded.last_run_status,"
    " last_error = excluded.last_error, updated_at = excluded.updated_at");

struct agent_state_ensure {
	const struct agent *agent;
	int64_t now;
	bool exists;
};

static int state_exists(struct tx *tx, void *arg, struct error *err)
{
	struct agent_state_ensure *ensure = arg;
	int r = row_exists_tx(tx, &AGENT_STATE_EXISTS, err, B_TEXT(ensure->agent->id));

	ensure->exists = r > 0;
	return r < 0 ? -1 : 0;
}

int agent_ensure_state(struct db *db, struct clock *clock, const struct agent *agent,
		       struct error *err)
{
	struct agent_state_ensure ensure = { .agent = agent, .now = clock_now(clock) };

	/* All runs but an agent's first find the row: they should not pay for a durable write. */
	if (db_read(db, state_exists, &ensure, err) < 0)
		return -1;
	if (ensure.exists)
		return 0;
	return DB_EXEC(db, "agent.ensure_state", &AGENT_STATE_ENSURE, err, B_TEXT(agent->id),
		       B_TEXT(agent->company_id), B_TEXT(agent->adapter_type),
		       B_INT(ensure.now)) < 0
		       ? -1
		       : 0;
}

struct agent_run_note {
	const char *agent_id, *run_id, *run_status, *last_error;
	int64_t now;
};

static int upsert_last_run(struct tx *tx, void *arg, struct error *err)
{
	const struct agent_run_note *note = arg;
	int64_t n = tx_exec(tx, &AGENT_STATE_NOTE_RUN, err, B_TEXT(note->agent_id),
			    B_TEXT(note->run_id), B_TEXT(note->run_status),
			    B_TEXT(note->last_error), B_INT(note->now));

	if (n == 0)
		return error_set(err, ERR_NOT_FOUND, "Agent not found");
	return n < 0 ? -1 : 0;
}

int agent_note_run(struct db *db, struct clock *clock, const char *agent_id, const char *run_id,
		   const char *run_status, const char *last_error, struct error *err)
{
	struct agent_run_note note = { agent_id, run_id, run_status, last_error, clock_now(clock) };

	return DB_WRITE(db, "agent.note_run", upsert_last_run, &note, err);
}

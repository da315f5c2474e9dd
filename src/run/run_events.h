/*
 * Live events of a run, written in the transaction that changes its row.
 */
#pragma once

#include "run/run.h"

/* What an event tells of a run; behind RETURNING, and of a row that is there. */
#define RUN_STATUS_COLUMNS                                                                         \
	"id, company_id, agent_id, status, invocation_source, error, error_code, started_at,"      \
	" finished_at, log_bytes"

/*
 * `sql` changes one row and returns RUN_STATUS_COLUMNS of it: runs it and, when a row changed,
 * publishes the new status of the run and what it makes of its agent's. 1 changed, 0 not, -1.
 */
#define run_change_tx(tx, now, sql, err, ...)                                                      \
	run_change_tx_((tx), (now), (sql), B_ARRAY_(__VA_ARGS__), (err))
int run_change_tx_(struct tx *tx, int64_t now, const struct sql *sql, const struct bind *binds,
		   struct error *err);
/* The row has just been made. */
int run_publish_queued_tx(struct tx *tx, int64_t now, const char *run_id, struct error *err);

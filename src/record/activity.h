/*
 * The activity log: who did what to which record. Details never carry values of configs or secrets;
 * values under keys that look secret, and text that looks like a JSON web token, are replaced by
 * "***REDACTED***" before writing.
 */
#pragma once

#include "record/record.h"

struct activity {
	const char *company_id;
	const struct actor *actor;
	const char *action; /* "environment.created" */
	const char *entity_type, *entity_id;
	const char *agent_id, *run_id; /* NULL: from the actor */
	json_t *details;               /* borrowed; NULL for none */
};
/* Written with the change it tells of: same transaction, sequence in commit order. */
int activity_write_tx(struct tx *tx, int64_t now, const struct activity *activity,
		      struct error *err);
int activity_write(struct db *db, struct clock *clock, const struct activity *activity,
		   struct error *err);

struct activity_query {
	const char *company_id;
	const char *entity_type, *entity_id; /* NULL: any */
	/* What was done to it, by or for it, and to its runs and leases; NULL: any. */
	const char *agent_id, *issue_id, *project_id, *environment_id;
	int64_t limit;      /* 1..500 */
	int64_t before_seq; /* 0: from the newest */
};
/*
 * {items:[...], nextCursor} newest first; NULL on error. nextCursor is before_seq of the next page
 * as text, null when there is none.
 */
json_t *activity_list(struct db *db, const struct activity_query *query, struct error *err);
/* Forgets what is older than the time; returns how many entries, or -1. */
int64_t activity_prune(struct db *db, int64_t before_ms, struct error *err);
int64_t activity_old(struct db *db, int64_t before_ms, struct error *err); /* how many would go */

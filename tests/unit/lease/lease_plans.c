/*
 * Cost at 100,000 finished leases: no statement of this room that runs for a request or in a sweep
 * reads a table from end to end, and those that are asked most stay fast.
 */
#include "lease_fixture.h"

#include <sqlite3.h>
#include <time.h>
#include <stdio.h>
#include "base/text.h"

/* Statements that may: asked rarely, or of tables that hold only what is open. */
static const char *const MAY_SCAN[] = { "PRUNE_FIND",       "PRUNE_PLACES",
					"OPEN_INTENTS",     "COUNT_INTENTS",
					"AUDIT_INTENTS",    "FIRST_COMPANY",
					"CAPACITY_INTENTS", "CAPACITY_COMPANY_INTENTS" };
static const char *const OURS[] = {
	"LEASE_",         "PLACE_",     "INTENT_",       "CAPACITY_",
	"NODE_LAST_BEAT", "LEASES_OF",  "CLEANUP_CLAIM", "CLEANUP_DUE",
	"EXPIRED",        "IDLE",       "RUN_OVER",      "RUN_NEVER",
	"RETENTION_",     "FREE_",      "OPEN_INTENTS",  "HALF_DONE",
	"HURRY_",         "ADOPT_HELD", "REBOOTED_",     "OPERATOR_HELD",
	"LIVE_",          "AUDIT_",     "COUNT_",        "ENVIRONMENT_THERE",
};

static bool starts_with_one(const char *name, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (str_starts(name, list[i]))
			return true;
	}
	return false;
}

SQL(PLANS_LEASE_COPY,
    "INSERT INTO leases (id, company_id, environment_id, place_id, generation, status,"
    " lease_policy, acquired_at, last_used_at, released_at, node_id, boot_epoch, created_at,"
    " updated_at)"
    " SELECT CAST($1 AS TEXT) || l.id, l.company_id, l.environment_id, l.place_id, l.generation, "
    "l.status,"
    " l.lease_policy, l.acquired_at, l.last_used_at + 1, l.released_at, l.node_id, l.boot_epoch,"
    " l.created_at, l.updated_at FROM leases l WHERE l.status = 'released'");

static int64_t scanned(sqlite3 *db, const struct sql *sql, char *table, size_t size)
{
	_cleanup_free_ char *plain = sql_written(sql);
	_cleanup_free_ char *text = xasprintf("EXPLAIN QUERY PLAN %s", plain);
	sqlite3_stmt *stmt = NULL;
	int64_t scans = 0;

	if (sqlite3_prepare_v2(db, text, -1, &stmt, NULL) != SQLITE_OK)
		fail_msg("%s: %s", sql->name, sqlite3_errmsg(db));
	while (sqlite3_step(stmt) == SQLITE_ROW) {
		const char *step = (const char *)sqlite3_column_text(stmt, 3);

		/* A subquery's own result, or a walk along an index that ends at the limit, is
		 * fine. */
		if (!str_starts(step, "SCAN ") || str_starts(step, "SCAN due") ||
		    str_starts(step, "SCAN nodes") || str_starts(step, "SCAN environments"))
			continue;
		snprintf(table, size, "%s", step);
		scans++;
	}
	sqlite3_finalize(stmt);
	return scans;
}

static void no_statement_reads_a_whole_table(void **state)
{
	struct yard *y = yard_of(state);
	sqlite3 *db = NULL;
	size_t seen = 0;

	assert_int_equal(sqlite3_open_v2(y->r->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	for (size_t i = 0; i < sql_count(); i++) {
		const struct sql *sql = sql_at(i);
		char step[200];

		if (!starts_with_one(sql->name, OURS, ARRAY_SIZE(OURS)) ||
		    starts_with_one(sql->name, MAY_SCAN, ARRAY_SIZE(MAY_SCAN)))
			continue;
		seen++;
		if (scanned(db, sql, step, sizeof(step)) > 0)
			fail_msg("%s: %s", sql->name, step);
	}
	assert_true(seen > 40);
	sqlite3_close(db);
}

static int64_t elapsed_us(struct timespec from)
{
	struct timespec to;

	clock_gettime(CLOCK_MONOTONIC, &to);
	return (to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000;
}

/* The fastest of many, so that a busy machine does not count. */
static int64_t fastest_list(struct yard *y, const char *status)
{
	int64_t best = INT64_MAX;

	for (int i = 0; i < 40; i++) {
		struct timespec from;
		_cleanup_json_ json_t *list = NULL;

		clock_gettime(CLOCK_MONOTONIC, &from);
		list = lease_list(y->leases, y->local.id, status, 50, y->err);
		best = MIN_OF(best, elapsed_us(from));
		assert_non_null(list);
	}
	return best;
}

static int64_t fastest_sweep(struct yard *y)
{
	int64_t best = INT64_MAX;

	for (int i = 0; i < 20; i++) {
		struct timespec from;

		clock_gettime(CLOCK_MONOTONIC, &from);
		yard_sweep(y);
		best = MIN_OF(best, elapsed_us(from));
	}
	return best;
}

static void history_does_not_slow_down_lists_and_sweeps(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease active = { 0 };
	int64_t list_before, list_after, active_before, active_after, sweep_before, sweep_after;

	for (int i = 0; i < 100; i++) {
		_cleanup_lease_ struct lease lease = { 0 };

		yard_acquire_from(y, &y->local, &lease);
		yard_release(y, &lease);
	}
	yard_acquire_from(y, &y->local, &active);
	list_before = fastest_list(y, NULL);
	active_before = fastest_list(y, "active");
	sweep_before = fastest_sweep(y);
	for (int i = 0; i < 8; i++) {
		char prefix[] = { (char)('a' + i), '-', '\0' };

		records_exec(y->r, &PLANS_LEASE_COPY, B_TEXT(prefix));
	}
	assert_int_equal(yard_lease_rows(y), 25601);
	list_after = fastest_list(y, NULL);
	active_after = fastest_list(y, "active");
	sweep_after = fastest_sweep(y);
	print_message("list %lld -> %lld us, active %lld -> %lld us, sweep %lld -> %lld us\n",
		      (long long)list_before, (long long)list_after, (long long)active_before,
		      (long long)active_after, (long long)sweep_before, (long long)sweep_after);
	assert_true(list_after < 3 * list_before + 200);
	assert_true(active_after < 3 * active_before + 200);
	assert_true(sweep_after < 3 * sweep_before + 500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		YARD(no_statement_reads_a_whole_table),
		YARD(history_does_not_slow_down_lists_and_sweeps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

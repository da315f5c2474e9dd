/*
 * What monitors, quotas and prune ask costs what is open or old, not what there is: with a million
 * finished rows in a table, none of these statements reads it from end to end.
 */
#include "fixture.h"
#include <sqlite3.h>

static const char *const ASKED[] = {
	"METRIC_RUNS",         "METRIC_LEASES",
	"METRIC_PLACES",       "RUN_OLD",
	"RUN_COUNT_QUEUED",    "RUN_QUEUE_BY_COMPANY",
	"PRUNE_FIND",          "CAPACITY_COMPANY_LEASES",
	"PRUNE_PLACES",        "RUN_LIST",
	"RUN_LIST_BY_STATUS",  "RUN_TO_PACK",
	"EVENT_AFTER",         "EVENT_ACTIVITY_AFTER",
	"EVENT_OF_RUN",        "EVENT_PRUNE",
	"ACTIVITY_OF_COMPANY", "ACTIVITY_OF_ENTITY",
	"ACTIVITY_PRUNE",      "ACTIVITY_OLD",
	"EVENT_OLDEST",        "EVENT_NEWEST",
	"EVENT_COUNT_AFTER",   "EVENT_NTH_OLDEST",
};
/* "p": places, in statements that call them so. */
static const char *const LARGE[] = { "runs", "leases", "places", "p", "activity", "events" };

static bool is_asked(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(ASKED); i++)
		if (streq(ASKED[i], name))
			return true;
	return false;
}

/* A walk along an index that holds only what is open is fine. */
static bool reads_all_of_a_large_table(const char *step)
{
	for (size_t i = 0; i < ARRAY_SIZE(LARGE); i++) {
		_cleanup_free_ char *scan = xasprintf("SCAN %s", LARGE[i]);

		if (streq(step, scan))
			return true;
	}
	return false;
}

static void check_plan(sqlite3 *db, const struct sql *sql)
{
	_cleanup_free_ char *plain = sql_written(sql);
	_cleanup_free_ char *text = xasprintf("EXPLAIN QUERY PLAN %s", plain);
	sqlite3_stmt *stmt = NULL;

	if (sqlite3_prepare_v2(db, text, -1, &stmt, NULL) != SQLITE_OK)
		fail_msg("%s: %s", sql->name, sqlite3_errmsg(db));
	while (sqlite3_step(stmt) == SQLITE_ROW) {
		const char *step = (const char *)sqlite3_column_text(stmt, 3);

		if (reads_all_of_a_large_table(step))
			fail_msg("%s: %s", sql->name, step);
	}
	sqlite3_finalize(stmt);
}

static void monitors_quotas_and_prune_read_no_table_from_end_to_end(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *path = xasprintf("%s/berth.db", t->data);
	sqlite3 *db = NULL;
	size_t seen = 0;

	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	for (size_t i = 0; i < sql_count(); i++) {
		if (!is_asked(sql_at(i)->name))
			continue;
		check_plan(db, sql_at(i));
		seen++;
	}
	assert_int_equal(seen, ARRAY_SIZE(ASKED));
	sqlite3_close(db);
}

/* A request's own words for what it wants gone. */
static void a_dry_run_removes_nothing_and_kinds_stand_alone(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *would = NULL, *only = NULL;

	take_id(post(t, 201, "/api/companies", "{\"name\": \"other\"}"), t->company);
	would = post(t, 200, "/api/prune", "{\"olderThanSeconds\": 0, \"dryRun\": true}");
	assert_true(json_int(would, "activity", 0) >= 1);
	assert_null(json_object_get(would, "keys"));
	only = post(t, 200, "/api/prune", "{\"olderThanSeconds\": 0, \"only\": \"runs\"}");
	assert_int_equal(json_object_size(only), 1);

	_cleanup_json_ json_t *again =
		post(t, 200, "/api/prune", "{\"olderThanSeconds\": 0, \"dryRun\": true}");

	assert_true(json_int(again, "activity", 0) >= json_int(would, "activity", 0));
	refused(t, 400, "validation_error", "dry run",
		CALL("POST", "/api/prune", "{\"dryRun\": true, \"only\": \"keys\"}"));
	refused(t, 400, "validation_error", NULL,
		CALL("POST", "/api/prune", "{\"only\": \"everything\"}"));
}

static void counts_are_there_for_monitors(void **state)
{
	struct api_test *t = *state;
	_cleanup_buf_ struct buf out = { 0 };

	json_decref(acquire(t, t->box, "{}"));
	assert_int_equal(call_raw(t, CALL("GET", "/metrics"), &out), 200);
	assert_non_null(strstr(buf_str(&out), "\nberth_leases{status=\"active\"} 1\n"));
	assert_non_null(strstr(buf_str(&out), "\nberth_places{state=\"held\"} 1\n"));
	assert_non_null(strstr(buf_str(&out), "\nberth_db_writes_waiting 0\n"));
	/* Every line is a comment or a name, labels and a number. */
	for (const char *line = buf_str(&out); *line; line = strchr(line, '\n') + 1) {
		const char *space = strchr(line, ' ');
		char *end;

		if (*line == '#')
			continue;
		assert_non_null(space);
		while (strchr(space + 1, ' ') && strchr(space + 1, ' ') < strchr(line, '\n'))
			space = strchr(space + 1, ' ');
		strtod(space + 1, &end);
		assert_int_equal(*end, '\n');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		api_unit_test(monitors_quotas_and_prune_read_no_table_from_end_to_end),
		api_unit_test(a_dry_run_removes_nothing_and_kinds_stand_alone),
		api_unit_test(counts_are_there_for_monitors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

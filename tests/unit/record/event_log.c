#include "record_fixture.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/text.h"
#include "record/event.h"

SQL(EVENTS_COUNT, "SELECT COUNT(*) FROM events");
SQL(EVENTS_STRANGE, "INSERT INTO events (seq, company_id, type, payload, created_at)"
		    " VALUES ($1, $2, 'from.the.future', '{}', 1)");
SQL(EVENTS_JUMP, "UPDATE counters SET value = $1 WHERE name = 'activity'");

#define RUN "11111111-2222-4333-8444-555555555555"

static int write_event(struct tx *tx, void *arg, struct error *err)
{
	struct records *r = arg;
	_cleanup_json_ json_t *payload = json_object();
	const struct event event = { .company_id = r->company.id,
				     .type = EVENT_RUN_STATUS,
				     .run_id = RUN,
				     .payload = payload };

	json_put_str(payload, "runId", RUN);
	return event_write_tx(tx, clock_now(r->clock), &event, err);
}

static void happen(struct records *r)
{
	assert_done(r, DB_WRITE(r->db, "test.event", write_event, r, &r->err));
}

static int write_many(struct tx *tx, void *arg, struct error *err)
{
	for (int i = 0; i < 1300; i++) {
		if (write_event(tx, arg, err) < 0)
			return -1;
	}
	return 0;
}

static void note(struct records *r, const char *company_id)
{
	const struct activity activity = { .company_id = company_id,
					   .actor = &SOMEBODY,
					   .action = "thing.done",
					   .entity_type = "thing",
					   .entity_id = "it" };

	assert_done(r, activity_write(r->db, r->clock, &activity, &r->err));
}

static void read_after(struct records *r, int64_t after, int64_t limit, struct event_page *page)
{
	assert_done(r, events_after(r->db, r->company.id, after, limit, page, &r->err));
}

/* The company itself is number 1. */
static void events_and_activity_are_one_sequence(void **state)
{
	struct records *r = records_of(state);
	_cleanup_event_page_ struct event_page page = { 0 };
	static const enum event_type TYPES[] = { EVENT_ACTIVITY, EVENT_RUN_STATUS, EVENT_ACTIVITY,
						 EVENT_RUN_STATUS };

	happen(r);
	note(r, r->company.id);
	happen(r);
	read_after(r, 0, 100, &page);
	assert_int_equal(page.count, 4);
	assert_int_equal(page.now, 4);
	assert_false(page.more);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(page.rows[i].seq, i + 1);
		assert_int_equal(page.rows[i].type, TYPES[i]);
	}

	_cleanup_json_ json_t *payload = json_of(page.rows[2].payload);

	assert_json(payload, "{'actorType':'user','actorId':'local','action':'thing.done',"
			     "'entityType':'thing','entityId':'it','agentId':null,'runId':null,"
			     "'details':null}");
}

static void pages_go_on_where_the_last_one_ended(void **state)
{
	struct records *r = records_of(state);
	_cleanup_event_page_ struct event_page page = { 0 };
	int64_t after = 0, seen = 0;

	for (int i = 0; i < 5; i++) {
		happen(r);
		note(r, r->company.id);
	}
	do {
		read_after(r, after, 3, &page);
		for (size_t i = 0; i < page.count; i++)
			assert_int_equal(page.rows[i].seq, ++seen);
		after = seen;
	} while (page.more);
	assert_int_equal(seen, 11);
}

static void one_company_does_not_see_another(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(company_clear) struct company other = { 0 };
	_cleanup_event_page_ struct event_page page = { 0 };

	assert_done(r, company_create(WRITER(r->db, r->clock, &SOMEBODY), "Other", NULL, &other,
				      &r->err));
	note(r, other.id);
	read_after(r, 1, 100, &page);
	assert_int_equal(page.count, 0);
	assert_int_equal(page.now, 3);
}

static int64_t prune(struct records *r, struct event_tallies *tallies, int64_t before, int64_t keep)
{
	return events_prune(r->db, tallies, before, keep, &r->err);
}

static void tallies_freep(struct event_tallies **tallies)
{
	event_tallies_free(*tallies);
}

static void pruning_by_age_leaves_a_floor(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(tallies_freep) struct event_tallies *tallies = event_tallies_new();
	_cleanup_event_page_ struct event_page page = { 0 };

	happen(r);
	happen(r);
	clock_fake_advance(&r->fake, 10000);
	happen(r);
	assert_int_equal(prune(r, tallies, clock_now(r->clock) - 5000, 1000), 2);
	read_after(r, 0, 100, &page);
	assert_int_equal(page.floor, 3);
	assert_int_equal(page.rows[page.count - 1].seq, 4);
	/* The activity is pruned by itself, and counts as well. */
	assert_int_equal(activity_prune(r->db, clock_now(r->clock) - 5000, &r->err), 1);
	read_after(r, 0, 100, &page);
	assert_int_equal(page.floor, 3);
	assert_int_equal(page.count, 1);
	clock_fake_advance(&r->fake, 10000);
	note(r, r->company.id);
	clock_fake_advance(&r->fake, 10000);
	assert_int_equal(activity_prune(r->db, clock_now(r->clock) - 5000, &r->err), 1);
	read_after(r, 0, 100, &page);
	assert_int_equal(page.floor, 5);
}

static void pruning_by_count_keeps_the_newest(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(tallies_freep) struct event_tallies *tallies = event_tallies_new();
	_cleanup_event_page_ struct event_page page = { 0 };

	assert_done(r, DB_WRITE(r->db, "test.events", write_many, r, &r->err));
	assert_int_equal(prune(r, tallies, 0, 100), 1200);
	read_after(r, 0, 500, &page);
	assert_int_equal(records_number(r, &EVENTS_COUNT), 100);
	assert_int_equal(page.floor, 1201);
	assert_int_equal(page.rows[page.count - 1].seq, 1301);
	assert_int_equal(prune(r, tallies, 0, 100), 0);
}

static void pruning_by_count_stays_right_over_many_times_and_beside_another(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(tallies_freep) struct event_tallies *one = event_tallies_new();
	_cleanup_(tallies_freep) struct event_tallies *other = event_tallies_new();

	assert_done(r, DB_WRITE(r->db, "test.events", write_many, r, &r->err));
	assert_int_equal(prune(r, one, 0, 1300), 0);
	for (int i = 0; i < 3; i++) {
		happen(r);
		assert_int_equal(prune(r, one, 0, 1300), 1);
		assert_int_equal(records_number(r, &EVENTS_COUNT), 1300);
	}
	/* What the first remembers no longer holds. */
	assert_int_equal(prune(r, other, 0, 700), 600);
	happen(r);
	assert_int_equal(prune(r, one, 0, 701), 0);
	assert_int_equal(prune(r, one, 0, 10), 691);
	assert_int_equal(prune(r, other, INT64_MAX, 700), 10);
	happen(r);
	assert_int_equal(prune(r, one, 0, 1), 0);
	happen(r);
	assert_int_equal(prune(r, one, 0, 1), 1);
	assert_int_equal(records_number(r, &EVENTS_COUNT), 1);
}

static void an_event_of_a_later_program_is_passed_over(void **state)
{
	struct records *r = records_of(state);
	_cleanup_event_page_ struct event_page page = { 0 };

	records_exec(r, &EVENTS_STRANGE, B_INT(2), B_TEXT(r->company.id));
	records_exec(r, &EVENTS_JUMP, B_INT(2));
	happen(r);
	read_after(r, 1, 100, &page);
	assert_int_equal(page.count, 2);
	assert_null(page.rows[0].payload);
	assert_non_null(page.rows[1].payload);
}

static void the_events_of_a_run_are_found_by_it(void **state)
{
	struct records *r = records_of(state);

	happen(r);
	note(r, r->company.id);
	happen(r);

	_cleanup_json_ json_t *list = events_of_run(r->db, RUN, 0, 10, &r->err);
	_cleanup_json_ json_t *later = events_of_run(r->db, RUN, 2, 10, &r->err);

	assert_int_equal(json_array_size(list), 2);
	assert_string_equal(json_str(json_array_get(list, 0), "eventType"), "heartbeat.run.status");
	assert_int_equal(json_array_size(later), 1);
	assert_int_equal(json_int(json_array_get(later, 0), "seq", 0), 4);
}

#define WRITERS 8
#define EACH 10

static void write_some(int number, void *arg)
{
	struct records *r = arg;

	for (int i = 0; i < EACH; i++) {
		_cleanup_error_ struct error err = { 0 };
		const struct activity activity = { .company_id = r->company.id,
						   .action = "thing.done",
						   .entity_type = "thing",
						   .entity_id = "it" };

		if (number % 2)
			assert_int_equal(DB_WRITE(r->db, "test.event", write_event, r, &err), 0);
		else
			assert_int_equal(activity_write(r->db, r->clock, &activity, &err), 0);
	}
}

/* A reader that goes by numbers while many write: nothing turns up behind it later. */
static void *read_along(void *arg)
{
	struct records *r = arg;
	int64_t after = 1, *seen = xcalloc(1, sizeof(*seen));

	while (*seen < (int64_t)WRITERS * EACH) {
		_cleanup_event_page_ struct event_page page = { 0 };
		_cleanup_error_ struct error err = { 0 };

		if (events_after(r->db, r->company.id, after, 50, &page, &err) < 0)
			break;
		*seen += (int64_t)page.count;
		after = page.count ? page.rows[page.count - 1].seq : page.now;
		/* All are there and some were missed: do not wait for them. */
		if (page.now == 1 + (int64_t)WRITERS * EACH && !page.count && after == page.now)
			break;
	}
	return seen;
}

static void a_reader_misses_nothing_that_many_write(void **state)
{
	struct records *r = records_of(state);
	pthread_t reader;
	void *seen;

	assert_int_equal(pthread_create(&reader, NULL, read_along, r), 0);
	in_parallel(WRITERS, write_some, r);
	pthread_join(reader, &seen);
	assert_int_equal(*(int64_t *)seen, WRITERS * EACH);
	free(seen);
}

/* ---- the cost of a long history ---- */

static void no_statement_of_events_reads_a_whole_table(void **state)
{
	struct records *r = records_of(state);
	sqlite3 *db = NULL;
	size_t seen = 0;

	assert_int_equal(sqlite3_open_v2(r->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	for (size_t i = 0; i < sql_count(); i++) {
		const struct sql *sql = sql_at(i);
		sqlite3_stmt *stmt = NULL;

		if (!str_starts(sql->name, "EVENT_") && !str_starts(sql->name, "GROWTH_") &&
		    !str_starts(sql->name, "RUN_PACKED") && !str_starts(sql->name, "RUN_TO_PACK") &&
		    !str_starts(sql->name, "RUN_AGENT_BUSY"))
			continue;

		_cleanup_free_ char *plain = sql_written(sql);
		_cleanup_free_ char *text = xasprintf("EXPLAIN QUERY PLAN %s", plain);

		seen++;
		if (sqlite3_prepare_v2(db, text, -1, &stmt, NULL) != SQLITE_OK)
			fail_msg("%s: %s", sql->name, sqlite3_errmsg(db));
		while (sqlite3_step(stmt) == SQLITE_ROW) {
			const char *step = (const char *)sqlite3_column_text(stmt, 3);

			/* Open runs are few, and have an index of their own; runs that ended in the
			 * same millisecond are sorted. */
			if (str_equal(step, "USE TEMP B-TREE FOR ORDER BY") ||
			    (str_starts(step, "SCAN ") && !str_starts(step, "SCAN oldest") &&
			     !strstr(step, "runs_open_idx")))
				fail_msg("%s: %s", sql->name, step);
		}
		sqlite3_finalize(stmt);
	}
	sqlite3_close(db);
	assert_true(seen >= 13);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BOTH(events_and_activity_are_one_sequence),
		ON_BOTH(pages_go_on_where_the_last_one_ended),
		ON_BOTH(one_company_does_not_see_another),
		ON_BOTH(pruning_by_age_leaves_a_floor),
		ON_SQLITE(pruning_by_count_keeps_the_newest),
		ON_SQLITE(pruning_by_count_stays_right_over_many_times_and_beside_another),
		ON_BOTH(an_event_of_a_later_program_is_passed_over),
		ON_BOTH(the_events_of_a_run_are_found_by_it),
		ON_BOTH(a_reader_misses_nothing_that_many_write),
		ON_SQLITE(no_statement_of_events_reads_a_whole_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

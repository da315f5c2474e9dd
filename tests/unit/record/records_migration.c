/*
 * A database of the first release gets the columns that records have today, and what stood in it
 * reads as if it had been made with them.
 */
#include "record_fixture.h"

#include <stdio.h>
#include "../db/pg_fixture.h"
#include "base/mem.h"
#include "record/activity.h"
#include "db/engine.h"
#include "db/migrate.h"

#define AGENT "00000000-0000-4000-8000-0000000000a1"

SQL(OLD_COMPANY,
    "INSERT INTO companies (id, name, created_at, updated_at) VALUES ($1, $1, $2, $2)");
SQL(OLD_ISSUE, "INSERT INTO issues (id, company_id, title, status, created_at, updated_at)"
	       " VALUES ($1, $2, 't', $3, $4, $4)");
SQL(OLD_AGENT, "INSERT INTO agents (id, company_id, name, created_at, updated_at)"
	       " VALUES ($1, $2, 'a', 1, 1)");

static int fill_company(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	return tx_exec(tx, &OLD_COMPANY, err, B_TEXT("c-early"), B_INT(10)) < 0 ? -1 : 0;
}

static int fill(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	return tx_exec(tx, &OLD_COMPANY, err, B_TEXT("c-late"), B_INT(20)) < 0 ||
			       tx_exec(tx, &OLD_COMPANY, err, B_TEXT("c-early"), B_INT(10)) < 0 ||
			       tx_exec(tx, &OLD_ISSUE, err, B_TEXT("i-2"), B_TEXT("c-early"),
				       B_TEXT("open"), B_INT(2)) < 0 ||
			       tx_exec(tx, &OLD_ISSUE, err, B_TEXT("i-1"), B_TEXT("c-early"),
				       B_TEXT("done"), B_INT(1)) < 0 ||
			       tx_exec(tx, &OLD_ISSUE, err, B_TEXT("i-3"), B_TEXT("c-late"),
				       B_TEXT("whatever"), B_INT(3)) < 0 ||
			       tx_exec(tx, &OLD_AGENT, err, B_TEXT(AGENT), B_TEXT("c-early")) < 0
		       ? -1
		       : 0;
}

static void assert_issue(struct records *r, struct db *db, const char *id, const char *identifier,
			 enum issue_status status)
{
	_cleanup_(issue_clear) struct issue issue = { 0 };

	assert_done(r, issue_get(db, id, &issue, &r->err));
	assert_string_equal(issue.identifier, identifier);
	assert_int_equal(issue.status, status);
	assert_int_equal(issue.priority, ISSUE_PRIORITY_MEDIUM);
}

static void records_of_the_first_release_read_as_if_made_today(void **state)
{
	struct records *r = records_of(state);
	const struct migration first[] = { migrations[0], { 0, NULL } };
	_cleanup_free_ char *path = xasprintf("%s/old.db", r->dir);
	_cleanup_free_ char *url = r->url ? pg_fixture_new_database() : NULL;
	const struct db_options options = { .path = url ? NULL : path, .url = url };
	_cleanup_(company_clear) struct company early = { 0 };
	_cleanup_(agent_clear) struct agent agent = { 0 };
	_cleanup_(issue_clear) struct issue next = { 0 };
	_cleanup_json_ json_t *body = json_of("{'title':'next'}");
	struct db *db = NULL;

	assert_done(r, db_open_known(&db, &options, first, &r->err));
	assert_done(r, DB_WRITE(db, "test.fill", fill, NULL, &r->err));
	db_close(db);
	db = NULL;
	assert_done(r, db_open(&db, &options, &r->err));
	assert_issue(r, db, "i-1", "CO1-1", ISSUE_STATUS_DONE);
	assert_issue(r, db, "i-2", "CO1-2", ISSUE_STATUS_TODO);
	assert_issue(r, db, "i-3", "CO2-1", ISSUE_STATUS_TODO);
	assert_done(r, company_get(db, "c-early", &early, &r->err));
	assert_int_equal(early.issue_counter, 2);
	assert_int_equal(early.status, COMPANY_STATUS_ACTIVE);
	assert_done(r, agent_get(db, AGENT, &agent, &r->err));
	assert_int_equal(agent.status, AGENT_STATUS_IDLE);
	assert_string_equal(agent.role, "general");
	assert_done(r,
		    issue_create(WRITER(db, r->clock, &SOMEBODY), "c-early", body, &next, &r->err));
	assert_string_equal(next.identifier, "CO1-3");
	db_close(db);
}

SQL(OLD_INTENT,
    "INSERT INTO intents (id, company_id, environment_id, kind, driver, provider, provider_ref,"
    " config, request, node_id, boot_epoch, state, created_at, updated_at)"
    " VALUES ($1, 'c-early', 'e', 'create', 'sandbox', 'fake', $2, '{}', '{}', 'n', 1, 'open',"
    " 5, 6)");
SQL(INTENT_KEPT, "SELECT COUNT(*) FROM intents WHERE id = 'in-1' AND provider_ref = 'ref-1'"
		 " AND created_at = 5 AND updated_at = 6 AND place_id IS NULL");

struct old_intent {
	const char *id, *ref;
};

static int put_intent(struct tx *tx, void *arg, struct error *err)
{
	const struct old_intent *intent = arg;

	return tx_exec(tx, &OLD_INTENT, err, B_TEXT(intent->id), B_TEXT(intent->ref)) < 0 ? -1 : 0;
}

static int count_kept(struct tx *tx, void *arg, struct error *err)
{
	struct cursor c;

	if (tx_query(tx, &c, &INTENT_KEPT, err) < 0 || cursor_next(&c, err) <= 0)
		return -1;
	*(int64_t *)arg = col_int(&c, 0);
	cursor_close(&c);
	return 0;
}

/* An upgrade after a crash: what a provider may have made is still known, and its name taken. */
static void an_open_intent_outlives_the_change_of_its_table(void **state)
{
	struct records *r = records_of(state);
	const struct migration earlier[] = { migrations[0], migrations[1], migrations[2],
					     migrations[3], migrations[4], migrations[5],
					     migrations[6], { 0, NULL } };
	_cleanup_free_ char *path = xasprintf("%s/old.db", r->dir);
	_cleanup_free_ char *url = r->url ? pg_fixture_new_database() : NULL;
	const struct db_options options = { .path = url ? NULL : path, .url = url };
	struct old_intent first = { "in-1", "ref-1" }, same_name = { "in-2", "ref-1" };
	struct db *db = NULL;
	int64_t kept = 0;

	assert_done(r, db_open_known(&db, &options, earlier, &r->err));
	assert_done(r, DB_WRITE(db, "test.fill", fill_company, NULL, &r->err));
	assert_done(r, DB_WRITE(db, "test.intent", put_intent, &first, &r->err));
	db_close(db);
	db = NULL;
	assert_done(r, db_open(&db, &options, &r->err));
	assert_done(r, db_read(db, count_kept, &kept, &r->err));
	assert_int_equal(kept, 1);
	assert_int_equal(DB_WRITE(db, "test.intent", put_intent, &same_name, &r->err), -1);
	assert_int_equal(r->err.code, ERR_DB_CONSTRAINT);
	db_close(db);
}

SQL(OLD_ENTRY,
    "INSERT INTO activity (id, seq, company_id, actor_id, action, entity_type, entity_id, details,"
    " created_at) VALUES ($1, $2, 'c-early', 'somebody', 'thing.done', 'thing', 't-1', '{}', 5)");
SQL(OLD_COUNTER, "UPDATE counters SET value = 2 WHERE name = 'activity'");

static int put_entries(struct tx *tx, void *arg, struct error *err)
{
	if (fill_company(tx, arg, err) < 0 ||
	    tx_exec(tx, &OLD_ENTRY, err, B_TEXT("second"), B_INT(2)) < 0 ||
	    tx_exec(tx, &OLD_ENTRY, err, B_TEXT("first"), B_INT(1)) < 0)
		return -1;
	return tx_exec(tx, &OLD_COUNTER, err) < 0 ? -1 : 0;
}

static void assert_entry(const json_t *list, size_t i, int64_t seq, const char *id)
{
	const json_t *entry = json_array_get(json_array_at(list, "items"), i);

	assert_int_equal(json_int(entry, "seq", 0), seq);
	if (id)
		assert_string_equal(json_str(entry, "id"), id);
}

static void entries_of_the_activity_keep_their_numbers_and_ids(void **state)
{
	struct records *r = records_of(state);
	const struct migration earlier[] = { migrations[0], migrations[1], migrations[2],
					     migrations[3], migrations[4], migrations[5],
					     migrations[6], migrations[7], { 0, NULL } };
	_cleanup_free_ char *path = xasprintf("%s/old.db", r->dir);
	_cleanup_free_ char *url = r->url ? pg_fixture_new_database() : NULL;
	const struct db_options options = { .path = url ? NULL : path, .url = url };
	struct activity next = { .company_id = "c-early",
				 .action = "thing.done",
				 .entity_type = "thing",
				 .entity_id = "t-1" };
	struct activity_query query = { .company_id = "c-early", .limit = 10 };
	_cleanup_json_ json_t *all = NULL, *of_thing = NULL;
	struct db *db = NULL;

	assert_done(r, db_open_known(&db, &options, earlier, &r->err));
	assert_done(r, DB_WRITE(db, "test.fill", put_entries, NULL, &r->err));
	db_close(db);
	db = NULL;
	assert_done(r, db_open(&db, &options, &r->err));
	assert_done(r, activity_write(db, r->clock, &next, &r->err));
	all = activity_list(db, &query, &r->err);
	assert_int_equal(json_array_size(json_array_at(all, "items")), 3);
	assert_entry(all, 0, 3, NULL);
	assert_entry(all, 1, 2, "second");
	assert_entry(all, 2, 1, "first");
	query.entity_type = "thing";
	query.entity_id = "t-1";
	of_thing = activity_list(db, &query, &r->err);
	assert_true(json_equal(all, of_thing));
	db_close(db);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BOTH(records_of_the_first_release_read_as_if_made_today),
		ON_BOTH(an_open_intent_outlives_the_change_of_its_table),
		ON_BOTH(entries_of_the_activity_keep_their_numbers_and_ids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

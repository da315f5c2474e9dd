#include "record_fixture.h"

#include <stdatomic.h>
#include <pthread.h>

SQL(ACTIVITY_COUNT, "SELECT COUNT(*) FROM activity");

static int tell(struct records *r, const char *entity_id, json_t *details)
{
	struct activity activity = { .company_id = r->company.id,
				     .actor = &SOMEBODY,
				     .action = "thing.done",
				     .entity_type = "thing",
				     .entity_id = entity_id,
				     .details = details };

	return activity_write(r->db, r->clock, &activity, &r->err);
}

static json_t *told_details(struct records *r, const char *details)
{
	_cleanup_json_ json_t *json = json_of(details);

	assert_done(r, tell(r, "it", json));

	_cleanup_json_ json_t *items = records_activity(r);

	return json_incref(json_object_get(json_array_get(items, 0), "details"));
}

static void an_entry_says_who_did_what_to_which(void **state)
{
	struct records *r = records_of(state);
	struct actor agent = { .type = "agent", .id = "a-1", .agent_id = "a-1", .run_id = "r-1" };
	struct activity activity = { .company_id = r->company.id,
				     .actor = &agent,
				     .action = "environment.probed",
				     .entity_type = "environment",
				     .entity_id = "unsaved",
				     .run_id = "r-2" };

	assert_done(r, activity_write(r->db, r->clock, &activity, &r->err));
	activity.actor = NULL;
	activity.run_id = NULL;
	assert_done(r, activity_write(r->db, r->clock, &activity, &r->err));

	_cleanup_json_ json_t *items = records_activity(r);
	json_t *by_agent = json_array_get(items, 1);
	const json_t *by_system = json_array_get(items, 0);

	json_object_del(by_agent, "id");
	json_object_del(by_agent, "companyId");
	assert_json(by_agent, "{'seq':2,'actorType':'agent','actorId':'a-1',"
			      "'action':'environment.probed','entityType':'environment',"
			      "'entityId':'unsaved','agentId':'a-1','runId':'r-2','details':null,"
			      "'createdAt':'2023-11-14T22:13:20.000Z'}");
	assert_string_equal(json_str(by_system, "actorType"), "system");
	assert_int_equal(json_state(by_system, "runId"), JSON_IS_NULL);
}

static void pages_are_newest_first_and_complete(void **state)
{
	struct records *r = records_of(state);
	struct activity_query query = { .company_id = r->company.id, .limit = 4 };
	int64_t expected = 10;
	int pages = 0;

	for (int i = 0; i < 9; i++)
		assert_done(r, tell(r, "it", NULL));
	do {
		_cleanup_json_ json_t *page = activity_list(r->db, &query, &r->err);
		json_t *items = json_array_at(page, "items");
		const char *next = json_str(page, "nextCursor");
		json_t *entry;
		size_t i;

		json_array_foreach (items, i, entry) {
			assert_int_equal(json_int(entry, "seq", 0), expected--);
		}
		query.before_seq = next ? atoll(next) : 0;
		pages++;
	} while (query.before_seq);
	assert_int_equal(expected, 0);
	assert_int_equal(pages, 3);
}

static void a_limit_outside_one_to_five_hundred_is_brought_inside(void **state)
{
	struct records *r = records_of(state);
	struct activity_query query = { .company_id = r->company.id, .limit = -3 };

	assert_done(r, tell(r, "it", NULL));

	_cleanup_json_ json_t *page = activity_list(r->db, &query, &r->err);

	assert_int_equal(json_array_size(json_array_at(page, "items")), 1);
}

static size_t found(struct records *r, const char *type, const char *id)
{
	struct activity_query query = {
		.company_id = r->company.id, .entity_type = type, .entity_id = id, .limit = 100
	};
	_cleanup_json_ json_t *page = activity_list(r->db, &query, &r->err);

	return json_array_size(json_array_at(page, "items"));
}

static void entries_are_found_by_type_by_id_and_by_both(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(company_clear) struct company other = { 0 };

	assert_done(r, company_create(WRITER(r->db, r->clock, &SOMEBODY), "Other", NULL, &other,
				      &r->err));
	assert_done(r, tell(r, "one", NULL));
	assert_done(r, tell(r, "two", NULL));
	assert_int_equal(found(r, NULL, NULL), 3);
	assert_int_equal(found(r, "thing", NULL), 2);
	assert_int_equal(found(r, "company", NULL), 1);
	assert_int_equal(found(r, NULL, "one"), 1);
	assert_int_equal(found(r, "thing", "two"), 1);
	assert_int_equal(found(r, "company", "two"), 0);
}

static void values_under_secret_looking_keys_are_replaced(void **state)
{
	struct records *r = records_of(state);
	_cleanup_json_ json_t *details = told_details(
		r, "{'password':'a1','apiKey':'a2','API-KEY':'a3','db_password':'a4',"
		   "'accessToken':7,'Authorization':['a5'],'privateKey':{'pem':'a6'},"
		   "'credentials':'a7','clientSecret':'a8','nested':[{'token':'a9'}],"
		   "'name':'kept','tokenRequired':true,'secret':null,'changedFields':['apiKey'],"
		   "'privateKeySecretRef':{'type':'secret_ref','secretId':'s-1'}}");

	assert_json(details,
		    "{'password':'***REDACTED***','apiKey':'***REDACTED***',"
		    "'API-KEY':'***REDACTED***','db_password':'***REDACTED***',"
		    "'accessToken':'***REDACTED***','Authorization':'***REDACTED***',"
		    "'privateKey':'***REDACTED***','credentials':'***REDACTED***',"
		    "'clientSecret':'***REDACTED***','nested':[{'token':'***REDACTED***'}],"
		    "'name':'kept','tokenRequired':true,'secret':null,'changedFields':['apiKey'],"
		    "'privateKeySecretRef':{'type':'secret_ref','secretId':'s-1'}}");
}

static void web_tokens_in_text_are_replaced_wherever_they_stand(void **state)
{
	struct records *r = records_of(state);
	_cleanup_json_ json_t *details = told_details(
		r, "{'text':'sent eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.c2ln-_x, failed',"
		   "'list':['eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.'],"
		   "'like':'eyJust a word','dots':'eyJa.b','many':'eyJa..b'}");

	assert_json(details, "{'text':'sent ***REDACTED***, failed','list':['***REDACTED***'],"
			     "'like':'eyJust a word','dots':'eyJa.b','many':'eyJa..b'}");
}

static void details_too_large_to_read_are_not_kept(void **state)
{
	struct records *r = records_of(state);
	_cleanup_json_ json_t *details = json_object();
	_cleanup_free_ char *text = xmalloc(40001);

	memset(text, 'x', 40000);
	text[40000] = '\0';
	json_put_str(details, "text", text);
	assert_done(r, tell(r, "it", details));

	_cleanup_json_ json_t *items = records_activity(r);

	assert_json(json_object_get(json_array_get(items, 0), "details"), "{'truncated':true}");
}

static int tell_and_fail(struct tx *tx, void *arg, struct error *err)
{
	struct records *r = arg;

	if (activity_write_tx(tx, 1,
			      &(struct activity){ .company_id = r->company.id,
						  .action = "thing.undone",
						  .entity_type = "thing",
						  .entity_id = "it" },
			      err) < 0)
		return -1;
	return error_set(err, ERR_CONFLICT, "changed my mind");
}

static void what_is_rolled_back_is_not_told_and_leaves_no_gap(void **state)
{
	struct records *r = records_of(state);

	assert_refused(r, ERR_CONFLICT, DB_WRITE(r->db, "test.fail", tell_and_fail, r, &r->err));
	assert_done(r, tell(r, "it", NULL));

	_cleanup_json_ json_t *items = records_activity(r);

	assert_int_equal(json_array_size(items), 2);
	assert_int_equal(json_int(json_array_get(items, 0), "seq", 0), 2);
}

#define WRITERS 6
#define ENTRIES 20

struct tail {
	struct records *r;
	atomic_int writing;
	atomic_int failed;
	int64_t gaps;
};

static bool has_gap(const json_t *items)
{
	size_t n = json_array_size(items);

	for (size_t i = 0; i < n; i++) {
		if (json_int(json_array_get(items, i), "seq", 0) != (int64_t)(n - i))
			return true;
	}
	return false;
}

/* The last thread reads while the others write. */
static void write_or_tail(int number, void *arg)
{
	struct tail *tail = arg;
	struct records *r = tail->r;
	_cleanup_error_ struct error err = { 0 };

	if (number == WRITERS) {
		while (atomic_load(&tail->writing) > 0) {
			struct activity_query query = { .company_id = r->company.id, .limit = 500 };
			_cleanup_json_ json_t *page = activity_list(r->db, &query, &err);

			if (has_gap(json_array_at(page, "items")))
				tail->gaps++;
		}
		return;
	}
	for (int i = 0; i < ENTRIES; i++) {
		struct activity activity = { .company_id = r->company.id,
					     .action = "thing.done",
					     .entity_type = "thing",
					     .entity_id = "it" };

		if (activity_write(r->db, r->clock, &activity, &err) < 0)
			atomic_fetch_add(&tail->failed, 1);
	}
	atomic_fetch_sub(&tail->writing, 1);
}

static void a_reader_never_misses_an_entry_that_commits_late(void **state)
{
	struct records *r = records_of(state);
	struct tail tail = { .r = r, .writing = WRITERS };

	in_parallel(WRITERS + 1, write_or_tail, &tail);
	assert_int_equal(tail.failed, 0);
	assert_int_equal(tail.gaps, 0);
	assert_int_equal(records_number(r, &ACTIVITY_COUNT), WRITERS * ENTRIES + 1);
}

static int tell_many(struct tx *tx, void *arg, struct error *err)
{
	struct records *r = arg;

	for (int i = 0; i < 1100; i++) {
		if (activity_write_tx(tx, RECORDS_START_MS,
				      &(struct activity){ .company_id = r->company.id,
							  .action = "thing.done",
							  .entity_type = "thing",
							  .entity_id = "it" },
				      err) < 0)
			return -1;
	}
	return 0;
}

static void old_entries_of_every_company_are_pruned_and_young_ones_kept(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(company_clear) struct company other = { 0 };

	assert_done(r, company_create(WRITER(r->db, r->clock, &SOMEBODY), "Other", NULL, &other,
				      &r->err));
	assert_done(r, DB_WRITE(r->db, "test.tell", tell_many, r, &r->err));
	clock_fake_advance(&r->fake, 1000);
	assert_done(r, tell(r, "young", NULL));
	assert_int_equal(activity_old(r->db, RECORDS_START_MS, &r->err), 0);
	assert_int_equal(activity_prune(r->db, RECORDS_START_MS, &r->err), 0);
	assert_int_equal(activity_old(r->db, RECORDS_START_MS + 1, &r->err), 1102);
	assert_int_equal(activity_prune(r->db, RECORDS_START_MS + 1, &r->err), 1102);
	assert_int_equal(records_number(r, &ACTIVITY_COUNT), 1);
	assert_int_equal(found(r, "thing", "young"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BOTH(an_entry_says_who_did_what_to_which),
		ON_BOTH(pages_are_newest_first_and_complete),
		ON_SQLITE(a_limit_outside_one_to_five_hundred_is_brought_inside),
		ON_BOTH(entries_are_found_by_type_by_id_and_by_both),
		ON_SQLITE(values_under_secret_looking_keys_are_replaced),
		ON_SQLITE(web_tokens_in_text_are_replaced_wherever_they_stand),
		ON_SQLITE(details_too_large_to_read_are_not_kept),
		ON_BOTH(what_is_rolled_back_is_not_told_and_leaves_no_gap),
		ON_BOTH(a_reader_never_misses_an_entry_that_commits_late),
		ON_BOTH(old_entries_of_every_company_are_pruned_and_young_ones_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

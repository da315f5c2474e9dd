#include "record_fixture.h"

SQL(PUT_NODE, "INSERT INTO nodes (id, boot_epoch, boot_id, started_at, heartbeat_at)"
	      " VALUES ($1, $2, 'b', 1, $3)");
SQL(KEY_COUNT, "SELECT COUNT(*) FROM idempotency_keys");

static const struct node HERE = { .id = "node-a", .boot_epoch = 3 };
static const struct node HERE_RESTARTED = { .id = "node-a", .boot_epoch = 4 };
static const struct node THERE = { .id = "node-b", .boot_epoch = 9 };

static int begin_body(struct records *r, const struct node *node, const char *body,
		      struct idempotency *out)
{
	error_clear(&r->err);
	idempotency_clear(out);
	return idempotency_begin(r->db, r->clock, node, r->company.id, &SOMEBODY,
				 "POST /api/companies/:cid/runs", "key-1", body, strlen(body), out,
				 &r->err);
}

static int begin(struct records *r, const struct node *node, struct idempotency *out)
{
	return begin_body(r, node, "{}", out);
}

static int finish(struct records *r, struct idempotency *idem)
{
	return idempotency_finish(r->db, r->clock, idem, 201, "{\"id\":1}", &r->err);
}

static void the_same_key_gives_the_first_result_again(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(idempotency_clear) struct idempotency first = { 0 }, again = { 0 };

	assert_done(r, begin(r, &HERE, &first));
	assert_false(first.replay);
	assert_false(first.resumed);
	assert_true(id_is_valid(first.entity_id));
	assert_done(r, finish(r, &first));
	assert_done(r, begin(r, &THERE, &again));
	assert_true(again.replay);
	assert_int_equal(again.status, 201);
	assert_string_equal(again.response, "{\"id\":1}");
	assert_string_equal(again.entity_id, first.entity_id);
}

static void the_same_key_with_another_body_is_refused(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(idempotency_clear) struct idempotency first = { 0 }, other = { 0 };

	assert_done(r, begin(r, &HERE, &first));
	assert_refused(r, ERR_IDEMPOTENCY, begin_body(r, &HERE, "{ }", &other));
	assert_done(r, finish(r, &first));
	assert_refused(r, ERR_IDEMPOTENCY, begin_body(r, &HERE, "{ }", &other));
}

static void a_key_belongs_to_its_company_actor_and_route(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(idempotency_clear) struct idempotency first = { 0 }, second = { 0 };
	_cleanup_(idempotency_clear) struct idempotency third = { 0 }, fourth = { 0 };
	struct actor other = { .type = "agent", .id = "local" };

	assert_done(r, begin(r, &HERE, &first));
	assert_done(r, idempotency_begin(r->db, r->clock, &HERE, NULL, &SOMEBODY,
					 "POST /api/companies/:cid/runs", "key-1", "{}", 2, &second,
					 &r->err));
	assert_done(r, idempotency_begin(r->db, r->clock, &HERE, r->company.id, &other,
					 "POST /api/companies/:cid/runs", "key-1", "{}", 2, &third,
					 &r->err));
	assert_done(r, idempotency_begin(r->db, r->clock, &HERE, r->company.id, &SOMEBODY,
					 "POST /api/environments/:id/leases", "key-1", "{}", 2,
					 &fourth, &r->err));
	assert_string_not_equal(first.entity_id, second.entity_id);
	assert_string_not_equal(first.entity_id, third.entity_id);
	assert_string_not_equal(first.entity_id, fourth.entity_id);
}

static void a_request_under_way_on_this_server_is_busy(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(idempotency_clear) struct idempotency first = { 0 }, again = { 0 };

	/* No heartbeat in the table: that we run is proof enough. */
	assert_done(r, begin(r, &HERE, &first));
	assert_refused(r, ERR_IDEMPOTENCY_BUSY, begin(r, &HERE, &again));
}

static void after_a_restart_the_request_is_resumed_with_the_same_entity(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(idempotency_clear) struct idempotency first = { 0 }, resumed = { 0 };
	_cleanup_(idempotency_clear) struct idempotency again = { 0 };

	assert_done(r, begin(r, &HERE, &first));
	assert_done(r, begin(r, &HERE_RESTARTED, &resumed));
	assert_true(resumed.resumed);
	assert_false(resumed.replay);
	assert_string_equal(resumed.entity_id, first.entity_id);
	assert_refused(r, ERR_IDEMPOTENCY_BUSY, begin(r, &HERE_RESTARTED, &again));
	/* The one that was thought dead may not overwrite what its successor says. */
	assert_refused(r, ERR_CONFLICT, finish(r, &first));
	assert_done(r, idempotency_abandon(r->db, &first, &r->err));
	assert_done(r, finish(r, &resumed));
	assert_done(r, begin(r, &HERE_RESTARTED, &again));
	assert_true(again.replay);
}

static void a_request_of_another_node_is_busy_while_that_node_lives(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(idempotency_clear) struct idempotency first = { 0 }, again = { 0 };

	records_exec(r, &PUT_NODE, B_TEXT("node-a"), B_INT(3), B_INT(RECORDS_START_MS));
	assert_done(r, begin(r, &HERE, &first));
	clock_fake_advance(&r->fake, NODE_DEAD_MS - 1);
	assert_refused(r, ERR_IDEMPOTENCY_BUSY, begin(r, &THERE, &again));
	clock_fake_advance(&r->fake, 1);
	assert_done(r, begin(r, &THERE, &again));
	assert_true(again.resumed);
	assert_string_equal(again.entity_id, first.entity_id);
}

static void a_request_of_a_node_that_started_again_is_resumed(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(idempotency_clear) struct idempotency first = { 0 }, again = { 0 };

	assert_done(r, begin(r, &HERE, &first));
	records_exec(r, &PUT_NODE, B_TEXT("node-a"), B_INT(4), B_INT(RECORDS_START_MS));
	assert_done(r, begin(r, &THERE, &again));
	assert_true(again.resumed);
}

static void an_attempt_that_could_not_write_its_end_does_not_hold_the_key_for_ever(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(idempotency_clear) struct idempotency first = { 0 }, again = { 0 };
	_cleanup_(idempotency_clear) struct idempotency third = { 0 };

	assert_done(r, begin(r, &HERE, &first));
	clock_fake_advance(&r->fake, IDEMPOTENCY_ATTEMPT_MS - 1);
	assert_refused(r, ERR_IDEMPOTENCY_BUSY, begin(r, &HERE, &again));
	clock_fake_advance(&r->fake, 1);
	assert_done(r, begin(r, &HERE, &again));
	assert_true(again.resumed);
	assert_string_equal(again.entity_id, first.entity_id);
	/* The second attempt is young again. */
	assert_refused(r, ERR_IDEMPOTENCY_BUSY, begin(r, &HERE, &third));
}

static void a_key_is_forgotten_after_a_day(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(idempotency_clear) struct idempotency first = { 0 }, again = { 0 };
	_cleanup_(idempotency_clear) struct idempotency fresh = { 0 };

	assert_done(r, begin(r, &HERE, &first));
	assert_done(r, finish(r, &first));
	clock_fake_advance(&r->fake, IDEMPOTENCY_KEEP_MS - 1);
	assert_done(r, begin(r, &HERE, &again));
	assert_true(again.replay);
	clock_fake_advance(&r->fake, 1);
	assert_done(r, begin_body(r, &HERE, "{\"other\":1}", &fresh));
	assert_false(fresh.replay);
	assert_string_not_equal(fresh.entity_id, first.entity_id);
	assert_int_equal(records_number(r, &KEY_COUNT), 1);
}

static void a_refused_request_gives_its_key_back(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(idempotency_clear) struct idempotency first = { 0 }, again = { 0 };

	assert_done(r, begin(r, &HERE, &first));
	assert_done(r, idempotency_abandon(r->db, &first, &r->err));
	assert_int_equal(records_number(r, &KEY_COUNT), 0);
	assert_done(r, begin_body(r, &HERE, "{\"fixed\":1}", &again));
	assert_false(again.replay);
	assert_false(again.resumed);
	assert_done(r, finish(r, &again));
	/* What is done stays done. */
	assert_done(r, idempotency_abandon(r->db, &again, &r->err));
	assert_int_equal(records_number(r, &KEY_COUNT), 1);
}

static void a_key_must_be_visible_and_not_too_long(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(idempotency_clear) struct idempotency idem = { 0 };
	char long_key[257];
	const char *const wrong[] = { NULL, "", "a\nb", "\x7f", "caf\xc3\xa9", long_key };

	memset(long_key, 'k', 256);
	long_key[256] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_refused(r, ERR_VALIDATION,
			       idempotency_begin(r->db, r->clock, &HERE, r->company.id, &SOMEBODY,
						 "POST /x", wrong[i], "", 0, &idem, &r->err));
	assert_int_equal(records_number(r, &KEY_COUNT), 0);
	long_key[255] = '\0';
	assert_done(r, idempotency_begin(r->db, r->clock, &HERE, r->company.id, &SOMEBODY,
					 "POST /x", long_key, "", 0, &idem, &r->err));
	assert_string_equal(idem.key, long_key);
}

static void a_response_too_large_to_keep_is_refused(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(idempotency_clear) struct idempotency idem = { 0 };
	_cleanup_free_ char *response = xmalloc(IDEMPOTENCY_RESPONSE_MAX + 2);

	memset(response, 'x', IDEMPOTENCY_RESPONSE_MAX + 1);
	response[IDEMPOTENCY_RESPONSE_MAX + 1] = '\0';
	assert_done(r, begin(r, &HERE, &idem));
	assert_refused(r, ERR_TOO_LARGE,
		       idempotency_finish(r->db, r->clock, &idem, 200, response, &r->err));
}

struct rush {
	struct records *r;
	struct idempotency idem[8];
	enum error_code code[8];
};

static void begin_in_rush(int number, void *arg)
{
	struct rush *rush = arg;
	_cleanup_error_ struct error err = { 0 };
	struct records *r = rush->r;

	idempotency_begin(r->db, r->clock, &HERE, r->company.id, &SOMEBODY, "POST /x", "rush", "{}",
			  2, &rush->idem[number], &err);
	rush->code[number] = err.code;
}

static void of_many_requests_with_one_key_one_goes_ahead(void **state)
{
	struct records *r = records_of(state);
	struct rush rush = { .r = r };
	int ahead = 0, busy = 0;

	in_parallel(8, begin_in_rush, &rush);
	for (int i = 0; i < 8; i++) {
		ahead += rush.code[i] == ERR_NONE;
		busy += rush.code[i] == ERR_IDEMPOTENCY_BUSY;
		idempotency_clear(&rush.idem[i]);
	}
	assert_int_equal(ahead, 1);
	assert_int_equal(busy, 7);
}

static int put_keys(struct tx *tx, void *arg, struct error *err)
{
	SQL(PUT_KEY, "INSERT INTO idempotency_keys (company_id, actor, route, key, body_hash,"
		     " entity_id, state, node_id, boot_epoch, created_at)"
		     " VALUES ('c', 'a', 'r', $1, 'h', 'e', 'done', 'n', 1, $2)");

	(void)arg;
	for (int i = 0; i < 1200; i++) {
		char id[ID_SIZE];

		id_new(id);
		if (tx_exec(tx, &PUT_KEY, err, B_TEXT(id), B_INT(RECORDS_START_MS)) < 0)
			return -1;
	}
	return 0;
}

static void old_keys_are_pruned_and_young_ones_kept(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(idempotency_clear) struct idempotency young = { 0 };

	assert_done(r, DB_WRITE(r->db, "test.keys", put_keys, NULL, &r->err));
	clock_fake_advance(&r->fake, IDEMPOTENCY_KEEP_MS - 1);
	assert_done(r, begin(r, &HERE, &young));
	assert_int_equal(idempotency_prune(r->db, r->clock, &r->err), 0);
	clock_fake_advance(&r->fake, 1);
	assert_int_equal(idempotency_prune(r->db, r->clock, &r->err), 1200);
	assert_int_equal(records_number(r, &KEY_COUNT), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BOTH(the_same_key_gives_the_first_result_again),
		ON_BOTH(the_same_key_with_another_body_is_refused),
		ON_BOTH(a_key_belongs_to_its_company_actor_and_route),
		ON_BOTH(a_request_under_way_on_this_server_is_busy),
		ON_BOTH(after_a_restart_the_request_is_resumed_with_the_same_entity),
		ON_BOTH(a_request_of_another_node_is_busy_while_that_node_lives),
		ON_BOTH(a_request_of_a_node_that_started_again_is_resumed),
		ON_BOTH(an_attempt_that_could_not_write_its_end_does_not_hold_the_key_for_ever),
		ON_BOTH(a_key_is_forgotten_after_a_day),
		ON_BOTH(a_refused_request_gives_its_key_back),
		ON_SQLITE(a_key_must_be_visible_and_not_too_long),
		ON_SQLITE(a_response_too_large_to_keep_is_refused),
		ON_BOTH(of_many_requests_with_one_key_one_goes_ahead),
		ON_BOTH(old_keys_are_pruned_and_young_ones_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

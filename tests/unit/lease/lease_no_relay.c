/*
 * Places without a relay: nothing there keeps an earlier holder out, so nobody gets one as long as
 * something of an earlier holder may run there.
 */
#include "lease_fixture.h"

#include <unistd.h>
#include "base/text.h"

#define BARE "{'provider':'fake','image':'alpine','reuseLease':true,'relay':false}"
#define DEAD_NODE "00000000-0000-4000-8000-00000000dead"

SQL(NO_RELAY_FENCING, "SELECT COUNT(*) FROM places WHERE id = $1 AND fencing = $2");
SQL(NO_RELAY_MOVE_PLACE, "UPDATE places SET node_id = $2 WHERE id = $1");
SQL(NO_RELAY_DEAD_NODE, "INSERT INTO nodes (id, boot_epoch, boot_id, started_at, heartbeat_at)"
			" VALUES ($1, 1, 'x', 1, 1)");

struct question {
	const char *place_id, *fencing;
	int64_t count;
};

static int count_tx(struct tx *tx, void *arg, struct error *err)
{
	struct question *q = arg;
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query(tx, &c, &NO_RELAY_FENCING, err, B_TEXT(q->place_id), B_TEXT(q->fencing)) < 0 ||
	    cursor_next(&c, err) < 0)
		return -1;
	q->count = col_int(&c, 0);
	return 0;
}

static void assert_fencing(struct yard *y, const char *place_id, const char *fencing)
{
	struct question q = { place_id, fencing, 0 };

	assert_int_equal(db_read(y->db, count_tx, &q, y->err), 0);
	assert_int_equal(q.count, 1);
}

static bool has_file(struct yard *y, const struct lease *lease)
{
	(void)y;
	_cleanup_free_ char *path = xasprintf("%s/left", json_str(lease->metadata, "remoteCwd"));

	return access(path, F_OK) == 0;
}

static void hold_and_leave_a_file(struct yard *y, const struct environment *env,
				  struct lease *lease)
{
	yard_acquire_from(y, env, lease);
	assert_true(json_is_true(json_object_get(lease->metadata, "noRelay")));
	assert_int_equal(yard_exec(y, lease, "echo x >left", y->err), 0);
	assert_true(has_file(y, lease));
}

static void a_place_that_was_left_in_order_is_used_again(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease first = { 0 };
	_cleanup_lease_ struct lease second = { 0 };

	yard_sandbox(y, "bare", BARE, 0, &env);
	hold_and_leave_a_file(y, &env, &first);
	assert_fencing(y, first.place_id, "server");
	yard_release(y, &first);
	assert_place(y, first.place_id, "free");
	assert_fencing(y, first.place_id, "server");
	yard_acquire_from(y, &env, &second);
	assert_string_equal(second.place_id, first.place_id);
	assert_true(has_file(y, &second));
	yard_release(y, &second);
}

/* The server that died may have started something that nobody knows of. */
static void after_a_crash_the_next_holder_gets_a_new_one(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease first = { 0 };
	_cleanup_lease_ struct lease second = { 0 };

	yard_sandbox(y, "bare", BARE, 0, &env);
	hold_and_leave_a_file(y, &env, &first);
	yard_restart(y);
	assert_fencing(y, first.place_id, "none");
	/* Its own holder goes on. */
	assert_int_equal(yard_exec(y, &first, "test -e left", y->err), 0);
	yard_release(y, &first);
	yard_acquire_from(y, &env, &second);
	assert_false(has_file(y, &second));
	assert_fencing(y, second.place_id, "server");
	assert_int_equal(yard_exec(y, &second, "true", y->err), 0);
	yard_release(y, &second);
}

static void a_free_place_survives_a_crash(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease first = { 0 };
	_cleanup_lease_ struct lease second = { 0 };

	yard_sandbox(y, "bare", BARE, 0, &env);
	hold_and_leave_a_file(y, &env, &first);
	yard_release(y, &first);
	yard_restart(y);
	yard_acquire_from(y, &env, &second);
	assert_true(has_file(y, &second));
	yard_release(y, &second);
}

static int move_tx(struct tx *tx, void *arg, struct error *err)
{
	if (tx_exec(tx, &NO_RELAY_DEAD_NODE, err, B_TEXT(DEAD_NODE)) < 0)
		return -1;
	return tx_exec(tx, &NO_RELAY_MOVE_PLACE, err, B_TEXT(arg), B_TEXT(DEAD_NODE)) < 0 ? -1 : 0;
}

/* A node that is only thought dead could go on calling. */
static void what_another_node_held_is_not_used_again(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease first = { 0 };
	_cleanup_lease_ struct lease second = { 0 };

	yard_sandbox(y, "bare", BARE, 0, &env);
	hold_and_leave_a_file(y, &env, &first);
	assert_int_equal(DB_WRITE(y->db, "test.move", move_tx, first.place_id, y->err), 0);
	yard_release(y, &first);
	assert_fencing(y, first.place_id, "none");
	yard_acquire_from(y, &env, &second);
	assert_false(has_file(y, &second));
	yard_release(y, &second);
}

/* A provider that does not answer: what became of the command is not known. */
static void a_call_without_an_answer_spoils_the_place(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease first = { 0 };
	_cleanup_error_ struct error err = { 0 };

	yard_sandbox(y, "mute",
		     "{'provider':'fake','reuseLease':true,'relay':false,"
		     "'faults':{'execute':{'hang':true,'deadlineMs':50}}}",
		     0, &env);
	yard_acquire_from(y, &env, &first);
	assert_int_equal(yard_exec(y, &first, "true", &err), -1);
	assert_string_equal(error_code_name(err.code), "process_lost");
	yard_release(y, &first);
	assert_fencing(y, first.place_id, "none");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		YARD_BOTH(a_place_that_was_left_in_order_is_used_again),
		YARD_BOTH(after_a_crash_the_next_holder_gets_a_new_one),
		YARD(a_free_place_survives_a_crash),
		YARD_BOTH(what_another_node_held_is_not_used_again),
		YARD(a_call_without_an_answer_spoils_the_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

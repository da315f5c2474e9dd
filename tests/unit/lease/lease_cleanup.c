/* The cleanup queue in the time of a clock that stands still, and the reconciliation. */
#include "lease_fixture.h"

#include <pthread.h>
#include "base/fd.h"
#include "base/text.h"

SQL(CLEANUP_TEST_NEXT, "SELECT cleanup_next_at FROM places WHERE id = $1");
SQL(CLEANUP_TEST_ATTEMPTS, "SELECT cleanup_attempts FROM places WHERE id = $1");
SQL(CLEANUP_TEST_FORGET_LEASES, "DELETE FROM leases WHERE place_id = $1");
SQL(CLEANUP_TEST_FORGET_PLACE, "DELETE FROM places WHERE id = $1");

static int64_t next_in(struct yard *y, const struct lease *lease)
{
	return records_number(y->r, &CLEANUP_TEST_NEXT, B_TEXT(lease->place_id)) -
	       clock_now(y->r->clock);
}

static int64_t attempts(struct yard *y, const struct lease *lease)
{
	return records_number(y->r, &CLEANUP_TEST_ATTEMPTS, B_TEXT(lease->place_id));
}

static void attempts_come_at_growing_intervals_up_to_a_cap(void **state)
{
	static const int64_t pauses[] = { 1000,  2000,   4000,   8000,   16000, 32000,
					  64000, 128000, 256000, 300000, 300000 };
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", "{'provider':'fake','faults':{'release':{'fail':11}}}", 0, &env);
	yard_acquire_from(y, &env, &lease);
	yard_release(y, &lease);
	for (size_t i = 0; i < ARRAY_SIZE(pauses); i++) {
		assert_int_equal(next_in(y, &lease), pauses[i]);
		assert_int_equal(attempts(y, &lease), i + 1);
		yard_reload(y, &lease);
		assert_int_equal(lease.status, LEASE_PENDING_CLEANUP);
		/* From the fifth attempt on it is called failed; it is never given up. */
		assert_string_equal(lease.cleanup_status, i + 1 < 5 ? "pending" : "failed");
		yard_pass(y, pauses[i] - 1);
		assert_int_equal(attempts(y, &lease), i + 1);
		assert_int_equal(yard_audit_count(y, "place"), 1);
		yard_pass(y, 1);
	}
	yard_reload(y, &lease);
	assert_int_equal(lease.status, LEASE_RELEASED);
	assert_string_equal(lease.cleanup_status, "success");
	assert_place(y, lease.place_id, "gone");
	assert_int_equal(yard_inventory(y), 0);
	assert_clean(y);
}

static void a_cleanup_that_is_not_recorded_is_done_again(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	yard_acquire_from(y, &env, &lease);
	fault_arm("driver.release.before@1:error");
	yard_release(y, &lease);
	/* Done at the provider, but not in the books. */
	fault_arm("db.lease.cleaned.before@1:error");
	yard_pass(y, 1000);
	assert_place(y, lease.place_id, "cleanup");
	yard_sweep(y);
	assert_status(y, lease.id, "released");
	assert_clean(y);
}

static void a_provider_that_hangs_does_not_hold_up_the_queue(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease first = { 0 }, second = { 0 };

	yard_sandbox(y, "box",
		     "{'provider':'fake','faults':{'release':{'hang':3,'deadlineMs':200}}}", 0,
		     &env);
	yard_acquire_from(y, &env, &first);
	yard_acquire_from(y, &env, &second);
	yard_release(y, &first);
	yard_release(y, &second);
	yard_pass(y, 1000);
	/* Asked once more, not twice. */
	assert_int_equal(attempts(y, &first) + attempts(y, &second), 3);
	yard_pass(y, 2000);
	yard_pass(y, 2000);
	assert_status(y, first.id, "released");
	assert_status(y, second.id, "released");
	assert_clean(y);
}

static void a_burst_is_cleaned_up_in_one_pass(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	struct lease_request request;

	yard_sandbox(y, "box", FAKE, 0, &env);
	request = yard_request(y, &env);
	request.ttl_ms = 1000;
	for (int i = 0; i < 50; i++) {
		_cleanup_lease_ struct lease lease = { 0 };

		yard_acquire(y, &request, &lease);
	}
	assert_int_equal(yard_inventory(y), 50);
	yard_pass(y, 1000);
	assert_int_equal(yard_inventory(y), 0);
	assert_clean(y);
}

static void a_place_in_cleanup_is_not_given_to_anybody(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 }, next = { 0 };
	struct lease_request request;

	yard_sandbox(y, "pool",
		     "{'provider':'fake','reuseLease':true,'faults':{'release':{'fail':1}}}", 0,
		     &env);
	yard_acquire_from(y, &env, &lease);
	yard_release(y, &lease);
	request = yard_request(y, &env);
	assert_refused(y->r, ERR_PLACE_BUSY,
		       lease_acquire(y->leases, &request, &next, NULL, y->err));
	assert_non_null(strstr(y->err->message, "cleaned up"));
	yard_pass(y, 1000);
	assert_place(y, lease.place_id, "free");
	yard_acquire_from(y, &env, &next);
	assert_int_equal(next.generation, 2);
}

static void an_object_that_nothing_explains_is_shown_and_destroyed(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	yard_acquire_from(y, &env, &lease);
	/* As if the database had been restored from before it. */
	records_exec(y->r, &CLEANUP_TEST_FORGET_LEASES, B_TEXT(lease.place_id));
	records_exec(y->r, &CLEANUP_TEST_FORGET_PLACE, B_TEXT(lease.place_id));
	assert_int_equal(yard_audit_count(y, "provider_object"), 1);
	yard_sweep(y);
	assert_int_equal(yard_inventory(y), 1);
	/* Seen a second time it is certain. */
	yard_pass(y, 30000);
	assert_int_equal(yard_audit_count(y, "provider_object"), 0);
	assert_int_equal(yard_audit_count(y, "place"), 1);
	yard_pass(y, 1000);
	assert_int_equal(yard_inventory(y), 0);
	assert_clean(y);
}

static void a_start_needs_no_second_look_at_what_nothing_explains(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	yard_acquire_from(y, &env, &lease);
	records_exec(y->r, &CLEANUP_TEST_FORGET_LEASES, B_TEXT(lease.place_id));
	records_exec(y->r, &CLEANUP_TEST_FORGET_PLACE, B_TEXT(lease.place_id));
	yard_restart(y);
	yard_sweep(y);
	assert_int_equal(yard_inventory(y), 0);
	assert_clean(y);
}

static void a_place_that_vanished_is_lost_and_so_is_its_lease(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lost = { 0 }, kept = { 0 }, next = { 0 };

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &lost);
	yard_acquire_from(y, &y->local, &kept);

	_cleanup_place_ struct place place = { 0 };

	assert_done(y->r, lease_get(y->leases, lost.id, &lost, &place, y->err));
	assert_done(y->r, maker_destroy(&y->makers, &place, y->err));
	yard_pass(y, 30000);
	yard_reload(y, &lost);
	assert_int_equal(lost.status, LEASE_FAILED);
	assert_string_equal(lost.failure_reason, "place_lost");
	assert_int_equal(lost.released_at, RECORDS_START_MS + 30000);
	assert_place(y, lost.place_id, "gone");
	assert_refused(y->r, ERR_LEASE_ENDED, yard_exec(y, &lost, "true", y->err));
	assert_status(y, kept.id, "active");
	assert_int_equal(yard_activity_count(y, "environment.lease_released"), 1);
	yard_acquire_from(y, &env, &next);
	assert_int_equal(next.generation, 2);
	assert_clean(y);
}

static void a_free_place_that_vanished_is_gone(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &lease);
	yard_release(y, &lease);
	assert_done(y->r, lease_get(y->leases, lease.id, &lease, &place, y->err));
	assert_done(y->r, maker_destroy(&y->makers, &place, y->err));
	yard_pass(y, 30000);
	assert_place(y, lease.place_id, "gone");
	assert_status(y, lease.id, "released");
}

static void an_inventory_that_fails_condemns_nobody(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	yard_acquire_from(y, &env, &lease);
	fault_arm("driver.inventory.before:error");
	yard_pass(y, 30000);
	yard_pass(y, 30000);
	/* Of the fake one and of the native one. */
	assert_int_equal(yard_audit_count(y, "provider_object"), 2);
	fault_disarm();
	assert_status(y, lease.id, "active");
	assert_int_equal(yard_inventory(y), 1);
	assert_clean(y);
}

struct busy_yard {
	struct yard *y;
	const struct environment *env;
};

static void work(int number, void *arg)
{
	struct busy_yard *b = arg;
	struct yard *y = b->y;

	for (int i = 0; i < 15; i++) {
		_cleanup_lease_ struct lease lease = { 0 };
		_cleanup_error_ struct error err = { 0 };
		struct lease_request request = yard_request(y, b->env);
		struct lease_release release = { .generation = GENERATION_UNCHECKED,
						 .status = LEASE_RELEASED,
						 .actor = &SOMEBODY };

		if (number == 0) {
			/* One thread does nothing but look for what nothing explains. */
			clock_fake_advance(&y->r->fake, 30000);
			if (leases_sweep(y->leases, &err) < 0)
				abort();
			continue;
		}
		request.ttl_ms = 31000000;
		if (lease_acquire(y->leases, &request, &lease, NULL, &err) < 0 ||
		    lease_use(y->leases, lease.id, lease.generation, NULL, NULL, &err) < 0 ||
		    lease_release(y->leases, lease.id, &release, &lease, &err) < 0 ||
		    lease.status != LEASE_RELEASED) {
			fprintf(stderr, "%s (%s)\n", err.message, lease_status_name(lease.status));
			abort();
		}
	}
}

static void sweeping_does_not_disturb_those_at_work(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	struct busy_yard b = { y, &env };

	yard_sandbox(y, "box", FAKE, 0, &env);
	in_parallel(5, work, &b);
	assert_int_equal(yard_inventory(y), 0);
	assert_clean(y);
}

static void the_sweep_thread_does_it_all_by_itself(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_request request = yard_request(y, &y->local);
	int64_t end = clock_mono(&y->system) + 20000;

	request.ttl_ms = 1000;
	yard_acquire(y, &request, &lease);
	clock_fake_advance(&y->r->fake, 1000);
	assert_done(y->r, leases_start(y->leases, y->err));
	do
		yard_reload(y, &lease);
	while (lease.status != LEASE_EXPIRED && clock_mono(&y->system) < end);
	assert_int_equal(lease.status, LEASE_EXPIRED);
	leases_stop(y->leases);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		YARD_BOTH(attempts_come_at_growing_intervals_up_to_a_cap),
		YARD(a_cleanup_that_is_not_recorded_is_done_again),
		YARD(a_provider_that_hangs_does_not_hold_up_the_queue),
		YARD_BOTH(a_burst_is_cleaned_up_in_one_pass),
		YARD(a_place_in_cleanup_is_not_given_to_anybody),
		YARD_BOTH(an_object_that_nothing_explains_is_shown_and_destroyed),
		YARD(a_start_needs_no_second_look_at_what_nothing_explains),
		YARD_BOTH(a_place_that_vanished_is_lost_and_so_is_its_lease),
		YARD(a_free_place_that_vanished_is_gone),
		YARD(an_inventory_that_fails_condemns_nobody),
		YARD_BOTH(sweeping_does_not_disturb_those_at_work),
		YARD(the_sweep_thread_does_it_all_by_itself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

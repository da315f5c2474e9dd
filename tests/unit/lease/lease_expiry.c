/* What ends by itself, and what does not. */
#include "lease_fixture.h"

#include <pthread.h>
#include <signal.h>
#include "base/text.h"
#include "lease/lease_internal.h"

#define RUN_A "11111111-1111-4111-8111-111111111111"
#define RUN_B "22222222-2222-4222-8222-222222222222"

SQL(EXPIRY_ARCHIVE, "UPDATE environments SET status = 'archived' WHERE id = $1");

static void I16_a_lease_ends_when_its_time_is_up(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_request request;

	yard_sandbox(y, "box", FAKE, 0, &env);
	request = yard_request(y, &env);
	request.ttl_ms = 10000;
	yard_acquire(y, &request, &lease);
	yard_pass(y, 9999);
	assert_status(y, lease.id, "active");
	yard_pass(y, 1);
	yard_reload(y, &lease);
	assert_int_equal(lease.status, LEASE_EXPIRED);
	assert_int_equal(lease.released_at, RECORDS_START_MS + 10000);
	assert_null(lease.failure_reason);
	assert_int_equal(yard_inventory(y), 0);
	assert_int_equal(yard_activity_count(y, "environment.lease_released"), 1);
	assert_clean(y);
}

static void an_expired_lease_is_not_brought_back(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease lease = { 0 }, seen = { 0 };
	struct lease_request request = yard_request(y, &y->local);

	request.ttl_ms = 10000;
	yard_acquire(y, &request, &lease);
	/* No sweep has come by yet, and still it is over. */
	clock_fake_advance(&y->r->fake, 10000);
	assert_refused(y->r, ERR_LEASE_ENDED,
		       lease_renew(y->leases, lease.id, lease.generation, 60000, &seen, y->err));
	assert_refused(y->r, ERR_LEASE_ENDED,
		       lease_use(y->leases, lease.id, lease.generation, &seen, NULL, y->err));
	assert_done(y->r, yard_end(y, lease.id, lease.generation, LEASE_RELEASED, &seen));
}

static void a_renewed_lease_goes_on(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_request request = yard_request(y, &y->local);

	request.ttl_ms = 10000;
	yard_acquire(y, &request, &lease);
	clock_fake_advance(&y->r->fake, 9999);
	assert_done(y->r,
		    lease_renew(y->leases, lease.id, lease.generation, 10000, &lease, y->err));
	assert_int_equal(lease.expires_at, RECORDS_START_MS + 19999);
	yard_pass(y, 9999);
	assert_status(y, lease.id, "active");
	yard_pass(y, 1);
	assert_status(y, lease.id, "expired");
}

static bool was_late(const struct lease *lease, int64_t now)
{
	return lease->expires_at <= now;
}

/* The sweep has found it late, and only then is it renewed. */
static void a_renewal_just_before_the_end_wins(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_request request = yard_request(y, &y->local);

	request.ttl_ms = 10000;
	yard_acquire(y, &request, &lease);
	for (int i = 0; i < 2; i++) {
		_cleanup_ending_ struct ending end = { .leases = y->leases,
						       .lease_id = lease.id,
						       .status = LEASE_EXPIRED,
						       .actor = &ACTOR_SYSTEM,
						       .action = ACTION_RELEASE,
						       .still = was_late };

		assert_done(y->r, ending_queue(&end, y->err));
		assert_int_equal(end.ended, i);
		assert_status(y, lease.id, i ? "pending_cleanup" : "active");
		clock_fake_advance(&y->r->fake, 10000);
	}
}

static const struct maker *fake;

static int answer_with_an_end(const struct maker *self, const struct place_view *wanted,
			      int64_t deadline_ms, struct made_place *out, struct error *err)
{
	(void)self;
	if (fake->acquire(fake, wanted, deadline_ms, out, err) < 0)
		return -1;
	out->expires_at = RECORDS_START_MS + 30000;
	return 0;
}

static void a_provider_that_sets_an_end_is_believed(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	struct maker *odd = maker_to_change(&y->makers, DRIVER_SANDBOX, "fake");
	struct maker before = *odd;
	struct lease_request request;

	fake = &before;
	odd->acquire = answer_with_an_end;
	yard_sandbox(y, "box", FAKE, 0, &env);
	request = yard_request(y, &env);
	request.ttl_ms = 60000;
	yard_acquire(y, &request, &lease);
	assert_int_equal(lease.expires_at, RECORDS_START_MS + 30000);
	assert_done(y->r,
		    lease_renew(y->leases, lease.id, lease.generation, 60000, &lease, y->err));
	assert_int_equal(lease.expires_at, RECORDS_START_MS + 30000);
	*odd = before;
}

static void an_idle_lease_ends_and_a_used_one_does_not(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease idle = { 0 }, used = { 0 }, seen = { 0 };
	struct lease_request request = yard_request(y, &y->local);

	request.idle_ms = 60000;
	yard_acquire(y, &request, &idle);
	yard_acquire(y, &request, &used);
	assert_int_equal(idle.expires_at, 0);
	yard_pass(y, 40000);
	assert_done(y->r, lease_use(y->leases, used.id, used.generation, &seen, NULL, y->err));
	yard_pass(y, 20000);
	yard_reload(y, &idle);
	assert_int_equal(idle.status, LEASE_EXPIRED);
	assert_string_equal(idle.failure_reason, "idle");
	assert_status(y, used.id, "active");
	yard_pass(y, 40000);
	assert_status(y, used.id, "expired");
}

struct pumped {
	struct runlog *log;
	struct exec *exec;
	struct exec_result result;
};

static void *pump(void *arg)
{
	struct pumped *p = arg;

	yard_exec_end(p->log, p->exec, &p->result, NULL);
	return NULL;
}

static void a_lease_is_not_idle_while_a_command_runs(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_request request = yard_request(y, &y->local);
	struct pumped p = { 0 };
	pthread_t thread;
	pid_t pid;

	request.idle_ms = 60000;
	yard_acquire(y, &request, &lease);
	assert_done(y->r, yard_exec_begin(y, &lease, "exec sleep 600", &p.log, &p.exec, y->err));
	pid = exec_pid(p.exec);
	assert_int_equal(pthread_create(&thread, NULL, pump, &p), 0);
	for (int i = 0; i < 10; i++)
		yard_pass(y, 30000);
	assert_status(y, lease.id, "active");
	kill(pid, SIGKILL);
	assert_int_equal(pthread_join(thread, NULL), 0);
	yard_pass(y, 30000);
	assert_status(y, lease.id, "active");
	yard_pass(y, 30000);
	assert_status(y, lease.id, "expired");
}

static void acquire_for(struct yard *y, const char *run, struct lease *lease)
{
	struct lease_request request = yard_request(y, &y->local);

	request.run_id = run;
	yard_acquire(y, &request, lease);
}

static void I14_leases_of_an_ended_run_are_released(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease cancelled = { 0 }, failed = { 0 };

	yard_run(y, RUN_A, "running", 0);
	yard_run(y, RUN_B, "running", 0);
	acquire_for(y, RUN_A, &cancelled);
	acquire_for(y, RUN_B, &failed);
	yard_pass(y, 3600000);
	assert_status(y, cancelled.id, "active");
	yard_set_run_status(y, RUN_A, "cancelled");
	yard_set_run_status(y, RUN_B, "failed");
	/* The run itself is given a moment to do it. */
	yard_pass(y, 29999);
	assert_status(y, cancelled.id, "active");
	assert_clean(y);
	yard_pass(y, 1);
	yard_reload(y, &cancelled);
	yard_reload(y, &failed);
	assert_int_equal(cancelled.status, LEASE_RELEASED);
	assert_string_equal(cancelled.failure_reason, "run_ended");
	assert_int_equal(failed.status, LEASE_FAILED);
}

static void leases_of_a_run_that_is_not_there_are_released(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease lease = { 0 };

	acquire_for(y, RUN_A, &lease);
	yard_pass(y, 29999);
	assert_status(y, lease.id, "active");
	yard_pass(y, 1);
	assert_status(y, lease.id, "failed");
}

static void a_free_place_that_nobody_wants_is_destroyed_in_the_end(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &lease);
	yard_release(y, &lease);
	yard_pass(y, 86400000 - 1);
	assert_place(y, lease.place_id, "free");
	yard_pass(y, 1);
	assert_place(y, lease.place_id, "gone");
	assert_int_equal(yard_inventory(y), 0);
}

static void archiving_an_environment_ends_its_free_places(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &lease);
	yard_release(y, &lease);
	yard_sweep(y);
	assert_place(y, lease.place_id, "free");
	records_exec(y->r, &EXPIRY_ARCHIVE, B_TEXT(env.id));
	yard_sweep(y);
	assert_place(y, lease.place_id, "gone");
	assert_int_equal(yard_inventory(y), 0);
}

static void history_is_pruned_and_what_matters_is_kept(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment once = { 0 }, pool = { 0 };
	_cleanup_lease_ struct lease old = { 0 }, reused = { 0 }, active = { 0 }, late = { 0 };

	yard_sandbox(y, "once", FAKE, 0, &once);
	yard_sandbox(y, "pool", FAKE_REUSED, 0, &pool);
	yard_acquire_from(y, &once, &old);
	yard_release(y, &old);
	yard_acquire_from(y, &pool, &reused);
	assert_done(y->r, lease_destroy(y->leases, reused.id, GENERATION_UNCHECKED, &SOMEBODY, NULL,
					NULL, y->err));
	yard_acquire_from(y, &once, &active);
	clock_fake_advance(&y->r->fake, 1000);
	yard_acquire_from(y, &once, &late);
	yard_release(y, &late);
	const struct leases_prune before = { .before_ms = RECORDS_START_MS + 500 };

	assert_int_equal(leases_prune(y->leases, &before, y->err), 3);
	assert_null(yard_place_state(y, old.place_id));
	assert_status(y, active.id, "active");
	assert_status(y, late.id, "released");
	/* The name may be given again: its generation is not forgotten. */
	assert_place(y, reused.place_id, "gone");
	yard_acquire_from(y, &pool, &reused);
	assert_int_equal(reused.generation, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		YARD_BOTH(I16_a_lease_ends_when_its_time_is_up),
		YARD(an_expired_lease_is_not_brought_back),
		YARD_BOTH(a_renewed_lease_goes_on),
		YARD(a_renewal_just_before_the_end_wins),
		YARD(a_provider_that_sets_an_end_is_believed),
		YARD_BOTH(an_idle_lease_ends_and_a_used_one_does_not),
		YARD(a_lease_is_not_idle_while_a_command_runs),
		YARD_BOTH(I14_leases_of_an_ended_run_are_released),
		YARD(leases_of_a_run_that_is_not_there_are_released),
		YARD_BOTH(a_free_place_that_nobody_wants_is_destroyed_in_the_end),
		YARD(archiving_an_environment_ends_its_free_places),
		YARD_BOTH(history_is_pruned_and_what_matters_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

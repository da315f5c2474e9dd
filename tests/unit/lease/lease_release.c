/* Ending a holding: who may, what happens to the place, and what a failing provider changes. */
#include "lease_fixture.h"

#include <pthread.h>
#include "base/text.h"

#define RUN_A "11111111-1111-4111-8111-111111111111"

SQL(RELEASE_ATTEMPTS, "SELECT cleanup_attempts FROM places WHERE id = $1");
SQL(RELEASE_NEXT_AT, "SELECT cleanup_next_at FROM places WHERE id = $1");

static void a_released_place_of_ones_own_is_gone(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	yard_acquire_from(y, &env, &lease);
	assert_int_equal(yard_inventory(y), 1);
	yard_release(y, &lease);
	assert_int_equal(lease.status, LEASE_RELEASED);
	assert_string_equal(lease.cleanup_status, "success");
	assert_place(y, lease.place_id, "gone");
	assert_int_equal(yard_inventory(y), 0);
}

static void I1_one_failing_lease_does_not_keep_the_others(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment bad = { 0 }, good = { 0 };
	_cleanup_lease_ struct lease first = { 0 }, second = { 0 }, third = { 0 };
	_cleanup_json_ json_t *report = NULL;
	struct lease_request request;

	yard_sandbox(y, "bad", "{'provider':'fake','faults':{'release':{'fail':true}}}", 0, &bad);
	yard_sandbox(y, "good", FAKE, 0, &good);
	request = yard_request(y, &bad);
	request.run_id = RUN_A;
	yard_acquire(y, &request, &first);
	clock_fake_advance(&y->r->fake, 1);
	request.environment = &good;
	yard_acquire(y, &request, &second);
	request.environment = &y->local;
	yard_acquire(y, &request, &third);

	report = lease_release_run(y->leases, RUN_A, LEASE_RELEASED, NULL, NULL, &SOMEBODY, y->err);
	assert_int_equal(json_array_size(report), 3);
	assert_string_equal(json_str(json_array_get(report, 0), "leaseId"), first.id);
	assert_string_equal(json_str(json_array_get(report, 0), "status"), "pending_cleanup");
	assert_status(y, first.id, "pending_cleanup");
	assert_status(y, second.id, "released");
	assert_status(y, third.id, "released");
}

static void I1_a_lease_whose_end_cannot_be_written_does_not_keep_the_others(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease first = { 0 }, second = { 0 };
	_cleanup_json_ json_t *report = NULL;
	struct lease_request request = yard_request(y, &y->local);

	request.run_id = RUN_A;
	yard_acquire(y, &request, &first);
	clock_fake_advance(&y->r->fake, 1);
	yard_acquire(y, &request, &second);
	fault_arm("db.lease.releasing.before@1:error");
	report = lease_release_run(y->leases, RUN_A, LEASE_RELEASED, NULL, NULL, &SOMEBODY, y->err);
	fault_disarm();
	assert_string_equal(json_str(json_array_get(report, 0), "status"), "active");
	assert_non_null(json_str(json_array_get(report, 0), "error"));
	assert_string_equal(json_str(json_array_get(report, 1), "status"), "released");
}

static void I2_a_provider_that_is_down_does_not_keep_the_lease_active(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", "{'provider':'fake','faults':{'release':{'fail':1}}}", 0, &env);
	yard_acquire_from(y, &env, &lease);
	yard_release(y, &lease);
	assert_int_equal(lease.status, LEASE_PENDING_CLEANUP);
	assert_string_equal(lease.cleanup_status, "pending");
	assert_int_equal(lease.released_at, RECORDS_START_MS);
	assert_place(y, lease.place_id, "cleanup");
	assert_int_equal(yard_audit_count(y, "place"), 1);
	assert_int_equal(records_number(y->r, &RELEASE_ATTEMPTS, B_TEXT(lease.place_id)), 1);
	assert_int_equal(records_number(y->r, &RELEASE_NEXT_AT, B_TEXT(lease.place_id)),
			 RECORDS_START_MS + 1000);

	yard_pass(y, 1000);
	yard_reload(y, &lease);
	assert_int_equal(lease.status, LEASE_RELEASED);
	assert_string_equal(lease.cleanup_status, "success");
	assert_int_equal(lease.released_at, RECORDS_START_MS);
	assert_int_equal(yard_inventory(y), 0);
	assert_int_equal(yard_activity_count(y, "environment.lease_released"), 1);
	assert_clean(y);
}

static void releasing_twice_is_success_for_the_holder(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &lease);
	yard_release(y, &lease);
	yard_release(y, &lease);
	assert_int_equal(lease.status, LEASE_RELEASED);
	assert_int_equal(yard_activity_count(y, "environment.lease_released"), 1);
	assert_refused(y->r, ERR_NOT_FOUND,
		       yard_end(y, RUN_A, GENERATION_UNCHECKED, LEASE_RELEASED, NULL));
}

/* `fault` NULL: nothing fails. */
static void assert_answer_is_what_is_recorded(struct yard *y, const struct environment *environment,
					      const char *fault)
{
	_cleanup_lease_ struct lease lease = { 0 }, recorded = { 0 };
	_cleanup_place_ struct place place = { 0 }, recorded_place = { 0 };
	_cleanup_json_ json_t *answer = NULL, *row = NULL;
	struct lease_release release = { .generation = GENERATION_UNCHECKED,
					 .status = LEASE_RELEASED,
					 .actor = &SOMEBODY,
					 .place = &place };

	yard_acquire_from(y, environment, &lease);
	clock_fake_advance(&y->r->fake, 10);
	if (fault)
		fault_arm(fault);
	assert_done(y->r, lease_release(y->leases, lease.id, &release, &lease, y->err));
	if (fault)
		fault_disarm();
	assert_done(y->r, lease_get(y->leases, lease.id, &recorded, &recorded_place, y->err));
	answer = lease_json(&lease, &place);
	row = lease_json(&recorded, &recorded_place);
	assert_true(json_equal(answer, row));
	assert_int_equal(place.generation, recorded_place.generation);
	assert_string_equal(place.holder_lease, recorded_place.holder_lease);
	yard_pass(y, 2000);
	assert_status(y, lease.id, "released");
}

static void release_answers_with_what_is_recorded(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment box = { 0 }, pool = { 0 }, bad = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &box);
	yard_sandbox(y, "pool", FAKE_REUSED, 0, &pool);
	yard_sandbox(y, "bad", "{'provider':'fake','faults':{'release':{'fail':1}}}", 0, &bad);
	assert_answer_is_what_is_recorded(y, &y->local, NULL);
	assert_answer_is_what_is_recorded(y, &box, NULL);
	assert_answer_is_what_is_recorded(y, &pool, NULL);
	assert_answer_is_what_is_recorded(y, &bad, NULL);
	assert_answer_is_what_is_recorded(y, &box, "db.lease.released.before@1:error");
	assert_answer_is_what_is_recorded(y, &box, "db.lease.released.after@1:error");
	assert_answer_is_what_is_recorded(y, &bad, "db.lease.cleanup_queued.before@1:error");
}

/* The row says `releasing` then, but a power loss may take it back. */
static void a_release_is_answered_only_when_it_is_on_the_disk(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment box = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_release release = { .generation = GENERATION_UNCHECKED,
					 .status = LEASE_RELEASED,
					 .actor = &SOMEBODY };

	yard_sandbox(y, "box", FAKE, 0, &box);
	yard_acquire_from(y, &box, &lease);
	fault_arm("db.lease.released.before@1:error,db.lease.settled.before@1:error");
	assert_int_equal(lease_release(y->leases, lease.id, &release, &lease, y->err), -1);
	assert_non_null(strstr(y->err->message, "not on the disk yet"));
	/* Asked again it does not take the row's word for it. */
	fault_arm("db.lease.settled.before@1:error");
	assert_int_equal(lease_release(y->leases, lease.id, &release, &lease, y->err), -1);
	fault_disarm();
	error_clear(y->err);
	assert_done(y->r, lease_release(y->leases, lease.id, &release, &lease, y->err));
	yard_pass(y, 2000);
	assert_status(y, lease.id, "released");
}

static void a_holder_of_an_older_generation_is_refused_everything(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease old = { 0 }, now = { 0 }, seen = { 0 };
	_cleanup_json_ json_t *details = NULL;

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &old);
	yard_release(y, &old);
	yard_acquire_from(y, &env, &now);
	assert_refused(y->r, ERR_STALE_GENERATION,
		       yard_end(y, old.id, old.generation, LEASE_RELEASED, &seen));
	details = json_parse(y->err->details, strlen(y->err->details), NULL);
	assert_int_equal(json_int(details, "presentGeneration", 0), 2);
	assert_refused(y->r, ERR_STALE_GENERATION,
		       lease_renew(y->leases, old.id, old.generation, 1000, &seen, y->err));
	assert_refused(y->r, ERR_STALE_GENERATION,
		       lease_use(y->leases, old.id, old.generation, &seen, NULL, y->err));
	assert_refused(y->r, ERR_STALE_GENERATION, yard_exec(y, &old, "true", y->err));
	/* Also somebody who guesses. */
	assert_refused(y->r, ERR_STALE_GENERATION,
		       lease_use(y->leases, now.id, 7, &seen, NULL, y->err));
	assert_status(y, now.id, "active");
	assert_done(y->r, yard_exec(y, &now, "true", y->err));
	/* Without a generation an ended lease is still not a right to act. */
	assert_refused(y->r, ERR_LEASE_ENDED,
		       lease_use(y->leases, old.id, GENERATION_UNCHECKED, &seen, NULL, y->err));
	assert_done(y->r, yard_end(y, old.id, GENERATION_UNCHECKED, LEASE_RELEASED, &seen));
	assert_status(y, now.id, "active");
	assert_place(y, now.place_id, "held");
}

struct pumped {
	struct runlog *log;
	struct exec *exec;
	struct exec_result result;
};

/* Somebody has to wait for a command, as the api does on a thread of its own. */
static void *pump(void *arg)
{
	struct pumped *p = arg;

	yard_exec_end(p->log, p->exec, &p->result, NULL);
	return NULL;
}

static void commands_end_with_the_holding(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	struct pumped p = { 0 };
	pthread_t thread;

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &lease);
	assert_done(y->r, yard_exec_begin(y, &lease, "exec sleep 600", &p.log, &p.exec, y->err));
	assert_int_equal(pthread_create(&thread, NULL, pump, &p), 0);
	yard_release(y, &lease);
	assert_false(places_is_busy(y->places, lease.place_id));
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(p.result.reason, EXEC_LEASE_LOST);
	assert_place(y, lease.place_id, "free");
	assert_refused(y->r, ERR_LEASE_ENDED, yard_exec(y, &lease, "true", y->err));
}

static void a_failed_lease_is_retained_for_a_while(void **state)
{
	static const enum lease_policy retain = POLICY_RETAIN_ON_FAILURE;
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_request request;

	yard_sandbox(y, "box", FAKE, 0, &env);
	request = yard_request(y, &env);
	request.policy = &retain;
	request.retain_ms = 60000;
	yard_acquire(y, &request, &lease);
	assert_done(y->r, yard_end(y, lease.id, lease.generation, LEASE_FAILED, &lease));
	assert_int_equal(lease.status, LEASE_RETAINED);
	assert_int_equal(lease.released_at, RECORDS_START_MS);
	assert_string_equal(lease.failure_reason, "adapter_or_run_failure");
	assert_place(y, lease.place_id, "retained");
	assert_int_equal(yard_inventory(y), 1);
	/* It can be looked into, and not be had for longer. */
	assert_done(y->r, yard_exec(y, &lease, "true", y->err));
	assert_refused(y->r, ERR_LEASE_ENDED,
		       lease_renew(y->leases, lease.id, lease.generation, 1000, NULL, y->err));
	assert_clean(y);

	yard_pass(y, 59999);
	assert_status(y, lease.id, "retained");
	yard_pass(y, 1);
	assert_status(y, lease.id, "failed");
	assert_place(y, lease.place_id, "gone");
	assert_refused(y->r, ERR_LEASE_ENDED, yard_exec(y, &lease, "true", y->err));
	assert_int_equal(yard_inventory(y), 0);
	assert_clean(y);
}

static void retaining_is_for_failures_only(void **state)
{
	static const enum lease_policy retain = POLICY_RETAIN_ON_FAILURE;
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_request request;

	yard_sandbox(y, "box", FAKE, 0, &env);
	request = yard_request(y, &env);
	request.policy = &retain;
	yard_acquire(y, &request, &lease);
	yard_release(y, &lease);
	assert_int_equal(lease.status, LEASE_RELEASED);
	assert_int_equal(yard_inventory(y), 0);
}

static void destroying_ends_the_holding_and_the_place(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &lease);
	assert_done(y->r, lease_destroy(y->leases, lease.id, GENERATION_UNCHECKED, &SOMEBODY,
					&lease, NULL, y->err));
	assert_int_equal(lease.status, LEASE_FAILED);
	assert_place(y, lease.place_id, "gone");
	assert_int_equal(yard_inventory(y), 0);
	/* Again: nothing to do. */
	assert_done(y->r, lease_destroy(y->leases, lease.id, GENERATION_UNCHECKED, &SOMEBODY,
					&lease, NULL, y->err));
	assert_clean(y);
}

static void destroying_a_free_place_by_its_last_lease(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 }, next = { 0 };

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &lease);
	yard_release(y, &lease);
	assert_done(y->r, lease_destroy(y->leases, lease.id, GENERATION_UNCHECKED, &SOMEBODY,
					&lease, NULL, y->err));
	assert_int_equal(lease.status, LEASE_RELEASED);
	assert_place(y, lease.place_id, "gone");
	assert_int_equal(yard_inventory(y), 0);
	/* But not the place of a later holder. */
	yard_acquire_from(y, &env, &next);
	assert_done(y->r, lease_destroy(y->leases, lease.id, GENERATION_UNCHECKED, &SOMEBODY, NULL,
					NULL, y->err));
	assert_status(y, next.id, "active");
	assert_int_equal(yard_inventory(y), 1);
}

static void destroying_a_retained_lease_ends_the_wait(void **state)
{
	static const enum lease_policy retain = POLICY_RETAIN_ON_FAILURE;
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_request request;

	yard_sandbox(y, "box", FAKE, 0, &env);
	request = yard_request(y, &env);
	request.policy = &retain;
	yard_acquire(y, &request, &lease);
	assert_done(y->r, yard_end(y, lease.id, lease.generation, LEASE_FAILED, &lease));
	assert_done(y->r, lease_destroy(y->leases, lease.id, GENERATION_UNCHECKED, &SOMEBODY,
					&lease, NULL, y->err));
	assert_int_equal(lease.status, LEASE_FAILED);
	assert_int_equal(yard_inventory(y), 0);
	assert_clean(y);
}

static void a_destroy_that_fails_is_tried_again_and_stays_a_destroy(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "pool",
		     "{'provider':'fake','reuseLease':true,'faults':{'destroy':{'fail':1}}}", 0,
		     &env);
	yard_acquire_from(y, &env, &lease);
	assert_done(y->r, lease_destroy(y->leases, lease.id, GENERATION_UNCHECKED, &SOMEBODY,
					&lease, NULL, y->err));
	assert_int_equal(lease.status, LEASE_PENDING_CLEANUP);
	assert_int_equal(yard_inventory(y), 1);
	yard_pass(y, 1000);
	assert_status(y, lease.id, "failed");
	assert_place(y, lease.place_id, "gone");
	assert_int_equal(yard_inventory(y), 0);
}

static void an_end_whose_record_is_refused_is_finished_by_the_sweep(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &lease);
	fault_arm("db.lease.released.before:error");
	yard_release(y, &lease);
	fault_disarm();
	assert_int_equal(lease.status, LEASE_PENDING_CLEANUP);
	assert_place(y, lease.place_id, "releasing");
	assert_int_equal(yard_audit_count(y, "place"), 1);
	yard_sweep(y);
	assert_status(y, lease.id, "released");
	assert_place(y, lease.place_id, "free");
	assert_int_equal(yard_activity_count(y, "environment.lease_released"), 1);
	assert_clean(y);
}

static void only_final_words_end_a_lease(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease lease = { 0 };

	yard_acquire_from(y, &y->local, &lease);
	assert_refused(y->r, ERR_VALIDATION,
		       yard_end(y, lease.id, lease.generation, LEASE_RETAINED, NULL));
	assert_refused(y->r, ERR_VALIDATION,
		       yard_end(y, lease.id, lease.generation, LEASE_ACTIVE, NULL));
	assert_status(y, lease.id, "active");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		YARD(a_released_place_of_ones_own_is_gone),
		YARD_BOTH(I1_one_failing_lease_does_not_keep_the_others),
		YARD(I1_a_lease_whose_end_cannot_be_written_does_not_keep_the_others),
		YARD_BOTH(I2_a_provider_that_is_down_does_not_keep_the_lease_active),
		YARD(releasing_twice_is_success_for_the_holder),
		YARD_BOTH(release_answers_with_what_is_recorded),
		YARD_BOTH(a_release_is_answered_only_when_it_is_on_the_disk),
		YARD_BOTH(a_holder_of_an_older_generation_is_refused_everything),
		YARD(commands_end_with_the_holding),
		YARD_BOTH(a_failed_lease_is_retained_for_a_while),
		YARD(retaining_is_for_failures_only),
		YARD(destroying_ends_the_holding_and_the_place),
		YARD(destroying_a_free_place_by_its_last_lease),
		YARD(destroying_a_retained_lease_ends_the_wait),
		YARD(a_destroy_that_fails_is_tried_again_and_stays_a_destroy),
		YARD(an_end_whose_record_is_refused_is_finished_by_the_sweep),
		YARD(only_final_words_end_a_lease),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

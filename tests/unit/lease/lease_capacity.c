/* Capacity: how many leases an environment gives, and in which order those who wait get them. */
#include "lease_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "base/fd.h"
#include "base/text.h"

#define WAITERS 6
#define PATIENCE_MS 20000

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}

static int64_t waiting_now(struct yard *y)
{
	_cleanup_json_ json_t *counts = leases_counts(y->leases, NULL);

	return json_int(counts, "waiting", -1);
}

/* Until so many wait; the test fails when they do not come. */
static void await_waiters(struct yard *y, int64_t count)
{
	int64_t end = clock_mono(&y->system) + PATIENCE_MS;

	while (waiting_now(y) != count) {
		if (clock_mono(&y->system) > end)
			fail_msg("%lld wait, not %lld", (long long)waiting_now(y),
				 (long long)count);
		nap();
	}
}

static void the_limit_counts_leases_and_says_why(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease first = { 0 }, second = { 0 }, third = { 0 };
	_cleanup_json_ json_t *details = NULL;
	struct lease_request request;

	yard_sandbox(y, "small", FAKE, 2, &env);
	yard_acquire_from(y, &env, &first);
	yard_acquire_from(y, &env, &second);
	request = yard_request(y, &env);
	assert_refused(y->r, ERR_PLACE_BUSY,
		       lease_acquire(y->leases, &request, &third, NULL, y->err));
	details = json_parse(y->err->details, strlen(y->err->details), NULL);
	assert_string_equal(json_str(details, "reason"), "capacity");
	assert_int_equal(json_state(details, "holderLeaseId"), JSON_IS_ABSENT);
	assert_non_null(strstr(y->err->message, "2 of 2"));
	yard_release(y, &first);
	yard_acquire_from(y, &env, &third);
}

static void a_lease_that_is_not_cleaned_up_still_counts(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease first = { 0 }, second = { 0 };
	struct lease_request request;

	yard_sandbox(y, "small", "{'provider':'fake','faults':{'release':{'fail':1}}}", 1, &env);
	yard_acquire_from(y, &env, &first);
	yard_release(y, &first);
	assert_int_equal(first.status, LEASE_PENDING_CLEANUP);
	request = yard_request(y, &env);
	assert_refused(y->r, ERR_PLACE_BUSY,
		       lease_acquire(y->leases, &request, &second, NULL, y->err));
	yard_pass(y, 1000);
	yard_acquire_from(y, &env, &second);
}

struct waiter_thread {
	struct yard *y;
	const struct environment *env;
	int number;
	int64_t wait_ms;
	int cancel_fd;
	atomic_int *arrivals; /* numbers the leases in the order they were got */
	int got;
	int result;
	char told[256];
	int told_times;
	struct lease lease;
	struct error err;
	pthread_t thread;
};

static void note_wait(void *arg, const char *reason)
{
	struct waiter_thread *w = arg;

	w->told_times++;
	snprintf(w->told, sizeof(w->told), "%s", reason);
}

static void *wait_for_lease(void *arg)
{
	struct waiter_thread *w = arg;
	struct lease_request request = yard_request(w->y, w->env);

	request.wait_ms = w->wait_ms;
	request.cancel_fd = w->cancel_fd;
	request.on_wait = note_wait;
	request.on_wait_arg = w;
	w->result = lease_acquire(w->y->leases, &request, &w->lease, NULL, &w->err);
	if (w->result == 0 && w->arrivals)
		w->got = atomic_fetch_add(w->arrivals, 1);
	return NULL;
}

static void begin_waiting(struct waiter_thread *w, struct yard *y, const struct environment *env)
{
	w->y = y;
	w->env = env;
	assert_int_equal(pthread_create(&w->thread, NULL, wait_for_lease, w), 0);
}

static void end_waiting(struct waiter_thread *w)
{
	assert_int_equal(pthread_join(w->thread, NULL), 0);
}

static void waiter_clear(struct waiter_thread *w)
{
	lease_clear(&w->lease);
	error_clear(&w->err);
}

SQL(CAPACITY_TEST_INTENTS, "SELECT COUNT(*) FROM intents");

static void a_lease_that_is_being_made_counts_already(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease second = { 0 };
	struct waiter_thread first = { .cancel_fd = -1 };
	struct lease_request request;

	yard_sandbox(y, "small", "{'provider':'fake','faults':{'acquire':{'delayMs':400}}}", 1,
		     &env);
	begin_waiting(&first, y, &env);
	while (records_number(y->r, &CAPACITY_TEST_INTENTS) == 0)
		nap();
	request = yard_request(y, &env);
	assert_refused(y->r, ERR_PLACE_BUSY,
		       lease_acquire(y->leases, &request, &second, NULL, y->err));
	end_waiting(&first);
	assert_int_equal(first.result, 0);
	waiter_clear(&first);
}

/* They line up one after the other; each release lets exactly the first of them in. */
static void first_come_first_served(struct yard *y, const struct environment *env)
{
	_cleanup_lease_ struct lease held = { 0 };
	struct waiter_thread w[WAITERS];
	atomic_int arrivals = 0;
	int64_t end;

	memset(w, 0, sizeof(w));
	yard_acquire_from(y, env, &held);
	for (int i = 0; i < WAITERS; i++) {
		w[i] = (struct waiter_thread){ .wait_ms = -1,
					       .cancel_fd = -1,
					       .arrivals = &arrivals };
		begin_waiting(&w[i], y, env);
		await_waiters(y, i + 1);
	}
	yard_release(y, &held);
	for (int i = 0; i < WAITERS; i++) {
		end_waiting(&w[i]);
		if (w[i].result < 0)
			fail_msg("%s", w[i].err.message);
		assert_int_equal(w[i].got, i);
		assert_int_equal(w[i].told_times, 1);
		assert_int_equal(atomic_load(&arrivals), i + 1);
		yard_release(y, &w[i].lease);
		waiter_clear(&w[i]);
	}
	end = waiting_now(y);
	assert_int_equal(end, 0);
}

static void those_who_wait_for_a_limit_are_served_in_order(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };

	yard_sandbox(y, "small", FAKE, 1, &env);
	first_come_first_served(y, &env);
	assert_int_equal(yard_inventory(y), 0);
	assert_clean(y);
}

static void those_who_wait_for_a_reused_place_are_served_in_order(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	first_come_first_served(y, &env);
	assert_clean(y);
}

static void a_newcomer_does_not_overtake_those_who_wait(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease held = { 0 }, barging = { 0 };
	_cleanup_json_ json_t *details = NULL;
	struct waiter_thread w = { .wait_ms = -1, .cancel_fd = -1 };
	struct lease_request request;

	yard_sandbox(y, "small", FAKE, 1, &env);
	yard_acquire_from(y, &env, &held);
	begin_waiting(&w, y, &env);
	await_waiters(y, 1);
	request = yard_request(y, &env);
	assert_refused(y->r, ERR_PLACE_BUSY,
		       lease_acquire(y->leases, &request, &barging, NULL, y->err));
	details = json_parse(y->err->details, strlen(y->err->details), NULL);
	assert_string_equal(json_str(details, "reason"), "queue");
	assert_int_equal(json_int(details, "waiting", -1), 1);
	yard_release(y, &held);
	end_waiting(&w);
	assert_int_equal(w.result, 0);
	assert_non_null(strstr(w.told, "1 of 1"));
	waiter_clear(&w);
}

static void others_of_the_environment_are_not_kept_waiting_for_a_place(void **state)
{
	static const enum lease_policy ephemeral = POLICY_EPHEMERAL;
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease held = { 0 }, own = { 0 };
	struct waiter_thread w = { .wait_ms = -1, .cancel_fd = -1 };
	struct lease_request request;

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &held);
	begin_waiting(&w, y, &env);
	await_waiters(y, 1);
	request = yard_request(y, &env);
	request.policy = &ephemeral;
	yard_acquire(y, &request, &own);
	yard_release(y, &held);
	end_waiting(&w);
	assert_int_equal(w.result, 0);
	waiter_clear(&w);
}

static void a_release_elsewhere_is_no_reason_to_try(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment small = { 0 }, other = { 0 };
	_cleanup_lease_ struct lease held = { 0 };
	struct waiter_thread w = { .wait_ms = -1, .cancel_fd = -1 };

	yard_sandbox(y, "small", FAKE, 1, &small);
	yard_sandbox(y, "other", FAKE, 0, &other);
	yard_acquire_from(y, &small, &held);
	begin_waiting(&w, y, &small);
	await_waiters(y, 1);
	for (int i = 0; i < 5; i++) {
		_cleanup_lease_ struct lease passing = { 0 };

		yard_acquire_from(y, &other, &passing);
		yard_release(y, &passing);
	}
	assert_int_equal(waiting_now(y), 1);
	yard_release(y, &held);
	end_waiting(&w);
	assert_int_equal(w.result, 0);
	waiter_clear(&w);
}

static void waiting_ends_with_the_time_given(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease held = { 0 };
	struct waiter_thread w = { .wait_ms = 5000, .cancel_fd = -1 };

	yard_sandbox(y, "small", FAKE, 1, &env);
	yard_acquire_from(y, &env, &held);
	begin_waiting(&w, y, &env);
	await_waiters(y, 1);
	clock_fake_advance(&y->r->fake, 5000);
	end_waiting(&w);
	assert_int_equal(w.result, -1);
	assert_int_equal(w.err.code, ERR_PLACE_BUSY);
	assert_int_equal(waiting_now(y), 0);
	waiter_clear(&w);
}

static void waiting_can_be_given_up(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease held = { 0 }, next = { 0 };
	_cleanup_close_ int latch = latch_new(y->err);
	struct waiter_thread w = { .wait_ms = -1, .cancel_fd = latch };

	yard_sandbox(y, "small", FAKE, 1, &env);
	yard_acquire_from(y, &env, &held);
	begin_waiting(&w, y, &env);
	await_waiters(y, 1);
	latch_set(latch);
	end_waiting(&w);
	assert_int_equal(w.result, -1);
	assert_int_equal(w.err.code, ERR_CANCELLED);
	waiter_clear(&w);
	/* And does not stand in the way of the next. */
	yard_release(y, &held);
	yard_acquire_from(y, &env, &next);
	assert_int_equal(yard_inventory(y), 1);
}

static void a_server_that_stops_lets_nobody_wait(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease held = { 0 };
	struct waiter_thread w = { .wait_ms = -1, .cancel_fd = -1 };

	yard_sandbox(y, "small", FAKE, 1, &env);
	yard_acquire_from(y, &env, &held);
	begin_waiting(&w, y, &env);
	await_waiters(y, 1);
	leases_stop(y->leases);
	end_waiting(&w);
	assert_int_equal(w.err.code, ERR_UNAVAILABLE);
	waiter_clear(&w);
}

/* Threads that all want one of two; never are there more. */
struct crowd {
	struct yard *y;
	const struct environment *env;
	atomic_int inside, most;
};

static void come_and_go(int number, void *arg)
{
	struct crowd *c = arg;

	(void)number;
	for (int i = 0; i < 10; i++) {
		_cleanup_lease_ struct lease lease = { 0 };
		_cleanup_error_ struct error err = { 0 };
		struct lease_request request = yard_request(c->y, c->env);
		struct lease_release release = { .generation = 1,
						 .status = LEASE_RELEASED,
						 .actor = &SOMEBODY };
		int inside, most;

		request.wait_ms = -1;
		if (lease_acquire(c->y->leases, &request, &lease, NULL, &err) < 0) {
			fprintf(stderr, "acquire: %s\n", err.message);
			abort();
		}
		inside = atomic_fetch_add(&c->inside, 1) + 1;
		most = atomic_load(&c->most);
		while (inside > most && !atomic_compare_exchange_weak(&c->most, &most, inside))
			;
		atomic_fetch_sub(&c->inside, 1);
		if (lease_release(c->y->leases, lease.id, &release, NULL, &err) < 0) {
			fprintf(stderr, "release: %s\n", err.message);
			abort();
		}
	}
}

static void a_crowd_never_gets_more_than_the_limit(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	struct crowd crowd = { .y = y, .env = &env };

	yard_sandbox(y, "small", FAKE, 2, &env);
	in_parallel(8, come_and_go, &crowd);
	assert_in_range(atomic_load(&crowd.most), 1, 2);
	assert_int_equal(yard_lease_rows(y), 80);
	assert_int_equal(yard_inventory(y), 0);
	assert_clean(y);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		YARD_BOTH(the_limit_counts_leases_and_says_why),
		YARD(a_lease_that_is_not_cleaned_up_still_counts),
		YARD(a_lease_that_is_being_made_counts_already),
		YARD_BOTH(those_who_wait_for_a_limit_are_served_in_order),
		YARD(those_who_wait_for_a_reused_place_are_served_in_order),
		YARD(a_newcomer_does_not_overtake_those_who_wait),
		YARD(others_of_the_environment_are_not_kept_waiting_for_a_place),
		YARD(a_release_elsewhere_is_no_reason_to_try),
		YARD(waiting_ends_with_the_time_given),
		YARD(waiting_can_be_given_up),
		YARD(a_server_that_stops_lets_nobody_wait),
		YARD_BOTH(a_crowd_never_gets_more_than_the_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

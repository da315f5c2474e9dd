/*
 * Never two holders. Threads acquire, use, renew and release one reusable place as fast as they
 * can, and also act on leases they have already given up. A checker outside of the lease room looks
 * at what they were told: holding intervals do not overlap, generations rise, and whoever acts on
 * an older lease is refused. The same checker must find fault as soon as the fence is switched off.
 */
#include "lease_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/text.h"

#define HOLDERS 10
#define ROUNDS 25
#define CONTESTS 20 /* at most, until the checker has found what it must find */
#define MAX_HOLDINGS (HOLDERS * ROUNDS)

/* One holding as its holder saw it; times are ticks of one counter. */
struct holding {
	long began, ended;
	int64_t generation;
};

struct contest {
	struct yard *y;
	const struct environment *env;
	atomic_long ticks;
	atomic_int holdings;
	struct holding log[MAX_HOLDINGS];
	atomic_llong present; /* generation of the youngest holder so far */
	atomic_int acted_stale, refused_present, failures;
	int rounds;
};

/* An act that succeeded for a generation which was already succeeded when it began is a breach. */
static void act(struct contest *c, const struct lease *lease, int64_t present_before,
		int (*what)(struct contest *, const struct lease *, struct error *), bool holds)
{
	_cleanup_error_ struct error err = { 0 };
	int r = what(c, lease, &err);

	if (r == 0 && lease->generation < present_before)
		atomic_fetch_add(&c->acted_stale, 1);
	if (r < 0 && holds)
		atomic_fetch_add(&c->refused_present, 1);
	if (r < 0 && !holds && err.code != ERR_STALE_GENERATION && err.code != ERR_LEASE_ENDED)
		atomic_fetch_add(&c->failures, 1);
}

static int use(struct contest *c, const struct lease *lease, struct error *err)
{
	return lease_use(c->y->leases, lease->id, lease->generation, NULL, NULL, err);
}

static int renew(struct contest *c, const struct lease *lease, struct error *err)
{
	return lease_renew(c->y->leases, lease->id, lease->generation, 600000, NULL, err);
}

static int release(struct contest *c, const struct lease *lease, struct error *err)
{
	struct lease_release how = { .generation = lease->generation,
				     .status = LEASE_RELEASED,
				     .actor = &SOMEBODY };

	return lease_release(c->y->leases, lease->id, &how, NULL, err);
}

static void hold_once(struct contest *c, struct lease *lease)
{
	_cleanup_error_ struct error err = { 0 };
	struct lease_request request = yard_request(c->y, c->env);
	struct holding *h;

	request.wait_ms = -1;
	if (lease_acquire(c->y->leases, &request, lease, NULL, &err) < 0) {
		atomic_fetch_add(&c->failures, 1);
		return;
	}
	h = &c->log[atomic_fetch_add(&c->holdings, 1)];
	h->began = atomic_fetch_add(&c->ticks, 1);
	h->generation = lease->generation;
	atomic_store(&c->present, lease->generation);
	for (int i = 0; i < 3; i++) {
		act(c, lease, 0, use, true);
		act(c, lease, 0, renew, true);
	}
	h->ended = atomic_fetch_add(&c->ticks, 1);
	act(c, lease, 0, release, true);
}

static void contend(int number, void *arg)
{
	struct contest *c = arg;
	_cleanup_lease_ struct lease mine = { 0 }, old = { 0 };

	(void)number;
	for (int i = 0; i < c->rounds; i++) {
		int64_t present;

		hold_once(c, &mine);
		/* What was given up two rounds ago has certainly been succeeded, by oneself. */
		present = atomic_load(&c->present);
		if (old.id[0]) {
			act(c, &old, present, use, false);
			act(c, &old, present, renew, false);
			act(c, &old, present, release, false);
		}
		lease_clear(&old);
		old = mine;
		mine = (struct lease){ 0 };
	}
}

static int by_beginning(const void *a, const void *b)
{
	long x = ((const struct holding *)a)->began, y = ((const struct holding *)b)->began;

	return (x > y) - (x < y);
}

/* How many breaches of "one holder at a time, generations rise". */
static int overlaps(struct contest *c)
{
	int breaches = 0, n = atomic_load(&c->holdings);

	qsort(c->log, (size_t)n, sizeof(c->log[0]), by_beginning);
	for (int i = 1; i < n; i++) {
		if (c->log[i].began < c->log[i - 1].ended ||
		    c->log[i].generation <= c->log[i - 1].generation)
			breaches++;
	}
	return breaches;
}

static void run_contest(struct yard *y, const struct environment *env, struct contest *c,
			int rounds)
{
	*c = (struct contest){ .y = y, .env = env, .rounds = rounds };
	in_parallel(HOLDERS, contend, c);
}

static void holdings_of_one_place_never_overlap(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_free_ struct contest *c = xcalloc(1, sizeof(*c));
	bool postgres = db_is_postgres(y->db);

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	run_contest(y, &env, c, postgres ? 8 : ROUNDS);
	assert_int_equal(atomic_load(&c->failures), 0);
	assert_int_equal(atomic_load(&c->holdings), HOLDERS * c->rounds);
	assert_int_equal(overlaps(c), 0);
	assert_int_equal(atomic_load(&c->acted_stale), 0);
	assert_int_equal(atomic_load(&c->refused_present), 0);
	assert_int_equal(yard_inventory(y), 1);
	assert_clean(y);
}

static void the_checker_finds_fault_when_the_fence_is_off(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_free_ struct contest *c = xcalloc(1, sizeof(*c));
	int breaches = 0, stale = 0;

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	fault_arm("lease.fence:skip");
	/* On a busy machine the threads of one contest may happen to run one after the other. */
	for (int i = 0; i < CONTESTS && (!breaches || !stale); i++) {
		run_contest(y, &env, c, ROUNDS);
		breaches += overlaps(c);
		stale += atomic_load(&c->acted_stale);
	}
	fault_disarm();
	print_message("without the fence: %d overlaps, %d stale acts\n", breaches, stale);
	assert_true(breaches > 0);
	assert_true(stale > 0);
}

/* The last line: two holders of one place cannot even be written down. */
SQL(HOLDERS_STEAL, "UPDATE places SET holder_lease = $2 WHERE id = $1");

struct theft {
	const char *place_id, *lease_id;
};

static int steal_tx(struct tx *tx, void *arg, struct error *err)
{
	struct theft *t = arg;

	return tx_exec(tx, &HOLDERS_STEAL, err, B_TEXT(t->place_id), B_TEXT(t->lease_id)) < 0 ? -1
											      : 0;
}

static void one_lease_cannot_hold_two_places(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease first = { 0 }, second = { 0 };
	struct theft theft;

	yard_acquire_from(y, &y->local, &first);
	yard_acquire_from(y, &y->local, &second);
	theft = (struct theft){ second.place_id, first.id };
	assert_refused(y->r, ERR_DB_CONSTRAINT,
		       DB_WRITE(y->db, "test.steal", steal_tx, &theft, y->err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		YARD_BOTH(holdings_of_one_place_never_overlap),
		YARD(the_checker_finds_fault_when_the_fence_is_off),
		YARD_BOTH(one_lease_cannot_hold_two_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "store_fixture.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include "pg_fixture.h"

static int put(struct store *s, const char *key)
{
	struct pair pair = { key, 1 };
	return DB_WRITE(s->db, "test", kv_put, &pair, &s->err);
}

static const struct sql BUMP = { "BUMP", "UPDATE kv SET n = n + 1 WHERE k = $1 RETURNING n", NULL };

struct bump {
	int64_t value;
	int runs;
};

static int bump(struct tx *tx, void *arg, struct error *err)
{
	struct bump *b = arg;
	_cleanup_cursor_ struct cursor c;
	b->runs++;
	if (tx_query(tx, &c, &BUMP, err, B_TEXT("counter")) < 0)
		return -1;
	int r = cursor_next(&c, err);
	if (r > 0)
		b->value = col_int(&c, 0);
	return r > 0 ? 0 : -1;
}

#define BUMPERS 12
#define BUMPS 25

struct bumper {
	struct store *store;
	pthread_t thread;
	int failures;
	int conflicts;
	int64_t seen[BUMPS];
};

static void *bump_often(void *arg)
{
	struct bumper *b = arg;
	for (int i = 0; i < BUMPS; i++) {
		struct bump one = { 0 };
		_cleanup_error_ struct error err = { 0 };
		if (DB_WRITE(b->store->db, "test", bump, &one, &err) < 0) {
			b->failures++;
			print_message("%s\n", err.message);
		}
		b->seen[i] = one.value;
		b->conflicts += one.runs - 1;
	}
	return NULL;
}

/* The worst case for SERIALIZABLE, and what every writer of an event does. */
static void writers_of_one_counter_all_succeed_and_get_different_numbers(void **state)
{
	struct store *s = store_of(state);
	static bool taken[BUMPERS * BUMPS + 1];
	memset(taken, 0, sizeof(taken));
	struct pair counter = { "counter", 0 };
	assert_done(s, DB_WRITE(s->db, "test", kv_put, &counter, &s->err));

	struct bumper bumpers[BUMPERS];
	memset(bumpers, 0, sizeof(bumpers));
	for (int i = 0; i < BUMPERS; i++) {
		bumpers[i].store = s;
		assert_int_equal(pthread_create(&bumpers[i].thread, NULL, bump_often, &bumpers[i]),
				 0);
	}
	int failures = 0;
	int conflicts = 0;
	for (int i = 0; i < BUMPERS; i++) {
		pthread_join(bumpers[i].thread, NULL);
		failures += bumpers[i].failures;
		conflicts += bumpers[i].conflicts;
	}
	assert_int_equal(failures, 0);
	for (int i = 0; i < BUMPERS; i++) {
		for (int j = 0; j < BUMPS; j++) {
			assert_in_range(bumpers[i].seen[j], 1, BUMPERS * BUMPS);
			assert_false(taken[bumpers[i].seen[j]]);
			taken[bumpers[i].seen[j]] = true;
		}
	}
	assert_int_equal(kv_number(s, "counter"), BUMPERS * BUMPS);
	print_message("%d conflicts in %d writes\n", conflicts, BUMPERS * BUMPS);
}

static const struct sql KV_SUM = { "KV_SUM", "SELECT CAST(COALESCE(SUM(n), 0) AS BIGINT) FROM kv",
				   NULL };

struct guarded {
	const char *key;
	pthread_barrier_t *both;
	int runs;
};

/* Each sees nothing and writes: only one of two may be kept. */
static int put_if_empty(struct tx *tx, void *arg, struct error *err)
{
	struct guarded *g = arg;
	int64_t sum = 0;
	{
		_cleanup_cursor_ struct cursor c;
		if (tx_query(tx, &c, &KV_SUM, err) < 0 || cursor_next(&c, err) < 0)
			return -1;
		sum = col_int(&c, 0);
	}
	if (g->runs++ == 0)
		pthread_barrier_wait(g->both);
	if (sum > 0)
		return error_set(err, ERR_CONFLICT, "not empty");
	struct pair pair = { g->key, 1 };
	return kv_put(tx, &pair, err);
}

struct guard_thread {
	struct store *store;
	struct guarded guarded;
	pthread_t thread;
	int result;
	struct error err;
};

static void *run_guarded(void *arg)
{
	struct guard_thread *t = arg;
	t->result = DB_WRITE(t->store->db, "test", put_if_empty, &t->guarded, &t->err);
	return NULL;
}

static void a_check_and_a_write_are_one_act_even_across_rows(void **state)
{
	struct store *s = store_of(state);
	pthread_barrier_t both;
	pthread_barrier_init(&both, NULL, 2);
	struct guard_thread t[2] = { { .store = s, .guarded = { "a", &both, 0 } },
				     { .store = s, .guarded = { "b", &both, 0 } } };
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i].thread, NULL, run_guarded, &t[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i].thread, NULL);
	pthread_barrier_destroy(&both);
	assert_int_equal(kv_count(s), 1);
	assert_int_equal((t[0].result == 0) + (t[1].result == 0), 1);
	assert_int_equal(t[t[0].result == 0 ? 1 : 0].err.code, ERR_CONFLICT);
}

static const struct sql END_OTHERS = {
	"END_OTHERS",
	"SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity"
	" WHERE datname = current_database() AND pid <> pg_backend_pid()",
	NULL
};

struct crowd {
	struct store *store;
	pthread_barrier_t *all;
};

static int meet(struct tx *tx, void *arg, struct error *err)
{
	(void)err;
	(void)tx;
	pthread_barrier_wait(arg);
	return 0;
}

static void *meet_others(void *arg)
{
	struct crowd *crowd = arg;
	db_read(crowd->store->db, meet, crowd->all, NULL);
	return NULL;
}

/* Makes the pool open several connections. */
static void open_connections(struct store *s, int count)
{
	pthread_barrier_t all;
	pthread_t threads[8];
	struct crowd crowd = { s, &all };
	pthread_barrier_init(&all, NULL, (unsigned)count);
	for (int i = 0; i < count; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, meet_others, &crowd), 0);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&all);
}

static int end_others(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	return tx_exec(tx, &END_OTHERS, err) < 0 ? -1 : 0;
}

static void dead_connections_are_replaced_without_the_caller_noticing(void **state)
{
	struct store *s = store_of(state);
	struct db *other = NULL;
	open_connections(s, 8);
	assert_done(s, db_open_known(&other, &s->options, kv_migrations, &s->err));
	assert_done(s, db_read(other, end_others, NULL, &s->err));
	db_close(other);
	assert_done(s, put(s, "a"));
	assert_int_equal(kv_count(s), 1);
}

struct killed_inside {
	struct db *other;
	int runs;
};

static int die_inside_once(struct tx *tx, void *arg, struct error *err)
{
	struct killed_inside *k = arg;
	struct pair pair = { "a", 1 };
	if (kv_put(tx, &pair, err) < 0)
		return -1;
	if (k->runs++ == 0)
		return tx_exec_text(tx, "SELECT pg_terminate_backend(pg_backend_pid())", err);
	return 0;
}

static void a_connection_lost_before_the_commit_is_tried_again(void **state)
{
	struct store *s = store_of(state);
	struct killed_inside k = { 0 };
	assert_done(s, DB_WRITE(s->db, "test", die_inside_once, &k, &s->err));
	assert_int_equal(k.runs, 2);
	assert_int_equal(kv_count(s), 1);
}

static int arm_commit(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	static const char *const statements[] = {
		"CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
		" PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$",
		"CREATE CONSTRAINT TRIGGER die AFTER INSERT ON kv DEFERRABLE INITIALLY DEFERRED"
		" FOR EACH ROW EXECUTE FUNCTION die()",
	};
	for (size_t i = 0; i < ARRAY_SIZE(statements); i++) {
		if (tx_exec_text(tx, statements[i], err) < 0)
			return -1;
	}
	return 0;
}

static int put_counting(struct tx *tx, void *arg, struct error *err)
{
	++*(int *)arg;
	struct pair pair = { "a", 1 };
	return kv_put(tx, &pair, err);
}

static void a_connection_lost_during_the_commit_says_that_the_outcome_is_unknown(void **state)
{
	struct store *s = store_of(state);
	int runs = 0;
	assert_done(s, DB_WRITE(s->db, "test", arm_commit, NULL, &s->err));
	assert_refused(s, ERR_DB, DB_WRITE(s->db, "test", put_counting, &runs, &s->err));
	assert_non_null(strstr(s->err.message, "outcome unknown"));
	assert_int_equal(runs, 1);
}

static void a_server_that_is_down_is_unavailable_until_it_is_back(void **state)
{
	struct store *s = store_of(state);
	assert_done(s, put(s, "a"));
	pg_fixture_crash();
	assert_refused(s, ERR_UNAVAILABLE, put(s, "b"));
	assert_refused(s, ERR_UNAVAILABLE, db_ping(s->db, &s->err));
	pg_fixture_restart();
	assert_done(s, put(s, "c"));
	assert_int_equal(kv_count(s), 2);
}

static void an_address_where_nobody_listens_is_unavailable(void **state)
{
	struct store *s = store_of(state);
	struct db *db = NULL;
	struct db_options options = { .url = "postgresql://berth:secret@/x?host=/nonexistent" };
	assert_refused(s, ERR_UNAVAILABLE, db_open(&db, &options, &s->err));
	assert_null(strstr(s->err.message, "secret"));
}

static int put_and_wait(struct tx *tx, void *arg, struct error *err)
{
	struct pair pair = { "locked", 1 };
	if (kv_put(tx, &pair, err) < 0)
		return -1;
	pthread_barrier_wait(arg);
	pthread_barrier_wait(arg);
	return 0;
}

struct holder {
	struct store *store;
	pthread_barrier_t *barrier;
};

static void *hold_row(void *arg)
{
	struct holder *h = arg;
	DB_WRITE(h->store->db, "test", put_and_wait, h->barrier, NULL);
	return NULL;
}

static void a_lock_held_too_long_is_busy(void **state)
{
	struct store *s = store_of(state);
	pthread_barrier_t barrier;
	pthread_t thread;
	struct holder holder = { s, &barrier };
	pthread_barrier_init(&barrier, NULL, 2);
	assert_int_equal(pthread_create(&thread, NULL, hold_row, &holder), 0);
	pthread_barrier_wait(&barrier);
	time_t started = time(NULL);
	assert_refused(s, ERR_DB_BUSY, put(s, "locked"));
	assert_true(time(NULL) - started < 10);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&barrier);
	assert_refused(s, ERR_DB_CONSTRAINT, put(s, "locked"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_POSTGRES(writers_of_one_counter_all_succeed_and_get_different_numbers),
		ON_POSTGRES(a_check_and_a_write_are_one_act_even_across_rows),
		ON_POSTGRES(dead_connections_are_replaced_without_the_caller_noticing),
		ON_POSTGRES(a_connection_lost_before_the_commit_is_tried_again),
		ON_POSTGRES(a_connection_lost_during_the_commit_says_that_the_outcome_is_unknown),
		ON_POSTGRES(a_server_that_is_down_is_unavailable_until_it_is_back),
		ON_POSTGRES(an_address_where_nobody_listens_is_unavailable),
		ON_POSTGRES(a_lock_held_too_long_is_busy),
	};
	/* Their server crashes, so it is their own. */
	unsetenv("BERTH_TEST_POSTGRES");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

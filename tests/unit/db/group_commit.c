#include "store_fixture.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "db/sqlite_conn.h"
#include "db/sqlite_writer.h"

/* A writer of our own on the file of the store, so that its queue can be watched. */
struct bench {
	struct store *store;
	struct sqlite_conn *conn;
	struct sqlite_writer *writer;
};

/* The writer tried here is not the store's own: what it wrote is another program's to the store,
 * which shows after a few milliseconds. */
static int64_t count_now(struct bench *b)
{
	usleep(6000);
	return kv_count(b->store);
}

static int64_t number_now(struct bench *b, const char *key)
{
	usleep(6000);
	return kv_number(b->store, key);
}

static int bench_setup(void **state)
{
	store_setup_sqlite(state);
	struct bench *b = xcalloc(1, sizeof(*b));
	b->store = *state;
	assert_done(b->store,
		    sqlite_conn_open(&b->conn, b->store->path, false, 300, &b->store->err));
	assert_done(b->store, sqlite_writer_start(&b->writer, b->conn, &b->store->err));
	*state = b;
	return 0;
}

static int bench_teardown(void **state)
{
	struct bench *b = *state;
	sqlite_writer_stop(b->writer);
	sqlite_conn_close(b->conn);
	*state = b->store;
	free(b);
	return store_teardown(state);
}

struct worker {
	struct sqlite_writer *writer;
	enum db_promise promise;
	db_fn *fn;
	void *arg;
	int result;
	struct error err;
	pthread_t thread;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	w->result = sqlite_writer_run(w->writer, w->promise, w->fn, w->arg, &w->err);
	return NULL;
}

static void start(struct worker *w, struct bench *b, enum db_promise promise, db_fn *fn, void *arg)
{
	*w = (struct worker){ .writer = b->writer, .promise = promise, .fn = fn, .arg = arg };
	assert_int_equal(pthread_create(&w->thread, NULL, work, w), 0);
}

static size_t queued(struct bench *b)
{
	struct sqlite_writer_stats stats;
	sqlite_writer_stats(b->writer, &stats);
	return stats.queued;
}

/* The first job of a batch stands still until the others are queued behind it. */
struct gate {
	sem_t entered;
	sem_t open;
	int runs;
};

static int stand_still(struct tx *tx, void *arg, struct error *err)
{
	struct gate *gate = arg;
	struct pair pair = { "gate", 0 };
	if (gate->runs++ == 0) {
		sem_post(&gate->entered);
		sem_wait(&gate->open);
	}
	return kv_put(tx, &pair, err);
}

struct step {
	db_fn *fn;
	void *arg;
	enum error_code expected; /* ERR_NONE: to succeed */
};

/* Runs the steps in this order in one transaction, and checks what each was told. */
static void run_in_one_batch(struct bench *b, enum error_code gate_expected,
			     const struct step *steps, size_t count)
{
	struct gate gate = { 0 };
	struct worker workers[8];
	assert_true(count < ARRAY_SIZE(workers));
	sem_init(&gate.entered, 0, 0);
	sem_init(&gate.open, 0, 0);
	start(&workers[0], b, DB_DURABLE, stand_still, &gate);
	sem_wait(&gate.entered);
	for (size_t i = 0; i < count; i++) {
		start(&workers[i + 1], b, DB_DURABLE, steps[i].fn, steps[i].arg);
		while (queued(b) <= i)
			usleep(100);
	}
	sem_post(&gate.open);
	for (size_t i = 0; i <= count; i++)
		pthread_join(workers[i].thread, NULL);

	for (size_t i = 0; i <= count; i++) {
		enum error_code expected = i == 0 ? gate_expected : steps[i - 1].expected;
		if (workers[i].err.code != expected ||
		    (workers[i].result == 0) != (expected == ERR_NONE))
			fail_msg("job %zu was told %d %s: %s", i, workers[i].result,
				 error_code_name(workers[i].err.code), workers[i].err.message);
		error_clear(&workers[i].err);
	}
}

static void jobs_that_wait_share_one_commit(void **state)
{
	struct bench *b = *state;
	struct pair a = { "a", 1 };
	struct pair c = { "c", 2 };
	struct sqlite_writer_stats stats;
	run_in_one_batch(b, ERR_NONE,
			 (struct step[]){ { kv_put, &a, ERR_NONE }, { kv_put, &c, ERR_NONE } }, 2);
	sqlite_writer_stats(b->writer, &stats);
	assert_int_equal(stats.commits, 1);
	assert_int_equal(stats.jobs, 3);
	assert_int_equal(count_now(b), 3);
}

static int put_and_decline(struct tx *tx, void *arg, struct error *err)
{
	if (kv_put(tx, arg, err) < 0)
		return -1;
	return error_set(err, ERR_PLACE_BUSY, "taken");
}

static const struct sql KV_DROP = { "KV_DROP", "DELETE FROM kv WHERE n >= $1 RETURNING k, n",
				    NULL };

static int leave_cursor_open(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	struct cursor c;
	if (tx_query(tx, &c, &KV_DROP, err, B_INT(100)) < 0)
		return -1;
	return cursor_next(&c, err) == 1 ? 0 : -1;
}

static void a_job_that_fails_takes_no_other_with_it(void **state)
{
	struct bench *b = *state;
	struct pair a = { "a", 1 };
	struct pair declined = { "declined", 2 };
	struct pair hundred = { "hundred", 100 };
	struct pair again = { "a", 3 };
	struct pair last = { "last", 4 };
	run_in_one_batch(b, ERR_NONE,
			 (struct step[]){ { kv_put, &a, ERR_NONE },
					  { put_and_decline, &declined, ERR_PLACE_BUSY },
					  { kv_put, &again, ERR_DB_CONSTRAINT },
					  { kv_put, &hundred, ERR_NONE },
					  { leave_cursor_open, NULL, ERR_NONE },
					  { kv_put, &last, ERR_NONE } },
			 6);
	struct sqlite_writer_stats stats;
	sqlite_writer_stats(b->writer, &stats);
	assert_int_equal(stats.commits, 1);
	assert_int_equal(kv_number(b->store, "a"), 1);
	assert_int_equal(kv_number(b->store, "declined"), -1);
	assert_int_equal(kv_number(b->store, "hundred"), -1);
	assert_int_equal(kv_number(b->store, "last"), 4);
}

/* Without others behind it there is no savepoint to go back to; with them they begin anew. */
static void a_first_job_that_fails_leaves_nothing_and_the_next_are_kept(void **state)
{
	struct bench *b = *state;
	struct pair gate = { "gate", 1 }, declined = { "declined", 2 }, a = { "a", 3 };
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(sqlite_writer_run(b->writer, DB_DURABLE, put_and_decline, &declined, &err),
			 -1);
	assert_int_equal(err.code, ERR_PLACE_BUSY);
	assert_int_equal(count_now(b), 0);
	assert_int_equal(sqlite_writer_run(b->writer, DB_DURABLE, kv_put, &gate, &err), 0);
	run_in_one_batch(b, ERR_DB_CONSTRAINT,
			 (struct step[]){ { kv_put, &a, ERR_NONE },
					  { put_and_decline, &declined, ERR_PLACE_BUSY } },
			 2);
	assert_int_equal(number_now(b, "gate"), 1);
	assert_int_equal(number_now(b, "a"), 3);
	assert_int_equal(number_now(b, "declined"), -1);
}

/* Grows the database until it may grow no more. */
static int fill(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	_cleanup_free_ char *big = xcalloc(1, 16001);
	memset(big, 'x', 16000);
	struct pair pair = { big, 0 };
	for (int i = 0; i < 1000; i++) {
		snprintf(big, 5, "%04d", i);
		big[4] = 'x';
		if (kv_put(tx, &pair, err) < 0)
			return -1;
	}
	return 0;
}

static int limit_pages(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	return tx_exec_text(tx, "PRAGMA max_page_count = 40", err);
}

static int lift_limit(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	return tx_exec_text(tx, "PRAGMA max_page_count = 1000000", err);
}

static void a_full_disk_fails_the_job_that_met_it_and_no_other(void **state)
{
	struct bench *b = *state;
	struct error *err = &b->store->err;
	struct pair before = { "before", 1 };
	struct pair twice = { "before", 2 };
	struct pair after = { "after", 3 };
	assert_done(b->store, sqlite_writer_run(b->writer, DB_DURABLE, limit_pages, NULL, err));
	run_in_one_batch(b, ERR_NONE,
			 (struct step[]){ { kv_put, &before, ERR_NONE },
					  { kv_put, &twice, ERR_DB_CONSTRAINT },
					  { fill, NULL, ERR_DISK_FULL },
					  { kv_put, &after, ERR_NONE } },
			 4);
	assert_int_equal(count_now(b), 3);
	assert_int_equal(kv_number(b->store, "before"), 1);
	assert_int_equal(kv_number(b->store, "after"), 3);

	assert_done(b->store, sqlite_writer_run(b->writer, DB_DURABLE, lift_limit, NULL, err));
	assert_done(b->store, sqlite_writer_run(b->writer, DB_DURABLE, fill, NULL, err));
	assert_int_equal(count_now(b), 1003);
}

static int break_at_commit(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	if (tx_exec_text(tx, "PRAGMA defer_foreign_keys = ON", err) < 0)
		return -1;
	return tx_exec_text(tx, "INSERT INTO child (parent) VALUES ('nobody')", err);
}

static int make_child_table(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	return tx_exec_text(tx, "CREATE TABLE child (parent TEXT NOT NULL REFERENCES kv (k))", err);
}

static void a_commit_that_fails_is_told_to_every_job_in_it(void **state)
{
	struct bench *b = *state;
	struct error *err = &b->store->err;
	struct pair a = { "a", 1 };
	struct pair declined = { "declined", 2 };
	assert_done(b->store,
		    sqlite_writer_run(b->writer, DB_DURABLE, make_child_table, NULL, err));
	run_in_one_batch(b, ERR_DB_CONSTRAINT,
			 (struct step[]){ { kv_put, &a, ERR_DB_CONSTRAINT },
					  { put_and_decline, &declined, ERR_DB_CONSTRAINT },
					  { break_at_commit, NULL, ERR_DB_CONSTRAINT } },
			 3);
	assert_int_equal(count_now(b), 0);
	/* The failed transaction is not left open. */
	assert_done(b->store, sqlite_writer_run(b->writer, DB_DURABLE, kv_put, &a, err));
	assert_int_equal(count_now(b), 1);
}

struct series {
	struct bench *bench;
	int number;
	int failures;
	pthread_t thread;
};

static void *write_series(void *arg)
{
	struct series *series = arg;
	for (int i = 0; i < 200; i++) {
		char key[32];
		_cleanup_error_ struct error err = { 0 };
		snprintf(key, sizeof(key), "%d/%d", series->number, i);
		struct pair pair = { key, i };
		/* Every tenth declines, which must not be felt by the others. */
		db_fn *fn = i % 10 == 9 ? put_and_decline : kv_put;
		int r = sqlite_writer_run(series->bench->writer, DB_DURABLE, fn, &pair, &err);
		if ((r < 0) != (i % 10 == 9))
			series->failures++;
		/* What was acknowledged is there for everybody. */
		if (i % 50 == 0 && number_now(series->bench, key) != i)
			series->failures++;
	}
	return NULL;
}

static void eight_threads_write_and_each_write_is_kept(void **state)
{
	struct bench *b = *state;
	struct series series[8];
	for (int i = 0; i < 8; i++) {
		series[i] = (struct series){ .bench = b, .number = i };
		assert_int_equal(pthread_create(&series[i].thread, NULL, write_series, &series[i]),
				 0);
	}
	int failures = 0;
	for (int i = 0; i < 8; i++) {
		pthread_join(series[i].thread, NULL);
		failures += series[i].failures;
	}
	struct sqlite_writer_stats stats;
	sqlite_writer_stats(b->writer, &stats);
	assert_int_equal(failures, 0);
	assert_int_equal(count_now(b), 8 * 180);
	assert_int_equal(stats.jobs, 8 * 200);
	assert_true(stats.commits <= stats.jobs);
	print_message("%llu jobs in %llu commits\n", (unsigned long long)stats.jobs,
		      (unsigned long long)stats.commits);
}

/* How often this program waited for the disk; SQLite's calls come here, too. */
static atomic_int syncs;

int fdatasync(int fd)
{
	atomic_fetch_add(&syncs, 1);
	return (int)syscall(SYS_fdatasync, fd);
}

static int syncs_of(struct bench *b, enum db_promise promise, db_fn *fn, void *arg)
{
	int before = atomic_load(&syncs);
	assert_done(b->store, sqlite_writer_run(b->writer, promise, fn, arg, &b->store->err));
	return atomic_load(&syncs) - before;
}

/* The first sync of a WAL's file is one of its directory as well. */
static void sync_first(struct bench *b)
{
	struct pair pair = { "first", 1 };
	assert_in_range(syncs_of(b, DB_DURABLE, kv_put, &pair), 1, 3);
}

static void only_what_needs_it_waits_for_the_disk(void **state)
{
	struct bench *b = *state;
	static const enum db_promise order[] = { DB_NO_FSYNC, DB_DURABLE, DB_NO_FSYNC, DB_NO_FSYNC,
						 DB_DURABLE };
	static const char *const keys[] = { "a", "b", "c", "d", "e" };
	sync_first(b);
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		struct pair pair = { keys[i], 1 };
		assert_int_equal(syncs_of(b, order[i], kv_put, &pair),
				 order[i] == DB_DURABLE ? 1 : 0);
	}
}

/*
 * What a checkpoint copies into the database must be in the WAL for good, and in the database
 * before the WAL is written over: the log, the file and the log that begins anew.
 */
static void a_checkpoint_waits_for_the_disk_whatever_the_commit_does(void **state)
{
	struct bench *b = *state;
	struct pair first = { "a", 1 }, second = { "b", 1 };
	sync_first(b);
	/* In the middle of the commit. */
	assert_int_equal(sqlite3_wal_autocheckpoint(b->conn->handle, 1), SQLITE_OK);
	assert_int_equal(syncs_of(b, DB_NO_FSYNC, kv_put, &first), 2);
	assert_int_equal(syncs_of(b, DB_NO_FSYNC, kv_put, &second), 3);
}

/* Queued behind one that does not wait for the disk, it gets a transaction of its own. */
static void a_durable_write_joins_no_other(void **state)
{
	struct bench *b = *state;
	struct gate gate = { 0 };
	struct worker standing, durable;
	struct pair pair = { "durable", 1 };
	int before;
	sync_first(b);
	sem_init(&gate.entered, 0, 0);
	sem_init(&gate.open, 0, 0);
	start(&standing, b, DB_NO_FSYNC, stand_still, &gate);
	sem_wait(&gate.entered);
	before = atomic_load(&syncs);
	start(&durable, b, DB_DURABLE, kv_put, &pair);
	while (queued(b) < 1)
		usleep(1000);
	sem_post(&gate.open);
	pthread_join(standing.thread, NULL);
	pthread_join(durable.thread, NULL);
	assert_int_equal(standing.result, 0);
	assert_int_equal(durable.result, 0);
	assert_int_equal(atomic_load(&syncs) - before, 1);
}

static void *read_on(void *arg)
{
	struct store *store = arg;
	for (int i = 0; i < 3000; i++)
		kv_number(store, "0");
	return NULL;
}

/* The store's own writer and readers: its WAL begins anew although somebody always reads. */
static void the_wal_stays_short_while_others_read(void **state)
{
	struct store *store = *state;
	_cleanup_free_ char *wal = xasprintf("%s-wal", store->path);
	pthread_t readers[2];
	struct stat st;
	for (size_t i = 0; i < ARRAY_SIZE(readers); i++)
		assert_int_equal(pthread_create(&readers[i], NULL, read_on, store), 0);
	for (int i = 0; i < 6000; i++) {
		char key[16];
		snprintf(key, sizeof(key), "%d", i);
		struct pair pair = { key, i };
		assert_done(store, DB_WRITE_AS(store->db, DB_NO_FSYNC, "test.wal", kv_put, &pair,
					       &store->err));
	}
	for (size_t i = 0; i < ARRAY_SIZE(readers); i++)
		pthread_join(readers[i], NULL);
	assert_int_equal(kv_count(store), 6000);
	assert_int_equal(stat(wal, &st), 0);
	/* 6000 commits of at least a page each, of 4 kB. */
	assert_in_range(st.st_size, 4096, 4000 * 4200);
}

#define ON_BENCH(test) cmocka_unit_test_setup_teardown(test, bench_setup, bench_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BENCH(jobs_that_wait_share_one_commit),
		ON_BENCH(a_job_that_fails_takes_no_other_with_it),
		ON_BENCH(a_first_job_that_fails_leaves_nothing_and_the_next_are_kept),
		ON_BENCH(a_full_disk_fails_the_job_that_met_it_and_no_other),
		ON_BENCH(a_commit_that_fails_is_told_to_every_job_in_it),
		ON_BENCH(eight_threads_write_and_each_write_is_kept),
		ON_BENCH(only_what_needs_it_waits_for_the_disk),
		ON_BENCH(a_checkpoint_waits_for_the_disk_whatever_the_commit_does),
		ON_BENCH(a_durable_write_joins_no_other),
		cmocka_unit_test_setup_teardown(the_wal_stays_short_while_others_read,
						store_setup_sqlite, store_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

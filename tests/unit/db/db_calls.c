#include "store_fixture.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

static int write_job(struct store *s, db_fn *fn, void *arg)
{
	return DB_WRITE(s->db, "test", fn, arg, &s->err);
}

static void put(struct store *s, const char *key, int64_t number)
{
	struct pair pair = { key, number };
	assert_done(s, write_job(s, kv_put, &pair));
}

/* SQLite numbers $n by first appearance: bound by position, these would be exchanged. */
static const struct sql SWAPPED = {
	"SWAPPED", "SELECT CAST($2 AS BIGINT), CAST($1 AS TEXT), CAST($2 AS BIGINT) + 1", NULL
};

static int read_swapped(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	_cleanup_cursor_ struct cursor c;
	if (tx_query(tx, &c, &SWAPPED, err, B_TEXT("one"), B_INT(INT64_C(1) << 40)) < 0)
		return -1;
	assert_int_equal(cursor_next(&c, err), 1);
	assert_true(col_int(&c, 0) == INT64_C(1) << 40);
	assert_string_equal(col_text(&c, 1), "one");
	assert_true(col_int(&c, 2) == (INT64_C(1) << 40) + 1);
	assert_int_equal(cursor_next(&c, err), 0);
	/* Asking again does not start over. */
	assert_int_equal(cursor_next(&c, err), 0);
	return 0;
}

static void parameters_are_bound_by_their_number(void **state)
{
	struct store *s = store_of(state);
	assert_done(s, db_read(s->db, read_swapped, NULL, &s->err));
}

static int put_three_kinds(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	if (tx_exec(tx, &KV_PUT, err, B_TEXT("null"), B_NULL) < 0 ||
	    tx_exec(tx, &KV_PUT, err, B_TEXT("unset time"), B_TIME(0)) < 0 ||
	    tx_exec(tx, &KV_PUT, err, B_TEXT("zero"), B_INT(0)) < 0 ||
	    tx_exec(tx, &KV_PUT, err, B_TEXT("least"), B_INT(INT64_MIN)) < 0)
		return -1;
	_cleanup_cursor_ struct cursor c;
	if (tx_query(tx, &c, &KV_LIST, err) < 0)
		return -1;
	const char *keys[] = { "least", "null", "unset time", "zero" };
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		assert_int_equal(cursor_next(&c, err), 1);
		assert_string_equal(col_text(&c, 0), keys[i]);
		assert_int_equal(col_is_null(&c, 1), i == 1 || i == 2);
		assert_true(col_int(&c, 1) == (i == 0 ? INT64_MIN : 0));
		assert_int_equal(col_text(&c, 1) == NULL, i == 1 || i == 2);
	}
	return 0;
}

static void null_is_kept_apart_from_zero(void **state)
{
	struct store *s = store_of(state);
	assert_done(s, write_job(s, put_three_kinds, NULL));
}

static const struct sql KV_BUMP = { "KV_BUMP",
				    "UPDATE kv SET n = n + CAST($1 AS BIGINT) WHERE n >= $2",
				    NULL };
static const struct sql KV_DROP = { "KV_DROP", "DELETE FROM kv WHERE n >= $1 RETURNING k, n",
				    NULL };

static int count_changes(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	assert_int_equal(tx_exec(tx, &KV_BUMP, err, B_INT(10), B_INT(2)), 2);
	assert_int_equal(tx_exec(tx, &KV_BUMP, err, B_INT(10), B_INT(1000)), 0);
	assert_int_equal(tx_exec(tx, &KV_LIST, err), 3);
	assert_int_equal(tx_exec(tx, &KV_DROP, err, B_INT(12)), 2);
	return 0;
}

static void the_number_of_rows_changed_or_returned_is_told(void **state)
{
	struct store *s = store_of(state);
	put(s, "a", 1);
	put(s, "b", 2);
	put(s, "c", 3);
	assert_done(s, write_job(s, count_changes, NULL));
	assert_int_equal(kv_count(s), 1);
}

static int step_returning_once(struct tx *tx, void *arg, struct error *err)
{
	bool close = *(bool *)arg;
	struct cursor c;
	if (tx_query(tx, &c, &KV_DROP, err, B_INT(0)) < 0)
		return -1;
	assert_int_equal(cursor_next(&c, err), 1);
	/* Left in the middle of its rows: unfinished, it would make the commit fail. */
	if (close)
		cursor_close(&c);
	return 0;
}

static void a_returning_statement_may_be_left_early(void **state)
{
	struct store *s = store_of(state);
	for (int i = 0; i < 2; i++) {
		put(s, "a", 1);
		put(s, "b", 2);
		bool close = i == 0;
		assert_done(s, write_job(s, step_returning_once, &close));
		assert_int_equal(kv_count(s), 0);
	}
}

static int list_within_list(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	int pairs = 0;
	_cleanup_cursor_ struct cursor outer;
	if (tx_query(tx, &outer, &KV_LIST, err) < 0)
		return -1;
	while (cursor_next(&outer, err) > 0) {
		_cleanup_cursor_ struct cursor inner;
		if (tx_query(tx, &inner, &KV_LIST, err) < 0)
			return -1;
		while (cursor_next(&inner, err) > 0)
			pairs++;
	}
	assert_int_equal(pairs, 9);
	return 0;
}

static void a_query_may_be_open_twice(void **state)
{
	struct store *s = store_of(state);
	put(s, "a", 1);
	put(s, "b", 2);
	put(s, "c", 3);
	assert_done(s, db_read(s->db, list_within_list, NULL, &s->err));
	assert_done(s, db_read(s->db, list_within_list, NULL, &s->err));
}

#define MANY 200

static int run_many(struct tx *tx, void *arg, struct error *err)
{
	const struct sql *many = arg;
	for (int64_t i = 0; i < MANY; i++) {
		_cleanup_cursor_ struct cursor c;
		if (tx_query(tx, &c, &many[i], err, B_INT(i)) < 0 || cursor_next(&c, err) < 0)
			return -1;
		assert_true(col_int(&c, 0) == 2 * i);
	}
	return 0;
}

static void a_connection_tells_many_statements_apart(void **state)
{
	struct store *s = store_of(state);
	static char texts[MANY][64];
	static struct sql many[MANY];
	for (int i = 0; i < MANY; i++) {
		snprintf(texts[i], sizeof(texts[i]), "SELECT CAST($1 AS BIGINT) + %d", i);
		many[i] = (struct sql){ "MANY", texts[i], NULL };
	}
	for (int round = 0; round < 2; round++)
		assert_done(s, db_read(s->db, run_many, many, &s->err));
}

static int list_bytewise(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	static const char *const sorted[] = { "A", "B", "_", "a", "\xc3\xa4" };
	_cleanup_cursor_ struct cursor c;
	if (tx_query(tx, &c, &KV_LIST, err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(sorted); i++) {
		assert_int_equal(cursor_next(&c, err), 1);
		assert_string_equal(col_text(&c, 0), sorted[i]);
	}
	return 0;
}

static void text_sorts_by_bytes_whatever_the_locale(void **state)
{
	struct store *s = store_of(state);
	const char *keys[] = { "a", "B", "\xc3\xa4", "A", "_" };
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		put(s, keys[i], 0);
	assert_done(s, db_read(s->db, list_bytewise, NULL, &s->err));
}

static int put_twice(struct tx *tx, void *arg, struct error *err)
{
	bool overlook = *(bool *)arg;
	struct pair pair = { "same", 1 };
	if (kv_put(tx, &pair, err) < 0)
		return -1;
	_cleanup_error_ struct error ignored = { 0 };
	if (kv_put(tx, &pair, overlook ? &ignored : err) < 0 && !overlook)
		return -1;
	/* On PostgreSQL nothing works any more here, so nothing may work on SQLite. */
	struct pair other = { "other", 1 };
	assert_int_equal(kv_put(tx, &other, &ignored), -1);
	assert_int_equal(ignored.code, ERR_DB_CONSTRAINT);
	return 0;
}

static void a_constraint_is_named_and_undoes_the_transaction(void **state)
{
	struct store *s = store_of(state);
	bool overlook = false;
	assert_refused(s, ERR_DB_CONSTRAINT, write_job(s, put_twice, &overlook));
	assert_non_null(strstr(s->err.message, "KV_PUT"));
	assert_non_null(strstr(s->err.message, "kv"));
	assert_int_equal(kv_count(s), 0);
}

static void an_overlooked_error_undoes_the_transaction_all_the_same(void **state)
{
	struct store *s = store_of(state);
	bool overlook = true;
	assert_refused(s, ERR_DB_CONSTRAINT, write_job(s, put_twice, &overlook));
	assert_int_equal(kv_count(s), 0);
	put(s, "next", 1);
	assert_int_equal(kv_count(s), 1);
}

static int put_and_decline(struct tx *tx, void *arg, struct error *err)
{
	if (kv_put(tx, arg, err) < 0)
		return -1;
	return error_set(err, ERR_PLACE_BUSY, "somebody else holds it");
}

static void a_closure_that_declines_leaves_nothing_behind(void **state)
{
	struct store *s = store_of(state);
	struct pair pair = { "a", 1 };
	assert_refused(s, ERR_PLACE_BUSY, write_job(s, put_and_decline, &pair));
	assert_string_equal(s->err.message, "somebody else holds it");
	assert_int_equal(kv_count(s), 0);
	/* The error is optional. */
	assert_int_equal(DB_WRITE(s->db, "test", put_and_decline, &pair, NULL), -1);
}

static int give_wrong_number_of_values(struct tx *tx, void *arg, struct error *err)
{
	int count = *(int *)arg;
	if (count == 1)
		return (int)tx_exec(tx, &KV_PUT, err, B_TEXT("a"));
	return (int)tx_exec(tx, &KV_PUT, err, B_TEXT("a"), B_INT(1), B_INT(2));
}

static void a_wrong_number_of_values_is_refused(void **state)
{
	struct store *s = store_of(state);
	for (int count = 1; count <= 3; count += 2) {
		assert_int_equal(write_job(s, give_wrong_number_of_values, &count), -1);
		assert_non_null(strstr(s->err.message, "KV_PUT"));
	}
	assert_int_equal(kv_count(s), 0);
}

static void a_reader_cannot_write(void **state)
{
	struct store *s = store_of(state);
	struct pair pair = { "a", 1 };
	assert_refused(s, ERR_DB, db_read(s->db, kv_put, &pair, &s->err));
	assert_int_equal(kv_count(s), 0);
}

struct nested {
	struct store *store;
	struct error err;
	int write_result;
	int read_result;
};

static int open_another(struct tx *tx, void *arg, struct error *err)
{
	(void)tx;
	(void)err;
	struct nested *n = arg;
	struct pair pair = { "a", 1 };
	n->write_result = DB_WRITE(n->store->db, "test", kv_put, &pair, &n->err);
	n->read_result = db_read(n->store->db, kv_put, &pair, &n->err);
	return 0;
}

static void a_transaction_inside_another_is_refused_instead_of_waiting_for_itself(void **state)
{
	struct store *s = store_of(state);
	struct nested n = { .store = s };
	assert_done(s, write_job(s, open_another, &n));
	assert_int_equal(n.write_result, -1);
	assert_int_equal(n.read_result, -1);
	assert_int_equal(n.err.code, ERR_INTERNAL);
	assert_done(s, db_read(s->db, open_another, &n, &s->err));
	assert_int_equal(n.write_result, -1);
}

struct snapshot {
	struct store *store;
	sem_t first_seen;
	sem_t written;
	int64_t before;
	int64_t after;
};

static int count_rows(struct tx *tx, int64_t *count, struct error *err)
{
	_cleanup_cursor_ struct cursor c;
	if (tx_query(tx, &c, &KV_COUNT, err) < 0 || cursor_next(&c, err) < 0)
		return -1;
	*count = col_int(&c, 0);
	return 0;
}

static int count_around_a_write(struct tx *tx, void *arg, struct error *err)
{
	struct snapshot *snapshot = arg;
	if (count_rows(tx, &snapshot->before, err) < 0)
		return -1;
	sem_post(&snapshot->first_seen);
	sem_wait(&snapshot->written);
	return count_rows(tx, &snapshot->after, err);
}

static void *read_snapshot(void *arg)
{
	struct snapshot *snapshot = arg;
	_cleanup_error_ struct error err = { 0 };
	if (db_read(snapshot->store->db, count_around_a_write, snapshot, &err) < 0)
		snapshot->after = -1;
	return NULL;
}

static void a_reader_sees_one_moment_while_others_write(void **state)
{
	struct store *s = store_of(state);
	struct snapshot snapshot = { .store = s };
	sem_init(&snapshot.first_seen, 0, 0);
	sem_init(&snapshot.written, 0, 0);
	pthread_t reader;
	assert_int_equal(pthread_create(&reader, NULL, read_snapshot, &snapshot), 0);
	sem_wait(&snapshot.first_seen);
	put(s, "a", 1);
	sem_post(&snapshot.written);
	pthread_join(reader, NULL);
	assert_int_equal(snapshot.before, 0);
	assert_int_equal(snapshot.after, 0);
	assert_int_equal(kv_count(s), 1);
}

struct crowd {
	struct store *store;
	int failures;
};

static void *read_often(void *arg)
{
	struct crowd *crowd = arg;
	for (int i = 0; i < 5; i++) {
		_cleanup_error_ struct error err = { 0 };
		if (db_ping(crowd->store->db, &err) < 0)
			__atomic_add_fetch(&crowd->failures, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void a_hundred_readers_share_a_few_connections(void **state)
{
	struct store *s = store_of(state);
	struct crowd crowd = { .store = s };
	pthread_t threads[100];
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 * 1024);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], &attr, read_often, &crowd), 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	pthread_attr_destroy(&attr);
	assert_int_equal(crowd.failures, 0);
}

static void a_fault_before_a_write_leaves_nothing_and_one_after_leaves_all(void **state)
{
	struct store *s = store_of(state);
	struct pair before = { "before", 1 };
	struct pair after = { "after", 1 };
	assert_done(s, fault_init("db.first.before:error,db.second.after:error", &s->err));
	assert_refused(s, ERR_FAULT, DB_WRITE(s->db, "first", kv_put, &before, &s->err));
	assert_refused(s, ERR_FAULT, DB_WRITE(s->db, "second", kv_put, &after, &s->err));
	assert_done(s, fault_init(NULL, &s->err));
	assert_int_equal(kv_number(s, "before"), -1);
	assert_int_equal(kv_number(s, "after"), 1);
}

#define ON_BOTH(test) ON_SQLITE(test), ON_POSTGRES(test)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BOTH(parameters_are_bound_by_their_number),
		ON_BOTH(null_is_kept_apart_from_zero),
		ON_BOTH(the_number_of_rows_changed_or_returned_is_told),
		ON_BOTH(a_returning_statement_may_be_left_early),
		ON_BOTH(a_query_may_be_open_twice),
		ON_BOTH(a_connection_tells_many_statements_apart),
		ON_BOTH(text_sorts_by_bytes_whatever_the_locale),
		ON_BOTH(a_constraint_is_named_and_undoes_the_transaction),
		ON_BOTH(an_overlooked_error_undoes_the_transaction_all_the_same),
		ON_BOTH(a_closure_that_declines_leaves_nothing_behind),
		ON_BOTH(a_wrong_number_of_values_is_refused),
		ON_BOTH(a_reader_cannot_write),
		ON_BOTH(a_transaction_inside_another_is_refused_instead_of_waiting_for_itself),
		ON_BOTH(a_reader_sees_one_moment_while_others_write),
		ON_BOTH(a_hundred_readers_share_a_few_connections),
		ON_BOTH(a_fault_before_a_write_leaves_nothing_and_one_after_leaves_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

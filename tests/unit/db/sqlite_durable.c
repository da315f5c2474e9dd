/*
 * What was committed is there for every reader and after every crash, also when a transaction is
 * larger than the cache, and when the disk refuses a write or a sync.
 */
#include "store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/text.h"

#define FRAME_BYTES (24 + 4096)
/* Several times the pages that a connection keeps. */
#define MANY 40000

/* Keys in no order: pages that have just been written to the WAL are soon read from it again. */
SQL(DURABLE_FILL, "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)"
		  " INSERT INTO kv (k, n) SELECT ((i * 7919) % 1000003) || ' takes"
		  " ......................................................... room', i FROM n");
SQL(DURABLE_ADD, "UPDATE kv SET n = n + $1");
SQL(DURABLE_SUM, "SELECT SUM(n) FROM kv");

/* SQLite's syncs come here, too: so many of them are refused. */
static atomic_int syncs_refused;

int fdatasync(int fd)
{
	if (atomic_load(&syncs_refused) > 0) {
		atomic_fetch_sub(&syncs_refused, 1);
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_fdatasync, fd);
}

static int fill(struct tx *tx, void *arg, struct error *err)
{
	return tx_exec(tx, &DURABLE_FILL, err, B_INT(*(int *)arg)) < 0 ? -1 : 0;
}

static int change(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	return tx_exec(tx, &DURABLE_ADD, err, B_INT(3)) < 0 ? -1 : 0;
}

static int fill_and_change(struct tx *tx, void *arg, struct error *err)
{
	return fill(tx, arg, err) < 0 ? -1 : change(tx, NULL, err);
}

static int change_and_fail(struct tx *tx, void *arg, struct error *err)
{
	fill_and_change(tx, arg, err);
	return error_set(err, ERR_CONFLICT, "changed its mind");
}

static int sum(struct tx *tx, void *arg, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query(tx, &c, &DURABLE_SUM, err) < 0 || cursor_next(&c, err) < 0)
		return -1;
	*(int64_t *)arg = col_int(&c, 0);
	return 0;
}

static int64_t sum_of(struct store *s)
{
	int64_t n = -1;

	assert_done(s, db_read(s->db, sum, &n, &s->err));
	return n;
}

static void copy_file(const char *from, const char *to)
{
	_cleanup_close_ int in = open(from, O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	char bytes[65536];
	ssize_t n;

	while ((n = read(in, bytes, sizeof(bytes))) > 0)
		assert_int_equal(write(out, bytes, (size_t)n), n);
	assert_int_equal(n, 0);
}

/* The files as a machine that went down would leave them: every checksum is looked at again. */
static void assert_recovers(struct store *s, int64_t rows, int64_t total)
{
	_cleanup_free_ char *wal = xasprintf("%s-wal", s->path);
	_cleanup_free_ char *copy = xasprintf("%s/copy.db", s->dir);
	_cleanup_free_ char *copied_wal = xasprintf("%s-wal", copy);
	_cleanup_free_ char *shm = xasprintf("%s-shm", copy);
	struct store after = { .options.path = copy };
	sqlite3_stmt *stmt = NULL;
	sqlite3 *db = NULL;

	unlink(shm);
	copy_file(s->path, copy);
	copy_file(wal, copied_wal);
	assert_done(&after, db_open_known(&after.db, &after.options, kv_migrations, &after.err));
	assert_int_equal(kv_count(&after), rows);
	assert_int_equal(sum_of(&after), total);
	db_close(after.db);
	assert_int_equal(sqlite3_open(copy, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &stmt, NULL),
			 SQLITE_OK);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	assert_string_equal((const char *)sqlite3_column_text(stmt, 0), "ok");
	sqlite3_finalize(stmt);
	sqlite3_close(db);
}

static void what_does_not_fit_into_memory_is_all_there_after_the_commit(void **state)
{
	struct store *s = store_of(state);
	int64_t total = (int64_t)MANY * (MANY + 1) / 2 + 3 * MANY;
	int rows = MANY;

	assert_done(s, DB_WRITE_AS(s->db, DB_NO_FSYNC, "test", fill_and_change, &rows, &s->err));
	assert_int_equal(kv_count(s), MANY);
	assert_int_equal(sum_of(s), total);
	assert_recovers(s, MANY, total);
}

static void a_large_transaction_that_is_undone_leaves_nothing(void **state)
{
	struct store *s = store_of(state);
	struct pair pair = { "kept", 7 };
	int rows = MANY;

	assert_done(s, DB_WRITE(s->db, "test", kv_put, &pair, &s->err));
	assert_refused(s, ERR_CONFLICT, DB_WRITE(s->db, "test", change_and_fail, &rows, &s->err));
	pair = (struct pair){ "kept as well", 8 };
	assert_done(s, DB_WRITE_AS(s->db, DB_NO_FSYNC, "test", kv_put, &pair, &s->err));
	assert_int_equal(sum_of(s), 15);
	assert_recovers(s, 2, 15);
}

/* The WAL may not become longer. */
static void a_wal_that_cannot_grow_fails_the_transaction_and_not_the_next(void **state)
{
	struct store *s = store_of(state);
	_cleanup_free_ char *wal = xasprintf("%s-wal", s->path);
	struct pair pair = { "kept", 1 };
	struct rlimit old, none;
	struct stat st;
	int rows = 2000;

	signal(SIGXFSZ, SIG_IGN);
	assert_done(s, DB_WRITE(s->db, "test", kv_put, &pair, &s->err));
	assert_int_equal(stat(wal, &st), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	none = (struct rlimit){ (rlim_t)st.st_size + 3 * FRAME_BYTES, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	int r = DB_WRITE(s->db, "test", fill, &rows, &s->err);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_true(r < 0);
	assert_int_equal(kv_count(s), 1);
	assert_done(s, DB_WRITE(s->db, "test", fill, &rows, &s->err));
	assert_int_equal(kv_count(s), 2001);
	assert_recovers(s, 2001, 1 + 2000 * 2001 / 2);
}

static int put(struct store *s, enum db_promise promise, const char *key)
{
	struct pair pair = { key, 1 };

	return DB_WRITE_AS(s->db, promise, "test", kv_put, &pair, &s->err);
}

/* The database alone, without its WAL: what was in the WAL may not be on the disk. */
static int64_t rows_without_wal(struct store *s)
{
	_cleanup_free_ char *copy = xasprintf("%s/alone.db", s->dir);
	sqlite3_stmt *stmt = NULL;
	sqlite3 *db = NULL;
	int64_t rows;

	copy_file(s->path, copy);
	assert_int_equal(sqlite3_open(copy, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "SELECT COUNT(*) FROM kv", -1, &stmt, NULL),
			 SQLITE_OK);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	rows = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	return rows;
}

static void after_a_failed_sync_the_next_durable_write_stands_on_nothing_unsynced(void **state)
{
	struct store *s = store_of(state);

	assert_done(s, put(s, DB_NO_FSYNC, "before"));
	syncs_refused = 1;
	assert_refused(s, ERR_DB, put(s, DB_DURABLE, "refused"));
	assert_non_null(strstr(s->err.message, "Input/output error"));
	assert_int_equal(kv_number(s, "refused"), -1);
	assert_done(s, put(s, DB_DURABLE, "after"));
	/* What the failed sync may have dropped is in the database itself. */
	assert_int_equal(rows_without_wal(s), 1);
	assert_recovers(s, 2, 2);
}

static void durable_writes_are_refused_until_the_database_is_in_order(void **state)
{
	struct store *s = store_of(state);

	assert_done(s, put(s, DB_NO_FSYNC, "before"));
	syncs_refused = 3;
	assert_refused(s, ERR_DB, put(s, DB_DURABLE, "refused"));
	assert_refused(s, ERR_DB, put(s, DB_DURABLE, "refused again"));
	assert_non_null(strstr(s->err.message, "an earlier write did not reach the disk"));
	/* Nothing was promised about it. */
	assert_done(s, put(s, DB_NO_FSYNC, "meanwhile"));
	assert_refused(s, ERR_DB, put(s, DB_DURABLE, "refused once more"));
	assert_int_equal(syncs_refused, 0);
	assert_done(s, put(s, DB_DURABLE, "after"));
	assert_int_equal(rows_without_wal(s), 2);
	assert_recovers(s, 3, 3);
}

static void what_a_server_left_unsynced_is_in_the_database_of_the_next(void **state)
{
	struct store *s = store_of(state);
	_cleanup_free_ char *wal = xasprintf("%s-wal", s->path);
	_cleanup_free_ char *killed = xasprintf("%s/killed.db", s->dir);
	_cleanup_free_ char *killed_wal = xasprintf("%s-wal", killed);
	struct store next = { .options.path = killed, .path = killed };

	memcpy(next.dir, s->dir, sizeof(next.dir));
	assert_done(s, put(s, DB_NO_FSYNC, "before"));
	copy_file(s->path, killed);
	copy_file(wal, killed_wal);
	assert_done(&next, db_open_known(&next.db, &next.options, kv_migrations, &next.err));
	assert_int_equal(rows_without_wal(&next), 1);
	db_close(next.db);
}

struct look {
	const char *wal;
	off_t before, after; /* how long it is */
};

static off_t size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_size : -1;
}

static int fill_and_look(struct tx *tx, void *arg, struct error *err)
{
	struct look *look = arg;
	int rows = MANY;

	look->before = size_of(look->wal);
	if (fill_and_change(tx, &rows, err) < 0)
		return -1;
	look->after = size_of(look->wal);
	return 0;
}

/* A savepoint that is rolled back must not meet frames that are in the WAL already. */
static void nothing_is_written_before_the_commit_however_large_a_transaction_is(void **state)
{
	struct store *s = store_of(state);
	_cleanup_free_ char *wal = xasprintf("%s-wal", s->path);

	struct look look = { .wal = wal };

	assert_done(s, put(s, DB_DURABLE, "before"));
	assert_done(s, DB_WRITE(s->db, "test", fill_and_look, &look, &s->err));
	assert_int_equal(look.after, look.before);
	assert_int_equal(kv_count(s), MANY + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_SQLITE(what_does_not_fit_into_memory_is_all_there_after_the_commit),
		ON_SQLITE(a_large_transaction_that_is_undone_leaves_nothing),
		ON_SQLITE(a_wal_that_cannot_grow_fails_the_transaction_and_not_the_next),
		ON_SQLITE(after_a_failed_sync_the_next_durable_write_stands_on_nothing_unsynced),
		ON_SQLITE(durable_writes_are_refused_until_the_database_is_in_order),
		ON_SQLITE(what_a_server_left_unsynced_is_in_the_database_of_the_next),
		ON_SQLITE(nothing_is_written_before_the_commit_however_large_a_transaction_is),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

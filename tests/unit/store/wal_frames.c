/*
 * A transaction's frames are held back and written together. Whatever else a transaction does to
 * the WAL meanwhile, what was committed is there for every reader and after every crash.
 */
#include "store_fixture.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/text.h"
#include "store/sqlite_wal.h"

/* Several times the pages that a connection keeps: the rest goes to the WAL before the commit. */
#define MANY 40000

/* Keys in no order: pages that have just been written to the WAL are soon read from it again. */
SQL(FRAMES_FILL, "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)"
		 " INSERT INTO kv (k, n) SELECT ((i * 7919) % 1000003) || ' takes"
		 " ......................................................... room', i FROM n");
SQL(FRAMES_ADD, "UPDATE kv SET n = n + $1");
SQL(FRAMES_SUM, "SELECT SUM(n) FROM kv");

static int64_t written_calls(void)
{
	_cleanup_close_ int fd = open("/proc/self/io", O_RDONLY | O_CLOEXEC);
	char text[512] = "";
	const char *line;
	int64_t calls = -1;

	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	line = strstr(text, "syscw: ");
	assert_non_null(line);
	assert_int_equal(sscanf(line, "syscw: %ld", &calls), 1);
	return calls;
}

static int fill(struct tx *tx, void *arg, struct error *err)
{
	return tx_exec(tx, &FRAMES_FILL, err, B_INT(*(int *)arg)) < 0 ? -1 : 0;
}

static int change(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	return tx_exec(tx, &FRAMES_ADD, err, B_INT(3)) < 0 ? -1 : 0;
}

/* Every page that was written to the WAL because there was no room for it is written again. */
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

	if (tx_query(tx, &c, &FRAMES_SUM, err) < 0 || cursor_next(&c, err) < 0)
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

static void a_transaction_of_many_pages_is_written_with_few_calls(void **state)
{
	struct store *s = store_of(state);
	int rows = 200;
	int64_t before;

	assert_done(s, DB_WRITE(s->db, "test", fill, &rows, &s->err));
	before = written_calls();
	assert_done(s, DB_WRITE(s->db, "test", change, NULL, &s->err));
	assert_in_range(written_calls() - before, 1, 4);
	assert_int_equal(sum_of(s), 200 * 201 / 2 + 3 * 200);
	assert_recovers(s, rows, 200 * 201 / 2 + 3 * 200);
}

static void what_does_not_fit_into_memory_is_all_there_after_the_commit(void **state)
{
	struct store *s = store_of(state);
	int64_t total = (int64_t)MANY * (MANY + 1) / 2 + 3 * MANY;
	int rows = MANY;

	assert_done(s, DB_WRITE_AS(s->db, DB_WHILE_UP, "test", fill_and_change, &rows, &s->err));
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
	assert_done(s, DB_WRITE_AS(s->db, DB_WHILE_UP, "test", kv_put, &pair, &s->err));
	assert_int_equal(sum_of(s), 15);
	assert_recovers(s, 2, 15);
}

/* The WAL may not become longer: the write of all that was held is the one that fails. */
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
	none = (struct rlimit){ (rlim_t)st.st_size + 3 * WAL_FRAME_BYTES, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	int r = DB_WRITE(s->db, "test", fill, &rows, &s->err);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_true(r < 0);
	assert_int_equal(kv_count(s), 1);
	assert_done(s, DB_WRITE(s->db, "test", fill, &rows, &s->err));
	assert_int_equal(kv_count(s), 2001);
	assert_recovers(s, 2001, 1 + 2000 * 2001 / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_SQLITE(a_transaction_of_many_pages_is_written_with_few_calls),
		ON_SQLITE(what_does_not_fit_into_memory_is_all_there_after_the_commit),
		ON_SQLITE(a_large_transaction_that_is_undone_leaves_nothing),
		ON_SQLITE(a_wal_that_cannot_grow_fails_the_transaction_and_not_the_next),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

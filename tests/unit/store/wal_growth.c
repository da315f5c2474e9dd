/*
 * The WAL's file is longer than what is in it. Whoever reads it at any such moment, this program,
 * another or one after a crash, finds what was committed and nothing else.
 */
#include "store_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/text.h"
#include "store/sqlite_wal.h"

#define WAIT_S 20
#define STEP (256 * WAL_FRAME_BYTES) /* as sqlite_writer.c grows it */

static int put(struct store *s, const char *key)
{
	struct pair pair = { key, 1 };

	return DB_WRITE_AS(s->db, DB_WHILE_UP, "test", kv_put, &pair, &s->err);
}

static void put_rows(struct store *s, int from, int until)
{
	for (int i = from; i < until; i++) {
		char key[16];

		snprintf(key, sizeof(key), "k%05d", i);
		assert_done(s, put(s, key));
	}
}

static off_t size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_size : 0;
}

/* Where the frames end: the header's salts stand in every one that counts. */
static off_t used_of(const char *wal)
{
	_cleanup_close_ int fd = open(wal, O_RDONLY | O_CLOEXEC);
	unsigned char header[32], frame[24];
	off_t at = sizeof(header);

	assert_int_equal(pread(fd, header, sizeof(header), 0), sizeof(header));
	while (pread(fd, frame, sizeof(frame), at) == sizeof(frame) &&
	       memcmp(frame + 8, header + 16, 8) == 0)
		at += WAL_FRAME_BYTES;
	return at;
}

static void wait_until_longer_than(const char *wal, off_t size)
{
	time_t deadline = time(NULL) + WAIT_S;

	while (size_of(wal) <= size && time(NULL) < deadline)
		usleep(500);
	assert_true(size_of(wal) > size);
}

static void assert_sound(const char *path)
{
	sqlite3_stmt *stmt = NULL;
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &stmt, NULL),
			 SQLITE_OK);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	assert_string_equal((const char *)sqlite3_column_text(stmt, 0), "ok");
	sqlite3_finalize(stmt);
	sqlite3_close(db);
}

static void commits_do_not_change_the_length_of_a_wal_that_was_grown(void **state)
{
	struct store *s = store_of(state);
	_cleanup_free_ char *wal = xasprintf("%s-wal", s->path);
	off_t grown;

	put_rows(s, 0, 1);
	wait_until_longer_than(wal, used_of(wal) + STEP - 1);
	grown = size_of(wal);
	put_rows(s, 1, 20);
	assert_int_equal(size_of(wal), grown);
	assert_true(used_of(wal) > 20 * WAL_FRAME_BYTES);
	assert_int_equal(kv_count(s), 20);
}

static void the_wal_is_grown_again_before_it_is_full_and_not_beyond_its_ceiling(void **state)
{
	struct store *s = store_of(state);
	_cleanup_free_ char *wal = xasprintf("%s-wal", s->path);
	off_t grown;
	int rows = 1;

	put_rows(s, 0, rows);
	wait_until_longer_than(wal, used_of(wal));
	grown = size_of(wal);
	while (size_of(wal) == grown && rows < 2000) {
		put_rows(s, rows, rows + 1);
		rows++;
		if (grown - used_of(wal) < 32 * WAL_FRAME_BYTES)
			wait_until_longer_than(wal, grown);
	}
	assert_true(size_of(wal) > grown);
	put_rows(s, rows, 2500);
	assert_true(size_of(wal) < 12 << 20);
	assert_int_equal(kv_count(s), 2500);
}

static void copy_file(const char *from, const char *to, off_t bytes)
{
	_cleanup_close_ int in = open(from, O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	_cleanup_free_ char *text = xmalloc((size_t)bytes);

	assert_int_equal(pread(in, text, (size_t)bytes, 0), bytes);
	assert_int_equal(write(out, text, (size_t)bytes), bytes);
}

/* What a machine that went down leaves: the database and as much of the WAL as was written. */
static void assert_recovers(struct store *s, off_t wal_bytes, int rows)
{
	_cleanup_free_ char *wal = xasprintf("%s-wal", s->path);
	_cleanup_free_ char *copy = xasprintf("%s/copy.db", s->dir);
	_cleanup_free_ char *copied_wal = xasprintf("%s-wal", copy);
	_cleanup_free_ char *shm = xasprintf("%s-shm", copy);
	struct store after = { .options.path = copy };

	unlink(shm);
	copy_file(s->path, copy, size_of(s->path));
	copy_file(wal, copied_wal, wal_bytes);
	assert_done(&after, db_open_known(&after.db, &after.options, kv_migrations, &after.err));
	assert_int_equal(kv_count(&after), rows);
	put_rows(&after, rows, rows + 5);
	assert_int_equal(kv_count(&after), rows + 5);
	db_close(after.db);
	assert_sound(copy);
}

static void nothing_is_lost_wherever_growing_was_cut_off(void **state)
{
	struct store *s = store_of(state);
	_cleanup_free_ char *wal = xasprintf("%s-wal", s->path);
	off_t used;

	put_rows(s, 0, 30);
	wait_until_longer_than(wal, used_of(wal));
	put_rows(s, 30, 35);
	used = used_of(wal);
	assert_recovers(s, used, 35);
	assert_recovers(s, used + 1, 35);
	assert_recovers(s, used + 24, 35);
	assert_recovers(s, used + WAL_FRAME_BYTES, 35);
	assert_recovers(s, used + 3 * WAL_FRAME_BYTES + 4096, 35);
	assert_recovers(s, size_of(wal), 35);
}

/* A writer that says how many rows it has and goes on when told. */
static int role_write(const char *path)
{
	struct store s = { .options.path = path };
	char c;

	if (db_open_known(&s.db, &s.options, kv_migrations, &s.err) < 0)
		return 1;
	while (read(STDIN_FILENO, &c, 1) == 1) {
		char key[16];

		snprintf(key, sizeof(key), "killed%lld", (long long)kv_count(&s));
		if (put(&s, key) < 0 || write(STDOUT_FILENO, "!", 1) != 1)
			return 1;
	}
	db_close(s.db);
	return 0;
}

/* Killed as soon as the file is seen to grow, which mostly is in the middle of it. */
static void a_server_killed_while_it_grows_the_wal_has_lost_nothing(void **state)
{
	struct store *s = store_of(state);
	_cleanup_free_ char *wal = xasprintf("%s-wal", s->path);

	for (int round = 1; round <= 3; round++) {
		int to = -1, from = -1, status = 0;
		off_t before;
		char c;

		db_close(s->db);
		s->db = NULL;
		unlink(wal);
		pid_t pid = role_start("write", s->path, NULL, &to, &from);

		assert_int_equal(write(to, "!", 1), 1);
		assert_int_equal(read(from, &c, 1), 1);
		before = used_of(wal);
		wait_until_longer_than(wal, before);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		close(to);
		close(from);
		assert_sound(s->path);
		assert_done(s, store_reopen(s, kv_migrations));
		assert_int_equal(kv_count(s), round);
	}
}

static void what_another_program_is_writing_is_not_written_over(void **state)
{
	struct store *s = store_of(state);
	_cleanup_free_ char *wal = xasprintf("%s-wal", s->path);
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(s->path, &db), SQLITE_OK);
	for (int i = 0; i < 200; i++) {
		char *text = sqlite3_mprintf("INSERT INTO kv VALUES ('theirs%d', 1)", i);

		assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
		sqlite3_free(text);
		if (i % 20 == 0)
			put_rows(s, i, i + 1);
	}
	sqlite3_close(db);
	put_rows(s, 1000, 1001);
	wait_until_longer_than(wal, used_of(wal));
	assert_int_equal(kv_count(s), 211);
	db_close(s->db);
	s->db = NULL;
	assert_sound(s->path);
}

int main(int argc, char **argv)
{
	if (argc == 3 && streq(argv[1], "write"))
		return role_write(argv[2]);

	const struct CMUnitTest tests[] = {
		ON_SQLITE(commits_do_not_change_the_length_of_a_wal_that_was_grown),
		ON_SQLITE(the_wal_is_grown_again_before_it_is_full_and_not_beyond_its_ceiling),
		ON_SQLITE(nothing_is_lost_wherever_growing_was_cut_off),
		ON_SQLITE(a_server_killed_while_it_grows_the_wal_has_lost_nothing),
		ON_SQLITE(what_another_program_is_writing_is_not_written_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

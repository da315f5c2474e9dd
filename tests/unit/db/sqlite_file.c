#include "store_fixture.h"

#include <fcntl.h>
#include <pthread.h>
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
#include "db/restore.h"

static int put(struct store *s, const char *key)
{
	struct pair pair = { key, 1 };
	return DB_WRITE(s->db, "test", kv_put, &pair, &s->err);
}

/* Another program that takes the write lock and keeps it until its stdin ends. */
static int role_hold_lock(const char *path)
{
	sqlite3 *db = NULL;
	char c = 0;
	if (sqlite3_open(path, &db) != SQLITE_OK ||
	    sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL) != SQLITE_OK)
		return 1;
	if (write(STDOUT_FILENO, "!", 1) != 1 || read(STDIN_FILENO, &c, 1) != 0)
		return 1;
	sqlite3_close(db);
	return 0;
}

static int put_acknowledged(struct store *s, const char *key)
{
	int r = put(s, key);
	return r == 0 && write(STDOUT_FILENO, "!", 1) == 1 ? 0 : -1;
}

/* Writes one row through a fault point that kills it. */
static int role_write(const char *path)
{
	struct store s = { .options.path = path };
	if (fault_init(getenv("BERTH_FAULT"), &s.err) < 0 ||
	    db_open_known(&s.db, &s.options, kv_migrations, &s.err) < 0 ||
	    put_acknowledged(&s, "killed") < 0)
		return 1;
	db_close(s.db);
	return 0;
}

static void *close_soon(void *arg)
{
	/* Long enough for the write to meet the lock; were it late, the test would only prove less.
	 */
	usleep(50 * 1000);
	close(*(int *)arg);
	return NULL;
}

static void a_lock_of_another_process_is_waited_for(void **state)
{
	struct store *s = store_of(state);
	int to = -1;
	int from = -1;
	char c = 0;
	s->options.busy_timeout_ms = 30000;
	assert_done(s, store_reopen(s, kv_migrations));
	pid_t holder = role_start("hold-lock", s->path, NULL, &to, &from);
	assert_int_equal(read(from, &c, 1), 1);
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, close_soon, &to), 0);
	assert_done(s, put(s, "a"));
	pthread_join(thread, NULL);
	close(from);
	assert_int_equal(waitpid(holder, NULL, 0), holder);
}

static void a_file_locked_by_another_process_is_busy_and_then_usable_again(void **state)
{
	struct store *s = store_of(state);
	int to = -1;
	int from = -1;
	char c = 0;
	pid_t holder = role_start("hold-lock", s->path, NULL, &to, &from);
	assert_int_equal(read(from, &c, 1), 1);

	assert_refused(s, ERR_DB_BUSY, put(s, "a"));
	assert_non_null(strstr(s->err.message, "locked by another process"));
	/* Readers go on meanwhile. */
	assert_int_equal(kv_count(s), 0);

	close(to);
	close(from);
	int status = -1;
	assert_int_equal(waitpid(holder, &status, 0), holder);
	assert_int_equal(status, 0);
	assert_done(s, put(s, "a"));
	assert_int_equal(kv_count(s), 1);
}

static void kill_at(struct store *s, const char *fault)
{
	int to = -1;
	int from = -1;
	char c = 0;
	db_close(s->db);
	s->db = NULL;
	pid_t pid = role_start("write", s->path, fault, &to, &from);
	assert_int_equal(read(from, &c, 1), 0);
	int status = 0;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	close(to);
	close(from);
	assert_done(s, store_reopen(s, kv_migrations));
}

static void a_kill_before_the_write_loses_it_and_one_after_the_commit_does_not(void **state)
{
	struct store *s = store_of(state);
	kill_at(s, "db.test.before:kill");
	assert_int_equal(kv_number(s, "killed"), -1);
	kill_at(s, "db.test.after:kill");
	assert_int_equal(kv_number(s, "killed"), 1);
}

static void overwrite(const char *path, off_t offset, size_t len)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
	_cleanup_free_ char *junk = xcalloc(1, len);
	memset(junk, 0x5a, len);
	assert_int_equal(pwrite(fd, junk, len, offset), (ssize_t)len);
}

static void assert_says_what_to_do(struct store *s)
{
	assert_int_equal(s->err.code, ERR_DB);
	assert_non_null(strstr(s->err.message, s->path));
	assert_non_null(strstr(s->err.message, "damaged"));
	assert_non_null(strstr(s->err.message, "berth backup"));
}

static void a_damaged_file_says_what_to_do(void **state)
{
	struct store *s = store_of(state);
	assert_done(s, put(s, "a"));
	db_close(s->db);
	s->db = NULL;
	overwrite(s->path, 0, 100);
	assert_int_equal(store_reopen(s, kv_migrations), -1);
	assert_says_what_to_do(s);
}

static int read_all(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	return tx_exec(tx, &KV_LIST, err) < 0 ? -1 : 0;
}

static void damage_inside_the_file_is_told_by_the_read_that_meets_it(void **state)
{
	struct store *s = store_of(state);
	for (int i = 0; i < 500; i++) {
		char key[200];
		snprintf(key, sizeof(key), "%0150d", i);
		assert_done(s, put(s, key));
	}
	db_close(s->db);
	s->db = NULL;
	struct stat st;
	assert_int_equal(stat(s->path, &st), 0);
	/* All but the first pages, which hold the schema and its version. */
	overwrite(s->path, 4096 * 4, (size_t)st.st_size - 4096 * 4);
	assert_done(s, store_reopen(s, kv_migrations));
	assert_int_equal(db_read(s->db, read_all, NULL, &s->err), -1);
	assert_says_what_to_do(s);
}

static void a_directory_that_is_not_there_is_named(void **state)
{
	struct store *s = store_of(state);
	struct db *db = NULL;
	struct db_options options = { .path = "/nonexistent/berth.db" };
	assert_refused(s, ERR_IO, db_open(&db, &options, &s->err));
	assert_non_null(strstr(s->err.message, "/nonexistent/berth.db"));
	assert_null(db);
}

static void the_database_and_its_companions_are_private(void **state)
{
	struct store *s = store_of(state);
	static const char *const suffixes[] = { "", "-wal", "-shm" };
	assert_done(s, put(s, "a"));
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		struct stat st;
		_cleanup_free_ char *path = xasprintf("%s%s", s->path, suffixes[i]);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 0777, 0600);
	}
}

struct busy_writer {
	struct store *store;
	bool stop;
	int written;
};

static void *keep_writing(void *arg)
{
	struct busy_writer *w = arg;
	while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		char key[32];
		_cleanup_error_ struct error err = { 0 };
		snprintf(key, sizeof(key), "k%d", w->written);
		struct pair pair = { key, 1 };
		if (DB_WRITE(w->store->db, "test", kv_put, &pair, &err) == 0)
			__atomic_add_fetch(&w->written, 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void a_copy_taken_while_writing_is_one_moment_of_the_database(void **state)
{
	struct store *s = store_of(state);
	struct busy_writer w = { .store = s };
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, keep_writing, &w), 0);
	while (__atomic_load_n(&w.written, __ATOMIC_ACQUIRE) < 20)
		usleep(500);
	_cleanup_free_ char *copy = xasprintf("%s/copy.db", s->dir);
	int before = __atomic_load_n(&w.written, __ATOMIC_ACQUIRE);
	assert_done(s, db_backup(s->db, copy, &s->err));
	int after = __atomic_load_n(&w.written, __ATOMIC_ACQUIRE);
	__atomic_store_n(&w.stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);

	db_close(s->db);
	s->db = NULL;
	struct db_options options = { .path = copy };
	assert_done(s, db_open_known(&s->db, &options, kv_migrations, &s->err));
	int64_t count = kv_count(s);
	assert_in_range(count, before, after + 1);
	/* No gap: the first `count` keys are there. */
	char last[32];
	snprintf(last, sizeof(last), "k%d", (int)count - 1);
	assert_int_equal(kv_number(s, last), 1);
}

static void make_file(const struct store *s, const char *name, int64_t age_s)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", s->dir, name);
	const struct timespec times[2] = { { .tv_sec = time(NULL) - age_s },
					   { .tv_sec = time(NULL) - age_s } };
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	futimens(fd, times);
	close(fd);
}

static bool is_there(const struct store *s, const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", s->dir, name);

	return access(path, F_OK) == 0;
}

static void what_a_killed_backup_left_goes_and_nothing_else(void **state)
{
	struct store *s = store_of(state);
	static const char *const OLD = "copy.db.019f0000-0000-7000-8000-00000000000a.tmp";
	static const char *const YOUNG = "copy.db.019f0000-0000-7000-8000-00000000000b.tmp";
	static const char *const THEIRS[] = {
		"copy.db.tmp",
		"019f0000-0000-7000-8000-00000000000a.tmp",
		".019f0000-0000-7000-8000-00000000000a.tmp",
		"copy.db-019f0000-0000-7000-8000-00000000000a.tmp",
		"copy.db.019f0000-0000-7000-8000-00000000000a.tmp.kept",
	};

	make_file(s, OLD, 7200);
	make_file(s, YOUNG, 10);
	for (size_t i = 0; i < ARRAY_SIZE(THEIRS); i++)
		make_file(s, THEIRS[i], 7200);
	assert_int_equal(db_backup_sweep(s->dir, 3600), 1);
	assert_false(is_there(s, OLD));
	assert_int_equal(db_backup_sweep(s->dir, 0), 1);
	assert_false(is_there(s, YOUNG));
	for (size_t i = 0; i < ARRAY_SIZE(THEIRS); i++)
		assert_true(is_there(s, THEIRS[i]));
	assert_int_equal(access(s->path, F_OK), 0);
	assert_int_equal(db_backup_sweep("/nonexistent", 0), 0);
}

static void a_copy_onto_the_database_itself_is_refused(void **state)
{
	struct store *s = store_of(state);
	_cleanup_free_ char *link_path = xasprintf("%s/link.db", s->dir);
	assert_int_equal(link(s->path, link_path), 0);
	assert_refused(s, ERR_BAD_PATH, db_backup(s->db, s->path, &s->err));
	assert_refused(s, ERR_BAD_PATH, db_backup(s->db, link_path, &s->err));
	assert_done(s, put(s, "a"));
}

static void a_copy_of_postgresql_is_refused_with_the_right_command(void **state)
{
	struct store *s = store_of(state);
	assert_refused(s, ERR_UNPROCESSABLE, db_backup(s->db, "/tmp/copy", &s->err));
	assert_non_null(strstr(s->err.message, "pg_dump"));
}

static void who_wrote_reads_it_at_once(void **state)
{
	struct store *s = store_of(state);
	char key[16];

	for (int i = 0; i < 200; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		assert_done(s, put(s, key));
		assert_int_equal(kv_count(s), i + 1);
		assert_int_equal(kv_count(s), i + 1);
	}
}

static void what_another_program_writes_is_seen(void **state)
{
	struct store *s = store_of(state);
	sqlite3 *db = NULL;

	assert_int_equal(kv_count(s), 0);
	assert_int_equal(sqlite3_open(s->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "INSERT INTO kv VALUES ('theirs', 1)", NULL, NULL, NULL),
			 SQLITE_OK);
	sqlite3_close(db);
	for (int i = 0; i < 1000 && kv_count(s) == 0; i++)
		usleep(1000);
	assert_int_equal(kv_count(s), 1);
}

/* Readers that nobody uses any more must not keep the WAL from being emptied. */
static void idle_readers_do_not_make_the_wal_grow(void **state)
{
	struct store *s = store_of(state);
	_cleanup_free_ char *wal = xasprintf("%s-wal", s->path);
	_cleanup_free_ char *key = xcalloc(1, 20001);
	struct stat st;

	memset(key, 'k', 20000);
	kv_count(s);
	/* About 4 pages each, of which a checkpoint takes 4,000. */
	for (int i = 0; i < 3000; i++) {
		snprintf(key, 8, "%07d", i);
		key[7] = 'k';
		assert_done(s, put(s, key));
		if (i == 10)
			kv_count(s);
	}
	assert_int_equal(stat(wal, &st), 0);
	assert_true(st.st_size < 60 << 20);
}

int main(int argc, char **argv)
{
	if (argc == 3 && streq(argv[1], "hold-lock"))
		return role_hold_lock(argv[2]);
	if (argc == 3 && streq(argv[1], "write"))
		return role_write(argv[2]);

	const struct CMUnitTest tests[] = {
		ON_SQLITE(a_lock_of_another_process_is_waited_for),
		ON_SQLITE(a_file_locked_by_another_process_is_busy_and_then_usable_again),
		ON_SQLITE(a_kill_before_the_write_loses_it_and_one_after_the_commit_does_not),
		ON_SQLITE(a_damaged_file_says_what_to_do),
		ON_SQLITE(damage_inside_the_file_is_told_by_the_read_that_meets_it),
		ON_SQLITE(a_directory_that_is_not_there_is_named),
		ON_SQLITE(the_database_and_its_companions_are_private),
		ON_SQLITE(a_copy_taken_while_writing_is_one_moment_of_the_database),
		ON_SQLITE(who_wrote_reads_it_at_once),
		ON_SQLITE(what_another_program_writes_is_seen),
		ON_SQLITE(idle_readers_do_not_make_the_wal_grow),
		ON_SQLITE(what_a_killed_backup_left_goes_and_nothing_else),
		ON_SQLITE(a_copy_onto_the_database_itself_is_refused),
		ON_POSTGRES(a_copy_of_postgresql_is_refused_with_the_right_command),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "store_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/hash.h"
#include "base/text.h"
#include "pg_fixture.h"

static const char *const first[] = {
	"CREATE TABLE kv (k TEXT NOT NULL PRIMARY KEY, n BIGINT) STRICT", NULL
};
static const char *const second[] = { "ALTER TABLE kv ADD COLUMN note TEXT",
				      "INSERT INTO kv (k, n, note) VALUES ('second', 2, 'TEXT')",
				      NULL };
static const char *const broken[] = { "INSERT INTO kv (k, n) VALUES ('broken', 3)",
				      "CREATE TABLE kv (k TEXT)", NULL };
static const struct migration up_to_2[] = { { 1, first }, { 2, second }, { 0, NULL } };
static const struct migration broken_2[] = { { 1, first }, { 2, broken }, { 0, NULL } };

static void put(struct store *s, const char *key, int64_t number)
{
	struct pair pair = { key, number };
	assert_done(s, DB_WRITE(s->db, "test", kv_put, &pair, &s->err));
}

static void words_of_the_schema_are_written_per_dialect(void **state)
{
	(void)state;
	const char *text = "CREATE TABLE t (a TEXT DEFAULT 'TEXT BIGINT', \"TEXT\" BIGINT, "
			   "CONTEXT TEXT_ TEXT) STRICT";
	_cleanup_buf_ struct buf sqlite = { 0 };
	_cleanup_buf_ struct buf postgres = { 0 };
	ddl_render(&sqlite, text, DIALECT_SQLITE);
	ddl_render(&postgres, text, DIALECT_POSTGRES);
	assert_string_equal(buf_str(&sqlite),
			    "CREATE TABLE t (a TEXT DEFAULT 'TEXT BIGINT', \"TEXT\" INTEGER, "
			    "CONTEXT TEXT_ TEXT) STRICT");
	assert_string_equal(buf_str(&postgres),
			    "CREATE TABLE t (a TEXT COLLATE \"C\" DEFAULT 'TEXT BIGINT', \"TEXT\" "
			    "BIGINT, CONTEXT TEXT_ TEXT COLLATE \"C\") ");
}

static void opening_brings_the_schema_up_to_date_and_keeps_the_rows(void **state)
{
	struct store *s = store_of(state);
	put(s, "mine", 1);
	assert_done(s, store_reopen(s, up_to_2));
	assert_int_equal(kv_number(s, "mine"), 1);
	assert_int_equal(kv_number(s, "second"), 2);
	/* A second time there is nothing to do. */
	assert_done(s, store_reopen(s, up_to_2));
	assert_int_equal(kv_count(s), 2);
}

static void a_migration_that_fails_leaves_the_old_schema_whole(void **state)
{
	struct store *s = store_of(state);
	put(s, "mine", 1);
	assert_int_equal(store_reopen(s, broken_2), -1);
	assert_non_null(strstr(s->err.message, "migration 2"));
	assert_null(s->db);
	assert_done(s, store_reopen(s, kv_migrations));
	assert_int_equal(kv_count(s), 1);
}

static void a_newer_schema_is_refused_with_both_versions(void **state)
{
	struct store *s = store_of(state);
	put(s, "mine", 1);
	assert_done(s, store_reopen(s, up_to_2));
	assert_refused(s, ERR_DB_SCHEMA, store_reopen(s, kv_migrations));
	assert_non_null(strstr(s->err.message, "version 2"));
	assert_non_null(strstr(s->err.message, "up to 1"));
	assert_done(s, store_reopen(s, up_to_2));
	assert_int_equal(kv_count(s), 2);
}

static void hash_file(const char *path, char hex[SHA256_HEX_SIZE])
{
	_cleanup_buf_ struct buf content = { 0 };
	_cleanup_error_ struct error err = { 0 };
	if (file_read(AT_FDCWD, path, &content, 16 << 20, &err) < 0)
		fail_msg("%s", err.message);
	sha256_hex(content.data, content.len, hex);
}

static void refusing_a_newer_file_does_not_change_a_byte_of_it(void **state)
{
	struct store *s = store_of(state);
	char before[SHA256_HEX_SIZE];
	char after[SHA256_HEX_SIZE];
	assert_done(s, store_reopen(s, up_to_2));
	db_close(s->db);
	s->db = NULL;
	hash_file(s->path, before);
	assert_refused(s, ERR_DB_SCHEMA, store_reopen(s, kv_migrations));
	hash_file(s->path, after);
	assert_string_equal(before, after);
}

static void a_file_with_the_tables_of_somebody_else_is_left_alone(void **state)
{
	struct store *s = store_of(state);
	char before[SHA256_HEX_SIZE];
	char after[SHA256_HEX_SIZE];
	db_close(s->db);
	s->db = NULL;
	unlink(s->path);
	sqlite3 *foreign = NULL;
	assert_int_equal(sqlite3_open(s->path, &foreign), SQLITE_OK);
	assert_int_equal(sqlite3_exec(foreign, "CREATE TABLE diary (day TEXT)", NULL, NULL, NULL),
			 SQLITE_OK);
	sqlite3_close(foreign);
	hash_file(s->path, before);
	assert_refused(s, ERR_DB_SCHEMA, store_reopen(s, kv_migrations));
	hash_file(s->path, after);
	assert_string_equal(before, after);
}

/* The name of the one file in dir that is a copy from before a migration; the caller frees it. */
static char *find_copy(const char *dir)
{
	char *found = NULL;
	DIR *d = opendir(dir);
	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));) {
		if (str_ends(e->d_name, ".bak")) {
			assert_null(found);
			found = xasprintf("%s/%s", dir, e->d_name);
		}
		assert_false(str_ends(e->d_name, ".tmp"));
	}
	closedir(d);
	return found;
}

static void check_copy(struct store *s, const char *copy)
{
	struct stat st;
	assert_int_equal(stat(copy, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	db_close(s->db);
	s->db = NULL;
	struct db_options options = { .path = copy };
	assert_done(s, db_open_known(&s->db, &options, kv_migrations, &s->err));
	assert_int_equal(kv_number(s, "mine"), 1);
	assert_int_equal(kv_number(s, "second"), -1);
}

static void a_copy_of_the_old_version_is_kept_before_migrating(void **state)
{
	struct store *s = store_of(state);
	assert_null(find_copy(s->dir));
	put(s, "mine", 1);
	assert_done(s, store_reopen(s, up_to_2));
	_cleanup_free_ char *copy = find_copy(s->dir);
	assert_non_null(copy);
	assert_non_null(strstr(copy, "/berth.db.v1.2"));
	check_copy(s, copy);
}

static void the_copy_goes_where_it_is_asked_to(void **state)
{
	struct store *s = store_of(state);
	_cleanup_free_ char *dir = xasprintf("%s/copies", s->dir);
	assert_int_equal(mkdir(dir, 0700), 0);
	s->options.backup_dir = dir;
	put(s, "mine", 1);
	assert_done(s, store_reopen(s, up_to_2));
	assert_null(find_copy(s->dir));
	_cleanup_free_ char *copy = find_copy(dir);
	assert_non_null(copy);
	check_copy(s, copy);
	s->options.backup_dir = NULL;
}

static void without_the_copy_nothing_is_migrated(void **state)
{
	struct store *s = store_of(state);
	s->options.backup_dir = "/nonexistent/copies";
	put(s, "mine", 1);
	assert_int_equal(store_reopen(s, up_to_2), -1);
	assert_non_null(strstr(s->err.message, "copy before migrating"));
	s->options.backup_dir = NULL;
	assert_done(s, store_reopen(s, kv_migrations));
	assert_int_equal(kv_count(s), 1);
}

struct opener {
	const struct db_options *options;
	const struct migration *known;
	pthread_barrier_t *all;
	int result;
	struct error err;
	pthread_t thread;
};

static void *open_and_close(void *arg)
{
	struct opener *o = arg;
	struct db *db = NULL;
	pthread_barrier_wait(o->all);
	o->result = db_open_known(&db, o->options, o->known, &o->err);
	db_close(db);
	return NULL;
}

static void open_at_once(const struct db_options *options, const struct migration *known)
{
	struct opener openers[4];
	pthread_barrier_t all;
	pthread_barrier_init(&all, NULL, ARRAY_SIZE(openers));
	for (size_t i = 0; i < ARRAY_SIZE(openers); i++) {
		openers[i] = (struct opener){ .options = options, .known = known, .all = &all };
		assert_int_equal(
			pthread_create(&openers[i].thread, NULL, open_and_close, &openers[i]), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(openers); i++) {
		pthread_join(openers[i].thread, NULL);
		if (openers[i].result < 0)
			fail_msg("%s", openers[i].err.message);
	}
	pthread_barrier_destroy(&all);
}

static void several_nodes_may_open_an_old_database_at_once(void **state)
{
	struct store *s = store_of(state);
	s->options.busy_timeout_ms = 5000;
	open_at_once(&s->options, up_to_2);
	assert_int_equal(kv_count(s), 1);
}

static const char *const slow[] = { "SELECT pg_sleep(0.3)",
				    "CREATE TABLE kv (k TEXT NOT NULL PRIMARY KEY, n BIGINT)",
				    "INSERT INTO kv (k, n) VALUES ('slow', 1)", NULL };
static const struct migration slowly[] = { { 1, slow }, { 0, NULL } };

static void several_nodes_may_start_on_an_empty_database_at_once(void **state)
{
	struct store *s = store_of(state);
	free(s->url);
	s->url = pg_fixture_new_database();
	s->options.url = s->url;
	open_at_once(&s->options, slowly);
	assert_done(s, store_reopen(s, slowly));
	assert_int_equal(kv_count(s), 1);
}

#define ON_BOTH(test) ON_SQLITE(test), ON_POSTGRES(test)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_of_the_schema_are_written_per_dialect),
		ON_BOTH(opening_brings_the_schema_up_to_date_and_keeps_the_rows),
		ON_BOTH(a_migration_that_fails_leaves_the_old_schema_whole),
		ON_BOTH(a_newer_schema_is_refused_with_both_versions),
		ON_SQLITE(refusing_a_newer_file_does_not_change_a_byte_of_it),
		ON_SQLITE(a_file_with_the_tables_of_somebody_else_is_left_alone),
		ON_SQLITE(a_copy_of_the_old_version_is_kept_before_migrating),
		ON_SQLITE(the_copy_goes_where_it_is_asked_to),
		ON_SQLITE(without_the_copy_nothing_is_migrated),
		ON_BOTH(several_nodes_may_open_an_old_database_at_once),
		ON_POSTGRES(several_nodes_may_start_on_an_empty_database_at_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

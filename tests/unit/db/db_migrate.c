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
#include "base/sha256.h"
#include "base/json.h"
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

SQL(ADD_COMPANY, "INSERT INTO companies (id, name, created_at, updated_at)"
		 " VALUES ($1, $1, 1, 1)");
SQL(ADD_ENVIRONMENT, "INSERT INTO environments (id, company_id, name, created_at, updated_at,"
		     " driver) VALUES ($1, $2, $3, $4, $4, 'ssh')");
SQL(NAME_OF, "SELECT name FROM environments WHERE id = $1");

#define ENVIRONMENT(n) "0000000" #n "-0000-7000-8000-00000000000" #n

static int add_namesakes(struct tx *tx, void *arg, struct error *err)
{
	static const struct {
		const char *id, *company, *name;
		int64_t made;
	} ROWS[] = {
		{ ENVIRONMENT(1), "a", "Box", 5 }, { ENVIRONMENT(2), "a", "Box", 4 },
		{ ENVIRONMENT(3), "a", "Box", 4 }, { ENVIRONMENT(4), "b", "Box", 9 },
		{ ENVIRONMENT(5), "a", "box", 1 },
	};

	(void)arg;
	if (tx_exec(tx, &ADD_COMPANY, err, B_TEXT("a")) < 0 ||
	    tx_exec(tx, &ADD_COMPANY, err, B_TEXT("b")) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(ROWS); i++) {
		if (tx_exec(tx, &ADD_ENVIRONMENT, err, B_TEXT(ROWS[i].id), B_TEXT(ROWS[i].company),
			    B_TEXT(ROWS[i].name), B_INT(ROWS[i].made)) < 0)
			return -1;
	}
	return 0;
}

struct naming {
	const char *id;
	char name[64];
};

static int read_name(struct tx *tx, void *arg, struct error *err)
{
	struct naming *naming = arg;
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query(tx, &c, &NAME_OF, err, B_TEXT(naming->id)) < 0 || cursor_next(&c, err) <= 0)
		return -1;
	snprintf(naming->name, sizeof(naming->name), "%s", col_text(&c, 0));
	return 0;
}

/* An empty database instead of the one with kv. */
static void begin_anew(struct store *s)
{
	free(s->path);
	free(s->url);
	s->path = s->options.url ? NULL : xasprintf("%s/other.db", s->dir);
	s->url = s->options.url ? pg_fixture_new_database() : NULL;
	s->options.path = s->path;
	s->options.url = s->url;
}

static void environments_of_one_name_are_renamed_and_the_oldest_keeps_it(void **state)
{
	static const char *const NAMES[] = { "Box (00000001)", "Box", "Box (00000003)", "Box",
					     "box" };
	static const char *const IDS[] = { ENVIRONMENT(1), ENVIRONMENT(2), ENVIRONMENT(3),
					   ENVIRONMENT(4), ENVIRONMENT(5) };
	struct store *s = store_of(state);
	struct migration before[64] = { 0 };

	for (size_t i = 0; migrations[i].version != 11; i++)
		before[i] = migrations[i];
	begin_anew(s);
	assert_done(s, store_reopen(s, before));
	assert_done(s, DB_WRITE(s->db, "test", add_namesakes, NULL, &s->err));
	assert_done(s, store_reopen(s, migrations));
	for (size_t i = 0; i < ARRAY_SIZE(IDS); i++) {
		struct naming naming = { .id = IDS[i] };

		assert_done(s, db_read(s->db, read_name, &naming, &s->err));
		assert_string_equal(naming.name, NAMES[i]);
	}
}

SQL(ADD_PLACE, "INSERT INTO places (id, company_id, driver, provider, provider_ref, scope,"
	       " fingerprint, state, generation, epoch, node_id, boot_epoch, boot_id, fencing,"
	       " discoverable, config, metadata, created_at, updated_at)"
	       " VALUES ($1, $2, 'sandbox', 'native', $1, '', '', 'held', 1, 1, 'n', 1, 'b',"
	       " 'place', 1, $3, $4, 1, 1)");
SQL(ADD_LEASE, "INSERT INTO leases (id, company_id, place_id, generation, status, lease_policy,"
	       " acquired_at, last_used_at, metadata, node_id, boot_epoch, created_at, updated_at)"
	       " VALUES ($1, $2, $3, 1, 'active', 'ephemeral', 1, 1, $4, 'n', 1, 1, 1)");
SQL(ADD_RUN, "INSERT INTO runs (id, company_id, status, command, env, stdin, node_id, boot_epoch,"
	     " created_at, updated_at) VALUES ($1, $2, 'queued', '[]', $3, $4, 'n', 1, 1, 1)");
SQL(READ_PLACE, "SELECT config, metadata FROM places WHERE id = $1");
SQL(READ_LEASE, "SELECT metadata, metadata FROM leases WHERE id = $1");
SQL(COUNT_SECRETS, "SELECT secrets FROM runs WHERE id = $1");

#define CONFIG "{\"provider\":\"native\",\"env\":{\"KEY\":\"canary\"},\"root\":\"host\"}"

static int add_secrets(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	return tx_exec(tx, &ADD_COMPANY, err, B_TEXT("acme")) < 0 ||
			       tx_exec(tx, &ADD_PLACE, err, B_TEXT("with"), B_TEXT("acme"),
				       B_TEXT(CONFIG), B_TEXT(CONFIG)) < 0 ||
			       tx_exec(tx, &ADD_PLACE, err, B_TEXT("without"), B_TEXT("acme"),
				       B_TEXT("{\"provider\":\"native\"}"), B_TEXT("{}")) < 0 ||
			       tx_exec(tx, &ADD_LEASE, err, B_TEXT("lease"), B_TEXT("acme"),
				       B_TEXT("with"), B_TEXT(CONFIG)) < 0 ||
			       tx_exec(tx, &ADD_RUN, err, B_TEXT("plain"), B_TEXT("acme"),
				       B_TEXT("{}"), B_NULL) < 0 ||
			       tx_exec(tx, &ADD_RUN, err, B_TEXT("env"), B_TEXT("acme"),
				       B_TEXT("{\"KEY\":\"canary\"}"), B_NULL) < 0 ||
			       tx_exec(tx, &ADD_RUN, err, B_TEXT("stdin"), B_TEXT("acme"),
				       B_TEXT("{}"), B_TEXT("canary")) < 0
		       ? -1
		       : 0;
}

struct row {
	const struct sql *sql;
	const char *id;
	json_t *first, *second;
	int64_t number;
};

static int read_objects(struct tx *tx, void *arg, struct error *err)
{
	struct row *row = arg;
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query(tx, &c, row->sql, err, B_TEXT(row->id)) < 0 || cursor_next(&c, err) <= 0)
		return -1;
	row->first = json_parse(col_text(&c, 0), strlen(col_text(&c, 0)), NULL);
	row->second = json_parse(col_text(&c, 1), strlen(col_text(&c, 1)), NULL);
	return 0;
}

static int read_count(struct tx *tx, void *arg, struct error *err)
{
	struct row *row = arg;
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query(tx, &c, row->sql, err, B_TEXT(row->id)) < 0 || cursor_next(&c, err) <= 0)
		return -1;
	row->number = col_int(&c, 0);
	return 0;
}

static void copies_of_env_go_from_places_and_leases_and_runs_are_marked(void **state)
{
	struct store *s = store_of(state);
	struct migration before[64] = { 0 };
	struct row with = { .sql = &READ_PLACE, .id = "with" },
		   without = { .sql = &READ_PLACE, .id = "without" },
		   lease = { .sql = &READ_LEASE, .id = "lease" },
		   runs[] = { { .sql = &COUNT_SECRETS, .id = "plain" },
			      { .sql = &COUNT_SECRETS, .id = "env" },
			      { .sql = &COUNT_SECRETS, .id = "stdin" } };

	for (size_t i = 0; migrations[i].version != 12; i++)
		before[i] = migrations[i];
	begin_anew(s);
	assert_done(s, store_reopen(s, before));
	assert_done(s, DB_WRITE(s->db, "test", add_secrets, NULL, &s->err));
	assert_done(s, store_reopen(s, migrations));
	assert_done(s, db_read(s->db, read_objects, &with, &s->err));
	assert_done(s, db_read(s->db, read_objects, &without, &s->err));
	assert_done(s, db_read(s->db, read_objects, &lease, &s->err));
	assert_null(json_object_get(with.first, "env"));
	assert_true(json_is_true(json_object_get(with.first, "envOfEnvironment")));
	assert_string_equal(json_str(with.first, "root"), "host");
	assert_null(json_object_get(with.second, "env"));
	assert_string_equal(json_str(with.second, "root"), "host");
	assert_int_equal(json_object_size(without.first), 1);
	assert_null(json_object_get(lease.first, "env"));
	assert_string_equal(json_str(lease.first, "provider"), "native");
	for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
		assert_done(s, db_read(s->db, read_count, &runs[i], &s->err));
		assert_int_equal(runs[i].number, i > 0);
	}
	json_decref(with.first);
	json_decref(with.second);
	json_decref(without.first);
	json_decref(without.second);
	json_decref(lease.first);
	json_decref(lease.second);
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
		ON_BOTH(environments_of_one_name_are_renamed_and_the_oldest_keeps_it),
		ON_BOTH(copies_of_env_go_from_places_and_leases_and_runs_are_marked),
		ON_BOTH(several_nodes_may_open_an_old_database_at_once),
		ON_POSTGRES(several_nodes_may_start_on_an_empty_database_at_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

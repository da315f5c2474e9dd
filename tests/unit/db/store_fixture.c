#include "store_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/spawn.h"
#include "pg_fixture.h"

static const char *const kv_table[] = {
	"CREATE TABLE kv (k TEXT NOT NULL PRIMARY KEY, n BIGINT) STRICT", NULL
};
const struct migration kv_migrations[] = { { 1, kv_table }, { 0, NULL } };

const struct sql KV_PUT = { "KV_PUT", "INSERT INTO kv (k, n) VALUES ($1, $2)", NULL };
const struct sql KV_GET = { "KV_GET", "SELECT n FROM kv WHERE k = $1", NULL };
const struct sql KV_COUNT = { "KV_COUNT", "SELECT COUNT(*) FROM kv", NULL };
const struct sql KV_LIST = { "KV_LIST", "SELECT k, n FROM kv ORDER BY k", NULL };

static struct store *store_new(void)
{
	struct store *store = xcalloc(1, sizeof(*store));
	snprintf(store->dir, sizeof(store->dir), "/tmp/berth-store-XXXXXX");
	assert_non_null(mkdtemp(store->dir));
	store->options.busy_timeout_ms = 300;
	return store;
}

int store_reopen(struct store *store, const struct migration *known)
{
	db_close(store->db);
	store->db = NULL;
	error_clear(&store->err);
	return db_open_known(&store->db, &store->options, known, &store->err);
}

static int set_up_sqlite(void **state, const struct migration *known)
{
	struct store *store = store_new();
	store->path = xasprintf("%s/berth.db", store->dir);
	store->options.path = store->path;
	*state = store;
	assert_done(store, store_reopen(store, known));
	return 0;
}

static int set_up_postgres(void **state, const struct migration *known)
{
	*state = NULL;
	if (!pg_fixture_start())
		return 0;
	struct store *store = store_new();
	store->url = pg_fixture_new_database();
	store->options.url = store->url;
	*state = store;
	assert_done(store, store_reopen(store, known));
	return 0;
}

int store_setup_sqlite(void **state)
{
	return set_up_sqlite(state, kv_migrations);
}

int store_setup_postgres(void **state)
{
	return set_up_postgres(state, kv_migrations);
}

int store_setup_sqlite_schema(void **state)
{
	return set_up_sqlite(state, migrations);
}

int store_setup_postgres_schema(void **state)
{
	return set_up_postgres(state, migrations);
}

int store_teardown(void **state)
{
	struct store *store = *state;
	if (!store)
		return 0;
	db_close(store->db);
	dir_remove_tree(AT_FDCWD, store->dir, NULL);
	error_clear(&store->err);
	free(store->path);
	free(store->url);
	free(store);
	return 0;
}

struct store *store_of(void **state)
{
	if (!*state)
		skip();
	return *state;
}

int kv_put(struct tx *tx, void *arg, struct error *err)
{
	const struct pair *pair = arg;
	return tx_exec(tx, &KV_PUT, err, B_TEXT(pair->key), B_INT(pair->number)) == 1 ? 0 : -1;
}

struct lookup {
	const struct sql *sql;
	const char *key;
	int64_t number;
};

static int look_up(struct tx *tx, void *arg, struct error *err)
{
	struct lookup *lookup = arg;
	_cleanup_cursor_ struct cursor c;
	int r = lookup->key ? tx_query(tx, &c, lookup->sql, err, B_TEXT(lookup->key))
			    : tx_query(tx, &c, lookup->sql, err);
	if (r < 0)
		return -1;
	r = cursor_next(&c, err);
	lookup->number = r > 0 ? col_int(&c, 0) : -1;
	return r < 0 ? -1 : 0;
}

/* With an error of its own: several threads may ask at once. */
static int64_t number_by(struct store *store, struct lookup *lookup)
{
	_cleanup_error_ struct error err = { 0 };
	if (db_read(store->db, look_up, lookup, &err) < 0)
		fail_msg("%s", err.message);
	return lookup->number;
}

int64_t kv_count(struct store *store)
{
	return number_by(store, &(struct lookup){ .sql = &KV_COUNT });
}

int64_t kv_number(struct store *store, const char *key)
{
	return number_by(store, &(struct lookup){ .sql = &KV_GET, .key = key });
}

pid_t role_start(const char *role, const char *path, const char *fault, int *out, int *in)
{
	int to[2];
	int from[2];
	assert_int_equal(pipe2(to, O_CLOEXEC), 0);
	assert_int_equal(pipe2(from, O_CLOEXEC), 0);
	_cleanup_strv_ char **argv = NULL;
	strv_push(&argv, xstrdup("/proc/self/exe"));
	strv_push(&argv, xstrdup(role));
	strv_push(&argv, xstrdup(path));
	_cleanup_strv_ char **envp = NULL;
	if (fault)
		strv_push(&envp, xasprintf("BERTH_FAULT=%s", fault));
	else
		strv_push(&envp, xstrdup("LC_ALL=C"));

	struct spawn_spec spec = { .argv = argv,
				   .envp = envp,
				   .stdin_fd = to[0],
				   .stdout_fd = from[1],
				   .stderr_fd = STDERR_FILENO };
	pid_t pid = -1;
	_cleanup_close_ int pidfd = -1;
	_cleanup_error_ struct error err = { 0 };
	if (spawn(&spec, &pid, &pidfd, &err) < 0)
		fail_msg("%s", err.message);
	close(to[0]);
	close(from[1]);
	*out = to[1];
	*in = from[0];
	return pid;
}

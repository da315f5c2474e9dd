#include <string.h>
#include "base/metric.h"
#include "db/engine.h"

METRIC_HISTOGRAM(WRITE_SECONDS, "berth_db_write_seconds", "",
		 "From asking for a transaction that writes to its commit, the queue included");
METRIC_HISTOGRAM(READ_SECONDS, "berth_db_read_seconds", "",
		 "From asking for a transaction that reads to its end");
METRIC_GAUGE(WRITES_WAITING, "berth_db_writes_waiting", "",
	     "Transactions that write, queued or under way");
METRIC_COUNTER(WRITES_FAILED, "berth_db_failures_total", "kind=\"write\"",
	       "Transactions that failed, refusals of their own closures included");
METRIC_COUNTER(READS_FAILED, "berth_db_failures_total", "kind=\"read\"",
	       "Transactions that failed, refusals of their own closures included");

/* A server that was killed a moment ago: PostgreSQL takes that long to notice. */
#define CLAIM_WAIT_MS 5000

/* Weak, so that a program without statements links. */
extern const struct sql *const __start_berth_sql[] __attribute__((weak));
extern const struct sql *const __stop_berth_sql[] __attribute__((weak));

/*
 * Set while this thread runs a closure. A transaction opened inside another would wait for the
 * writer it runs on, or for the last connection of a pool whose others do the same.
 */
static _Thread_local bool inside_closure;

SQL(DB_PING, "SELECT COUNT(*) FROM schema_migrations");

static int refuse_nesting(struct error *err)
{
	if (inside_closure)
		return error_set(err, ERR_INTERNAL,
				 "a database closure may not open another transaction");
	return 0;
}

static int copy_failure(const struct error *failure, struct error *err)
{
	return error_set(err, failure->code, "%s", failure->message);
}

int tx_run(struct tx *tx, db_fn *fn, void *arg, struct error *err)
{
	error_clear(&tx->failure);
	error_clear(err);

	inside_closure = true;
	int r = fn(tx, arg, err);
	inside_closure = false;

	if (r < 0 && err->code != ERR_NONE)
		return -1;
	if (tx->failure.code != ERR_NONE)
		return copy_failure(&tx->failure, err);
	if (r < 0)
		return error_set(err, ERR_INTERNAL, "a database closure failed without a reason");
	error_clear(err);
	return 0;
}

int db_open_known(struct db **db, const struct db_options *options, const struct migration *known,
		  struct error *err)
{
	*db = NULL;
	if (!options->path == !options->url)
		return error_set(err, ERR_BAD_REQUEST,
				 "a database is either a file or a PostgreSQL URL");

	const struct db_engine *engine = options->url ? &postgres_engine : &sqlite_engine;
	_cleanup_db_ struct db *opened = NULL;
	if (engine->open(&opened, options, err) < 0)
		return -1;
	if (options->claimant && engine->claim(opened, options->claimant, CLAIM_WAIT_MS, err) < 0)
		return -1;
	if (migrate(opened, known, options, err) < 0)
		return -1;
	*db = steal(opened);
	return 0;
}

int db_open(struct db **db, const struct db_options *options, struct error *err)
{
	return db_open_known(db, options, migrations, err);
}

void db_close(struct db *db)
{
	if (db)
		db->engine->close(db);
}

bool db_is_postgres(const struct db *db)
{
	return db->engine->dialect == DIALECT_POSTGRES;
}

int db_claim(struct db *db, const char *name, struct error *err)
{
	return db->engine->claim(db, name, 0, err);
}

void db_library(const struct db *db, char text[DB_LIBRARY_SIZE])
{
	db->engine->library(text, DB_LIBRARY_SIZE);
}

static int measured_write(struct db *db, enum db_promise promise, db_fn *fn, void *arg,
			  struct error *err)
{
	int64_t start = metric_now_us();

	metric_add(&WRITES_WAITING, 1);

	int r = db->engine->write(db, promise, fn, arg, err);

	metric_add(&WRITES_WAITING, -1);
	metric_observe_since(&WRITE_SECONDS, start);
	if (r < 0)
		metric_add(&WRITES_FAILED, 1);
	return r;
}

int db_write_at(struct db *db, const struct db_write_points *points, enum db_promise promise,
		db_fn *fn, void *arg, struct error *err)
{
	_cleanup_error_ struct error local = { 0 };
	struct error *e = err ? err : &local;

	if (refuse_nesting(e) < 0 || fault_hit(points->before, e) < 0)
		return -1;
	if (measured_write(db, promise, fn, arg, e) < 0)
		return -1;

	const struct db_listener *listener = db->listener;

	if (listener)
		listener->committed(listener->arg);
	return fault_hit(points->after, e);
}

void db_listen(struct db *db, const struct db_listener *listener)
{
	db->listener = listener;
}

int db_read(struct db *db, db_fn *fn, void *arg, struct error *err)
{
	_cleanup_error_ struct error local = { 0 };
	struct error *e = err ? err : &local;

	if (refuse_nesting(e) < 0)
		return -1;

	int64_t start = metric_now_us();
	int r = db->engine->read(db, fn, arg, e);

	metric_observe_since(&READ_SECONDS, start);
	if (r < 0)
		metric_add(&READS_FAILED, 1);
	return r;
}

int db_backup(struct db *db, const char *to_path, struct error *err)
{
	return db->engine->backup(db, to_path, err);
}

static int ping(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	return tx_exec(tx, &DB_PING, err) < 0 ? -1 : 0;
}

int db_ping(struct db *db, struct error *err)
{
	return db_read(db, ping, NULL, err);
}

/* What every call on a transaction checks first: that it still lives, and that the values fit. */
static int check_call(struct tx *tx, const struct sql *sql, const struct bind *binds)
{
	if (tx->failure.code != ERR_NONE)
		return -1;
	size_t count = 0;
	for (const struct bind *b = binds; b->type != BIND_END; b++) {
		if (++count > DB_BINDS_MAX)
			return error_set(&tx->failure, ERR_INTERNAL, "%s has more than %d values",
					 sql->name, DB_BINDS_MAX);
		if (b->type == BIND_TEXT && b->text &&
		    strnlen(b->text, DB_TEXT_MAX + 1) > DB_TEXT_MAX)
			return error_set(&tx->failure, ERR_TOO_LARGE,
					 "%s: value $%zu is larger than %u bytes", sql->name, count,
					 DB_TEXT_MAX);
	}
	return 0;
}

int64_t tx_exec_(struct tx *tx, const struct sql *sql, const struct bind *binds, struct error *err)
{
	if (check_call(tx, sql, binds) < 0)
		return copy_failure(&tx->failure, err);
	int64_t rows = tx->engine->exec(tx, sql, binds, &tx->failure);
	if (rows < 0) {
		error_wrap(&tx->failure, "%s", sql->name);
		return copy_failure(&tx->failure, err);
	}
	return rows;
}

int tx_exec_text(struct tx *tx, const char *text, struct error *err)
{
	if (tx->failure.code == ERR_NONE && tx->engine->exec_text(tx, text, &tx->failure) == 0)
		return 0;
	return copy_failure(&tx->failure, err);
}

int tx_query_(struct tx *tx, struct cursor *cursor, const struct sql *sql, const struct bind *binds,
	      struct error *err)
{
	*cursor = (struct cursor){ .impl = NULL, .tx = tx };
	if (check_call(tx, sql, binds) < 0)
		return copy_failure(&tx->failure, err);
	if (tx->engine->query(tx, &cursor->impl, sql, binds, &tx->failure) < 0) {
		error_wrap(&tx->failure, "%s", sql->name);
		return copy_failure(&tx->failure, err);
	}
	return 0;
}

int cursor_next(struct cursor *cursor, struct error *err)
{
	struct tx *tx = cursor->tx;
	if (tx->failure.code != ERR_NONE)
		return copy_failure(&tx->failure, err);
	if (!cursor->impl)
		return 0;
	int r = tx->engine->next(tx, cursor->impl, &tx->failure);
	return r < 0 ? copy_failure(&tx->failure, err) : r;
}

void cursor_close(struct cursor *cursor)
{
	if (cursor->impl)
		cursor->tx->engine->finish(cursor->tx, cursor->impl);
	cursor->impl = NULL;
}

bool col_is_null(struct cursor *cursor, int column)
{
	return cursor->tx->engine->is_null(cursor->impl, column);
}

const char *col_text(struct cursor *cursor, int column)
{
	return cursor->tx->engine->text(cursor->impl, column);
}

int64_t col_int(struct cursor *cursor, int column)
{
	return cursor->tx->engine->integer(cursor->impl, column);
}

/* A name of a column gets the alias; an expression has its own. */
static void write_selected(struct buf *out, const char *name, const char *alias, size_t alias_len)
{
	if (!strpbrk(name, ". ("))
		buf_printf(out, "%.*s", (int)alias_len, alias);
	buf_puts(out, name);
}

static bool is_word(const char *text, size_t len, const char *word)
{
	return strlen(word) == len && memcmp(text, word, len) == 0;
}

/* What stands between braces, with the braces off; false when it is none of the words. */
static bool write_columns(struct buf *out, const struct column *columns, const char *word,
			  size_t len)
{
	bool all = len && word[len - 1] == '*', values = is_word(word, len, "values");
	bool set = is_word(word, len, "set");
	unsigned flag = set ? COLUMN_UPDATE : COLUMN_INSERT;
	int number = set ? 2 : 1;
	const char *comma = "";

	if (!all && !values && !set && !is_word(word, len, "insert"))
		return false;
	for (const struct column *c = columns; c->key || c->name; c++) {
		if (!c->name || (!all && !(c->flags & flag)))
			continue;
		buf_puts(out, comma);
		comma = ", ";
		if (all)
			write_selected(out, c->name, word, len - 1);
		else if (values)
			buf_printf(out, "$%d", number++);
		else if (set)
			buf_printf(out, "%s = $%d", c->name, number++);
		else
			buf_puts(out, c->name);
	}
	return true;
}

char *sql_written(const struct sql *sql)
{
	_cleanup_buf_ struct buf out = { 0 };
	const char *at = sql->text, *open;

	while (sql->columns && (open = strchr(at, '{'))) {
		size_t len = strcspn(open + 1, "}");

		buf_append(&out, at, (size_t)(open - at));
		at = open + 1;
		if (write_columns(&out, sql->columns, at, len))
			at += len + 1;
		else
			buf_putc(&out, '{');
	}
	buf_puts(&out, at);
	return buf_steal(&out);
}

int db_run_statement(struct tx *tx, void *arg, struct error *err)
{
	struct db_statement *statement = arg;

	statement->rows = tx_exec_(tx, statement->sql, statement->binds, err);
	return statement->rows < 0 ? -1 : 0;
}

size_t sql_count(void)
{
	return __start_berth_sql ? (size_t)(__stop_berth_sql - __start_berth_sql) : 0;
}

const struct sql *sql_at(size_t index)
{
	return __start_berth_sql[index];
}

static int prepare_each(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	for (size_t i = 0; i < sql_count(); i++) {
		if (tx->engine->prepare(tx, sql_at(i), err) < 0)
			return error_wrap(err, "%s", sql_at(i)->name);
	}
	return 0;
}

int db_prepare_all(struct db *db, struct error *err)
{
	return db_read(db, prepare_each, NULL, err);
}

#include "db/sqlite_conn.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include "base/text.h"

struct sqlite_statement {
	sqlite3_stmt *stmt;
	struct sqlite_conn *conn;
	int param_count;
	int param_index[DB_BINDS_MAX + 1]; /* of $n: SQLite numbers names by first appearance */
	bool kept;                         /* owned by the connection, used again */
	bool busy;
	bool on_row;
	bool done;
	struct sqlite_statement *next_busy;
};

static void statement_free(void *p)
{
	struct sqlite_statement *s = p;
	sqlite3_finalize(s->stmt);
	free(s);
}

/*
 * A COMMIT or checkpoint that fails does not report its errno to sqlite3_system_errno. The file
 * that the failed call was made on keeps it: mostly the WAL, else the database.
 */
static int os_error_of(const struct sqlite_conn *conn)
{
	sqlite3_file *wal = NULL;
	int os_error = 0;

	if (sqlite3_file_control(conn->handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, &wal) ==
		    SQLITE_OK &&
	    wal && wal->pMethods)
		wal->pMethods->xFileControl(wal, SQLITE_FCNTL_LAST_ERRNO, &os_error);
	if (os_error == 0)
		sqlite3_file_control(conn->handle, "main", SQLITE_FCNTL_LAST_ERRNO, &os_error);
	return os_error ? os_error : sqlite3_system_errno(conn->handle);
}

int sqlite_conn_error(const struct sqlite_conn *conn, struct error *err)
{
	int code = sqlite3_extended_errcode(conn->handle);
	int os_error = os_error_of(conn);
	const char *message = sqlite3_errmsg(conn->handle);

	switch (code & 0xff) {
	case SQLITE_FULL:
		return error_set(err, ERR_DISK_FULL, "no space left for the database %s",
				 conn->path);
	case SQLITE_IOERR:
		if (os_error == ENOSPC || os_error == EDQUOT)
			return error_set(err, ERR_DISK_FULL, "no space left for the database %s",
					 conn->path);
		return error_set(err, ERR_DB,
				 "the database %s cannot be read or written: %s (code %d, %s)",
				 conn->path, message, code,
				 os_error ? strerror(os_error) : "no reason given");
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return error_set(err, ERR_DB_BUSY,
				 "the database %s is locked by another process (%s)", conn->path,
				 message);
	case SQLITE_CONSTRAINT:
		return error_set(err, ERR_DB_CONSTRAINT, "%s", message);
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return error_set(err, ERR_DB,
				 "the database %s is damaged (%s): stop Berth, move the file and "
				 "its -wal and -shm away, and restore a backup by putting a copy "
				 "made with `berth backup`, or the newest .bak, in its place",
				 conn->path, message);
	case SQLITE_CANTOPEN:
		return error_set(err, ERR_DB, "the database %s cannot be opened: %s", conn->path,
				 os_error ? strerror(os_error) : message);
	default:
		return error_set(err, ERR_DB, "%s", message);
	}
}

/*
 * A writer writes nothing to the WAL before its COMMIT. Before 3.50.2 SQLite loses a commit when a
 * ROLLBACK TO follows pages that were written earlier for lack of room in the cache.
 */
static const char *settings_of(bool reader)
{
	return reader ? "PRAGMA query_only = ON" : "PRAGMA cache_spill = OFF";
}

static int set_up(struct sqlite_conn *conn, bool reader, struct error *err)
{
	/* 2 MB of pages a connection: the server must stay small when idle. */
	static const char settings[] = "PRAGMA foreign_keys = ON;"
				       "PRAGMA synchronous = FULL;"
				       "PRAGMA cache_size = -2000;"
				       "PRAGMA temp_store = MEMORY;"
				       "PRAGMA trusted_schema = OFF;"
				       "PRAGMA cell_size_check = ON;";
	sqlite3 *h = conn->handle;
	sqlite3_extended_result_codes(h, 1);
	sqlite3_db_config(h, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	/* A misspelt column in double quotes would silently be a string. */
	sqlite3_db_config(h, SQLITE_DBCONFIG_DQS_DML, 0, NULL);
	sqlite3_db_config(h, SQLITE_DBCONFIG_DQS_DDL, 0, NULL);
	if (sqlite3_exec(h, settings, NULL, NULL, NULL) != SQLITE_OK)
		return sqlite_conn_error(conn, err);
	if (sqlite3_exec(h, settings_of(reader), NULL, NULL, NULL) != SQLITE_OK)
		return sqlite_conn_error(conn, err);
	return 0;
}

int sqlite_conn_open(struct sqlite_conn **out, const char *path, bool reader, int busy_timeout_ms,
		     struct error *err)
{
	struct sqlite_conn *conn = xcalloc(1, sizeof(*conn));
	conn->tx.engine = &sqlite_engine;
	conn->path = xstrdup(path);

	int access = reader ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
	int rc = sqlite3_open_v2(path, &conn->handle, access | SQLITE_OPEN_NOMUTEX, NULL);
	if (!conn->handle)
		error_set(err, ERR_DB, "no memory to open the database");
	else if (rc != SQLITE_OK)
		sqlite_conn_error(conn, err);
	if (rc != SQLITE_OK) {
		sqlite_conn_close(conn);
		return -1;
	}

	conn->busy_timeout_ms = busy_timeout_ms;
	sqlite3_busy_timeout(conn->handle, busy_timeout_ms);
	if (set_up(conn, reader, err) < 0) {
		sqlite_conn_close(conn);
		return -1;
	}
	*out = conn;
	return 0;
}

void sqlite_conn_close(struct sqlite_conn *conn)
{
	if (!conn)
		return;
	sqlite_conn_end_cursors(conn);
	stmt_map_clear(&conn->statements, statement_free);
	sqlite3_close(conn->handle);
	error_clear(&conn->tx.failure);
	free(conn->path);
	free(conn);
}

bool sqlite_conn_lost_transaction(const struct sqlite_conn *conn)
{
	return sqlite3_get_autocommit(conn->handle);
}

/* $1, $2 ... and nothing else: PostgreSQL knows no other parameters, and no gaps between them. */
static int map_parameters(struct sqlite_statement *s, struct error *err)
{
	int count = sqlite3_bind_parameter_count(s->stmt);
	for (int i = 1; i <= count; i++) {
		const char *name = sqlite3_bind_parameter_name(s->stmt, i);
		int64_t n = 0;
		if (!name || name[0] != '$' || !parse_i64(name + 1, 1, DB_BINDS_MAX, &n))
			return error_set(err, ERR_INTERNAL, "parameter %s is not one of $1..$%d",
					 name ? name : "?", DB_BINDS_MAX);
		s->param_index[n] = i;
	}
	for (int n = 1; n <= count; n++) {
		if (s->param_index[n] == 0)
			return error_set(err, ERR_INTERNAL, "parameter $%d is never used", n);
	}
	s->param_count = count;
	return 0;
}

static struct sqlite_statement *prepare_statement(struct sqlite_conn *conn, const struct sql *sql,
						  bool kept, struct error *err)
{
	const char *rest = NULL;
	sqlite3_stmt *stmt = NULL;
	unsigned flags = kept ? SQLITE_PREPARE_PERSISTENT : 0;
	_cleanup_free_ char *text = sql_written(sql);

	if (sqlite3_prepare_v3(conn->handle, text, -1, flags, &stmt, &rest) != SQLITE_OK) {
		sqlite_conn_error(conn, err);
		return NULL;
	}
	struct sqlite_statement *s = xcalloc(1, sizeof(*s));
	s->stmt = stmt;
	s->conn = conn;
	s->kept = kept;
	if (!stmt || !str_blank(rest)) {
		error_set(err, ERR_INTERNAL, "a registered text is exactly one statement");
		statement_free(s);
		return NULL;
	}
	if (map_parameters(s, err) < 0) {
		statement_free(s);
		return NULL;
	}
	return s;
}

/*
 * The kept statement, or a passing one when the kept one is in the middle of its rows: the same
 * query may be open twice in one closure.
 */
static struct sqlite_statement *find_statement(struct sqlite_conn *conn, const struct sql *sql,
					       struct error *err)
{
	struct sqlite_statement *s = stmt_map_get(&conn->statements, sql);
	if (s && !s->busy)
		return s;
	bool keep = !s;
	s = prepare_statement(conn, sql, keep, err);
	if (s && keep)
		stmt_map_put(&conn->statements, sql, s);
	return s;
}

static void end_statement(struct sqlite_statement *s)
{
	if (!s->kept) {
		statement_free(s);
		return;
	}
	sqlite3_reset(s->stmt);
	sqlite3_clear_bindings(s->stmt);
	s->busy = s->on_row = s->done = false;
}

static int bind_values(struct sqlite_statement *s, const struct bind *binds, bool copy,
		       struct error *err)
{
	int n = 0;
	for (const struct bind *b = binds; b->type != BIND_END; b++) {
		if (++n > s->param_count)
			break;
		int rc = SQLITE_OK;
		int index = s->param_index[n];
		if (b->type == BIND_INT)
			rc = sqlite3_bind_int64(s->stmt, index, b->number);
		else if (b->type == BIND_TEXT && b->text)
			rc = sqlite3_bind_text(s->stmt, index, b->text, -1,
					       copy ? SQLITE_TRANSIENT : SQLITE_STATIC);
		else
			rc = sqlite3_bind_null(s->stmt, index);
		if (rc != SQLITE_OK)
			return sqlite_conn_error(s->conn, err);
	}
	if (n != s->param_count)
		return error_set(err, ERR_INTERNAL,
				 "the statement has %d parameters and was given %s", s->param_count,
				 n > s->param_count ? "more" : "fewer");
	return 0;
}

int sqlite_prepare(struct tx *tx, const struct sql *sql, struct error *err)
{
	struct sqlite_statement *s = prepare_statement((struct sqlite_conn *)tx, sql, false, err);
	if (!s)
		return -1;
	statement_free(s);
	return 0;
}

static int64_t run_to_end(struct sqlite_statement *s, struct error *err)
{
	int64_t rows = 0;
	int rc = 0;
	while ((rc = sqlite3_step(s->stmt)) == SQLITE_ROW)
		rows++;
	if (rc != SQLITE_DONE)
		return sqlite_conn_error(s->conn, err);
	return sqlite3_column_count(s->stmt) > 0 ? rows : sqlite3_changes64(s->conn->handle);
}

int64_t sqlite_exec(struct tx *tx, const struct sql *sql, const struct bind *binds,
		    struct error *err)
{
	struct sqlite_statement *s = find_statement((struct sqlite_conn *)tx, sql, err);
	if (!s)
		return -1;
	int64_t rows = bind_values(s, binds, false, err);
	if (rows == 0)
		rows = run_to_end(s, err);
	end_statement(s);
	return rows;
}

int sqlite_conn_control(struct sqlite_conn *conn, const struct sql *sql, struct error *err)
{
	return sqlite_exec(&conn->tx, sql, B_ARRAY_(), err) < 0 ? -1 : 0;
}

int sqlite_exec_text(struct tx *tx, const char *text, struct error *err)
{
	struct sqlite_conn *conn = (struct sqlite_conn *)tx;
	if (sqlite3_exec(conn->handle, text, NULL, NULL, NULL) != SQLITE_OK)
		return sqlite_conn_error(conn, err);
	return 0;
}

int sqlite_query(struct tx *tx, void **impl, const struct sql *sql, const struct bind *binds,
		 struct error *err)
{
	struct sqlite_conn *conn = (struct sqlite_conn *)tx;
	struct sqlite_statement *s = find_statement(conn, sql, err);
	if (!s)
		return -1;
	if (bind_values(s, binds, true, err) < 0) {
		end_statement(s);
		return -1;
	}
	s->busy = true;
	s->next_busy = conn->busy;
	conn->busy = s;
	*impl = s;
	return 0;
}

int sqlite_next(struct tx *tx, void *impl, struct error *err)
{
	(void)tx;
	struct sqlite_statement *s = impl;
	/* Stepping a finished statement would start it again from the first row. */
	if (s->done)
		return 0;
	int rc = sqlite3_step(s->stmt);
	s->on_row = rc == SQLITE_ROW;
	s->done = !s->on_row;
	if (s->on_row)
		return 1;
	return rc == SQLITE_DONE ? 0 : sqlite_conn_error(s->conn, err);
}

void sqlite_finish(struct tx *tx, void *impl)
{
	struct sqlite_conn *conn = (struct sqlite_conn *)tx;
	struct sqlite_statement **link = &conn->busy;
	while (*link && *link != impl)
		link = &(*link)->next_busy;
	assert(*link);
	*link = (*link)->next_busy;
	end_statement(impl);
}

void sqlite_conn_end_cursors(struct sqlite_conn *conn)
{
	while (conn->busy)
		sqlite_finish(&conn->tx, conn->busy);
}

static sqlite3_stmt *row_of(const struct sqlite_statement *s, int column)
{
	assert(s && s->on_row && column >= 0 && column < sqlite3_column_count(s->stmt));
	return s->stmt;
}

bool sqlite_is_null(void *impl, int column)
{
	return sqlite3_column_type(row_of(impl, column), column) == SQLITE_NULL;
}

const char *sqlite_text(void *impl, int column)
{
	return (const char *)sqlite3_column_text(row_of(impl, column), column);
}

int64_t sqlite_integer(void *impl, int column)
{
	return sqlite3_column_int64(row_of(impl, column), column);
}

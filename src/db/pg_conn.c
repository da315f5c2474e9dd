#include "db/pg_conn.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "base/text.h"

/* The server gives up on a statement first; our own deadline is for a server that says nothing. */
#define STATEMENT_TIMEOUT_MS 30000
#define STATEMENT_DEADLINE_MS 45000
#define DDL_DEADLINE_MS (60 * 60 * 1000)
#define CONNECT_TIMEOUT_S "10"
#define OLDEST_SERVER 120000 /* the first with WITH ... AS MATERIALIZED */

/* Types by their fixed object ids, as in pg_type.dat. */
enum { OID_BOOL = 16, OID_INT8 = 20, OID_TEXT = 25 };

struct pg_statement {
	char name[16];
};

struct pg_result {
	PGresult *rows;
	int row; /* -1 before the first */
	struct pg_result *next;
};

/* libpq ends its messages with a newline and may add lines of detail that hold values. */
static int first_line(const char *message)
{
	return (int)strcspn(message, "\n");
}

static int lost(struct pg_conn *conn, struct error *err)
{
	const char *message = PQerrorMessage(conn->link);
	conn->dead = true;
	return error_set(err, ERR_UNAVAILABLE, "the connection to PostgreSQL is gone: %.*s",
			 first_line(message), message);
}

static enum error_code code_of(const char *state)
{
	static const struct {
		const char *prefix;
		enum error_code code;
	} codes[] = {
		{ "23", ERR_DB_CONSTRAINT }, /* integrity */
		{ "53100", ERR_DISK_FULL },
		{ "53", ERR_DB_BUSY },      /* out of memory, too many connections */
		{ "40001", ERR_DB_BUSY },   /* serialization failure */
		{ "40P01", ERR_DB_BUSY },   /* deadlock */
		{ "55P03", ERR_DB_BUSY },   /* lock_timeout */
		{ "57014", ERR_DB_BUSY },   /* statement_timeout */
		{ "57P", ERR_UNAVAILABLE }, /* shutting down or starting */
	};
	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		if (str_starts(state, codes[i].prefix))
			return codes[i].code;
	}
	return ERR_DB;
}

/* Only the primary message goes on: the detail of a constraint quotes the row. */
static int server_error(struct pg_conn *conn, const PGresult *result, struct error *err)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	if (!state || PQstatus(conn->link) == CONNECTION_BAD)
		return lost(conn, err);
	if (severity && (streq(severity, "FATAL") || streq(severity, "PANIC")))
		conn->dead = true;
	if (streq(state, "40001") || streq(state, "40P01"))
		conn->conflict = true;
	return error_set(err, code_of(state), "%s (SQLSTATE %s)", message ? message : "failed",
			 state);
}

static int await_socket(struct pg_conn *conn, short events, int64_t deadline, struct error *err)
{
	struct pollfd p = { .fd = PQsocket(conn->link), .events = events };
	for (;;) {
		int n = poll(&p, 1, clock_poll_timeout(&conn->clock, deadline));
		if (n > 0)
			return 0;
		if (n < 0 && errno == EINTR)
			continue;
		conn->dead = true;
		if (n < 0)
			return error_errno(err, errno, "cannot wait for PostgreSQL");
		return error_set(err, ERR_UNAVAILABLE, "PostgreSQL did not answer in time");
	}
}

static bool succeeded(const PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);
	return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

/*
 * Sends what is queued and reads the answer to its end. Returns the last result, or NULL with the
 * first error. `sent` is what the PQsend function said.
 */
static PGresult *await_result(struct pg_conn *conn, int sent, int deadline_ms, struct error *err)
{
	PGresult *last = NULL;
	bool failed = false;
	int64_t deadline = clock_mono(&conn->clock) + deadline_ms;
	if (!sent) {
		lost(conn, err);
		return NULL;
	}
	for (;;) {
		int unsent = PQflush(conn->link);
		if (unsent == 0 && !PQisBusy(conn->link)) {
			PGresult *result = PQgetResult(conn->link);
			if (!result)
				break;
			PQclear(last);
			last = result;
			if (!failed && !succeeded(result)) {
				server_error(conn, result, err);
				failed = true;
			}
			continue;
		}
		short events = unsent > 0 ? POLLIN | POLLOUT : POLLIN;
		if (unsent < 0 || await_socket(conn, events, deadline, failed ? NULL : err) < 0 ||
		    !PQconsumeInput(conn->link)) {
			if (!conn->dead)
				lost(conn, failed ? NULL : err);
			failed = true;
			break;
		}
	}
	if (!failed && last)
		return last;
	if (!failed)
		lost(conn, err);
	PQclear(last);
	return NULL;
}

static void hush(void *arg, const char *message)
{
	(void)arg;
	log_debug("postgresql: %.*s", first_line(message), message);
}

static int check_server(struct pg_conn *conn, struct error *err)
{
	const char *encoding = PQparameterStatus(conn->link, "server_encoding");
	if (PQserverVersion(conn->link) < OLDEST_SERVER)
		return error_set(err, ERR_DB, "PostgreSQL %d is too old, 12 or newer is needed",
				 PQserverVersion(conn->link) / 10000);
	if (!str_equal(encoding, "UTF8"))
		return error_set(err, ERR_DB,
				 "the PostgreSQL database has encoding %s, UTF8 is needed",
				 encoding ? encoding : "unknown");
	return 0;
}

static int set_up(struct pg_conn *conn, int lock_timeout_ms, struct error *err)
{
	/* An operator may ask for more than `on`, but not for commits that a crash forgets. */
	_cleanup_free_ char *settings =
		xasprintf("SET lock_timeout = %d; SET statement_timeout = %d;"
			  "SET idle_in_transaction_session_timeout = 60000;"
			  "SET client_min_messages = warning;"
			  "SELECT set_config('synchronous_commit', 'on', false)"
			  " WHERE current_setting('synchronous_commit') = 'off'",
			  lock_timeout_ms, STATEMENT_TIMEOUT_MS);
	return pg_conn_control(conn, settings, STATEMENT_DEADLINE_MS, NULL, err);
}

int pg_conn_open(struct pg_conn **out, const char *url, int lock_timeout_ms, struct error *err)
{
	/* What stands before dbname the URL may override, what stands after it not. */
	static const char *const keys[] = { "connect_timeout",
					    "keepalives_idle",
					    "tcp_user_timeout",
					    "fallback_application_name",
					    "dbname",
					    "client_encoding",
					    NULL };
	const char *const values[] = {
		CONNECT_TIMEOUT_S, "30", "30000", "berth", url, "UTF8", NULL
	};
	struct pg_conn *conn = xcalloc(1, sizeof(*conn));
	conn->tx.engine = &postgres_engine;
	clock_init_system(&conn->clock);
	conn->link = PQconnectdbParams(keys, values, 1);

	int r = 0;
	if (PQstatus(conn->link) != CONNECTION_OK) {
		const char *message = PQerrorMessage(conn->link);
		r = error_set(err, ERR_UNAVAILABLE, "cannot connect to PostgreSQL: %.*s",
			      first_line(message), message);
	} else {
		PQsetNoticeProcessor(conn->link, hush, NULL);
		PQsetnonblocking(conn->link, 1);
		r = check_server(conn, err);
	}
	if (r == 0)
		r = set_up(conn, lock_timeout_ms, err);
	if (r < 0) {
		pg_conn_close(conn);
		return -1;
	}
	*out = conn;
	return 0;
}

void pg_conn_close(struct pg_conn *conn)
{
	if (!conn)
		return;
	pg_conn_end_cursors(conn);
	stmt_map_clear(&conn->statements, free);
	PQfinish(conn->link);
	error_clear(&conn->tx.failure);
	free(conn);
}

int pg_conn_control(struct pg_conn *conn, const char *text, int deadline_ms, char tag[64],
		    struct error *err)
{
	PGresult *result = await_result(conn, PQsendQuery(conn->link, text), deadline_ms, err);
	if (!result)
		return -1;
	if (tag)
		snprintf(tag, 64, "%s", PQcmdStatus(result));
	PQclear(result);
	return 0;
}

/* Types are left to the server: the casts in the text decide, as they do on SQLite. */
static struct pg_statement *find_statement(struct pg_conn *conn, const struct sql *sql,
					   struct error *err)
{
	struct pg_statement *s = stmt_map_get(&conn->statements, sql);
	if (s)
		return s;

	_cleanup_free_ char *text = sql_written(sql);

	s = xcalloc(1, sizeof(*s));
	snprintf(s->name, sizeof(s->name), "b%u", ++conn->statement_count);
	PGresult *result = await_result(conn, PQsendPrepare(conn->link, s->name, text, 0, NULL),
					STATEMENT_DEADLINE_MS, err);
	PQclear(result);
	if (!result) {
		free(s);
		return NULL;
	}
	stmt_map_put(&conn->statements, sql, s);
	return s;
}

static PGresult *execute(struct pg_conn *conn, const struct sql *sql, const struct bind *binds,
			 struct error *err)
{
	struct pg_statement *s = find_statement(conn, sql, err);
	if (!s)
		return NULL;

	const char *values[DB_BINDS_MAX] = { 0 };
	char numbers[DB_BINDS_MAX][24];
	int count = 0;
	for (const struct bind *b = binds; b->type != BIND_END && count < DB_BINDS_MAX; b++) {
		if (b->type == BIND_INT) {
			snprintf(numbers[count], sizeof(numbers[count]), "%" PRId64, b->number);
			values[count] = numbers[count];
		} else if (b->type == BIND_TEXT) {
			values[count] = b->text;
		}
		count++;
	}
	int sent = PQsendQueryPrepared(conn->link, s->name, count, values, NULL, NULL, 0);
	return await_result(conn, sent, STATEMENT_DEADLINE_MS, err);
}

int64_t pg_exec(struct tx *tx, const struct sql *sql, const struct bind *binds, struct error *err)
{
	PGresult *result = execute((struct pg_conn *)tx, sql, binds, err);
	if (!result)
		return -1;
	int64_t rows = 0;
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		rows = PQntuples(result);
	else if (!parse_i64(PQcmdTuples(result), 0, INT64_MAX, &rows))
		rows = 0;
	PQclear(result);
	return rows;
}

int pg_exec_text(struct tx *tx, const char *text, struct error *err)
{
	struct pg_conn *conn = (struct pg_conn *)tx;
	/* Building an index over a long history may take longer than any request should. */
	if (pg_conn_control(conn, "SET LOCAL statement_timeout = 0", STATEMENT_DEADLINE_MS, NULL,
			    err) < 0)
		return -1;
	return pg_conn_control(conn, text, DDL_DEADLINE_MS, NULL, err);
}

/*
 * The whole result is held: another statement may run on the connection while the cursor is open.
 */
int pg_query(struct tx *tx, void **impl, const struct sql *sql, const struct bind *binds,
	     struct error *err)
{
	struct pg_conn *conn = (struct pg_conn *)tx;
	PGresult *rows = execute(conn, sql, binds, err);
	if (!rows)
		return -1;
	struct pg_result *result = xcalloc(1, sizeof(*result));
	*result = (struct pg_result){ .rows = rows, .row = -1, .next = conn->open };
	conn->open = result;
	*impl = result;
	return 0;
}

int pg_next(struct tx *tx, void *impl, struct error *err)
{
	(void)tx;
	(void)err;
	struct pg_result *result = impl;
	if (result->row < PQntuples(result->rows))
		result->row++;
	return result->row < PQntuples(result->rows) ? 1 : 0;
}

void pg_finish(struct tx *tx, void *impl)
{
	struct pg_conn *conn = (struct pg_conn *)tx;
	struct pg_result **link = &conn->open;
	while (*link && *link != impl)
		link = &(*link)->next;
	assert(*link);
	struct pg_result *result = *link;
	*link = result->next;
	PQclear(result->rows);
	free(result);
}

void pg_conn_end_cursors(struct pg_conn *conn)
{
	while (conn->open)
		pg_finish(&conn->tx, conn->open);
}

static const struct pg_result *row_of(const struct pg_result *result, int column)
{
	assert(result && result->row >= 0 && result->row < PQntuples(result->rows));
	assert(column >= 0 && column < PQnfields(result->rows));
	return result;
}

bool pg_is_null(void *impl, int column)
{
	const struct pg_result *result = row_of(impl, column);
	return PQgetisnull(result->rows, result->row, column);
}

const char *pg_text(void *impl, int column)
{
	const struct pg_result *result = row_of(impl, column);
	return pg_is_null(impl, column) ? NULL : PQgetvalue(result->rows, result->row, column);
}

int64_t pg_integer(void *impl, int column)
{
	const char *text = pg_text(impl, column);
	return text ? strtoll(text, NULL, 10) : 0;
}

/*
 * PostgreSQL accepts more than means the same on both engines: a parameter it takes for a 4-byte
 * integer overflows on a time, and a boolean column reads as "t", whose number is 0.
 */
static int check_types(const PGresult *described, struct error *err)
{
	for (int i = 0; i < PQnparams(described); i++) {
		Oid type = PQparamtype(described, i);
		if (type != OID_INT8 && type != OID_TEXT)
			return error_set(err, ERR_INTERNAL,
					 "$%d is neither TEXT nor BIGINT on PostgreSQL (type %u): "
					 "CAST it",
					 i + 1, type);
	}
	for (int i = 0; i < PQnfields(described); i++) {
		if (PQftype(described, i) == OID_BOOL)
			return error_set(
				err, ERR_INTERNAL,
				"column %d is a boolean on PostgreSQL: give 0 or 1 by CASE", i);
	}
	return 0;
}

int pg_prepare(struct tx *tx, const struct sql *sql, struct error *err)
{
	struct pg_conn *conn = (struct pg_conn *)tx;
	_cleanup_free_ char *text = sql_written(sql);
	PGresult *prepared = await_result(conn, PQsendPrepare(conn->link, "", text, 0, NULL),
					  STATEMENT_DEADLINE_MS, err);
	PQclear(prepared);
	if (!prepared)
		return -1;
	PGresult *described = await_result(conn, PQsendDescribePrepared(conn->link, ""),
					   STATEMENT_DEADLINE_MS, err);
	if (!described)
		return -1;
	int r = check_types(described, err);
	PQclear(described);
	return r;
}

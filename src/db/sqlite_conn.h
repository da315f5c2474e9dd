/*
 * One SQLite connection: its settings, its prepared statements, and the tx calls on it. Used by one
 * thread at a time.
 */
#pragma once

#include <sqlite3.h>
#include "db/engine.h"
#include "db/stmt_map.h"

struct sqlite_statement;

struct sqlite_conn {
	struct tx tx;
	sqlite3 *handle;
	char *path;
	int busy_timeout_ms;
	struct stmt_map statements;
	struct sqlite_statement *busy; /* cursors that are open */
	/* A reader's transaction that was left open; see sqlite.c. */
	bool has_snapshot;
	uint64_t snapshot_commits;
	int64_t snapshot_ns;
};

/* Opens without reading the file. A reader cannot write whatever it is told. */
int sqlite_conn_open(struct sqlite_conn **conn, const char *path, bool reader, int busy_timeout_ms,
		     struct error *err);
void sqlite_conn_close(struct sqlite_conn *conn); /* NULL is fine */

/* Fills err from what the handle says about a failed call. */
int sqlite_conn_error(const struct sqlite_conn *conn, struct error *err);

/* BEGIN, COMMIT and the like. */
int sqlite_conn_control(struct sqlite_conn *conn, const struct sql *sql, struct error *err);
/*
 * Ends the cursors a closure left open. An unfinished RETURNING makes RELEASE and COMMIT fail with
 * "SQL statements in progress".
 */
void sqlite_conn_end_cursors(struct sqlite_conn *conn);
/* True when SQLite itself has rolled the whole transaction back, as it does on a full disk. */
bool sqlite_conn_lost_transaction(const struct sqlite_conn *conn);

/* The tx calls, for the table of the engine. */
int sqlite_prepare(struct tx *tx, const struct sql *sql, struct error *err);
int64_t sqlite_exec(struct tx *tx, const struct sql *sql, const struct bind *binds,
		    struct error *err);
int sqlite_exec_text(struct tx *tx, const char *text, struct error *err);
int sqlite_query(struct tx *tx, void **impl, const struct sql *sql, const struct bind *binds,
		 struct error *err);
int sqlite_next(struct tx *tx, void *impl, struct error *err);
void sqlite_finish(struct tx *tx, void *impl);
bool sqlite_is_null(void *impl, int column);
const char *sqlite_text(void *impl, int column);
int64_t sqlite_integer(void *impl, int column);

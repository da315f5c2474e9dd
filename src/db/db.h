/*
 * The database: one vocabulary over SQLite (embedded) and PostgreSQL (several nodes).
 *
 * Writing. `DB_WRITE(db, "label", fn, arg, err)` runs fn inside one transaction. fn may run more
 * than once (a group commit that is redone, a serialization retry), so it is free of side effects
 * apart from tx_* calls and from filling `arg` afresh; effects start after DB_WRITE returned 0,
 * when the transaction is durable. fn returning negative rolls its own work back and nobody else's.
 * SQLite: one transaction at a time, in which whatever is queued is committed together, each job
 * undone on its own; PostgreSQL: one SERIALIZABLE transaction per job on a pooled connection,
 * retried on 40001 and 40P01.
 *
 * Reading. `db_read` runs fn on a pooled read-only snapshot, concurrently with the writer; on a
 * connection that dies it runs again as well.
 *
 * Inside fn. After one failed call the transaction is lost, as PostgreSQL has it: every later call
 * repeats the error, and the transaction fails even if fn returns 0. What may collide is written
 * with ON CONFLICT DO NOTHING and an empty RETURNING. Opening another transaction is ERR_INTERNAL.
 *
 * SQL. Every statement is one text for both engines, declared with SQL(IDENT, "text") at file
 * scope; declaring registers it, and the checks prepare all of them on a real PostgreSQL. Rules:
 * parameters $1..$n are CAST where PostgreSQL cannot infer a type; ids TEXT, times BIGINT
 * milliseconds, booleans BIGINT 0/1, JSON as TEXT that SQL never looks into; explicit NULLS order;
 * a claim repeats its predicate outside the MATERIALIZED CTE; no table alias in RETURNING; no
 * data-changing CTE.
 *
 * Errors: ERR_DB_CONSTRAINT (unique or foreign key; the message names what), ERR_DB_BUSY (a lock or
 * a conflict that lasted too long), ERR_DISK_FULL, ERR_UNAVAILABLE (PostgreSQL cannot be reached),
 * ERR_DB otherwise; "outcome unknown" in the message of a write says that PostgreSQL was lost while
 * committing. No lock may be held and no blocking call made inside fn.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"
#include "base/fault.h"
#include "db/column.h"

struct db;
struct tx;

/*
 * Statements are static data: connections remember them by address. Those of a table of columns
 * (db/column.h) have words in their text that stand for lists of them:
 *
 *     {*}       every column, as a record's reader wants them; {t.*} with the alias t before each
 *     {insert}  those that INSERT writes, {values} their parameters $1, $2, ...
 *     {set}     "name = $2, ..." for those that UPDATE writes; $1 is left for the id
 */
struct sql {
	const char *name;
	const char *text;
	const struct column *columns; /* NULL: the text is as it is */
};

#define SQL(ident, sql_text) SQL_OF(ident, NULL, sql_text)
#define SQL_OF(ident, columns, sql_text)                                                           \
	static const struct sql ident = { #ident, sql_text, columns };                             \
	static const struct sql *const ident##_ref __attribute__((used, section("berth_sql"))) =   \
		&ident

struct db_options {
	const char *path;       /* SQLite file; NULL when url is given */
	const char *url;        /* postgres://... ; NULL for SQLite */
	int readers;            /* pooled read connections; 0: a sensible default */
	int busy_timeout_ms;    /* how long to wait for a foreign lock; 0: 5000 */
	const char *claimant;   /* PostgreSQL: db_claim under this name before anything else; NULL:
				   the database is shared */
	const char *backup_dir; /* SQLite: where the copy made before a migration goes; NULL: beside
				   path */
};

/*
 * Opens, migrates (after a backup when there is something to lose) and checks. A schema newer than
 * this program is ERR_DB_SCHEMA and nothing is touched; a corrupt file is ERR_DB saying what to do.
 */
int db_open(struct db **db, const struct db_options *options, struct error *err);
void db_close(struct db *db); /* waits for queued jobs; NULL is fine */
static inline void db_closep(struct db **db)
{
	db_close(*db);
}
#define _cleanup_db_ _cleanup_(db_closep)
bool db_is_postgres(const struct db *db);
/*
 * A database has one server at a time: this one, under the name that others are told. The claim is
 * a lock of a PostgreSQL session that lasts as long as its connection; asked again it makes sure
 * that it is still held, and takes it again after an outage. ERR_LOCKED: another server has it, and
 * the message says which. ERR_UNAVAILABLE: that cannot be found out now. A SQLite file is held by
 * the lock of its data directory, and 0 is the answer.
 */
int db_claim(struct db *db, const char *name, struct error *err);
/* The version of the library that reads and writes it: SQLite itself, or PostgreSQL's client. */
#define DB_LIBRARY_SIZE 32
void db_library(const struct db *db, char text[DB_LIBRARY_SIZE]);

typedef int db_fn(struct tx *tx, void *arg, struct error *err);

struct db_write_points {
	const struct fault_point *before; /* nothing written yet */
	const struct fault_point *after;  /* committed, the caller does not know yet */
};
/*
 * What a write that returned 0 outlives: everything, or whatever happens to this program but not
 * the machine going down. The second saves an fsync where nothing that is written down could
 * outlive the machine either; a durable write takes along all that was committed before it. On
 * PostgreSQL, whose machine is another one, both are durable.
 */
enum db_promise { DB_DURABLE, DB_NO_FSYNC };
int db_write_at(struct db *db, const struct db_write_points *points, enum db_promise promise,
		db_fn *fn, void *arg, struct error *err);
#define DB_WRITE(db, label, fn, arg, err) DB_WRITE_AS(db, DB_DURABLE, label, fn, arg, err)
#define DB_WRITE_AS(db, promise, label, fn, arg, err)                                              \
	({                                                                                         \
		FAULT_POINT_REGISTER(_before, "db." label ".before");                              \
		FAULT_POINT_REGISTER(_after, "db." label ".after");                                \
		static const struct db_write_points _points = { &_before, &_after };               \
		db_write_at((db), &_points, (promise), (fn), (arg), (err));                        \
	})
int db_read(struct db *db, db_fn *fn, void *arg, struct error *err);
/*
 * Called after every write that committed, on the thread that wrote, which waits meanwhile: it may
 * only wake somebody. There is one listener; it must live as long as anybody writes.
 */
struct db_listener {
	void (*committed)(void *arg);
	void *arg;
};
void db_listen(struct db *db, const struct db_listener *listener);

/* A consistent copy of a SQLite database while it is in use; refused for PostgreSQL with the right
 * command. */
int db_backup(struct db *db, const char *to_path, struct error *err);
/* Round trip to the engine, for health. */
int db_ping(struct db *db, struct error *err);

/* Parameters, in order of $1, $2, ... */
struct bind {
	enum { BIND_END, BIND_TEXT, BIND_INT, BIND_NULL } type;
	const char *text;
	int64_t number;
};
#define B_TEXT(s) ((struct bind){ .type = BIND_TEXT, .text = (s) }) /* NULL binds NULL */
#define B_ID(s)                                                                                    \
	((struct bind){ .type = BIND_TEXT, .text = (s)[0] ? (s) : NULL }) /* "" binds NULL */
#define B_INT(n) ((struct bind){ .type = BIND_INT, .number = (n) })
#define B_TIME(n)                                                                                  \
	((struct bind){ .type = (n) > 0 ? BIND_INT : BIND_NULL, .number = (n) }) /* 0 is NULL */
#define B_BOOL(b) B_INT((b) ? 1 : 0)
#define B_NULL ((struct bind){ .type = BIND_NULL })
#define B_ARRAY_(...) ((const struct bind[]){ __VA_ARGS__ __VA_OPT__(, ){ .type = BIND_END } })

/* Runs a statement to its end. Returns the number of rows changed (or returned), or -1. */
#define tx_exec(tx, sql, err, ...) tx_exec_((tx), (sql), B_ARRAY_(__VA_ARGS__), (err))
int64_t tx_exec_(struct tx *tx, const struct sql *sql, const struct bind *binds, struct error *err);

/*
 * A write that is one statement. Returns the number of rows changed, or -1.
 *
 *     DB_EXEC(db, "run.waiting", &RUN_SET_WAITING, err, B_TEXT(id), B_TEXT(reason))
 */
struct db_statement {
	const struct sql *sql;
	const struct bind *binds;
	int64_t rows;
};
int db_run_statement(struct tx *tx, void *statement, struct error *err);
#define DB_EXEC(db, label, sql, err, ...)                                                          \
	({                                                                                         \
		struct db_statement _statement = { (sql), B_ARRAY_(__VA_ARGS__), 0 };              \
		DB_WRITE(db, label, db_run_statement, &_statement, err) < 0 ? -1                   \
									    : _statement.rows;     \
	})

/*
 * Steps through rows:
 *     struct cursor c; int r;
 *     if (tx_query(tx, &c, &LEASE_GET, err, B_TEXT(id)) < 0) return -1;
 *     while ((r = cursor_next(&c, err)) > 0) ... col_text(&c, 0) ...
 *     cursor_close(&c);
 * Column pointers live until the next cursor_next or cursor_close. Closing early is fine.
 */
struct cursor {
	void *impl;
	struct tx *tx;
};
#define tx_query(tx, cursor, sql, err, ...)                                                        \
	tx_query_((tx), (cursor), (sql), B_ARRAY_(__VA_ARGS__), (err))
int tx_query_(struct tx *tx, struct cursor *cursor, const struct sql *sql, const struct bind *binds,
	      struct error *err);
int cursor_next(struct cursor *cursor, struct error *err); /* 1 row, 0 end, -1 error */
void cursor_close(struct cursor *cursor);
#define _cleanup_cursor_ _cleanup_(cursor_close)
bool col_is_null(struct cursor *cursor, int column);
const char *col_text(struct cursor *cursor, int column); /* NULL for NULL */
int64_t col_int(struct cursor *cursor, int column);      /* 0 for NULL */

/* The text for an engine, with the words for columns written out; allocated. */
char *sql_written(const struct sql *sql);

/* The registry. */
size_t sql_count(void);
const struct sql *sql_at(size_t index);
/* Prepares every registered statement on this database; the error names the first that fails. */
int db_prepare_all(struct db *db, struct error *err);

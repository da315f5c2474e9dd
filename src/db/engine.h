/*
 * Between db.c and the engines: what an engine implements, and what it gets from db.c.
 *
 * An engine lends a connection to one thread at a time; `struct tx` is the first member of its
 * connection. It runs closures only through tx_run, and reports every failure of a tx call into the
 * error it is given, which db.c keeps: after one failed call the transaction is lost on PostgreSQL,
 * so it is lost on both.
 */
#pragma once

#include "db/db.h"
#include "db/migrate.h"

#define DB_BINDS_MAX 64
#define DB_TEXT_MAX (64u << 20)

struct db_engine;

struct db {
	const struct db_engine *engine;
	_Atomic(const struct db_listener *) listener; /* NULL: nobody */
};

struct tx {
	const struct db_engine *engine;
	struct error failure; /* the first failed call; every later one repeats it */
};

struct db_engine {
	enum dialect dialect;
	void (*library)(char *text, size_t size); /* its version, for people */
	/* One row: 1 if schema_migrations exists, the number of tables that make a database
	 * foreign. */
	struct sql schema_probe;

	int (*open)(struct db **db, const struct db_options *options, struct error *err);
	void (*close)(struct db *db);
	/* The database is known to be empty or ours and may be changed from now on. */
	int (*adopt)(struct db *db, struct error *err);
	/* As db_claim, which waits so long for another server to go. */
	int (*claim)(struct db *db, const char *name, int wait_ms, struct error *err);
	int (*lock_schema)(struct db *db, struct error *err);
	void (*unlock_schema)(struct db *db);
	int (*write)(struct db *db, enum db_promise promise, db_fn *fn, void *arg,
		     struct error *err);
	int (*read)(struct db *db, db_fn *fn, void *arg, struct error *err);
	int (*backup)(struct db *db, const char *to_path, struct error *err);
	/* Prepares and checks a statement for db_prepare_all. */
	int (*prepare)(struct tx *tx, const struct sql *sql, struct error *err);

	int64_t (*exec)(struct tx *tx, const struct sql *sql, const struct bind *binds,
			struct error *err);
	int (*exec_text)(struct tx *tx, const char *text, struct error *err);
	int (*query)(struct tx *tx, void **impl, const struct sql *sql, const struct bind *binds,
		     struct error *err);
	int (*next)(struct tx *tx, void *impl, struct error *err);
	void (*finish)(struct tx *tx, void *impl);
	bool (*is_null)(void *impl, int column);
	const char *(*text)(void *impl, int column);
	int64_t (*integer)(void *impl, int column);
};

extern const struct db_engine sqlite_engine;
extern const struct db_engine postgres_engine;

/*
 * Runs fn with a fresh error state. 0 only if fn succeeded and no tx call inside it failed;
 * otherwise -1 with the error of fn, or that of the call it overlooked. `err` is not NULL here.
 */
int tx_run(struct tx *tx, db_fn *fn, void *arg, struct error *err);

/* Runs one statement of a migration. */
int tx_exec_text(struct tx *tx, const char *text, struct error *err);

/* db_open with another list of migrations. */
int db_open_known(struct db **db, const struct db_options *options, const struct migration *known,
		  struct error *err);

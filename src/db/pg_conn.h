/*
 * One PostgreSQL connection: statements, results and the tx calls on it. Used by one thread at a
 * time. Every wait for the server ends at a deadline; a connection that missed one is dead, because
 * what it would still say belongs to nobody.
 */
#pragma once

#include <libpq-fe.h>
#include "base/clock.h"
#include "db/engine.h"
#include "db/stmt_map.h"

struct pg_result;

struct pg_conn {
	struct tx tx;
	PGconn *link;
	struct clock clock;
	struct stmt_map statements;
	unsigned statement_count;
	struct pg_result *open; /* cursors */
	bool dead;              /* the link is unusable */
	bool conflict;          /* the transaction lost against another one: run it again */
};

int pg_conn_open(struct pg_conn **conn, const char *url, int lock_timeout_ms, struct error *err);
void pg_conn_close(struct pg_conn *conn); /* NULL is fine */

/*
 * BEGIN, COMMIT and the like. deadline_ms is from now. *tag, if asked for, is the command the
 * server says it completed.
 */
int pg_conn_control(struct pg_conn *conn, const char *text, int deadline_ms, char tag[64],
		    struct error *err);
/* Frees the results of cursors that a closure left open. */
void pg_conn_end_cursors(struct pg_conn *conn);

/* The tx calls, for the table of the engine. */
int pg_prepare(struct tx *tx, const struct sql *sql, struct error *err);
int64_t pg_exec(struct tx *tx, const struct sql *sql, const struct bind *binds, struct error *err);
int pg_exec_text(struct tx *tx, const char *text, struct error *err);
int pg_query(struct tx *tx, void **impl, const struct sql *sql, const struct bind *binds,
	     struct error *err);
int pg_next(struct tx *tx, void *impl, struct error *err);
void pg_finish(struct tx *tx, void *impl);
bool pg_is_null(void *impl, int column);
const char *pg_text(void *impl, int column);
int64_t pg_integer(void *impl, int column);

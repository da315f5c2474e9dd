#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/id.h"
#include "base/log.h"
#include "base/text.h"
#include "db/pg_conn.h"
#include "db/pool.h"

#define CONNECTIONS_DEFAULT 8
#define LOCK_TIMEOUT_DEFAULT_MS 5000
#define POOL_WAIT_MS 30000
#define CONTROL_DEADLINE_MS 45000
/* Another node may be migrating; its statements have no timeout, so ours is long. */
#define SCHEMA_WAIT_MS 600000
#define SCHEMA_LOCK_KEY "4776561"
/* Held by the one server of the database, on a connection of its own. */
#define SERVER_LOCK_KEY "4776562"
#define CLAIM_DEADLINE_MS 10000
#define CLAIM_POLL_US 50000

/*
 * Serialization failures are how PostgreSQL says "again". All writers of one counter conflict with
 * each other: as many as a pool holds need about 15 attempts at worst, so the limit is for a
 * conflict that never ends.
 */
#define CONFLICTS_MAX 50
#define LOSSES_MAX 3
#define PAUSE_MAX_MS 64

struct postgres_db {
	struct db db;
	char *url;
	int lock_timeout_ms;
	struct pool connections;
	struct pg_conn *migrating;
	struct pg_conn *claim; /* has the lock of the server; NULL: not claimed */
};

struct mode {
	const char *begin;
	bool writes;
};
static const struct mode writing = { "BEGIN ISOLATION LEVEL SERIALIZABLE", true };
static const struct mode reading = { "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", false };

enum verdict { DONE, FAILED, CONFLICT, LOST };

static void close_connection(struct tx *tx)
{
	pg_conn_close((struct pg_conn *)tx);
}

static void postgres_close_db(struct db *db)
{
	struct postgres_db *p = (struct postgres_db *)db;
	pool_drain(&p->connections, close_connection);
	pg_conn_close(p->migrating);
	pg_conn_close(p->claim);
	free(p->url);
	free(p);
}

static int postgres_open_db(struct db **db, const struct db_options *options, struct error *err)
{
	if (!PQisthreadsafe())
		return error_set(err, ERR_DB, "this libpq was built without thread support");
	struct postgres_db *p = xcalloc(1, sizeof(*p));
	p->db.engine = &postgres_engine;
	p->url = xstrdup(options->url);
	p->lock_timeout_ms =
		options->busy_timeout_ms > 0 ? options->busy_timeout_ms : LOCK_TIMEOUT_DEFAULT_MS;
	pool_init(&p->connections, options->readers > 0 ? options->readers : CONNECTIONS_DEFAULT,
		  POOL_WAIT_MS);
	*db = &p->db;
	return 0;
}

static int postgres_adopt(struct db *db, struct error *err)
{
	(void)db;
	(void)err;
	return 0;
}

/* When the machine of a server dies without a word PostgreSQL notices within half a minute. */
static const char CLAIM_SETTINGS[] = "SET tcp_keepalives_idle = 10;"
				     "SET tcp_keepalives_interval = 5;"
				     "SET tcp_keepalives_count = 3";
static const struct sql CLAIM_TRY = { "CLAIM_TRY",
				      "SELECT CASE WHEN pg_try_advisory_lock(" SERVER_LOCK_KEY
				      ") THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END",
				      NULL };
static const struct sql CLAIM_HOLDER = {
	"CLAIM_HOLDER",
	"SELECT a.application_name || COALESCE(' from ' || host(a.client_addr), ''),"
	" to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
	" FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
	" WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.classid = 0"
	" AND l.objid = " SERVER_LOCK_KEY
	" AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
	NULL
};

static int claim_refused(struct pg_conn *conn, struct error *err)
{
	struct cursor c = { .tx = &conn->tx };
	const char *name = NULL, *since = NULL;

	if (pg_query(&conn->tx, &c.impl, &CLAIM_HOLDER, B_ARRAY_(), NULL) == 0 &&
	    pg_next(&conn->tx, c.impl, NULL) > 0) {
		name = pg_text(c.impl, 0);
		since = pg_text(c.impl, 1);
	}
	error_set(err, ERR_LOCKED,
		  "this database has a server already: %s, since %s. Several servers on one "
		  "database are not safe yet: stop that one first, or give this one a database of "
		  "its own",
		  name ? name : "one whose name this user may not read",
		  since ? since : "an unknown time");
	pg_conn_end_cursors(conn);
	return -1;
}

/* 1: this connection has it. */
static int claim_try(struct pg_conn *conn, struct error *err)
{
	void *impl = NULL;
	int r;

	if (pg_query(&conn->tx, &impl, &CLAIM_TRY, B_ARRAY_(), err) < 0)
		return -1;
	r = pg_next(&conn->tx, impl, err);
	if (r > 0)
		r = pg_integer(impl, 0) > 0;
	pg_conn_end_cursors(conn);
	return r;
}

/* The name, which also shows whether the connection is there. */
static int claim_sign(struct pg_conn *conn, const char *name, struct error *err)
{
	char *quoted = PQescapeLiteral(conn->link, name, strlen(name));
	_cleanup_free_ char *text = xasprintf("SET application_name = %s", quoted ? quoted : "''");

	PQfreemem(quoted);
	return pg_conn_control(conn, text, CLAIM_DEADLINE_MS, NULL, err);
}

static void drop_claim(struct postgres_db *p)
{
	pg_conn_close(p->claim);
	p->claim = NULL;
}

static int claim_anew(struct postgres_db *p, int wait_ms, struct error *err)
{
	struct clock clock;
	int64_t until;
	int r;

	clock_init_system(&clock);
	until = clock_mono(&clock) + wait_ms;
	if (pg_conn_open(&p->claim, p->url, p->lock_timeout_ms, err) < 0)
		return -1;
	r = pg_conn_control(p->claim, CLAIM_SETTINGS, CLAIM_DEADLINE_MS, NULL, err);
	while (r == 0 && (r = claim_try(p->claim, err)) == 0 && clock_mono(&clock) < until)
		usleep(CLAIM_POLL_US);
	if (r > 0)
		return 0;
	if (r == 0)
		claim_refused(p->claim, err);
	drop_claim(p);
	return -1;
}

static int postgres_claim(struct db *db, const char *name, int wait_ms, struct error *err)
{
	struct postgres_db *p = (struct postgres_db *)db;

	/* A connection that is gone has given the lock back: it is taken again, if it can be. */
	if (p->claim && claim_sign(p->claim, name, NULL) < 0)
		drop_claim(p);
	else if (p->claim)
		return 0;
	if (claim_anew(p, wait_ms, err) < 0)
		return -1;
	return claim_sign(p->claim, name, err);
}

/*
 * A session lock on a connection of its own, taken before any transaction: inside a SERIALIZABLE
 * one the snapshot is older than the lock, and the tables the other node made would not be seen.
 */
static int postgres_lock_schema(struct db *db, struct error *err)
{
	struct postgres_db *p = (struct postgres_db *)db;
	if (pg_conn_open(&p->migrating, p->url, SCHEMA_WAIT_MS, err) < 0)
		return -1;
	return pg_conn_control(p->migrating,
			       "SET statement_timeout = 0;"
			       "SELECT pg_advisory_lock(" SCHEMA_LOCK_KEY ")",
			       SCHEMA_WAIT_MS + CONTROL_DEADLINE_MS, NULL, err);
}

static void postgres_unlock_schema(struct db *db)
{
	struct postgres_db *p = (struct postgres_db *)db;
	pg_conn_close(p->migrating);
	p->migrating = NULL;
}

static int take_connection(struct postgres_db *p, struct pg_conn **conn, struct error *err)
{
	struct tx *idle = NULL;
	if (pool_take(&p->connections, &idle, err) < 0)
		return -1;
	*conn = (struct pg_conn *)idle;
	if (!idle && pg_conn_open(conn, p->url, p->lock_timeout_ms, err) < 0) {
		pool_give(&p->connections, NULL);
		return -1;
	}
	return 0;
}

/* When one connection has died the others were likely made before the same accident. */
static void give_connection(struct postgres_db *p, struct pg_conn *conn)
{
	if (!conn->dead) {
		pool_give(&p->connections, &conn->tx);
		return;
	}
	pg_conn_close(conn);
	pool_give(&p->connections, NULL);
	pool_close_idle(&p->connections, close_connection);
}

static enum verdict commit(struct pg_conn *conn, const struct mode *mode, struct error *err)
{
	char tag[64] = "";
	int r = pg_conn_control(conn, "COMMIT", CONTROL_DEADLINE_MS, tag, err);
	if (r == 0 && streq(tag, "COMMIT"))
		return DONE;
	if (r == 0) {
		error_set(err, ERR_DB, "PostgreSQL answered COMMIT with %s", tag);
		return FAILED;
	}
	if (conn->conflict)
		return CONFLICT;
	if (!conn->dead)
		return FAILED;
	if (!mode->writes)
		return LOST;
	/* Running it again could do it twice. */
	error_recode(err, ERR_DB);
	error_wrap(err, "outcome unknown: PostgreSQL was lost while committing");
	return FAILED;
}

static enum verdict attempt(struct pg_conn *conn, const struct mode *mode, db_fn *fn, void *arg,
			    struct error *err)
{
	conn->conflict = false;
	if (pg_conn_control(conn, mode->begin, CONTROL_DEADLINE_MS, NULL, err) < 0)
		return conn->dead ? LOST : FAILED;

	int r = tx_run(&conn->tx, fn, arg, err);
	pg_conn_end_cursors(conn);
	if (r == 0)
		return commit(conn, mode, err);

	/* COMMIT was never sent, so whatever happened to the connection, nothing was written. */
	if (!conn->dead)
		pg_conn_control(conn, "ROLLBACK", CONTROL_DEADLINE_MS, NULL, NULL);
	if (conn->conflict)
		return CONFLICT;
	return conn->tx.failure.code != ERR_NONE && conn->dead ? LOST : FAILED;
}

static enum verdict attempt_pooled(struct postgres_db *p, const struct mode *mode, db_fn *fn,
				   void *arg, struct error *err)
{
	struct pg_conn *conn = NULL;
	if (take_connection(p, &conn, err) < 0)
		return FAILED;
	enum verdict verdict = attempt(conn, mode, fn, arg, err);
	give_connection(p, conn);
	return verdict;
}

static void pause_before(int attempts)
{
	uint32_t random = 0;
	random_bytes(&random, sizeof(random));
	uint32_t limit_us = 1000u * MIN_OF(1u << MIN_OF(attempts, 10), PAUSE_MAX_MS);
	struct timespec pause = { .tv_nsec = (long)(random % limit_us) * 1000 };
	nanosleep(&pause, NULL);
}

static int run(struct db *db, const struct mode *mode, db_fn *fn, void *arg, struct error *err)
{
	struct postgres_db *p = (struct postgres_db *)db;
	int conflicts = 0;
	int losses = 0;
	for (;;) {
		enum verdict verdict = attempt_pooled(p, mode, fn, arg, err);
		if (verdict == DONE)
			return 0;
		if (verdict == FAILED)
			return -1;
		if (verdict == CONFLICT ? ++conflicts > CONFLICTS_MAX : ++losses > LOSSES_MAX)
			break;
		pause_before(conflicts + losses);
	}
	log_warn("a database transaction was given up after %d conflicts and %d lost connections",
		 conflicts, losses);
	return error_recode(err, conflicts > CONFLICTS_MAX ? ERR_DB_BUSY : ERR_UNAVAILABLE);
}

static int postgres_write(struct db *db, enum db_promise promise, db_fn *fn, void *arg,
			  struct error *err)
{
	(void)promise;
	return run(db, &writing, fn, arg, err);
}

static int postgres_read(struct db *db, db_fn *fn, void *arg, struct error *err)
{
	return run(db, &reading, fn, arg, err);
}

static int postgres_backup(struct db *db, const char *to_path, struct error *err)
{
	(void)db;
	return error_set(err, ERR_UNPROCESSABLE,
			 "Berth does not copy a PostgreSQL database; run "
			 "pg_dump --format=custom --file=%s with the same URL",
			 to_path);
}

static void postgres_library(char *text, size_t size)
{
	int version = PQlibVersion();

	snprintf(text, size, "libpq %d.%d", version / 10000, version % 10000);
}

const struct db_engine postgres_engine = {
	.dialect = DIALECT_POSTGRES,
	.library = postgres_library,
	/* Tables of others may stand beside ours, an extension brings its own. */
	.schema_probe = { .name = "SCHEMA_PROBE",
			  .text = "SELECT COUNT(*), 0 FROM pg_catalog.pg_tables"
				  " WHERE schemaname = current_schema()"
				  " AND tablename = 'schema_migrations'" },
	.open = postgres_open_db,
	.close = postgres_close_db,
	.adopt = postgres_adopt,
	.claim = postgres_claim,
	.lock_schema = postgres_lock_schema,
	.unlock_schema = postgres_unlock_schema,
	.write = postgres_write,
	.read = postgres_read,
	.backup = postgres_backup,
	.prepare = pg_prepare,
	.exec = pg_exec,
	.exec_text = pg_exec_text,
	.query = pg_query,
	.next = pg_next,
	.finish = pg_finish,
	.is_null = pg_is_null,
	.text = pg_text,
	.integer = pg_integer,
};

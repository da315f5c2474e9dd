#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/id.h"
#include "db/pool.h"
#include "db/sqlite_conn.h"
#include "db/sqlite_writer.h"

#define READERS_DEFAULT 12
#define BUSY_TIMEOUT_DEFAULT_MS 5000
/* How long a reader waits for one of the others to finish. */
#define READER_WAIT_MS 30000
/* How old a snapshot may be that is read from again: what another program writes shows after that.
 */
#define SNAPSHOT_NS 5000000

static const struct sql BEGIN = { "BEGIN", "BEGIN", NULL };
static const struct sql COMMIT = { "COMMIT", "COMMIT", NULL };
static const struct sql ROLLBACK = { "ROLLBACK", "ROLLBACK", NULL };

struct sqlite_db {
	struct db db;
	char *path;
	int busy_timeout_ms;
	struct sqlite_conn *writing;
	struct sqlite_writer *writer;
	struct pool readers;
	/* Only beside a WAL: elsewhere a reader stops the writer. Nor while it begins anew. */
	atomic_bool keeps_snapshots;
};

static void close_reader(struct tx *tx)
{
	sqlite_conn_close((struct sqlite_conn *)tx);
}

static void sqlite_close_db(struct db *db)
{
	struct sqlite_db *s = (struct sqlite_db *)db;
	sqlite_writer_stop(s->writer);
	pool_drain(&s->readers, close_reader);
	/* The writing connection goes last: it is the one that can empty the WAL into the file. */
	sqlite_conn_close(s->writing);
	free(s->path);
	free(s);
}

/* SQLite would make the file readable for everybody; its companions take their mode from it. */
static int create_private(const char *path, struct error *err)
{
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 && errno != EEXIST)
		return error_errno(err, errno, "cannot create the database %s", path);
	return 0;
}

static int sqlite_open_db(struct db **db, const struct db_options *options, struct error *err)
{
	/*
	 * Its account of memory is one lock for all connections, taken at every allocation, and
	 * nobody reads it. Refused once a database is open in this process, which is as well.
	 */
	sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
	if (create_private(options->path, err) < 0)
		return -1;

	struct sqlite_db *s = xcalloc(1, sizeof(*s));
	s->db.engine = &sqlite_engine;
	s->path = xstrdup(options->path);
	s->busy_timeout_ms =
		options->busy_timeout_ms > 0 ? options->busy_timeout_ms : BUSY_TIMEOUT_DEFAULT_MS;
	pool_init(&s->readers, options->readers > 0 ? options->readers : READERS_DEFAULT,
		  READER_WAIT_MS);
	if (sqlite_conn_open(&s->writing, s->path, false, s->busy_timeout_ms, err) < 0 ||
	    sqlite_writer_start(&s->writer, s->writing, err) < 0) {
		sqlite_close_db(&s->db);
		return -1;
	}
	*db = &s->db;
	return 0;
}

static int enter_wal(struct sqlite_conn *conn, struct error *err)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(conn->handle, "PRAGMA journal_mode = WAL", -1, &stmt, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);

	int r = 0;
	if (rc != SQLITE_ROW)
		r = sqlite_conn_error(conn, err);
	else if (sqlite3_stricmp((const char *)sqlite3_column_text(stmt, 0), "wal") != 0)
		r = error_set(err, ERR_DB, "the file system of %s does not support a shared WAL",
			      conn->path);
	sqlite3_finalize(stmt);
	return r;
}

static void end_snapshot(struct sqlite_conn *reader)
{
	if (reader->has_snapshot && sqlite_conn_control(reader, &COMMIT, NULL) < 0 &&
	    !sqlite_conn_lost_transaction(reader))
		sqlite_conn_control(reader, &ROLLBACK, NULL);
	reader->has_snapshot = false;
}

static void let_go(struct tx *tx)
{
	end_snapshot((struct sqlite_conn *)tx);
}

/* Those that read at the moment leave by themselves. */
static void readers_leave(void *arg)
{
	struct sqlite_db *s = arg;

	atomic_store(&s->keeps_snapshots, false);
	pool_each_idle(&s->readers, let_go);
}

static void readers_may_stay(void *arg)
{
	struct sqlite_db *s = arg;

	atomic_store(&s->keeps_snapshots, true);
}

/*
 * Before the writer has had its first job, so its connection is ours. The limit is what a WAL
 * that grew under a long read is cut back to.
 */
static int sqlite_adopt(struct db *db, struct error *err)
{
	struct sqlite_db *s = (struct sqlite_db *)db;
	struct sqlite_readers readers = { readers_leave, readers_may_stay, s };

	if (enter_wal(s->writing, err) < 0)
		return -1;
	readers_may_stay(s);
	sqlite_writer_checkpoints(s->writer, &readers);
	return sqlite_exec_text(&s->writing->tx, "PRAGMA journal_size_limit = 16777216", err);
}

static int sqlite_claim(struct db *db, const char *name, int wait_ms, struct error *err)
{
	(void)db;
	(void)name;
	(void)wait_ms;
	(void)err;
	return 0;
}

/* BEGIN IMMEDIATE is lock enough: each migration looks at the version again inside it. */
static int sqlite_lock_schema(struct db *db, struct error *err)
{
	(void)db;
	(void)err;
	return 0;
}

static void sqlite_unlock_schema(struct db *db)
{
	(void)db;
}

static int sqlite_write(struct db *db, enum db_promise promise, db_fn *fn, void *arg,
			struct error *err)
{
	return sqlite_writer_run(((struct sqlite_db *)db)->writer, promise, fn, arg, err);
}

static int take_reader(struct sqlite_db *s, struct sqlite_conn **reader, struct error *err)
{
	struct tx *idle = NULL;
	if (pool_take(&s->readers, &idle, err) < 0)
		return -1;
	*reader = (struct sqlite_conn *)idle;
	if (!idle && sqlite_conn_open(reader, s->path, true, s->busy_timeout_ms, err) < 0) {
		pool_give(&s->readers, NULL);
		return -1;
	}
	return 0;
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/*
 * Taking and giving back the locks of a snapshot is half of what reading one row costs. So a reader
 * stays in its snapshot between reads and uses it again while nothing was committed since; who has
 * the answer to a write has seen the count rise and reads what it wrote.
 */
static int begin_read(struct sqlite_db *s, struct sqlite_conn *reader, struct error *err)
{
	uint64_t commits = sqlite_writer_commits(s->writer);
	int64_t now = now_ns();

	if (reader->has_snapshot && reader->snapshot_commits == commits &&
	    now - reader->snapshot_ns < SNAPSHOT_NS)
		return 0;
	end_snapshot(reader);
	if (sqlite_conn_control(reader, &BEGIN, err) < 0)
		return -1;
	reader->has_snapshot = true;
	reader->snapshot_commits = commits;
	reader->snapshot_ns = now;
	return 0;
}

static int sqlite_read(struct db *db, db_fn *fn, void *arg, struct error *err)
{
	struct sqlite_db *s = (struct sqlite_db *)db;
	struct sqlite_conn *reader = NULL;
	if (take_reader(s, &reader, err) < 0)
		return -1;

	int r = begin_read(s, reader, err);
	if (r == 0) {
		r = tx_run(&reader->tx, fn, arg, err);
		sqlite_conn_end_cursors(reader);
		if (r < 0 || !atomic_load(&s->keeps_snapshots))
			end_snapshot(reader);
	}
	pool_give(&s->readers, &reader->tx);
	return r;
}

static int copy_pages(struct sqlite_conn *from, sqlite3 *to, const char *to_path, struct error *err)
{
	sqlite3_backup *backup = sqlite3_backup_init(to, "main", from->handle, "main");
	if (!backup)
		return error_set(err, ERR_DB, "cannot copy to %s: %s", to_path, sqlite3_errmsg(to));
	/* In one step: a copy in several starts over whenever the writer commits between them. */
	int rc = sqlite3_backup_step(backup, -1);
	sqlite3_backup_finish(backup);
	if (rc == SQLITE_FULL || sqlite3_system_errno(to) == ENOSPC)
		return error_set(err, ERR_DISK_FULL, "no space left for the copy %s", to_path);
	if (rc != SQLITE_DONE)
		return error_set(err, rc == SQLITE_BUSY ? ERR_DB_BUSY : ERR_DB,
				 "cannot copy to %s: %s", to_path, sqlite3_errstr(rc));
	return 0;
}

static int copy_to(struct sqlite_conn *from, const char *path, struct error *err)
{
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_errno(err, errno, "cannot create %s", path);

	sqlite3 *to = NULL;
	int r = -1;
	int rc = sqlite3_open_v2(path, &to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
	if (rc != SQLITE_OK)
		error_set(err, ERR_DB, "cannot open %s: %s", path, sqlite3_errstr(rc));
	else {
		/* Nobody reads the copy before it is complete and synced below. */
		sqlite3_exec(to, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", NULL, NULL,
			     NULL);
		r = copy_pages(from, to, path, err);
	}
	sqlite3_close(to);
	return r == 0 ? fd_sync(fd, err) : r;
}

static int sync_parent(const char *path, struct error *err)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *parent = !slash          ? xstrdup(".")
				      : slash == path ? xstrdup("/")
						      : xstrndup(path, (size_t)(slash - path));
	_cleanup_close_ int fd = -1;
	if (dir_open(AT_FDCWD, parent, &fd, err) < 0)
		return -1;
	return dir_sync(fd, err);
}

static bool same_file(const char *a, const char *b)
{
	struct stat sa;
	struct stat sb;
	return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
	       sa.st_ino == sb.st_ino;
}

static int sqlite_backup_db(struct db *db, const char *to_path, struct error *err)
{
	struct sqlite_db *s = (struct sqlite_db *)db;
	if (same_file(s->path, to_path))
		return error_set(err, ERR_BAD_PATH, "%s is the database itself", to_path);

	struct sqlite_conn *reader = NULL;
	if (take_reader(s, &reader, err) < 0)
		return -1;
	char id[ID_SIZE];
	id_new(id);
	end_snapshot(reader);
	_cleanup_free_ char *temporary = xasprintf("%s.%s.tmp", to_path, id);
	int r = copy_to(reader, temporary, err);
	pool_give(&s->readers, &reader->tx);

	if (r == 0)
		r = FAULT_HERE("store.backup.copied", err);
	if (r == 0 && rename(temporary, to_path) < 0)
		r = error_errno(err, errno, "cannot name the copy %s", to_path);
	if (r < 0) {
		unlink(temporary);
		return -1;
	}
	if (FAULT_HERE("store.backup.named", err) < 0)
		return -1;
	return sync_parent(to_path, err);
}

static void sqlite_library(char *text, size_t size)
{
	snprintf(text, size, "SQLite %s", sqlite3_libversion());
}

const struct db_engine sqlite_engine = {
	.dialect = DIALECT_SQLITE,
	.library = sqlite_library,
	.schema_probe = { .name = "SCHEMA_PROBE",
			  .text = "SELECT COUNT(*) FILTER (WHERE name = 'schema_migrations'),"
				  " COUNT(*) FILTER (WHERE name <> 'schema_migrations')"
				  " FROM sqlite_master WHERE type = 'table'" },
	.open = sqlite_open_db,
	.close = sqlite_close_db,
	.adopt = sqlite_adopt,
	.claim = sqlite_claim,
	.lock_schema = sqlite_lock_schema,
	.unlock_schema = sqlite_unlock_schema,
	.write = sqlite_write,
	.read = sqlite_read,
	.backup = sqlite_backup_db,
	.prepare = sqlite_prepare,
	.exec = sqlite_exec,
	.exec_text = sqlite_exec_text,
	.query = sqlite_query,
	.next = sqlite_next,
	.finish = sqlite_finish,
	.is_null = sqlite_is_null,
	.text = sqlite_text,
	.integer = sqlite_integer,
};

#include "db/restore.h"
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/text.h"
#include "db/migrate.h"

#define PIECE ((size_t)1 << 20)

static int copy_bytes(int from, int to, const char *path, struct error *err)
{
	_cleanup_free_ char *piece = xmalloc(PIECE);

	for (;;) {
		ssize_t n = read(from, piece, PIECE);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot read the backup");
		if (n == 0)
			return fd_sync(to, err);
		if (fd_write_all(to, piece, (size_t)n, err) < 0)
			return error_wrap(err, "writing %s", path);
	}
}

static int copy_file(const char *from_path, const char *to_path, struct error *err)
{
	_cleanup_close_ int from = open(from_path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;

	if (from < 0)
		return error_errno(err, errno, "cannot open %s", from_path);
	if (fstat(from, &st) < 0 || !S_ISREG(st.st_mode))
		return error_set(err, ERR_BAD_REQUEST, "%s is not a file", from_path);

	_cleanup_close_ int to =
		open(to_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (to < 0)
		return error_errno(err, errno, "cannot create %s", to_path);
	return copy_bytes(from, to, to_path, err);
}

/* The first column of the first row, as text; NULL with err set. */
static int first_row(sqlite3 *db, const char *sql, sqlite3_stmt **stmt, struct error *err)
{
	int rc = sqlite3_prepare_v2(db, sql, -1, stmt, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(*stmt);
	if (rc == SQLITE_ROW || rc == SQLITE_DONE)
		return rc == SQLITE_ROW;
	return error_set(err, ERR_DB, "the backup cannot be read: %s", sqlite3_errmsg(db));
}

static int check_whole(sqlite3 *db, struct error *err)
{
	sqlite3_stmt *stmt = NULL;
	int r = first_row(db, "PRAGMA integrity_check(1)", &stmt, err);

	if (r >= 0 && (r == 0 || !streq((const char *)sqlite3_column_text(stmt, 0), "ok")))
		r = error_set(err, ERR_DB, "the backup is damaged: %.200s",
			      r ? (const char *)sqlite3_column_text(stmt, 0)
				: "it printed no error");
	sqlite3_finalize(stmt);
	if (r < 0)
		return -1;
	r = first_row(db, "PRAGMA foreign_key_check", &stmt, err);
	if (r > 0)
		r = error_set(err, ERR_DB,
			      "the backup is damaged: a row of %.60s refers to nothing",
			      (const char *)sqlite3_column_text(stmt, 0));
	sqlite3_finalize(stmt);
	return r;
}

static int check_version(sqlite3 *db, struct restored *found, struct error *err)
{
	int64_t newest = 0;
	sqlite3_stmt *stmt = NULL;
	int r = first_row(db, "SELECT MAX(version) FROM schema_migrations", &stmt, err);

	if (r > 0)
		found->version = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	if (r < 0)
		return error_wrap(err, "this is not a database of Berth");
	for (const struct migration *m = migrations; m->version; m++)
		newest = m->version;
	if (found->version < 1)
		return error_set(err, ERR_DB_SCHEMA, "this is not a database of Berth");
	if (found->version > newest)
		return error_set(err, ERR_DB_SCHEMA,
				 "the backup has schema version %lld, this program knows up to "
				 "%lld: restore it with the newer Berth",
				 (long long)found->version, (long long)newest);
	return 0;
}

/* Whoever used it last goes on as the same node, so that what it held is settled at once. */
static int read_node(sqlite3 *db, struct restored *found, struct error *err)
{
	sqlite3_stmt *stmt = NULL;
	int r = first_row(db, "SELECT id, boot_epoch FROM nodes ORDER BY heartbeat_at DESC LIMIT 1",
			  &stmt, err);

	if (r > 0) {
		id_copy(found->node_id, (const char *)sqlite3_column_text(stmt, 0));
		found->boot_epoch = sqlite3_column_int64(stmt, 1);
	}
	sqlite3_finalize(stmt);
	return r < 0 ? -1 : 0;
}

static int inspect(const char *path, struct restored *found, struct error *err)
{
	sqlite3 *db = NULL;
	int r = -1;

	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
	    SQLITE_OK)
		error_set(err, ERR_DB, "the backup cannot be opened: %s",
			  db ? sqlite3_errmsg(db) : "no memory");
	else if (check_version(db, found, err) == 0 && check_whole(db, err) == 0)
		r = read_node(db, found, err);
	sqlite3_close(db);
	return r;
}

int db_restore_prepare(const char *backup_path, const char *to_path, struct restored *found,
		       struct error *err)
{
	_cleanup_free_ char *copy = xasprintf("%s" DB_RESTORING, to_path);

	*found = (struct restored){ 0 };
	if (copy_file(backup_path, copy, err) == 0 && inspect(copy, found, err) == 0)
		return 0;
	unlink(copy);
	return -1;
}

int db_restore_commit(const char *to_path, struct error *err)
{
	_cleanup_free_ char *copy = xasprintf("%s" DB_RESTORING, to_path);
	_cleanup_free_ char *dir = xstrndup(to_path, (size_t)(strrchr(to_path, '/') - to_path));
	_cleanup_close_ int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dirfd < 0 || renameat2(AT_FDCWD, copy, AT_FDCWD, to_path, RENAME_NOREPLACE) < 0)
		return error_errno(err, errno, "cannot name the database %s", to_path);
	return fd_sync(dirfd, err);
}

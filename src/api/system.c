/*
 * The server itself: whether it is well, what nothing explains, and the maintenance an operator may ask
 * for.
 */
#include <sys/stat.h>
#include "api/answer.h"
#include "api/history.h"
#include "api/server.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "db/restore.h"
#include "exec/execs.h"

#define ABANDONED_S 3600 /* a copy that nobody has written to for so long */

static json_t *database_health(struct server *server, bool *ok)
{
	_cleanup_error_ struct error err = { 0 };
	char library[DB_LIBRARY_SIZE];
	json_t *json = json_object();

	*ok = db_ping(server->db, &err) == 0;
	json_put_str(json, "engine", db_is_postgres(server->db) ? "postgres" : "sqlite");
	db_library(server->db, library);
	json_put_str(json, "library", library);
	json_put_bool(json, "ok", *ok);
	if (!*ok)
		json_put_str(json, "error", err.message);
	return json;
}

static json_t *count_of(size_t active)
{
	json_t *json = json_object();

	json_put_int(json, "active", (int64_t)active);
	return json;
}

static void put_details(struct server *server, json_t *json)
{
	json_put_str(json, "version", BERTH_VERSION);
	json_put_str(json, "nodeId", server->node.id);
	json_put_int(json, "bootEpoch", server->node.boot_epoch);
	json_put_new(json, "leases", leases_counts(server->leases, NULL));
	json_put_new(json, "runs", count_of(runs_active(server->runs)));
	json_put_new(json, "execs", count_of(execs_active(server->execs)));
	json_put_int(json, "connections", (int64_t)http_connections(server->http));
	json_put_int(json, "clockDriftMs", server->clock.drift_ms(&server->clock));
	json_put_int(json, "diskFreeBytes", dir_free_bytes(server->data_dirfd));
	json_put_int(json, "uptimeMs", clock_now(&server->clock) - server->started_at);
	json_put_int(json, "pid", getpid());
	json_put_str(json, "dataPath", server->data_path);
	json_put_new(json, "warnings", server_warnings(server));
}

/* A stranger learns only that somebody is there and whether it is well. */
static int health(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	json_t *json = json_object();
	bool ok;
	json_t *database = database_health(server, &ok);
	(void)err;

	json_put_str(json, "status", ok ? "ok" : "degraded");
	if (request->actor.is_admin) {
		json_put_ref(json, "database", database);
		put_details(server, json);
	}
	json_decref(database);
	return answer(response, ok ? 200 : 503, json);
}

static int audit(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_json_ json_t *found = leases_audit(server->leases, err);
	(void)request;

	if (!found || runs_audit_files(server->runs, found, err) < 0)
		return -1;
	return answer(response, 200, json_incref(found));
}

/* Not part of health: a keeper that hangs must not make the server look as if it did. */
static int keeper(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	json_t *health = places_health(server->places);
	(void)request;
	(void)err;

	json_put_new(health, "allow", allow_json(&server->options.allow));
	return answer(response, 200, health);
}

static int prune(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	int64_t age_ms = json_int(request->body, "olderThanSeconds", -1) * 1000;
	struct prune_request what = {
		.only = json_str(request->body, "only"),
		.dry_run = json_bool(request->body, "dryRun", false),
	};

	if (age_ms < 0)
		age_ms = server->options.retention_ms;
	what.before_ms = clock_now(&server->clock) - age_ms;
	if (what.dry_run && what.only && !history_counts(what.only))
		return error_set(err, ERR_VALIDATION,
				 "a dry run counts runs, leases, activity and workspaces only");
	return answer(response, 200, history_prune(server, &what, err));
}

static char *backup_path(struct server *server, struct error *err)
{
	char time[TIME_ISO_SIZE];

	if (dir_make(server->data_dirfd, "backups", 0700, err) < 0)
		return NULL;
	time_iso(clock_now(&server->clock), time);
	return xasprintf("%s/backups/berth-%s.db", server->data_path, time);
}

/* Another server may back up to the same directory at this moment: only what is long untouched. */
static void sweep_beside(const char *path)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *dir = xstrndup(path, (size_t)(slash - path) + (slash == path));

	db_backup_sweep(dir, ABANDONED_S);
}

static int backup(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	const char *wanted = json_str(request->body, "path");
	_cleanup_free_ char *path = wanted ? xstrdup(wanted) : backup_path(server, err);
	struct stat st = { 0 };

	if (!path)
		return -1;
	/* With a token one is not the server's user, who alone may write anywhere as that. */
	if (wanted && request->actor.kind != ACTOR_LOCAL)
		return error_set(
			err, ERR_FORBIDDEN,
			"only the user this server runs as may choose the path; leave it out");
	if (!path_is_absolute(path))
		return error_set(err, ERR_VALIDATION, "path must be absolute");
	sweep_beside(path);
	if (db_backup(server->db, path, err) < 0)
		return -1;

	json_t *json = json_object();

	json_put_str(json, "path", path);
	if (stat(path, &st) == 0)
		json_put_int(json, "bytes", st.st_size);
	return answer(response, 201, json);
}

static const struct field PRUNE_FIELDS[] = {
	{ .name = "olderThanSeconds",
	  .type = FIELD_INT,
	  .min = 0,
	  .max = 100LL * 366 * 86400,
	  .summary = "Deletes finished history older than this; default: the server's retention" },
	{ .name = "only",
	  .type = FIELD_STRING,
	  .one_of = PRUNE_KINDS,
	  .summary = "Only this kind of history" },
	{ .name = "dryRun",
	  .type = FIELD_BOOL,
	  .summary =
		  "Deletes nothing: counts the runs, leases and activity that would be deleted" },
	{ 0 },
};
static const struct field BACKUP_FIELDS[] = {
	{ .name = "path",
	  .type = FIELD_STRING,
	  .min = 1,
	  .max = 4000,
	  .summary = "Path of the copy; default: below the data directory" },
	{ 0 },
};

ROUTES(SYSTEM_ROUTES, 130) = {
	{ HTTP_GET, "/api/health", .access = ACCESS_PUBLIC, .run = health, .answer = "Health",
	  .summary = "Health of the server" },
	{ HTTP_GET, "/api/audit", .access = ACCESS_ADMIN, .run = audit, .answer = "[Unexplained]",
	  .summary = "Every object that no place explains, and every cleanup that is still due" },
	{ HTTP_GET, "/api/keeper", .access = ACCESS_ADMIN, .run = keeper, .answer = "Keeper",
	  .summary = "Whether commands can be kept: the keeper and the relay program" },
	{ HTTP_POST, "/api/prune", ROUTE_NO_BODY_OK, PRUNE_FIELDS, .access = ACCESS_ADMIN,
	  .run = prune, .answer = "Pruned", .summary = "Deletes finished history" },
	{ HTTP_POST, "/api/backup", ROUTE_NO_BODY_OK, BACKUP_FIELDS, .access = ACCESS_ADMIN,
	  .run = backup, .answer = "201 Backup",
	  .summary = "A consistent copy of the database while it is in use" },
	{ 0 },
};

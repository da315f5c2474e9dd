#include "api/upkeep.h"
#include <limits.h>
#include <poll.h>
#include "api/data.h"
#include "api/execs.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "record/activity.h"
#include "record/event.h"
#include "record/idempotency.h"

#define SECOND ((int64_t)1000)
#define SECRETS_KEPT_MS ((int64_t)24 * 3600 * 1000) /* for a retry */
#define PRUNE_MS (3600 * SECOND)
#define DRIFT_MS (5 * SECOND)
#define EVENTS_KEPT 200000 /* of each company */
#define DISK_LOW_BYTES ((int64_t)64 << 20)

static char *clock_moved(struct server *server)
{
	int64_t drift = server->clock.drift_ms(&server->clock);

	if (drift <= DRIFT_MS && drift >= -DRIFT_MS)
		return NULL;
	return xasprintf("the wall clock was moved by %lld ms since the server started; times are "
			 "recorded as if it had not been",
			 (long long)drift);
}

static char *disk_is_low(struct server *server)
{
	int64_t bytes = dir_free_bytes(server->data_dirfd);

	if (bytes < 0 || bytes >= DISK_LOW_BYTES)
		return NULL;
	return xasprintf("only %lld MB are free where the data directory is",
			 (long long)(bytes >> 20));
}

static char *files_are_few(struct server *server)
{
	if (server->max_runs >= MIN_OF(server->options.max_runs, INT_MAX))
		return NULL;
	return xasprintf("only %d runs go at a time instead of %lld: the limit of open files "
			 "(ulimit -Hn) allows no more",
			 server->max_runs, (long long)server->options.max_runs);
}

/* Each says in a sentence what is wrong, or NULL. */
static char *(*const CHECKS[])(struct server *server) = { clock_moved, disk_is_low, files_are_few };

json_t *upkeep_warnings(struct server *server)
{
	json_t *warnings = json_array();

	for (size_t i = 0; i < ARRAY_SIZE(CHECKS); i++) {
		_cleanup_free_ char *text = CHECKS[i](server);

		if (text)
			json_array_append_new(warnings, json_string(text));
	}
	if (server->complaints)
		json_array_extend(warnings, server->complaints);
	return warnings;
}

/* When something comes up, not at every beat. */
static void log_warnings(struct server *server, bool said[ARRAY_SIZE(CHECKS)])
{
	for (size_t i = 0; i < ARRAY_SIZE(CHECKS); i++) {
		_cleanup_free_ char *text = CHECKS[i](server);

		if (text && !said[i])
			log_warn("%s", text);
		said[i] = text;
	}
}

static void beat(struct server *server)
{
	_cleanup_error_ struct error err = { 0 };

	if (db_claim(server->db, server->claimant, &err) == 0 &&
	    node_beat(server->db, &server->clock, &server->node, &err) == 0)
		return;
	log_error("heartbeat: %s", err.message);
	/*
	 * Two servers under one identity would take each other's work for their own. One that lost
	 * its database to another in an outage leaves its commands to their relays: the other does
	 * not touch them for as long as this one's last beat is young.
	 */
	if (err.code == ERR_CONFLICT || err.code == ERR_LOCKED)
		latch_set(server->stop_fd);
}

/* ---- history ---- */

/* Of runs that failed a day ago, and of those that had just ended when a server died. */
static int delete_secrets(struct server *server, struct error *err)
{
	return runs_delete_secrets(server->runs, clock_now(&server->clock) - SECRETS_KEPT_MS, err);
}

static int64_t prune_runs(struct server *server, int64_t before, struct error *err)
{
	if (delete_secrets(server, err) < 0)
		return -1;
	return runs_prune(server->runs, before, false, err);
}

static int64_t prune_leases(struct server *server, int64_t before, struct error *err)
{
	const struct leases_prune options = { .before_ms = before,
					      .holds = runs_hold_lease,
					      .holds_arg = server->runs };

	return leases_prune(server->leases, &options, err);
}

static int64_t prune_activity(struct server *server, int64_t before, struct error *err)
{
	return activity_prune(server->db, before, err);
}

static int64_t prune_events(struct server *server, int64_t before, struct error *err)
{
	return events_prune(server->db, server->event_tallies, before, EVENTS_KEPT, err);
}

/* Keys have a time of their own, and what a key stands for lives as long as the key. */
static int64_t prune_keys(struct server *server, int64_t before, struct error *err)
{
	(void)before;
	return idempotency_prune(server->db, &server->clock, err);
}

static int64_t prune_execs(struct server *server, int64_t before, struct error *err)
{
	(void)before;
	return execs_prune(server->execs, clock_now(&server->clock) - IDEMPOTENCY_KEEP_MS, err);
}

/* They have times of their own: what nobody has collected is kept longer. */
static int64_t prune_workspaces(struct server *server, int64_t before, struct error *err)
{
	(void)before;
	return runs_prune_files(server->runs, false, err);
}

static int64_t old_runs(struct server *server, int64_t before, struct error *err)
{
	return runs_prune(server->runs, before, true, err);
}

static int64_t old_leases(struct server *server, int64_t before, struct error *err)
{
	const struct leases_prune options = { .before_ms = before,
					      .dry_run = true,
					      .holds = runs_hold_lease,
					      .holds_arg = server->runs };

	return leases_prune(server->leases, &options, err);
}

static int64_t old_activity(struct server *server, int64_t before, struct error *err)
{
	return activity_old(server->db, before, err);
}

static int64_t old_workspaces(struct server *server, int64_t before, struct error *err)
{
	(void)before;
	return runs_prune_files(server->runs, true, err);
}

typedef int64_t history_fn(struct server *server, int64_t before, struct error *err);

/* `old` counts what would go; kinds without one are too short-lived to be worth asking about. */
static const struct {
	const char *name;
	history_fn *prune, *old;
} KINDS_KEPT[] = {
	{ "runs", prune_runs, old_runs },
	{ "leases", prune_leases, old_leases },
	{ "activity", prune_activity, old_activity },
	{ "events", prune_events, NULL },
	{ "keys", prune_keys, NULL },
	{ "execs", prune_execs, NULL },
	{ "workspaces", prune_workspaces, old_workspaces },
};
const char *const PRUNE_KINDS[] = { "runs", "leases", "activity",   "events",
				    "keys", "execs",  "workspaces", NULL };

bool upkeep_counts(const char *kind)
{
	for (size_t i = 0; i < ARRAY_SIZE(KINDS_KEPT); i++) {
		if (streq(KINDS_KEPT[i].name, kind))
			return KINDS_KEPT[i].old;
	}
	return false;
}

json_t *upkeep_prune(struct server *server, const struct prune_request *request, struct error *err)
{
	_cleanup_json_ json_t *counts = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(KINDS_KEPT); i++) {
		history_fn *work = request->dry_run ? KINDS_KEPT[i].old : KINDS_KEPT[i].prune;

		if (request->only && !streq(request->only, KINDS_KEPT[i].name))
			continue;
		if (!work)
			continue;

		int64_t count = work(server, request->before_ms, err);

		if (count < 0)
			return NULL;
		json_put_int(counts, KINDS_KEPT[i].name, count);
	}
	return steal(counts);
}

static void prune(struct server *server)
{
	_cleanup_error_ struct error err = { 0 };
	struct prune_request request = {
		.before_ms = clock_now(&server->clock) - server->options.retention_ms,
	};
	_cleanup_json_ json_t *counts = upkeep_prune(server, &request, &err);
	_cleanup_free_ char *text = counts ? json_text(counts) : NULL;

	if (text)
		log_debug("pruned %s", text);
	else
		log_warn("pruning old history: %s", err.message);
}

static void *keep_up(void *arg)
{
	struct server *server = arg;
	struct pollfd stop = { .fd = server->upkeep_fd, .events = POLLIN };
	int64_t next_prune = clock_mono(&server->clock) + PRUNE_MS;
	bool said[ARRAY_SIZE(CHECKS)] = { false };
	_cleanup_error_ struct error err = { 0 };

	if (delete_secrets(server, &err) < 0)
		log_warn("values of old runs: %s", err.message);
	data_keep_reserve(server->data_dirfd);
	while (poll(&stop, 1, (int)server->options.beat_ms) <= 0) {
		beat(server);
		data_keep_reserve(server->data_dirfd);
		execs_recover_rest(server->execs);
		log_warnings(server, said);
		if (clock_mono(&server->clock) >= next_prune) {
			prune(server);
			next_prune = clock_mono(&server->clock) + PRUNE_MS;
		}
	}
	return NULL;
}

int upkeep_start(struct server *server, struct error *err)
{
	int failed;

	server->upkeep_fd = latch_new(err);
	if (server->upkeep_fd < 0)
		return -1;
	failed = pthread_create(&server->upkeep, NULL, keep_up, server);
	if (failed) {
		close_fdp(&server->upkeep_fd);
		return error_errno(err, failed, "cannot start the upkeep thread");
	}
	return 0;
}

void upkeep_stop(struct server *server)
{
	if (server->upkeep_fd < 0)
		return;
	latch_set(server->upkeep_fd);
	pthread_join(server->upkeep, NULL);
	close_fdp(&server->upkeep_fd);
}

bool upkeep_is_idle(struct server *server)
{
	int64_t since = http_idle_since(server->http);
	_cleanup_json_ json_t *leases = NULL;

	if (!since || clock_mono(&server->clock) - since < server->options.idle_exit_ms ||
	    runs_active(server->runs) || execs_active(server->execs))
		return false;
	leases = leases_counts(server->leases, NULL);
	return leases && !json_int(leases, "active", 1) && !json_int(leases, "cleanup", 1) &&
	       !json_int(leases, "retained", 1) && !json_int(leases, "intents", 1);
}

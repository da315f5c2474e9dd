#include "api/history.h"

#include "base/text.h"
#include "exec/execs.h"
#include "record/activity.h"
#include "record/event.h"
#include "record/idempotency.h"

#define SECRETS_KEPT_MS ((int64_t)24 * 3600 * 1000) /* for a retry */
#define EVENTS_KEPT 200000                          /* of each company */

int history_delete_secrets(struct server *server, struct error *err)
{
	return runs_delete_secrets(server->runs, clock_now(&server->clock) - SECRETS_KEPT_MS, err);
}

static int64_t prune_runs(struct server *server, int64_t before, struct error *err)
{
	if (history_delete_secrets(server, err) < 0)
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

bool history_counts(const char *kind)
{
	for (size_t i = 0; i < ARRAY_SIZE(KINDS_KEPT); i++) {
		if (streq(KINDS_KEPT[i].name, kind))
			return KINDS_KEPT[i].old;
	}
	return false;
}

json_t *history_prune(struct server *server, const struct prune_request *request, struct error *err)
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

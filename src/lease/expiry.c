/*
 * What ends by itself: leases whose time is up or that nobody uses, leases whose run is over,
 * retained places, and free places that nobody asks for any more. Each is put into the cleanup
 * queue by a transaction that looks again whether it is still so: a renewal that came first wins,
 * one that came later is refused.
 */
#include "lease/lease_internal.h"

#include "base/log.h"
#include "base/text.h"
#include "record/row.h"

#define BATCH 100

/* LEASES_OPEN lets SQLite use the index of open leases. */
SQL(EXPIRED, "SELECT id FROM leases WHERE " LEASES_OPEN
	     " AND status = 'active' AND expires_at <= $1 AND " SQL_MINE
	     " ORDER BY expires_at, id LIMIT $4");
/*
 * Those that have been idle for a quarter of their time: long before the end it is noticed that a
 * command still runs there.
 */
SQL(IDLE, "SELECT id FROM leases WHERE " LEASES_OPEN
	  " AND status = 'active' AND idle_ms > 0 AND last_used_at + idle_ms / 4 <= $1"
	  " AND " SQL_MINE " ORDER BY last_used_at + idle_ms, id LIMIT $4");
/* $5: when a run that ended by itself must have released. A place whose files could not be fetched
 * yet is kept for them. */
SQL(RUN_OVER,
    "SELECT l.id FROM leases l LEFT JOIN runs r ON r.id = l.run_id"
    " WHERE " SQL_L_OPEN " AND l.status = 'active' AND l.run_id IS NOT NULL AND l.acquired_at <= $5"
    " AND (l.node_id = $2 OR l.node_id NOT IN"
    "  (SELECT id FROM nodes WHERE heartbeat_at >= $3))"
    " AND (r.id IS NULL OR (r.status IN ('succeeded', 'failed', 'cancelled', 'timed_out')"
    "  AND COALESCE(r.finished_at, r.updated_at) <= $5"
    "  AND (r.place_kept_until IS NULL OR r.place_kept_until <= $1)))"
    " AND l.acquired_at <= $1 ORDER BY l.acquired_at, l.id LIMIT $4");
/*
 * The server that acquired it died, and with it whoever would have released it, so nobody is waited
 * for. The run was never told (still queued: it acquires again and must not wait for itself), or
 * had ended already. A running one is settled by the recovery of runs.
 */
SQL(RUN_NEVER_TOLD, "SELECT l.id FROM leases l LEFT JOIN runs r ON r.id = l.run_id"
		    " WHERE " SQL_L_OPEN " AND l.status = 'active' AND l.run_id IS NOT NULL"
		    " AND (r.id IS NULL OR (r.status <> 'running'"
		    "  AND (r.place_kept_until IS NULL OR r.place_kept_until <= $1)))"
		    " AND ((l.node_id = $2 AND l.boot_epoch < $5) OR (l.node_id <> $2 AND"
		    "  l.node_id NOT IN (SELECT id FROM nodes WHERE heartbeat_at >= $3)))"
		    " AND l.acquired_at <= $1 ORDER BY l.acquired_at, l.id LIMIT $4");
SQL(RUN_STATUS, "SELECT status FROM runs WHERE id = $1");
SQL(RETENTION_OVER, "SELECT id FROM places WHERE state = 'retained' AND state <> 'gone'"
		    " AND retain_until <= $1"
		    " AND " SQL_MINE " ORDER BY retain_until, id LIMIT $4");
SQL(FREE_TOO_LONG, "SELECT id FROM places WHERE state = 'free' AND state <> 'gone'"
		   " AND retain_until <= $1"
		   " AND " SQL_MINE " ORDER BY retain_until, id LIMIT $4");
SQL(FREE_OF_ARCHIVED, "SELECT id FROM places WHERE state = 'free' AND state <> 'gone'"
		      " AND updated_at <= $1"
		      " AND " SQL_MINE " AND environment_id IN"
		      "  (SELECT id FROM environments WHERE status = 'archived')"
		      " ORDER BY updated_at, id LIMIT $4");
SQL(FREE_OF_ENVIRONMENT, "SELECT id FROM places WHERE environment_id = $1"
			 " AND state = 'free' AND state <> 'gone' ORDER BY updated_at, id"
			 " LIMIT 1000");

static int due_ids(struct leases *leases, const struct sql *sql, int64_t extra, char ***ids,
		   struct error *err)
{
	int64_t now = clock_now(leases->clock);
	struct bind binds[] = {
		B_INT(now),   B_TEXT(leases->node.id), B_INT(now - NODE_DEAD_MS), B_INT(BATCH),
		B_INT(extra), { .type = BIND_END }
	};

	if (extra == 0)
		binds[4].type = BIND_END;
	return ids_read_(leases->db, sql, binds, ids, err);
}

static bool time_is_up(const struct lease *lease, int64_t now)
{
	return lease->expires_at > 0 && lease->expires_at <= now;
}

static bool is_idle(const struct lease *lease, int64_t now)
{
	return lease->idle_ms > 0 && lease->last_used_at + lease->idle_ms <= now;
}

struct why_ended {
	enum lease_status status;
	const char *reason;
	bool (*still)(const struct lease *lease, int64_t now);
};

/* One that fails does not keep the others; the last failure is reported. */
static int end_each(struct leases *leases, char **ids, const struct why_ended *why,
		    struct error *err)
{
	int result = 0;

	for (char **id = ids; id && *id; id++) {
		_cleanup_ending_ struct ending e = {
			.leases = leases,
			.lease_id = *id,
			.status = why->status,
			.failure_reason = why->reason,
			.actor = &ACTOR_SYSTEM,
			.action = ACTION_RELEASE,
			.still = why->still,
		};

		if (ending_queue(&e, err) < 0)
			result = error_wrap(err, "lease %s", *id);
		else if (e.ended)
			log_info("lease %s has ended: %s", *id,
				 why->reason ? why->reason : lease_status_name(why->status));
	}
	return result;
}

static int end_late(struct leases *leases, struct error *err)
{
	static const struct why_ended late = { LEASE_EXPIRED, NULL, time_is_up };
	_cleanup_strv_ char **ids = NULL;

	if (due_ids(leases, &EXPIRED, 0, &ids, err) < 0)
		return -1;
	return end_each(leases, ids, &late, err);
}

/* A place where a command runs is in use, however long ago it was started. */
static int end_if_idle(struct leases *leases, char *id, struct error *err)
{
	static const struct why_ended idle = { LEASE_EXPIRED, "idle", is_idle };
	_cleanup_lease_ struct lease lease = { 0 };
	char *ids[] = { id, NULL };

	if (lease_get(leases, id, &lease, NULL, err) < 0)
		return -1;
	if (places_is_busy(leases->makers->host->places, lease.place_id))
		return lease_touch(leases, id, err);
	return is_idle(&lease, clock_now(leases->clock)) ? end_each(leases, ids, &idle, err) : 0;
}

static int end_idle(struct leases *leases, struct error *err)
{
	_cleanup_strv_ char **ids = NULL;
	int result = 0;

	if (due_ids(leases, &IDLE, 0, &ids, err) < 0)
		return -1;
	for (char **id = ids; id && *id; id++) {
		if (end_if_idle(leases, *id, err) < 0)
			result = -1;
	}
	return result;
}

int expire_leases(struct leases *leases, struct error *err)
{
	int late = end_late(leases, err), idle = end_idle(leases, err);

	return late < 0 || idle < 0 ? -1 : 0;
}

struct run_look {
	const char *lease_id;
	bool failed;
};

static int look_at_run(struct tx *tx, void *arg, struct error *err)
{
	struct run_look *look = arg;
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_cursor_ struct cursor c = { 0 };
	int r = lease_row_get(tx, look->lease_id, &lease, err);

	look->failed = true;
	if (r <= 0)
		return r;
	if (tx_query(tx, &c, &RUN_STATUS, err, B_TEXT(lease.run_id)) < 0)
		return -1;
	r = cursor_next(&c, err);
	if (r > 0)
		look->failed = !str_equal(col_text(&c, 0), "succeeded") &&
			       !str_equal(col_text(&c, 0), "cancelled");
	return r < 0 ? -1 : 0;
}

/* As the run itself would have released it. */
static int end_of_run(struct leases *leases, char *id, const char *reason, struct error *err)
{
	struct run_look look = { .lease_id = id };
	struct why_ended why = { .reason = reason };
	char *ids[] = { id, NULL };

	if (db_read(leases->db, look_at_run, &look, err) < 0)
		return -1;
	why.status = look.failed ? LEASE_FAILED : LEASE_RELEASED;
	return end_each(leases, ids, &why, err);
}

static int end_runs(struct leases *leases, const struct sql *sql, int64_t extra, const char *reason,
		    struct error *err)
{
	_cleanup_strv_ char **ids = NULL;
	int result = 0;

	if (due_ids(leases, sql, extra, &ids, err) < 0)
		return -1;
	for (char **id = ids; id && *id; id++) {
		if (end_of_run(leases, *id, reason, err) < 0)
			result = -1;
	}
	return result;
}

int end_ownerless_leases(struct leases *leases, struct error *err)
{
	int over = end_runs(leases, &RUN_OVER, clock_now(leases->clock) - RUN_GRACE_MS, "run_ended",
			    err);
	int untold =
		end_runs(leases, &RUN_NEVER_TOLD, leases->node.boot_epoch, "server_restarted", err);

	return over < 0 || untold < 0 ? -1 : 0;
}

struct retiring {
	const char *place_id, *reason;
	enum place_state from;
	int64_t now;
};

/* The holder of a retained place sees that its time is over. */
static int end_retained_lease(struct retiring *r, struct tx *tx, const struct place *place,
			      struct error *err)
{
	_cleanup_lease_ struct lease lease = { 0 };
	int found = id_is_set(place->holder_lease)
			    ? lease_row_get(tx, place->holder_lease, &lease, err)
			    : 0;

	if (found <= 0)
		return found;
	lease.status = LEASE_PENDING_CLEANUP;
	lease.final_status = LEASE_FAILED;
	lease.updated_at = r->now;
	free(lease.cleanup_status);
	lease.cleanup_status = xstrdup(cleanup_status_name(CLEANUP_PENDING));
	return lease_row_settle(tx, &lease, err);
}

static int retire_tx(struct tx *tx, void *arg, struct error *err)
{
	struct retiring *r = arg;
	_cleanup_place_ struct place place = { 0 };
	int found = place_row_get(tx, r->place_id, &place, err);

	if (found <= 0 || place.state != r->from)
		return found < 0 ? -1 : 0;
	if (end_retained_lease(r, tx, &place, err) < 0 ||
	    place_enter_cleanup(&place, ACTION_DESTROY, r->reason, r->now, err) < 0)
		return -1;
	place.updated_at = r->now;
	return place_row_save(tx, &place, err);
}

static int retire_each(struct leases *leases, const struct sql *sql, enum place_state from,
		       const char *reason, struct error *err)
{
	_cleanup_strv_ char **ids = NULL;
	int result = 0;

	if (due_ids(leases, sql, 0, &ids, err) < 0)
		return -1;
	for (char **id = ids; id && *id; id++) {
		struct retiring r = { *id, reason, from, clock_now(leases->clock) };

		if (DB_WRITE(leases->db, "lease.retire", retire_tx, &r, err) < 0)
			result = error_wrap(err, "place %s", *id);
	}
	return result;
}

int leases_retire_environment(struct leases *leases, const char *environment_id, struct error *err)
{
	_cleanup_strv_ char **ids = NULL;

	if (ids_read(leases->db, &FREE_OF_ENVIRONMENT, &ids, err, B_TEXT(environment_id)) < 0)
		return -1;
	for (char **id = ids; id && *id; id++) {
		_cleanup_error_ struct error later = { 0 };
		struct retiring r = { *id, "environment_deleted", PLACE_FREE,
				      clock_now(leases->clock) };

		if (DB_WRITE(leases->db, "lease.retire", retire_tx, &r, err) < 0)
			return error_wrap(err, "place %s", *id);
		/* The queue has it; what fails here the sweep tries again. */
		if (cleanup_try(leases, *id, &later) < 0)
			log_warn("place %s is not destroyed yet: %s", *id, later.message);
	}
	return 0;
}

int end_retention(struct leases *leases, struct error *err)
{
	return retire_each(leases, &RETENTION_OVER, PLACE_RETAINED, "retention_ended", err);
}

int retire_free_places(struct leases *leases, struct error *err)
{
	int late = retire_each(leases, &FREE_TOO_LONG, PLACE_FREE, "unused", err);
	int archived =
		retire_each(leases, &FREE_OF_ARCHIVED, PLACE_FREE, "environment_archived", err);

	return late < 0 || archived < 0 ? -1 : 0;
}

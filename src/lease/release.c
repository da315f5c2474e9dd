/*
 * Ending a holding.
 *
 *   lease.releasing ──> driver stop, release ──> lease.released
 *                                └─ failed ────> lease.cleanup_queued ──> cleanup.c
 *
 * The first transaction ends the holding whatever follows: from then on the holder is refused, and
 * nobody else gets the place before its processes are dead and its provider has been told. What a
 * crash leaves in `releasing` is queued by the next sweep.
 */
#include "lease/lease_internal.h"

#include <string.h>

#include "base/log.h"
#include "base/text.h"

SQL(NODE_LAST_BEAT, "SELECT heartbeat_at FROM nodes WHERE id = $1");
SQL(STILL_RELEASING, "SELECT COUNT(*) FROM places WHERE id = $1 AND state = 'releasing'"
		     " AND holder_lease = $2 AND generation = $3");
SQL(LEASE_SETTLE, "UPDATE leases SET updated_at = updated_at WHERE id = $1");
SQL(LEASES_OF_RUN, "SELECT id FROM leases WHERE run_id = $1 AND status = 'active'"
		   " ORDER BY acquired_at, id");

void ending_clear(struct ending *ending)
{
	lease_clear(&ending->lease);
	place_clear(&ending->place);
}

int lease_released_activity_tx(struct tx *tx, const struct lease *l, const struct place *place,
			       const char *run_error, const struct actor *actor, int64_t now,
			       struct error *err)
{
	_cleanup_json_ json_t *details = json_object();
	enum lease_status status = l->status == LEASE_PENDING_CLEANUP ? l->final_status : l->status;
	struct activity activity = {
		.company_id = l->company_id,
		.actor = actor,
		.action = "environment.lease_released",
		.entity_type = "environment_lease",
		.entity_id = l->id,
		.agent_id = id_is_set(l->agent_id) ? l->agent_id : NULL,
		.run_id = id_is_set(l->run_id) ? l->run_id : NULL,
		.details = details,
	};

	json_put_str(details, "environmentId",
		     id_is_set(l->environment_id) ? l->environment_id : NULL);
	json_put_str(details, "driver", driver_kind_name(place->driver));
	json_put_str(details, "leasePolicy", lease_policy_name(l->policy));
	json_put_str(details, "provider", l->provider);
	json_put_str(details, "executionWorkspaceId",
		     id_is_set(l->workspace_id) ? l->workspace_id : NULL);
	json_put_str(details, "issueId", id_is_set(l->issue_id) ? l->issue_id : NULL);
	json_put_str(details, "status", lease_status_name(status));
	json_put_str(details, "cleanupStatus", l->cleanup_status);
	json_put_str(details, "failureReason", run_error ? run_error : l->failure_reason);
	if (place_cleanup_error(place) != ERR_NONE)
		json_put_str(details, "code", error_code_name(place_cleanup_error(place)));
	return activity_write_tx(tx, now, &activity, err);
}

static int load(struct ending *e, struct tx *tx, struct error *err)
{
	int r = lease_row_get(tx, e->lease_id, &e->lease, err);

	if (r > 0)
		r = place_row_get(tx, e->lease.place_id, &e->place, err);
	if (r == 0)
		return error_set(err, ERR_NOT_FOUND, "Environment lease not found");
	return r < 0 ? -1 : 0;
}

/* What a live node holds is finished by that node: the processes are on its machine. */
static int find_out_whose(struct ending *e, struct tx *tx, struct error *err)
{
	int64_t beat;

	e->foreign = false;
	if (streq(e->place.node_id, e->leases->node.id))
		return 0;
	if (number_tx(tx, &NODE_LAST_BEAT, &beat, err, B_TEXT(e->place.node_id)) < 0)
		return -1;
	e->foreign = beat >= e->now - NODE_DEAD_MS;
	return 0;
}

/* The lease as it is from the end of the holding until its place is finished. */
static void end_lease(struct ending *e)
{
	struct lease *l = &e->lease;
	bool destroys = streq(e->action, ACTION_DESTROY);

	l->status = LEASE_PENDING_CLEANUP;
	l->final_status = e->status;
	if (e->status == LEASE_FAILED && l->policy == POLICY_RETAIN_ON_FAILURE && !destroys)
		l->final_status = LEASE_RETAINED;
	if (l->released_at <= 0)
		l->released_at = e->now;
	l->updated_at = e->now;
	if (e->failure_reason || e->status == LEASE_FAILED) {
		free(l->failure_reason);
		l->failure_reason =
			xstrdup(e->failure_reason ? e->failure_reason : "adapter_or_run_failure");
	}
}

static bool holds(const struct ending *e)
{
	return e->place.state == PLACE_HELD &&
	       ((e->lease.status == LEASE_ACTIVE && streq(e->place.holder_lease, e->lease.id)) ||
		fence_is_off());
}

/* 1 when the holding is this caller's to end, 0 when there is nothing to do any more. */
static int check_ending(struct ending *e, struct tx *tx, struct error *err)
{
	e->ended = false;
	if (load(e, tx, err) < 0 || fence_check(&e->lease, &e->place, e->generation, err) < 0)
		return -1;
	if (!holds(e) || (e->still && !e->still(&e->lease, e->now)))
		return 0;
	return find_out_whose(e, tx, err) < 0 ? -1 : 1;
}

struct queueing {
	struct ending *e;
	const char *reason;
	int64_t attempts, next_at;
};

static int queue_place(struct queueing *q, struct tx *tx, struct error *err)
{
	struct ending *e = q->e;

	if (place_enter_cleanup(&e->place, e->action, q->reason, q->next_at, err) < 0)
		return -1;
	e->place.cleanup_attempts = q->attempts;
	e->place.updated_at = e->now;
	free(e->lease.cleanup_status);
	e->lease.cleanup_status = xstrdup(cleanup_status_name(CLEANUP_PENDING));
	if (lease_row_end(tx, &e->lease, err) < 0 || place_row_save(tx, &e->place, err) < 0)
		return -1;
	return lease_released_activity_tx(tx, &e->lease, &e->place, e->run_error, e->actor, e->now,
					  err);
}

static int queue_tx(struct tx *tx, void *arg, struct error *err)
{
	struct queueing *q = arg;

	if (load(q->e, tx, err) < 0)
		return -1;
	return queue_place(q, tx, err);
}

/* Nobody holds it any more and nobody gets it yet. */
static int hold_back(struct ending *e, struct tx *tx, struct error *err)
{
	if (place_enter(&e->place, PLACE_RELEASING, err) < 0)
		return -1;
	/* Should nobody be left to do it, the queue will know what was wanted. */
	e->place.cleanup_action = xstrdup(e->action);
	e->place.updated_at = e->now;
	if (lease_row_end(tx, &e->lease, err) < 0)
		return -1;
	return place_row_save_state(tx, &e->place, err);
}

static int end_holding_tx(struct ending *e, struct tx *tx, struct error *err)
{
	end_lease(e);
	e->ended = true;
	if (e->foreign) {
		struct queueing q = { .e = e, .reason = "held on another node", .next_at = e->now };

		return queue_place(&q, tx, err);
	}
	return hold_back(e, tx, err);
}

static int begin_tx(struct tx *tx, void *arg, struct error *err)
{
	struct ending *e = arg;
	int r = check_ending(e, tx, err);

	return r <= 0 ? r : end_holding_tx(e, tx, err);
}

/*
 * A place that is `releasing` belongs to whoever releases it until a sweep thinks that dead. So
 * what the first transaction wrote is still what is there, except after a sweep, and when this one
 * runs a second time over what it has changed itself.
 */
static int look_again(struct ending *e, struct tx *tx, struct error *err)
{
	int64_t unchanged = 0;

	if (e->known && number_tx(tx, &STILL_RELEASING, &unchanged, err, B_TEXT(e->place.id),
				  B_TEXT(e->lease_id), B_INT(e->place.generation)) < 0)
		return -1;
	e->known = false;
	return unchanged ? 0 : load(e, tx, err);
}

static int finish_tx(struct tx *tx, void *arg, struct error *err)
{
	struct ending *e = arg;

	if (look_again(e, tx, err) < 0 ||
	    place_finished_tx(tx, e->leases, &e->place, &e->lease, e->action, e->now, err) < 0)
		return -1;
	if (e->also && e->also->write(tx, &e->lease, e->also->arg, err) < 0)
		return -1;
	return lease_released_activity_tx(tx, &e->lease, &e->place, e->run_error, e->actor, e->now,
					  err);
}

static void queue_after_failure(struct ending *e, const struct error *why)
{
	_cleanup_error_ struct error err = { 0 };
	struct queueing q = { .e = e, .reason = why->message, .attempts = 1 };

	e->now = clock_now(e->leases->clock);
	q.next_at = cleanup_next_at(e->leases, q.attempts, e->now);
	log_warn("lease %s: its place is queued for cleanup: %s", e->lease_id, why->message);
	e->unsaved = DB_WRITE(e->leases->db, "lease.cleanup_queued", queue_tx, &q, &err) < 0;
	if (e->unsaved)
		log_warn("lease %s: the cleanup is not recorded yet: %s", e->lease_id, err.message);
}

/* The holding has ended already: what fails from here on is the sweep's to finish. */
static void finish(struct ending *e)
{
	_cleanup_error_ struct error err = { 0 };

	if (place_finish(e->leases, &e->place, e->action, e->lease.final_status, &err) < 0) {
		queue_after_failure(e, &err);
		return;
	}
	e->now = clock_now(e->leases->clock);
	e->known = true;
	/* If this is refused the place stays `releasing`: finishing it twice does no harm. */
	e->unsaved = DB_WRITE(e->leases->db, "lease.released", finish_tx, e, &err) < 0;
	if (e->also)
		e->also->done = !e->unsaved;
	if (e->unsaved)
		log_warn("lease %s: its end is not recorded yet: %s", e->lease_id, err.message);
}

/*
 * The row says that the holding is over, and the write that said so did not wait for the disk. One
 * that does takes it along.
 */
static int settle(struct ending *e, struct error *err)
{
	if (DB_EXEC(e->leases->db, "lease.settled", &LEASE_SETTLE, err, B_TEXT(e->lease_id)) >= 0)
		return 0;
	return error_wrap(err,
			  "the place of lease %s was given back, which is not on the disk yet: "
			  "release it again",
			  e->lease_id);
}

static bool is_unsettled(const struct ending *e)
{
	return e->unsaved || (!e->ended && e->place.state == PLACE_RELEASING &&
			      streq(e->place.holder_lease, e->lease.id));
}

static int end_holding(struct ending *e, struct error *err)
{
	struct flight flight;
	int r;

	e->now = clock_now(e->leases->clock);
	flight_begin(e->leases, &flight, e->lease_id);
	/* It is durable with lease.released, or after a machine went down nobody was told of it. */
	r = DB_WRITE_AS(e->leases->db, DB_NO_FSYNC, "lease.releasing", begin_tx, e, err);
	if (r == 0 && e->ended && !e->foreign)
		finish(e);
	flight_end(e->leases, &flight);
	capacity_changed(e->leases, e->place.environment_id);
	return r;
}

/* As the last transaction left them. */
static int give(struct ending *e, struct lease *lease, struct place *place, struct error *err)
{
	if (e->unsaved)
		return lease_get(e->leases, e->lease_id, lease, place, err);
	if (lease) {
		lease_clear(lease);
		*lease = e->lease;
		e->lease = (struct lease){ 0 };
	}
	if (place) {
		place_clear(place);
		*place = e->place;
		e->place = (struct place){ 0 };
	}
	return 0;
}

int lease_release(struct leases *leases, const char *id, const struct lease_release *release,
		  struct lease *lease, struct error *err)
{
	_cleanup_ending_ struct ending e = {
		.leases = leases,
		.lease_id = id,
		.generation = release->generation,
		.status = release->status,
		.failure_reason = release->failure_reason,
		.run_error = release->run_error,
		.actor = release->actor ? release->actor : &ACTOR_SYSTEM,
		.action = ACTION_RELEASE,
		.also = release->also,
	};

	if (!lease_status_is_final(release->status))
		return error_set(err, ERR_VALIDATION,
				 "a lease is released as released, expired or failed");
	if (end_holding(&e, err) < 0 || (is_unsettled(&e) && settle(&e, err) < 0))
		return -1;
	return give(&e, lease, release->place, err);
}

json_t *lease_release_run(struct leases *leases, const char *run_id, enum lease_status status,
			  const char *run_error, struct lease_also *also, const struct actor *actor,
			  struct error *err)
{
	_cleanup_strv_ char **ids = NULL;
	json_t *report;

	if (ids_read(leases->db, &LEASES_OF_RUN, &ids, err, B_TEXT(run_id)) < 0)
		return NULL;
	report = json_array();
	for (char **id = ids; id && *id; id++) {
		_cleanup_lease_ struct lease lease = { 0 };
		_cleanup_place_ struct place place = { 0 };
		_cleanup_error_ struct error why = { 0 };
		struct lease_release release = { .generation = GENERATION_UNCHECKED,
						 .status = status,
						 .run_error = run_error,
						 .actor = actor,
						 .place = &place,
						 .also = id[1] ? NULL : also };
		json_t *entry = json_object();
		int r = lease_release(leases, *id, &release, &lease, &why);

		if (r < 0)
			error_recode(&why, ERR_LEASE_RELEASE);
		else if (place_cleanup_error(&place) != ERR_NONE)
			error_set(&why, place_cleanup_error(&place), "%s", place.cleanup_reason);

		json_put_str(entry, "leaseId", *id);
		json_put_str(entry, "status",
			     lease_status_name(r < 0 ? LEASE_ACTIVE : lease.status));
		json_put_str(entry, "code", why.code ? error_code_name(why.code) : NULL);
		json_put_str(entry, "error", why.code ? why.message : NULL);
		json_array_append_new(report, entry);
	}
	return report;
}

static int queue_ending_tx(struct tx *tx, void *arg, struct error *err)
{
	struct queueing *q = arg;
	int r = check_ending(q->e, tx, err);

	if (r <= 0)
		return r;
	end_lease(q->e);
	if (queue_place(q, tx, err) < 0)
		return -1;
	q->e->ended = true;
	return 0;
}

int ending_queue(struct ending *e, struct error *err)
{
	struct queueing q = { .e = e, .reason = "queued by a sweep" };

	e->now = clock_now(e->leases->clock);
	e->generation = GENERATION_UNCHECKED;
	q.next_at = e->now;
	if (e->failure_reason)
		q.reason = e->failure_reason;
	return DB_WRITE(e->leases->db, "lease.end", queue_ending_tx, &q, err);
}

struct destroying {
	struct ending *e;
	bool queued; /* claimed in the cleanup queue, to be tried at once */
};

/* The place is in nobody's hands: into the queue, claimed by this call. */
static int claim_for_destroy(struct destroying *d, struct tx *tx, struct error *err)
{
	struct ending *e = d->e;

	if (place_enter_cleanup(&e->place, ACTION_DESTROY, "destroy_requested", e->now + CLAIM_MS,
				err) < 0)
		return -1;
	e->place.updated_at = e->now;
	if (streq(e->place.holder_lease, e->lease.id)) {
		end_lease(e);
		if (lease_row_end(tx, &e->lease, err) < 0)
			return -1;
	}
	d->queued = true;
	return place_row_save(tx, &e->place, err);
}

static int destroy_tx(struct tx *tx, void *arg, struct error *err)
{
	struct destroying *d = arg;
	struct ending *e = d->e;
	int r = check_ending(e, tx, err);

	d->queued = false;
	if (r < 0)
		return -1;
	if (r > 0)
		return end_holding_tx(e, tx, err);
	switch (e->place.state) {
	case PLACE_RETAINED:
	case PLACE_CLEANUP:
		return streq(e->place.holder_lease, e->lease.id) ? claim_for_destroy(d, tx, err)
								 : 0;
	case PLACE_FREE:
		return e->place.generation == e->lease.generation ? claim_for_destroy(d, tx, err)
								  : 0;
	default:
		return 0;
	}
}

int lease_destroy(struct leases *leases, const char *id, int64_t generation,
		  const struct actor *actor, struct lease *lease, struct place *place,
		  struct error *err)
{
	_cleanup_ending_ struct ending e = {
		.leases = leases,
		.lease_id = id,
		.generation = generation,
		.status = LEASE_FAILED,
		.failure_reason = "destroy_requested",
		.actor = actor ? actor : &ACTOR_SYSTEM,
		.action = ACTION_DESTROY,
		.now = clock_now(leases->clock),
	};
	_cleanup_error_ struct error later = { 0 };
	struct destroying d = { .e = &e };
	struct flight flight;
	int r;

	flight_begin(leases, &flight, id);
	r = DB_WRITE(leases->db, "lease.destroying", destroy_tx, &d, err);
	if (r == 0 && e.ended && !e.foreign)
		finish(&e);
	else if (r == 0 && d.queued && cleanup_try(leases, e.place.id, &later) < 0)
		log_warn("place %s is not destroyed yet: %s", e.place.id, later.message);
	flight_end(leases, &flight);
	capacity_changed(leases, e.place.environment_id);
	if (r < 0 || (!lease && !place))
		return r;
	return lease_get(leases, id, lease ? lease : &e.lease, place, err);
}

/*
 * What a server that died left half-done, found by node and boot epoch. A node settles its own, and
 * that of nodes whose heartbeat has stopped. The same steps run in every sweep, for what a database
 * that refused left half-done in a server that lives: a lease that somebody here is at work on is
 * left alone.
 *
 *   intent to make     the provider has the place: queued to be destroyed. It has not: forgotten.
 *                      It cannot tell: `unresolved`, for people to look at. No answer: asked later
 *   intent to resume   the place goes back through a release
 *   releasing          the release is done again
 */
#include "lease/lease_internal.h"

#include "base/log.h"
#include "base/text.h"

#define BATCH 1000

SQL(OPEN_INTENTS, "SELECT id FROM intents WHERE state = 'open' AND created_at <= $1"
		  " AND " SQL_MINE " ORDER BY created_at, id LIMIT $4");
SQL(HALF_DONE, "SELECT holder_lease FROM places WHERE state IN ('releasing', 'resuming')"
	       " AND state <> 'gone'"
	       " AND updated_at <= $1 AND " SQL_MINE " ORDER BY updated_at, id LIMIT $4");
SQL(PLACE_OF_HOLDER, "SELECT id FROM places WHERE holder_lease = $1");
/*
 * Lease ids. Who is at work is asked after the rows were read: what is not under way then and still
 * in the database in a later transaction has been left behind.
 */
static int left_behind(struct leases *leases, const struct sql *sql, char ***left,
		       struct error *err)
{
	int64_t now = clock_now(leases->clock);
	_cleanup_strv_ char **ids = NULL;

	if (ids_read(leases->db, sql, &ids, err, B_INT(now), B_TEXT(leases->node.id),
		     B_INT(now - NODE_DEAD_MS), B_INT(BATCH)) < 0)
		return -1;
	for (char **id = ids; id && *id; id++) {
		if (!flight_is_under_way(leases, *id))
			strv_push(left, xstrdup(*id));
	}
	return 0;
}

struct settling {
	struct leases *leases;
	const char *id;
	struct intent intent;
	enum { SETTLE_FORGET, SETTLE_ORPHAN, SETTLE_RESUME, SETTLE_UNRESOLVED } how;
	const char *reason;
	int64_t now;
};

static int load_intent(struct tx *tx, void *arg, struct error *err)
{
	struct settling *s = arg;

	intent_clear(&s->intent);
	return intent_row_get(tx, s->id, &s->intent, err) < 0 ? -1 : 0;
}

static int settle_resume(struct settling *s, struct tx *tx, struct error *err)
{
	_cleanup_place_ struct place place = { 0 };
	int r = place_row_get(tx, s->intent.place_id, &place, err);

	if (r <= 0 || place.state != PLACE_RESUMING || !streq(place.holder_lease, s->id))
		return r < 0 ? -1 : 0;
	if (place_enter_cleanup(&place, ACTION_RELEASE, s->reason, s->now, err) < 0)
		return -1;
	place.holder_lease[0] = '\0';
	place.updated_at = s->now;
	return place_row_save(tx, &place, err);
}

static int settle_orphan(struct settling *s, struct tx *tx, struct error *err)
{
	const struct intent *i = &s->intent;
	struct orphan orphan = {
		.reason = s->reason,
		.place = { .driver = i->driver,
			   .provider = i->provider,
			   .provider_ref = i->provider_ref,
			   .scope = (char *)"",
			   .fingerprint = i->fingerprint,
			   .fencing = FENCING_SERVER,
			   .discoverable = true,
			   .config = { i->config } },
	};

	id_copy(orphan.place.company_id, i->company_id);
	id_copy(orphan.place.environment_id, i->environment_id);
	return orphan_write_tx(tx, s->leases, &orphan, s->now, err);
}

static int settle_tx(struct tx *tx, void *arg, struct error *err)
{
	struct settling *s = arg;
	int64_t rows;

	if (s->how == SETTLE_UNRESOLVED)
		return intent_row_mark_unresolved(tx, s->id, s->reason, s->now, err);
	rows = intent_row_delete(tx, s->id, err);
	if (rows <= 0)
		return rows < 0 ? -1 : 0;
	if (s->how == SETTLE_RESUME)
		return settle_resume(s, tx, err);
	return s->how == SETTLE_ORPHAN ? settle_orphan(s, tx, err) : 0;
}

/* 0 when the provider has to be asked again later. */
static int choose_settlement(struct settling *s, struct inventories *inventories)
{
	const struct inventory *inventory;

	s->reason = "interrupted";
	if (s->intent.resume) {
		s->how = SETTLE_RESUME;
		return 1;
	}
	inventory = inventory_of(s->leases, inventories, s->intent.driver, s->intent.provider);
	if (inventory->answer < 0)
		return 0;
	if (inventory->answer == 0) {
		s->how = SETTLE_UNRESOLVED;
		s->reason = "the provider cannot say whether it was made";
	} else {
		s->how = inventory_has(inventory, s->intent.provider_ref) ? SETTLE_ORPHAN
									  : SETTLE_FORGET;
	}
	return 1;
}

static int settle(struct leases *leases, const char *id, struct inventories *inventories,
		  struct error *err)
{
	struct settling s = { .leases = leases, .id = id, .now = clock_now(leases->clock) };
	int r = db_read(leases->db, load_intent, &s, err);

	if (r == 0 && id_is_set(s.intent.id) && choose_settlement(&s, inventories)) {
		log_info("intent %s (%s) of an interrupted acquire is settled", id,
			 s.intent.provider_ref);
		r = DB_WRITE(leases->db, "lease.settle", settle_tx, &s, err);
	}
	intent_clear(&s.intent);
	return r;
}

int settle_intents(struct leases *leases, struct error *err)
{
	struct inventories inventories = { 0 };
	_cleanup_strv_ char **ids = NULL;
	int result = 0;

	if (left_behind(leases, &OPEN_INTENTS, &ids, err) < 0)
		return -1;
	for (char **id = ids; id && *id; id++) {
		if (settle(leases, *id, &inventories, err) < 0)
			result = error_wrap(err, "intent %s", *id);
	}
	inventories_clear(&inventories);
	if (ids)
		capacity_changed(leases, NULL);
	return result;
}

struct half_done {
	const char *lease_id;
	int64_t now;
};

static int end_interrupted_lease(struct half_done *h, struct tx *tx, const struct place *place,
				 struct error *err)
{
	_cleanup_lease_ struct lease lease = { 0 };
	int r = lease_row_get(tx, place->holder_lease, &lease, err);

	if (r <= 0 || lease.status != LEASE_PENDING_CLEANUP)
		return r < 0 ? -1 : 0;
	free(lease.cleanup_status);
	lease.cleanup_status = xstrdup(cleanup_status_name(CLEANUP_PENDING));
	lease.updated_at = h->now;
	if (lease_row_settle(tx, &lease, err) < 0)
		return -1;
	return lease_released_activity_tx(tx, &lease, place, NULL, &ACTOR_SYSTEM, h->now, err);
}

static int queue_half_done_tx(struct tx *tx, void *arg, struct error *err)
{
	struct half_done *h = arg;
	_cleanup_place_ struct place place = { 0 };
	_cleanup_strv_ char **ids = NULL;
	_cleanup_free_ char *action = NULL;

	if (ids_tx(tx, &PLACE_OF_HOLDER, &ids, err, B_TEXT(h->lease_id)) < 0)
		return -1;
	if (!ids || place_row_get(tx, ids[0], &place, err) <= 0 ||
	    (place.state != PLACE_RELEASING && place.state != PLACE_RESUMING))
		return 0;
	action = xstrdup(place.cleanup_action ? place.cleanup_action : ACTION_RELEASE);
	if (end_interrupted_lease(h, tx, &place, err) < 0 ||
	    place_enter_cleanup(&place, action, "interrupted", h->now, err) < 0)
		return -1;
	place.updated_at = h->now;
	return place_row_save(tx, &place, err);
}

int queue_interrupted_places(struct leases *leases, struct error *err)
{
	_cleanup_strv_ char **ids = NULL;
	int result = 0;

	if (left_behind(leases, &HALF_DONE, &ids, err) < 0)
		return -1;
	for (char **id = ids; id && *id; id++) {
		struct half_done h = { *id, clock_now(leases->clock) };

		if (DB_WRITE(leases->db, "lease.interrupted", queue_half_done_tx, &h, err) < 0)
			result = error_wrap(err, "lease %s", *id);
	}
	return result;
}

/*
 * What a holder does with a lease: look, renew, use. Every right to act goes through the fence.
 */
#include "lease/lease_internal.h"

#include <string.h>

#include "base/text.h"

#define LIST_MAX 1000
#define TOUCH_MS 1000 /* lastUsedAt is at most this late, and not a write for every exec */

SQL(LEASE_TOUCH, "UPDATE leases SET last_used_at = $2, updated_at = $2"
		 " WHERE id = $1 AND status = 'active' AND last_used_at < $2");
SQL(LEASE_SET_METADATA, "UPDATE leases SET metadata = $2, updated_at = $3 WHERE id = $1");

bool fence_is_off(void)
{
	return FENCE_OFF("lease.fence");
}

int fence_check(const struct lease *lease, const struct place *place, int64_t generation,
		struct error *err)
{
	_cleanup_json_ json_t *details = NULL;

	if (generation == GENERATION_UNCHECKED || fence_is_off() ||
	    (generation == lease->generation && generation == place->generation))
		return 0;
	details = json_object();
	json_put_int(details, "generation", generation);
	json_put_int(details, "presentGeneration", place->generation);
	error_set(err, ERR_STALE_GENERATION,
		  "generation %lld is not the place's present one, which is %lld",
		  (long long)generation, (long long)place->generation);
	error_set_details(err, json_text(details));
	return -1;
}

struct look {
	struct leases *leases;
	const char *id;
	int64_t generation, ttl_ms, now;
	bool retained_too; /* a place that is kept for a look will do */
	struct lease lease;
	struct place place;
};

static void look_clear(struct look *look)
{
	lease_clear(&look->lease);
	place_clear(&look->place);
}
#define _cleanup_look_ _cleanup_(look_clear)

static void look_give(struct look *look, struct lease *lease, struct place *place)
{
	if (lease) {
		lease_clear(lease);
		*lease = look->lease;
		look->lease = (struct lease){ 0 };
	}
	if (place) {
		place_clear(place);
		*place = look->place;
		look->place = (struct place){ 0 };
	}
}

static int load(struct tx *tx, void *arg, struct error *err)
{
	struct look *look = arg;
	int r = lease_row_get(tx, look->id, &look->lease, err);

	if (r > 0)
		r = place_row_get(tx, look->lease.place_id, &look->place, err);
	if (r == 0)
		return error_set(err, ERR_NOT_FOUND, "Environment lease not found");
	return r < 0 ? -1 : 0;
}

struct holder {
	const char *place_id;
	int64_t generation;
	struct lease *lease;
};

static int load_holder(struct tx *tx, void *arg, struct error *err)
{
	struct holder *h = arg;
	_cleanup_place_ struct place place = { 0 };
	int r = place_row_get(tx, h->place_id, &place, err);

	lease_clear(h->lease);
	if (r > 0)
		r = place.generation == h->generation && id_is_set(place.holder_lease)
			    ? lease_row_get(tx, place.holder_lease, h->lease, err)
			    : 0;
	if (r == 0)
		return error_set(err, ERR_NOT_FOUND, "no lease holds the place");
	return r < 0 ? -1 : 0;
}

int lease_of_place(struct leases *leases, const char *place_id, int64_t generation,
		   struct lease *lease, struct error *err)
{
	struct holder h = { place_id, generation, lease };

	return db_read(leases->db, load_holder, &h, err);
}

int lease_get(struct leases *leases, const char *id, struct lease *lease, struct place *place,
	      struct error *err)
{
	_cleanup_look_ struct look look = { .id = id };

	if (db_read(leases->db, load, &look, err) < 0)
		return -1;
	look_give(&look, lease, place);
	return 0;
}

json_t *lease_list(struct leases *leases, const char *environment_id, const char *status,
		   int64_t limit, struct error *err)
{
	if (limit <= 0 || limit > LIST_MAX)
		limit = LIST_MAX;
	return lease_rows_json(leases->db, environment_id, status, limit, err);
}

/* The right to act: the present holder, not yet expired, asking the server that has the place. */
static int check_holder(const struct look *look, struct error *err)
{
	const struct lease *l = &look->lease;

	if (fence_check(l, &look->place, look->generation, err) < 0)
		return -1;
	if (fence_is_off())
		return 0;
	if (look->retained_too && l->status == LEASE_RETAINED &&
	    look->place.state == PLACE_RETAINED && look->place.retain_until > look->now &&
	    streq(look->place.holder_lease, l->id))
		return 0;
	if (l->status != LEASE_ACTIVE)
		return error_set(err, ERR_LEASE_ENDED, "lease %s is not active: %s", l->id,
				 lease_status_name(l->status));
	/* A lease that ran out is over also in the moments until the sweep comes by. */
	if (l->expires_at > 0 && l->expires_at <= look->now)
		return error_set(err, ERR_LEASE_ENDED, "lease %s has expired", l->id);
	if (!streq(look->place.holder_lease, l->id))
		return error_set(err, ERR_STALE_GENERATION, "lease %s does not hold its place",
				 l->id);
	return 0;
}

static int64_t end_of_provider(const struct place *place)
{
	const char *text = json_str(place->metadata, "providerExpiresAt");
	int64_t ms;

	return text && time_parse_iso(text, &ms) == 0 ? ms : 0;
}

static int renew_tx(struct tx *tx, void *arg, struct error *err)
{
	struct look *look = arg;
	struct lease *l = &look->lease;
	int64_t limit;

	if (load(tx, look, err) < 0 || check_holder(look, err) < 0)
		return -1;
	limit = end_of_provider(&look->place);
	/* Without a time given, a lease that has an end gets the usual one; the others have none.
	 */
	if (look->ttl_ms > 0)
		l->expires_at = look->now + look->ttl_ms;
	else if (l->expires_at > 0)
		l->expires_at = MAX_OF(l->expires_at, look->now + DEFAULT_TTL_MS);
	if (limit > 0 && l->expires_at > limit)
		l->expires_at = limit;
	l->last_used_at = MAX_OF(l->last_used_at, look->now);
	l->updated_at = look->now;
	return lease_row_renew(tx, l, err);
}

int lease_renew(struct leases *leases, const char *id, int64_t generation, int64_t ttl_ms,
		struct lease *lease, struct error *err)
{
	_cleanup_look_ struct look look = {
		.leases = leases,
		.id = id,
		.generation = generation,
		.ttl_ms = ttl_ms,
		.now = clock_now(leases->clock),
	};

	if (ttl_ms < 0 || ttl_ms > MAX_PERIOD_MS)
		return error_set(err, ERR_VALIDATION, "ttl must be between 0 and a year");
	if (DB_WRITE(leases->db, "lease.renew", renew_tx, &look, err) < 0)
		return -1;
	look_give(&look, lease, NULL);
	return 0;
}

static int use_tx(struct tx *tx, void *arg, struct error *err)
{
	struct look *look = arg;

	if (load(tx, look, err) < 0)
		return -1;
	return check_holder(look, err);
}

static int touch_tx(struct tx *tx, void *arg, struct error *err)
{
	struct look *look = arg;

	return tx_exec(tx, &LEASE_TOUCH, err, B_TEXT(look->id), B_INT(look->now)) < 0 ? -1 : 0;
}

/* Idleness is counted from lastUsedAt, so a lease that ends by it is noted more exactly. */
static bool touch_is_due(const struct look *look)
{
	const struct lease *l = &look->lease;
	int64_t pause = l->idle_ms > 0 ? MIN_OF(TOUCH_MS, l->idle_ms / 8) : TOUCH_MS;

	return look->now - l->last_used_at >= MAX_OF(pause, 1);
}

int lease_use(struct leases *leases, const char *id, int64_t generation, struct lease *lease,
	      struct place *place, struct error *err)
{
	_cleanup_look_ struct look look = {
		.leases = leases,
		.id = id,
		.generation = generation,
		.now = clock_now(leases->clock),
		.retained_too = true,
	};

	if (db_read(leases->db, use_tx, &look, err) < 0)
		return -1;
	if (!streq(look.place.node_id, leases->node.id))
		return error_set(err, ERR_UNAVAILABLE, "the place is held through node %s",
				 look.place.node_id);
	if (touch_is_due(&look)) {
		if (lease_touch(leases, id, err) < 0)
			return -1;
		look.lease.last_used_at = look.now;
	}
	look_give(&look, lease, place);
	return 0;
}

int lease_takes_commands(const struct lease *lease, struct error *err)
{
	if (lease->pause == PAUSE_NONE)
		return 0;
	return error_set(err, ERR_LEASE_PAUSED, "the lease is paused: resume it first");
}

int lease_touch(struct leases *leases, const char *id, struct error *err)
{
	struct look look = { .id = id, .now = clock_now(leases->clock) };

	return DB_WRITE(leases->db, "lease.use", touch_tx, &look, err);
}

int lease_set_metadata_tx(struct tx *tx, int64_t now, const char *id, const char *metadata,
			  struct error *err)
{
	int64_t rows =
		tx_exec(tx, &LEASE_SET_METADATA, err, B_TEXT(id), B_TEXT(metadata), B_INT(now));

	if (rows == 0)
		return error_set(err, ERR_NOT_FOUND, "Environment lease not found");
	return rows < 0 ? -1 : 0;
}

/*
 * The cleanup queue: places whose end the driver could not bring about at once, that a crash left
 * half-way, or that only an inventory knows of. Each has an action, a number of attempts, a time of
 * the next one and a reason; the sweep claims what is due and tries it until it works. Nothing is
 * ever given up: after CLEANUP_GIVE_UP_AFTER attempts the lease says so, audit shows it, and the
 * attempts go on at the longest interval.
 */
#include "lease/lease_internal.h"

#include "base/log.h"
#include "base/text.h"

#define MAX_ROUNDS 25

SQL(PLACE_UNFENCE, "UPDATE places SET fencing = 'none' WHERE id = $1 AND fencing = 'server'");

int64_t cleanup_next_at(const struct leases *leases, int64_t attempts, int64_t now)
{
	int64_t pause = leases->cleanup_base_ms;

	for (int64_t i = 1; i < attempts && pause < CLEANUP_CAP_MS; i++)
		pause *= 2;
	return now + MIN_OF(pause, CLEANUP_CAP_MS);
}

int place_finish(struct leases *leases, const struct place *place, const char *action,
		 enum lease_status status, struct error *err)
{
	bool destroys = streq(action, ACTION_DESTROY);

	/* A retained place stays as the failed run left it, and open for commands that look. */
	if (!destroys && status == LEASE_RETAINED &&
	    places_end_execs(leases->makers->host->places, place->id, EXEC_LEASE_LOST, STOP_WAIT_MS,
			     NULL) == 0)
		return 0;
	if (maker_stop(leases->makers, place, STOP_WAIT_MS, err) < 0)
		return error_wrap(err, "ending the processes");
	if (destroys)
		return maker_destroy(leases->makers, place, err);
	if (status == LEASE_RETAINED)
		return 0;
	return maker_release(leases->makers, place, lease_status_name(status), err);
}

static int finish_place(struct leases *leases, struct place *place, const struct lease *lease,
			const char *action, int64_t now, struct error *err)
{
	bool destroyed = streq(action, ACTION_DESTROY);

	place->updated_at = now;
	if (!destroyed && lease->status == LEASE_PENDING_CLEANUP &&
	    lease->final_status == LEASE_RETAINED) {
		if (place_enter(place, PLACE_RETAINED, err) < 0)
			return -1;
		place->retain_until =
			now + (lease->retain_ms > 0 ? lease->retain_ms : leases->default_retain_ms);
		return 0;
	}
	if (destroyed || !place->scope[0])
		return place_enter(place, PLACE_GONE, err);
	if (place_enter(place, PLACE_FREE, err) < 0)
		return -1;
	place->retain_until = now + FREE_KEEP_MS;
	return 0;
}

/*
 * Whether the last holder may still act in a place that has no fence of its own: by a command that
 * could not be ended, or because the node that held it was only thought dead.
 */
static bool may_be_used_still(struct leases *leases, const struct place *place)
{
	return place->fencing == FENCING_SERVER &&
	       (!streq(place->node_id, leases->node.id) ||
		places_is_unfenced(leases->makers->host->places, place->id));
}

int place_finished_tx(struct tx *tx, struct leases *leases, struct place *place,
		      struct lease *lease, const char *action, int64_t now, struct error *err)
{
	if (finish_place(leases, place, lease, action, now, err) < 0 ||
	    place_row_save(tx, place, err) < 0)
		return -1;
	/* Nobody gets it after that; the next one who could is given a new one in its stead. */
	if (place->state != PLACE_GONE && may_be_used_still(leases, place) &&
	    tx_exec(tx, &PLACE_UNFENCE, err, B_TEXT(place->id)) < 0)
		return -1;
	if (lease->status != LEASE_PENDING_CLEANUP)
		return 0;
	lease->status = lease->final_status;
	lease->updated_at = now;
	free(lease->cleanup_status);
	/* On this host there is nothing to clean up, and the reference says nothing about it. */
	lease->cleanup_status =
		makers_traits(leases->makers, place->driver, place->provider).is_host
			? NULL
			: xstrdup(cleanup_status_name(CLEANUP_SUCCESS));
	return lease_row_settle(tx, lease, err);
}

struct attempt {
	struct leases *leases;
	const char *place_id;
	struct place place;
	struct lease lease; /* the last holder's; empty id when there is none */
	const struct error *why;
	bool asked; /* the provider, in vain */
	int64_t now, claimed_until;
};

static int load_attempt(struct attempt *t, struct tx *tx, struct error *err)
{
	int r = place_row_get(tx, t->place_id, &t->place, err);

	lease_clear(&t->lease);
	if (r > 0 && id_is_set(t->place.holder_lease))
		r = lease_row_get(tx, t->place.holder_lease, &t->lease, err) < 0 ? -1 : 1;
	return r;
}

static int load_snapshot(struct tx *tx, void *arg, struct error *err)
{
	return load_attempt(arg, tx, err) < 0 ? -1 : 0;
}

/* 1 when it is still the queue's. */
static int load_queued(struct attempt *t, struct tx *tx, struct error *err)
{
	int r = load_attempt(t, tx, err);

	return r <= 0 ? r : t->place.state == PLACE_CLEANUP;
}

static int cleaned_tx(struct tx *tx, void *arg, struct error *err)
{
	struct attempt *t = arg;
	_cleanup_free_ char *action = NULL;
	int r = load_queued(t, tx, err);

	if (r <= 0)
		return r;
	action = xstrdup(t->place.cleanup_action ? t->place.cleanup_action : ACTION_DESTROY);
	return place_finished_tx(tx, t->leases, &t->place, &t->lease, action, t->now, err);
}

static int retry_tx(struct tx *tx, void *arg, struct error *err)
{
	struct attempt *t = arg;
	struct place *place = &t->place;
	int r = load_queued(t, tx, err);

	if (r <= 0)
		return r;
	if (t->asked)
		place->cleanup_attempts++;
	place->cleanup_next_at = cleanup_next_at(t->leases, place->cleanup_attempts, t->now);
	place->updated_at = t->now;
	free(place->cleanup_reason);
	place->cleanup_reason = xstrdup(t->why->message);
	if (place_row_save(tx, place, err) < 0)
		return -1;
	if (t->lease.status != LEASE_PENDING_CLEANUP ||
	    place->cleanup_attempts < CLEANUP_GIVE_UP_AFTER)
		return 0;
	free(t->lease.cleanup_status);
	t->lease.cleanup_status = xstrdup(cleanup_status_name(CLEANUP_FAILED));
	t->lease.updated_at = t->now;
	return lease_row_settle(tx, &t->lease, err);
}

/* What became of it is not recorded: it is tried again as soon as the database takes writes. */
static void give_back_claim(const struct attempt *t, const struct error *why)
{
	log_warn("place %s: what its cleanup came to is not recorded: %s", t->place_id,
		 why->message);
	claim_give_back(t->leases, t->place_id, t->claimed_until);
}

static void note_failure(struct attempt *t, const struct error *why)
{
	_cleanup_error_ struct error err = { 0 };

	t->why = why;
	t->now = clock_now(t->leases->clock);
	if (DB_WRITE(t->leases->db, "lease.cleanup_retry", retry_tx, t, &err) < 0)
		give_back_claim(t, &err);
	else if (t->place.cleanup_attempts == CLEANUP_GIVE_UP_AFTER)
		log_warn("place %s (%s) could not be cleaned up in %d attempts, it is tried again "
			 "every 5 minutes: %s",
			 t->place_id, t->place.provider_ref, CLEANUP_GIVE_UP_AFTER, why->message);
}

static int attempt(struct attempt *t, struct error *err)
{
	enum lease_status status =
		t->lease.status == LEASE_PENDING_CLEANUP ? t->lease.final_status : LEASE_FAILED;

	t->asked = true;
	if (place_finish(t->leases, &t->place, t->place.cleanup_action, status, err) < 0) {
		note_failure(t, err);
		return -1;
	}
	t->now = clock_now(t->leases->clock);
	if (DB_WRITE(t->leases->db, "lease.cleaned", cleaned_tx, t, err) < 0) {
		give_back_claim(t, err);
		return -1;
	}
	capacity_changed(t->leases, t->place.environment_id);
	return 0;
}

/* `slow`: providers that let this pass wait in vain, which are not asked again in it. */
static int attempt_unless_slow(struct attempt *t, char ***slow, struct error *err)
{
	int r;

	for (char **s = *slow; s && *s; s++) {
		if (streq(*s, t->place.provider)) {
			error_set(err, ERR_UNAVAILABLE, "provider \"%s\" does not answer", *s);
			note_failure(t, err);
			return -1;
		}
	}
	r = attempt(t, err);
	if (r < 0 && err->code == ERR_TIMEOUT)
		strv_push(slow, xstrdup(t->place.provider));
	return r;
}

static int try_queued(struct leases *leases, const char *place_id, char ***slow, struct error *err)
{
	struct attempt t = { .leases = leases, .place_id = place_id };
	int r = db_read(leases->db, load_snapshot, &t, err);

	t.claimed_until = t.place.cleanup_next_at;
	if (r == 0 && t.place.state == PLACE_CLEANUP && t.place.cleanup_action)
		r = attempt_unless_slow(&t, slow, err);
	place_clear(&t.place);
	lease_clear(&t.lease);
	return r;
}

int cleanup_try(struct leases *leases, const char *place_id, struct error *err)
{
	_cleanup_strv_ char **slow = NULL;

	return try_queued(leases, place_id, &slow, err);
}

int cleanup_due(struct leases *leases, struct error *err)
{
	_cleanup_strv_ char **slow = NULL;
	bool failed = false;
	size_t claimed;

	/* While everything works the next batch follows at once: a burst is not worth a delay. */
	for (int round = 0; round < MAX_ROUNDS; round++) {
		_cleanup_strv_ char **ids = NULL;

		if (claim_due_places(leases, &ids, err) < 0)
			return -1;
		claimed = strv_len(ids);
		for (size_t i = 0; i < claimed; i++) {
			_cleanup_error_ struct error why = { 0 };

			failed |= try_queued(leases, ids[i], &slow, &why) < 0;
		}
		if (failed || claimed < CLEANUP_BATCH)
			break;
	}
	return 0;
}

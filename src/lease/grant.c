/*
 * The second transaction of an acquire, "lease.grant", and the way back when it is not reached.
 *
 * The way back never needs to know how far things went: a commit whose answer was lost, a provider
 * that failed after making something and one that made nothing end the same way. What was made is
 * destroyed; if that fails it is queued for cleanup; if the database refuses that, it goes to the
 * spool, and the intent, which is still in the database, says it a second time.
 */
#include "lease/acquisition.h"

#include <string.h>

#include "base/log.h"
#include "base/text.h"

/* Provider times are hostile: none, past and absurd ones. */
static int64_t end_of_grant(const struct acquisition *a)
{
	const struct lease_request *r = a->request;
	int64_t provider_end = a->grant.expires_at, end = 0;

	if (provider_end < 0 || provider_end > a->now + 100 * MAX_PERIOD_MS)
		provider_end = 0;
	if (r->ttl_ms > 0)
		end = a->now + r->ttl_ms;
	else if (!r->run_id && r->idle_ms <= 0)
		end = a->now + DEFAULT_TTL_MS;
	if (provider_end > 0 && (end == 0 || provider_end < end))
		end = provider_end;
	return end;
}

static void fill_place(struct acquisition *a, struct place *place)
{
	const struct lease_request *r = a->request;

	free(place->provider);
	place->provider = xstrdup(a->grant.provider);
	free(place->provider_ref);
	place->provider_ref = xstrdup(a->grant.provider_ref);
	free(place->scope);
	place->scope = xstrdup(a->scope);
	free(place->fingerprint);
	place->fingerprint = xstrdup(a->fingerprint);
	json_decref(place->config.json);
	place->config.json = json_incref(a->config.json);
	json_decref(place->metadata);
	place->metadata = a->grant.metadata ? json_copy(a->grant.metadata) : json_object();
	if (a->grant.expires_at > 0)
		json_put_time(place->metadata, "providerExpiresAt", a->grant.expires_at);
	id_copy(place->company_id, r->company_id);
	id_copy(place->environment_id, r->environment->id);
	id_copy(place->holder_lease, a->lease_id);
	place->driver = r->environment->driver;
	place->fencing = a->grant.fencing;
	place->absence_ms = a->leases->absence_ms;
	place->discoverable = a->grant.discoverable;
	place->epoch++;
	memcpy(place->relay_key, a->relay_key, sizeof(place->relay_key));
	place->updated_at = a->now;
	place_set_node(place, &a->leases->node);
}

static void fill_lease(struct acquisition *a, struct lease *lease)
{
	const struct lease_request *r = a->request;

	lease_clear(lease);
	id_copy(lease->id, a->lease_id);
	id_copy(lease->company_id, r->company_id);
	id_copy(lease->environment_id, r->environment->id);
	id_copy(lease->place_id, a->place.id);
	id_copy(lease->workspace_id, r->workspace_id);
	id_copy(lease->issue_id, r->issue_id);
	id_copy(lease->agent_id, r->agent_id);
	id_copy(lease->run_id, r->run_id);
	id_copy(lease->node_id, a->leases->node.id);
	lease->generation = a->place.generation;
	lease->status = lease->final_status = LEASE_ACTIVE;
	lease->policy = a->policy;
	lease->provider = xstrdup(a->grant.provider);
	lease->provider_lease_id = a->grant.ref_is_private ? NULL : xstrdup(a->grant.provider_ref);
	lease->acquired_at = lease->last_used_at = lease->created_at = lease->updated_at = a->now;
	lease->expires_at = end_of_grant(a);
	lease->idle_ms = r->idle_ms;
	lease->retain_ms = r->retain_ms > 0 ? r->retain_ms : a->leases->default_retain_ms;
	lease->metadata = a->grant.metadata ? json_copy(a->grant.metadata) : json_object();
}

/* A name the provider has given before: the old row lives again, so that generations rise. */
static int revive(struct acquisition *a, struct tx *tx, struct error *err)
{
	if (a->place.state != PLACE_GONE) {
		a->ref_in_use = true;
		return error_set(err, ERR_PROTOCOL,
				 "the provider answered with \"%.200s\", which is in use",
				 a->grant.provider_ref);
	}
	if (place_enter(&a->place, PLACE_HELD, err) < 0)
		return -1;
	a->place.generation++;
	fill_place(a, &a->place);
	return place_row_remake(tx, &a->place, err);
}

static int make_place(struct acquisition *a, struct tx *tx, struct error *err)
{
	int r = place_row_by_ref(tx, a->grant.provider_ref, &a->place, err);

	if (r != 0)
		return r < 0 ? -1 : revive(a, tx, err);
	place_clear(&a->place);
	fill_place(a, &a->place);
	id_copy(a->place.id, a->place_id);
	a->place.state = PLACE_HELD;
	a->place.generation = 1;
	a->place.created_at = a->now;
	return place_row_insert(tx, &a->place, err);
}

static int wake_place(struct acquisition *a, struct tx *tx, struct error *err)
{
	int r = place_row_get(tx, a->place_id, &a->place, err);

	if (r < 0)
		return -1;
	if (r == 0 || a->place.state != PLACE_RESUMING ||
	    !streq(a->place.holder_lease, a->lease_id))
		return error_set(err, ERR_LEASE_LOST, "the place was taken away meanwhile");
	if (place_enter(&a->place, PLACE_HELD, err) < 0)
		return -1;
	fill_place(a, &a->place);
	return place_row_remake(tx, &a->place, err);
}

static int acquired_activity(struct acquisition *a, struct tx *tx, struct error *err)
{
	const struct lease *l = &a->lease;
	_cleanup_json_ json_t *details = json_object();
	struct activity activity = {
		.company_id = l->company_id,
		.actor = a->request->actor,
		.action = "environment.lease_acquired",
		.entity_type = "environment_lease",
		.entity_id = l->id,
		.agent_id = id_is_set(l->agent_id) ? l->agent_id : NULL,
		.run_id = id_is_set(l->run_id) ? l->run_id : NULL,
		.details = details,
	};

	json_put_str(details, "environmentId", l->environment_id);
	json_put_str(details, "driver", driver_kind_name(a->place.driver));
	json_put_str(details, "leasePolicy", lease_policy_name(l->policy));
	json_put_str(details, "provider", l->provider);
	json_put_str(details, "executionWorkspaceId", a->request->workspace_id);
	json_put_str(details, "issueId", a->request->issue_id);
	return activity_write_tx(tx, a->now, &activity, err);
}

static int grant_tx(struct tx *tx, void *arg, struct error *err)
{
	struct acquisition *a = arg;
	const struct lease_also *also = a->request->also;
	int64_t intents = intent_row_delete(tx, a->lease_id, err);

	a->ref_in_use = false;
	if (intents < 0)
		return -1;
	/* Another node thought this one dead and has settled the intent its way. */
	if (intents == 0)
		return error_set(err, ERR_LEASE_LOST, "the intent was settled by another node");
	if ((a->plan == PLAN_RESUME ? wake_place(a, tx, err) : make_place(a, tx, err)) < 0)
		return -1;
	fill_lease(a, &a->lease);
	if (lease_row_insert(tx, &a->lease, &a->leases->node, err) < 0 ||
	    acquired_activity(a, tx, err) < 0)
		return -1;
	return also ? also->write(tx, &a->lease, also->arg, err) : 0;
}

/* What the provider may have made, as a place that can be destroyed. */
static void presumed_place(const struct acquisition *a, struct place *place)
{
	const struct place_grant *g = &a->grant;

	place->driver = a->request->environment->driver;
	place->provider = xstrdup(g->provider ? g->provider : a->provider);
	place->provider_ref = xstrdup(g->provider_ref ? g->provider_ref : a->provider_ref);
	place->scope = xstrdup("");
	place->fingerprint = xstrdup(a->fingerprint);
	place->fencing = g->provider ? g->fencing : FENCING_SERVER;
	place->discoverable = g->discoverable;
	place->config.json = json_incref(a->config.json);
	place->metadata = g->metadata ? json_incref(g->metadata) : json_object();
	id_copy(place->id, a->place_id);
	id_copy(place->company_id, a->request->company_id);
	id_copy(place->environment_id, a->request->environment->id);
	place_set_node(place, &a->leases->node);
}

static int write_down(struct acquisition *a, struct error *err)
{
	a->now = clock_now(a->leases->clock);
	if (DB_WRITE(a->leases->db, "lease.grant", grant_tx, a, err) < 0)
		return -1;
	if (a->request->also)
		a->request->also->done = true;
	return 0;
}

static const char *announced_ref(const struct acquisition *a)
{
	return a->plan == PLAN_RESUME ? a->place.provider_ref : a->provider_ref;
}

static void stop_place(struct acquisition *a, const char *place_id)
{
	places_stop(a->leases->makers->host->places, place_id, EXEC_LEASE_LOST, STOP_WAIT_MS, NULL);
}

/* As it will be for execs, before there is a row of it. */
static void expected_place(struct acquisition *a, struct place *place)
{
	hex_encode(a->relay_key, a->key, sizeof(a->key));
	presumed_place(a, place);
	place->generation = a->generation;
	memcpy(place->relay_key, a->relay_key, sizeof(a->relay_key));
}

static bool has_another_name(const struct acquisition *a)
{
	return !streq(a->place.id, a->place_id) || a->place.generation != a->generation;
}

static int open_place(struct acquisition *a, const struct place *place, struct error *err)
{
	const struct environment *environment = a->request->environment;

	if (maker_open(a->leases->makers, place, err) == 0)
		return 0;
	error_wrap(err, "could not reach the place made for \"%s\" (%s)", environment->name,
		   driver_kind_name(environment->driver));
	return error_recode(err, ERR_TRANSPORT);
}

int grant(struct acquisition *a, struct error *err)
{
	const struct lease_first *first = &a->request->first;
	_cleanup_place_ struct place expected = { 0 };

	expected_place(a, &expected);
	wipe(a->key, sizeof(a->key));
	/*
	 * The place opens for execs before the lease exists: nobody can ask for one yet. The other
	 * way round a lease that ends at once could be closed before it was opened.
	 */
	if (open_place(a, &expected, err) < 0)
		return -1;
	if (write_down(a, err) < 0) {
		stop_place(a, a->place_id);
		return -1;
	}
	/* A provider that chose another name than it announced. */
	if (has_another_name(a) && open_place(a, &a->place, err) < 0)
		return -1;
	if (!first->begin || first->begin(first->arg, &a->place, err) == 0)
		return 0;
	stop_place(a, a->place.id);
	return -1;
}

struct undoing {
	struct acquisition *a;
	const struct orphan *orphan; /* NULL: nothing is left at the provider */
	int64_t now;
};

/* The grant was committed although its answer was lost: the lease never was. */
static int ungrant(struct undoing *u, struct tx *tx, struct error *err)
{
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };
	struct acquisition *a = u->a;
	int r = lease_row_get(tx, a->lease_id, &lease, err);

	if (r <= 0)
		return r;
	if (place_row_get(tx, lease.place_id, &place, err) < 0)
		return -1;
	lease.status = LEASE_FAILED;
	free(lease.failure_reason);
	lease.failure_reason = xstrdup("acquire_interrupted");
	if (lease_released_activity_tx(tx, &lease, &place, NULL, a->request->actor, u->now, err) <
	    0)
		return -1;
	return lease_row_delete(tx, lease.id, err);
}

static const char *presumed_ref(const struct acquisition *a)
{
	return a->plan != PLAN_RESUME && a->grant.provider_ref ? a->grant.provider_ref
							       : announced_ref(a);
}

/* A place that this acquire claimed or made goes back through the queue, or is gone already. */
static int unclaim(struct undoing *u, struct tx *tx, struct error *err)
{
	_cleanup_place_ struct place place = { 0 };
	const struct acquisition *a = u->a;
	bool resumed = a->plan == PLAN_RESUME;
	int r = place_row_by_ref(tx, presumed_ref(a), &place, err);

	if (r <= 0 || !streq(place.holder_lease, a->lease_id))
		return r < 0 ? -1 : 0;
	place.updated_at = u->now;
	if (!resumed && !u->orphan)
		r = place_enter(&place, PLACE_GONE, err);
	else
		r = place_enter_cleanup(&place, resumed ? ACTION_RELEASE : ACTION_DESTROY,
					"acquire_interrupted", u->now, err);
	if (r < 0)
		return -1;
	place.holder_lease[0] = '\0';
	return place_row_save(tx, &place, err);
}

/* Condemned but never tried: nobody else would come for it before the claim runs out. */
static int hand_back_victim(struct undoing *u, struct tx *tx, struct error *err)
{
	_cleanup_place_ struct place place = { 0 };
	int r;

	if (!id_is_set(u->a->victim))
		return 0;
	r = place_row_get(tx, u->a->victim, &place, err);
	if (r <= 0 || place.state != PLACE_CLEANUP)
		return r < 0 ? -1 : 0;
	place.cleanup_next_at = u->now;
	return place_row_save(tx, &place, err);
}

static int undo_tx(struct tx *tx, void *arg, struct error *err)
{
	struct undoing *u = arg;

	if (intent_row_delete(tx, u->a->lease_id, err) < 0 || ungrant(u, tx, err) < 0 ||
	    unclaim(u, tx, err) < 0 || hand_back_victim(u, tx, err) < 0)
		return -1;
	return u->orphan ? orphan_write_tx(tx, u->a->leases, u->orphan, u->now, err) : 0;
}

/* 0 when nothing of it can be left at the provider. */
static int destroy_presumed(struct acquisition *a, const struct place *place,
			    const struct error *why)
{
	_cleanup_error_ struct error err = { 0 };

	/* A provider that has just let the caller wait in vain is asked again by the queue. */
	if (why->code == ERR_TIMEOUT)
		return -1;
	if (maker_destroy(a->leases->makers, place, &err) == 0)
		return 0;
	log_warn("lease %s: \"%s\" could not be destroyed after a failed acquire: %s", a->lease_id,
		 place->provider_ref, err.message);
	return -1;
}

static void keep_orphan(struct undoing *u)
{
	_cleanup_error_ struct error err = { 0 };
	struct leases *leases = u->a->leases;

	if (DB_WRITE(leases->db, "lease.orphan", undo_tx, u, &err) == 0)
		return;
	log_warn("lease %s: the database refuses to queue \"%s\" for cleanup: %s", u->a->lease_id,
		 u->orphan->place.provider_ref, err.message);
	error_clear(&err);
	if (spool_put(leases, u->orphan, &err) < 0)
		log_error("lease %s: \"%s\" may be left behind at provider %s: %s", u->a->lease_id,
			  u->orphan->place.provider_ref, u->orphan->place.provider, err.message);
}

void acquisition_undo(struct acquisition *a, bool asked, const struct error *why)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_free_ char *reason = xasprintf("acquire failed: %.200s", why->message);
	struct orphan orphan = { .reason = reason };
	struct undoing u = { .a = a, .now = clock_now(a->leases->clock) };

	if (a->plan != PLAN_CREATE && a->plan != PLAN_RESUME)
		return;
	/* What answers to a name that is in use is its holder's, not ours to destroy. */
	if (a->plan == PLAN_CREATE && asked && !a->ref_in_use) {
		presumed_place(a, &orphan.place);
		id_copy(orphan.lease_id, a->lease_id);
		if (destroy_presumed(a, &orphan.place, why) < 0)
			u.orphan = &orphan;
	}
	if (u.orphan)
		keep_orphan(&u);
	else if (DB_WRITE(a->leases->db, "lease.abandon", undo_tx, &u, &err) < 0)
		log_warn("lease %s: its intent stays until a sweep settles it: %s", a->lease_id,
			 err.message);
	place_clear(&orphan.place);
	capacity_changed(a->leases, a->request->environment->id);
}

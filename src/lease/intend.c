/*
 * The first transaction of an acquire, "lease.intend": may this request have a place, and which?
 * What it decides is written before any provider is asked, so that whatever the provider makes has
 * a name in the database first, for as long as it can exist.
 */
#include "lease/acquisition.h"

#include <string.h>

#include "base/text.h"
#include "record/row.h"

static int busy(struct acquisition *a, const char *reason, const char *holder, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static int busy(struct acquisition *a, const char *reason, const char *holder, const char *fmt, ...)
{
	va_list ap;

	a->plan = PLAN_BUSY;
	a->busy_reason = reason;
	id_copy(a->busy_holder, holder);
	va_start(ap, fmt);
	vsnprintf(a->busy_text, sizeof(a->busy_text), fmt, ap);
	va_end(ap);
	return 0;
}

static const char *name_of(const struct environment *environment)
{
	return environment->name ? environment->name : environment->id;
}

/* What of the environment decides, as it is now; the place is made of what the request has. */
SQL(INTEND_ENVIRONMENT, "SELECT company_id, status, metadata FROM environments WHERE id = $1");

static int check_environment(struct acquisition *a, struct tx *tx, int64_t *max_leases,
			     struct error *err)
{
	const struct environment *asked = a->request->environment;
	_cleanup_environment_ struct environment now = { 0 };
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	if (tx_query(tx, &c, &INTEND_ENVIRONMENT, err, B_TEXT(asked->id)) < 0 ||
	    (r = cursor_next(&c, err)) < 0)
		return -1;
	if (r == 0)
		return error_set(err, ERR_ENV_NOT_FOUND, "environment \"%s\" was not found",
				 asked->id);
	if (!streq(col_text(&c, 0), a->request->company_id))
		return error_set(err, ERR_ENV_NOT_FOUND,
				 "environment \"%s\" does not belong to this company", asked->id);
	if (!streq(col_text(&c, 1), environment_status_name(ENVIRONMENT_ACTIVE)))
		return error_set(err, ERR_ENV_INACTIVE, "environment \"%s\" is %s", name_of(asked),
				 col_text(&c, 1));
	if (col_json(&c, 2, "environment metadata", &now.metadata, err) < 0)
		return -1;
	*max_leases = environment_max_leases(&now);
	return 0;
}

/* A repeated request: 1 when the lease it asks for is already there. */
static int find_granted(struct acquisition *a, struct tx *tx, struct error *err)
{
	int r = lease_row_get(tx, a->lease_id, &a->lease, err);

	if (r <= 0)
		return r;
	if (!streq(a->lease.company_id, a->request->company_id) ||
	    !streq(a->lease.environment_id, a->request->environment->id))
		return error_set(err, ERR_CONFLICT, "lease %s is of another environment",
				 a->lease_id);
	if (a->lease.status != LEASE_ACTIVE)
		return error_set(err, ERR_LEASE_ENDED, "lease %s has ended: %s", a->lease_id,
				 lease_status_name(a->lease.status));
	r = place_row_get(tx, a->lease.place_id, &a->place, err);
	if (r < 0)
		return -1;
	a->plan = PLAN_EXISTS;
	return 1;
}

static int insert_intent(struct acquisition *a, struct tx *tx, bool resume, const char *ref,
			 struct error *err)
{
	const struct lease_request *r = a->request;
	_cleanup_json_ json_t *request = json_object();
	struct intent intent = {
		.resume = resume,
		.driver = r->environment->driver,
		.provider = a->provider,
		.provider_ref = (char *)ref,
		.scope = a->scope,
		.fingerprint = a->fingerprint,
		.config = a->config.json,
		.request = request,
		.boot_epoch = a->leases->node.boot_epoch,
		.created_at = a->now,
	};

	json_put_str(request, "runId", r->run_id);
	json_put_str(request, "issueId", r->issue_id);
	json_put_str(request, "agentId", r->agent_id);
	json_put_str(request, "executionWorkspaceId", r->workspace_id);
	json_put_str(request, "leasePolicy", lease_policy_name(a->policy));
	id_copy(intent.id, a->lease_id);
	id_copy(intent.company_id, r->company_id);
	id_copy(intent.environment_id, r->environment->id);
	id_copy(intent.place_id, resume ? a->place.id : NULL);
	id_copy(intent.node_id, a->leases->node.id);
	return intent_row_insert(tx, &intent, err);
}

static int plan_create(struct acquisition *a, struct tx *tx, const struct place *earlier,
		       struct error *err)
{
	if (insert_intent(a, tx, false, a->provider_ref, err) < 0)
		return -1;
	if (earlier) {
		id_copy(a->place_id, earlier->id);
		a->generation = earlier->generation + 1;
	} else {
		id_new(a->place_id);
		a->generation = 1;
	}
	a->plan = PLAN_CREATE;
	return 0;
}

static int plan_resume(struct acquisition *a, struct tx *tx, const struct place *place,
		       struct error *err)
{
	place_copy(&a->place, place);
	if (place_enter(&a->place, PLACE_RESUMING, err) < 0)
		return -1;
	id_copy(a->place.holder_lease, a->lease_id);
	a->place.generation++;
	a->place.updated_at = a->now;
	place_set_node(&a->place, &a->leases->node);
	if (insert_intent(a, tx, true, place->provider_ref, err) < 0 ||
	    place_row_save(tx, &a->place, err) < 0)
		return -1;
	id_copy(a->place_id, a->place.id);
	a->generation = a->place.generation;
	a->plan = PLAN_RESUME;
	return 0;
}

/* The caller will destroy it at once, so the queue leaves it alone for the time of a claim. */
static int condemn(struct acquisition *a, struct tx *tx, struct place *place, const char *reason,
		   struct error *err)
{
	if (place_enter_cleanup(place, ACTION_DESTROY, reason, a->now + CLAIM_MS, err) < 0)
		return -1;
	place->updated_at = a->now;
	place->holder_lease[0] = '\0';
	id_copy(a->victim, place->id);
	a->victim_in_the_way = streq(place->provider_ref, a->provider_ref);
	return place_row_save(tx, place, err);
}

static int take_free(struct acquisition *a, struct tx *tx, struct place *place, struct error *err)
{
	const char *mismatch = reuse_mismatch(a, place);

	if (!mismatch)
		return plan_resume(a, tx, place, err);
	if (condemn(a, tx, place, mismatch, err) < 0)
		return -1;
	return plan_create(a, tx, a->victim_in_the_way ? place : NULL, err);
}

/* The name the provider would use is known already. */
static int plan_with_namesake(struct acquisition *a, struct tx *tx, struct place *place,
			      struct error *err)
{
	switch (place->state) {
	case PLACE_GONE:
		return plan_create(a, tx, place, err);
	case PLACE_FREE:
		return take_free(a, tx, place, err);
	case PLACE_CLEANUP:
		return busy(a, "place_in_cleanup", NULL, "the place is being cleaned up: %.150s",
			    place->cleanup_reason ? place->cleanup_reason : "queued");
	case PLACE_RETAINED:
		return busy(a, "place_retained", place->holder_lease,
			    "the place is kept after the failure of lease %s", place->holder_lease);
	default:
		return busy(a, "place_held", place->holder_lease, "the place is held by lease %s",
			    place->holder_lease);
	}
}

static int choose_place(struct acquisition *a, struct tx *tx, struct error *err)
{
	_cleanup_place_ struct place place = { 0 };
	char other[ID_SIZE];
	int r = intent_row_by_ref(tx, a->provider_ref, other, err);

	if (r < 0)
		return -1;
	if (r > 0)
		return busy(a, "place_being_acquired", other,
			    "the place is being acquired by lease %s", other);
	r = place_row_by_ref(tx, a->provider_ref, &place, err);
	if (r != 0)
		return r < 0 ? -1 : plan_with_namesake(a, tx, &place, err);
	if (!a->scope[0])
		return plan_create(a, tx, NULL, err);
	r = place_row_free_in_scope(tx, a->request->environment->id, a->scope, &place, err);
	if (r != 0)
		return r < 0 ? -1 : take_free(a, tx, &place, err);
	return plan_create(a, tx, NULL, err);
}

static int intend_tx(struct tx *tx, void *arg, struct error *err)
{
	struct acquisition *a = arg;
	const struct environment *environment = a->request->environment;
	int64_t used, max;
	int r;

	a->plan = PLAN_UNDECIDED;
	a->victim[0] = '\0';
	a->victim_in_the_way = false;
	/* Only an id that was chosen by the caller can have been used before. */
	if (a->request->lease_id && !a->request->lease_id_is_new &&
	    (r = find_granted(a, tx, err)) != 0)
		return r < 0 ? -1 : 0;
	if (check_environment(a, tx, &max, err) < 0)
		return -1;
	r = capacity_fits(tx, environment->id, max, &used, err);
	if (r < 0)
		return -1;
	if (r == 0)
		return busy(a, "capacity", NULL,
			    "environment \"%.80s\" has %lld of %lld leases in use",
			    name_of(environment), (long long)used, (long long)max);
	max = a->leases->max_per_company;
	r = company_fits(tx, a->request->company_id, max, &used, err);
	if (r < 0)
		return -1;
	if (r == 0)
		return busy(a, "quota", NULL, "the company has %lld of %lld leases in use",
			    (long long)used, (long long)max);
	return choose_place(a, tx, err);
}

int intend(struct acquisition *a, struct error *err)
{
	a->now = clock_now(a->leases->clock);
	/* Of what dies with the machine nothing is left that would have to have a name after that.
	 */
	return DB_WRITE_AS(a->leases->db, a->fleeting ? DB_NO_FSYNC : DB_DURABLE, "lease.intend",
			   intend_tx, a, err);
}

struct replan {
	struct acquisition *a;
	const char *why;
};

static int replan_tx(struct tx *tx, void *arg, struct error *err)
{
	struct replan *p = arg;
	struct acquisition *a = p->a;
	_cleanup_place_ struct place place = { 0 };
	int r = place_row_get(tx, a->place_id, &place, err);

	if (r < 0)
		return -1;
	if (r == 0 || place.state != PLACE_RESUMING || !streq(place.holder_lease, a->lease_id))
		return error_set(err, ERR_LEASE_LOST, "the place was taken away meanwhile");
	if (condemn(a, tx, &place, p->why, err) < 0)
		return -1;
	return intent_row_make_create(tx, a->lease_id, a->provider_ref, a->now, err);
}

int plan_another_place(struct acquisition *a, const char *why, struct error *err)
{
	_cleanup_free_ char *reason = xasprintf("resume failed: %.200s", why);
	struct replan replan = { a, reason };

	a->now = clock_now(a->leases->clock);
	if (DB_WRITE(a->leases->db, "lease.replan", replan_tx, &replan, err) < 0)
		return -1;
	if (!a->victim_in_the_way) {
		id_new(a->place_id);
		a->generation = 1;
	} else {
		a->generation++;
	}
	a->plan = PLAN_CREATE;
	return 0;
}

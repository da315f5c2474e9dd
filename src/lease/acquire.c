/*
 * Acquiring a lease: two transactions around one call to the driver. The second is durable; the
 * first is as durable as what the driver makes (DB_NO_FSYNC where that dies with the machine).
 *
 *   turn ──> lease.intend ──> driver acquire ──> lease.grant ──> first command, if there is one
 *    ^          │   └──> driver resume ──┘  │
 *    └── busy ──┘            └─ cannot ─> lease.replan ─> destroy, then acquire
 *
 * A crash after lease.intend leaves the intent, which recovery compares with the provider's
 * inventory; a failure anywhere goes through acquisition_undo. So something made by a provider is
 * at every moment named by an intent, a place or a spooled file.
 */
#include "lease/acquisition.h"

#include <string.h>

#include "base/log.h"
#include "base/metric.h"
#include "base/text.h"
#include "record/trust.h"

METRIC_HISTOGRAM(ACQUIRE_SECONDS, "berth_lease_acquire_seconds", "result=\"ok\"",
		 "From asking for a lease to holding it or being refused, waiting included");
METRIC_HISTOGRAM(ACQUIRE_FAILED_SECONDS, "berth_lease_acquire_seconds", "result=\"failed\"",
		 "From asking for a lease to holding it or being refused, waiting included");

static int refuse_busy(struct acquisition *a, const struct turn *turn, bool waited,
		       struct error *err)
{
	_cleanup_json_ json_t *details = json_object();

	json_put_str(details, "reason", a->busy_reason);
	if (id_is_set(a->busy_holder))
		json_put_str(details, "holderLeaseId", a->busy_holder);
	json_put_int(details, "waiting", (int64_t)waiters_count(a->leases, turn->waiter.key));
	error_set(err, ERR_PLACE_BUSY, "%s%s", a->busy_text,
		  waited ? "; the time to wait for it is over" : "");
	error_set_details(err, json_text(details));
	return -1;
}

static void note_others_first(struct acquisition *a, const struct turn *turn)
{
	a->plan = PLAN_BUSY;
	a->busy_reason = "queue";
	a->busy_holder[0] = '\0';
	snprintf(a->busy_text, sizeof(a->busy_text), "%zu earlier requests wait for the same",
		 waiters_count(a->leases, turn->waiter.key));
}

/* One try at the head of the queue: 0 decided, 1 no room, -1 error. */
static int try_turn(struct acquisition *a, struct turn *turn, struct error *err)
{
	if (!turn_is_mine(turn)) {
		note_others_first(a, turn);
		return 1;
	}
	if (intend(a, err) < 0) {
		struct error why = { .code = ERR_DB, .message = "the database did not answer" };

		/* It may have been committed all the same. */
		acquisition_undo(a, false, &why);
		return -1;
	}
	return a->plan == PLAN_BUSY;
}

static int take_turn(struct acquisition *a, struct turn *turn, struct error *err)
{
	const struct lease_request *r = a->request;
	bool told = turn->queued;
	int busy, over;

	while ((busy = try_turn(a, turn, err)) > 0) {
		if (r->wait_ms == 0)
			return refuse_busy(a, turn, false, err);
		if (!told && r->on_wait)
			r->on_wait(r->on_wait_arg, a->busy_text);
		told = true;
		over = turn_wait(turn, err);
		if (over != 0)
			return over < 0 ? -1 : refuse_busy(a, turn, true, err);
	}
	return busy;
}

/* 1 awake, 0 planned anew, -1 error. */
static int wake(struct acquisition *a, struct error *err)
{
	_cleanup_error_ struct error why = { 0 };
	int r = maker_resume(a->leases->makers, &a->place_request, &a->place, &a->grant, &why);

	if (r == 1 && !streq(a->grant.provider_ref, a->place.provider_ref))
		r = error_set(&why, ERR_PROTOCOL, "the provider resumed another place");
	if (r == 1)
		return 1;
	log_info("place %s of environment %s cannot be resumed: %s", a->place_id,
		 a->request->environment->id,
		 r < 0 ? why.message : "the provider does not have it");
	place_grant_clear(&a->grant);
	return plan_another_place(a, r < 0 ? why.message : "not there any more", err);
}

/* Makes room for the new place: 0 go on, 1 it is still in the way. */
static int destroy_victim(struct acquisition *a)
{
	_cleanup_error_ struct error err = { 0 };
	char victim[ID_SIZE];

	id_copy(victim, a->victim);
	a->victim[0] = '\0';
	if (!id_is_set(victim) || cleanup_try(a->leases, victim, &err) == 0)
		return 0;
	log_warn("place %s is not used again and could not be destroyed yet: %s", victim,
		 err.message);
	return a->victim_in_the_way;
}

/* Who it will be, for makers that make the relay with the place. */
static void tell_holding(struct acquisition *a)
{
	a->place_request.place_id = a->place_id;
	a->place_request.generation = a->generation;
	a->place_request.key = a->key;
	a->place_request.keep_files = a->policy == POLICY_RETAIN_ON_FAILURE;
}

static int make_place(struct acquisition *a, struct error *err)
{
	if (maker_acquire(a->leases->makers, &a->place_request, &a->grant, err) == 0)
		return 0;
	a->refused = err->code != ERR_UNSUPPORTED_ENV;
	acquisition_undo(a, a->refused, err);
	return -1;
}

/* 0 the provider has answered, 1 try again from the start, -1 error; undone unless 0. */
static int obtain(struct acquisition *a, struct error *err)
{
	/* Of this holding alone: whoever held the place before has no key to its relay. */
	random_bytes(a->key, sizeof(a->key));
	tell_holding(a);
	int awake = a->plan == PLAN_RESUME ? wake(a, err) : 0;

	if (awake < 0) {
		acquisition_undo(a, false, err);
		return -1;
	}
	if (awake > 0)
		return 0;
	if (destroy_victim(a) > 0) {
		struct error why = { .code = ERR_PLACE_BUSY,
				     .message = "the old place is in the way" };

		acquisition_undo(a, false, &why);
		return 1;
	}
	tell_holding(a);
	return make_place(a, err);
}

static int acquire_in_flight(struct acquisition *a, struct turn *turn, struct error *err)
{
	int r;

	do {
		if (take_turn(a, turn, err) < 0)
			return -1;
		if (a->plan == PLAN_EXISTS)
			return 0;
		r = obtain(a, err);
	} while (r > 0);
	if (r < 0)
		return -1;
	if (grant(a, err) < 0) {
		acquisition_undo(a, true, err);
		return -1;
	}
	return 0;
}

/* Where the cause is the request, the environment or this machine, it keeps its own code. */
static bool is_providers_fault(const struct acquisition *a, enum error_code code)
{
	return a->refused || code == ERR_PROTOCOL || code == ERR_LEASE_LOST || code == ERR_FAULT;
}

static int explain(const struct acquisition *a, struct error *err)
{
	const struct environment *environment = a->request->environment;

	if (!is_providers_fault(a, err->code))
		return -1;
	/* Without the mount it could be had: told apart, so that the caller can ask for that. */
	if (a->request->workspace && err->code == ERR_UNPROCESSABLE)
		return -1;
	error_wrap(err, "could not acquire a lease of environment \"%.100s\" (%s)",
		   environment->name ? environment->name : environment->id,
		   driver_kind_name(environment->driver));
	return error_recode(err, ERR_LEASE_ACQUIRE);
}

/* See capacity.c for what is scarce. */
static char *queue_key(const struct acquisition *a)
{
	if (a->leases->max_per_company > 0)
		return xasprintf("company %s", a->request->company_id);
	if (environment_max_leases(a->request->environment) > 0)
		return xasprintf("environment %s", a->request->environment->id);
	return xstrdup(a->provider_ref);
}

/*
 * By the settings of today: an environment that was saved under others is refused now. Writer and
 * starter both count, so what a token may not have is not had through an environment either.
 */
static int check_host(struct acquisition *a, struct error *err)
{
	const struct lease_request *r = a->request;
	const struct environment *e = r->environment;
	bool by_us = !r->actor || actor_is_trusted(r->actor);
	const struct place_needs needs =
		maker_needs(a->leases->makers, e->driver, a->place_request.config.json);
	const struct allow_caller caller = {
		.allow = a->leases->allow,
		.db = a->leases->db,
		.company_id = r->company_id,
		.trusted = by_us && deciding_trust(e->trust, "config") == TRUST_LOCAL,
	};

	if (allow_needs(&caller, &needs, &a->bounds, err) == 0)
		return 0;
	if (by_us)
		error_wrap(err, "its config was saved by a caller with a token, or by an earlier "
				"release: save it again (berth env edit)");
	return error_wrap(err, "environment \"%.100s\"", e->name ? e->name : e->id);
}

int lease_acquire(struct leases *leases, const struct lease_request *request, struct lease *lease,
		  struct place *place, struct error *err)
{
	_cleanup_acquisition_ struct acquisition a = { .leases = leases, .request = request };
	_cleanup_error_ struct error cause = { 0 };
	_cleanup_free_ char *key = NULL;
	struct turn turn;
	int64_t start;
	int r;

	if (environment_traits(leases->makers, request->environment).is_host) {
		if (leases->makers->host->no_local)
			return refuse_host(err);
		if (request->actor && request->actor->no_local)
			return refuse_local(err);
	}
	if (acquisition_prepare(&a, &cause) < 0 || check_host(&a, &cause) < 0) {
		error_move(err, &cause);
		return -1;
	}
	key = queue_key(&a);
	start = metric_now_us();
	flight_begin(leases, &a.flight, a.lease_id);
	turn_begin(&turn, leases, key, request);
	r = acquire_in_flight(&a, &turn, &cause);
	metric_observe_since(r < 0 ? &ACQUIRE_FAILED_SECONDS : &ACQUIRE_SECONDS, start);
	turn_end(&turn);
	flight_end(leases, &a.flight);
	if (r < 0) {
		explain(&a, &cause);
		error_move(err, &cause);
		return -1;
	}
	lease_clear(lease);
	*lease = a.lease;
	a.lease = (struct lease){ 0 };
	if (place) {
		place_clear(place);
		*place = a.place;
		a.place = (struct place){ 0 };
	}
	return 0;
}

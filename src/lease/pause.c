/*
 * Pausing what runs in a leased place, and letting it go on.
 *
 *   pause    lease.pausing (1) ──> the relay freezes ──> lease.paused (2)
 *   resume                         the relay thaws ────> lease.resumed (0)
 *
 * In this order nothing ever stands still in a place whose lease does not say so: the row says it
 * before the relay is told, and until after it was told otherwise. What a crash or an error leaves
 * between the two is a lease that says it is paused while its commands may run; the next server
 * tells the relay again when it has opened the place, and so does the next pause. Asking for either
 * twice is the same as once. Whether it can be had is found out before anything is written.
 *
 * While paused the lease counts on to its end like any other.
 */
#include "lease/lease_internal.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/text.h"

#define TURN_WAIT_MS 60000

SQL(LEASE_SET_PAUSED, "UPDATE leases SET paused = $2, updated_at = $3 WHERE id = $1");

struct pausing {
	struct leases *leases;
	const char *id;
	const struct actor *actor;
	enum lease_pause to;
	const char *action; /* activity, if something is different afterwards */
	int64_t now;
};

/* One at a time for each lease, or a late freeze could follow the thaw that was asked for last. */
static int turn_take(struct leases *leases, struct flight *turn, const char *id, struct error *err)
{
	const struct flight *f;
	int64_t until = boottime_ms() + TURN_WAIT_MS;
	bool late = false;

	id_copy(turn->lease_id, id);
	pthread_mutex_lock(&leases->lock);
	for (;;) {
		for (f = leases->pausing; f && !streq(f->lease_id, id); f = f->next)
			;
		if (!f || late || leases->stopping)
			break;
		late = !cond_wait_until(&leases->changed, &leases->lock, until);
	}
	if (!f) {
		turn->next = leases->pausing;
		leases->pausing = turn;
	}
	pthread_mutex_unlock(&leases->lock);
	if (!f)
		return 0;
	return late ? error_set(err, ERR_TIMEOUT, "the lease is still being paused or resumed")
		    : error_set(err, ERR_UNAVAILABLE, "the server is going");
}

static void turn_give(struct leases *leases, struct flight *turn)
{
	struct flight **f = &leases->pausing;

	pthread_mutex_lock(&leases->lock);
	while (*f != turn)
		f = &(*f)->next;
	*f = turn->next;
	pthread_cond_broadcast(&leases->changed);
	pthread_mutex_unlock(&leases->lock);
}

static int write_activity(struct tx *tx, const struct pausing *p, const struct lease *l,
			  struct error *err)
{
	_cleanup_json_ json_t *details = json_object();
	struct activity activity = {
		.company_id = l->company_id,
		.actor = p->actor,
		.action = p->action,
		.entity_type = "environment_lease",
		.entity_id = l->id,
		.agent_id = id_is_set(l->agent_id) ? l->agent_id : NULL,
		.run_id = id_is_set(l->run_id) ? l->run_id : NULL,
		.details = details,
	};

	json_put_str(details, "environmentId",
		     id_is_set(l->environment_id) ? l->environment_id : NULL);
	json_put_str(details, "provider", l->provider);
	return activity_write_tx(tx, p->now, &activity, err);
}

static int set_paused_tx(struct tx *tx, void *arg, struct error *err)
{
	const struct pausing *p = arg;
	_cleanup_lease_ struct lease lease = { 0 };
	int found = lease_row_get(tx, p->id, &lease, err);

	if (found < 0)
		return -1;
	if (found == 0 || lease.status != LEASE_ACTIVE)
		return error_set(err, ERR_LEASE_ENDED, "lease %s is not active any more", p->id);
	/* Being paused is no news for one that is. */
	if (lease.pause == p->to || (p->to == PAUSE_BEGUN && lease.pause == PAUSE_DONE))
		return 0;
	if (tx_exec(tx, &LEASE_SET_PAUSED, err, B_TEXT(p->id), B_INT(p->to), B_INT(p->now)) < 0)
		return -1;
	/* A pause that never came about is not told, and neither is its end. */
	if (!p->action || (p->to == PAUSE_NONE && lease.pause != PAUSE_DONE))
		return 0;
	return write_activity(tx, p, &lease, err);
}

static int begin_pause(struct pausing *p, const struct place *place, struct error *err)
{
	struct places *places = p->leases->makers->host->places;
	struct db *db = p->leases->db;

	if (places_check_pause(places, place->id, place->generation, err) < 0)
		return -1;
	p->to = PAUSE_BEGUN;
	if (DB_WRITE(db, "lease.pausing", set_paused_tx, p, err) < 0 ||
	    places_pause(places, place->id, place->generation, true, err) < 0)
		return -1;
	p->to = PAUSE_DONE;
	p->action = "environment.lease_paused";
	return DB_WRITE(db, "lease.paused", set_paused_tx, p, err);
}

static int end_pause(struct pausing *p, const struct place *place, struct error *err)
{
	struct places *places = p->leases->makers->host->places;

	if (places_pause(places, place->id, place->generation, false, err) < 0)
		return -1;
	p->to = PAUSE_NONE;
	p->action = "environment.lease_resumed";
	return DB_WRITE(p->leases->db, "lease.resumed", set_paused_tx, p, err);
}

int lease_pause(struct leases *leases, const char *id, int64_t generation, bool paused,
		const struct actor *actor, struct error *err)
{
	struct pausing p = {
		.leases = leases,
		.id = id,
		.actor = actor,
		.now = clock_now(leases->clock),
	};
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };
	struct flight turn;
	int r;

	if (turn_take(leases, &turn, id, err) < 0)
		return -1;
	r = lease_use(leases, id, generation, &lease, &place, err);
	if (r == 0 && paused)
		r = begin_pause(&p, &place, err);
	else if (r == 0 && lease.pause != PAUSE_NONE)
		r = end_pause(&p, &place, err);
	turn_give(leases, &turn);
	return r;
}

/*
 * Before serving: this server takes over what its predecessor had. Processes of earlier boots are
 * ended first, because nothing may be given to a new holder while the old one's commands still run
 * there; then the books are put right (settle.c, spool.c, reconcile.c); then the places that
 * operators hold are opened again. Places that runs hold stay closed: the recovery of runs decides.
 */
#include "lease/lease_internal.h"

#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/spawn.h"
#include "base/text.h"

SQL(HURRY_CLEANUP, "UPDATE places SET cleanup_next_at = $1 WHERE node_id = $2"
		   " AND state = 'cleanup' AND state <> 'gone' AND cleanup_next_at > $1");
SQL(ADOPT_HELD, "UPDATE places SET epoch = epoch + 1, boot_epoch = $2, boot_id = $3"
		" WHERE node_id = $1 AND state IN ('held', 'retained') AND state <> 'gone'"
		" AND boot_epoch < $2");
/*
 * What the earlier server had started there, in places where nothing but our own checks keeps an
 * earlier holder out, may be running still: nobody else gets them (reuse_mismatch).
 */
SQL(UNFENCE_LEFT, "UPDATE places SET fencing = 'none' WHERE node_id = $1 AND boot_epoch < $2"
		  " AND state IN ('held', 'resuming', 'releasing', 'cleanup') AND state <> 'gone'"
		  " AND fencing = 'server'");
SQL(REBOOTED_LOCAL, "SELECT id FROM places WHERE node_id = $1 AND state IN ('held', 'retained')"
		    " AND state <> 'gone'"
		    " AND driver = 'local' AND boot_id <> $2");
SQL(HELD, "SELECT p.id FROM places p JOIN leases l ON l.id = p.holder_lease"
	  " WHERE p.node_id = $1 AND p.state IN ('held', 'retained') AND p.state <> 'gone'"
	  " AND l.status IN ('active', 'retained')");

SQL(PAUSED,
    "SELECT p.id FROM places p JOIN leases l ON l.id = p.holder_lease"
    " WHERE p.node_id = $1 AND p.state = 'held' AND p.state <> 'gone' AND l.status = 'active'"
    " AND l.paused > 0");

/* Relays of holdings that ended without anybody to end them, with all they run. */
static void reap_relays(struct leases *leases)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_strv_ char **held = NULL;
	int ended;

	if (ids_read(leases->db, &HELD, &held, &err, B_TEXT(leases->node.id)) < 0) {
		log_warn("places in use could not be read: %s", err.message);
		return;
	}
	ended = places_reap(leases->makers->host->places, (const char *const *)held, strv_len(held),
			    &err);
	if (ended < 0)
		log_warn("relays that nobody holds could not be ended yet: %s", err.message);
	else if (ended > 0)
		log_warn("%d relays that nobody holds were ended", ended);
}

static int take_over_tx(struct tx *tx, void *arg, struct error *err)
{
	struct leases *leases = arg;
	const struct node *node = &leases->node;

	/* Claims of the earlier server hold no more. */
	if (tx_exec(tx, &HURRY_CLEANUP, err, B_INT(clock_now(leases->clock)), B_TEXT(node->id)) < 0)
		return -1;
	/* Before they are adopted: then nothing tells them apart any more. */
	if (tx_exec(tx, &UNFENCE_LEFT, err, B_TEXT(node->id), B_INT(node->boot_epoch)) < 0)
		return -1;
	return tx_exec(tx, &ADOPT_HELD, err, B_TEXT(node->id), B_INT(node->boot_epoch),
		       B_TEXT(node->boot_id)) < 0
		       ? -1
		       : 0;
}

struct place_look {
	const char *id;
	struct place place;
};

static int load_place(struct tx *tx, void *arg, struct error *err)
{
	struct place_look *look = arg;

	return place_row_get(tx, look->id, &look->place, err) < 0 ? -1 : 0;
}

typedef int place_step(struct leases *leases, const struct place *place, struct error *err);

static int with_each_place(struct leases *leases, char **ids, place_step *step, struct error *err)
{
	int result = 0;

	for (char **id = ids; id && *id; id++) {
		struct place_look look = { .id = *id };

		if (db_read(leases->db, load_place, &look, err) < 0 ||
		    (id_is_set(look.place.id) && step(leases, &look.place, err) < 0))
			result = -1;
		place_clear(&look.place);
	}
	return result;
}

static int lose_rebooted(struct leases *leases, const struct place *place, struct error *err)
{
	return place_lose(leases, place->id, place->generation, "host_rebooted", err);
}

static int open_place(struct leases *leases, const struct place *place, struct error *err)
{
	if (FAULT_HERE("lease.open", err) < 0)
		return -1;
	return maker_open(leases->makers, place, err);
}

/* One that stays closed refuses commands until a sweep has opened it; the server starts. */
static int open_again(struct leases *leases, const struct place *place, struct error *err)
{
	_cleanup_error_ struct error closed = { 0 };

	(void)err;
	if ((place->state != PLACE_HELD && place->state != PLACE_RETAINED) ||
	    open_place(leases, place, &closed) == 0)
		return 0;
	log_warn("place %s takes no commands yet: %s", place->id, closed.message);
	strv_push(&leases->closed, xstrdup(place->holder_lease));
	return 0;
}

int lease_open_again(struct leases *leases, const char *id, struct lease *lease,
		     struct place *place, struct error *err)
{
	if (lease_get(leases, id, lease, place, err) < 0)
		return -1;
	if (!((lease->status == LEASE_ACTIVE && place->state == PLACE_HELD) ||
	      (lease->status == LEASE_RETAINED && place->state == PLACE_RETAINED)) ||
	    place->generation != lease->generation || !streq(place->holder_lease, lease->id))
		return error_set(err, ERR_LEASE_ENDED, "the lease has ended");
	if (open_place(leases, place, err) < 0)
		return -1;
	if (lease->pause != PAUSE_NONE)
		places_expect_pause(leases->makers->host->places, place->id, place->generation);
	return 0;
}

int open_closed_places(struct leases *leases, struct error *err)
{
	_cleanup_strv_ char **closed = steal(leases->closed);

	(void)err;
	for (char **id = closed; id && *id; id++) {
		_cleanup_lease_ struct lease lease = { 0 };
		_cleanup_place_ struct place place = { 0 };
		_cleanup_error_ struct error why = { 0 };

		if (lease_open_again(leases, *id, &lease, &place, &why) < 0 &&
		    why.code != ERR_LEASE_ENDED && why.code != ERR_NOT_FOUND)
			strv_push(&leases->closed, xstrdup(*id));
	}
	return 0;
}

/* The earlier server may have died before it had told the relay. */
static int pause_again(struct leases *leases, const struct place *place, struct error *err)
{
	(void)err;
	places_expect_pause(leases->makers->host->places, place->id, place->generation);
	return 0;
}

static int take_over(struct leases *leases, struct error *err)
{
	_cleanup_strv_ char **rebooted = NULL, **held = NULL, **paused = NULL;
	const struct node *node = &leases->node;

	if (ids_read(leases->db, &REBOOTED_LOCAL, &rebooted, err, B_TEXT(node->id),
		     B_TEXT(node->boot_id)) < 0 ||
	    with_each_place(leases, rebooted, lose_rebooted, err) < 0 ||
	    DB_WRITE(leases->db, "lease.take_over", take_over_tx, leases, err) < 0 ||
	    ids_read(leases->db, &HELD, &held, err, B_TEXT(node->id)) < 0 ||
	    ids_read(leases->db, &PAUSED, &paused, err, B_TEXT(node->id)) < 0 ||
	    with_each_place(leases, held, open_again, err) < 0)
		return -1;
	return with_each_place(leases, paused, pause_again, err);
}

int leases_recover(struct leases *leases, struct error *err)
{
	_cleanup_error_ struct error later = { 0 };

	/* A spooled orphan that cannot be read is audit's to show, not a reason not to start. */
	if (spool_flush(leases, &later) < 0)
		log_warn("the spool is not empty yet: %s", later.message);
	if (settle_intents(leases, err) < 0 || queue_interrupted_places(leases, err) < 0 ||
	    end_ownerless_leases(leases, err) < 0 || take_over(leases, err) < 0)
		return -1;
	reap_relays(leases);
	error_clear(&later);
	if (reconcile(leases, true, &later) < 0)
		log_warn("providers and database are not compared yet: %s", later.message);
	return 0;
}

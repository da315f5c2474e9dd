/*
 * Claims on the cleanup queue. Whoever claims a place that is due has it to itself until the claim
 * runs out, which is long, because providers are slow. A claim that ended without anything being
 * recorded (the database refused) would keep the place waiting for that long, so it is remembered
 * and given back by the next sweep; what a crash forgets runs out, or is hurried by the next start.
 */
#include "lease/lease_internal.h"

#include "base/text.h"

#define MAX_GIVEN_BACK 1000 /* at once; more of them run out */

struct given_claim {
	char place_id[ID_SIZE];
	int64_t until;
	struct given_claim *next;
};

/* $4: until when the claim holds, $5: at most. */
SQL(CLEANUP_CLAIM,
    "WITH due AS MATERIALIZED (SELECT id FROM places WHERE state = 'cleanup'"
    " AND state <> 'gone' AND cleanup_next_at <= $1 AND " SQL_MINE
    " ORDER BY cleanup_next_at, id LIMIT $5)"
    " UPDATE places SET cleanup_next_at = $4, updated_at = $1 WHERE id IN (SELECT id FROM due)"
    " AND state = 'cleanup' AND cleanup_next_at <= $1 RETURNING id");
/* Asking before writing keeps a quiet sweep from being a transaction. */
SQL(CLEANUP_DUE, "SELECT id FROM places WHERE state = 'cleanup' AND state <> 'gone'"
		 " AND cleanup_next_at <= $1"
		 " AND " SQL_MINE " ORDER BY cleanup_next_at, id LIMIT 1");
/* The time in it tells this claim from a later one. */
SQL(CLEANUP_UNCLAIM, "UPDATE places SET cleanup_next_at = $3"
		     " WHERE id = $1 AND state = 'cleanup' AND cleanup_next_at = $2");

static void free_claims(struct given_claim *claims)
{
	while (claims) {
		struct given_claim *next = claims->next;

		free(claims);
		claims = next;
	}
}

void claims_free(struct leases *leases)
{
	free_claims(leases->given_claims);
}

void claim_give_back(struct leases *leases, const char *place_id, int64_t until)
{
	struct given_claim *claim = xcalloc(1, sizeof(*claim));

	id_copy(claim->place_id, place_id);
	claim->until = until;
	pthread_mutex_lock(&leases->lock);
	if (leases->given_count < MAX_GIVEN_BACK) {
		claim->next = leases->given_claims;
		leases->given_claims = steal(claim);
		leases->given_count++;
	}
	pthread_mutex_unlock(&leases->lock);
	free(claim);
}

struct unclaiming {
	const struct given_claim *claims;
	int64_t now;
};

static int unclaim_tx(struct tx *tx, void *arg, struct error *err)
{
	const struct unclaiming *u = arg;

	for (const struct given_claim *c = u->claims; c; c = c->next) {
		if (tx_exec(tx, &CLEANUP_UNCLAIM, err, B_TEXT(c->place_id), B_INT(c->until),
			    B_INT(u->now)) < 0)
			return -1;
	}
	return 0;
}

static int unclaim(struct leases *leases, struct error *err)
{
	struct unclaiming u = { .now = clock_now(leases->clock) };
	struct given_claim *claims;
	int r;

	pthread_mutex_lock(&leases->lock);
	claims = leases->given_claims;
	leases->given_claims = NULL;
	leases->given_count = 0;
	pthread_mutex_unlock(&leases->lock);
	if (!claims)
		return 0;
	u.claims = claims;
	r = DB_WRITE(leases->db, "lease.unclaim", unclaim_tx, &u, err);
	for (const struct given_claim *c = claims; r < 0 && c; c = c->next)
		claim_give_back(leases, c->place_id, c->until);
	free_claims(claims);
	return r;
}

struct claiming {
	struct leases *leases;
	int64_t now;
	char **ids;
};

static int claim_tx(struct tx *tx, void *arg, struct error *err)
{
	struct claiming *c = arg;

	return ids_tx(tx, &CLEANUP_CLAIM, &c->ids, err, B_INT(c->now), B_TEXT(c->leases->node.id),
		      B_INT(c->now - NODE_DEAD_MS), B_INT(c->now + CLAIM_MS), B_INT(CLEANUP_BATCH));
}

int claim_due_places(struct leases *leases, char ***ids, struct error *err)
{
	struct claiming c = { .leases = leases };
	_cleanup_strv_ char **due = NULL;

	if (unclaim(leases, err) < 0)
		return -1;
	c.now = clock_now(leases->clock);
	if (ids_read(leases->db, &CLEANUP_DUE, &due, err, B_INT(c.now), B_TEXT(leases->node.id),
		     B_INT(c.now - NODE_DEAD_MS)) < 0)
		return -1;
	if (due && DB_WRITE(leases->db, "lease.cleanup_claim", claim_tx, &c, err) < 0) {
		/* It may have been committed all the same. */
		for (char **id = c.ids; id && *id; id++)
			claim_give_back(leases, *id, c.now + CLAIM_MS);
		strv_free(c.ids);
		return -1;
	}
	*ids = c.ids;
	return 0;
}

/*
 * History that nobody needs any more: ended leases, and the rows of places that are gone and that
 * no lease names. The row of a place whose name can be given again (it has a scope) stays as long
 * as its environment: it holds the generation that the next holder must exceed. Intents are not
 * history: they end by being settled, and what cannot be settled stays for people to see.
 */
#include "lease/room.h"

#define BATCH 500

SQL(PRUNE_LEASES, "DELETE FROM leases WHERE id IN (SELECT id FROM leases"
		  " WHERE status IN ('released', 'expired', 'failed') AND released_at < $1"
		  " ORDER BY released_at, id LIMIT $2)");
SQL(PRUNE_PLACES, "DELETE FROM places WHERE id IN (SELECT p.id FROM places p"
		  " WHERE p.state = 'gone' AND p.updated_at < $1"
		  " AND (p.scope = '' OR p.environment_id IS NULL)"
		  " AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.place_id = p.id)"
		  " ORDER BY p.updated_at, p.id LIMIT $2)");

struct pruning {
	const struct sql *sql;
	int64_t before, removed;
};

static int prune_tx(struct tx *tx, void *arg, struct error *err)
{
	struct pruning *p = arg;

	p->removed = tx_exec(tx, p->sql, err, B_INT(p->before), B_INT(BATCH));
	return p->removed < 0 ? -1 : 0;
}

/* In small transactions, so that nobody waits long for the writer. */
static int64_t prune(struct leases *leases, const struct sql *sql, int64_t before,
		     struct error *err)
{
	struct pruning p = { .sql = sql, .before = before };
	int64_t total = 0;

	do {
		if (DB_WRITE(leases->db, "lease.prune", prune_tx, &p, err) < 0)
			return -1;
		total += p.removed;
	} while (p.removed == BATCH);
	return total;
}

int64_t leases_prune(struct leases *leases, int64_t before_ms, struct error *err)
{
	int64_t ended = prune(leases, &PRUNE_LEASES, before_ms, err), gone;

	if (ended < 0)
		return -1;
	gone = prune(leases, &PRUNE_PLACES, before_ms, err);
	return gone < 0 ? -1 : ended + gone;
}

/*
 * History that nobody needs any more: ended leases, and the rows of places that are gone and that
 * no lease names. The row of a place whose name can be given again (it has a scope) stays as long
 * as its environment: it holds the generation that the next holder must exceed. Intents are not
 * history: they end by being settled, and what cannot be settled stays for people to see.
 */
#include "lease/lease_internal.h"

#define BATCH 500

/* From the lease behind $3, $4 on: those that are held back are not looked at again. */
SQL(PRUNE_FIND, "SELECT id, released_at FROM leases"
		" WHERE status IN ('released', 'expired', 'failed')"
		" AND released_at < CAST($1 AS BIGINT) AND released_at >= CAST($3 AS BIGINT)"
		" AND (released_at > CAST($3 AS BIGINT) OR id > CAST($4 AS TEXT))"
		" ORDER BY released_at, id LIMIT CAST($2 AS BIGINT)");
SQL(PRUNE_LEASE, "DELETE FROM leases WHERE id = $1"
		 " AND status IN ('released', 'expired', 'failed')");
SQL(PRUNE_PLACES, "DELETE FROM places WHERE id IN (SELECT p.id FROM places p"
		  " WHERE p.state = 'gone' AND p.updated_at < $1"
		  " AND (p.scope = '' OR p.environment_id IS NULL)"
		  " AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.place_id = p.id)"
		  " ORDER BY p.updated_at, p.id LIMIT $2)");

struct ended {
	char id[ID_SIZE];
	int64_t released_at;
	bool stays;
};

struct pruning {
	const struct leases_prune *options;
	struct ended found[BATCH], from;
	size_t count;
	int64_t removed;
};

static int find_ended(struct tx *tx, void *arg, struct error *err)
{
	struct pruning *p = arg;
	_cleanup_cursor_ struct cursor c = { 0 };
	int more;

	p->count = 0;
	if (tx_query(tx, &c, &PRUNE_FIND, err, B_INT(p->options->before_ms), B_INT(BATCH),
		     B_INT(p->from.released_at), B_TEXT(p->from.id)) < 0)
		return -1;
	while ((more = cursor_next(&c, err)) > 0 && p->count < BATCH) {
		struct ended *ended = &p->found[p->count++];

		id_copy(ended->id, col_text(&c, 0));
		ended->released_at = col_int(&c, 1);
		ended->stays = false;
	}
	return more < 0 ? -1 : 0;
}

static int delete_ended(struct tx *tx, void *arg, struct error *err)
{
	struct pruning *p = arg;

	for (size_t i = 0; i < p->count; i++) {
		if (!p->found[i].stays &&
		    tx_exec(tx, &PRUNE_LEASE, err, B_TEXT(p->found[i].id)) < 0)
			return -1;
	}
	return 0;
}

static int64_t judge(struct pruning *p)
{
	const struct leases_prune *options = p->options;
	int64_t going = 0;

	for (size_t i = 0; i < p->count; i++) {
		struct ended *ended = &p->found[i];

		ended->stays = options->holds &&
			       options->holds(options->holds_arg, ended->id, ended->released_at);
		going += !ended->stays;
	}
	return going;
}

static int write_step(struct leases *leases, db_fn *step, struct pruning *p, struct error *err)
{
	return DB_WRITE(leases->db, "lease.prune", step, p, err);
}

/* In small transactions, so that nobody waits long for the writer. */
static int64_t prune_ended(struct leases *leases, const struct leases_prune *options,
			   struct error *err)
{
	_cleanup_free_ struct pruning *p = xcalloc(1, sizeof(*p));
	int64_t total = 0, going;

	p->options = options;
	do {
		if (db_read(leases->db, find_ended, p, err) < 0)
			return -1;
		going = judge(p);
		if (going && !options->dry_run && write_step(leases, delete_ended, p, err) < 0)
			return -1;
		total += going;
		if (p->count)
			p->from = p->found[p->count - 1];
	} while (p->count == BATCH);
	return total;
}

static int delete_places(struct tx *tx, void *arg, struct error *err)
{
	struct pruning *p = arg;

	p->removed = tx_exec(tx, &PRUNE_PLACES, err, B_INT(p->options->before_ms), B_INT(BATCH));
	return p->removed < 0 ? -1 : 0;
}

static int64_t prune_places(struct leases *leases, const struct leases_prune *options,
			    struct error *err)
{
	_cleanup_free_ struct pruning *p = xcalloc(1, sizeof(*p));
	int64_t total = 0;

	p->options = options;
	do {
		if (write_step(leases, delete_places, p, err) < 0)
			return -1;
		total += p->removed;
	} while (p->removed == BATCH);
	return total;
}

int64_t leases_prune(struct leases *leases, const struct leases_prune *options, struct error *err)
{
	int64_t ended = prune_ended(leases, options, err), gone = 0;

	if (ended >= 0 && !options->dry_run)
		gone = prune_places(leases, options, err);
	return ended < 0 || gone < 0 ? -1 : ended + gone;
}

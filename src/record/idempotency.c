#include "record/idempotency.h"

#include <stdio.h>
#include "base/sha256.h"
#include "base/text.h"

/*
 * The life of a key:
 *
 *     (none) --begin--> pending --finish--> done --24 h--> (none)
 *                        |   ^ \
 *                        |   |  '--abandon--> (none)
 *                        '---'
 *            begin after the owner died or forgot: same entity, new owner
 */

#define PRUNE_ROWS 500

SQL(IDEMPOTENCY_GET, "SELECT body_hash, entity_id, state, status, response, node_id, boot_epoch,"
		     " created_at FROM idempotency_keys"
		     " WHERE company_id = $1 AND actor = $2 AND route = $3 AND key = $4");
SQL(IDEMPOTENCY_INSERT,
    "INSERT INTO idempotency_keys (company_id, actor, route, key, body_hash, entity_id, state,"
    " node_id, boot_epoch, created_at)"
    " VALUES ($1, $2, $3, $4, $5, $6, 'pending', $7, $8, $9)");
SQL(IDEMPOTENCY_FORGET, "DELETE FROM idempotency_keys"
			" WHERE company_id = $1 AND actor = $2 AND route = $3 AND key = $4");
SQL(IDEMPOTENCY_TAKE_OVER, "UPDATE idempotency_keys SET node_id = $5, boot_epoch = $6,"
			   " created_at = $7"
			   " WHERE company_id = $1 AND actor = $2 AND route = $3 AND key = $4");
SQL(IDEMPOTENCY_FINISH, "UPDATE idempotency_keys SET state = 'done', status = $7, response = $8"
			" WHERE company_id = $1 AND actor = $2 AND route = $3 AND key = $4"
			" AND node_id = $5 AND boot_epoch = $6 AND state = 'pending'");
SQL(IDEMPOTENCY_ABANDON, "DELETE FROM idempotency_keys"
			 " WHERE company_id = $1 AND actor = $2 AND route = $3 AND key = $4"
			 " AND node_id = $5 AND boot_epoch = $6 AND state = 'pending'");
SQL(IDEMPOTENCY_OWNER, "SELECT boot_epoch, heartbeat_at FROM nodes WHERE id = $1");
SQL(IDEMPOTENCY_PRUNE,
    "WITH old AS MATERIALIZED (SELECT company_id, actor, route, key FROM idempotency_keys"
    " WHERE created_at <= $1 ORDER BY created_at LIMIT 500)"
    " DELETE FROM idempotency_keys WHERE created_at <= $1"
    " AND (company_id, actor, route, key) IN (SELECT company_id, actor, route, key FROM old)");

#define B_KEY(idem)                                                                                \
	B_TEXT((idem)->company_id), B_TEXT((idem)->actor), B_TEXT((idem)->route),                  \
		B_TEXT((idem)->key)

void idempotency_clear(struct idempotency *idem)
{
	free(idem->response);
	*idem = (struct idempotency){ 0 };
}

/* What the table says about a key. */
struct stored_key {
	bool found, done;
	char body_hash[SHA256_HEX_SIZE];
	char entity_id[ID_SIZE], node_id[ID_SIZE];
	int64_t boot_epoch, created_at;
	int status;
	char *response;
};

static void stored_key_clear(struct stored_key *stored)
{
	free(stored->response);
}

static int read_key(struct tx *tx, const struct idempotency *idem, struct stored_key *stored,
		    struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query(tx, &c, &IDEMPOTENCY_GET, err, B_KEY(idem)) < 0)
		return -1;

	int r = cursor_next(&c, err);

	if (r <= 0)
		return r;
	stored->found = true;
	snprintf(stored->body_hash, sizeof(stored->body_hash), "%s", col_text(&c, 0));
	id_copy(stored->entity_id, col_text(&c, 1));
	stored->done = streq(col_text(&c, 2), "done");
	stored->status = (int)col_int(&c, 3);
	stored->response = xstrdup(col_text(&c, 4));
	id_copy(stored->node_id, col_text(&c, 5));
	stored->boot_epoch = col_int(&c, 6);
	stored->created_at = col_int(&c, 7);
	return 0;
}

/* 1 when the server that began the request may still be at it, 0 when it is dead, -1 on error. */
static int owner_is_alive(struct tx *tx, const struct stored_key *stored,
			  const struct idempotency *idem, int64_t now, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };

	if (stored->created_at <= now - IDEMPOTENCY_ATTEMPT_MS)
		return 0;
	/* Our own heartbeat may be late while we are busy; that we run is proof enough. */
	if (streq(stored->node_id, idem->node_id))
		return stored->boot_epoch >= idem->boot_epoch;
	if (tx_query(tx, &c, &IDEMPOTENCY_OWNER, err, B_TEXT(stored->node_id)) < 0)
		return -1;

	int r = cursor_next(&c, err);

	if (r <= 0)
		return r;
	return col_int(&c, 0) == stored->boot_epoch && col_int(&c, 1) > now - NODE_DEAD_MS;
}

struct idempotency_begin {
	struct idempotency *idem;
	const char *body_hash;
	int64_t now;
};

static int insert_key(struct tx *tx, const struct idempotency_begin *begin, struct error *err)
{
	struct idempotency *idem = begin->idem;

	id_new(idem->entity_id);
	return tx_exec(tx, &IDEMPOTENCY_INSERT, err, B_KEY(idem), B_TEXT(begin->body_hash),
		       B_TEXT(idem->entity_id), B_TEXT(idem->node_id), B_INT(idem->boot_epoch),
		       B_INT(begin->now)) < 0
		       ? -1
		       : 0;
}

static int take_over(struct tx *tx, struct idempotency *idem, int64_t now, struct error *err)
{
	idem->resumed = true;
	return tx_exec(tx, &IDEMPOTENCY_TAKE_OVER, err, B_KEY(idem), B_TEXT(idem->node_id),
		       B_INT(idem->boot_epoch), B_INT(now)) < 0
		       ? -1
		       : 0;
}

static int begin_key(struct tx *tx, void *arg, struct error *err)
{
	const struct idempotency_begin *begin = arg;
	struct idempotency *idem = begin->idem;
	_cleanup_(stored_key_clear) struct stored_key stored = { 0 };

	free(steal(idem->response));
	idem->replay = idem->resumed = false;
	idem->status = 0;
	if (read_key(tx, idem, &stored, err) < 0)
		return -1;
	if (!stored.found)
		return insert_key(tx, begin, err);

	int alive = stored.done ? 0 : owner_is_alive(tx, &stored, idem, begin->now, err);

	if (alive < 0)
		return -1;
	if (!alive && stored.created_at <= begin->now - IDEMPOTENCY_KEEP_MS) {
		if (tx_exec(tx, &IDEMPOTENCY_FORGET, err, B_KEY(idem)) < 0)
			return -1;
		return insert_key(tx, begin, err);
	}
	if (!streq(stored.body_hash, begin->body_hash))
		return error_set(err, ERR_IDEMPOTENCY,
				 "this Idempotency-Key was used with another body");
	if (alive)
		return error_set(err, ERR_IDEMPOTENCY_BUSY,
				 "the first request with this Idempotency-Key is still under way");
	id_copy(idem->entity_id, stored.entity_id);
	if (!stored.done)
		return take_over(tx, idem, begin->now, err);
	idem->replay = true;
	idem->status = stored.status;
	idem->response = steal(stored.response);
	return 0;
}

static int fill_key(struct idempotency *idem, const char *company_id, const struct actor *actor,
		    const char *route, const char *key, struct error *err)
{
	size_t len = key ? strlen(key) : 0;

	if (len < 1 || len >= sizeof(idem->key))
		return error_set(err, ERR_VALIDATION, "Idempotency-Key must be 1 to %zu bytes",
				 sizeof(idem->key) - 1);
	for (size_t i = 0; i < len; i++) {
		if (key[i] < 0x20 || key[i] > 0x7e)
			return error_set(err, ERR_VALIDATION,
					 "Idempotency-Key must be visible ASCII characters");
	}
	/* A route cut short would share its keys with another. */
	if (strlen(route) >= sizeof(idem->route))
		return error_set(err, ERR_INTERNAL, "the route's name is too long for a key");
	memcpy(idem->key, key, len + 1);
	snprintf(idem->route, sizeof(idem->route), "%s", route);
	snprintf(idem->actor, sizeof(idem->actor), "%s:%s", actor->type, actor->id);
	id_copy(idem->company_id, company_id);
	return 0;
}

int idempotency_begin(struct db *db, struct clock *clock, const struct node *node,
		      const char *company_id, const struct actor *actor, const char *route,
		      const char *key, const char *body, size_t body_len, struct idempotency *out,
		      struct error *err)
{
	_cleanup_(idempotency_clear) struct idempotency idem = { 0 };
	char body_hash[SHA256_HEX_SIZE];
	struct idempotency_begin begin = { &idem, body_hash, clock_now(clock) };

	if (fill_key(&idem, company_id, actor, route, key, err) < 0)
		return -1;
	id_copy(idem.node_id, node->id);
	idem.boot_epoch = node->boot_epoch;
	sha256_hex(body, body_len, body_hash);
	if (DB_WRITE(db, "idempotency.begin", begin_key, &begin, err) < 0)
		return -1;
	*out = idem;
	idem = (struct idempotency){ 0 };
	return 0;
}

struct idempotency_result {
	const struct idempotency *idem;
	int status;
	const char *response;
};

static int store_result(struct tx *tx, void *arg, struct error *err)
{
	const struct idempotency_result *result = arg;
	const struct idempotency *idem = result->idem;
	int64_t n =
		tx_exec(tx, &IDEMPOTENCY_FINISH, err, B_KEY(idem), B_TEXT(idem->node_id),
			B_INT(idem->boot_epoch), B_INT(result->status), B_TEXT(result->response));

	if (n == 0)
		return error_set(err, ERR_CONFLICT,
				 "the Idempotency-Key was taken over by another server");
	return n < 0 ? -1 : 0;
}

int idempotency_finish(struct db *db, struct clock *clock, struct idempotency *idem, int status,
		       const char *response, struct error *err)
{
	struct idempotency_result result = { idem, status, response };

	(void)clock;
	if (response && strlen(response) > IDEMPOTENCY_RESPONSE_MAX)
		return error_set(err, ERR_TOO_LARGE, "the response is too large to be kept");
	return DB_WRITE(db, "idempotency.finish", store_result, &result, err);
}

int idempotency_abandon(struct db *db, struct idempotency *idem, struct error *err)
{
	return DB_EXEC(db, "idempotency.abandon", &IDEMPOTENCY_ABANDON, err, B_KEY(idem),
		       B_TEXT(idem->node_id), B_INT(idem->boot_epoch)) < 0
		       ? -1
		       : 0;
}

int64_t idempotency_prune(struct db *db, struct clock *clock, struct error *err)
{
	int64_t before = clock_now(clock) - IDEMPOTENCY_KEEP_MS, removed, total = 0;

	do {
		removed = DB_EXEC(db, "idempotency.prune", &IDEMPOTENCY_PRUNE, err, B_INT(before));
		if (removed < 0)
			return -1;
		total += removed;
	} while (removed == PRUNE_ROWS);
	return total;
}

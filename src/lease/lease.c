/*
 * The row of a lease: one holding of one place, kept as history.
 *
 *               acquire
 *   (no row) ────────────> active ──────────────> pending_cleanup ──> released | expired | failed
 *                            │      the holding      │   ^    the place is finished
 *                            │      ends: releasedAt │   │
 *                            │                       v   │
 *                            │                     retained
 *                            │                     (a failed run's place, kept for a while)
 *                            │
 *                            └──> failed
 *                                 the place was lost, there is nothing to finish
 *
 *   1. active           the holder may use, renew and release it; expiresAt and idleness end it
 *   2. pending_cleanup  nobody may use it; the processes are being ended and the provider is being
 *                       told, now or by the cleanup queue; final_status says what it will be
 *   3. final            never changes again
 *
 * There is no row before the provider has answered: until then the intent of the same id stands for
 * it, so that an acquire which failed leaves no trace in the history.
 */
#include "lease/lease_internal.h"

#include "base/text.h"
#include "record/row.h"

#define LEASE_COLUMNS                                                                              \
	"id, company_id, environment_id, place_id, execution_workspace_id, issue_id, agent_id,"    \
	" run_id, generation, status, final_status, lease_policy, provider, provider_lease_id,"    \
	" acquired_at, last_used_at, expires_at, released_at, idle_ms, retain_ms,"                 \
	" failure_reason, cleanup_status, metadata, node_id, created_at, updated_at"

#define LEASE_READ LEASE_COLUMNS ", paused"

SQL(LEASE_GET, "SELECT " LEASE_READ " FROM leases WHERE id = $1");
SQL(LEASE_INSERT, "INSERT INTO leases (" LEASE_COLUMNS ", boot_epoch)"
		  " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,"
		  " $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27)");
/* SQLite writes to the indexes of every column that is set, also where it stays the same. */
SQL(LEASE_RENEW, "UPDATE leases SET last_used_at = $2, expires_at = $3, updated_at = $4"
		 " WHERE id = $1");
SQL(LEASE_END, "UPDATE leases SET status = $2, final_status = $3, failure_reason = $4,"
	       " cleanup_status = $5, updated_at = $6, released_at = $7 WHERE id = $1");
SQL(LEASE_SETTLE, "UPDATE leases SET status = $2, final_status = $3, failure_reason = $4,"
		  " cleanup_status = $5, updated_at = $6 WHERE id = $1");
SQL(LEASE_DELETE, "DELETE FROM leases WHERE id = $1");

void lease_clear(struct lease *lease)
{
	free(lease->provider);
	free(lease->provider_lease_id);
	free(lease->failure_reason);
	free(lease->cleanup_status);
	json_decref(lease->metadata);
	*lease = (struct lease){ 0 };
}

static int64_t whole_seconds(int64_t ms)
{
	return (ms + 999) / 1000;
}

enum error_code place_cleanup_error(const struct place *place)
{
	if (place->state != PLACE_CLEANUP || place->cleanup_attempts <= 0)
		return ERR_NONE;
	return place->cleanup_attempts == 1 && str_equal(place->cleanup_action, ACTION_RELEASE)
		       ? ERR_LEASE_RELEASE
		       : ERR_LEASE_CLEANUP;
}

static json_t *cleanup_error_json(const struct place *place)
{
	enum error_code code = place ? place_cleanup_error(place) : ERR_NONE;
	json_t *o;

	if (code == ERR_NONE)
		return json_null();
	o = json_object();
	json_put_str(o, "code", error_code_name(code));
	json_put_str(o, "message", place->cleanup_reason);
	json_put_int(o, "attempts", place->cleanup_attempts);
	json_put_time(o, "nextAttemptAt", place->cleanup_next_at);
	return o;
}

json_t *lease_json(const struct lease *lease, const struct place *place)
{
	json_t *o = json_object();

	json_put_str(o, "id", lease->id);
	json_put_str(o, "companyId", lease->company_id);
	json_put_id(o, "environmentId", lease->environment_id);
	json_put_id(o, "executionWorkspaceId", lease->workspace_id);
	json_put_id(o, "issueId", lease->issue_id);
	json_put_id(o, "heartbeatRunId", lease->run_id);
	json_put_id(o, "agentId", lease->agent_id);
	json_put_str(o, "status", lease_status_name(lease->status));
	json_put_str(o, "leasePolicy", lease_policy_name(lease->policy));
	json_put_str(o, "provider", lease->provider);
	json_put_str(o, "providerLeaseId", lease->provider_lease_id);
	json_put_int(o, "generation", lease->generation);
	json_put_time(o, "acquiredAt", lease->acquired_at);
	json_put_time(o, "lastUsedAt", lease->last_used_at);
	json_put_time(o, "expiresAt", lease->expires_at);
	json_put_time(o, "releasedAt", lease->released_at);
	if (lease->idle_ms > 0)
		json_put_int(o, "idleSeconds", whole_seconds(lease->idle_ms));
	else
		json_put_str(o, "idleSeconds", NULL);
	json_put_bool(o, "paused", lease->status == LEASE_ACTIVE && lease->pause != PAUSE_NONE);
	json_put_str(o, "failureReason", lease->failure_reason);
	json_put_str(o, "cleanupStatus", lease->cleanup_status);
	json_put_new(o, "cleanupError", cleanup_error_json(place));
	json_put_ref(o, "metadata", lease->metadata);
	json_put_str(o, "placeId", lease->place_id);
	json_put_str(o, "placeState", place ? place_state_name(place->state) : NULL);
	json_put_str(o, "fencing", place ? fencing_name(place->fencing) : NULL);
	json_put_time(o, "createdAt", lease->created_at);
	json_put_time(o, "updatedAt", lease->updated_at);
	return o;
}

static int read_words(struct cursor *c, struct lease *lease, struct error *err)
{
	const char *final = col_text(c, 10);

	if (!lease_status_parse(col_text(c, 9), &lease->status))
		return unexpected_value(err, "status", col_text(c, 9));
	lease->final_status = lease->status;
	if (final && !lease_status_parse(final, &lease->final_status))
		return unexpected_value(err, "final status", final);
	if (!lease_policy_parse(col_text(c, 11), &lease->policy))
		return unexpected_value(err, "leasePolicy", col_text(c, 11));
	return col_json(c, 22, "lease metadata", &lease->metadata, err);
}

static int read_row(struct cursor *c, struct lease *out, struct error *err)
{
	_cleanup_lease_ struct lease lease = { 0 };

	if (read_words(c, &lease, err) < 0)
		return -1;
	id_copy(lease.id, col_text(c, 0));
	id_copy(lease.company_id, col_text(c, 1));
	id_copy(lease.environment_id, col_text(c, 2));
	id_copy(lease.place_id, col_text(c, 3));
	id_copy(lease.workspace_id, col_text(c, 4));
	id_copy(lease.issue_id, col_text(c, 5));
	id_copy(lease.agent_id, col_text(c, 6));
	id_copy(lease.run_id, col_text(c, 7));
	lease.generation = col_int(c, 8);
	lease.provider = xstrdup(col_text(c, 12));
	lease.provider_lease_id = xstrdup(col_text(c, 13));
	lease.acquired_at = col_int(c, 14);
	lease.last_used_at = col_int(c, 15);
	lease.expires_at = col_int(c, 16);
	lease.released_at = col_int(c, 17);
	lease.idle_ms = col_int(c, 18);
	lease.retain_ms = col_int(c, 19);
	lease.failure_reason = xstrdup(col_text(c, 20));
	lease.cleanup_status = xstrdup(col_text(c, 21));
	id_copy(lease.node_id, col_text(c, 23));
	lease.created_at = col_int(c, 24);
	lease.updated_at = col_int(c, 25);
	lease.pause = (enum lease_pause)col_int(c, 26);
	lease_clear(out);
	hand_over(out, lease);
	return 0;
}

int lease_row_get(struct tx *tx, const char *id, struct lease *lease, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	if (tx_query(tx, &c, &LEASE_GET, err, B_TEXT(id)) < 0)
		return -1;
	r = cursor_next(&c, err);
	return r <= 0 ? r : read_row(&c, lease, err) < 0 ? -1 : 1;
}

/* The final status has its own column only while it is not the status itself. */
static const char *final_word(const struct lease *lease)
{
	return lease->status == LEASE_PENDING_CLEANUP ? lease_status_name(lease->final_status)
						      : NULL;
}

int lease_row_insert(struct tx *tx, const struct lease *l, const struct node *node,
		     struct error *err)
{
	_cleanup_free_ char *metadata = l->metadata ? json_text(l->metadata) : xstrdup("{}");

	return tx_exec(tx, &LEASE_INSERT, err, B_TEXT(l->id), B_TEXT(l->company_id),
		       B_ID(l->environment_id), B_TEXT(l->place_id), B_ID(l->workspace_id),
		       B_ID(l->issue_id), B_ID(l->agent_id), B_ID(l->run_id), B_INT(l->generation),
		       B_TEXT(lease_status_name(l->status)), B_TEXT(final_word(l)),
		       B_TEXT(lease_policy_name(l->policy)), B_TEXT(l->provider),
		       B_TEXT(l->provider_lease_id), B_INT(l->acquired_at), B_INT(l->last_used_at),
		       B_TIME(l->expires_at), B_TIME(l->released_at), B_TIME(l->idle_ms),
		       B_TIME(l->retain_ms), B_TEXT(l->failure_reason), B_TEXT(l->cleanup_status),
		       B_TEXT(metadata), B_TEXT(node->id), B_INT(l->created_at),
		       B_INT(l->updated_at), B_INT(node->boot_epoch)) < 0
		       ? -1
		       : 0;
}

int lease_row_renew(struct tx *tx, const struct lease *l, struct error *err)
{
	return tx_exec(tx, &LEASE_RENEW, err, B_TEXT(l->id), B_INT(l->last_used_at),
		       B_TIME(l->expires_at), B_INT(l->updated_at)) < 0
		       ? -1
		       : 0;
}

int lease_row_end(struct tx *tx, const struct lease *l, struct error *err)
{
	return tx_exec(tx, &LEASE_END, err, B_TEXT(l->id), B_TEXT(lease_status_name(l->status)),
		       B_TEXT(final_word(l)), B_TEXT(l->failure_reason), B_TEXT(l->cleanup_status),
		       B_INT(l->updated_at), B_TIME(l->released_at)) < 0
		       ? -1
		       : 0;
}

int lease_row_settle(struct tx *tx, const struct lease *l, struct error *err)
{
	return tx_exec(tx, &LEASE_SETTLE, err, B_TEXT(l->id), B_TEXT(lease_status_name(l->status)),
		       B_TEXT(final_word(l)), B_TEXT(l->failure_reason), B_TEXT(l->cleanup_status),
		       B_INT(l->updated_at)) < 0
		       ? -1
		       : 0;
}

int lease_row_delete(struct tx *tx, const char *id, struct error *err)
{
	return tx_exec(tx, &LEASE_DELETE, err, B_TEXT(id)) < 0 ? -1 : 0;
}

#define OF_PLACE(column) " (SELECT " column " FROM places WHERE places.id = leases.place_id)"
#define LIST_FROM                                                                                  \
	"SELECT " LEASE_READ                                                                       \
	"," OF_PLACE("state") "," OF_PLACE("fencing") "," OF_PLACE("cleanup_action") "," OF_PLACE( \
		"cleanup_attempts") "," OF_PLACE("cleanup_next_at") "," OF_PLACE("cleanup_reason") " FROM leases WHERE environment_id = $1"
#define LIST_ORDER " ORDER BY last_used_at DESC, created_at DESC, id LIMIT $2"

SQL(LEASE_LIST, LIST_FROM LIST_ORDER);
/* Nearly all rows have a final status: walk along the order and leave the others out. */
SQL(LEASE_LIST_FINAL, LIST_FROM " AND status = $3" LIST_ORDER);
/*
 * Few rows have one of the others: find those and sort them. The sum keeps planners from walking
 * along the order through all the history.
 */
SQL(LEASE_LIST_OPEN,
    LIST_FROM " AND status = $3"
	      " AND " LEASES_OPEN " ORDER BY last_used_at + 0 DESC, created_at DESC, id LIMIT $2");

struct listing {
	const char *environment_id, *status;
	int64_t limit;
	json_t *list;
};

static int read_listed(struct cursor *c, json_t *list, struct error *err)
{
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };

	if (read_row(c, &lease, err) < 0)
		return -1;
	if (!place_state_parse(col_text(c, 27), &place.state))
		return unexpected_value(err, "place state", col_text(c, 27));
	if (!fencing_parse(col_text(c, 28), &place.fencing))
		return unexpected_value(err, "fencing", col_text(c, 28));
	place.cleanup_action = xstrdup(col_text(c, 29));
	place.cleanup_attempts = col_int(c, 30);
	place.cleanup_next_at = col_int(c, 31);
	place.cleanup_reason = xstrdup(col_text(c, 32));
	json_array_append_new(list, lease_json(&lease, &place));
	return 0;
}

static int query_listing(struct tx *tx, struct cursor *c, const struct listing *l,
			 struct error *err)
{
	enum lease_status status;

	if (!l->status)
		return tx_query(tx, c, &LEASE_LIST, err, B_TEXT(l->environment_id),
				B_INT(l->limit));
	if (!lease_status_parse(l->status, &status))
		return error_set(err, ERR_VALIDATION, "unknown lease status \"%.40s\"", l->status);
	return tx_query(tx, c, lease_status_is_final(status) ? &LEASE_LIST_FINAL : &LEASE_LIST_OPEN,
			err, B_TEXT(l->environment_id), B_INT(l->limit), B_TEXT(l->status));
}

static int list_leases(struct tx *tx, void *arg, struct error *err)
{
	struct listing *l = arg;
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	json_array_clear(l->list);
	if (query_listing(tx, &c, l, err) < 0)
		return -1;
	while ((r = cursor_next(&c, err)) > 0) {
		if (read_listed(&c, l->list, err) < 0)
			return -1;
	}
	return r;
}

json_t *lease_rows_json(struct db *db, const char *environment_id, const char *status,
			int64_t limit, struct error *err)
{
	_cleanup_json_ json_t *list = json_array();
	struct listing l = { environment_id, status, limit, list };

	return db_read(db, list_leases, &l, err) < 0 ? NULL : steal(list);
}

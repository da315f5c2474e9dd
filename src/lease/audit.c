/*
 * The books, for people: everything that no holder explains and every promise not yet kept, and the
 * counts that health shows. Nothing is changed here.
 */
#include "lease/lease_internal.h"

#include <stdio.h>
#include <unistd.h>

#include "base/text.h"
#include "record/row.h"

#define MAX_ROWS 1000

SQL(AUDIT_PLACES,
    "SELECT p.id, p.driver, p.provider, p.provider_ref, p.state, p.cleanup_action,"
    " p.cleanup_attempts, p.cleanup_next_at, p.cleanup_reason, p.holder_lease,"
    " p.updated_at, l.status FROM places p LEFT JOIN leases l ON l.id = p.holder_lease"
    " WHERE p.state IN ('held', 'resuming', 'releasing', 'cleanup', 'retained')"
    " AND p.state <> 'gone'"
    " ORDER BY p.updated_at, p.id LIMIT $1");
SQL(AUDIT_LEASES,
    "SELECT l.id, l.place_id, l.run_id, r.id, r.status, p.state, p.holder_lease,"
    " l.acquired_at, COALESCE(r.finished_at, r.updated_at, l.acquired_at),"
    " r.place_kept_until"
    " FROM leases l JOIN places p ON p.id = l.place_id"
    " LEFT JOIN runs r ON r.id = l.run_id"
    " WHERE " SQL_L_OPEN " AND l.status = 'active' ORDER BY l.acquired_at, l.id LIMIT $1");
/* A place on its way in or out still has its relay, and is listed for itself. */
SQL(AUDIT_IN_USE, "SELECT id FROM places WHERE node_id = $1"
		  " AND state IN ('held', 'resuming', 'releasing', 'cleanup', 'retained')"
		  " AND state <> 'gone'");
SQL(AUDIT_INTENTS, "SELECT id, provider, provider_ref, state, reason, created_at, node_id,"
		   " boot_epoch FROM intents ORDER BY created_at, id LIMIT $1");

static void add(json_t *list, const char *kind, const char *id, const char *where, int64_t since,
		const char *fmt, ...) __attribute__((format(printf, 6, 7)));
static void add(json_t *list, const char *kind, const char *id, const char *where, int64_t since,
		const char *fmt, ...)
{
	_cleanup_buf_ struct buf reason = { 0 };
	json_t *entry = json_object();
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&reason, fmt, ap);
	va_end(ap);
	json_put_str(entry, "kind", kind);
	json_put_str(entry, "id", id);
	json_put_str(entry, "where", where);
	json_put_str(entry, "reason", buf_str(&reason));
	json_put_time(entry, "since", since);
	json_array_append_new(list, entry);
}

/* On the entry that was added last: why the place is still in the queue. */
static void add_cleanup_code(json_t *list, struct cursor *c)
{
	const struct place queued = { .state = PLACE_CLEANUP,
				      .cleanup_action = (char *)col_text(c, 5),
				      .cleanup_attempts = col_int(c, 6) };
	enum error_code code = place_cleanup_error(&queued);

	if (code != ERR_NONE)
		json_put_str(json_array_get(list, json_array_size(list) - 1), "code",
			     error_code_name(code));
}

struct auditing {
	struct leases *leases;
	json_t *list;
	int64_t now;
};

/* A place in teardown has a time of its next attempt, or somebody at work on it. */
static void audit_place(struct auditing *a, struct cursor *c)
{
	const char *id = col_text(c, 0), *state = col_text(c, 4);
	const char *holder = col_text(c, 9), *status = col_text(c, 11);
	_cleanup_free_ char *where =
		xasprintf("%s/%s %s", col_text(c, 1), col_text(c, 2), col_text(c, 3));
	char next[TIME_ISO_SIZE];

	if (streq(state, "cleanup")) {
		time_iso(col_int(c, 7), next);
		add(a->list, "place", id, where, col_int(c, 10),
		    "cleanup pending (%s): %s; %lld attempts, next at %s",
		    col_text(c, 5) ? col_text(c, 5) : "?", col_text(c, 8) ? col_text(c, 8) : "",
		    (long long)col_int(c, 6), next);
		add_cleanup_code(a->list, c);
	} else if (streq(state, "held")) {
		if (!str_equal(status, "active"))
			add(a->list, "place", id, where, col_int(c, 10),
			    "active without owner: held by lease %s, which is %s",
			    holder ? holder : "(none)", status ? status : "not there");
	} else if (streq(state, "retained")) {
		if (!str_equal(status, "retained"))
			add(a->list, "place", id, where, col_int(c, 10),
			    "retained without a retained lease");
	} else if (!holder || !flight_is_under_way(a->leases, holder)) {
		add(a->list, "place", id, where, col_int(c, 10), "interrupted while %s", state);
	}
}

static void audit_lease(struct auditing *a, struct cursor *c)
{
	_cleanup_free_ char *where = xasprintf("lease %s", col_text(c, 0));
	const char *place = col_text(c, 1), *run_status = col_text(c, 4);
	enum run_status run;

	if (!str_equal(col_text(c, 5), "held") || !str_equal(col_text(c, 6), col_text(c, 0)))
		add(a->list, "place", place, where, col_int(c, 7),
		    "the lease is active but does not hold its place, which is %s", col_text(c, 5));
	if (!col_text(c, 2) || col_int(c, 8) > a->now - RUN_GRACE_MS)
		return;
	if (!col_text(c, 3))
		add(a->list, "place", place, where, col_int(c, 7),
		    "active without owner: its run is not there");
	else if (run_status_parse(run_status, &run) && run_status_is_final(run) &&
		 col_int(c, 9) > a->now)
		add(a->list, "place", place, where, col_int(c, 8),
		    "kept for the work of run %s, which could not be fetched: `berth collect` it",
		    col_text(c, 2));
	else if (run_status_parse(run_status, &run) && run_status_is_final(run))
		add(a->list, "place", place, where, col_int(c, 8),
		    "active without owner: its run has ended as %s", run_status);
}

static void audit_intent(struct auditing *a, struct cursor *c)
{
	_cleanup_free_ char *where = xasprintf("%s %s", col_text(c, 1), col_text(c, 2));
	const char *id = col_text(c, 0), *reason = col_text(c, 4);

	if (streq(col_text(c, 3), "unresolved"))
		add(a->list, "intent", id, where, col_int(c, 5), "unresolved: %s",
		    reason ? reason : "");
	else if (str_equal(col_text(c, 6), a->leases->node.id) &&
		 !flight_is_under_way(a->leases, id))
		add(a->list, "intent", id, where, col_int(c, 5),
		    "interrupted before the provider's answer was recorded");
}

static int audit_rows(struct auditing *a, struct tx *tx, const struct sql *sql,
		      void (*each)(struct auditing *, struct cursor *), struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	if (tx_query(tx, &c, sql, err, B_INT(MAX_ROWS)) < 0)
		return -1;
	while ((r = cursor_next(&c, err)) > 0)
		each(a, &c);
	return r;
}

static int audit_books(struct tx *tx, void *arg, struct error *err)
{
	struct auditing *a = arg;

	json_array_clear(a->list);
	if (audit_rows(a, tx, &AUDIT_PLACES, audit_place, err) < 0 ||
	    audit_rows(a, tx, &AUDIT_LEASES, audit_lease, err) < 0)
		return -1;
	return audit_rows(a, tx, &AUDIT_INTENTS, audit_intent, err);
}

static int audit_objects(struct auditing *a, struct inventories *inventories, struct error *err)
{
	const struct makers *makers = a->leases->makers;

	for (size_t i = 0; i < makers->count; i++) {
		const struct maker *maker = makers->items[i];
		const struct inventory *inventory;
		_cleanup_strv_ char **refs = NULL;

		if (!maker->traits.lists || maker->traits.is_host)
			continue;
		inventory = inventory_of(a->leases, inventories, maker->driver, maker->key);
		if (inventory->answer < 0)
			add(a->list, "provider_object", maker->key, maker->key, 0,
			    "the inventory could not be read: %s", inventory->error.message);
		if (unexplained_objects(a->leases, inventory, &refs, err) < 0)
			return -1;
		for (char **ref = refs; ref && *ref; ref++)
			add(a->list, "provider_object", *ref, maker->key, 0,
			    "no place and no intent explains it");
	}
	return 0;
}

/* What the kernel has of ours that no holding explains: processes, cgroups, sockets, directories.
 */
static int audit_kernel(struct auditing *a, struct error *err)
{
	_cleanup_strv_ char **held = NULL;
	_cleanup_json_ json_t *found = NULL;

	if (ids_read(a->leases->db, &AUDIT_IN_USE, &held, err, B_TEXT(a->leases->node.id)) < 0)
		return -1;
	found = places_audit(a->leases->makers->host->places, (const char *const *)held,
			     strv_len(held), err);
	if (!found)
		return -1;
	json_array_extend(a->list, found);
	return 0;
}

static json_t *look(struct leases *leases, struct error *err)
{
	_cleanup_json_ json_t *list = json_array();
	struct auditing a = { leases, list, clock_now(leases->clock) };
	struct inventories inventories = { 0 };
	int r = db_read(leases->db, audit_books, &a, err);

	if (r == 0)
		r = audit_objects(&a, &inventories, err);
	inventories_clear(&inventories);
	if (r < 0)
		return NULL;
	spool_audit(leases, list);
	return audit_kernel(&a, err) < 0 ? NULL : steal(list);
}

static bool lists(const json_t *list, const json_t *item)
{
	json_t *other;
	size_t i;

	json_array_foreach (list, i, other)
		if (str_equal(json_str(other, "kind"), json_str(item, "kind")) &&
		    str_equal(json_str(other, "id"), json_str(item, "id")))
			return true;
	return false;
}

/*
 * Rows, providers and the kernel cannot be looked at in one moment, and places come and go
 * meanwhile: only what two looks find counts.
 */
json_t *leases_audit(struct leases *leases, struct error *err)
{
	_cleanup_json_ json_t *first = look(leases, err), *second = NULL;
	json_t *both, *item;
	size_t i;

	if (!first || json_array_size(first) == 0)
		return steal(first);
	second = look(leases, err);
	if (!second)
		return NULL;
	both = json_array();
	json_array_foreach (second, i, item)
		if (lists(first, item))
			json_array_append(both, item);
	return both;
}

SQL(COUNT_ACTIVE, "SELECT COUNT(*) FROM leases"
		  " WHERE " LEASES_OPEN " AND status = 'active'");
SQL(COUNT_STATE, "SELECT COUNT(*) FROM places WHERE state = $1 AND state <> 'gone'");
SQL(COUNT_INTENTS, "SELECT COUNT(*) FROM intents");

struct counting {
	int64_t active, free, retained, cleanup, intents;
};

static int count_rows(struct tx *tx, void *arg, struct error *err)
{
	struct counting *n = arg;

	if (number_tx(tx, &COUNT_ACTIVE, &n->active, err) < 0 ||
	    number_tx(tx, &COUNT_STATE, &n->free, err, B_TEXT("free")) < 0 ||
	    number_tx(tx, &COUNT_STATE, &n->retained, err, B_TEXT("retained")) < 0 ||
	    number_tx(tx, &COUNT_STATE, &n->cleanup, err, B_TEXT("cleanup")) < 0)
		return -1;
	return number_tx(tx, &COUNT_INTENTS, &n->intents, err);
}

json_t *leases_counts(struct leases *leases, struct error *err)
{
	struct counting n = { 0 };
	json_t *o;

	if (db_read(leases->db, count_rows, &n, err) < 0)
		return NULL;
	o = json_object();
	json_put_int(o, "active", n.active);
	json_put_int(o, "free", n.free);
	json_put_int(o, "retained", n.retained);
	json_put_int(o, "cleanup", n.cleanup);
	json_put_int(o, "intents", n.intents);
	json_put_int(o, "waiting", (int64_t)waiters_count(leases, NULL));
	return o;
}

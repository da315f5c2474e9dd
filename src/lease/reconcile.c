/*
 * What the database says against what the providers have. An object that no place and no intent
 * explains is queued to be destroyed; a place whose object has vanished is lost, and so is its
 * lease.
 *
 * The order of looking makes the comparison safe without stopping the world. An intent is committed
 * before its object is made: so the inventory is read before the rows, and an object without a row
 * was forgotten, or is on its way out. An object is destroyed before its place says so: so the
 * places are read before the inventory, and one without an object that has not changed since is
 * lost.
 */
#include "lease/lease_internal.h"

#include <string.h>

#include "base/log.h"
#include "base/text.h"

#define MAX_SIGHTED 1024

SQL(LIVE_PLACES, "SELECT id, driver, provider, provider_ref, generation FROM places"
		 " WHERE node_id = $1 AND state IN ('held', 'free', 'retained')"
		 " AND state <> 'gone'");
SQL(FIRST_COMPANY, "SELECT id FROM companies ORDER BY created_at, id LIMIT 1");

static int compare_refs(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

const struct inventory *inventory_of(struct leases *leases, struct inventories *inventories,
				     enum driver_kind driver, const char *provider)
{
	struct inventory *item;

	for (size_t i = 0; i < inventories->count; i++) {
		item = &inventories->items[i];
		if (item->driver == driver && streq(item->provider, provider))
			return item;
	}
	inventories->items = xreallocarray(inventories->items, inventories->count + 1,
					   sizeof(*inventories->items));
	item = &inventories->items[inventories->count++];
	*item = (struct inventory){ .driver = driver, .provider = xstrdup(provider) };
	item->answer = maker_inventory(leases->makers, driver, provider, &item->list, &item->error);
	if (item->answer > 0 && item->list.refs)
		qsort(item->list.refs, strv_len(item->list.refs), sizeof(*item->list.refs),
		      compare_refs);
	if (item->answer < 0)
		log_warn("the inventory of provider \"%s\" could not be read: %s", provider,
			 item->error.message);
	return item;
}

bool inventory_has(const struct inventory *inventory, const char *ref)
{
	char **refs = inventory->list.refs;

	return refs && bsearch(&ref, refs, strv_len(refs), sizeof(*refs), compare_refs);
}

void inventories_clear(struct inventories *inventories)
{
	for (size_t i = 0; i < inventories->count; i++) {
		struct inventory *item = &inventories->items[i];

		free(item->provider);
		maker_inventory_clear(&item->list);
		error_clear(&item->error);
	}
	free(inventories->items);
	*inventories = (struct inventories){ 0 };
}

struct live_place {
	char id[ID_SIZE];
	enum driver_kind driver;
	char *provider, *ref;
	int64_t generation;
};

struct live_places {
	const char *node_id;
	struct live_place *items;
	size_t count;
};

static void live_places_clear(struct live_places *live)
{
	for (size_t i = 0; i < live->count; i++) {
		free(live->items[i].provider);
		free(live->items[i].ref);
	}
	free(live->items);
	live->items = NULL;
	live->count = 0;
}

static int read_live_places(struct tx *tx, void *arg, struct error *err)
{
	struct live_places *live = arg;
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	live_places_clear(live);
	if (tx_query(tx, &c, &LIVE_PLACES, err, B_TEXT(live->node_id)) < 0)
		return -1;
	while ((r = cursor_next(&c, err)) > 0) {
		struct live_place *item;

		if ((live->count & (live->count - 1)) == 0)
			live->items = xreallocarray(live->items, MAX_OF(2 * live->count, 16),
						    sizeof(*live->items));
		item = &live->items[live->count];
		*item = (struct live_place){ .generation = col_int(&c, 4) };
		if (!driver_kind_parse(col_text(&c, 1), &item->driver))
			continue;
		id_copy(item->id, col_text(&c, 0));
		item->provider = xstrdup(col_text(&c, 2));
		item->ref = xstrdup(col_text(&c, 3));
		live->count++;
	}
	return r;
}

struct loss {
	struct leases *leases;
	const char *place_id, *reason;
	int64_t generation, now;
	bool lost;
};

static int lose_lease(struct loss *loss, struct tx *tx, const struct place *place,
		      struct error *err)
{
	_cleanup_lease_ struct lease lease = { 0 };
	int r = id_is_set(place->holder_lease) ? lease_row_get(tx, place->holder_lease, &lease, err)
					       : 0;
	bool was_active = lease.status == LEASE_ACTIVE;

	if (r <= 0 || lease_status_is_final(lease.status))
		return r < 0 ? -1 : 0;
	lease.status = lease.final_status = LEASE_FAILED;
	lease.updated_at = loss->now;
	if (lease.released_at <= 0)
		lease.released_at = loss->now;
	free(lease.failure_reason);
	lease.failure_reason = xstrdup(loss->reason);
	if (lease_row_end(tx, &lease, err) < 0)
		return -1;
	if (!was_active)
		return 0;
	return lease_released_activity_tx(tx, &lease, place, NULL, &ACTOR_SYSTEM, loss->now, err);
}

static int lose_tx(struct tx *tx, void *arg, struct error *err)
{
	struct loss *loss = arg;
	_cleanup_place_ struct place place = { 0 };
	int r = place_row_get(tx, loss->place_id, &place, err);

	loss->lost = false;
	if (r <= 0 || place.generation != loss->generation ||
	    (place.state != PLACE_HELD && place.state != PLACE_FREE &&
	     place.state != PLACE_RETAINED))
		return r < 0 ? -1 : 0;
	if (lose_lease(loss, tx, &place, err) < 0 || place_enter(&place, PLACE_GONE, err) < 0)
		return -1;
	place.updated_at = loss->now;
	loss->lost = true;
	return place_row_save(tx, &place, err);
}

int place_lose(struct leases *leases, const char *place_id, int64_t generation, const char *reason,
	       struct error *err)
{
	struct loss loss = {
		.leases = leases,
		.place_id = place_id,
		.reason = reason,
		.generation = generation,
		.now = clock_now(leases->clock),
	};

	if (DB_WRITE(leases->db, "lease.lost", lose_tx, &loss, err) < 0)
		return -1;
	if (!loss.lost)
		return 0;
	log_warn("place %s is lost: %s", place_id, reason);
	capacity_changed(leases, NULL);
	return places_stop(leases->makers->host->places, place_id, EXEC_LEASE_LOST, STOP_WAIT_MS,
			   err);
}

static int find_lost(struct leases *leases, struct inventories *inventories,
		     const struct live_places *live, struct error *err)
{
	int result = 0;

	for (size_t i = 0; i < live->count; i++) {
		const struct live_place *p = &live->items[i];
		const struct inventory *inventory;

		/* A place on this host is its processes: there is no object that could vanish. */
		if (makers_traits(leases->makers, p->driver, p->provider).is_host)
			continue;
		inventory = inventory_of(leases, inventories, p->driver, p->provider);
		if (inventory->answer <= 0 || inventory_has(inventory, p->ref))
			continue;
		if (place_lose(leases, p->id, p->generation, "place_lost", err) < 0)
			result = error_wrap(err, "place %s", p->id);
	}
	return result;
}

struct explaining {
	const struct inventory *inventory;
	char **unexplained; /* borrowed refs */
	size_t count;
};

static int explain(struct tx *tx, void *arg, struct error *err)
{
	struct explaining *x = arg;

	x->count = 0;
	for (char **ref = x->inventory->list.refs; ref && *ref; ref++) {
		_cleanup_place_ struct place place = { 0 };
		char intent[ID_SIZE];
		int r = place_row_by_ref(tx, *ref, &place, err);

		if (r > 0 && place.state != PLACE_GONE)
			continue;
		if (r < 0 || (r = intent_row_by_ref(tx, *ref, intent, err)) < 0)
			return -1;
		if (r == 0)
			x->unexplained[x->count++] = *ref;
	}
	return 0;
}

int unexplained_objects(struct leases *leases, const struct inventory *inventory, char ***refs,
			struct error *err)
{
	_cleanup_free_ char **borrowed =
		xcalloc(strv_len(inventory->list.refs) + 1, sizeof(*borrowed));
	struct explaining x = { .inventory = inventory, .unexplained = borrowed };

	if (inventory->answer <= 0)
		return 0;
	if (db_read(leases->db, explain, &x, err) < 0)
		return -1;
	for (size_t i = 0; i < x.count; i++)
		strv_push(refs, xstrdup(borrowed[i]));
	return 0;
}

struct adoption {
	struct leases *leases;
	struct orphan orphan;
	int64_t now;
};

static int adopt_tx(struct tx *tx, void *arg, struct error *err)
{
	struct adoption *a = arg;
	_cleanup_strv_ char **company = NULL;
	char intent[ID_SIZE];
	int r = intent_row_by_ref(tx, a->orphan.place.provider_ref, intent, err);

	if (r != 0)
		return r < 0 ? -1 : 0;
	/* Whose it was nobody knows; a row needs a company, and the first is as good as any. */
	if (ids_tx(tx, &FIRST_COMPANY, &company, err) < 0)
		return -1;
	if (!company)
		return error_set(err, ERR_NOT_FOUND, "there is no company to keep it under");
	id_copy(a->orphan.place.company_id, company[0]);
	return orphan_write_tx(tx, a->leases, &a->orphan, a->now, err);
}

static int adopt(struct leases *leases, const struct inventory *inventory, const char *ref,
		 struct error *err)
{
	_cleanup_json_ json_t *config = json_object();
	struct adoption a = {
		.leases = leases,
		.orphan = { .reason = "unexplained_object",
			    .place = { .driver = inventory->driver,
				       .provider = inventory->provider,
				       .provider_ref = (char *)ref,
				       .scope = (char *)"",
				       .fingerprint = (char *)"",
				       .fencing = FENCING_SERVER,
				       .discoverable = true,
				       .config = { config } } },
		.now = clock_now(leases->clock),
	};

	json_put_str(config, "provider", inventory->provider);
	log_warn("provider \"%s\" has \"%s\", which nothing explains: it will be destroyed",
		 inventory->provider, ref);
	return DB_WRITE(leases->db, "lease.adopt_orphan", adopt_tx, &a, err);
}

static bool was_sighted(const struct leases *leases, const char *ref)
{
	for (char **s = leases->sighted; s && *s; s++) {
		if (streq(*s, ref))
			return true;
	}
	return false;
}

/* Seen twice is certain; so is what is found before anything else has begun. */
static int find_unexplained(struct leases *leases, const struct inventory *inventory, bool certain,
			    char ***sighted, struct error *err)
{
	_cleanup_strv_ char **refs = NULL;
	int result = 0;

	if (unexplained_objects(leases, inventory, &refs, err) < 0)
		return -1;
	for (char **ref = refs; ref && *ref; ref++) {
		if (!certain && !was_sighted(leases, *ref)) {
			if (strv_len(*sighted) < MAX_SIGHTED)
				strv_push(sighted, xstrdup(*ref));
		} else if (adopt(leases, inventory, *ref, err) < 0) {
			result = error_wrap(err, "object \"%s\"", *ref);
		}
	}
	return result;
}

static int compare(struct leases *leases, struct inventories *inventories, struct live_places *live,
		   bool certain, struct error *err)
{
	char **sighted = NULL;
	int result;

	if (db_read(leases->db, read_live_places, live, err) < 0)
		return -1;
	for (size_t i = 0; i < leases->makers->count; i++) {
		const struct maker *maker = leases->makers->items[i];

		/* This host's own processes are nobody's to list. */
		if (maker->traits.lists && !maker->traits.is_host)
			inventory_of(leases, inventories, maker->driver, maker->key);
	}
	result = find_lost(leases, inventories, live, err);
	for (size_t i = 0; i < inventories->count; i++) {
		if (find_unexplained(leases, &inventories->items[i], certain, &sighted, err) < 0)
			result = -1;
	}
	strv_free(leases->sighted);
	leases->sighted = sighted;
	return result;
}

int reconcile(struct leases *leases, bool certain, struct error *err)
{
	struct inventories inventories = { 0 };
	struct live_places live = { .node_id = leases->node.id };
	int r = compare(leases, &inventories, &live, certain, err);

	live_places_clear(&live);
	inventories_clear(&inventories);
	return r;
}

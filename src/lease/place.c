/*
 * The row of a place: the thing that is held. Only this room writes it.
 *
 *                  1 acquire              2 release
 *   (no row) ───────────────────> held ──────────────> releasing ──┬─> free ──────> resuming
 *     ^  └── made, not granted ─┐  ^ │                       │      ├─> retained        │
 *     │                         │  │ └── 4 ended by a sweep  │      └─> gone            │
 *     │                         v  │              │          v                          │
 *     └─ pruned ── gone <──── cleanup <───────────┴────── 3 the driver failed           │
 *                   │         ^  └──> free | retained     (or the server died)          │
 *                   │         └──────────── 5 a free place that no longer fits ─────────┤
 *                   └── acquire of the same name ──> held <──────── 6 resumed ──────────┘
 *
 *   held       holder_lease is active; it alone may use the place
 *   resuming   holder_lease is about to be active; the provider is being asked
 *   releasing  the holding has ended, its processes are being ended, the provider is being told
 *   free       reusable, nobody holds it, nothing runs there
 *   retained   kept for a look after a failure until retain_until; its lease may run commands
 *   cleanup    queued: cleanup_action is tried again at cleanup_next_at until it works
 *   gone       the provider has nothing any more; the row keeps the generation, so that the
 *              generations of one name rise for ever
 *
 * The generation rises with every new holder and never falls. What the provider has lost goes from
 * held, free or retained straight to gone.
 */
#include "lease/rows.h"

#include <stdio.h>

#include "base/text.h"
#include "record/row.h"

#define PLACE_COLUMNS                                                                              \
	"id, company_id, environment_id, driver, provider, provider_ref, scope, fingerprint,"      \
	" state, holder_lease, generation, epoch, node_id, boot_epoch, boot_id, fencing,"          \
	" discoverable, absence_ms, config, metadata, cleanup_action, cleanup_attempts,"           \
	" cleanup_next_at, cleanup_reason, retain_until, created_at, updated_at, relay"

#define ABSENCE_DEFAULT_MS 900000

SQL(PLACE_GET, "SELECT " PLACE_COLUMNS " FROM places WHERE id = $1");
SQL(PLACE_BY_REF, "SELECT " PLACE_COLUMNS " FROM places WHERE provider_ref = $1");
SQL(PLACE_FREE_IN_SCOPE, "SELECT " PLACE_COLUMNS " FROM places WHERE environment_id = $1"
			 " AND state = 'free' AND state <> 'gone' AND scope = $2"
			 " ORDER BY updated_at DESC, id LIMIT 1");
SQL(PLACE_INSERT, "INSERT INTO places (" PLACE_COLUMNS ")"
		  " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,"
		  " $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28)");
SQL(PLACE_SAVE, "UPDATE places SET state = $2, holder_lease = $3, generation = $4, epoch = $5,"
		" node_id = $6, boot_epoch = $7, boot_id = $8, cleanup_action = $9,"
		" cleanup_attempts = $10, cleanup_next_at = $11, cleanup_reason = $12,"
		" retain_until = $13, updated_at = $14 WHERE id = $1");
SQL(PLACE_SAVE_STATE, "UPDATE places SET state = $2, cleanup_action = $3, cleanup_attempts = $4,"
		      " cleanup_next_at = $5, cleanup_reason = $6, retain_until = $7,"
		      " updated_at = $8 WHERE id = $1");
SQL(PLACE_REMAKE, "UPDATE places SET environment_id = $2, driver = $3, provider = $4,"
		  " provider_ref = $5, scope = $6, fingerprint = $7, fencing = $8,"
		  " discoverable = $9, absence_ms = $10, config = $11, metadata = $12,"
		  " relay = $13"
		  " WHERE id = $1");

/* The arrows above, a row for each state left. */
static const bool leads_to[PLACE_STATE_COUNT][PLACE_STATE_COUNT] = {
	[PLACE_HELD] = { [PLACE_RELEASING] = true, [PLACE_CLEANUP] = true, [PLACE_GONE] = true },
	[PLACE_RESUMING] = { [PLACE_HELD] = true, [PLACE_CLEANUP] = true },
	[PLACE_RELEASING] = { [PLACE_FREE] = true,
			      [PLACE_RETAINED] = true,
			      [PLACE_CLEANUP] = true,
			      [PLACE_GONE] = true },
	[PLACE_FREE] = { [PLACE_RESUMING] = true, [PLACE_CLEANUP] = true, [PLACE_GONE] = true },
	[PLACE_RETAINED] = { [PLACE_CLEANUP] = true, [PLACE_GONE] = true },
	[PLACE_CLEANUP] = { [PLACE_CLEANUP] = true,
			    [PLACE_FREE] = true,
			    [PLACE_RETAINED] = true,
			    [PLACE_GONE] = true },
	[PLACE_GONE] = { [PLACE_HELD] = true, [PLACE_CLEANUP] = true },
};

int place_enter(struct place *place, enum place_state state, struct error *err)
{
	if (!leads_to[place->state][state])
		return error_set(err, ERR_INTERNAL, "place %s cannot go from %s to %s", place->id,
				 place_state_name(place->state), place_state_name(state));
	place->state = state;
	if (state != PLACE_CLEANUP) {
		free(steal(place->cleanup_action));
		free(steal(place->cleanup_reason));
		place->cleanup_attempts = 0;
		place->cleanup_next_at = 0;
	}
	if (state == PLACE_FREE || state == PLACE_GONE)
		place->holder_lease[0] = '\0';
	place->retain_until = 0;
	return 0;
}

int place_enter_cleanup(struct place *place, const char *action, const char *reason,
			int64_t next_at, struct error *err)
{
	if (place_enter(place, PLACE_CLEANUP, err) < 0)
		return -1;
	free(place->cleanup_action);
	place->cleanup_action = xstrdup(action);
	free(place->cleanup_reason);
	place->cleanup_reason = xstrdup(reason);
	place->cleanup_next_at = next_at;
	return 0;
}

void place_set_node(struct place *place, const struct node *node)
{
	id_copy(place->node_id, node->id);
	id_copy(place->boot_id, node->boot_id);
	place->boot_epoch = node->boot_epoch;
}

void place_copy(struct place *to, const struct place *from)
{
	struct place copy = *from;

	copy.provider = xstrdup(from->provider);
	copy.provider_ref = xstrdup(from->provider_ref);
	copy.scope = xstrdup(from->scope);
	copy.fingerprint = xstrdup(from->fingerprint);
	copy.config.json = json_deep_copy(from->config.json);
	copy.metadata = json_deep_copy(from->metadata);
	copy.cleanup_action = xstrdup(from->cleanup_action);
	copy.cleanup_reason = xstrdup(from->cleanup_reason);
	place_clear(to);
	*to = copy;
}

static int read_words(struct cursor *c, struct place *place, struct error *err)
{
	if (!driver_kind_parse(col_text(c, 3), &place->driver))
		return unexpected_value(err, "driver", col_text(c, 3));
	if (!place_state_parse(col_text(c, 8), &place->state))
		return unexpected_value(err, "state", col_text(c, 8));
	if (!fencing_parse(col_text(c, 15), &place->fencing))
		return unexpected_value(err, "fencing", col_text(c, 15));
	if (col_json(c, 18, "place config", &place->config.json, err) < 0)
		return -1;
	return col_json(c, 19, "place metadata", &place->metadata, err);
}

static int read_row(struct cursor *c, struct place *out, struct error *err)
{
	_cleanup_place_ struct place place = { 0 };

	if (read_words(c, &place, err) < 0)
		return -1;
	id_copy(place.id, col_text(c, 0));
	id_copy(place.company_id, col_text(c, 1));
	id_copy(place.environment_id, col_text(c, 2));
	place.provider = xstrdup(col_text(c, 4));
	place.provider_ref = xstrdup(col_text(c, 5));
	place.scope = xstrdup(col_text(c, 6));
	place.fingerprint = xstrdup(col_text(c, 7));
	id_copy(place.holder_lease, col_text(c, 9));
	place.generation = col_int(c, 10);
	place.epoch = col_int(c, 11);
	id_copy(place.node_id, col_text(c, 12));
	place.boot_epoch = col_int(c, 13);
	id_copy(place.boot_id, col_text(c, 14));
	place.discoverable = col_int(c, 16) != 0;
	place.absence_ms = col_int(c, 17);
	place.cleanup_action = xstrdup(col_text(c, 20));
	place.cleanup_attempts = col_int(c, 21);
	place.cleanup_next_at = col_int(c, 22);
	place.cleanup_reason = xstrdup(col_text(c, 23));
	place.retain_until = col_int(c, 24);
	place.created_at = col_int(c, 25);
	place.updated_at = col_int(c, 26);
	if (col_text(c, 27))
		snprintf(place.relay_key, sizeof(place.relay_key), "%s", col_text(c, 27));
	place_clear(out);
	hand_over(out, place);
	return 0;
}

static int read_one(struct tx *tx, const struct sql *sql, const struct bind *binds,
		    struct place *place, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	if (tx_query_(tx, &c, sql, binds, err) < 0)
		return -1;
	r = cursor_next(&c, err);
	return r <= 0 ? r : read_row(&c, place, err) < 0 ? -1 : 1;
}

int place_row_get(struct tx *tx, const char *id, struct place *place, struct error *err)
{
	return read_one(tx, &PLACE_GET, B_ARRAY_(B_TEXT(id)), place, err);
}

int place_row_by_ref(struct tx *tx, const char *provider_ref, struct place *place,
		     struct error *err)
{
	return read_one(tx, &PLACE_BY_REF, B_ARRAY_(B_TEXT(provider_ref)), place, err);
}

int place_row_free_in_scope(struct tx *tx, const char *environment_id, const char *scope,
			    struct place *place, struct error *err)
{
	return read_one(tx, &PLACE_FREE_IN_SCOPE, B_ARRAY_(B_TEXT(environment_id), B_TEXT(scope)),
			place, err);
}

static char *object_text(const json_t *object)
{
	return object ? json_text(object) : xstrdup("{}");
}

static const char *text_or_empty(const char *text)
{
	return text ? text : "";
}

static int64_t absence_ms(const struct place *place)
{
	return place->absence_ms > 0 ? place->absence_ms : ABSENCE_DEFAULT_MS;
}

int place_row_insert(struct tx *tx, const struct place *p, struct error *err)
{
	_cleanup_json_ json_t *stored = place_config_stored(p->config);
	_cleanup_free_ char *config = json_text(stored);
	_cleanup_free_ char *metadata = object_text(p->metadata);

	return tx_exec(tx, &PLACE_INSERT, err, B_TEXT(p->id), B_TEXT(p->company_id),
		       B_ID(p->environment_id), B_TEXT(driver_kind_name(p->driver)),
		       B_TEXT(p->provider), B_TEXT(p->provider_ref),
		       B_TEXT(text_or_empty(p->scope)), B_TEXT(text_or_empty(p->fingerprint)),
		       B_TEXT(place_state_name(p->state)), B_ID(p->holder_lease),
		       B_INT(p->generation), B_INT(p->epoch), B_TEXT(p->node_id),
		       B_INT(p->boot_epoch), B_TEXT(p->boot_id), B_TEXT(fencing_name(p->fencing)),
		       B_BOOL(p->discoverable), B_INT(absence_ms(p)), B_TEXT(config),
		       B_TEXT(metadata), B_TEXT(p->cleanup_action), B_INT(p->cleanup_attempts),
		       B_TIME(p->cleanup_next_at), B_TEXT(p->cleanup_reason),
		       B_TIME(p->retain_until), B_INT(p->created_at), B_INT(p->updated_at),
		       B_ID(p->relay_key)) < 0
		       ? -1
		       : 0;
}

int place_row_save(struct tx *tx, const struct place *p, struct error *err)
{
	return tx_exec(tx, &PLACE_SAVE, err, B_TEXT(p->id), B_TEXT(place_state_name(p->state)),
		       B_ID(p->holder_lease), B_INT(p->generation), B_INT(p->epoch),
		       B_TEXT(p->node_id), B_INT(p->boot_epoch), B_TEXT(p->boot_id),
		       B_TEXT(p->cleanup_action), B_INT(p->cleanup_attempts),
		       B_TIME(p->cleanup_next_at), B_TEXT(p->cleanup_reason),
		       B_TIME(p->retain_until), B_INT(p->updated_at)) < 0
		       ? -1
		       : 0;
}

int place_row_save_state(struct tx *tx, const struct place *p, struct error *err)
{
	return tx_exec(tx, &PLACE_SAVE_STATE, err, B_TEXT(p->id),
		       B_TEXT(place_state_name(p->state)), B_TEXT(p->cleanup_action),
		       B_INT(p->cleanup_attempts), B_TIME(p->cleanup_next_at),
		       B_TEXT(p->cleanup_reason), B_TIME(p->retain_until), B_INT(p->updated_at)) < 0
		       ? -1
		       : 0;
}

int place_row_remake(struct tx *tx, const struct place *p, struct error *err)
{
	_cleanup_json_ json_t *stored = place_config_stored(p->config);
	_cleanup_free_ char *config = json_text(stored);
	_cleanup_free_ char *metadata = object_text(p->metadata);

	if (tx_exec(tx, &PLACE_REMAKE, err, B_TEXT(p->id), B_ID(p->environment_id),
		    B_TEXT(driver_kind_name(p->driver)), B_TEXT(p->provider),
		    B_TEXT(p->provider_ref), B_TEXT(text_or_empty(p->scope)),
		    B_TEXT(text_or_empty(p->fingerprint)), B_TEXT(fencing_name(p->fencing)),
		    B_BOOL(p->discoverable), B_INT(absence_ms(p)), B_TEXT(config), B_TEXT(metadata),
		    B_ID(p->relay_key)) < 0)
		return -1;
	return place_row_save(tx, p, err);
}

/*
 * Intents: what a provider is about to be asked, written before it is asked. An intent lives from
 * then until the answer is on the place and the lease, or until it is known that nothing was made;
 * one that survives its server is settled by recover.c. While it lives its provider_ref is taken,
 * and it counts as a lease of its environment.
 */
#include "lease/rows.h"

#include "base/text.h"
#include "record/row.h"

#define INTENT_COLUMNS                                                                             \
	"id, company_id, environment_id, kind, driver, provider, provider_ref, place_id, config,"  \
	" request, scope, fingerprint, node_id, boot_epoch, state, reason, created_at, updated_at"

SQL(INTENT_GET, "SELECT " INTENT_COLUMNS " FROM intents WHERE id = $1");
SQL(INTENT_BY_REF, "SELECT id FROM intents WHERE provider_ref = $1");
SQL(INTENT_INSERT, "INSERT INTO intents (" INTENT_COLUMNS ")"
		   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 'open',"
		   " NULL, $15, $15)");
SQL(INTENT_MAKE_CREATE, "UPDATE intents SET kind = 'create', place_id = NULL, provider_ref = $2,"
			" updated_at = $3 WHERE id = $1");
SQL(INTENT_UNRESOLVED, "UPDATE intents SET state = 'unresolved', reason = $2, updated_at = $3"
		       " WHERE id = $1");
SQL(INTENT_DELETE, "DELETE FROM intents WHERE id = $1");

void intent_clear(struct intent *intent)
{
	free(intent->provider);
	free(intent->provider_ref);
	free(intent->scope);
	free(intent->fingerprint);
	free(intent->reason);
	json_decref(intent->config);
	json_decref(intent->request);
	*intent = (struct intent){ 0 };
}

static int read_row(struct cursor *c, struct intent *out, struct error *err)
{
	_cleanup_intent_ struct intent intent = { 0 };

	if (!driver_kind_parse(col_text(c, 4), &intent.driver))
		return unexpected_value(err, "driver", col_text(c, 4));
	if (col_json(c, 8, "intent config", &intent.config, err) < 0 ||
	    col_json(c, 9, "intent request", &intent.request, err) < 0)
		return -1;
	id_copy(intent.id, col_text(c, 0));
	id_copy(intent.company_id, col_text(c, 1));
	id_copy(intent.environment_id, col_text(c, 2));
	intent.resume = str_equal(col_text(c, 3), "resume");
	intent.provider = xstrdup(col_text(c, 5));
	intent.provider_ref = xstrdup(col_text(c, 6));
	id_copy(intent.place_id, col_text(c, 7));
	intent.scope = xstrdup(col_text(c, 10));
	intent.fingerprint = xstrdup(col_text(c, 11));
	id_copy(intent.node_id, col_text(c, 12));
	intent.boot_epoch = col_int(c, 13);
	intent.unresolved = str_equal(col_text(c, 14), "unresolved");
	intent.reason = xstrdup(col_text(c, 15));
	intent.created_at = col_int(c, 16);
	intent.updated_at = col_int(c, 17);
	intent_clear(out);
	hand_over(out, intent);
	return 0;
}

int intent_row_get(struct tx *tx, const char *id, struct intent *intent, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	if (tx_query(tx, &c, &INTENT_GET, err, B_TEXT(id)) < 0)
		return -1;
	r = cursor_next(&c, err);
	return r <= 0 ? r : read_row(&c, intent, err) < 0 ? -1 : 1;
}

int intent_row_by_ref(struct tx *tx, const char *provider_ref, char id[ID_SIZE], struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	id_copy(id, NULL);
	if (tx_query(tx, &c, &INTENT_BY_REF, err, B_TEXT(provider_ref)) < 0)
		return -1;
	r = cursor_next(&c, err);
	if (r > 0)
		id_copy(id, col_text(&c, 0));
	return r;
}

int intent_row_insert(struct tx *tx, const struct intent *i, struct error *err)
{
	_cleanup_json_ json_t *stored = place_config_stored((struct stored_config){ i->config });
	_cleanup_free_ char *config = json_text(stored);
	_cleanup_free_ char *request = json_text(i->request);

	return tx_exec(tx, &INTENT_INSERT, err, B_TEXT(i->id), B_TEXT(i->company_id),
		       B_TEXT(i->environment_id), B_TEXT(i->resume ? "resume" : "create"),
		       B_TEXT(driver_kind_name(i->driver)), B_TEXT(i->provider),
		       B_TEXT(i->provider_ref), B_ID(i->place_id), B_TEXT(config), B_TEXT(request),
		       B_TEXT(i->scope), B_TEXT(i->fingerprint), B_TEXT(i->node_id),
		       B_INT(i->boot_epoch), B_INT(i->created_at)) < 0
		       ? -1
		       : 0;
}

int intent_row_make_create(struct tx *tx, const char *id, const char *provider_ref, int64_t now,
			   struct error *err)
{
	return tx_exec(tx, &INTENT_MAKE_CREATE, err, B_TEXT(id), B_TEXT(provider_ref), B_INT(now)) <
			       0
		       ? -1
		       : 0;
}

int intent_row_mark_unresolved(struct tx *tx, const char *id, const char *reason, int64_t now,
			       struct error *err)
{
	return tx_exec(tx, &INTENT_UNRESOLVED, err, B_TEXT(id), B_TEXT(reason), B_INT(now)) < 0 ? -1
												: 0;
}

int64_t intent_row_delete(struct tx *tx, const char *id, struct error *err)
{
	return tx_exec(tx, &INTENT_DELETE, err, B_TEXT(id));
}

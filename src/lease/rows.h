/*
 * The rows of this room (leases, places, intents) inside a transaction. A row is read whole and
 * changed as a struct: transactions are serial, so nothing changes in between. What is saved of it
 * is what a step of its life can change.
 *
 * Readers return 1 for found, 0 for none, -1 for an error.
 */
#pragma once

#include "lease/lease.h"

int lease_row_get(struct tx *tx, const char *id, struct lease *lease, struct error *err);
int lease_row_insert(struct tx *tx, const struct lease *lease, const struct node *node,
		     struct error *err);
/* While it is active: lastUsedAt and expiresAt. */
int lease_row_renew(struct tx *tx, const struct lease *lease, struct error *err);
/* Its holding ends: releasedAt, status and reasons. */
int lease_row_end(struct tx *tx, const struct lease *lease, struct error *err);
/* After that: status and reasons. */
int lease_row_settle(struct tx *tx, const struct lease *lease, struct error *err);
int lease_row_delete(struct tx *tx, const char *id, struct error *err);
/* See lease_list. */
json_t *lease_rows_json(struct db *db, const char *environment_id, const char *status,
			int64_t limit, struct error *err);
static inline bool lease_status_is_final(enum lease_status status)
{
	return status == LEASE_RELEASED || status == LEASE_EXPIRED || status == LEASE_FAILED;
}

int place_row_get(struct tx *tx, const char *id, struct place *place, struct error *err);
int place_row_by_ref(struct tx *tx, const char *provider_ref, struct place *place,
		     struct error *err);
/* The free place of an environment and scope that was used last. */
int place_row_free_in_scope(struct tx *tx, const char *environment_id, const char *scope,
			    struct place *place, struct error *err);
int place_row_insert(struct tx *tx, const struct place *place, struct error *err);
/* Where it is in its life: state, holder, generation, node, cleanup, retention. */
int place_row_save(struct tx *tx, const struct place *place, struct error *err);
/* Of that state, cleanup and retention: holder, generation and node are what they were. */
int place_row_save_state(struct tx *tx, const struct place *place, struct error *err);
/* The same and what it is: environment, provider, config, metadata. For a place made anew. */
int place_row_remake(struct tx *tx, const struct place *place, struct error *err);

/* Moves along the arrows drawn in place.c; any other step is ERR_INTERNAL and changes nothing. */
int place_enter(struct place *place, enum place_state state, struct error *err);
/* Into the cleanup queue: `action` is "release" or "destroy". */
int place_enter_cleanup(struct place *place, const char *action, const char *reason,
			int64_t next_at, struct error *err);
void place_set_node(struct place *place, const struct node *node);
void place_copy(struct place *to, const struct place *from);

/* What was promised to happen at a provider; see acquire.c. The id is that of the lease to be. */
struct intent {
	char id[ID_SIZE], company_id[ID_SIZE], environment_id[ID_SIZE], place_id[ID_SIZE];
	bool resume; /* of place_id; else something new is made */
	enum driver_kind driver;
	char *provider, *provider_ref, *scope, *fingerprint;
	json_t *config;  /* stored form */
	json_t *request; /* for people: who asked for what */
	char node_id[ID_SIZE];
	int64_t boot_epoch;
	bool unresolved; /* nobody can tell whether the provider did it */
	char *reason;
	int64_t created_at, updated_at;
};
void intent_clear(struct intent *intent);
#define _cleanup_intent_ _cleanup_(intent_clear)
int intent_row_get(struct tx *tx, const char *id, struct intent *intent, struct error *err);
/* Id of the open or unresolved intent for a provider's name; `id` is "" when there is none. */
int intent_row_by_ref(struct tx *tx, const char *provider_ref, char id[ID_SIZE], struct error *err);
int intent_row_insert(struct tx *tx, const struct intent *intent, struct error *err);
/* A promise to resume that became one to make a new place. */
int intent_row_make_create(struct tx *tx, const char *id, const char *provider_ref, int64_t now,
			   struct error *err);
int intent_row_mark_unresolved(struct tx *tx, const char *id, const char *reason, int64_t now,
			       struct error *err);
int64_t intent_row_delete(struct tx *tx, const char *id, struct error *err); /* how many */

/* The first column of every row, as text. The statement bounds how many. */
#define ids_tx(tx, sql, ids, err, ...) ids_tx_((tx), (sql), B_ARRAY_(__VA_ARGS__), (ids), (err))
int ids_tx_(struct tx *tx, const struct sql *sql, const struct bind *binds, char ***ids,
	    struct error *err);
#define ids_read(db, sql, ids, err, ...) ids_read_((db), (sql), B_ARRAY_(__VA_ARGS__), (ids), (err))
int ids_read_(struct db *db, const struct sql *sql, const struct bind *binds, char ***ids,
	      struct error *err);
/* The first column of the first row; 0 when there is none. */
#define number_tx(tx, sql, out, err, ...)                                                          \
	number_tx_((tx), (sql), B_ARRAY_(__VA_ARGS__), (out), (err))
int number_tx_(struct tx *tx, const struct sql *sql, const struct bind *binds, int64_t *out,
	       struct error *err);

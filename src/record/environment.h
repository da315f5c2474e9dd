/*
 * Environments: configured kinds of place, company-scoped. The config kept here is the stored one:
 * it holds secret ids, never secret values.
 */
#pragma once

#include "record/kinds.h"
#include "record/record.h"

struct environment {
	char id[ID_SIZE], company_id[ID_SIZE];
	char *name, *description;
	enum driver_kind driver;
	enum environment_status status;
	json_t *config;   /* object */
	json_t *metadata; /* object or NULL */
	json_t *trust;    /* who wrote what of it (record/trust.h); NULL: not known */
	int64_t created_at, updated_at;
};
void environment_clear(struct environment *environment);
#define _cleanup_environment_ _cleanup_(environment_clear)
extern const struct column ENVIRONMENT_COLUMNS[]; /* db/column.h */
json_t *environment_json(const struct environment *environment);
void environment_copy(struct environment *to, const struct environment *from); /* deep */
/* How many leases it may have at a time: metadata.maxLeases; 0: no limit. */
int64_t environment_max_leases(const struct environment *environment);

/* Reading a row whose enum column holds an unknown word is ERR_DB: `unexpected <field> value:
 * <value>`. */
int environment_get(struct db *db, const char *id, struct environment *out, struct error *err);
/* What environment_json of it gives as text, without making it. NULL on error. */
char *environment_text(struct db *db, const char *id, struct error *err);
int environment_get_tx(struct tx *tx, const char *id, struct environment *out, struct error *err);
/* By id or name within a company; an id comes before a name that reads like it. */
int environment_find(struct db *db, const char *company_id, const char *name_or_id,
		     struct environment *out, struct error *err);
/* status, driver: NULL for any; newest-updated first. */
json_t *environment_list(struct db *db, const char *company_id, const char *status,
			 const char *driver, struct error *err);

/* The company's Local environment; made if absent, never changed if present (ES-3 to ES-5). */
int environment_ensure_local(struct db *db, struct clock *clock, const char *company_id,
			     struct environment *out, struct error *err);
int environment_ensure_local_tx(struct tx *tx, int64_t now, const char *company_id,
				struct error *err);

/*
 * The company's Sandbox, of driver sandbox and with `config`: where runs go that choose nothing.
 * Made if nothing of its id is there. The id follows from the company's, so that two who make it at
 * once make one.
 */
#define SANDBOX_NAME "Sandbox"
#define SANDBOX_DESCRIPTION "Runs in a native sandbox on the server's machine."
void environment_sandbox_id(const char *company_id, char out[ID_SIZE]);
int environment_ensure_sandbox_tx(struct tx *tx, int64_t now, const char *company_id,
				  const json_t *config, struct error *err);

/*
 * That the actor may change or delete it: one of driver local is for those who may use it, and
 * agents change none. ERR_FORBIDDEN.
 */
int environment_changeable(const struct actor *actor, const struct environment *row,
			   struct error *err);
/*
 * `config` is normalised already. Writes the activity in the same transaction. An `id` that is set
 * becomes the environment's. A second Local one is ERR_CONFLICT, a maxLeases that is no positive
 * integer and an archived Local one (every run without another choice needs it, I20)
 * ERR_UNPROCESSABLE.
 */
int environment_create(struct db *db, struct clock *clock, const struct actor *actor,
		       const struct environment *in, struct environment *out, struct error *err);
/* patch: NULL pointers mean "not in the body"; json null in description/metadata clears. */
struct environment_patch {
	const char *name;
	const json_t *description;
	const enum driver_kind *driver;
	const enum environment_status *status;
	const json_t *config; /* normalised, whole */
	const json_t *metadata;
	/* The updated_at of the row `config` was merged with: somebody else's change since then is
	 * ERR_CONFLICT instead of being undone. 0: not merged with anything. */
	int64_t merged_with;
};
int environment_update(struct db *db, struct clock *clock, const struct actor *actor,
		       const char *id, const struct environment_patch *patch,
		       struct environment *out, struct error *err);
/*
 * ERR_ENVIRONMENT_IN_USE while it is the company's Local environment, or leases that have not
 * ended, places that are not gone, intents or unfinished runs need it; details are
 * {deleteBlockedReasons:[...], activeLeases, retainedLeases, pendingCleanupLeases, livePlaces,
 * openIntents, unfinishedRuns}. Agents, issues, projects and workspaces that had chosen it choose
 * nothing afterwards; the activity says how many.
 */
int environment_delete(struct db *db, struct clock *clock, const struct actor *actor,
		       const char *id, struct environment *removed, struct error *err);
/*
 * What deleting would meet: {environmentId, canDelete, deleteBlockedReasons, the counts above,
 * selectedBy: as selection_report_tx has it}. NULL on error.
 */
json_t *environment_usage(struct db *db, const char *id, struct error *err);

/*
 * What the records share: who acts, which node writes, how lists are paged.
 *
 * A record room function named *_tx runs inside the caller's transaction; the others open their
 * own. Structs own their strings and JSON; every struct has a _clear that makes it empty again. An
 * `out` must be empty; it is filled on success only. Where something is made or changed it may be
 * NULL. Lists are ordered and end at 1000 entries.
 */
#pragma once

#include <stdint.h>
#include "base/clock.h"
#include "base/id.h"
#include "base/json.h"
#include "store/db.h"

/* Who asked. Local trust gives type "user", id "local"; the server's own acts are "system". */
struct actor {
	char type[16];
	char id[64];
	char agent_id[ID_SIZE]; /* "" unless an agent */
	char run_id[ID_SIZE];   /* "" unless on behalf of a run */
};
extern const struct actor ACTOR_SYSTEM;

/* This server process: written to every intent, place, lease and run it makes. */
struct node {
	char id[ID_SIZE];
	int64_t boot_epoch;    /* rises at every start of the server on this node */
	char boot_id[ID_SIZE]; /* of the machine */
};
/*
 * Reads or makes the node's identity in the data directory, raises its epoch and registers it.
 * node_beat refreshes the heartbeat; a node whose beat is older than NODE_DEAD_MS is dead and its
 * work may be taken over.
 */
#define NODE_DEAD_MS 60000
/* node_beat says ERR_CONFLICT when a later server has taken over this node's identity. */
int node_register(struct db *db, struct clock *clock, int data_dirfd, struct node *node,
		  struct error *err);
int node_beat(struct db *db, struct clock *clock, const struct node *node, struct error *err);

struct company {
	char id[ID_SIZE];
	char *name;
	int64_t created_at, updated_at;
};
void company_clear(struct company *company);
json_t *company_json(const struct company *company);
/* Also makes the company's Local environment, in the same transaction. A taken name is
 * ERR_CONFLICT. */
int company_create(struct db *db, struct clock *clock, const struct actor *actor, const char *name,
		   struct company *out, struct error *err);
int company_get(struct db *db, const char *id, struct company *out,
		struct error *err); /* ERR_NOT_FOUND */
int company_get_by_name(struct db *db, const char *name, struct company *out, struct error *err);
json_t *company_list(struct db *db, struct error *err);                  /* array; NULL on error */
int company_exists_tx(struct tx *tx, const char *id, struct error *err); /* 0 or ERR_NOT_FOUND */

struct agent {
	char id[ID_SIZE], company_id[ID_SIZE], default_environment_id[ID_SIZE];
	char *name, *adapter_type;
	json_t *adapter_config, *runtime_config, *permissions;
	int64_t created_at, updated_at;
};
void agent_clear(struct agent *agent);
json_t *agent_json(const struct agent *agent);
/* `body` has passed AGENT_FIELDS. References are checked to be of the same company
 * (ERR_UNPROCESSABLE). */
extern const struct field AGENT_FIELDS[];
int agent_create(struct db *db, struct clock *clock, const struct actor *actor,
		 const char *company_id, const json_t *body, struct agent *out, struct error *err);
int agent_get(struct db *db, const char *id, struct agent *out, struct error *err);
int agent_get_tx(struct tx *tx, const char *id, struct agent *out, struct error *err);
json_t *agent_list(struct db *db, const char *company_id, struct error *err);
/* spec 01 E.7 step 3: one row per agent however many first runs meet. */
int agent_ensure_state(struct db *db, struct clock *clock, const struct agent *agent,
		       struct error *err);
int agent_note_run(struct db *db, struct clock *clock, const char *agent_id, const char *run_id,
		   const char *run_status, const char *last_error, struct error *err);

struct project {
	char id[ID_SIZE], company_id[ID_SIZE];
	char *name;
	json_t *execution_workspace_policy; /* object or NULL */
	int64_t created_at, updated_at;
};
void project_clear(struct project *project);
json_t *project_json(const struct project *project);
extern const struct field PROJECT_FIELDS[];
int project_create(struct db *db, struct clock *clock, const struct actor *actor,
		   const char *company_id, const json_t *body, struct project *out,
		   struct error *err);
int project_get(struct db *db, const char *id, struct project *out, struct error *err);
json_t *project_list(struct db *db, const char *company_id, struct error *err);

struct issue {
	char id[ID_SIZE], company_id[ID_SIZE], project_id[ID_SIZE], assignee_agent_id[ID_SIZE];
	char execution_workspace_id[ID_SIZE];
	char *title, *status, *execution_workspace_preference;
	json_t *execution_workspace_settings; /* object or NULL */
	int64_t created_at, updated_at;
};
void issue_clear(struct issue *issue);
json_t *issue_json(const struct issue *issue);
extern const struct field ISSUE_FIELDS[];
int issue_create(struct db *db, struct clock *clock, const struct actor *actor,
		 const char *company_id, const json_t *body, struct issue *out, struct error *err);
int issue_get(struct db *db, const char *id, struct issue *out, struct error *err);
json_t *issue_list(struct db *db, const char *company_id, struct error *err);

struct workspace_record {
	char id[ID_SIZE], company_id[ID_SIZE], project_id[ID_SIZE], source_issue_id[ID_SIZE];
	char *mode, *strategy_type, *name, *status, *cwd, *repo_url, *base_ref, *branch_name;
	char *provider_type, *provider_ref;
	json_t *metadata; /* object or NULL */
	int64_t last_used_at, opened_at, closed_at, created_at, updated_at;
};
void workspace_record_clear(struct workspace_record *workspace);
json_t *workspace_record_json(const struct workspace_record *workspace);
/* What is left out gets its default: shared, active, project_primary, local_fs, now. */
int workspace_record_create(struct db *db, struct clock *clock, const struct workspace_record *in,
			    struct workspace_record *out, struct error *err);
int workspace_record_get(struct db *db, const char *id, struct workspace_record *out,
			 struct error *err);
int workspace_record_set_metadata(struct db *db, struct clock *clock, const char *id,
				  const json_t *metadata, struct error *err);
/*
 * The `config` inside metadata (spec 01 E.9), new reference; NULL when there is none. Every key of
 * E.9 is there, null when not set, but environmentId only when chosen: null then means this host.
 */
json_t *workspace_config(const json_t *metadata);

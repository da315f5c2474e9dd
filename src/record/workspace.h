/*
 * Execution workspaces: the directories runs work in, kept between runs. Each belongs to a project;
 * which environment and commands it wants is the `config` inside its metadata (spec 01 E.9).
 */
#pragma once

#include "record/record.h"

struct workspace_record {
	char id[ID_SIZE], company_id[ID_SIZE], project_id[ID_SIZE], source_issue_id[ID_SIZE];
	char derived_from_id[ID_SIZE]; /* the workspace it was made from; "" for none */
	char *mode, *strategy_type, *name, *status, *cwd, *repo_url, *base_ref, *branch_name;
	char *provider_type, *provider_ref;
	json_t *metadata; /* object or NULL */
	json_t *trust;    /* who wrote what of it (record/trust.h); NULL: not known */
	int64_t last_used_at, opened_at, closed_at, created_at, updated_at;
};
void workspace_record_clear(struct workspace_record *workspace);
#define _cleanup_workspace_ _cleanup_(workspace_record_clear)
extern const struct column WORKSPACE_COLUMNS[]; /* db/column.h */
json_t *workspace_record_json(const struct workspace_record *workspace);
extern const struct field WORKSPACE_FIELDS[], WORKSPACE_PATCH_FIELDS[];

/*
 * What is left out gets its default: shared, active, project_primary, local_fs, now. The issue it
 * is made for is linked to it. `trust` has the writers of what came from elsewhere, by path.
 */
int workspace_record_create(const struct writer *writer, const struct workspace_record *in,
			    struct workspace_record *out, struct error *err);
/* Whether runs may go on working in it: active, idle or in review. */
bool workspace_is_reusable(const struct workspace_record *workspace);
int workspace_record_get(struct db *db, const char *id, struct workspace_record *out,
			 struct error *err);
int workspace_record_get_tx(struct tx *tx, const char *id, struct workspace_record *out,
			    struct error *err);
json_t *workspace_record_list(struct db *db, struct list_query *query, struct error *err);
/*
 * As bodies of records go. `config` is merged, null drops it; `metadata` is replaced apart from its
 * config. Status `archived` closes.
 */
int workspace_record_update(const struct writer *writer, const char *id, const json_t *body,
			    struct workspace_record *out, struct error *err);
/*
 * Closing archives it; issues are detached from a shared one. ERR_CONFLICT with details
 * {closeReadiness: {state: "blocked", unfinishedRuns, openLeases}} while something uses it.
 */
int workspace_record_close(const struct writer *writer, const char *id,
			   struct workspace_record *out, struct error *err);
/* The same condition, and nothing is left of it. */
int workspace_record_delete(const struct writer *writer, const char *id,
			    struct workspace_record *removed, struct error *err);
/* Everything but the config in it. */
int workspace_record_set_metadata(struct db *db, struct clock *clock, const char *id,
				  const json_t *metadata, struct error *err);

/*
 * The `config` inside metadata, new reference; NULL when there is none. Every key of E.9 is there,
 * null when not set, but environmentId only when chosen: null is the company's default.
 */
json_t *workspace_config(const json_t *metadata);
/*
 * Metadata with keys of a config laid over those it has; new reference, NULL when nothing is left.
 * null takes a key away, also the choice of an environment; a patch that is NULL or null drops the
 * config. Everything beside the config is kept.
 */
json_t *workspace_config_merge(const json_t *metadata, const json_t *patch);
int workspace_config_patch_tx(struct tx *tx, const struct writer *writer, int64_t now,
			      const char *id, const json_t *patch, struct error *err);
/*
 * What a new workspace keeps of the choices it was made with: its environment (NULL: none was
 * chosen), the commands of its strategy and its runtime, each of the issue or else of the project.
 */
json_t *workspace_snapshot(const char *environment_id, const json_t *issue_settings,
			   const json_t *project_policy);

/* The mode an issue asks for, else its project; one of issue_workspace_mode (E.9). */
const char *issue_mode_wanted(const json_t *issue_settings, const json_t *project_policy);
/* The mode a new workspace gets for that. */
const char *workspace_mode_for_issue(const char *issue_mode);

#include "record/workspace.h"

#include "base/text.h"
#include "record/activity.h"
#include "record/row.h"
#include "record/selection.h"
#include "record/trust.h"

#define TEXT_MAX 4096
#define COMMAND_MAX 65536

static json_t *config_of(const void *record)
{
	return workspace_config(((const struct workspace_record *)record)->metadata);
}

#define AT(member) .offset = offsetof(struct workspace_record, member)
const struct column WORKSPACE_COLUMNS[] = {
	{ "id", "id", COLUMN_ID, COLUMN_INSERT, AT(id) },
	{ "companyId", "company_id", COLUMN_ID, COLUMN_INSERT, AT(company_id) },
	{ "projectId", "project_id", COLUMN_ID, COLUMN_INSERT, AT(project_id) },
	{ "sourceIssueId", "source_issue_id", COLUMN_ID, COLUMN_INSERT | COLUMN_NULLABLE,
	  AT(source_issue_id) },
	{ "derivedFromExecutionWorkspaceId", "derived_from_execution_workspace_id", COLUMN_ID,
	  COLUMN_INSERT | COLUMN_NULLABLE, AT(derived_from_id) },
	{ "mode", "mode", COLUMN_TEXT, COLUMN_INSERT, AT(mode), .words = execution_mode_names },
	{ "strategyType", "strategy_type", COLUMN_TEXT, COLUMN_INSERT, AT(strategy_type) },
	{ "name", "name", COLUMN_TEXT, COLUMN_WRITE, AT(name) },
	{ "status", "status", COLUMN_TEXT, COLUMN_WRITE | COLUMN_PATCH, AT(status),
	  .words = workspace_status_names },
	{ "cwd", "cwd", COLUMN_TEXT, COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH, AT(cwd) },
	{ "repoUrl", "repo_url", COLUMN_TEXT, COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH,
	  AT(repo_url) },
	{ "baseRef", "base_ref", COLUMN_TEXT, COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH,
	  AT(base_ref) },
	{ "branchName", "branch_name", COLUMN_TEXT, COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH,
	  AT(branch_name) },
	{ "providerType", "provider_type", COLUMN_TEXT, COLUMN_INSERT, AT(provider_type) },
	{ "providerRef", "provider_ref", COLUMN_TEXT, COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH,
	  AT(provider_ref) },
	{ "config", NULL, COLUMN_JSON, COLUMN_NULLABLE, .make = config_of,
	  .summary = "Its environment and commands" },
	{ "metadata", "metadata", COLUMN_JSON, COLUMN_WRITE | COLUMN_NULLABLE, AT(metadata) },
	{ "lastUsedAt", "last_used_at", COLUMN_TIME, COLUMN_INSERT | COLUMN_NULLABLE,
	  AT(last_used_at) },
	{ "openedAt", "opened_at", COLUMN_TIME, COLUMN_INSERT | COLUMN_NULLABLE, AT(opened_at) },
	{ "closedAt", "closed_at", COLUMN_TIME, COLUMN_WRITE | COLUMN_NULLABLE, AT(closed_at) },
	COLUMN_TIMES(struct workspace_record),
	COLUMN_TRUST(struct workspace_record),
	{ 0 },
};
static const struct row_kind WORKSPACE = { "Execution workspace", sizeof(struct workspace_record),
					   WORKSPACE_COLUMNS };

SQL_OF(WORKSPACE_GET, WORKSPACE_COLUMNS, "SELECT {*} FROM execution_workspaces WHERE id = $1");
SQL_OF(WORKSPACE_LIST, WORKSPACE_COLUMNS,
       "SELECT {*} FROM execution_workspaces WHERE company_id = $1"
       " AND (created_at, id) > (CAST($2 AS BIGINT), CAST($3 AS TEXT))"
       " AND (CAST($5 AS TEXT) IS NULL OR status = $5)"
       " AND (CAST($6 AS TEXT) IS NULL OR mode = $6)"
       " AND (CAST($7 AS TEXT) IS NULL OR project_id = $7)"
       " AND (CAST($8 AS TEXT) IS NULL OR source_issue_id = $8)"
       " AND (CAST($9 AS BIGINT) = 0 OR status IN ('active', 'idle', 'in_review'))"
       " ORDER BY created_at, id LIMIT CAST($4 AS BIGINT)");
SQL_OF(WORKSPACE_INSERT, WORKSPACE_COLUMNS,
       "INSERT INTO execution_workspaces ({insert}) VALUES ({values})");
SQL_OF(WORKSPACE_UPDATE, WORKSPACE_COLUMNS, "UPDATE execution_workspaces SET {set} WHERE id = $1");
SQL(WORKSPACE_SET_METADATA,
    "UPDATE execution_workspaces SET metadata = $2, last_used_at = $3, updated_at = $3"
    " WHERE id = $1");
SQL(WORKSPACE_PROJECT_OF_COMPANY, "SELECT 1 FROM projects WHERE id = $1 AND company_id = $2");
SQL(WORKSPACE_ISSUE_OF_COMPANY, "SELECT 1 FROM issues WHERE id = $1 AND company_id = $2");
SQL(WORKSPACE_OF_COMPANY, "SELECT 1 FROM execution_workspaces WHERE id = $1 AND company_id = $2");
SQL(WORKSPACE_USERS,
    "SELECT (SELECT COUNT(*) FROM runs WHERE execution_workspace_id = $1 AND company_id = $2"
    " AND " RUNS_UNFINISHED "),"
    " (SELECT COUNT(*) FROM leases WHERE execution_workspace_id = $1 AND company_id = $2"
    " AND execution_workspace_id IS NOT NULL AND " LEASES_OPEN ")");
SQL(WORKSPACE_DELETE, "DELETE FROM execution_workspaces WHERE id = $1");

#define COMMAND(key, text)                                                                         \
	{                                                                                          \
		.name = key, .type = FIELD_STRING, .flags = FIELD_NULLABLE, .max = COMMAND_MAX,    \
		.summary = text                                                                    \
	}
static const struct field CONFIG_FIELDS[] = {
	{ .name = "environmentId",
	  .type = FIELD_UUID,
	  .flags = FIELD_NULLABLE,
	  .summary = "Where its runs go; null: as issue, project and agent choose" },
	COMMAND("provisionCommand", "Run in the place before a run's own command"),
	COMMAND("teardownCommand", "Kept for whoever takes the workspace down"),
	COMMAND("cleanupCommand", "Kept for whoever takes the workspace down"),
	{ .name = "workspaceRuntime", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE },
	{ .name = "desiredState",
	  .type = FIELD_STRING,
	  .flags = FIELD_NULLABLE,
	  .one_of = desired_state_names },
	{ .name = "serviceStates",
	  .type = FIELD_STRING_MAP,
	  .flags = FIELD_NULLABLE,
	  .one_of = desired_state_names,
	  .summary = "Desired state by service" },
	{ 0 },
};

#define NAME                                                                                       \
	.name = "name", .type = FIELD_STRING, .min = 1, .max = NAME_MAX_BYTES, .summary = "Its name"
#define TEXT(key, text)                                                                            \
	{                                                                                          \
		.name = key, .type = FIELD_STRING, .flags = FIELD_NULLABLE, .max = TEXT_MAX,       \
		.summary = text                                                                    \
	}
#define OTHER_FIELDS                                                                               \
	{ .name = "status",                                                                        \
	  .type = FIELD_STRING,                                                                    \
	  .one_of = workspace_status_names,                                                        \
	  .summary = "`active` unless given; `archived` is closed" },                              \
		TEXT("cwd", "Absolute directory of its files"),                                    \
		TEXT("repoUrl", "Where its repository comes from"),                                \
		TEXT("baseRef", "What its branch begins at"),                                      \
		TEXT("branchName", "The branch it works on"),                                      \
		TEXT("providerRef", "The provider's name for it"),                                 \
		{ .name = "config",                                                                \
		  .type = FIELD_OBJECT,                                                            \
		  .flags = FIELD_NULLABLE,                                                         \
		  .fields = CONFIG_FIELDS,                                                         \
		  .summary = "Laid over what there is; null drops it" },                           \
	{                                                                                          \
		.name = "metadata", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE,                 \
		.summary = "Anything; the config in it stays as it is"                             \
	}

const struct field WORKSPACE_FIELDS[] = {
	{ NAME, .flags = FIELD_REQUIRED | FIELD_NONBLANK },
	{ .name = "projectId", .type = FIELD_UUID, .flags = FIELD_REQUIRED },
	{ .name = "sourceIssueId",
	  .type = FIELD_UUID,
	  .flags = FIELD_NULLABLE,
	  .summary = "The issue it is made for, which is linked to it" },
	{ .name = "derivedFromExecutionWorkspaceId", .type = FIELD_UUID, .flags = FIELD_NULLABLE },
	{ .name = "mode",
	  .type = FIELD_STRING,
	  .one_of = execution_mode_names,
	  .summary = "As issue and project want it unless given" },
	{ .name = "strategyType", .type = FIELD_STRING, .one_of = workspace_strategy_names },
	{ .name = "providerType", .type = FIELD_STRING, .one_of = workspace_provider_names },
	OTHER_FIELDS,
	{ 0 },
};
const struct field WORKSPACE_PATCH_FIELDS[] = {
	{ NAME, .flags = FIELD_NONBLANK },
	OTHER_FIELDS,
	{ 0 },
};

void workspace_record_clear(struct workspace_record *workspace)
{
	row_clear(&WORKSPACE, workspace);
}

json_t *workspace_record_json(const struct workspace_record *workspace)
{
	return row_json(&WORKSPACE, workspace);
}

bool workspace_is_reusable(const struct workspace_record *workspace)
{
	enum workspace_status status;

	return workspace_status_parse(workspace->status, &status) &&
	       (status == WORKSPACE_ACTIVE || status == WORKSPACE_IDLE ||
		status == WORKSPACE_IN_REVIEW);
}

int workspace_record_get(struct db *db, const char *id, struct workspace_record *out,
			 struct error *err)
{
	return row_get(db, &WORKSPACE, &WORKSPACE_GET, out, err, B_TEXT(id));
}

int workspace_record_get_tx(struct tx *tx, const char *id, struct workspace_record *out,
			    struct error *err)
{
	return row_get_tx(tx, &WORKSPACE, &WORKSPACE_GET, out, err, B_TEXT(id));
}

json_t *workspace_record_list(struct db *db, struct list_query *query, struct error *err)
{
	return row_page(db, &WORKSPACE, &WORKSPACE_LIST, query, err, B_TEXT(query->status),
			B_TEXT(query->mode), B_TEXT(query->project_id), B_TEXT(query->issue_id),
			B_BOOL(query->reusable));
}

struct workspace_writing {
	const struct writer *writer;
	const char *id; /* NULL: `row` is to be made */
	const json_t *body;
	int64_t now;
	struct workspace_record row;
};

static int note(struct tx *tx, const struct workspace_writing *w, const char *action,
		json_t *details, struct error *err)
{
	return activity_write_tx(tx, w->now,
				 &(struct activity){ .company_id = w->row.company_id,
						     .actor = w->writer->actor,
						     .action = action,
						     .entity_type = "execution_workspace",
						     .entity_id = w->row.id,
						     .details = details },
				 err);
}

static int guard_environment(struct tx *tx, const struct workspace_writing *w, const char *former,
			     const json_t *config, struct error *err)
{
	const char *chosen = json_str(config, "environmentId");

	if (selection_guard_tx(tx, w->writer, w->row.company_id, chosen, DRIVERS_FOR_WORK, err) < 0)
		return -1;
	return selection_host_tx(tx, w->writer, former, chosen, "config.environmentId", err);
}

static json_t *workspace_copy(const struct workspace_record *row)
{
	_cleanup_json_ json_t *shared = workspace_record_json(row);

	return json_deep_copy(shared);
}

static int check_references(struct tx *tx, const struct workspace_writing *w, struct error *err)
{
	const struct workspace_record *row = &w->row;
	_cleanup_json_ json_t *config = workspace_config(row->metadata);

	if (company_exists_tx(tx, row->company_id, err) < 0 ||
	    reference_check_tx(tx, &WORKSPACE_PROJECT_OF_COMPANY, "Project", row->project_id,
			       row->company_id, err) < 0 ||
	    reference_check_tx(tx, &WORKSPACE_ISSUE_OF_COMPANY, "Issue", row->source_issue_id,
			       row->company_id, err) < 0 ||
	    reference_check_tx(tx, &WORKSPACE_OF_COMPANY, "Execution workspace",
			       row->derived_from_id, row->company_id, err) < 0)
		return -1;
	return guard_environment(tx, w, NULL, config, err);
}

static int insert_workspace(struct tx *tx, void *arg, struct error *err)
{
	struct workspace_writing *w = arg;
	const struct workspace_record *row = &w->row;
	_cleanup_json_ json_t *details = json_object();

	if (check_references(tx, w, err) < 0 || row_insert_tx(tx, &WORKSPACE_INSERT, row, err) < 0)
		return -1;
	if (id_is_set(row->source_issue_id) &&
	    issue_link_workspace_tx(tx, w->writer, w->now, row->source_issue_id, row->id, err) < 0)
		return -1;
	json_put_str(details, "name", row->name);
	json_put_str(details, "mode", row->mode);
	return note(tx, w, "execution_workspace.created", details, err);
}

static char *given_or(const char *given, const char *otherwise)
{
	return xstrdup(given ? given : otherwise);
}

/* Completes what the caller left out; the words must be known ones. */
static int workspace_fill(const struct workspace_record *in, int64_t now,
			  struct workspace_record *row, struct error *err)
{
	enum execution_mode mode;
	enum workspace_status status;

	row->name = name_trimmed("A workspace's name", in->name, NAME_MAX_BYTES, err);
	if (!row->name)
		return -1;
	row->mode = given_or(in->mode, execution_mode_name(WORKSPACE_SHARED));
	if (!execution_mode_parse(row->mode, &mode))
		return error_set(err, ERR_VALIDATION, "unknown workspace mode \"%.100s\"",
				 row->mode);
	row->status = given_or(in->status, workspace_status_name(WORKSPACE_ACTIVE));
	if (!workspace_status_parse(row->status, &status))
		return error_set(err, ERR_VALIDATION, "unknown workspace status \"%.100s\"",
				 row->status);
	if (!id_is_set(in->project_id))
		return error_set(err, ERR_VALIDATION, "a workspace belongs to a project");
	if (in->cwd && in->cwd[0] != '/')
		return error_set(err, ERR_VALIDATION, "cwd must be an absolute path");
	id_copy(row->derived_from_id, in->derived_from_id);
	id_copy(row->company_id, in->company_id);
	id_copy(row->project_id, in->project_id);
	id_copy(row->source_issue_id, in->source_issue_id);
	row->strategy_type = given_or(in->strategy_type, "project_primary");
	row->provider_type = given_or(in->provider_type, "local_fs");
	row->cwd = xstrdup(in->cwd);
	row->repo_url = xstrdup(in->repo_url);
	row->base_ref = xstrdup(in->base_ref);
	row->branch_name = xstrdup(in->branch_name);
	row->provider_ref = xstrdup(in->provider_ref);
	row->metadata = in->metadata ? json_deep_copy(in->metadata) : NULL;
	row->last_used_at = in->last_used_at ? in->last_used_at : now;
	row->opened_at = in->opened_at ? in->opened_at : now;
	row->closed_at = in->closed_at;
	row->created_at = row->updated_at = now;
	return 0;
}

/* What it was given by its surroundings has their writers as well. */
static void note_maker(const struct actor *actor, const struct workspace_record *in,
		       struct workspace_record *row)
{
	_cleanup_json_ json_t *after = workspace_record_json(row);
	const char *path;
	json_t *word;

	deciding_note(actor, DECIDING_WORKSPACE, NULL, NULL, after, &row->trust);
	json_object_foreach (in->trust, path, word)
		deciding_weaken(&row->trust, path, trust_read(json_string_value(word)));
}

int workspace_record_create(const struct writer *writer, const struct workspace_record *in,
			    struct workspace_record *out, struct error *err)
{
	struct workspace_writing w = { .writer = writer, .now = clock_now(writer->clock) };
	int r;

	new_record_id(writer, w.row.id);
	r = workspace_fill(in, w.now, &w.row, err);
	if (r == 0)
		note_maker(writer->actor, in, &w.row);
	if (r == 0)
		r = DB_WRITE(writer->db, "workspace.create", insert_workspace, &w, err);
	if (r == 0)
		hand_over(out, w.row);
	workspace_record_clear(&w.row);
	return r;
}

/* ---- changing ---- */

static void apply_metadata(struct workspace_record *row, const json_t *body)
{
	_cleanup_json_ json_t *config = workspace_config(row->metadata);
	json_t *changed = NULL;

	if (json_state(body, "metadata") != JSON_IS_ABSENT) {
		patch_object(&row->metadata, body, "metadata");
		changed = workspace_config_merge(row->metadata, NULL);
		json_decref(row->metadata);
		row->metadata = changed;
		if (config) {
			if (!row->metadata)
				row->metadata = json_object();
			json_put_ref(row->metadata, "config", config);
		}
	}
	if (json_state(body, "config") != JSON_IS_ABSENT) {
		changed = workspace_config_merge(row->metadata, json_object_get(body, "config"));
		json_decref(row->metadata);
		row->metadata = changed;
	}
}

static int apply_body(struct workspace_record *row, const json_t *body, struct error *err)
{
	if (patch_name(&row->name, "A workspace's name", body, "name", NAME_MAX_BYTES, err) < 0)
		return -1;
	row_patch(&WORKSPACE, row, body);
	if (row->cwd && row->cwd[0] != '/')
		return error_set(err, ERR_VALIDATION, "cwd must be an absolute path");
	apply_metadata(row, body);
	return 0;
}

static bool is_closed(const struct workspace_record *row)
{
	return streq(row->status, workspace_status_name(WORKSPACE_ARCHIVED));
}

static int check_unused(struct tx *tx, const struct workspace_record *row, struct error *err)
{
	_cleanup_json_ json_t *users = NULL, *details = NULL;

	if (unused_check_tx(tx, &WORKSPACE_USERS, "The workspace", row->id, row->company_id, err) ==
	    0)
		return 0;
	if (err && err->code == ERR_CONFLICT && err->details) {
		users = json_parse(err->details, strlen(err->details), NULL);
		json_put_str(users, "state", "blocked");
		details = json_object();
		json_put_ref(details, "closeReadiness", users);
		error_set_details(err, json_text(details));
	}
	return -1;
}

static int close_row(struct tx *tx, struct workspace_writing *w, struct error *err)
{
	struct workspace_record *row = &w->row;

	if (check_unused(tx, row, err) < 0)
		return -1;
	row->closed_at = w->now;
	if (!streq(row->mode, execution_mode_name(WORKSPACE_SHARED)))
		return 0;
	return issue_unlink_workspace_tx(tx, w->writer->actor, w->now, row->id, err);
}

/* A workspace that can no longer be used, or can be again, is a choice taken back or made. */
static int check_reuse(const struct workspace_writing *w, const json_t *before, struct error *err)
{
	const struct workspace_record former = { .status = (char *)json_str(before, "status") };
	const json_t *chosen = json_object_get(json_object_at(before, "config"), "environmentId");

	if (!actor_is_agent(w->writer->actor) || !chosen ||
	    workspace_is_reusable(&former) == workspace_is_reusable(&w->row))
		return 0;
	return error_set(err, ERR_FORBIDDEN,
			 "agents may not change what decides where and how something runs: status "
			 "(the workspace has an environment of its own)");
}

static int check_decisions(struct tx *tx, struct workspace_writing *w, const json_t *before,
			   struct error *err)
{
	const char *former = json_str(json_object_at(before, "config"), "environmentId");
	_cleanup_json_ json_t *after = workspace_record_json(&w->row);

	if (deciding_check(w->writer, DECIDING_WORKSPACE, before, after, err) < 0 ||
	    check_reuse(w, before, err) < 0 ||
	    guard_environment(tx, w, former, json_object_at(w->body, "config"), err) < 0)
		return -1;
	deciding_note(w->writer->actor, DECIDING_WORKSPACE, before, w->body, after, &w->row.trust);
	return 0;
}

static int update_workspace(struct tx *tx, void *arg, struct error *err)
{
	struct workspace_writing *w = arg;
	struct workspace_record *row = &w->row;
	_cleanup_json_ json_t *details = changed_fields(w->body), *before = NULL;
	bool was_closed;

	workspace_record_clear(row);
	if (row_get_tx(tx, &WORKSPACE, &WORKSPACE_GET, row, err, B_TEXT(w->id)) < 0)
		return -1;
	was_closed = is_closed(row);
	before = workspace_copy(row);
	if (apply_body(row, w->body, err) < 0 || check_decisions(tx, w, before, err) < 0)
		return -1;
	if (is_closed(row) && !was_closed && close_row(tx, w, err) < 0)
		return -1;
	if (!is_closed(row))
		row->closed_at = 0;
	row->updated_at = w->now;
	if (row_update_tx(tx, &WORKSPACE_UPDATE, row, err) < 0)
		return -1;
	if (json_str(w->body, "status"))
		json_put_str(details, "status", row->status);
	return note(tx, w,
		    is_closed(row) && !was_closed ? "execution_workspace.closed"
						  : "execution_workspace.updated",
		    details, err);
}

int workspace_record_update(const struct writer *writer, const char *id, const json_t *body,
			    struct workspace_record *out, struct error *err)
{
	struct workspace_writing w = {
		.writer = writer, .id = id, .body = body, .now = clock_now(writer->clock)
	};
	int r = DB_WRITE(writer->db, "workspace.update", update_workspace, &w, err);

	if (r == 0)
		hand_over(out, w.row);
	workspace_record_clear(&w.row);
	return r;
}

int workspace_record_close(const struct writer *writer, const char *id,
			   struct workspace_record *out, struct error *err)
{
	_cleanup_json_ json_t *body = json_object();

	json_put_str(body, "status", workspace_status_name(WORKSPACE_ARCHIVED));
	return workspace_record_update(writer, id, body, out, err);
}

static int delete_workspace(struct tx *tx, void *arg, struct error *err)
{
	struct workspace_writing *w = arg;
	struct workspace_record *row = &w->row;
	_cleanup_json_ json_t *details = json_object();

	workspace_record_clear(row);
	if (row_get_tx(tx, &WORKSPACE, &WORKSPACE_GET, row, err, B_TEXT(w->id)) < 0 ||
	    check_unused(tx, row, err) < 0 ||
	    issue_unlink_workspace_tx(tx, w->writer->actor, w->now, row->id, err) < 0 ||
	    tx_exec(tx, &WORKSPACE_DELETE, err, B_TEXT(row->id)) < 0)
		return -1;
	json_put_str(details, "name", row->name);
	return note(tx, w, "execution_workspace.deleted", details, err);
}

int workspace_record_delete(const struct writer *writer, const char *id,
			    struct workspace_record *removed, struct error *err)
{
	struct workspace_writing w = { .writer = writer,
				       .id = id,
				       .now = clock_now(writer->clock) };
	int r = DB_WRITE(writer->db, "workspace.delete", delete_workspace, &w, err);

	if (r == 0)
		hand_over(removed, w.row);
	workspace_record_clear(&w.row);
	return r;
}

struct metadata_change {
	const char *id;
	const json_t *metadata;
	int64_t now;
};

/* The config may have been changed since the caller read it: it stays as it is. */
static int update_metadata(struct tx *tx, void *arg, struct error *err)
{
	const struct metadata_change *change = arg;
	_cleanup_workspace_ struct workspace_record row = { 0 };
	_cleanup_json_ json_t *metadata =
		change->metadata ? json_copy((json_t *)change->metadata) : json_object();
	_cleanup_free_ char *text = NULL;
	json_t *config;

	if (workspace_record_get_tx(tx, change->id, &row, err) < 0)
		return -1;
	config = json_object_get(row.metadata, "config");
	if (config)
		json_put_ref(metadata, "config", config);
	else
		json_object_del(metadata, "config");
	text = json_object_size(metadata) ? json_text(metadata) : NULL;
	return tx_exec(tx, &WORKSPACE_SET_METADATA, err, B_TEXT(change->id), B_TEXT(text),
		       B_INT(change->now)) < 0
		       ? -1
		       : 0;
}

int workspace_record_set_metadata(struct db *db, struct clock *clock, const char *id,
				  const json_t *metadata, struct error *err)
{
	struct metadata_change change = { id, metadata, clock_now(clock) };

	return DB_WRITE(db, "workspace.set_metadata", update_metadata, &change, err);
}

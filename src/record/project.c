#include "record/record.h"

#include "base/text.h"
#include "record/activity.h"
#include "record/row.h"
#include "record/selection.h"
#include "record/trust.h"

#define ENV_MAX 500

#define AT(member) .offset = offsetof(struct project, member)
const struct column PROJECT_COLUMNS[] = {
	{ "id", "id", COLUMN_ID, COLUMN_INSERT, AT(id) },
	{ "companyId", "company_id", COLUMN_ID, COLUMN_INSERT, AT(company_id) },
	{ "name", "name", COLUMN_TEXT, COLUMN_WRITE, AT(name) },
	{ "status", "status", COLUMN_WORD, COLUMN_WRITE | COLUMN_PATCH, AT(status),
	  .words = project_status_names },
	{ "env", "env", COLUMN_JSON, COLUMN_WRITE | COLUMN_PATCH, AT(env), .shape = "map",
	  .summary = "Variables of its runs" },
	{ "envRedacted", NULL, COLUMN_BOOL, COLUMN_VIEW,
	  .summary = "Values are not for the reader" },
	{ "executionWorkspacePolicy", "execution_workspace_policy", COLUMN_JSON,
	  COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH, AT(execution_workspace_policy) },
	COLUMN_TIMES(struct project),
	COLUMN_TRUST(struct project),
	{ 0 },
};
static const struct row_kind PROJECT = { "Project", sizeof(struct project), PROJECT_COLUMNS };

SQL_OF(PROJECT_GET, PROJECT_COLUMNS, "SELECT {*} FROM projects WHERE id = $1");
SQL_OF(PROJECT_LIST, PROJECT_COLUMNS,
       "SELECT {*} FROM projects WHERE company_id = $1"
       " AND (created_at, id) > (CAST($2 AS BIGINT), CAST($3 AS TEXT))"
       " AND (CAST($5 AS TEXT) IS NULL OR status = $5)"
       " ORDER BY created_at, id LIMIT CAST($4 AS BIGINT)");
SQL_OF(PROJECT_INSERT, PROJECT_COLUMNS, "INSERT INTO projects ({insert}) VALUES ({values})");
SQL_OF(PROJECT_UPDATE, PROJECT_COLUMNS, "UPDATE projects SET {set} WHERE id = $1");
SQL(PROJECT_USERS, "SELECT (SELECT COUNT(*) FROM runs WHERE project_id = $1 AND company_id = $2"
		   " AND " RUNS_UNFINISHED "),"
		   " (SELECT COUNT(*) FROM leases WHERE company_id = $2 AND " LEASES_OPEN
		   " AND execution_workspace_id IN (SELECT id FROM execution_workspaces"
		   " WHERE company_id = $2 AND project_id = $1))");
SQL(PROJECT_OPEN_WORKSPACES, "SELECT 1 FROM execution_workspaces"
			     " WHERE company_id = $2 AND project_id = $1 AND status <> 'archived'"
			     " LIMIT 1");
SQL(PROJECT_DELETE, "DELETE FROM projects WHERE id = $1");

static const struct field POLICY_FIELDS[] = {
	{ .name = "enabled", .type = FIELD_BOOL, .summary = "Whether defaultMode applies" },
	{ .name = "defaultMode",
	  .type = FIELD_STRING,
	  .one_of = project_workspace_mode_names,
	  .summary = "The workspace of issues that do not choose" },
	{ .name = "environmentId",
	  .type = FIELD_UUID,
	  .flags = FIELD_NULLABLE,
	  .summary = "Where runs of the project go; null: the company's default" },
	{ .name = "workspaceStrategy", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE },
	{ .name = "workspaceRuntime", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE },
	{ 0 },
};

#define NAME                                                                                       \
	.name = "name", .type = FIELD_STRING, .min = 1, .max = NAME_MAX_BYTES,                     \
	.summary = "What people call the project"
#define OTHER_FIELDS                                                                               \
	{ .name = "status",                                                                        \
	  .type = FIELD_STRING,                                                                    \
	  .one_of = project_status_names,                                                          \
	  .summary = "`backlog` unless given" },                                                   \
		{ .name = "env",                                                                   \
		  .type = FIELD_STRING_MAP,                                                        \
		  .max = ENV_MAX,                                                                  \
		  .summary = "Variables of its runs; a run's own go over them" },                  \
	{                                                                                          \
		.name = "executionWorkspacePolicy", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE, \
		.fields = POLICY_FIELDS, .summary = "How workspaces of its runs are made"          \
	}

const struct field PROJECT_FIELDS[] = {
	{ NAME, .flags = FIELD_REQUIRED | FIELD_NONBLANK },
	OTHER_FIELDS,
	{ 0 },
};
const struct field PROJECT_PATCH_FIELDS[] = {
	{ NAME, .flags = FIELD_NONBLANK },
	OTHER_FIELDS,
	{ 0 },
};

void project_clear(struct project *project)
{
	row_clear(&PROJECT, project);
}

json_t *project_json(const struct project *project)
{
	return row_json(&PROJECT, project);
}

int project_get(struct db *db, const char *id, struct project *out, struct error *err)
{
	return row_get(db, &PROJECT, &PROJECT_GET, out, err, B_TEXT(id));
}

int project_get_tx(struct tx *tx, const char *id, struct project *out, struct error *err)
{
	return row_get_tx(tx, &PROJECT, &PROJECT_GET, out, err, B_TEXT(id));
}

json_t *project_list(struct db *db, struct list_query *query, struct error *err)
{
	return row_page(db, &PROJECT, &PROJECT_LIST, query, err, B_TEXT(query->status));
}

static int apply_body(struct project *row, const json_t *body, struct error *err)
{
	if (patch_name(&row->name, "A project's name", body, "name", NAME_MAX_BYTES, err) < 0 ||
	    json_check_env(json_object_at(body, "env"), err) < 0)
		return -1;
	row_patch(&PROJECT, row, body);
	return 0;
}

struct project_writing {
	const struct writer *writer;
	const char *id; /* NULL: `row` is to be made */
	const json_t *body;
	int64_t now;
	struct project row;
};

/* What the row has become, against what it was (NULL: nothing): may they, and who wrote what. */
static int check_decisions(struct tx *tx, struct project_writing *w, const json_t *before,
			   struct error *err)
{
	struct project *row = &w->row;
	const char *chosen = json_str(row->execution_workspace_policy, "environmentId");
	const char *former =
		json_str(json_object_at(before, "executionWorkspacePolicy"), "environmentId");
	_cleanup_json_ json_t *after = project_json(row);

	if (deciding_check(w->writer, DECIDING_PROJECT, before, after, err) < 0)
		return -1;
	if (json_object_get(w->body, "executionWorkspacePolicy") &&
	    (selection_guard_tx(tx, w->writer, row->company_id, chosen, DRIVERS_FOR_WORK, err) <
		     0 ||
	     selection_host_tx(tx, w->writer, former, chosen, "executionWorkspacePolicy", err) < 0))
		return -1;
	deciding_note(w->writer->actor, DECIDING_PROJECT, before, w->body, after, &row->trust);
	return 0;
}

static int note(struct tx *tx, const struct project_writing *w, const char *action, json_t *details,
		struct error *err)
{
	return activity_write_tx(tx, w->now,
				 &(struct activity){ .company_id = w->row.company_id,
						     .actor = w->writer->actor,
						     .action = action,
						     .entity_type = "project",
						     .entity_id = w->row.id,
						     .details = details },
				 err);
}

static int insert_project(struct tx *tx, void *arg, struct error *err)
{
	struct project_writing *w = arg;
	const struct project *row = &w->row;
	_cleanup_json_ json_t *details = json_object();

	if (company_exists_tx(tx, row->company_id, err) < 0 ||
	    check_decisions(tx, w, NULL, err) < 0 ||
	    row_insert_tx(tx, &PROJECT_INSERT, row, err) < 0)
		return -1;
	json_put_str(details, "name", row->name);
	return note(tx, w, "project.created", details, err);
}

int project_create(const struct writer *writer, const char *company_id, const json_t *body,
		   struct project *out, struct error *err)
{
	struct project_writing w = { .writer = writer,
				     .body = body,
				     .now = clock_now(writer->clock) };
	int r;

	new_record_id(writer, w.row.id);
	id_copy(w.row.company_id, company_id);
	w.row.env = json_object();
	w.row.created_at = w.row.updated_at = w.now;
	r = apply_body(&w.row, body, err);
	if (r == 0)
		r = DB_WRITE(writer->db, "project.create", insert_project, &w, err);
	if (r == 0)
		hand_over(out, w.row);
	project_clear(&w.row);
	return r;
}

static int update_project(struct tx *tx, void *arg, struct error *err)
{
	struct project_writing *w = arg;
	struct project *row = &w->row;
	_cleanup_json_ json_t *details = changed_fields(w->body), *before = NULL;

	project_clear(row);
	if (project_get_tx(tx, w->id, row, err) < 0)
		return -1;
	before = project_json(row);
	if (apply_body(row, w->body, err) < 0 || check_decisions(tx, w, before, err) < 0)
		return -1;
	row->updated_at = w->now;
	if (row_update_tx(tx, &PROJECT_UPDATE, row, err) < 0)
		return -1;
	if (json_str(w->body, "status"))
		json_put_str(details, "status", project_status_name(row->status));
	return note(tx, w, "project.updated", details, err);
}

int project_update(const struct writer *writer, const char *id, const json_t *body,
		   struct project *out, struct error *err)
{
	struct project_writing w = {
		.writer = writer, .id = id, .body = body, .now = clock_now(writer->clock)
	};
	int r = DB_WRITE(writer->db, "project.update", update_project, &w, err);

	if (r == 0)
		hand_over(out, w.row);
	project_clear(&w.row);
	return r;
}

static int check_unused(struct tx *tx, const struct project *row, struct error *err)
{
	int open;

	if (unused_check_tx(tx, &PROJECT_USERS, "The project", row->id, row->company_id, err) < 0)
		return -1;
	open = row_exists_tx(tx, &PROJECT_OPEN_WORKSPACES, err, B_TEXT(row->id),
			     B_TEXT(row->company_id));
	if (open > 0)
		return error_set(err, ERR_CONFLICT,
				 "The project has execution workspaces that are not closed");
	return open;
}

static int delete_project(struct tx *tx, void *arg, struct error *err)
{
	struct project_writing *w = arg;
	_cleanup_json_ json_t *details = json_object();

	project_clear(&w->row);
	if (project_get_tx(tx, w->id, &w->row, err) < 0 || check_unused(tx, &w->row, err) < 0 ||
	    tx_exec(tx, &PROJECT_DELETE, err, B_TEXT(w->id)) < 0)
		return -1;
	json_put_str(details, "name", w->row.name);
	return note(tx, w, "project.deleted", details, err);
}

int project_delete(const struct writer *writer, const char *id, struct project *removed,
		   struct error *err)
{
	struct project_writing w = { .writer = writer, .id = id, .now = clock_now(writer->clock) };
	int r = DB_WRITE(writer->db, "project.delete", delete_project, &w, err);

	if (r == 0)
		hand_over(removed, w.row);
	project_clear(&w.row);
	return r;
}

#include "record/record.h"

#include "record/activity.h"
#include "record/kinds.h"
#include "record/row.h"

#define PROJECT_COLUMNS "id, company_id, name, execution_workspace_policy, created_at, updated_at"

SQL(PROJECT_GET, "SELECT " PROJECT_COLUMNS " FROM projects WHERE id = $1");
SQL(PROJECT_LIST, "SELECT " PROJECT_COLUMNS " FROM projects WHERE company_id = $1"
		  " ORDER BY created_at, id LIMIT 1000");
SQL(PROJECT_INSERT, "INSERT INTO projects (" PROJECT_COLUMNS ") VALUES ($1, $2, $3, $4, $5, $5)");

static const struct field POLICY_FIELDS[] = {
	{ .name = "enabled", .type = FIELD_BOOL, .summary = "Whether defaultMode applies" },
	{ .name = "defaultMode",
	  .type = FIELD_STRING,
	  .one_of = project_workspace_mode_names,
	  .summary = "The workspace of issues that do not choose" },
	{ .name = "allowIssueOverride", .type = FIELD_BOOL, .summary = "Issues may choose" },
	{ .name = "defaultProjectWorkspaceId", .type = FIELD_UUID, .flags = FIELD_NULLABLE },
	{ .name = "environmentId",
	  .type = FIELD_UUID,
	  .flags = FIELD_NULLABLE,
	  .summary = "Where runs of the project go; null: this host" },
	{ .name = "workspaceStrategy", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE },
	{ .name = "workspaceRuntime", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE },
	{ .name = "branchPolicy", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE },
	{ .name = "pullRequestPolicy", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE },
	{ .name = "runtimePolicy", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE },
	{ .name = "cleanupPolicy", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE },
	{ 0 },
};

const struct field PROJECT_FIELDS[] = {
	{ .name = "name",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED | FIELD_NONBLANK,
	  .min = 1,
	  .max = NAME_MAX_BYTES,
	  .summary = "What people call the project" },
	{ .name = "executionWorkspacePolicy",
	  .type = FIELD_OBJECT,
	  .flags = FIELD_NULLABLE,
	  .fields = POLICY_FIELDS,
	  .summary = "How workspaces of its runs are made" },
	{ 0 },
};

void project_clear(struct project *project)
{
	free(project->name);
	json_decref(project->execution_workspace_policy);
	*project = (struct project){ 0 };
}

json_t *project_json(const struct project *project)
{
	json_t *o = json_object();

	json_put_str(o, "id", project->id);
	json_put_str(o, "companyId", project->company_id);
	json_put_str(o, "name", project->name);
	json_put_ref(o, "executionWorkspacePolicy", project->execution_workspace_policy);
	json_put_time(o, "createdAt", project->created_at);
	json_put_time(o, "updatedAt", project->updated_at);
	return o;
}

static int project_read(struct cursor *c, struct project *out, struct error *err)
{
	_cleanup_(project_clear) struct project row = { 0 };

	id_copy(row.id, col_text(c, 0));
	id_copy(row.company_id, col_text(c, 1));
	row.name = xstrdup(col_text(c, 2));
	if (col_json(c, 3, "execution workspace policy", &row.execution_workspace_policy, err) < 0)
		return -1;
	row.created_at = col_int(c, 4);
	row.updated_at = col_int(c, 5);
	hand_over(out, row);
	return 0;
}

ROW_KIND(PROJECT, project, "Project");

int project_get(struct db *db, const char *id, struct project *out, struct error *err)
{
	return row_get(db, &PROJECT, &PROJECT_GET, out, err, B_TEXT(id));
}

json_t *project_list(struct db *db, const char *company_id, struct error *err)
{
	return row_list(db, &PROJECT, &PROJECT_LIST, err, B_TEXT(company_id));
}

struct project_creation {
	const struct actor *actor;
	const struct project *row;
};

static int insert_project(struct tx *tx, void *arg, struct error *err)
{
	const struct project_creation *creation = arg;
	const struct project *row = creation->row;
	_cleanup_json_ json_t *details = json_object();
	_cleanup_free_ char *policy = json_column(row->execution_workspace_policy);

	if (company_exists_tx(tx, row->company_id, err) < 0 ||
	    environment_reference_check_tx(
		    tx, json_str(row->execution_workspace_policy, "environmentId"), row->company_id,
		    err) < 0)
		return -1;
	if (tx_exec(tx, &PROJECT_INSERT, err, B_TEXT(row->id), B_TEXT(row->company_id),
		    B_TEXT(row->name), B_TEXT(policy), B_INT(row->created_at)) < 0)
		return -1;
	json_put_str(details, "name", row->name);
	return activity_write_tx(tx, row->created_at,
				 &(struct activity){ .company_id = row->company_id,
						     .actor = creation->actor,
						     .action = "project.created",
						     .entity_type = "project",
						     .entity_id = row->id,
						     .details = details },
				 err);
}

int project_create(struct db *db, struct clock *clock, const struct actor *actor,
		   const char *company_id, const json_t *body, struct project *out,
		   struct error *err)
{
	_cleanup_(project_clear) struct project row = { 0 };
	struct project_creation creation = { actor, &row };

	row.name = name_trimmed("A project's name", json_str(body, "name"), NAME_MAX_BYTES, err);
	if (!row.name)
		return -1;
	id_new(row.id);
	id_copy(row.company_id, company_id);
	row.execution_workspace_policy = object_or_null(body, "executionWorkspacePolicy");
	row.created_at = row.updated_at = clock_now(clock);
	if (DB_WRITE(db, "project.create", insert_project, &creation, err) < 0)
		return -1;
	hand_over(out, row);
	return 0;
}

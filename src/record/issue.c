#include "record/record.h"

#include "base/text.h"
#include "record/activity.h"
#include "record/kinds.h"
#include "record/row.h"

#define TITLE_MAX_BYTES 1000
#define ISSUE_COLUMNS                                                                              \
	"id, company_id, project_id, assignee_agent_id, title, status, execution_workspace_id,"    \
	" execution_workspace_preference, execution_workspace_settings, created_at, updated_at"

SQL(ISSUE_GET, "SELECT " ISSUE_COLUMNS " FROM issues WHERE id = $1");
SQL(ISSUE_LIST, "SELECT " ISSUE_COLUMNS " FROM issues WHERE company_id = $1"
		" ORDER BY created_at, id LIMIT 1000");
SQL(ISSUE_INSERT, "INSERT INTO issues (" ISSUE_COLUMNS ")"
		  " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10)");
SQL(ISSUE_PROJECT_OF_COMPANY, "SELECT 1 FROM projects WHERE id = $1 AND company_id = $2");
SQL(ISSUE_AGENT_OF_COMPANY, "SELECT 1 FROM agents WHERE id = $1 AND company_id = $2");
SQL(ISSUE_WORKSPACE_OF_COMPANY,
    "SELECT 1 FROM execution_workspaces WHERE id = $1 AND company_id = $2");

static const struct field SETTINGS_FIELDS[] = {
	{ .name = "mode",
	  .type = FIELD_STRING,
	  .one_of = issue_workspace_mode_names,
	  .summary = "The workspace its runs work in" },
	{ .name = "environmentId",
	  .type = FIELD_UUID,
	  .flags = FIELD_NULLABLE,
	  .summary = "Where its runs go; null: this host" },
	{ .name = "workspaceStrategy", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE },
	{ .name = "workspaceRuntime", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE },
	{ 0 },
};

const struct field ISSUE_FIELDS[] = {
	{ .name = "title",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED | FIELD_NONBLANK,
	  .min = 1,
	  .max = TITLE_MAX_BYTES,
	  .summary = "The task in one line" },
	{ .name = "status",
	  .type = FIELD_STRING,
	  .flags = FIELD_NONBLANK,
	  .min = 1,
	  .max = 50,
	  .summary = "`open` unless given" },
	{ .name = "projectId", .type = FIELD_UUID, .flags = FIELD_NULLABLE },
	{ .name = "assigneeAgentId", .type = FIELD_UUID, .flags = FIELD_NULLABLE },
	{ .name = "executionWorkspaceId",
	  .type = FIELD_UUID,
	  .flags = FIELD_NULLABLE,
	  .summary = "The workspace linked to it" },
	{ .name = "executionWorkspacePreference",
	  .type = FIELD_STRING,
	  .flags = FIELD_NULLABLE,
	  .one_of = issue_workspace_mode_names,
	  .summary = "`reuse_existing` works in the linked workspace" },
	{ .name = "executionWorkspaceSettings",
	  .type = FIELD_OBJECT,
	  .flags = FIELD_NULLABLE,
	  .fields = SETTINGS_FIELDS,
	  .summary = "Choices for its runs" },
	{ 0 },
};

void issue_clear(struct issue *issue)
{
	free(issue->title);
	free(issue->status);
	free(issue->execution_workspace_preference);
	json_decref(issue->execution_workspace_settings);
	*issue = (struct issue){ 0 };
}

json_t *issue_json(const struct issue *issue)
{
	json_t *o = json_object();

	json_put_str(o, "id", issue->id);
	json_put_str(o, "companyId", issue->company_id);
	json_put_id(o, "projectId", issue->project_id);
	json_put_id(o, "assigneeAgentId", issue->assignee_agent_id);
	json_put_str(o, "title", issue->title);
	json_put_str(o, "status", issue->status);
	json_put_id(o, "executionWorkspaceId", issue->execution_workspace_id);
	json_put_str(o, "executionWorkspacePreference", issue->execution_workspace_preference);
	json_put_ref(o, "executionWorkspaceSettings", issue->execution_workspace_settings);
	json_put_time(o, "createdAt", issue->created_at);
	json_put_time(o, "updatedAt", issue->updated_at);
	return o;
}

static int issue_read(struct cursor *c, struct issue *out, struct error *err)
{
	_cleanup_(issue_clear) struct issue row = { 0 };

	id_copy(row.id, col_text(c, 0));
	id_copy(row.company_id, col_text(c, 1));
	id_copy(row.project_id, col_text(c, 2));
	id_copy(row.assignee_agent_id, col_text(c, 3));
	row.title = xstrdup(col_text(c, 4));
	row.status = xstrdup(col_text(c, 5));
	id_copy(row.execution_workspace_id, col_text(c, 6));
	row.execution_workspace_preference = xstrdup(col_text(c, 7));
	if (col_json(c, 8, "execution workspace settings", &row.execution_workspace_settings, err) <
	    0)
		return -1;
	row.created_at = col_int(c, 9);
	row.updated_at = col_int(c, 10);
	hand_over(out, row);
	return 0;
}

ROW_KIND(ISSUE, issue, "Issue");

int issue_get(struct db *db, const char *id, struct issue *out, struct error *err)
{
	return row_get(db, &ISSUE, &ISSUE_GET, out, err, B_TEXT(id));
}

json_t *issue_list(struct db *db, const char *company_id, struct error *err)
{
	return row_list(db, &ISSUE, &ISSUE_LIST, err, B_TEXT(company_id));
}

struct issue_creation {
	const struct actor *actor;
	const struct issue *row;
};

static int check_references(struct tx *tx, const struct issue *row, struct error *err)
{
	const char *company = row->company_id;

	if (company_exists_tx(tx, company, err) < 0 ||
	    reference_check_tx(tx, &ISSUE_PROJECT_OF_COMPANY, "Project", row->project_id, company,
			       err) < 0 ||
	    reference_check_tx(tx, &ISSUE_AGENT_OF_COMPANY, "Agent", row->assignee_agent_id,
			       company, err) < 0 ||
	    reference_check_tx(tx, &ISSUE_WORKSPACE_OF_COMPANY, "Execution workspace",
			       row->execution_workspace_id, company, err) < 0)
		return -1;
	return environment_reference_check_tx(
		tx, json_str(row->execution_workspace_settings, "environmentId"), company, err);
}

static int insert_issue(struct tx *tx, void *arg, struct error *err)
{
	const struct issue_creation *creation = arg;
	const struct issue *row = creation->row;
	_cleanup_json_ json_t *details = json_object();
	_cleanup_free_ char *settings = json_column(row->execution_workspace_settings);

	if (check_references(tx, row, err) < 0)
		return -1;
	if (tx_exec(tx, &ISSUE_INSERT, err, B_TEXT(row->id), B_TEXT(row->company_id),
		    B_ID(row->project_id), B_ID(row->assignee_agent_id), B_TEXT(row->title),
		    B_TEXT(row->status), B_ID(row->execution_workspace_id),
		    B_TEXT(row->execution_workspace_preference), B_TEXT(settings),
		    B_INT(row->created_at)) < 0)
		return -1;
	json_put_str(details, "title", row->title);
	json_put_str(details, "status", row->status);
	return activity_write_tx(tx, row->created_at,
				 &(struct activity){ .company_id = row->company_id,
						     .actor = creation->actor,
						     .action = "issue.created",
						     .entity_type = "issue",
						     .entity_id = row->id,
						     .details = details },
				 err);
}

int issue_create(struct db *db, struct clock *clock, const struct actor *actor,
		 const char *company_id, const json_t *body, struct issue *out, struct error *err)
{
	_cleanup_(issue_clear) struct issue row = { 0 };
	struct issue_creation creation = { actor, &row };
	const char *status = json_str_nonblank(body, "status");

	row.title = name_trimmed("An issue's title", json_str(body, "title"), TITLE_MAX_BYTES, err);
	if (!row.title)
		return -1;
	id_new(row.id);
	id_copy(row.company_id, company_id);
	id_copy(row.project_id, json_str(body, "projectId"));
	id_copy(row.assignee_agent_id, json_str(body, "assigneeAgentId"));
	id_copy(row.execution_workspace_id, json_str(body, "executionWorkspaceId"));
	row.status = xstrdup(status ? status : "open");
	row.execution_workspace_preference =
		xstrdup(json_str(body, "executionWorkspacePreference"));
	row.execution_workspace_settings = object_or_null(body, "executionWorkspaceSettings");
	row.created_at = row.updated_at = clock_now(clock);
	if (DB_WRITE(db, "issue.create", insert_issue, &creation, err) < 0)
		return -1;
	hand_over(out, row);
	return 0;
}

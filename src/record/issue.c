#include "record/record.h"

#include "base/text.h"
#include "record/activity.h"
#include "record/row.h"
#include "record/select.h"
#include "record/selection.h"
#include "record/trust.h"
#include "record/workspace.h"

#define TITLE_MAX_BYTES 1000
#define DESCRIPTION_MAX_BYTES 100000

#define AT(member) .offset = offsetof(struct issue, member)
const struct column ISSUE_COLUMNS[] = {
	{ "id", "id", COLUMN_ID, COLUMN_INSERT, AT(id) },
	{ "companyId", "company_id", COLUMN_ID, COLUMN_INSERT, AT(company_id) },
	{ "projectId", "project_id", COLUMN_ID, COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH,
	  AT(project_id) },
	{ "assigneeAgentId", "assignee_agent_id", COLUMN_ID,
	  COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH, AT(assignee_agent_id) },
	{ "identifier", "identifier", COLUMN_TEXT, COLUMN_INSERT | COLUMN_NULLABLE, AT(identifier),
	  .summary = "As people call it: ACM-7" },
	{ "issueNumber", "issue_number", COLUMN_INT, COLUMN_INSERT, AT(number) },
	{ "title", "title", COLUMN_TEXT, COLUMN_WRITE, AT(title) },
	{ "description", "description", COLUMN_TEXT, COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH,
	  AT(description) },
	{ "status", "status", COLUMN_WORD, COLUMN_WRITE | COLUMN_PATCH, AT(status),
	  .words = issue_status_names },
	{ "priority", "priority", COLUMN_WORD, COLUMN_WRITE | COLUMN_PATCH, AT(priority),
	  .words = issue_priority_names },
	{ "executionRunId", "execution_run_id", COLUMN_ID, COLUMN_NULLABLE, AT(execution_run_id),
	  .summary = "The run that works on it now" },
	{ "checkoutRunId", "checkout_run_id", COLUMN_ID, COLUMN_NULLABLE, AT(checkout_run_id),
	  .summary = "The run that has taken it for itself" },
	{ "executionWorkspaceId", "execution_workspace_id", COLUMN_ID,
	  COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH, AT(execution_workspace_id) },
	{ "executionWorkspacePreference", "execution_workspace_preference", COLUMN_TEXT,
	  COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH, AT(execution_workspace_preference) },
	{ "executionWorkspaceSettings", "execution_workspace_settings", COLUMN_JSON,
	  COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH, AT(execution_workspace_settings) },
	COLUMN_TIMES(struct issue),
	COLUMN_TRUST(struct issue),
	{ 0 },
};
static const struct row_kind ISSUE = { "Issue", sizeof(struct issue), ISSUE_COLUMNS };

SQL_OF(ISSUE_GET, ISSUE_COLUMNS, "SELECT {*} FROM issues WHERE id = $1");
SQL_OF(ISSUE_LIST, ISSUE_COLUMNS,
       "SELECT {*} FROM issues WHERE company_id = $1"
       " AND (created_at, id) > (CAST($2 AS BIGINT), CAST($3 AS TEXT))"
       " AND (CAST($5 AS TEXT) IS NULL OR status = $5)"
       " AND (CAST($6 AS TEXT) IS NULL OR priority = $6)"
       " AND (CAST($7 AS TEXT) IS NULL OR project_id = $7)"
       " AND (CAST($8 AS TEXT) IS NULL OR assignee_agent_id = $8)"
       " ORDER BY created_at, id LIMIT CAST($4 AS BIGINT)");
SQL_OF(ISSUE_INSERT, ISSUE_COLUMNS, "INSERT INTO issues ({insert}) VALUES ({values})");
SQL_OF(ISSUE_UPDATE, ISSUE_COLUMNS, "UPDATE issues SET {set} WHERE id = $1");
SQL(ISSUE_NEXT_NUMBER, "UPDATE companies SET issue_counter = issue_counter + 1 WHERE id = $1"
		       " RETURNING issue_counter, issue_prefix");
SQL(ISSUE_PROJECT_OF_COMPANY, "SELECT 1 FROM projects WHERE id = $1 AND company_id = $2");
SQL(ISSUE_AGENT_OF_COMPANY, "SELECT 1 FROM agents WHERE id = $1 AND company_id = $2");
SQL(ISSUE_WORKSPACE_OF_COMPANY,
    "SELECT 1 FROM execution_workspaces WHERE id = $1 AND company_id = $2");
SQL(ISSUE_RUN_OF_COMPANY, "SELECT 1 FROM runs WHERE id = $1 AND company_id = $2");
SQL(ISSUE_RUN_UNFINISHED, "SELECT 1 FROM runs WHERE id = $1 AND " RUNS_UNFINISHED);
SQL(ISSUE_USERS,
    "SELECT (SELECT COUNT(*) FROM runs WHERE issue_id = $1 AND company_id = $2"
    " AND " RUNS_UNFINISHED "),"
    " (SELECT COUNT(*) FROM leases WHERE issue_id = $1 AND company_id = $2 AND " LEASES_OPEN ")");
SQL(ISSUE_DELETE, "DELETE FROM issues WHERE id = $1");
SQL(ISSUE_BEGIN_RUN, "UPDATE issues SET execution_run_id = $1, updated_at = $2"
		     " WHERE id = (SELECT issue_id FROM runs WHERE id = $1)");
SQL(ISSUE_END_RUN, "UPDATE issues SET execution_run_id = NULL, updated_at = $2"
		   " WHERE id = (SELECT issue_id FROM runs WHERE id = $1)"
		   " AND execution_run_id = $1");
SQL(ISSUE_LINKED, "SELECT id, trust FROM issues WHERE execution_workspace_id = $1"
		  " AND execution_workspace_id IS NOT NULL ORDER BY id LIMIT 500");
SQL(ISSUE_UNLINK, "UPDATE issues SET execution_workspace_id = NULL, trust = $2, updated_at = $3"
		  " WHERE id = $1");
SQL(ISSUE_CHECK_OUT, "UPDATE issues SET checkout_run_id = $2, updated_at = $3 WHERE id = $1");

static const struct field SETTINGS_FIELDS[] = {
	{ .name = "mode",
	  .type = FIELD_STRING,
	  .one_of = issue_workspace_mode_names,
	  .summary = "The workspace its runs work in" },
	{ .name = "environmentId",
	  .type = FIELD_UUID,
	  .flags = FIELD_NULLABLE,
	  .summary = "Where its runs go; null: the company's default" },
	{ .name = "workspaceStrategy", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE },
	{ .name = "workspaceRuntime", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE },
	{ 0 },
};

#define TITLE                                                                                      \
	.name = "title", .type = FIELD_STRING, .min = 1, .max = TITLE_MAX_BYTES,                   \
	.summary = "The task in one line"
#define OTHER_FIELDS                                                                               \
	{ .name = "description",                                                                   \
	  .type = FIELD_STRING,                                                                    \
	  .flags = FIELD_NULLABLE,                                                                 \
	  .max = DESCRIPTION_MAX_BYTES,                                                            \
	  .summary = "The task in full" },                                                         \
		{ .name = "status",                                                                \
		  .type = FIELD_STRING,                                                            \
		  .one_of = issue_status_names,                                                    \
		  .summary = "`backlog` unless given" },                                           \
		{ .name = "priority",                                                              \
		  .type = FIELD_STRING,                                                            \
		  .one_of = issue_priority_names,                                                  \
		  .summary = "`medium` unless given" },                                            \
		{ .name = "projectId", .type = FIELD_UUID, .flags = FIELD_NULLABLE },              \
		{ .name = "assigneeAgentId", .type = FIELD_UUID, .flags = FIELD_NULLABLE },        \
		{ .name = "executionWorkspaceId",                                                  \
		  .type = FIELD_UUID,                                                              \
		  .flags = FIELD_NULLABLE,                                                         \
		  .summary = "The workspace linked to it" },                                       \
		{ .name = "executionWorkspacePreference",                                          \
		  .type = FIELD_STRING,                                                            \
		  .flags = FIELD_NULLABLE,                                                         \
		  .one_of = issue_workspace_mode_names,                                            \
		  .summary = "`reuse_existing` works in the linked workspace" },                   \
	{                                                                                          \
		.name = "executionWorkspaceSettings", .type = FIELD_OBJECT,                        \
		.flags = FIELD_NULLABLE, .fields = SETTINGS_FIELDS,                                \
		.summary = "Choices for its runs"                                                  \
	}

const struct field ISSUE_FIELDS[] = {
	{ TITLE, .flags = FIELD_REQUIRED | FIELD_NONBLANK },
	OTHER_FIELDS,
	{ 0 },
};
const struct field ISSUE_PATCH_FIELDS[] = {
	{ TITLE, .flags = FIELD_NONBLANK },
	OTHER_FIELDS,
	{ 0 },
};

void issue_clear(struct issue *issue)
{
	row_clear(&ISSUE, issue);
}

json_t *issue_json(const struct issue *issue)
{
	return row_json(&ISSUE, issue);
}

int issue_get(struct db *db, const char *id, struct issue *out, struct error *err)
{
	return row_get(db, &ISSUE, &ISSUE_GET, out, err, B_TEXT(id));
}

int issue_get_tx(struct tx *tx, const char *id, struct issue *out, struct error *err)
{
	return row_get_tx(tx, &ISSUE, &ISSUE_GET, out, err, B_TEXT(id));
}

json_t *issue_list(struct db *db, struct list_query *query, struct error *err)
{
	return row_page(db, &ISSUE, &ISSUE_LIST, query, err, B_TEXT(query->status),
			B_TEXT(query->priority), B_TEXT(query->project_id),
			B_TEXT(query->assignee_id));
}

static int apply_body(struct issue *row, const json_t *body, struct error *err)
{
	if (patch_name(&row->title, "An issue's title", body, "title", TITLE_MAX_BYTES, err) < 0)
		return -1;
	row_patch(&ISSUE, row, body);
	return 0;
}

struct issue_writing {
	const struct writer *writer;
	const char *id;     /* NULL: `row` is to be made */
	const char *run_id; /* checking out */
	const json_t *body;
	int64_t now;
	struct issue row;
	bool takes_over; /* the assignee's environment, which that writer gave it */
	enum trust taken_from;
};

/* Of what the body names: what was there before has been looked at when it was put there. */
static int check_references(struct tx *tx, const struct issue_writing *w, struct error *err)
{
	const json_t *body = w->body;
	const char *company = w->row.company_id;

	if (reference_check_tx(tx, &ISSUE_PROJECT_OF_COMPANY, "Project",
			       json_str(body, "projectId"), company, err) < 0 ||
	    reference_check_tx(tx, &ISSUE_AGENT_OF_COMPANY, "Agent",
			       json_str(body, "assigneeAgentId"), company, err) < 0 ||
	    reference_check_tx(tx, &ISSUE_WORKSPACE_OF_COMPANY, "Execution workspace",
			       json_str(body, "executionWorkspaceId"), company, err) < 0)
		return -1;
	return selection_guard_tx(
		tx, w->writer, company,
		json_str(json_object_at(body, "executionWorkspaceSettings"), "environmentId"),
		DRIVERS_FOR_WORK, err);
}

/* ---- taking over the assignee's environment (spec 01 E.8) ---- */

static bool chooses_environment(const json_t *settings)
{
	return json_object_get(settings, "environmentId") != NULL;
}

static int project_chooses(struct tx *tx, const struct issue *row, bool *chooses, struct error *err)
{
	_cleanup_(project_clear) struct project project = { 0 };

	*chooses = false;
	if (!id_is_set(row->project_id))
		return 0;
	if (project_get_tx(tx, row->project_id, &project, err) < 0)
		return -1;
	*chooses = chooses_environment(project.execution_workspace_policy);
	return 0;
}

/* "" when there is no agent, or it has none; and who gave it that. */
static int default_of_agent(struct tx *tx, const char *agent_id, char out[ID_SIZE],
			    enum trust *writer, struct error *err)
{
	_cleanup_(agent_clear) struct agent agent = { 0 };

	out[0] = '\0';
	*writer = TRUST_LOCAL;
	if (!id_is_set(agent_id))
		return 0;
	if (agent_get_tx(tx, agent_id, &agent, err) < 0)
		return -1;
	id_copy(out, agent.default_environment_id);
	*writer = deciding_trust(agent.trust, "defaultEnvironmentId");
	return 0;
}

/*
 * `taken_over` is what the assignee before had, or "". What is taken over has the weaker trust of
 * the agent's writer and of the one who assigns.
 */
static int take_over_environment(struct tx *tx, struct issue_writing *w, const char *taken_over,
				 struct error *err)
{
	struct issue *row = &w->row;
	const char *present = json_str(row->execution_workspace_settings, "environmentId");
	bool by_project;
	char wanted[ID_SIZE];

	if (chooses_environment(row->execution_workspace_settings) &&
	    !(present && id_is_set(taken_over) && streq(present, taken_over)))
		return 0;
	if (project_chooses(tx, row, &by_project, err) < 0 ||
	    default_of_agent(tx, row->assignee_agent_id, wanted, &w->taken_from, err) < 0)
		return -1;
	if (by_project)
		return 0;
	w->takes_over = true;
	if (!id_is_set(wanted)) {
		json_object_del(row->execution_workspace_settings, "environmentId");
		return 0;
	}
	if (!row->execution_workspace_settings)
		row->execution_workspace_settings = json_object();
	json_put_str(row->execution_workspace_settings, "environmentId", wanted);
	return 0;
}

static int reassign(struct tx *tx, struct issue_writing *w, const char *before, struct error *err)
{
	char taken_over[ID_SIZE];
	enum trust ignored;

	if (streq(before, w->row.assignee_agent_id) ||
	    chooses_environment(json_object_at(w->body, "executionWorkspaceSettings")))
		return 0;
	if (default_of_agent(tx, before, taken_over, &ignored, err) < 0)
		return -1;
	return take_over_environment(tx, w, taken_over, err);
}

/* ---- what a change leads to ---- */

/* The environment that runs of the issue by its assignee get; "": the company's default. */
static int place_of(struct tx *tx, const struct issue *row, char out[ID_SIZE], struct error *err)
{
	_cleanup_workspace_ struct workspace_record workspace = { 0 };
	_cleanup_(project_clear) struct project project = { 0 };
	_cleanup_(agent_clear) struct agent agent = { 0 };
	_cleanup_json_ json_t *config = NULL;
	const char *source;
	bool reuses = id_is_set(row->execution_workspace_id) &&
		      str_equal(row->execution_workspace_preference, "reuse_existing");

	if ((reuses &&
	     workspace_record_get_tx(tx, row->execution_workspace_id, &workspace, err) < 0) ||
	    (id_is_set(row->project_id) &&
	     project_get_tx(tx, row->project_id, &project, err) < 0) ||
	    (id_is_set(row->assignee_agent_id) &&
	     agent_get_tx(tx, row->assignee_agent_id, &agent, err) < 0))
		return -1;
	if (reuses && workspace_is_reusable(&workspace))
		config = workspace_config(workspace.metadata);
	id_copy(out, select_environment(
			     &(struct selection){
				     .workspace_config = config,
				     .issue_settings = row->execution_workspace_settings,
				     .project_policy = project.execution_workspace_policy,
				     .agent_default_id = agent.default_environment_id,
				     .default_id = "",
			     },
			     &source));
	return 0;
}

/* Nobody asks where local trust takes an issue from. */
static int place_before(struct tx *tx, const struct issue_writing *w, char out[ID_SIZE],
			struct error *err)
{
	out[0] = '\0';
	return actor_trust(w->writer->actor) == TRUST_LOCAL ? 0 : place_of(tx, &w->row, out, err);
}

/*
 * Links between records choose places as well as ids of environments do. Who may not use driver
 * local leads nothing there by them, and an agent leads no issue to another place than it has.
 */
static int check_place(struct tx *tx, const struct issue_writing *w, const char *former,
		       struct error *err)
{
	char now[ID_SIZE];

	if (actor_trust(w->writer->actor) == TRUST_LOCAL)
		return 0;
	if (place_of(tx, &w->row, now, err) < 0 ||
	    selection_host_tx(tx, w->writer, former, now, "the issue's environment", err) < 0)
		return -1;
	if (former && actor_is_agent(w->writer->actor) && !streq(former, now))
		return error_set(err, ERR_FORBIDDEN,
				 "agents may not move an issue to where its runs get another "
				 "environment (projectId, assigneeAgentId, executionWorkspaceId, "
				 "executionWorkspacePreference)");
	return 0;
}

static void note_writers(struct issue_writing *w, const json_t *before, const json_t *after)
{
	static const char PLACE[] = "executionWorkspaceSettings.environmentId";
	struct issue *row = &w->row;

	deciding_note(w->writer->actor, DECIDING_ISSUE, before, w->body, after, &row->trust);
	if (!w->takes_over)
		return;
	json_put_str(row->trust, PLACE,
		     trust_word(trust_weaker(actor_trust(w->writer->actor), w->taken_from)));
}

/* ---- a workspace that is reused follows the settings of its issue ---- */

static int sync_workspace(struct tx *tx, const struct issue_writing *w, struct error *err)
{
	const struct issue *row = &w->row;
	const json_t *settings = row->execution_workspace_settings;
	const json_t *strategy = json_object_at(settings, "workspaceStrategy");
	_cleanup_json_ json_t *patch = NULL;

	if (!json_object_get(w->body, "executionWorkspaceSettings") ||
	    !id_is_set(row->execution_workspace_id) ||
	    !str_equal(row->execution_workspace_preference, "reuse_existing"))
		return 0;
	patch = json_object();
	json_put_ref(patch, "environmentId", json_object_get(settings, "environmentId"));
	json_put_ref(patch, "provisionCommand", json_object_get(strategy, "provisionCommand"));
	json_put_ref(patch, "teardownCommand", json_object_get(strategy, "teardownCommand"));
	json_put_ref(patch, "workspaceRuntime", json_object_get(settings, "workspaceRuntime"));
	return workspace_config_patch_tx(tx, w->writer, w->now, row->execution_workspace_id, patch,
					 err);
}

/* ---- writing ---- */

/* Settings are changed where they are: what is compared later must not change with them. */
static json_t *issue_copy(const struct issue *row)
{
	_cleanup_json_ json_t *shared = issue_json(row);

	return json_deep_copy(shared);
}

static int note(struct tx *tx, const struct issue_writing *w, const char *action, json_t *details,
		struct error *err)
{
	json_put_str(details, "identifier", w->row.identifier);
	return activity_write_tx(tx, w->now,
				 &(struct activity){ .company_id = w->row.company_id,
						     .actor = w->writer->actor,
						     .action = action,
						     .entity_type = "issue",
						     .entity_id = w->row.id,
						     .details = details },
				 err);
}

/* The company's row is written, so two issues made at once do not get the same number. */
static int next_number(struct tx *tx, struct issue *row, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	if (tx_query(tx, &c, &ISSUE_NEXT_NUMBER, err, B_TEXT(row->company_id)) < 0)
		return -1;
	r = cursor_next(&c, err);
	if (r < 0)
		return -1;
	if (r == 0)
		return error_set(err, ERR_NOT_FOUND, "Company not found");
	row->number = col_int(&c, 0);
	free(row->identifier);
	row->identifier = xasprintf("%s-%lld", col_text(&c, 1), (long long)row->number);
	return 0;
}

static int insert_issue(struct tx *tx, void *arg, struct error *err)
{
	struct issue_writing *w = arg;
	struct issue *row = &w->row;
	_cleanup_json_ json_t *details = json_object(), *after = NULL;

	/* This may run twice: what it adds to the settings is taken back first. */
	patch_object(&row->execution_workspace_settings, w->body, "executionWorkspaceSettings");
	if (!json_object_get(w->body, "executionWorkspaceSettings")) {
		json_decref(row->execution_workspace_settings);
		row->execution_workspace_settings = NULL;
	}
	w->takes_over = false;
	after = issue_copy(row);
	if (company_exists_tx(tx, row->company_id, err) < 0 ||
	    deciding_check(w->writer, DECIDING_ISSUE, NULL, after, err) < 0 ||
	    check_references(tx, w, err) < 0)
		return -1;
	if (id_is_set(row->assignee_agent_id) && take_over_environment(tx, w, "", err) < 0)
		return -1;
	if (check_place(tx, w, NULL, err) < 0)
		return -1;
	note_writers(w, NULL, after);
	if (next_number(tx, row, err) < 0 || row_insert_tx(tx, &ISSUE_INSERT, row, err) < 0)
		return -1;
	json_put_str(details, "title", row->title);
	json_put_str(details, "status", issue_status_name(row->status));
	return note(tx, w, "issue.created", details, err);
}

int issue_create(const struct writer *writer, const char *company_id, const json_t *body,
		 struct issue *out, struct error *err)
{
	struct issue_writing w = { .writer = writer,
				   .body = body,
				   .now = clock_now(writer->clock) };
	int r;

	new_record_id(writer, w.row.id);
	id_copy(w.row.company_id, company_id);
	w.row.priority = ISSUE_PRIORITY_MEDIUM;
	w.row.created_at = w.row.updated_at = w.now;
	r = apply_body(&w.row, body, err);
	if (r == 0)
		r = DB_WRITE(writer->db, "issue.create", insert_issue, &w, err);
	if (r == 0)
		hand_over(out, w.row);
	issue_clear(&w.row);
	return r;
}

static int update_issue(struct tx *tx, void *arg, struct error *err)
{
	struct issue_writing *w = arg;
	struct issue *row = &w->row;
	_cleanup_json_ json_t *details = changed_fields(w->body), *before = NULL, *after = NULL;
	char assignee[ID_SIZE], place[ID_SIZE];

	issue_clear(row);
	w->takes_over = false;
	if (issue_get_tx(tx, w->id, row, err) < 0 || place_before(tx, w, place, err) < 0)
		return -1;
	id_copy(assignee, row->assignee_agent_id);
	before = issue_copy(row);
	if (apply_body(row, w->body, err) < 0)
		return -1;
	after = issue_copy(row);
	if (deciding_check(w->writer, DECIDING_ISSUE, before, after, err) < 0 ||
	    check_references(tx, w, err) < 0 || reassign(tx, w, assignee, err) < 0 ||
	    check_place(tx, w, place, err) < 0)
		return -1;
	note_writers(w, before, after);
	row->updated_at = w->now;
	if (row_update_tx(tx, &ISSUE_UPDATE, row, err) < 0 || sync_workspace(tx, w, err) < 0)
		return -1;
	if (json_str(w->body, "status"))
		json_put_str(details, "status", issue_status_name(row->status));
	return note(tx, w, "issue.updated", details, err);
}

int issue_update(const struct writer *writer, const char *id, const json_t *body, struct issue *out,
		 struct error *err)
{
	struct issue_writing w = {
		.writer = writer, .id = id, .body = body, .now = clock_now(writer->clock)
	};
	int r = DB_WRITE(writer->db, "issue.update", update_issue, &w, err);

	if (r == 0)
		hand_over(out, w.row);
	issue_clear(&w.row);
	return r;
}

/* ---- the workspace it is linked to ---- */

int issue_link_workspace_tx(struct tx *tx, const struct writer *writer, int64_t now, const char *id,
			    const char *workspace_id, struct error *err)
{
	_cleanup_json_ json_t *body = json_object(), *before = NULL, *after = NULL;
	struct issue_writing w = { .writer = writer, .id = id, .body = body, .now = now };
	char place[ID_SIZE];
	int r = -1;

	json_put_str(body, "executionWorkspaceId", workspace_id);
	if (issue_get_tx(tx, id, &w.row, err) < 0)
		return -1;
	if (place_before(tx, &w, place, err) == 0) {
		before = issue_copy(&w.row);
		id_copy(w.row.execution_workspace_id, workspace_id);
		after = issue_copy(&w.row);
		w.row.updated_at = now;
		r = check_place(tx, &w, place, err);
	}
	if (r == 0) {
		note_writers(&w, before, after);
		r = row_update_tx(tx, &ISSUE_UPDATE, &w.row, err) < 0 ? -1 : 0;
	}
	issue_clear(&w.row);
	return r;
}

static int read_linked(struct tx *tx, const char *workspace_id, json_t *trusts, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	json_object_clear(trusts);
	if (tx_query(tx, &c, &ISSUE_LINKED, err, B_TEXT(workspace_id)) < 0)
		return -1;
	while ((r = cursor_next(&c, err)) > 0) {
		json_t *trust;

		if (col_json(&c, 1, "issue trust", &trust, err) < 0)
			return -1;
		json_put_new(trusts, col_text(&c, 0), trust);
	}
	return r;
}

int issue_unlink_workspace_tx(struct tx *tx, const struct actor *actor, int64_t now,
			      const char *workspace_id, struct error *err)
{
	_cleanup_json_ json_t *trusts = json_object();
	const char *id;
	json_t *trust;

	do {
		if (read_linked(tx, workspace_id, trusts, err) < 0)
			return -1;
		json_object_foreach (trusts, id, trust) {
			_cleanup_json_ json_t *changed =
				json_is_object(trust) ? json_deep_copy(trust) : json_object();
			_cleanup_free_ char *text = NULL;

			json_put_str(changed, "executionWorkspaceId",
				     trust_word(actor_trust(actor)));
			text = json_text(changed);
			if (tx_exec(tx, &ISSUE_UNLINK, err, B_TEXT(id), B_TEXT(text), B_INT(now)) <
			    0)
				return -1;
		}
	} while (json_object_size(trusts) > 0);
	return 0;
}

static int delete_issue(struct tx *tx, void *arg, struct error *err)
{
	struct issue_writing *w = arg;
	_cleanup_json_ json_t *details = json_object();

	issue_clear(&w->row);
	if (issue_get_tx(tx, w->id, &w->row, err) < 0 ||
	    unused_check_tx(tx, &ISSUE_USERS, "The issue", w->id, w->row.company_id, err) < 0 ||
	    tx_exec(tx, &ISSUE_DELETE, err, B_TEXT(w->id)) < 0)
		return -1;
	json_put_str(details, "title", w->row.title);
	return note(tx, w, "issue.deleted", details, err);
}

int issue_delete(const struct writer *writer, const char *id, struct issue *removed,
		 struct error *err)
{
	struct issue_writing w = { .writer = writer, .id = id, .now = clock_now(writer->clock) };
	int r = DB_WRITE(writer->db, "issue.delete", delete_issue, &w, err);

	if (r == 0)
		hand_over(removed, w.row);
	issue_clear(&w.row);
	return r;
}

/* ---- which run works on it ---- */

int issue_begin_run_tx(struct tx *tx, int64_t now, const char *run_id, struct error *err)
{
	return tx_exec(tx, &ISSUE_BEGIN_RUN, err, B_TEXT(run_id), B_INT(now)) < 0 ? -1 : 0;
}

int issue_end_run_tx(struct tx *tx, int64_t now, const char *run_id, struct error *err)
{
	return tx_exec(tx, &ISSUE_END_RUN, err, B_TEXT(run_id), B_INT(now)) < 0 ? -1 : 0;
}

/* A run that ended without giving the issue back has it no more. */
static int check_free(struct tx *tx, const struct issue_writing *w, struct error *err)
{
	const char *holder = w->row.checkout_run_id;
	int going;

	if (!id_is_set(holder) || streq(holder, w->run_id))
		return 0;
	going = row_exists_tx(tx, &ISSUE_RUN_UNFINISHED, err, B_TEXT(holder));
	if (going > 0)
		return error_set(err, ERR_CONFLICT, "issue %s is checked out by run %s",
				 w->row.identifier, holder);
	return going;
}

static int check_out(struct tx *tx, void *arg, struct error *err)
{
	struct issue_writing *w = arg;
	struct issue *row = &w->row;
	bool taking = id_is_set(w->run_id);
	_cleanup_json_ json_t *details = json_object();

	issue_clear(row);
	if (issue_get_tx(tx, w->id, row, err) < 0 ||
	    reference_check_tx(tx, &ISSUE_RUN_OF_COMPANY, "Run", w->run_id, row->company_id, err) <
		    0)
		return -1;
	if (taking && check_free(tx, w, err) < 0)
		return -1;
	if (tx_exec(tx, &ISSUE_CHECK_OUT, err, B_TEXT(row->id), B_ID(w->run_id), B_INT(w->now)) < 0)
		return -1;
	id_copy(row->checkout_run_id, w->run_id);
	row->updated_at = w->now;
	json_put_id(details, "checkoutRunId", row->checkout_run_id);
	return note(tx, w, taking ? "issue.checked_out" : "issue.released", details, err);
}

int issue_check_out(const struct writer *writer, const char *id, const char *run_id,
		    struct issue *out, struct error *err)
{
	struct issue_writing w = {
		.writer = writer, .id = id, .run_id = run_id, .now = clock_now(writer->clock)
	};
	int r = DB_WRITE(writer->db, "issue.check_out", check_out, &w, err);

	if (r == 0)
		hand_over(out, w.row);
	issue_clear(&w.row);
	return r;
}

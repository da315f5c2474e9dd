#include "api/answer.h"

#include "base/text.h"
#include "record/select.h"
#include "record/trust.h"
#include "record/workspace.h"

/* What surrounds a workspace that is to be made, and what it takes from there. */
struct surroundings {
	struct project project;
	struct issue issue;
	struct agent assignee;
};

static void surroundings_clear(struct surroundings *s)
{
	project_clear(&s->project);
	issue_clear(&s->issue);
	agent_clear(&s->assignee);
}

/* What is missing or foreign is told when the row is written, where it cannot go away again. */
static void look_around(struct server *server, const json_t *body, const char *company_id,
			struct surroundings *s)
{
	const char *project = json_str(body, "projectId"), *issue = json_str(body, "sourceIssueId");

	if (project && project_get(server->db, project, &s->project, NULL) == 0 &&
	    !streq(s->project.company_id, company_id))
		project_clear(&s->project);
	if (issue && issue_get(server->db, issue, &s->issue, NULL) == 0 &&
	    !streq(s->issue.company_id, company_id))
		issue_clear(&s->issue);
	if (id_is_set(s->issue.assignee_agent_id))
		agent_get(server->db, s->issue.assignee_agent_id, &s->assignee, NULL);
}

/*
 * A workspace keeps the environment it was made for (spec 01 E.9). When nobody has chosen one it
 * keeps none, so that a later choice still counts.
 */
static const char *environment_for(const struct surroundings *s, const char **source)
{
	static const char *const NOBODY = "";
	const char *id = select_environment(
		&(struct selection){
			.issue_settings = s->issue.execution_workspace_settings,
			.project_policy = s->project.execution_workspace_policy,
			.agent_default_id = s->assignee.default_environment_id,
			.default_id = NOBODY,
		},
		source);

	return id == NOBODY ? NULL : id;
}

static json_t *first_metadata(const json_t *body, const struct surroundings *s)
{
	const char *source;
	_cleanup_json_ json_t *snapshot = workspace_snapshot(environment_for(s, &source),
							     s->issue.execution_workspace_settings,
							     s->project.execution_workspace_policy);
	_cleanup_json_ json_t *plain =
		workspace_config_merge(json_object_at(body, "metadata"), NULL);
	_cleanup_json_ json_t *made_for = workspace_config_merge(plain, snapshot);
	const json_t *config = json_object_at(body, "config");

	/* What the body says itself goes over what the surroundings say. */
	return config ? workspace_config_merge(made_for, config) : steal(made_for);
}

/* The writers of what the surroundings give, by the path it gets in the workspace. */
static json_t *writers_around(const json_t *body, const struct surroundings *s)
{
	static const struct {
		const char *in_workspace, *below;
	} COMMANDS[] = {
		{ "config.provisionCommand", "workspaceStrategy.provisionCommand" },
		{ "config.teardownCommand", "workspaceStrategy.teardownCommand" },
		{ "config.workspaceRuntime", "workspaceRuntime" },
	};
	const json_t *issue = s->issue.trust, *project = s->project.trust;
	json_t *writers = json_object();
	enum trust place;
	const char *source;

	environment_for(s, &source);
	place = deciding_trust(issue, "executionWorkspaceSettings.environmentId");
	if (!id_is_set(s->issue.id))
		place = TRUST_LOCAL;
	if (!streq(source, "issue"))
		place = trust_weaker(
			place, deciding_trust(project, "executionWorkspacePolicy.environmentId"));
	if (streq(source, "agent"))
		place = trust_weaker(place,
				     deciding_trust(s->assignee.trust, "defaultEnvironmentId"));
	if (json_state(json_object_at(body, "config"), "environmentId") != JSON_IS_VALUE)
		json_put_str(writers, "config.environmentId", trust_word(place));
	for (size_t i = 0; i < ARRAY_SIZE(COMMANDS); i++) {
		_cleanup_free_ char *of_issue =
			xasprintf("executionWorkspaceSettings.%s", COMMANDS[i].below);
		_cleanup_free_ char *of_project =
			xasprintf("executionWorkspacePolicy.%s", COMMANDS[i].below);
		enum trust writer = deciding_trust(project, of_project);

		if (id_is_set(s->issue.id))
			writer = trust_weaker(writer, deciding_trust(issue, of_issue));
		json_put_str(writers, COMMANDS[i].in_workspace, trust_word(writer));
	}
	return writers;
}

static json_t *make_workspace(struct server *server, struct request *request, const char *id,
			      bool resumed, void *company_id, struct error *err)
{
	const json_t *body = request->body;
	_cleanup_(surroundings_clear) struct surroundings around = { 0 };
	_cleanup_workspace_ struct workspace_record made = { 0 };
	_cleanup_json_ json_t *metadata = NULL, *writers = NULL;
	struct writer writer = writer_of(server, request);
	struct workspace_record wanted = {
		.name = (char *)json_str(body, "name"),
		.mode = (char *)json_str(body, "mode"),
		.strategy_type = (char *)json_str(body, "strategyType"),
		.status = (char *)json_str(body, "status"),
		.cwd = (char *)json_str(body, "cwd"),
		.repo_url = (char *)json_str(body, "repoUrl"),
		.base_ref = (char *)json_str(body, "baseRef"),
		.branch_name = (char *)json_str(body, "branchName"),
		.provider_type = (char *)json_str(body, "providerType"),
		.provider_ref = (char *)json_str(body, "providerRef"),
	};

	if (resumed && workspace_record_get(server->db, id, &made, NULL) == 0)
		return workspace_record_json(&made);
	look_around(server, body, company_id, &around);
	metadata = first_metadata(body, &around);
	wanted.metadata = metadata;
	writers = writers_around(body, &around);
	wanted.trust = writers;
	if (!wanted.mode)
		wanted.mode = (char *)workspace_mode_for_issue(
			issue_mode_wanted(around.issue.execution_workspace_settings,
					  around.project.execution_workspace_policy));
	id_copy(wanted.company_id, company_id);
	id_copy(wanted.project_id, json_str(body, "projectId"));
	id_copy(wanted.source_issue_id, json_str(body, "sourceIssueId"));
	id_copy(wanted.derived_from_id, json_str(body, "derivedFromExecutionWorkspaceId"));
	writer.id = id;
	if (workspace_record_create(&writer, &wanted, &made, err) < 0)
		return NULL;
	return workspace_record_json(&made);
}

/* What the body itself says; what its surroundings give it was judged when it was put there. */
static int create(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_company_ struct company company = { 0 };
	struct writer writer = writer_of(arg, request);

	if (company_of_path(arg, request, &company, err) < 0 ||
	    deciding_check(&writer, DECIDING_WORKSPACE, NULL, request->body, err) < 0)
		return -1;
	return answer_created(arg, request, response, company.id, make_workspace, company.id, err);
}

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };
	struct list_query query;

	if (company_of_path(server, request, &company, err) < 0 ||
	    list_query_of(request, company.id, &query, err) < 0)
		return -1;
	return answer_list(response, &query, workspace_record_list(server->db, &query, err));
}

static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_workspace_ struct workspace_record workspace = { 0 };

	if (workspace_record_get(server->db, request->param[0], &workspace, err) < 0)
		return -1;
	return answer(response, 200, workspace_record_json(&workspace));
}

static int patch(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_workspace_ struct workspace_record changed = { 0 };
	struct writer writer = writer_of(arg, request);

	if (workspace_record_update(&writer, request->param[0], request->body, &changed, err) < 0)
		return -1;
	return answer(response, 200, workspace_record_json(&changed));
}

static int end(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_workspace_ struct workspace_record closed = { 0 };
	struct writer writer = writer_of(arg, request);

	if (workspace_record_close(&writer, request->param[0], &closed, err) < 0)
		return -1;
	return answer(response, 200, workspace_record_json(&closed));
}

static int destroy(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_workspace_ struct workspace_record removed = { 0 };
	struct writer writer = writer_of(arg, request);

	if (workspace_record_delete(&writer, request->param[0], &removed, err) < 0)
		return -1;
	return answer(response, 200, workspace_record_json(&removed));
}

static const struct field NO_FIELDS[] = { { 0 } };
static const struct field LIST_QUERY[] = {
	{ .name = "status", .type = FIELD_STRING, .one_of = workspace_status_names },
	{ .name = "mode", .type = FIELD_STRING, .one_of = execution_mode_names },
	{ .name = "projectId", .type = FIELD_STRING, .max = 36 },
	{ .name = "sourceIssueId", .type = FIELD_STRING, .max = 36 },
	{ .name = "reuseEligible",
	  .type = FIELD_BOOL,
	  .summary = "Only workspaces that runs may still use" },
	LIST_FIELDS,
	{ 0 },
};

ROUTES(WORKSPACE_ROUTES, 40) = {
	{ HTTP_GET, "/api/companies/:cid/execution-workspaces", .access = ACCESS_READ,
	  .subject = SUBJECT_COMPANY, .query = LIST_QUERY, .run = list,
	  .answer = "[ExecutionWorkspace]",
	  .summary = "Workspaces: directories that runs work in" },
	{ HTTP_POST, "/api/companies/:cid/execution-workspaces", .access = ACCESS_WRITE,
	  .subject = SUBJECT_COMPANY, .flags = ROUTE_IDEMPOTENT_KEY, .body = WORKSPACE_FIELDS,
	  .run = create, .answer = "201 ExecutionWorkspace", .errors = "unprocessable",
	  .summary = "A new workspace, with the choices of its issue and project" },
	{ HTTP_GET, "/api/execution-workspaces/:id", .access = ACCESS_READ,
	  .subject = SUBJECT_WORKSPACE, .run = show, .answer = "ExecutionWorkspace",
	  .summary = "One workspace" },
	{ HTTP_PATCH, "/api/execution-workspaces/:id", .access = ACCESS_WRITE,
	  .subject = SUBJECT_WORKSPACE, .body = WORKSPACE_PATCH_FIELDS, .run = patch,
	  .answer = "ExecutionWorkspace", .errors = "conflict unprocessable",
	  .summary = "Changes the fields in the body" },
	{ HTTP_POST, "/api/execution-workspaces/:id/close", .access = ACCESS_WRITE,
	  .subject = SUBJECT_WORKSPACE, .flags = ROUTE_NO_BODY_OK, .body = NO_FIELDS, .run = end,
	  .answer = "ExecutionWorkspace", .errors = "conflict",
	  .summary = "Archives a workspace that nothing uses any more" },
	{ HTTP_DELETE, "/api/execution-workspaces/:id", .access = ACCESS_BOARD,
	  .subject = SUBJECT_WORKSPACE, .run = destroy, .answer = "ExecutionWorkspace",
	  .errors = "conflict", .summary = "Removes a workspace that nothing uses any more" },
	{ 0 },
};

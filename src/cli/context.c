#include "base/text.h"
#include "cli/record.h"
#include "cli/cli.h"

/* Context records: companies, agents, projects, issues, execution workspaces. */

static int company_ls(struct cli *cli, const struct args *args)
{
	static const char *const COLUMNS[] = {
		"ID=id",         "NAME=name",         "PREFIX=issuePrefix",
		"STATUS=status", "CREATED=createdAt", NULL
	};
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *list = NULL;
	_cleanup_api_ struct api *api = NULL;

	(void)args;
	if (api_connect(cli, true, &api, &err) < 0 ||
	    api_call(api, "GET", "/api/companies", NULL, &list, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(list);
	else
		print_table(list, COLUMNS);
	return 0;
}

/* A flag's text under a key of the body; a flag not given adds nothing. */
static void put_flag(const struct args *args, const char *flag, json_t *body, const char *key)
{
	if (args_has(args, flag))
		json_put_str(body, key, args_value(args, flag));
}

static int company_add(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *answer = NULL;
	_cleanup_api_ struct api *api = NULL;

	json_put_str(body, "name", args->positional[0]);
	put_flag(args, "prefix", body, "issuePrefix");
	if (api_connect(cli, true, &api, &err) < 0 ||
	    api_call(api, "POST", "/api/companies", body, &answer, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(answer);
	else
		puts(json_str(answer, "id"));
	return 0;
}

static const struct flag COMPANY_FLAGS[] = {
	{ "prefix", 0, "PREFIX", "what the names of its issues begin with", false },
	{ 0 },
};
VERB(COMPANY_LS, 340) = {
	.name = "company ls", .arguments = "", .summary = "list companies", .run = company_ls
};
VERB(COMPANY_ADD, 341) = { .name = "company add",
			   .arguments = "NAME",
			   .flags = COMPANY_FLAGS,
			   .min_args = 1,
			   .max_args = 1,
			   .summary = "add a company; prints its id",
			   .run = company_add };

/* ---- agents ---- */

static const char *const AGENT_COLUMNS[] = { "ID=id",
					     "NAME=name",
					     "ROLE=role",
					     "STATUS=status",
					     "ADAPTER=adapterType",
					     "ENVIRONMENT=defaultEnvironmentId",
					     NULL };
static const char *const AGENT_FIELDS[] = { "id=id",
					    "name=name",
					    "role=role",
					    "title=title",
					    "status=status",
					    "adapter=adapterType",
					    "adapter config=adapterConfig",
					    "runtime config=runtimeConfig",
					    "permissions=permissions",
					    "environment=defaultEnvironmentId",
					    "created=createdAt",
					    "updated=updatedAt",
					    NULL };
static const char *const AGENT_EDITABLE[] = { "name",
					      "role",
					      "title",
					      "status",
					      "adapterType",
					      "adapterConfig",
					      "runtimeConfig",
					      "permissions",
					      "defaultEnvironmentId",
					      NULL };
static const char *const AGENT_REPLACED[] = { "adapterConfig", "replaceAdapterConfig", NULL };

const struct record_kind AGENT_KIND = { .noun = "agent",
					.segment = "agents",
					.name_key = "name",
					.columns = AGENT_COLUMNS,
					.fields = AGENT_FIELDS,
					.editable = AGENT_EDITABLE,
					.replaced = AGENT_REPLACED };

static int agent_add(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object();
	_cleanup_api_ struct api *api = NULL;
	char company_id[ID_SIZE];

	json_put_str(body, "name", args->positional[0]);
	put_flag(args, "adapter", body, "adapterType");
	put_flag(args, "role", body, "role");
	put_flag(args, "title", body, "title");
	if (args_has(args, "config")) {
		json_t *config = json_argument(args_value(args, "config"), &err);

		if (!config) {
			error_wrap(&err, "--config");
			return cli_fail(cli, &err, 1);
		}
		json_put_new(body, "adapterConfig", config);
	}
	if (record_begin(cli, &api, company_id, &err) < 0 ||
	    record_reference(api, company_id, &ENVIRONMENT_KIND, args, "env", body,
			     "defaultEnvironmentId", &err) < 0)
		return cli_fail(cli, &err, 1);
	return record_add(cli, api, company_id, &AGENT_KIND, body);
}

static const struct flag AGENT_FLAGS[] = {
	{ "env", 0, "NAME",
	  "environment of its runs, unless the run, workspace, issue or project names one", false },
	{ "adapter", 0, "TYPE", "process (default), claude_local, codex_local, ...", false },
	{ "config", 0, "JSON|@FILE", "settings of the adapter", false },
	{ "role", 0, "ROLE", "general (default), engineer, ceo, ...", false },
	{ "title", 0, "TEXT", "for people", false },
	{ 0 },
};
VERB(AGENT_ADD, 360) = { .name = "agent add",
			 .arguments = "NAME",
			 .flags = AGENT_FLAGS,
			 .min_args = 1,
			 .max_args = 1,
			 .summary = "add an agent; prints its id",
			 .run = agent_add };
RECORD_VERBS("agent", "agent", AGENT_KIND, 360);

/* ---- projects ---- */

static const char *const PROJECT_COLUMNS[] = { "ID=id", "NAME=name", "STATUS=status",
					       "ENVIRONMENT=executionWorkspacePolicy.environmentId",
					       NULL };
static const char *const PROJECT_FIELDS[] = { "id=id",
					      "name=name",
					      "status=status",
					      "variables=env",
					      "workspace policy=executionWorkspacePolicy",
					      "created=createdAt",
					      "updated=updatedAt",
					      NULL };
static const char *const PROJECT_EDITABLE[] = { "name", "status", "env", "executionWorkspacePolicy",
						NULL };

const struct record_kind PROJECT_KIND = { .noun = "project",
					  .segment = "projects",
					  .name_key = "name",
					  .columns = PROJECT_COLUMNS,
					  .fields = PROJECT_FIELDS,
					  .editable = PROJECT_EDITABLE };

/* The object at the key if the inner one has anything in it. */
static void put_unless_empty(json_t *body, const char *key, json_t *inner)
{
	if (json_object_size(inner) > 0)
		json_put_ref(body, key, inner);
}

static int project_add(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *policy = json_object();
	_cleanup_api_ struct api *api = NULL;
	char company_id[ID_SIZE];

	json_put_str(body, "name", args->positional[0]);
	put_flag(args, "status", body, "status");
	if (record_begin(cli, &api, company_id, &err) < 0 ||
	    record_reference(api, company_id, &ENVIRONMENT_KIND, args, "env", policy,
			     "environmentId", &err) < 0)
		return cli_fail(cli, &err, 1);
	put_unless_empty(body, "executionWorkspacePolicy", policy);
	return record_add(cli, api, company_id, &PROJECT_KIND, body);
}

static const struct flag PROJECT_FLAGS[] = {
	{ "env", 0, "NAME", "environment of its runs, unless the issue names one", false },
	{ "status", 0, "STATUS", "backlog (default), planned, in_progress, ...", false },
	{ 0 },
};
VERB(PROJECT_ADD, 380) = { .name = "project add",
			   .arguments = "NAME",
			   .flags = PROJECT_FLAGS,
			   .min_args = 1,
			   .max_args = 1,
			   .summary = "add a project; prints its id",
			   .run = project_add };
RECORD_VERBS("project", "project", PROJECT_KIND, 380);

/* ---- issues ---- */

static const char *const ISSUE_COLUMNS[] = { "ISSUE=identifier",  "TITLE=title", "STATUS=status",
					     "PRIORITY=priority", "ID=id",       NULL };
static const char *const ISSUE_FIELDS[] = { "id=id",
					    "issue=identifier",
					    "title=title",
					    "description=description",
					    "status=status",
					    "priority=priority",
					    "project=projectId",
					    "assignee=assigneeAgentId",
					    "run=executionRunId",
					    "checked out by=checkoutRunId",
					    "workspace=executionWorkspaceId",
					    "workspace preference=executionWorkspacePreference",
					    "workspace settings=executionWorkspaceSettings",
					    "created=createdAt",
					    "updated=updatedAt",
					    NULL };
static const char *const ISSUE_EDITABLE[] = { "title",
					      "description",
					      "status",
					      "priority",
					      "projectId",
					      "assigneeAgentId",
					      "executionWorkspaceId",
					      "executionWorkspacePreference",
					      "executionWorkspaceSettings",
					      NULL };

const struct record_kind ISSUE_KIND = { .noun = "issue",
					.segment = "issues",
					.name_key = "title",
					.other_key = "identifier",
					.columns = ISSUE_COLUMNS,
					.fields = ISSUE_FIELDS,
					.editable = ISSUE_EDITABLE };

static int issue_add(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *settings = json_object();
	_cleanup_api_ struct api *api = NULL;
	char company_id[ID_SIZE];

	json_put_str(body, "title", args->positional[0]);
	put_flag(args, "description", body, "description");
	put_flag(args, "status", body, "status");
	put_flag(args, "priority", body, "priority");
	if (record_begin(cli, &api, company_id, &err) < 0 ||
	    record_reference(api, company_id, &PROJECT_KIND, args, "project", body, "projectId",
			     &err) < 0 ||
	    record_reference(api, company_id, &AGENT_KIND, args, "agent", body, "assigneeAgentId",
			     &err) < 0 ||
	    record_reference(api, company_id, &ENVIRONMENT_KIND, args, "env", settings,
			     "environmentId", &err) < 0)
		return cli_fail(cli, &err, 1);
	put_unless_empty(body, "executionWorkspaceSettings", settings);
	return record_add(cli, api, company_id, &ISSUE_KIND, body);
}

static const struct flag ISSUE_FLAGS[] = {
	{ "project", 0, "NAME", "what it belongs to", false },
	{ "agent", 0, "NAME", "who works on it", false },
	{ "env", 0, "NAME", "environment its runs use", false },
	{ "description", 0, "TEXT", "the task in full", false },
	{ "status", 0, "STATUS", "backlog (default), todo, in_progress, ...", false },
	{ "priority", 0, "PRIORITY", "critical, high, medium (default), low", false },
	{ 0 },
};
VERB(ISSUE_ADD, 400) = { .name = "issue add",
			 .arguments = "TITLE",
			 .flags = ISSUE_FLAGS,
			 .min_args = 1,
			 .max_args = 1,
			 .summary = "add an issue; prints its id",
			 .run = issue_add };
RECORD_VERBS("issue", "issue", ISSUE_KIND, 400);

/* ---- execution workspaces ---- */

static const char *const WORKSPACE_COLUMNS[] = { "ID=id",
						 "NAME=name",
						 "MODE=mode",
						 "STATUS=status",
						 "CWD=cwd",
						 "BRANCH=branchName",
						 "ENVIRONMENT=config.environmentId",
						 NULL };
static const char *const WORKSPACE_FIELDS[] = { "id=id",
						"name=name",
						"mode=mode",
						"strategy=strategyType",
						"status=status",
						"project=projectId",
						"issue=sourceIssueId",
						"cwd=cwd",
						"repository=repoUrl",
						"base=baseRef",
						"branch=branchName",
						"config=config",
						"last used=lastUsedAt",
						"closed=closedAt",
						"created=createdAt",
						"updated=updatedAt",
						NULL };
static const char *const WORKSPACE_EDITABLE[] = { "name",        "status",  "cwd",
						  "repoUrl",     "baseRef", "branchName",
						  "providerRef", "config",  NULL };

const struct record_kind WORKSPACE_KIND = { .noun = "workspace",
					    .segment = "execution-workspaces",
					    .name_key = "name",
					    .columns = WORKSPACE_COLUMNS,
					    .fields = WORKSPACE_FIELDS,
					    .editable = WORKSPACE_EDITABLE };

static int workspace_add(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *config = json_object();
	_cleanup_api_ struct api *api = NULL;
	char company_id[ID_SIZE];

	json_put_str(body, "name", args->positional[0]);
	put_flag(args, "mode", body, "mode");
	put_flag(args, "cwd", body, "cwd");
	put_flag(args, "branch", body, "branchName");
	put_flag(args, "provision", config, "provisionCommand");
	if (record_begin(cli, &api, company_id, &err) < 0 ||
	    record_reference(api, company_id, &PROJECT_KIND, args, "project", body, "projectId",
			     &err) < 0 ||
	    record_reference(api, company_id, &ISSUE_KIND, args, "issue", body, "sourceIssueId",
			     &err) < 0 ||
	    record_reference(api, company_id, &ENVIRONMENT_KIND, args, "env", config,
			     "environmentId", &err) < 0)
		return cli_fail(cli, &err, 1);
	put_unless_empty(body, "config", config);
	return record_add(cli, api, company_id, &WORKSPACE_KIND, body);
}

static int workspace_close(struct cli *cli, const struct args *args)
{
	_cleanup_json_ json_t *body = json_object();

	json_put_str(body, "status", "archived");
	return record_patch(cli, args, &WORKSPACE_KIND, body);
}

static const struct flag WORKSPACE_FLAGS[] = {
	{ "project", 0, "NAME", "project it belongs to; required", false },
	{ "issue", 0, "NAME", "the issue it is made for, which is linked to it", false },
	{ "env", 0, "NAME", "environment runs in it use", false },
	{ "cwd", 0, "DIR", "where its files are", false },
	{ "branch", 0, "NAME", "the branch it works on", false },
	{ "mode", 0, "MODE", "workspace mode; default: that of the issue and project", false },
	{ "provision", 0, "COMMAND", "command to run in the place before a run's own command",
	  false },
	{ 0 },
};
VERB(WORKSPACE_ADD, 420) = { .name = "workspace add",
			     .arguments = "NAME",
			     .flags = WORKSPACE_FLAGS,
			     .min_args = 1,
			     .max_args = 1,
			     .summary = "add an execution workspace; prints its id",
			     .run = workspace_add };
RECORD_VERBS("workspace", "workspace", WORKSPACE_KIND, 420);
VERB(WORKSPACE_CLOSE, 424) = { .name = "workspace close",
			       .arguments = "NAME",
			       .min_args = 1,
			       .max_args = 1,
			       .summary = "archive a workspace that nothing uses",
			       .run = workspace_close };

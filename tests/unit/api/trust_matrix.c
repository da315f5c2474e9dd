/*
 * Every writer x every value that decides where or how something runs, and then a run that the
 * operator starts: it is never on this host because of what a weaker writer stored.
 *
 * The server's default environment is Local, so that whatever loses its choice would end there. The
 * rows below are compared with the table of deciding values (record/trust.h), and that table with
 * the bodies of the routes: a new field is in one of the two lists or fails the test.
 */
#include "people.h"

#include <ctype.h>
#include "http/http.h"
#include "record/trust.h"

/* ---- the rows ---- */

/*
 * What the world of a row has, all of it written by the operator. $local and $box are environments
 * (this host, a sandbox); $E is another sandbox; agents $A (box) and $AL (local); projects $P (box)
 * and $PL (local); workspaces $W (box, of project $PL) and $WL (local); issues: $I chooses box in
 * project $PL; $IP is in project $P; $IA is assigned to $A; $IW reuses $W; $IN could reuse $WL and
 * does not. $dir/rc is a script that makes $dir/marker.
 */
enum trusted {
	BOXED,   /* the run names no place: it is in a sandbox, or it does not begin */
	ON_HOST, /* the run names Local: what was written must not take part in it */
	REPEAT,  /* what was written is itself a run: the operator repeats it */
};
struct row {
	enum deciding_record record;
	const char *path; /* as in DECIDING */
	enum trusted trusted;
	const char *to;      /* "PATCH /api/agents/$A" */
	const char *body[5]; /* attempts; quotes are single */
	const char *run;     /* of the operator; NULL for REPEAT */
};

#define COMPANY "/api/companies/$C"
#define PATCH_AGENT "PATCH /api/agents/$A"
#define PATCH_PROJECT "PATCH /api/projects/$P"
#define PATCH_ISSUE "PATCH /api/issues/$I"
#define PATCH_WORKSPACE "PATCH /api/execution-workspaces/$W"
#define PATCH_ENVIRONMENT "PATCH /api/environments/$E"
#define START "POST " COMPANY "/runs"
#define TRUE "'command':['true']"
#define RUN_OF_AGENT "{" TRUE ",'agentId':'$A'}"
#define PROMPT_ON_HOST "{'prompt':'x','agentId':'$A','environmentId':'$local'}"
#define RUN_OF_PROJECT "{" TRUE ",'projectId':'$P','agentId':'$AL'}"
#define BASH_OF_PROJECT "{'command':['bash','-c','true'],'projectId':'$P','environmentId':'$local'}"
#define RUN_OF_ISSUE(id) "{" TRUE ",'issueId':'" id "','agentId':'$AL'}"
#define RUN_IN_WORKSPACE "{" TRUE ",'executionWorkspaceId':'$W','environmentId':'$local'}"
#define POLICY(rest) "{'executionWorkspacePolicy':{'enabled':true" rest "}}"
#define SETTINGS(rest) "{'executionWorkspaceSettings':{" rest "}}"
#define MARK "'touch $dir/marker'"

static const struct row ROWS[] = {
	{ DECIDING_AGENT,
	  "defaultEnvironmentId",
	  BOXED,
	  PATCH_AGENT,
	  { "{'defaultEnvironmentId':'$local'}", "{'defaultEnvironmentId':null}" },
	  RUN_OF_AGENT },
	{ DECIDING_AGENT,
	  "adapterType",
	  ON_HOST,
	  PATCH_AGENT,
	  { "{'adapterType':'codex_local'}" },
	  PROMPT_ON_HOST },
	{ DECIDING_AGENT,
	  "adapterConfig",
	  ON_HOST,
	  PATCH_AGENT,
	  { "{'adapterConfig':{'command':'touch','args':['$dir/marker']}}" },
	  PROMPT_ON_HOST },
	{ DECIDING_AGENT,
	  "adapterConfig.env",
	  ON_HOST,
	  PATCH_AGENT,
	  { "{'adapterConfig':{'env':{'BASH_ENV':'$dir/rc'}}}" },
	  PROMPT_ON_HOST },
	{ DECIDING_AGENT,
	  "runtimeConfig",
	  BOXED,
	  PATCH_AGENT,
	  { "{'runtimeConfig':{'heartbeat':{'maxConcurrentRuns':9}}}" },
	  RUN_OF_AGENT },
	{ DECIDING_AGENT,
	  "permissions",
	  BOXED,
	  PATCH_AGENT,
	  { "{'permissions':{'canCreateAgents':true}}" },
	  RUN_OF_AGENT },
	{ DECIDING_AGENT, "role", BOXED, PATCH_AGENT, { "{'role':'ceo'}" }, RUN_OF_AGENT },

	{ DECIDING_PROJECT,
	  "executionWorkspacePolicy.environmentId",
	  BOXED,
	  PATCH_PROJECT,
	  { POLICY(",'environmentId':'$local'"), POLICY(",'environmentId':null"), POLICY(""),
	    "{'executionWorkspacePolicy':null}" },
	  RUN_OF_PROJECT },
	{ DECIDING_PROJECT,
	  "executionWorkspacePolicy.workspaceStrategy.provisionCommand",
	  ON_HOST,
	  PATCH_PROJECT,
	  { POLICY(",'environmentId':'$box','workspaceStrategy':{'provisionCommand':" MARK "}") },
	  BASH_OF_PROJECT },
	{ DECIDING_PROJECT,
	  "executionWorkspacePolicy.workspaceStrategy.teardownCommand",
	  ON_HOST,
	  PATCH_PROJECT,
	  { POLICY(",'environmentId':'$box','workspaceStrategy':{'teardownCommand':" MARK "}") },
	  BASH_OF_PROJECT },
	{ DECIDING_PROJECT,
	  "executionWorkspacePolicy.workspaceRuntime",
	  ON_HOST,
	  PATCH_PROJECT,
	  { POLICY(",'environmentId':'$box','workspaceRuntime':{'x':" MARK "}") },
	  BASH_OF_PROJECT },
	{ DECIDING_PROJECT,
	  "env",
	  ON_HOST,
	  PATCH_PROJECT,
	  { "{'env':{'BASH_ENV':'$dir/rc'}}", "{'env':{'PATH':'$dir','LD_PRELOAD':'$dir/rc'}}" },
	  BASH_OF_PROJECT },

	{ DECIDING_ISSUE,
	  "executionWorkspaceSettings.environmentId",
	  BOXED,
	  PATCH_ISSUE,
	  { SETTINGS("'environmentId':'$local'"), SETTINGS("'environmentId':null"), SETTINGS(""),
	    "{'executionWorkspaceSettings':null}" },
	  RUN_OF_ISSUE("$I") },
	{ DECIDING_ISSUE,
	  "executionWorkspaceSettings.workspaceStrategy.provisionCommand",
	  BOXED,
	  PATCH_ISSUE,
	  { SETTINGS("'environmentId':'$box','workspaceStrategy':{'provisionCommand':" MARK "}") },
	  RUN_OF_ISSUE("$I") },
	{ DECIDING_ISSUE,
	  "executionWorkspaceSettings.workspaceStrategy.teardownCommand",
	  BOXED,
	  PATCH_ISSUE,
	  { SETTINGS("'environmentId':'$box','workspaceStrategy':{'teardownCommand':" MARK "}") },
	  RUN_OF_ISSUE("$I") },
	{ DECIDING_ISSUE,
	  "executionWorkspaceSettings.workspaceRuntime",
	  BOXED,
	  PATCH_ISSUE,
	  { SETTINGS("'environmentId':'$box','workspaceRuntime':{'x':" MARK "}") },
	  RUN_OF_ISSUE("$I") },
	{ DECIDING_ISSUE,
	  "projectId",
	  BOXED,
	  "PATCH /api/issues/$IP",
	  { "{'projectId':'$PL'}", "{'projectId':null}" },
	  RUN_OF_ISSUE("$IP") },
	{ DECIDING_ISSUE,
	  "assigneeAgentId",
	  BOXED,
	  "PATCH /api/issues/$IA",
	  { "{'assigneeAgentId':'$AL'}", "{'assigneeAgentId':null}" },
	  "{" TRUE ",'issueId':'$IA','agentId':'$A'}" },
	{ DECIDING_ISSUE,
	  "executionWorkspaceId",
	  BOXED,
	  "PATCH /api/issues/$IW",
	  { "{'executionWorkspaceId':'$WL'}", "{'executionWorkspaceId':null}" },
	  RUN_OF_ISSUE("$IW") },
	{ DECIDING_ISSUE,
	  "executionWorkspacePreference",
	  BOXED,
	  "PATCH /api/issues/$IW",
	  { "{'executionWorkspacePreference':null}", "{'executionWorkspacePreference':'inherit'}" },
	  RUN_OF_ISSUE("$IW") },
	{ DECIDING_ISSUE,
	  "executionWorkspacePreference",
	  BOXED,
	  "PATCH /api/issues/$IN",
	  { "{'executionWorkspacePreference':'reuse_existing'}" },
	  RUN_OF_ISSUE("$IN") },

	{ DECIDING_WORKSPACE,
	  "config.environmentId",
	  BOXED,
	  PATCH_WORKSPACE,
	  { "{'config':{'environmentId':'$local'}}", "{'config':{'environmentId':null}}",
	    "{'config':null}" },
	  RUN_OF_ISSUE("$IW") },
	{ DECIDING_WORKSPACE,
	  "config.provisionCommand",
	  ON_HOST,
	  PATCH_WORKSPACE,
	  { "{'config':{'provisionCommand':" MARK "}}" },
	  RUN_IN_WORKSPACE },
	{ DECIDING_WORKSPACE,
	  "config.teardownCommand",
	  ON_HOST,
	  PATCH_WORKSPACE,
	  { "{'config':{'teardownCommand':" MARK "}}" },
	  RUN_IN_WORKSPACE },
	{ DECIDING_WORKSPACE,
	  "config.cleanupCommand",
	  ON_HOST,
	  PATCH_WORKSPACE,
	  { "{'config':{'cleanupCommand':" MARK "}}" },
	  RUN_IN_WORKSPACE },
	{ DECIDING_WORKSPACE,
	  "config.workspaceRuntime",
	  ON_HOST,
	  PATCH_WORKSPACE,
	  { "{'config':{'workspaceRuntime':{'x':" MARK "}}}" },
	  RUN_IN_WORKSPACE },
	{ DECIDING_WORKSPACE,
	  "cwd",
	  ON_HOST,
	  PATCH_WORKSPACE,
	  { "{'cwd':'/etc'}" },
	  "{'command':['sh','-c','test `pwd` != /etc || touch $dir/marker'],"
	  "'executionWorkspaceId':'$W','environmentId':'$local'}" },
	{ DECIDING_WORKSPACE,
	  "status",
	  BOXED,
	  PATCH_WORKSPACE,
	  { "{'status':'archived'}", "{'status':'cleanup_failed'}" },
	  RUN_OF_ISSUE("$IW") },
	{ DECIDING_WORKSPACE,
	  "sourceIssueId",
	  BOXED,
	  "POST " COMPANY "/execution-workspaces",
	  { "{'name':'n','projectId':'$PL','sourceIssueId':'$IW'}",
	    "{'name':'n','projectId':'$PL','sourceIssueId':'$IW','config':{'environmentId':'$local'"
	    "}}" },
	  RUN_OF_ISSUE("$IW") },

	{ DECIDING_ENVIRONMENT,
	  "name",
	  BOXED,
	  "PATCH /api/environments/$local",
	  { "{'name':'Elsewhere'}" },
	  "{" TRUE ",'environmentId':'$E'}" },
	{ DECIDING_ENVIRONMENT,
	  "driver",
	  BOXED,
	  PATCH_ENVIRONMENT,
	  { "{'driver':'local'}" },
	  "{" TRUE ",'environmentId':'$E'}" },
	{ DECIDING_ENVIRONMENT,
	  "status",
	  BOXED,
	  PATCH_ENVIRONMENT,
	  { "{'status':'archived'}" },
	  "{" TRUE ",'environmentId':'$E'}" },
	{ DECIDING_ENVIRONMENT,
	  "config",
	  BOXED,
	  PATCH_ENVIRONMENT,
	  { "{'config':{'image':'other'}}" },
	  "{" TRUE ",'environmentId':'$E'}" },
	{ DECIDING_ENVIRONMENT,
	  "metadata",
	  BOXED,
	  PATCH_ENVIRONMENT,
	  { "{'metadata':{'driver':'local'}}" },
	  "{" TRUE ",'environmentId':'$E'}" },

	/* the same by making a record; $new is what was made */
	{ DECIDING_AGENT,
	  "defaultEnvironmentId",
	  BOXED,
	  "POST " COMPANY "/agents",
	  { "{'name':'n','defaultEnvironmentId':'$local'}", "{'name':'n'}" },
	  "{" TRUE ",'agentId':'$new'}" },
	{ DECIDING_AGENT,
	  "adapterConfig",
	  ON_HOST,
	  "POST " COMPANY "/agents",
	  { "{'name':'n','adapterConfig':{'command':'touch','args':['$dir/marker']}}" },
	  "{'prompt':'x','agentId':'$new','environmentId':'$local'}" },
	{ DECIDING_PROJECT,
	  "executionWorkspacePolicy.environmentId",
	  BOXED,
	  "POST " COMPANY "/projects",
	  { "{'name':'n','executionWorkspacePolicy':{'environmentId':'$local'}}", "{'name':'n'}",
	    "{'name':'n','executionWorkspacePolicy':{'environmentId':null}}" },
	  "{" TRUE ",'projectId':'$new','agentId':'$AL'}" },
	{ DECIDING_PROJECT,
	  "env",
	  ON_HOST,
	  "POST " COMPANY "/projects",
	  { "{'name':'n','env':{'BASH_ENV':'$dir/rc'}}" },
	  "{'command':['bash','-c','true'],'projectId':'$new','environmentId':'$local'}" },
	{ DECIDING_ISSUE,
	  "executionWorkspaceSettings.environmentId",
	  BOXED,
	  "POST " COMPANY "/issues",
	  { "{'title':'n','executionWorkspaceSettings':{'environmentId':'$local'}}",
	    "{'title':'n'}" },
	  RUN_OF_ISSUE("$new") },
	{ DECIDING_ISSUE,
	  "projectId",
	  BOXED,
	  "POST " COMPANY "/issues",
	  { "{'title':'n','projectId':'$PL'}" },
	  RUN_OF_ISSUE("$new") },
	{ DECIDING_ISSUE,
	  "assigneeAgentId",
	  BOXED,
	  "POST " COMPANY "/issues",
	  { "{'title':'n','assigneeAgentId':'$AL'}" },
	  RUN_OF_ISSUE("$new") },
	{ DECIDING_ISSUE,
	  "executionWorkspaceId",
	  BOXED,
	  "POST " COMPANY "/issues",
	  { "{'title':'n','executionWorkspaceId':'$WL',"
	    "'executionWorkspacePreference':'reuse_existing'}" },
	  RUN_OF_ISSUE("$new") },
	{ DECIDING_WORKSPACE,
	  "config.environmentId",
	  BOXED,
	  "POST " COMPANY "/execution-workspaces",
	  { "{'name':'n','projectId':'$P','config':{'environmentId':'$local'}}",
	    "{'name':'n','projectId':'$PL'}",
	    "{'name':'n','projectId':'$P','config':{'environmentId':null}}" },
	  "{" TRUE ",'executionWorkspaceId':'$new','agentId':'$AL'}" },
	{ DECIDING_WORKSPACE,
	  "cwd",
	  ON_HOST,
	  "POST " COMPANY "/execution-workspaces",
	  { "{'name':'n','projectId':'$P','cwd':'/etc'}" },
	  "{" TRUE ",'executionWorkspaceId':'$new','environmentId':'$local'}" },
	{ DECIDING_ENVIRONMENT,
	  "driver",
	  BOXED,
	  "POST " COMPANY "/environments",
	  { "{'name':'n','driver':'local'}" },
	  "{" TRUE ",'environmentId':'$new'}" },

	{ DECIDING_RUN,
	  "environmentId",
	  REPEAT,
	  START,
	  { "{" TRUE ",'agentId':'$own','environmentId':'$local'}",
	    "{" TRUE ",'agentId':'$own','environmentId':null}",
	    "{" TRUE ",'agentId':'$own','environment':'$local'}",
	    "{" TRUE ",'agentId':'$own','environment':null}" },
	  NULL },
	{ DECIDING_RUN, "agentId", REPEAT, START, { "{" TRUE ",'agentId':'$AL'}" }, NULL },
	{ DECIDING_RUN,
	  "projectId",
	  REPEAT,
	  START,
	  { "{" TRUE ",'agentId':'$own','projectId':'$PL'}" },
	  NULL },
	{ DECIDING_RUN,
	  "issueId",
	  REPEAT,
	  START,
	  { "{" TRUE ",'agentId':'$own','issueId':'$IL'}" },
	  NULL },
	{ DECIDING_RUN,
	  "executionWorkspaceId",
	  REPEAT,
	  START,
	  { "{" TRUE ",'agentId':'$own','executionWorkspaceId':'$WL'}" },
	  NULL },
};

/* What of the same bodies decides nothing about a place, each for a reason. */
static const struct {
	enum deciding_record record;
	const char *path;
} HARMLESS[] = {
	/* names and texts for people, states of the work */
	{ DECIDING_AGENT, "name" },
	{ DECIDING_AGENT, "title" },
	{ DECIDING_AGENT, "status" },
	{ DECIDING_AGENT, "replaceAdapterConfig" }, /* says what becomes of adapterConfig */
	{ DECIDING_PROJECT, "name" },
	{ DECIDING_PROJECT, "status" },
	{ DECIDING_ISSUE, "title" },
	{ DECIDING_ISSUE, "description" },
	{ DECIDING_ISSUE, "status" },
	{ DECIDING_ISSUE, "priority" },
	{ DECIDING_WORKSPACE, "name" },
	{ DECIDING_ENVIRONMENT, "description" },
	{ DECIDING_ENVIRONMENT, "replaceConfig" }, /* says what becomes of config */
	/* how a workspace is made; which of them are commands is named in DECIDING */
	{ DECIDING_PROJECT, "executionWorkspacePolicy.enabled" },
	{ DECIDING_PROJECT, "executionWorkspacePolicy.defaultMode" },
	{ DECIDING_PROJECT, "executionWorkspacePolicy.allowIssueOverride" },
	{ DECIDING_PROJECT, "executionWorkspacePolicy.defaultProjectWorkspaceId" },
	{ DECIDING_PROJECT, "executionWorkspacePolicy.workspaceStrategy" },
	{ DECIDING_PROJECT, "executionWorkspacePolicy.branchPolicy" },
	{ DECIDING_PROJECT, "executionWorkspacePolicy.pullRequestPolicy" },
	{ DECIDING_PROJECT, "executionWorkspacePolicy.runtimePolicy" },
	{ DECIDING_PROJECT, "executionWorkspacePolicy.cleanupPolicy" },
	{ DECIDING_ISSUE, "executionWorkspaceSettings.mode" },
	{ DECIDING_ISSUE, "executionWorkspaceSettings.workspaceStrategy" },
	{ DECIDING_WORKSPACE, "config.desiredState" },
	{ DECIDING_WORKSPACE, "config.serviceStates" },
	{ DECIDING_WORKSPACE, "mode" },
	{ DECIDING_WORKSPACE, "strategyType" },
	{ DECIDING_WORKSPACE, "providerType" },
	{ DECIDING_WORKSPACE, "providerRef" },
	{ DECIDING_WORKSPACE, "projectId" },
	{ DECIDING_WORKSPACE, "derivedFromExecutionWorkspaceId" },
	{ DECIDING_WORKSPACE, "metadata" }, /* the config in it stays as it is */
	/* nothing is done with them yet */
	{ DECIDING_WORKSPACE, "repoUrl" },
	{ DECIDING_WORKSPACE, "baseRef" },
	{ DECIDING_WORKSPACE, "branchName" },
	/* It becomes environmentId before anything is judged (api_access.c), or leaves files out. */
	{ DECIDING_RUN, "environment" },
	{ DECIDING_RUN, "workspaceIfSandbox" },
	/* of the starter, whose trust the run has */
	{ DECIDING_RUN, "command" },
	{ DECIDING_RUN, "prompt" },
	{ DECIDING_RUN, "adapterType" },
	{ DECIDING_RUN, "adapterConfig" },
	{ DECIDING_RUN, "cwd" },
	{ DECIDING_RUN, "env" },
	{ DECIDING_RUN, "stdin" },
	{ DECIDING_RUN, "stdinEncoding" },
	{ DECIDING_RUN, "stdinStream" },
	{ DECIDING_RUN, "tty" },
	{ DECIDING_RUN, "workspace" },
	{ DECIDING_RUN, "policy" },
	{ DECIDING_RUN, "leasePolicy" },
	{ DECIDING_RUN, "retainSeconds" },
	{ DECIDING_RUN, "timeoutMs" },
};

static const struct {
	const char *path;
	enum deciding_record record;
} BODIES[] = {
	{ "/api/companies/:cid/agents", DECIDING_AGENT },
	{ "/api/agents/:id", DECIDING_AGENT },
	{ "/api/companies/:cid/projects", DECIDING_PROJECT },
	{ "/api/projects/:id", DECIDING_PROJECT },
	{ "/api/companies/:cid/issues", DECIDING_ISSUE },
	{ "/api/issues/:id", DECIDING_ISSUE },
	{ "/api/companies/:cid/execution-workspaces", DECIDING_WORKSPACE },
	{ "/api/execution-workspaces/:id", DECIDING_WORKSPACE },
	{ "/api/companies/:cid/environments", DECIDING_ENVIRONMENT },
	{ "/api/environments/:id", DECIDING_ENVIRONMENT },
	{ "/api/companies/:cid/runs", DECIDING_RUN },
};

/* ---- every field is in a list ---- */

static bool is_deciding(enum deciding_record record, const char *path)
{
	for (const struct deciding *d = DECIDING; d->path; d++)
		if (d->record == record && streq(d->path, path))
			return true;
	return false;
}

static bool is_harmless(enum deciding_record record, const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(HARMLESS); i++)
		if (HARMLESS[i].record == record && streq(HARMLESS[i].path, path))
			return true;
	return false;
}

static void look_at_fields(const struct route *route, enum deciding_record record,
			   const struct field *fields, const char *above, struct buf *wrong)
{
	for (const struct field *f = fields; f && f->name; f++) {
		_cleanup_free_ char *path =
			xasprintf("%s%s%s", above, above[0] ? "." : "", f->name);

		if (is_deciding(record, path) || is_harmless(record, path))
			continue;
		if (f->type == FIELD_OBJECT && f->fields) {
			look_at_fields(route, record, f->fields, path, wrong);
			continue;
		}
		buf_printf(wrong, "%s: nobody has said whether %s decides where something runs\n",
			   route->path, path);
	}
}

static void every_field_of_a_deciding_record_is_in_a_list(void **state)
{
	_cleanup_buf_ struct buf wrong = { 0 };
	size_t looked_at = 0;

	(void)state;
	for (size_t t = 0; route_table_at(t); t++)
		for (const struct route *route = route_table_at(t); route->path; route++)
			for (size_t i = 0; route->body && i < ARRAY_SIZE(BODIES); i++) {
				if (!streq(route->path, BODIES[i].path))
					continue;
				looked_at++;
				look_at_fields(route, BODIES[i].record, route->body, "", &wrong);
			}
	for (const struct deciding *d = DECIDING; d->path; d++) {
		bool tried = false;

		for (size_t i = 0; i < ARRAY_SIZE(ROWS); i++)
			tried |= ROWS[i].record == d->record && streq(ROWS[i].path, d->path);
		if (!tried)
			buf_printf(&wrong, "no row of the matrix tries %s\n", d->path);
	}
	assert_true(looked_at >= ARRAY_SIZE(BODIES));
	if (wrong.len)
		fputs(buf_str(&wrong), stderr);
	assert_int_equal(wrong.len, 0);
}

/* ---- the world of a row ---- */

struct world {
	struct people *p;
	json_t *names; /* {"A": id, ...} */
	unsigned made;
};

/* $names become values, single quotes double ones. */
static char *written(const struct world *w, const char *text)
{
	_cleanup_buf_ struct buf out = { 0 };

	for (const char *at = text; *at;) {
		char name[16];
		size_t len = 0;

		if (*at != '$') {
			buf_putc(&out, *at == '\'' ? '"' : *at);
			at++;
			continue;
		}
		for (at++; isalpha((unsigned char)*at) && len + 1 < sizeof(name); at++)
			name[len++] = *at;
		name[len] = '\0';
		if (!json_str(w->names, name))
			fail_msg("$%s is not there", name);
		buf_puts(&out, json_str(w->names, name));
	}
	return buf_steal(&out);
}

static void make(struct world *w, const char *name, const char *path_text, const char *body_text)
{
	_cleanup_free_ char *body = written(w, body_text);
	_cleanup_free_ char *full = written(w, path_text);
	char id[ID_SIZE];

	take_id(post(&w->p->api, 201, full, body), id);
	json_put_str(w->names, name, id);
}

static void make_records(struct world *w)
{
	_cleanup_free_ char *environment = xasprintf(
		"{'name':'e%u','driver':'sandbox','config':{'provider':'fake'}}", w->made++);

	make(w, "E", COMPANY "/environments", environment);
	make(w, "A", COMPANY "/agents",
	     "{'name':'a','adapterConfig':{'command':'true'},'defaultEnvironmentId':'$box'}");
	make(w, "AL", COMPANY "/agents", "{'name':'al','defaultEnvironmentId':'$local'}");
	make(w, "P", COMPANY "/projects",
	     "{'name':'p','executionWorkspacePolicy':{'environmentId':'$box'}}");
	make(w, "PL", COMPANY "/projects",
	     "{'name':'pl','executionWorkspacePolicy':{'environmentId':'$local'}}");
	make(w, "W", COMPANY "/execution-workspaces",
	     "{'name':'w','projectId':'$PL','cwd':'/tmp','config':{'environmentId':'$box'}}");
	make(w, "WL", COMPANY "/execution-workspaces",
	     "{'name':'wl','projectId':'$P','cwd':'/tmp','config':{'environmentId':'$local'}}");
	make(w, "I", COMPANY "/issues",
	     "{'title':'i','projectId':'$PL','executionWorkspaceSettings':{'environmentId':'$box'}"
	     "}");
	make(w, "IL", COMPANY "/issues", "{'title':'il','projectId':'$PL'}");
	make(w, "IP", COMPANY "/issues", "{'title':'ip','projectId':'$P'}");
	make(w, "IA", COMPANY "/issues", "{'title':'ia','assigneeAgentId':'$A'}");
	make(w, "IW", COMPANY "/issues",
	     "{'title':'iw','projectId':'$PL','executionWorkspaceId':'$W',"
	     "'executionWorkspacePreference':'reuse_existing'}");
	make(w, "IN", COMPANY "/issues",
	     "{'title':'in','projectId':'$P','executionWorkspaceId':'$WL'}");
}

static void find_environments(struct world *w)
{
	PATH("/api/companies/%s/environments", w->p->ours.company);
	_cleanup_json_ json_t *list = get(&w->p->api, path);
	json_t *item;
	size_t i;

	json_array_foreach (list, i, item)
		if (str_equal(json_str(item, "driver"), "local"))
			json_put_str(w->names, "local", json_str(item, "id"));
	json_put_str(w->names, "box", w->p->ours.environment);
	json_put_str(w->names, "C", w->p->ours.company);
	json_put_str(w->names, "dir", w->p->api.dir);
}

static void write_script(const struct world *w)
{
	_cleanup_free_ char *path = written(w, "$dir/rc");
	_cleanup_free_ char *text = written(w, "touch $dir/marker\n");
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* ---- a run, and where it was ---- */

/* "host", "box", or why it did not begin. */
static const char *outcome_of(struct people *p, const char *id, struct buf *why)
{
	PATH("/api/runs/%s", id);
	_cleanup_json_ json_t *run = NULL;
	const char *driver;

	WAIT_FOR(({
		json_decref(run);
		run = get(&p->api, path);
		json_str(run, "finishedAt") != NULL;
	}));
	driver = json_str(json_object_at(json_object_at(run, "context"), "paperclipEnvironment"),
			  "driver");
	buf_reset(why);
	buf_puts(why, json_str(run, "error") ? json_str(run, "error") : "");
	if (!driver)
		return "stopped";
	return streq(driver, "local") ? "HOST" : "box";
}

static const char *run_by_operator(struct world *w, const char *path_text, const char *body_text,
				   struct buf *why)
{
	_cleanup_free_ char *path = written(w, path_text);
	_cleanup_free_ char *body = body_text ? written(w, body_text) : NULL;
	char id[ID_SIZE];

	take_id(post(&w->p->api, 201, path, body), id);
	return outcome_of(w->p, id, why);
}

static bool take_marker(const struct world *w)
{
	_cleanup_free_ char *path = written(w, "$dir/marker");

	return unlink(path) == 0;
}

/* ---- the matrix ---- */

#define MEMBER SUSPENDED /* whose membership is changed for this test */
static const struct {
	enum who who;
	const char *name;
} WRITERS[] = {
	{ OWNER, "owner" },   { ADMIN, "admin" }, { OPERATOR, "operator" }, { MEMBER, "member" },
	{ VIEWER, "viewer" }, { AGENT, "agent" }, { RUN, "run token" },     { CREATOR, "lead" },
};

static const char *id_of_caller(struct people *p, enum who who, char out[ID_SIZE])
{
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_json_ json_t *me = NULL;

	ask(p, who, CALL("GET", "/api/me"), &text);
	me = json_parse(buf_str(&text), text.len, NULL);
	id_copy(out, json_str(me, "agentId"));
	return out[0] ? out : p->ours.agent;
}

/* What came of one attempt. *taken: the write was accepted. */
static const char *attempt(struct world *w, const struct row *row, const char *body_text,
			   enum who who, bool *taken, struct buf *why)
{
	const char *space = strchr(row->to, ' ');
	_cleanup_free_ char *method = xstrndup(row->to, (size_t)(space - row->to));
	_cleanup_free_ char *path = written(w, space + 1), *body = NULL;
	_cleanup_buf_ struct buf answer = { 0 };
	_cleanup_json_ json_t *made = NULL;
	char caller[ID_SIZE];
	int status;

	json_put_str(w->names, "own", id_of_caller(w->p, who, caller));
	body = written(w, body_text);
	status = ask(w->p, who, CALL(method, path, body), &answer);
	*taken = status < 300;
	buf_reset(why);
	buf_puts(why, buf_str(&answer));
	if (status == 403)
		return "403";
	if (!*taken)
		return status == 422 ? "422" : status == 409 ? "409" : "???";
	made = json_parse(buf_str(&answer), answer.len, NULL);
	json_put_str(w->names, "new", json_str(made, "id"));
	if (row->trusted != REPEAT)
		return run_by_operator(w, COMPANY "/runs", row->run, why);

	_cleanup_free_ char *retry = xasprintf("/api/runs/%s/retry", json_str(made, "id"));
	const char *first = outcome_of(w->p, json_str(made, "id"), why);

	return streq(first, "HOST") ? first : run_by_operator(w, retry, NULL, why);
}

/*
 * On the host because the operator named it is right where the written value has no part in such a
 * run. An agent's command and a workspace's directory would be the run itself.
 */
static const char *judged(const struct row *row, const char *outcome)
{
	bool decides = streq(row->path, "adapterType") || streq(row->path, "adapterConfig") ||
		       streq(row->path, "adapterConfig.env") || streq(row->path, "cwd");

	return streq(outcome, "HOST") && row->trusted == ON_HOST && !decides ? "left out" : outcome;
}

static void try_row(struct world *w, const struct row *row, size_t n, struct buf *wrong)
{
	static const char *const RECORDS[] = { "agent",     "project",     "issue",
					       "workspace", "environment", "run" };
	_cleanup_free_ char *label =
		xasprintf("%.5s %s %s", row->to, RECORDS[row->record], row->path);

	printf("%-78s", n ? "" : label);
	for (size_t i = 0; i < ARRAY_SIZE(WRITERS); i++) {
		_cleanup_buf_ struct buf why = { 0 };
		bool taken = false;
		const char *outcome =
			judged(row, attempt(w, row, row->body[n], WRITERS[i].who, &taken, &why));
		bool marked = take_marker(w);

		/* Who may not use this host does not get as far as choosing it. */
		bool chose = row->trusted != ON_HOST && strstr(row->body[n], "$local") &&
			     !streq(outcome, "403");

		printf(" %-9s", outcome);
		if (marked || chose || streq(outcome, "HOST") || streq(outcome, "???"))
			buf_printf(wrong, "%s %s by %s: %s %s\n", row->to, row->body[n],
				   WRITERS[i].name, outcome, buf_str(&why));
		if (taken)
			make_records(w);
	}
	printf("\n");
}

static void what_a_weaker_writer_stored_never_takes_a_trusted_run_to_the_host(void **state)
{
	struct people *p = *state;
	_cleanup_json_ json_t *names = json_object();
	_cleanup_buf_ struct buf wrong = { 0 };
	struct world w = { .p = p, .names = names };
	PATH("/api/companies/%s/members/user/%s", p->ours.company, p->user[MEMBER]);

	json_decref(call_json(&p->api, 200,
			      CALL("PUT", path, "{\"role\": \"member\", \"status\": \"active\"}")));
	find_environments(&w);
	write_script(&w);
	make_records(&w);
	printf("%-78s", "");
	for (size_t i = 0; i < ARRAY_SIZE(WRITERS); i++)
		printf(" %-9s", WRITERS[i].name);
	printf("\n");
	for (size_t i = 0; i < ARRAY_SIZE(ROWS); i++)
		for (size_t n = 0; n < ARRAY_SIZE(ROWS[i].body) && ROWS[i].body[n]; n++)
			try_row(&w, &ROWS[i], n, &wrong);
	if (wrong.len)
		fputs(buf_str(&wrong), stderr);
	assert_int_equal(wrong.len, 0);
}

/* ---- agents who make agents ---- */

static void an_agent_gives_those_it_makes_nothing_wider_than_it_has(void **state)
{
	static const struct {
		const char *wanted; /* of the new agent */
		const char *refused;
	} TRIES[] = {
		{ "{'name':'n'}", NULL },
		{ "{'name':'n','adapterConfig':{'command':'true','model':'m'}}", NULL },
		{ "{'name':'n','permissions':{'canCreateAgents':true}}", NULL },
		{ "{'name':'n','defaultEnvironmentId':'$box'}", NULL },
		{ "{'name':'n','defaultEnvironmentId':'$E'}", "defaultEnvironmentId" },
		{ "{'name':'n','defaultEnvironmentId':'$local'}", "defaultEnvironmentId" },
		{ "{'name':'n','adapterType':'codex_local'}", "adapterType" },
		{ "{'name':'n','adapterConfig':{'command':'sh'}}", "adapterConfig" },
		{ "{'name':'n','adapterConfig':{'command':'true','args':['x']}}", "adapterConfig" },
		{ "{'name':'n','adapterConfig':{'env':{'PATH':'/x'}}}", "adapterConfig.env" },
		{ "{'name':'n','runtimeConfig':{'heartbeat':{'maxConcurrentRuns':9}}}",
		  "runtimeConfig" },
	};
	struct people *p = *state;
	_cleanup_json_ json_t *names = json_object(), *made = NULL;
	struct world w = { .p = p, .names = names };
	char lead[ID_SIZE];

	find_environments(&w);
	make_records(&w);
	json_put_str(names, "lead", id_of_caller(p, CREATOR, lead));

	_cleanup_free_ char *path = written(&w, "/api/agents/$lead");
	_cleanup_free_ char *own =
		written(&w, "{'defaultEnvironmentId':'$box','adapterConfig':{'command':'true'}}");
	_cleanup_free_ char *agents = written(&w, COMPANY "/agents");

	json_decref(call_json(&p->api, 200, CALL("PATCH", path, own)));
	for (size_t i = 0; i < ARRAY_SIZE(TRIES); i++) {
		_cleanup_free_ char *body = written(&w, TRIES[i].wanted);
		struct call call = {
			.method = "POST", .path = agents, .body = body, .token = p->token[CREATOR]
		};

		if (TRIES[i].refused) {
			refused(&p->api, 403, "forbidden", TRIES[i].refused, &call);
			continue;
		}
		json_decref(made);
		made = call_json(&p->api, 201, &call);
		/* One that is told nothing has what its maker has, not what the company has. */
		assert_string_equal(json_str(made, "defaultEnvironmentId"), p->ours.environment);
	}
}

static void an_agent_makes_closed_places_only_and_changes_none(void **state)
{
	static const char *const OPEN[] = { "'network':'host'", "'user':'root'",
					    "'root':'/srv/root'",
					    "'mounts':[{'source':'/tmp','target':'/x'}]" };
	struct people *p = *state;
	_cleanup_json_ json_t *names = json_object();
	struct world w = { .p = p, .names = names };

	find_environments(&w);
	make_records(&w);

	_cleanup_free_ char *path = written(&w, COMPANY "/environments");
	_cleanup_free_ char *mine = NULL;
	_cleanup_buf_ struct buf out = { 0 };
	_cleanup_json_ json_t *made = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(OPEN); i++) {
		_cleanup_free_ char *text = xasprintf(
			"{'name':'o','driver':'sandbox','config':{'provider':'native',%s}}",
			OPEN[i]);
		_cleanup_free_ char *body = written(&w, text);

		assert_asked(p, 403, CREATOR, CALL("POST", path, body));
		assert_asked(p, 403, GRANTED, CALL("POST", path, body));
	}
	assert_int_equal(ask(p, CREATOR,
			     CALL("POST", path,
				  "{\"name\": \"mine\", \"driver\": \"sandbox\","
				  " \"config\": {\"provider\": \"native\"}}"),
			     &out),
			 201);
	made = json_parse(buf_str(&out), out.len, NULL);
	mine = xasprintf("/api/environments/%s", json_str(made, "id"));
	assert_asked(p, 403, CREATOR, CALL("PATCH", mine, "{\"config\": {\"network\": \"host\"}}"));
	assert_asked(p, 403, CREATOR, CALL("DELETE", mine));
}

/* Deleting an environment takes choices back: what is behind them must not be the host then. */
static void a_token_that_deletes_an_environment_sends_nothing_to_the_host(void **state)
{
	struct people *p = *state;
	_cleanup_json_ json_t *names = json_object();
	_cleanup_buf_ struct buf why = { 0 };
	struct world w = { .p = p, .names = names };

	find_environments(&w);
	make_records(&w);

	_cleanup_free_ char *path = written(&w, "/api/environments/$E");

	make(&w, "X", COMPANY "/projects",
	     "{'name':'x','executionWorkspacePolicy':{'environmentId':'$E'}}");
	assert_asked(p, 200, OWNER, CALL("DELETE", path));
	assert_string_equal(run_by_operator(&w, COMPANY "/runs",
					    "{" TRUE ",'projectId':'$X','agentId':'$AL'}", &why),
			    "stopped");
	assert_non_null(strstr(buf_str(&why), "executionWorkspacePolicy.environmentId"));
}

/* A value that is written again by the operator is the operator's. */
static void the_operator_takes_over_what_a_token_wrote(void **state)
{
	struct people *p = *state;
	_cleanup_json_ json_t *names = json_object();
	_cleanup_buf_ struct buf why = { 0 };
	struct world w = { .p = p, .names = names };
	const char *run = "{'prompt':'x','agentId':'$A','environmentId':'$local'}";
	const char *body = "{\"adapterConfig\": {\"command\": \"true\"}}";

	find_environments(&w);
	make_records(&w);

	_cleanup_free_ char *path = written(&w, "/api/agents/$A");

	assert_string_equal(run_by_operator(&w, COMPANY "/runs", run, &why), "HOST");
	assert_asked(p, 200, OWNER,
		     CALL("PATCH", path, "{\"adapterConfig\": {\"command\": \"echo\"}}"));
	assert_string_equal(run_by_operator(&w, COMPANY "/runs", run, &why), "stopped");
	assert_non_null(strstr(buf_str(&why), "the agent's adapterConfig was written by a token"));
	assert_asked(p, 200, LOCAL, CALL("PATCH", path, body));
	assert_string_equal(run_by_operator(&w, COMPANY "/runs", run, &why), "HOST");
	/* Saying the same again takes nothing away. */
	assert_asked(p, 200, OWNER, CALL("PATCH", path, body));
	assert_string_equal(run_by_operator(&w, COMPANY "/runs", run, &why), "HOST");
}

/* That the matrix can tell: the same writes by the operator do lead to the host. */
static void the_operator_leads_runs_to_the_host(void **state)
{
	struct people *p = *state;
	_cleanup_json_ json_t *names = json_object();
	struct world w = { .p = p, .names = names };
	size_t led = 0;

	find_environments(&w);
	write_script(&w);
	make_records(&w);
	for (size_t i = 0; i < ARRAY_SIZE(ROWS); i++) {
		_cleanup_buf_ struct buf why = { 0 };
		bool taken = false;

		if (ROWS[i].record == DECIDING_ENVIRONMENT)
			continue;
		if (streq(attempt(&w, &ROWS[i], ROWS[i].body[0], LOCAL, &taken, &why), "HOST"))
			led++;
		take_marker(&w);
		make_records(&w);
	}
	assert_true(led > ARRAY_SIZE(ROWS) / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_field_of_a_deciding_record_is_in_a_list),
		people_test(what_a_weaker_writer_stored_never_takes_a_trusted_run_to_the_host),
		people_test(the_operator_leads_runs_to_the_host),
		people_test(an_agent_gives_those_it_makes_nothing_wider_than_it_has),
		people_test(an_agent_makes_closed_places_only_and_changes_none),
		people_test(a_token_that_deletes_an_environment_sends_nothing_to_the_host),
		people_test(the_operator_takes_over_what_a_token_wrote),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

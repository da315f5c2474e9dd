#include "people.h"

/* A company with environments of several kinds. */
static void add(struct api_test *t, const char *kind, const char *body, char id[ID_SIZE])
{
	PATH("/api/companies/%s/%s", t->company, kind);

	take_id(post(t, 201, path, body), id);
}

static json_t *changed(struct api_test *t, const char *kind, const char *id, const char *body)
{
	PATH("/api/%s/%s", kind, id);

	return call_json(t, 200, CALL("PATCH", path, body));
}

static json_t *shown(struct api_test *t, const char *kind, const char *id)
{
	PATH("/api/%s/%s", kind, id);

	return get(t, path);
}

static void add_refused(struct api_test *t, const char *kind, const char *body, const char *text)
{
	PATH("/api/companies/%s/%s", t->company, kind);

	refused(t, 422, "unprocessable", text, CALL("POST", path, body));
}

static void change_refused(struct api_test *t, const char *kind, const char *id, const char *body,
			   const char *text)
{
	PATH("/api/%s/%s", kind, id);

	refused(t, 422, "unprocessable", text, CALL("PATCH", path, body));
}

static void add_ssh(struct api_test *t, char id[ID_SIZE])
{
	add(t, "environments",
	    "{\"name\": \"far\", \"driver\": \"ssh\", \"config\": {\"host\": \"h\","
	    " \"username\": \"u\", \"remoteWorkspacePath\": \"/w\"}}",
	    id);
}

static void add_plugin(struct api_test *t, char id[ID_SIZE])
{
	add(t, "environments",
	    "{\"name\": \"plug\", \"driver\": \"plugin\", \"config\": {\"pluginKey\": \"k\","
	    " \"driverKey\": \"d\"}}",
	    id);
}

/* One %s of the format is the environment's id. */
static char *with(const char *format, const char *id)
{
	const char *at = strstr(format, "%s");

	return xasprintf("%.*s%s%s", (int)(at - format), format, id, at + 2);
}

#define CHOSEN_BY_PROJECT                                                                          \
	"{\"name\": \"p\", \"executionWorkspacePolicy\": {\"environmentId\": \"%s\"}}"
#define CHOSEN_BY_ISSUE                                                                            \
	"{\"title\": \"i\", \"executionWorkspaceSettings\": {\"environmentId\": \"%s\"}}"

static void SG_1_SG_2_a_project_may_choose_a_sandbox(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *body = with(CHOSEN_BY_PROJECT, t->box);
	char id[ID_SIZE];

	add(t, "projects", body, id);
	json_decref(changed(t, "projects", id, body));
}

static void SG_3_SG_5_SG_6_an_issue_may_choose_a_sandbox(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *body = with(CHOSEN_BY_ISSUE, t->box);
	char id[ID_SIZE];

	add(t, "issues", body, id);
	json_decref(changed(t, "issues", id, body));
}

SQL(TEST_UNKNOWN_DRIVER, "UPDATE environments SET driver = 'unsupported_driver' WHERE id = $1");

static int spoil_driver(struct tx *tx, void *arg, struct error *err)
{
	return tx_exec(tx, &TEST_UNKNOWN_DRIVER, err, B_TEXT(arg)) < 0 ? -1 : 0;
}

static void SG_4_an_unknown_driver_cannot_be_chosen(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *issue = with(CHOSEN_BY_ISSUE, t->box);
	PATH("/api/companies/%s/issues", t->company);

	assert_int_equal(DB_WRITE(t->server->db, "test.spoil", spoil_driver, t->box, NULL), 0);
	add_refused(t, "issues", issue,
		    "Environment driver \"unsupported_driver\" is not allowed here");

	_cleanup_json_ json_t *none = get(t, path);

	assert_int_equal(json_array_size(none), 0);
}

static void SG_7_the_fake_provider_cannot_be_chosen(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *issue = with(CHOSEN_BY_ISSUE, t->box);
	_cleanup_free_ char *project = with(CHOSEN_BY_PROJECT, t->box);

	server_end(t);
	server_begin(t, false);
	add_refused(t, "issues", issue,
		    "Environment sandbox provider \"fake\" is not allowed here");
	add_refused(t, "projects", project,
		    "Environment sandbox provider \"fake\" is not allowed here");
}

static void a_plugin_environment_cannot_be_chosen(void **state)
{
	struct api_test *t = *state;
	char plugin[ID_SIZE];

	add_plugin(t, plugin);

	_cleanup_free_ char *issue = with(CHOSEN_BY_ISSUE, plugin);

	add_refused(t, "issues", issue, "Environment driver \"plugin\" is not allowed here");
}

#define AGENT_WITH(adapter)                                                                        \
	"{\"name\": \"a\", \"adapterType\": \"" adapter "\", \"defaultEnvironmentId\": \"%s\"}"

static void SG_8_an_agent_cannot_have_an_environment_of_another_company(void **state)
{
	struct people *p = *state;
	struct api_test *t = &p->api;
	_cleanup_free_ char *body = with(AGENT_WITH("process"), p->theirs.environment);

	id_copy(t->company, p->ours.company);
	add_refused(t, "agents", body, "Environment not found");
	change_refused(t, "agents", p->ours.agent, body, "Environment not found");
}

static void SG_9_a_process_agent_cannot_be_sent_over_ssh(void **state)
{
	struct api_test *t = *state;
	char far[ID_SIZE], agent[ID_SIZE];

	add_ssh(t, far);
	add(t, "agents", "{\"name\": \"plain\"}", agent);

	_cleanup_free_ char *body = with(AGENT_WITH("process"), far);
	_cleanup_free_ char *patch = with("{\"defaultEnvironmentId\": \"%s\"}", far);

	add_refused(t, "agents", body, "Environment driver \"ssh\" is not allowed here");
	change_refused(t, "agents", agent, patch, "Environment driver \"ssh\" is not allowed here");
}

/* They may as soon as this server can lease places over ssh. */
static void SG_10_a_driver_this_server_cannot_use_is_not_chosen(void **state)
{
	struct api_test *t = *state;
	char far[ID_SIZE], agent[ID_SIZE], project[ID_SIZE];

	add_ssh(t, far);
	add(t, "agents", "{\"name\": \"a\", \"adapterType\": \"codex_local\"}", agent);
	add(t, "projects", "{\"name\": \"p\"}", project);

	_cleanup_free_ char *body = with(AGENT_WITH("codex_local"), far);
	_cleanup_free_ char *policy =
		with("{\"executionWorkspacePolicy\": {\"environmentId\": \"%s\"}}", far);

	add_refused(t, "agents", body, "cannot be used by this server");
	change_refused(t, "agents", agent, body, "cannot be used by this server");
	change_refused(t, "projects", project, policy, "cannot be used by this server");
}

static void SG_11_an_adapter_that_cannot_use_the_environment_is_refused(void **state)
{
	struct api_test *t = *state;
	char agent[ID_SIZE];
	_cleanup_free_ char *body = with(AGENT_WITH("codex_local"), t->box);

	add(t, "agents", body, agent);
	change_refused(t, "agents", agent, "{\"adapterType\": \"http\"}",
		       "Environment driver \"sandbox\" is not allowed here");
	json_decref(changed(t, "agents", agent,
			    "{\"adapterType\": \"http\", \"defaultEnvironmentId\": null}"));
}

/* What nothing would act on is not taken. */
static void keys_without_an_effect_are_refused_by_name(void **state)
{
	static const char *const POLICY[] = { "allowIssueOverride", "defaultProjectWorkspaceId",
					      "branchPolicy",       "pullRequestPolicy",
					      "runtimePolicy",      "cleanupPolicy" };
	struct api_test *t = *state;
	_cleanup_free_ char *projects = xasprintf("/api/companies/%s/projects", t->company);
	_cleanup_free_ char *agents = xasprintf("/api/companies/%s/agents", t->company);

	for (size_t i = 0; i < ARRAY_SIZE(POLICY); i++) {
		_cleanup_free_ char *body =
			xasprintf("{\"name\": \"p\", \"executionWorkspacePolicy\": {\"%s\": null}}",
				  POLICY[i]);

		refused(t, 400, "validation_error", POLICY[i], CALL("POST", projects, body));
	}
	refused(t, 400, "validation_error", "wakeOnDemand",
		CALL("POST", agents,
		     "{\"name\": \"a\", \"runtimeConfig\": {\"heartbeat\": {\"wakeOnDemand\": "
		     "true}}}"));
	refused(t, 400, "validation_error", "canFly",
		CALL("POST", agents, "{\"name\": \"a\", \"permissions\": {\"canFly\": true}}"));
}

static void an_archived_environment_cannot_be_chosen(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *issue = with(CHOSEN_BY_ISSUE, t->box);

	json_decref(changed(t, "environments", t->box, "{\"status\": \"archived\"}"));
	add_refused(t, "issues", issue, "archived");
}

static void add_workspace(struct api_test *t, const char *more, char project[ID_SIZE],
			  char id[ID_SIZE])
{
	if (!project[0])
		add(t, "projects", "{\"name\": \"p\"}", project);

	_cleanup_free_ char *body =
		xasprintf("{\"name\": \"w\", \"projectId\": \"%s\"%s}", project, more);

	add(t, "execution-workspaces", body, id);
}

static void I19_a_workspace_is_guarded_like_the_rest(void **state)
{
	struct api_test *t = *state;
	char plugin[ID_SIZE], project[ID_SIZE] = "", workspace[ID_SIZE];

	add_plugin(t, plugin);
	add_workspace(t, "", project, workspace);

	_cleanup_free_ char *bad = with("{\"config\": {\"environmentId\": \"%s\"}}", plugin);
	_cleanup_free_ char *none = with("{\"config\": {\"environmentId\": \"%s\"}}", project);
	_cleanup_free_ char *good = with("{\"config\": {\"environmentId\": \"%s\"}}", t->box);

	change_refused(t, "execution-workspaces", workspace, bad, "is not allowed here");
	change_refused(t, "execution-workspaces", workspace, none, "Environment not found");

	_cleanup_json_ json_t *chosen = changed(t, "execution-workspaces", workspace, good);

	assert_string_equal(json_str(json_object_at(chosen, "config"), "environmentId"), t->box);
}

/* ---- stamping ---- */

struct cast {
	char box2[ID_SIZE], ada[ID_SIZE], bob[ID_SIZE], nobody[ID_SIZE];
};

/* ada has box, bob has box2, and the third has none. */
static void add_cast(struct api_test *t, struct cast *c)
{
	add(t, "environments",
	    "{\"name\": \"box2\", \"driver\": \"sandbox\", \"config\": {\"provider\": \"fake\"}}",
	    c->box2);

	_cleanup_free_ char *ada = with(AGENT_WITH("claude_local"), t->box);
	_cleanup_free_ char *bob = with(AGENT_WITH("claude_local"), c->box2);

	add(t, "agents", ada, c->ada);
	add(t, "agents", bob, c->bob);
	add(t, "agents", "{\"name\": \"n\"}", c->nobody);
}

static void assert_chosen(struct api_test *t, const char *issue, const char *environment)
{
	_cleanup_json_ json_t *now = shown(t, "issues", issue);
	const json_t *settings = json_object_at(now, "executionWorkspaceSettings");

	if (environment)
		assert_string_equal(json_str(settings, "environmentId"), environment);
	else
		assert_int_equal(json_state(settings, "environmentId"), JSON_IS_ABSENT);
}

static void assign(struct api_test *t, const char *issue, const char *agent)
{
	_cleanup_free_ char *body = agent ? with("{\"assigneeAgentId\": \"%s\"}", agent)
					  : xstrdup("{\"assigneeAgentId\": null}");

	json_decref(changed(t, "issues", issue, body));
}

static void WC_16_a_new_issue_takes_over_its_assignees_environment(void **state)
{
	struct api_test *t = *state;
	struct cast c;
	char issue[ID_SIZE];

	add_cast(t, &c);

	_cleanup_free_ char *body = with("{\"title\": \"i\", \"assigneeAgentId\": \"%s\"}", c.ada);

	add(t, "issues", body, issue);
	assert_chosen(t, issue, t->box);
}

static void WC_17_not_when_its_project_chooses(void **state)
{
	struct api_test *t = *state;
	struct cast c;
	char issue[ID_SIZE], project[ID_SIZE];

	add_cast(t, &c);

	_cleanup_free_ char *policy = with(CHOSEN_BY_PROJECT, c.box2);

	add(t, "projects", policy, project);

	_cleanup_free_ char *body =
		xasprintf("{\"title\": \"i\", \"assigneeAgentId\": \"%s\", \"projectId\": \"%s\"}",
			  c.ada, project);

	add(t, "issues", body, issue);
	assert_chosen(t, issue, NULL);
}

static void WC_18_reassigning_replaces_what_was_taken_over(void **state)
{
	struct api_test *t = *state;
	struct cast c;
	char issue[ID_SIZE];

	add_cast(t, &c);
	add(t, "issues", "{\"title\": \"i\"}", issue);
	assign(t, issue, c.ada);
	assert_chosen(t, issue, t->box);
	assign(t, issue, c.bob);
	assert_chosen(t, issue, c.box2);
	/* The reference keeps the old one here, and a run of nobody's goes to bob's place. */
	assign(t, issue, c.nobody);
	assert_chosen(t, issue, NULL);
	assign(t, issue, c.ada);
	assign(t, issue, NULL);
	assert_chosen(t, issue, NULL);
}

static void WC_19_what_somebody_chose_survives_reassigning(void **state)
{
	struct api_test *t = *state;
	struct cast c;
	char issue[ID_SIZE];

	add_cast(t, &c);

	_cleanup_free_ char *body = with(CHOSEN_BY_ISSUE, t->local);

	add(t, "issues", body, issue);
	assign(t, issue, c.ada);
	assign(t, issue, c.bob);
	assert_chosen(t, issue, t->local);

	_cleanup_free_ char *both =
		xasprintf("{\"assigneeAgentId\": \"%s\", \"executionWorkspaceSettings\":"
			  " {\"environmentId\": \"%s\"}}",
			  c.ada, c.box2);

	json_decref(changed(t, "issues", issue, both));
	assert_chosen(t, issue, c.box2);
}

static void WC_20_a_reused_workspace_follows_the_settings_of_its_issue(void **state)
{
	struct api_test *t = *state;
	char project[ID_SIZE] = "", workspace[ID_SIZE], issue[ID_SIZE];

	add(t, "issues", "{\"title\": \"i\"}", issue);

	_cleanup_free_ char *more = xasprintf(", \"sourceIssueId\": \"%s\", \"config\":"
					      " {\"cleanupCommand\": \"sweep\","
					      " \"provisionCommand\": \"old\"}",
					      issue);

	add_workspace(t, more, project, workspace);

	_cleanup_free_ char *settings =
		with("{\"executionWorkspaceSettings\": {\"environmentId\": \"%s\","
		     " \"workspaceStrategy\": {\"provisionCommand\": \"make\","
		     " \"teardownCommand\": \"raze\"}}}",
		     t->box);

	/* Linked and not reused: it keeps what it has. */
	json_decref(changed(t, "issues", issue, settings));

	_cleanup_json_ json_t *before = shown(t, "execution-workspaces", workspace);

	assert_string_equal(json_str(json_object_at(before, "config"), "provisionCommand"), "old");
	json_decref(changed(t, "issues", issue,
			    "{\"executionWorkspacePreference\": \"reuse_existing\"}"));
	json_decref(changed(t, "issues", issue, settings));

	_cleanup_json_ json_t *after = shown(t, "execution-workspaces", workspace);
	json_t *config = json_object_at(after, "config");

	assert_string_equal(json_str(config, "environmentId"), t->box);
	assert_string_equal(json_str(config, "provisionCommand"), "make");
	assert_string_equal(json_str(config, "teardownCommand"), "raze");
	assert_string_equal(json_str(config, "cleanupCommand"), "sweep");

	/* Settings that choose nothing leave nothing chosen: not this host (I11). */
	json_decref(changed(t, "issues", issue, "{\"executionWorkspaceSettings\": null}"));

	_cleanup_json_ json_t *last = shown(t, "execution-workspaces", workspace);

	assert_int_equal(json_state(json_object_at(last, "config"), "environmentId"),
			 JSON_IS_ABSENT);
}

static void WC_14_a_new_workspace_keeps_what_it_was_made_with(void **state)
{
	struct api_test *t = *state;
	char issue[ID_SIZE], project[ID_SIZE], workspace[ID_SIZE];

	add(t, "projects",
	    "{\"name\": \"p\", \"executionWorkspacePolicy\": {\"enabled\": true,"
	    " \"defaultMode\": \"isolated_workspace\","
	    " \"workspaceStrategy\": {\"provisionCommand\": \"make\"}}}",
	    project);

	_cleanup_free_ char *body = with(CHOSEN_BY_ISSUE, t->box);

	add(t, "issues", body, issue);

	_cleanup_free_ char *more = xasprintf(", \"sourceIssueId\": \"%s\"", issue);

	add_workspace(t, more, project, workspace);

	_cleanup_json_ json_t *made = shown(t, "execution-workspaces", workspace);
	_cleanup_json_ json_t *linked = shown(t, "issues", issue);
	json_t *config = json_object_at(made, "config");

	assert_string_equal(json_str(config, "environmentId"), t->box);
	assert_string_equal(json_str(config, "provisionCommand"), "make");
	assert_string_equal(json_str(made, "mode"), "isolated_workspace");
	assert_string_equal(json_str(linked, "executionWorkspaceId"), workspace);
}

/* ---- the rest of the records' lives ---- */

static void issues_are_numbered_in_their_company(void **state)
{
	struct api_test *t = *state;
	char first[ID_SIZE], second[ID_SIZE];
	_cleanup_free_ char *company = xasprintf("/api/companies/%s", t->company);

	add(t, "issues", "{\"title\": \"one\"}", first);
	add(t, "issues", "{\"title\": \"two\"}", second);

	_cleanup_json_ json_t *two = shown(t, "issues", second);

	assert_string_equal(json_str(two, "identifier"), "ACM-2");
	assert_string_equal(json_str(two, "status"), "backlog");
	assert_string_equal(json_str(two, "priority"), "medium");
	refused(t, 409, "conflict", "issues", CALL("PATCH", company, "{\"issuePrefix\": \"X\"}"));

	/* Another company with such a name gets a prefix of its own. */
	_cleanup_json_ json_t *other = post(t, 201, "/api/companies", "{\"name\": \"Acme Two\"}");

	assert_string_equal(json_str(other, "issuePrefix"), "ACM2");
	refused(t, 409, "conflict", "ACM",
		CALL("POST", "/api/companies", "{\"name\": \"x\", \"issuePrefix\": \"ACM\"}"));
	refused(t, 422, "unprocessable", "capital",
		CALL("POST", "/api/companies", "{\"name\": \"x\", \"issuePrefix\": \"a-b\"}"));
}

static void a_patch_keeps_absent_null_and_value_apart(void **state)
{
	struct api_test *t = *state;
	char issue[ID_SIZE];

	add(t, "issues", "{\"title\": \"t\", \"description\": \"d\", \"priority\": \"low\"}",
	    issue);
	json_decref(changed(t, "issues", issue, "{\"status\": \"done\"}"));

	_cleanup_json_ json_t *kept = shown(t, "issues", issue);

	assert_string_equal(json_str(kept, "description"), "d");
	assert_string_equal(json_str(kept, "priority"), "low");

	_cleanup_json_ json_t *gone = changed(t, "issues", issue, "{\"description\": null}");
	PATH("/api/issues/%s", issue);

	assert_int_equal(json_state(gone, "description"), JSON_IS_NULL);
	assert_string_equal(json_str(gone, "status"), "done");
	refused(t, 400, "validation_error", NULL, CALL("PATCH", path, "{\"title\": null}"));
	refused(t, 400, "validation_error", NULL, CALL("PATCH", path, "{\"identifier\": \"X-1\"}"));
}

static void settings_of_an_adapter_are_laid_over_or_replaced(void **state)
{
	struct api_test *t = *state;
	char agent[ID_SIZE];

	add(t, "agents", "{\"name\": \"a\", \"role\": \"ceo\", \"adapterConfig\": {\"a\": 1}}",
	    agent);

	_cleanup_json_ json_t *laid =
		changed(t, "agents", agent, "{\"adapterConfig\": {\"b\": 2}}");
	_cleanup_json_ json_t *whole =
		changed(t, "agents", agent,
			"{\"adapterConfig\": {\"c\": 3}, \"replaceAdapterConfig\": true}");
	_cleanup_json_ json_t *other =
		changed(t, "agents", agent, "{\"adapterType\": \"codex_local\"}");

	assert_int_equal(json_object_size(json_object_at(laid, "adapterConfig")), 2);
	assert_int_equal(json_object_size(json_object_at(whole, "adapterConfig")), 1);
	assert_int_equal(json_object_size(json_object_at(other, "adapterConfig")), 0);
	assert_true(json_bool(json_object_at(laid, "permissions"), "canCreateAgents", false));
}

static size_t take_cursor(char *data, size_t size, size_t count, void *arg)
{
	struct buf *out = arg;
	static const char NAME[] = "x-next-cursor: ";

	if (size * count > strlen(NAME) && strncasecmp(data, NAME, strlen(NAME)) == 0)
		buf_append(out, data + strlen(NAME), strcspn(data + strlen(NAME), "\r\n"));
	return size * count;
}

static void a_list_comes_in_pages_and_can_be_narrowed(void **state)
{
	struct api_test *t = *state;
	_cleanup_buf_ struct buf out = { 0 }, cursor = { 0 };
	_cleanup_free_ char *url =
		xasprintf("http://localhost/api/companies/%s/issues?limit=2", t->company);
	CURL *curl = curl_easy_init();
	char id[ID_SIZE];

	for (int i = 0; i < 3; i++)
		add(t, "issues",
		    i ? "{\"title\": \"t\"}" : "{\"title\": \"t\", \"status\": \"done\"}", id);
	curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, t->socket);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, &out);
	curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_cursor);
	curl_easy_setopt(curl, CURLOPT_HEADERDATA, &cursor);
	assert_int_equal(curl_easy_perform(curl), CURLE_OK);
	curl_easy_cleanup(curl);

	_cleanup_json_ json_t *first = json_parse(buf_str(&out), out.len, NULL);
	PATH("/api/companies/%s/issues?limit=2&cursor=%s", t->company, buf_str(&cursor));
	_cleanup_json_ json_t *rest = get(t, path);
	_cleanup_free_ char *narrow = xasprintf("/api/companies/%s/issues?status=done", t->company);
	_cleanup_json_ json_t *done = get(t, narrow);
	_cleanup_free_ char *odd = xasprintf("/api/companies/%s/issues?cursor=odd", t->company);

	assert_int_equal(json_array_size(first), 2);
	assert_int_equal(json_array_size(rest), 1);
	assert_string_equal(json_str(json_array_get(rest, 0), "id"), id);
	assert_int_equal(json_array_size(done), 1);
	refused(t, 400, "validation_error", "cursor", CALL("GET", odd));
}

static void whatever_is_made_under_a_key_is_made_once(void **state)
{
	struct api_test *t = *state;
	char project[ID_SIZE];

	add(t, "projects", "{\"name\": \"p\"}", project);

	_cleanup_free_ char *workspace = with("{\"name\": \"w\", \"projectId\": \"%s\"}", project);
	const struct {
		const char *kind, *body;
	} made[] = {
		{ "agents", "{\"name\": \"k\"}" },
		{ "projects", "{\"name\": \"k\"}" },
		{ "issues", "{\"title\": \"k\"}" },
		{ "execution-workspaces", workspace },
	};

	for (size_t i = 0; i < ARRAY_SIZE(made); i++) {
		PATH("/api/companies/%s/%s", t->company, made[i].kind);
		const struct call *call = CALL("POST", path, made[i].body, "one");
		_cleanup_json_ json_t *one = call_json(t, 201, call),
				      *two = call_json(t, 201, call);

		assert_true(json_equal(one, two));
	}

	const struct call *company = CALL("POST", "/api/companies", "{\"name\": \"k\"}", "one");
	_cleanup_json_ json_t *one = call_json(t, 201, company), *two = call_json(t, 201, company);

	assert_true(json_equal(one, two));
}

static json_t *finished_run(struct api_test *t, const char *body)
{
	PATH("/api/companies/%s/runs", t->company);
	char id[ID_SIZE];
	json_t *run = NULL;

	take_id(post(t, 201, path, body), id);
	WAIT_FOR(({
		json_decref(run);
		run = shown(t, "runs", id);
		json_str(run, "finishedAt") != NULL;
	}));
	return run;
}

static void variables_of_a_project_reach_its_runs_and_their_own_go_first(void **state)
{
	struct api_test *t = *state;
	char project[ID_SIZE];

	add(t, "projects", "{\"name\": \"p\", \"env\": {\"A\": \"theirs\", \"B\": \"project\"}}",
	    project);

	_cleanup_free_ char *body =
		with("{\"command\": [\"sh\", \"-c\", \"test $A = own && test $B = project\"],"
		     " \"env\": {\"A\": \"own\"}, \"projectId\": \"%s\"}",
		     project);
	_cleanup_json_ json_t *run = finished_run(t, body);

	assert_string_equal(json_str(run, "status"), "succeeded");
	refused(t, 400, "validation_error", "env",
		CALL("POST", "/api/companies/x/projects",
		     "{\"name\": \"p\", \"env\": {\"A\": 1}}"));
}

static void an_issue_names_its_run_and_is_free_afterwards(void **state)
{
	struct api_test *t = *state;
	char issue[ID_SIZE], run[ID_SIZE];
	bool going = false;

	add(t, "issues", "{\"title\": \"i\"}", issue);

	_cleanup_free_ char *body =
		with("{\"command\": [\"sleep\", \"60\"], \"issueId\": \"%s\"}", issue);

	add(t, "runs", body, run);
	WAIT_FOR(({
		_cleanup_json_ json_t *now = shown(t, "issues", issue);

		going = str_equal(json_str(now, "executionRunId"), run);
		going;
	}));

	_cleanup_free_ char *take = with("/api/issues/%s/checkout", issue);
	_cleanup_free_ char *back = with("/api/issues/%s/release", issue);
	_cleanup_free_ char *path = with("/api/issues/%s", issue);
	_cleanup_free_ char *cancel = with("/api/runs/%s/cancel", run);
	_cleanup_free_ char *by = with("{\"runId\": \"%s\"}", run);
	_cleanup_json_ json_t *taken = post(t, 200, take, by);

	assert_string_equal(json_str(taken, "checkoutRunId"), run);
	refused(t, 409, "conflict", "unfinished", CALL("DELETE", path));
	refused(t, 400, "validation_error", "runId", CALL("POST", take));
	json_decref(post(t, 200, cancel, "{}"));
	WAIT_FOR(({
		_cleanup_json_ json_t *now = shown(t, "issues", issue);

		going = json_str(now, "executionRunId") != NULL;
		!going;
	}));

	_cleanup_json_ json_t *given = post(t, 200, back, "{}");

	assert_int_equal(json_state(given, "checkoutRunId"), JSON_IS_NULL);
	/* The run has ended a moment before its lease has. */
	WAIT_FOR(({
		_cleanup_buf_ struct buf out = { 0 };

		call_raw(t, CALL("DELETE", path), &out) == 200;
	}));
}

static void an_issue_is_checked_out_by_one_run(void **state)
{
	struct api_test *t = *state;
	char issue[ID_SIZE], one[ID_SIZE], two[ID_SIZE];

	add(t, "issues", "{\"title\": \"i\"}", issue);
	add(t, "runs", "{\"command\": [\"sleep\", \"60\"]}", one);
	add(t, "runs", "{\"command\": [\"sleep\", \"60\"]}", two);

	_cleanup_free_ char *take = with("/api/issues/%s/checkout", issue);
	_cleanup_free_ char *by_one = with("{\"runId\": \"%s\"}", one);
	_cleanup_free_ char *by_two = with("{\"runId\": \"%s\"}", two);
	_cleanup_free_ char *cancel = with("/api/runs/%s/cancel", one);
	_cleanup_free_ char *other = with("/api/runs/%s/cancel", two);

	json_decref(post(t, 200, take, by_one));
	json_decref(post(t, 200, take, by_one));
	refused(t, 409, "conflict", "checked out", CALL("POST", take, by_two));
	json_decref(post(t, 200, cancel, "{}"));
	WAIT_FOR(({
		_cleanup_json_ json_t *run = shown(t, "runs", one);

		json_str(run, "finishedAt") != NULL;
	}));
	/* Whoever has ended has it no more. */
	json_decref(post(t, 200, take, by_two));
	json_decref(post(t, 200, other, "{}"));
}

static void paused_companies_and_agents_begin_no_runs(void **state)
{
	struct api_test *t = *state;
	char agent[ID_SIZE];
	_cleanup_free_ char *company = xasprintf("/api/companies/%s", t->company);

	add(t, "agents", "{\"name\": \"a\", \"status\": \"paused\"}", agent);

	_cleanup_free_ char *body = with("{\"command\": [\"true\"], \"agentId\": \"%s\"}", agent);
	PATH("/api/companies/%s/runs", t->company);

	refused(t, 409, "conflict", "paused", CALL("POST", path, body));
	json_decref(call_json(t, 200, CALL("PATCH", company, "{\"status\": \"paused\"}")));
	refused(t, 409, "conflict", "paused", CALL("POST", path, "{\"command\": [\"true\"]}"));
	json_decref(call_json(t, 200, CALL("PATCH", company, "{\"status\": \"active\"}")));

	_cleanup_json_ json_t *run = finished_run(t, "{\"command\": [\"true\"]}");

	assert_string_equal(json_str(run, "status"), "succeeded");
}

static void a_workspace_in_use_is_not_closed(void **state)
{
	struct api_test *t = *state;
	char project[ID_SIZE] = "", workspace[ID_SIZE], issue[ID_SIZE];

	add(t, "issues", "{\"title\": \"i\"}", issue);

	_cleanup_free_ char *more = xasprintf(", \"sourceIssueId\": \"%s\"", issue);

	add_workspace(t, more, project, workspace);

	_cleanup_free_ char *body = with("{\"executionWorkspaceId\": \"%s\"}", workspace);
	_cleanup_json_ json_t *lease = acquire(t, t->box, body);
	_cleanup_free_ char *end = with("/api/execution-workspaces/%s/close", workspace);
	_cleanup_free_ char *path = with("/api/execution-workspaces/%s", workspace);
	_cleanup_free_ char *give =
		with("/api/environment-leases/%s/release", json_str(lease, "id"));
	_cleanup_json_ json_t *refusal = call_json(t, 409, CALL("POST", end));
	json_t *why = json_object_at(json_object_at(refusal, "details"), "closeReadiness");

	assert_string_equal(json_str(why, "state"), "blocked");
	assert_int_equal(json_int(why, "openLeases", 0), 1);
	refused(t, 409, "conflict", NULL, CALL("PATCH", path, "{\"status\": \"archived\"}"));
	refused(t, 409, "conflict", NULL, CALL("DELETE", path));
	json_decref(post(t, 200, give, "{}"));

	_cleanup_json_ json_t *closed = post(t, 200, end, "{}");
	_cleanup_json_ json_t *detached = shown(t, "issues", issue);

	assert_string_equal(json_str(closed, "status"), "archived");
	assert_non_null(json_str(closed, "closedAt"));
	assert_int_equal(json_state(detached, "executionWorkspaceId"), JSON_IS_NULL);

	_cleanup_json_ json_t *open = changed(t, "execution-workspaces", workspace,
					      "{\"status\": \"idle\", \"metadata\": {\"x\": 1}}");

	assert_int_equal(json_state(open, "closedAt"), JSON_IS_NULL);
}

static void agents_set_nothing_that_runs_on_the_host(void **state)
{
	struct people *p = *state;
	_cleanup_free_ char *workspace = with("/api/execution-workspaces/%s", p->ours.workspace);
	_cleanup_free_ char *issue = with("/api/issues/%s", p->ours.issue);
	_cleanup_buf_ struct buf out = { 0 };

	assert_int_equal(ask(p, AGENT,
			     CALL("PATCH", workspace,
				  "{\"config\": {\"provisionCommand\": \"x\"}, \"cwd\": \"/\"}"),
			     &out),
			 403);
	assert_non_null(strstr(buf_str(&out), "config.provisionCommand, cwd"));
	assert_asked(p, 403, RUN,
		     CALL("PATCH", issue,
			  "{\"executionWorkspaceSettings\": {\"workspaceStrategy\":"
			  " {\"teardownCommand\": \"x\"}}}"));
	assert_asked(p, 200, AGENT, CALL("PATCH", workspace, "{\"branchName\": \"b\"}"));
	assert_asked(p, 200, OPERATOR,
		     CALL("PATCH", workspace, "{\"config\": {\"provisionCommand\": \"x\"}}"));
}

static void an_agent_that_was_removed_is_no_member_any_more(void **state)
{
	struct api_test *t = *state;
	char agent[ID_SIZE];

	add(t, "agents", "{\"name\": \"a\"}", agent);

	_cleanup_free_ char *member =
		xasprintf("/api/companies/%s/members/agent/%s", t->company, agent);
	_cleanup_free_ char *all = xasprintf("/api/companies/%s/members", t->company);
	PATH("/api/agents/%s", agent);

	json_decref(call_json(t, 200,
			      CALL("PUT", member, "{\"permissions\": [\"environments:manage\"]}")));
	json_decref(call_json(t, 200, CALL("DELETE", path)));

	_cleanup_json_ json_t *members = get(t, all);
	_cleanup_free_ char *text = json_text(members);

	assert_null(strstr(text, agent));
	refused(t, 404, "not_found", "Agent", CALL("GET", path));
}

static void a_workspace_whose_cleanup_failed_is_not_offered(void **state)
{
	struct api_test *t = *state;
	char project[ID_SIZE] = "", workspace[ID_SIZE];
	PATH("/api/companies/%s/execution-workspaces?reuseEligible=true", t->company);

	add_workspace(t, ", \"status\": \"in_review\"", project, workspace);

	_cleanup_json_ json_t *before = get(t, path);

	json_decref(
		changed(t, "execution-workspaces", workspace, "{\"status\": \"cleanup_failed\"}"));

	_cleanup_json_ json_t *after = get(t, path);

	assert_int_equal(json_array_size(before), 1);
	assert_int_equal(json_array_size(after), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		api_unit_test(SG_1_SG_2_a_project_may_choose_a_sandbox),
		api_unit_test(SG_3_SG_5_SG_6_an_issue_may_choose_a_sandbox),
		api_unit_test(SG_4_an_unknown_driver_cannot_be_chosen),
		api_unit_test(SG_7_the_fake_provider_cannot_be_chosen),
		api_unit_test(a_plugin_environment_cannot_be_chosen),
		people_test(SG_8_an_agent_cannot_have_an_environment_of_another_company),
		api_unit_test(SG_9_a_process_agent_cannot_be_sent_over_ssh),
		api_unit_test(SG_10_a_driver_this_server_cannot_use_is_not_chosen),
		api_unit_test(SG_11_an_adapter_that_cannot_use_the_environment_is_refused),
		api_unit_test(keys_without_an_effect_are_refused_by_name),
		api_unit_test(an_archived_environment_cannot_be_chosen),
		api_unit_test(I19_a_workspace_is_guarded_like_the_rest),
		api_unit_test(WC_14_a_new_workspace_keeps_what_it_was_made_with),
		api_unit_test(WC_16_a_new_issue_takes_over_its_assignees_environment),
		api_unit_test(WC_17_not_when_its_project_chooses),
		api_unit_test(WC_18_reassigning_replaces_what_was_taken_over),
		api_unit_test(WC_19_what_somebody_chose_survives_reassigning),
		api_unit_test(WC_20_a_reused_workspace_follows_the_settings_of_its_issue),
		api_unit_test(issues_are_numbered_in_their_company),
		api_unit_test(a_patch_keeps_absent_null_and_value_apart),
		api_unit_test(settings_of_an_adapter_are_laid_over_or_replaced),
		api_unit_test(a_list_comes_in_pages_and_can_be_narrowed),
		api_unit_test(whatever_is_made_under_a_key_is_made_once),
		api_unit_test(variables_of_a_project_reach_its_runs_and_their_own_go_first),
		api_unit_test(an_issue_names_its_run_and_is_free_afterwards),
		api_unit_test(an_issue_is_checked_out_by_one_run),
		api_unit_test(paused_companies_and_agents_begin_no_runs),
		api_unit_test(a_workspace_in_use_is_not_closed),
		people_test(agents_set_nothing_that_runs_on_the_host),
		api_unit_test(an_agent_that_was_removed_is_no_member_any_more),
		api_unit_test(a_workspace_whose_cleanup_failed_is_not_offered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

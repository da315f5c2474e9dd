#include "people.h"

#define NOWHERE "00000000-0000-4000-8000-000000000000"

/* The details of the newest entry, which must be of this action. */
static json_t *newest_details(struct api_test *t, const char *company, const char *action,
			      char entity[ID_SIZE])
{
	PATH("/api/companies/%s/activity?limit=1", company);
	_cleanup_json_ json_t *page = get(t, path);
	json_t *item = json_array_get(json_array_at(page, "items"), 0);

	assert_string_equal(json_str(item, "action"), action);
	if (entity)
		id_copy(entity, json_str(item, "entityId"));
	return json_incref(json_object_get(item, "details"));
}

static void capabilities_without_plugins_are_what_this_server_can_do(void **state)
{
	struct api_test *t = *state;

	server_end(t);
	server_begin(t, false);

	PATH("/api/companies/%s/environments/capabilities", t->company);
	_cleanup_json_ json_t *all = get(t, path);
	json_t *drivers = json_object_at(all, "drivers");
	json_t *providers = json_object_at(all, "sandboxProviders");
	json_t *fake = json_object_at(providers, "fake");

	/* The reference says supported; here that is true once ssh places can be leased. */
	assert_string_equal(json_str(drivers, "ssh"), "unsupported");
	assert_string_equal(json_str(drivers, "local"), "supported");
	assert_string_equal(json_str(drivers, "sandbox"), "supported");
	assert_string_equal(json_str(drivers, "plugin"), "unsupported");
	assert_string_equal(json_str(fake, "status"), "unsupported");
	assert_false(json_bool(fake, "supportsRunExecution", true));
	assert_true(json_bool(fake, "supportsSavedProbe", false));
	assert_string_equal(json_str(fake, "source"), "builtin");
	assert_null(json_object_get(providers, "fake-plugin"));
	assert_true(json_array_size(json_array_at(all, "adapters")) >= 11);
}

static void capabilities_tell_what_a_config_may_hold(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s/environments/capabilities", t->company);
	_cleanup_json_ json_t *all = get(t, path);
	json_t *ssh = json_object_at(json_object_at(all, "driverConfigSchemas"), "ssh");
	json_t *port = json_object_at(json_object_at(ssh, "properties"), "port");
	json_t *fake = json_object_at(json_object_at(all, "sandboxProviders"), "fake");
	json_t *image = json_object_at(
		json_object_at(json_object_at(fake, "configSchema"), "properties"), "image");

	assert_int_equal(json_int(port, "default", 0), 22);
	assert_int_equal(json_int(port, "maximum", 0), 65535);
	assert_false(json_bool(ssh, "additionalProperties", true));
	assert_string_equal(json_str(image, "default"), "ubuntu:24.04");
	assert_string_equal(json_str(fake, "status"), "supported");

	json_t *native = json_object_at(json_object_at(all, "sandboxProviders"), "native");
	json_t *keys = json_object_at(json_object_at(native, "configSchema"), "properties");

	assert_string_equal(json_str(json_object_at(keys, "network"), "default"), "none");
	assert_non_null(json_object_at(json_object_at(keys, "limits"), "properties"));
}

static json_t *asked(struct people *p, enum who who, const char *path)
{
	_cleanup_buf_ struct buf out = { 0 };

	assert_int_equal(ask(p, who, CALL("GET", path), &out), 200);
	return json_parse(buf_str(&out), out.len, NULL);
}

static void assert_redacted(const json_t *environment)
{
	assert_int_equal(json_object_size(json_object_at(environment, "config")), 0);
	assert_int_equal(json_state(environment, "metadata"), JSON_IS_NULL);
	assert_true(json_bool(environment, "configRedacted", false));
	assert_true(json_bool(environment, "metadataRedacted", false));
}

static void RO_4_an_unprivileged_agent_lists_redacted_environments(void **state)
{
	struct people *p = *state;
	PATH("/api/companies/%s/environments", p->ours.company);
	_cleanup_json_ json_t *list = asked(p, AGENT, path);

	assert_int_equal(json_array_size(list), 3);
	for (size_t i = 0; i < 3; i++)
		assert_redacted(json_array_get(list, i));
}

static void RO_5_a_privileged_agent_sees_the_whole_environment(void **state)
{
	struct people *p = *state;
	PATH("/api/environments/%s", p->ours.environment);
	_cleanup_json_ json_t *seen = asked(p, CREATOR, path);
	_cleanup_json_ json_t *granted = asked(p, GRANTED, path);

	assert_string_equal(json_str(json_object_at(seen, "config"), "provider"), "fake");
	assert_null(json_object_get(seen, "configRedacted"));
	assert_true(json_equal(seen, granted));
}

static void RO_6_an_unprivileged_agent_sees_a_redacted_environment(void **state)
{
	struct people *p = *state;
	PATH("/api/environments/%s", p->ours.environment);
	_cleanup_json_ json_t *agent = asked(p, AGENT, path);
	_cleanup_json_ json_t *viewer = asked(p, VIEWER, path);

	assert_redacted(agent);
	assert_redacted(viewer);
}

static void settings_of_agents_and_values_of_variables_are_not_for_everybody(void **state)
{
	struct people *p = *state;
	_cleanup_free_ char *agent = xasprintf("/api/agents/%s", p->ours.agent);
	_cleanup_free_ char *project = xasprintf("/api/projects/%s", p->ours.project);

	json_decref(call_json(&p->api, 200,
			      CALL("PATCH", agent, "{\"adapterConfig\": {\"k\": \"canary\"}}")));
	json_decref(
		call_json(&p->api, 200, CALL("PATCH", project, "{\"env\": {\"K\": \"canary\"}}")));

	for (enum who who = OWNER; who <= VIEWER; who++) {
		_cleanup_json_ json_t *a = asked(p, who, agent), *b = asked(p, who, project);
		_cleanup_free_ char *text = json_text(a), *more = json_text(b);
		bool manages = who == OWNER || who == ADMIN;

		assert_int_equal(strstr(text, "canary") != NULL, manages);
		assert_int_equal(strstr(more, "canary") != NULL, manages);
		assert_non_null(json_object_get(json_object_at(b, "env"), "K"));
	}

	_cleanup_json_ json_t *self = asked(p, AGENT, agent);

	assert_string_equal(json_str(json_object_at(self, "adapterConfig"), "k"), "canary");
}

static void RO_26_an_environment_does_not_become_a_fake_sandbox(void **state)
{
	struct api_test *t = *state;
	PATH("/api/environments/%s", t->local);

	server_end(t);
	server_begin(t, false);
	refused(t, 422, "unprocessable", "reserved for internal probes",
		CALL("PATCH", path, "{\"driver\": \"sandbox\", \"config\": {}}"));

	_cleanup_json_ json_t *still = get(t, path);

	assert_string_equal(json_str(still, "driver"), "local");
}

static void a_config_that_is_the_whole_loses_what_it_does_not_name(void **state)
{
	struct api_test *t = *state;
	PATH("/api/environments/%s", t->local);

	json_decref(call_json(t, 200, CALL("PATCH", path, "{\"config\": {\"a\": 1, \"b\": 2}}")));

	_cleanup_json_ json_t *changed = call_json(
		t, 200, CALL("PATCH", path, "{\"config\": {\"b\": 3}, \"replaceConfig\": true}"));
	_cleanup_free_ char *config = json_text(json_object_at(changed, "config"));

	assert_string_equal(config, "{\"b\":3}");
}

#define SSH_BODY(more)                                                                             \
	"{\"name\": \"s\", \"driver\": \"ssh\", \"config\": {\"host\": \"h\","                     \
	" \"username\": \"u\", \"remoteWorkspacePath\": \"/w\", " more "}}"

static void RO_28_ssh_and_plugin_environments_are_stored_and_not_used(void **state)
{
	struct api_test *t = *state;
	static const char *const BODIES[] = {
		"{\"name\": \"s\", \"driver\": \"ssh\", \"config\": {\"host\": \"h\","
		" \"username\": \"u\", \"remoteWorkspacePath\": \"/w\"}}",
		"{\"name\": \"p\", \"driver\": \"plugin\", \"config\": {\"pluginKey\": \"k\","
		" \"driverKey\": \"d\"}}",
	};
	PATH("/api/companies/%s/environments", t->company);

	for (size_t i = 0; i < ARRAY_SIZE(BODIES); i++) {
		char id[ID_SIZE];

		take_id(post(t, 201, path, BODIES[i]), id);

		_cleanup_free_ char *leases = xasprintf("/api/environments/%s/leases", id);
		_cleanup_free_ char *probe = xasprintf("/api/environments/%s/probe", id);

		refused(t, 422, "unsupported_environment", NULL, CALL("POST", leases, "{}"));
		refused(t, 422, "unsupported_environment", NULL, CALL("POST", probe));
	}
}

/* That no row, list or entry of the activity holds the word. */
static void stands_nowhere(struct api_test *t, const char *word)
{
	_cleanup_free_ char *list = xasprintf("/api/companies/%s/environments", t->company);
	_cleanup_free_ char *activity = xasprintf("/api/companies/%s/activity", t->company);
	_cleanup_json_ json_t *environments = get(t, list), *log = get(t, activity);
	_cleanup_free_ char *one = json_text(environments), *two = json_text(log);

	assert_null(strstr(one, word));
	assert_null(strstr(two, word));
}

static void RO_13_a_pasted_key_is_refused_and_a_named_secret_is_stored(void **state)
{
	struct api_test *t = *state;
	static const char REF[] =
		"{\"type\":\"secret_ref\",\"secretId\":"
		"\"019f0000-0000-7000-8000-000000000001\",\"version\":\"latest\"}";
	_cleanup_free_ char *body = xasprintf(SSH_BODY("\"privateKeySecretRef\": %s"), REF);
	_cleanup_buf_ struct buf out = { 0 };
	PATH("/api/companies/%s/environments", t->company);

	assert_int_equal(
		call_raw(t,
			 CALL("POST", path, SSH_BODY("\"privateKey\": \"  super-secret-key  \"")),
			 &out),
		422);
	assert_non_null(strstr(buf_str(&out), "privateKeySecretRef"));
	assert_null(strstr(buf_str(&out), "super-secret-key"));
	stands_nowhere(t, "super-secret-key");

	_cleanup_json_ json_t *made = post(t, 201, path, body);
	json_t *config = json_object_at(made, "config");
	_cleanup_free_ char *ref = json_text(json_object_get(config, "privateKeySecretRef"));

	assert_string_equal(ref, REF);
	assert_true(json_is_null(json_object_get(config, "privateKey")));
}

/* RO-17 too: what would have been a secret of its config is kept nowhere. */
static void RO_16_RO_17_a_provider_that_nobody_has_is_refused_with_all_it_brought(void **state)
{
	struct api_test *t = *state;
	_cleanup_buf_ struct buf out = { 0 };
	PATH("/api/companies/%s/environments", t->company);

	assert_int_equal(call_raw(t,
				  CALL("POST", path,
				       "{\"name\": \"x\", \"driver\": \"sandbox\", \"config\":"
				       " {\"provider\": \"secure-plugin\", \"timeoutMs\": \"7\","
				       " \"apiKey\": \" canary-value \"}}"),
				  &out),
			 422);
	assert_non_null(strstr(buf_str(&out), "secure-plugin"));
	assert_null(strstr(buf_str(&out), "canary"));
	stands_nowhere(t, "canary");
}

static void RO_19_a_plugin_environment_is_stored_as_it_was_given(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s/environments", t->company);
	_cleanup_json_ json_t *made =
		post(t, 201, path,
		     "{\"name\": \"p\", \"driver\": \"plugin\", \"config\": {\"pluginKey\": \"k\","
		     " \"driverKey\": \"d\", \"driverConfig\": {\"region\": \"eu\"}}}");
	_cleanup_free_ char *config = json_text(json_object_get(made, "config"));

	assert_string_equal(config, "{\"pluginKey\":\"k\",\"driverKey\":\"d\","
				    "\"driverConfig\":{\"region\":\"eu\"}}");
	refused(t, 422, "unprocessable", "driverKey",
		CALL("POST", path,
		     "{\"name\": \"q\", \"driver\": \"plugin\", \"config\": {\"pluginKey\": "
		     "\"k\"}}"));
}

static void delete_sandbox(const struct api_test *t, const char *company)
{
	char id[ID_SIZE];

	environment_named(t, company, "Sandbox", id);

	PATH("/api/environments/%s", id);

	json_decref(call_json(t, 200, CALL("DELETE", path)));
}

/* Where it was deleted, only those who manage environments make it again; from then on it is
 * everybody's who may run. */
static void the_sandbox_is_for_everybody_once_somebody_has_made_it(void **state)
{
	struct people *p = *state;
	PATH("/api/companies/%s/sandbox", p->ours.company);
	_cleanup_free_ char *list = xasprintf("/api/companies/%s/environments", p->ours.company);
	static const enum who RUNNERS[] = { OPERATOR, AGENT, RUN };

	delete_sandbox(&p->api, p->ours.company);
	for (size_t i = 0; i < ARRAY_SIZE(RUNNERS); i++) {
		_cleanup_buf_ struct buf out = { 0 };
		_cleanup_json_ json_t *before = asked(p, LOCAL, list);

		assert_int_equal(ask(p, RUNNERS[i], CALL("POST", path), &out), 403);
		assert_non_null(strstr(buf_str(&out), "environments:manage"));
		assert_int_equal(json_array_size(before), 2);
	}
	json_decref(post(&p->api, 201, list,
			 "{\"name\": \"Sandbox\", \"driver\": \"sandbox\","
			 " \"config\": {\"provider\": \"fake\"}}"));
	for (size_t i = 0; i < ARRAY_SIZE(RUNNERS); i++) {
		_cleanup_buf_ struct buf out = { 0 };

		assert_int_equal(ask(p, RUNNERS[i], CALL("POST", path), &out), 200);

		_cleanup_json_ json_t *seen = json_parse(buf_str(&out), out.len, NULL);

		assert_string_equal(json_str(seen, "name"), "Sandbox");
		assert_redacted(seen);
	}
	assert_asked(p, 403, VIEWER, CALL("POST", path));
}

static void RO_30_a_draft_is_probed_and_nothing_of_it_is_kept(void **state)
{
	struct api_test *t = *state;
	char entity[ID_SIZE];
	PATH("/api/companies/%s/environments/probe-config", t->company);
	_cleanup_free_ char *list = xasprintf("/api/companies/%s/environments", t->company);
	_cleanup_json_ json_t *before = get(t, list);
	_cleanup_json_ json_t *probe =
		post(t, 200, path, "{\"driver\": \"sandbox\", \"config\": {\"image\": \" i:1 \"}}");
	_cleanup_json_ json_t *details =
		newest_details(t, t->company, "environment.probed_unsaved", entity);
	_cleanup_json_ json_t *after = get(t, list);

	assert_true(json_bool(probe, "ok", false));
	assert_string_equal(json_str(json_object_at(probe, "details"), "image"), "i:1");
	assert_string_equal(entity, "unsaved");
	assert_int_equal(json_int(details, "configTopLevelKeyCount", 0), 3);
	assert_string_equal(json_str(details, "driver"), "sandbox");
	assert_true(json_equal(before, after));
	refused(t, 400, "validation_error", NULL, CALL("POST", path, "{\"config\": {}}"));
	refused(t, 400, "validation_error", NULL,
		CALL("POST", path, "{\"driver\": \"local\", \"status\": \"active\"}"));
}

static void RO_30_a_key_that_was_typed_in_is_told_to_nobody(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s/environments/probe-config", t->company);
	_cleanup_free_ char *activity = xasprintf("/api/companies/%s/activity", t->company);
	_cleanup_buf_ struct buf out = { 0 };
	int status =
		call_raw(t,
			 CALL("POST", path,
			      "{\"driver\": \"ssh\", \"config\": {\"host\": \"h\", \"username\":"
			      " \"u\", \"remoteWorkspacePath\": \"/w\", \"privateKey\":"
			      " \" canary-key \"}}"),
			 &out);
	_cleanup_json_ json_t *log = get(t, activity);
	_cleanup_free_ char *text = json_text(log);

	/* Accepted as a draft, and then there is nothing yet that could try it. */
	assert_int_equal(status, 422);
	assert_non_null(strstr(buf_str(&out), "unsupported_environment"));
	assert_null(strstr(buf_str(&out), "canary"));
	assert_null(strstr(text, "canary"));
}

static void I12_usage_names_who_has_chosen_it_and_what_is_in_the_way(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *agents = xasprintf("/api/companies/%s/agents", t->company);
	_cleanup_free_ char *projects = xasprintf("/api/companies/%s/projects", t->company);
	_cleanup_free_ char *agent =
		xasprintf("{\"name\": \"ada\", \"defaultEnvironmentId\": \"%s\"}", t->box);
	_cleanup_free_ char *project = xasprintf(
		"{\"name\": \"apollo\", \"executionWorkspacePolicy\": {\"environmentId\": \"%s\"}}",
		t->box);
	PATH("/api/environments/%s/usage", t->box);

	json_decref(post(t, 201, agents, agent));
	json_decref(post(t, 201, projects, project));

	_cleanup_json_ json_t *free_one = get(t, path);
	json_t *by = json_object_at(free_one, "selectedBy");
	json_t *first = json_array_get(json_array_at(json_object_at(by, "agents"), "first"), 0);

	assert_true(json_bool(free_one, "canDelete", false));
	assert_string_equal(json_str(first, "name"), "ada");
	assert_int_equal(json_int(json_object_at(by, "projects"), "count", 0), 1);
	assert_int_equal(json_int(json_object_at(by, "issues"), "count", -1), 0);

	json_decref(acquire(t, t->box, "{}"));

	_cleanup_json_ json_t *held = get(t, path);
	_cleanup_free_ char *reasons = json_text(json_object_get(held, "deleteBlockedReasons"));

	assert_false(json_bool(held, "canDelete", true));
	assert_string_equal(reasons, "[\"active_leases\",\"live_places\"]");
}

static void I12_deleting_an_environment_retires_its_free_places(void **state)
{
	struct api_test *t = *state;
	PATH("/api/environments/%s", t->box);
	_cleanup_json_ json_t *lease = acquire(t, t->box, "{}");
	_cleanup_free_ char *release =
		xasprintf("/api/environment-leases/%s/release", json_str(lease, "id"));

	refused(t, 409, "environment_in_use", "berth lease release", CALL("DELETE", path));
	json_decref(post(t, 200, release, "{}"));

	_cleanup_json_ json_t *gone = call_json(t, 200, CALL("DELETE", path));
	_cleanup_json_ json_t *health = get(t, "/api/health");

	assert_string_equal(json_str(gone, "id"), t->box);
	assert_int_equal(json_int(json_object_at(health, "leases"), "free", -1), 0);
}

static void a_probe_without_an_answer_is_probe_failed(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s/environments/probe-config", t->company);
	_cleanup_free_ char *environments = xasprintf("/api/companies/%s/environments", t->company);
	char slow[ID_SIZE];
#define SLOW                                                                                       \
	"{\"name\": \"slow\", \"driver\": \"sandbox\", \"config\": {\"provider\": \"fake\","       \
	" \"faults\": {\"probe\": {\"hang\": true, \"deadlineMs\": 20}}}}"

	refused(t, 502, "probe_failed", "could not probe", CALL("POST", path, SLOW));
	take_id(post(t, 201, environments, SLOW), slow);

	_cleanup_free_ char *saved = xasprintf("/api/environments/%s/probe", slow);

	refused(t, 502, "probe_failed", "could not probe", CALL("POST", saved, "{}"));
}

static void I20_the_local_environment_stays_active_and_stays(void **state)
{
	struct api_test *t = *state;
	PATH("/api/environments/%s", t->local);

	refused(t, 422, "unprocessable", "cannot be archived",
		CALL("PATCH", path, "{\"status\": \"archived\"}"));
	refused(t, 409, "environment_in_use", "Local", CALL("DELETE", path));
}

static void I22_an_id_of_another_company_is_like_none(void **state)
{
	struct people *p = *state;
	static const char *const ROUTES[] = { "/api/environments/%s", "/api/agents/%s",
					      "/api/projects/%s", "/api/issues/%s",
					      "/api/execution-workspaces/%s" };
	const char *theirs[] = { p->theirs.environment, p->theirs.agent, p->theirs.project,
				 p->theirs.issue, p->theirs.workspace };

	for (size_t i = 0; i < ARRAY_SIZE(ROUTES); i++) {
		_cleanup_buf_ struct buf foreign = { 0 }, unknown = { 0 }, odd = { 0 };
		size_t stem = strlen(ROUTES[i]) - strlen("%s");
		_cleanup_free_ char *a = xasprintf("%.*s%s", (int)stem, ROUTES[i], theirs[i]);
		_cleanup_free_ char *b = xasprintf("%.*s%s", (int)stem, ROUTES[i], NOWHERE);
		_cleanup_free_ char *c = xasprintf("%.*sodd", (int)stem, ROUTES[i]);

		assert_int_equal(ask(p, OWNER, CALL("GET", a), &foreign), 404);
		assert_int_equal(ask(p, OWNER, CALL("GET", b), &unknown), 404);
		assert_int_equal(ask(p, LOCAL, CALL("GET", c), &odd), 404);
		assert_string_equal(buf_str(&foreign), buf_str(&unknown));
		assert_string_equal(buf_str(&odd), buf_str(&unknown));
		assert_int_equal(ask(p, OWNER, CALL("PATCH", a, "{}"), NULL), 404);
		assert_int_equal(ask(p, OWNER, CALL("DELETE", a), NULL), 404);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		api_unit_test(capabilities_without_plugins_are_what_this_server_can_do),
		api_unit_test(capabilities_tell_what_a_config_may_hold),
		people_test(RO_4_an_unprivileged_agent_lists_redacted_environments),
		people_test(RO_5_a_privileged_agent_sees_the_whole_environment),
		people_test(RO_6_an_unprivileged_agent_sees_a_redacted_environment),
		people_test(settings_of_agents_and_values_of_variables_are_not_for_everybody),
		api_unit_test(RO_26_an_environment_does_not_become_a_fake_sandbox),
		api_unit_test(a_config_that_is_the_whole_loses_what_it_does_not_name),
		api_unit_test(RO_28_ssh_and_plugin_environments_are_stored_and_not_used),
		api_unit_test(RO_13_a_pasted_key_is_refused_and_a_named_secret_is_stored),
		api_unit_test(
			RO_16_RO_17_a_provider_that_nobody_has_is_refused_with_all_it_brought),
		api_unit_test(RO_19_a_plugin_environment_is_stored_as_it_was_given),
		people_test(the_sandbox_is_for_everybody_once_somebody_has_made_it),
		api_unit_test(RO_30_a_draft_is_probed_and_nothing_of_it_is_kept),
		api_unit_test(RO_30_a_key_that_was_typed_in_is_told_to_nobody),
		api_unit_test(I12_usage_names_who_has_chosen_it_and_what_is_in_the_way),
		api_unit_test(I12_deleting_an_environment_retires_its_free_places),
		api_unit_test(a_probe_without_an_answer_is_probe_failed),
		api_unit_test(I20_the_local_environment_stays_active_and_stays),
		people_test(I22_an_id_of_another_company_is_like_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Where runs go that choose nothing, and a server that runs nothing on its own host.
 */
#include "fixture.h"

#include "record/environment.h"

static void begin(struct api_test *t, struct server_options options)
{
	_cleanup_error_ struct error err = { 0 };

	options.data_path = t->data;
	options.absence_ms = 20000;
	use_built_programs();
	if (server_start(&options, &t->server, &err) < 0)
		fail_msg("%s", err.message);
	heed_sigterm();
}

static void find_environments(struct api_test *t)
{
	_cleanup_json_ json_t *list = get(t, "/api/companies/default/environments");
	json_t *item;
	size_t i;

	json_array_foreach (list, i, item) {
		id_copy(t->company, json_str(item, "companyId"));
		if (str_equal(json_str(item, "driver"), "local"))
			id_copy(t->local, json_str(item, "id"));
		if (str_equal(json_str(item, "name"), SANDBOX_NAME))
			id_copy(t->box, json_str(item, "id"));
	}
	assert_true(id_is_set(t->local) && id_is_set(t->box));
}

static int up(void **state)
{
	struct api_test *t = xcalloc(1, sizeof(*t));

	make_dir(t);
	*state = t;
	return 0;
}

static int down(void **state)
{
	struct api_test *t = *state;

	if (t->server)
		server_end(t);
	remove_dir(t);
	free(t);
	return 0;
}

static json_t *ended_run(struct api_test *t, const char *body)
{
	char id[ID_SIZE];
	json_t *run = NULL;

	take_id(post(t, 201, "/api/companies/default/runs", body), id);

	PATH("/api/runs/%s", id);
	WAIT_FOR(({
		json_decref(run);
		run = get(t, path);
		json_str(run, "finishedAt") != NULL;
	}));
	return run;
}

static void assert_goes_to(struct api_test *t, const char *environment, const char *body)
{
	_cleanup_json_ json_t *run = ended_run(t, body);

	if (!str_equal(json_str(run, "environmentId"), environment))
		fail_msg("%s went to %s: %s", body, json_str(run, "environmentId"),
			 json_str(run, "error"));
}

static void make_one(struct api_test *t, const char *what, char id[ID_SIZE], const char *body)
{
	PATH("/api/companies/default/%s", what);

	take_id(post(t, 201, path, body), id);
}

/* Every level with null above one that names another environment (WC-5), and with nothing (WC-6).
 */
static void assert_default_is(struct api_test *t, const char *expected, const char *other)
{
	char agent[ID_SIZE], project[ID_SIZE], issue[ID_SIZE];
	_cleanup_free_ char *of_agent =
		xasprintf("{\"name\": \"a\", \"defaultEnvironmentId\": \"%s\"}", other);

	make_one(t, "agents", agent, of_agent);
	make_one(t, "projects", project,
		 "{\"name\": \"p\", \"executionWorkspacePolicy\": {\"environmentId\": null}}");
	make_one(t, "issues", issue,
		 "{\"title\": \"i\", \"executionWorkspaceSettings\": {\"environmentId\": null}}");

	_cleanup_free_ char *by_request = xasprintf(
		"{\"command\": [\"true\"], \"agentId\": \"%s\", \"environmentId\": null}", agent);
	_cleanup_free_ char *by_issue =
		xasprintf("{\"command\": [\"true\"], \"agentId\": \"%s\", \"issueId\": \"%s\"}",
			  agent, issue);
	_cleanup_free_ char *by_project =
		xasprintf("{\"command\": [\"true\"], \"agentId\": \"%s\", \"projectId\": \"%s\"}",
			  agent, project);
	_cleanup_free_ char *by_agent =
		xasprintf("{\"command\": [\"true\"], \"agentId\": \"%s\"}", agent);

	assert_goes_to(t, expected, "{\"command\": [\"true\"]}");
	assert_goes_to(t, expected, by_request);
	assert_goes_to(t, expected, by_issue);
	assert_goes_to(t, expected, by_project);
	assert_goes_to(t, other, by_agent);
}

static void nothing_and_null_mean_the_sandbox(void **state)
{
	struct api_test *t = *state;

	begin(t, (struct server_options){ 0 });
	find_environments(t);
	assert_default_is(t, t->box, t->local);

	_cleanup_json_ json_t *shown = get(t, "/api/companies/default/environments/default");

	assert_string_equal(json_str(shown, "id"), t->box);
}

static void WC_4_to_WC_6_with_Local_as_the_default(void **state)
{
	struct api_test *t = *state;

	begin(t, (struct server_options){ .default_environment = "Local" });
	find_environments(t);
	assert_default_is(t, t->local, t->box);
}

static void a_sandbox_that_was_deleted_is_made_again(void **state)
{
	struct api_test *t = *state;

	begin(t, (struct server_options){ 0 });
	find_environments(t);

	PATH("/api/environments/%s", t->box);

	json_decref(call_json(t, 200, CALL("DELETE", path)));
	assert_goes_to(t, t->box, "{\"command\": [\"true\"]}");
	json_decref(get(t, path));
}

static void a_default_that_is_not_there_stops_only_runs_that_need_it(void **state)
{
	struct api_test *t = *state;

	begin(t, (struct server_options){ .default_environment = "Nowhere" });
	find_environments(t);

	_cleanup_free_ char *named =
		xasprintf("{\"command\": [\"true\"], \"environmentId\": \"%s\"}", t->local);
	_cleanup_json_ json_t *lost = ended_run(t, "{\"command\": [\"true\"]}");

	assert_string_equal(json_str(lost, "errorCode"), "environment_not_found");
	assert_non_null(strstr(json_str(lost, "error"), "Nowhere"));
	assert_goes_to(t, t->local, named);

	PATH("/api/companies/%s/environments/default", t->company);

	refused(t, 404, "environment_not_found", "Nowhere", CALL("GET", path));
}

/* ---- --no-local ---- */

static void a_server_without_local_runs_nothing_on_its_host(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];

	begin(t, (struct server_options){ 0 });
	find_environments(t);
	take_id(acquire(t, t->local, "{}"), lease);
	server_end(t);
	begin(t, (struct server_options){ .no_local = true, .default_environment = "Local" });

	_cleanup_free_ char *named =
		xasprintf("{\"command\": [\"true\"], \"environmentId\": \"%s\"}", t->local);
	_cleanup_free_ char *leases = xasprintf("/api/environments/%s/leases", t->local);
	_cleanup_free_ char *exec = xasprintf("/api/environment-leases/%s/exec", lease);
	_cleanup_free_ char *files =
		xasprintf("/api/environment-leases/%s/files?path=/etc/hostname", lease);
	_cleanup_free_ char *test = xasprintf("{\"environmentId\": \"%s\"}", t->local);
	_cleanup_free_ char *agent =
		xasprintf("{\"name\": \"a\", \"defaultEnvironmentId\": \"%s\"}", t->local);
	_cleanup_json_ json_t *by_name = ended_run(t, named);
	_cleanup_json_ json_t *by_default = ended_run(t, "{\"command\": [\"true\"]}");
	_cleanup_json_ json_t *can = get(t, "/api/companies/default/environments/capabilities");

	assert_string_equal(json_str(by_name, "errorCode"), "forbidden");
	assert_non_null(strstr(json_str(by_name, "error"), "--no-local"));
	assert_string_equal(json_str(by_default, "errorCode"), "forbidden");
	refused(t, 403, "forbidden", "--no-local", CALL("POST", leases, "{}"));
	refused(t, 403, "forbidden", "--no-local", CALL("POST", exec, "{\"command\": [\"true\"]}"));
	refused(t, 403, "forbidden", "--no-local", CALL("GET", files));
	refused(t, 403, "forbidden", "--no-local",
		CALL("POST", "/api/companies/default/adapters/process/test-environment", test));
	refused(t, 422, "unprocessable", "local",
		CALL("POST", "/api/companies/default/agents", agent));
	assert_string_equal(json_str(json_object_at(can, "drivers"), "local"), "unsupported");
}

static void without_local_there_is_no_fake_provider_either(void **state)
{
	struct api_test *t = *state;
	_cleanup_error_ struct error err = { 0 };
	struct server_options options = { .data_path = t->data,
					  .no_local = true,
					  .allow_fake = true };

	assert_int_equal(server_start(&options, &t->server, &err), -1);
	assert_non_null(strstr(err.message, "--allow-fake"));
	t->server = NULL;
}

#define place_test(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		place_test(nothing_and_null_mean_the_sandbox),
		place_test(WC_4_to_WC_6_with_Local_as_the_default),
		place_test(a_sandbox_that_was_deleted_is_made_again),
		place_test(a_default_that_is_not_there_stops_only_runs_that_need_it),
		place_test(a_server_without_local_runs_nothing_on_its_host),
		place_test(without_local_there_is_no_fake_provider_either),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

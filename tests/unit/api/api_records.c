#include "fixture.h"

#define NOWHERE "00000000-0000-4000-8000-000000000000"

static void a_company_is_made_once_per_name(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];

	take_id(post(t, 201, "/api/companies", "{\"name\": \"  second \"}"), id);
	refused(t, 409, "conflict", NULL, CALL("POST", "/api/companies", "{\"name\": \"second\"}"));
	refused(t, 400, "validation_error", NULL,
		CALL("POST", "/api/companies", "{\"name\": \"  \"}"));

	PATH("/api/companies/%s", id);
	_cleanup_json_ json_t *company = get(t, path);
	_cleanup_json_ json_t *all = get(t, "/api/companies");

	assert_string_equal(json_str(company, "name"), "second");
	/* Beside it the fixture's, and the one that every server begins with. */
	assert_int_equal(json_array_size(all), 3);
}

static void a_new_company_has_a_native_sandbox(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];

	environment_named(t, t->company, "Sandbox", id);

	PATH("/api/environments/%s", id);
	_cleanup_json_ json_t *sandbox = get(t, path);
	const json_t *config = json_object_at(sandbox, "config");

	assert_string_equal(json_str(sandbox, "driver"), "sandbox");
	assert_string_equal(json_str(config, "provider"), "native");
	assert_string_equal(json_str(config, "network"), "none");
}

static void a_path_takes_the_name_of_a_company(void **state)
{
	struct api_test *t = *state;
	char spaced[ID_SIZE], agent[ID_SIZE];

	take_id(post(t, 201, "/api/companies", "{\"name\": \"Two Words\"}"), spaced);
	take_id(post(t, 201, "/api/companies/Two%20Words/agents", "{\"name\": \"a\"}"), agent);

	_cleanup_json_ json_t *company = get(t, "/api/companies/Two%20Words");
	_cleanup_json_ json_t *runs = get(t, "/api/companies/acme/runs");
	_cleanup_json_ json_t *renamed = call_json(
		t, 200, CALL("PATCH", "/api/companies/Two%20Words", "{\"name\": \"Three\"}"));
	PATH("/api/agents/%s", agent);
	_cleanup_json_ json_t *made = get(t, path);

	assert_string_equal(json_str(company, "id"), spaced);
	assert_string_equal(json_str(renamed, "id"), spaced);
	assert_string_equal(json_str(made, "companyId"), spaced);
	assert_non_null(json_object_get(runs, "items"));
	refused(t, 404, "not_found", "Company", CALL("GET", "/api/companies/Two%20Words/agents"));
	refused(t, 404, "not_found", "Company", CALL("GET", "/api/companies/THREE"));
}

/* Otherwise it would stand where another company's id is looked for. */
static void a_company_cannot_be_named_like_an_id(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s", t->company);

	refused(t, 422, "unprocessable", "UUID",
		CALL("POST", "/api/companies", "{\"name\": \"" NOWHERE "\"}"));
	refused(t, 422, "unprocessable", "UUID",
		CALL("PATCH", path, "{\"name\": \"" NOWHERE "\"}"));
}

static void an_unknown_company_is_404_on_every_route(void **state)
{
	static const char *const routes[] = { "agents",       "projects", "issues",
					      "environments", "runs",     "activity" };
	struct api_test *t = *state;

	refused(t, 404, "not_found", "Company", CALL("GET", "/api/companies/x"));
	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		PATH("/api/companies/" NOWHERE "/%s", routes[i]);
		refused(t, 404, "not_found", "Company", CALL("GET", path));
	}
}

static void context_records_are_made_and_listed(void **state)
{
	struct api_test *t = *state;
	char project[ID_SIZE], agent[ID_SIZE], issue[ID_SIZE];

	{
		PATH("/api/companies/%s/projects", t->company);
		take_id(post(t, 201, path, "{\"name\": \"p\"}"), project);
	}
	{
		PATH("/api/companies/%s/agents", t->company);
		take_id(post(t, 201, path, "{\"name\": \"a\"}"), agent);

		_cleanup_json_ json_t *agents = get(t, path);

		assert_int_equal(json_array_size(agents), 1);
		assert_string_equal(json_str(json_array_get(agents, 0), "adapterType"), "process");
	}

	PATH("/api/companies/%s/issues", t->company);
	_cleanup_free_ char *body =
		xasprintf("{\"title\": \"t\", \"projectId\": \"%s\", \"assigneeAgentId\": \"%s\"}",
			  project, agent);

	take_id(post(t, 201, path, body), issue);
	refused(t, 422, "unprocessable", NULL,
		CALL("POST", path, "{\"title\": \"t\", \"projectId\": \"" NOWHERE "\"}"));
	refused(t, 400, "validation_error", NULL,
		CALL("POST", path, "{\"title\": \"t\", \"other\": 1}"));
}

static void activity_is_paged_from_the_newest(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s/activity?limit=1", t->company);
	_cleanup_json_ json_t *first = get(t, path);
	json_t *items = json_array_at(first, "items");

	assert_int_equal(json_array_size(items), 1);
	assert_string_equal(json_str(json_array_get(items, 0), "action"), "environment.created");
	assert_string_equal(json_str(json_array_get(items, 0), "actorId"), "local");
	assert_non_null(json_str(first, "nextCursor"));

	_cleanup_free_ char *next = xasprintf("/api/companies/%s/activity?limit=500&cursor=%s",
					      t->company, json_str(first, "nextCursor"));
	_cleanup_json_ json_t *rest = get(t, next);

	assert_int_equal(json_state(rest, "nextCursor"), JSON_IS_NULL);
	items = json_array_at(rest, "items");
	assert_true(json_array_size(items) >= 1);
	assert_string_equal(json_str(json_array_get(items, json_array_size(items) - 1), "action"),
			    "company.created");
}

static void RO_1_a_list_of_environments_can_be_narrowed(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s/environments?driver=local", t->company);
	_cleanup_json_ json_t *local = get(t, path);
	_cleanup_free_ char *bad =
		xasprintf("/api/companies/%s/environments?driver=cloud", t->company);

	assert_int_equal(json_array_size(local), 1);
	assert_string_equal(json_str(json_array_get(local, 0), "id"), t->local);
	refused(t, 400, "validation_error", NULL, CALL("GET", bad));
}

static void RO_12_an_ssh_environment_needs_a_workspace_path(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s/environments", t->company);

	refused(t, 422, "unprocessable", "remote workspace path",
		CALL("POST", path,
		     "{\"name\": \"far\", \"driver\": \"ssh\", \"config\":"
		     " {\"host\": \"h\", \"username\": \"u\"}}"));
}

static void RO_15_the_fake_provider_is_not_for_saving(void **state)
{
	struct api_test *t = *state;

	server_end(t);
	server_begin(t, false);

	PATH("/api/companies/%s/environments", t->company);
	refused(t, 422, "unprocessable", "reserved for internal probes",
		CALL("POST", path, "{\"name\": \"f\", \"driver\": \"sandbox\", \"config\": {}}"));

	_cleanup_free_ char *local = xasprintf("/api/environments/%s", t->local);

	refused(t, 422, "unprocessable", "reserved for internal probes",
		CALL("PATCH", local, "{\"driver\": \"sandbox\"}"));
}

static json_t *newest_details(struct api_test *t, const char *action)
{
	PATH("/api/companies/%s/activity?limit=1", t->company);
	_cleanup_json_ json_t *page = get(t, path);
	json_t *item = json_array_get(json_array_at(page, "items"), 0);

	assert_string_equal(json_str(item, "action"), action);
	return json_incref(json_object_get(item, "details"));
}

static void RO_23_a_patch_is_told_by_its_fields_never_by_its_values(void **state)
{
	struct api_test *t = *state;
	PATH("/api/environments/%s", t->box);
	_cleanup_json_ json_t *changed =
		call_json(t, 200,
			  CALL("PATCH", path,
			       "{\"status\": \"archived\", \"metadata\": {\"a\": 1},"
			       " \"config\": {\"image\": \"hush:1\"}}"));
	_cleanup_json_ json_t *details = newest_details(t, "environment.updated");
	_cleanup_free_ char *text = json_text(details);

	assert_string_equal(json_str(changed, "status"), "archived");
	assert_string_equal(json_str(json_object_at(changed, "config"), "image"), "hush:1");
	assert_true(json_bool(json_object_at(changed, "config"), "reuseLease", false));
	assert_null(strstr(text, "hush"));
	assert_non_null(strstr(text, "\"changedFields\":[\"config\",\"metadata\",\"status\"]"));
	assert_non_null(strstr(text, "\"metadataTopLevelKeyCount\":1"));
	assert_non_null(strstr(text, "\"configChanged\":true"));
}

static void a_patch_lays_its_keys_over_those_there_are(void **state)
{
	struct api_test *t = *state;
	PATH("/api/environments/%s", t->local);

	json_decref(call_json(t, 200, CALL("PATCH", path, "{\"config\": {\"a\": 1}}")));

	_cleanup_json_ json_t *two = call_json(
		t, 200, CALL("PATCH", path, "{\"config\": {\"b\": 2}, \"description\": null}"));
	_cleanup_free_ char *config = json_text(json_object_at(two, "config"));

	assert_string_equal(config, "{\"a\":1,\"b\":2}");
	assert_int_equal(json_state(two, "description"), JSON_IS_NULL);
	refused(t, 400, "validation_error", NULL, CALL("PATCH", path, "{\"driver\": \"warp\"}"));
}

static void another_driver_starts_with_an_empty_config(void **state)
{
	struct api_test *t = *state;
	char far[ID_SIZE];
	_cleanup_free_ char *list = xasprintf("/api/companies/%s/environments", t->company);

	take_id(post(t, 201, list,
		     "{\"name\": \"far\", \"driver\": \"ssh\", \"config\": {\"host\": \"h\","
		     " \"username\": \"u\", \"remoteWorkspacePath\": \"/w\"}}"),
		far);

	PATH("/api/environments/%s", far);

	/* A company has one Local environment, so this one can only become something else. */
	refused(t, 409, "conflict", "Local", CALL("PATCH", path, "{\"driver\": \"local\"}"));

	_cleanup_json_ json_t *boxed =
		call_json(t, 200, CALL("PATCH", path, "{\"driver\": \"sandbox\"}"));
	_cleanup_json_ json_t *details = newest_details(t, "environment.updated");
	_cleanup_free_ char *text = json_text(details);

	assert_null(json_object_get(json_object_at(boxed, "config"), "host"));
	assert_string_equal(json_str(json_object_at(boxed, "config"), "provider"), "fake");
	assert_non_null(strstr(text, "\"changedFields\":[\"config\",\"driver\"]"));
}

static void RO_25_an_ssh_environment_cannot_be_had_without_its_config(void **state)
{
	struct api_test *t = *state;
	PATH("/api/environments/%s", t->box);

	refused(t, 422, "unprocessable", "host", CALL("PATCH", path, "{\"driver\": \"ssh\"}"));

	_cleanup_json_ json_t *still = get(t, path);

	assert_string_equal(json_str(still, "driver"), "sandbox");
}

static void RO_27_a_missing_environment_is_404_everywhere(void **state)
{
	struct api_test *t = *state;
	static const char *const base = "/api/environments/" NOWHERE;
	PATH("%s/probe", base);
	_cleanup_free_ char *leases = xasprintf("%s/leases", base);

	refused(t, 404, "not_found", "Environment not found",
		CALL("PATCH", base, "{\"name\": \"x\"}"));
	refused(t, 404, "not_found", "Environment not found", CALL("GET", base));
	refused(t, 404, "not_found", "Environment not found", CALL("DELETE", base));
	refused(t, 404, "not_found", "Environment not found", CALL("POST", path));
	refused(t, 404, "not_found", "Environment not found", CALL("GET", leases));
	refused(t, 404, "not_found", "Environment not found", CALL("POST", leases, "{}"));
}

static void RO_29_a_probe_is_answered_and_noted(void **state)
{
	struct api_test *t = *state;
	PATH("/api/environments/%s/probe", t->box);
	_cleanup_json_ json_t *probe = post(t, 200, path, "{}");
	_cleanup_json_ json_t *details = newest_details(t, "environment.probed");

	assert_true(json_bool(probe, "ok", false));
	assert_string_equal(json_str(probe, "driver"), "sandbox");
	assert_true(json_bool(details, "ok", false));
	assert_string_equal(json_str(details, "driver"), "sandbox");
	assert_string_equal(json_str(details, "summary"), json_str(probe, "summary"));
}

static void an_environment_in_use_stays(void **state)
{
	struct api_test *t = *state;
	PATH("/api/environments/%s", t->box);

	json_decref(acquire(t, t->box, "{}"));
	refused(t, 409, "environment_in_use", "berth lease release", CALL("DELETE", path));
}

static void an_environment_nothing_needs_can_go(void **state)
{
	struct api_test *t = *state;
	PATH("/api/environments/%s", t->box);
	_cleanup_json_ json_t *gone = call_json(t, 200, CALL("DELETE", path));

	assert_string_equal(json_str(gone, "id"), t->box);
	refused(t, 404, "not_found", NULL, CALL("GET", path));
}

static void an_environment_made_under_a_key_is_made_once(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s/environments", t->company);
	const struct call *call =
		CALL("POST", path, "{\"name\": \"e\", \"driver\": \"sandbox\"}", "k");
	const struct call *other =
		CALL("POST", path, "{\"name\": \"f\", \"driver\": \"sandbox\"}", "k");
	_cleanup_json_ json_t *one = call_json(t, 201, call);
	_cleanup_json_ json_t *two = call_json(t, 201, call);
	_cleanup_json_ json_t *all = get(t, path);

	assert_true(json_equal(one, two));
	assert_int_equal(json_array_size(all), 4);
	refused(t, 409, "idempotency_key_reused", NULL, other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		api_unit_test(a_company_is_made_once_per_name),
		api_unit_test(a_new_company_has_a_native_sandbox),
		api_unit_test(a_path_takes_the_name_of_a_company),
		api_unit_test(a_company_cannot_be_named_like_an_id),
		api_unit_test(an_unknown_company_is_404_on_every_route),
		api_unit_test(context_records_are_made_and_listed),
		api_unit_test(activity_is_paged_from_the_newest),
		api_unit_test(RO_1_a_list_of_environments_can_be_narrowed),
		api_unit_test(RO_12_an_ssh_environment_needs_a_workspace_path),
		api_unit_test(RO_15_the_fake_provider_is_not_for_saving),
		api_unit_test(RO_23_a_patch_is_told_by_its_fields_never_by_its_values),
		api_unit_test(a_patch_lays_its_keys_over_those_there_are),
		api_unit_test(another_driver_starts_with_an_empty_config),
		api_unit_test(RO_25_an_ssh_environment_cannot_be_had_without_its_config),
		api_unit_test(RO_27_a_missing_environment_is_404_everywhere),
		api_unit_test(RO_29_a_probe_is_answered_and_noted),
		api_unit_test(an_environment_in_use_stays),
		api_unit_test(an_environment_nothing_needs_can_go),
		api_unit_test(an_environment_made_under_a_key_is_made_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "document.h"
#include "fixture.h"
#include "api/response_schemas.h"

static void every_route_is_in_the_document(void **state)
{
	_cleanup_json_ json_t *document = openapi_document(), *ids = json_object();
	size_t routes = 0;
	(void)state;

	EACH_ROUTE(route)
	{
		const json_t *operation = find_operation(document, route);

		if (!operation)
			fail_msg("%s is missing", route->path);
		if (!route->summary)
			fail_msg("%s has no summary", route->path);
		json_put_bool(ids, json_str(operation, "operationId"), true);
		routes++;
	}
	assert_true(routes > 40);
	assert_int_equal(json_object_size(ids), routes);
}

/* A shape that does not exist would become null in the document. */
static void find_null_schema(const json_t *value)
{
	const char *key;
	json_t *inner;
	size_t i;

	json_object_foreach ((json_t *)value, key, inner) {
		if (streq(key, "schema") && !json_is_object(inner))
			fail_msg("a schema is missing");
		find_null_schema(inner);
	}
	if (json_is_array(value))
		json_array_foreach (value, i, inner)
			find_null_schema(inner);
}

static void every_answer_and_every_error_of_a_route_is_known(void **state)
{
	_cleanup_json_ json_t *document = openapi_document();
	(void)state;

	find_null_schema(document);
	EACH_ROUTE(route)
	{
		_cleanup_free_ char *words = xstrdup(route->errors ? route->errors : "");
		char *at = NULL;

		if (!route->answer && !(route->flags & (ROUTE_STREAM | ROUTE_WEBSOCKET)))
			fail_msg("what %s answers is not told", route->path);
		for (char *w = strtok_r(words, " ", &at); w; w = strtok_r(NULL, " ", &at))
			if (error_code_from_name(w) == ERR_INTERNAL)
				fail_msg("%s: no such code: %s", route->path, w);
	}
	for (const struct shape *shape = SHAPES; shape->name; shape++) {
		_cleanup_json_ json_t *schema = shape_schema(shape);
		const char *name;
		json_t *property;

		json_object_foreach (json_object_at(schema, "properties"), name, property)
			if (!json_is_object(property))
				fail_msg("%s.%s has no known type", shape->name, name);
	}
}

/* The answer to a call is what the document says of its route. */
static json_t *told(const struct api_test *t, const char *pattern, int status,
		    const struct call *call)
{
	const struct route *found = NULL;
	json_t *answer = call_json(t, status, call);
	_cleanup_buf_ struct buf why = { 0 };
	char *type;

	EACH_ROUTE(route)
	if (streq(route->path, pattern) &&
	    (route->method == HTTP_GET      ? streq(call->method, "GET")
	     : route->method == HTTP_POST   ? streq(call->method, "POST")
	     : route->method == HTTP_PATCH  ? streq(call->method, "PATCH")
	     : route->method == HTTP_DELETE ? streq(call->method, "DELETE")
					    : false))
		found = route;
	assert_non_null(found);
	assert_non_null(found->answer);
	assert_int_equal(strtol(found->answer, &type, 10) ?: 200, status);
	type += strspn(type, " ");
	if (!shape_matches(type, answer, &why)) {
		_cleanup_free_ char *text = json_text(answer);

		fail_msg("%s %s is no %s: %s\n%s", call->method, call->path, type, buf_str(&why),
			 text);
	}
	return answer;
}

#define TOLD(pattern, status, ...) json_decref(told(t, pattern, status, CALL(__VA_ARGS__)))

static void records_are_what_the_document_says(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *company = xasprintf("/api/companies/%s", t->company);
	_cleanup_free_ char *agents = xasprintf("%s/agents", company);
	_cleanup_free_ char *projects = xasprintf("%s/projects", company);
	_cleanup_free_ char *issues = xasprintf("%s/issues", company);
	_cleanup_free_ char *environments = xasprintf("%s/environments", company);
	_cleanup_free_ char *activity = xasprintf("%s/activity", company);
	_cleanup_free_ char *box = xasprintf("/api/environments/%s", t->box);
	_cleanup_free_ char *probe = xasprintf("%s/probe", box);

	TOLD("/api/companies", 201, "POST", "/api/companies", "{\"name\": \"other\"}");
	TOLD("/api/companies", 200, "GET", "/api/companies");
	TOLD("/api/companies/:id", 200, "GET", company);
	TOLD("/api/companies/:cid/agents", 201, "POST", agents, "{\"name\": \"a\"}");
	TOLD("/api/companies/:cid/agents", 200, "GET", agents);
	TOLD("/api/companies/:cid/projects", 201, "POST", projects, "{\"name\": \"p\"}");
	TOLD("/api/companies/:cid/projects", 200, "GET", projects);
	TOLD("/api/companies/:cid/issues", 201, "POST", issues, "{\"title\": \"i\"}");
	TOLD("/api/companies/:cid/issues", 200, "GET", issues);
	TOLD("/api/companies/:cid/environments", 200, "GET", environments);
	TOLD("/api/companies/:cid/environments", 201, "POST", environments,
	     "{\"name\": \"e\", \"driver\": \"sandbox\", \"config\": {\"provider\": \"fake\"}}");
	TOLD("/api/environments/:id", 200, "GET", box);
	TOLD("/api/environments/:id", 200, "PATCH", box, "{\"description\": \"x\"}");
	TOLD("/api/environments/:id/probe", 200, "POST", probe, "{}");
	TOLD("/api/companies/:cid/activity", 200, "GET", activity);
}

static void leases_and_runs_are_what_the_document_says(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *leases = xasprintf("/api/environments/%s/leases", t->box);
	_cleanup_free_ char *runs = xasprintf("/api/companies/%s/runs", t->company);
	_cleanup_json_ json_t *lease =
		told(t, "/api/environments/:id/leases", 201, CALL("POST", leases, "{}"));
	_cleanup_free_ char *path = xasprintf("/api/environment-leases/%s", json_str(lease, "id"));
	_cleanup_free_ char *exec = xasprintf("%s/exec?stream=0", path);
	_cleanup_free_ char *renew = xasprintf("%s/renew", path);
	_cleanup_free_ char *release = xasprintf("%s/release", path);
	_cleanup_free_ char *renewal = xasprintf("{\"generation\": %lld, \"ttlSeconds\": 600}",
						 (long long)json_int(lease, "generation", 0));

	TOLD("/api/environments/:id/leases", 200, "GET", leases);
	TOLD("/api/environment-leases/:id", 200, "GET", path);
	TOLD("/api/environment-leases/:id/renew", 200, "POST", renew, renewal);
	json_decref(told(t, "/api/environment-leases/:id/exec", 200,
			 &(struct call){ .method = "POST",
					 .path = exec,
					 .body = "{\"command\": [\"true\"]}",
					 .accept = "application/json" }));
	TOLD("/api/environment-leases/:id/release", 200, "POST", release, "{}");

	_cleanup_json_ json_t *run = told(t, "/api/companies/:cid/runs", 201,
					  CALL("POST", runs, "{\"command\": [\"true\"]}"));
	_cleanup_free_ char *one = xasprintf("/api/runs/%s", json_str(run, "id"));
	_cleanup_free_ char *cancel = xasprintf("%s/cancel", one);
	_cleanup_free_ char *retry = xasprintf("%s/retry", one);
	_cleanup_free_ char *as_exec = xasprintf("/api/execs/%s", json_str(run, "id"));

	TOLD("/api/companies/:cid/runs", 200, "GET", runs);
	TOLD("/api/runs/:id/cancel", 200, "POST", cancel, "{}");
	for (bool final = false; !final;) {
		_cleanup_json_ json_t *now = told(t, "/api/runs/:id", 200, CALL("GET", one));

		final = json_str(now, "finishedAt");
	}
	TOLD("/api/execs/:id", 200, "GET", as_exec);
	TOLD("/api/runs/:id/retry", 201, "POST", retry, "{}");
}

static void the_server_itself_is_what_the_document_says(void **state)
{
	struct api_test *t = *state;

	TOLD("/api/health", 200, "GET", "/api/health");
	TOLD("/api/audit", 200, "GET", "/api/audit");
	TOLD("/api/keeper", 200, "GET", "/api/keeper");
	TOLD("/api/prune", 200, "POST", "/api/prune", "{}");
	TOLD("/api/backup", 201, "POST", "/api/backup", "{}");
	TOLD("/api/openapi.json", 200, "GET", "/api/openapi.json");
}

static void a_value_that_is_not_of_its_shape_is_noticed(void **state)
{
	static const struct {
		const char *type, *text;
		bool matches;
	} CASES[] = {
		{ "string", "\"a\"", true },
		{ "string", "1", false },
		{ "string?", "null", true },
		{ "string", "null", false },
		{ "[int]", "[1, 2]", true },
		{ "[int]", "[1, \"2\"]", false },
		{ "[int]", "{}", false },
		{ "[string]?", "null", true },
		{ "uuid", "\"0c470ca8-3082-44ab-b156-1603f0789622\"", true },
		{ "uuid", "\"x\"", false },
		{ "time", "\"2026-11-15T20:07:16.123Z\"", true },
		{ "time", "\"yesterday\"", false },
		{ "map", "{\"a\": \"b\"}", true },
		{ "map", "{\"a\": 1}", false },
		{ "Taken", "{\"bytes\": 1}", true },
		{ "Taken", "{\"bytes\": 1, \"more\": 2}", false },
		{ "Taken", "{}", false },
		{ "Backup", "{\"path\": \"/x\"}", true },
		{ "NoSuchShape", "{}", false },
	};
	(void)state;

	for (size_t i = 0; i < ARRAY_SIZE(CASES); i++) {
		_cleanup_json_ json_t *value =
			json_parse(CASES[i].text, strlen(CASES[i].text), NULL);
		_cleanup_buf_ struct buf why = { 0 };

		if (shape_matches(CASES[i].type, value, &why) != CASES[i].matches)
			fail_msg("%s as %s: %s", CASES[i].text, CASES[i].type, buf_str(&why));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_route_is_in_the_document),
		cmocka_unit_test(every_answer_and_every_error_of_a_route_is_known),
		cmocka_unit_test(a_value_that_is_not_of_its_shape_is_noticed),
		api_unit_test(records_are_what_the_document_says),
		api_unit_test(leases_and_runs_are_what_the_document_says),
		api_unit_test(the_server_itself_is_what_the_document_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

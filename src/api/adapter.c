#include "api/adapter_test.h"
#include "api/answer.h"
#include "base/text.h"
#include "record/trust.h"
#include "run/orchestrator.h"

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;

	(void)request;
	(void)err;
	return answer(response, 200, adapter_list(makers_usable(&server->makers)));
}

/*
 * The environment the test is about: the one chosen, else the company's default. 1 found, 0 it
 * cannot be used and the checks say why, -1. What was chosen is never replaced by the host.
 */
static int choose_environment(struct adapter_test *test, const char *company_id,
			      struct environment *out, struct error *err)
{
	struct server *server = test->server;
	const char *id = json_str(test->request->body, "environmentId");
	_cleanup_error_ struct error why = { 0 };

	if (!id)
		return default_environment(server->db, &server->clock, &server->default_place,
					   company_id, out, err) < 0
			       ? -1
			       : 1;
	if (environment_get(server->db, id, out, &why) < 0 && why.code != ERR_NOT_FOUND) {
		error_move(err, &why);
		return -1;
	}
	if (why.code == ERR_NOT_FOUND || !streq(out->company_id, company_id)) {
		test_found(test, CHECK_WARN, "environment_not_found", NULL, NULL,
			   "Selected environment was not found. The test did not run.");
		return 0;
	}
	if (out->status != ENVIRONMENT_ACTIVE) {
		test_found(test, CHECK_WARN, "environment_inactive", NULL,
			   "Make it active again or choose another.",
			   "Selected environment \"%s\" is %s. The test did not run.", out->name,
			   environment_status_name(out->status));
		return 0;
	}
	return 1;
}

/* Over ssh no lease is needed to know where a command would go. */
static void test_over_ssh(struct adapter_test *test, const struct environment *environment)
{
	_cleanup_(execution_target_clear) struct execution_target target = { 0 };
	_cleanup_error_ struct error err = { 0 };

	if (!adapter_allows(test->adapter->type, DRIVER_SSH)) {
		test_found(test, CHECK_WARN, "environment_target_unavailable", NULL, NULL,
			   "Adapter \"%s\" cannot run in \"%s\". The test did not run.",
			   test->adapter->type, environment->name);
		return;
	}
	if (execution_target(test->adapter->type, environment, NULL, &target, &err) < 0) {
		test_found(test, CHECK_WARN, "environment_target_failed", err.message, NULL,
			   "Could not find out how to run commands in \"%s\".", environment->name);
		return;
	}
	if (test_config(test))
		test_in_place(test, environment);
}

/* What cannot run there is told before anything is leased. */
static void test_environment(struct adapter_test *test, const struct environment *environment)
{
	if (environment->driver == DRIVER_SSH) {
		test_over_ssh(test, environment);
		return;
	}
	if (environment->driver != DRIVER_PLUGIN &&
	    !adapter_allows(test->adapter->type, environment->driver)) {
		test_found(test, CHECK_WARN, "environment_target_unsupported", NULL, NULL,
			   "Adapter \"%s\" is not allowed in \"%s\" environments.",
			   test->adapter->type, environment->name);
		return;
	}
	if (test_config(test))
		test_in_place(test, environment);
}

static int check_host_allowed(const struct adapter_test *test,
			      const struct environment *environment, struct error *err)
{
	if (environment->driver != DRIVER_LOCAL)
		return 0;
	if (test->server->maker_host.no_local)
		return refuse_host(err);
	return actor_trust(&test->request->actor) < TRUST_LOCAL ? refuse_local(err) : 0;
}

static int test_route(void *arg, struct request *request, struct response *response,
		      struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };
	_cleanup_environment_ struct environment environment = { 0 };
	_cleanup_json_ json_t *checks = json_array(), *empty = json_object();
	const json_t *config = json_object_at(request->body, "adapterConfig");
	struct adapter_test test = { .server = server,
				     .request = request,
				     .adapter = adapter_find(request->param[1]),
				     .config = config ? config : empty,
				     .checks = checks };
	int chosen;

	if (company_of_path(server, request, &company, err) < 0)
		return -1;
	if (!test.adapter)
		return error_set(err, ERR_NOT_FOUND, "Adapter not found");
	chosen = choose_environment(&test, company.id, &environment, err);
	if (chosen < 0 || (chosen && check_host_allowed(&test, &environment, err) < 0))
		return -1;
	if (chosen)
		test_environment(&test, &environment);
	return answer(response, 200, test_result(&test));
}

static const struct field TEST_FIELDS[] = {
	{ "adapterConfig", FIELD_OBJECT, 0, .summary = "Settings to try; none unless given" },
	{ "environmentId", FIELD_UUID, FIELD_NULLABLE,
	  .summary = "Where to try them; the company's default environment unless given" },
	{ 0 },
};

ROUTES(ADAPTER_ROUTES, 180) = {
	{ HTTP_GET, "/api/adapters", .access = ACCESS_SIGNED_IN, .run = list, .answer = "[Adapter]",
	  .summary = "The tools that runs with a prompt can use" },
	{ HTTP_POST, "/api/companies/:cid/adapters/:type/test-environment", ROUTE_NO_BODY_OK,
	  TEST_FIELDS, .access = ACCESS_AGENTS, .subject = SUBJECT_COMPANY, .run = test_route,
	  .answer = "AdapterTest",
	  .summary =
		  "Looks for the adapter's tool where it would run; what it finds is the answer" },
	{ 0 },
};

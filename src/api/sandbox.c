/*
 * The company's Sandbox environment: where `berth run` goes when nothing else is said. A company
 * has it from its beginning. In one where it was deleted, or which is older, it is made when it is
 * asked for, and only after a native place has been built here and has held.
 */
#include "api/answer.h"
#include "base/text.h"

/* What makes the places of an environment that nobody has configured. */
#define SANDBOX_PROVIDER "native"

json_t *sandbox_config(struct server *server, struct error *err)
{
	_cleanup_json_ json_t *config = json_object();

	json_put_str(config, "provider", SANDBOX_PROVIDER);
	return maker_normalize(&server->makers, DRIVER_SANDBOX, config, true, err);
}

static int self_test(struct server *server, struct environment *environment, struct probe *out,
		     struct error *err)
{
	environment->driver = DRIVER_SANDBOX;
	environment->config = sandbox_config(server, err);
	if (!environment->config)
		return -1;
	return maker_probe(&server->makers, environment, out, err);
}

static int make(struct server *server, const struct request *request, const char *company_id,
		struct environment *out, struct error *err)
{
	_cleanup_environment_ struct environment wanted = { 0 };
	_cleanup_(probe_clear) struct probe probe = { 0 };
	_cleanup_error_ struct error why = { 0 };

	if (self_test(server, &wanted, &probe, err) < 0)
		return -1;
	if (!probe.ok) {
		_cleanup_free_ char *details = json_text(probe.details);

		error_set(
			err, ERR_UNSUPPORTED_ENV,
			"%.300s. `berth doctor --sandbox` says more; --env Local runs on this host "
			"without a sandbox",
			probe.summary);
		error_set_details(err, steal(details));
		return -1;
	}
	wanted.name = xstrdup(SANDBOX_NAME);
	wanted.description = xstrdup(SANDBOX_DESCRIPTION);
	environment_sandbox_id(company_id, wanted.id);
	id_copy(wanted.company_id, company_id);
	if (environment_create(server->db, &server->clock, &request->actor, &wanted, out, &why) ==
	    0)
		return 0;
	/* Somebody else was faster. */
	if (environment_get(server->db, wanted.id, out, NULL) == 0)
		return 0;
	error_move(err, &why);
	return -1;
}

static int ensure(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };
	_cleanup_environment_ struct environment environment = { 0 };
	_cleanup_error_ struct error missing = { 0 };

	if (company_of_path(server, request, &company, err) < 0)
		return -1;
	if (environment_find(server->db, company.id, SANDBOX_NAME, &environment, &missing) < 0) {
		if (missing.code != ERR_NOT_FOUND) {
			error_move(err, &missing);
			return -1;
		}
		if (!request_may(request, "environments:manage"))
			return error_set(err, ERR_FORBIDDEN,
					 "this company has no environment " SANDBOX_NAME
					 " yet: somebody with environments:manage makes it by "
					 "`berth run`");
		if (make(server, request, company.id, &environment, err) < 0)
			return -1;
	}
	return answer(response, 200, environment_viewed(request, environment_json(&environment)));
}

static int show_default(void *arg, struct request *request, struct response *response,
			struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };
	_cleanup_environment_ struct environment environment = { 0 };

	if (company_of_path(server, request, &company, err) < 0 ||
	    default_environment(server->db, &server->clock, &server->default_place, company.id,
				&environment, err) < 0)
		return -1;
	return answer(response, 200, environment_viewed(request, environment_json(&environment)));
}

static int test(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_environment_ struct environment environment = { 0 };
	_cleanup_(probe_clear) struct probe probe = { 0 };

	(void)request;
	if (self_test(arg, &environment, &probe, err) < 0)
		return -1;
	return answer(response, 200, probe_json(&probe));
}

static const struct field NO_FIELDS[] = { { 0 } };

ROUTES(SANDBOX_ROUTES, 260) = {
	{ HTTP_GET, "/api/companies/:cid/environments/default", .access = ACCESS_READ,
	  .subject = SUBJECT_COMPANY, .run = show_default, .answer = "Environment",
	  .errors = "environment_not_found",
	  .summary =
		  "Where runs go that choose nothing: Sandbox, unless the server was started with "
		  "--default-environment" },
	{ HTTP_POST, "/api/companies/:cid/sandbox", ROUTE_NO_BODY_OK, NO_FIELDS,
	  .access = ACCESS_WRITE, .subject = SUBJECT_COMPANY, .run = ensure,
	  .answer = "Environment", .errors = "unsupported_environment",
	  .summary =
		  "The environment named Sandbox; one that was deleted is made again if a native "
		  "place holds here" },
	{ HTTP_POST, "/api/sandbox/test", ROUTE_NO_BODY_OK, NO_FIELDS, .access = ACCESS_ADMIN,
	  .run = test, .answer = "Probe",
	  .summary =
		  "Builds a native place, tries forbidden things in it, and tells what happened" },
	{ 0 },
};

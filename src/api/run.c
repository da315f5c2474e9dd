#include "api/answer.h"
#include "base/text.h"
#include "record/trust.h"

static int answer_run(struct response *response, int status, const struct run *run)
{
	return answer(response, status, run_json(run));
}

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };
	struct run_query query = {
		.company_id = company.id,
		.status = request_query(request, "status"),
		.agent_id = request_query(request, "agentId"),
		.issue_id = request_query(request, "issueId"),
		.project_id = request_query(request, "projectId"),
		.environment_id = request_query(request, "environmentId"),
		.cursor = request_query(request, "cursor"),
	};

	if (company_of_path(server, request, &company, err) < 0 ||
	    request_query_int(request, "limit", 1, 200, 50, &query.limit, err) < 0)
		return -1;
	return answer(response, 200, run_list(server->runs, &query, err));
}

static json_t *make_run(struct server *server, struct request *request, const char *id,
			bool resumed, void *company_id, struct error *err)
{
	_cleanup_run_ struct run run = { 0 };

	if (resumed && run_get(server->runs, id, &run, NULL) == 0)
		return run_json(&run);
	if (run_create(server->runs, &request->actor, id, company_id, request->body, &run, err) < 0)
		return NULL;
	return run_json(&run);
}

/* An agent has no other's work done, and none in nobody's name. */
static int check_agent(const struct request *request, const char *agent_id, struct error *err)
{
	const struct actor *actor = &request->actor;

	if (actor_is_agent(actor) && !str_equal(agent_id, actor->agent_id))
		return error_set(err, ERR_FORBIDDEN, "an agent can only start runs of its own");
	return 0;
}

static int create(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };
	struct writer writer = writer_of(server, request);

	if (company_of_path(server, request, &company, err) < 0 ||
	    run_resolve_names(server->runs, company.id, request->body, err) < 0 ||
	    check_agent(request, json_str(request->body, "agentId"), err) < 0 ||
	    deciding_check(&writer, DECIDING_RUN, NULL, request->body, err) < 0)
		return -1;
	return answer_created(arg, request, response, company.id, make_run, company.id, err);
}

static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_run_ struct run run = { 0 };

	json_t *json;
	struct run_progress progress;

	if (run_get(server->runs, request->param[0], &run, err) < 0)
		return -1;
	json = run_json(&run);
	run_progress(server->runs, run.id, &progress);
	if (run.workspace && progress.step)
		json_put_new(json_object_at(json, "workspace"), "progress",
			     run_progress_json(&progress));
	return answer(response, 200, json);
}

static int cancel(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_run_ struct run run = { 0 };

	if (run_cancel(server->runs, &request->actor, request->param[0], &run, err) < 0)
		return -1;
	return answer_run(response, 200, &run);
}

static int retry(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_run_ struct run old = { 0 };
	_cleanup_run_ struct run run = { 0 };

	if (run_get(server->runs, request->param[0], &old, err) < 0 ||
	    check_agent(request, old.agent_id, err) < 0 ||
	    run_retry(server->runs, &request->actor, request->param[0], &run, err) < 0)
		return -1;
	return answer_run(response, 201, &run);
}

static const struct field LIST_QUERY[] = {
	{ .name = "status", .type = FIELD_STRING, .one_of = run_status_names },
	OF_RECORD_FIELDS,
	{ .name = "limit", .type = FIELD_INT, .min = 1, .max = 200, .summary = "Page size" },
	{ .name = "cursor",
	  .type = FIELD_STRING,
	  .min = 1,
	  .max = 200,
	  .summary = "nextCursor of the previous page" },
	{ 0 },
};
static const struct field NO_FIELDS[] = { { 0 } };

ROUTES(RUN_ROUTES, 100) = {
	{ HTTP_GET, "/api/companies/:cid/runs", .access = ACCESS_READ, .subject = SUBJECT_COMPANY,
	  .query = LIST_QUERY, .run = list, .answer = "RunPage", .summary = "Runs, newest first" },
	{ HTTP_POST, "/api/companies/:cid/runs", ROUTE_IDEMPOTENT_KEY, RUN_FIELDS,
	  .access = ACCESS_WRITE, .subject = SUBJECT_COMPANY, .run = create, .answer = "201 Run",
	  .errors = "conflict unprocessable queue_full", .summary = "Queues a run" },
	{ HTTP_GET, "/api/runs/:id", .access = ACCESS_READ, .subject = SUBJECT_RUN, .run = show,
	  .answer = "Run", .summary = "One run" },
	{ HTTP_POST, "/api/runs/:id/cancel", ROUTE_NO_BODY_OK, NO_FIELDS, .access = ACCESS_BOARD,
	  .subject = SUBJECT_RUN, .run = cancel, .answer = "Run",
	  .summary = "Ends a run; no effect on one that has ended" },
	{ HTTP_POST, "/api/runs/:id/retry", ROUTE_NO_BODY_OK, NO_FIELDS, .access = ACCESS_WRITE,
	  .subject = SUBJECT_RUN, .run = retry, .answer = "201 Run",
	  .errors = "run_state_conflict queue_full", .summary = "A new run with the same request" },
	{ 0 },
};

#include "api/answer.h"

#define _cleanup_issue_ _cleanup_(issue_clear)

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };
	struct list_query query;

	if (company_of_path(server, request, &company, err) < 0 ||
	    list_query_of(request, company.id, &query, err) < 0)
		return -1;
	return answer_list(response, &query, issue_list(server->db, &query, err));
}

static json_t *make_issue(struct server *server, struct request *request, const char *id,
			  bool resumed, void *company_id, struct error *err)
{
	_cleanup_issue_ struct issue made = { 0 };
	struct writer writer = writer_of(server, request);

	if (resumed && issue_get(server->db, id, &made, NULL) == 0)
		return issue_json(&made);
	writer.id = id;
	if (issue_create(&writer, company_id, request->body, &made, err) < 0)
		return NULL;
	return issue_json(&made);
}

static int create(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_company_ struct company company = { 0 };

	if (company_of_path(arg, request, &company, err) < 0)
		return -1;
	return answer_created(arg, request, response, company.id, make_issue, company.id, err);
}

static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_issue_ struct issue issue = { 0 };

	if (issue_get(server->db, request->param[0], &issue, err) < 0)
		return -1;
	return answer(response, 200, issue_json(&issue));
}

static int patch(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_issue_ struct issue changed = { 0 };
	struct writer writer = writer_of(arg, request);

	if (issue_update(&writer, request->param[0], request->body, &changed, err) < 0)
		return -1;
	return answer(response, 200, issue_json(&changed));
}

static int destroy(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_issue_ struct issue removed = { 0 };
	struct writer writer = writer_of(arg, request);

	if (issue_delete(&writer, request->param[0], &removed, err) < 0)
		return -1;
	return answer(response, 200, issue_json(&removed));
}

/* The run that takes it: of the token, else of the body. */
static const char *run_of(const struct request *request)
{
	const char *named = json_str(request->body, "runId");

	return id_is_set(request->actor.run_id) ? request->actor.run_id : named;
}

static int check_out(void *arg, struct request *request, struct response *response,
		     struct error *err)
{
	_cleanup_issue_ struct issue issue = { 0 };
	struct writer writer = writer_of(arg, request);
	const char *run = run_of(request);

	if (!run)
		return error_set(err, ERR_VALIDATION, "runId: name the run that takes the issue");
	if (issue_check_out(&writer, request->param[0], run, &issue, err) < 0)
		return -1;
	return answer(response, 200, issue_json(&issue));
}

static int check_in(void *arg, struct request *request, struct response *response,
		    struct error *err)
{
	_cleanup_issue_ struct issue issue = { 0 };
	struct writer writer = writer_of(arg, request);

	if (issue_check_out(&writer, request->param[0], "", &issue, err) < 0)
		return -1;
	return answer(response, 200, issue_json(&issue));
}

static const struct field CHECK_OUT_FIELDS[] = {
	{ .name = "runId",
	  .type = FIELD_UUID,
	  .summary = "The run that takes it; not needed with a run's own token" },
	{ 0 },
};
static const struct field NO_FIELDS[] = { { 0 } };
static const struct field LIST_QUERY[] = {
	{ .name = "status", .type = FIELD_STRING, .one_of = issue_status_names },
	{ .name = "priority", .type = FIELD_STRING, .one_of = issue_priority_names },
	{ .name = "projectId", .type = FIELD_STRING, .max = 36 },
	{ .name = "assigneeAgentId", .type = FIELD_STRING, .max = 36 },
	LIST_FIELDS,
	{ 0 },
};

ROUTES(ISSUE_ROUTES, 60) = {
	{ HTTP_GET, "/api/companies/:cid/issues", .access = ACCESS_READ, .subject = SUBJECT_COMPANY,
	  .query = LIST_QUERY, .run = list, .answer = "[Issue]",
	  .summary = "Issues of the company" },
	{ HTTP_POST, "/api/companies/:cid/issues", .access = ACCESS_WRITE,
	  .subject = SUBJECT_COMPANY, .flags = ROUTE_IDEMPOTENT_KEY, .body = ISSUE_FIELDS,
	  .run = create, .answer = "201 Issue", .errors = "unprocessable",
	  .summary = "A new issue" },
	{ HTTP_GET, "/api/issues/:id", .access = ACCESS_READ, .subject = SUBJECT_ISSUE, .run = show,
	  .answer = "Issue", .summary = "One issue" },
	{ HTTP_PATCH, "/api/issues/:id", .access = ACCESS_WRITE, .subject = SUBJECT_ISSUE,
	  .body = ISSUE_PATCH_FIELDS, .run = patch, .answer = "Issue", .errors = "unprocessable",
	  .summary = "Changes the fields in the body" },
	{ HTTP_DELETE, "/api/issues/:id", .access = ACCESS_BOARD, .subject = SUBJECT_ISSUE,
	  .run = destroy, .answer = "Issue", .errors = "conflict",
	  .summary = "Removes an issue that no run and no lease needs" },
	{ HTTP_POST, "/api/issues/:id/checkout", .access = ACCESS_WRITE, .subject = SUBJECT_ISSUE,
	  .flags = ROUTE_NO_BODY_OK, .body = CHECK_OUT_FIELDS, .run = check_out, .answer = "Issue",
	  .errors = "conflict unprocessable", .summary = "Takes the issue for one run" },
	{ HTTP_POST, "/api/issues/:id/release", .access = ACCESS_WRITE, .subject = SUBJECT_ISSUE,
	  .flags = ROUTE_NO_BODY_OK, .body = NO_FIELDS, .run = check_in, .answer = "Issue",
	  .summary = "Gives the issue back" },
	{ 0 },
};

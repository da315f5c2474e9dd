#include "api/resource.h"

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };

	if (company_of_path(server, request, &company, err) < 0)
		return -1;
	return answer(response, 200, issue_list(server->db, company.id, err));
}

static int create(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };
	_cleanup_(issue_clear) struct issue issue = { 0 };

	if (company_of_path(server, request, &company, err) < 0 ||
	    issue_create(server->db, &server->clock, &request->actor, company.id, request->body,
			 &issue, err) < 0)
		return -1;
	return answer(response, 201, issue_json(&issue));
}

const struct route ISSUE_ROUTES[] = {
	{ HTTP_GET, "/api/companies/:cid/issues", "company", .run = list,
	  .summary = "What agents work on" },
	{ HTTP_POST, "/api/companies/:cid/issues", "company", .body = ISSUE_FIELDS, .run = create,
	  .summary = "A new issue" },
	{ 0 },
};

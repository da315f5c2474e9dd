#include "api/resource.h"

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };

	if (company_of_path(server, request, &company, err) < 0)
		return -1;
	return answer(response, 200, project_list(server->db, company.id, err));
}

static int create(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };
	_cleanup_(project_clear) struct project project = { 0 };

	if (company_of_path(server, request, &company, err) < 0 ||
	    project_create(server->db, &server->clock, &request->actor, company.id, request->body,
			   &project, err) < 0)
		return -1;
	return answer(response, 201, project_json(&project));
}

const struct route PROJECT_ROUTES[] = {
	{ HTTP_GET, "/api/companies/:cid/projects", .access = ACCESS_READ,
	  .subject = SUBJECT_COMPANY, .run = list, .answer = "[Project]",
	  .summary = "What runs belong to" },
	{ HTTP_POST, "/api/companies/:cid/projects", .access = ACCESS_WRITE,
	  .subject = SUBJECT_COMPANY, .body = PROJECT_FIELDS, .run = create,
	  .answer = "201 Project", .errors = "unprocessable", .summary = "A new project" },
	{ 0 },
};

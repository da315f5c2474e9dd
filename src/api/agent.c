#include "api/resource.h"

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };

	if (company_of_path(server, request, &company, err) < 0)
		return -1;
	return answer(response, 200, agent_list(server->db, company.id, err));
}

static int create(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };
	_cleanup_(agent_clear) struct agent agent = { 0 };

	if (company_of_path(server, request, &company, err) < 0 ||
	    agent_create(server->db, &server->clock, &request->actor, company.id, request->body,
			 &agent, err) < 0)
		return -1;
	return answer(response, 201, agent_json(&agent));
}

const struct route AGENT_ROUTES[] = {
	{ HTTP_GET, "/api/companies/:cid/agents", "company", .run = list,
	  .summary = "Who runs things in this company" },
	{ HTTP_POST, "/api/companies/:cid/agents", "company", .body = AGENT_FIELDS, .run = create,
	  .summary = "A new agent" },
	{ 0 },
};

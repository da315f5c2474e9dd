#include "api/answer.h"

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	const struct actor *actor = &request->actor;
	_cleanup_company_ struct company company = { 0 };

	if (actor->is_admin)
		return answer(response, 200, company_list(server->db, err));
	if (!actor_is_agent(actor))
		return answer(response, 200, company_list_of_user(server->db, actor->id, err));
	if (company_get(server->db, actor->company_id, &company, err) < 0)
		return -1;
	return answer(response, 200, json_pack("[o]", company_json(&company)));
}

static json_t *make_company(struct server *server, struct request *request, const char *id,
			    bool resumed, void *arg, struct error *err)
{
	_cleanup_company_ struct company made = { 0 };
	struct writer writer = writer_of(server, request);

	(void)arg;
	if (resumed && company_get(server->db, id, &made, NULL) == 0)
		return company_json(&made);
	writer.id = id;
	if (company_create(&writer, json_str(request->body, "name"),
			   json_str(request->body, "issuePrefix"), &made, err) < 0)
		return NULL;
	return company_json(&made);
}

static int create(void *arg, struct request *request, struct response *response, struct error *err)
{
	return answer_created(arg, request, response, NULL, make_company, NULL, err);
}

static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_company_ struct company company = { 0 };

	if (company_of_path(arg, request, &company, err) < 0)
		return -1;
	return answer(response, 200, company_json(&company));
}

static int patch(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_company_ struct company changed = { 0 };
	struct writer writer = writer_of(arg, request);

	if (company_update(&writer, request->param[0], request->body, &changed, err) < 0)
		return -1;
	return answer(response, 200, company_json(&changed));
}

ROUTES(COMPANY_ROUTES, 10) = {
	{ HTTP_GET, "/api/companies", .access = ACCESS_SIGNED_IN, .run = list,
	  .answer = "[Company]", .summary = "Companies the caller may see" },
	{ HTTP_POST, "/api/companies", .access = ACCESS_ADMIN, .flags = ROUTE_IDEMPOTENT_KEY,
	  .body = COMPANY_FIELDS, .run = create, .answer = "201 Company",
	  .errors = "conflict unprocessable",
	  .summary = "A new company, with its Local and Sandbox environments" },
	{ HTTP_GET, "/api/companies/:id", .access = ACCESS_READ, .subject = SUBJECT_COMPANY,
	  .run = show, .answer = "Company", .summary = "One company" },
	{ HTTP_PATCH, "/api/companies/:id", .access = ACCESS_MEMBERS, .subject = SUBJECT_COMPANY,
	  .body = COMPANY_PATCH_FIELDS, .run = patch, .answer = "Company",
	  .errors = "conflict unprocessable", .summary = "Changes the fields in the body" },
	{ 0 },
};

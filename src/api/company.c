#include "api/resource.h"

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	(void)request;

	return answer(response, 200, company_list(server->db, err));
}

static int create(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };

	if (company_create(server->db, &server->clock, &request->actor,
			   json_str(request->body, "name"), &company, err) < 0)
		return -1;
	return answer(response, 201, company_json(&company));
}

static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_company_ struct company company = { 0 };

	if (company_of_path(arg, request, &company, err) < 0)
		return -1;
	return answer(response, 200, company_json(&company));
}

static const struct field COMPANY_FIELDS[] = {
	{ .name = "name",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED | FIELD_NONBLANK | FIELD_TRIM,
	  .min = 1,
	  .max = 100,
	  .summary = "What people call the company; unique" },
	{ 0 },
};

const struct route COMPANY_ROUTES[] = {
	{ HTTP_GET, "/api/companies", "instance", .run = list, .summary = "All companies" },
	{ HTTP_POST, "/api/companies", "instance", .body = COMPANY_FIELDS, .run = create,
	  .summary = "A new company, with its Local environment" },
	{ HTTP_GET, "/api/companies/:id", "company", .run = show, .summary = "One company" },
	{ 0 },
};

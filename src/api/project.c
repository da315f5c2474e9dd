#include "api/answer.h"
#include "record/redact.h"

#define _cleanup_project_ _cleanup_(project_clear)

/* Values of variables are for those who manage agents; others see which there are. */
static json_t *viewed(const struct request *request, json_t *json)
{
	const char *name;
	json_t *value;
	void *next;

	if (!json || request_may(request, "agents:create"))
		return json;
	json_object_foreach_safe(json_object_at(json, "env"), next, name, value)
		json_put_str(json_object_at(json, "env"), name, REDACTED);
	json_put_bool(json, "envRedacted", true);
	return json;
}

static json_t *viewed_list(const struct request *request, json_t *list)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		viewed(request, json_array_get(list, i));
	return list;
}

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };
	struct list_query query;

	if (company_of_path(server, request, &company, err) < 0 ||
	    list_query_of(request, company.id, &query, err) < 0)
		return -1;
	return answer_list(response, &query,
			   viewed_list(request, project_list(server->db, &query, err)));
}

static json_t *make_project(struct server *server, struct request *request, const char *id,
			    bool resumed, void *company_id, struct error *err)
{
	_cleanup_project_ struct project made = { 0 };
	struct writer writer = writer_of(server, request);

	if (resumed && project_get(server->db, id, &made, NULL) == 0)
		return viewed(request, project_json(&made));
	writer.id = id;
	if (project_create(&writer, company_id, request->body, &made, err) < 0)
		return NULL;
	return viewed(request, project_json(&made));
}

static int create(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_company_ struct company company = { 0 };

	if (company_of_path(arg, request, &company, err) < 0)
		return -1;
	return answer_created(arg, request, response, company.id, make_project, company.id, err);
}

static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_project_ struct project project = { 0 };

	if (project_get(server->db, request->param[0], &project, err) < 0)
		return -1;
	return answer(response, 200, viewed(request, project_json(&project)));
}

static int patch(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_project_ struct project changed = { 0 };
	struct writer writer = writer_of(arg, request);

	if (project_update(&writer, request->param[0], request->body, &changed, err) < 0)
		return -1;
	return answer(response, 200, viewed(request, project_json(&changed)));
}

static int destroy(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_project_ struct project removed = { 0 };
	struct writer writer = writer_of(arg, request);

	if (project_delete(&writer, request->param[0], &removed, err) < 0)
		return -1;
	return answer(response, 200, viewed(request, project_json(&removed)));
}

static const struct field LIST_QUERY[] = {
	{ .name = "status", .type = FIELD_STRING, .one_of = project_status_names },
	LIST_FIELDS,
	{ 0 },
};

ROUTES(PROJECT_ROUTES, 30) = {
	{ HTTP_GET, "/api/companies/:cid/projects", .access = ACCESS_READ,
	  .subject = SUBJECT_COMPANY, .query = LIST_QUERY, .run = list, .answer = "[Project]",
	  .summary = "Projects of the company" },
	{ HTTP_POST, "/api/companies/:cid/projects", .access = ACCESS_WRITE,
	  .subject = SUBJECT_COMPANY, .flags = ROUTE_IDEMPOTENT_KEY, .body = PROJECT_FIELDS,
	  .run = create, .answer = "201 Project", .errors = "unprocessable",
	  .summary = "A new project" },
	{ HTTP_GET, "/api/projects/:id", .access = ACCESS_READ, .subject = SUBJECT_PROJECT,
	  .run = show, .answer = "Project", .summary = "One project" },
	{ HTTP_PATCH, "/api/projects/:id", .access = ACCESS_WRITE, .subject = SUBJECT_PROJECT,
	  .body = PROJECT_PATCH_FIELDS, .run = patch, .answer = "Project",
	  .errors = "unprocessable", .summary = "Changes the fields in the body" },
	{ HTTP_DELETE, "/api/projects/:id", .access = ACCESS_BOARD, .subject = SUBJECT_PROJECT,
	  .run = destroy, .answer = "Project", .errors = "conflict",
	  .summary = "Removes a project whose workspaces are closed" },
	{ 0 },
};

#include "api/answer.h"
#include "base/text.h"

#define _cleanup_agent_ _cleanup_(agent_clear)

/* Settings may hold what not everybody is to see: those who manage agents do, and the agent. */
static json_t *viewed(const struct request *request, json_t *json)
{
	static const char *const SETTINGS[] = { "adapterConfig", "runtimeConfig" };

	if (!json || request_may(request, "agents:create") ||
	    str_equal(json_str(json, "id"), request->actor.agent_id))
		return json;
	for (size_t i = 0; i < ARRAY_SIZE(SETTINGS); i++)
		json_put_new(json, SETTINGS[i], json_object());
	json_put_bool(json, "configRedacted", true);
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
			   viewed_list(request, agent_list(server->db, &query, err)));
}

static json_t *make_agent(struct server *server, struct request *request, const char *id,
			  bool resumed, void *company_id, struct error *err)
{
	_cleanup_agent_ struct agent made = { 0 };
	struct writer writer = writer_of(server, request);

	if (resumed && agent_get(server->db, id, &made, NULL) == 0)
		return viewed(request, agent_json(&made));
	writer.id = id;
	if (agent_create(&writer, company_id, request->body, &made, err) < 0)
		return NULL;
	return viewed(request, agent_json(&made));
}

static int create(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_company_ struct company company = { 0 };

	if (company_of_path(arg, request, &company, err) < 0)
		return -1;
	return answer_created(arg, request, response, company.id, make_agent, company.id, err);
}

static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_agent_ struct agent agent = { 0 };

	if (agent_get(server->db, request->param[0], &agent, err) < 0)
		return -1;
	return answer(response, 200, viewed(request, agent_json(&agent)));
}

static int patch(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_agent_ struct agent changed = { 0 };
	struct writer writer = writer_of(arg, request);

	if (agent_update(&writer, request->param[0], request->body, &changed, err) < 0)
		return -1;
	return answer(response, 200, viewed(request, agent_json(&changed)));
}

static int destroy(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_agent_ struct agent removed = { 0 };
	struct writer writer = writer_of(arg, request);

	if (agent_delete(&writer, request->param[0], &removed, err) < 0)
		return -1;
	return answer(response, 200, viewed(request, agent_json(&removed)));
}

static const struct field LIST_QUERY[] = {
	{ .name = "status", .type = FIELD_STRING, .one_of = agent_status_names },
	{ .name = "adapterType", .type = FIELD_STRING, .max = 100 },
	LIST_FIELDS,
	{ 0 },
};

ROUTES(AGENT_ROUTES, 20) = {
	{ HTTP_GET, "/api/companies/:cid/agents", .access = ACCESS_READ, .subject = SUBJECT_COMPANY,
	  .query = LIST_QUERY, .run = list, .answer = "[Agent]",
	  .summary = "Agents of this company" },
	{ HTTP_POST, "/api/companies/:cid/agents", .access = ACCESS_AGENTS,
	  .subject = SUBJECT_COMPANY, .flags = ROUTE_IDEMPOTENT_KEY, .body = AGENT_FIELDS,
	  .run = create, .answer = "201 Agent", .errors = "unprocessable",
	  .summary = "A new agent" },
	{ HTTP_GET, "/api/agents/:id", .access = ACCESS_READ, .subject = SUBJECT_AGENT, .run = show,
	  .answer = "Agent", .summary = "One agent" },
	{ HTTP_PATCH, "/api/agents/:id", .access = ACCESS_AGENTS, .subject = SUBJECT_AGENT,
	  .body = AGENT_PATCH_FIELDS, .run = patch, .answer = "Agent", .errors = "unprocessable",
	  .summary = "Changes the fields in the body" },
	{ HTTP_DELETE, "/api/agents/:id", .access = ACCESS_AGENTS, .subject = SUBJECT_AGENT,
	  .run = destroy, .answer = "Agent", .errors = "conflict",
	  .summary = "Removes an agent that no run and no lease needs" },
	{ 0 },
};

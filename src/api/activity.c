#include "api/answer.h"
#include "record/activity.h"

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };
	struct activity_query query = {
		.entity_type = request_query(request, "entityType"),
		.entity_id = request_query(request, "entityId"),
		.agent_id = request_query(request, "agentId"),
		.issue_id = request_query(request, "issueId"),
		.project_id = request_query(request, "projectId"),
		.environment_id = request_query(request, "environmentId"),
	};

	if (company_of_path(server, request, &company, err) < 0 ||
	    request_query_int(request, "limit", 1, 500, 50, &query.limit, err) < 0 ||
	    request_query_int(request, "cursor", 1, INT64_MAX, 0, &query.before_seq, err) < 0)
		return -1;
	query.company_id = company.id;
	return answer(response, 200, activity_list(server->db, &query, err));
}

static const struct field QUERY[] = {
	{ .name = "entityType", .type = FIELD_STRING, .summary = "Only of this kind" },
	{ .name = "entityId", .type = FIELD_STRING, .summary = "Only of this one" },
	OF_RECORD_FIELDS,
	{ .name = "limit", .type = FIELD_INT, .min = 1, .max = 500, .summary = "Page size" },
	{ .name = "cursor", .type = FIELD_INT, .summary = "nextCursor of the previous page" },
	{ 0 },
};

ROUTES(ACTIVITY_ROUTES, 120) = {
	{ HTTP_GET, "/api/companies/:cid/activity", .access = ACCESS_READ,
	  .subject = SUBJECT_COMPANY, .query = QUERY, .run = list, .answer = "ActivityPage",
	  .summary = "The activity log, newest first" },
	{ 0 },
};

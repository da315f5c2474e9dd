#include "api/answer.h"
#include "base/log.h"
#include "adapter/adapter.h"

int answer(struct response *response, int status, json_t *json)
{
	if (!json)
		return -1;
	response_json(response, status, json);
	return 0;
}

int company_of_path(struct server *server, const struct request *request, struct company *company,
		    struct error *err)
{
	return company_get(server->db, request->param[0], company, err);
}

struct writer writer_of(struct server *server, const struct request *request)
{
	return (struct writer){
		.db = server->db,
		.clock = &server->clock,
		.actor = &request->actor,
		.refuse_fake = !server->options.allow_fake,
		.sandbox = server->sandbox,
		.no_variables = !request_may(request, "environments:manage"),
		.adapter_allows = adapter_allows,
		.usable = makers_usable(&server->makers),
	};
}

int list_query_of(const struct request *request, const char *company_id, struct list_query *query,
		  struct error *err)
{
	*query = (struct list_query){
		.company_id = company_id,
		.status = request_query(request, "status"),
		.priority = request_query(request, "priority"),
		.mode = request_query(request, "mode"),
		.adapter_type = request_query(request, "adapterType"),
		.project_id = request_query(request, "projectId"),
		.assignee_id = request_query(request, "assigneeAgentId"),
		.issue_id = request_query(request, "sourceIssueId"),
		.reusable = request_query_flag(request, "reuseEligible", false),
		.cursor = request_query(request, "cursor"),
	};
	return request_query_int(request, "limit", 1, RECORD_LIST_MAX, RECORD_LIST_MAX,
				 &query->limit, err);
}

int answer_list(struct response *response, const struct list_query *query, json_t *list)
{
	if (list && query->next[0])
		response_header(response, "X-Next-Cursor", query->next);
	return answer(response, 200, list);
}

int key_begin(struct server *server, const struct request *request, const char *company_id,
	      struct idempotency *idem, struct error *err)
{
	_cleanup_free_ char *route = xasprintf("POST %s", request->path);

	return idempotency_begin(server->db, &server->clock, &server->node, company_id,
				 &request->actor, route, request->idempotency_key,
				 request->raw_body, request->raw_body_len, idem, err);
}

static int answer_again(struct response *response, struct idempotency *idem)
{
	response->status = idem->status;
	response->text = idem->response ? steal(idem->response) : xstrdup("{}");
	snprintf(response->header_name[0], sizeof(response->header_name[0]),
		 "Idempotency-Replayed");
	snprintf(response->header_value[0], sizeof(response->header_value[0]), "true");
	return 0;
}

static json_t *make_under_key(struct server *server, struct request *request,
			      struct idempotency *idem, make_fn *make, void *arg, struct error *err)
{
	_cleanup_error_ struct error late = { 0 };
	json_t *made = make(server, request, idem->entity_id, idem->resumed, arg, err);

	if (!made) {
		if (idempotency_abandon(server->db, idem, &late) < 0)
			log_warn("a key of a failed request stays taken: %s", late.message);
		return NULL;
	}

	_cleanup_free_ char *text = json_text(made);

	/* What was asked for exists, so that is the answer, whatever becomes of the key. */
	if (idempotency_finish(server->db, &server->clock, idem, 201, text, &late) < 0)
		log_warn("the answer under a key could not be kept: %s", late.message);
	return made;
}

int answer_created(struct server *server, struct request *request, struct response *response,
		   const char *company_id, make_fn *make, void *arg, struct error *err)
{
	_cleanup_(idempotency_clear) struct idempotency idem = { 0 };
	char id[ID_SIZE];

	if (!request->idempotency_key) {
		id_new(id);
		return answer(response, 201, make(server, request, id, false, arg, err));
	}
	if (key_begin(server, request, company_id, &idem, err) < 0)
		return -1;
	if (idem.replay)
		return answer_again(response, &idem);
	return answer(response, 201, make_under_key(server, request, &idem, make, arg, err));
}

#include "api/exec_request.h"
#include "api/answer.h"
#include "api/exec_stream.h"
#include "base/fd.h"
#include "base/text.h"
#include "record/workspace.h"

#define SECOND ((int64_t)1000)
#define TTL_DEFAULT 3600
#define TTL_MAX 604800
#define WAIT_MAX 3600

static json_t *lease_and_place(const struct lease *lease, const struct place *place)
{
	return lease_json(lease, id_is_set(place->id) ? place : NULL);
}

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_environment_ struct environment environment = { 0 };
	int64_t limit;

	if (environment_get(server->db, request->param[0], &environment, err) < 0 ||
	    request_query_int(request, "limit", 1, 1000, 200, &limit, err) < 0)
		return -1;
	return answer(response, 200,
		      lease_list(server->leases, environment.id, request_query(request, "status"),
				 limit, err));
}

static int foreign(const char *what, const char *id, struct error *err)
{
	return error_set(err, ERR_UNPROCESSABLE, "%s \"%s\" was not found in this company", what,
			 id);
}

/* What a lease is for must belong to the company of its environment. */
static int check_references(struct server *server, const json_t *body, const char *company_id,
			    struct error *err)
{
	const char *agent_id = json_str(body, "agentId"), *issue_id = json_str(body, "issueId");
	const char *workspace_id = json_str(body, "executionWorkspaceId");
	_cleanup_(agent_clear) struct agent agent = { 0 };
	_cleanup_(issue_clear) struct issue issue = { 0 };
	_cleanup_(workspace_record_clear) struct workspace_record workspace = { 0 };

	if (agent_id && (agent_get(server->db, agent_id, &agent, NULL) < 0 ||
			 !streq(agent.company_id, company_id)))
		return foreign("agentId", agent_id, err);
	if (issue_id && (issue_get(server->db, issue_id, &issue, NULL) < 0 ||
			 !streq(issue.company_id, company_id)))
		return foreign("issueId", issue_id, err);
	if (workspace_id && (workspace_record_get(server->db, workspace_id, &workspace, NULL) < 0 ||
			     !streq(workspace.company_id, company_id)))
		return foreign("executionWorkspaceId", workspace_id, err);
	return 0;
}

/* While it waits for capacity it also watches the client: whoever has gone needs no place. */
static int take_lease(struct server *server, struct request *request, const char *id,
		      const struct environment *environment, const struct lease_first *first,
		      struct lease *lease, struct place *place, struct error *err)
{
	const json_t *body = request->body;
	int64_t wait_ms = json_int(body, "waitSeconds", 0) * SECOND;
	_cleanup_close_ int gone_fd = wait_ms > 0 ? request_gone_fd(request, err) : -1;
	enum lease_policy policy;
	struct lease_request wanted = {
		.lease_id = id,
		.lease_id_is_new = !request->idempotency_key,
		.company_id = environment->company_id,
		.environment = environment,
		.issue_id = json_str(body, "issueId"),
		.agent_id = json_str(body, "agentId"),
		.workspace_id = json_str(body, "executionWorkspaceId"),
		.ttl_ms = json_int(body, "ttlSeconds", TTL_DEFAULT) * SECOND,
		.idle_ms = json_int(body, "idleSeconds", 0) * SECOND,
		.retain_ms = json_int(body, "retainSeconds", 0) * SECOND,
		.wait_ms = wait_ms,
		.cancel_fd = gone_fd,
		.actor = &request->actor,
	};

	if (wait_ms > 0 && gone_fd < 0)
		return -1;
	if (first)
		wanted.first = *first;
	if (json_str(body, "policy") && lease_policy_parse(json_str(body, "policy"), &policy))
		wanted.policy = &policy;
	if (check_references(server, body, environment->company_id, err) < 0)
		return -1;
	return lease_acquire(server->leases, &wanted, lease, place, err);
}

static json_t *make_lease(struct server *server, struct request *request, const char *id,
			  bool resumed, void *arg, struct error *err)
{
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };

	if ((!resumed || lease_get(server->leases, id, &lease, &place, NULL) < 0) &&
	    take_lease(server, request, id, arg, NULL, &lease, &place, err) < 0)
		return NULL;
	return lease_and_place(&lease, &place);
}

/* A lease that is asked for together with its first command. */
struct first_command {
	struct server *server;
	struct exec_request wanted;
	char lease_id[ID_SIZE], exec_id[ID_SIZE];
	struct live_exec *live;
};

static int begin_command(void *arg, const struct place *place, struct error *err)
{
	struct first_command *command = arg;
	const struct exec_start how = {
		.id = command->exec_id,
		.lease_id = command->lease_id,
		.place = place,
		.generation = place->generation,
		.unannounced = true,
		.first_words = true,
	};

	return exec_request_start(&command->wanted, command->server, &how, &command->live, err);
}

static void write_lease_event(const struct lease *lease, const struct place *place, struct buf *out)
{
	_cleanup_json_ json_t *event = json_object();
	_cleanup_free_ char *text = NULL;

	json_put_str(event, "type", "lease");
	json_put_new(event, "lease", lease_and_place(lease, place));
	text = json_text(event);
	buf_puts(out, text);
	buf_putc(out, '\n');
}

static int take_and_start(struct first_command *command, struct request *request,
			  const struct environment *environment, struct response *response,
			  struct error *err)
{
	const struct lease_first first = { begin_command, command };
	struct server *server = command->server;
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };
	_cleanup_buf_ struct buf event = { 0 };

	if (exec_request_read(&command->wanted, json_object_at(request->body, "exec"), err) < 0)
		return -1;
	if (take_lease(server, request, command->lease_id, environment, &first, &lease, &place,
		       err) < 0) {
		exec_let_go(server, command->exec_id, command->live);
		return -1;
	}
	write_lease_event(&lease, &place, &event);
	response->status = 201;
	return exec_answer(server, command->exec_id, command->live, &event, request, response, err);
}

static int acquire_and_start(struct server *server, struct request *request,
			     const struct environment *environment, struct response *response,
			     struct error *err)
{
	struct first_command command = { .server = server };
	int r;

	if (request->idempotency_key)
		return error_set(err, ERR_VALIDATION,
				 "an Idempotency-Key cannot cover a lease and a command: use it "
				 "for the lease, then another for the command");
	id_new(command.lease_id);
	id_new(command.exec_id);
	r = take_and_start(&command, request, environment, response, err);
	exec_request_clear(&command.wanted);
	return r;
}

static int acquire(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_environment_ struct environment environment = { 0 };

	if (environment_get(server->db, request->param[0], &environment, err) < 0)
		return -1;
	if (json_object_at(request->body, "exec"))
		return acquire_and_start(server, request, &environment, response, err);
	return answer_created(server, request, response, environment.company_id, make_lease,
			      &environment, err);
}

static int answer_lease(struct server *server, const char *id, struct response *response,
			struct error *err)
{
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };

	if (lease_get(server->leases, id, &lease, &place, err) < 0)
		return -1;
	return answer(response, 200, lease_and_place(&lease, &place));
}

static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	return answer_lease(arg, request->param[0], response, err);
}

static int renew(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_lease_ struct lease lease = { 0 };

	if (lease_renew(server->leases, request->param[0], json_int(request->body, "generation", 0),
			json_int(request->body, "ttlSeconds", TTL_DEFAULT) * SECOND, &lease,
			err) < 0)
		return -1;
	return answer_lease(server, request->param[0], response, err);
}

static int release(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };
	const char *status = json_str(request->body, "status");
	struct lease_release wanted = {
		.generation = json_int(request->body, "generation", GENERATION_UNCHECKED),
		.status = LEASE_RELEASED,
		.failure_reason = json_str(request->body, "failureReason"),
		.actor = &request->actor,
		.place = &place,
	};

	if (status)
		lease_status_parse(status, &wanted.status);
	if (lease_release(server->leases, request->param[0], &wanted, &lease, err) < 0)
		return -1;
	return answer(response, 200, lease_and_place(&lease, &place));
}

/* A later holder's place is not this lease's to end. */
static int check_destroyed(const struct lease *lease, const struct place *place, struct error *err)
{
	_cleanup_json_ json_t *details = NULL;

	if (place->state == PLACE_HELD && !streq(place->holder_lease, lease->id))
		return error_set(err, ERR_PLACE_BUSY,
				 "The lease has ended and its place is held by lease %s: destroy "
				 "that one",
				 place->holder_lease);
	if (place->state != PLACE_CLEANUP)
		return 0;
	details = json_object();
	json_put_str(details, "leaseId", lease->id);
	json_put_time(details, "nextAttemptAt", place->cleanup_next_at);
	error_set(err, ERR_LEASE_CLEANUP,
		  "The place could not be destroyed; the server will try again (berth audit shows "
		  "it): %s",
		  place->cleanup_reason ? place->cleanup_reason : "no reason given");
	error_set_details(err, json_text(details));
	return -1;
}

static int destroy(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };
	int64_t generation = json_int(request->body, "generation", GENERATION_UNCHECKED);

	if (lease_destroy(server->leases, request->param[0], generation, &request->actor, &lease,
			  &place, err) < 0 ||
	    check_destroyed(&lease, &place, err) < 0)
		return -1;
	return answer(response, 200, lease_and_place(&lease, &place));
}

static int set_paused(struct server *server, struct request *request, bool paused,
		      struct response *response, struct error *err)
{
	int64_t generation = json_int(request->body, "generation", GENERATION_UNCHECKED);

	if (lease_pause(server->leases, request->param[0], generation, paused, &request->actor,
			err) < 0)
		return -1;
	return answer_lease(server, request->param[0], response, err);
}

static int pause_lease(void *arg, struct request *request, struct response *response,
		       struct error *err)
{
	return set_paused(arg, request, true, response, err);
}

static int resume_lease(void *arg, struct request *request, struct response *response,
			struct error *err)
{
	return set_paused(arg, request, false, response, err);
}

static const struct field ACQUIRE_FIELDS[] = {
	{ .name = "ttlSeconds",
	  .type = FIELD_INT,
	  .min = 1,
	  .max = TTL_MAX,
	  .summary = "It expires after this long unless renewed; default: one hour" },
	{ .name = "idleSeconds",
	  .type = FIELD_INT,
	  .min = 1,
	  .max = TTL_MAX,
	  .summary = "It expires when not used for this long" },
	{ .name = "waitSeconds",
	  .type = FIELD_INT,
	  .min = 0,
	  .max = WAIT_MAX,
	  .summary = "How long to wait for a free place, first come first served; default: 0" },
	{ .name = "retainSeconds",
	  .type = FIELD_INT,
	  .min = 1,
	  .max = TTL_MAX,
	  .summary = "How long a failed place is kept under policy retain_on_failure" },
	{ .name = "policy",
	  .type = FIELD_STRING,
	  .one_of = lease_policy_names,
	  .summary = "What happens to the place afterwards; default: the environment's policy" },
	{ .name = "agentId", .type = FIELD_UUID, .flags = FIELD_NULLABLE, .summary = "For whom" },
	{ .name = "issueId",
	  .type = FIELD_UUID,
	  .flags = FIELD_NULLABLE,
	  .summary = "For which work" },
	{ .name = "executionWorkspaceId",
	  .type = FIELD_UUID,
	  .flags = FIELD_NULLABLE,
	  .summary = "For which workspace" },
	{ .name = "exec",
	  .type = FIELD_OBJECT,
	  .fields = FIRST_EXEC_FIELDS,
	  .summary =
		  "Its first command, as of POST /api/environment-leases/:id/exec, started as soon "
		  "as there is a lease. The answer is its events behind one of type lease; "
		  "if it cannot start there is no lease" },
	{ 0 },
};
static const struct field RENEW_FIELDS[] = {
	{ .name = "generation",
	  .type = FIELD_INT,
	  .flags = FIELD_REQUIRED,
	  .min = 0,
	  .max = INT64_MAX,
	  .summary = "Generation of the lease" },
	{ .name = "ttlSeconds",
	  .type = FIELD_INT,
	  .min = 1,
	  .max = TTL_MAX,
	  .summary = "From now on; default: one hour" },
	{ 0 },
};
static const char *const RELEASE_STATUSES[] = { "released", "expired", "failed", NULL };
static const struct field RELEASE_FIELDS[] = {
	{ .name = "generation",
	  .type = FIELD_INT,
	  .min = 0,
	  .max = INT64_MAX,
	  .summary = "Generation of the lease; not checked if left out" },
	{ .name = "status",
	  .type = FIELD_STRING,
	  .one_of = RELEASE_STATUSES,
	  .summary = "How it ends; default: released" },
	{ .name = "failureReason",
	  .type = FIELD_STRING,
	  .max = 500,
	  .summary = "Why, for people, when it failed" },
	{ 0 },
};
static const struct field GENERATION_FIELDS[] = {
	{ .name = "generation",
	  .type = FIELD_INT,
	  .min = 0,
	  .max = INT64_MAX,
	  .summary = "Generation of the lease; not checked if left out" },
	{ 0 },
};
static const struct field LIST_QUERY[] = {
	{ .name = "status", .type = FIELD_STRING, .one_of = lease_status_names },
	{ .name = "limit", .type = FIELD_INT, .min = 1, .max = 1000 },
	{ 0 },
};

ROUTES(LEASE_ROUTES, 80) = {
	{ HTTP_GET, "/api/environments/:id/leases", .access = ACCESS_LEASES,
	  .subject = SUBJECT_ENVIRONMENT, .query = LIST_QUERY, .run = list, .answer = "[Lease]",
	  .summary = "Its leases, last used first" },
	{ HTTP_POST, "/api/environments/:id/leases",
	  ROUTE_IDEMPOTENT_KEY | ROUTE_NO_BODY_OK | ROUTE_STREAM | ROUTE_EVENTS, ACQUIRE_FIELDS,
	  .access = ACCESS_LEASES, .subject = SUBJECT_ENVIRONMENT, .run = acquire,
	  .answer = "201 Lease",
	  .errors = "place_busy environment_inactive lease_acquire_failed unsupported_environment "
		    "transport_resolution_failed unprocessable command_not_found "
		    "command_not_executable",
	  .summary = "Acquires a lease" },
	{ HTTP_GET, "/api/environment-leases/:id", .access = ACCESS_LEASES,
	  .subject = SUBJECT_LEASE, .run = show, .answer = "Lease", .summary = "One lease" },
	{ HTTP_POST, "/api/environment-leases/:id/renew", .access = ACCESS_LEASES,
	  .subject = SUBJECT_LEASE, .body = RENEW_FIELDS, .run = renew, .answer = "Lease",
	  .errors = "lease_generation_stale lease_not_active",
	  .summary = "Moves the end of an active lease" },
	{ HTTP_POST, "/api/environment-leases/:id/pause", ROUTE_NO_BODY_OK, GENERATION_FIELDS,
	  .access = ACCESS_LEASES, .subject = SUBJECT_LEASE, .run = pause_lease, .answer = "Lease",
	  .errors = "lease_generation_stale lease_not_active lease_lost unsupported_environment",
	  .summary = "Freezes its commands until it is resumed and refuses new ones; its expiry "
		     "does not change" },
	{ HTTP_POST, "/api/environment-leases/:id/resume", ROUTE_NO_BODY_OK, GENERATION_FIELDS,
	  .access = ACCESS_LEASES, .subject = SUBJECT_LEASE, .run = resume_lease, .answer = "Lease",
	  .errors = "lease_generation_stale lease_not_active lease_lost",
	  .summary = "Continues the commands of a paused lease" },
	{ HTTP_POST, "/api/environment-leases/:id/destroy", ROUTE_NO_BODY_OK, GENERATION_FIELDS,
	  .access = ACCESS_LEASES, .subject = SUBJECT_LEASE, .run = destroy, .answer = "Lease",
	  .errors = "lease_generation_stale place_busy lease_cleanup_failed",
	  .summary = "Ends the lease and destroys its place, held, retained or free" },
	{ HTTP_POST, "/api/environment-leases/:id/release", ROUTE_NO_BODY_OK, RELEASE_FIELDS,
	  .access = ACCESS_LEASES, .subject = SUBJECT_LEASE, .run = release, .answer = "Lease",
	  .errors = "lease_generation_stale", .summary = "Ends the lease; repeating it is fine" },
	{ 0 },
};

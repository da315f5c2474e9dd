/*
 * What runs and leases brought into their places and home again. The work is done in run/; a diff
 * is written by a thread of its own into a pipe, so that it is never in memory as a whole, and a
 * client that has gone ends it.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#include "api/answer.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "run/workspace_request.h"

#define CHANGES_DEFAULT 1000
#define CHANGES_MAX 100000
#define DIFF_STACK_BYTES (512 * 1024)

static int changes(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	int64_t limit;

	if (request_query_int(request, "limit", 0, CHANGES_MAX, CHANGES_DEFAULT, &limit, err) < 0)
		return -1;
	return answer(response, 200,
		      run_changes(server->runs, request->param[0], (size_t)limit, err));
}

/* ---- diff ---- */

struct diff {
	struct runs *runs;
	char run_id[ID_SIZE];
	pthread_t thread;
	int read_fd, write_fd;
	bool failed;
};

static void *write_diff(void *arg)
{
	struct diff *diff = arg;
	_cleanup_error_ struct error err = { 0 };

	diff->failed = run_diff(diff->runs, diff->run_id, diff->write_fd, &err) < 0;
	if (diff->failed && err.errnum != EPIPE)
		log_warn("the diff of run %s: %s", diff->run_id, err.message);
	close_fdp(&diff->write_fd);
	return NULL;
}

static ssize_t next_bytes(void *arg, struct http_connection *connection, char *buf, size_t max)
{
	struct diff *diff = arg;
	ssize_t n;
	(void)connection;

	do
		n = read(diff->read_fd, buf, max);
	while (n < 0 && errno == EINTR);
	return n;
}

static void diff_free(void *arg)
{
	struct diff *diff = arg;

	/* Whoever is still writing finds nobody reading. */
	close_fdp(&diff->read_fd);
	pthread_join(diff->thread, NULL);
	free(diff);
}

static int diff(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	struct diff *state;
	pthread_attr_t attr;
	int fds[2], failed;

	if (run_has_diff(server->runs, request->param[0], err) < 0)
		return -1;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return error_errno(err, errno, "pipe");
	state = xcalloc(1, sizeof(*state));
	state->runs = server->runs;
	id_copy(state->run_id, request->param[0]);
	state->read_fd = fds[0];
	state->write_fd = fds[1];
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, DIFF_STACK_BYTES);
	failed = pthread_create(&state->thread, &attr, write_diff, state);
	pthread_attr_destroy(&attr);
	if (failed) {
		close(fds[0]);
		close(fds[1]);
		free(state);
		return error_errno(err, failed, "cannot start a thread for the diff");
	}

	struct stream stream = { next_bytes, diff_free, state, NULL };

	response_stream(response, "text/x-diff", &stream);
	return 0;
}

/* ---- collect, drop ---- */

static int collect(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;

	return answer(response, 200,
		      run_collect(server->runs, &request->actor, request->param[0],
				  json_bool(request->body, "dryRun", false), CHANGES_DEFAULT, err));
}

static int drop(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;

	if (run_drop_files(server->runs, &request->actor, request->param[0], err) < 0)
		return -1;
	return answer(response, 200, json_object());
}

static int plan(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };
	_cleanup_environment_ struct environment environment = { 0 };
	_cleanup_json_ json_t *wish = NULL;
	const char *id = json_str(request->body, "environmentId");

	if (company_of_path(server, request, &company, err) < 0 ||
	    workspace_wanted(server->runs, &request->actor, company.id, false,
			     json_object_get(request->body, "workspace"), &wish, err) < 0)
		return -1;
	if (id && (environment_get(server->db, id, &environment, NULL) < 0 ||
		   !streq(environment.company_id, company.id)))
		return error_set(err, ERR_UNPROCESSABLE,
				 "environmentId \"%s\" was not found in this company", id);
	return answer(response, 200,
		      run_plan_files(server->runs, wish, id ? &environment : NULL, err));
}

/* ---- leases ---- */

static int lease_stage(void *arg, struct request *request, struct response *response,
		       struct error *err)
{
	struct server *server = arg;
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };
	_cleanup_json_ json_t *wish = NULL, *asked = json_copy(request->body);

	json_object_del(asked, "generation");
	json_object_del(asked, "discard");
	if (workspace_wanted(server->runs, &request->actor, request->company_id, false, asked,
			     &wish, err) < 0)
		return -1;
	if (!wish)
		return error_set(err, ERR_VALIDATION, "mode none stages nothing");
	if (lease_use(server->leases, request->param[0],
		      json_int(request->body, "generation", GENERATION_UNCHECKED), &lease, &place,
		      err) < 0)
		return -1;
	return answer(response, 200,
		      lease_stage_files(server->runs, &lease, &place, wish,
					json_bool(request->body, "discard", false), err));
}

static int lease_collect(void *arg, struct request *request, struct response *response,
			 struct error *err)
{
	struct server *server = arg;
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };

	if (lease_use(server->leases, request->param[0],
		      json_int(request->body, "generation", GENERATION_UNCHECKED), &lease, &place,
		      err) < 0)
		return -1;
	return answer(response, 200,
		      lease_collect_files(server->runs, &lease, &place,
					  json_bool(request->body, "dryRun", false),
					  CHANGES_DEFAULT, err));
}

#define GENERATION_FIELD                                                                           \
	{                                                                                          \
		"generation", FIELD_INT, 0, 0, INT64_MAX,                                          \
			.summary = "generation of the lease; not checked if left out"              \
	}
#define DRY_RUN_FIELD                                                                              \
	{                                                                                          \
		"dryRun", FIELD_BOOL, 0, .summary = "reports what would be done, and does nothing" \
	}

static const struct field CHANGES_QUERY[] = {
	{ .name = "limit",
	  .type = FIELD_INT,
	  .min = 0,
	  .max = CHANGES_MAX,
	  .summary = "At most this many changes; default: 1000" },
	{ 0 },
};
static const struct field COLLECT_FIELDS[] = { DRY_RUN_FIELD, { 0 } };
static const struct field PLAN_FIELDS[] = {
	{ "workspace", FIELD_OBJECT, FIELD_REQUIRED, .fields = WORKSPACE_WISH_FIELDS,
	  .summary = "as in the body of a run" },
	{ "environmentId", FIELD_UUID, FIELD_NULLABLE, .summary = "where it would run" },
	{ 0 },
};
static const struct field STAGE_FIELDS[] = {
	GENERATION_FIELD,
	{ "path", FIELD_STRING, FIELD_REQUIRED, 1, 4095,
	  .summary = "absolute directory on the server's machine" },
	{ "mode", FIELD_STRING, 0, .one_of = WORKSPACE_MODE_NAMES,
	  .summary = "auto or copy: both copy, because the place already exists" },
	{ "root", FIELD_STRING, FIELD_NULLABLE, 1, 4095,
	  .summary = "absolute directory in the place; default: the place's workspace" },
	{ "allowLarge", FIELD_BOOL, 0,
	  .summary = "allows a home directory, and more files and bytes than the default limits" },
	{ "show", FIELD_STRING_ARRAY, FIELD_NONBLANK, 0, WORKSPACE_SHOWN_MAX,
	  .summary = "paths below path that the place sees although names or rules hide them. Not "
		     "for agents" },
	{ "discard", FIELD_BOOL, 0,
	  .summary = "files that were staged before and not collected may be overwritten" },
	{ 0 },
};
static const struct field LEASE_COLLECT_FIELDS[] = { GENERATION_FIELD, DRY_RUN_FIELD, { 0 } };

ROUTES(CHANGE_ROUTES, 270) = {
	{ HTTP_GET, "/api/runs/:id/changes", .access = ACCESS_READ, .subject = SUBJECT_RUN,
	  .query = CHANGES_QUERY, .run = changes, .answer = "Changes",
	  .errors = "run_state_conflict",
	  .summary = "The changes of a run, and what happened to each" },
	{ HTTP_GET, "/api/runs/:id/diff", ROUTE_STREAM, .access = ACCESS_READ,
	  .subject = SUBJECT_RUN, .run = diff, .answer = "text/x-diff",
	  .errors = "run_state_conflict", .summary = "The same as a unified diff" },
	{ HTTP_POST, "/api/runs/:id/collect", ROUTE_NO_BODY_OK, COLLECT_FIELDS,
	  .access = ACCESS_BOARD, .subject = SUBJECT_RUN, .run = collect, .answer = "Changes",
	  .errors = "run_state_conflict lease_not_active",
	  .summary = "Merges the changes of an ended run into its workspace" },
	{ HTTP_DELETE, "/api/runs/:id/workspace", .access = ACCESS_BOARD, .subject = SUBJECT_RUN,
	  .run = drop, .answer = "Nothing", .errors = "run_state_conflict",
	  .summary = "Deletes the changes of a run; the workspace is not touched" },
	{ HTTP_POST, "/api/companies/:cid/workspace-plan", .body = PLAN_FIELDS,
	  .access = ACCESS_WRITE, .subject = SUBJECT_COMPANY, .run = plan,
	  .answer = "WorkspacePlan", .errors = "unprocessable payload_too_large",
	  .summary = "Reports what staging a workspace would bring into a place; brings nothing" },
	{ HTTP_POST, "/api/environment-leases/:id/stage", .access = ACCESS_LEASES,
	  .subject = SUBJECT_LEASE, .body = STAGE_FIELDS, .run = lease_stage, .answer = "Changes",
	  .errors = "lease_generation_stale lease_not_active conflict unprocessable "
		    "payload_too_large",
	  .summary = "Copies a directory of the server's machine into the place" },
	{ HTTP_POST, "/api/environment-leases/:id/collect", ROUTE_NO_BODY_OK, LEASE_COLLECT_FIELDS,
	  .access = ACCESS_LEASES, .subject = SUBJECT_LEASE, .run = lease_collect,
	  .answer = "Changes",
	  .errors = "lease_generation_stale lease_not_active run_state_conflict",
	  .summary = "Ends the place's commands and merges the changes made there into the "
		     "directory" },
	{ 0 },
};

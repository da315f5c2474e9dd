#include "api/exec_control.h"
#include <signal.h>
#include "api/answer.h"
#include "api/exec_view.h"
#include "auth/subject.h"
#include "base/text.h"

#define STDIN_STEP_MS 1000 /* between two looks at whether the client is still there */

int exec_not_going(struct server *server, const char *id, struct error *err)
{
	_cleanup_exec_view_ struct exec_view view = { 0 };

	if (exec_view_open(server, id, 0, &view, err) < 0)
		return -1;
	return error_set(err, ERR_CONFLICT, "exec %s has ended", id);
}

/* The places's answer, where "not found" gets its meaning. */
static int settle(struct server *server, const char *id, int r, struct error *err)
{
	if (r < 0 && err->code == ERR_NOT_FOUND) {
		error_clear(err);
		return exec_not_going(server, id, err);
	}
	return r;
}

static int signal_number(const char *name)
{
	if (str_starts(name, "SIG"))
		name += 3;
	for (int i = 1; i < NSIG; i++) {
		const char *abbreviation = sigabbrev_np(i);

		if (abbreviation && streq(name, abbreviation))
			return i;
	}
	return 0;
}

static const char *const TARGETS[] = { "process", "group", "tree", NULL };
_Static_assert(EXEC_TO_PROCESS == 0 && EXEC_TO_GROUP == 1 && EXEC_TO_TREE == 2,
	       "TARGETS stand in the order of enum exec_target");

int exec_signal(struct server *server, const char *id, const json_t *body, struct error *err)
{
	const char *name = json_str(body, "signal"), *target = json_str(body, "target");
	int number = signal_number(name ? name : "");
	enum exec_target to = EXEC_TO_GROUP;

	if (!number)
		return error_set(err, ERR_VALIDATION, "signal must be a name like INT or SIGTERM");
	for (int i = 0; target && TARGETS[i]; i++)
		if (streq(target, TARGETS[i]))
			to = (enum exec_target)i;
	return settle(server, id, places_signal(server->places, id, number, to, err), err);
}

int exec_resize(struct server *server, const char *id, const json_t *body, struct error *err)
{
	return settle(server, id,
		      places_resize(server->places, id, (uint16_t)json_int(body, "rows", 24),
				    (uint16_t)json_int(body, "cols", 80), err),
		      err);
}

static int signal_route(void *arg, struct request *request, struct response *response,
			struct error *err)
{
	if (exec_signal(arg, request->param[0], request->body, err) < 0)
		return -1;
	return answer(response, 200, json_object());
}

static int resize_route(void *arg, struct request *request, struct response *response,
			struct error *err)
{
	if (exec_resize(arg, request->param[0], request->body, err) < 0)
		return -1;
	return answer(response, 200, json_object());
}

/* ---- standard input ---- */

struct input {
	struct server *server;
	struct http_connection *connection;
	char id[ID_SIZE];
	int64_t bytes;
	bool no_local; /* the caller may not write into a place of this host */
};

/*
 * A run has no command while it waits for its place and its files; its sender waits with it. 1:
 * look again, 0: nothing is to be waited for, -1. A run that began meanwhile may be in a place that
 * the caller must not use.
 */
static int wait_for_command(struct input *input, struct error *err)
{
	struct runs *runs = input->server->runs;
	_cleanup_run_ struct run run = { 0 };
	struct subject subject;
	int fd;

	if (run_get(runs, input->id, &run, NULL) < 0 || run_status_is_final(run.status))
		return 0;
	fd = run_watch(runs, input->id, err);
	if (fd < 0)
		return -1;

	enum stream_event event = stream_wait(input->connection, fd, STDIN_STEP_MS);

	run_unwatch(runs, input->id, fd);
	if (event == STREAM_GONE)
		return error_set(err, ERR_CANCELLED, "the client disconnected");
	if (!input->no_local)
		return 1;
	if (subject_get(input->server->db, OF_RUN, input->id, &subject, err) < 0)
		return -1;
	return subject.driver == DRIVER_LOCAL ? refuse_local(err) : 1;
}

/* A command that does not read holds its sender, for as long as the sender waits. */
static int take_input(struct input *input, const char *data, size_t len, bool end,
		      struct error *err)
{
	for (;;) {
		size_t taken = 0;
		int r = places_write_stdin(input->server->places, input->id, data, len, end,
					   STDIN_STEP_MS, &taken, err);

		input->bytes += (int64_t)taken;
		data += taken;
		len -= taken;
		if (r == 0 && len == 0)
			return 0;
		if (r < 0 && err->code == ERR_NOT_FOUND) {
			_cleanup_error_ struct error why = { 0 };
			int more = wait_for_command(input, &why);

			if (more > 0) {
				error_clear(err);
				continue;
			}
			if (more < 0) {
				error_clear(err);
				error_move(err, &why);
				return -1;
			}
		}
		if (r < 0 && err->code != ERR_TIMEOUT)
			return settle(input->server, input->id, r, err);
		error_clear(err);
		if (stream_wait(input->connection, -1, 0) == STREAM_GONE)
			return error_set(err, ERR_CANCELLED, "the client disconnected");
	}
}

static int stdin_chunk(void *arg, const char *data, size_t len, struct error *err)
{
	return take_input(arg, data, len, false, err);
}

static int stdin_open(void *arg, struct request *request, struct body_sink *sink, struct error *err)
{
	struct input *input;
	_cleanup_exec_view_ struct exec_view view = { 0 };

	if (exec_view_open(arg, request->param[0], 0, &view, err) < 0) {
		if (err->code != ERR_RUN_STATE)
			return -1;
		/* It has not begun: its sender waits for that. */
		error_clear(err);
	}
	input = xcalloc(1, sizeof(*input));
	input->server = arg;
	input->connection = request->connection;
	input->no_local = request->actor.no_local;
	id_copy(input->id, request->param[0]);
	*sink = (struct body_sink){ stdin_chunk, free, input };
	return 0;
}

static int stdin_route(void *arg, struct request *request, struct response *response,
		       struct error *err)
{
	struct input *input = request->sink->arg;
	(void)arg;

	if (request_query_flag(request, "end", false) && take_input(input, "", 0, true, err) < 0)
		return -1;

	json_t *json = json_object();

	json_put_int(json, "bytes", input->bytes);
	return answer(response, 200, json);
}

/* ---- looking at it ---- */

static json_t *describe_run(struct server *server, const char *id, struct error *err)
{
	_cleanup_run_ struct run run = { 0 };
	_cleanup_json_ json_t *whole = NULL;
	json_t *json;

	if (run_get(server->runs, id, &run, NULL) < 0) {
		error_set(err, ERR_NOT_FOUND, "there is no exec %.40s", id);
		return NULL;
	}
	whole = run_json(&run);
	json = json_object();
	json_put_str(json, "id", run.id);
	json_put_str(json, "runId", run.id);
	json_put_str(json, "leaseId", id_is_set(run.lease_id) ? run.lease_id : NULL);
	json_put_ref(json, "command", json_object_get(whole, "command"));
	json_put_ref(json, "tty", json_object_get(json_object_at(run.context, "request"), "tty"));
	json_put_ref(json, "createdAt", json_object_get(whole, "createdAt"));
	json_put_str(json, "status",
		     run_status_is_final(run.status) ? "ended"
		     : run.status == RUN_RUNNING     ? "running"
						     : "queued");
	for (size_t i = 0; run_status_is_final(run.status) && i < 3; i++) {
		static const char *const KEYS[] = { "exitCode", "signal", "reason" };

		json_put_ref(json, KEYS[i], json_object_get(whole, KEYS[i]));
	}
	return json;
}

static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	const char *id = request->param[0];
	json_t *json = execs_describe(server->execs, id, NULL);

	return answer(response, 200, json ? json : describe_run(server, id, err));
}

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_lease_ struct lease lease = { 0 };
	json_t *execs;

	if (lease_get(server->leases, request->param[0], &lease, NULL, err) < 0)
		return -1;
	execs = execs_of_lease(server->execs, lease.id);
	if (id_is_set(lease.run_id) && places_has_exec(server->places, lease.run_id))
		json_array_insert_new(execs, 0, describe_run(server, lease.run_id, err));
	return answer(response, 200, execs);
}

const struct field SIGNAL_FIELDS[] = {
	{ .name = "type", .type = FIELD_STRING, .max = 16 },
	{ .name = "signal",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED,
	  .min = 1,
	  .max = 16,
	  .summary = "INT, TERM, KILL, ..." },
	{ .name = "target",
	  .type = FIELD_STRING,
	  .one_of = TARGETS,
	  .summary = "The command's process, its process group (default), or its whole tree" },
	{ 0 },
};
const struct field RESIZE_FIELDS[] = {
	{ .name = "type", .type = FIELD_STRING, .max = 16 },
	{ .name = "rows", .type = FIELD_INT, .flags = FIELD_REQUIRED, .min = 1, .max = 65535 },
	{ .name = "cols", .type = FIELD_INT, .flags = FIELD_REQUIRED, .min = 1, .max = 65535 },
	{ 0 },
};
static const struct field STDIN_QUERY[] = {
	{ .name = "end", .type = FIELD_BOOL, .summary = "1: nothing follows these bytes" },
	{ 0 },
};

ROUTES(EXEC_CONTROL_ROUTES, 140) = {
	{ HTTP_GET, "/api/environment-leases/:id/execs", .access = ACCESS_LEASES,
	  .subject = SUBJECT_LEASE, .run = list, .answer = "[Exec]",
	  .summary = "The commands running in its place" },
	{ HTTP_GET, "/api/execs/:id", .access = ACCESS_READ, .subject = SUBJECT_EXEC, .run = show,
	  .answer = "Exec", .summary = "One exec, running or ended" },
	{ HTTP_POST, "/api/execs/:id/stdin", ROUTE_IN_PLACE | ROUTE_RAW_BODY,
	  .access = ACCESS_BOARD, .subject = SUBJECT_EXEC, .query = STDIN_QUERY, .run = stdin_route,
	  .open = stdin_open, .answer = "Taken", .errors = "conflict",
	  .summary = "More standard input; waits while the command does not read, or has not "
		     "started" },
	{ HTTP_POST, "/api/execs/:id/signal", ROUTE_IN_PLACE, .access = ACCESS_BOARD,
	  .subject = SUBJECT_EXEC, .body = SIGNAL_FIELDS, .run = signal_route, .answer = "Nothing",
	  .summary = "Sends it a signal" },
	{ HTTP_POST, "/api/execs/:id/resize", ROUTE_IN_PLACE, .access = ACCESS_BOARD,
	  .subject = SUBJECT_EXEC, .body = RESIZE_FIELDS, .run = resize_route, .answer = "Nothing",
	  .summary = "Changes the size of its terminal" },
	{ 0 },
};

/*
 * One command in a leased place. The answer is a stream of events from the first byte on; the
 * command itself runs on (exec/execs.h), whoever listens, unless it was asked to end with its listener.
 */
#include "api/output_events.h"
#include "api/answer.h"
#include "api/exec_request.h"
#include "api/exec_stream.h"
#include "api/exec_view.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

#define CHUNK ((size_t)16 << 10)
#define CAPTURE_MAX ((size_t)1 << 20) /* of each stream, for ?stream=0 */

/* Somebody following an exec from its start. */
struct listener {
	struct exec_view view;
	struct event_writer events;
	bool ended;
};

static void listener_free(void *arg)
{
	struct listener *listener = arg;

	if (!listener)
		return;

	struct server *server = listener->view.server;

	if (listener->view.live)
		live_exec_detach(listener->view.live, NULL);
	/* A server that stops leaves its commands behind; a client that goes may not want to. */
	if (!listener->ended && listener->view.live &&
	    live_exec_dies_when_left(listener->view.live) && !http_is_stopping(server->http))
		places_cancel(server->places, listener->view.id, EXEC_CANCELLED, false);
	exec_view_close(&listener->view);
	event_writer_clear(&listener->events);
	free(listener);
}

static void listener_freep(struct listener **listener)
{
	listener_free(*listener);
}
#define _cleanup_listener_ _cleanup_(listener_freep)

/* Takes the reference to `live`. */
static int listen_to(struct server *server, const char *id, struct live_exec *live,
		     struct listener **out, struct error *err)
{
	struct listener *listener = xcalloc(1, sizeof(*listener));

	if (exec_view_new(server, id, live, &listener->view, err) < 0) {
		free(listener);
		return -1;
	}
	*out = listener;
	return 0;
}

/* 1 and the next output, 0 at its end, -1 when the client has gone or the output cannot be read. */
static int next_chunk(struct listener *listener, struct http_connection *connection,
		      struct runlog_chunk *chunk)
{
	_cleanup_error_ struct error err = { 0 };
	struct exec_view *view = &listener->view;

	for (;;) {
		int r = exec_view_read(view, CHUNK, chunk, &err);

		if (r < 0)
			log_warn("exec %s: %s", view->id, err.message);
		if (r != 0)
			return r;
		if (!exec_view_is_live(view))
			return 0;
		if (stream_wait(connection, exec_view_event(view), -1) == STREAM_GONE)
			return -1;
	}
}

static void write_start(struct listener *listener)
{
	json_t *event = json_object();

	json_put_str(event, "type", "start");
	json_put_str(event, "execId", listener->view.id);
	event_line(&listener->events, event);
}

static int write_exit(struct listener *listener)
{
	_cleanup_error_ struct error err = { 0 };
	struct exec_outcome outcome;
	json_t *event;

	event_flush(&listener->events);
	if (exec_view_outcome(&listener->view, &outcome, &err) < 0) {
		log_warn("exec %s: %s", listener->view.id, err.message);
		return -1;
	}
	if (outcome.output_lost > 0)
		event_lost(&listener->events, outcome.output_bytes - outcome.output_lost,
			   outcome.output_lost);
	event = json_object();
	json_put_str(event, "type", "exit");
	exec_outcome_put(event, &outcome);
	event_line(&listener->events, event);
	listener->ended = true;
	return 0;
}

/* What is there already goes out together: every part that is sent wakes the client. */
static int gather(struct listener *listener)
{
	_cleanup_error_ struct error err = { 0 };

	while (listener->events.out.len < CHUNK) {
		struct runlog_chunk chunk;
		int r = exec_view_read(&listener->view, CHUNK, &chunk, &err);

		if (r < 0)
			log_warn("exec %s: %s", listener->view.id, err.message);
		if (r == 0 && !exec_view_is_live(&listener->view))
			return write_exit(listener);
		if (r <= 0)
			return r;
		event_chunk(&listener->events, &chunk);
	}
	return 0;
}

static int go_on(struct listener *listener)
{
	_cleanup_error_ struct error err = { 0 };
	struct live_exec *live = listener->view.live;

	if (!live || live_exec_detach(live, &err) == 0)
		return 0;
	log_warn("exec %s: %s", listener->view.id, err.message);
	return -1;
}

static ssize_t next_bytes(void *arg, struct http_connection *connection, char *buf, size_t max)
{
	struct listener *listener = arg;

	for (;;) {
		size_t n = event_take(&listener->events, buf, max);
		struct runlog_chunk chunk;

		if (n || listener->ended)
			return (ssize_t)n;
		if (go_on(listener) < 0)
			return -1;

		int r = next_chunk(listener, connection, &chunk);

		if (r < 0 || (r == 0 && write_exit(listener) < 0))
			return -1;
		if (r > 0)
			event_chunk(&listener->events, &chunk);
		if (r > 0 && gather(listener) < 0)
			return -1;
	}
}

/* From its start on, of one that may be over already. */
static int answer_stream(struct listener **listener, struct request *request,
			 struct response *response, struct error *err)
{
	struct listener *l = *listener;
	struct live_exec *live = l->view.live;

	write_start(l);
	if (gather(l) < 0)
		return error_set(err, ERR_IO, "the output of exec %s cannot be read", l->view.id);
	if (l->ended) {
		response->text = buf_steal(&l->events.out);
		response->content_type = "application/x-ndjson";
		return 0;
	}
	/* A client that does not read keeps nobody from taking what the command says. */
	if (live && live_exec_is_deferred(live) && !request_takes(request, l->events.out.len) &&
	    go_on(l) < 0)
		return error_set(err, ERR_UNAVAILABLE, "the command could not continue");

	struct stream stream = { next_bytes, listener_free, steal(*listener), NULL };

	response_stream(response, "application/x-ndjson", &stream);
	return 0;
}

int exec_answer(struct server *server, const char *id, struct live_exec *live, struct buf *preface,
		struct request *request, struct response *response, struct error *err)
{
	_cleanup_listener_ struct listener *listener = NULL;

	if (listen_to(server, id, live, &listener, err) < 0)
		return -1;
	listener->events.out = *preface;
	*preface = (struct buf){ 0 };
	return answer_stream(&listener, request, response, err);
}

void exec_let_go(struct server *server, const char *id, struct live_exec *live)
{
	struct listener *listener;

	if (live && listen_to(server, id, live, &listener, NULL) == 0)
		listener_free(listener);
}

struct capture {
	struct buf data;
	bool truncated;
};

static void capture_clear(struct capture *capture)
{
	buf_free(&capture->data);
}

static void capture_add(struct capture *capture, const struct runlog_chunk *chunk)
{
	size_t room = CAPTURE_MAX - capture->data.len;

	buf_append(&capture->data, chunk->data, MIN_OF(room, chunk->len));
	capture->truncated |= chunk->len > room || chunk->truncated;
}

static void capture_put(json_t *object, const char *name, struct capture *capture)
{
	_cleanup_free_ char *flag = xasprintf("%sTruncated", name);
	_cleanup_free_ char *encoding = xasprintf("%sEncoding", name);
	size_t cut = capture->truncated
			     ? utf8_partial_tail(buf_str(&capture->data), capture->data.len)
			     : 0;
	size_t len = capture->data.len - cut;
	const char *data = buf_str(&capture->data);

	if (utf8_valid(data, len) && !memchr(data, '\0', len)) {
		json_put_new(object, name, json_stringn(data, len));
	} else {
		_cleanup_buf_ struct buf text = { 0 };

		base64_encode(&text, data, capture->data.len);
		json_put_str(object, name, buf_str(&text));
		json_put_str(object, encoding, "base64");
	}
	json_put_bool(object, flag, capture->truncated);
}

static int answer_whole(struct listener *listener, struct request *request,
			struct response *response, struct error *err)
{
	_cleanup_(capture_clear) struct capture out = { 0 };
	_cleanup_(capture_clear) struct capture errors = { 0 };
	struct exec_outcome outcome;
	struct runlog_chunk chunk;
	int r;

	while ((r = next_chunk(listener, request->connection, &chunk)) > 0)
		capture_add(chunk.stream == RUNLOG_STDERR ? &errors : &out, &chunk);
	if (r < 0)
		return error_set(err, ERR_CANCELLED,
				 "the client disconnected or the output ended early");
	if (exec_view_outcome(&listener->view, &outcome, err) < 0)
		return -1;
	listener->ended = true;

	json_t *json = json_object();

	/* Whose bytes they were is lost with them. */
	out.truncated |= outcome.output_lost > 0;
	errors.truncated |= outcome.output_lost > 0;
	json_put_str(json, "execId", listener->view.id);
	exec_outcome_put(json, &outcome);
	capture_put(json, "stdout", &out);
	capture_put(json, "stderr", &errors);
	return answer(response, 200, json);
}

static int start(struct server *server, struct request *request, const char *id, bool kept,
		 struct live_exec **live, struct error *err)
{
	const json_t *body = request->body;
	_cleanup_exec_request_ struct exec_request wanted = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };

	if (exec_request_read(&wanted, body, err) < 0 ||
	    lease_use(server->leases, request->param[0],
		      json_int(body, "generation", GENERATION_UNCHECKED), &lease, &place,
		      err) < 0 ||
	    lease_takes_commands(&lease, err) < 0)
		return -1;

	const struct exec_start how = {
		.id = id,
		.lease_id = lease.id,
		.place = &place,
		.generation = lease.generation,
		.kept = kept,
		.unannounced = !request_query_flag(request, "detach", false),
		.first_words = request_query_flag(request, "stream", true),
	};

	return exec_request_start(&wanted, server, &how, live, err);
}

/* The exec a key stands for, going or ended. */
static int follow_again(struct server *server, const char *id, struct listener **listener,
			struct error *err)
{
	struct exec_outcome outcome;
	struct live_exec *live = execs_find(server->execs, id);

	if (!live && execs_recall(server->execs, id, &outcome, err) < 0)
		return -1;
	return listen_to(server, id, live, listener, err);
}

static void settle_key(struct server *server, struct idempotency *idem)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *response = json_object();

	json_put_str(response, "execId", idem->entity_id);

	_cleanup_free_ char *text = json_text(response);

	if (idempotency_finish(server->db, &server->clock, idem, 200, text, &err) < 0)
		log_warn("the idempotency key of exec %s could not be stored: %s", idem->entity_id,
			 err.message);
}

/*
 * With a key the row comes first. Whether the command of an earlier server's unfinished request
 * ever started is told by its file: then it is lost, and starting it again would be a second time.
 */
static int start_once(struct server *server, struct request *request, struct listener **listener,
		      struct error *err)
{
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_(idempotency_clear) struct idempotency idem = { 0 };
	struct live_exec *live;

	if (lease_get(server->leases, request->param[0], &lease, NULL, err) < 0 ||
	    key_begin(server, request, lease.company_id, &idem, err) < 0)
		return -1;
	if (idem.replay)
		return follow_again(server, idem.entity_id, listener, err);
	if (idem.resumed && follow_again(server, idem.entity_id, listener, NULL) == 0) {
		settle_key(server, &idem);
		return 0;
	}
	if (start(server, request, idem.entity_id, true, &live, err) < 0) {
		idempotency_abandon(server->db, &idem, NULL);
		return -1;
	}
	settle_key(server, &idem);
	return listen_to(server, idem.entity_id, live, listener, err);
}

static int start_new(struct server *server, struct request *request, struct listener **listener,
		     struct error *err)
{
	char id[ID_SIZE];
	struct live_exec *live;

	id_new(id);
	if (start(server, request, id, false, &live, err) < 0)
		return -1;
	return listen_to(server, id, live, listener, err);
}

static int run(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_listener_ struct listener *listener = NULL;
	int r = request->idempotency_key ? start_once(arg, request, &listener, err)
					 : start_new(arg, request, &listener, err);

	if (r < 0)
		return -1;
	if (request_query_flag(request, "detach", false)) {
		/* Nobody was there to go away yet: from now on a terminal may come and go. */
		listener->ended = true;
		return answer(response, 201,
			      execs_describe(listener->view.server->execs, listener->view.id, err));
	}
	if (!request_query_flag(request, "stream", true))
		return answer_whole(listener, request, response, err);
	return answer_stream(&listener, request, response, err);
}

static const struct field QUERY[] = {
	{ .name = "stream",
	  .type = FIELD_BOOL,
	  .summary = "0: one object at the end, with at most 1 MiB of each stream" },
	{ .name = "detach",
	  .type = FIELD_BOOL,
	  .summary = "1: the exec as it started, at once; its output is at /api/execs/:id/output" },
	{ 0 },
};

ROUTES(EXEC_ROUTES, 90) = {
	{ HTTP_POST, "/api/environment-leases/:id/exec",
	  ROUTE_IN_PLACE | ROUTE_IDEMPOTENT_KEY | ROUTE_STREAM | ROUTE_EVENTS, EXEC_FIELDS,
	  .access = ACCESS_LEASES, .subject = SUBJECT_LEASE, .query = QUERY, .run = run,
	  .answer = "ExecResult",
	  .errors = "lease_generation_stale lease_not_active lease_paused lease_lost "
		    "command_not_found "
		    "command_not_executable",
	  .summary = "Runs a command in the leased place" },
	{ 0 },
};

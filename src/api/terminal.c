/*
 * An exec's terminal over a WebSocket. Binary messages are bytes, both ways; text messages are
 * control, one JSON object each:
 *
 *   from here  {type: attached, execId, offset}   the offset of the first byte that follows
 *              {type: truncated, offset}          output behind it was not kept
 *              {type: exit, exitCode, signal, reason, ...}, then the close
 *              {type: error, error, code}         a control message was refused
 *   to here    {type: resize, rows, cols}, {type: signal, signal, target}, {type: end} (of input),
 *              {type: detach}                     leaving is meant, also with onDisconnect: kill
 *
 * The close says why: 1000 "exited <code or signal>", 4001 "replaced", 4002 "lease_lost", 1001
 * "stopping". A client that lost its connection comes back with ?since= the offset it has reached.
 */
#include <errno.h>
#include <poll.h>
#include "api/answer.h"
#include "api/exec_control.h"
#include "api/exec_view.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "http/websocket.h"

#define OUTPUT_BYTES ((size_t)32 << 10)   /* of one message */
#define QUEUE_BYTES ((size_t)256 << 10)   /* on the way to the client */
#define INPUT_BYTES ((size_t)256 << 10)   /* on the way to the command */
#define MESSAGE_BYTES ((size_t)128 << 10) /* of one message to here */
#define PING_MS 20000
#define SILENCE_MS 60000
#define RETRY_MS 20 /* while the command does not read */
#define CLOSE_MS 2000

enum { CLOSE_EXITED = 1000, CLOSE_STOPPING = 1001, CLOSE_REPLACED = 4001, CLOSE_LOST = 4002 };

struct session {
	struct server *server;
	struct exec_view view;
	struct terminal_holder seat;
	struct websocket *ws;
	int64_t since;
	bool alone;
	bool leaving; /* the client said so */
	struct buf input;
	bool end_input;
	bool deaf; /* the command takes no input any more */
	int64_t pinged;
};

static void say(struct session *s, json_t *message)
{
	_cleanup_free_ char *text = json_text(message);

	websocket_send(s->ws, WEBSOCKET_TEXT, text, strlen(text));
	json_decref(message);
}

static json_t *message_of(const char *type)
{
	json_t *message = json_object();

	json_put_str(message, "type", type);
	return message;
}

static void say_offset(struct session *s, const char *type, int64_t offset)
{
	json_t *message = message_of(type);

	json_put_str(message, "execId", s->view.id);
	json_put_int(message, "offset", offset);
	say(s, message);
}

static void say_error(struct session *s, const struct error *err)
{
	json_t *message = message_of("error");

	json_put_str(message, "error", err->message);
	json_put_str(message, "code", error_code_name(err->code));
	say(s, message);
}

/* ---- what the client says ---- */

static int obey(struct session *s, const json_t *message, struct error *err)
{
	const char *type = json_str(message, "type");

	if (str_equal(type, "resize"))
		return fields_check(RESIZE_FIELDS, message, err) < 0
			       ? -1
			       : exec_resize(s->server, s->view.id, message, err);
	if (str_equal(type, "signal"))
		return fields_check(SIGNAL_FIELDS, message, err) < 0
			       ? -1
			       : exec_signal(s->server, s->view.id, message, err);
	if (str_equal(type, "end"))
		s->end_input = true;
	else if (str_equal(type, "detach"))
		s->leaving = true;
	else
		return error_set(err, ERR_VALIDATION, "there is no such control message");
	return 0;
}

static void take_message(void *arg, enum websocket_type type, const char *data, size_t len)
{
	struct session *s = arg;
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *message = NULL;

	if (type == WEBSOCKET_BINARY) {
		/* While closing nothing holds the client back. */
		if (!s->deaf && !s->end_input && !s->leaving && s->input.len < 2 * INPUT_BYTES)
			buf_append(&s->input, data, len);
		return;
	}
	message = json_parse(data, len, &err);
	if (!message || obey(s, message, &err) < 0)
		say_error(s, &err);
}

/* What the command takes now; it is asked again a little later for the rest. */
static void pass_input(struct session *s)
{
	_cleanup_error_ struct error err = { 0 };
	size_t taken = 0;

	if (s->deaf || (!s->input.len && !s->end_input))
		return;

	int r = places_write_stdin(s->server->places, s->view.id, buf_str(&s->input), s->input.len,
				   s->end_input, 0, &taken, &err);

	buf_consume(&s->input, taken);
	if (r == 0 && !s->input.len)
		s->end_input = false;
	if (r == 0 || err.code == ERR_TIMEOUT)
		return;
	s->deaf = true;
	buf_reset(&s->input);
	s->end_input = false;
}

/* ---- what the command says ---- */

/* 1 there may be more later, 0 that was all, -1. */
static int pass_output(struct session *s, struct error *err)
{
	while (websocket_queued(s->ws) < QUEUE_BYTES) {
		struct runlog_chunk chunk;
		int r = exec_view_read(&s->view, OUTPUT_BYTES, &chunk, err);

		if (r < 0)
			return -1;
		if (r == 0)
			return exec_view_is_live(&s->view);
		if (chunk.len)
			websocket_send(s->ws, WEBSOCKET_BINARY, chunk.data, chunk.len);
		if (chunk.truncated)
			say_offset(s, "truncated", chunk.offset + (int64_t)chunk.len);
	}
	return 1;
}

static void close_ended(struct session *s)
{
	_cleanup_error_ struct error err = { 0 };
	struct exec_outcome outcome;
	char reason[64];
	json_t *message;

	if (exec_view_outcome(&s->view, &outcome, &err) < 0) {
		log_warn("the terminal of exec %s: %s", s->view.id, err.message);
		websocket_close(s->ws, 1011, "internal error", CLOSE_MS);
		return;
	}
	message = message_of("exit");
	exec_outcome_put(message, &outcome);
	say(s, message);
	if (outcome.result.reason == EXEC_LEASE_LOST) {
		websocket_close(s->ws, CLOSE_LOST, "lease_lost", CLOSE_MS);
		return;
	}
	if (outcome.result.exit_code >= 0)
		snprintf(reason, sizeof(reason), "exited %d", outcome.result.exit_code);
	else
		snprintf(reason, sizeof(reason), "exited %s", outcome.result.signal);
	websocket_close(s->ws, CLOSE_EXITED, reason, CLOSE_MS);
}

/* ---- the session ---- */

static bool keep_alive(struct session *s)
{
	int64_t now = boottime_ms(), heard = websocket_heard(s->ws);

	if (now - heard > SILENCE_MS)
		return false;
	if (now - MAX_OF(heard, s->pinged) >= PING_MS) {
		websocket_ping(s->ws);
		s->pinged = now;
	}
	return true;
}

/* False when the session is over. */
static bool wait_for_news(struct session *s, int fd, int stop_fd)
{
	bool may_read = s->input.len < INPUT_BYTES;
	bool has_room = websocket_queued(s->ws) < QUEUE_BYTES;
	bool pending = s->input.len || s->end_input;
	struct pollfd fds[] = {
		{ .fd = fd, .events = websocket_events(s->ws, may_read) },
		{ .fd = stop_fd, .events = POLLIN },
		{ .fd = s->seat.wake_fd, .events = POLLIN },
		{ .fd = has_room ? exec_view_event(&s->view) : -1, .events = POLLIN },
	};
	int timeout = websocket_has_early(s->ws) ? 0 : pending ? RETRY_MS : PING_MS;

	if (poll(fds, ARRAY_SIZE(fds), timeout) < 0 && errno != EINTR)
		return false;
	if (fds[1].revents) {
		websocket_close(s->ws, CLOSE_STOPPING, "stopping", CLOSE_MS);
		return false;
	}
	if (fds[2].revents && terminal_holder_is_replaced(s->server->execs, &s->seat)) {
		s->leaving = true;
		websocket_close(s->ws, CLOSE_REPLACED, "replaced", CLOSE_MS);
		return false;
	}
	/* What it sent before it shut its half is still to be read. */
	if (fds[0].revents & (POLLERR | POLLNVAL) ||
	    (fds[0].revents & (POLLHUP | POLLRDHUP) && !may_read))
		return false;
	return websocket_step(s->ws, may_read) && keep_alive(s);
}

static void converse(struct session *s, int fd, int stop_fd)
{
	_cleanup_error_ struct error err = { 0 };

	do {
		int r = pass_output(s, &err);

		if (r == 0) {
			close_ended(s);
			s->leaving = true;
			return;
		}
		if (r < 0) {
			log_warn("the terminal of exec %s: %s", s->view.id, err.message);
			websocket_close(s->ws, 1011, "internal error", CLOSE_MS);
			return;
		}
		pass_input(s);
	} while (wait_for_news(s, fd, stop_fd));
	pass_input(s); /* the last keys before the hang-up count, or before the server stops */
}

static void run_session(void *arg, int fd, const void *early, size_t early_len, int stop_fd)
{
	struct session *s = arg;
	const struct websocket_options options = {
		.fd = fd,
		.is_server = true,
		.early = early,
		.early_len = early_len,
		.max_message = MESSAGE_BYTES,
		.message = take_message,
		.arg = s,
	};
	_cleanup_websocket_ struct websocket *ws = websocket_new(&options);

	s->ws = ws;
	s->pinged = boottime_ms();
	say_offset(s, "attached", s->since);
	terminal_attach(s->server->execs, &s->seat, s->alone);
	converse(s, fd, stop_fd);
	if (terminal_detach(s->server->execs, &s->seat) == 0 && !s->leaving && s->view.live &&
	    live_exec_dies_when_left(s->view.live) && !latch_is_set(stop_fd))
		places_cancel(s->server->places, s->view.id, EXEC_CANCELLED, false);
	s->ws = NULL;
}

static void session_free(void *arg)
{
	struct session *s = arg;

	exec_view_close(&s->view);
	close_fdp(&s->seat.wake_fd);
	buf_free(&s->input);
	free(s);
}

static int attach(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct session *s = xcalloc(1, sizeof(*s));
	struct websocket_session session = { run_session, session_free, s };

	s->server = arg;
	s->alone = request_query_flag(request, "exclusive", false);
	id_copy(s->seat.id, request->param[0]);
	s->seat.wake_fd = latch_new(err);
	if (s->seat.wake_fd < 0 ||
	    request_query_int(request, "since", 0, INT64_MAX, 0, &s->since, err) < 0 ||
	    exec_view_open(arg, request->param[0], s->since, &s->view, err) < 0) {
		session_free(s);
		return -1;
	}
	response_websocket(response, &session);
	return 0;
}

static const struct field QUERY[] = {
	{ .name = "since",
	  .type = FIELD_INT,
	  .min = 0,
	  .max = INT64_MAX,
	  .summary = "Replays from this offset; from the beginning unless given" },
	{ .name = "exclusive",
	  .type = FIELD_BOOL,
	  .summary = "1: whoever is attached is told \"replaced\" and let go" },
	{ 0 },
};

ROUTES(TERMINAL_ROUTES, 160) = {
	{ HTTP_GET, "/api/execs/:id/terminal", ROUTE_IN_PLACE | ROUTE_WEBSOCKET,
	  .access = ACCESS_BOARD, .subject = SUBJECT_EXEC, .query = QUERY, .run = attach,
	  .summary = "Its terminal as a WebSocket" },
	{ 0 },
};

/*
 * The output of an exec, live or from what is kept of it: lines of JSON, or its bytes as they are.
 */
#include "api/output_events.h"
#include "api/answer.h"
#include "api/exec_view.h"
#include "base/log.h"
#include "base/text.h"

#define CHUNK ((size_t)16 << 10)
#define PING_MS 15000

struct follower {
	struct exec_view view;
	struct event_writer events;
	int64_t offset; /* of the next byte of output */
	bool follow, raw, ended;
};

static void follower_free(void *arg)
{
	struct follower *f = arg;

	exec_view_close(&f->view);
	event_writer_clear(&f->events);
	free(f);
}

/* As much as fits, over as many pieces as it takes. 0: nothing at the moment, -1. */
static ssize_t fill_raw(struct follower *f, char *buf, size_t max, struct error *err)
{
	size_t have = 0;

	while (have < max) {
		struct runlog_chunk chunk;
		int r = exec_view_read(&f->view, max - have, &chunk, err);

		if (r < 0)
			return -1;
		if (r == 0)
			break;
		memcpy(buf + have, chunk.data, chunk.len);
		have += chunk.len;
	}
	return (ssize_t)have;
}

static int fill_events(struct follower *f, struct error *err)
{
	struct runlog_chunk chunk;
	int r = exec_view_read(&f->view, CHUNK, &chunk, err);

	if (r > 0) {
		f->offset = chunk.offset + (int64_t)chunk.len;
		event_chunk(&f->events, &chunk);
	}
	return r;
}

static int write_end(struct follower *f, struct error *err)
{
	struct exec_outcome outcome;
	bool final = f->follow || !exec_view_is_live(&f->view);

	f->ended = true;
	if (f->raw)
		return 0;
	event_flush(&f->events);
	if (!final)
		return 0;
	if (exec_view_outcome(&f->view, &outcome, err) < 0)
		return -1;
	if (outcome.output_lost > 0)
		event_lost(&f->events, outcome.output_bytes - outcome.output_lost,
			   outcome.output_lost);

	json_t *event = json_object();

	json_put_str(event, "type", "exit");
	exec_outcome_put(event, &outcome);
	json_put_int(event, "offset", f->offset);
	event_line(&f->events, event);
	return 0;
}

static int wait_for_more(struct follower *f, struct http_connection *connection, struct error *err)
{
	if (!f->follow || !exec_view_is_live(&f->view))
		return write_end(f, err);

	enum stream_event event = stream_wait(connection, exec_view_event(&f->view), PING_MS);

	if (event == STREAM_GONE)
		return -1;
	if (event == STREAM_TIMEOUT && !f->raw) {
		json_t *ping = json_object();

		json_put_str(ping, "type", "ping");
		event_line(&f->events, ping);
	}
	return 0;
}

static ssize_t next_bytes(void *arg, struct http_connection *connection, char *buf, size_t max)
{
	struct follower *f = arg;
	_cleanup_error_ struct error err = { 0 };

	for (;;) {
		ssize_t n = (ssize_t)event_take(&f->events, buf, max);

		if (n || f->ended)
			return n;
		n = f->raw ? fill_raw(f, buf, max, &err) : fill_events(f, &err);
		if (n > 0 && f->raw)
			return n;
		if (n > 0 || (n == 0 && wait_for_more(f, connection, &err) == 0))
			continue;
		if (err.code != ERR_NONE)
			log_warn("the output of exec %s: %s", f->view.id, err.message);
		return -1;
	}
}

static int next_stretch(void *arg, struct http_connection *connection, int64_t max,
			struct file_stretch *out)
{
	struct follower *f = arg;
	_cleanup_error_ struct error err = { 0 };

	while (!f->ended) {
		struct runlog_stretch stretch;
		int r = exec_view_stretch(&f->view, max, &stretch, &err);

		if (r > 0 && stretch.len) {
			*out = (struct file_stretch){ stretch.fd, stretch.offset, stretch.len };
			return 1;
		}
		if (r < 0)
			log_warn("the output of exec %s: %s", f->view.id, err.message);
		if (r < 0 || (r == 0 && wait_for_more(f, connection, &err) < 0))
			return -1;
	}
	return 0;
}

static int show_output(void *arg, struct request *request, struct response *response,
		       struct error *err)
{
	int64_t since;

	if (request_query_int(request, "since", 0, INT64_MAX, 0, &since, err) < 0)
		return -1;

	struct follower *f = xcalloc(1, sizeof(*f));

	f->offset = since;
	f->follow = request_query_flag(request, "follow", false);
	f->raw = request->accept && strstr(request->accept, "application/octet-stream");
	f->events.offsets = OFFSETS_OF_LOG;
	if (exec_view_open(arg, request->param[0], since, &f->view, err) < 0) {
		free(f);
		return -1;
	}

	struct stream stream = { next_bytes, follower_free, f, f->raw ? next_stretch : NULL };

	response_stream(response, f->raw ? "application/octet-stream" : "application/x-ndjson",
			&stream);
	return 0;
}

static const struct field QUERY[] = {
	{ .name = "since",
	  .type = FIELD_INT,
	  .min = 0,
	  .max = INT64_MAX,
	  .summary = "Starts at this offset" },
	{ .name = "follow", .type = FIELD_BOOL, .summary = "1: until the command has ended" },
	{ 0 },
};

ROUTES(EXEC_OUTPUT_ROUTES, 150) = {
	{ HTTP_GET, "/api/execs/:id/output", ROUTE_STREAM, .access = ACCESS_READ,
	  .subject = SUBJECT_EXEC, .query = QUERY, .run = show_output,
	  .errors = "run_state_conflict",
	  .summary = "The output of an exec: NDJSON, or its bytes as application/octet-stream" },
	{ 0 },
};

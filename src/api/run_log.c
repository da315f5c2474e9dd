/*
 * The output of a run: what there is, or with follow=1 everything until the run has ended and all
 * of it is out. `since` goes on from an offset of an earlier event, also over a restart of the
 * server.
 */
#include <errno.h>
#include <sys/epoll.h>
#include "api/answer.h"
#include "api/output_events.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

#define CHUNK ((size_t)16 << 10)
#define PING_MS 15000
#define NO_LOG_MAX_MS 100 /* a run that has just begun opens its log any moment */

struct follower {
	struct server *server;
	char run_id[ID_SIZE];
	int64_t offset; /* of the next byte of output */
	bool follow, raw, progress;
	struct run_progress told;     /* how far its files were when that was last said */
	int watch_fd;                 /* the run changed; -1 when not following */
	int wait_fd;                  /* epoll over it and, once open, the log's event */
	struct runlog_reader *reader; /* NULL until there is a log */
	struct event_writer events;
	enum run_status status;
	int no_log_ms; /* how long to wait for the log before looking again; longer every time */
	bool look;     /* at the run's row again before waiting */
	bool final;    /* the run has ended: what is not in the log now never will be */
	bool ended;
	json_t *end;      /* its last event, once final */
	int64_t recorded; /* how much it wrote, as its row has it */
};

static void follower_free(void *arg)
{
	struct follower *f = arg;

	if (f->reader)
		runlog_reader_close(f->reader);
	if (f->watch_fd >= 0)
		run_unwatch(f->server->runs, f->run_id, f->watch_fd);
	close_fdp(&f->wait_fd);
	event_writer_clear(&f->events);
	json_decref(f->end);
	free(f);
}

static int watch(struct follower *f, int fd, struct error *err)
{
	struct epoll_event event = { .events = EPOLLIN };

	if (epoll_ctl(f->wait_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return error_errno(err, errno, "cannot watch a run");
	return 0;
}

static int open_log(struct follower *f, struct error *err)
{
	_cleanup_error_ struct error why = { 0 };

	if (f->reader)
		return 0;
	if (runlog_reader_open(f->server->run_logs, f->run_id, f->offset, &f->reader, &why) < 0) {
		if (why.code == ERR_NOT_FOUND)
			return 0;
		error_move(err, &why);
		return -1;
	}
	return f->follow ? watch(f, runlog_reader_event(f->reader), err) : 0;
}

static json_t *end_event(const struct run *run)
{
	json_t *event = json_object();

	json_put_str(event, "type", "end");
	json_put_str(event, "status", run_status_name(run->status));
	json_put_new(event, "exitCode", run->exit_code >= 0 ? json_integer(run->exit_code) : NULL);
	json_put_str(event, "signal", run->signal);
	json_put_str(event, "reason", run->reason);
	json_put_str(event, "error", run->error);
	json_put_str(event, "errorCode", run->error_code);
	/* So that whoever followed it need not ask for it. */
	json_put_new(event, "run", run_json(run));
	return event;
}

static int look_at_run(struct follower *f, struct error *err)
{
	_cleanup_run_ struct run run = { 0 };

	f->look = false;
	if (f->watch_fd >= 0)
		latch_clear(f->watch_fd);
	if (run_get(f->server->runs, f->run_id, &run, err) < 0)
		return -1;
	f->status = run.status;
	f->final = run_status_is_final(run.status);
	if (f->final) {
		f->end = end_event(&run);
		f->recorded = run.log_bytes;
	}
	return 0;
}

/* 1 a chunk, 0 nothing now, -1. */
static int read_log(struct follower *f, size_t max, struct runlog_chunk *chunk, struct error *err)
{
	if (open_log(f, err) < 0)
		return -1;
	if (!f->reader)
		return 0;
	latch_clear(runlog_reader_event(f->reader));

	int r = runlog_read(f->reader, max, chunk, err);

	if (r > 0)
		f->offset = chunk->offset + (int64_t)chunk->len;
	return r;
}

static void write_end(struct follower *f)
{
	int64_t lost;

	f->ended = true;
	if (f->raw)
		return;
	event_flush(&f->events);
	if (!f->final)
		return;
	lost = runlog_missing(f->server->run_logs, f->run_id, f->recorded);
	if (lost > 0) {
		event_lost(&f->events, f->recorded - lost, lost);
		json_put_int(f->end, "outputLost", lost);
	}
	json_put_int(f->end, "offset", f->offset);
	event_line(&f->events, steal(f->end));
}

/* On request only, and not in bytes: how far the files of the run are. */
static void tell_progress(struct follower *f)
{
	struct run_progress now;
	json_t *line;

	if (!f->progress || f->raw)
		return;
	run_progress(f->server->runs, f->run_id, &now);
	if (!now.step || memcmp(&now, &f->told, sizeof(now)) == 0)
		return;
	f->told = now;
	line = run_progress_json(&now);
	json_put_str(line, "type", "progress");
	event_line(&f->events, line);
}

static int wait_for_more(struct follower *f, struct http_connection *connection)
{
	bool log_is_due = !f->reader && f->status == RUN_RUNNING;
	enum stream_event event =
		stream_wait(connection, f->wait_fd, log_is_due ? f->no_log_ms : PING_MS);

	if (event == STREAM_GONE)
		return -1;
	if (log_is_due)
		f->no_log_ms = MIN_OF(f->no_log_ms * 2, NO_LOG_MAX_MS);
	f->look = event == STREAM_TIMEOUT || latch_is_set(f->watch_fd);
	tell_progress(f);
	if (event == STREAM_TIMEOUT && !log_is_due && !f->raw) {
		json_t *ping = json_object();

		json_put_str(ping, "type", "ping");
		event_line(&f->events, ping);
	}
	return 0;
}

/* Nothing to read at the moment: is that the end, or is there something to wait for? */
static int settle(struct follower *f, struct http_connection *connection, struct error *err)
{
	if (f->final) {
		write_end(f);
		return 0;
	}
	/* Looked at after the log was found empty, so that a final run's log is read once more. */
	if (f->look)
		return look_at_run(f, err);
	if (!f->follow) {
		write_end(f);
		return 0;
	}
	return wait_for_more(f, connection);
}

static ssize_t next_bytes(void *arg, struct http_connection *connection, char *buf, size_t max)
{
	struct follower *f = arg;
	_cleanup_error_ struct error err = { 0 };

	for (;;) {
		struct runlog_chunk chunk;
		size_t n = event_take(&f->events, buf, max);

		if (n || f->ended)
			return (ssize_t)n;

		int r = read_log(f, f->raw ? max : CHUNK, &chunk, &err);

		if (r > 0 && f->raw && chunk.len) {
			memcpy(buf, chunk.data, chunk.len);
			return (ssize_t)chunk.len;
		}
		if (r > 0 && !f->raw)
			event_chunk(&f->events, &chunk);
		if (r == 0)
			r = settle(f, connection, &err);
		if (r < 0) {
			if (err.code != ERR_NONE)
				log_warn("the log of run %s: %s", f->run_id, err.message);
			return -1;
		}
	}
}

static int start_following(struct follower *f, struct error *err)
{
	f->wait_fd = epoll_create1(EPOLL_CLOEXEC);
	if (f->wait_fd < 0)
		return error_errno(err, errno, "cannot watch a run");
	f->watch_fd = run_watch(f->server->runs, f->run_id, err);
	return f->watch_fd < 0 ? -1 : watch(f, f->watch_fd, err);
}

static bool wants_bytes(const struct request *request)
{
	return request->accept && strstr(request->accept, "application/octet-stream");
}

static int show_log(void *arg, struct request *request, struct response *response,
		    struct error *err)
{
	struct server *server = arg;
	_cleanup_run_ struct run run = { 0 };
	int64_t since;

	if (request_query_int(request, "since", 0, INT64_MAX, 0, &since, err) < 0 ||
	    run_get(server->runs, request->param[0], &run, err) < 0)
		return -1;

	struct follower *f = xcalloc(1, sizeof(*f));

	f->server = server;
	f->offset = since;
	f->follow = request_query_flag(request, "follow", false);
	f->raw = wants_bytes(request);
	f->progress = request_query_flag(request, "progress", false);
	f->look = true;
	f->no_log_ms = 1;
	f->watch_fd = f->wait_fd = -1;
	f->events.offsets = OFFSETS_OF_LOG;
	id_copy(f->run_id, run.id);
	if (f->follow && start_following(f, err) < 0) {
		follower_free(f);
		return -1;
	}

	struct stream stream = { next_bytes, follower_free, f, NULL };

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
	{ .name = "follow", .type = FIELD_BOOL, .summary = "1: until the run has ended" },
	{ .name = "progress",
	  .type = FIELD_BOOL,
	  .summary = "1: also lines of type progress while files are moving" },
	{ 0 },
};

ROUTES(RUN_LOG_ROUTES, 110) = {
	{ HTTP_GET, "/api/runs/:id/log", ROUTE_STREAM, .access = ACCESS_READ,
	  .subject = SUBJECT_RUN, .query = QUERY, .run = show_log,
	  .summary = "The output of a run: NDJSON, or its bytes as application/octet-stream" },
	{ 0 },
};

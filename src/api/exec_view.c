#include "api/exec_view.h"
#include <poll.h>
#include "base/fd.h"
#include "base/text.h"

#define RUN_END_MS 15000 /* its place is released before a run has ended */

void exec_view_close(struct exec_view *view)
{
	if (view->reader)
		runlog_reader_close(view->reader);
	if (view->live)
		live_exec_unref(view->live);
	*view = (struct exec_view){ 0 };
}

static int open_reader(struct exec_view *view, int64_t since, struct error *err)
{
	_cleanup_error_ struct error why = { 0 };
	int r;

	if (view->is_run)
		r = runlog_reader_open(view->server->run_logs, view->id, since, &view->reader,
				       &why);
	else if (view->live)
		r = live_exec_read(view->live, since, &view->reader, &why);
	else
		r = execs_read(view->server->execs, view->id, since, &view->reader, &why);
	if (r == 0 || why.code == ERR_NOT_FOUND)
		return 0;
	error_move(err, &why);
	return -1;
}

static int open_run(struct exec_view *view, int64_t since, struct error *err)
{
	_cleanup_run_ struct run run = { 0 };

	if (run_get(view->server->runs, view->id, &run, NULL) < 0)
		return error_set(err, ERR_NOT_FOUND, "there is no exec %.40s", view->id);
	view->is_run = true;
	if (open_reader(view, since, err) < 0)
		return -1;
	if (!view->reader && !run_status_is_final(run.status))
		return error_set(err, ERR_RUN_STATE, "the command of run %s has not started",
				 view->id);
	return 0;
}

static int open_view(struct exec_view *view, int64_t since, struct error *err)
{
	struct exec_outcome outcome;

	view->live = execs_find(view->server->execs, view->id);
	if (view->live || execs_recall(view->server->execs, view->id, &outcome, NULL) == 0)
		return open_reader(view, since, err);
	return open_run(view, since, err);
}

int exec_view_open(struct server *server, const char *id, int64_t since, struct exec_view *view,
		   struct error *err)
{
	*view = (struct exec_view){ .server = server };
	id_copy(view->id, id);
	if (open_view(view, since, err) == 0)
		return 0;
	exec_view_close(view);
	return -1;
}

int exec_view_new(struct server *server, const char *id, struct live_exec *live,
		  struct exec_view *view, struct error *err)
{
	*view = (struct exec_view){ .server = server, .live = live };
	id_copy(view->id, id);
	if (open_reader(view, 0, err) == 0)
		return 0;
	/* It is nobody's now, but it goes on. */
	if (live)
		live_exec_detach(live, NULL);
	exec_view_close(view);
	return -1;
}

int exec_view_event(const struct exec_view *view)
{
	return view->reader ? runlog_reader_event(view->reader) : -1;
}

int exec_view_read(struct exec_view *view, size_t max, struct runlog_chunk *chunk,
		   struct error *err)
{
	if (!view->reader)
		return 0;

	int r = runlog_read(view->reader, max, chunk, err);

	/* Only a log that may go on needs its event: while there is more, looking is enough. */
	if (r == 0 && runlog_is_live(view->reader)) {
		latch_clear(runlog_reader_event(view->reader));
		r = runlog_read(view->reader, max, chunk, err);
	}
	return r;
}

int exec_view_stretch(struct exec_view *view, int64_t max, struct runlog_stretch *stretch,
		      struct error *err)
{
	if (!view->reader)
		return 0;

	int r = runlog_read_stretch(view->reader, max, stretch, err);

	if (r == 0 && runlog_is_live(view->reader)) {
		latch_clear(runlog_reader_event(view->reader));
		r = runlog_read_stretch(view->reader, max, stretch, err);
	}
	return r;
}

bool exec_view_is_live(struct exec_view *view)
{
	return view->reader && runlog_is_live(view->reader);
}

static int outcome_of_run(struct exec_view *view, struct exec_outcome *outcome, struct error *err)
{
	_cleanup_run_ struct run run = { 0 };

	if (run_get(view->server->runs, view->id, &run, err) < 0)
		return -1;
	if (!run_status_is_final(run.status))
		return 0;
	*outcome = (struct exec_outcome){
		.result = { .exit_code = (int)run.exit_code,
			    .reason = EXEC_LEASE_LOST,
			    .duration_ms = json_int(run.timings, "executedMs", 0) },
		.output_bytes = run.log_bytes,
		.output_lost = runlog_missing(view->server->run_logs, view->id, run.log_bytes),
	};
	if (run.signal)
		snprintf(outcome->result.signal, sizeof(outcome->result.signal), "%s", run.signal);
	if (run.reason)
		exec_reason_parse(run.reason, &outcome->result.reason);
	if (run.error)
		snprintf(outcome->error, sizeof(outcome->error), "%.200s", run.error);
	return 1;
}

static int wait_for_run(struct exec_view *view, struct exec_outcome *outcome, struct error *err)
{
	struct clock *clock = &view->server->clock;
	int64_t deadline = clock_mono(clock) + RUN_END_MS;
	int fd = run_watch(view->server->runs, view->id, err), r = 0;

	if (fd < 0)
		return -1;
	for (;;) {
		struct pollfd pollfd = { .fd = fd, .events = POLLIN };

		latch_clear(fd);
		r = outcome_of_run(view, outcome, err);
		if (r != 0)
			break;
		if (clock_mono(clock) >= deadline) {
			r = error_set(err, ERR_TIMEOUT, "run %s did not end", view->id);
			break;
		}
		poll(&pollfd, 1, clock_poll_timeout(clock, deadline));
	}
	run_unwatch(view->server->runs, view->id, fd);
	return r < 0 ? -1 : 0;
}

int exec_view_outcome(struct exec_view *view, struct exec_outcome *outcome, struct error *err)
{
	if (view->is_run)
		return wait_for_run(view, outcome, err);
	if (!view->live)
		return execs_recall(view->server->execs, view->id, outcome, err);
	live_exec_outcome(view->live, outcome);
	return 0;
}

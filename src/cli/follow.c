#include "cli/follow.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/progress.h"

#define LINE_MAX_BYTES (4u << 20)
#define BACK_SECONDS 60
/* Whoever supervises the server restarts it sooner than this, and with its own flags. */
#define SUPERVISED_SECONDS 3

/* Signal handlers can reach nothing but globals; this file is the command line's only one. */
static volatile sig_atomic_t caught, caught_term;
static int caught_fd = -1;

static void catch_signal(int number)
{
	caught++;
	if (number == SIGTERM)
		caught_term = 1;
	latch_set(caught_fd);
}

int signals_catch(void)
{
	struct sigaction action = { .sa_handler = catch_signal };

	if (caught_fd >= 0)
		return caught_fd;
	caught = caught_term = 0;
	caught_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (caught_fd < 0)
		return -1;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	return caught_fd;
}

void signals_restore(void)
{
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	if (caught_fd >= 0)
		close(caught_fd);
	caught_fd = -1;
}

int signals_count(void)
{
	return caught;
}

bool signals_had_term(void)
{
	return caught_term;
}

bool write_output(const json_t *event)
{
	const char *type = json_str(event, "type"), *data = json_str(event, "data");
	_cleanup_buf_ struct buf raw = { 0 };
	int fd = str_equal(type, "stderr") ? STDERR_FILENO : STDOUT_FILENO;

	if (!data)
		return true;
	if (str_equal(json_str(event, "encoding"), "base64")) {
		if (!base64_decode(&raw, data, strlen(data)))
			return false;
		return fd_write_all(fd, raw.data, raw.len, NULL) == 0;
	}
	return fd_write_all(fd, data, strlen(data), NULL) == 0;
}

/* ---- the stream of lines ---- */

struct lines {
	struct follow *f;
	struct buf pending;
	bool ended; /* the log's own end record came */
	bool reader_gone;
	int asked;        /* signals that were acted on */
	bool left_behind; /* the run goes on without us */
	struct progress progress;
};

static int64_t payload_bytes(const json_t *event)
{
	const char *data = json_str(event, "data");
	size_t len = data ? strlen(data) : 0;

	if (!str_equal(json_str(event, "encoding"), "base64"))
		return (int64_t)len;
	while (len > 0 && data[len - 1] == '=')
		len--;
	return (int64_t)(len * 3 / 4);
}

static void take_line(struct lines *l, const char *line, size_t len)
{
	_cleanup_json_ json_t *event = json_parse(line, len, NULL);
	const char *type = json_str(event, "type");

	if (!type || streq(type, "ping"))
		return;
	if (streq(type, "end")) {
		l->ended = true;
		json_decref(l->f->run);
		l->f->run = json_incref(json_object_at(event, "run"));
		return;
	}
	if (l->f->is_exec && streq(type, "exit")) {
		l->ended = true;
		json_decref(l->f->run);
		l->f->run = json_incref(event);
		return;
	}
	if (streq(type, "progress")) {
		progress_show(&l->progress, event);
		return;
	}
	progress_clear(&l->progress);
	if (json_int(event, "lost", 0) > 0)
		fprintf(stderr,
			"berth: %lld bytes of output are lost: the machine went down before they "
			"were written to disk\n",
			(long long)json_int(event, "lost", 0));
	if (l->f->events) {
		l->reader_gone = fd_write_all(STDOUT_FILENO, line, len, NULL) < 0 ||
				 fd_write_all(STDOUT_FILENO, "\n", 1, NULL) < 0;
	} else {
		l->reader_gone = !write_output(event);
	}
	l->f->since = json_int(event, "offset", l->f->since) + payload_bytes(event);
}

static bool take_data(void *arg, const char *data, size_t len)
{
	struct lines *l = arg;
	size_t used = 0;

	if (l->pending.len + len > LINE_MAX_BYTES)
		return false;
	buf_append(&l->pending, data, len);
	for (;;) {
		char *newline = memchr(l->pending.data + used, '\n', l->pending.len - used);
		size_t end;

		if (!newline)
			break;
		end = (size_t)(newline - l->pending.data);
		take_line(l, l->pending.data + used, end - used);
		used = end + 1;
		if (l->reader_gone)
			return false;
	}
	buf_consume(&l->pending, used);
	return true;
}

static void send_signal(struct lines *l, struct api *side, const char *name, const char *target,
			struct error *err)
{
	_cleanup_json_ json_t *body = json_object();

	json_put_str(body, "signal", name);
	json_put_str(body, "target", target);
	api_callf(side, "POST", body, NULL, err, "/api/execs/%s/signal", l->f->run_id);
}

static void end_it(struct lines *l, struct api *side)
{
	_cleanup_json_ json_t *body = json_object();
	const struct follow *f = l->f;

	if (!f->cli->quiet)
		fprintf(stderr, "berth: cancelling %s %s (Ctrl-C again leaves it running)\n",
			f->is_exec ? "exec" : "run", f->run_id);
	if (f->is_exec)
		send_signal(l, side, "KILL", "tree", NULL);
	else
		api_callf(side, "POST", body, NULL, NULL, "/api/runs/%s/cancel", f->run_id);
	/* A person who asks twice has waited long enough; whoever ends us lets it say goodbye. */
	if (!f->is_exec && !signals_had_term())
		api_callf(side, "POST", body, NULL, NULL, "/api/runs/%s/cancel", f->run_id);
}

/* What has not started cannot be interrupted: it is cancelled at once. */
static void interrupt(struct lines *l, struct api *side)
{
	_cleanup_error_ struct error err = { 0 };

	send_signal(l, side, "INT", "group", &err);
	if (err.code != ERR_NONE) {
		l->asked = 2;
		end_it(l, side);
	} else if (!l->f->cli->quiet) {
		fprintf(stderr, "berth: interrupted %s %s (Ctrl-C again kills it)\n",
			l->f->is_exec ? "exec" : "run", l->f->run_id);
	}
}

static bool take_signal(void *arg)
{
	struct lines *l = arg;
	_cleanup_api_ struct api *side = NULL;
	_cleanup_error_ struct error none = { 0 };

	latch_clear(caught_fd);
	l->f->interrupted = true;
	l->asked = signals_had_term() ? MAX_OF(l->asked + 1, 2) : l->asked + 1;
	/* The stream's own connection is busy. */
	l->left_behind = l->asked > 2 || api_connect(l->f->cli, false, &side, &none) < 0;
	if (l->left_behind)
		return false;
	if (l->asked == 1)
		interrupt(l, side);
	else
		end_it(l, side);
	return true;
}

#define MOMENT_MAX_MS 100

/* Longer every time: what is about to happen mostly does at once. */
static void wait_a_moment(int wake_fd, int *ms)
{
	struct pollfd p = { .fd = wake_fd, .events = POLLIN };

	poll(&p, 1, *ms);
	*ms = MIN_OF(*ms * 2, MOMENT_MAX_MS);
}

/* One connection's worth. 0: the log has ended (or was not to be followed), 1: try again, -1. */
static int follow_once(struct lines *l, int wake_fd, struct error *err)
{
	_cleanup_free_ char *path =
		xasprintf(l->f->is_exec ? "/api/execs/%s/output?since=%lld&follow=%d%s"
					: "/api/runs/%s/log?since=%lld&follow=%d%s",
			  l->f->run_id, (long long)l->f->since, l->f->follow ? 1 : 0,
			  l->progress.is_on ? "&progress=1" : "");
	const struct api_stream stream = { .method = "GET",
					   .path = path,
					   .accept = "application/x-ndjson",
					   .on_data = take_data,
					   .wake_fd = wake_fd,
					   .on_wake = take_signal,
					   .arg = l };

	buf_reset(&l->pending);
	if (api_stream(l->f->api, &stream, err) < 0)
		return err->code == ERR_UNAVAILABLE ||
				       (err->code == ERR_NOT_FOUND && !l->f->is_exec)
			       ? 1
			       : -1;
	return l->ended || l->reader_gone || l->left_behind || !l->f->follow ? 0 : 1;
}

static int fetch_end(struct api *api, const char *run_id, json_t **run, struct error *err)
{
	json_decref(*run);
	*run = NULL;
	return api_callf(api, "GET", NULL, run, err, "/api/runs/%s", run_id);
}

int await_end(struct cli *cli, struct api *api, const char *run_id, json_t **run, struct error *err)
{
	struct progress progress;
	int moment = 1;

	progress_begin(&progress, cli->quiet || cli->json);
	for (;;) {
		_cleanup_json_ json_t *now = NULL;

		if (api_callf(api, "GET", NULL, &now, err, "/api/runs/%s", run_id) < 0)
			return -1;
		if (json_str(now, "finishedAt"))
			break;
		progress_show(&progress,
			      json_object_at(json_object_at(now, "workspace"), "progress"));
		wait_a_moment(-1, &moment);
	}
	progress_clear(&progress);
	return fetch_end(api, run_id, run, err);
}

/* 0 connected, 1 interrupted, -1. */
static int reconnect(struct follow *f, int wake_fd, struct error *err)
{
	int signals = signals_count(), moment = MOMENT_MAX_MS;

	for (int tries = 0; tries < BACK_SECONDS * 10; tries++) {
		struct api *fresh = NULL;
		bool may_start = f->may_start && tries > SUPERVISED_SECONDS * 10;

		error_clear(err);
		if (api_connect(f->cli, may_start, &fresh, err) == 0) {
			api_close(f->api);
			f->api = fresh;
			return 0;
		}
		/* There is nobody to cancel it with. */
		if (signals_count() > signals) {
			f->interrupted = true;
			return 1;
		}
		wait_a_moment(wake_fd, &moment);
	}
	return -1;
}

int follow_run(struct follow *f, struct error *err)
{
	struct lines l = { .f = f };
	int wake_fd = f->pass_signals ? signals_catch() : -1, moment = 1, more;

	progress_begin(&l.progress, !f->progress || f->cli->quiet);

	while ((more = follow_once(&l, wake_fd, err)) > 0) {
		if (err->code == ERR_NOT_FOUND) {
			/* Queued: there is no log yet. Or there never was such a run. */
			error_clear(err);
			if (api_callf(f->api, "GET", NULL, NULL, err, "/api/runs/%s", f->run_id) <
			    0) {
				more = -1;
				break;
			}
			if (!f->follow) {
				more = 0;
				break;
			}
			wait_a_moment(wake_fd, &moment);
			continue;
		}
		more = reconnect(f, wake_fd, err);
		l.left_behind = more == 1;
		if (more != 0)
			break;
	}
	/* The stream's end brings the run; that of an older server does not. */
	if (more == 0 && f->follow && !f->is_exec && !l.left_behind && !f->run)
		more = fetch_end(f->api, f->run_id, &f->run, err);
	progress_clear(&l.progress);
	if (f->pass_signals)
		signals_restore();
	buf_free(&l.pending);
	return more < 0 ? -1 : 0;
}

/* ---- the end, in a shell's words ---- */

static int signal_number(const char *name)
{
	for (int i = 1; i < NSIG; i++) {
		const char *abbreviation = sigabbrev_np(i);

		if (abbreviation && str_starts(name, "SIG") && streq(name + 3, abbreviation))
			return i;
	}
	return 0;
}

int follow_finish(struct follow *f)
{
	_cleanup_json_ json_t *end = steal(f->run);
	const char *error = json_str(end, "error"), *code = json_str(end, "errorCode");
	bool has_code = json_is_integer(json_object_get(end, "exitCode"));

	if (!end) {
		fprintf(stderr, "berth: left %s %s running; `berth attach %s` follows it\n",
			f->is_exec ? "exec" : "run", f->run_id, f->run_id);
		return EXIT_INTERRUPTED;
	}
	if (f->cli->json) {
		_cleanup_free_ char *text = json_text(end);

		puts(text);
	} else if (error && (!has_code || (code && str_starts(code, "command_not")))) {
		/* A command that said why it failed needs no second voice. */
		fputs("berth: ", stderr);
		print_cell(stderr, error);
		fputc('\n', stderr);
	} else if (f->is_exec && str_equal(json_str(end, "reason"), "lease_lost")) {
		fprintf(stderr, "berth: the lease ended while the command was running\n");
	} else if (f->is_exec && str_equal(json_str(end, "reason"), "oom")) {
		fputs("berth: the command took more memory than its place has and was killed\n",
		      stderr);
	}
	if (!f->is_exec && !f->cli->quiet)
		print_timeline(end);
	return exit_code_of(end);
}

int exit_code_of(const json_t *run)
{
	const char *status = json_str(run, "status"), *signal_name = json_str(run, "signal");

	if (str_equal(status, "timed_out") || str_equal(json_str(run, "reason"), "timeout"))
		return EXIT_TIMED_OUT;
	if (str_equal(status, "cancelled") || str_equal(json_str(run, "reason"), "cancelled"))
		return EXIT_INTERRUPTED;
	if (json_is_integer(json_object_get(run, "exitCode")))
		return (int)(json_int(run, "exitCode", 0) & 255);
	if (signal_name && signal_number(signal_name))
		return 128 + signal_number(signal_name);
	return str_equal(status, "succeeded") ? 0 : EXIT_BERTH;
}

void print_timeline(const json_t *run)
{
	static const char *const STEPS[][2] = { { "acquiredMs", "acquired" },
						{ "stagedMs", "staged" },
						{ "executedMs", "ran" },
						{ "collectedMs", "collected" },
						{ "releasedMs", "released" } };
	const json_t *t = json_object_at(run, "timings");
	char took[32];

	fputs("berth: ", stderr);
	for (size_t i = 0; i < ARRAY_SIZE(STEPS); i++) {
		if (!json_object_get(t, STEPS[i][0]))
			continue;
		format_duration(json_int(t, STEPS[i][0], 0), took, sizeof(took));
		fprintf(stderr, "%s %s · ", STEPS[i][1], took);
	}
	fprintf(stderr, "run %s %s\n", json_str(run, "id"), json_str(run, "status"));
}

#define RETAINED_TRIES 100

/* The place takes commands again when the run's own holding has ended, which is a moment later. */
static void await_retained(struct api *api, const char *lease_id)
{
	int moment = 1;

	for (int tries = 0; tries < RETAINED_TRIES; tries++) {
		_cleanup_json_ json_t *lease = NULL;

		if (api_callf(api, "GET", NULL, &lease, NULL, "/api/environment-leases/%s",
			      lease_id) < 0 ||
		    str_equal(json_str(lease, "status"), "retained"))
			return;
		wait_a_moment(-1, &moment);
	}
}

void print_retained(struct cli *cli, struct api *api, const json_t *run)
{
	const json_t *kept = json_object_at(json_object_at(run, "result"), "retained");
	const char *lease = json_str(kept, "leaseId");

	if (!lease)
		return;
	await_retained(api, lease);
	if (!cli->quiet)
		fprintf(stderr,
			"berth: the place is kept until %s: `berth exec %s -- ls` looks into it, "
			"`berth lease destroy %s` deletes it\n",
			json_str(kept, "until"), lease, lease);
}

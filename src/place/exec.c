#include "place/exec.h"

#include <poll.h>
#include <string.h>
#include "base/log.h"
#include "base/metric.h"
#include "base/text.h"
#include "link/fault_points.h"
#include "place/places.h"
#include "place/shell/shell_internal.h"

#define START_WAIT_MS 30000
#define ATTACH_WAIT_MS 20000
/* For a relay that ends its commands because no server came. */
#define ABSENCE_SLACK_MS 10000
#define RETRY_MS 20
/* From a command's deadline, or from asking for its end, until its relay counts as stuck. */
#define OVERDUE_MS (WIRE_LEAVE_MS + 10000)
#define OVERDUE_WORDS_MS 60000 /* what it printed until then may take so much longer to arrive */
#define OVERDUE_RETRY_MS 5000

struct exec *exec_find_locked(struct places *places, const char *exec_id)
{
	struct exec *e = places->execs[places_bucket(exec_id)];

	while (e && !streq(e->id, exec_id))
		e = e->next;
	return e;
}

static void set_stream(struct exec *exec, struct stream *stream)
{
	struct stream *old;

	pthread_mutex_lock(&exec->lock);
	old = exec->stream;
	exec->stream = stream;
	pthread_mutex_unlock(&exec->lock);
	stream_close(old);
}

void exec_unref(struct exec *exec)
{
	if (atomic_fetch_sub(&exec->refs, 1) > 1)
		return;
	set_stream(exec, NULL);
	items_free(&exec->backlog);
	if (exec->input.bytes.data)
		wipe(exec->input.bytes.data, exec->input.bytes.len);
	buf_free(&exec->input.bytes);
	shell_exec_free(exec->shell);
	mask_flow_free(exec->flow);
	if (exec->place)
		place_unref(exec->place);
	pthread_mutex_destroy(&exec->lock);
	free(exec);
}

pid_t exec_pid(const struct exec *exec)
{
	return exec->pid;
}

bool exec_is_noted(const struct exec *exec)
{
	return exec->noted;
}

void exec_expect_end(struct exec *exec, int64_t in_ms)
{
	int64_t due = boottime_ms() + MIN_OF(in_ms, INT64_MAX / 4) + OVERDUE_MS;
	int64_t was = atomic_load(&exec->overdue);

	if (was != 0 && was <= due)
		return;
	atomic_store(&exec->overdue_last, due + OVERDUE_WORDS_MS);
	atomic_store(&exec->overdue, due);
}

/* Enters the table; the place must be open for its generation. */
static struct exec *admit(struct places *places, const struct exec_spec *spec, struct error *err)
{
	struct exec *exec = xcalloc(1, sizeof(*exec));
	struct exec **bucket;

	atomic_init(&exec->refs, 1);
	pthread_mutex_init(&exec->lock, NULL);
	exec->places = places;
	exec->terminal = spec->terminal != NULL;
	exec->keep_exit = spec->keep_exit;
	exec->log = spec->log;
	exec->kill_reason = NOT_STOPPED;
	exec->started_mono = exec->acked_ms = boottime_ms();
	exec->taken = (uint64_t)runlog_end(spec->log);
	if (spec->mask)
		exec->flow = mask_flow_new(spec->mask, exec->terminal, exec->taken, exec->taken);
	if (spec->timeout_ms > 0)
		exec_expect_end(exec, spec->timeout_ms);
	if (!exec_wire_id(spec->exec_id, exec->wire_id)) {
		error_set(err, ERR_VALIDATION, "an exec id is a uuid");
		exec_unref(exec);
		return NULL;
	}
	id_copy(exec->id, spec->exec_id);
	if (spec->stdin_data && spec->stdin_len > 0)
		buf_append(&exec->input.bytes, spec->stdin_data, spec->stdin_len);
	exec->input.end = spec->stdin_data && !spec->stdin_stream;
	pthread_mutex_lock(&places->lock);
	bucket = &places->execs[places_bucket(exec->id)];
	if (exec_find_locked(places, exec->id))
		error_set(err, ERR_CONFLICT, "exec %s is going already", exec->id);
	else
		exec->place = place_admit_locked(places, spec->place_id, spec->generation, err);
	if (exec->place) {
		exec->next = *bucket;
		*bucket = exec;
	}
	pthread_mutex_unlock(&places->lock);
	if (!exec->place) {
		exec_unref(exec);
		return NULL;
	}
	return exec;
}

static void delist(struct exec *exec)
{
	struct places *places = exec->places;

	pthread_mutex_lock(&exec->lock);
	exec->input.closed = true;
	pthread_mutex_unlock(&exec->lock);
	pthread_mutex_lock(&places->lock);
	for (struct exec **p = &places->execs[places_bucket(exec->id)]; *p; p = &(*p)->next) {
		if (*p == exec) {
			*p = exec->next;
			break;
		}
	}
	if (exec->waited)
		places->waiting--;
	pthread_cond_broadcast(&places->changed);
	pthread_mutex_unlock(&places->lock);
	exec_unref(exec);
}

/* Attaching */

static int take_started(struct exec *exec, const struct wire_exec_started *m, struct error *err)
{
	struct link *link = stream_link(exec->stream);
	int rc;

	/* A new exec's output begins with it, whatever its log held before. */
	if (!m->existing && exec->taken > 0) {
		exec->taken = 0;
		if (exec->flow)
			mask_flow_restart(exec->flow, 0, 0);
	}
	exec->pid = (pid_t)m->pid;
	exec->noted = m->noted;
	pthread_mutex_lock(&exec->lock);
	rc = exec_input_resume(exec, m);
	if (rc == 0)
		exec_input_push(exec);
	pthread_mutex_unlock(&exec->lock);
	if (rc < 0)
		return link_violated(link, err, "standard input at an offset that never was");
	exec_send_kill(exec);
	return 0;
}

/* The answer to EXEC_START or EXEC_ATTACH. What came with it is kept. */
static int await_started(struct exec *exec, int64_t deadline, struct error *err)
{
	_cleanup_wire_message_ struct wire_message m = { 0 };
	struct link *link = stream_link(exec->stream);
	struct item *first = NULL;
	int got;

	while ((got = stream_take(exec->stream, deadline, &first)) == 0)
		if (boottime_ms() >= deadline)
			return error_set(err, ERR_TIMEOUT, "the relay does not answer");
	if (got < 0)
		return error_set(err, ERR_UNAVAILABLE, "the connection to the relay broke");
	exec->backlog = first->next;
	first->next = NULL;

	int rc = item_decode(link, first, &m, err);

	if (rc == 0 && m.type == WIRE_ERROR)
		rc = wire_error_take(&m.error, err);
	else if (rc == 0 && m.type != WIRE_EXEC_STARTED)
		rc = link_violated(link, err, "%s instead of exec_started", wire_type_name(m.type));
	else if (rc == 0)
		rc = take_started(exec, &m.exec_started, err);
	item_free(first);
	return rc;
}

static int open_stream(struct exec *exec, struct link *link, enum wire_type type, const void *msg,
		       struct error *err)
{
	struct stream *stream = link_open(link, type, msg, EXEC_WINDOW, err);

	if (!stream)
		return -1;
	items_free(&exec->backlog);
	exec->owed = 0;
	set_stream(exec, stream);
	return 0;
}

/* Both may be repeated over a new link: the relay starts an id only once. */
struct opening {
	enum wire_type type;
	union {
		struct wire_exec_start start;
		struct wire_exec_attach attach;
	};
};

static int say_opening(struct exec *exec, struct link *link, const struct opening *o,
		       struct error *err)
{
	if (o->type == WIRE_EXEC_START)
		return SAY_GUARDED("channel.exec_start",
				   open_stream(exec, link, o->type, &o->start, err), err);
	return SAY_GUARDED("channel.attach", open_stream(exec, link, o->type, &o->attach, err),
			   err);
}

static int open_exec(struct exec *exec, const struct opening *o, int64_t deadline,
		     struct error *err)
{
	for (;;) {
		_cleanup_link_ struct link *link = NULL;

		if (place_link(exec->place, o->type == WIRE_EXEC_START, deadline, &link, err) < 0)
			return -1;
		if (say_opening(exec, link, o, err) == 0 && await_started(exec, deadline, err) == 0)
			return 0;
		set_stream(exec, NULL);
		items_free(&exec->backlog);
		if (link_is_up(link) || boottime_ms() >= deadline)
			return -1;
	}
}

static int attach(struct exec *exec, int64_t wait_ms, struct error *err)
{
	struct opening o = { .type = WIRE_EXEC_ATTACH };

	o.attach = (struct wire_exec_attach){ .from_offset = exec->taken, .credit = EXEC_WINDOW };
	memcpy(o.attach.exec_id, exec->wire_id, WIRE_ID_SIZE);
	return open_exec(exec, &o, boottime_ms() + wait_ms, err);
}

static void describe_start(struct wire_exec_start *m, const struct exec *exec,
			   const struct exec_spec *spec, char *const *env)
{
	const struct exec_terminal *t = spec->terminal;

	*m = (struct wire_exec_start){
		.argv = { (const char *const *)spec->argv, (uint32_t)strv_len(spec->argv) },
		.env = { (const char *const *)env, (uint32_t)strv_len(env) },
		.cwd = spec->cwd,
		.user = spec->user,
		.stdin_mode = spec->stdin_data || spec->stdin_stream ? WIRE_STDIN_STREAM
								     : WIRE_STDIN_NONE,
		.pty = t != NULL,
		.rows = t ? t->rows : 0,
		.cols = t ? t->cols : 0,
		.term = t ? t->term : NULL,
		.deadline_ms = spec->timeout_ms > 0 ? (uint64_t)spec->timeout_ms : 0,
		.credit = EXEC_WINDOW,
		.from_offset = exec->taken,
		.note = { (const uint8_t *)spec->note,
			  spec->note ? (uint32_t)strlen(spec->note) : 0 },
	};
	memcpy(m->exec_id, exec->wire_id, WIRE_ID_SIZE);
}

static void env_freep(char ***env)
{
	for (char **e = *env; e && *e; e++)
		wipe(*e, strlen(*e));
	strv_free(*env);
}

METRIC_HISTOGRAM(START_SECONDS, "berth_exec_start_seconds", "",
		 "From asking for a command to its start, the making of its relay included");
METRIC_HISTOGRAM(EXEC_SECONDS, "berth_exec_seconds", "", "How long commands ran");

/* The spec with what holds for every command of its place. */
static int complete(struct places *places, const struct exec_spec **spec, struct exec_spec *whole,
		    char ***env, const char **hint, struct error *err)
{
	_cleanup_place_ struct open_place *place =
		place_admit(places, (*spec)->place_id, (*spec)->generation, err);
	int64_t wall;

	if (!place)
		return -1;
	pthread_mutex_lock(&place->lock);
	*env = exec_environment(places, &place->commands, *spec, err);
	wall = place->commands.wall_ms;
	*hint = place->commands.missing_hint;
	pthread_mutex_unlock(&place->lock);
	*whole = **spec;
	if (wall > 0 && (whole->timeout_ms == 0 || whole->timeout_ms > wall))
		whole->timeout_ms = wall;
	*spec = whole;
	return *env ? 0 : -1;
}

static void error_add(struct error *err, const char *hint)
{
	_cleanup_free_ char *said = xstrdup(err->message);

	error_set(err, err->code, "%.199s. %s", said, hint);
}

int exec_start(struct places *places, const struct exec_spec *spec, struct exec **out,
	       struct error *err)
{
	_cleanup_(env_freep) char **env = NULL;
	struct opening o = { .type = WIRE_EXEC_START };
	struct error why = { 0 };
	struct exec_spec whole;
	const char *hint;
	struct exec *exec;

	int64_t start = metric_now_us();

	*out = NULL;
	if (!spec->argv || !spec->argv[0] || !spec->argv[0][0])
		return error_set(err, ERR_VALIDATION, "there is no command");
	if (spec->cwd && spec->cwd[0] != '/')
		return error_set(err, ERR_VALIDATION, "a working directory is absolute");
	if (complete(places, &spec, &whole, &env, &hint, err) < 0)
		return -1;
	exec = admit(places, spec, err);
	if (!exec)
		return -1;
	if (place_is_shell(exec->place)) {
		if (shell_exec_prepare(exec, spec, err) < 0) {
			delist(exec);
			return -1;
		}
		*out = exec;
		return 0;
	}
	describe_start(&o.start, exec, spec, env);
	if (open_exec(exec, &o, boottime_ms() + START_WAIT_MS, &why) < 0) {
		/* It may have started all the same; then nobody is there to want it. */
		pthread_mutex_lock(&exec->lock);
		exec->kill_reason = EXEC_CANCELLED;
		exec->kill_at_once = true;
		pthread_mutex_unlock(&exec->lock);
		exec_send_kill(exec);
		delist(exec);
		error_move(err, &why);
		if (hint && err && err->code == ERR_COMMAND_NOT_FOUND)
			error_add(err, hint);
		return -1;
	}
	metric_observe_since(&START_SECONDS, start);
	*out = exec;
	return 0;
}

int exec_expect(struct places *places, const struct exec_spec *spec, struct exec **out,
		struct error *err)
{
	*out = NULL;
	if (FAULT_HERE("channel.expect", err) < 0)
		return -1;

	struct exec *exec = admit(places, spec, err);

	if (!exec)
		return -1;
	if (place_is_shell(exec->place)) {
		delist(exec);
		return shell_exec_adopt(err);
	}
	/* A value may begin in what the log has: the relay still has that much of it. */
	if (exec->flow) {
		exec->known = exec->taken;
		exec->taken -= MIN_OF(exec->taken, (uint64_t)MASK_LOOKBACK);
		mask_flow_restart(exec->flow, exec->taken, exec->known);
	}
	*out = exec;
	return 0;
}

void exec_abandon(struct exec *exec)
{
	delist(exec);
}

/* No server has spoken to its relay for so long that it has ended everything by itself. */
static bool absence_is_over(struct open_place *place)
{
	pthread_mutex_lock(&place->lock);

	int64_t last = place->link && link_is_up(place->link) ? boottime_ms() : place->seen_ms;

	pthread_mutex_unlock(&place->lock);
	return boottime_ms() - last > place->absence_ms + ABSENCE_SLACK_MS;
}

static bool is_superseded(struct open_place *place)
{
	pthread_mutex_lock(&place->lock);

	bool superseded = place->superseded;

	pthread_mutex_unlock(&place->lock);
	return superseded;
}

static bool is_overdue(struct exec *exec)
{
	int64_t overdue = atomic_load(&exec->overdue);

	return overdue != 0 && boottime_ms() >= overdue;
}

int exec_attach(struct exec *exec, int64_t wait_ms, struct error *err)
{
	if (attach(exec, wait_ms, err) == 0)
		return 0;
	if (exec_is_detached(exec) || is_superseded(exec->place))
		return error_recode(err, ERR_UNAVAILABLE);
	if (err->code == ERR_LEASE_LOST)
		return exec_from_dead_relay(exec, err) > 0 ? 0 : -1;
	/* The relay's own word. */
	if (err->code == ERR_NOT_FOUND)
		return -1;
	/* exec_wait has it ended by the dialer. */
	if (is_overdue(exec))
		return 0;
	if (absence_is_over(exec->place))
		return error_set(err, ERR_LEASE_LOST,
				 "the place's relay could not be reached for all of its absence");
	return err->code == ERR_UNAVAILABLE ? error_recode(err, ERR_TIMEOUT) : -1;
}

/* Its relay is gone, or the place with it. */
static void lose(struct exec *exec)
{
	int stopped = place_stopped(exec->place);
	enum exec_reason why = exec->timed_out ? EXEC_TIMEOUT : EXEC_LEASE_LOST;

	pthread_mutex_lock(&exec->lock);
	if (exec->timed_out && exec->kill_reason != NOT_STOPPED)
		why = (enum exec_reason)exec->kill_reason;
	pthread_mutex_unlock(&exec->lock);
	exec->result = (struct exec_result){
		.exit_code = -1,
		.reason = stopped != NOT_STOPPED ? (enum exec_reason)stopped : why,
		.duration_ms = boottime_ms() - exec->started_mono,
		.stdout_bytes =
			(int64_t)(exec->channel_end[WIRE_STDOUT] + exec->channel_end[WIRE_PTY]),
		.stderr_bytes = (int64_t)exec->channel_end[WIRE_STDERR],
	};
}

/* The link broke. 0: attached again, or to be tried again; 1: it is lost; -1: not ours any more. */
static int attach_again(struct exec *exec, struct error *err)
{
	_cleanup_error_ struct error why = { 0 };

	if (exec->salvaged)
		return 1;
	if (attach(exec, ATTACH_WAIT_MS, &why) == 0)
		return 0;
	if (exec_is_detached(exec) || is_superseded(exec->place)) {
		error_move(err, &why);
		return error_recode(err, ERR_UNAVAILABLE);
	}
	if (why.code == ERR_LEASE_LOST || why.code == ERR_NOT_FOUND ||
	    place_stopped(exec->place) != NOT_STOPPED) {
		int found = why.code == ERR_LEASE_LOST ? exec_from_dead_relay(exec, &why) : 0;

		if (found == 0)
			lose(exec);
		if (found >= 0)
			return 1;
		if (exec_is_detached(exec)) {
			error_move(err, &why);
			return -1;
		}
	}
	log_debug("exec %s: %s", exec->id, why.message);
	poll(NULL, 0, RETRY_MS);
	return 0;
}

/*
 * Whatever keeps its relay from ending it, a payload that stopped it above all, does not keep the
 * dialer from it: it ends everything in the place. What the relay held besides is lost with it.
 */
static void end_overdue(struct exec *exec)
{
	_cleanup_error_ struct error err = { 0 };
	int64_t until = boottime_ms() + OVERDUE_RETRY_MS;
	struct dialer *dialer;

	log_warn("exec %s: its relay has not ended it in time; place %s is ended", exec->id,
		 exec->place->id);
	exec->timed_out = true;
	atomic_store(&exec->overdue, until);
	if (place_dialer(exec->place, until, &dialer, &err) < 0 ||
	    dialer->end(dialer, exec->place->id, END_PROCESSES, until, &err) < 0)
		log_warn("exec %s: %s", exec->id, err.message);
}

/* The earliest of them, and of what the mask holds back; below 0: none. */
static int64_t wait_until(struct exec *exec, int64_t deadline)
{
	int64_t overdue = atomic_load(&exec->overdue);
	int64_t due = exec->flow ? mask_flow_due(exec->flow) : 0;

	if (due != 0 && (deadline < 0 || due < deadline))
		deadline = due;
	if (overdue == 0 || (deadline >= 0 && deadline < overdue))
		return deadline;
	return overdue;
}

/* It talks still: words that were on their way are heard, but not for ever. */
static void put_off(struct exec *exec)
{
	int64_t overdue = atomic_load(&exec->overdue);
	int64_t later = MIN_OF(boottime_ms() + OVERDUE_RETRY_MS, atomic_load(&exec->overdue_last));

	if (overdue != 0 && overdue < later)
		atomic_store(&exec->overdue, later);
}

/* How long to wait for the end of an exec. */
struct patience {
	int64_t deadline; /* below 0: none */
	int64_t words_ms; /* with a deadline: it comes so soon after the first words */
};
#define PATIENCE_WITHOUT_END ((struct patience){ .deadline = -1 })

/* Until it has ended; 1: patience did. */
static int take_all(struct exec *exec, struct patience patience, struct error *err)
{
	int64_t deadline = patience.deadline;

	while (deadline < 0 || boottime_ms() < deadline) {
		struct item *items = steal(exec->backlog);
		_cleanup_error_ struct error why = { 0 };
		int rc = 0;

		if (exec_is_detached(exec)) {
			items_free(&items);
			return error_set(err, ERR_UNAVAILABLE, "the server is going");
		}
		if (!items && is_overdue(exec))
			end_overdue(exec);
		if (!exec->stream) {
			rc = attach_again(exec, err);
			if (rc != 0)
				return rc < 0 ? -1 : 0;
			continue;
		}
		if (!items && stream_take(exec->stream, wait_until(exec, deadline), &items) < 0) {
			set_stream(exec, NULL);
			continue;
		}
		if (!items && exec->flow && mask_flow_due(exec->flow) != 0 &&
		    boottime_ms() >= mask_flow_due(exec->flow) && exec_store_held(exec, err) < 0)
			return -1;
		if (items)
			put_off(exec);
		if (items && deadline >= 0)
			deadline = MIN_OF(deadline, boottime_ms() + patience.words_ms);
		rc = exec_take(exec, items, &why);
		if (rc > 0)
			return 0;
		if (rc < 0 && !exec_is_detached(exec))
			set_stream(exec, NULL);
		/* Credit for standard input wakes as well. */
		pthread_mutex_lock(&exec->lock);
		exec_input_push(exec);
		pthread_mutex_unlock(&exec->lock);
	}
	return 1;
}

static void forget(struct exec *exec)
{
	struct wire_exec_forget m = { 0 };
	_cleanup_error_ struct error err = { 0 };

	/* Without a stream the exit did not come from the relay: there is nothing to forget. */
	if (!exec->stream)
		return;
	memcpy(m.exec_id, exec->wire_id, WIRE_ID_SIZE);
	if (SAY_GUARDED("channel.forget",
			link_send_later(stream_link(exec->stream), WIRE_EXEC_FORGET, &m, &err),
			&err) < 0)
		log_debug("exec %s: %s", exec->id, err.message);
}

static int wait_for_end(struct exec *exec, struct patience patience, struct exec_result *result,
			struct error *err)
{
	struct places *places = exec->places;
	int rc;

	if (!places) {
		exec_unref(exec);
		return error_set(err, ERR_UNAVAILABLE, "the server is going");
	}
	if (!exec->waited) {
		pthread_mutex_lock(&places->lock);
		exec->waited = true;
		places->waiting++;
		pthread_mutex_unlock(&places->lock);
	}
	if (exec->shell) /* a call is over when it is over */
		rc = patience.deadline < 0 ? shell_exec_wait(exec, err) : 1;
	else
		rc = take_all(exec, patience, err);
	if (rc > 0)
		return 1;
	if (rc == 0)
		rc = exec_store_held(exec, err);
	if (rc == 0) {
		*result = exec->result;
		metric_observe_us(&EXEC_SECONDS, result->duration_ms * 1000);
		if (!exec->keep_exit)
			forget(exec);
	}
	delist(exec);
	return rc;
}

int exec_wait(struct exec *exec, struct exec_result *result, struct error *err)
{
	return wait_for_end(exec, PATIENCE_WITHOUT_END, result, err);
}

int exec_wait_briefly(struct exec *exec, int64_t wait_ms, int64_t words_ms,
		      struct exec_result *result, struct error *err)
{
	struct patience patience = { boottime_ms() + wait_ms, words_ms };
	int rc = wait_for_end(exec, patience, result, err);

	return rc < 0 ? -1 : rc == 0;
}

void exec_keep_exit(struct exec *exec)
{
	exec->keep_exit = true;
}

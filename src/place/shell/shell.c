#include "place/shell/shell.h"

#include <string.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "place/shell/shell_internal.h"

#define EXIT_NOT_FOUND 127
#define EXIT_DENIED 126

/* A command that was asked for: the call is made by the thread in exec_wait. */
struct shell_exec {
	char **argv, **env;
	char *cwd;
	int64_t timeout_ms;
	int cancel_fd;
};

void one_shot_result_clear(struct one_shot_result *result)
{
	buf_free(&result->out);
	buf_free(&result->err);
	*result = (struct one_shot_result){ .exit_code = -1 };
}

int shell_refuse(struct error *err, const char *what)
{
	return error_set(err, ERR_UNSUPPORTED_ENV, "this place has no relay: %s", what);
}

/* Calls of a place */

/* What may still run there when its holder is gone; forgotten when its time is over. */
static void note_unfenced(struct open_place *place, int64_t until)
{
	struct places *places = place->places;
	struct unfenced_call *loose = xcalloc(1, sizeof(*loose));

	loose->place_id = xstrdup(place->id);
	loose->until = until;
	pthread_mutex_lock(&places->lock);
	loose->next = places->loose;
	places->loose = loose;
	pthread_mutex_unlock(&places->lock);
	log_warn("place %s: a command may be running that nobody can end before its timeout",
		 place->id);
}

bool places_is_unfenced(struct places *places, const char *place_id)
{
	int64_t now = boottime_ms();
	bool found = false;

	pthread_mutex_lock(&places->lock);
	for (struct unfenced_call **p = &places->loose; *p;) {
		struct unfenced_call *loose = *p;

		if (loose->until <= now) {
			*p = loose->next;
			free(loose->place_id);
			free(loose);
			continue;
		}
		found |= streq(loose->place_id, place_id);
		p = &loose->next;
	}
	pthread_mutex_unlock(&places->lock);
	return found;
}

static int enter(struct open_place *place, int64_t until, struct error *err)
{
	int rc = 0;

	pthread_mutex_lock(&place->lock);
	if (place->stopped != NOT_STOPPED)
		rc = error_set(err, ERR_LEASE_LOST, "the place was stopped");
	else if (atomic_load(&place->places->detached))
		rc = error_set(err, ERR_UNAVAILABLE, "the server is going");
	else {
		place->calls++;
		place->calls_until = MAX_OF(place->calls_until, until);
	}
	pthread_mutex_unlock(&place->lock);
	return rc;
}

static void leave(struct open_place *place)
{
	pthread_mutex_lock(&place->lock);
	place->calls--;
	pthread_cond_broadcast(&place->changed);
	pthread_mutex_unlock(&place->lock);
}

int shell_call(struct open_place *place, const struct one_shot_call *call,
	       struct one_shot_result *result, struct error *err)
{
	int64_t until = boottime_ms() + call->timeout_ms;
	_cleanup_error_ struct error why = { 0 };
	int rc;

	one_shot_result_clear(result);
	if (enter(place, until, err) < 0)
		return -1;
	rc = place->one_shot.call(place->one_shot.arg, call, result, &why);
	if (rc < 0 ? why.code == ERR_TIMEOUT : result->may_run)
		note_unfenced(place, until);
	leave(place);
	if (rc == 0)
		return 0;
	error_move(err, &why);
	return -1;
}

int shell_stop(struct open_place *place, int64_t deadline, struct error *err)
{
	int64_t until;
	int rc = 0;

	latch_set(place->stop_fd);
	pthread_mutex_lock(&place->lock);
	while (place->calls > 0 && rc == 0)
		if (!cond_wait_until(&place->changed, &place->lock, deadline))
			rc = error_set(err, ERR_TIMEOUT,
				       "a command of the place does not come to its end");
	until = place->calls_until;
	pthread_mutex_unlock(&place->lock);
	/* Whoever tries again finds no open place and nothing to wait for: this tells them. */
	if (rc < 0)
		note_unfenced(place, until);
	return rc;
}

/* One command */

void shell_exec_free(struct shell_exec *shell)
{
	if (!shell)
		return;
	for (char **e = shell->env; e && *e; e++)
		wipe(*e, strlen(*e));
	strv_free(shell->env);
	strv_free(shell->argv);
	free(shell->cwd);
	close_fdp(&shell->cancel_fd);
	free(shell);
}

static int refuse_what_it_lacks(const struct exec_spec *spec, struct error *err)
{
	if (spec->terminal)
		return shell_refuse(err, "a command cannot have a terminal (run it without -t)");
	if (spec->stdin_stream)
		return shell_refuse(err, "standard input has to be given whole, with the command");
	if (spec->user)
		return shell_refuse(err, "a command cannot run as another user");
	return 0;
}

static bool is_mark(const char *entry)
{
	return str_starts(entry, RELAY_MARK_PLACE "=") || str_starts(entry, RELAY_MARK_EXEC "=");
}

/* What a relay would add; nobody marks a command as another place's. */
static char **marked_environment(const struct exec *exec, char **env)
{
	char **marked = NULL;

	strv_push(&marked, xasprintf(RELAY_MARK_PLACE "=%s", exec->place->id));
	strv_push(&marked, xasprintf(RELAY_MARK_EXEC "=%s", exec->id));
	for (char **e = env; *e; e++) {
		if (is_mark(*e))
			free(*e);
		else
			strv_push(&marked, *e);
	}
	free(env);
	return marked;
}

int shell_exec_prepare(struct exec *exec, const struct exec_spec *spec, struct error *err)
{
	struct exec_spec there = *spec;
	struct shell_exec *shell;
	char **env;
	int fd;

	if (refuse_what_it_lacks(spec, err) < 0)
		return -1;
	/* Who its user is and where that one is at home, the place itself knows. */
	there.user = "";
	env = exec_environment(exec->places, &exec->place->commands, &there, err);
	fd = env ? latch_new(err) : -1;
	if (fd < 0) {
		strv_free(env);
		return -1;
	}
	shell = xcalloc(1, sizeof(*shell));
	shell->env = marked_environment(exec, env);
	shell->argv = strv_copy(spec->argv);
	shell->cwd = xstrdup(spec->cwd ? spec->cwd : exec->place->cwd);
	shell->timeout_ms = spec->timeout_ms > 0 ? spec->timeout_ms : ONE_SHOT_TIMEOUT_MS;
	shell->cancel_fd = fd;
	exec->pid = -1;
	pthread_mutex_lock(&exec->lock);
	exec->shell = shell;
	pthread_mutex_unlock(&exec->lock);
	return 0;
}

int shell_exec_adopt(struct error *err)
{
	return error_set(err, ERR_PROCESS_LOST,
			 "this place has no relay: what became of a command when its server "
			 "stopped is not known");
}

void shell_exec_cancel(struct exec *exec)
{
	pthread_mutex_lock(&exec->lock);
	if (exec->shell)
		latch_set(exec->shell->cancel_fd);
	pthread_mutex_unlock(&exec->lock);
}

/* The reason somebody gave for its end, or NOT_STOPPED. */
static int unwanted(struct exec *exec)
{
	int why;

	pthread_mutex_lock(&exec->lock);
	why = exec->kill_reason;
	pthread_mutex_unlock(&exec->lock);
	return why != NOT_STOPPED ? why : place_stopped(exec->place);
}

static int say(struct exec *exec, const char *text, struct error *err)
{
	return exec_store(exec, WIRE_STDERR, text, strlen(text), err);
}

static int keep_stream(struct exec *exec, enum wire_channel channel, const struct buf *bytes,
		       struct error *err)
{
	if (bytes->len > 0 && exec_store(exec, channel, bytes->data, bytes->len, err) < 0)
		return -1;
	exec->channel_end[channel] += bytes->len;
	return 0;
}

static int keep_output(struct exec *exec, const struct one_shot_result *r, struct error *err)
{
	_cleanup_free_ char *cut =
		xasprintf("\n[output past %zu bytes was not kept: this place has no relay]\n",
			  ONE_SHOT_OUTPUT_MAX);

	if (keep_stream(exec, WIRE_STDOUT, &r->out, err) < 0 ||
	    keep_stream(exec, WIRE_STDERR, &r->err, err) < 0)
		return -1;
	if ((r->out_cut || r->err_cut) && say(exec, cut, err) < 0)
		return -1;
	return r->may_run ? say(exec,
				"\n[the command could not be ended and may run until its "
				"timeout]\n",
				err)
			  : 0;
}

static void conclude(struct exec *exec, int exit_code, int signal, enum exec_reason reason)
{
	exec->result = (struct exec_result){
		.exit_code = signal ? -1 : exit_code,
		.reason = reason,
		.duration_ms = boottime_ms() - exec->started_mono,
		.stdout_bytes = (int64_t)exec->channel_end[WIRE_STDOUT],
		.stderr_bytes = (int64_t)exec->channel_end[WIRE_STDERR],
	};
	signal_name(signal, exec->result.signal);
}

/* The call itself failed. What a shell would answer with an exit status is no failure. */
static int judge_failure(struct exec *exec, struct error *why, struct error *err)
{
	_cleanup_free_ char *line = xasprintf("%s\n", why->message);

	switch (why->code) {
	case ERR_COMMAND_NOT_FOUND:
	case ERR_COMMAND_DENIED:
		if (say(exec, line, err) < 0)
			return -1;
		conclude(exec, why->code == ERR_COMMAND_NOT_FOUND ? EXIT_NOT_FOUND : EXIT_DENIED, 0,
			 EXEC_EXITED);
		return 0;
	case ERR_LEASE_LOST:
		conclude(exec, -1, 0, EXEC_LEASE_LOST);
		return 0;
	case ERR_TIMEOUT:
		error_move(err, why);
		error_wrap(err, "what became of the command is not known");
		return error_recode(err, ERR_PROCESS_LOST);
	default:
		error_move(err, why);
		/* Above, this word is for a server that is going. */
		return err && err->code == ERR_UNAVAILABLE ? error_recode(err, ERR_EXEC) : -1;
	}
}

static int judge(struct exec *exec, const struct one_shot_result *r, int why, struct error *err)
{
	if (keep_output(exec, r, err) < 0)
		return -1;
	if (r->timed_out)
		conclude(exec, -1, r->signal, EXEC_TIMEOUT);
	else if (r->cancelled)
		conclude(exec, -1, r->signal,
			 why != NOT_STOPPED ? (enum exec_reason)why : EXEC_CANCELLED);
	else
		conclude(exec, r->exit_code, r->signal, r->signal ? EXEC_SIGNALLED : EXEC_EXITED);
	return 0;
}

static int leave_behind(struct error *err)
{
	return error_set(err, ERR_UNAVAILABLE, "the server is going");
}

int shell_exec_wait(struct exec *exec, struct error *err)
{
	const struct shell_exec *shell = exec->shell;
	const struct exec_input *in = &exec->input;
	const struct one_shot_call call = {
		.argv = shell->argv,
		.env = shell->env,
		.cwd = shell->cwd,
		.input = in->end ? buf_str(&in->bytes) : NULL,
		.input_len = in->bytes.len,
		.timeout_ms = shell->timeout_ms,
		.output_max = ONE_SHOT_OUTPUT_MAX,
		.cancel_fd = shell->cancel_fd,
	};
	_cleanup_one_shot_result_ struct one_shot_result r = { .exit_code = -1 };
	_cleanup_error_ struct error failed = { 0 };
	int why = unwanted(exec), rc;

	if (why != NOT_STOPPED) {
		conclude(exec, -1, 0, (enum exec_reason)why);
		return 0;
	}
	if (exec_is_detached(exec))
		return leave_behind(err);
	rc = shell_call(exec->place, &call, &r, &failed);
	why = unwanted(exec);
	/* Nobody here wanted its end: it is the server that goes. */
	if ((rc < 0 || r.cancelled) && why == NOT_STOPPED && exec_is_detached(exec))
		return leave_behind(err);
	if (rc == 0)
		return judge(exec, &r, why, err);
	if (failed.code == ERR_LEASE_LOST && why != NOT_STOPPED) {
		conclude(exec, -1, 0, (enum exec_reason)why);
		return 0;
	}
	return judge_failure(exec, &failed, err);
}

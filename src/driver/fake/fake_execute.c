#include "driver/fake/fake_execute.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/spawn.h"
#include "base/text.h"
#include "wire/proc.h"

#define TERM_MS 250  /* between asking it to leave and killing it */
#define DRAIN_MS 500 /* for output that is on its way when the command has ended */
#define LOOK_MS 20
#define PORTION ((size_t)64 << 10)
/* Its own, so that what leaves the session is found as well. */
#define MARK_CALL "BERTH_FAKE_CALL"

enum { IN, OUT, ERR, PIPES };

struct running {
	const struct one_shot_call *call;
	struct one_shot_result *result;
	pid_t pid;
	int pidfd;
	int fds[PIPES]; /* our ends; -1 when done with */
	size_t sent;
	int64_t ends_at, kill_at; /* -1: not decided */
	bool asked_to_leave, ended;
	char *mark;
};

int fake_end_marked(const char *mark, int64_t wait_ms, struct error *err)
{
	int64_t until = boottime_ms() + wait_ms;

	while (proc_signal_marked(mark, SIGKILL) > 0) {
		if (boottime_ms() >= until)
			return error_set(err, ERR_TIMEOUT, "commands of the place do not end");
		poll(NULL, 0, LOOK_MS);
	}
	return 0;
}

static bool has_name(char *const *env, const char *name)
{
	size_t len = strlen(name);

	for (; env && *env; env++)
		if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
			return true;
	return false;
}

static void env_freep(char ***env)
{
	for (char **e = *env; e && *e; e++)
		wipe(*e, strlen(*e));
	strv_free(*env);
}

/* What is asked for, and what this "cloud" knows of its own user. */
static char **environment(const struct one_shot_call *call, const char *home, const char *mark,
			  const char *call_mark)
{
	char **env = NULL;

	strv_push(&env, xstrdup(mark));
	strv_push(&env, xstrdup(call_mark));
	for (char *const *e = call->env; e && *e; e++)
		if (!str_starts(*e, "BERTH_FAKE_"))
			strv_push(&env, xstrdup(*e));
	if (!has_name(call->env, "HOME"))
		strv_push(&env, xasprintf("HOME=%s", home));
	return env;
}

static int start(struct running *r, char *const *env, const char *home, struct error *err)
{
	_cleanup_close_ int in = -1;
	_cleanup_close_ int out = -1;
	_cleanup_close_ int error = -1;
	int *theirs[PIPES] = { &in, &out, &error };
	struct spawn_spec spec = { .argv = r->call->argv,
				   .envp = env,
				   .cwd = r->call->cwd ? r->call->cwd : home,
				   .stdin_fd = -1,
				   .new_session = true };

	for (int i = r->call->input ? IN : OUT; i < PIPES; i++) {
		int pair[2];

		if (pipe2(pair, O_CLOEXEC) < 0)
			return error_errno(err, errno, "pipes for a command");
		*theirs[i] = pair[i == IN ? 0 : 1];
		r->fds[i] = pair[i == IN ? 1 : 0];
		if (fd_set_nonblock(r->fds[i], true, err) < 0)
			return -1;
	}
	spec.stdin_fd = in;
	spec.stdout_fd = out;
	spec.stderr_fd = error;
	return spawn(&spec, &r->pid, &r->pidfd, err);
}

/* To nobody it is EPIPE: the server ignores the signal. */
static void feed(struct running *r)
{
	const char *input = r->call->input;
	ssize_t n = 0;

	if (r->sent < r->call->input_len)
		n = write(r->fds[IN], input + r->sent,
			  MIN_OF(r->call->input_len - r->sent, PORTION));
	if (n > 0)
		r->sent += (size_t)n;
	if (r->sent == r->call->input_len || (n < 0 && errno != EAGAIN && errno != EINTR))
		close_fdp(&r->fds[IN]);
}

/* What does not fit is read all the same: a full pipe would hold the command. */
static void drain(struct running *r, int which)
{
	struct buf *to = which == OUT ? &r->result->out : &r->result->err;
	bool *cut = which == OUT ? &r->result->out_cut : &r->result->err_cut;
	_cleanup_free_ char *portion = xmalloc(PORTION);
	ssize_t n = read(r->fds[which], portion, PORTION);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		close_fdp(&r->fds[which]);
	} else if (n > 0) {
		size_t room = r->call->output_max - to->len;

		buf_append(to, portion, MIN_OF((size_t)n, room));
		*cut |= (size_t)n > room;
	}
}

static void kill_all(struct running *r)
{
	kill(-r->pid, SIGKILL);
	fake_end_marked(r->mark, TERM_MS, NULL);
}

/* Nobody wants it, or its time is over: first asked, then killed. */
static void ask_to_leave(struct running *r)
{
	r->asked_to_leave = true;
	kill(-r->pid, SIGTERM);
	kill(-r->pid, SIGCONT);
	r->kill_at = boottime_ms() + TERM_MS;
}

static void look_at_time(struct running *r)
{
	int64_t now = boottime_ms();

	if (!r->asked_to_leave && !r->ended && now >= r->ends_at) {
		r->result->timed_out = true;
		ask_to_leave(r);
	}
	if (r->kill_at >= 0 && now >= r->kill_at) {
		kill_all(r);
		r->kill_at = -1;
		/* Whoever holds the pipes now is not of this command. */
		if (r->ended) {
			close_fdp(&r->fds[OUT]);
			close_fdp(&r->fds[ERR]);
		}
	}
}

static int time_left(const struct running *r)
{
	int64_t next = r->kill_at;

	if (!r->asked_to_leave && !r->ended)
		next = r->ends_at;
	if (next < 0)
		return r->ended ? DRAIN_MS : -1;
	return (int)MIN_OF(MAX_OF(next - boottime_ms(), 0), 3600 * 1000);
}

static void look_after(struct running *r)
{
	enum { PROCESS = PIPES, CANCEL, ALL };

	while (!r->ended || r->fds[OUT] >= 0 || r->fds[ERR] >= 0) {
		struct pollfd p[ALL] = {
			[IN] = { r->fds[IN], POLLOUT, 0 },
			[OUT] = { r->fds[OUT], POLLIN, 0 },
			[ERR] = { r->fds[ERR], POLLIN, 0 },
			[PROCESS] = { r->ended ? -1 : r->pidfd, POLLIN, 0 },
			[CANCEL] = { r->asked_to_leave || r->ended ? -1 : r->call->cancel_fd,
				     POLLIN, 0 },
		};

		if (poll(p, ALL, time_left(r)) < 0 && errno != EINTR)
			break;
		if (p[IN].revents)
			feed(r);
		for (int i = OUT; i <= ERR; i++)
			if (p[i].revents)
				drain(r, i);
		if (p[PROCESS].revents) {
			r->ended = true;
			close_fdp(&r->fds[IN]);
			r->kill_at = boottime_ms() + DRAIN_MS;
		}
		if (p[CANCEL].revents && !r->ended) {
			r->result->cancelled = true;
			ask_to_leave(r);
		}
		look_at_time(r);
	}
}

static void finish(struct running *r)
{
	int status = 0;

	/* Before it is reaped: until then its number is nobody else's. */
	kill(-r->pid, SIGKILL);
	/* Looking for strays costs more than most commands: only where it was ended by force. */
	if (r->asked_to_leave)
		fake_end_marked(r->mark, TERM_MS, NULL);
	while (waitpid(r->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status))
		r->result->exit_code = WEXITSTATUS(status);
	else if (WIFSIGNALED(status))
		r->result->signal = WTERMSIG(status);
}

int fake_run(const struct one_shot_call *call, const char *home, const char *mark,
	     struct one_shot_result *result, struct error *err)
{
	char id[ID_SIZE];
	struct running r = { .call = call,
			     .result = result,
			     .pidfd = -1,
			     .fds = { -1, -1, -1 },
			     .ends_at = boottime_ms() + call->timeout_ms,
			     .kill_at = -1 };
	_cleanup_(env_freep) char **env = NULL;
	int rc;

	id_new(id);
	r.mark = xasprintf(MARK_CALL "=%s", id);
	env = environment(call, home, mark, r.mark);
	*result = (struct one_shot_result){ .exit_code = -1 };
	rc = start(&r, env, home, err);
	if (rc == 0) {
		look_after(&r);
		finish(&r);
	}
	for (int i = 0; i < PIPES; i++)
		close_fdp(&r.fds[i]);
	close_fdp(&r.pidfd);
	free(r.mark);
	return rc;
}

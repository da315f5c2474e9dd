#include "channel/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/spawn.h"
#include "channel/executor.h"

#define READ_SIZE ((size_t)64 << 10)
#define SWEEP_POLL_MS 1000
/* How often the tree is looked at when its leader has ended and the others have a grace. */
#define GRACE_POLL_MS 20
/* More than any pipe holds: somebody we cannot see writes on, and must not keep us here. */
#define DRAIN_MAX ((size_t)16 << 20)

static const enum runlog_stream STREAMS[2] = { RUNLOG_STDOUT, RUNLOG_STDERR };

static void exec_free(struct exec *exec)
{
	close_fdp(&exec->cancel_fd);
	close_fdp(&exec->pidfd);
	close_fdp(&exec->stdin_fd);
	close_fdp(&exec->output_fd[0]);
	close_fdp(&exec->output_fd[1]);
	if (exec->stdin_data)
		wipe(exec->stdin_data, exec->stdin_len);
	free(exec->stdin_data);
	tree_clear(&exec->tree);
	free(exec->id);
	free(exec->place_id);
	free(exec);
}

static void exec_freep(struct exec **exec)
{
	if (*exec)
		exec_free(*exec);
}

static int check_spec(const struct exec_spec *spec, struct error *err)
{
	if (!id_is_set(spec->exec_id) || strlen(spec->exec_id) >= PROC_MARK_SIZE ||
	    !id_is_set(spec->place_id) || !spec->log)
		return error_set(err, ERR_INTERNAL, "an exec needs an id, a place and a log");
	if (!spec->argv || !spec->argv[0])
		return error_set(err, ERR_VALIDATION, "no command given");
	if (!spec->cwd || !path_is_absolute(spec->cwd))
		return error_set(err, ERR_VALIDATION, "the working directory must be absolute");
	return 0;
}

/* The end we keep does not block; the child's does, as programs expect. */
static int make_pipe(bool we_write, int *ours, int *theirs, struct error *err)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return error_errno(err, errno, "make a pipe");
	*ours = ends[we_write];
	*theirs = ends[!we_write];
	return fd_set_nonblock(*ours, true, err);
}

static int start_process(struct exec *exec, const struct exec_spec *spec, struct error *err)
{
	_cleanup_close_ int in = -1, out = -1, errors = -1;
	_cleanup_strv_ char **env = exec_environment(exec->executor, spec, err);

	if (!env || (spec->stdin_data && make_pipe(true, &exec->stdin_fd, &in, err) < 0) ||
	    make_pipe(false, &exec->output_fd[0], &out, err) < 0 ||
	    make_pipe(false, &exec->output_fd[1], &errors, err) < 0)
		return -1;

	struct spawn_spec child = {
		.argv = spec->argv,
		.envp = env,
		.cwd = spec->cwd,
		.stdin_fd = in,
		.stdout_fd = out,
		.stderr_fd = errors,
		.new_session = true,
	};

	if (spawn(&child, &exec->tree.leader, &exec->pidfd, err) < 0)
		return -1;
	exec->tree.leader_start = process_start_time(exec->tree.leader);
	return 0;
}

/* Writes what the pipe takes; false when there is nothing left to do. */
static bool feed_stdin(int fd, const char *data, size_t len, size_t *done)
{
	while (*done < len) {
		ssize_t n = write(fd, data + *done, len - *done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		*done += (size_t)n;
	}
	return false;
}

/*
 * A child that does not read its stdin must neither block us nor end us: SIGPIPE is kept away from
 * this thread, and taken back if we raised it.
 */
struct pipe_guard {
	sigset_t mask;
	bool was_pending;
};

static void pipe_guard_set(struct pipe_guard *guard)
{
	sigset_t sigpipe, pending;

	sigemptyset(&sigpipe);
	sigaddset(&sigpipe, SIGPIPE);
	sigpending(&pending);
	guard->was_pending = sigismember(&pending, SIGPIPE) == 1;
	pthread_sigmask(SIG_BLOCK, &sigpipe, &guard->mask);
}

static void pipe_guard_lift(struct pipe_guard *guard)
{
	static const struct timespec now;
	sigset_t sigpipe;

	sigemptyset(&sigpipe);
	sigaddset(&sigpipe, SIGPIPE);
	if (!guard->was_pending)
		while (sigtimedwait(&sigpipe, NULL, &now) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &guard->mask, NULL);
}

/* What fits into the pipe goes there at once; only the rest is copied. */
static void begin_stdin(struct exec *exec, const struct exec_spec *spec)
{
	struct pipe_guard guard;
	size_t done = 0;

	if (exec->stdin_fd < 0)
		return;
	pipe_guard_set(&guard);
	if (feed_stdin(exec->stdin_fd, spec->stdin_data, spec->stdin_len, &done)) {
		exec->stdin_len = spec->stdin_len - done;
		exec->stdin_data = xmalloc(exec->stdin_len);
		memcpy(exec->stdin_data, (const char *)spec->stdin_data + done, exec->stdin_len);
	} else {
		close_fdp(&exec->stdin_fd);
	}
	pipe_guard_lift(&guard);
}

static struct exec *exec_new(struct executor *executor, const struct exec_spec *spec)
{
	struct exec *exec = xcalloc(1, sizeof(*exec));

	exec->executor = executor;
	exec->id = xstrdup(spec->exec_id);
	exec->place_id = xstrdup(spec->place_id);
	exec->cancelled = EXEC_NOT_CANCELLED;
	exec->grace_ms = EXEC_GRACE_MS;
	exec->tree = (struct tree){
		.owner = executor->owner,
		.exec_id = exec->id,
		.leader = -1,
		.leader_is_ours = true,
	};
	exec->cancel_fd = exec->pidfd = exec->stdin_fd = -1;
	exec->output_fd[0] = exec->output_fd[1] = -1;
	exec->log = spec->log;
	exec->deadline_mono = -1;
	return exec;
}

int exec_start(struct executor *executor, const struct exec_spec *spec, struct exec **out,
	       struct error *err)
{
	*out = NULL;
	if (check_spec(spec, err) < 0)
		return -1;

	_cleanup_(exec_freep) struct exec *exec = exec_new(executor, spec);

	exec->cancel_fd = latch_new(err);
	if (exec->cancel_fd < 0 || executor_admit(executor, exec, spec->generation, err) < 0)
		return -1;

	int rc = start_process(exec, spec, err);

	exec->started_mono = clock_mono(executor->clock);
	if (spec->timeout_ms > 0 && spec->timeout_ms < INT64_MAX - exec->started_mono)
		exec->deadline_mono = exec->started_mono + spec->timeout_ms;
	executor_started(executor);
	if (rc < 0) {
		executor_delist(exec);
		return -1;
	}
	begin_stdin(exec, spec);
	*out = steal(exec);
	return 0;
}

pid_t exec_pid(const struct exec *exec)
{
	return exec->tree.leader;
}

unsigned long long exec_start_time(const struct exec *exec)
{
	return exec->tree.leader_start;
}

/* The state of one exec_wait. */
struct pump {
	struct exec *exec;
	char *buffer;
	bool exited;      /* the leader; not reaped */
	int64_t bytes[2]; /* of stdout and stderr */
	bool log_failed;
	struct error log_error;
};

/* One read. Returns the bytes, 0 when there are none now or will be none. */
static size_t pump_output(struct pump *pump, int which)
{
	struct exec *exec = pump->exec;
	ssize_t n;

	do
		n = read(exec->output_fd[which], pump->buffer, READ_SIZE);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0) {
		close_fdp(&exec->output_fd[which]);
		return 0;
	}
	pump->bytes[which] += n;
	/* Behind a gap nothing is kept: what the log has is a prefix of what was written. */
	if (!pump->log_failed &&
	    runlog_append(exec->log, STREAMS[which], pump->buffer, (size_t)n,
			  clock_now(exec->executor->clock), &pump->log_error) < 0)
		pump->log_failed = true;
	return (size_t)n;
}

/* Waits for something to happen, at most so long, and moves the bytes that are there. */
static void pump_once(struct pump *pump, int timeout_ms)
{
	struct exec *exec = pump->exec;
	struct pollfd fds[] = {
		{ .fd = exec->output_fd[0], .events = POLLIN },
		{ .fd = exec->output_fd[1], .events = POLLIN },
		{ .fd = exec->stdin_fd, .events = POLLOUT },
		{ .fd = pump->exited ? -1 : exec->pidfd, .events = POLLIN },
		{ .fd = exec->cancel_fd, .events = POLLIN },
	};

	if (poll(fds, ARRAY_SIZE(fds), timeout_ms) <= 0)
		return;
	for (int i = 0; i < 2; i++) {
		if (fds[i].revents)
			pump_output(pump, i);
	}
	if (fds[2].revents &&
	    !feed_stdin(exec->stdin_fd, exec->stdin_data, exec->stdin_len, &exec->stdin_done))
		close_fdp(&exec->stdin_fd);
	if (fds[3].revents)
		pump->exited = true;
}

/* Until the command ends by itself, or there is a reason to end it. */
static bool pump_until_over(struct pump *pump, enum exec_reason *why)
{
	struct exec *exec = pump->exec;
	struct executor *executor = exec->executor;
	int64_t grace_ms;

	while (!pump->exited) {
		int wish = exec_wish(exec, &grace_ms);

		if (wish != EXEC_NOT_CANCELLED) {
			*why = (enum exec_reason)wish;
			return true;
		}
		if (pump->log_failed) {
			*why = EXEC_CANCELLED;
			return true;
		}

		int timeout = clock_poll_timeout(executor->clock, exec->deadline_mono);

		if (timeout == 0) {
			*why = EXEC_TIMEOUT;
			return true;
		}
		if (timeout < 0 || timeout > SWEEP_POLL_MS)
			timeout = SWEEP_POLL_MS;
		pump_once(pump, timeout);
		executor_sweep(executor);
	}
	return false;
}

/* TERM to all, then as long as the grace lasts and somebody is left, their last words are kept. */
static void pump_through_grace(struct pump *pump)
{
	struct exec *exec = pump->exec;
	struct clock *clock = &exec->executor->system;
	int64_t began = clock_mono(clock);

	tree_signal(&exec->tree, SIGTERM);
	for (;;) {
		int64_t grace_ms;

		exec_wish(exec, &grace_ms);

		int64_t left = began + grace_ms - clock_mono(clock);

		if (left <= 0 || pump->log_failed)
			return;
		/* The signalled fall to us when they die, and the unreaped look like somebody left.
		 */
		if (pump->exited)
			tree_reap(&exec->tree);
		if (pump->exited && tree_is_bare(&exec->tree))
			return;
		pump_once(pump, (int)(pump->exited ? MIN_OF(left, GRACE_POLL_MS) : left));
		executor_sweep(exec->executor);
	}
}

/* What is still in the pipes after the last writer is gone. */
static void drain(struct pump *pump)
{
	for (int i = 0; i < 2; i++) {
		size_t total = 0, n;

		while (pump->exec->output_fd[i] >= 0 && total < DRAIN_MAX &&
		       (n = pump_output(pump, i)) > 0)
			total += n;
	}
}

static void name_signal(int number, char out[16])
{
	const char *name = sigabbrev_np(number);

	if (name)
		snprintf(out, 16, "SIG%s", name);
	else
		snprintf(out, 16, "SIG%d", number);
}

static void reap_leader(const struct exec *exec, struct exec_result *result)
{
	int status = 0;
	pid_t pid;

	/* After tree_end it is dead, or nothing can end it; then its status is not waited for. */
	do
		pid = waitpid(exec->tree.leader, &status, WNOHANG);
	while (pid < 0 && errno == EINTR);
	result->exit_code = -1;
	if (pid == exec->tree.leader && WIFEXITED(status))
		result->exit_code = WEXITSTATUS(status);
	else if (pid == exec->tree.leader && WIFSIGNALED(status))
		name_signal(WTERMSIG(status), result->signal);
}

static void run_to_the_end(struct pump *pump, struct exec_result *result)
{
	struct exec *exec = pump->exec;
	struct clock *clock = exec->executor->clock;
	enum exec_reason why = EXEC_EXITED;
	bool stopped = pump_until_over(pump, &why);

	if (stopped)
		pump_through_grace(pump);
	/* An exec's tree ends with the exec: what its command left behind goes as well. */
	if (!pump->exited || !tree_is_bare(&exec->tree))
		tree_end(&exec->tree, EXEC_END_MS);
	tree_reap(&exec->tree);
	drain(pump);
	*result = (struct exec_result){
		.duration_ms = clock_mono(clock) - exec->started_mono,
		.stdout_bytes = pump->bytes[0],
		.stderr_bytes = pump->bytes[1],
	};
	reap_leader(exec, result);
	result->reason = stopped ? why : result->signal[0] ? EXEC_SIGNALLED : EXEC_EXITED;
}

int exec_wait(struct exec *exec, struct exec_result *result, struct error *err)
{
	_cleanup_free_ char *buffer = xmalloc(READ_SIZE);
	struct pump pump = { .exec = exec, .buffer = buffer };
	struct pipe_guard guard;
	int rc = 0;

	pthread_mutex_lock(&exec->executor->lock);
	exec->waited = true;
	pthread_mutex_unlock(&exec->executor->lock);
	pipe_guard_set(&guard);
	run_to_the_end(&pump, result);
	pipe_guard_lift(&guard);
	if (pump.log_failed) {
		rc = -1;
		error_wrap(&pump.log_error, "the output could not be kept");
		if (err)
			error_move(err, &pump.log_error);
	}
	error_clear(&pump.log_error);
	executor_delist(exec);
	exec_free(exec);
	return rc;
}

int exec_reap_leftover(const char *owner, const char *exec_id, pid_t pid,
		       unsigned long long start_time)
{
	struct tree tree = {
		.owner = owner ? owner : "",
		.exec_id = exec_id ? exec_id : "",
		.leader = pid,
		.leader_start = start_time,
	};

	tree_end(&tree, EXEC_END_MS);

	int ended = tree_reap(&tree);

	tree_clear(&tree);
	return ended;
}

#include "git/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "base/clock.h"
#include "base/fd.h"
#include "base/spawn.h"
#include "base/text.h"

#define MAX_AT_A_TIME 4
#define DEFAULT_OUTPUT (1 << 20)
#define STDERR_MAX 8192
/* Of what git says at its end. */
#define WORDS_SIZE 256
/* Delta results and inflated objects claim sizes of their own; windows of packs need some room. */
#define HOSTILE_MEMORY "--as=6442450944"

static const char *const settings[] = {
	"core.hooksPath=/dev/null",
	"core.fsmonitor=false",
	"core.untrackedCache=false",
	"core.sshCommand=false",
	"core.alternateRefsCommand=false",
	"core.packedGitWindowSize=64m",
	"core.packedGitLimit=1g",
	"core.bigFileThreshold=64m",
	"credential.helper=",
	"protocol.allow=never",
	"submodule.recurse=false",
	"gc.auto=0",
	"maintenance.auto=false",
	"safe.directory=*", /* we are the owner, or the settings above are what makes it safe */
};

/*
 * The limit is the process's, whoever calls: the one thing in this room that is not handed from
 * caller to callee.
 */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t freed;
	int running;
} gate = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 };

struct child {
	pid_t pid;
	int pidfd, out_fd, err_fd;
};

static int gate_enter(const struct git_call *call, int64_t deadline, struct error *err)
{
	int rc = 0;

	pthread_mutex_lock(&gate.lock);
	while (gate.running >= MAX_AT_A_TIME && rc == 0) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 100 * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000L;
		until.tv_nsec %= 1000000000L;
		pthread_cond_timedwait(&gate.freed, &gate.lock, &until);
		if (latch_is_set(call->repo->cancel_fd))
			rc = error_set(err, ERR_CANCELLED, "cancelled before git %s",
				       call->args[0]);
		else if (boottime_ms() > deadline)
			rc = error_set(err, ERR_TIMEOUT, "git %s waited too long for others to end",
				       call->args[0]);
	}
	if (rc == 0)
		gate.running++;
	pthread_mutex_unlock(&gate.lock);
	return rc;
}

static void gate_leave(void)
{
	pthread_mutex_lock(&gate.lock);
	gate.running--;
	pthread_cond_signal(&gate.freed);
	pthread_mutex_unlock(&gate.lock);
}

static char **make_argv(const struct git_call *call)
{
	const struct git_repo *repo = call->repo;
	char **argv = NULL;

	if (call->hostile) {
		strv_push(&argv, xstrdup("prlimit"));
		strv_push(&argv, xstrdup(HOSTILE_MEMORY));
		strv_push(&argv, xstrdup("--core=0"));
	}
	if (repo->as_owner) {
		strv_push(&argv, xstrdup("setpriv"));
		strv_push(&argv, xasprintf("--reuid=%u", repo->uid));
		strv_push(&argv, xasprintf("--regid=%u", repo->gid));
		strv_push(&argv, xstrdup("--clear-groups"));
		strv_push(&argv, xstrdup("--no-new-privs"));
	}
	strv_push(&argv, xstrdup("git"));
	strv_push(&argv, xstrdup("--no-pager"));
	strv_push(&argv, xstrdup("--literal-pathspecs"));
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		strv_push(&argv, xstrdup("-c"));
		strv_push(&argv, xstrdup(settings[i]));
	}
	for (const char *const *arg = call->args; *arg; arg++)
		strv_push(&argv, xstrdup(*arg));
	return argv;
}

static char *home_of(uid_t uid)
{
	struct passwd entry, *found = NULL;
	char text[4096];

	if (getpwuid_r(uid, &entry, text, sizeof(text), &found) == 0 && found)
		return xstrdup(found->pw_dir);
	return xstrdup("/nonexistent");
}

static char **make_env(const struct git_call *call)
{
	const struct git_repo *repo = call->repo;
	char **env = NULL;

	strv_push(&env, xstrdup("PATH=/usr/local/bin:/usr/bin:/bin"));
	strv_push(&env, xstrdup("LC_ALL=C"));
	strv_push(&env, xstrdup("GIT_CONFIG_NOSYSTEM=1"));
	strv_push(&env, xstrdup("GIT_ATTR_NOSYSTEM=1"));
	strv_push(&env, xstrdup("GIT_TERMINAL_PROMPT=0"));
	strv_push(&env, xstrdup("GIT_NO_REPLACE_OBJECTS=1"));
	strv_push(&env, xstrdup("GIT_NO_LAZY_FETCH=1"));
	strv_push(&env, xasprintf("GIT_OPTIONAL_LOCKS=%d", call->writes));
	strv_push(&env, xasprintf("GIT_DIR=%s", call->git_dir ? call->git_dir : repo->git_dir));
	strv_push(&env, xasprintf("GIT_WORK_TREE=%s", repo->path));
	/* Reflog lines say who moved a branch. */
	strv_push(&env, xstrdup("GIT_COMMITTER_NAME=Berth"));
	strv_push(&env, xstrdup("GIT_COMMITTER_EMAIL=berth@localhost"));
	if (call->user_config) {
		_cleanup_free_ char *home = home_of(repo->uid);

		strv_push(&env, xasprintf("HOME=%s", home));
	} else {
		strv_push(&env, xstrdup("HOME=/nonexistent"));
		strv_push(&env, xstrdup("GIT_CONFIG_GLOBAL=/dev/null"));
	}
	for (char *const *more = call->env; more && *more; more++)
		strv_push(&env, xstrdup(*more));
	return env;
}

static int open_input(const struct git_call *call, int *fd, struct error *err)
{
	*fd = -1;
	if (!call->input)
		return 0;

	_cleanup_close_ int memory = memfd_create("git-input", MFD_CLOEXEC);

	if (memory < 0)
		return error_errno(err, errno, "memfd");
	if (fd_write_all(memory, call->input, call->input_len, err) < 0)
		return -1;
	if (lseek(memory, 0, SEEK_SET) < 0)
		return error_errno(err, errno, "rewind");
	*fd = steal_fd(&memory);
	return 0;
}

static int make_pipe(int fds[2], struct error *err)
{
	if (pipe2(fds, O_CLOEXEC) < 0)
		return error_errno(err, errno, "pipe");
	return fd_set_nonblock(fds[0], true, err);
}

static int start_git(const struct git_call *call, struct child *child, struct error *err)
{
	_cleanup_strv_ char **argv = make_argv(call);
	_cleanup_strv_ char **env = make_env(call);
	_cleanup_close_ int input = -1, out_w = -1, err_w = -1;
	int fds[2];

	if (open_input(call, &input, err) < 0 || make_pipe(fds, err) < 0)
		return -1;
	child->err_fd = fds[0];
	err_w = fds[1];
	if (!call->output_fd) {
		if (make_pipe(fds, err) < 0)
			return -1;
		child->out_fd = fds[0];
		out_w = fds[1];
	}

	struct spawn_spec spec = {
		.argv = argv,
		.envp = env,
		.cwd = call->repo->path,
		.stdin_fd = call->input_fd > 0 ? call->input_fd : input,
		.stdout_fd = call->output_fd > 0 ? call->output_fd : out_w,
		.stderr_fd = err_w,
		.new_session = true,
	};

	if (spawn(&spec, &child->pid, &child->pidfd, err) == 0)
		return 0;
	if (err && (err->code == ERR_COMMAND_NOT_FOUND || err->code == ERR_COMMAND_DENIED)) {
		error_wrap(err, "the workspace is a git repository; install git on this machine");
		error_recode(err, ERR_UNPROCESSABLE);
	}
	return -1;
}

/* 1: more may come, 0: the end, -1: too much, unless that may be dropped. */
static int take(int fd, struct buf *to, size_t max, bool drop)
{
	char chunk[65536];
	ssize_t n = read(fd, chunk, sizeof(chunk));

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 1 : 0;
	if (n == 0)
		return 0;
	if (to && to->len + (size_t)n <= max)
		buf_append(to, chunk, (size_t)n);
	else if (!drop)
		return -1;
	return 1;
}

static int listen_to(const struct git_call *call, struct child *child, struct buf *out,
		     struct buf *said, int64_t deadline, struct error *err)
{
	size_t max = call->max_output ? call->max_output : DEFAULT_OUTPUT;
	bool exited = false;

	while (!exited || child->out_fd >= 0 || child->err_fd >= 0) {
		struct pollfd p[] = {
			{ .fd = exited ? -1 : child->pidfd, .events = POLLIN },
			{ .fd = child->out_fd, .events = POLLIN },
			{ .fd = child->err_fd, .events = POLLIN },
			{ .fd = call->repo->cancel_fd, .events = POLLIN },
		};
		int64_t left = deadline - boottime_ms();

		if (left <= 0)
			return error_set(err, ERR_TIMEOUT, "git %s took too long", call->args[0]);
		/* After its exit only what lies in the pipes counts: a grandchild may hold them. */
		if (poll(p, ARRAY_SIZE(p), exited ? 0 : (int)left) < 0 && errno != EINTR)
			return error_errno(err, errno, "poll");
		if (p[3].revents)
			return error_set(err, ERR_CANCELLED, "git %s was cancelled", call->args[0]);
		if (exited && !p[1].revents && !p[2].revents)
			return 0;
		if (p[0].revents)
			exited = true;
		if (p[1].revents) {
			int rc = take(child->out_fd, out, max, out == NULL);

			if (rc < 0)
				return error_set(err, ERR_TOO_LARGE,
						 "git %s said more than %zu bytes", call->args[0],
						 max);
			if (rc == 0)
				close_fdp(&child->out_fd);
		}
		if (p[2].revents && take(child->err_fd, said, STDERR_MAX, true) == 0)
			close_fdp(&child->err_fd);
	}
	return 0;
}

static void child_close(struct child *child)
{
	close_fdp(&child->pidfd);
	close_fdp(&child->out_fd);
	close_fdp(&child->err_fd);
}

static int reap(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/* The last line that is not blank, as plain text: what git died of. */
static void last_words(const struct buf *said, char words[WORDS_SIZE])
{
	const char *text = buf_str(said), *start;
	size_t len = said->len, n = 0;

	while (len && (unsigned char)text[len - 1] <= ' ')
		len--;
	start = memrchr(text, '\n', len);
	start = start ? start + 1 : text;
	for (; start < text + len && n < WORDS_SIZE - 1; start++) {
		unsigned char c = (unsigned char)*start;

		words[n++] = c >= ' ' && c < 0x7f ? (char)c : '?';
	}
	words[n] = '\0';
}

static int judge(const struct git_call *call, int wait_status, const struct buf *said, int *status,
		 struct error *err)
{
	char words[WORDS_SIZE];

	last_words(said, words);
	if (!WIFEXITED(wait_status))
		return error_set(err, ERR_IO, "git %s was ended by signal %d", call->args[0],
				 WTERMSIG(wait_status));
	if (status) {
		*status = WEXITSTATUS(wait_status);
		return 0;
	}
	if (WEXITSTATUS(wait_status) != 0)
		return error_set(err, ERR_UNPROCESSABLE, "git %s: %s", call->args[0],
				 words[0] ? words : "failed without a word");
	return 0;
}

int git_run(const struct git_call *call, struct buf *out, int *status, struct error *err)
{
	_cleanup_(child_close) struct child child = { -1, -1, -1, -1 };
	_cleanup_buf_ struct buf said = { 0 };

	if (latch_is_set(call->repo->cancel_fd))
		return error_set(err, ERR_CANCELLED, "cancelled before git %s", call->args[0]);
	/* Waiting for one's turn is not working: it has a bound of its own. */
	if (gate_enter(call, boottime_ms() + GIT_LONG_TIMEOUT_MS, err) < 0)
		return -1;

	int64_t deadline = boottime_ms() + (call->timeout_ms ? call->timeout_ms : GIT_TIMEOUT_MS);

	if (start_git(call, &child, err) < 0) {
		gate_leave();
		return -1;
	}

	int rc = listen_to(call, &child, out, &said, deadline, err);

	if (rc < 0)
		kill(-child.pid, SIGKILL);

	int wait_status = reap(child.pid);

	gate_leave();
	return rc < 0 ? -1 : judge(call, wait_status, &said, status, err);
}

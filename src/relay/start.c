/*
 * Starting an exec: who, with which environment, on which descriptors.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "relay/exec.h"
#include "wire/place.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define DEFAULT_TERM "xterm-256color"
#define HOLD_ENDS_OF 32u

struct start {
	struct user user;
	bool switch_user;
	const char **env;
	size_t env_count;
	char text[1024]; /* of the entries made here, where there is room; else `owned` */
	size_t text_len;
	char **owned;
	const char *few[32]; /* the environment itself, if it is small */
	const char *path;
	char *cwd;
	struct launch_limit open_files; /* the place's own limit */
	int child_fd[3];                /* standard descriptors of the child, owned */
};

static int fail(struct start_failure *f, enum wire_error_code code, int errnum, const char *fmt,
		...) __attribute__((format(printf, 4, 5)));

static int fail(struct start_failure *f, enum wire_error_code code, int errnum, const char *fmt,
		...)
{
	va_list ap;

	f->code = code;
	f->errnum = errnum;
	va_start(ap, fmt);
	vsnprintf(f->message, sizeof(f->message), fmt, ap);
	va_end(ap);
	return -1;
}

static void start_clear(struct start *s)
{
	strv_free(s->owned);
	if (s->env != s->few)
		free(s->env);
	free(s->cwd);
	for (size_t i = 0; i < 3; i++)
		if (s->child_fd[i] >= 0)
			close(s->child_fd[i]);
}

static int choose_user(struct start *s, const struct relay *relay, const struct wire_exec_start *m,
		       struct start_failure *f)
{
	_cleanup_error_ struct error err = { 0 };

	s->user = relay->config.payload;
	s->switch_user = relay->config.run_as && geteuid() == 0;
	if (!m->user)
		return 0;
	if (user_find(m->user, &s->user, &err) < 0)
		return fail(f, WERR_BAD_USER, 0, "%s", err.message);
	s->switch_user = geteuid() == 0;
	if (!s->switch_user && (s->user.uid != geteuid() || s->user.gid != getegid()))
		return fail(f, WERR_BAD_USER, EPERM, "this place can only run as uid %u",
			    (unsigned)geteuid());
	return 0;
}

static bool env_is(const char *entry, const char *name)
{
	size_t len = strlen(name);

	return strncmp(entry, name, len) == 0 && entry[len] == '=';
}

static const char *env_value(const struct start *s, const char *name)
{
	for (size_t i = 0; i < s->env_count; i++)
		if (env_is(s->env[i], name))
			return s->env[i] + strlen(name) + 1;
	return NULL;
}

static void env_default(struct start *s, const char *name, const char *value)
{
	size_t name_len = strlen(name), value_size = strlen(value) + 1;
	size_t size = name_len + 1 + value_size;
	char *entry = s->text + s->text_len;

	if (value[0] == 0 || env_value(s, name))
		return;
	if (size <= sizeof(s->text) - s->text_len) {
		s->text_len += size;
	} else {
		entry = xmalloc(size);
		strv_push(&s->owned, entry);
	}
	memcpy(entry, name, name_len);
	entry[name_len] = '=';
	memcpy(entry + name_len + 1, value, value_size);
	s->env[s->env_count++] = entry;
}

static int build_env(struct start *s, const struct exec *exec, const struct wire_exec_start *m,
		     struct start_failure *f)
{
	const size_t added = 8;

	s->env = s->few;
	if (m->env.count + added + 1 > ARRAY_SIZE(s->few))
		s->env = xcalloc(m->env.count + added + 1, sizeof(*s->env));
	for (uint32_t i = 0; i < m->env.count; i++) {
		const char *entry = m->env.v[i];

		if (!strchr(entry, '=') || entry[0] == '=')
			return fail(f, WERR_INVALID, 0, "an environment entry has no name");
		/* The marks are how strays are found: they are ours to set. */
		if (!env_is(entry, RELAY_MARK_PLACE) && !env_is(entry, RELAY_MARK_EXEC))
			s->env[s->env_count++] = entry;
	}
	env_default(s, RELAY_MARK_PLACE, exec->relay->config.place_id);
	env_default(s, RELAY_MARK_EXEC, exec->id_text);
	env_default(s, "PATH", DEFAULT_PATH);
	env_default(s, "HOME", s->user.home);
	env_default(s, "USER", s->user.name);
	env_default(s, "LOGNAME", s->user.name);
	env_default(s, "SHELL", s->user.shell);
	if (exec->pty)
		env_default(s, "TERM", m->term && m->term[0] ? m->term : DEFAULT_TERM);
	return 0;
}

static int pipe_to(struct start *s, int child_index, bool child_reads, int *ours,
		   struct start_failure *f)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return fail(f, WERR_START, errno, "making a pipe: %s", strerror(errno));
	s->child_fd[child_index] = fds[child_reads ? 0 : 1];
	*ours = fds[child_reads ? 1 : 0];
	/* Ours alone: programs expect to wait for theirs. */
	if (fcntl(*ours, F_SETFL, O_NONBLOCK) == 0)
		return 0;
	close(*ours);
	return fail(f, WERR_START, errno, "making a pipe: %s", strerror(errno));
}

static int open_terminal(struct start *s, struct exec *exec, const struct wire_exec_start *m,
			 struct start_failure *f)
{
	_cleanup_error_ struct error err = { 0 };
	int master, slave, writer;

	if (pty_open(m->rows, m->cols, s->switch_user ? &s->user : NULL, &master, &slave, &err) < 0)
		return fail(f, WERR_START, errno, "%s", err.message);
	s->child_fd[0] = slave;
	if (output_open(exec, OUTLET_MAIN, master, WIRE_PTY, &err) < 0)
		return fail(f, WERR_START, errno, "%s", err.message);
	writer = fcntl(master, F_DUPFD_CLOEXEC, 3);
	if (writer < 0 || input_open(exec, writer, &err) < 0)
		return fail(f, WERR_START, errno, "a terminal's input");
	return 0;
}

static int open_pipes(struct start *s, struct exec *exec, const struct wire_exec_start *m,
		      struct start_failure *f)
{
	_cleanup_error_ struct error err = { 0 };
	int ours = -1;

	if (m->stdin_mode == WIRE_STDIN_STREAM &&
	    (pipe_to(s, 0, true, &ours, f) < 0 || input_open(exec, ours, &err) < 0))
		return f->code ? -1 : fail(f, WERR_START, errno, "%s", err.message);
	if (pipe_to(s, 1, false, &ours, f) < 0 ||
	    output_open(exec, OUTLET_MAIN, ours, WIRE_STDOUT, &err) < 0)
		return f->code ? -1 : fail(f, WERR_START, errno, "%s", err.message);
	if (pipe_to(s, 2, false, &ours, f) < 0 ||
	    output_open(exec, OUTLET_STDERR, ours, WIRE_STDERR, &err) < 0)
		return f->code ? -1 : fail(f, WERR_START, errno, "%s", err.message);
	return 0;
}

/* What a shell tells apart as 127 and 126, and what is neither. */
static int explain(const struct launch *l, const struct wire_exec_start *m, const char *cwd,
		   struct start_failure *f)
{
	const char *why = strerror(l->failed_errno);

	switch (l->failed_step) {
	case STEP_EXEC:
		if (l->failed_errno == ENOENT || l->failed_errno == ENOTDIR)
			return fail(f, WERR_COMMAND_NOT_FOUND, l->failed_errno, "%.100s: not found",
				    m->argv.v[0]);
		return fail(f, WERR_COMMAND_DENIED, l->failed_errno, "%.100s: %s", m->argv.v[0],
			    why);
	case STEP_CWD:
		return fail(f, WERR_BAD_CWD, l->failed_errno, "working directory %.100s: %s", cwd,
			    why);
	case STEP_USER:
		return fail(f, WERR_BAD_USER, l->failed_errno, "changing the user: %s", why);
	case STEP_ENTER:
		return fail(f, WERR_START, l->failed_errno, "entering the place's limits: %s", why);
	case STEP_FILTER:
		return fail(f, WERR_START, l->failed_errno, "filtering system calls: %s", why);
	case STEP_STOPPED:
		return fail(f, WERR_START, l->failed_errno,
			    "something in the place stopped it before it began, again and again");
	case STEP_LIMITS:
		return fail(f, WERR_START, l->failed_errno, "setting limits: %s", why);
	default:
		return fail(f, WERR_START, l->failed_errno, "starting a process: %s", why);
	}
}

void start_prepare(struct relay *relay)
{
	if (relay->launch_stack)
		return;
	relay->launch_stack = launch_stack_new();
	launch_oom_open(&relay->oom);
}

static int run(struct start *s, struct exec *exec, const struct wire_exec_start *m,
	       struct start_failure *f)
{
	struct relay *relay = exec->relay;
	struct launch l = {
		.argv = (char *const *)(uintptr_t)m->argv.v,
		.envp = (char *const *)(uintptr_t)s->env,
		.path = s->path,
		.root_fd = RELAY_FD_ROOT,
		.cwd = s->cwd,
		.terminal = exec->pty,
		.user = s->switch_user && !FENCE_OFF("relay.wall.payload_uid") ? &s->user : NULL,
		.confine = relay->config.confine && !FENCE_OFF("relay.wall.confine"),
		.limits = &s->open_files,
		.limit_count = relay->config.open_files && !FENCE_OFF("relay.wall.open_files"),
		.enter_fds =
			(const int[]){ RELAY_FD_LIMIT, RELAY_FD_LIMIT + 1, RELAY_FD_LIMIT + 2 },
		.enter_count = FENCE_OFF("relay.wall.limits") ? 0 : relay->config.limit_fds,
		.filter = FENCE_OFF("relay.wall.seccomp") ? NULL : relay->config.seccomp,
		.filter_len = relay->config.seccomp_len,
	};

	l.stdin_fd = s->child_fd[0] >= 0 ? s->child_fd[0] : relay->null_fd;
	l.stdout_fd = exec->pty ? l.stdin_fd : s->child_fd[1];
	l.stderr_fd = s->child_fd[2] >= 0 ? s->child_fd[2] : l.stdout_fd;
	start_prepare(relay);
	l.oom = &relay->oom;
	if (relay->tree->start(exec, &l) < 0)
		return explain(&l, m, s->cwd, f);
	return 0;
}

int start_run(struct exec *exec, const struct wire_exec_start *m, struct start_failure *f)
{
	_cleanup_(start_clear) struct start s = { .child_fd = { -1, -1, -1 } };
	struct relay *relay = exec->relay;

	if (m->argv.count == 0 || m->argv.v[0][0] == 0)
		return fail(f, WERR_INVALID, 0, "there is no command");
	s.open_files = (struct launch_limit){ .resource = RLIMIT_NOFILE,
					      .value = { relay->config.open_files,
							 relay->config.open_files } };
	if (choose_user(&s, relay, m, f) < 0 || build_env(&s, exec, m, f) < 0)
		return -1;
	s.cwd = m->cwd ? path_join(relay->config.cwd, m->cwd) : xstrdup(relay->config.cwd);
	s.path = env_value(&s, "PATH");
	if (exec->pty ? open_terminal(&s, exec, m, f) < 0 : open_pipes(&s, exec, m, f) < 0)
		return -1;
	exec->stdin_credit = WIRE_STDIN_CREDIT;
	if (run(&s, exec, m, f) < 0)
		return -1;
	/* Not of very many at once: descriptors are scarce. */
	if (!exec->pty && relay->exec_count < HOLD_ENDS_OF) {
		output_hold(exec, OUTLET_MAIN, steal_fd(&s.child_fd[1]));
		output_hold(exec, OUTLET_STDERR, steal_fd(&s.child_fd[2]));
	}
	return 0;
}

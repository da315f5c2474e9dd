#include "base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/*
 * While another thread's child stands between its start and its exec, it holds a copy of every
 * descriptor, also of one with which this thread has just written the program: ETXTBSY for a
 * moment.
 */
#define BUSY_RETRIES 40
#define BUSY_PAUSE_MS 5

static const char *path_of(char *const *envp)
{
	for (; envp && *envp; envp++) {
		if (str_starts(*envp, "PATH="))
			return *envp + strlen("PATH=");
	}
	return DEFAULT_PATH;
}

/*
 * 0 when `file`, seen from the directory `at`, is a program we may run, else the errno that tells
 * why. EACCES is kept for a file that is there and lacks the permission: a shell's 126 also after a
 * search of PATH, while directories of PATH that we may not look into count for nothing.
 */
static int why_not_runnable(int at, const char *file)
{
	struct stat st;

	if (fstatat(at, file, &st, 0) < 0)
		return errno == EACCES ? EPERM : errno;
	if (S_ISDIR(st.st_mode))
		return EISDIR;
	if (!S_ISREG(st.st_mode))
		return EPERM;
	return faccessat(at, file, X_OK, AT_EACCESS) < 0 ? errno : 0;
}

static int not_runnable(struct error *err, const char *command, int errnum)
{
	if (errnum == ENOENT) {
		error_set(err, ERR_COMMAND_NOT_FOUND, "%s: command not found", command);
	} else {
		error_errno(err, errnum, "%s: cannot be run", command);
		error_recode(err, ERR_COMMAND_DENIED);
	}
	return -1;
}

/*
 * Which file to execute, relative to `at` unless absolute. We look ourselves instead of letting
 * posix_spawnp do it, because the PATH that counts is the child's, and because afterwards ENOENT
 * could mean anything.
 */
static int find_program(const struct spawn_spec *spec, int at, char **file, struct error *err)
{
	const char *command = spec->argv[0];
	int worst = ENOENT;

	if (strchr(command, '/')) {
		int why = why_not_runnable(at, command);

		if (why)
			return not_runnable(err, command, why);
		*file = xstrdup(command);
		return 0;
	}
	for (const char *dir = path_of(spec->envp);; dir++) {
		size_t len = strcspn(dir, ":");
		/* An empty entry means the working directory, as in every shell. */
		char *candidate = len ? xasprintf("%.*s/%s", (int)len, dir, command)
				      : xasprintf("./%s", command);
		int why = why_not_runnable(at, candidate);

		if (!why) {
			*file = candidate;
			return 0;
		}
		free(candidate);
		if (why == EACCES)
			worst = EACCES;
		dir += len;
		if (!*dir)
			break;
	}
	return not_runnable(err, command, worst);
}

/* The three descriptors of the child; those of them that had to be opened here are in `own`. */
struct stdio {
	int fds[3];
	int own[3];
};

static void stdio_close(struct stdio *io)
{
	for (int i = 0; i < 3; i++)
		close_fdp(&io->own[i]);
}

/* Afterwards no source is the target of another one, so the order of the dup2 does not matter. */
static int stdio_prepare(const struct spawn_spec *spec, struct stdio *io, struct error *err)
{
	const int asked[3] = { spec->stdin_fd, spec->stdout_fd, spec->stderr_fd };

	for (int i = 0; i < 3; i++) {
		io->fds[i] = asked[i];
		if (asked[i] < 0)
			io->own[i] = open("/dev/null", (i ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
		else if (asked[i] < 3 && asked[i] != i)
			io->own[i] = fcntl(asked[i], F_DUPFD_CLOEXEC, 3);
		else
			continue;
		if (io->own[i] < 0)
			return error_errno(err, errno, asked[i] < 0 ? "open /dev/null" : "dup");
		/* Where our own 0..2 are closed, open() hands them out. */
		if (io->own[i] < 3) {
			int high = fcntl(io->own[i], F_DUPFD_CLOEXEC, 3);

			if (high < 0)
				return error_errno(err, errno, "dup");
			close(io->own[i]);
			io->own[i] = high;
		}
		io->fds[i] = io->own[i];
	}
	return 0;
}

static int fill_actions(posix_spawn_file_actions_t *actions, const struct stdio *io, int cwd)
{
	int rc = 0;

	if (cwd >= 0)
		rc = posix_spawn_file_actions_addfchdir_np(actions, cwd);
	for (int i = 0; i < 3 && !rc; i++)
		rc = posix_spawn_file_actions_adddup2(actions, io->fds[i], i);
#ifdef __GLIBC__
	/* Everything we open is close-on-exec; this is for what a library has opened otherwise. */
	if (!rc)
		rc = posix_spawn_file_actions_addclosefrom_np(actions, 3);
#endif
	return rc;
}

static int fill_attributes(posix_spawnattr_t *attr, bool new_session)
{
	short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
	sigset_t all, none;
	int rc;

	if (new_session)
		flags = (short)(flags | POSIX_SPAWN_SETSID);
	/* Not sigfillset: it leaves out the two signals of glibc's own, which would stay ignored.
	 */
	memset(&all, 0xff, sizeof(all));
	sigemptyset(&none);
	rc = posix_spawnattr_setsigdefault(attr, &all);
	if (!rc)
		rc = posix_spawnattr_setsigmask(attr, &none);
	if (!rc)
		rc = posix_spawnattr_setflags(attr, flags);
	return rc;
}

/* Returns 0 or an errno, as posix_spawn does. */
static int start(const struct spawn_spec *spec, const char *file, const struct stdio *io, int cwd,
		 pid_t *pid)
{
	static char *const empty[] = { NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int rc = posix_spawn_file_actions_init(&actions);

	if (rc)
		return rc;
	rc = posix_spawnattr_init(&attr);
	if (rc) {
		posix_spawn_file_actions_destroy(&actions);
		return rc;
	}
	rc = fill_actions(&actions, io, cwd);
	if (!rc)
		rc = fill_attributes(&attr, spec->new_session);
	for (int i = 0; !rc; i++) {
		struct timespec pause = { .tv_nsec = BUSY_PAUSE_MS * 1000000L };

		rc = posix_spawn(pid, file, &actions, &attr, spec->argv,
				 spec->envp ? spec->envp : empty);
		if (rc != ETXTBSY || i == BUSY_RETRIES)
			break;
		nanosleep(&pause, NULL);
		rc = 0;
	}
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return rc;
}

static int open_cwd(const char *cwd, int *fd, struct error *err)
{
	*fd = open(cwd, O_PATH | O_DIRECTORY | O_CLOEXEC);
	/* O_PATH needs no permission on the directory itself, entering it does. */
	if (*fd < 0 || faccessat(*fd, ".", X_OK, AT_EACCESS) < 0) {
		error_errno(err, errno, "working directory %s", cwd);
		return error_recode(err, ERR_EXEC);
	}
	return 0;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

int spawn(const struct spawn_spec *spec, pid_t *pid, int *pidfd, struct error *err)
{
	_cleanup_close_ int cwd = -1;
	_cleanup_free_ char *file = NULL;
	_cleanup_(stdio_close) struct stdio io = { { -1, -1, -1 }, { -1, -1, -1 } };

	*pid = -1;
	if (pidfd)
		*pidfd = -1;
	if (!spec->argv || !spec->argv[0] || !spec->argv[0][0])
		return error_set(err, ERR_COMMAND_NOT_FOUND, "no command given");
	if (spec->cwd && open_cwd(spec->cwd, &cwd, err) < 0)
		return -1;
	if (find_program(spec, cwd >= 0 ? cwd : AT_FDCWD, &file, err) < 0 ||
	    stdio_prepare(spec, &io, err) < 0)
		return -1;

	int rc = start(spec, file, &io, cwd, pid);

	if (rc) {
		*pid = -1;
		if (rc == ENOENT)
			return error_set(err, ERR_COMMAND_NOT_FOUND,
					 "%s: its interpreter is missing", spec->argv[0]);
		if (rc == EACCES || rc == ENOEXEC || rc == EPERM || rc == ELIBBAD)
			return not_runnable(err, spec->argv[0], rc);
		error_errno(err, rc, "start %s", spec->argv[0]);
		return error_recode(err, ERR_EXEC);
	}
	if (!pidfd)
		return 0;
	/* No race: the child stays a zombie until we reap it. */
	*pidfd = (int)syscall(SYS_pidfd_open, *pid, 0);
	if (*pidfd < 0) {
		int errnum = errno;

		end_child(*pid);
		*pid = -1;
		error_errno(err, errnum, "pidfd of %s", spec->argv[0]);
		return error_recode(err, ERR_EXEC);
	}
	return 0;
}

/* State letter and start time out of /proc/<pid>/stat. */
static bool read_stat(pid_t pid, char *state, unsigned long long *start_time)
{
	char path[40], text[1024];

	if (pid <= 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);

	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n <= 0)
		return false;
	text[n] = '\0';

	/* The command's name may hold spaces and parentheses, but nothing after it does. */
	const char *p = strrchr(text, ')');

	if (!p || p[1] != ' ')
		return false;
	*state = p[2];
	/* Behind the parenthesis the state is field 3 and the start time field 22. */
	for (int field = 2; field < 22; field++) {
		p = strchr(p + 1, ' ');
		if (!p)
			return false;
	}
	return sscanf(p, " %llu", start_time) == 1;
}

unsigned long long process_start_time(pid_t pid)
{
	unsigned long long start_time;
	char state;

	return read_stat(pid, &state, &start_time) ? start_time : 0;
}

bool process_is(pid_t pid, unsigned long long start_time)
{
	unsigned long long actual;
	char state;

	return read_stat(pid, &state, &actual) && actual == start_time && state != 'Z' &&
	       state != 'X' && state != 'x';
}

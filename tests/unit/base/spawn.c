#include "tempdir.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/spawn.h"
#include "base/text.h"

#define ARGV(...) ((char *const[]){ __VA_ARGS__, NULL })

/* Starts the command with its output caught, waits for its end; NULL with err when it did not
 * start. */
static char *run(struct spawn_spec spec, int *status, struct error *err)
{
	_cleanup_close_ int pidfd = -1;
	struct buf out = { 0 };
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	spec.stdout_fd = fds[1];
	int rc = spawn(&spec, &pid, &pidfd, err);
	close(fds[1]);
	if (rc < 0) {
		assert_int_equal(pid, -1);
		assert_int_equal(pidfd, -1);
		close(fds[0]);
		return NULL;
	}
	assert_int_equal(fd_read_all(fds[0], &out, 1 << 20, NULL), 0);
	close(fds[0]);

	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, 10000), 1);
	assert_int_equal(waitpid(pid, status, 0), pid);
	return buf_steal(&out);
}

static void assert_prints(struct spawn_spec spec, const char *want)
{
	struct error err = { 0 };
	int status;
	_cleanup_free_ char *out = run(spec, &status, &err);

	assert_string_equal(err.message, "");
	assert_string_equal(out, want);
}

static void assert_refused(struct spawn_spec spec, enum error_code code, const char *named)
{
	_cleanup_error_ struct error err = { 0 };
	int status;
	_cleanup_free_ char *out = run(spec, &status, &err);

	assert_null(out);
	assert_int_equal(err.code, code);
	assert_non_null(strstr(err.message, named));
}

static void the_child_gets_its_environment_and_nothing_of_ours(void **state)
{
	(void)state;
	setenv("BERTH_TEST_SECRET", "x", 1);
	assert_prints((struct spawn_spec){ .argv = ARGV("env"),
					   .envp = ARGV("A=1", "PATH=/usr/bin:/bin"),
					   .stdin_fd = -1,
					   .stderr_fd = 2 },
		      "A=1\nPATH=/usr/bin:/bin\n");
	assert_prints((struct spawn_spec){ .argv = ARGV("env"), .stdin_fd = -1, .stderr_fd = 2 },
		      "");
}

static void the_exit_status_is_the_commands_own(void **state)
{
	(void)state;
	int status;
	_cleanup_free_ char *out = run((struct spawn_spec){ .argv = ARGV("sh", "-c", "exit 37"),
							    .stdin_fd = -1,
							    .stderr_fd = 2 },
				       &status, NULL);

	assert_non_null(out);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 37);
}

static void commands_are_looked_up_in_the_childs_path(void **state)
{
	struct tempdir *t = *state;
	_cleanup_free_ char *path = xasprintf("PATH=/nonexistent:%s/bin:/bin", t->path);
	struct spawn_spec spec = { .argv = ARGV("tool"), .envp = ARGV(path), .stdin_fd = -1 };

	assert_int_equal(dir_make(t->fd, "bin", 0755, NULL), 0);
	assert_refused(spec, ERR_COMMAND_NOT_FOUND, "tool");
	write_file_at(t->fd, "bin/tool", "#!/bin/sh\necho ours\n", 0644);
	assert_refused(spec, ERR_COMMAND_DENIED, "tool");
	assert_int_equal(fchmodat(t->fd, "bin/tool", 0755, 0), 0);
	assert_prints(spec, "ours\n");
}

static void a_folder_of_that_name_does_not_hide_the_command(void **state)
{
	struct tempdir *t = *state;
	_cleanup_free_ char *path = xasprintf("PATH=%s/a:%s/b", t->path, t->path);
	struct spawn_spec spec = { .argv = ARGV("tool"), .envp = ARGV(path), .stdin_fd = -1 };

	assert_int_equal(dir_make(t->fd, "a/tool", 0755, NULL), 0);
	assert_refused(spec, ERR_COMMAND_NOT_FOUND, "tool");
	assert_int_equal(dir_make(t->fd, "b", 0755, NULL), 0);
	write_file_at(t->fd, "b/tool", "#!/bin/sh\necho b\n", 0755);
	assert_prints(spec, "b\n");
}

static void relative_names_are_seen_from_the_working_directory(void **state)
{
	struct tempdir *t = *state;
	_cleanup_free_ char *want = xasprintf("%s\n", t->path);

	write_file_at(t->fd, "here", "#!/bin/sh\npwd\n", 0755);
	assert_prints((struct spawn_spec){ .argv = ARGV("./here"), .cwd = t->path, .stdin_fd = -1 },
		      want);
	assert_prints((struct spawn_spec){ .argv = ARGV("here"),
					   .envp = ARGV("PATH=.:/bin"),
					   .cwd = t->path,
					   .stdin_fd = -1 },
		      want);
	assert_prints((struct spawn_spec){ .argv = ARGV("here"),
					   .envp = ARGV("PATH=:/bin"),
					   .cwd = t->path,
					   .stdin_fd = -1 },
		      want);
	assert_refused((struct spawn_spec){ .argv = ARGV("./here"), .stdin_fd = -1 },
		       ERR_COMMAND_NOT_FOUND, "./here");
}

static void not_found_and_not_executable_are_told_apart(void **state)
{
	struct tempdir *t = *state;
	_cleanup_free_ char *plain = path_join(t->path, "plain");
	_cleanup_free_ char *orphan = path_join(t->path, "orphan");
	_cleanup_free_ char *garbage = path_join(t->path, "garbage");
	_cleanup_free_ char *below = path_join(plain, "below");

	write_file_at(t->fd, "plain", "text", 0644);
	write_file_at(t->fd, "orphan", "#!/nonexistent/interpreter\n", 0755);
	write_file_at(t->fd, "garbage",
		      "\x7f"
		      "ELFnot",
		      0755);
	assert_refused((struct spawn_spec){ .argv = ARGV("/nonexistent/x"), .stdin_fd = -1 },
		       ERR_COMMAND_NOT_FOUND, "/nonexistent/x");
	assert_refused((struct spawn_spec){ .argv = ARGV(""), .stdin_fd = -1 },
		       ERR_COMMAND_NOT_FOUND, "no command");
	assert_refused((struct spawn_spec){ .argv = ARGV(plain), .stdin_fd = -1 },
		       ERR_COMMAND_DENIED, "plain");
	assert_refused((struct spawn_spec){ .argv = ARGV(t->path), .stdin_fd = -1 },
		       ERR_COMMAND_DENIED, "directory");
	assert_refused((struct spawn_spec){ .argv = ARGV(below), .stdin_fd = -1 },
		       ERR_COMMAND_DENIED, "below");
	assert_refused((struct spawn_spec){ .argv = ARGV(garbage), .stdin_fd = -1 },
		       ERR_COMMAND_DENIED, "garbage");
	assert_refused((struct spawn_spec){ .argv = ARGV(orphan), .stdin_fd = -1 },
		       ERR_COMMAND_NOT_FOUND, "interpreter");
}

static void a_missing_working_directory_is_named(void **state)
{
	struct tempdir *t = *state;
	_cleanup_free_ char *file = path_join(t->path, "file");

	write_file_at(t->fd, "file", "", 0644);
	assert_refused((struct spawn_spec){ .argv = ARGV("true"), .cwd = "/nonexistent/dir" },
		       ERR_EXEC, "/nonexistent/dir");
	assert_refused((struct spawn_spec){ .argv = ARGV("true"), .cwd = file }, ERR_EXEC, file);
}

static void the_child_has_three_descriptors_and_no_more(void **state)
{
	(void)state;
	/* Not close-on-exec on purpose: what a careless library would leave open. */
	int leak = open("/dev/null", O_RDONLY);
	int high = fcntl(leak, F_DUPFD, 50);

	_cleanup_free_ char *script = xasprintf("for i in 0 1 2 %d %d; do "
						"[ -e /proc/$$/fd/$i ] && echo $i; done",
						leak, high);

	assert_prints((struct spawn_spec){ .argv = ARGV("sh", "-c", script),
					   .stdin_fd = -1,
					   .stderr_fd = -1 },
		      "0\n1\n2\n");
	close(leak);
	close(high);
}

static void minus_one_means_dev_null(void **state)
{
	(void)state;
	assert_prints(
		(struct spawn_spec){
			.argv = ARGV("sh", "-c", "cat; readlink /proc/$$/fd/0 /proc/$$/fd/2"),
			.stdin_fd = -1,
			.stderr_fd = -1 },
		"/dev/null\n/dev/null\n");
}

/* In a child, as it plays with its own 0, 1 and 2; prints what arrived into the file "out". */
static int swap_standard_descriptors(struct tempdir *t)
{
	int out = openat(t->fd, "out", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int err = openat(t->fd, "err", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct spawn_spec spec = { .argv = ARGV("sh", "-c", "echo to-out; echo to-err >&2"),
				   .stdin_fd = -1,
				   .stdout_fd = 2,
				   .stderr_fd = 1 };
	int status;
	pid_t pid;

	dup2(err, 1);
	dup2(out, 2);
	close(0);
	if (spawn(&spec, &pid, NULL, NULL) < 0 || waitpid(pid, &status, 0) != pid || status)
		return 1;
	return 0;
}

static void descriptors_may_trade_places(void **state)
{
	struct tempdir *t = *state;
	_cleanup_buf_ struct buf out = { 0 }, err = { 0 };
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(swap_standard_descriptors(t));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(file_read(t->fd, "out", &out, 100, NULL), 0);
	assert_int_equal(file_read(t->fd, "err", &err, 100, NULL), 0);
	assert_string_equal(buf_str(&out), "to-out\n");
	assert_string_equal(buf_str(&err), "to-err\n");
}

static void signals_are_as_a_fresh_program_expects_them(void **state)
{
	(void)state;
	sigset_t set, old;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	sigfillset(&set);
	pthread_sigmask(SIG_BLOCK, &set, &old);
	assert_prints((struct spawn_spec){ .argv = ARGV("grep", "-E", "^Sig(Blk|Ign)",
							"/proc/self/status"),
					   .stdin_fd = -1,
					   .stderr_fd = -1 },
		      "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGINT, SIG_DFL);
}

static void a_new_session_is_led_by_the_child(void **state)
{
	(void)state;
	int status;
	struct spawn_spec spec = { .argv = ARGV("sh", "-c", "cut -d' ' -f1,6 /proc/$$/stat"),
				   .stdin_fd = -1,
				   .stderr_fd = 2,
				   .new_session = true };
	_cleanup_free_ char *out = run(spec, &status, NULL);
	int pid, session;

	assert_int_equal(sscanf(out, "%d %d", &pid, &session), 2);
	assert_int_equal(session, pid);
	spec.new_session = false;

	_cleanup_free_ char *same = run(spec, &status, NULL);

	assert_int_equal(sscanf(same, "%d %d", &pid, &session), 2);
	assert_int_equal(session, getsid(0));
}

static void a_process_is_known_by_pid_and_start_time(void **state)
{
	(void)state;
	struct spawn_spec spec = {
		.argv = ARGV("sleep", "60"), .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1
	};
	_cleanup_close_ int pidfd = -1;
	pid_t pid;

	assert_int_equal(spawn(&spec, &pid, &pidfd, NULL), 0);

	unsigned long long started = process_start_time(pid);

	assert_true(started > 0);
	assert_true(process_is(pid, started));
	assert_false(process_is(pid, started + 1));

	kill(pid, SIGKILL);

	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, 10000), 1);
	/* A zombie still has its time, but it is nobody any more. */
	assert_true(process_start_time(pid) == started);
	assert_false(process_is(pid, started));
	waitpid(pid, NULL, 0);
	assert_true(process_start_time(pid) == 0);
	assert_false(process_is(pid, started));
	assert_false(process_is(0, 0));
	assert_false(process_is(-1, 0));
}

static void a_name_full_of_brackets_does_not_hide_the_start_time(void **state)
{
	struct tempdir *t = *state;
	_cleanup_free_ char *command = path_join(t->path, ") R 1 (x");
	struct spawn_spec spec = {
		.argv = ARGV(command, "60"), .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1
	};
	pid_t pid;

	assert_int_equal(symlinkat("/bin/sleep", t->fd, ") R 1 (x"), 0);

	unsigned long long before = process_start_time(getpid());

	assert_int_equal(spawn(&spec, &pid, NULL, NULL), 0);
	assert_true(process_start_time(pid) >= before);
	assert_true(process_is(pid, process_start_time(pid)));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void a_program_that_stays_open_for_writing_is_an_error(void **state)
{
	struct tempdir *t = *state;
	_cleanup_free_ char *path = path_join(t->path, "busy");
	_cleanup_error_ struct error err = { 0 };
	struct spawn_spec spec = { .argv = ARGV(path), .stdin_fd = -1 };
	int status;

	write_file_at(t->fd, "busy", "#!/bin/sh\necho ran\n", 0755);

	_cleanup_close_ int writer = openat(t->fd, "busy", O_WRONLY | O_CLOEXEC);
	assert_true(writer >= 0);
	_cleanup_free_ char *out = run(spec, &status, &err);

	assert_null(out);
	assert_int_equal(err.code, ERR_EXEC);
	assert_int_equal(err.errnum, ETXTBSY);
}

static void *close_soon(void *fd)
{
	struct timespec pause = { .tv_nsec = 20000000 };

	nanosleep(&pause, NULL);
	close(*(int *)fd);
	return NULL;
}

static void a_program_written_a_moment_ago_is_waited_for(void **state)
{
	struct tempdir *t = *state;
	_cleanup_free_ char *path = path_join(t->path, "busy");
	pthread_t closer;

	write_file_at(t->fd, "busy", "#!/bin/sh\necho ran\n", 0755);

	int writer = openat(t->fd, "busy", O_WRONLY | O_CLOEXEC);

	assert_int_equal(pthread_create(&closer, NULL, close_soon, &writer), 0);
	assert_prints((struct spawn_spec){ .argv = ARGV(path), .stdin_fd = -1 }, "ran\n");
	pthread_join(closer, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_child_gets_its_environment_and_nothing_of_ours),
		cmocka_unit_test(the_exit_status_is_the_commands_own),
		with_tempdir(commands_are_looked_up_in_the_childs_path),
		with_tempdir(a_folder_of_that_name_does_not_hide_the_command),
		with_tempdir(relative_names_are_seen_from_the_working_directory),
		with_tempdir(not_found_and_not_executable_are_told_apart),
		with_tempdir(a_missing_working_directory_is_named),
		cmocka_unit_test(the_child_has_three_descriptors_and_no_more),
		cmocka_unit_test(minus_one_means_dev_null),
		with_tempdir(descriptors_may_trade_places),
		cmocka_unit_test(signals_are_as_a_fresh_program_expects_them),
		cmocka_unit_test(a_new_session_is_led_by_the_child),
		cmocka_unit_test(a_process_is_known_by_pid_and_start_time),
		with_tempdir(a_name_full_of_brackets_does_not_hide_the_start_time),
		with_tempdir(a_program_that_stays_open_for_writing_is_an_error),
		with_tempdir(a_program_written_a_moment_ago_is_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "execs.h"
#include <sys/prctl.h>
#include "channel/proc.h"

/* A daemon as daemons are made: forked twice, in a session of its own; its number goes to `pid`. */
#define DAEMON "setsid sh -c 'echo $$ > pid.tmp; mv pid.tmp pid; exec sleep 1000' & "

static pid_t wait_for_pid(struct execs *t, const char *file)
{
	wait_until(pid_in(t, file) != 0);

	pid_t pid = pid_in(t, file);

	assert_true(is_alive(pid));
	return pid;
}

static void a_grandchild_holding_the_pipes_does_not_hold_the_exec(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, SHELL_COMMAND("sleep 1000 & echo $! > pid; echo hi; exit 4"));
	run(t, &g);
	assert_int_equal(g.result.reason, EXEC_EXITED);
	assert_int_equal(g.result.exit_code, 4);
	assert_true(g.result.duration_ms < PATIENCE_MS);
	expect_output(t, &g, RUNLOG_STDOUT, "hi\n");
	assert_false(is_alive(pid_in(t, "pid")));
}

static void a_daemon_ends_with_its_command(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g,
		SHELL_COMMAND("(" DAEMON ") >/dev/null 2>&1 </dev/null; "
			      "while [ ! -e pid ]; do sleep 0.01; done"));
	run(t, &g);
	assert_int_equal(g.result.exit_code, 0);
	assert_true(pid_in(t, "pid") > 0);
	assert_false(is_alive(pid_in(t, "pid")));
	assert_int_equal(executor_strays(t->executor, NULL, 0), 0);
}

static void a_timeout_ends_the_whole_tree_and_no_other(void **state)
{
	struct execs *t = *state;
	struct going other, g;

	prepare(t, &other, SHELL_COMMAND("setsid sleep 1000 & echo $! > other; sleep 1000"));
	start_in_thread(t, &other);

	pid_t bystander = wait_for_pid(t, "other");

	prepare(t, &g, SHELL_COMMAND("(" DAEMON "); sleep 1000"));
	g.spec.timeout_ms = 300;
	start_in_thread(t, &g);
	wait_for_pid(t, "pid");
	join(&g);
	assert_int_equal(g.result.reason, EXEC_TIMEOUT);
	assert_string_equal(g.result.signal, "SIGTERM");
	assert_true(g.result.duration_ms >= 300);
	assert_false(is_alive(pid_in(t, "pid")));
	assert_true(is_alive(bystander));
	executor_cancel(t->executor, other.id, EXEC_LEASE_LOST);
	join(&other);
	assert_int_equal(other.result.reason, EXEC_LEASE_LOST);
	assert_false(is_alive(bystander));
}

static void a_cancel_ends_the_whole_tree_and_says_why(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, SHELL_COMMAND("(" DAEMON "); sleep 1000"));
	start_in_thread(t, &g);

	pid_t daemon = wait_for_pid(t, "pid");

	executor_cancel(t->executor, g.id, EXEC_LEASE_LOST);
	executor_cancel(t->executor, g.id, EXEC_CANCELLED);
	executor_cancel(t->executor, "nobody", EXEC_CANCELLED);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_LEASE_LOST);
	assert_int_equal(g.result.exit_code, -1);
	assert_false(is_alive(daemon));
	/* Nothing of the tree was left, so nobody had to wait for the grace to pass. */
	assert_true(g.result.duration_ms < 4000);
}

static void last_words_are_kept(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g,
		SHELL_COMMAND("trap 'echo bye; exit 3' TERM; echo $$ > pid; "
			      "while :; do sleep 0.01; done"));
	start_in_thread(t, &g);
	wait_for_pid(t, "pid");
	executor_cancel(t->executor, g.id, EXEC_CANCELLED);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_CANCELLED);
	assert_int_equal(g.result.exit_code, 3);
	expect_output(t, &g, RUNLOG_STDOUT, "bye\n");
}

static void a_tree_that_ignores_term_is_killed(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g,
		SHELL_COMMAND("trap '' TERM; (setsid sh -c 'echo $$ > pid; "
			      "while :; do sleep 1; done' &); while :; do sleep 1; done"));
	start_in_thread(t, &g);

	pid_t daemon = wait_for_pid(t, "pid");

	/* The grace given first is five seconds; a place that must stop sooner shortens it. */
	executor_cancel(t->executor, g.id, EXEC_CANCELLED);
	executor_stop_place(t->executor, PLACE, EXEC_LEASE_LOST, 400, NULL);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_CANCELLED);
	assert_string_equal(g.result.signal, "SIGKILL");
	assert_true(g.result.duration_ms < 5000);
	assert_false(is_alive(daemon));
}

static void a_stopped_tree_ends_too(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, SHELL_COMMAND("sleep 1000 & kill -STOP $!; echo $! > pid; kill -STOP $$"));
	start_in_thread(t, &g);
	wait_for_pid(t, "pid");
	executor_stop_place(t->executor, PLACE, EXEC_CANCELLED, 200, NULL);
	join(&g);
	assert_false(is_alive(pid_in(t, "pid")));
}

static char *self_path(void)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	assert_true(n > 0);
	path[n] = '\0';
	return xstrdup(path);
}

#define CHAIN_LENGTH 5000

/*
 * Each process forks the next one, in a new session, and ends: never two, never the same. The size
 * of `beat` tells how many there were. Should nobody end it, it ends with the test's directory.
 */
static int be_a_chain(void)
{
	int beat = open("beat", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	if (fork() != 0)
		for (;;)
			pause();
	for (int i = 0; i < CHAIN_LENGTH && access("tether", F_OK) == 0; i++) {
		if (fork() != 0)
			_exit(0);
		setsid();
		if (write(beat, "x", 1) != 1)
			return 1;
	}
	return 0;
}

/* Eight processes, each of which replaces every child it loses; the file `wide` says it is there.
 */
static _Noreturn void be_a_spread(void)
{
	int keep = 8;

	for (int i = 0; i < keep; i++) {
		if (fork() == 0) {
			setpgid(0, 0);
			alarm(30);
			for (;;) {
				if (fork() == 0)
					for (;;)
						pause();
				wait(NULL);
			}
		}
	}
	close(open("wide", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	for (;;)
		wait(NULL);
}

static off_t beats(struct execs *t)
{
	struct stat st;

	return fstatat(t->dir->fd, "beat", &st, 0) == 0 ? st.st_size : 0;
}

static void a_chain_of_short_lived_daemons_is_caught(void **state)
{
	struct execs *t = *state;
	_cleanup_free_ char *self = self_path();
	struct going g;

	write_file_at(t->dir->fd, "tether", "", 0600);
	prepare(t, &g, COMMAND(self, (char *)"chain"));
	start_in_thread(t, &g);
	wait_until(beats(t) > 50);
	/* Only shortens the grace: how long the chase takes depends on what else runs here. */
	executor_stop_place(t->executor, PLACE, EXEC_CANCELLED, 200, NULL);
	join(&g);

	off_t last = beats(t);

	assert_true(last < CHAIN_LENGTH);
	/* Many steps long, were it still going. */
	poll(NULL, 0, 100);
	assert_int_equal(beats(t), last);
}

static void a_tree_that_grows_back_is_ended(void **state)
{
	struct execs *t = *state;
	_cleanup_free_ char *self = self_path();
	struct going g;

	prepare(t, &g, COMMAND(self, (char *)"spread"));
	start_in_thread(t, &g);
	wait_until(exists_at(t->dir->fd, "wide"));
	executor_stop_place(t->executor, PLACE, EXEC_CANCELLED, 200, NULL);
	join(&g);
	assert_int_equal(executor_strays(t->executor, NULL, 0), 0);
}

static size_t dead_children(void)
{
	_cleanup_procs_ struct proc_list all = { 0 };
	size_t count = 0;

	proc_list_all(&all);
	for (size_t i = 0; i < all.count; i++)
		count += all.items[i].dead && all.items[i].parent == getpid();
	return count;
}

static void nothing_of_an_ended_tree_stays_a_zombie(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g,
		SHELL_COMMAND("(" DAEMON "); sleep 1000 & while [ ! -e pid ]; do "
			      "sleep 0.01; done"));
	run(t, &g);
	assert_int_equal(dead_children(), 0);
}

static void orphans_that_die_by_themselves_are_reaped_in_time(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, SHELL_COMMAND("(setsid true &); (setsid true &); sleep 1000"));
	start_in_thread(t, &g);
	wait_until(dead_children() == 2);
	wait_until(dead_children() == 0);
	executor_cancel(t->executor, g.id, EXEC_CANCELLED);
	join(&g);
}

static void a_child_of_others_is_left_to_them(void **state)
{
	struct execs *t = *state;
	struct spawn_spec spec = {
		.argv = COMMAND((char *)"true"), .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1
	};
	struct going g;
	pid_t pid;
	int pidfd, status;

	assert_int_equal(spawn(&spec, &pid, &pidfd, NULL), 0);
	close(pidfd);
	/* Long enough for three sweeps. */
	prepare(t, &g, SHELL_COMMAND("sleep 3"));
	run(t, &g);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* As an earlier server would have started it. */
static pid_t start_marked(struct execs *t, const char *owner, const char *id, const char *script)
{
	_cleanup_free_ char *owner_mark = xasprintf("BERTH_OWNER=%s", owner);
	_cleanup_free_ char *id_mark = xasprintf("BERTH_EXEC_ID=%s", id);
	char *const env[] = { owner_mark, id_mark, NULL };
	struct spawn_spec spec = { .argv = SHELL_COMMAND(script),
				   .envp = env,
				   .cwd = t->dir->path,
				   .stdin_fd = -1,
				   .stdout_fd = -1,
				   .stderr_fd = -1,
				   .new_session = true };
	pid_t pid;
	int pidfd;

	assert_int_equal(spawn(&spec, &pid, &pidfd, NULL), 0);
	close(pidfd);
	return pid;
}

static void kill_and_reap(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void what_an_earlier_server_left_is_ended_and_nothing_else(void **state)
{
	struct execs *t = *state;
	pid_t left = start_marked(t, t->owner, "run-1", "(" DAEMON "); exec sleep 1000");
	pid_t other = start_marked(t, t->owner, "run-2", "exec sleep 1000");
	pid_t foreign = start_marked(t, "another-node", "run-1", "exec sleep 1000");
	pid_t daemon = wait_for_pid(t, "pid");

	assert_int_equal(exec_reap_leftover(t->owner, "run-1", left, process_start_time(left)), 2);
	assert_false(is_alive(left));
	assert_false(is_alive(daemon));
	assert_true(is_alive(other));
	assert_true(is_alive(foreign));
	assert_int_equal(exec_reap_leftover(t->owner, "run-1", left, 1), 0);
	kill_and_reap(left);
	kill_and_reap(other);
	kill_and_reap(foreign);
}

static void a_leftover_is_found_by_its_mark_when_its_number_was_never_recorded(void **state)
{
	struct execs *t = *state;
	pid_t left = start_marked(t, t->owner, "run-1", "exec sleep 1000");

	assert_int_equal(exec_reap_leftover(t->owner, "run-1", 0, 0), 1);
	assert_false(is_alive(left));
}

static void a_number_that_is_somebody_elses_by_now_is_left_alone(void **state)
{
	struct execs *t = *state;
	pid_t stranger = start_marked(t, "", "", "exec sleep 1000");

	assert_int_equal(
		exec_reap_leftover(t->owner, "run-1", stranger, process_start_time(stranger) + 1),
		0);
	assert_true(is_alive(stranger));
	kill_and_reap(stranger);
}

static void strays_are_ours_that_no_exec_explains(void **state)
{
	struct execs *t = *state;
	pid_t stray, found[4];
	struct going g;

	prepare(t, &g, SHELL_COMMAND("echo $$ > pid; sleep 1000"));
	start_in_thread(t, &g);
	wait_for_pid(t, "pid");
	assert_int_equal(executor_strays(t->executor, found, ARRAY_SIZE(found)), 0);
	stray = start_marked(t, t->owner, "forgotten", "exec sleep 1000");
	wait_until(executor_strays(t->executor, found, ARRAY_SIZE(found)) == 1);
	assert_int_equal(found[0], stray);
	kill_and_reap(stray);
	executor_cancel(t->executor, g.id, EXEC_CANCELLED);
	join(&g);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		with_execs(a_grandchild_holding_the_pipes_does_not_hold_the_exec),
		with_execs(a_daemon_ends_with_its_command),
		with_execs(a_timeout_ends_the_whole_tree_and_no_other),
		with_execs(a_cancel_ends_the_whole_tree_and_says_why),
		with_execs(last_words_are_kept),
		with_execs(a_tree_that_ignores_term_is_killed),
		with_execs(a_stopped_tree_ends_too),
		with_execs(nothing_of_an_ended_tree_stays_a_zombie),
		with_execs(orphans_that_die_by_themselves_are_reaped_in_time),
		with_execs(a_child_of_others_is_left_to_them),
		with_execs(what_an_earlier_server_left_is_ended_and_nothing_else),
		with_execs(a_leftover_is_found_by_its_mark_when_its_number_was_never_recorded),
		with_execs(a_number_that_is_somebody_elses_by_now_is_left_alone),
		with_execs(strays_are_ours_that_no_exec_explains),
		with_execs(a_tree_that_grows_back_is_ended),
		with_execs(a_chain_of_short_lived_daemons_is_caught),
	};

	if (argc == 2 && streq(argv[1], "chain"))
		return be_a_chain();
	if (argc == 2 && streq(argv[1], "spread"))
		be_a_spread();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "execs.h"
#include "base/fault.h"

static void a_place_nobody_opened_takes_no_command(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.place_id = "unknown";
	expect_refused(t, &g, ERR_LEASE_ENDED);
}

static void a_command_of_another_generation_is_refused(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.generation = GENERATION - 1;
	expect_refused(t, &g, ERR_STALE_GENERATION);
	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.generation = GENERATION + 1;
	expect_refused(t, &g, ERR_STALE_GENERATION);
	executor_open_place(t->executor, PLACE, GENERATION + 1);
	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.generation = GENERATION + 1;
	run(t, &g);
}

static void without_the_fence_a_stale_command_gets_in(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.generation = GENERATION - 1;
	assert_int_equal(fault_init("exec.fence:skip", NULL), 0);
	run(t, &g);
	assert_int_equal(fault_init(NULL, NULL), 0);
}

static void a_stopped_place_ends_its_commands_and_takes_no_more(void **state)
{
	struct execs *t = *state;
	struct going g[3], late;

	for (size_t i = 0; i < ARRAY_SIZE(g); i++) {
		prepare(t, &g[i], SHELL_COMMAND("exec sleep 1000"));
		start_in_thread(t, &g[i]);
	}
	assert_int_equal(
		executor_stop_place(t->executor, PLACE, EXEC_LEASE_LOST, PATIENCE_MS, NULL), 0);
	assert_int_equal(executor_strays(t->executor, NULL, 0), 0);
	for (size_t i = 0; i < ARRAY_SIZE(g); i++) {
		join(&g[i]);
		assert_int_equal(g[i].result.reason, EXEC_LEASE_LOST);
	}
	prepare(t, &late, COMMAND((char *)"true"));
	expect_refused(t, &late, ERR_LEASE_ENDED);
	assert_int_equal(executor_stop_place(t->executor, PLACE, EXEC_LEASE_LOST, 0, NULL), 0);
}

static void stopping_one_place_leaves_the_others(void **state)
{
	struct execs *t = *state;
	struct going here, there;

	executor_open_place(t->executor, "elsewhere", 1);
	prepare(t, &here, SHELL_COMMAND("exec sleep 1000"));
	start_in_thread(t, &here);
	prepare(t, &there, SHELL_COMMAND("exec sleep 1000"));
	there.spec.place_id = "elsewhere";
	there.spec.generation = 1;
	start_in_thread(t, &there);
	assert_int_equal(executor_stop_place(t->executor, PLACE, EXEC_CANCELLED, PATIENCE_MS, NULL),
			 0);
	join(&here);
	prepare(t, &here, COMMAND((char *)"true"));
	here.spec.place_id = "elsewhere";
	here.spec.generation = 1;
	run(t, &here);
	assert_int_equal(
		executor_stop_place(t->executor, "elsewhere", EXEC_LEASE_LOST, PATIENCE_MS, NULL),
		0);
	join(&there);
	assert_int_equal(there.result.reason, EXEC_LEASE_LOST);
}

static void a_place_is_busy_while_a_command_runs_there(void **state)
{
	struct execs *t = *state;
	struct going g;

	assert_false(executor_place_busy(t->executor, PLACE));
	prepare(t, &g, SHELL_COMMAND("exec sleep 1000"));
	start_in_thread(t, &g);
	assert_true(executor_place_busy(t->executor, PLACE));
	assert_false(executor_place_busy(t->executor, "elsewhere"));
	executor_cancel(t->executor, g.id, EXEC_CANCELLED);
	join(&g);
	assert_false(executor_place_busy(t->executor, PLACE));
}

static void a_place_that_does_not_stop_in_time_says_so(void **state)
{
	struct execs *t = *state;
	_cleanup_error_ struct error err = { 0 };
	struct going g;

	prepare(t, &g, SHELL_COMMAND("exec sleep 1000"));
	start(t, &g);
	/* Nobody waits for it yet, so nobody can end it. */
	assert_int_equal(executor_stop_place(t->executor, PLACE, EXEC_CANCELLED, 20, &err), -1);
	assert_int_equal(err.code, ERR_TIMEOUT);
	wait_in_thread(&g);
	assert_int_equal(g.rc, 0);
	assert_int_equal(g.result.reason, EXEC_CANCELLED);
}

static void an_executor_ends_what_nobody_waited_for(void **state)
{
	struct execs *t = *state;
	struct going g;
	pid_t pid;

	prepare(t, &g, SHELL_COMMAND("exec sleep 1000"));
	start(t, &g);
	pid = exec_pid(g.exec);
	assert_true(is_alive(pid));
	executor_free(t->executor);
	assert_false(is_alive(pid));
	runlog_close(g.log);
	assert_int_equal(executor_new(&t->clock, t->owner, &t->executor, NULL), 0);
}

static void deadlines_follow_the_clock_that_was_given(void **state)
{
	struct execs *t = *state;
	struct fake_clock fake;
	struct executor *executor;
	struct going g;

	clock_init_fake(&fake, 1000000);
	assert_int_equal(executor_new(&fake.clock, t->owner, &executor, NULL), 0);
	executor_open_place(executor, PLACE, GENERATION);
	prepare(t, &g, SHELL_COMMAND("exec sleep 1000"));
	g.spec.timeout_ms = 3600000;
	assert_int_equal(exec_start(executor, &g.spec, &g.exec, NULL), 0);
	assert_int_equal(pthread_create(&g.thread, NULL, wait_in_thread, &g), 0);
	clock_fake_advance(&fake, 3600000);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_TIMEOUT);
	assert_int_equal(g.result.duration_ms, 3600000);
	executor_free(executor);
}

static void an_executor_without_an_owner_is_refused(void **state)
{
	struct execs *t = *state;
	struct executor *executor;

	assert_int_equal(executor_new(&t->clock, "", &executor, NULL), -1);
	assert_int_equal(executor_new(&t->clock, NULL, &executor, NULL), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_execs(a_place_nobody_opened_takes_no_command),
		with_execs(a_command_of_another_generation_is_refused),
		with_execs(without_the_fence_a_stale_command_gets_in),
		with_execs(a_stopped_place_ends_its_commands_and_takes_no_more),
		with_execs(stopping_one_place_leaves_the_others),
		with_execs(a_place_is_busy_while_a_command_runs_there),
		with_execs(a_place_that_does_not_stop_in_time_says_so),
		with_execs(an_executor_ends_what_nobody_waited_for),
		with_execs(deadlines_follow_the_clock_that_was_given),
		with_execs(an_executor_without_an_owner_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "tempdir.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/spawn.h"
#include "base/text.h"

FAULT_POINT_REGISTER(before, "test.write:before");
FAULT_POINT_REGISTER(after, "test.write:after");
FAULT_POINT_REGISTER(after_twin, "test.write:after");
FAULT_FENCE_REGISTER(fence, "test.fence");

static int disarm(void **state)
{
	(void)state;
	return fault_init(NULL, NULL);
}

static void nothing_happens_unless_armed(void **state)
{
	(void)state;
	assert_int_equal(fault_init("", NULL), 0);
	assert_int_equal(fault_hit(&before, NULL), 0);
	assert_int_equal(fault_hit(&after, NULL), 0);
	assert_false(fault_skips(&fence));
}

static void an_armed_point_fails_and_the_others_do_not(void **state)
{
	(void)state;
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(fault_init("test.write:after:error", NULL), 0);
	assert_int_equal(fault_hit(&before, &err), 0);
	assert_int_equal(fault_hit(&after, &err), -1);
	assert_int_equal(err.code, ERR_FAULT);
	assert_non_null(strstr(err.message, "test.write:after"));
	assert_int_equal(fault_hit(&after_twin, NULL), -1);
	assert_int_equal(fault_init(NULL, NULL), 0);
	assert_int_equal(fault_hit(&after, &err), 0);
}

static void a_number_picks_one_hit(void **state)
{
	(void)state;
	assert_int_equal(fault_init("test.write:before@2:error,test.write:before@4:error", NULL),
			 0);
	assert_int_equal(fault_hit(&before, NULL), 0);
	assert_int_equal(fault_hit(&before, NULL), -1);
	assert_int_equal(fault_hit(&before, NULL), 0);
	assert_int_equal(fault_hit(&before, NULL), -1);
	assert_int_equal(fault_hit(&before, NULL), 0);
}

static void a_fence_is_left_out_only_by_skip(void **state)
{
	(void)state;
	assert_int_equal(fault_init("test.fence:skip", NULL), 0);
	assert_true(fault_skips(&fence));
	assert_true(fault_skips(&fence));
	assert_int_equal(fault_hit(&before, NULL), 0);
	assert_int_equal(fault_init("test.inline.fence:skip", NULL), 0);
	assert_true(FENCE_OFF("test.inline.fence"));
	assert_false(fault_skips(&fence));
}

static void a_point_may_stand_inside_a_function(void **state)
{
	(void)state;
	assert_int_equal(fault_init("test.inline:error", NULL), 0);
	assert_int_equal(FAULT_HERE("test.inline", NULL), -1);
}

static void a_plan_that_cannot_work_is_refused(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"test.write:nowhere:error",
		"test.write:before",
		":error",
		"error",
		",",
		"test.write:before:explode",
		"test.write:before@0:error",
		"test.write:before@x:error",
		"test.write:before@:error",
		"test.write:before:skip",
		"test.fence:error",
		"test.write:before:error,",
		"test.write:before:error,bogus:kill",
	};
	_cleanup_error_ struct error err = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		error_clear(&err);
		assert_int_equal(fault_init(bad[i], &err), -1);
		assert_int_equal(err.code, ERR_VALIDATION);
		/* Half a plan is no plan. */
		assert_int_equal(fault_hit(&before, NULL), 0);
	}

	_cleanup_buf_ struct buf many = { 0 };

	for (int i = 0; i < 300; i++)
		buf_printf(&many, "%stest.write:before@%d:error", i ? "," : "", i + 1);
	assert_int_equal(fault_init(buf_str(&many), &err), -1);
}

static void the_points_are_listed_sorted_and_once(void **state)
{
	(void)state;
	size_t ours = 0;

	for (size_t i = 0; i < fault_count(); i++) {
		if (i)
			assert_true(strcmp(fault_name(i - 1), fault_name(i)) < 0);
		if (!str_starts(fault_name(i), "test."))
			continue;
		ours++;
		assert_int_equal(fault_is_fence(i), str_ends(fault_name(i), "fence"));
	}
	assert_int_equal(ours, 5);
	assert_null(fault_name(fault_count()));
}

static void kill_ends_the_process_at_the_point(void **state)
{
	(void)state;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		fault_init("test.write:before:kill", NULL);
		fault_hit(&before, NULL);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
}

static void hang_holds_the_caller(void **state)
{
	(void)state;
	int fds[2], status;

	assert_int_equal(pipe(fds), 0);

	pid_t pid = fork();

	if (pid == 0) {
		fault_init("test.write:before:hang", NULL);
		if (write(fds[1], "a", 1) != 1)
			_exit(1);
		fault_hit(&before, NULL);
		if (write(fds[1], "b", 1) != 1)
			_exit(1);
		_exit(0);
	}
	close(fds[1]);

	struct pollfd p = { .fd = fds[0], .events = POLLIN };
	char c;

	assert_int_equal(poll(&p, 1, 10000), 1);
	assert_int_equal(read(fds[0], &c, 1), 1);
	/* Neither the second byte nor the end of the pipe comes. */
	assert_int_equal(poll(&p, 1, 100), 0);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	close(fds[0]);
}

static void a_trace_names_what_was_hit_in_order(void **state)
{
	struct tempdir *dir = *state;
	_cleanup_free_ char *path = path_join(dir->path, "trace");
	_cleanup_buf_ struct buf text = { 0 };

	assert_int_equal(fault_trace(path, NULL), 0);
	assert_int_equal(fault_hit(&before, NULL), 0);
	assert_int_equal(fault_hit(&after, NULL), 0);
	assert_int_equal(fault_hit(&before, NULL), 0);
	assert_int_equal(fault_trace(NULL, NULL), 0);
	assert_int_equal(fault_hit(&after, NULL), 0);
	assert_int_equal(file_read(dir->fd, "trace", &text, 4096, NULL), 0);
	assert_string_equal(buf_str(&text),
			    "test.write:before\ntest.write:after\ntest.write:before\n");
}

static void *hit_often(void *failures)
{
	for (int i = 0; i < 200000; i++) {
		if (fault_hit(&before, NULL) < 0)
			__atomic_add_fetch((int *)failures, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

static void the_nth_hit_is_one_hit_over_all_threads(void **state)
{
	(void)state;
	pthread_t threads[4];
	int failures = 0;

	assert_int_equal(fault_init("test.write:before@800000:error", NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, hit_often, &failures), 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(failures, 1);
}

#define disarmed(test) cmocka_unit_test_setup_teardown(test, disarm, disarm)

int main(void)
{
	const struct CMUnitTest tests[] = {
		disarmed(nothing_happens_unless_armed),
		disarmed(an_armed_point_fails_and_the_others_do_not),
		disarmed(a_number_picks_one_hit),
		disarmed(a_fence_is_left_out_only_by_skip),
		disarmed(a_point_may_stand_inside_a_function),
		disarmed(a_plan_that_cannot_work_is_refused),
		disarmed(the_points_are_listed_sorted_and_once),
		disarmed(kill_ends_the_process_at_the_point),
		disarmed(hang_holds_the_caller),
		with_tempdir(a_trace_names_what_was_hit_in_order),
		disarmed(the_nth_hit_is_one_hit_over_all_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "cli/follow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

/* A run, or an exec's exit event, as the API writes it. */
static int code_of(const char *text)
{
	_cleanup_json_ json_t *ended = json_parse(text, strlen(text), NULL);

	assert_non_null(ended);
	return exit_code_of(ended);
}

static void the_command_s_own_code_passes_through(void **state)
{
	(void)state;
	assert_int_equal(code_of("{\"status\":\"succeeded\",\"exitCode\":0}"), 0);
	assert_int_equal(code_of("{\"status\":\"failed\",\"exitCode\":3,\"reason\":\"exited\"}"),
			 3);
	assert_int_equal(code_of("{\"status\":\"failed\",\"exitCode\":255}"), 255);
	assert_int_equal(code_of("{\"type\":\"exit\",\"exitCode\":0,\"reason\":\"exited\"}"), 0);
	assert_int_equal(code_of("{\"status\":\"failed\",\"exitCode\":126,\"errorCode\":"
				 "\"command_not_executable\"}"),
			 126);
	assert_int_equal(code_of("{\"status\":\"failed\",\"exitCode\":127,\"errorCode\":"
				 "\"command_not_found\"}"),
			 127);
}

static void a_timeout_is_124_however_the_command_took_it(void **state)
{
	(void)state;
	assert_int_equal(code_of("{\"status\":\"timed_out\",\"exitCode\":null,\"signal\":"
				 "\"SIGTERM\",\"reason\":\"timeout\"}"),
			 124);
	/* It may catch the signal and end with a code of its own. */
	assert_int_equal(code_of("{\"status\":\"timed_out\",\"exitCode\":0}"), 124);
	assert_int_equal(code_of("{\"type\":\"exit\",\"exitCode\":0,\"reason\":\"timeout\"}"), 124);
}

static void a_cancelled_run_is_130(void **state)
{
	(void)state;
	assert_int_equal(code_of("{\"status\":\"cancelled\",\"exitCode\":null,\"signal\":"
				 "\"SIGKILL\",\"reason\":\"cancelled\"}"),
			 130);
	assert_int_equal(code_of("{\"status\":\"cancelled\",\"exitCode\":null}"), 130);
}

static void a_signal_is_128_and_its_number(void **state)
{
	(void)state;
	assert_int_equal(code_of("{\"status\":\"failed\",\"exitCode\":null,\"signal\":\"SIGKILL\","
				 "\"reason\":\"signalled\"}"),
			 137);
	assert_int_equal(
		code_of("{\"status\":\"failed\",\"exitCode\":null,\"signal\":\"SIGSEGV\"}"), 139);
	assert_int_equal(code_of("{\"status\":\"failed\",\"signal\":\"SIGHUP\"}"), 129);
}

static void everything_else_is_our_own_failure(void **state)
{
	(void)state;
	assert_int_equal(code_of("{\"status\":\"failed\",\"exitCode\":null,\"signal\":null,"
				 "\"errorCode\":\"process_lost\"}"),
			 125);
	assert_int_equal(code_of("{\"status\":\"failed\",\"errorCode\":\"lease_acquire_failed\"}"),
			 125);
	assert_int_equal(code_of("{\"status\":\"failed\",\"signal\":\"SIGNONSENSE\"}"), 125);
	assert_int_equal(code_of("{\"status\":\"failed\",\"signal\":\"KILL\"}"), 125);
	assert_int_equal(code_of("{}"), 125);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_command_s_own_code_passes_through),
		cmocka_unit_test(a_timeout_is_124_however_the_command_took_it),
		cmocka_unit_test(a_cancelled_run_is_130),
		cmocka_unit_test(a_signal_is_128_and_its_number),
		cmocka_unit_test(everything_else_is_our_own_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

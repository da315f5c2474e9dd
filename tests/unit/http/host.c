#include "client.h"
#include "http/trust.h"

static const char *const ALLOWED[] = { "berth.example", NULL };

static void loopback_names_with_our_port_are_ours(void **state)
{
	(void)state;
	assert_true(host_is_ours("localhost:7411", 7411, NULL));
	assert_true(host_is_ours("LOCALHOST:7411", 7411, NULL));
	assert_true(host_is_ours("127.0.0.1:7411", 7411, NULL));
	assert_true(host_is_ours("127.9.9.9:7411", 7411, NULL));
	assert_true(host_is_ours("[::1]:7411", 7411, NULL));
	assert_true(host_is_ours("localhost", 80, NULL));
	assert_true(host_is_ours("[::1]", 80, NULL));
}

static void everything_else_is_not(void **state)
{
	static const char *const bad[] = {
		"",
		":7411",
		"localhost",
		"localhost:80",
		"localhost:",
		"localhost:7411x",
		"localhost:07411 ",
		"localhost:-7411",
		"localhost.evil.example:7411",
		"evil.example:7411",
		"128.0.0.1:7411",
		"10.0.0.1:7411",
		"127.1:7411",
		"0x7f.0.0.1:7411",
		"[::2]:7411",
		"[::1",
		"[::1]x:7411",
		"[]:7411",
		"::1:7411",
		"user@localhost:7411",
		"localhost:7411:7411",
		"berth.example:7411",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (host_is_ours(bad[i], 7411, NULL))
			fail_msg("%s was taken", bad[i]);
	assert_false(host_is_ours("localhost:7411", 0, NULL));
}

static void the_operator_may_allow_further_names(void **state)
{
	(void)state;
	assert_true(host_is_ours("berth.example", 7411, ALLOWED));
	assert_true(host_is_ours("Berth.Example:443", 7411, ALLOWED));
	assert_false(host_is_ours("xberth.example", 7411, ALLOWED));
}

static void an_origin_is_a_scheme_and_one_of_our_hosts(void **state)
{
	(void)state;
	assert_true(origin_is_ours("http://localhost:7411", 7411, NULL));
	assert_true(origin_is_ours("http://[::1]:7411", 7411, NULL));
	assert_true(origin_is_ours("https://berth.example", 7411, ALLOWED));
	assert_false(origin_is_ours("null", 7411, ALLOWED));
	assert_false(origin_is_ours("", 7411, ALLOWED));
	assert_false(origin_is_ours("http://evil.example", 7411, ALLOWED));
	assert_false(origin_is_ours("http://localhost:7412", 7411, ALLOWED));
	assert_false(origin_is_ours("http://localhost:7411/x", 7411, ALLOWED));
	assert_false(origin_is_ours("ftp://localhost:7411", 7411, ALLOWED));
	assert_false(origin_is_ours("localhost:7411", 7411, ALLOWED));
}

static void only_loopback_can_be_listened_on(void **state)
{
	static const char *const bad[] = {
		"0.0.0.0:0", "[::]:0",    "10.0.0.1:0", "127.0.0.1",
		":0",        "host:7411", "[::1]",      "127.0.0.1:65536"
	};
	int fd, port;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_error_ struct error err = { 0 };

		if (http_bind(bad[i], false, &fd, &port, &err) == 0)
			fail_msg("%s was taken", bad[i]);
		assert_int_equal(err.code, ERR_VALIDATION);
	}
	assert_int_equal(http_bind("localhost:0", false, &fd, &port, NULL), 0);
	assert_true(port > 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loopback_names_with_our_port_are_ours),
		cmocka_unit_test(everything_else_is_not),
		cmocka_unit_test(the_operator_may_allow_further_names),
		cmocka_unit_test(an_origin_is_a_scheme_and_one_of_our_hosts),
		cmocka_unit_test(only_loopback_can_be_listened_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

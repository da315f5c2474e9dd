#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/mem.h"
#include "http/auth.h"

static void only_a_bearer_of_a_possible_shape_is_taken(void **state)
{
	static const char *const bad[] = { "",       "Bearer",     "Bearer ",     "Basic cGNwOng=",
					   "pcp_x",  "Bearer a b", "Bearer a\tb", "Bearer \xc3\xa4",
					   "Bearerx" };
	char longest[BEARER_MAX + 9], *end = longest + 7;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_null(bearer_of(bad[i]));
	assert_string_equal(bearer_of("Bearer pcp_1"), "pcp_1");
	assert_string_equal(bearer_of("bearer   pcp_1"), "pcp_1");
	memcpy(longest, "Bearer ", 7);
	memset(end, 'x', BEARER_MAX + 1);
	end[BEARER_MAX + 1] = '\0';
	assert_null(bearer_of(longest));
	end[BEARER_MAX] = '\0';
	assert_non_null(bearer_of(longest));
}

static struct peer numbered(int number)
{
	struct peer peer = { .key = { 2 } };

	memcpy(peer.key + 1, &number, sizeof(number));
	return peer;
}

static void a_peer_that_fails_too_often_waits_and_others_do_not(void **state)
{
	struct fake_clock fake;
	struct peer one = numbered(1), two = numbered(2);

	(void)state;
	clock_init_fake(&fake, 1000000);

	struct failures *failures = failures_new(&fake.clock, 3, 6000);

	for (int i = 0; i < 3; i++) {
		assert_int_equal(failures_wait_ms(failures, &one), 0);
		failures_note(failures, &one);
	}
	assert_in_range(failures_wait_ms(failures, &one), 5990, 6010);
	assert_int_equal(failures_wait_ms(failures, &two), 0);
	clock_fake_advance(&fake, 3000);
	assert_in_range(failures_wait_ms(failures, &one), 2990, 3010);
	clock_fake_advance(&fake, 3010);
	assert_int_equal(failures_wait_ms(failures, &one), 0);
	failures_note(failures, &one);
	assert_true(failures_wait_ms(failures, &one) > 0);
	/* However long it was quiet, no more than three at a time. */
	clock_fake_advance(&fake, 86400000);
	for (int i = 0; i < 3; i++)
		failures_note(failures, &one);
	assert_true(failures_wait_ms(failures, &one) > 0);
	failures_free(failures);
}

/* A flood of addresses makes others forgotten, never more of them remembered. */
static void the_table_of_peers_is_bounded(void **state)
{
	struct fake_clock fake;
	int waiting = 0;

	(void)state;
	clock_init_fake(&fake, 1000000);

	struct failures *failures = failures_new(&fake.clock, 1, 6000000);

	for (int i = 0; i < 5 * FAILURE_PEERS; i++) {
		struct peer peer = numbered(i);

		failures_note(failures, &peer);
		assert_true(failures_wait_ms(failures, &peer) > 0);
	}
	for (int i = 0; i < 5 * FAILURE_PEERS; i++) {
		struct peer peer = numbered(i);

		waiting += failures_wait_ms(failures, &peer) > 0;
	}
	assert_in_range(waiting, FAILURE_PEERS / 2, FAILURE_PEERS);
	failures_free(failures);
}

static void peers_of_one_machine_are_told_apart_by_their_user(void **state)
{
	int pair[2];
	uid_t uid = geteuid();

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);

	struct peer peer = peer_of_socket(pair[0]), same = peer_of_socket(pair[1]);

	assert_memory_equal(&peer, &same, sizeof(peer));
	assert_int_equal(peer.key[0], AF_UNIX);
	assert_memory_equal(peer.key + 9, &uid, sizeof(uid));
	close(pair[0]);
	close(pair[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_a_bearer_of_a_possible_shape_is_taken),
		cmocka_unit_test(a_peer_that_fails_too_often_waits_and_others_do_not),
		cmocka_unit_test(the_table_of_peers_is_bounded),
		cmocka_unit_test(peers_of_one_machine_are_told_apart_by_their_user),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What the server says about pausing, to relays that can and to those that cannot. */
#include "impostor.h"

#define OLDER (WIRE_FEATURE_EXEC | WIRE_FEATURE_TREE_CGROUP)

struct listener {
	struct impostor as;
	atomic_int heard;   /* how often anything about it was said */
	atomic_int paused;  /* what was said last */
	atomic_int hang_up; /* after so many more */
};

static void serve(struct impostor *as)
{
	struct listener *im = container_of(as, struct listener, as);
	struct frame frame;

	if (!impostor_greet(as))
		return;
	while (impostor_next(as, &frame)) {
		_cleanup_wire_message_ struct wire_message m = { 0 };

		if (frame.type != WIRE_PLACE_PAUSE || wire_decode(&frame, &m, NULL) < 0)
			continue;
		atomic_store(&im->paused, (int)m.place_pause.paused);
		atomic_fetch_add(&im->heard, 1);
		wire_encode(&as->conn.out, frame.stream, WIRE_DONE, &(struct wire_done){}, NULL);
		impostor_flush(as);
		if (atomic_fetch_sub(&im->hang_up, 1) == 1)
			return;
	}
}

static int listener_setup(void **state)
{
	struct listener *im = xcalloc(1, sizeof(*im));

	impostor_prepare(&im->as, serve);
	*state = im;
	return 0;
}

static int listener_teardown(void **state)
{
	struct listener *im = *state;
	int rc = impostor_end(&im->as);

	free(im);
	return rc;
}

#define WAIT_FOR(condition)                                                                        \
	do {                                                                                       \
		int _left = PATIENCE_MS;                                                           \
		while (!(condition)) {                                                             \
			if ((_left -= 5) <= 0)                                                     \
				fail_msg("it never came to %s", #condition);                       \
			poll(NULL, 0, 5);                                                          \
		}                                                                                  \
	} while (0)

static void begin(struct listener *im, uint64_t features)
{
	im->as.features = features;
	impostor_start(&im->as);
	WAIT_FOR(atomic_load(&im->as.greeted));
}

static void expect_untold(struct listener *im, uint64_t features, const char *why)
{
	struct places *places = im->as.t->places;
	struct error err = { 0 };

	begin(im, features);
	assert_int_equal(places_check_pause(places, HOSTILE, 1, &err), -1);
	assert_int_equal(err.code, ERR_UNSUPPORTED_ENV);
	assert_non_null(strstr(err.message, why));
	error_clear(&err);
	assert_int_equal(places_pause(places, HOSTILE, 1, true, &err), -1);
	assert_int_equal(err.code, ERR_UNSUPPORTED_ENV);
	error_clear(&err);
	places_expect_pause(places, HOSTILE, 1);
	assert_int_equal(places_check_pause(places, HOSTILE, 1, NULL), -1);
	assert_int_equal(atomic_load(&im->heard), 0);
	assert_int_equal(atomic_load(&im->as.connections), 1);
}

static void a_relay_of_an_older_version_hears_nothing_of_it(void **state)
{
	expect_untold(*state, OLDER, "older version");
}

static void a_relay_without_cgroups_hears_nothing_of_it(void **state)
{
	expect_untold(*state, WIRE_FEATURE_EXEC | WIRE_FEATURE_TREE_SHIM, "cgroup v2");
}

static void a_pause_is_said_again_over_a_new_link_and_its_end_is_not(void **state)
{
	struct listener *im = *state;
	struct places *places = im->as.t->places;

	begin(im, OLDER | WIRE_FEATURE_PAUSE);
	/* The relay has greeted; this waits until the server knows, or it would say it twice. */
	assert_int_equal(places_check_pause(places, HOSTILE, 1, NULL), 0);
	assert_int_equal(atomic_load(&im->heard), 0);
	atomic_store(&im->hang_up, 1);
	assert_int_equal(places_pause(places, HOSTILE, 1, true, NULL), 0);
	WAIT_FOR(atomic_load(&im->heard) == 2);
	assert_int_equal(atomic_load(&im->paused), 1);
	atomic_store(&im->hang_up, 1);
	assert_int_equal(places_pause(places, HOSTILE, 1, false, NULL), 0);
	WAIT_FOR(atomic_load(&im->as.connections) == 3);
	assert_int_equal(places_check_pause(places, HOSTILE, 1, NULL), 0);
	assert_int_equal(atomic_load(&im->heard), 3);
	assert_int_equal(atomic_load(&im->paused), 0);
}

static void only_the_holder_may_pause(void **state)
{
	struct listener *im = *state;
	struct error err = { 0 };

	begin(im, OLDER | WIRE_FEATURE_PAUSE);
	assert_int_equal(places_pause(im->as.t->places, HOSTILE, 2, true, &err), -1);
	assert_int_equal(err.code, ERR_STALE_GENERATION);
	error_clear(&err);
	assert_int_equal(atomic_load(&im->heard), 0);
}

#define T(test) cmocka_unit_test_setup_teardown(test, listener_setup, listener_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_relay_of_an_older_version_hears_nothing_of_it),
		T(a_relay_without_cgroups_hears_nothing_of_it),
		T(a_pause_is_said_again_over_a_new_link_and_its_end_is_not),
		T(only_the_holder_may_pause),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

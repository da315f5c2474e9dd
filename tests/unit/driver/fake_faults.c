#include "places.h"

#include "base/clock.h"

#define REF "sandbox://fake/" RUN_1 "/" LEASE_1

/* A config with these faults that any server allowing the fake provider would accept. */
static json_t *faulty(struct places *p, const char *faults)
{
	_cleanup_json_ json_t *config = J("{\"provider\":\"fake\"}");
	_cleanup_error_ struct error err = { 0 };

	json_put_new(config, "faults", J(faults));

	json_t *normal = p->fake->normalize(p->fake, config, true, &err);

	if (!normal)
		fail_msg("%s", err.message);
	return normal;
}

static int acquire(struct places *p, json_t *config, struct error *err)
{
	_cleanup_(made_place_clear) struct made_place lease = { 0 };
	struct place_view request = {
		.config = { config },
		.environment_id = ENV_1,
		.run_id = RUN_1,
		.lease_id = LEASE_1,
	};

	return fake_acquire(p, &request, &lease, err);
}

static int resume(struct places *p, json_t *config, struct error *err)
{
	_cleanup_(made_place_clear) struct made_place lease = { 0 };
	struct place_view request = { .config = { config },
				      .environment_id = ENV_1,
				      .lease_id = LEASE_2 };

	return fake_resume(p, &request, REF, &lease, err);
}

static int list(struct places *p, size_t *count, struct error *err)
{
	_cleanup_(maker_inventory_clear) struct maker_inventory inventory = { 0 };
	int r = fake_list(p, &inventory, err);

	*count = strv_len(inventory.refs);
	return r;
}

static size_t listed(struct places *p)
{
	size_t count;

	assert_int_equal(list(p, &count, NULL), 0);
	return count;
}

static void fail_says_what_it_was_told_and_makes_nothing(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config =
		faulty(p, "{\"acquire\":{\"fail\":true,\"message\":\"no capacity in zone 3\"}}");
	_cleanup_error_ struct error err = { 0 };

	for (int i = 0; i < 3; i++) {
		assert_int_equal(acquire(p, config, &err), -1);
		assert_says(&err, ERR_UNAVAILABLE, "no capacity in zone 3");
	}
	assert_int_equal(listed(p), 0);
}

static void fail_n_times_then_works_also_over_a_restart(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = faulty(p, "{\"acquire\":{\"fail\":3}}");

	assert_int_equal(acquire(p, config, NULL), -1);
	assert_int_equal(acquire(p, config, NULL), -1);
	places_restart(p);
	assert_int_equal(acquire(p, config, NULL), -1);
	assert_int_equal(acquire(p, config, NULL), 0);
	assert_int_equal(listed(p), 1);
}

static void a_changed_plan_counts_anew(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *one = faulty(p, "{\"acquire\":{\"fail\":1}}");
	_cleanup_json_ json_t *two = faulty(p, "{\"acquire\":{\"fail\":1,\"message\":\"again\"}}");

	assert_int_equal(acquire(p, one, NULL), -1);
	assert_int_equal(acquire(p, one, NULL), 0);
	assert_int_equal(acquire(p, two, NULL), -1);
	assert_int_equal(acquire(p, two, NULL), 0);
}

static void release_and_destroy_fail_and_leave_the_place(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config =
		faulty(p, "{\"release\":{\"fail\":1},\"destroy\":{\"fail\":2}}");

	assert_int_equal(acquire(p, config, NULL), 0);
	assert_int_equal(fake_release(p, config, REF, "released", NULL), -1);
	assert_int_equal(fake_destroy(p, config, REF, NULL), -1);
	assert_int_equal(listed(p), 1);
	assert_int_equal(fake_destroy(p, config, REF, NULL), -1);
	assert_int_equal(fake_destroy(p, config, REF, NULL), 0);
	assert_int_equal(listed(p), 0);
}

static void hang_ends_at_the_deadline_with_nothing_done(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config =
		faulty(p, "{\"acquire\":{\"hang\":1,\"deadlineMs\":60},\"destroy\":{\"hang\":1,"
			  "\"deadlineMs\":60}}");
	_cleanup_error_ struct error err = { 0 };
	int64_t start = clock_mono(&p->clock);

	assert_int_equal(acquire(p, config, &err), -1);
	assert_int_equal(err.code, ERR_TIMEOUT);
	assert_in_range(clock_mono(&p->clock) - start, 60, 10000);
	assert_int_equal(listed(p), 0);

	assert_int_equal(acquire(p, config, NULL), 0);
	assert_int_equal(fake_destroy(p, config, REF, &err), -1);
	assert_int_equal(err.code, ERR_TIMEOUT);
	assert_int_equal(listed(p), 1);
}

static void the_callers_deadline_wins_when_it_is_shorter(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = faulty(p, "{\"acquire\":{\"hang\":true}}");
	_cleanup_(made_place_clear) struct made_place lease = { 0 };
	_cleanup_error_ struct error err = { 0 };
	struct place_view request = { .config = { config },
				      .environment_id = ENV_1,
				      .lease_id = LEASE_1 };
	int64_t start = clock_mono(&p->clock);

	assert_int_equal(p->fake->acquire(p->fake, &request, 50, &lease, &err), -1);
	assert_int_equal(err.code, ERR_TIMEOUT);
	assert_in_range(clock_mono(&p->clock) - start, 50, 10000);
}

static void a_clock_that_stands_still_holds_nobody(void **state)
{
	struct places *p = *state;
	struct fake_clock still;
	_cleanup_json_ json_t *config =
		faulty(p, "{\"acquire\":{\"hang\":true,\"deadlineMs\":60}}");
	_cleanup_error_ struct error err = { 0 };

	clock_init_fake(&still, 1000);
	p->given_clock = &still.clock;
	places_restart(p);
	assert_int_equal(acquire(p, config, &err), -1);
	assert_int_equal(err.code, ERR_TIMEOUT);
}

static void answering_late_leaves_a_place_that_nobody_was_told_of(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config =
		faulty(p, "{\"acquire\":{\"answerLate\":1,\"deadlineMs\":60}}");
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(acquire(p, config, &err), -1);
	assert_int_equal(err.code, ERR_TIMEOUT);
	assert_int_equal(listed(p), 1);
	assert_int_equal(acquire(p, config, NULL), 0);
	assert_int_equal(listed(p), 1);
}

static void a_delay_longer_than_the_deadline_is_a_timeout(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *slow = faulty(p, "{\"acquire\":{\"delayMs\":40}}");
	_cleanup_json_ json_t *late =
		faulty(p, "{\"acquire\":{\"delayMs\":600000,\"deadlineMs\":40}}");
	_cleanup_error_ struct error err = { 0 };
	int64_t start = clock_mono(&p->clock);

	assert_int_equal(acquire(p, late, &err), -1);
	assert_int_equal(err.code, ERR_TIMEOUT);
	assert_int_equal(listed(p), 0);
	assert_int_equal(acquire(p, slow, NULL), 0);
	assert_in_range(clock_mono(&p->clock) - start, 80, 10000);
}

static void doing_it_twice_makes_one_place_and_removes_it_once(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config =
		faulty(p, "{\"acquire\":{\"twice\":true},\"release\":{\"twice\":true},"
			  "\"inventory\":{\"twice\":1}}");

	assert_int_equal(acquire(p, config, NULL), 0);
	assert_int_equal(listed(p), 2); /* the same one, told twice */
	assert_int_equal(listed(p), 1);
	assert_int_equal(fake_release(p, config, REF, "released", NULL), 0);
	assert_int_equal(listed(p), 0);
}

static void a_lost_place_cannot_be_resumed_and_is_not_listed(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *vanishing = faulty(p, "{\"acquire\":{\"lose\":1}}");
	_cleanup_json_ json_t *config = faulty(p, "{\"resume\":{\"lose\":true}}");

	assert_int_equal(acquire(p, vanishing, NULL), 0);
	assert_int_equal(listed(p), 0);
	assert_int_equal(acquire(p, vanishing, NULL), 0);
	assert_int_equal(listed(p), 1);
	assert_int_equal(resume(p, vanishing, NULL), 1);
	assert_int_equal(resume(p, config, NULL), 0);
	assert_int_equal(listed(p), 0);
}

static void resume_can_fail_with_a_reason(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = faulty(p, "{\"resume\":{\"fail\":1}}");
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(acquire(p, config, NULL), 0);
	assert_int_equal(resume(p, config, &err), -1);
	assert_says(&err, ERR_UNAVAILABLE, "resume");
	assert_int_equal(resume(p, config, NULL), 1);
}

static void the_inventory_follows_the_plans_of_the_places_it_lists(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = faulty(p, "{\"inventory\":{\"fail\":2,\"lose\":3}}");
	_cleanup_error_ struct error err = { 0 };
	size_t count;

	assert_int_equal(listed(p), 0); /* no place, no plan */
	assert_int_equal(acquire(p, config, NULL), 0);
	assert_int_equal(list(p, &count, &err), -1);
	assert_says(&err, ERR_UNAVAILABLE, "inventory");
	places_restart(p);
	assert_int_equal(list(p, &count, NULL), -1);
	assert_int_equal(listed(p), 0); /* left out */
	assert_int_equal(listed(p), 1);
}

static void a_failing_probe_is_an_answer(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config =
		faulty(p, "{\"probe\":{\"fail\":true,\"message\":\"quota used up\"}}");
	_cleanup_(probe_clear) struct probe probe = { 0 };

	assert_int_equal(p->fake->probe(p->fake, &(struct place_view){ .config = { config } }, 0,
					&probe, NULL),
			 0);
	assert_false(probe.ok);
	assert_string_equal(probe.summary, "quota used up");
}

static void a_place_can_vanish_under_a_command(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = faulty(p, "{\"execute\":{\"lose\":1}}");
	_cleanup_error_ struct error err = { 0 };
	char *argv[] = { (char *)"true", NULL };
	struct exec_spec spec = { .exec_id = RUN_1, .place_id = PLACE_1, .argv = argv };
	const struct place place = fake_place(config, REF, NULL);
	struct exec *exec = NULL;

	assert_int_equal(acquire(p, config, NULL), 0);
	assert_int_equal(maker_start(&p->makers, &place, &spec, &exec, &err), -1);
	assert_int_equal(err.code, ERR_LEASE_LOST);
	assert_int_equal(listed(p), 0);
}

static void a_server_that_does_not_allow_the_fake_provider_obeys_no_faults(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = faulty(p, "{\"acquire\":{\"fail\":true}}");

	p->allow_fake = false;
	places_restart(p);
	assert_int_equal(acquire(p, config, NULL), 0);
}

static void plans_are_strict(void **state)
{
	static const struct {
		const char *config, *complaint;
	} cases[] = {
		{ "{\"faults\":{\"acquire\":{\"fail\":false}}}", "true or a number" },
		{ "{\"faults\":{\"acquire\":{\"fail\":0}}}", "true or a number" },
		{ "{\"faults\":{\"acquire\":{\"hang\":-1}}}", "true or a number" },
		{ "{\"faults\":{\"acquire\":{\"fail\":1.5}}}", "true or a number" },
		{ "{\"faults\":{\"acquire\":{\"fail\":\"yes\"}}}", "true or a number" },
		{ "{\"faults\":{\"acquire\":{\"explode\":true}}}", "explode" },
		{ "{\"faults\":{\"probe\":{\"twice\":true}}}", "twice" },
		{ "{\"faults\":{\"execute\":{\"answerLate\":true}}}", "answerLate" },
		{ "{\"faults\":{\"acquire\":{\"delayMs\":0}}}", "delayMs" },
		{ "{\"faults\":{\"acquire\":{\"deadlineMs\":999999999}}}", "deadlineMs" },
		{ "{\"faults\":{\"acquire\":{\"message\":\"\"}}}", "message" },
		{ "{\"faults\":{\"acquire\":true}}", "acquire" },
		{ "{\"faults\":{\"sing\":{}}}", "sing" },
		{ "{\"faults\":[]}", "faults" },
	};

	struct places *p = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_json_ json_t *config = J(cases[i].config);
		_cleanup_error_ struct error err = { 0 };

		assert_null(p->fake->normalize(p->fake, config, true, &err));
		assert_says(&err, ERR_UNPROCESSABLE, cases[i].complaint);
	}

	_cleanup_json_ json_t *good = J("{\"faults\":{\"acquire\":{\"fail\":1}}}");
	_cleanup_error_ struct error err = { 0 };

	p->host.allow_fake = false;
	assert_null(p->fake->normalize(p->fake, good, true, &err));
	assert_says(&err, ERR_UNPROCESSABLE, "--allow-fake");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		places_test(fail_says_what_it_was_told_and_makes_nothing),
		places_test(fail_n_times_then_works_also_over_a_restart),
		places_test(a_changed_plan_counts_anew),
		places_test(release_and_destroy_fail_and_leave_the_place),
		places_test(hang_ends_at_the_deadline_with_nothing_done),
		places_test(the_callers_deadline_wins_when_it_is_shorter),
		places_test(a_clock_that_stands_still_holds_nobody),
		places_test(answering_late_leaves_a_place_that_nobody_was_told_of),
		places_test(a_delay_longer_than_the_deadline_is_a_timeout),
		places_test(doing_it_twice_makes_one_place_and_removes_it_once),
		places_test(a_lost_place_cannot_be_resumed_and_is_not_listed),
		places_test(resume_can_fail_with_a_reason),
		places_test(the_inventory_follows_the_plans_of_the_places_it_lists),
		places_test(a_failing_probe_is_an_answer),
		places_test(a_place_can_vanish_under_a_command),
		places_test(a_server_that_does_not_allow_the_fake_provider_obeys_no_faults),
		places_test(plans_are_strict),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

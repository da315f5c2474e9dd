#include "drivers.h"

#include "base/fault.h"

static void RT_3_a_driver_that_is_not_registered_is_named(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ json_t *config = json_object();
	struct environment environment = environment_of(DRIVER_SSH, config);
	struct place_request request = { .environment = &environment, .lease_id = LEASE_1 };
	struct place_grant grant;
	_cleanup_error_ struct error err = { 0 };
	char *provider, *ref;

	makers_keep_only(f->makers, DRIVER_LOCAL);
	assert_int_equal(maker_acquire(f->makers, &request, &grant, &err), -1);
	assert_string_equal(
		err.message,
		"Environment driver \"ssh\" is not registered in the environment runtime yet.");
	assert_int_equal(err.code, ERR_UNSUPPORTED_ENV);
	assert_int_equal(maker_name_place(f->makers, &request, &provider, &ref, &err), -1);
	assert_null(provider);
	assert_null(ref);
}

static int local_releases, ssh_releases;

static int count_local_release(const struct maker *self, const struct place_view *place,
			       const char *status, int64_t deadline_ms, struct error *err)
{
	(void)self, (void)place, (void)deadline_ms, (void)err;
	assert_string_equal(status, "released");
	local_releases++;
	return 0;
}

static int count_ssh_release(const struct maker *self, const struct place_view *place,
			     const char *status, int64_t deadline_ms, struct error *err)
{
	(void)self, (void)place, (void)status, (void)deadline_ms, (void)err;
	ssh_releases++;
	return 0;
}

static struct maker *counting(enum driver_kind driver,
			      int (*release)(const struct maker *, const struct place_view *,
					     const char *, int64_t, struct error *))
{
	struct maker *maker = xcalloc(1, sizeof(*maker));

	maker->key = "counting";
	maker->driver = driver;
	maker->release = release;
	return maker;
}

static void RT_14_a_place_is_released_by_the_driver_that_made_it(void **state)
{
	struct fixture *f = *state;
	struct place place = { .id = PLACE_1, .driver = DRIVER_LOCAL };

	/* The built-in ones come first: the last that a name fits wins. */
	makers_add(f->makers, counting(DRIVER_LOCAL, count_local_release));
	makers_add(f->makers, counting(DRIVER_SSH, count_ssh_release));
	local_releases = ssh_releases = 0;
	assert_int_equal(maker_release(f->makers, &place, "released", NULL), 0);
	assert_int_equal(local_releases, 1);
	assert_int_equal(ssh_releases, 0);
}

static void drivers_that_are_only_configured_refuse_every_use_by_name(void **state)
{
	struct fixture *f = *state;
	static const enum driver_kind kinds[] = { DRIVER_SSH, DRIVER_PLUGIN };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		_cleanup_json_ json_t *config = json_object();
		struct environment environment = environment_of(kinds[i], config);
		struct place_request request = { .environment = &environment, .lease_id = LEASE_1 };
		struct place place = { .id = PLACE_1, .driver = kinds[i] };
		_cleanup_free_ char *name =
			xasprintf("driver \"%s\" does not support", driver_kind_name(kinds[i]));
		_cleanup_error_ struct error err = { 0 };
		struct place_workspace workspace = { 0 };
		struct place_realization realization;
		struct maker_inventory inventory;
		struct place_grant grant;
		struct probe probe;
		struct exec_spec spec = { 0 };
		struct exec *exec;
		char *provider, *ref;

#define REFUSED(call)                                                                              \
	do {                                                                                       \
		error_clear(&err);                                                                 \
		assert_int_equal(call, -1);                                                        \
		assert_says(&err, ERR_UNSUPPORTED_ENV, name);                                      \
	} while (0)
		REFUSED(maker_probe(f->makers, &environment, &probe, &err));
		REFUSED(maker_name_place(f->makers, &request, &provider, &ref, &err));
		REFUSED(maker_acquire(f->makers, &request, &grant, &err));
		REFUSED(maker_resume(f->makers, &request, &place, &grant, &err));
		REFUSED(maker_release(f->makers, &place, "released", &err));
		REFUSED(maker_destroy(f->makers, &place, &err));
		REFUSED(maker_realize(f->makers, &place, LEASE_1, &workspace, &realization, &err));
		REFUSED(maker_start(f->makers, &place, &spec, &exec, &err));
		REFUSED(maker_stop(f->makers, &place, 1, &err));
		assert_int_equal(maker_inventory(f->makers, kinds[i], "x", &inventory, &err), 0);
		assert_false(maker_reuses(f->makers, &environment));
	}
}

static void every_call_that_acts_has_a_point_before_and_after(void **state)
{
	static const char *const operations[] = { "probe",   "acquire", "resume",
						  "release", "destroy", "inventory",
						  "realize", "start",   "stop" };

	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(operations); i++) {
		_cleanup_free_ char *name =
			xasprintf("driver.%s.%s", operations[i / 2], i % 2 ? "after" : "before");
		bool found = false;

		for (size_t n = 0; n < fault_count(); n++)
			found |= streq(fault_name(n), name);
		if (!found)
			fail_msg("no point %s", name);
	}
}

static int acquire_once(struct fixture *f, struct place_grant *grant, struct error *err)
{
	_cleanup_json_ json_t *config = J("{\"provider\":\"fake\",\"reuseLease\":true}");
	struct environment environment = environment_of(DRIVER_SANDBOX, config);
	struct place_request request = { .environment = &environment,
					 .config = { config },
					 .lease_id = LEASE_1 };

	return maker_acquire(f->makers, &request, grant, err);
}

static size_t listed(struct fixture *f)
{
	_cleanup_(maker_inventory_clear) struct maker_inventory inventory = { 0 };

	assert_int_equal(maker_inventory(f->makers, DRIVER_SANDBOX, "fake", &inventory, NULL), 1);
	return strv_len(inventory.refs);
}

static void a_fault_before_a_call_keeps_it_from_acting_and_one_after_loses_its_answer(void **state)
{
	struct fixture *f = *state;
	_cleanup_(place_grant_clear) struct place_grant grant = { 0 };
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(fault_init("driver.acquire.before:error", NULL), 0);
	assert_int_equal(acquire_once(f, &grant, &err), -1);
	assert_int_equal(err.code, ERR_FAULT);
	assert_int_equal(listed(f), 0);

	assert_int_equal(fault_init("driver.acquire.after:error", NULL), 0);
	assert_int_equal(acquire_once(f, &grant, &err), -1);
	assert_int_equal(err.code, ERR_FAULT);
	assert_null(grant.provider_ref);
	assert_int_equal(listed(f), 1);

	assert_int_equal(fault_init(NULL, NULL), 0);
	assert_int_equal(acquire_once(f, &grant, &err), 0);
	assert_int_equal(listed(f), 1);
}

static void a_command_whose_start_was_not_answered_is_ended(void **state)
{
	struct fixture *f = *state;
	struct place place = { .id = PLACE_1, .driver = DRIVER_LOCAL };
	char *argv[] = { (char *)"sleep", (char *)"600", NULL };
	struct exec_spec spec = {
		.exec_id = RUN_1, .place_id = PLACE_1, .generation = 1, .argv = argv
	};
	struct runlog_store *store;
	struct runlog *log;
	struct exec *exec = NULL;
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(runlog_store_open(f->places->dirfd, 0, &store, NULL), 0);
	assert_int_equal(runlog_open(store, "out", &log, NULL), 0);
	spec.log = log;
	assert_int_equal(test_open_place(f->places->places, PLACE_1, 1, NULL), 0);
	assert_int_equal(fault_init("driver.start.after:error", NULL), 0);
	assert_int_equal(maker_start(f->makers, &place, &spec, &exec, &err), -1);
	assert_int_equal(fault_init(NULL, NULL), 0);
	assert_int_equal(err.code, ERR_FAULT);
	assert_null(exec);
	assert_int_equal(maker_stop(f->makers, &place, 5000, NULL), 0);
	assert_false(places_is_busy(f->places->places, PLACE_1));
	runlog_close(log);
	runlog_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		driver_test(RT_3_a_driver_that_is_not_registered_is_named),
		driver_test(RT_14_a_place_is_released_by_the_driver_that_made_it),
		driver_test(drivers_that_are_only_configured_refuse_every_use_by_name),
		cmocka_unit_test(every_call_that_acts_has_a_point_before_and_after),
		driver_test(
			a_fault_before_a_call_keeps_it_from_acting_and_one_after_loses_its_answer),
		driver_test(a_command_whose_start_was_not_answered_is_ended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

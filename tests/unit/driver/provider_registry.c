#include "places.h"

#define FAKE_REUSE "{\"provider\":\"fake\",\"image\":\"ubuntu:24.04\",\"reuseLease\":true}"

static void SPR_1_fake_is_built_in_and_beside_it_only_native(void **state)
{
	struct places *p = *state;
	size_t sandboxes = 0;

	for (size_t i = 0; i < p->makers.count; i++)
		sandboxes += p->makers.items[i]->driver == DRIVER_SANDBOX;
	assert_int_equal(sandboxes, 2);
	assert_string_equal(p->fake->key, "fake");
	assert_non_null(makers_find(&p->makers, DRIVER_SANDBOX, "native"));
	assert_null(makers_find(&p->makers, DRIVER_SANDBOX, "fake-plugin"));
	assert_null(makers_find(&p->makers, DRIVER_SANDBOX, NULL));
}

static void every_driver_has_a_maker_that_its_configs_name(void **state)
{
	struct places *p = *state;

	for (enum driver_kind kind = 0; kind < DRIVER_KIND_COUNT; kind++)
		assert_non_null(makers_find(&p->makers, kind, "fake"));
	assert_true(makers_traits(&p->makers, DRIVER_LOCAL, NULL).is_host);
	assert_true(makers_traits(&p->makers, DRIVER_SANDBOX, "native").mounts_workspace);
	assert_false(makers_traits(&p->makers, DRIVER_SANDBOX, "fake").mounts_workspace);
	assert_true(makers_traits(&p->makers, DRIVER_SANDBOX, "fake").for_tests);
	assert_false(makers_traits(&p->makers, DRIVER_SANDBOX, "e2b").takes_relay);
}

static void SPR_3_a_provider_that_is_not_built_in_is_named(void **state)
{
	struct places *p = *state;
	_cleanup_error_ struct error err = { 0 };

	assert_null(makers_require(&p->makers, DRIVER_SANDBOX, "fake-plugin", &err));
	assert_string_equal(
		err.message,
		"Sandbox provider \"fake-plugin\" is not registered as a built-in provider.");
}

static void SPR_4_acquire_with_reuse_gives_the_environments_own_id(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = J(FAKE_REUSE);
	_cleanup_(made_place_clear) struct made_place lease = { 0 };
	struct place_view request = {
		.config = { config },
		.environment_id = "env-1",
		.run_id = "run-1",
		.lease_id = LEASE_1,
	};

	assert_int_equal(fake_acquire(p, &request, &lease, NULL), 0);
	assert_string_equal(lease.ref, "sandbox://fake/env-1");
	assert_string_equal(json_str(lease.metadata, "provider"), "fake");
	assert_string_equal(json_str(lease.metadata, "image"), "ubuntu:24.04");
	assert_true(json_is_true(json_object_get(lease.metadata, "reuseLease")));
	assert_null(json_object_get(lease.metadata, "resumedLease"));
}

static void SPR_5_resuming_gives_the_same_id_and_says_so(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = J(FAKE_REUSE);
	_cleanup_(made_place_clear) struct made_place first = { 0 }, again = { 0 };
	struct place_view request = {
		.config = { config },
		.environment_id = "env-1",
		.run_id = "run-1",
		.lease_id = LEASE_1,
	};

	assert_int_equal(fake_acquire(p, &request, &first, NULL), 0);
	request.run_id = "run-2";
	request.lease_id = LEASE_2;
	assert_int_equal(fake_resume(p, &request, first.ref, &again, NULL), 1);
	assert_string_equal(again.ref, first.ref);
	assert_true(json_is_true(json_object_get(again.metadata, "resumedLease")));
}

static void SPR_8_fake_metadata_gives_its_config(void **state)
{
	static const char text[] =
		"{\"provider\":\"fake\",\"image\":\"paperclip-test\",\"reuseLease\":true}";
	struct places *p = *state;
	_cleanup_json_ json_t *metadata = J(text);
	_cleanup_json_ json_t *config = p->fake->config_from_metadata(metadata);

	assert_json(config, text);
}

static bool is_listed(struct places *p, const char *ref)
{
	struct maker_inventory list = { 0 };
	bool found = false;

	assert_int_equal(fake_list(p, &list, NULL), 0);
	for (char **at = list.refs; at && *at; at++)
		found |= streq(*at, ref);
	maker_inventory_clear(&list);
	return found;
}

static void SPR_11_releasing_a_fake_lease_ends_a_place_that_is_not_kept(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config =
		J("{\"provider\":\"fake\",\"image\":\"ubuntu:24.04\",\"reuseLease\":false}");
	_cleanup_(made_place_clear) struct made_place lease = { 0 };
	struct place_view request = {
		.config = { config },
		.environment_id = "env-1",
		.run_id = "run-1",
		.lease_id = LEASE_1,
	};

	assert_int_equal(fake_acquire(p, &request, &lease, NULL), 0);
	assert_true(is_listed(p, lease.ref));
	assert_int_equal(fake_release(p, config, lease.ref, "released", NULL), 0);
	assert_false(is_listed(p, lease.ref));
	/* Once more is success. */
	assert_int_equal(fake_release(p, config, lease.ref, "released", NULL), 0);
}

static void a_provider_has_a_directory_of_its_own(void **state)
{
	struct places *p = *state;
	_cleanup_free_ char *path = NULL;
	_cleanup_error_ struct error err = { 0 };
	int first = -1, again = -1;
	struct stat st;

	assert_int_equal(maker_store_dir(p->host.store, "native", &first, &path, NULL), 0);
	assert_int_equal(maker_store_dir(p->host.store, "native", &again, NULL, NULL), 0);
	assert_int_equal(first, again);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_true(str_starts(path, p->dir));
	assert_int_equal(maker_store_dir(p->host.store, "../x", &first, NULL, &err), -1);
	assert_int_equal(err.code, ERR_BAD_PATH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		places_test(SPR_1_fake_is_built_in_and_beside_it_only_native),
		places_test(a_provider_has_a_directory_of_its_own),
		places_test(SPR_3_a_provider_that_is_not_built_in_is_named),
		places_test(every_driver_has_a_maker_that_its_configs_name),
		places_test(SPR_4_acquire_with_reuse_gives_the_environments_own_id),
		places_test(SPR_5_resuming_gives_the_same_id_and_says_so),
		places_test(SPR_8_fake_metadata_gives_its_config),
		places_test(SPR_11_releasing_a_fake_lease_ends_a_place_that_is_not_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "places.h"

#define FAKE_REUSE "{\"provider\":\"fake\",\"image\":\"ubuntu:24.04\",\"reuseLease\":true}"

static void SPR_1_fake_is_built_in_and_beside_it_only_native(void **state)
{
	const struct provider *const *list = provider_list();

	(void)state;
	assert_string_equal(list[0]->key, "fake");
	assert_string_equal(list[1]->key, "native");
	assert_null(list[2]);
	assert_string_equal(provider_find("fake")->key, "fake");
	assert_null(provider_find("fake-plugin"));
	assert_null(provider_find(NULL));
}

static void SPR_3_a_provider_that_is_not_built_in_is_named(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = J("{\"provider\":\"fake-plugin\"}");
	_cleanup_error_ struct error err = { 0 };
	struct probe probe;

	assert_int_equal(provider_probe(p->providers, config, &probe, &err), -1);
	assert_string_equal(
		err.message,
		"Sandbox provider \"fake-plugin\" is not registered as a built-in provider.");
}

static void a_config_for_another_provider_is_refused_naming_both(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = J("{\"provider\":\"other\"}");
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(
		provider_stop(p->providers, "fake", config, "sandbox://fake/x", PLACE_1, 1, &err),
		-1);
	assert_says(&err, ERR_UNPROCESSABLE, "\"fake\"");
	assert_says(&err, ERR_UNPROCESSABLE, "\"other\"");
}

static void SPR_4_acquire_with_reuse_gives_the_environments_own_id(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = J(FAKE_REUSE);
	_cleanup_(provider_lease_clear) struct provider_lease lease = { 0 };
	struct provider_request request = {
		.config = config,
		.environment_id = "env-1",
		.run_id = "run-1",
		.lease_id = LEASE_1,
	};

	assert_int_equal(provider_acquire(p->providers, &request, &lease, NULL), 0);
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
	_cleanup_(provider_lease_clear) struct provider_lease first = { 0 }, again = { 0 };
	struct provider_request request = {
		.config = config,
		.environment_id = "env-1",
		.run_id = "run-1",
		.lease_id = LEASE_1,
	};

	assert_int_equal(provider_acquire(p->providers, &request, &first, NULL), 0);
	request.run_id = "run-2";
	request.lease_id = LEASE_2;
	assert_int_equal(provider_resume(p->providers, &request, first.ref, &again, NULL), 1);
	assert_string_equal(again.ref, first.ref);
	assert_true(json_is_true(json_object_get(again.metadata, "resumedLease")));
}

#define SECRET_2 "22222222-2222-2222-2222-222222222222"
#define SECURE                                                                                     \
	"{\"provider\":\"secure-plugin\",\"template\":\"template-b\",\"apiKey\":\"" SECRET_2       \
	"\",\"timeoutMs\":300000,\"reuseLease\":true}"

static void SPR_8_fake_metadata_gives_its_config(void **state)
{
	static const char text[] =
		"{\"provider\":\"fake\",\"image\":\"paperclip-test\",\"reuseLease\":true}";
	_cleanup_json_ json_t *metadata = J(text);
	_cleanup_json_ json_t *loose = provider_config_loose(metadata);

	(void)state;
	assert_json(loose, text);
}

static void SPR_9_plugin_metadata_loosely_is_itself(void **state)
{
	static const char text[] =
		"{\"provider\":\"fake-plugin\",\"reuseLease\":true,\"timeoutMs\":"
		"45000,\"remoteCwd\":\"/w\",\"fakeRootDir\":\"/r\"}";
	_cleanup_json_ json_t *metadata = J(text), *loose = provider_config_loose(metadata);

	(void)state;
	assert_json(loose, text);
}

static void SPR_10_plugin_metadata_gives_every_key_and_a_true_flag(void **state)
{
	_cleanup_json_ json_t *metadata = J(SECURE), *loose = provider_config_loose(metadata);
	_cleanup_json_ json_t *loose_flag =
		J("{\"provider\":\"secure-plugin\",\"reuseLease\":\"yes\"}");
	_cleanup_json_ json_t *strict_flag = provider_config_loose(loose_flag);
	_cleanup_json_ json_t *nameless = J("{\"provider\":\"\",\"image\":\"x\"}");

	(void)state;
	assert_json(loose, SECURE);
	assert_json(strict_flag, "{\"provider\":\"secure-plugin\",\"reuseLease\":false}");
	assert_null(provider_config_loose(nameless));
	assert_null(provider_config_loose(NULL));
}

static bool is_listed(struct places *p, const char *ref)
{
	struct provider_inventory list = { 0 };
	bool found = false;

	assert_int_equal(provider_inventory_list(p->providers, "fake", &list, NULL), 0);
	for (char **at = list.refs; at && *at; at++)
		found |= streq(*at, ref);
	provider_inventory_clear(&list);
	return found;
}

static void SPR_11_releasing_a_fake_lease_ends_a_place_that_is_not_kept(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config =
		J("{\"provider\":\"fake\",\"image\":\"ubuntu:24.04\",\"reuseLease\":false}");
	_cleanup_(provider_lease_clear) struct provider_lease lease = { 0 };
	struct provider_request request = {
		.config = config,
		.environment_id = "env-1",
		.run_id = "run-1",
		.lease_id = LEASE_1,
	};

	assert_int_equal(provider_acquire(p->providers, &request, &lease, NULL), 0);
	assert_true(is_listed(p, lease.ref));
	assert_int_equal(provider_release(p->providers, config, lease.ref, "released", NULL), 0);
	assert_false(is_listed(p, lease.ref));
	/* Once more is success. */
	assert_int_equal(provider_release(p->providers, config, lease.ref, "released", NULL), 0);
}

static void a_provider_has_a_directory_of_its_own(void **state)
{
	struct places *p = *state;
	_cleanup_free_ char *path = NULL;
	_cleanup_error_ struct error err = { 0 };
	int first = -1, again = -1;
	struct stat st;

	assert_int_equal(provider_host_dir(p->providers, "native", &first, &path, NULL), 0);
	assert_int_equal(provider_host_dir(p->providers, "native", &again, NULL, NULL), 0);
	assert_int_equal(first, again);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_true(str_starts(path, p->dir));
	assert_int_equal(provider_host_dir(p->providers, "../x", &first, NULL, &err), -1);
	assert_int_equal(err.code, ERR_BAD_PATH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(SPR_1_fake_is_built_in_and_beside_it_only_native),
		places_test(a_provider_has_a_directory_of_its_own),
		places_test(SPR_3_a_provider_that_is_not_built_in_is_named),
		places_test(a_config_for_another_provider_is_refused_naming_both),
		places_test(SPR_4_acquire_with_reuse_gives_the_environments_own_id),
		places_test(SPR_5_resuming_gives_the_same_id_and_says_so),
		cmocka_unit_test(SPR_8_fake_metadata_gives_its_config),
		cmocka_unit_test(SPR_9_plugin_metadata_loosely_is_itself),
		cmocka_unit_test(SPR_10_plugin_metadata_gives_every_key_and_a_true_flag),
		places_test(SPR_11_releasing_a_fake_lease_ends_a_place_that_is_not_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

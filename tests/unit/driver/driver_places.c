#include "drivers.h"

#include <regex.h>
#include <unistd.h>

#define FAKE "{\"provider\":\"fake\",\"image\":\"debian:12\",\"reuseLease\":false}"
#define FAKE_REUSE "{\"provider\":\"fake\",\"image\":\"debian:12\",\"reuseLease\":true}"

static struct place_request request_of(const struct environment *environment)
{
	return (struct place_request){
		.environment = environment,
		.config = { environment->config },
		.lease_id = LEASE_1,
		.run_id = RUN_1,
	};
}

static void acquire(struct fixture *f, const struct place_request *request,
		    struct place_grant *grant)
{
	_cleanup_error_ struct error err = { 0 };

	if (maker_acquire(f->makers, request, grant, &err) < 0)
		fail_msg("%s", err.message);
}

static void PB_1_a_local_probe_names_this_host(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ json_t *config = json_object();
	struct environment environment = environment_of(DRIVER_LOCAL, config);
	_cleanup_(probe_clear) struct probe probe = { 0 };
	char hostname[256];

	assert_int_equal(maker_probe(f->makers, &environment, &probe, NULL), 0);
	assert_true(probe.ok);
	assert_int_equal(probe.driver, DRIVER_LOCAL);
	assert_non_null(strstr(probe.summary, "Local environment"));
	assert_int_equal(gethostname(hostname, sizeof(hostname)), 0);
	assert_int_equal(json_object_size(probe.details), 2);
	assert_string_equal(json_str(probe.details, "hostname"), hostname);
	assert_string_equal(json_str(probe.details, "cwd"), f->places->dir);
}

static void PB_3_a_fake_probe_answers_exactly_this(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ json_t *config = J(FAKE_REUSE);
	struct environment environment = environment_of(DRIVER_SANDBOX, config);
	_cleanup_(probe_clear) struct probe probe = { 0 };

	assert_int_equal(maker_probe(f->makers, &environment, &probe, NULL), 0);

	_cleanup_json_ json_t *answer = probe_json(&probe);

	assert_json(answer,
		    "{\"ok\":true,\"driver\":\"sandbox\",\"summary\":\"Fake sandbox provider "
		    "is ready for image debian:12.\",\"details\":" FAKE_REUSE "}");
}

static void probing_a_provider_that_is_not_installed_is_an_answer(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ json_t *config = J("{\"provider\":\"e2b\",\"apiKey\":\"x\"}");
	struct environment environment = environment_of(DRIVER_SANDBOX, config);
	_cleanup_(probe_clear) struct probe probe = { 0 };

	assert_int_equal(maker_probe(f->makers, &environment, &probe, NULL), 0);
	assert_false(probe.ok);
	assert_json(probe.details, "{\"provider\":\"e2b\"}");
}

static void DC_1_a_grant_says_driver_and_workspace_mode(void **state)
{
	struct fixture *f = *state;
	static const struct {
		enum driver_kind kind;
		const char *config;
	} cases[] = { { DRIVER_LOCAL, "{}" }, { DRIVER_SANDBOX, FAKE } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_json_ json_t *config = J(cases[i].config);
		struct environment environment = environment_of(cases[i].kind, config);
		struct place_request request = request_of(&environment);
		_cleanup_(place_grant_clear) struct place_grant grant = { 0 }, moded = { 0 };
		_cleanup_free_ char *provider = NULL, *ref = NULL;

		acquire(f, &request, &grant);
		assert_string_equal(json_str(grant.metadata, "driver"),
				    driver_kind_name(cases[i].kind));
		assert_int_equal(json_state(grant.metadata, "executionWorkspaceMode"),
				 JSON_IS_NULL);
		assert_int_equal(grant.fencing, FENCING_PLACE);

		assert_int_equal(maker_name_place(f->makers, &request, &provider, &ref, NULL), 0);
		assert_string_equal(provider, grant.provider);
		assert_string_equal(ref, grant.provider_ref);

		request.workspace_mode = "isolated_workspace";
		acquire(f, &request, &moded);
		assert_string_equal(json_str(moded.metadata, "executionWorkspaceMode"),
				    "isolated_workspace");
	}
}

static void DC_2_a_local_place_has_a_name_of_its_own_that_stays_private(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ json_t *config = json_object();
	struct environment environment = environment_of(DRIVER_LOCAL, config);
	struct place_request request = request_of(&environment);
	_cleanup_(place_grant_clear) struct place_grant grant = { 0 };

	acquire(f, &request, &grant);
	assert_true(grant.ref_is_private);
	assert_string_equal(grant.provider, "local");
	assert_string_equal(grant.provider_ref, "local://" LEASE_1);
	assert_json(grant.metadata, "{\"driver\":\"local\",\"executionWorkspaceMode\":null}");
}

static void DC_3_a_fake_place_is_named_by_run_and_lease(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ json_t *config = J(FAKE);
	struct environment environment = environment_of(DRIVER_SANDBOX, config);
	struct place_request request = request_of(&environment);
	_cleanup_(place_grant_clear) struct place_grant grant = { 0 };
	regex_t pattern;

	acquire(f, &request, &grant);
	assert_int_equal(regcomp(&pattern, "^sandbox://fake/[0-9a-f-]+/[0-9a-f-]+$",
				 REG_EXTENDED | REG_NOSUB),
			 0);
	assert_int_equal(regexec(&pattern, grant.provider_ref, 0, NULL, 0), 0);
	regfree(&pattern);
	assert_false(grant.ref_is_private);
	assert_true(grant.discoverable);
	assert_string_equal(json_str(grant.metadata, "provider"), "fake");
	assert_string_equal(json_str(grant.metadata, "image"), "debian:12");
	assert_true(json_is_false(json_object_get(grant.metadata, "reuseLease")));
	assert_non_null(json_str(grant.metadata, "remoteCwd"));
}

static void I5_provider_metadata_cannot_shadow_host_keys(void **state)
{
	struct fixture *f = *state;
	/* Keys of the host in the config as well: an open config may hold anything. */
	_cleanup_json_ json_t *config =
		J("{\"provider\":\"fake\",\"image\":\"debian:12\",\"reuseLease\":true,"
		  "\"driver\":\"local\",\"executionWorkspaceMode\":\"evil\",\"providerMetadata\":1,"
		  "\"faults\":{}}");
	struct environment environment = environment_of(DRIVER_SANDBOX, config);
	struct place_request request = request_of(&environment);
	_cleanup_(place_grant_clear) struct place_grant grant = { 0 };

	acquire(f, &request, &grant);
	assert_string_equal(json_str(grant.metadata, "driver"), "sandbox");
	assert_int_equal(json_state(grant.metadata, "executionWorkspaceMode"), JSON_IS_NULL);
	assert_json(json_object_at(grant.metadata, "providerMetadata"), FAKE_REUSE);
	assert_null(json_object_get(grant.metadata, "faults"));
}

static void resuming_says_so_in_the_metadata(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ json_t *config = J(FAKE_REUSE);
	struct environment environment = environment_of(DRIVER_SANDBOX, config);
	struct place_request request = request_of(&environment);
	_cleanup_(place_grant_clear) struct place_grant grant = { 0 }, again = { 0 };

	assert_true(maker_reuses(f->makers, &environment));
	acquire(f, &request, &grant);

	struct place place = place_of(DRIVER_SANDBOX, &grant, config);

	request.lease_id = LEASE_2;
	assert_int_equal(maker_resume(f->makers, &request, &place, &again, NULL), 1);
	assert_string_equal(again.provider_ref, grant.provider_ref);
	assert_true(json_is_true(json_object_get(again.metadata, "resumedLease")));
	assert_int_equal(maker_destroy(f->makers, &place, NULL), 0);
	place_grant_clear(&again);
	assert_int_equal(maker_resume(f->makers, &request, &place, &again, NULL), 0);
}

static void RT_11_release_goes_by_what_is_recorded_on_the_place(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ json_t *kept = J(FAKE_REUSE);
	_cleanup_json_ json_t *today = J("{\"provider\":\"e2b\",\"broken\":true}");
	struct environment environment = environment_of(DRIVER_SANDBOX, kept);
	struct place_request request = request_of(&environment);
	_cleanup_(place_grant_clear) struct place_grant grant = { 0 };

	acquire(f, &request, &grant);

	_cleanup_free_ char *cwd = xstrdup(json_str(grant.metadata, "remoteCwd"));
	/* The config on the place says nothing of use; its metadata does. */
	struct place place = place_of(DRIVER_SANDBOX, &grant, today);

	assert_int_equal(dir_make(AT_FDCWD, cwd, 0700, NULL), 0);
	assert_int_equal(maker_release(f->makers, &place, "released", NULL), 0);
	assert_true(path_exists(cwd));
	/* Neither does: the provider and the name still end it. */
	place.metadata = NULL;
	place.config.json = NULL;
	assert_int_equal(maker_destroy(f->makers, &place, NULL), 0);
	assert_false(path_exists(cwd));
}

static void the_inventory_of_a_sandbox_is_its_providers(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ json_t *config = J(FAKE);
	struct environment environment = environment_of(DRIVER_SANDBOX, config);
	struct place_request request = request_of(&environment);
	_cleanup_(place_grant_clear) struct place_grant grant = { 0 };
	_cleanup_(maker_inventory_clear) struct maker_inventory fake = { 0 }, other = { 0 },
								local = { 0 };

	acquire(f, &request, &grant);
	assert_int_equal(maker_inventory(f->makers, DRIVER_SANDBOX, "fake", &fake, NULL), 1);
	assert_string_equal(fake.refs[0], grant.provider_ref);
	assert_null(fake.refs[1]);
	assert_int_equal(maker_inventory(f->makers, DRIVER_SANDBOX, "e2b", &other, NULL), 0);
	assert_int_equal(maker_inventory(f->makers, DRIVER_LOCAL, "local", &local, NULL), 1);
	assert_null(local.refs[0]);
}

static void commands_without_a_directory_run_in_the_home_or_in_the_sandbox(void **state)
{
	struct fixture *f = *state;
	static const enum driver_kind kinds[] = { DRIVER_LOCAL, DRIVER_SANDBOX };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		_cleanup_json_ json_t *config = J(kinds[i] == DRIVER_SANDBOX ? FAKE : "{}");
		struct environment environment = environment_of(kinds[i], config);
		struct place_request request = request_of(&environment);
		_cleanup_(place_grant_clear) struct place_grant grant = { 0 };
		char *argv[] = { (char *)"touch", (char *)"here", NULL };
		struct exec_spec spec = { .exec_id = RUN_1,
					  .place_id = PLACE_1,
					  .generation = 7,
					  .argv = argv,
					  .timeout_ms = 20000 };
		struct exec_result result;
		struct runlog_store *store;
		struct runlog *log;
		struct exec *exec;

		acquire(f, &request, &grant);

		struct place place = place_of(kinds[i], &grant, config);
		const char *home = kinds[i] == DRIVER_LOCAL ? f->places->dir
							    : json_str(grant.metadata, "remoteCwd");
		_cleanup_free_ char *file = xasprintf("%s/here", home);

		assert_int_equal(runlog_store_open(f->places->dirfd, 0, &store, NULL), 0);
		assert_int_equal(runlog_open(store, "out", &log, NULL), 0);
		spec.log = log;
		place.generation = 7;
		memset(place.relay_key, 'a', sizeof(place.relay_key) - 1);
		assert_int_equal(maker_open(f->makers, &place, NULL), 0);
		assert_int_equal(maker_start(f->makers, &place, &spec, &exec, NULL), 0);
		assert_int_equal(exec_wait(exec, &result, NULL), 0);
		assert_int_equal(result.exit_code, 0);
		assert_true(path_exists(file));
		assert_int_equal(maker_stop(f->makers, &place, 5000, NULL), 0);
		assert_int_equal(maker_release(f->makers, &place, "released", NULL), 0);
		assert_int_equal(path_exists(home), kinds[i] == DRIVER_LOCAL);
		runlog_close(log);
		runlog_store_close(store);
	}
}

static void local_places_are_never_reused(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ json_t *config = J("{\"reuseLease\":true}");
	struct environment environment = environment_of(DRIVER_LOCAL, config);
	struct place_request request = request_of(&environment);
	struct place place = { .id = PLACE_1, .driver = DRIVER_LOCAL };
	_cleanup_(place_grant_clear) struct place_grant grant = { 0 };
	_cleanup_error_ struct error err = { 0 };

	assert_false(maker_reuses(f->makers, &environment));
	assert_int_equal(maker_resume(f->makers, &request, &place, &grant, &err), -1);
	assert_says(&err, ERR_UNSUPPORTED_ENV, "driver \"local\" does not support lease resume");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		driver_test(PB_1_a_local_probe_names_this_host),
		driver_test(PB_3_a_fake_probe_answers_exactly_this),
		driver_test(probing_a_provider_that_is_not_installed_is_an_answer),
		driver_test(DC_1_a_grant_says_driver_and_workspace_mode),
		driver_test(DC_2_a_local_place_has_a_name_of_its_own_that_stays_private),
		driver_test(DC_3_a_fake_place_is_named_by_run_and_lease),
		driver_test(I5_provider_metadata_cannot_shadow_host_keys),
		driver_test(resuming_says_so_in_the_metadata),
		driver_test(RT_11_release_goes_by_what_is_recorded_on_the_place),
		driver_test(the_inventory_of_a_sandbox_is_its_providers),
		driver_test(commands_without_a_directory_run_in_the_home_or_in_the_sandbox),
		driver_test(local_places_are_never_reused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

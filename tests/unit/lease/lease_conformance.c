/* Cases of spec 01 part G that are about leases, named after the case. */
#include "lease_fixture.h"

#include <regex.h>
#include "base/text.h"

#define RUN_A "11111111-1111-4111-8111-111111111111"
#define RUN_B "22222222-2222-4222-8222-222222222222"

SQL(CONFORMANCE_SET_DRIVER, "UPDATE environments SET driver = $2, config = '{}' WHERE id = $1");

static void acquire_for_run(struct yard *y, const struct environment *environment, const char *run,
			    struct lease *lease)
{
	struct lease_request request = yard_request(y, environment);

	request.run_id = run;
	yard_acquire(y, &request, lease);
}

static json_t *release_run(struct yard *y, const char *run)
{
	json_t *report =
		lease_release_run(y->leases, run, LEASE_RELEASED, NULL, NULL, &SOMEBODY, y->err);

	if (!report)
		fail_msg("%s", y->err->message);
	return report;
}

static void matches(const char *text, const char *pattern)
{
	regex_t regex;

	assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
	if (regexec(&regex, text, 0, NULL, 0) != 0)
		fail_msg("\"%s\" does not match %s", text, pattern);
	regfree(&regex);
}

static void RT_1_a_local_lease_is_acquired_and_released(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_json_ json_t *report = NULL;

	acquire_for_run(y, &y->local, RUN_A, &lease);
	assert_int_equal(lease.status, LEASE_ACTIVE);
	assert_string_equal(json_str(lease.metadata, "driver"), "local");
	assert_int_equal(json_state(lease.metadata, "executionWorkspaceMode"), JSON_IS_NULL);
	assert_null(lease.cleanup_status);

	report = release_run(y, RUN_A);
	assert_int_equal(json_array_size(report), 1);
	assert_string_equal(json_str(json_array_get(report, 0), "leaseId"), lease.id);
	assert_string_equal(json_str(json_array_get(report, 0), "status"), "released");
	assert_int_equal(json_state(json_array_get(report, 0), "error"), JSON_IS_NULL);
	yard_reload(y, &lease);
	assert_int_equal(lease.status, LEASE_RELEASED);
	assert_null(lease.cleanup_status);
	assert_null(lease.failure_reason);
}

static void RT_2_a_run_without_a_project_has_no_workspace_on_its_lease(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_json_ json_t *wire = NULL;

	acquire_for_run(y, &y->local, RUN_A, &lease);
	wire = lease_json(&lease, NULL);
	assert_int_equal(json_state(wire, "executionWorkspaceId"), JSON_IS_NULL);
	assert_int_equal(json_state(lease.metadata, "executionWorkspaceMode"), JSON_IS_NULL);
}

static void RT_3_a_driver_that_is_not_registered_leaves_no_row(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_request request;
	struct environment ssh;

	environment_copy(&ssh, &y->local);
	ssh.driver = DRIVER_SSH;
	makers_keep_only(&y->makers, DRIVER_LOCAL);
	request = yard_request(y, &ssh);
	assert_refused(y->r, ERR_UNSUPPORTED_ENV,
		       lease_acquire(y->leases, &request, &lease, NULL, y->err));
	assert_string_equal(y->err->message, "Environment driver \"ssh\" is not registered in the "
					     "environment runtime yet.");
	assert_int_equal(yard_lease_rows(y), 0);
	assert_clean(y);
	environment_clear(&ssh);
}

static void RT_5_a_reused_fake_place_is_named_after_its_environment(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_free_ char *expected = NULL;
	_cleanup_json_ json_t *report = NULL;

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	acquire_for_run(y, &env, RUN_A, &lease);
	expected = xasprintf("sandbox://fake/%s", env.id);
	assert_string_equal(lease.provider_lease_id, expected);
	assert_string_equal(json_str(lease.metadata, "driver"), "sandbox");
	assert_string_equal(json_str(lease.metadata, "provider"), "fake");
	assert_string_equal(json_str(lease.metadata, "image"), "alpine");
	assert_true(json_is_true(json_object_get(lease.metadata, "reuseLease")));
	assert_int_equal(lease.policy, POLICY_REUSE_BY_ENVIRONMENT);

	report = release_run(y, RUN_A);
	assert_status(y, lease.id, "released");
	assert_place(y, lease.place_id, "free");
}

static void RT_11_a_fake_lease_is_released_after_its_environment_became_local(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_json_ json_t *report = NULL;

	yard_sandbox(y, "box", FAKE, 0, &env);
	acquire_for_run(y, &env, RUN_A, &lease);
	/* A second local environment of a company is refused: the first has to give way. */
	records_exec(y->r, &CONFORMANCE_SET_DRIVER, B_TEXT(y->local.id), B_TEXT("plugin"));
	records_exec(y->r, &CONFORMANCE_SET_DRIVER, B_TEXT(env.id), B_TEXT("local"));
	report = release_run(y, RUN_A);
	assert_string_equal(json_str(json_array_get(report, 0), "leaseId"), lease.id);
	assert_status(y, lease.id, "released");
	assert_int_equal(yard_inventory(y), 0);
}

static int local_releases, ssh_releases;

static int count_local(const struct maker *self, const struct place_view *place, const char *status,
		       int64_t deadline_ms, struct error *err)
{
	(void)self, (void)place, (void)status, (void)deadline_ms, (void)err;
	local_releases++;
	return 0;
}

static int count_ssh(const struct maker *self, const struct place_view *place, const char *status,
		     int64_t deadline_ms, struct error *err)
{
	(void)self, (void)place, (void)status, (void)deadline_ms, (void)err;
	ssh_releases++;
	return 0;
}

static void RT_14_a_lease_is_finished_by_the_driver_that_made_it(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_json_ json_t *report = NULL;

	maker_to_change(&y->makers, DRIVER_LOCAL, NULL)->release = count_local;
	maker_to_change(&y->makers, DRIVER_SSH, NULL)->release = count_ssh;
	local_releases = ssh_releases = 0;
	acquire_for_run(y, &y->local, RUN_A, &lease);
	records_exec(y->r, &CONFORMANCE_SET_DRIVER, B_TEXT(y->local.id), B_TEXT("ssh"));
	report = release_run(y, RUN_A);
	assert_int_equal(local_releases, 1);
	assert_int_equal(ssh_releases, 0);
	assert_status(y, lease.id, "released");
}

static void check_contract(struct yard *y, const struct environment *env, const struct lease *l)
{
	_cleanup_json_ json_t *wire = lease_json(l, NULL);

	assert_string_equal(json_str(wire, "companyId"), y->r->company.id);
	assert_string_equal(json_str(wire, "environmentId"), env->id);
	assert_int_equal(json_state(wire, "issueId"), JSON_IS_NULL);
	assert_string_equal(json_str(wire, "heartbeatRunId"), RUN_A);
	assert_string_equal(json_str(wire, "status"), "active");
	assert_int_equal(json_state(wire, "releasedAt"), JSON_IS_NULL);
	assert_string_equal(json_str(l->metadata, "driver"), driver_kind_name(env->driver));
	assert_int_equal(json_state(l->metadata, "executionWorkspaceMode"), JSON_IS_NULL);
}

static void DC_1_the_lease_has_the_shape_of_the_contract(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease local = { 0 }, fake = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	acquire_for_run(y, &y->local, RUN_A, &local);
	acquire_for_run(y, &env, RUN_A, &fake);
	check_contract(y, &y->local, &local);
	check_contract(y, &env, &fake);
}

static void DC_2_a_local_lease_shows_no_provider_lease_id(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease lease = { 0 };

	acquire_for_run(y, &y->local, RUN_A, &lease);
	assert_null(lease.provider_lease_id);
	assert_string_equal(lease.provider, "local");
}

static void DC_3_a_fake_lease_is_named_after_its_run(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	acquire_for_run(y, &env, RUN_A, &lease);
	matches(lease.provider_lease_id, "^sandbox://fake/[0-9a-f-]+/[0-9a-f-]+$");
	assert_string_equal(json_str(lease.metadata, "provider"), "fake");
	assert_string_equal(json_str(lease.metadata, "image"), "alpine");
	assert_true(json_is_false(json_object_get(lease.metadata, "reuseLease")));
}

static void check_release_twice(struct yard *y, const struct environment *env)
{
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_json_ json_t *first = NULL, *second = NULL, *active = NULL;

	acquire_for_run(y, env, RUN_A, &lease);
	first = release_run(y, RUN_A);
	assert_int_equal(json_array_size(first), 1);
	assert_string_equal(json_str(json_array_get(first, 0), "leaseId"), lease.id);
	assert_string_equal(json_str(json_array_get(first, 0), "status"), "released");
	active = lease_list(y->leases, env->id, "active", 100, y->err);
	assert_int_equal(json_array_size(active), 0);
	second = release_run(y, RUN_A);
	assert_int_equal(json_array_size(second), 0);
}

static void DC_5_a_second_release_finds_nothing(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	check_release_twice(y, &y->local);
	check_release_twice(y, &env);
	assert_int_equal(yard_inventory(y), 0);
	assert_clean(y);
}

static void ES_1_release_sets_the_end_of_holding(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease lease = { 0 };

	acquire_for_run(y, &y->local, RUN_A, &lease);
	assert_int_equal(lease.status, LEASE_ACTIVE);
	assert_string_equal(lease.run_id, RUN_A);
	clock_fake_advance(&y->r->fake, 1234);
	yard_release(y, &lease);
	assert_int_equal(lease.status, LEASE_RELEASED);
	assert_int_equal(lease.released_at, RECORDS_START_MS + 1234);
}

static void ES_2_releasing_one_run_leaves_the_leases_of_another(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease a = { 0 }, b = { 0 };
	_cleanup_json_ json_t *report = NULL, *active = NULL;

	acquire_for_run(y, &y->local, RUN_A, &a);
	acquire_for_run(y, &y->local, RUN_B, &b);
	report = release_run(y, RUN_A);
	assert_int_equal(json_array_size(report), 1);
	assert_string_equal(json_str(json_array_get(report, 0), "leaseId"), a.id);
	active = lease_list(y->leases, y->local.id, "active", 100, y->err);
	assert_int_equal(json_array_size(active), 1);
	assert_string_equal(json_str(json_array_get(active, 0), "id"), b.id);
	assert_string_equal(json_str(json_array_get(active, 0), "placeState"), "held");
}

static void the_activity_tells_of_both_ends_of_a_lease(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_json_ json_t *items = NULL;
	json_t *released, *acquired;

	yard_sandbox(y, "box", FAKE, 0, &env);
	acquire_for_run(y, &env, RUN_A, &lease);
	yard_release(y, &lease);
	items = records_activity(y->r);
	released = json_object_at(json_array_get(items, 0), "details");
	acquired = json_object_at(json_array_get(items, 1), "details");
	assert_string_equal(json_str(json_array_get(items, 0), "action"),
			    "environment.lease_released");
	assert_string_equal(json_str(json_array_get(items, 1), "action"),
			    "environment.lease_acquired");
	assert_string_equal(json_str(json_array_get(items, 1), "entityId"), lease.id);
	assert_string_equal(json_str(json_array_get(items, 1), "runId"), RUN_A);
	assert_int_equal(json_object_size(acquired), 6);
	assert_string_equal(json_str(acquired, "environmentId"), env.id);
	assert_string_equal(json_str(acquired, "driver"), "sandbox");
	assert_string_equal(json_str(acquired, "leasePolicy"), "ephemeral");
	assert_string_equal(json_str(acquired, "provider"), "fake");
	assert_int_equal(json_object_size(released), 9);
	assert_string_equal(json_str(released, "status"), "released");
	assert_string_equal(json_str(released, "cleanupStatus"), "success");
	assert_int_equal(json_state(released, "failureReason"), JSON_IS_NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		YARD_BOTH(RT_1_a_local_lease_is_acquired_and_released),
		YARD(RT_2_a_run_without_a_project_has_no_workspace_on_its_lease),
		YARD(RT_3_a_driver_that_is_not_registered_leaves_no_row),
		YARD_BOTH(RT_5_a_reused_fake_place_is_named_after_its_environment),
		YARD(RT_11_a_fake_lease_is_released_after_its_environment_became_local),
		YARD(RT_14_a_lease_is_finished_by_the_driver_that_made_it),
		YARD(DC_1_the_lease_has_the_shape_of_the_contract),
		YARD(DC_2_a_local_lease_shows_no_provider_lease_id),
		YARD(DC_3_a_fake_lease_is_named_after_its_run),
		YARD_BOTH(DC_5_a_second_release_finds_nothing),
		YARD(ES_1_release_sets_the_end_of_holding),
		YARD_BOTH(ES_2_releasing_one_run_leaves_the_leases_of_another),
		YARD(the_activity_tells_of_both_ends_of_a_lease),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

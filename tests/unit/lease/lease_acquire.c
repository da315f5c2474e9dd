/* Acquiring: all or nothing, whatever the provider and the database do; and which place it gets. */
#include "lease_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/text.h"

#define RUN_A "11111111-1111-4111-8111-111111111111"
#define AGENT_A "33333333-3333-4333-8333-333333333333"
#define AGENT_B "44444444-4444-4444-8444-444444444444"
#define WORKSPACE "55555555-5555-4555-8555-555555555555"
#define CHOSEN "66666666-6666-4666-8666-666666666666"

SQL(ACQUIRE_ARCHIVE, "UPDATE environments SET status = 'archived' WHERE id = $1");
SQL(ACQUIRE_SET_CONFIG, "UPDATE environments SET config = $2 WHERE id = $1");
SQL(ACQUIRE_INTENTS, "SELECT COUNT(*) FROM intents");
SQL(ACQUIRE_PLACES, "SELECT COUNT(*) FROM places WHERE state <> 'gone'");
SQL(ACQUIRE_REASON, "SELECT cleanup_reason FROM places WHERE id = $1");

static int try_from(struct yard *y, const struct environment *env, struct lease *lease)
{
	struct lease_request request = yard_request(y, env);

	error_clear(y->err);
	return lease_acquire(y->leases, &request, lease, NULL, y->err);
}

/* Nothing is left of it anywhere, at once. */
static void assert_no_trace(struct yard *y)
{
	assert_int_equal(yard_lease_rows(y), 0);
	assert_int_equal(records_number(y->r, &ACQUIRE_INTENTS), 0);
	assert_int_equal(records_number(y->r, &ACQUIRE_PLACES), 0);
	assert_int_equal(yard_inventory(y), 0);
	assert_clean(y);
}

static void a_provider_that_refuses_leaves_no_trace(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box",
		     "{'provider':'fake','faults':{'acquire':{'fail':true,'message':'no room'}}}",
		     0, &env);
	assert_int_equal(try_from(y, &env, &lease), -1);
	assert_int_equal(y->err->code, ERR_LEASE_ACQUIRE);
	assert_non_null(strstr(y->err->message, "\"box\" (sandbox)"));
	assert_non_null(strstr(y->err->message, "no room"));
	assert_no_trace(y);
}

static void I3_a_place_is_destroyed_when_its_lease_cannot_be_written(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	fault_arm("db.lease.grant.before:error");
	assert_int_equal(try_from(y, &env, &lease), -1);
	fault_disarm();
	assert_no_trace(y);
}

static void a_grant_whose_answer_was_lost_never_was(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	fault_arm("db.lease.grant.after:error");
	assert_int_equal(try_from(y, &env, &lease), -1);
	fault_disarm();
	assert_no_trace(y);
	assert_int_equal(yard_activity_count(y, "environment.lease_acquired"), 1);
	assert_int_equal(yard_activity_count(y, "environment.lease_released"), 1);
}

static void an_intent_whose_answer_was_lost_is_taken_back(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	fault_arm("db.lease.intend.after:error");
	assert_int_equal(try_from(y, &env, &lease), -1);
	fault_disarm();
	assert_no_trace(y);
}

static void an_acquire_whose_answer_was_lost_is_destroyed(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	fault_arm("driver.acquire.after:error");
	assert_int_equal(try_from(y, &env, &lease), -1);
	fault_disarm();
	assert_no_trace(y);
}

static void what_cannot_be_destroyed_after_a_failed_acquire_is_queued(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	fault_arm("db.lease.grant.before:error,driver.destroy.before@1:error");
	assert_int_equal(try_from(y, &env, &lease), -1);
	fault_disarm();
	assert_int_equal(yard_lease_rows(y), 0);
	assert_int_equal(records_number(y->r, &ACQUIRE_INTENTS), 0);
	assert_int_equal(yard_inventory(y), 1);
	assert_int_equal(yard_audit_count(y, "place"), 1);
	yard_sweep(y);
	assert_no_trace(y);
}

static void an_answer_that_comes_too_late_is_queued_and_not_waited_for(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box",
		     "{'provider':'fake','faults':{'acquire':{'answerLate':1,'deadlineMs':30}}}", 0,
		     &env);
	assert_int_equal(try_from(y, &env, &lease), -1);
	assert_int_equal(y->err->code, ERR_LEASE_ACQUIRE);
	assert_int_equal(yard_inventory(y), 1);
	assert_int_equal(yard_audit_count(y, "place"), 1);
	yard_sweep(y);
	assert_no_trace(y);
}

static size_t spooled(struct yard *y)
{
	return yard_audit_count(y, "spool");
}

static void an_orphan_is_spooled_when_the_database_refuses_it(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	fault_arm("db.lease.grant.before:error,driver.destroy.before:error,"
		  "db.lease.orphan.before:error,db.lease.settle.before:error,"
		  "db.lease.unspool.before:error");
	assert_int_equal(try_from(y, &env, &lease), -1);
	assert_int_equal(spooled(y), 1);
	assert_int_equal(leases_sweep(y->leases, NULL), -1);
	assert_int_equal(spooled(y), 1);
	fault_disarm();
	yard_sweep(y);
	assert_int_equal(spooled(y), 0);
	assert_no_trace(y);
}

static void the_spool_survives_a_restart_and_is_flushed_at_start(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	fault_arm("db.lease.grant.before:error,driver.destroy.before:error,"
		  "db.lease.orphan.before:error");
	assert_int_equal(try_from(y, &env, &lease), -1);
	fault_disarm();
	assert_int_equal(spooled(y), 1);
	yard_restart(y);
	assert_int_equal(spooled(y), 0);
	assert_int_equal(yard_inventory(y), 1);
	yard_sweep(y);
	assert_no_trace(y);
}

static void a_spooled_file_that_is_not_ours_is_shown_and_does_no_harm(void **state)
{
	struct yard *y = yard_of(state);

	assert_done(y->r,
		    file_replace(y->spool_fd, "odd.json", "{\"version\":7}", 13, 0600, y->err));
	assert_int_equal(leases_sweep(y->leases, NULL), -1);
	assert_int_equal(spooled(y), 1);
	yard_restart(y);
	assert_int_equal(spooled(y), 1);
}

static void the_spool_is_bounded(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	for (int i = 0; i < 256; i++) {
		char name[32];

		snprintf(name, sizeof(name), "%d.json", i);
		close(openat(y->spool_fd, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	}
	yard_sandbox(y, "box", FAKE, 0, &env);
	fault_arm("db.lease.grant.before:error,driver.destroy.before:error,"
		  "db.lease.orphan.before:error");
	assert_int_equal(try_from(y, &env, &lease), -1);
	fault_disarm();
	assert_int_equal(spooled(y), 256);
	/* The intent still knows of it. */
	leases_sweep(y->leases, NULL);
	assert_int_equal(yard_inventory(y), 0);
}

static const char *taken_name;
static struct maker fake; /* as it was */

static int answer_with_a_taken_name(const struct maker *self, const struct place_view *wanted,
				    int64_t deadline_ms, struct made_place *out, struct error *err)
{
	if (fake.acquire(self, wanted, deadline_ms, out, err) < 0)
		return -1;
	free(out->ref);
	out->ref = xstrdup(taken_name);
	return 0;
}

static void a_name_that_another_place_has_is_refused_and_its_holder_kept(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 }, again = { 0 };
	struct maker *odd;

	yard_sandbox(y, "box", FAKE, 0, &env);
	yard_acquire_from(y, &env, &lease);
	taken_name = lease.provider_lease_id;
	odd = maker_to_change(&y->makers, DRIVER_SANDBOX, "fake");
	fake = *odd;
	odd->acquire = answer_with_a_taken_name;
	assert_int_equal(try_from(y, &env, &again), -1);
	assert_int_equal(y->err->code, ERR_LEASE_ACQUIRE);
	assert_non_null(strstr(y->err->message, "in use"));
	assert_true(yard_has(y, lease.provider_lease_id));
	assert_status(y, lease.id, "active");
	assert_place(y, lease.place_id, "held");
}

static void an_environment_that_is_not_active_gives_no_lease(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	/* The caller's copy is older than the row: the row counts. */
	records_exec(y->r, &ACQUIRE_ARCHIVE, B_TEXT(env.id));
	assert_int_equal(try_from(y, &env, &lease), -1);
	assert_int_equal(y->err->code, ERR_ENV_INACTIVE);
	assert_no_trace(y);
}

static void an_environment_of_another_company_is_not_found(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_(company_clear) struct company other = { 0 };
	struct lease_request request;

	yard_sandbox(y, "box", FAKE, 0, &env);
	assert_done(y->r, company_create(WRITER(y->db, y->r->clock, &SOMEBODY), "Other", NULL,
					 &other, y->err));
	request = yard_request(y, &env);
	request.company_id = other.id;
	assert_refused(y->r, ERR_ENV_NOT_FOUND,
		       lease_acquire(y->leases, &request, &lease, NULL, y->err));
	assert_no_trace(y);
}

static void a_reused_place_has_the_same_name_and_a_higher_generation(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease first = { 0 }, second = { 0 };

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &first);
	assert_int_equal(first.generation, 1);
	assert_done(y->r, yard_exec(y, &first, "echo kept > file", y->err));
	yard_release(y, &first);
	yard_acquire_from(y, &env, &second);
	assert_string_equal(second.place_id, first.place_id);
	assert_int_equal(second.generation, 2);
	assert_true(json_is_true(json_object_get(second.metadata, "resumedLease")));
	assert_done(y->r, yard_exec(y, &second, "test -f file", y->err));
	assert_int_equal(yard_inventory(y), 1);
	assert_clean(y);
}

static void generations_rise_also_over_the_end_of_a_place(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	for (int64_t i = 1; i <= 3; i++) {
		yard_acquire_from(y, &env, &lease);
		assert_int_equal(lease.generation, i);
		assert_done(y->r, lease_destroy(y->leases, lease.id, GENERATION_UNCHECKED,
						&SOMEBODY, NULL, NULL, y->err));
		assert_place(y, lease.place_id, "gone");
		assert_int_equal(yard_inventory(y), 0);
	}
}

static void acquire_as(struct yard *y, const struct environment *env, const char *agent,
		       struct lease *lease)
{
	struct lease_request request = yard_request(y, env);

	request.agent_id = agent;
	yard_acquire(y, &request, lease);
}

static void I4_another_agent_does_not_get_the_place_of_the_first(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease first = { 0 }, second = { 0 };

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	acquire_as(y, &env, AGENT_A, &first);
	assert_done(y->r, yard_exec(y, &first, "echo mine > file", y->err));
	yard_release(y, &first);
	acquire_as(y, &env, AGENT_B, &second);
	assert_int_equal(second.generation, 2);
	assert_false(json_is_true(json_object_get(second.metadata, "resumedLease")));
	assert_int_equal(yard_inventory(y), 1);

	_cleanup_place_ struct place place = { 0 };

	assert_done(y->r, lease_get(y->leases, second.id, &second, &place, y->err));
	_cleanup_free_ char *file = xasprintf("%s/file", json_str(place.metadata, "remoteCwd"));

	assert_int_equal(access(file, F_OK), -1);
	assert_clean(y);
}

static void I4_a_place_that_is_held_is_never_shared(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease first = { 0 }, second = { 0 };
	_cleanup_json_ json_t *details = NULL;

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &first);
	assert_int_equal(try_from(y, &env, &second), -1);
	assert_int_equal(y->err->code, ERR_PLACE_BUSY);
	details = json_parse(y->err->details, strlen(y->err->details), NULL);
	assert_string_equal(json_str(details, "reason"), "place_held");
	assert_string_equal(json_str(details, "holderLeaseId"), first.id);
	assert_int_equal(json_int(details, "waiting", -1), 0);
}

static void a_changed_config_means_a_new_place(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 }, changed = { 0 };
	_cleanup_lease_ struct lease first = { 0 }, second = { 0 };
	_cleanup_free_ char *reason = NULL;

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &first);
	yard_release(y, &first);
	records_exec(y->r, &ACQUIRE_SET_CONFIG, B_TEXT(env.id),
		     B_TEXT("{\"provider\":\"fake\",\"image\":\"debian\",\"reuseLease\":true}"));
	assert_done(y->r, environment_get(y->db, env.id, &changed, y->err));
	/* While it cannot be destroyed it is in the way, and says why. */
	fault_arm("driver.destroy.before@1:error");
	assert_int_equal(try_from(y, &changed, &second), -1);
	fault_disarm();
	assert_int_equal(y->err->code, ERR_PLACE_BUSY);
	reason = records_text(y->r, &ACQUIRE_REASON, B_TEXT(first.place_id));
	assert_place(y, first.place_id, "cleanup");
	assert_non_null(strstr(reason, "fault injected"));

	yard_pass(y, 2000);
	yard_acquire_from(y, &changed, &second);
	assert_false(json_is_true(json_object_get(second.metadata, "resumedLease")));
	assert_string_equal(json_str(second.metadata, "image"), "debian");
	assert_int_equal(second.generation, 2);
	assert_clean(y);
}

static void key_order_of_a_config_is_no_change(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 }, same = { 0 };
	_cleanup_lease_ struct lease first = { 0 }, second = { 0 };

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &first);
	yard_release(y, &first);
	records_exec(y->r, &ACQUIRE_SET_CONFIG, B_TEXT(env.id),
		     B_TEXT("{\"reuseLease\":true,\"image\":\"alpine\",\"provider\":\"fake\"}"));
	assert_done(y->r, environment_get(y->db, env.id, &same, y->err));
	yard_acquire_from(y, &same, &second);
	assert_true(json_is_true(json_object_get(second.metadata, "resumedLease")));
}

static void resume_falls_back(struct yard *y, const char *config)
{
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease first = { 0 }, second = { 0 };

	yard_sandbox(y, "pool", config, 0, &env);
	yard_acquire_from(y, &env, &first);
	yard_release(y, &first);
	yard_acquire_from(y, &env, &second);
	assert_int_equal(second.generation, 3);
	assert_string_equal(second.place_id, first.place_id);
	assert_false(json_is_true(json_object_get(second.metadata, "resumedLease")));
	assert_int_equal(yard_inventory(y), 1);
	assert_done(y->r, yard_exec(y, &second, "true", y->err));
	assert_clean(y);
}

static void I17_a_resume_that_fails_gives_a_new_place(void **state)
{
	resume_falls_back(yard_of(state), "{'provider':'fake','reuseLease':true,"
					  "'faults':{'resume':{'fail':true}}}");
}

static void a_resume_that_finds_nothing_gives_a_new_place(void **state)
{
	resume_falls_back(yard_of(state), "{'provider':'fake','reuseLease':true,"
					  "'faults':{'resume':{'lose':true}}}");
}

static void a_grant_that_fails_after_a_resume_keeps_the_files(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &lease);
	assert_done(y->r, yard_exec(y, &lease, "echo kept > file", y->err));
	yard_release(y, &lease);
	fault_arm("db.lease.grant.before:error");
	assert_int_equal(try_from(y, &env, &lease), -1);
	fault_disarm();
	assert_int_equal(records_number(y->r, &ACQUIRE_INTENTS), 0);
	yard_sweep(y);
	assert_place(y, lease.place_id, "free");
	yard_acquire_from(y, &env, &lease);
	assert_done(y->r, yard_exec(y, &lease, "test -f file", y->err));
	assert_clean(y);
}

static void a_policy_that_needs_a_workspace_says_so(void **state)
{
	static const enum lease_policy by_workspace = POLICY_REUSE_BY_WORKSPACE;
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_request request;

	yard_sandbox(y, "box", FAKE, 0, &env);
	request = yard_request(y, &env);
	request.policy = &by_workspace;
	assert_refused(y->r, ERR_VALIDATION,
		       lease_acquire(y->leases, &request, &lease, NULL, y->err));
	request.workspace_id = WORKSPACE;
	yard_acquire(y, &request, &lease);
	assert_int_equal(lease.policy, POLICY_REUSE_BY_WORKSPACE);
	assert_true(json_is_true(json_object_get(lease.metadata, "reuseLease")));
	yard_release(y, &lease);
	assert_place(y, lease.place_id, "free");
}

static void a_policy_that_a_driver_cannot_keep_is_refused(void **state)
{
	static const enum lease_policy reuse = POLICY_REUSE_BY_ENVIRONMENT;
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_request request = yard_request(y, &y->local);

	request.policy = &reuse;
	assert_refused(y->r, ERR_UNPROCESSABLE,
		       lease_acquire(y->leases, &request, &lease, NULL, y->err));
	assert_no_trace(y);
}

static void a_workspace_that_a_place_cannot_have_is_refused(void **state)
{
	static const struct workspace_mount mount = { .path = "/srv", .how = WORKSPACE_OVERLAY };
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_request request = yard_request(y, &y->local);

	request.workspace = &mount;
	assert_refused(y->r, ERR_UNPROCESSABLE,
		       lease_acquire(y->leases, &request, &lease, NULL, y->err));
	yard_sandbox(y, "box", FAKE, 0, &env);
	request = yard_request(y, &env);
	request.workspace = &mount;
	assert_refused(y->r, ERR_UNPROCESSABLE,
		       lease_acquire(y->leases, &request, &lease, NULL, y->err));
	assert_no_trace(y);
}

static void an_ephemeral_lease_of_a_reused_environment_gets_its_own_place(void **state)
{
	static const enum lease_policy ephemeral = POLICY_EPHEMERAL;
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease shared = { 0 }, own = { 0 };
	struct lease_request request;

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &shared);
	request = yard_request(y, &env);
	request.policy = &ephemeral;
	yard_acquire(y, &request, &own);
	assert_string_not_equal(own.place_id, shared.place_id);
	yard_release(y, &own);
	assert_place(y, own.place_id, "gone");
	assert_int_equal(yard_inventory(y), 1);
}

static void I5_what_a_provider_says_does_not_route_its_release(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_json_ json_t *lies = json_of("{'driver':'local','provider':'other'}");

	yard_sandbox(y, "box", FAKE, 0, &env);
	yard_acquire_from(y, &env, &lease);
	assert_done(y->r, yard_set_metadata(y, lease.id, lies));
	yard_release(y, &lease);
	assert_int_equal(lease.status, LEASE_RELEASED);
	assert_int_equal(yard_inventory(y), 0);
}

static void an_id_chosen_beforehand_gives_the_same_lease_again(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease first = { 0 }, again = { 0 };
	struct lease_request request;

	yard_sandbox(y, "box", FAKE, 0, &env);
	request = yard_request(y, &env);
	request.lease_id = CHOSEN;
	yard_acquire(y, &request, &first);
	assert_string_equal(first.id, CHOSEN);
	yard_acquire(y, &request, &again);
	assert_string_equal(again.id, CHOSEN);
	assert_string_equal(again.place_id, first.place_id);
	assert_int_equal(yard_inventory(y), 1);
	assert_int_equal(yard_lease_rows(y), 1);
	yard_release(y, &first);
	assert_refused(y->r, ERR_LEASE_ENDED,
		       lease_acquire(y->leases, &request, &again, NULL, y->err));
}

static void a_lease_that_nothing_would_end_gets_an_hour(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_request request = yard_request(y, &y->local);

	yard_acquire(y, &request, &lease);
	assert_int_equal(lease.expires_at, RECORDS_START_MS + 3600000);
	request.run_id = RUN_A;
	yard_acquire(y, &request, &lease);
	assert_int_equal(lease.expires_at, 0);
	request.ttl_ms = 5000;
	yard_acquire(y, &request, &lease);
	assert_int_equal(lease.expires_at, RECORDS_START_MS + 5000);
	request.ttl_ms = -1;
	assert_refused(y->r, ERR_VALIDATION,
		       lease_acquire(y->leases, &request, &lease, NULL, y->err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		YARD(a_provider_that_refuses_leaves_no_trace),
		YARD(a_workspace_that_a_place_cannot_have_is_refused),
		YARD_BOTH(I3_a_place_is_destroyed_when_its_lease_cannot_be_written),
		YARD_BOTH(a_grant_whose_answer_was_lost_never_was),
		YARD(an_intent_whose_answer_was_lost_is_taken_back),
		YARD(an_acquire_whose_answer_was_lost_is_destroyed),
		YARD(what_cannot_be_destroyed_after_a_failed_acquire_is_queued),
		YARD(an_answer_that_comes_too_late_is_queued_and_not_waited_for),
		YARD_BOTH(an_orphan_is_spooled_when_the_database_refuses_it),
		YARD(the_spool_survives_a_restart_and_is_flushed_at_start),
		YARD(the_spool_is_bounded),
		YARD(a_spooled_file_that_is_not_ours_is_shown_and_does_no_harm),
		YARD(a_name_that_another_place_has_is_refused_and_its_holder_kept),
		YARD(an_environment_that_is_not_active_gives_no_lease),
		YARD(an_environment_of_another_company_is_not_found),
		YARD_BOTH(a_reused_place_has_the_same_name_and_a_higher_generation),
		YARD(generations_rise_also_over_the_end_of_a_place),
		YARD_BOTH(I4_another_agent_does_not_get_the_place_of_the_first),
		YARD(I4_a_place_that_is_held_is_never_shared),
		YARD(a_changed_config_means_a_new_place),
		YARD(key_order_of_a_config_is_no_change),
		YARD_BOTH(I17_a_resume_that_fails_gives_a_new_place),
		YARD(a_resume_that_finds_nothing_gives_a_new_place),
		YARD(a_grant_that_fails_after_a_resume_keeps_the_files),
		YARD(a_policy_that_needs_a_workspace_says_so),
		YARD(a_policy_that_a_driver_cannot_keep_is_refused),
		YARD(an_ephemeral_lease_of_a_reused_environment_gets_its_own_place),
		YARD(I5_what_a_provider_says_does_not_route_its_release),
		YARD(an_id_chosen_beforehand_gives_the_same_lease_again),
		YARD(a_lease_that_nothing_would_end_gets_an_hour),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

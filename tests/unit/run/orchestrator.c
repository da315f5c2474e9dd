/*
 * The steps between a lease and a command (spec 01 E.4), against a maker that fails on request: the
 * makers are given, so a test changes its own.
 */
#include "../driver/makers.h"
#include "world.h"

/* What the test's driver does; one at a time. */
static struct {
	int realize_calls, start_calls;
	int64_t start_timeout_ms;
	bool realize_fails, unreachable, crooked;
	char start_argv0[64], start_argv1[16], start_argv2[128], start_cwd[256], start_shell[64];
} seen;

static struct maker fake; /* as it was */

static int counting_realize(const struct maker *self, const struct place_view *place,
			    const struct place_workspace *workspace, int64_t deadline_ms,
			    struct place_realization *out, struct error *err)
{
	(void)self, (void)place, (void)workspace, (void)deadline_ms, (void)out;
	seen.realize_calls++;
	return seen.realize_fails ? error_set(err, ERR_IO, "the disk said no") : 0;
}

/* A provider that names a directory no command can be started in. */
static int crooked_acquire(const struct maker *self, const struct place_view *wanted,
			   int64_t deadline_ms, struct made_place *out, struct error *err)
{
	if (fake.acquire(self, wanted, deadline_ms, out, err) < 0)
		return -1;
	if (seen.crooked)
		json_put_str(out->metadata, "remoteCwd", "somewhere");
	return 0;
}

static int recording_prepare(const struct maker *self, const struct place_view *place,
			     const struct exec_spec *spec, struct error *err)
{
	if (seen.start_calls++ == 0) {
		seen.start_timeout_ms = spec->timeout_ms;
		snprintf(seen.start_argv0, sizeof(seen.start_argv0), "%s", spec->argv[0]);
		snprintf(seen.start_argv1, sizeof(seen.start_argv1), "%s",
			 spec->argv[1] ? spec->argv[1] : "");
		snprintf(seen.start_argv2, sizeof(seen.start_argv2), "%s",
			 spec->argv[1] && spec->argv[2] ? spec->argv[2] : "");
		snprintf(seen.start_cwd, sizeof(seen.start_cwd), "%s", spec->cwd ? spec->cwd : "");
		snprintf(seen.start_shell, sizeof(seen.start_shell), "%s",
			 spec->env ? spec->env[0] : "");
	}
	return fake.prepare(self, place, spec, err);
}

static void watch(struct makers *makers)
{
	struct maker *watched = maker_to_change(makers, DRIVER_SANDBOX, "fake");

	fake = *watched;
	watched->acquire = crooked_acquire;
	watched->realize = counting_realize;
	watched->prepare = recording_prepare;
}

static int watched_setup(void **state)
{
	struct world *w;

	memset(&seen, 0, sizeof(seen));
	world_setup(state);
	w = *state;
	world_close(w);
	w->change = watch;
	world_open(w);
	world_start(w);
	return 0;
}

/* A run in an environment, in a workspace with this config and directory. */
static void run_in(struct world *w, const char *environment_id, const char *cwd,
		   const char *workspace_config_text, struct run *run, struct workspace_record *ws)
{
	struct workspace_record in = { .mode = (char *)"isolated_workspace",
				       .strategy_type = (char *)"project_primary",
				       .name = (char *)"ws",
				       .status = (char *)"active",
				       .provider_type = (char *)"local_fs",
				       .cwd = (char *)cwd };
	_cleanup_free_ char *metadata = NULL, *body = NULL;
	_cleanup_json_ json_t *project_body = json_loads("{\"name\":\"p\"}", 0, NULL);
	struct project project = { 0 };

	assert_ok(project_create(WRITER(w->db, &w->clock, &ACTOR_SYSTEM), w->company.id,
				 project_body, &project, err));
	id_copy(in.company_id, w->company.id);
	id_copy(in.project_id, project.id);
	metadata = xasprintf("{\"config\":%s,\"kept\":1}", workspace_config_text);
	in.metadata = json_loads(metadata, 0, NULL);
	assert_ok(workspace_record_create(WRITER(w->db, &w->clock, &ACTOR_SYSTEM), &in, ws, err));
	body = xasprintf("{\"command\":[\"echo\",\"ran\"],\"environmentId\":\"%s\","
			 "\"executionWorkspaceId\":\"%s\"}",
			 environment_id, ws->id);
	run_to_end(w, body, run);
	json_decref(in.metadata);
	project_clear(&project);
}

/* The same in the fake sandbox. */
static void run_with(struct world *w, const char *workspace_config_text, struct run *run,
		     struct workspace_record *ws)
{
	char id[ID_SIZE];

	add_environment(w, "fake", DRIVER_SANDBOX,
			"{\"provider\":\"fake\",\"image\":\"x\",\"reuseLease\":false}", NULL, id);
	run_in(w, id, "/", workspace_config_text, run, ws);
}

static void OR_1_a_run_is_realized_once_and_its_record_has_version_1(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	struct workspace_record ws = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	json_t *record, *about;

	run_with(w, "{}", &run, &ws);
	assert_int_equal(run.status, RUN_SUCCEEDED);
	assert_int_equal(seen.realize_calls, 1);
	assert_int_equal(seen.start_calls, 1);
	about = json_object_at(run.context, "paperclipEnvironment");
	record = json_object_at(about, "workspaceRealization");
	assert_int_equal(json_int(record, "version", 0), 1);
	/* Where its commands start, for those who come later (E.7). */
	assert_ok(lease_get(w->leases, run.lease_id, &lease, NULL, err));
	assert_non_null(json_str(lease.metadata, "remoteCwd"));
	assert_string_equal(json_str(about, "remoteCwd"), json_str(lease.metadata, "remoteCwd"));
	workspace_record_clear(&ws);
}

static void OR_2_a_failing_realization_keeps_its_code_and_runs_nothing(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	struct workspace_record ws = { 0 };

	seen.realize_fails = true;
	run_with(w, "{}", &run, &ws);
	assert_int_equal(run.status, RUN_FAILED);
	assert_string_equal(run.error_code, "workspace_realization_failed");
	assert_non_null(strstr(run.error, "the disk said no"));
	assert_non_null(strstr(run.error, "\"fake\" (sandbox)"));
	assert_int_equal(seen.start_calls, 0);
	workspace_record_clear(&ws);
}

/* An adapter that would run elsewhere gets no place at all: nothing falls back to the host (I7). */
static void I7_an_adapter_that_cannot_run_in_the_place_is_refused(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_free_ char *body = NULL;
	_cleanup_json_ json_t *parsed = NULL;
	struct agent agent = { 0 };
	char id[ID_SIZE];

	add_environment(w, "fake", DRIVER_SANDBOX,
			"{\"provider\":\"fake\",\"image\":\"x\",\"reuseLease\":false}", NULL, id);
	parsed = json_loads("{\"name\":\"a\",\"adapterType\":\"openclaw_gateway\"}", 0, NULL);
	assert_ok(agent_create(WRITER(w->db, &w->clock, &ACTOR_SYSTEM), w->company.id, parsed,
			       &agent, err));
	body = xasprintf("{\"command\":[\"touch\",\"/tmp/"
			 "escaped\"],\"environmentId\":\"%s\",\"agentId\":\"%s\"}",
			 id, agent.id);
	run_to_end(w, body, &run);
	assert_string_equal(run.error_code, "unsupported_adapter_environment");
	assert_int_equal(seen.start_calls, 0);
	assert_false(id_is_set(run.lease_id));
	agent_clear(&agent);
}

static void OR_3_a_place_whose_directory_cannot_be_resolved_keeps_its_code(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	struct workspace_record ws = { 0 };

	seen.crooked = true;
	run_with(w, "{}", &run, &ws);
	assert_int_equal(run.status, RUN_FAILED);
	assert_string_equal(run.error_code, "transport_resolution_failed");
	assert_non_null(strstr(run.error, "could not reach"));
	assert_int_equal(seen.start_calls, 0);
	workspace_record_clear(&ws);
}

static void a_plugin_environment_is_refused_before_a_lease(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_free_ char *body = NULL;
	char id[ID_SIZE];

	add_environment(w, "plug", DRIVER_PLUGIN,
			"{\"pluginKey\":\"k\",\"driverKey\":\"d\",\"driverConfig\":{}}", NULL, id);
	body = xasprintf("{\"command\":[\"true\"],\"environmentId\":\"%s\"}", id);
	run_to_end(w, body, &run);
	assert_string_equal(run.error_code, "unsupported_environment");
	assert_int_equal(seen.realize_calls, 0);
	assert_false(id_is_set(run.lease_id));
}

/* The reference provisions over ssh; here such an environment is refused until it can be reached.
 */
static void an_ssh_environment_is_refused_before_a_lease(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_free_ char *body = NULL;
	char id[ID_SIZE];

	add_environment(
		w, "far", DRIVER_SSH,
		"{\"host\":\"h\",\"port\":22,\"username\":\"u\",\"remoteWorkspacePath\":\"/w\"}",
		NULL, id);
	body = xasprintf("{\"command\":[\"true\"],\"environmentId\":\"%s\"}", id);
	run_to_end(w, body, &run);
	assert_string_equal(run.error_code, "unsupported_environment");
	assert_non_null(strstr(run.error, "ssh"));
	assert_false(id_is_set(run.lease_id));
}

static void OR_5_the_record_is_kept_on_the_lease_and_on_the_workspace(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	struct workspace_record ws = { 0 }, after = { 0 };
	const json_t *request;

	run_with(w, "{}", &run, &ws);
	assert_ok(lease_get(w->leases, run.lease_id, &lease, NULL, err));
	assert_int_equal(
		json_int(json_object_at(lease.metadata, "workspaceRealization"), "version", 0), 1);
	assert_string_equal(json_str(lease.metadata, "driver"), "sandbox");
	assert_ok(workspace_record_get(w->db, ws.id, &after, err));
	request = json_object_at(after.metadata, "workspaceRealizationRequest");
	assert_int_equal(json_int(request, "version", 0), 1);
	assert_string_equal(json_str(request, "companyId"), w->company.id);
	assert_string_equal(json_str(request, "environmentId"), run.environment_id);
	assert_string_equal(json_str(request, "executionWorkspaceId"), ws.id);
	assert_string_equal(json_str(request, "heartbeatRunId"), run.id);
	assert_string_equal(json_str(request, "requestedMode"), "isolated_workspace");
	assert_non_null(json_object_at(after.metadata, "workspaceRealization"));
	assert_int_equal(json_int(after.metadata, "kept", 0), 1);
	workspace_record_clear(&ws);
	workspace_record_clear(&after);
}

static void OR_6_provision_runs_in_bash_in_the_realized_directory(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	struct workspace_record ws = { 0 };

	run_with(w, "{\"provisionCommand\":\"  touch provisioned  \"}", &run, &ws);
	assert_int_equal(run.status, RUN_SUCCEEDED);
	assert_string_equal(seen.start_argv0, "bash");
	assert_string_equal(seen.start_argv1, "-lc");
	assert_string_equal(seen.start_argv2, "touch provisioned");
	assert_string_equal(seen.start_shell, "SHELL=/bin/bash");
	assert_non_null(strstr(seen.start_cwd, "/providers/fake/"));
	assert_int_equal(seen.start_calls, 2);
	assert_int_equal(seen.start_timeout_ms, 300000);
	workspace_record_clear(&ws);
}

static void a_provision_command_is_not_run_on_this_host(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_environment_ struct environment local = { 0 };
	_cleanup_free_ char *config =
		xasprintf("{\"provisionCommand\":\"touch '%s/provisioned'\"}", w->dir);
	struct workspace_record ws = { 0 };

	assert_ok(environment_ensure_local(w->db, &w->clock, w->company.id, &local, err));
	run_in(w, local.id, w->dir, config, &run, &ws);
	assert_int_equal(run.status, RUN_SUCCEEDED);
	assert_int_equal(faccessat(w->dirfd, "provisioned", F_OK, 0), -1);
	workspace_record_clear(&ws);
}

static void OR_8_a_failing_provision_command_is_quoted_and_nothing_runs(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	struct workspace_record ws = { 0 };

	run_with(w,
		 "{\"provisionCommand\":\"echo '/bin/sh: install-tool: not found' >&2; exit 127\"}",
		 &run, &ws);
	assert_int_equal(run.status, RUN_FAILED);
	assert_string_equal(run.error_code, "workspace_realization_failed");
	assert_non_null(strstr(run.error, "install-tool: not found"));
	assert_non_null(strstr(run.error, "exit code 127"));
	assert_int_equal(seen.start_calls, 1);
	workspace_record_clear(&ws);
}

static void I15_an_environment_error_keeps_its_code_on_the_run(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_free_ char *body = NULL;
	const enum environment_status archived = ENVIRONMENT_ARCHIVED;
	const struct environment_patch patch = { .status = &archived };
	struct environment env = { 0 };
	char id[ID_SIZE];

	add_environment(w, "attic", DRIVER_SANDBOX,
			"{\"provider\":\"fake\",\"image\":\"x\",\"reuseLease\":false}", NULL, id);
	assert_ok(environment_update(w->db, &w->clock, &ACTOR_SYSTEM, id, &patch, &env, err));
	body = xasprintf("{\"command\":[\"true\"],\"environmentId\":\"%s\"}", id);
	run_to_end(w, body, &run);
	assert_string_equal(run.error_code, "environment_inactive");
	assert_non_null(strstr(run.error, "\"attic\""));
	environment_clear(&env);
}

static void a_provider_that_refuses_fails_the_run_with_its_cause(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_free_ char *body = NULL;
	char id[ID_SIZE];

	add_environment(w, "no", DRIVER_SANDBOX,
			"{\"provider\":\"fake\",\"image\":\"x\",\"reuseLease\":false,"
			"\"faults\":{\"acquire\":{\"fail\":true,\"message\":\"quota exceeded\"}}}",
			NULL, id);
	body = xasprintf("{\"command\":[\"true\"],\"environmentId\":\"%s\"}", id);
	run_to_end(w, body, &run);
	assert_int_equal(run.status, RUN_FAILED);
	assert_string_equal(run.error_code, "lease_acquire_failed");
	assert_non_null(strstr(run.error, "quota exceeded"));
}

#define STEP(test) cmocka_unit_test_setup_teardown(test, watched_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STEP(OR_1_a_run_is_realized_once_and_its_record_has_version_1),
		STEP(OR_2_a_failing_realization_keeps_its_code_and_runs_nothing),
		STEP(I7_an_adapter_that_cannot_run_in_the_place_is_refused),
		STEP(OR_3_a_place_whose_directory_cannot_be_resolved_keeps_its_code),
		STEP(a_plugin_environment_is_refused_before_a_lease),
		STEP(OR_5_the_record_is_kept_on_the_lease_and_on_the_workspace),
		STEP(OR_6_provision_runs_in_bash_in_the_realized_directory),
		STEP(an_ssh_environment_is_refused_before_a_lease),
		STEP(a_provision_command_is_not_run_on_this_host),
		STEP(OR_8_a_failing_provision_command_is_quoted_and_nothing_runs),
		STEP(I15_an_environment_error_keeps_its_code_on_the_run),
		STEP(a_provider_that_refuses_fails_the_run_with_its_cause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

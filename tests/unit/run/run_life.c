/*
 * Whole runs on this host and in the fake sandbox: how they begin, end, wait and are cancelled.
 */
#include "world.h"

#include <signal.h>
#include <unistd.h>

#define FAKE "{\"provider\":\"fake\",\"image\":\"x\",\"reuseLease\":false}"

SQL(TEST_LEASES_OF_RUN, "SELECT status, provider, released_at, environment_id, issue_id FROM leases"
			" WHERE run_id = $1");

struct lease_look {
	const char *run_id;
	int count;
	char status[32], provider[32], environment_id[ID_SIZE], issue_id[ID_SIZE];
	int64_t released_at;
};

static int look(struct tx *tx, void *arg, struct error *err)
{
	struct lease_look *l = arg;
	struct cursor c;

	l->count = 0;
	if (tx_query(tx, &c, &TEST_LEASES_OF_RUN, err, B_TEXT(l->run_id)) < 0)
		return -1;
	while (cursor_next(&c, err) > 0) {
		l->count++;
		snprintf(l->status, sizeof(l->status), "%s", col_text(&c, 0));
		snprintf(l->provider, sizeof(l->provider), "%s", col_text(&c, 1));
		l->released_at = col_int(&c, 2);
		id_copy(l->environment_id, col_text(&c, 3));
		id_copy(l->issue_id, col_text(&c, 4));
	}
	cursor_close(&c);
	return 0;
}

static struct lease_look leases_of(struct world *w, const char *run_id)
{
	struct lease_look l = { .run_id = run_id };

	assert_ok(db_read(w->db, look, &l, err));
	return l;
}

static void add_agent(struct world *w, const char *body_text, struct agent *agent)
{
	_cleanup_json_ json_t *body = json_parse(body_text, strlen(body_text), NULL);

	assert_ok(agent_create(WRITER(w->db, &w->clock, &ACTOR_SYSTEM), w->company.id, body, agent,
			       err));
}

static void HB_1_a_process_agent_without_configuration_runs_on_local(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_json_ json_t *locals = NULL;
	struct agent agent = { 0 };
	_cleanup_free_ char *body = NULL;
	struct lease_look l;
	json_t *about;

	world_start(w);
	add_agent(w, "{\"name\":\"a\"}", &agent);
	body = xasprintf(
		"{\"command\":[\"sh\",\"-c\",\"echo hello $BERTH_AGENT_ID\"],\"agentId\":\"%s\"}",
		agent.id);
	run_to_end(w, body, &run);
	assert_int_equal(run.status, RUN_SUCCEEDED);
	assert_int_equal(run.exit_code, 0);
	locals = environment_list(w->db, w->company.id, NULL, "local", NULL);
	assert_int_equal(json_array_size(locals), 1);
	assert_string_equal(json_str(json_array_get(locals, 0), "name"), "Local");
	l = leases_of(w, run.id);
	assert_int_equal(l.count, 1);
	assert_string_equal(l.status, "released");
	assert_string_equal(l.provider, "local");
	assert_true(l.released_at > 0);
	about = json_object_at(run.context, "paperclipEnvironment");
	assert_string_equal(json_str(about, "driver"), "local");
	assert_string_equal(json_str(about, "name"), "Local");
	assert_string_equal(json_str(about, "leaseId"), run.lease_id);
	assert_non_null(json_str(about, "id"));
	agent_clear(&agent);
}

static void HB_3_a_linked_workspace_that_is_not_reused_does_not_choose(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	char old_id[ID_SIZE], new_id[ID_SIZE];
	_cleanup_free_ char *agent_body = NULL, *issue_body = NULL, *run_body = NULL,
			    *config = NULL;
	_cleanup_json_ json_t *body = NULL;
	struct project project = { 0 };
	struct issue issue = { 0 };
	struct agent agent = { 0 };
	struct workspace_record in = { .mode = (char *)"shared_workspace",
				       .strategy_type = (char *)"project_primary",
				       .name = (char *)"ws",
				       .status = (char *)"active",
				       .provider_type = (char *)"local_fs" },
				ws = { 0 };
	struct lease_look l;

	world_start(w);
	add_environment(w, "old", DRIVER_SANDBOX, FAKE, NULL, old_id);
	add_environment(w, "new", DRIVER_SANDBOX, FAKE, NULL, new_id);
	agent_body = xasprintf(
		"{\"name\":\"a\",\"adapterType\":\"codex_local\",\"defaultEnvironmentId\":\"%s\"}",
		old_id);
	add_agent(w, agent_body, &agent);
	body = json_loads("{\"name\":\"p\"}", 0, NULL);
	assert_ok(project_create(WRITER(w->db, &w->clock, &ACTOR_SYSTEM), w->company.id, body,
				 &project, err));
	json_decref(body);
	id_copy(in.company_id, w->company.id);
	id_copy(in.project_id, project.id);
	config = xasprintf("{\"config\":{\"environmentId\":\"%s\"}}", old_id);
	in.metadata = json_loads(config, 0, NULL);
	assert_ok(workspace_record_create(WRITER(w->db, &w->clock, &ACTOR_SYSTEM), &in, &ws, err));
	issue_body = xasprintf("{\"title\":\"i\",\"executionWorkspaceId\":\"%s\","
			       "\"executionWorkspaceSettings\":{\"environmentId\":\"%s\"}}",
			       ws.id, new_id);
	body = json_loads(issue_body, 0, NULL);
	assert_ok(issue_create(WRITER(w->db, &w->clock, &ACTOR_SYSTEM), w->company.id, body, &issue,
			       err));
	run_body = xasprintf("{\"command\":[\"true\"],\"agentId\":\"%s\",\"issueId\":\"%s\"}",
			     agent.id, issue.id);
	run_to_end(w, run_body, &run);
	assert_int_equal(run.status, RUN_SUCCEEDED);
	l = leases_of(w, run.id);
	assert_string_equal(l.environment_id, new_id);
	assert_string_equal(l.issue_id, issue.id);
	json_decref(in.metadata);
	workspace_record_clear(&ws);
	project_clear(&project);
	issue_clear(&issue);
	agent_clear(&agent);
}

static void WC_15_a_reused_workspace_keeps_its_environment(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_free_ char *text = NULL, *run_body = NULL, *metadata = NULL;
	_cleanup_json_ json_t *project_body = json_loads("{\"name\":\"p\"}", 0, NULL);
	_cleanup_json_ json_t *issue_body = NULL, *kept = NULL;
	_cleanup_(project_clear) struct project project = { 0 };
	_cleanup_(issue_clear) struct issue issue = { 0 };
	_cleanup_workspace_ struct workspace_record in = { .name = xstrdup("ws") }, ws = { 0 },
						    after = { 0 };
	char old_id[ID_SIZE], new_id[ID_SIZE];

	world_start(w);
	add_environment(w, "old", DRIVER_SANDBOX, FAKE, NULL, old_id);
	add_environment(w, "new", DRIVER_SANDBOX, FAKE, NULL, new_id);
	assert_ok(project_create(WRITER(w->db, &w->clock, &ACTOR_SYSTEM), w->company.id,
				 project_body, &project, err));
	id_copy(in.company_id, w->company.id);
	id_copy(in.project_id, project.id);
	metadata = xasprintf("{\"config\":{\"environmentId\":\"%s\"}}", old_id);
	in.metadata = json_loads(metadata, 0, NULL);
	assert_ok(workspace_record_create(WRITER(w->db, &w->clock, &ACTOR_SYSTEM), &in, &ws, err));
	text = xasprintf("{\"title\":\"i\",\"executionWorkspaceId\":\"%s\","
			 "\"executionWorkspacePreference\":\"reuse_existing\","
			 "\"executionWorkspaceSettings\":{\"environmentId\":\"%s\"}}",
			 ws.id, new_id);
	issue_body = json_loads(text, 0, NULL);
	assert_ok(issue_create(WRITER(w->db, &w->clock, &ACTOR_SYSTEM), w->company.id, issue_body,
			       &issue, err));
	run_body = xasprintf("{\"command\":[\"true\"],\"issueId\":\"%s\"}", issue.id);
	run_to_end(w, run_body, &run);
	assert_int_equal(run.status, RUN_SUCCEEDED);
	assert_string_equal(leases_of(w, run.id).environment_id, old_id);
	assert_ok(workspace_record_get(w->db, ws.id, &after, err));
	kept = workspace_config(after.metadata);
	assert_string_equal(json_str(kept, "environmentId"), old_id);
	assert_non_null(json_object_at(after.metadata, "workspaceRealization"));
}

static void a_run_in_the_fake_sandbox_works_in_a_directory_of_its_own(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_free_ char *body = NULL, *out = NULL;
	char id[ID_SIZE];

	world_start(w);
	add_environment(w, "fake", DRIVER_SANDBOX, FAKE, NULL, id);
	body = xasprintf(
		"{\"command\":[\"sh\",\"-c\",\"pwd; echo oops >&2\"],\"environmentId\":\"%s\"}",
		id);
	run_to_end(w, body, &run);
	assert_int_equal(run.status, RUN_SUCCEEDED);
	out = output_of(w, run.id, RUNLOG_STDOUT);
	assert_true(str_starts(out, w->dir));
	assert_non_null(strstr(out, "/providers/fake/"));
}

static void a_failing_command_fails_the_run_and_its_lease(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };

	world_start(w);
	run_to_end(w, "{\"command\":[\"sh\",\"-c\",\"exit 7\"]}", &run);
	assert_int_equal(run.status, RUN_FAILED);
	assert_int_equal(run.exit_code, 7);
	assert_string_equal(run.reason, "exited");
	assert_string_equal(run.error_code, "adapter_failed");
	assert_string_equal(leases_of(w, run.id).status, "failed");
}

static void a_command_that_does_not_exist_is_told_as_127(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };

	world_start(w);
	run_to_end(w, "{\"command\":[\"no-such-program-here\"]}", &run);
	assert_int_equal(run.status, RUN_FAILED);
	assert_int_equal(run.exit_code, 127);
	assert_string_equal(run.error_code, "command_not_found");
}

static void a_timeout_ends_the_run_and_says_so(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };

	world_start(w);
	run_to_end(w, "{\"command\":[\"sleep\",\"600\"],\"timeoutMs\":50}", &run);
	assert_int_equal(run.status, RUN_TIMED_OUT);
	assert_string_equal(run.error_code, "timeout");
	assert_string_equal(leases_of(w, run.id).status, "failed");
}

/* The only entry of a lease about an action. */
static const json_t *told_of_lease(const json_t *log, const char *action)
{
	const json_t *items = json_array_at(log, "items"), *entry, *found = NULL;
	size_t i;

	json_array_foreach (items, i, entry) {
		if (!str_equal(json_str(entry, "action"), action))
			continue;
		assert_null(found);
		found = entry;
	}
	assert_non_null(found);
	return found;
}

static void the_lease_of_an_agent_s_run_is_taken_and_given_back_by_the_agent(void **state)
{
	static const char *const ACTIONS[] = { "environment.lease_acquired",
					       "environment.lease_released" };
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_free_ char *body = NULL;
	_cleanup_json_ json_t *log = NULL;
	struct agent agent = { 0 };

	world_start(w);
	add_agent(w, "{\"name\":\"a\"}", &agent);
	body = xasprintf("{\"command\":[\"sh\",\"-c\",\"exit 3\"],\"agentId\":\"%s\"}", agent.id);
	run_to_end(w, body, &run);
	assert_int_equal(run.status, RUN_FAILED);
	log = activity_list(w->db,
			    &(struct activity_query){ .company_id = w->company.id,
						      .entity_type = "environment_lease",
						      .entity_id = run.lease_id,
						      .limit = 10 },
			    NULL);
	for (size_t i = 0; i < ARRAY_SIZE(ACTIONS); i++) {
		const json_t *entry = told_of_lease(log, ACTIONS[i]);

		assert_string_equal(json_str(entry, "actorType"), "agent");
		assert_string_equal(json_str(entry, "actorId"), agent.id);
		assert_string_equal(json_str(entry, "agentId"), agent.id);
		assert_string_equal(json_str(entry, "runId"), run.id);
	}
	/* What is told is the run's error; the row has the word of spec 01 A.4. */
	assert_string_equal(json_str(json_object_at(told_of_lease(log, ACTIONS[1]), "details"),
				     "failureReason"),
			    "the command exited with code 3");
	assert_ok(lease_get(w->leases, run.lease_id, &lease, NULL, err));
	assert_string_equal(lease.failure_reason, "adapter_or_run_failure");
	agent_clear(&agent);
}

static void the_lease_of_a_run_without_an_agent_is_the_server_s(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_json_ json_t *log = NULL;
	const json_t *entry;

	world_start(w);
	run_to_end(w, "{\"command\":[\"true\"]}", &run);
	log = activity_list(w->db,
			    &(struct activity_query){ .company_id = w->company.id,
						      .entity_type = "environment_lease",
						      .entity_id = run.lease_id,
						      .limit = 10 },
			    NULL);
	entry = told_of_lease(log, "environment.lease_released");
	assert_string_equal(json_str(entry, "actorType"), "system");
	assert_int_equal(json_state(json_object_at(entry, "details"), "failureReason"),
			 JSON_IS_NULL);
}

static void a_running_run_is_cancelled_and_its_lease_released(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	char id[ID_SIZE];
	int64_t deadline = clock_mono(&w->clock) + 10000;
	const struct activity_query told = { .company_id = w->company.id,
					     .entity_type = "heartbeat_run",
					     .entity_id = id,
					     .limit = 10 };
	_cleanup_json_ json_t *log = NULL;
	const json_t *entry;

	world_start(w);
	submit(w, "{\"command\":[\"sleep\",\"600\"]}", &run);
	id_copy(id, run.id);
	while (run.process_pid == 0 && clock_mono(&w->clock) < deadline) {
		run_clear(&run);
		assert_ok(run_get(w->runs, id, &run, err));
	}
	assert_true(run.process_pid > 0);
	run_clear(&run);
	assert_ok(run_cancel(w->runs, &ACTOR_SYSTEM, id, &run, err));
	await_run(w, id, &run);
	assert_int_equal(run.status, RUN_CANCELLED);
	assert_string_equal(leases_of(w, id).status, "released");
	/* Once more is no error and changes nothing. */
	run_clear(&run);
	assert_ok(run_cancel(w->runs, &ACTOR_SYSTEM, id, &run, err));
	assert_int_equal(run.status, RUN_CANCELLED);
	/* Told once, of the run and with its agent. */
	log = activity_list(w->db, &told, NULL);
	assert_int_equal(json_array_size(json_array_at(log, "items")), 1);
	entry = json_array_get(json_array_at(log, "items"), 0);
	assert_string_equal(json_str(entry, "action"), "heartbeat.cancelled");
	assert_int_not_equal(json_state(json_object_at(entry, "details"), "agentId"),
			     JSON_IS_ABSENT);
}

static void cancelling_again_does_not_wait_for_a_command_that_will_not_leave(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	int64_t deadline = clock_mono(&w->clock) + 10000;
	_cleanup_free_ char *body = NULL;
	char id[ID_SIZE];

	world_start(w);
	body = xasprintf("{\"command\":[\"sh\",\"-c\",\"trap '' TERM; >%s/deaf; "
			 "while :; do sleep 0.05; done\"]}",
			 w->dir);
	submit(w, body, &run);
	id_copy(id, run.id);
	while (faccessat(w->dirfd, "deaf", F_OK, 0) < 0 && clock_mono(&w->clock) < deadline)
		poll(NULL, 0, 5);
	assert_int_equal(faccessat(w->dirfd, "deaf", F_OK, 0), 0);
	run_clear(&run);
	assert_ok(run_cancel(w->runs, &ACTOR_SYSTEM, id, &run, err));
	assert_int_equal(run.status, RUN_RUNNING);
	run_clear(&run);
	assert_ok(run_cancel(w->runs, &ACTOR_SYSTEM, id, &run, err));
	await_run(w, id, &run);
	assert_int_equal(run.status, RUN_CANCELLED);
	assert_string_equal(run.signal, "SIGKILL");
}

static void a_queued_run_is_cancelled_without_ever_starting(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	char id[ID_SIZE];

	submit(w, "{\"command\":[\"true\"]}", &run); /* no dispatcher yet */
	id_copy(id, run.id);
	run_clear(&run);
	assert_ok(run_cancel(w->runs, &ACTOR_SYSTEM, id, &run, err));
	assert_int_equal(run.status, RUN_CANCELLED);
	world_start(w);
	assert_int_equal(leases_of(w, id).count, 0);
}

static void a_run_waits_with_a_reason_while_the_environment_is_full(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run first = { 0 }, second = { 0 };
	_cleanup_free_ char *holds = NULL, *waits = NULL;
	char env[ID_SIZE], first_id[ID_SIZE], second_id[ID_SIZE];
	int64_t deadline = clock_mono(&w->clock) + 10000;

	world_start(w);
	add_environment(w, "one", DRIVER_SANDBOX, FAKE, "{\"maxLeases\":1}", env);
	holds = xasprintf("{\"command\":[\"sleep\",\"600\"],\"environmentId\":\"%s\"}", env);
	waits = xasprintf("{\"command\":[\"true\"],\"environmentId\":\"%s\"}", env);
	submit(w, holds, &first);
	id_copy(first_id, first.id);
	while (first.status != RUN_RUNNING && clock_mono(&w->clock) < deadline) {
		run_clear(&first);
		assert_ok(run_get(w->runs, first_id, &first, err));
	}
	submit(w, waits, &second);
	id_copy(second_id, second.id);
	while (!second.status_reason && clock_mono(&w->clock) < deadline) {
		run_clear(&second);
		assert_ok(run_get(w->runs, second_id, &second, err));
	}
	assert_int_equal(second.status, RUN_QUEUED);
	assert_non_null(second.status_reason);
	run_clear(&first);
	assert_ok(run_cancel(w->runs, &ACTOR_SYSTEM, first_id, &first, err));
	await_run(w, second_id, &second);
	assert_int_equal(second.status, RUN_SUCCEEDED);
	assert_null(second.status_reason);
}

static void runs_beyond_the_slots_say_what_they_wait_for(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run first = { 0 }, second = { 0 };
	char first_id[ID_SIZE], second_id[ID_SIZE];
	int64_t deadline = clock_mono(&w->clock) + 10000;

	world_close(w);
	w->max_parallel = 1;
	world_open(w);
	world_start(w);
	submit(w, "{\"command\":[\"sleep\",\"600\"]}", &first);
	id_copy(first_id, first.id);
	submit(w, "{\"command\":[\"true\"]}", &second);
	id_copy(second_id, second.id);
	while (!second.status_reason && clock_mono(&w->clock) < deadline) {
		run_clear(&second);
		assert_ok(run_get(w->runs, second_id, &second, err));
	}
	assert_non_null(second.status_reason);
	assert_non_null(strstr(second.status_reason, "slots"));
	run_clear(&first);
	assert_ok(run_cancel(w->runs, &ACTOR_SYSTEM, first_id, &first, err));
	await_run(w, second_id, &second);
	assert_int_equal(second.status, RUN_SUCCEEDED);
}

static void stdin_environment_and_directory_reach_the_command(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };

	world_start(w);
	setenv("BERTH_TEST_LEAK", "leaked", 1);
	run_to_end(w,
		   "{\"command\":[\"sh\",\"-c\",\"cat; echo $GREETING $BERTH_TEST_LEAK; pwd\"],"
		   "\"stdin\":\"aGkK\",\"stdinEncoding\":\"base64\",\"env\":{\"GREETING\":\"hey\"},"
		   "\"cwd\":\"/usr\"}",
		   &run);
	assert_output(w, run.id, "hi\nhey\n/usr\n");
}

static void values_of_env_and_stdin_are_never_shown(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_json_ json_t *shown = NULL;
	_cleanup_free_ char *text = NULL;

	submit(w,
	       "{\"command\":[\"true\"],\"env\":{\"KEY\":\"canary-value\"},\"stdin\":\"canary-"
	       "input\"}",
	       &run);
	shown = run_json(&run);
	text = json_text(shown);
	assert_null(strstr(text, "canary"));
	assert_non_null(strstr(text, "\"KEY\""));
}

static void a_foreign_reference_is_refused_and_nothing_is_written(void **state)
{
	struct world *w = *state;
	_cleanup_error_ struct error refused = { 0 };
	_cleanup_run_ struct run run = { 0 };
	_cleanup_json_ json_t *body = NULL, *page = NULL;
	struct company other = { 0 };
	struct agent agent = { 0 };

	assert_ok(company_create(WRITER(w->db, &w->clock, &ACTOR_SYSTEM), "other", NULL, &other,
				 err));
	body = json_loads("{\"name\":\"spy\"}", 0, NULL);
	assert_ok(
		agent_create(WRITER(w->db, &w->clock, &ACTOR_SYSTEM), other.id, body, &agent, err));
	json_decref(body);
	body = json_loads("{\"command\":[\"true\"]}", 0, NULL);
	json_put_str(body, "agentId", agent.id);
	assert_int_equal(
		run_create(w->runs, &ACTOR_SYSTEM, NULL, w->company.id, body, &run, &refused), -1);
	assert_int_equal(refused.code, ERR_UNPROCESSABLE);
	assert_non_null(strstr(refused.message, "agentId"));
	page = run_list(w->runs, &(struct run_query){ .company_id = w->company.id, .limit = 10 },
			NULL);
	assert_int_equal(json_array_size(json_object_get(page, "items")), 0);
	company_clear(&other);
	agent_clear(&agent);
}

static void pages_of_runs_follow_each_other_without_gap_or_repeat(void **state)
{
	struct world *w = *state;
	_cleanup_free_ char *cursor = NULL;
	size_t seen = 0;

	for (int i = 0; i < 7; i++) {
		_cleanup_run_ struct run run = { 0 };

		submit(w, "{\"command\":[\"true\"]}", &run);
	}
	for (;;) {
		_cleanup_json_ json_t *page =
			run_list(w->runs,
				 &(struct run_query){ .company_id = w->company.id,
						      .status = "queued",
						      .limit = 3,
						      .cursor = cursor },
				 NULL);

		seen += json_array_size(json_object_get(page, "items"));
		free(cursor);
		cursor = xstrdup(json_str(page, "nextCursor"));
		if (!cursor)
			break;
	}
	assert_int_equal(seen, 7);
}

static void a_retry_is_a_new_run_of_the_same_request(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 }, retry = { 0 };
	_cleanup_error_ struct error refused = { 0 };
	char id[ID_SIZE];

	submit(w, "{\"command\":[\"sh\",\"-c\",\"echo $V; false\"],\"env\":{\"V\":\"x\"}}", &run);
	assert_int_equal(run_retry(w->runs, &ACTOR_SYSTEM, run.id, &retry, &refused), -1);
	assert_int_equal(refused.code, ERR_RUN_STATE);
	world_start(w);
	id_copy(id, run.id);
	await_run(w, id, &run);
	assert_ok(run_retry(w->runs, &ACTOR_SYSTEM, id, &retry, err));
	assert_string_equal(retry.retry_of_run_id, id);
	id_copy(id, retry.id);
	await_run(w, id, &retry);
	assert_output(w, id, "x\n");
}

#define LIFE(test) cmocka_unit_test_setup_teardown(test, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LIFE(HB_1_a_process_agent_without_configuration_runs_on_local),
		LIFE(HB_3_a_linked_workspace_that_is_not_reused_does_not_choose),
		LIFE(WC_15_a_reused_workspace_keeps_its_environment),
		LIFE(a_run_in_the_fake_sandbox_works_in_a_directory_of_its_own),
		LIFE(a_failing_command_fails_the_run_and_its_lease),
		LIFE(a_command_that_does_not_exist_is_told_as_127),
		LIFE(a_timeout_ends_the_run_and_says_so),
		LIFE(a_running_run_is_cancelled_and_its_lease_released),
		LIFE(the_lease_of_an_agent_s_run_is_taken_and_given_back_by_the_agent),
		LIFE(the_lease_of_a_run_without_an_agent_is_the_server_s),
		LIFE(cancelling_again_does_not_wait_for_a_command_that_will_not_leave),
		LIFE(a_queued_run_is_cancelled_without_ever_starting),
		LIFE(a_run_waits_with_a_reason_while_the_environment_is_full),
		LIFE(runs_beyond_the_slots_say_what_they_wait_for),
		LIFE(stdin_environment_and_directory_reach_the_command),
		LIFE(values_of_env_and_stdin_are_never_shown),
		LIFE(a_foreign_reference_is_refused_and_nothing_is_written),
		LIFE(pages_of_runs_follow_each_other_without_gap_or_repeat),
		LIFE(a_retry_is_a_new_run_of_the_same_request),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

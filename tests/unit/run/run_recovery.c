/*
 * What a server finds that an earlier one left: rows are put into the state of a crash, and the
 * world is opened again.
 */
#include "world.h"

SQL(TEST_AGE_RUN,
    "UPDATE runs SET status = 'running', boot_epoch = boot_epoch - 1, process_pid = $2,"
    " process_start_time = $3, lease_id = $4 WHERE id = $1");
SQL(TEST_REQUEST_CANCEL, "UPDATE runs SET cancel_requested_at = 1 WHERE id = $1");

struct crash {
	const char *run_id, *lease_id;
	int64_t pid, start_time;
	bool cancel_asked;
};

static int write_crash(struct tx *tx, void *arg, struct error *err)
{
	struct crash *c = arg;

	if (tx_exec(tx, &TEST_AGE_RUN, err, B_TEXT(c->run_id), c->pid ? B_INT(c->pid) : B_NULL,
		    B_INT(c->start_time), B_TEXT(c->lease_id)) < 0)
		return -1;
	return c->cancel_asked && tx_exec(tx, &TEST_REQUEST_CANCEL, err, B_TEXT(c->run_id)) < 0 ? -1
												: 0;
}

/* The run was running, holding a local lease, when its server died. */
static void crash_run(struct world *w, const char *run_id, struct crash *crash, struct lease *lease)
{
	struct environment local = { 0 };
	struct lease_request request = { .company_id = w->company.id,
					 .environment = &local,
					 .actor = &ACTOR_SYSTEM,
					 .cancel_fd = -1 };
	struct place place = { 0 };

	assert_ok(environment_ensure_local(w->db, &w->clock, w->company.id, &local, err));
	request.run_id = run_id;
	assert_ok(lease_acquire(w->leases, &request, lease, &place, err));
	crash->run_id = run_id;
	crash->lease_id = lease->id;
	assert_ok(DB_WRITE(w->db, "test.crash", write_crash, crash, err));
	environment_clear(&local);
	place_clear(&place);
}

static void crashed_run(struct world *w, const char *command, struct crash *crash, struct run *run,
			struct lease *lease)
{
	submit(w, command, run);
	crash_run(w, run->id, crash, lease);
}

static json_t *queued(struct world *w)
{
	_cleanup_json_ json_t *page = run_list(
		w->runs,
		&(struct run_query){ .company_id = w->company.id, .status = "queued", .limit = 10 },
		NULL);

	return json_incref(json_object_get(page, "items"));
}

/* The next server; returns when it has found out what became of the run. */
static void restart(struct world *w, const char *id)
{
	int64_t deadline = clock_mono(&w->clock) + 20000;

	world_close(w);
	world_open(w);
	while (runs_has(w->runs, id) && clock_mono(&w->clock) < deadline)
		poll(NULL, 0, 5);
	assert_false(runs_has(w->runs, id));
}

static void HB_5_a_run_whose_process_is_gone_fails_and_is_retried_once(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 }, after = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_json_ json_t *retries = NULL, *again = NULL;
	struct crash crash = { .pid = 999999, .start_time = 1 };
	const json_t *retry;

	crashed_run(w, "{\"command\":[\"true\"],\"env\":{\"A\":\"b\"}}", &crash, &run, &lease);
	restart(w, run.id);
	assert_ok(run_get(w->runs, run.id, &after, err));
	assert_int_equal(after.status, RUN_FAILED);
	assert_string_equal(after.error_code, "process_lost");
	assert_string_equal(json_str(after.result, "stopReason"), "process_lost");
	retries = queued(w);
	assert_int_equal(json_array_size(retries), 1);
	retry = json_array_get(retries, 0);
	assert_string_equal(json_str(retry, "retryOfRunId"), run.id);
	assert_int_equal(json_int(retry, "processLossRetryCount", 0), 1);
	/* Looking a second time finds nothing to do. */
	assert_ok(runs_recover(w->runs, err));
	again = queued(w);
	assert_int_equal(json_array_size(again), 1);
}

static void HB_5_a_retry_that_is_lost_as_well_is_not_retried(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 }, after = { 0 };
	_cleanup_lease_ struct lease lease = { 0 }, second = { 0 };
	_cleanup_json_ json_t *retries = NULL, *more = NULL;
	struct crash crash = { .pid = 999999, .start_time = 1 };
	char retry[ID_SIZE];

	crashed_run(w, "{\"command\":[\"true\"]}", &crash, &run, &lease);
	restart(w, run.id);
	retries = queued(w);
	assert_int_equal(json_array_size(retries), 1);
	id_copy(retry, json_str(json_array_get(retries, 0), "id"));
	crash_run(w, retry, &crash, &second);
	restart(w, retry);
	assert_ok(run_get(w->runs, retry, &after, err));
	assert_string_equal(after.error_code, "process_lost");
	assert_int_equal(after.process_loss_retry_count, 1);
	more = queued(w);
	assert_int_equal(json_array_size(more), 0);
}

static void a_lost_run_whose_input_came_from_its_client_is_not_retried(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 }, after = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_json_ json_t *more = NULL;
	struct crash crash = { .pid = 999999, .start_time = 1 };

	crashed_run(w, "{\"command\":[\"cat\"],\"stdinStream\":true}", &crash, &run, &lease);
	restart(w, run.id);
	assert_ok(run_get(w->runs, run.id, &after, err));
	assert_string_equal(after.error_code, "process_lost");
	more = queued(w);
	assert_int_equal(json_array_size(more), 0);
}

static void HB_5_the_issue_goes_on_with_the_retry_and_stays_checked_out(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_json_ json_t *retries = NULL, *body = json_loads("{\"title\":\"i\"}", 0, NULL);
	_cleanup_(issue_clear) struct issue issue = { 0 }, after = { 0 };
	_cleanup_free_ char *text = NULL;
	struct crash crash = { .pid = 999999, .start_time = 1 };
	const struct writer writer = { .db = w->db, .clock = &w->clock, .actor = &ACTOR_SYSTEM };

	assert_ok(issue_create(&writer, w->company.id, body, &issue, err));
	text = xasprintf("{\"command\":[\"true\"],\"issueId\":\"%s\"}", issue.id);
	crashed_run(w, text, &crash, &run, &lease);
	assert_ok(issue_check_out(&writer, issue.id, run.id, NULL, err));
	restart(w, run.id);
	retries = queued(w);
	assert_ok(issue_get(w->db, issue.id, &after, err));
	assert_string_equal(after.execution_run_id, json_str(json_array_get(retries, 0), "id"));
	assert_string_equal(after.checkout_run_id, run.id);
}

static void HB_6_its_lease_fails_with_it(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_lease_ struct lease lease = { 0 }, after = { 0 };
	struct crash crash = { .pid = 999999, .start_time = 1 };

	crashed_run(w, "{\"command\":[\"true\"]}", &crash, &run, &lease);
	restart(w, run.id);
	assert_ok(lease_get(w->leases, lease.id, &after, NULL, err));
	assert_int_equal(after.status, LEASE_FAILED);
	assert_true(after.released_at > 0);
}

/* The command lives in the care of its relay: the next server takes it up and nothing is lost. */
static void HB_4_a_command_that_still_runs_goes_on_with_the_next_server(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_json_ json_t *retries = NULL;
	_cleanup_free_ char *gate = path_join(w->dir, "gate"), *body = NULL;
	char id[ID_SIZE];
	int64_t deadline = clock_mono(&w->clock) + 20000, pid;

	world_start(w);
	body = xasprintf("{\"command\":[\"sh\",\"-c\",\"echo one; while [ ! -e %s ]; do sleep "
			 "0.05; done; echo "
			 "two; exit 4\"]}",
			 gate);
	submit(w, body, &run);
	id_copy(id, run.id);
	while (run.process_pid == 0 && clock_mono(&w->clock) < deadline) {
		run_clear(&run);
		assert_ok(run_get(w->runs, id, &run, err));
	}
	pid = run.process_pid;
	assert_true(pid > 0);
	world_close(w);
	world_open(w);
	world_start(w);
	assert_ok(file_replace(w->dirfd, "gate", "", 0, 0600, err));
	await_run(w, id, &run);
	assert_int_equal(run.status, RUN_FAILED);
	assert_int_equal(run.exit_code, 4);
	assert_int_equal(run.process_pid, pid);
	assert_output(w, id, "one\ntwo\n");
	retries = queued(w);
	assert_int_equal(json_array_size(retries), 0);
}

static void I14_a_cancelled_run_whose_server_died_ends_cancelled_and_frees_its_lease(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 }, after = { 0 };
	_cleanup_lease_ struct lease lease = { 0 }, freed = { 0 };
	_cleanup_json_ json_t *retries = NULL;
	struct crash crash = { .pid = 999999, .start_time = 1, .cancel_asked = true };

	crashed_run(w, "{\"command\":[\"true\"]}", &crash, &run, &lease);
	restart(w, run.id);
	assert_ok(run_get(w->runs, run.id, &after, err));
	assert_int_equal(after.status, RUN_CANCELLED);
	assert_ok(lease_get(w->leases, lease.id, &freed, NULL, err));
	assert_int_equal(freed.status, LEASE_RELEASED);
	retries = queued(w);
	assert_int_equal(json_array_size(retries), 0);
}

static void a_run_whose_command_never_began_is_queued_again(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 }, after = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	struct crash crash = { 0 };
	char id[ID_SIZE];

	crashed_run(w, "{\"command\":[\"echo\",\"begun\"]}", &crash, &run, &lease);
	id_copy(id, run.id);
	restart(w, id);
	assert_ok(run_get(w->runs, id, &after, err));
	assert_int_equal(after.status, RUN_QUEUED);
	world_start(w);
	await_run(w, id, &after);
	assert_int_equal(after.status, RUN_SUCCEEDED);
	assert_output(w, id, "begun\n");
}

static void a_queued_run_is_simply_run_by_the_next_server(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	char id[ID_SIZE];

	submit(w, "{\"command\":[\"echo\",\"later\"]}", &run);
	id_copy(id, run.id);
	world_close(w);
	world_open(w);
	world_start(w);
	await_run(w, id, &run);
	assert_int_equal(run.status, RUN_SUCCEEDED);
	assert_output(w, id, "later\n");
}

#define LOSS(test) cmocka_unit_test_setup_teardown(test, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOSS(HB_5_a_run_whose_process_is_gone_fails_and_is_retried_once),
		LOSS(HB_5_a_retry_that_is_lost_as_well_is_not_retried),
		LOSS(a_lost_run_whose_input_came_from_its_client_is_not_retried),
		LOSS(HB_5_the_issue_goes_on_with_the_retry_and_stays_checked_out),
		LOSS(HB_6_its_lease_fails_with_it),
		LOSS(HB_4_a_command_that_still_runs_goes_on_with_the_next_server),
		LOSS(I14_a_cancelled_run_whose_server_died_ends_cancelled_and_frees_its_lease),
		LOSS(a_run_whose_command_never_began_is_queued_again),
		LOSS(a_queued_run_is_simply_run_by_the_next_server),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

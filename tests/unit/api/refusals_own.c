/*
 * What only some routes refuse, and no test of theirs has met for another reason.
 */
#include "people.h"

#include <errno.h>
#include <sqlite3.h>
#include "base/fault.h"

#define NOWHERE "00000000-0000-4000-8000-000000000000"

/* ---- records ---- */

static void records_refuse_what_does_not_fit(void **state)
{
	struct people *p = *state;
	const struct holdings *h = &p->ours;
	const struct {
		const char *method, *path, *id, *rest, *body;
		int status;
		const char *code;
	} CASES[] = {
		{ "DELETE", "/api/agents/", h->agent, "", NULL, 409, "conflict" },
		{ "DELETE", "/api/projects/", h->project, "", NULL, 409, "conflict" },
		{ "PATCH", "/api/companies/", h->company, "", "{\"issuePrefix\": \"x y\"}", 422,
		  "unprocessable" },
		{ "PATCH", "/api/issues/", h->issue, "", "{\"projectId\": \"" NOWHERE "\"}", 422,
		  "unprocessable" },
		{ "PATCH", "/api/projects/", h->project, "",
		  "{\"executionWorkspacePolicy\": {\"environmentId\": \"" NOWHERE "\"}}", 422,
		  "unprocessable" },
		{ "POST", "/api/issues/", h->issue, "/checkout", "{\"runId\": \"" NOWHERE "\"}",
		  422, "unprocessable" },
		{ "POST", "/api/companies/", h->company, "/execution-workspaces",
		  "{\"name\": \"w\", \"projectId\": \"" NOWHERE "\"}", 422, "unprocessable" },
		{ "POST", "/api/companies/", h->company, "/environments",
		  "{\"name\": \"second\", \"driver\": \"local\"}", 409, "conflict" },
		{ "POST", "/api/companies/", h->company, "/environments/probe-config",
		  "{\"driver\": \"ssh\", \"config\": {}}", 422, "unprocessable" },
		{ "POST", "/api/companies/", h->company, "/workspace-plan",
		  "{\"workspace\": {\"path\": \"/no/such/directory\"}}", 422, "unprocessable" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(CASES); i++) {
		PATH("%s%s%s", CASES[i].path, CASES[i].id, CASES[i].rest);

		refused(&p->api, CASES[i].status, CASES[i].code, NULL,
			CALL(CASES[i].method, path, CASES[i].body));
	}
}

/* ---- places ---- */

static void a_place_that_cannot_be_had_is_refused_with_the_reason(void **state)
{
	struct api_test *t = *state;
	char failing[ID_SIZE];
	PATH("/api/companies/%s/environments", t->company);
	_cleanup_free_ char *box = xasprintf("/api/environments/%s", t->box);
	_cleanup_free_ char *leases = xasprintf("%s/leases", box);

	take_id(post(t, 201, path,
		     "{\"name\": \"failing\", \"driver\": \"sandbox\", \"config\": {\"provider\":"
		     " \"fake\", \"faults\": {\"acquire\": {\"fail\": 1}}}}"),
		failing);

	_cleanup_free_ char *of_failing = xasprintf("/api/environments/%s/leases", failing);

	refused(t, 502, "lease_acquire_failed", NULL, CALL("POST", of_failing, "{}"));
	json_decref(call_json(t, 200, CALL("PATCH", box, "{\"status\": \"archived\"}")));
	refused(t, 409, "environment_inactive", "archived", CALL("POST", leases, "{}"));
}

/* As the keeper has written it down. */
static void kill_relay(const struct api_test *t, const char *place)
{
	_cleanup_free_ char *path = xasprintf("%s/keeper/places/%s/relay", t->data, place);
	_cleanup_buf_ struct buf text = { 0 };
	int pid = 0;

	/* It is there once the place is used. */
	WAIT_FOR(file_read(AT_FDCWD, path, &text, 4096, NULL) == 0);
	assert_int_equal(sscanf(buf_str(&text), "%d", &pid), 1);
	assert_true(pid > 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
}

static void a_place_whose_relay_died_is_lost(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *lease = acquire(t, t->box, "{}");
	PATH("/api/environment-leases/%s/exec?stream=0", json_str(lease, "id"));

	json_decref(post(t, 200, path, "{\"command\": [\"true\"]}"));
	kill_relay(t, json_str(lease, "placeId"));

	_cleanup_buf_ struct buf out = { 0 };

	/* Until the server has noticed a command may seem to start. */
	WAIT_FOR(({
		buf_reset(&out);
		call_raw(t, CALL("POST", path, "{\"command\": [\"true\"]}"), &out) == 409;
	}));
	assert_non_null(strstr(buf_str(&out), "\"lease_lost\""));
}

static void input_for_a_command_that_has_ended_is_refused(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *lease = acquire(t, t->box, "{}");
	PATH("/api/environment-leases/%s/exec?detach=1", json_str(lease, "id"));
	_cleanup_json_ json_t *exec = post(t, 201, path, "{\"command\": [\"true\"]}");
	_cleanup_free_ char *show = xasprintf("/api/execs/%s", json_str(exec, "id"));
	_cleanup_free_ char *input = xasprintf("%s/stdin", show);

	WAIT_FOR(({
		_cleanup_json_ json_t *now = get(t, show);

		!streq(json_str(now, "status"), "running");
	}));
	refused(t, 409, "conflict", NULL,
		&(struct call){ .method = "POST",
				.path = input,
				.body = "x",
				.type = "application/octet-stream" });
}

/* ---- runs ---- */

static void start_run(struct api_test *t, const char *command, char id[ID_SIZE])
{
	PATH("/api/companies/%s/runs", t->company);
	_cleanup_free_ char *work = xasprintf("%s/work", t->dir);
	_cleanup_free_ char *body =
		xasprintf("{\"command\": [\"sh\", \"-c\", \"%s\"], \"environmentId\": \"%s\","
			  " \"workspace\": {\"path\": \"%s\"}}",
			  command, t->box, work);

	assert_true(mkdir(work, 0755) == 0 || errno == EEXIST);
	take_id(post(t, 201, path, body), id);
}

static void await_status(struct api_test *t, const char *id, const char *status)
{
	PATH("/api/runs/%s", id);

	WAIT_FOR(({
		_cleanup_json_ json_t *run = get(t, path);

		streq(status, "ended") ? json_str(run, "finishedAt") != NULL
				       : streq(json_str(run, "status"), status);
	}));
}

/* Behind the server's back. */
static void edit(const struct api_test *t, const char *sql)
{
	_cleanup_free_ char *path = xasprintf("%s/berth.db", t->data);
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	sqlite3_busy_timeout(db, 10000);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

static void files_on_another_node_are_asked_for_there(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];

	start_run(t, "echo x >file", id);
	await_status(t, id, "succeeded");
	edit(t, "UPDATE runs SET node_id = '" NOWHERE "'");

	PATH("/api/runs/%s/changes", id);
	_cleanup_free_ char *diff = xasprintf("/api/runs/%s/diff", id);
	_cleanup_buf_ struct buf out = { 0 };

	WAIT_FOR(call_raw(t, CALL("GET", path), &out) == 409);
	refused(t, 409, "run_state_conflict", "another node", CALL("GET", path));
	refused(t, 409, "run_state_conflict", "another node", CALL("GET", diff));
}

/* It could not be fetched when the run ended, and then somebody gave its place back. */
static void what_was_in_a_place_that_is_gone_cannot_be_collected(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];

	server_end(t);
	assert_int_equal(fault_init("workspace.fetch.before:error", NULL), 0);
	server_begin(t, true);
	start_run(t, "echo x >file", id);
	await_status(t, id, "ended");

	PATH("/api/runs/%s/collect", id);
	_cleanup_free_ char *show = xasprintf("/api/runs/%s", id);
	_cleanup_json_ json_t *run = get(t, show);
	_cleanup_free_ char *release =
		xasprintf("/api/environment-leases/%s/release", json_str(run, "leaseId"));

	assert_non_null(json_str(json_object_at(run, "workspace"), "placeKeptUntil"));
	json_decref(post(t, 200, release, "{}"));
	refused(t, 409, "lease_not_active", "gone", CALL("POST", path, "{}"));
	server_end(t);
	assert_int_equal(fault_init(NULL, NULL), 0);
	server_begin(t, true);
}

static void server_with(struct api_test *t, struct quota quota)
{
	_cleanup_error_ struct error err = { 0 };
	struct server_options options = {
		.data_path = t->data, .allow_fake = true, .absence_ms = 20000, .quota = quota
	};

	server_end(t);
	if (server_start(&options, &t->server, &err) < 0)
		fail_msg("%s", err.message);
	heed_sigterm();
}

static void a_company_has_so_many_runs_waiting_and_no_more(void **state)
{
	struct api_test *t = *state;
	char ended[ID_SIZE], going[ID_SIZE], waiting[ID_SIZE];

	server_with(t, (struct quota){ .runs = 1, .queued = 1 });
	start_run(t, "true", ended);
	await_status(t, ended, "ended");
	start_run(t, "sleep 60", going);
	await_status(t, going, "running");
	start_run(t, "true", waiting);

	PATH("/api/companies/%s/runs", t->company);
	_cleanup_free_ char *retry = xasprintf("/api/runs/%s/retry", ended);
	_cleanup_free_ char *output = xasprintf("/api/execs/%s/output", waiting);
	_cleanup_free_ char *cancel = xasprintf("/api/runs/%s/cancel", waiting);

	refused(t, 429, "queue_full", NULL, CALL("POST", path, "{\"command\": [\"true\"]}"));
	refused(t, 429, "queue_full", NULL, CALL("POST", retry));
	refused(t, 409, "run_state_conflict", "not started", CALL("GET", output));
	json_decref(call_json(t, 200, CALL("POST", cancel)));
	snprintf(cancel, strlen(cancel) + 1, "/api/runs/%s/cancel", going);
	json_decref(call_json(t, 200, CALL("POST", cancel)));
	await_status(t, going, "ended");
}

/* Nothing is made, and it says how to run all the same. */
static void a_sandbox_that_does_not_hold_is_not_made(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s/sandbox", t->company);
	_cleanup_free_ char *list = xasprintf("/api/companies/%s/environments", t->company);
	char first[ID_SIZE];

	/* A new company's is made without a look. */
	environment_named(t, t->company, "Sandbox", first);

	_cleanup_free_ char *own = xasprintf("/api/environments/%s", first);

	json_decref(call_json(t, 200, CALL("DELETE", own)));
	server_end(t);
	setenv("BERTH_RELAY", "/nonexistent/berth-relay", 1);

	_cleanup_error_ struct error err = { 0 };
	struct server_options options = { .data_path = t->data, .allow_fake = true };

	if (server_start(&options, &t->server, &err) < 0)
		fail_msg("%s", err.message);
	heed_sigterm();
	refused(t, 422, "unsupported_environment", "--env Local", CALL("POST", path));

	_cleanup_json_ json_t *environments = get(t, list);

	assert_int_equal(json_array_size(environments), 2);
	use_built_programs();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		people_test(records_refuse_what_does_not_fit),
		api_unit_test(a_place_that_cannot_be_had_is_refused_with_the_reason),
		api_unit_test(a_place_whose_relay_died_is_lost),
		api_unit_test(input_for_a_command_that_has_ended_is_refused),
		api_unit_test(files_on_another_node_are_asked_for_there),
		api_unit_test(what_was_in_a_place_that_is_gone_cannot_be_collected),
		api_unit_test(a_company_has_so_many_runs_waiting_and_no_more),
		api_unit_test(a_sandbox_that_does_not_hold_is_not_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "fixture.h"

#define NOWHERE "00000000-0000-4000-8000-000000000000"

static void start_run(struct api_test *t, const char *script, char id[ID_SIZE])
{
	PATH("/api/companies/%s/runs", t->company);
	_cleanup_free_ char *body = xasprintf("{\"command\": [\"sh\", \"-c\", \"%s\"]}", script);

	take_id(post(t, 201, path, body), id);
}

static json_t *show(struct api_test *t, const char *id)
{
	PATH("/api/runs/%s", id);

	return get(t, path);
}

static char *status_of(struct api_test *t, const char *id)
{
	_cleanup_json_ json_t *run = show(t, id);

	return xstrdup(json_str(run, "status"));
}

static bool is(struct api_test *t, const char *id, const char *status)
{
	_cleanup_free_ char *now = status_of(t, id);

	return streq(now, status);
}

static void read_log(struct api_test *t, const char *id, const char *query, const char *accept,
		     struct buf *out)
{
	PATH("/api/runs/%s/log%s", id, query);
	struct call call = { .method = "GET", .path = path, .accept = accept };

	assert_int_equal(call_raw(t, &call, out), 200);
}

/* The output in a log's lines; whole-log offsets must fit, starting at `since`. */
static void gather(const char *text, int64_t since, struct buf *out, char **last)
{
	for (const char *p = text; *p;) {
		size_t n = strcspn(p, "\n");
		_cleanup_json_ json_t *line = json_parse(p, n, NULL);

		assert_non_null(line);
		free(*last);
		*last = xstrdup(json_str(line, "type"));
		if (json_str(line, "data")) {
			assert_int_equal(json_int(line, "offset", -1), since + (int64_t)out->len);
			buf_puts(out, json_str(line, "data"));
		} else if (streq(*last, "end")) {
			assert_int_equal(json_int(line, "offset", -1), since + (int64_t)out->len);
		}
		p += n + 1;
	}
}

static void following_a_run_gives_all_of_it_and_its_end(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	_cleanup_buf_ struct buf log = { 0 }, out = { 0 };
	_cleanup_free_ char *last = NULL;

	start_run(t, "for i in 1 2 3; do echo $i; sleep 0.05; done; echo oops >&2; exit 4", id);
	read_log(t, id, "?follow=1", NULL, &log);
	gather(buf_str(&log), 0, &out, &last);
	assert_string_equal(last, "end");
	assert_non_null(strstr(buf_str(&log), "\"status\":\"failed\",\"exitCode\":4"));
	assert_non_null(strstr(buf_str(&log), "\"type\":\"stderr\""));
	assert_string_equal(buf_str(&out), "1\n2\n3\noops\n");
	assert_true(is(t, id, "failed"));
}

static json_t *last_line(const struct buf *log)
{
	const char *text = buf_str(log), *end = memrchr(text, '\n', log->len);
	const char *start = memrchr(text, '\n', (size_t)(end - text));

	start = start ? start + 1 : text;
	return json_parse(start, (size_t)(end - start), NULL);
}

/* Beside the fields that older clients read. */
static void the_end_of_a_log_brings_the_finished_run(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	_cleanup_buf_ struct buf log = { 0 };

	start_run(t, "exit 4", id);
	read_log(t, id, "?follow=1", NULL, &log);

	_cleanup_json_ json_t *end = last_line(&log);
	const json_t *run = json_object_at(end, "run");

	assert_string_equal(json_str(end, "status"), "failed");
	assert_string_equal(json_str(run, "id"), id);
	assert_string_equal(json_str(run, "status"), "failed");
	assert_int_equal(json_int(run, "exitCode", -1), 4);
	assert_non_null(json_str(run, "environmentId"));
	assert_non_null(json_str(run, "finishedAt"));
	assert_true(json_int(json_object_at(run, "timings"), "totalMs", -1) >= 0);
}

static void a_log_goes_on_from_an_offset(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	_cleanup_buf_ struct buf log = { 0 }, out = { 0 }, none = { 0 }, nothing = { 0 };
	_cleanup_free_ char *last = NULL, *end = NULL;

	start_run(t, "printf 0123456789", id);
	WAIT_FOR(is(t, id, "succeeded"));
	read_log(t, id, "?since=4", NULL, &log);
	gather(buf_str(&log), 4, &out, &last);
	assert_string_equal(buf_str(&out), "456789");
	assert_string_equal(last, "end");
	read_log(t, id, "?since=10&follow=1", NULL, &none);
	gather(buf_str(&none), 10, &nothing, &end);
	assert_int_equal(nothing.len, 0);
	assert_string_equal(end, "end");
}

static void a_log_can_be_had_as_bytes(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	_cleanup_buf_ struct buf bytes = { 0 }, rest = { 0 };

	start_run(t, "printf 'a\\\\000b\\\\377'; head -c 300000 /dev/zero", id);
	read_log(t, id, "?follow=1", "application/octet-stream", &bytes);
	assert_int_equal(bytes.len, 300004);
	assert_memory_equal(bytes.data, "a\0b\xff\0\0", 6);
	read_log(t, id, "?since=3", "application/octet-stream", &rest);
	assert_int_equal(rest.len, 300001);
	assert_int_equal(rest.data[0], '\xff');
}

static void a_run_that_goes_on_has_a_log_without_an_end(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	_cleanup_free_ char *go = xasprintf("%s/go", t->dir);
	_cleanup_free_ char *script =
		xasprintf("echo early; until [ -e %s ]; do sleep 0.01; done; echo late", go);
	_cleanup_buf_ struct buf followed = { 0 };

	start_run(t, script, id);
	for (;;) {
		_cleanup_buf_ struct buf log = { 0 };

		read_log(t, id, "", NULL, &log);
		assert_null(strstr(buf_str(&log), "\"end\""));
		if (strstr(buf_str(&log), "early"))
			break;
		usleep(5000);
	}
	assert_int_equal(file_replace(AT_FDCWD, go, "", 0, 0600, NULL), 0);
	read_log(t, id, "?follow=1", NULL, &followed);
	assert_non_null(strstr(buf_str(&followed), "late"));
	assert_non_null(strstr(buf_str(&followed), "\"end\""));
}

static void a_run_that_never_began_has_an_end_and_no_output(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	_cleanup_buf_ struct buf log = { 0 };
	PATH("/api/companies/%s/runs", t->company);

	take_id(post(t, 201, path, "{\"command\": [\"no-such-program\"]}"), id);
	read_log(t, id, "?follow=1", NULL, &log);
	assert_null(strstr(buf_str(&log), "\"stdout\""));
	assert_non_null(strstr(buf_str(&log), "\"errorCode\":\"command_not_found\""));
}

static void runs_are_paged_by_status(void **state)
{
	struct api_test *t = *state;
	char id[3][ID_SIZE];

	for (int i = 0; i < 3; i++) {
		start_run(t, i == 1 ? "exit 1" : "exit 0", id[i]);
		WAIT_FOR(is(t, id[i], i == 1 ? "failed" : "succeeded"));
	}

	PATH("/api/companies/%s/runs?limit=2", t->company);
	_cleanup_json_ json_t *first = get(t, path);
	_cleanup_free_ char *next = xasprintf("%s&cursor=%s", path, json_str(first, "nextCursor"));
	_cleanup_json_ json_t *rest = get(t, next);
	_cleanup_free_ char *failed = xasprintf("/api/companies/%s/runs?status=failed", t->company);
	_cleanup_json_ json_t *only = get(t, failed);
	json_t *items = json_array_at(first, "items");

	assert_int_equal(json_array_size(items), 2);
	assert_string_equal(json_str(json_array_get(items, 0), "id"), id[2]);
	items = json_array_at(rest, "items");
	assert_int_equal(json_array_size(items), 1);
	assert_string_equal(json_str(json_array_get(items, 0), "id"), id[0]);
	items = json_array_at(only, "items");
	assert_int_equal(json_array_size(items), 1);
	assert_string_equal(json_str(json_array_get(items, 0), "id"), id[1]);
}

static void a_run_is_cancelled_and_tried_again(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE], again[ID_SIZE];

	start_run(t, "sleep 600", id);
	WAIT_FOR(is(t, id, "running"));

	PATH("/api/runs/%s/cancel", id);
	_cleanup_free_ char *retry = xasprintf("/api/runs/%s/retry", id);

	refused(t, 409, "run_state_conflict", NULL, CALL("POST", retry));
	json_decref(post(t, 200, path, NULL));
	WAIT_FOR(is(t, id, "cancelled"));
	json_decref(post(t, 200, path, NULL));
	take_id(post(t, 201, retry, NULL), again);
	assert_string_not_equal(id, again);

	_cleanup_json_ json_t *run = show(t, again);

	assert_string_equal(json_str(run, "retryOfRunId"), id);
}

static void a_run_asked_for_twice_under_a_key_runs_once(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s/runs", t->company);
	static const char body[] = "{\"command\": [\"true\"]}";
	_cleanup_json_ json_t *one = call_json(t, 201, CALL("POST", path, body, "k"));
	_cleanup_json_ json_t *two = call_json(t, 201, CALL("POST", path, body, "k"));
	_cleanup_json_ json_t *all = get(t, path);

	assert_true(json_equal(one, two));
	assert_int_equal(json_array_size(json_array_at(all, "items")), 1);
	refused(t, 409, "idempotency_key_reused", NULL,
		CALL("POST", path, "{\"command\": [\"false\"]}", "k"));
}

static json_t *queued(struct api_test *t, const char *more)
{
	PATH("/api/companies/%s/runs", t->company);
	_cleanup_free_ char *body = xasprintf("{\"command\": [\"true\"], %s}", more);

	return post(t, 201, path, body);
}

static const char *asked_environment(const json_t *run)
{
	return json_str(json_object_at(json_object_at(run, "context"), "request"), "environmentId");
}

static void an_environment_is_named_by_its_name(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s/environments/default", t->company);
	_cleanup_free_ char *by_id = xasprintf("\"environment\": \"%s\"", t->local);
	_cleanup_json_ json_t *named = queued(t, "\"environment\": \"box\""),
			      *by = queued(t, by_id), *none = queued(t, "\"environment\": null"),
			      *usual = get(t, path);
	_cleanup_free_ char *runs = xasprintf("/api/companies/%s/runs", t->company);

	assert_string_equal(asked_environment(named), t->box);
	assert_string_equal(asked_environment(by), t->local);
	assert_string_equal(asked_environment(none), json_str(usual, "id"));
	WAIT_FOR(is(t, json_str(named, "id"), "succeeded") &&
		 is(t, json_str(by, "id"), "succeeded"));
	refused(t, 422, "unprocessable", "\"nowhere\" was not found",
		CALL("POST", runs, "{\"command\": [\"true\"], \"environment\": \"nowhere\"}"));
	refused(t, 400, "validation_error", "not both",
		CALL("POST", runs,
		     "{\"command\": [\"true\"], \"environment\": \"box\", \"environmentId\": "
		     "null}"));
}

static void a_workspace_for_sandboxes_stays_out_elsewhere(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s/environments", t->company);
	_cleanup_free_ char *runs = xasprintf("/api/companies/%s/runs", t->company);
	_cleanup_free_ char *wish = xasprintf(
		"\"workspace\": {\"path\": \"%s\"}, \"cwd\": \"%s\", \"workspaceIfSandbox\": true",
		t->dir, t->dir);
	char bare[ID_SIZE];

	take_id(post(t, 201, path,
		     "{\"name\": \"bare\", \"driver\": \"sandbox\","
		     " \"config\": {\"provider\": \"fake\", \"relay\": false}}"),
		bare);

	_cleanup_free_ char *to_box = xasprintf("\"environment\": \"box\", %s", wish),
			    *to_bare = xasprintf("\"environmentId\": \"%s\", %s", bare, wish),
			    *to_local = xasprintf("\"environment\": \"Local\", %s", wish),
			    *to_any = xasprintf("{\"command\": [\"true\"], %s}", wish);
	_cleanup_json_ json_t *box = queued(t, to_box), *without_relay = queued(t, to_bare),
			      *local = queued(t, to_local);

	assert_string_equal(json_str(json_object_at(box, "workspace"), "path"), t->dir);
	assert_string_equal(json_str(box, "cwd"), t->dir);
	assert_null(json_object_at(without_relay, "workspace"));
	assert_null(json_str(without_relay, "cwd"));
	assert_null(json_object_at(local, "workspace"));
	assert_string_equal(json_str(local, "cwd"), t->dir);
	refused(t, 400, "validation_error", "workspaceIfSandbox", CALL("POST", runs, to_any));
}

static void bad_runs_are_refused(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s/runs", t->company);

	refused(t, 400, "validation_error", NULL, CALL("POST", path, "{}"));
	refused(t, 400, "validation_error", NULL,
		CALL("POST", path, "{\"command\": [\"true\"], \"bogus\": 1}"));
	refused(t, 400, "invalid_json", NULL, CALL("POST", path, "{\"command\": "));
	refused(t, 422, "unprocessable", "environmentId",
		CALL("POST", path,
		     "{\"command\": [\"true\"], \"environmentId\": \"" NOWHERE "\"}"));
	refused(t, 404, "not_found", NULL, CALL("GET", "/api/runs/" NOWHERE));
	refused(t, 404, "not_found", NULL, CALL("GET", "/api/runs/" NOWHERE "/log"));
	refused(t, 404, "not_found", NULL, CALL("POST", "/api/runs/" NOWHERE "/cancel"));
	refused(t, 400, "validation_error", NULL,
		CALL("GET", "/api/runs/" NOWHERE "/log?since=-1"));
}

static size_t listed(struct api_test *t, const char *what, const char *key, const char *id)
{
	PATH("/api/companies/%s/%s?%s=%s", t->company, what, key, id);
	_cleanup_json_ json_t *page = get(t, path);

	return json_array_size(json_array_at(page, "items"));
}

static void runs_and_activity_are_listed_by_what_they_belong_to(void **state)
{
	struct api_test *t = *state;
	char agent[ID_SIZE], project[ID_SIZE], issue[ID_SIZE], run[ID_SIZE], other[ID_SIZE];
	_cleanup_free_ char *agents = xasprintf("/api/companies/%s/agents", t->company);
	_cleanup_free_ char *projects = xasprintf("/api/companies/%s/projects", t->company);
	_cleanup_free_ char *issues = xasprintf("/api/companies/%s/issues", t->company);
	_cleanup_free_ char *runs = xasprintf("/api/companies/%s/runs", t->company);
	_cleanup_free_ char *body = NULL;

	take_id(post(t, 201, agents, "{\"name\": \"ada\"}"), agent);
	take_id(post(t, 201, projects, "{\"name\": \"apollo\"}"), project);
	take_id(post(t, 201, issues, "{\"title\": \"land\"}"), issue);
	body = xasprintf("{\"command\": [\"true\"], \"agentId\": \"%s\", \"issueId\": \"%s\","
			 " \"projectId\": \"%s\", \"environmentId\": \"%s\"}",
			 agent, issue, project, t->box);
	take_id(post(t, 201, runs, body), run);
	start_run(t, "true", other);
	WAIT_FOR(is(t, run, "succeeded") && is(t, other, "succeeded"));

	const char *const OF[][2] = { { "agentId", agent },
				      { "issueId", issue },
				      { "projectId", project },
				      { "environmentId", t->box } };

	for (size_t i = 0; i < ARRAY_SIZE(OF); i++) {
		assert_int_equal(listed(t, "runs", OF[i][0], OF[i][1]), 1);
		assert_int_equal(listed(t, "runs", OF[i][0], NOWHERE), 0);
		/* It was made, and its run had a lease. */
		assert_true(listed(t, "activity", OF[i][0], OF[i][1]) >= 2);
		assert_int_equal(listed(t, "activity", OF[i][0], NOWHERE), 0);
	}
	assert_int_equal(listed(t, "runs", "status=succeeded&agentId", agent), 1);
	assert_int_equal(listed(t, "runs", "status=failed&agentId", agent), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		api_unit_test(following_a_run_gives_all_of_it_and_its_end),
		api_unit_test(the_end_of_a_log_brings_the_finished_run),
		api_unit_test(an_environment_is_named_by_its_name),
		api_unit_test(a_workspace_for_sandboxes_stays_out_elsewhere),
		api_unit_test(a_log_goes_on_from_an_offset),
		api_unit_test(a_log_can_be_had_as_bytes),
		api_unit_test(a_run_that_goes_on_has_a_log_without_an_end),
		api_unit_test(a_run_that_never_began_has_an_end_and_no_output),
		api_unit_test(runs_are_paged_by_status),
		api_unit_test(a_run_is_cancelled_and_tried_again),
		api_unit_test(a_run_asked_for_twice_under_a_key_runs_once),
		api_unit_test(bad_runs_are_refused),
		api_unit_test(runs_and_activity_are_listed_by_what_they_belong_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Workspaces through the API: runs that bring files and take work home, what is kept of it, leases
 * that are staged by hand, and what pruning and audits make of results.
 */
#include "fixture.h"

#include <sys/stat.h>
#include "workspace/results.h"

#define NOWHERE "00000000-0000-4000-8000-000000000000"

/* ---- a directory to work in ---- */

static char *at(const struct api_test *t, const char *name)
{
	return xasprintf("%s/work/%s", t->dir, name);
}

static void put(const struct api_test *t, const char *name, const char *text)
{
	_cleanup_free_ char *path = at(t, name);

	assert_int_equal(file_replace(AT_FDCWD, path, text, strlen(text), 0644, NULL), 0);
}

static void has_text(const struct api_test *t, const char *name, const char *text)
{
	_cleanup_free_ char *path = at(t, name);
	_cleanup_buf_ struct buf now = { 0 };

	assert_int_equal(file_read(AT_FDCWD, path, &now, 1 << 20, NULL), 0);
	assert_string_equal(buf_str(&now), text);
}

static bool is_there(const struct api_test *t, const char *name)
{
	_cleanup_free_ char *path = at(t, name);

	return access(path, F_OK) == 0;
}

static int work_up(void **state)
{
	struct api_test *t;
	_cleanup_free_ char *path = NULL;

	api_up(state);
	t = *state;
	path = xasprintf("%s/work", t->dir);
	assert_int_equal(mkdir(path, 0755), 0);
	put(t, "a.txt", "a\n");
	put(t, "b.txt", "b\n");
	put(t, "c.txt", "c\n");
	return 0;
}
#define work_test(f) cmocka_unit_test_setup_teardown(f, work_up, api_down)

static json_t *show(const struct api_test *t, const char *id)
{
	PATH("/api/runs/%s", id);

	return get(t, path);
}

/* A run in "box" that brings the directory; `more` are further keys of `workspace`. */
static void start(const struct api_test *t, const char *script, const char *more, char id[ID_SIZE])
{
	PATH("/api/companies/%s/runs", t->company);
	_cleanup_free_ char *body =
		xasprintf("{\"command\": [\"sh\", \"-c\", \"%s\"], \"environmentId\": \"%s\","
			  " \"workspace\": {\"path\": \"%s/work\"%s}}",
			  script, t->box, t->dir, more);

	take_id(post(t, 201, path, body), id);
}

static json_t *finished(const struct api_test *t, const char *id)
{
	for (int left = PATIENCE_MS; left > 0; left -= 5) {
		json_t *run = show(t, id);

		if (json_str(run, "finishedAt") &&
		    json_object_get(json_object_at(run, "timings"), "releasedMs"))
			return run;
		json_decref(run);
		usleep(5000);
	}
	fail_msg("run %s never ended", id);
	return NULL;
}

static json_t *run_to_end(const struct api_test *t, const char *script, const char *more,
			  char id[ID_SIZE])
{
	start(t, script, more, id);
	return finished(t, id);
}

static int64_t count_of(const json_t *report, const char *key)
{
	return json_int(json_object_at(report, "counts"), key, -1);
}

/* ---- runs ---- */

static void a_run_brings_files_and_its_work_comes_home(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	_cleanup_json_ json_t *run =
		run_to_end(t, "cat a.txt; echo more >>a.txt; echo new >d.txt; rm b.txt", "", id);
	const json_t *workspace = json_object_at(run, "workspace");
	PATH("/api/runs/%s/changes", id);
	_cleanup_json_ json_t *report = NULL;

	assert_string_equal(json_str(run, "status"), "succeeded");
	assert_string_equal(json_str(workspace, "phase"), "applied");
	assert_string_equal(json_str(workspace, "mode"), "copy");
	assert_true(json_is_null(json_object_get(workspace, "error")));
	has_text(t, "a.txt", "a\nmore\n");
	has_text(t, "d.txt", "new\n");
	assert_false(is_there(t, "b.txt"));
	report = get(t, path);
	assert_int_equal(json_array_size(json_object_get(report, "changes")), 3);
	assert_int_equal(count_of(report, "added"), 1);
	assert_int_equal(count_of(report, "modified"), 1);
	assert_int_equal(count_of(report, "deleted"), 1);
	assert_int_equal(count_of(workspace, "conflicts"), 0);
}

static void the_record_of_the_realization_says_what_was_done(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	_cleanup_json_ json_t *run = run_to_end(t, "true", ", \"collect\": \"manual\"", id);
	const json_t *record = json_object_at(
		json_object_at(json_object_at(run, "context"), "paperclipEnvironment"),
		"workspaceRealization");
	const json_t *sync = json_object_at(record, "sync");
	_cleanup_free_ char *path = xasprintf("%s/work", t->dir);

	assert_string_equal(json_str(sync, "strategy"), "sandbox_archive_upload_download");
	assert_non_null(strstr(json_str(sync, "prepare"), "copied"));
	assert_non_null(strstr(json_str(sync, "syncBack"), "until somebody collects"));
	assert_string_equal(json_str(json_object_at(record, "local"), "path"), path);
	assert_string_equal(json_str(json_object_at(record, "remote"), "path"),
			    json_str(json_object_at(run, "workspace"), "placeRoot"));
}

static void commands_start_in_the_directory_that_was_named_by_its_name_here(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *sub = at(t, "sub"), *body = NULL;
	char id[ID_SIZE];
	PATH("/api/companies/%s/runs", t->company);

	assert_int_equal(mkdir(sub, 0755), 0);
	put(t, "sub/x", "x");
	body = xasprintf("{\"command\": [\"sh\", \"-c\", \"cat x; echo y >y\"], \"cwd\": \"%s\","
			 " \"environmentId\": \"%s\", \"workspace\": {\"path\": \"%s/work\"}}",
			 sub, t->box, t->dir);
	take_id(post(t, 201, path, body), id);

	_cleanup_json_ json_t *run = finished(t, id);

	assert_string_equal(json_str(run, "status"), "succeeded");
	has_text(t, "sub/y", "y\n");
}

static void a_failed_command_s_work_comes_home_too(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	_cleanup_json_ json_t *run = run_to_end(t, "echo half >half; exit 3", "", id);

	assert_string_equal(json_str(run, "status"), "failed");
	assert_int_equal(json_int(run, "exitCode", -1), 3);
	has_text(t, "half", "half\n");
}

static void a_command_that_cannot_start_leaves_nothing(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	PATH("/api/companies/%s/runs", t->company);
	_cleanup_free_ char *body =
		xasprintf("{\"command\": [\"no-such-command\"], \"environmentId\": \"%s\","
			  " \"workspace\": {\"path\": \"%s/work\"}}",
			  t->box, t->dir);

	take_id(post(t, 201, path, body), id);

	_cleanup_json_ json_t *run = finished(t, id);
	_cleanup_free_ char *changes = xasprintf("/api/runs/%s/changes", id);

	assert_string_equal(json_str(run, "errorCode"), "command_not_found");
	refused(t, 404, "not_found", "kept", CALL("GET", changes));
}

static void work_is_kept_until_it_is_collected_and_then_until_it_is_dropped(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	_cleanup_json_ json_t *run =
		run_to_end(t, "echo more >>a.txt", ", \"collect\": \"manual\"", id);
	_cleanup_free_ char *collect = xasprintf("/api/runs/%s/collect", id);
	_cleanup_free_ char *diff = xasprintf("/api/runs/%s/diff", id);
	_cleanup_free_ char *workspace = xasprintf("/api/runs/%s/workspace", id);
	_cleanup_json_ json_t *dry = NULL, *done = NULL, *again = NULL, *after = NULL;
	_cleanup_buf_ struct buf text = { 0 };

	assert_string_equal(json_str(json_object_at(run, "workspace"), "phase"), "fetched");
	has_text(t, "a.txt", "a\n");
	assert_int_equal(call_raw(t, CALL("GET", diff), &text), 200);
	assert_non_null(strstr(buf_str(&text), "+more"));
	dry = post(t, 200, collect, "{\"dryRun\": true}");
	assert_int_equal(count_of(dry, "modified"), 1);
	has_text(t, "a.txt", "a\n");
	done = post(t, 200, collect, "{}");
	assert_int_equal(count_of(done, "modified"), 1);
	has_text(t, "a.txt", "a\nmore\n");
	again = post(t, 200, collect, "{}");
	has_text(t, "a.txt", "a\nmore\n");
	json_decref(call_json(t, 200, CALL("DELETE", workspace)));
	after = show(t, id);
	assert_string_equal(json_str(json_object_at(after, "workspace"), "phase"), "dropped");
	refused(t, 404, "not_found", "kept", CALL("GET", diff));
	refused(t, 404, "not_found", "kept", CALL("POST", collect, "{}"));
	has_text(t, "a.txt", "a\nmore\n");
}

static void a_conflict_keeps_both_and_changes_no_status(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	_cleanup_json_ json_t *run =
		run_to_end(t, "echo place >>a.txt; rm b.txt", ", \"collect\": \"manual\"", id);
	_cleanup_free_ char *collect = xasprintf("/api/runs/%s/collect", id);
	_cleanup_json_ json_t *report = NULL;
	const json_t *change;

	assert_string_equal(json_str(run, "status"), "succeeded");
	put(t, "a.txt", "person\n");
	put(t, "b.txt", "person\n");
	report = post(t, 200, collect, "{}");
	assert_int_equal(count_of(report, "conflicts"), 1);
	assert_int_equal(count_of(report, "keptHost"), 1);
	has_text(t, "a.txt", "person\n");
	change = json_array_get(json_object_get(report, "changes"), 0);
	assert_string_equal(json_str(change, "path"), "a.txt");
	assert_string_equal(json_str(change, "fate"), "conflict");
	assert_true(str_starts(json_str(change, "beside"), "a.txt.berth-"));
	has_text(t, json_str(change, "beside"), "a\nplace\n");
	has_text(t, "b.txt", "person\n");
}

static void events_tell_of_staging_and_collecting(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	_cleanup_json_ json_t *run = run_to_end(t, "echo more >>a.txt", "", id);
	PATH("/api/heartbeat-runs/%s/events", id);
	_cleanup_json_ json_t *events = get(t, path);
	bool staged = false, collected = false;
	const json_t *event;
	size_t i;

	json_array_foreach (events, i, event) {
		const char *type = json_str(event, "eventType");
		const json_t *payload = json_object_at(event, "payload");

		if (streq(type, "workspace.staged")) {
			staged = true;
			assert_false(collected);
			assert_string_equal(json_str(payload, "phase"), "staged");
		}
		if (streq(type, "workspace.collected")) {
			collected = true;
			assert_int_equal(count_of(payload, "modified"), 1);
		}
	}
	assert_true(staged && collected);
}

static void what_is_asked_for_is_judged_at_once(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s/runs", t->company);
	static const struct {
		int status;
		const char *workspace, *code;
	} CASES[] = {
		{ 400, "{\"path\": \"work\"}", "validation_error" },
		{ 400, "{}", "validation_error" },
		{ 400, "{\"path\": \"/tmp\", \"mode\": \"magic\"}", "validation_error" },
		{ 400, "{\"path\": \"/tmp\", \"collect\": \"never\"}", "validation_error" },
		{ 400, "{\"path\": \"/tmp\", \"pat\": 1}", "validation_error" },
		{ 400, "{\"path\": \"/tmp\", \"root\": \"rel\"}", "validation_error" },
		{ 422, "{\"path\": \"/no/such/directory\"}", "unprocessable" },
		{ 422, "{\"path\": \"/etc/passwd\"}", "unprocessable" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(CASES); i++) {
		_cleanup_free_ char *body = xasprintf(
			"{\"command\": [\"true\"], \"workspace\": %s}", CASES[i].workspace);

		refused(t, CASES[i].status, CASES[i].code, NULL, CALL("POST", path, body));
	}
}

static void a_run_without_files_has_no_changes(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	PATH("/api/companies/%s/runs", t->company);
	static const char *const NONE[] = { "null", "{\"mode\": \"none\"}" };

	for (size_t i = 0; i < ARRAY_SIZE(NONE); i++) {
		_cleanup_free_ char *body =
			xasprintf("{\"command\": [\"true\"], \"workspace\": %s}", NONE[i]);

		take_id(post(t, 201, path, body), id);

		_cleanup_json_ json_t *run = finished(t, id);
		_cleanup_free_ char *changes = xasprintf("/api/runs/%s/changes", id);

		assert_true(json_is_null(json_object_get(run, "workspace")));
		refused(t, 404, "not_found", "brought no workspace", CALL("GET", changes));
	}
}

static void nothing_is_collected_while_the_run_goes_on(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	_cleanup_free_ char *go = xasprintf("%s/go", t->dir);
	_cleanup_free_ char *script = xasprintf("until [ -e %s ]; do sleep 0.01; done", go);

	start(t, script, "", id);

	_cleanup_free_ char *collect = xasprintf("/api/runs/%s/collect", id);
	_cleanup_free_ char *workspace = xasprintf("/api/runs/%s/workspace", id);

	refused(t, 409, "run_state_conflict", NULL, CALL("POST", collect, "{}"));
	refused(t, 409, "run_state_conflict", NULL, CALL("DELETE", workspace));
	assert_int_equal(file_replace(AT_FDCWD, go, "", 0, 0600, NULL), 0);
	json_decref(finished(t, id));
}

static void a_plan_says_what_would_go_along(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s/workspace-plan", t->company);
	_cleanup_free_ char *results = xasprintf("%s/workspaces", t->data);
	_cleanup_free_ char *body =
		xasprintf("{\"workspace\": {\"path\": \"%s/work\"}, \"environmentId\": \"%s\"}",
			  t->dir, t->box);
	_cleanup_json_ json_t *plan = NULL;
	struct results store;
	_cleanup_strv_ char **ids = NULL;

	put(t, ".gitignore", "c.txt\n");
	plan = post(t, 200, path, body);
	assert_int_equal(json_int(plan, "files", -1), 3);
	assert_int_equal(json_int(plan, "bytes", -1), 10);
	assert_string_equal(json_str(plan, "mode"), "copy");
	/* And leaves nothing. */
	assert_int_equal(results_open(&store, results, NULL), 0);
	assert_int_equal(results_list(&store, &ids, NULL), 0);
	assert_true(!ids || !ids[0]);
	results_close(&store);
}

/* ---- leases ---- */

static void a_lease_is_staged_and_collected_by_hand(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *lease = acquire(t, t->box, "{}");
	const char *id = json_str(lease, "id");
	_cleanup_free_ char *stage = xasprintf("/api/environment-leases/%s/stage", id);
	_cleanup_free_ char *collect = xasprintf("/api/environment-leases/%s/collect", id);
	_cleanup_free_ char *files =
		xasprintf("/api/environment-leases/%s/files?path=/workspace/a.txt", id);
	_cleanup_free_ char *exec = xasprintf("/api/environment-leases/%s/exec?stream=0", id);
	_cleanup_free_ char *body = xasprintf("{\"path\": \"%s/work\"}", t->dir);
	_cleanup_free_ char *overlay =
		xasprintf("{\"path\": \"%s/work\", \"mode\": \"overlay\"}", t->dir);
	_cleanup_json_ json_t *staged = NULL, *dry = NULL, *report = NULL;
	_cleanup_buf_ struct buf there = { 0 };

	refused(t, 409, "run_state_conflict", "nothing was staged", CALL("POST", collect, "{}"));
	refused(t, 422, "unprocessable", "copy", CALL("POST", stage, overlay));
	staged = post(t, 200, stage, body);
	assert_string_equal(json_str(staged, "phase"), "staged");
	assert_int_equal(call_raw(t, CALL("GET", files), &there), 200);
	assert_string_equal(buf_str(&there), "a\n");
	refused(t, 409, "conflict", "not been collected", CALL("POST", stage, body));

	json_decref(post(t, 200, exec,
			 "{\"command\": [\"sh\", \"-c\", \"echo by hand >workspace/a.txt\"]}"));
	dry = post(t, 200, collect, "{\"dryRun\": true}");
	has_text(t, "a.txt", "a\n");
	report = post(t, 200, collect, "{}");
	assert_int_equal(count_of(report, "modified"), 1);
	has_text(t, "a.txt", "by hand\n");
	json_decref(post(t, 200, stage, body));
}

/* ---- what is kept ---- */

static void results_that_nothing_explains_are_in_the_audit(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	_cleanup_json_ json_t *run = run_to_end(t, "echo x >x", "", id);
	_cleanup_free_ char *from = xasprintf("%s/workspaces/%s", t->data, id);
	_cleanup_free_ char *to = xasprintf("%s/workspaces/" NOWHERE, t->data);
	_cleanup_json_ json_t *clean = get(t, "/api/audit"), *found = NULL;

	assert_int_equal(json_array_size(clean), 0);
	assert_int_equal(rename(from, to), 0);
	found = get(t, "/api/audit");
	assert_int_equal(json_array_size(found), 1);
	assert_string_equal(json_str(json_array_get(found, 0), "kind"), "workspace");
	assert_string_equal(json_str(json_array_get(found, 0), "id"), NOWHERE);
}

SQL(TEST_AGE_RUN, "UPDATE runs SET finished_at = $2 WHERE id = $1");

struct ageing {
	const char *id;
	int64_t at;
};

static int age(struct tx *tx, void *arg, struct error *err)
{
	const struct ageing *a = arg;

	return tx_exec(tx, &TEST_AGE_RUN, err, B_TEXT(a->id), B_INT(a->at)) < 0 ? -1 : 0;
}

static void ended_days_ago(struct api_test *t, const char *id, int64_t days)
{
	struct ageing a = { .id = id, .at = clock_now(&t->server->clock) - days * 86400000 - 1000 };

	assert_int_equal(DB_WRITE(t->server->db, "test.age", age, &a, NULL), 0);
}

static void merged_days_ago(const struct api_test *t, const char *id, int64_t days)
{
	_cleanup_free_ char *root = xasprintf("%s/workspaces", t->data);
	_cleanup_(workspace_state_clear) struct workspace_state kept = { 0 };
	struct results results;

	assert_int_equal(results_open(&results, root, NULL), 0);
	assert_int_equal(workspace_state_load(&results, id, &kept, NULL), 0);
	assert_true(kept.applied_at > 0);
	kept.applied_at -= days * 86400000;
	assert_int_equal(workspace_state_save(&results, &kept, NULL), 0);
	results_close(&results);
}

static int64_t pruned(struct api_test *t, const char *kind, const char *body)
{
	_cleanup_json_ json_t *counts = post(t, 200, "/api/prune", body);

	return json_int(counts, kind, -1);
}

static void what_nobody_collected_outlives_every_pruning_for_a_month(void **state)
{
	struct api_test *t = *state;
	char kept[ID_SIZE], applied[ID_SIZE];
	_cleanup_json_ json_t *one =
		run_to_end(t, "echo kept >kept", ", \"collect\": \"manual\"", kept);
	_cleanup_json_ json_t *two = run_to_end(t, "echo done >done", "", applied);

	/* Of a week ago: the one that is home may go. */
	ended_days_ago(t, kept, 8);
	ended_days_ago(t, applied, 8);
	merged_days_ago(t, applied, 8);
	assert_int_equal(pruned(t, "workspaces", "{\"dryRun\": true}"), 1);
	assert_int_equal(pruned(t, "workspaces", "{}"), 1);
	assert_int_equal(pruned(t, "runs", "{\"olderThanSeconds\": 60}"), 1);

	PATH("/api/runs/%s/changes", kept);
	_cleanup_json_ json_t *still = get(t, path);

	assert_int_equal(json_array_size(json_object_get(still, "changes")), 1);
	/* Of a month ago: both, and the run with them. */
	ended_days_ago(t, kept, 31);
	assert_int_equal(pruned(t, "runs", "{\"olderThanSeconds\": 60}"), 1);
	refused(t, 404, "not_found", NULL, CALL("GET", path));

	_cleanup_json_ json_t *audit = get(t, "/api/audit");

	assert_int_equal(json_array_size(audit), 0);
}

static bool has_displaced(const struct api_test *t, const char *id)
{
	_cleanup_free_ char *name = xasprintf(".berth/files-%s", id);

	return is_there(t, name);
}

static void what_was_merged_outlives_every_pruning_for_a_week(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	_cleanup_json_ json_t *run = run_to_end(t, "echo changed >a.txt", "", id);
	PATH("/api/runs/%s/changes", id);

	assert_true(has_displaced(t, id));
	ended_days_ago(t, id, 6);
	assert_int_equal(pruned(t, "runs", "{\"olderThanSeconds\": 1, \"dryRun\": true}"), 0);
	assert_int_equal(pruned(t, "runs", "{\"olderThanSeconds\": 1}"), 0);
	assert_int_equal(pruned(t, "workspaces", "{\"olderThanSeconds\": 1}"), 0);
	assert_true(has_displaced(t, id));
	json_decref(get(t, path));

	/* The week begins with the merge, not with the run's end. */
	ended_days_ago(t, id, 20);
	assert_int_equal(pruned(t, "runs", "{\"olderThanSeconds\": 60}"), 0);
	assert_true(has_displaced(t, id));
	merged_days_ago(t, id, 8);
	assert_int_equal(pruned(t, "runs", "{\"olderThanSeconds\": 60}"), 1);
	assert_false(has_displaced(t, id));
}

static void the_lease_of_kept_results_outlives_pruning_too(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *lease = acquire(t, t->box, "{}");
	const char *id = json_str(lease, "id");
	_cleanup_free_ char *stage = xasprintf("/api/environment-leases/%s/stage", id);
	_cleanup_free_ char *collect = xasprintf("/api/environment-leases/%s/collect", id);
	_cleanup_free_ char *exec = xasprintf("/api/environment-leases/%s/exec?stream=0", id);
	_cleanup_free_ char *body = xasprintf("{\"path\": \"%s/work\"}", t->dir);
	_cleanup_free_ char *give = xasprintf("/api/environment-leases/%s/release", id);

	json_decref(post(t, 200, stage, body));
	json_decref(post(t, 200, exec,
			 "{\"command\": [\"sh\", \"-c\", \"echo by hand >workspace/a.txt\"]}"));
	json_decref(post(t, 200, collect, "{}"));
	json_decref(post(t, 200, give, "{}"));

	_cleanup_json_ json_t *plain = acquire(t, t->box, "{}");
	_cleanup_free_ char *also =
		xasprintf("/api/environment-leases/%s/release", json_str(plain, "id"));

	json_decref(post(t, 200, also, "{}"));
	/* Both ended; the one without results goes. */
	for (int left = PATIENCE_MS; left > 0; left -= 5) {
		_cleanup_json_ json_t *before =
			post(t, 200, "/api/prune",
			     "{\"olderThanSeconds\": 0, \"dryRun\": true, \"only\": \"leases\"}");

		if (json_int(before, "leases", 0) == 1)
			break;
		usleep(5000);
	}
	assert_true(pruned(t, "leases", "{\"olderThanSeconds\": 0}") >= 1);

	PATH("/api/environment-leases/%s", id);
	_cleanup_json_ json_t *audit = get(t, "/api/audit"), *still = get(t, path);

	assert_int_equal(json_array_size(audit), 0);
	assert_true(has_displaced(t, id));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		work_test(a_run_brings_files_and_its_work_comes_home),
		work_test(the_record_of_the_realization_says_what_was_done),
		work_test(commands_start_in_the_directory_that_was_named_by_its_name_here),
		work_test(a_failed_command_s_work_comes_home_too),
		work_test(a_command_that_cannot_start_leaves_nothing),
		work_test(work_is_kept_until_it_is_collected_and_then_until_it_is_dropped),
		work_test(a_conflict_keeps_both_and_changes_no_status),
		work_test(events_tell_of_staging_and_collecting),
		work_test(what_is_asked_for_is_judged_at_once),
		work_test(a_run_without_files_has_no_changes),
		work_test(nothing_is_collected_while_the_run_goes_on),
		work_test(a_plan_says_what_would_go_along),
		work_test(a_lease_is_staged_and_collected_by_hand),
		work_test(results_that_nothing_explains_are_in_the_audit),
		work_test(what_nobody_collected_outlives_every_pruning_for_a_month),
		work_test(what_was_merged_outlives_every_pruning_for_a_week),
		work_test(the_lease_of_kept_results_outlives_pruning_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

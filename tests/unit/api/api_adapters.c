/*
 * Adapters over HTTP: the list, runs with a prompt, and trying an adapter out (spec 01 F.7). The
 * tools are scripts of the test's own on a PATH of its own: the real ones belong to the user.
 */
#include <sys/socket.h>
#include <sys/un.h>

#include "../driver/makers.h"
#include "fixture.h"

#define NOWHERE "00000000-0000-4000-8000-000000000000"

/* A program in a directory of the test's. */
static void add_tool(struct api_test *t, const char *name, const char *script)
{
	_cleanup_free_ char *dir = xasprintf("%s/bin", t->dir);
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);

	assert_int_equal(dir_make(AT_FDCWD, dir, 0700, NULL), 0);
	assert_int_equal(file_replace(AT_FDCWD, path, script, strlen(script), 0700, NULL), 0);
}

/* Settings that find those programs before any others. */
static char *config_with(struct api_test *t, const char *more)
{
	return xasprintf("{\"env\":{\"PATH\":\"%s/bin:/usr/bin:/bin\"}%s}", t->dir, more);
}

static json_t *try_out(struct api_test *t, const char *type, const char *environment,
		       const char *config)
{
	PATH("/api/companies/%s/adapters/%s/test-environment", t->company, type);
	_cleanup_free_ char *body = environment ? xasprintf("{\"adapterConfig\":%s,"
							    "\"environmentId\":\"%s\"}",
							    config, environment)
						: xasprintf("{\"adapterConfig\":%s}", config);

	return post(t, 200, path, body);
}

static const json_t *check_at(const json_t *result, size_t i)
{
	return json_array_get(json_array_at(result, "checks"), i);
}

/* The only check, or the last of several. */
static void assert_found(const json_t *result, const char *status, const char *code,
			 const char *level)
{
	size_t count = json_array_size(json_array_at(result, "checks"));
	_cleanup_free_ char *text = json_text(result);
	const json_t *last = count ? check_at(result, count - 1) : NULL;

	if (!last || !streq(json_str(result, "status"), status) ||
	    !streq(json_str(last, "code"), code) || !streq(json_str(last, "level"), level))
		fail_msg("not %s by %s (%s): %s", status, code, level, text);
}

static json_t *leases_of(struct api_test *t, const char *environment)
{
	PATH("/api/environments/%s/leases", environment);

	return get(t, path);
}

/* How many leases there have been, and how the last ended. */
static void assert_leased(struct api_test *t, const char *environment, size_t count,
			  const char *status)
{
	_cleanup_json_ json_t *leases = leases_of(t, environment);
	const json_t *last = json_array_get(leases, 0);

	assert_int_equal(json_array_size(leases), count);
	if (!count)
		return;
	assert_string_equal(json_str(last, "status"), status);
	assert_true(json_is_null(json_object_get(last, "heartbeatRunId")));
}

static void make_environment(struct api_test *t, const char *company, const char *body,
			     char id[ID_SIZE])
{
	PATH("/api/companies/%s/environments", company);

	take_id(post(t, 201, path, body), id);
}

static void the_list_tells_how_each_tool_is_started_and_installed(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *list = get(t, "/api/adapters");
	const json_t *claude = json_array_get(list, 3), *http = json_array_get(list, 1);

	assert_int_equal(json_array_size(list), 11);
	assert_string_equal(json_str(claude, "adapterType"), "claude_local");
	assert_string_equal(json_str(claude, "command"), "claude");
	assert_non_null(strstr(json_str(claude, "installHint"), "npm install"));
	assert_true(json_bool(claude, "takesPrompt", false));
	assert_true(json_bool(claude, "remoteManaged", false));
	assert_false(json_bool(http, "takesPrompt", true));
	assert_string_equal(json_str(json_object_at(http, "drivers"), "sandbox"), "unsupported");
}

static void AT_1_an_adapter_that_is_not_allowed_there_is_told_so(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *result = try_out(t, "http", t->box, "{}");

	assert_found(result, "warn", "environment_target_unsupported", "warn");
	assert_string_equal(json_str(check_at(result, 0), "message"),
			    "Adapter \"http\" is not allowed in \"box\" environments.");
	assert_int_equal(json_array_size(json_array_at(result, "checks")), 1);
	/* Known without asking anybody, so nothing is leased. */
	assert_leased(t, t->box, 0, NULL);
	assert_leased(t, t->local, 0, NULL);
}

static void AT_2_an_environment_that_is_not_there_is_told_and_the_host_is_left_alone(void **state)
{
	struct api_test *t = *state;
	char other[ID_SIZE], foreign[ID_SIZE];
	const char *ids[] = { NOWHERE, foreign };

	take_id(post(t, 201, "/api/companies", "{\"name\": \"other\"}"), other);
	make_environment(t, other,
			 "{\"name\": \"theirs\", \"driver\": \"sandbox\","
			 " \"config\": {\"provider\": \"fake\"}}",
			 foreign);
	add_tool(t, "claude", "#!/bin/sh\necho 1.2.3\n");
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		_cleanup_free_ char *config = config_with(t, "");
		_cleanup_json_ json_t *result = try_out(t, "claude_local", ids[i], config);

		assert_found(result, "warn", "environment_not_found", "warn");
		assert_string_equal(json_str(check_at(result, 0), "message"),
				    "Selected environment was not found. The test did not run.");
		assert_int_equal(json_array_size(json_array_at(result, "checks")), 1);
	}
	assert_leased(t, t->local, 0, NULL);
	assert_leased(t, foreign, 0, NULL);
}

static void AT_3_a_tool_in_a_sandbox_is_found_there_and_the_place_given_back(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *config = config_with(t, "");
	_cleanup_json_ json_t *result = NULL;
	_cleanup_free_ char *where = xasprintf("%s/bin/claude", t->dir);

	/* It answers only where it would run, with the arguments of the probe. */
	add_tool(t, "claude",
		 "#!/bin/sh\ncase $PWD in */providers/fake/*) ;; *) exit 9 ;; esac\n"
		 "[ \"$*\" = --version ] && echo '1.2.3 (Claude Code)'\n");
	result = try_out(t, "claude_local", t->box, config);
	assert_found(result, "pass", "adapter_version", "info");
	assert_string_equal(json_str(check_at(result, 0), "code"), "adapter_command_found");
	assert_string_equal(json_str(check_at(result, 0), "detail"), where);
	assert_string_equal(json_str(check_at(result, 1), "detail"), "1.2.3 (Claude Code)");
	assert_string_equal(json_str(result, "adapterType"), "claude_local");
	assert_non_null(json_str(result, "testedAt"));
	assert_leased(t, t->box, 1, "released");
	assert_leased(t, t->local, 0, NULL);
}

static int failing_realize(const struct maker *self, const struct place_view *place,
			   const struct place_workspace *workspace, int64_t deadline_ms,
			   struct place_realization *out, struct error *err)
{
	(void)self, (void)place, (void)workspace, (void)deadline_ms, (void)out;
	return error_set(err, ERR_IO, "the disk said no");
}

static void AT_4_a_workspace_that_cannot_be_prepared_fails_the_test(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *result = NULL;

	maker_to_change(&t->server->makers, DRIVER_SANDBOX, "fake")->realize = failing_realize;
	result = try_out(t, "claude_local", t->box, "{}");
	assert_found(result, "fail", "environment_workspace_realize_failed", "error");
	assert_non_null(strstr(json_str(check_at(result, 0), "detail"), "the disk said no"));
	assert_int_equal(json_array_size(json_array_at(result, "checks")), 1);
	assert_leased(t, t->box, 1, "failed");
}

static void AT_a_lease_that_cannot_be_had_fails_the_test_with_a_hint(void **state)
{
	struct api_test *t = *state;
	char broken[ID_SIZE];
	_cleanup_json_ json_t *result = NULL;

	make_environment(t, t->company,
			 "{\"name\": \"no\", \"driver\": \"sandbox\", \"config\":"
			 " {\"provider\": \"fake\", \"faults\":"
			 " {\"acquire\": {\"fail\": true, \"message\": \"quota exceeded\"}}}}",
			 broken);
	result = try_out(t, "codex_local", broken, "{}");
	assert_found(result, "fail", "environment_lease_acquire_failed", "error");
	assert_non_null(strstr(json_str(check_at(result, 0), "detail"), "quota exceeded"));
	assert_non_null(strstr(json_str(check_at(result, 0), "hint"), "quota"));
}

static void AT_a_place_somebody_holds_is_not_taken_from_them(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];
	_cleanup_json_ json_t *result = NULL;

	take_id(acquire(t, t->box, "{}"), id);
	result = try_out(t, "codex_local", t->box, "{}");
	assert_found(result, "fail", "environment_lease_acquire_failed", "error");

	PATH("/api/environment-leases/%s", id);
	_cleanup_json_ json_t *lease = get(t, path);

	assert_string_equal(json_str(lease, "status"), "active");
}

static void AT_archived_and_unreachable_environments_are_told_and_not_tried(void **state)
{
	struct api_test *t = *state;
	char attic[ID_SIZE], far[ID_SIZE], plug[ID_SIZE];
	_cleanup_json_ json_t *archived = NULL, *ssh = NULL, *local_only = NULL, *plugin = NULL;

	make_environment(t, t->company,
			 "{\"name\": \"attic\", \"driver\": \"sandbox\", \"status\": \"archived\","
			 " \"config\": {\"provider\": \"fake\"}}",
			 attic);
	make_environment(t, t->company,
			 "{\"name\": \"far\", \"driver\": \"ssh\", \"config\": {\"host\": \"h\","
			 " \"username\": \"u\", \"remoteWorkspacePath\": \"/w\"}}",
			 far);
	make_environment(t, t->company,
			 "{\"name\": \"plug\", \"driver\": \"plugin\", \"config\":"
			 " {\"pluginKey\": \"k\", \"driverKey\": \"d\"}}",
			 plug);
	archived = try_out(t, "codex_local", attic, "{}");
	assert_found(archived, "warn", "environment_inactive", "warn");
	ssh = try_out(t, "codex_local", far, "{}");
	assert_found(ssh, "warn", "environment_target_failed", "warn");
	assert_non_null(strstr(json_str(check_at(ssh, 0), "detail"), "ssh"));
	local_only = try_out(t, "process", far, "{}");
	assert_found(local_only, "warn", "environment_target_unavailable", "warn");
	plugin = try_out(t, "codex_local", plug, "{}");
	assert_found(plugin, "fail", "environment_lease_acquire_failed", "error");
	assert_leased(t, attic, 0, NULL);
	assert_leased(t, t->local, 0, NULL);
}

static void AT_without_an_environment_the_host_is_tried(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *config = config_with(t, "");
	_cleanup_json_ json_t *found = NULL, *chosen = NULL, *missing = NULL;

	add_tool(t, "codex", "#!/bin/sh\necho; echo codex-cli 0.9\n");
	found = try_out(t, "codex_local", NULL, config);
	assert_found(found, "pass", "adapter_version", "info");
	chosen = try_out(t, "codex_local", t->local, config);
	assert_found(chosen, "pass", "adapter_version", "info");
	missing = try_out(t, "opencode_local", NULL, config);
	assert_found(missing, "fail", "adapter_command_missing", "error");
	assert_string_equal(json_str(check_at(missing, 0), "hint"), "npm install -g opencode-ai");
	assert_leased(t, t->local, 3, "failed");
}

static void AT_a_tool_that_does_not_say_its_version_is_a_warning(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *config = config_with(t, "");
	_cleanup_json_ json_t *result = NULL;

	add_tool(t, "gemini", "#!/bin/sh\necho 'needs node 24' >&2\nexit 3\n");
	result = try_out(t, "gemini_local", t->box, config);
	assert_found(result, "warn", "adapter_version_failed", "warn");
	assert_string_equal(json_str(check_at(result, 1), "detail"), "needs node 24");
	assert_leased(t, t->box, 1, "released");
}

static void AT_settings_that_cannot_work_are_told_before_a_lease(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *bad = try_out(t, "claude_local", t->box, "{\"timeoutSec\":\"x\"}");
	_cleanup_json_ json_t *none = try_out(t, "process", t->box, "{}");
	_cleanup_json_ json_t *secret = try_out(
		t, "claude_local", t->box,
		"{\"env\":{\"KEY\":{\"type\":\"secret_ref\",\"secretId\":\"" NOWHERE "\"}}}");
	_cleanup_json_ json_t *service = try_out(t, "http", NULL, "{}");

	assert_found(bad, "fail", "adapter_config_invalid", "error");
	assert_non_null(strstr(json_str(check_at(bad, 0), "detail"), "timeoutSec"));
	assert_found(none, "fail", "adapter_config_invalid", "error");
	assert_found(secret, "fail", "adapter_config_invalid", "error");
	assert_found(service, "warn", "adapter_without_command", "warn");
	assert_leased(t, t->box, 0, NULL);
	assert_leased(t, t->local, 0, NULL);
}

static void AT_unused_settings_and_a_bad_directory_are_told(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *config = config_with(t, ",\"graceSec\":5,\"chrome\":true");
	_cleanup_free_ char *astray = config_with(t, ",\"cwd\":\"/no/such/directory\"");
	_cleanup_json_ json_t *unused = NULL, *lost = NULL;

	add_tool(t, "claude", "#!/bin/sh\necho 1\n");
	unused = try_out(t, "claude_local", t->box, config);
	assert_found(unused, "warn", "adapter_version", "info");
	assert_string_equal(json_str(check_at(unused, 0), "code"), "adapter_config_unknown_keys");
	assert_string_equal(json_str(check_at(unused, 0), "detail"), "graceSec, chrome");
	lost = try_out(t, "claude_local", t->box, astray);
	assert_found(lost, "fail", "adapter_probe_failed", "error");
	assert_leased(t, t->box, 2, "failed");
}

static void AT_bad_requests_are_refused(void **state)
{
	struct api_test *t = *state;
	PATH("/api/companies/%s/adapters/claude_local/test-environment", t->company);
	_cleanup_free_ char *unknown =
		xasprintf("/api/companies/%s/adapters/nobodys/test-environment", t->company);

	refused(t, 404, "not_found", "Adapter", CALL("POST", unknown, "{}"));
	refused(t, 400, "validation_error", NULL, CALL("POST", path, "{\"bogus\": 1}"));
	refused(t, 400, "validation_error", NULL, CALL("POST", path, "{\"adapterConfig\": []}"));
	refused(t, 400, "validation_error", NULL,
		CALL("POST", path, "{\"environmentId\": \"here\"}"));
	refused(t, 404, "not_found", NULL,
		CALL("POST", "/api/companies/" NOWHERE "/adapters/claude_local/test-environment",
		     "{}"));
}

static bool is_released(struct api_test *t, const char *environment)
{
	_cleanup_json_ json_t *leases = leases_of(t, environment);

	return json_array_size(leases) == 1 &&
	       !streq(json_str(json_array_get(leases, 0), "status"), "active");
}

static bool is_there(const char *path)
{
	return access(path, F_OK) == 0;
}

/* Whoever asked has gone while the tool hangs: nothing waits for its deadline. */
static void AT_the_place_is_given_back_when_the_client_goes_away(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *config = config_with(t, "");
	_cleanup_free_ char *mark = xasprintf("%s/mark", t->dir);
	_cleanup_free_ char *script = xasprintf("#!/bin/sh\n: >%s\nsleep 600\n", mark);
	_cleanup_free_ char *body =
		xasprintf("{\"adapterConfig\":%s,\"environmentId\":\"%s\"}", config, t->box);
	_cleanup_free_ char *request =
		xasprintf("POST /api/companies/%s/adapters/pi_local/test-environment HTTP/1.1\r\n"
			  "Host: localhost\r\nContent-Type: application/json\r\n"
			  "Content-Length: %zu\r\n\r\n%s",
			  t->company, strlen(body), body);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	add_tool(t, "pi", script);
	assert_true(strlen(t->socket) < sizeof(address.sun_path));
	memcpy(address.sun_path, t->socket, strlen(t->socket));
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(write(fd, request, strlen(request)), strlen(request));
	WAIT_FOR(is_there(mark));
	close(fd);
	WAIT_FOR(is_released(t, t->box));
}

/* ---- runs ---- */

static void finish_run(struct api_test *t, const char *body, json_t **run)
{
	char id[ID_SIZE];
	PATH("/api/companies/%s/runs", t->company);

	take_id(post(t, 201, path, body), id);

	_cleanup_free_ char *log = xasprintf("/api/runs/%s/log?follow=1", id);
	_cleanup_free_ char *show = xasprintf("/api/runs/%s", id);
	_cleanup_buf_ struct buf text = { 0 };
	const struct call read_log = { .method = "GET",
				       .path = log,
				       .accept = "application/octet-stream" };

	assert_int_equal(call_raw(t, &read_log, &text), 200);
	*run = get(t, show);
	json_put_str(*run, "testLog", buf_str(&text));
}

static void a_prompt_reaches_its_tool_in_the_place_and_stands_nowhere_else(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *config = config_with(t, ",\"model\":\"sonnet\"");
	_cleanup_free_ char *body =
		xasprintf("{\"adapterType\":\"claude_local\",\"prompt\":\"mend the roof\","
			  "\"environmentId\":\"%s\",\"adapterConfig\":%s}",
			  t->box, config);
	_cleanup_json_ json_t *run = NULL;
	_cleanup_free_ char *activity_path = xasprintf("/api/companies/%s/activity", t->company);
	_cleanup_free_ char *shown = NULL, *told = NULL;
	_cleanup_json_ json_t *activity = NULL;

	add_tool(t, "claude", "#!/bin/sh\nprintf '%s|' \"$@\"\ntr a-z A-Z\n");
	finish_run(t, body, &run);
	assert_string_equal(json_str(run, "status"), "succeeded");
	assert_string_equal(json_str(run, "adapterType"), "claude_local");
	assert_non_null(strstr(json_str(run, "testLog"),
			       "-p|--output-format|stream-json|--verbose|--model|sonnet|"
			       "MEND THE ROOF"));
	json_object_del(run, "testLog");
	shown = json_text(run);
	assert_null(strstr(shown, "mend the roof"));
	assert_string_equal(json_string_value(json_array_get(json_array_at(run, "command"), 0)),
			    "claude");
	assert_string_equal(
		json_str(json_object_at(json_object_at(run, "context"), "executionTarget"),
			 "transport"),
		"sandbox");
	activity = get(t, activity_path);
	told = json_text(activity);
	assert_null(strstr(told, "mend the roof"));
}

static void a_tool_that_is_not_there_fails_the_run_by_name(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *run = NULL;

	finish_run(t,
		   "{\"adapterType\":\"claude_local\",\"prompt\":\"x\","
		   "\"adapterConfig\":{\"command\":\"no-such-claude\"}}",
		   &run);
	assert_string_equal(json_str(run, "status"), "failed");
	assert_string_equal(json_str(run, "errorCode"), "command_not_found");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		api_unit_test(the_list_tells_how_each_tool_is_started_and_installed),
		api_unit_test(AT_1_an_adapter_that_is_not_allowed_there_is_told_so),
		api_unit_test(
			AT_2_an_environment_that_is_not_there_is_told_and_the_host_is_left_alone),
		api_unit_test(AT_3_a_tool_in_a_sandbox_is_found_there_and_the_place_given_back),
		api_unit_test(AT_4_a_workspace_that_cannot_be_prepared_fails_the_test),
		api_unit_test(AT_a_lease_that_cannot_be_had_fails_the_test_with_a_hint),
		api_unit_test(AT_a_place_somebody_holds_is_not_taken_from_them),
		api_unit_test(AT_archived_and_unreachable_environments_are_told_and_not_tried),
		api_unit_test(AT_without_an_environment_the_host_is_tried),
		api_unit_test(AT_a_tool_that_does_not_say_its_version_is_a_warning),
		api_unit_test(AT_settings_that_cannot_work_are_told_before_a_lease),
		api_unit_test(AT_unused_settings_and_a_bad_directory_are_told),
		api_unit_test(AT_bad_requests_are_refused),
		api_unit_test(AT_the_place_is_given_back_when_the_client_goes_away),
		api_unit_test(a_prompt_reaches_its_tool_in_the_place_and_stands_nowhere_else),
		api_unit_test(a_tool_that_is_not_there_fails_the_run_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

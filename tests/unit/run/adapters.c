/*
 * The table of adapters: what a prompt becomes, which settings are taken, and where a tool may run
 * (spec 01 E.6, F.5).
 */
#include "world.h"
#include "adapter/adapter.h"
#include "run/prompt.h"

static json_t *parsed(const char *text)
{
	json_t *value = json_parse(text, strlen(text), NULL);

	assert_non_null(value);
	return value;
}

/* The words of the command an adapter makes of a config and the prompt "do it", by spaces. */
static char *words_of(const char *type, const char *config_text, char **input)
{
	_cleanup_json_ json_t *config = parsed(config_text);
	_cleanup_(adapter_command_clear) struct adapter_command command = { 0 };
	const struct adapter *adapter = adapter_find(type);
	const struct adapter_prompt prompt = { .text = "do it",
					       .run_id = "r1",
					       .agent_name = "Ada" };
	struct buf words = { 0 };

	assert_ok(adapter_config_check(adapter, config, true, err));
	assert_ok(adapter_command(adapter, config, &prompt, &command, err));
	for (char **word = command.argv; *word; word++)
		buf_printf(&words, "%s%s", words.len ? " " : "", *word);
	if (input)
		*input = xstrdup(command.input);
	return buf_steal(&words);
}

static void every_tool_gets_its_prompt_on_standard_input(void **state)
{
	static const struct {
		const char *type, *config, *words;
	} CASES[] = {
		{ "claude_local", "{}", "claude -p --output-format stream-json --verbose" },
		{ "claude_local", "{\"model\":\"opus\",\"extraArgs\":[\"--max-turns\",\"3\"]}",
		  "claude -p --output-format stream-json --verbose --model opus --max-turns 3" },
		{ "codex_local", "{\"model\":\"o3\"}",
		  "codex exec --json --skip-git-repo-check --model o3 -" },
		{ "gemini_local", "{}", "gemini --output-format stream-json" },
		{ "opencode_local", "{}", "opencode run --format json" },
		{ "cursor", "{}", "cursor-agent -p --output-format stream-json" },
		{ "pi_local", "{}", "pi --print --mode json" },
		{ "acpx_local", "{}", "acpx --format json codex exec --file -" },
		{ "acpx_local", "{\"agent\":\"claude\",\"extraArgs\":[\"--approve-all\"]}",
		  "acpx --format json --approve-all claude exec --file -" },
		{ "process", "{\"command\":\"/opt/tool\",\"args\":[\"-v\"]}", "/opt/tool -v" },
		{ "claude_local", "{\"command\":\"/opt/claude\",\"model\":null}",
		  "/opt/claude -p --output-format stream-json --verbose" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(CASES); i++) {
		_cleanup_free_ char *input = NULL;
		_cleanup_free_ char *words = words_of(CASES[i].type, CASES[i].config, &input);

		assert_string_equal(words, CASES[i].words);
		assert_string_equal(input, "do it");
	}
}

/* Clients show lists as they come; the linker's order must not be seen. */
static void adapters_are_listed_in_the_order_of_their_types(void **state)
{
	static const char *const TYPES[] = {
		"process",     "http",         "acpx_local",      "claude_local",
		"codex_local", "cursor_cloud", "gemini_local",    "opencode_local",
		"pi_local",    "cursor",       "openclaw_gateway"
	};
	const struct adapter *adapter = NULL;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(TYPES); i++) {
		adapter = adapter_after(adapter);
		assert_non_null(adapter);
		assert_string_equal(adapter->type, TYPES[i]);
		assert_ptr_equal(adapter_find(TYPES[i]), adapter);
	}
	assert_null(adapter_after(adapter));
	assert_null(adapter_find("nobodys"));
	assert_null(adapter_find(NULL));
}

static void a_template_says_where_the_prompt_stands(void **state)
{
	static const char *const CASES[][2] = {
		{ "I am {{agent.name}} in {{runId}}: {{prompt}}. {{other}} {x}",
		  "I am Ada in r1: do it. {{other}} {x}" },
		{ "Be brief.", "Be brief.\n\ndo it" },
		{ "{{prompt}} {{prompt}}", "do it do it" },
		{ "{{agentId}}{", "{\n\ndo it" },
		{ "  ", "do it" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(CASES); i++) {
		_cleanup_json_ json_t *config = json_object();
		_cleanup_free_ char *text = NULL, *words = NULL, *input = NULL;

		json_put_str(config, "promptTemplate", CASES[i][0]);
		text = json_text(config);
		words = words_of("claude_local", text, &input);
		assert_string_equal(input, CASES[i][1]);
	}
}

/* What a prompt brings along is not read as a template. */
static void a_prompt_is_not_a_template(void **state)
{
	_cleanup_json_ json_t *config = parsed("{\"promptTemplate\":\"<{{prompt}}>\"}");
	const struct adapter_prompt prompt = { .text = "{{runId}} {{prompt}}", .run_id = "r1" };
	_cleanup_(adapter_command_clear) struct adapter_command command = { 0 };

	(void)state;
	assert_ok(adapter_command(adapter_find("codex_local"), config, &prompt, &command, err));
	assert_string_equal(command.input, "<{{runId}} {{prompt}}>");
}

static void bad_settings_are_refused_by_name(void **state)
{
	static const char *const CASES[][3] = {
		{ "claude_local", "{\"model\":7}", "adapterConfig.model" },
		{ "claude_local", "{\"model\":\"--bypass\"}", "adapterConfig.model" },
		{ "claude_local", "{\"extraArgs\":\"-v\"}", "adapterConfig.extraArgs" },
		{ "claude_local", "{\"extraArgs\":[1]}", "adapterConfig.extraArgs[0]" },
		{ "claude_local", "{\"command\":\" \"}", "adapterConfig.command" },
		{ "claude_local", "{\"cwd\":\"here\"}", "adapterConfig.cwd" },
		{ "claude_local", "{\"timeoutSec\":\"5\"}", "adapterConfig.timeoutSec" },
		{ "claude_local", "{\"timeoutSec\":1e300}", "adapterConfig.timeoutSec" },
		{ "claude_local", "{\"env\":[]}", "adapterConfig.env" },
		{ "claude_local", "{\"env\":{\"A=B\":\"x\"}}", "adapterConfig.env.A=B" },
		{ "claude_local", "{\"env\":{\"A\":{\"type\":\"plain\"}}}", "adapterConfig.env.A" },
		{ "claude_local", "{\"env\":{\"A\":\"***REDACTED***\"}}", "adapterConfig.env.A" },
		{ "claude_local", "{\"args\":[]}", "adapterConfig.args" },
		{ "claude_local", "{\"agent\":\"x\"}", "adapterConfig.agent" },
		{ "acpx_local", "{\"agent\":\"--agent\"}", "adapterConfig.agent" },
		{ "process", "{\"model\":\"x\"}", "adapterConfig.model" },
		{ "process", "{\"graceSec\":3}", "adapterConfig.graceSec" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(CASES); i++) {
		_cleanup_error_ struct error err = { 0 };
		_cleanup_json_ json_t *config = parsed(CASES[i][1]), *details = NULL;

		if (adapter_config_check(adapter_find(CASES[i][0]), config, true, &err) == 0)
			fail_msg("%s was taken", CASES[i][1]);
		assert_int_equal(err.code, ERR_VALIDATION);
		if (!strstr(err.message, CASES[i][2]))
			fail_msg("\"%s\" does not say %s", err.message, CASES[i][2]);
		details = parsed(err.details);
		assert_string_equal(json_string_value(json_array_get(
					    json_array_at(json_array_get(details, 0), "path"), 0)),
				    "adapterConfig");
	}
}

/* Stored configs carry what other software knows; it is kept, and can be told. */
static void keys_of_others_are_left_alone_in_a_stored_config(void **state)
{
	_cleanup_json_ json_t *config =
		parsed("{\"model\":\"m\",\"workspaceStrategy\":{\"type\":\"git_worktree\"}}");
	_cleanup_json_ json_t *unknown =
		adapter_config_unknown(adapter_find("claude_local"), config);
	_cleanup_error_ struct error why = { 0 };

	(void)state;
	assert_ok(adapter_config_check(adapter_find("claude_local"), config, false, err));
	assert_int_equal(json_array_size(unknown), 1);
	assert_string_equal(json_string_value(json_array_get(unknown, 0)), "workspaceStrategy");
	assert_int_equal(adapter_config_check(adapter_find("claude_local"), config, true, &why),
			 -1);
}

static void one_config_is_laid_over_another_with_null_taking_away(void **state)
{
	static const char *const CASES[][3] = {
		{ "{\"model\":\"a\",\"cwd\":\"/x\"}", "{\"model\":\"b\"}",
		  "{\"model\":\"b\",\"cwd\":\"/x\"}" },
		{ "{\"model\":\"a\"}", "{\"model\":null}", "{}" },
		{ "{\"env\":{\"A\":\"1\",\"B\":\"2\"}}", "{\"env\":{\"B\":\"3\",\"A\":null}}",
		  "{\"env\":{\"B\":\"3\"}}" },
		{ "{\"env\":{\"A\":\"1\"}}", "{\"env\":null}", "{}" },
		{ "{\"env\":{\"A\":\"1\"}}", "{}", "{\"env\":{\"A\":\"1\"}}" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(CASES); i++) {
		_cleanup_json_ json_t *base = parsed(CASES[i][0]), *over = parsed(CASES[i][1]);
		_cleanup_json_ json_t *want = parsed(CASES[i][2]);
		_cleanup_json_ json_t *got = adapter_config_lay(base, over);

		assert_true(json_equal(got, want));
	}
}

static void time_limits_keep_their_fractions_and_negative_means_none(void **state)
{
	static const struct {
		const char *config;
		int64_t ms;
	} CASES[] = {
		{ "{}", 0 },
		{ "{\"timeoutSec\":0}", 0 },
		{ "{\"timeoutSec\":2}", 2000 },
		{ "{\"timeoutSec\":0.5}", 500 },
		{ "{\"timeoutSec\":0.0001}", 1 },
		{ "{\"timeoutSec\":-1}", -1 },
		{ "{\"timeoutSec\":null}", 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(CASES); i++) {
		_cleanup_json_ json_t *config = parsed(CASES[i].config);
		_cleanup_(adapter_command_clear) struct adapter_command command = { 0 };

		assert_ok(adapter_config_check(adapter_find("pi_local"), config, true, err));
		assert_ok(adapter_command(adapter_find("pi_local"), config, NULL, &command, err));
		assert_int_equal(command.timeout_ms, CASES[i].ms);
		assert_null(command.input);
	}
}

static void nothing_is_started_without_a_program_or_for_an_unresolved_secret(void **state)
{
	static const struct {
		const char *type, *config;
		enum error_code code;
	} CASES[] = {
		{ "process", "{}", ERR_UNPROCESSABLE },
		{ "http", "{}", ERR_UNSUPPORTED_ADAPTER },
		{ "openclaw_gateway", "{}", ERR_UNSUPPORTED_ADAPTER },
		{ "codex_local",
		  "{\"env\":{\"KEY\":{\"type\":\"secret_ref\","
		  "\"secretId\":\"00000000-0000-4000-8000-000000000000\"}}}",
		  ERR_UNPROCESSABLE },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(CASES); i++) {
		_cleanup_error_ struct error why = { 0 };
		_cleanup_json_ json_t *config = parsed(CASES[i].config);
		struct adapter_command command;

		assert_ok(adapter_config_check(adapter_find(CASES[i].type), config, false, err));
		assert_int_equal(
			adapter_command(adapter_find(CASES[i].type), config, NULL, &command, &why),
			-1);
		assert_int_equal(why.code, CASES[i].code);
		assert_null(command.argv);
	}
}

/* ---- where a tool may run ---- */

static struct environment sandbox_of(const char *config)
{
	struct environment e = { .name = xstrdup("box"), .driver = DRIVER_SANDBOX };

	id_copy(e.id, "11111111-1111-4111-8111-111111111111");
	e.config = parsed(config);
	return e;
}

static json_t *target_in(const struct environment *e, const char *adapter, const char *metadata)
{
	_cleanup_json_ json_t *lease_metadata = parsed(metadata);
	_cleanup_(execution_target_clear) struct execution_target target = { 0 };

	assert_ok(execution_target(adapter, e, lease_metadata, &target, err));
	return execution_target_json(&target, e, "22222222-2222-4222-8222-222222222222");
}

static void ET_1_a_sandbox_target_names_its_provider_place_and_limits(void **state)
{
	_cleanup_environment_ struct environment e =
		sandbox_of("{\"provider\":\"fake-plugin\",\"timeoutMs\":30000}");
	_cleanup_json_ json_t *target = target_in(&e, "codex_local", "{}");
	_cleanup_json_ json_t *want =
		parsed("{\"kind\":\"remote\",\"transport\":\"sandbox\","
		       "\"providerKey\":\"fake-plugin\",\"shellCommand\":null,"
		       "\"remoteCwd\":\"/tmp\",\"timeoutMs\":30000,"
		       "\"environmentId\":\"11111111-1111-4111-8111-111111111111\","
		       "\"leaseId\":\"22222222-2222-4222-8222-222222222222\"}");

	(void)state;
	assert_true(json_equal(target, want));
}

static void ET_2_no_address_to_call_back_to_comes_from_the_provider(void **state)
{
	_cleanup_environment_ struct environment e = sandbox_of("{\"provider\":\"fake-plugin\"}");
	_cleanup_json_ json_t *target = target_in(
		&e, "codex_local", "{\"paperclipApiUrl\":\"http://evil\",\"remoteCwd\":\" /w \"}");

	(void)state;
	assert_null(json_object_get(target, "paperclipApiUrl"));
	assert_null(json_object_get(target, "paperclipTransport"));
	assert_string_equal(json_str(target, "remoteCwd"), "/w");
}

static void a_directory_that_is_not_absolute_is_no_target(void **state)
{
	_cleanup_environment_ struct environment e = sandbox_of("{\"provider\":\"p\"}");
	_cleanup_json_ json_t *metadata = parsed("{\"remoteCwd\":\" ../w\"}");
	_cleanup_error_ struct error err = { 0 };
	struct execution_target target;

	(void)state;
	assert_int_equal(execution_target("process", &e, metadata, &target, &err), -1);
	assert_int_equal(err.code, ERR_TRANSPORT);
	assert_null(target.remote_cwd);
}

static void ET_3_only_two_words_name_a_shell(void **state)
{
	static const char *const CASES[][2] = {
		{ "{\"shellCommand\":\"bash\"}", "bash" },
		{ "{\"shellCommand\":\"sh\"}", "sh" },
		{ "{\"shellCommand\":\"bash -x\"}", NULL },
		{ "{\"shellCommand\":7}", NULL },
	};
	_cleanup_environment_ struct environment e = sandbox_of("{\"provider\":\"p\"}");

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(CASES); i++) {
		_cleanup_json_ json_t *target = target_in(&e, "claude_local", CASES[i][0]);

		assert_true(str_equal(json_str(target, "shellCommand"), CASES[i][1]));
	}
}

static void ET_local_any_adapter_has_a_local_target(void **state)
{
	_cleanup_environment_ struct environment e = sandbox_of("{}");
	_cleanup_json_ json_t *target = NULL;

	(void)state;
	e.driver = DRIVER_LOCAL;
	target = target_in(&e, "somebody_elses", "{}");
	assert_string_equal(json_str(target, "kind"), "local");
	assert_null(json_object_get(target, "transport"));
	assert_string_equal(json_str(target, "environmentId"), e.id);
	assert_string_equal(json_str(target, "leaseId"), "22222222-2222-4222-8222-222222222222");
}

/* E.6 with I7: where the reference has no target and the host would be used, there is a refusal. */
static void ET_I7_no_target_is_a_refusal_never_the_host(void **state)
{
	static const struct {
		const char *adapter;
		enum driver_kind driver;
		enum error_code code;
	} CASES[] = {
		{ "http", DRIVER_SANDBOX, ERR_UNSUPPORTED_ADAPTER },
		{ "openclaw_gateway", DRIVER_SANDBOX, ERR_UNSUPPORTED_ADAPTER },
		{ "cursor_cloud", DRIVER_SANDBOX, ERR_UNSUPPORTED_ADAPTER },
		{ "somebody_elses", DRIVER_SANDBOX, ERR_UNSUPPORTED_ADAPTER },
		{ "codex_local", DRIVER_PLUGIN, ERR_UNSUPPORTED_ENV },
		{ "codex_local", DRIVER_SSH, ERR_UNSUPPORTED_ENV },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(CASES); i++) {
		_cleanup_environment_ struct environment e = sandbox_of("{}");
		_cleanup_error_ struct error err = { 0 };
		struct execution_target target;

		e.driver = CASES[i].driver;
		assert_int_equal(execution_target(CASES[i].adapter, &e, NULL, &target, &err), -1);
		assert_int_equal(err.code, CASES[i].code);
		assert_null(target.remote_cwd);
	}
}

static void capabilities_list_every_adapter_in_its_order(void **state)
{
	static const char *const TYPES[] = {
		"process",     "http",         "acpx_local",      "claude_local",
		"codex_local", "cursor_cloud", "gemini_local",    "opencode_local",
		"pi_local",    "cursor",       "openclaw_gateway"
	};
	struct maker_host maker_host = { 0 };
	struct makers makers;

	makers_init(&makers, &maker_host);

	_cleanup_json_ json_t *list = adapter_capabilities(&makers);
	_cleanup_json_ json_t *all =
		parsed("{\"local\":\"supported\",\"ssh\":\"unsupported\","
		       "\"sandbox\":\"supported\",\"plugin\":\"unsupported\"}");
	_cleanup_json_ json_t *host = parsed("{\"local\":\"supported\",\"ssh\":\"unsupported\","
					     "\"sandbox\":\"unsupported\","
					     "\"plugin\":\"unsupported\"}");

	(void)state;
	assert_int_equal(json_array_size(list), ARRAY_SIZE(TYPES));
	for (size_t i = 0; i < ARRAY_SIZE(TYPES); i++) {
		const json_t *entry = json_array_get(list, i);

		assert_string_equal(json_str(entry, "adapterType"), TYPES[i]);
		assert_string_equal(json_str(json_object_at(entry, "sandboxProviders"), "fake"),
				    "unsupported");
	}
	assert_true(json_equal(json_object_at(json_array_get(list, 4), "drivers"), all));
	assert_true(json_equal(json_object_at(json_array_get(list, 1), "drivers"), host));
	makers_clear(&makers);
}

/* ---- runs ---- */

static int running_world(void **state)
{
	world_setup(state);
	world_start(*state);
	return 0;
}

static void refused(struct world *w, const char *body_text, enum error_code code, const char *text)
{
	_cleanup_json_ json_t *body = parsed(body_text);
	_cleanup_error_ struct error err = { 0 };
	_cleanup_run_ struct run run = { 0 };

	if (fields_check(RUN_FIELDS, body, &err) == 0 &&
	    run_create(w->runs, &ACTOR_SYSTEM, NULL, w->company.id, body, &run, &err) == 0)
		fail_msg("%s was taken", body_text);
	if (err.code != code || !strstr(err.message, text))
		fail_msg("%s: %s (%s)", body_text, err.message, error_code_name(err.code));
}

static void a_run_names_a_command_or_a_prompt(void **state)
{
	struct world *w = *state;

	refused(w, "{}", ERR_VALIDATION, "either a command or a prompt");
	refused(w, "{\"command\":[\"true\"],\"prompt\":\"x\",\"adapterType\":\"process\"}",
		ERR_VALIDATION, "not both");
	refused(w, "{\"command\":[\"true\"],\"adapterType\":\"process\"}", ERR_VALIDATION,
		"adapterType");
	refused(w, "{\"command\":[\"true\"],\"adapterConfig\":{}}", ERR_VALIDATION,
		"adapterConfig");
	refused(w, "{\"prompt\":\"x\"}", ERR_VALIDATION, "adapterType");
	refused(w, "{\"prompt\":\" \",\"adapterType\":\"pi_local\"}", ERR_VALIDATION, "blank");
	refused(w, "{\"prompt\":\"x\",\"adapterType\":\"pi_local\",\"stdin\":\"y\"}",
		ERR_VALIDATION, "stdin");
	refused(w, "{\"prompt\":\"x\",\"adapterType\":\"pi_local\",\"tty\":{}}", ERR_VALIDATION,
		"tty");
	refused(w, "{\"prompt\":\"x\",\"adapterType\":\"nobodys\"}", ERR_UNSUPPORTED_ADAPTER,
		"nobodys");
	refused(w, "{\"prompt\":\"x\",\"adapterType\":\"http\"}", ERR_UNSUPPORTED_ADAPTER, "http");
	refused(w, "{\"prompt\":\"x\",\"adapterType\":\"process\"}", ERR_UNPROCESSABLE,
		"adapterConfig.command");
	refused(w,
		"{\"prompt\":\"x\",\"adapterType\":\"pi_local\",\"adapterConfig\":{\"bogus\":1}}",
		ERR_VALIDATION, "adapterConfig.bogus");
	refused(w, "{\"prompt\":\"x\",\"agentId\":\"00000000-0000-4000-8000-000000000000\"}",
		ERR_UNPROCESSABLE, "agentId");
}

static void make_agent(struct world *w, const char *text, char id[ID_SIZE])
{
	_cleanup_json_ json_t *body = parsed(text);
	struct agent agent = { 0 };

	assert_ok(agent_create(WRITER(w->db, &w->clock, &ACTOR_SYSTEM), w->company.id, body, &agent,
			       err));
	id_copy(id, agent.id);
	agent_clear(&agent);
}

static void a_prompt_runs_with_the_settings_of_its_agent(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_json_ json_t *view = NULL;
	_cleanup_free_ char *body = NULL, *shown = NULL;
	char id[ID_SIZE];

	make_agent(w,
		   "{\"name\":\"Ada\",\"adapterType\":\"process\",\"adapterConfig\":{"
		   "\"command\":\"sh\",\"args\":[\"-c\",\"cat; echo \\\"/$A$B$C\\\"; pwd\"],"
		   "\"cwd\":\"/\",\"timeoutSec\":40,\"mine\":1,"
		   "\"promptTemplate\":\"{{agent.name}}: {{prompt}}\\n\","
		   "\"env\":{\"A\":\"a\",\"B\":{\"type\":\"plain\",\"value\":\"b\"},\"C\":\"c\"}}}",
		   id);
	body = xasprintf("{\"prompt\":\"hush hush\",\"agentId\":\"%s\",\"env\":{\"C\":\"3\"},"
			 "\"adapterConfig\":{\"env\":{\"B\":\"2\"}}}",
			 id);
	run_to_end(w, body, &run);
	assert_int_equal(run.status, RUN_SUCCEEDED);
	assert_output(w, run.id, "Ada: hush hush\n/a23\n/\n");
	assert_int_equal(run.timeout_ms, 40000);
	view = run_json(&run);
	shown = json_text(view);
	assert_null(strstr(shown, "hush"));
	assert_string_equal(json_str(view, "adapterType"), "process");
	assert_string_equal(json_str(json_object_at(run.context, "executionTarget"), "kind"),
			    "local");
	free(body);
	body = xasprintf("{\"prompt\":\"x\",\"agentId\":\"%s\",\"adapterType\":\"pi_local\"}", id);
	refused(w, body, ERR_UNPROCESSABLE, "uses adapter");
}

static void a_retried_prompt_is_the_same_prompt(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 }, again = { 0 };
	char id[ID_SIZE];

	run_to_end(w,
		   "{\"prompt\":\"once more\",\"adapterType\":\"process\","
		   "\"adapterConfig\":{\"command\":\"sh\","
		   "\"args\":[\"-c\",\"cat; exit 1\"],\"timeoutSec\":-1}}",
		   &run);
	assert_int_equal(run.status, RUN_FAILED);
	assert_ok(run_retry(w->runs, &ACTOR_SYSTEM, run.id, &again, err));
	id_copy(id, again.id);
	await_run(w, id, &again);
	assert_output(w, id, "once more");
	assert_string_equal(json_str(json_object_at(again.context, "request"), "adapterType"),
			    "process");
	assert_true(json_bool(json_object_at(again.context, "request"), "withoutEnd", false));
}

/* A sandbox that waits costs money, whoever waits in it. */
static void a_run_in_a_sandbox_has_a_limit_unless_told_otherwise(void **state)
{
	static const struct {
		const char *context;
		int64_t own, limit;
		const char *config;
	} CASES[] = {
		{ "{\"request\":{\"adapterType\":\"pi_local\"},"
		  "\"paperclipEnvironment\":{\"driver\":\"sandbox\"}}",
		  0, ADAPTER_SANDBOX_TIMEOUT_MS, NULL },
		{ "{\"request\":{\"adapterType\":\"pi_local\"},"
		  "\"paperclipEnvironment\":{\"driver\":\"sandbox\"}}",
		  5, 5, NULL },
		{ "{\"request\":{\"adapterType\":\"pi_local\",\"withoutEnd\":true},"
		  "\"paperclipEnvironment\":{\"driver\":\"sandbox\"}}",
		  0, 0, NULL },
		{ "{\"request\":{\"adapterType\":\"pi_local\"},"
		  "\"paperclipEnvironment\":{\"driver\":\"local\"}}",
		  0, 0, NULL },
		{ "{\"request\":{},\"paperclipEnvironment\":{\"driver\":\"sandbox\"}}", 0,
		  ADAPTER_SANDBOX_TIMEOUT_MS, NULL },
		{ "{\"request\":{},\"paperclipEnvironment\":{\"driver\":\"sandbox\"}}", 0, 0,
		  "{\"limits\":{\"wallSeconds\":0}}" },
		{ "{\"request\":{},\"paperclipEnvironment\":{\"driver\":\"sandbox\"}}", 0, 86400000,
		  "{\"limits\":{\"wallSeconds\":86400}}" },
		{ "{\"request\":{},\"paperclipEnvironment\":{\"driver\":\"sandbox\"}}", 5000, 2000,
		  "{\"limits\":{\"wallSeconds\":2}}" },
		{ "{\"request\":{},\"paperclipEnvironment\":{\"driver\":\"local\"}}", 0, 0, NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(CASES); i++) {
		struct run run = { .timeout_ms = CASES[i].own };
		json_t *config;

		run.context = parsed(CASES[i].context);
		config = CASES[i].config ? parsed(CASES[i].config) : NULL;
		assert_int_equal(run_time_limit(&run, config), CASES[i].limit);
		json_decref(config);
		json_decref(run.context);
	}
}

static void a_prompt_for_a_place_out_of_reach_does_not_run_here(void **state)
{
	struct world *w = *state;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_free_ char *body = NULL;
	char id[ID_SIZE];

	add_environment(w, "far", DRIVER_SSH,
			"{\"host\":\"h\",\"port\":22,\"username\":\"u\","
			"\"remoteWorkspacePath\":\"/w\"}",
			NULL, id);
	body = xasprintf("{\"prompt\":\"x\",\"adapterType\":\"process\",\"environmentId\":\"%s\","
			 "\"adapterConfig\":{\"command\":\"touch\",\"args\":[\"%s/escaped\"]}}",
			 id, w->dir);
	run_to_end(w, body, &run);
	assert_string_equal(run.error_code, "unsupported_environment");
	assert_false(id_is_set(run.lease_id));
	assert_int_equal(faccessat(w->dirfd, "escaped", F_OK, 0), -1);
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, running_world, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_tool_gets_its_prompt_on_standard_input),
		cmocka_unit_test(adapters_are_listed_in_the_order_of_their_types),
		cmocka_unit_test(a_template_says_where_the_prompt_stands),
		cmocka_unit_test(a_prompt_is_not_a_template),
		cmocka_unit_test(bad_settings_are_refused_by_name),
		cmocka_unit_test(keys_of_others_are_left_alone_in_a_stored_config),
		cmocka_unit_test(one_config_is_laid_over_another_with_null_taking_away),
		cmocka_unit_test(time_limits_keep_their_fractions_and_negative_means_none),
		cmocka_unit_test(nothing_is_started_without_a_program_or_for_an_unresolved_secret),
		cmocka_unit_test(ET_1_a_sandbox_target_names_its_provider_place_and_limits),
		cmocka_unit_test(ET_2_no_address_to_call_back_to_comes_from_the_provider),
		cmocka_unit_test(ET_3_only_two_words_name_a_shell),
		cmocka_unit_test(a_directory_that_is_not_absolute_is_no_target),
		cmocka_unit_test(ET_local_any_adapter_has_a_local_target),
		cmocka_unit_test(ET_I7_no_target_is_a_refusal_never_the_host),
		cmocka_unit_test(capabilities_list_every_adapter_in_its_order),
		cmocka_unit_test(a_run_in_a_sandbox_has_a_limit_unless_told_otherwise),
		RUN(a_run_names_a_command_or_a_prompt),
		RUN(a_prompt_runs_with_the_settings_of_its_agent),
		RUN(a_retried_prompt_is_the_same_prompt),
		RUN(a_prompt_for_a_place_out_of_reach_does_not_run_here),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

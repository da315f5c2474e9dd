#include "drivers.h"

#define SECRET "12345678-1234-4234-8234-123456789abc"
#define SECRET_REF "{\"type\":\"secret_ref\",\"secretId\":\"" SECRET "\",\"version\":\"latest\"}"
#define SSH_BASE                                                                                   \
	"\"host\":\"ssh.example.test\",\"username\":\"agent\",\"remoteWorkspacePath\":\"/srv/ws\""

static json_t *normalize(struct fixture *f, enum driver_kind kind, const char *text, bool saving,
			 struct error *err)
{
	_cleanup_json_ json_t *config = J(text);

	return maker_normalize(f->makers, kind, config, saving, err);
}

static void becomes(struct fixture *f, enum driver_kind kind, const char *text, const char *want)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *once = normalize(f, kind, text, false, &err);

	if (!once)
		fail_msg("%s", err.message);
	assert_json(once, want);

	/* What is stored reads as itself. */
	_cleanup_json_ json_t *twice = maker_normalize(f->makers, kind, once, false, &err);

	assert_json(twice, want);
}

static void stays(struct fixture *f, enum driver_kind kind, const char *text)
{
	becomes(f, kind, text, text);
}

static void is_refused(struct fixture *f, enum driver_kind kind, const char *text, const char *why)
{
	_cleanup_error_ struct error err = { 0 };
	json_t *out = normalize(f, kind, text, false, &err);

	if (out)
		fail_msg("accepted: %s", text);
	assert_says(&err, ERR_UNPROCESSABLE, why);
}

static void CF_1_ssh_is_coerced_and_defaulted(void **state)
{
	becomes(*state, DRIVER_SSH,
		"{" SSH_BASE
		",\"port\":\"2222\",\"knownHosts\":\"\",\"privateKeySecretRef\":" SECRET_REF "}",
		"{" SSH_BASE
		",\"port\":2222,\"privateKey\":null,\"privateKeySecretRef\":" SECRET_REF
		",\"knownHosts\":null,\"strictHostKeyChecking\":true}");
	becomes(*state, DRIVER_SSH,
		"{" SSH_BASE
		",\"privateKeySecretRef\":{\"type\":\"secret_ref\",\"secretId\":\"" SECRET "\"}}",
		"{" SSH_BASE ",\"port\":22,\"privateKey\":null,\"privateKeySecretRef\":" SECRET_REF
		",\"knownHosts\":null,\"strictHostKeyChecking\":true}");
}

static void CF_2_a_raw_private_key_is_not_stored(void **state)
{
	_cleanup_error_ struct error err = { 0 };
	json_t *out = normalize(*state, DRIVER_SSH,
				"{" SSH_BASE ",\"privateKey\":\"-----BEGIN canary\"}", true, &err);

	assert_null(out);
	assert_says(&err, ERR_UNPROCESSABLE, "privateKey");
	assert_null(strstr(err.message, "canary"));
	assert_null(strstr(err.details, "canary"));
}

static void a_raw_private_key_may_be_tried(void **state)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *out = normalize(
		*state, DRIVER_SSH, "{" SSH_BASE ",\"privateKey\":\"  key  \"}", false, &err);

	assert_string_equal(json_str(out, "privateKey"), "key");
	assert_null(normalize(*state, DRIVER_SSH, "{" SSH_BASE ",\"privateKey\":7}", false, &err));
	assert_says(&err, ERR_UNPROCESSABLE, "privateKey");
}

static void CF_3_the_remote_workspace_path_is_absolute(void **state)
{
	is_refused(*state, DRIVER_SSH,
		   "{\"host\":\"h\",\"username\":\"u\",\"remoteWorkspacePath\":\"srv/ws\"}",
		   "absolute");
	is_refused(*state, DRIVER_SSH, "{\"host\":\"h\",\"username\":\"u\"}",
		   "remote workspace path");
}

static void CF_4_a_stored_ssh_config_reads_as_itself(void **state)
{
	stays(*state, DRIVER_SSH,
	      "{" SSH_BASE ",\"port\":22,\"privateKey\":null,\"privateKeySecretRef\":" SECRET_REF
	      ",\"knownHosts\":\"ssh.example.test ssh-ed25519 "
	      "AAAA\",\"strictHostKeyChecking\":false}");
}

static void ssh_refuses_what_it_does_not_know(void **state)
{
	static const struct {
		const char *config, *why;
	} cases[] = {
		{ "{}", "host" },
		{ "{\"host\":\"  \",\"username\":\"u\",\"remoteWorkspacePath\":\"/w\"}", "host" },
		{ "{\"host\":\"-oProxyCommand=x\",\"username\":\"u\",\"remoteWorkspacePath\":\"/"
		  "w\"}",
		  "dash" },
		{ "{\"host\":\"a b\",\"username\":\"u\",\"remoteWorkspacePath\":\"/w\"}",
		  "spaces" },
		{ "{" SSH_BASE ",\"port\":0}", "port" },
		{ "{" SSH_BASE ",\"port\":\"\"}", "port" },
		{ "{" SSH_BASE ",\"port\":65536}", "port" },
		{ "{" SSH_BASE ",\"port\":\"22x\"}", "port" },
		{ "{" SSH_BASE ",\"port\":22.5}", "port" },
		{ "{" SSH_BASE ",\"port\":\"1e999\"}", "port" },
		{ "{" SSH_BASE ",\"port\":[22]}", "port" },
		{ "{" SSH_BASE ",\"strictHostKeyChecking\":\"no\"}", "strictHostKeyChecking" },
		{ "{" SSH_BASE ",\"password\":\"x\"}", "password" },
		{ "{" SSH_BASE
		  ",\"privateKeySecretRef\":{\"type\":\"secret_ref\",\"secretId\":\"x\"}}",
		  "secretId" },
		{ "{" SSH_BASE
		  ",\"privateKeySecretRef\":{\"type\":\"secret_ref\",\"secretId\":\"" SECRET
		  "\",\"version\":0}}",
		  "version" },
		{ "{" SSH_BASE
		  ",\"privateKeySecretRef\":{\"type\":\"secret_ref\",\"secretId\":\"" SECRET
		  "\",\"more\":1}}",
		  "more" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		is_refused(*state, DRIVER_SSH, cases[i].config, cases[i].why);
}

static void numbers_are_read_as_javascript_reads_them(void **state)
{
	static const struct {
		const char *in;
		int port;
	} cases[] = {
		{ "\" 2222 \"", 2222 }, { "2222.0", 2222 }, { "\"0x16\"", 22 },
		{ "\"2e3\"", 2000 },    { "true", 1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *text = xasprintf("{" SSH_BASE ",\"port\":%s}", cases[i].in);
		_cleanup_json_ json_t *out = normalize(*state, DRIVER_SSH, text, false, NULL);

		assert_int_equal(json_int(out, "port", -1), cases[i].port);
	}
}

static void CF_5_a_fake_config_is_trimmed_and_defaulted(void **state)
{
	becomes(*state, DRIVER_SANDBOX, "{\"provider\":\"fake\",\"image\":\"  ubuntu:24.04  \"}",
		"{\"provider\":\"fake\",\"image\":\"ubuntu:24.04\",\"reuseLease\":false}");
	becomes(*state, DRIVER_SANDBOX, "{}",
		"{\"provider\":\"fake\",\"image\":\"ubuntu:24.04\",\"reuseLease\":false}");
}

static void CF_6_a_stored_fake_config_reads_as_itself(void **state)
{
	stays(*state, DRIVER_SANDBOX,
	      "{\"provider\":\"fake\",\"image\":\"ubuntu:24.04\",\"reuseLease\":true}");
}

static void CF_7_a_plugin_sandbox_keeps_its_own_keys_untouched(void **state)
{
	becomes(*state, DRIVER_SANDBOX,
		"{\"provider\":\"secure-plugin\",\"template\":\"  base  \",\"apiKey\":\"" SECRET
		"\",\"timeoutMs\":\"450000\"}",
		"{\"provider\":\"secure-plugin\",\"template\":\"  base  \",\"apiKey\":\"" SECRET
		"\",\"timeoutMs\":450000,\"reuseLease\":false}");
}

static void CF_8_a_plugin_sandbox_keeps_flags_it_alone_knows(void **state)
{
	becomes(*state, DRIVER_SANDBOX,
		"{\"provider\":\"fake-plugin\",\"image\":\"  fake:test  "
		"\",\"timeoutMs\":\"120000\","
		"\"reuseLease\":true,\"customFlag\":\"kept\"}",
		"{\"provider\":\"fake-plugin\",\"image\":\"  fake:test  \",\"timeoutMs\":120000,"
		"\"reuseLease\":true,\"customFlag\":\"kept\"}");
}

static void CF_9_a_stored_secure_plugin_config_reads_as_itself(void **state)
{
	stays(*state, DRIVER_SANDBOX,
	      "{\"provider\":\"secure-plugin\",\"template\":\"base\",\"apiKey\":\"" SECRET
	      "\",\"timeoutMs\":450000,\"reuseLease\":false}");
}

static void CF_10_a_stored_fake_plugin_config_reads_as_itself(void **state)
{
	stays(*state, DRIVER_SANDBOX,
	      "{\"provider\":\"fake-plugin\",\"image\":\"fake:test\",\"reuseLease\":true,"
	      "\"nested\":{\"a\":[1,2,{\"b\":null}]}}");
}

static void CF_11_a_plugin_driver_config_reads_as_itself(void **state)
{
	stays(*state, DRIVER_PLUGIN,
	      "{\"pluginKey\":\"acme.environments\",\"driverKey\":\"fake-plugin\","
	      "\"driverConfig\":{\"template\":\"base\"}}");
	becomes(*state, DRIVER_PLUGIN, "{\"pluginKey\":\"a\",\"driverKey\":\"b\"}",
		"{\"pluginKey\":\"a\",\"driverKey\":\"b\",\"driverConfig\":{}}");
}

static void plugin_keys_are_checked(void **state)
{
	is_refused(*state, DRIVER_PLUGIN, "{\"pluginKey\":\"a\",\"driverKey\":\"B b\"}",
		   "driverKey");
	is_refused(*state, DRIVER_PLUGIN, "{\"pluginKey\":\"\",\"driverKey\":\"b\"}", "pluginKey");
	is_refused(*state, DRIVER_PLUGIN, "{\"driverKey\":\"b\"}", "pluginKey");
	is_refused(*state, DRIVER_PLUGIN,
		   "{\"pluginKey\":\"a\",\"driverKey\":\"b\",\"driverConfig\":[]}", "driverConfig");
	is_refused(*state, DRIVER_PLUGIN, "{\"pluginKey\":\"a\",\"driverKey\":\"b\",\"c\":1}", "c");
	is_refused(*state, DRIVER_SANDBOX, "{\"provider\":\"No Such\"}", "provider");
	is_refused(*state, DRIVER_SANDBOX, "{\"provider\":\"p\",\"timeoutMs\":0}", "timeoutMs");
	is_refused(*state, DRIVER_SANDBOX, "{\"provider\":\"p\",\"timeoutMs\":86400001}",
		   "timeoutMs");
}

static void a_local_config_passes_untouched_and_is_a_copy(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ json_t *config = J("{\"shell\":\"  zsh \",\"nested\":{\"a\":1}}");
	_cleanup_json_ json_t *out = maker_normalize(f->makers, DRIVER_LOCAL, config, true, NULL);
	_cleanup_json_ json_t *none = maker_normalize(f->makers, DRIVER_LOCAL, NULL, true, NULL);

	assert_true(json_equal(config, out));
	json_put_int(json_object_at(config, "nested"), "a", 2);
	assert_false(json_equal(config, out));
	assert_json(none, "{}");
	is_refused(f, DRIVER_LOCAL, "[1]", "object");
}

static void an_invalid_config_lists_every_issue(void **state)
{
	_cleanup_error_ struct error err = { 0 };
	json_t *out = normalize(*state, DRIVER_SSH, "{\"port\":0,\"x\":1}", false, &err);

	assert_null(out);

	_cleanup_json_ json_t *details = J(err.details);

	assert_int_equal(json_array_size(json_array_at(details, "issues")), 5);
	assert_says(&err, ERR_UNPROCESSABLE, "host");
}

static void saving_the_fake_provider_is_reserved_for_internal_probes(void **state)
{
	_cleanup_error_ struct error err = { 0 };
	json_t *out = normalize(*state, DRIVER_SANDBOX, "{\"provider\":\"fake\"}", true, &err);

	assert_null(out);
	assert_says(&err, ERR_UNPROCESSABLE, "reserved for internal probes");
	out = normalize(*state, DRIVER_SANDBOX, "{}", false, NULL);
	assert_non_null(out);
	json_decref(out);
}

static void a_server_that_allows_the_fake_provider_saves_it(void **state)
{
	_cleanup_json_ json_t *out =
		normalize(*state, DRIVER_SANDBOX, "{\"provider\":\"fake\"}", true, NULL);

	assert_non_null(out);
}

static void saving_a_provider_that_is_not_installed_names_it(void **state)
{
	_cleanup_error_ struct error err = { 0 };
	json_t *out = normalize(*state, DRIVER_SANDBOX, "{\"provider\":\"e2b\"}", true, &err);

	assert_null(out);
	assert_says(&err, ERR_UNPROCESSABLE, "\"e2b\" is not installed");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		driver_test(CF_1_ssh_is_coerced_and_defaulted),
		driver_test(CF_2_a_raw_private_key_is_not_stored),
		driver_test(a_raw_private_key_may_be_tried),
		driver_test(CF_3_the_remote_workspace_path_is_absolute),
		driver_test(CF_4_a_stored_ssh_config_reads_as_itself),
		driver_test(ssh_refuses_what_it_does_not_know),
		driver_test(numbers_are_read_as_javascript_reads_them),
		driver_test(CF_5_a_fake_config_is_trimmed_and_defaulted),
		driver_test(CF_6_a_stored_fake_config_reads_as_itself),
		driver_test(CF_7_a_plugin_sandbox_keeps_its_own_keys_untouched),
		driver_test(CF_8_a_plugin_sandbox_keeps_flags_it_alone_knows),
		driver_test(CF_9_a_stored_secure_plugin_config_reads_as_itself),
		driver_test(CF_10_a_stored_fake_plugin_config_reads_as_itself),
		driver_test(CF_11_a_plugin_driver_config_reads_as_itself),
		driver_test(plugin_keys_are_checked),
		driver_test(a_local_config_passes_untouched_and_is_a_copy),
		driver_test(an_invalid_config_lists_every_issue),
		cmocka_unit_test_setup_teardown(
			saving_the_fake_provider_is_reserved_for_internal_probes,
			fixture_setup_without_fake, fixture_teardown),
		driver_test(a_server_that_allows_the_fake_provider_saves_it),
		driver_test(saving_a_provider_that_is_not_installed_names_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

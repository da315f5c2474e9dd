#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include <fcntl.h>
#include "base/fd.h"
#include "base/text.h"
#include "cli/settings.h"
#include "cli/cli.h"

struct files {
	char dir[64];
	char *path;
	struct cli cli;
};

static int make(void **state)
{
	struct files *f = xcalloc(1, sizeof(*f));

	snprintf(f->dir, sizeof(f->dir), "/tmp/berth-config-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	f->path = xasprintf("%s/berth.yaml", f->dir);
	f->cli.data_path = f->dir;
	*state = f;
	return 0;
}

static int drop(void **state)
{
	struct files *f = *state;

	unsetenv("BERTH_RETENTION");
	unsetenv("BERTH_ALLOW_FAKE");
	unlink(f->path);
	rmdir(f->dir);
	free(f->path);
	free(f);
	return 0;
}

static void put(struct files *f, const char *text)
{
	int fd = open(f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static const struct verb SERVE = { .name = "serve", .arguments = "", .flags = SERVE_FLAGS };

/* Reads as `berth serve ARGS` would. */
static int read_as(struct files *f, struct settings *settings, struct error *err, int argc,
		   const char *const *argv)
{
	char *words[8];
	struct args args;

	for (int i = 0; i < argc; i++)
		words[i] = (char *)argv[i];
	assert_int_equal(args_parse(&args, &SERVE, argc, words, err), 0);
	return settings_read(settings, &f->cli, &args, err);
}
#define READ(f, settings, err, ...)                                                                \
	read_as(f, settings, err, (int)ARRAY_SIZE(((const char *[]){ __VA_ARGS__ })),              \
		(const char *[]){ __VA_ARGS__ })

static void a_flag_counts_more_than_a_variable_and_a_variable_more_than_the_file(void **state)
{
	struct files *f = *state;
	_cleanup_error_ struct error err = { 0 };

	put(f, "retention: 3d\nallow-fake: true\nallowed-host: [a.example, b.example]\n"
	       "max-runs-per-company: 7\nlog-format: json\n");
	{
		_cleanup_(settings_clear) struct settings s = { 0 };

		assert_int_equal(READ(f, &s, &err, "--drain"), 0);
		assert_int_equal(s.server.retention_ms, 3LL * 86400 * 1000);
		assert_true(s.server.allow_fake && s.server.drain);
		assert_string_equal(s.server.allowed_hosts[1], "b.example");
		assert_null(s.server.allowed_hosts[2]);
		assert_int_equal(s.server.quota.runs, 7);
		assert_string_equal(s.log_format, "json");
		assert_int_equal(s.server.beat_ms, 10000);
	}
	setenv("BERTH_RETENTION", "2d", 1);
	setenv("BERTH_ALLOW_FAKE", "false", 1);
	{
		_cleanup_(settings_clear) struct settings s = { 0 };

		assert_int_equal(READ(f, &s, &err, "--log-format=text"), 0);
		assert_int_equal(s.server.retention_ms, 2LL * 86400 * 1000);
		assert_false(s.server.allow_fake);
		assert_string_equal(s.log_format, "text");
	}
	{
		_cleanup_(settings_clear) struct settings s = { 0 };

		assert_int_equal(
			READ(f, &s, &err, "--retention", "1d", "--allow-fake", "--drain=false"), 0);
		assert_int_equal(s.server.retention_ms, 86400 * 1000);
		assert_true(s.server.allow_fake);
		assert_false(s.server.drain);
	}
}

static void what_is_wrong_is_named_with_its_line(void **state)
{
	static const char *const CASES[][2] = {
		{ "retention: 3d\nretentoin: 3d\n", ":2: there is no setting retentoin" },
		{ "\n\nretention: soon\n", ":3: retention: wants a duration" },
		{ "retention: [1, 2]\n", ":1: retention: wants one plain value" },
		{ "allow-fake: yes\n", ":1: allow-fake: wants true or false, not \"yes\"" },
		{ "log-format: xml\n", ":1: log-format: wants text|json" },
		{ "retention: 3d\nretention: 4d\n", ":2: retention is given twice" },
		{ "retention: 3d\n  listen: x\n", ":2: " },
		{ "listen: &a x\nsocket: *a\n", ":1: anchors" },
		{ "listen: !!str x\n", ":1: tags" },
		{ "--- \nlisten: x\n---\nlisten: y\n", ":3: there is a second document" },
		{ "- a\n", ":1: `key: value` is missing" },
		{ "environments: 3\n", ":1: environments wants a list" },
		{ "environments:\n  - name: a\n    driver: local\n  - name: b\n",
		  ":4: environments: "
		  "Validation "
		  "error: driver" },
		{ "environments:\n  - {name: a, driver: ssh}\n  - {name: a, driver: ssh}\n",
		  ":3: environment a is given twice" },
		{ "environments:\n  - {name: a, driver: ssh, colour: red}\n",
		  ":2: environments: " },
		{ "max-runs-per-company: -1\n", ":1: max-runs-per-company: wants a number" },
		{ "beat-every: 1h\n", "beat-every may be at most" },
	};
	struct files *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(CASES); i++) {
		_cleanup_(settings_clear) struct settings s = { 0 };
		_cleanup_error_ struct error err = { 0 };

		put(f, CASES[i][0]);
		if (READ(f, &s, &err, "--drain") == 0)
			fail_msg("taken: %s", CASES[i][0]);
		if (!strstr(err.message, CASES[i][1]))
			fail_msg("\"%s\" does not say \"%s\"", err.message, CASES[i][1]);
	}
}

static void a_file_that_is_asked_for_must_be_there(void **state)
{
	struct files *f = *state;
	_cleanup_(settings_clear) struct settings s = { 0 }, t = { 0 };
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(READ(f, &s, &err, "--drain"), 0);
	assert_false(s.has_file);
	assert_int_equal(READ(f, &t, &err, "--config", "/nonexistent.yaml"), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void values_keep_their_types(void **state)
{
	struct files *f = *state;
	_cleanup_(settings_clear) struct settings s = { 0 };
	_cleanup_error_ struct error err = { 0 };
	const json_t *config;

	put(f, "# comment\nenvironments:\n  - name: \"12\"\n    driver: sandbox\n    config:\n"
	       "      number: 12\n      quoted: '12'\n      flag: true\n      no: no\n"
	       "      nothing: null\n      list: [a, 2]\n");
	assert_int_equal(READ(f, &s, &err, "--drain"), 0);
	config = json_object_at(json_array_get(s.server.environments, 0), "config");
	assert_int_equal(json_int(config, "number", 0), 12);
	assert_string_equal(json_str(config, "quoted"), "12");
	assert_true(json_bool(config, "flag", false));
	assert_string_equal(json_str(config, "no"), "no");
	assert_int_equal(json_state(config, "nothing"), JSON_IS_NULL);
	assert_int_equal(json_array_size(json_array_at(config, "list")), 2);
}

static void what_is_in_force_is_shown_with_its_source_and_without_passwords(void **state)
{
	struct files *f = *state;
	_cleanup_(settings_clear) struct settings s = { 0 };
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *list = NULL;
	_cleanup_free_ char *text = NULL;

	put(f, "\ndatabase: postgres://berth:hunter2@db/berth\n");
	setenv("BERTH_RETENTION", "2d", 1);
	assert_int_equal(READ(f, &s, &err, "--drain"), 0);
	list = settings_json(&s, NULL);
	text = json_text(list);
	assert_null(strstr(text, "hunter2"));
	assert_non_null(strstr(text, "berth.yaml:2"));
	assert_non_null(strstr(text, "{\"name\":\"retention\",\"value\":\"172800s\","
				     "\"source\":\"BERTH_RETENTION\"}"));
}

#define with_files(test) cmocka_unit_test_setup_teardown(test, make, drop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_files(a_flag_counts_more_than_a_variable_and_a_variable_more_than_the_file),
		with_files(what_is_wrong_is_named_with_its_line),
		with_files(a_file_that_is_asked_for_must_be_there),
		with_files(values_keep_their_types),
		with_files(what_is_in_force_is_shown_with_its_source_and_without_passwords),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

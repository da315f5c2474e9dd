#include "base/text.h"
#include "cli/api.h"
#include "cli/settings.h"
#include "cli/cli.h"

static int check(struct cli *cli, const struct args *args)
{
	_cleanup_(settings_clear) struct settings settings = { 0 };
	_cleanup_json_ json_t *answer = json_object(), *problems = json_array();
	json_t *problem;
	size_t i;

	settings_check(&settings, cli, args, problems);
	json_put_ref(answer, "problems", problems);
	json_put_str(answer, "file", settings.has_file ? settings.file.path : NULL);
	json_put_int(answer, "settings",
		     (int64_t)settings.file.count - (settings.server.environments != NULL));
	json_put_int(answer, "environments",
		     (int64_t)json_array_size(settings.server.environments));
	if (cli->json)
		print_json(answer);
	if (json_array_size(problems)) {
		json_array_foreach (problems, i, problem)
			if (!cli->json)
				fprintf(stderr, "berth: %s\n", json_string_value(problem));
		return 1;
	}
	if (cli->json)
		return 0;
	if (!settings.has_file)
		puts("there is no config file; every setting has its default");
	else
		printf("%s is fine: %lld settings, %lld environments\n", settings.file.path,
		       (long long)json_int(answer, "settings", 0),
		       (long long)json_int(answer, "environments", 0));
	return 0;
}

/* Lists in any order are the same. */
static bool is_same(const json_t *a, const json_t *b)
{
	json_t *item, *other;
	size_t i, k;

	if (!json_is_array(a) || !json_is_array(b))
		return json_equal(a, b);
	if (json_array_size(a) != json_array_size(b))
		return false;
	json_array_foreach (a, i, item) {
		bool there = false;

		json_array_foreach (b, k, other)
			there |= json_equal(item, other);
		if (!there)
			return false;
	}
	return true;
}

/*
 * What callers with a token may have is asked of the server that runs, if one does: it took its
 * settings when it started, and may have flags of its own.
 */
static void compare(struct cli *cli, json_t *settings)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *keeping = NULL;
	_cleanup_api_ struct api *api = NULL;
	json_t *allow, *item;
	size_t i;

	if (api_connect(cli, false, &api, &err) < 0 ||
	    api_call(api, "GET", "/api/keeper", NULL, &keeping, &err) < 0)
		return;
	allow = json_object_at(keeping, "allow");
	json_array_foreach (settings, i, item) {
		json_t *now = json_object_get(allow, json_str(item, "name"));

		if (now && !is_same(now, json_object_get(item, "value")))
			json_put_ref(item, "running", now);
	}
	if (json_array_at(json_object_at(keeping, "keeper"), "startedWith"))
		fputs("berth: a keeper of an earlier release is running with its own list: see "
		      "berth doctor\n",
		      stderr);
}

/* Those that differ are worth a line though nobody has set them here. */
static bool is_worth_showing(const struct args *args, const json_t *item)
{
	return args_has(args, "effective") || !streq(json_str(item, "source"), "default") ||
	       json_object_get(item, "running");
}

static void warn_of_running(const json_t *settings)
{
	json_t *item, *running;
	size_t i;

	json_array_foreach (settings, i, item) {
		_cleanup_free_ char *text = NULL;

		running = json_object_get(item, "running");
		if (!running)
			continue;
		text = json_text(running);
		fprintf(stderr, "berth: the running server has %s %s until its next start\n",
			json_str(item, "name"), text);
	}
}

static int show(struct cli *cli, const struct args *args)
{
	static const char *const COLUMNS[] = { "SETTING=name", "VALUE=value", "FROM=source", NULL };
	_cleanup_error_ struct error err = { 0 };
	_cleanup_(settings_clear) struct settings settings = { 0 };
	_cleanup_json_ json_t *list = NULL, *said = json_array();
	json_t *item;
	size_t i;

	if (settings_read(&settings, cli, args, &err) < 0)
		return cli_fail(cli, &err, 1);
	list = settings_json(&settings, args);
	compare(cli, list);
	json_array_foreach (list, i, item)
		if (is_worth_showing(args, item))
			json_array_append(said, item);
	if (cli->json)
		print_json(said);
	else
		print_table(said, COLUMNS);
	if (!cli->json)
		warn_of_running(said);
	return 0;
}

static const struct flag CHECK_FLAGS[] = {
	{ "config", 0, "FILE", "config file to read; default: the one `berth serve` reads", false },
	{ 0 },
};
static const struct flag SHOW_FLAGS[] = {
	{ "config", 0, "FILE", "config file to read; default: the one `berth serve` reads", false },
	{ "effective", 0, NULL, "include defaults", false },
	{ 0 },
};

VERB(CONFIG_CHECK, 610) = {
	.name = "config check",
	.arguments = "",
	.summary = "check the config file of `berth serve`",
	.help = "Reads the file like `berth serve` and lists every error with its line. Exit code "
		"1: there are errors.",
	.flags = CHECK_FLAGS,
	.run = check,
};
VERB(CONFIG_SHOW, 611) = {
	.name = "config show",
	.arguments = "",
	.summary = "show the settings of `berth serve`, and where each comes from",
	.help = "If a server is running, also reports where its settings for callers with a "
		"token\n(allow-...) differ from these.",
	.flags = SHOW_FLAGS,
	.run = show,
};

#include "base/text.h"
#include "cli/settings.h"
#include "cli/verbs.h"

static int check(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_(settings_clear) struct settings settings = { 0 };
	_cleanup_json_ json_t *answer = json_object();

	if (settings_read(&settings, cli, args, &err) < 0)
		return cli_fail(cli, &err, 1);
	json_put_str(answer, "file", settings.has_file ? settings.file.path : NULL);
	json_put_int(answer, "settings",
		     (int64_t)settings.file.count - (settings.server.environments != NULL));
	json_put_int(answer, "environments",
		     (int64_t)json_array_size(settings.server.environments));
	if (cli->json)
		print_json(answer);
	else if (!settings.has_file)
		puts("there is no config file; everything is as usual");
	else
		printf("%s is fine: %lld settings, %lld environments\n", settings.file.path,
		       (long long)json_int(answer, "settings", 0),
		       (long long)json_int(answer, "environments", 0));
	return 0;
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
	json_array_foreach (list, i, item)
		if (args_has(args, "effective") || !streq(json_str(item, "source"), "default"))
			json_array_append(said, item);
	if (cli->json)
		print_json(said);
	else
		print_table(said, COLUMNS);
	return 0;
}

static const struct flag CHECK_FLAGS[] = {
	{ "config", 0, "FILE", "this one instead of the one `berth serve` would read", false },
	{ 0 },
};
static const struct flag SHOW_FLAGS[] = {
	{ "config", 0, "FILE", "this one instead of the one `berth serve` would read", false },
	{ "effective", 0, NULL, "also what nobody said and is as usual", false },
	{ 0 },
};

const struct verb VERB_CONFIG_CHECK = {
	.name = "config check",
	.arguments = "",
	.summary = "whether `berth serve` would take its config file",
	.help = "Reads the file as `berth serve` would and names the line of what is wrong. Exits "
		"1 "
		"then.",
	.flags = CHECK_FLAGS,
	.run = check,
};
const struct verb VERB_CONFIG_SHOW = {
	.name = "config show",
	.arguments = "",
	.summary = "settings of `berth serve`, and where each was said",
	.flags = SHOW_FLAGS,
	.run = show,
};

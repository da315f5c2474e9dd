/*
 * Parsing a command line against the verb's table of flags.
 */
#include "cli/cli.h"

#include <string.h>

#include "base/text.h"

const struct flag GLOBAL_FLAGS[] = {
	{ "data", 0, "DIR", "data directory (or BERTH_DATA)", false },
	{ "url", 0, "URL", "talk to this server (or BERTH_URL)", false },
	{ "company", 0, "NAME", "company to work in (or BERTH_COMPANY); default: \"default\"",
	  false },
	{ "token-file", 0, "FILE", "file with the token to use (or BERTH_TOKEN: the token)",
	  false },
	{ "ca-file", 0, "FILE", "certificates to trust for https (or BERTH_CA_FILE)", false },
	{ "insecure-http", 0, NULL, "send the token over http:// even to another machine", false },
	{ "json", 0, NULL, "machine-readable output", false },
	{ "quiet", 'q', NULL, "no progress and no timeline on stderr", false },
	{ "help", 'h', NULL, "show this help", false },
	{ 0 },
};

static const struct flag *find_flag(const struct flag *table, const char *name, size_t len,
				    char letter)
{
	for (; table && table->name; table++) {
		if (letter ? table->letter == letter
			   : strlen(table->name) == len && strncmp(table->name, name, len) == 0)
			return table;
	}
	return NULL;
}

static const struct flag *lookup(const struct verb *verb, const char *name, size_t len, char letter)
{
	const struct flag *flag = find_flag(verb->flags, name, len, letter);

	return flag ? flag : find_flag(GLOBAL_FLAGS, name, len, letter);
}

static int note_flag(struct args *args, const struct flag *flag, const char *value,
		     struct error *err)
{
	if (args->flags == ARGS_MAX_FLAGS)
		return error_set(err, ERR_BAD_REQUEST, "too many flags");
	if (!flag->many && args_has(args, flag->name))
		return error_set(err, ERR_BAD_REQUEST, "--%s was given twice", flag->name);
	args->flag[args->flags] = flag;
	args->value[args->flags++] = value;
	return 0;
}

static int unknown_flag(const struct verb *verb, const char *word, struct error *err)
{
	const struct flag *former = find_flag(verb->former, word + 2, strcspn(word + 2, "="), 0);

	if (former)
		return error_set(err, ERR_BAD_REQUEST, "--%s %s", former->name, former->summary);
	return error_set(err, ERR_BAD_REQUEST, "unknown flag %s", word);
}

static int take_long(struct args *args, char **argv, int left, struct error *err)
{
	const char *name = argv[0] + 2, *equals = strchr(name, '='), *value = NULL;
	const struct flag *flag =
		lookup(args->verb, name, equals ? (size_t)(equals - name) : strlen(name), 0);
	int used = 1;

	if (!flag)
		return unknown_flag(args->verb, argv[0], err);
	/* A switch that a file or a variable has set can be set back. */
	if (!flag->value && equals && !streq(equals, "=true") && !streq(equals, "=false"))
		return error_set(err, ERR_BAD_REQUEST, "--%s takes no value", flag->name);
	if (equals)
		value = equals + 1;
	else if (flag->value && left > 1)
		value = argv[1], used = 2;
	else if (flag->value)
		return error_set(err, ERR_BAD_REQUEST, "--%s needs a value (%s)", flag->name,
				 flag->value);
	return note_flag(args, flag, value, err) < 0 ? -1 : used;
}

/* -i, -e K=V, -eK=V, and switches together: -it. */
static int take_short(struct args *args, char **argv, int left, struct error *err)
{
	for (const char *letter = argv[0] + 1; *letter; letter++) {
		const struct flag *flag = lookup(args->verb, "", 0, *letter);

		if (!flag)
			return error_set(err, ERR_BAD_REQUEST, "unknown flag %s", argv[0]);
		if (!flag->value) {
			if (note_flag(args, flag, NULL, err) < 0)
				return -1;
			continue;
		}
		if (letter[1])
			return note_flag(args, flag, letter + 1, err) < 0 ? -1 : 1;
		if (left <= 1)
			return error_set(err, ERR_BAD_REQUEST, "--%s needs a value (%s)",
					 flag->name, flag->value);
		return note_flag(args, flag, argv[1], err) < 0 ? -1 : 2;
	}
	return 1;
}

/* One word beginning with a dash. Returns how many words it took, or -1. */
static int take_flag(struct args *args, char **argv, int left, struct error *err)
{
	return argv[0][1] == '-' ? take_long(args, argv, left, err)
				 : take_short(args, argv, left, err);
}

static bool has_instead(const struct args *args)
{
	for (const char *const *flag = args->verb->instead; flag && *flag; flag++) {
		if (args_has(args, *flag))
			return true;
	}
	return false;
}

int args_parse(struct args *args, const struct verb *verb, int argc, char **argv, struct error *err)
{
	int out = 0;

	*args = (struct args){ .verb = verb, .positional = argv };
	for (int i = 0; i < argc; i++) {
		int used;

		if (streq(argv[i], "--")) {
			if (!verb->takes_command)
				return error_set(err, ERR_BAD_REQUEST, "berth %s takes no command",
						 verb->name);
			args->command = argv + i + 1;
			break;
		}
		if (argv[i][0] != '-' || !argv[i][1]) {
			/* `berth run ls -l` as people type it: the first word begins the command.
			 */
			if (verb->takes_command && (size_t)out == verb->max_args) {
				args->command = argv + i;
				break;
			}
			argv[out++] = argv[i];
			continue;
		}
		used = take_flag(args, argv + i, argc - i, err);
		if (used < 0)
			return -1;
		i += used - 1;
	}
	args->positionals = (size_t)out;
	if (args_has(args, "help"))
		return 0;
	if (args->positionals < verb->min_args)
		return error_set(err, ERR_BAD_REQUEST, "berth %s needs %s", verb->name,
				 verb->arguments);
	if (args->positionals > verb->max_args)
		return error_set(err, ERR_BAD_REQUEST, "berth %s does not take \"%s\"", verb->name,
				 argv[verb->max_args]);
	if (verb->takes_command && (!args->command || !args->command[0]) && !has_instead(args))
		return error_set(err, ERR_BAD_REQUEST, "berth %s needs a command: %s", verb->name,
				 verb->arguments);
	return 0;
}

const char *args_nth(const struct args *args, const char *flag, size_t n)
{
	for (size_t i = 0; i < args->flags; i++) {
		if (streq(args->flag[i]->name, flag) && n-- == 0)
			return args->value[i] ? args->value[i] : "";
	}
	return NULL;
}

const char *args_value(const struct args *args, const char *flag)
{
	return args_nth(args, flag, 0);
}

bool args_has(const struct args *args, const char *flag)
{
	const char *value = args_nth(args, flag, 0);

	if (value && streq(value, "false"))
		for (size_t i = 0; i < args->flags; i++)
			if (streq(args->flag[i]->name, flag))
				return args->flag[i]->value != NULL;
	return value != NULL;
}

bool args_int(const struct args *args, const char *flag, int64_t min, int64_t max, int64_t *out)
{
	const char *text = args_value(args, flag);

	if (!text || parse_i64(text, min, max, out))
		return true;
	fprintf(stderr, "berth: --%s wants a number from %lld to %lld, not \"%s\"\n", flag,
		(long long)min, (long long)max, text);
	return false;
}

bool args_duration_ms(const struct args *args, const char *flag, int64_t *out)
{
	const char *text = args_value(args, flag);

	if (!text || (parse_duration_ms(text, out) && *out > 0))
		return true;
	fprintf(stderr, "berth: --%s wants a duration like 90s, 10m or 2h, not \"%s\"\n", flag,
		text);
	return false;
}

/*
 * From argv to a verb: finding it, its flags, the data directory, the help.
 */
#include "cli/cli.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/path.h"
#include "base/text.h"

/* Where the section of VERB begins and ends. */
extern const struct verb_entry *const __start_berth_verbs[], *const __stop_berth_verbs[];

static int by_order(const void *a, const void *b)
{
	const struct verb_entry *x = *(const struct verb_entry *const *)a;
	const struct verb_entry *y = *(const struct verb_entry *const *)b;

	if (x->order != y->order)
		return x->order < y->order ? -1 : 1;
	return strcmp(x->verb->name, y->verb->name);
}

const struct verb **verbs_in_order(void)
{
	size_t count = (size_t)(__stop_berth_verbs - __start_berth_verbs);
	const struct verb **verbs = xcalloc(count + 1, sizeof(*verbs));
	_cleanup_free_ const struct verb_entry **entries = xcalloc(count + 1, sizeof(*entries));

	memcpy(entries, __start_berth_verbs, count * sizeof(*entries));
	qsort(entries, count, sizeof(*entries), by_order);
	for (size_t i = 0; i < count; i++)
		verbs[i] = entries[i]->verb;
	return verbs;
}

/* The verb whose one or two words begin argv; *words says how many. */
static const struct verb *find_verb(int argc, char **argv, int *words)
{
	_cleanup_free_ const struct verb **verbs = verbs_in_order();

	for (const struct verb **at = verbs; *at; at++) {
		const char *space = strchr((*at)->name, ' ');
		size_t first = space ? (size_t)(space - (*at)->name) : strlen((*at)->name);

		if (argc < 1 || strlen(argv[0]) != first ||
		    strncmp((*at)->name, argv[0], first) != 0)
			continue;
		if (!space) {
			*words = 1;
			return *at;
		}
		if (argc >= 2 && streq(argv[1], space + 1)) {
			*words = 2;
			return *at;
		}
	}
	return NULL;
}

static bool is_in_group(const struct verb *verb, const char *word)
{
	size_t len = strlen(word);

	return strncmp(verb->name, word, len) == 0 && verb->name[len] == ' ';
}

static bool is_group(const char *word)
{
	_cleanup_free_ const struct verb **verbs = verbs_in_order();

	for (const struct verb **at = verbs; *at; at++) {
		if (is_in_group(*at, word))
			return true;
	}
	return false;
}

static char *default_data_path(void)
{
	const char *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");

	if (geteuid() == 0)
		return xstrdup("/var/lib/berth");
	if (xdg && xdg[0] == '/')
		return path_join(xdg, "berth");
	return xasprintf("%s/.local/share/berth", home && home[0] == '/' ? home : "");
}

static char *absolute(const char *path)
{
	_cleanup_free_ char *here = path[0] == '/' ? NULL : getcwd(NULL, 0);

	return here ? path_join(here, path) : xstrdup(path);
}

static const char *flag_or_env(const struct args *args, const char *flag, const char *variable)
{
	const char *value = args_value(args, flag);

	if (!value)
		value = getenv(variable);
	return value && value[0] ? value : NULL;
}

static void cli_init(struct cli *cli, const struct args *args)
{
	const char *data = flag_or_env(args, "data", "BERTH_DATA");

	*cli = (struct cli){ 0 };
	cli->data_path = data ? absolute(data) : default_data_path();
	cli->url = flag_or_env(args, "url", "BERTH_URL");
	cli->company = flag_or_env(args, "company", "BERTH_COMPANY");
	cli->token_file = flag_or_env(args, "token-file", "BERTH_TOKEN_FILE");
	cli->ca_file = flag_or_env(args, "ca-file", "BERTH_CA_FILE");
	cli->insecure_http = args_has(args, "insecure-http") &&
			     !str_equal(args_value(args, "insecure-http"), "false");
	cli->json = args_has(args, "json");
	cli->quiet = args_has(args, "quiet");
	cli->program = xstrdup("/proc/self/exe");
}

bool flag_is_own(const struct verb *verb, const struct flag *flag)
{
	const struct flag *own = verb ? verb->flags : NULL;

	for (; own && own->name; own++)
		if (own != flag && streq(own->name, flag->name))
			return true;
	return false;
}

static void print_flags(FILE *to, const struct verb *verb, const struct flag *flags)
{
	for (; flags && flags->name; flags++) {
		if (flag_is_own(verb, flags))
			continue;

		const char *usual = verb->usual ? verb->usual(flags->name) : NULL;
		_cleanup_free_ char *left = xasprintf(
			"%s%c%s--%s%s%s", flags->letter ? "-" : "   ",
			flags->letter ? flags->letter : ' ', flags->letter ? ", " : "", flags->name,
			flags->value ? " " : "", flags->value ? flags->value : "");

		fprintf(to, "  %-28s %s%s%s%s%s\n", left, flags->summary, usual ? " (" : "",
			usual ? usual : "", usual ? ")" : "", flags->many ? " (may repeat)" : "");
	}
}

void print_usage(FILE *to, const struct verb *verb)
{
	fprintf(to, "usage: berth %s [flags] %s\n\n%s\n", verb->name, verb->arguments,
		verb->summary);
	if (verb->help)
		fprintf(to, "\n%s\n", verb->help);
	fputs("\nflags:\n", to);
	print_flags(to, verb, verb->flags);
	print_flags(to, verb, GLOBAL_FLAGS);
}

static void print_summary(FILE *to, const struct verb *verb)
{
	_cleanup_free_ char *left = xasprintf("%s %s", verb->name, verb->arguments);

	if (strlen(left) > 34)
		fprintf(to, "  %s\n  %-34s %s\n", left, "", verb->summary);
	else
		fprintf(to, "  %-34s %s\n", left, verb->summary);
}

void print_help(FILE *to)
{
	_cleanup_free_ const struct verb **verbs = verbs_in_order();

	fputs("berth: leased places to execute for AI agents\n\n"
	      "usage: berth VERB [flags] [arguments]\n\n",
	      to);
	for (const struct verb **at = verbs; *at; at++)
		print_summary(to, *at);
	fputs("\n`berth VERB --help` shows the flags of a verb. Try: berth run -- echo hello\n",
	      to);
}

int cli_fail(const struct cli *cli, const struct error *err, int exit_code)
{
	if (cli && cli->json) {
		_cleanup_json_ json_t *o = json_object();

		json_put_str(o, "error", err->message);
		json_put_str(o, "code", error_code_name(err->code));
		if (err->details)
			json_put_new(o, "details",
				     json_parse(err->details, strlen(err->details), NULL));
		print_json(o);
	}
	fputs("berth: ", stderr);
	print_cell(stderr, err->message);
	fputc('\n', stderr);
	return exit_code;
}

static int refuse(const struct verb *verb, const struct error *err)
{
	fprintf(stderr, "berth: %s\n", err->message);
	fprintf(stderr, "`berth %s --help` shows its arguments and flags\n", verb->name);
	return verb->usage_exit ? verb->usage_exit : EXIT_USAGE;
}

/* `berth env`, `berth env --help`, `berth env nonsense`: the verbs that begin so. */
static int tell_group(int argc, char **argv)
{
	bool asked = argc > 1 && (streq(argv[1], "--help") || streq(argv[1], "-h"));
	FILE *to = asked ? stdout : stderr;
	_cleanup_free_ const struct verb **verbs = verbs_in_order();

	if (!asked)
		fprintf(to, "berth: \"%s\" needs one of its verbs%s%s\n", argv[0],
			argc > 1 ? ", not " : "", argc > 1 ? argv[1] : "");
	for (const struct verb **at = verbs; *at; at++) {
		if (is_in_group(*at, argv[0]))
			print_summary(to, *at);
	}
	fprintf(to, "`berth %s VERB --help` shows the flags of one\n", argv[0]);
	return asked ? 0 : EXIT_USAGE;
}

static int unknown_verb(int argc, char **argv)
{
	if (is_group(argv[0]))
		return tell_group(argc, argv);
	fprintf(stderr, "berth: there is no verb \"%s\"\n`berth --help` lists them\n", argv[0]);
	return EXIT_USAGE;
}

int cli_main(int argc, char **argv)
{
	_cleanup_error_ struct error err = { 0 };
	const struct verb *verb;
	struct args args;
	struct cli cli;
	int words, code;

	/* A reader that went away is an error of write(), not a death. */
	signal(SIGPIPE, SIG_IGN);
	if (fault_init(getenv("BERTH_FAULT"), &err) < 0 ||
	    fault_trace(getenv("BERTH_FAULT_TRACE"), &err) < 0)
		return cli_fail(NULL, &err, EXIT_BERTH);
	if (argc < 2 || streq(argv[1], "--help") || streq(argv[1], "-h") ||
	    streq(argv[1], "help")) {
		print_help(argc < 2 ? stderr : stdout);
		return argc < 2 ? EXIT_USAGE : 0;
	}
	verb = find_verb(argc - 1, argv + 1, &words);
	if (!verb && streq(argv[1], "--version"))
		verb = find_verb(1, (char *[]){ (char *)"version", NULL }, &words);
	if (!verb)
		return unknown_verb(argc - 1, argv + 1);
	if (args_parse(&args, verb, argc - 1 - words, argv + 1 + words, &err) < 0)
		return refuse(verb, &err);
	if (args_has(&args, "help")) {
		print_usage(stdout, verb);
		return 0;
	}
	cli_init(&cli, &args);
	code = verb->run(&cli, &args);
	free(cli.data_path);
	free(cli.program);
	if (fflush(stdout) != 0 && code == 0)
		code = 1;
	return code;
}

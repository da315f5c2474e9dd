/*
 * What runs brought home: looked at (diff), put where it belongs (collect), dropped.
 */
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/run_files.h"
#include "cli/cli.h"

static const char *const COLUMNS[] = { "CHANGE=kind",   "FATE=fate",     "PATH=path",
				       "BESIDE=beside", "REASON=reason", NULL };

static void print_changes(const json_t *report)
{
	const json_t *changes = json_object_get(report, "changes");

	if (json_array_size(changes) == 0) {
		puts("nothing changed");
		return;
	}
	print_table(changes, COLUMNS);
	if (json_is_true(json_object_get(report, "truncated")))
		fprintf(stderr, "berth: there are more changes than these\n");
}

/* ---- collect ---- */

static int collect_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *report = NULL;
	_cleanup_api_ struct api *api = NULL;
	_cleanup_free_ char *counts = NULL;

	json_put_bool(body, "dryRun", args_has(args, "dry-run"));
	if (api_connect(cli, true, &api, &err) < 0 ||
	    api_callf(api, "POST", body, &report, &err, "/api/runs/%s/collect",
		      args->positional[0]) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json) {
		print_json(report);
		return 0;
	}
	if (args_has(args, "dry-run") || !cli->quiet)
		print_changes(report);
	counts = run_files_counts(json_object_at(report, "counts"));
	if (counts[0] && !cli->quiet)
		fprintf(stderr, "berth: %s%s\n", args_has(args, "dry-run") ? "would be " : "",
			counts);
	return 0;
}

/* ---- diff ---- */

struct painter {
	bool colour;
	struct buf line;
	bool in_body; /* below a @@: what begins with - or + is a line, not a name */
	bool reader_gone;
};

static const char *colour_of(const struct painter *p)
{
	const char *line = buf_str(&p->line);

	if (str_starts(line, "diff ") ||
	    (!p->in_body && (str_starts(line, "--- ") || str_starts(line, "+++ "))))
		return "\033[1m";
	if (str_starts(line, "@@"))
		return "\033[36m";
	if (!p->in_body)
		return NULL;
	return line[0] == '+' ? "\033[32m" : line[0] == '-' ? "\033[31m" : NULL;
}

/* A terminal must not obey what is in a file of somebody else's. */
static void put_safely(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			printf("\\x%02x", c);
		else
			putchar(c);
	}
}

static void paint_line(struct painter *p)
{
	const char *colour, *line = buf_str(&p->line);

	if (str_starts(line, "diff "))
		p->in_body = false;
	colour = colour_of(p);
	if (str_starts(line, "@@"))
		p->in_body = true;
	if (colour)
		fputs(colour, stdout);
	put_safely(line, p->line.len);
	if (colour)
		fputs("\033[0m", stdout);
	putchar('\n');
	buf_reset(&p->line);
}

static bool paint(void *arg, const char *data, size_t len)
{
	struct painter *p = arg;

	if (!p->colour)
		return fd_write_all(STDOUT_FILENO, data, len, NULL) == 0;
	for (size_t i = 0; i < len; i++) {
		if (data[i] == '\n')
			paint_line(p);
		else if (p->line.len < 65536)
			buf_putc(&p->line, data[i]);
	}
	return !ferror(stdout);
}

static int print_stat(struct cli *cli, struct api *api, const char *run_id)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *report = NULL;

	if (api_callf(api, "GET", NULL, &report, &err, "/api/runs/%s/changes?limit=10000", run_id) <
	    0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(report);
	else
		print_changes(report);
	return 0;
}

static int diff_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_api_ struct api *api = NULL;
	_cleanup_free_ char *id = NULL, *path = NULL;
	struct painter painter = { .colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR") };
	struct api_stream stream = { .method = "GET",
				     .accept = "text/x-diff",
				     .on_data = paint,
				     .wake_fd = -1,
				     .arg = &painter };
	int outcome;

	if (api_connect(cli, true, &api, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (args_has(args, "stat") || cli->json)
		return print_stat(cli, api, args->positional[0]);
	id = api_escape(api, args->positional[0]);
	path = xasprintf("/api/runs/%s/diff", id);
	stream.path = path;
	outcome = api_stream(api, &stream, &err);
	if (painter.line.len)
		paint_line(&painter);
	buf_free(&painter.line);
	return outcome < 0 ? cli_fail(cli, &err, 1) : 0;
}

/* ---- drop ---- */

static int drop_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *answer = NULL;
	_cleanup_api_ struct api *api = NULL;

	if (api_connect(cli, true, &api, &err) < 0 ||
	    api_callf(api, "DELETE", NULL, &answer, &err, "/api/runs/%s/workspace",
		      args->positional[0]) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(answer);
	return 0;
}

static const struct flag COLLECT_FLAGS[] = {
	{ "dry-run", 0, NULL, "show what would be done, and do nothing", false },
	{ 0 },
};
static const struct flag DIFF_FLAGS[] = {
	{ "stat", 0, NULL, "list files and what happened to each", false },
	{ 0 },
};

VERB(COLLECT, 190) = {
	.name = "collect",
	.arguments = "RUN",
	.summary = "merge the changes of a run into its workspace",
	.help = "The server keeps the changes until then. A file that was also changed here stays "
		"as it\nis; the run's version is put beside it.",
	.flags = COLLECT_FLAGS,
	.min_args = 1,
	.max_args = 1,
	.run = collect_verb,
};
VERB(DIFF, 180) = { .name = "diff",
		    .arguments = "RUN",
		    .summary = "show the changes of a run as a unified diff",
		    .flags = DIFF_FLAGS,
		    .min_args = 1,
		    .max_args = 1,
		    .run = diff_verb };
VERB(DROP, 200) = {
	.name = "drop",
	.arguments = "RUN",
	.summary = "delete the changes of a run that were not collected",
	.help = "Also deletes the files that collecting displaced. The workspace itself is not "
		"touched.",
	.min_args = 1,
	.max_args = 1,
	.run = drop_verb,
};

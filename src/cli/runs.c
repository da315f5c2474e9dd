#include "base/text.h"
#include "cli/follow.h"
#include "cli/cli.h"

static const char *const COLUMNS[] = { "ID=id",           "STATUS=status",
				       "EXIT=exitCode",   "CREATED=createdAt",
				       "COMMAND=command", NULL };

/* The records a list is narrowed to: agents and environments may be named. */
static int put_owners(struct api *api, const char *company_id, const struct args *args,
		      struct buf *path, struct error *err)
{
	_cleanup_json_ json_t *agent = NULL, *environment = NULL;

	if (args_has(args, "agent")) {
		if (api_agent(api, company_id, args_value(args, "agent"), &agent, err) < 0)
			return -1;
		buf_printf(path, "&agentId=%s", json_str(agent, "id"));
	}
	if (args_has(args, "env")) {
		if (api_environment(api, company_id, args_value(args, "env"), &environment, err) <
		    0)
			return -1;
		buf_printf(path, "&environmentId=%s", json_str(environment, "id"));
	}
	if (args_has(args, "issue"))
		buf_printf(path, "&issueId=%s", args_value(args, "issue"));
	if (args_has(args, "project"))
		buf_printf(path, "&projectId=%s", args_value(args, "project"));
	return 0;
}

static int runs_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *page = NULL;
	_cleanup_api_ struct api *api = NULL;
	_cleanup_buf_ struct buf path = { 0 };
	char company_id[ID_SIZE];
	int64_t limit = 20;

	if (!args_int(args, "limit", 1, 200, &limit))
		return EXIT_USAGE;
	if (api_connect(cli, true, &api, &err) < 0 || api_company(cli, api, company_id, &err) < 0)
		return cli_fail(cli, &err, 1);
	buf_printf(&path, "/api/companies/%s/runs?limit=%lld", company_id, (long long)limit);
	if (args_has(args, "status"))
		buf_printf(&path, "&status=%s", args_value(args, "status"));
	if (args_has(args, "cursor"))
		buf_printf(&path, "&cursor=%s", args_value(args, "cursor"));
	if (put_owners(api, company_id, args, &path, &err) < 0 ||
	    api_call(api, "GET", buf_str(&path), NULL, &page, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json) {
		print_json(page);
		return 0;
	}
	print_table(json_object_get(page, "items"), COLUMNS);
	if (json_str(page, "nextCursor") && !cli->quiet)
		fprintf(stderr, "berth: more with --cursor %s\n", json_str(page, "nextCursor"));
	return 0;
}

static int logs_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	struct follow f = { .cli = cli,
			    .run_id = args->positional[0],
			    .follow = args_has(args, "follow"),
			    .events = cli->json };
	int code = 0;

	if (!args_int(args, "since", 0, INT64_MAX, &f.since))
		return EXIT_USAGE;
	if (api_connect(cli, true, &f.api, &err) < 0 || follow_run(&f, &err) < 0)
		code = cli_fail(cli, &err, 1);
	json_decref(f.run);
	api_close(f.api);
	return code;
}

/* POST without a body to a run, and the run that comes back. */
static int post(struct cli *cli, const char *id, const char *format, struct error *err,
		json_t **run)
{
	_cleanup_json_ json_t *body = json_object();
	_cleanup_api_ struct api *api = NULL;
	_cleanup_free_ char *path = xasprintf("/api/runs/%s/%s", id, format);

	if (api_connect(cli, false, &api, err) < 0)
		return -1;
	return api_call(api, "POST", path, body, run, err);
}

static int cancel_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *run = NULL;

	if (post(cli, args->positional[0], "cancel", &err, &run) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(run);
	else if (!cli->quiet)
		fprintf(stderr, "berth: run %s is %s\n", args->positional[0],
			json_str(run, "finishedAt") ? json_str(run, "status") : "being cancelled");
	return 0;
}

static int retry_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *run = NULL;

	if (post(cli, args->positional[0], "retry", &err, &run) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(run);
	else
		puts(json_str(run, "id"));
	return 0;
}

static const struct flag RUNS_FLAGS[] = {
	{ "status", 0, "NAME", "queued, running, succeeded, failed, cancelled, timed_out", false },
	{ "agent", 0, "AGENT", "only runs of this agent", false },
	{ "env", 0, "ENVIRONMENT", "only runs in this environment", false },
	{ "issue", 0, "ID", "only runs of this issue", false },
	{ "project", 0, "ID", "only runs of this project", false },
	{ "limit", 0, "N", "at most this many (20)", false },
	{ "cursor", 0, "CURSOR", "continue an earlier list", false },
	{ 0 },
};
static const struct flag LOGS_FLAGS[] = {
	{ "follow", 'f', NULL, "follow until the run has ended", false },
	{ "since", 0, "BYTES", "start at this offset", false },
	{ 0 },
};

VERB(RUNS, 140) = { .name = "runs",
		    .arguments = "",
		    .flags = RUNS_FLAGS,
		    .summary = "list runs, newest first",
		    .run = runs_verb };
VERB(LOGS, 150) = { .name = "logs",
		    .arguments = "RUN",
		    .flags = LOGS_FLAGS,
		    .min_args = 1,
		    .max_args = 1,
		    .summary = "show the output of a run",
		    .run = logs_verb };
VERB(CANCEL, 160) = { .name = "cancel",
		      .arguments = "RUN",
		      .min_args = 1,
		      .max_args = 1,
		      .summary = "end a run and its whole process tree",
		      .run = cancel_verb };
VERB(RETRY, 170) = { .name = "retry",
		     .arguments = "RUN",
		     .min_args = 1,
		     .max_args = 1,
		     .summary = "repeat a run as a new one; prints its id",
		     .run = retry_verb };

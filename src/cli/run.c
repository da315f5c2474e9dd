#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/attach.h"
#include "cli/follow.h"
#include "cli/run_files.h"
#include "cli/api.h"
#include "cli/terminal.h"
#include "cli/cli.h"

#define STDIN_MAX (1u << 20)

static const struct flag FLAGS[] = {
	{ "env", 0, "NAME",
	  "environment to run in; default: the agent's, else Sandbox. Local is this host", false },
	{ "agent", 0, "NAME", "run as this agent", false },
	{ "prompt", 0, "TEXT", "task for the agent's tool, instead of a command", false },
	{ "prompt-file", 0, "FILE", "the same from a file; - is standard input", false },
	{ "adapter", 0, "TYPE", "tool that gets the prompt; default: the agent's", false },
	{ "adapter-config", 0, "JSON|@FILE", "settings of the tool; they override the agent's",
	  false },
	{ "policy", 0, "NAME",
	  "what happens to the place: ephemeral, reuse_by_environment, "
	  "reuse_by_execution_workspace, or retain_on_failure, which keeps it after a failed run "
	  "(look into it with berth exec)",
	  false },
	{ "retain", 0, "TIME", "with retain_on_failure: how long it is kept (24h)", false },
	{ "timeout", 0, "TIME", "end the whole process tree after this long (10m)", false },
	{ "workspace", 0, "DIR",
	  "directory to bring into the place and merge back; default in a sandbox: the current one",
	  false },
	{ "no-workspace", 0, NULL, "bring no files", false },
	{ "mode", 0, "MODE",
	  "how files get into the place: auto, copy, overlay, in_place, worktree, none", false },
	{ "collect", 0, "HOW",
	  "auto: merge changes; careful: put files that run by themselves beside their names "
	  "(default with --agent); manual: keep changes until `berth collect`",
	  false },
	{ "no-collect", 0, NULL, "the same as --collect manual", false },
	{ "show", 0, "PATH", "show the command this hidden file", true },
	{ "dry-run", 0, NULL,
	  "list the files that would be brought and those that are hidden; run nothing", false },
	{ "allow-large", 0, NULL, "bring even a whole home directory, or very many files", false },
	{ "yes", 'y', NULL, "the same: do not ask", false },
	{ "cwd", 0, "DIR", "working directory; default: the current one, if it exists in the place",
	  false },
	{ "set", 'e', "K[=V]",
	  "environment variable; without =V: its value here. Stored unencrypted until the run has "
	  "ended, or a day longer if it failed",
	  true },
	{ "stdin", 'i', NULL,
	  "stream this program's standard input; with -d read it first (at most 1 MiB)", false },
	{ "tty", 't', NULL, "give the command a terminal: this one; ctrl-p ctrl-q leaves it",
	  false },
	{ "detach", 'd', NULL, "print the run's id and return", false },
	{ 0 },
};

/* NAME=value, or NAME alone for the value it has here, which then stands in no argument list. */
static int put_variable(json_t *env, const char *given, struct error *err)
{
	size_t len = strcspn(given, "=");
	_cleanup_free_ char *name = xstrndup(given, len);
	const char *value = given[len] ? given + len + 1 : getenv(name);

	if (!len)
		return error_set(err, ERR_BAD_REQUEST, "-e wants NAME=value or NAME");
	if (!value)
		return error_set(err, ERR_BAD_REQUEST, "-e %s: there is no such variable here",
				 name);
	json_put_str(env, name, value);
	return 0;
}

int put_variables(const struct args *args, json_t *body, struct error *err)
{
	json_t *env = json_object();
	const char *given;

	json_put_new(body, "env", env);
	for (size_t i = 0; (given = args_nth(args, "set", i)); i++) {
		if (put_variable(env, given, err) < 0)
			return -1;
	}
	return 0;
}

static int put_stdin(json_t *body, struct error *err)
{
	_cleanup_buf_ struct buf raw = { 0 }, encoded = { 0 };

	if (fd_read_all(STDIN_FILENO, &raw, STDIN_MAX, err) < 0)
		return error_wrap(err, "standard input");
	base64_encode(&encoded, buf_str(&raw), raw.len);
	json_put_str(body, "stdin", buf_str(&encoded));
	json_put_str(body, "stdinEncoding", "base64");
	return 0;
}

void put_terminal(json_t *body)
{
	const char *term = getenv("TERM");
	json_t *tty = json_object();
	uint16_t rows, cols;

	terminal_size(&rows, &cols);
	json_put_int(tty, "rows", rows);
	json_put_int(tty, "cols", cols);
	if (term && term[0] && strlen(term) <= 64)
		json_put_str(tty, "term", term);
	json_put_new(body, "tty", tty);
}

/* A file is read here, so that what it says stands in no argument list. */
static int read_prompt(const struct args *args, json_t *body, struct error *err)
{
	const char *file = args_value(args, "prompt-file");
	_cleanup_buf_ struct buf text = { 0 };
	int r;

	if (!file) {
		json_put_str(body, "prompt", args_value(args, "prompt"));
		return 0;
	}
	if (args_has(args, "prompt"))
		return error_set(err, ERR_BAD_REQUEST, "--prompt or --prompt-file, not both");
	r = streq(file, "-") ? fd_read_all(STDIN_FILENO, &text, STDIN_MAX, err)
			     : file_read(AT_FDCWD, file, &text, STDIN_MAX, err);
	if (r < 0)
		return error_wrap(err, "--prompt-file");
	if (!utf8_valid(buf_str(&text), text.len) || memchr(buf_str(&text), '\0', text.len))
		return error_set(err, ERR_BAD_REQUEST, "--prompt-file: %s is not text in UTF-8",
				 file);
	json_put_str(body, "prompt", buf_str(&text));
	return 0;
}

/* The command, or the prompt that stands for it. */
static int put_work(const struct args *args, json_t *body, struct error *err)
{
	const char *config = args_value(args, "adapter-config");
	bool prompt = args_has(args, "prompt") || args_has(args, "prompt-file");

	if (!prompt && (args_has(args, "adapter") || config))
		return error_set(err, ERR_BAD_REQUEST, "--adapter goes with --prompt");
	if (!prompt) {
		json_put_new(body, "command", json_from_strv(args->command));
		return 0;
	}
	if (args->command && args->command[0])
		return error_set(err, ERR_BAD_REQUEST, "a prompt or a command, not both");
	if (args_has(args, "adapter"))
		json_put_str(body, "adapterType", args_value(args, "adapter"));
	if (config) {
		json_t *parsed = config_argument(config, err);

		if (!parsed)
			return error_wrap(err, "--adapter-config");
		json_put_new(body, "adapterConfig", parsed);
	}
	return read_prompt(args, body, err);
}

/* Where it runs decides what the working directory means: on this host, where the caller stands. */
static int put_local_directory(const struct args *args, json_t *body, struct error *err)
{
	const char *cwd = args_value(args, "cwd");
	_cleanup_free_ char *here = NULL;

	if (!cwd && json_str_nonblank(json_object_at(body, "adapterConfig"), "cwd"))
		return 0;
	here = cwd ? realpath(cwd, NULL) : getcwd(NULL, 0);
	if (!here)
		return error_errno(err, errno, "working directory \"%s\"", cwd ? cwd : ".");
	json_put_str(body, "cwd", cwd && cwd[0] == '/' ? cwd : here);
	return 0;
}

static int put_directory(struct cli *cli, const struct args *args, const json_t *environment,
			 json_t *body, struct error *err)
{
	const char *cwd = args_value(args, "cwd");

	if (run_files_workspace(cli, args, environment, body, err) < 0)
		return -1;
	if (json_object_get(body, "workspace"))
		return 0;
	if (str_equal(json_str(environment, "driver"), "local"))
		return put_local_directory(args, body, err);
	if (cwd && cwd[0] != '/')
		return error_set(err, ERR_BAD_REQUEST, "--cwd must be absolute in a sandbox");
	if (cwd)
		json_put_str(body, "cwd", cwd);
	return 0;
}

static int put_place(struct cli *cli, struct api *api, const char *company_id,
		     const struct args *args, json_t *body, struct error *err)
{
	_cleanup_json_ json_t *environment = NULL, *agent = NULL;
	const char *name = args_value(args, "env");

	if (name) {
		if (api_environment(api, company_id, name, &environment, err) < 0)
			return -1;
	} else if (!args_has(args, "agent")) {
		/* Never the host instead: what cannot be had is said. */
		if (api_callf(api, "GET", NULL, &environment, err,
			      "/api/companies/%s/environments/default", company_id) < 0)
			return -1;
	}
	if (environment)
		json_put_str(body, "environmentId", json_str(environment, "id"));
	if (args_has(args, "agent")) {
		if (api_agent(api, company_id, args_value(args, "agent"), &agent, err) < 0)
			return -1;
		json_put_str(body, "agentId", json_str(agent, "id"));
	}
	return put_directory(cli, args, environment, body, err);
}

/* A terminal has its own way. */
static bool streams_stdin(const struct args *args)
{
	return args_has(args, "stdin") && !args_has(args, "tty") && !args_has(args, "detach") &&
	       !args_has(args, "dry-run");
}

/* All but where it runs and which files go along. */
static int compose(const struct args *args, json_t *body, struct error *err)
{
	int64_t timeout_ms = 0, retain_ms = 0;

	if (!args_duration_ms(args, "timeout", &timeout_ms))
		return error_set(err, ERR_BAD_REQUEST, "--timeout is not a duration");
	if (!args_duration_ms(args, "retain", &retain_ms))
		return error_set(err, ERR_BAD_REQUEST, "--retain is not a duration");
	if (args_has(args, "policy"))
		json_put_str(body, "leasePolicy", args_value(args, "policy"));
	if (retain_ms > 0)
		json_put_int(body, "retainSeconds", (retain_ms + 999) / 1000);
	if (put_work(args, body, err) < 0)
		return -1;
	if (timeout_ms > 0)
		json_put_int(body, "timeoutMs", timeout_ms);
	if (args_has(args, "tty"))
		put_terminal(body);
	if (put_variables(args, body, err) < 0)
		return -1;
	if (streams_stdin(args))
		json_put_bool(body, "stdinStream", true);
	/* There is no client later on. */
	return args_has(args, "stdin") && args_has(args, "detach") && !args_has(args, "dry-run")
		       ? put_stdin(body, err)
		       : 0;
}

/* From the moment it is asked for a signal is the run's. */
static int submit(struct api *api, const struct args *args, const char *company, const json_t *body,
		  json_t **run, struct error *err)
{
	if (!args_has(args, "tty") && !args_has(args, "detach"))
		signals_catch();
	if (api_callf(api, "POST", body, run, err, "/api/companies/%s/runs", company) == 0)
		return 0;
	if (!args_has(args, "tty") && !args_has(args, "detach"))
		signals_restore();
	return -1;
}

/* ---- one request, where the server can find out the rest ---- */

static bool is_plain(const struct cli *cli, const struct args *args)
{
	static const char *const NEED_ANSWERS[] = { "agent",        "adapter-config", "workspace",
						    "no-workspace", "mode",           "collect",
						    "no-collect",   "show",           "cwd",
						    "dry-run" };

	for (size_t i = 0; i < ARRAY_SIZE(NEED_ANSWERS); i++) {
		if (args_has(args, NEED_ANSWERS[i]))
			return false;
	}
	return !cli->url;
}

/* The server refused it and has made nothing: asked step by step it is told better what is wrong. */
static bool asks_further(const struct error *err)
{
	switch (err->code) {
	case ERR_NOT_FOUND:
	case ERR_ENV_NOT_FOUND:
	case ERR_VALIDATION:
	case ERR_BAD_REQUEST:
	case ERR_UNPROCESSABLE:
	case ERR_FORBIDDEN:
		return true;
	case ERR_UNAVAILABLE:
		return err->errnum == ECONNREFUSED;
	default:
		return false;
	}
}

/* 1 submitted, 0 it has to be asked for step by step, -1. */
static int submit_plainly(struct follow *f, const struct args *args, const char *company,
			  json_t *body, json_t **run, struct error *err)
{
	if (!is_plain(f->cli, args) || !run_files_here(args, body))
		return 0;
	json_put_str(body, "environment", args_value(args, "env"));
	if (api_open(f->cli, true, &f->api, err) < 0)
		return -1;
	if (submit(f->api, args, company, body, run, err) == 0)
		return 1;
	if (!asks_further(err))
		return -1;
	error_clear(err);
	api_close(f->api);
	f->api = NULL;
	return 0;
}

/* It took no files along: somebody may look for them. */
static void explain_without_files(const struct cli *cli, struct api *api, const json_t *run)
{
	const json_t *request = json_object_at(json_object_at(run, "context"), "request");
	_cleanup_json_ json_t *environment = NULL;

	if (cli->quiet || json_object_at(run, "workspace") ||
	    api_callf(api, "GET", NULL, &environment, NULL, "/api/environments/%s",
		      json_str(request, "environmentId")) < 0 ||
	    str_equal(json_str(environment, "driver"), "local"))
		return;
	print_empty_directory(environment);
}

/* A run's terminal, once it has one. Its files come home after it has closed. */
static int sit_down(struct cli *cli, struct api **api, const json_t *run)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *ended = NULL;
	struct attach attach = { .cli = cli,
				 .api = *api,
				 .exec_id = json_str(run, "id"),
				 .is_run = true,
				 .may_start = true };
	int code = attach_terminal(&attach, &err) < 0 ? cli_fail(cli, &err, EXIT_BERTH)
						      : attach_finish(cli, &attach);

	*api = attach.api;
	if (attach.left || !*api || await_end(cli, *api, json_str(run, "id"), &ended, NULL) < 0)
		return code;
	if (json_object_at(run, "workspace"))
		run_files_summary(cli, *api, ended);
	print_retained(cli, *api, ended);
	if (!cli->quiet)
		print_timeline(ended);
	return code;
}

/* One run that was submitted, to its exit code. *large: it was too much to go along. */
static int see_through(struct follow *f, const struct args *args, const json_t *run, bool *large)
{
	struct cli *cli = f->cli;
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *ended = NULL;

	if (args_has(args, "detach")) {
		if (cli->json)
			print_json(run);
		else
			puts(json_str(run, "id"));
		return 0;
	}
	if (args_has(args, "tty"))
		return sit_down(cli, &f->api, run);
	f->run_id = json_str(run, "id");
	if (streams_stdin(args) && feed_stdin(cli, f->run_id, &err) < 0)
		return cli_fail(cli, &err, EXIT_BERTH);
	f->progress = json_object_at(run, "workspace") && !cli->json;
	if (follow_run(f, &err) < 0)
		return cli_fail(cli, &err, EXIT_BERTH);
	ended = json_incref(f->run);
	*large = str_equal(json_str(ended, "errorCode"), error_code_name(ERR_TOO_LARGE));
	if (ended) {
		run_files_summary(cli, f->api, ended);
		print_retained(cli, f->api, ended);
	}
	return follow_finish(f);
}

/* Asks again with allowLarge if the first was too large and a person agrees. */
static int run_to_end(struct follow *f, const struct args *args, const char *company, json_t *body,
		      const json_t *run)
{
	_cleanup_json_ json_t *again = NULL;
	_cleanup_error_ struct error err = { 0 };
	bool large = false;
	int code = see_through(f, args, run, &large);

	/* Input that was read for the first is not there for a second. */
	if (!large || streams_stdin(args) || !ask_yes("Copy all of it into the sandbox?"))
		return code;
	json_put_bool(json_object_at(body, "workspace"), "allowLarge", true);
	f->since = 0;
	if (submit(f->api, args, company, body, &again, &err) < 0)
		return cli_fail(f->cli, &err, EXIT_BERTH);
	return see_through(f, args, again, &large);
}

/* Company, environment and agent are looked for first. */
static int run_step_by_step(struct follow *f, const struct args *args, json_t *body)
{
	struct cli *cli = f->cli;
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *run = NULL;
	char company_id[ID_SIZE];

	if (api_connect(cli, true, &f->api, &err) < 0 ||
	    api_company(cli, f->api, company_id, &err) < 0 ||
	    put_place(cli, f->api, company_id, args, body, &err) < 0)
		return cli_fail(cli, &err, EXIT_BERTH);
	if (args_has(args, "dry-run"))
		return run_files_plan(cli, f->api, company_id, body);
	if (submit(f->api, args, company_id, body, &run, &err) < 0)
		return cli_fail(cli, &err, EXIT_BERTH);
	return run_to_end(f, args, company_id, body, run);
}

static int run_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *plain = NULL, *run = NULL;
	const char *company = cli->company ? cli->company : "default";
	struct follow f = { .cli = cli,
			    .follow = true,
			    .events = cli->json,
			    .may_start = true,
			    .pass_signals = true };
	int code, submitted;

	if (args_has(args, "tty") && !args_has(args, "detach") && !args_has(args, "dry-run") &&
	    !terminal_is_here()) {
		error_set(&err, ERR_BAD_REQUEST,
			  "-t needs a terminal on standard input and output");
		return cli_fail(cli, &err, EXIT_BERTH);
	}
	if (compose(args, body, &err) < 0)
		return cli_fail(cli, &err, EXIT_BERTH);
	plain = json_deep_copy(body);
	submitted = submit_plainly(&f, args, company, plain, &run, &err);
	if (submitted < 0) {
		code = cli_fail(cli, &err, EXIT_BERTH);
	} else if (submitted) {
		explain_without_files(cli, f.api, run);
		code = run_to_end(&f, args, company, plain, run);
	} else {
		code = run_step_by_step(&f, args, body);
	}
	api_close(f.api);
	return code;
}

VERB(RUN, 100) = {
	.name = "run",
	.arguments = "-- CMD... | --prompt TEXT",
	.summary = "run a command in a leased place and show its output",
	.help = "Needs no set-up: if no server is running, it starts one in the background. The "
		"exit code\nis the command's own; 124: timed out, 125: Berth itself failed, 126 "
		"and 127 as in a shell,\n128+n: signal n. Ctrl-C interrupts the command; a second "
		"one kills it; a third leaves the\nrun going. Ctrl-Z stops only this program.\nIn "
		"a sandbox the command sees a copy of the current directory, without files "
		"that\n.gitignore and .berthignore leave out. Its changes are merged back when it "
		"ends, also if it\nfailed, timed out or was cancelled. A file that was also "
		"changed here is not overwritten:\nthe run's version is put beside it as "
		"NAME.berth-<run>.",
	.flags = FLAGS,
	.takes_command = true,
	.instead = (const char *const[]){ "prompt", "prompt-file", NULL },
	.usage_exit = EXIT_BERTH,
	.run = run_verb,
};

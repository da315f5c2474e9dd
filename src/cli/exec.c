#include <string.h>

#include "base/text.h"
#include "cli/attach.h"
#include "cli/follow.h"
#include "cli/api.h"
#include "cli/terminal.h"
#include "cli/cli.h"

static const struct flag FLAGS[] = {
	{ "generation", 0, "N", "generation of the lease; an old one is refused", false },
	{ "timeout", 0, "TIME", "end the whole process tree after this long", false },
	{ "cwd", 0, "DIR", "absolute directory in the place", false },
	{ "set", 'e', "K[=V]", "environment variable; without =V: its value here", true },
	{ "stdin", 'i', NULL, "stream this program's standard input", false },
	{ "tty", 't', NULL, "give the command a terminal: this one", false },
	{ "user", 'u', "NAME", "run as this user of the place", false },
	{ "detach", 'd', NULL, "print the exec's id and return", false },
	{ 0 },
};

static int build(const struct args *args, json_t *body, struct error *err)
{
	int64_t generation = -1, timeout_ms = 0;

	json_put_new(body, "command", json_from_strv(args->command));
	if (!args_int(args, "generation", 0, INT64_MAX, &generation) ||
	    !args_duration_ms(args, "timeout", &timeout_ms))
		return error_set(err, ERR_BAD_REQUEST, "a flag has an invalid value");
	if (generation >= 0)
		json_put_int(body, "generation", generation);
	if (timeout_ms > 0)
		json_put_int(body, "timeoutMs", timeout_ms);
	if (args_has(args, "cwd"))
		json_put_str(body, "cwd", args_value(args, "cwd"));
	if (put_variables(args, body, err) < 0)
		return -1;
	if (args_has(args, "user"))
		json_put_str(body, "user", args_value(args, "user"));
	if (args_has(args, "tty"))
		put_terminal(body);
	json_put_bool(body, "stdinStream", args_has(args, "stdin"));
	return 0;
}

/* As a shell says that a command could not be started. */
static int start_failed(struct cli *cli, const struct error *err)
{
	return cli_fail(cli, err,
			err->code == ERR_COMMAND_NOT_FOUND ? 127
			: err->code == ERR_COMMAND_DENIED  ? 126
							   : EXIT_BERTH);
}

static int sit_down(struct cli *cli, struct api **api, const char *id)
{
	_cleanup_error_ struct error err = { 0 };
	struct attach attach = { .cli = cli, .api = *api, .exec_id = id };
	int code = attach_terminal(&attach, &err) < 0 ? cli_fail(cli, &err, EXIT_BERTH)
						      : attach_finish(cli, &attach);

	*api = attach.api;
	return code;
}

static int listen_to(struct cli *cli, struct api **api, const char *id, bool feeds)
{
	_cleanup_error_ struct error err = { 0 };
	struct follow f = { .cli = cli,
			    .api = *api,
			    .run_id = id,
			    .is_exec = true,
			    .follow = true,
			    .events = cli->json,
			    .pass_signals = true };
	int code;

	if (feeds && feed_stdin(cli, id, &err) < 0)
		return cli_fail(cli, &err, EXIT_BERTH);
	code = follow_run(&f, &err) < 0 ? cli_fail(cli, &err, EXIT_BERTH) : follow_finish(&f);
	*api = f.api;
	return code;
}

static int exec_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *exec = NULL;
	_cleanup_api_ struct api *api = NULL;
	bool tty = args_has(args, "tty"), detach = args_has(args, "detach");

	if (tty && !detach && !terminal_is_here())
		error_set(&err, ERR_BAD_REQUEST,
			  "-t needs a terminal on standard input and output");
	if (err.code != ERR_NONE || build(args, body, &err) < 0 ||
	    api_connect(cli, false, &api, &err) < 0)
		return cli_fail(cli, &err, EXIT_BERTH);
	/* From the moment it runs a signal is the command's. */
	if (!tty && !detach)
		signals_catch();
	if (api_callf(api, "POST", body, &exec, &err, "/api/environment-leases/%s/exec?detach=1",
		      args->positional[0]) < 0)
		return start_failed(cli, &err);

	const char *id = json_str(exec, "id");

	if (detach) {
		if (cli->json)
			print_json(exec);
		else
			puts(id);
		return 0;
	}
	return tty ? sit_down(cli, &api, id) : listen_to(cli, &api, id, args_has(args, "stdin"));
}

VERB(EXEC, 110) = {
	.name = "exec",
	.arguments = "LEASE -- CMD...",
	.summary = "run a command in the place of a lease",
	.help = "Ctrl-C interrupts the command; a second one kills it; a third leaves it running. "
		"A\nterminal (-it) gets every key; ctrl-p ctrl-q leaves it. `berth attach` returns "
		"to it.",
	.flags = FLAGS,
	.min_args = 1,
	.max_args = 1,
	.takes_command = true,
	.usage_exit = EXIT_BERTH,
	.run = exec_verb,
};

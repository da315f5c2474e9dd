#include <string.h>

#include "base/text.h"
#include "cli/follow.h"
#include "cli/verbs.h"

#define LINE_BOUND (4u << 20)

static const struct flag FLAGS[] = {
	{ "generation", 0, "N", "as acquire said; a stale one is refused", false },
	{ "timeout", 0, "TIME", "end the whole process tree after this long", false },
	{ "cwd", 0, "DIR", "absolute directory in the place", false },
	{ "set", 'e', "K[=V]", "environment variable; without a value: the one it has here", true },
	{ "stdin", 'i', NULL, "send this program's standard input (at most 1 MiB)", false },
	{ 0 },
};

struct output {
	struct cli *cli;
	struct buf pending;
	json_t *exit;
};

static void take_event(struct output *o, const char *line, size_t len)
{
	_cleanup_json_ json_t *event = json_parse(line, len, NULL);
	const char *type = json_str(event, "type");

	if (!type)
		return;
	if (o->cli->json)
		printf("%.*s\n", (int)len, line);
	else if (streq(type, "stdout") || streq(type, "stderr"))
		write_output(event);
	if (streq(type, "exit"))
		o->exit = json_incref(event);
}

static bool take_data(void *arg, const char *data, size_t len)
{
	struct output *o = arg;
	char *newline;

	if (o->pending.len + len > LINE_BOUND)
		return false;
	buf_append(&o->pending, data, len);
	while ((newline = memchr(buf_str(&o->pending), '\n', o->pending.len))) {
		size_t end = (size_t)(newline - o->pending.data);

		take_event(o, o->pending.data, end);
		buf_consume(&o->pending, end + 1);
	}
	return true;
}

static int build(const struct args *args, json_t *body, struct error *err)
{
	int64_t generation = -1, timeout_ms = 0;

	json_put_new(body, "command", json_from_strv(args->command));
	if (!args_int(args, "generation", 0, INT64_MAX, &generation) ||
	    !args_duration_ms(args, "timeout", &timeout_ms))
		return error_set(err, ERR_BAD_REQUEST, "a flag has a value that does not fit");
	if (generation >= 0)
		json_put_int(body, "generation", generation);
	if (timeout_ms > 0)
		json_put_int(body, "timeoutMs", timeout_ms);
	if (args_has(args, "cwd"))
		json_put_str(body, "cwd", args_value(args, "cwd"));
	if (put_variables(args, body, err) < 0)
		return -1;
	return args_has(args, "stdin") ? put_stdin(body, err) : 0;
}

static int exec_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object();
	_cleanup_api_ struct api *api = NULL;
	_cleanup_free_ char *path =
		xasprintf("/api/environment-leases/%s/exec", args->positional[0]);
	struct output o = { .cli = cli };
	struct api_stream stream = { .method = "POST",
				     .path = path,
				     .body = body,
				     .on_data = take_data,
				     .accept = "application/x-ndjson",
				     .wake_fd = -1,
				     .arg = &o };
	int code;

	if (build(args, body, &err) < 0 || api_connect(cli, false, &api, &err) < 0)
		return cli_fail(cli, &err, EXIT_BERTH);
	if (api_stream(api, &stream, &err) < 0) {
		code = cli_fail(cli, &err,
				err.code == ERR_COMMAND_NOT_FOUND ? 127
				: err.code == ERR_COMMAND_DENIED  ? 126
								  : EXIT_BERTH);
	} else if (!o.exit) {
		fputs("berth: the stream ended before the command did\n", stderr);
		code = EXIT_BERTH;
	} else {
		if (str_equal(json_str(o.exit, "reason"), "lease_lost"))
			fputs("berth: the lease ended while the command was running\n", stderr);
		code = exit_code_of(o.exit);
	}
	json_decref(o.exit);
	buf_free(&o.pending);
	return code;
}

const struct verb VERB_EXEC = {
	.name = "exec",
	.arguments = "LEASE -- CMD...",
	.summary = "run a command in a place that is held already",
	.flags = FLAGS,
	.min_args = 1,
	.max_args = 1,
	.takes_command = true,
	.usage_exit = EXIT_BERTH,
	.run = exec_verb,
};

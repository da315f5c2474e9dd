#include "api/exec_request.h"
#include "base/text.h"

#define ENV_MAX 1000

void exec_request_clear(struct exec_request *request)
{
	strv_free(request->argv);
	strv_free(request->env);
	buf_free(&request->input);
}

static void read_terminal(const json_t *tty, struct exec_request *request)
{
	request->has_terminal = tty != NULL;
	request->terminal = (struct exec_terminal){
		.rows = (uint16_t)json_int(tty, "rows", 24),
		.cols = (uint16_t)json_int(tty, "cols", 80),
		.term = json_str(tty, "term"),
	};
}

int exec_request_read(struct exec_request *request, const json_t *body, struct error *err)
{
	const char *cwd = json_str(body, "cwd"), *input = json_str(body, "stdin");
	const json_t *env = json_object_at(body, "env");

	request->body = body;
	request->argv = json_to_strv(json_array_at(body, "command"));
	if (!request->argv || str_blank(request->argv[0]))
		return error_set(err, ERR_VALIDATION,
				 "command[0] is empty: name the program to run");
	if (cwd && cwd[0] != '/')
		return error_set(err, ERR_VALIDATION, "cwd must be an absolute path");
	if (json_check_env(env, err) < 0)
		return -1;
	json_push_env(&request->env, env);
	read_terminal(json_object_at(body, "tty"), request);
	request->has_input = input != NULL;
	if (!input)
		return 0;
	if (!str_equal(json_str(body, "stdinEncoding"), "base64"))
		buf_puts(&request->input, input);
	else if (!base64_decode(&request->input, input, strlen(input)))
		return error_set(err, ERR_VALIDATION, "stdin is not valid base64");
	return 0;
}

int exec_request_start(const struct exec_request *request, struct server *server,
		       const struct exec_start *start, struct live_exec **live, struct error *err)
{
	const json_t *body = request->body;
	const struct exec_spec spec = {
		.exec_id = start->id,
		.place_id = start->place->id,
		.generation = start->generation,
		.argv = request->argv,
		.env = request->env,
		.cwd = json_str(body, "cwd"),
		.user = json_str(body, "user"),
		.stdin_data = request->has_input ? buf_str(&request->input) : NULL,
		.stdin_len = request->input.len,
		/* Without somebody who types a terminal would be at its end at once. */
		.stdin_stream = request->has_terminal || json_bool(body, "stdinStream", false),
		.terminal = request->has_terminal ? &request->terminal : NULL,
		.timeout_ms = json_int(body, "timeoutMs", 0),
	};
	const struct exec_order order = {
		.place = start->place,
		.lease_id = start->lease_id,
		.spec = &spec,
		.kept = start->kept,
		.unannounced = start->unannounced,
		.first_words = start->first_words,
		.kill_when_left = str_equal(json_str(body, "onDisconnect"), "kill"),
	};

	return execs_start(server->execs, &order, live, err);
}

static const struct field TTY_FIELDS[] = {
	{ .name = "rows", .type = FIELD_INT, .min = 1, .max = 65535, .summary = "24 unless given" },
	{ .name = "cols", .type = FIELD_INT, .min = 1, .max = 65535, .summary = "80 unless given" },
	{ .name = "term",
	  .type = FIELD_STRING,
	  .min = 1,
	  .max = 64,
	  .summary = "TERM of the command; xterm-256color unless given" },
	{ 0 },
};
static const char *const DISCONNECTS[] = { "keep", "kill", NULL };
static const char *const ENCODINGS[] = { "utf8", "base64", NULL };
#define COMMAND_FIELDS                                                                             \
	{ .name = "command",                                                                       \
	  .type = FIELD_STRING_ARRAY,                                                              \
	  .flags = FIELD_REQUIRED,                                                                 \
	  .min = 1,                                                                                \
	  .max = 4096,                                                                             \
	  .summary = "argv; never a shell string" },                                               \
		{ .name = "cwd",                                                                   \
		  .type = FIELD_STRING,                                                            \
		  .flags = FIELD_NULLABLE,                                                         \
		  .min = 1,                                                                        \
		  .max = 4096,                                                                     \
		  .summary = "Absolute directory in the place; its own unless given" },            \
		{ .name = "env",                                                                   \
		  .type = FIELD_STRING_MAP,                                                        \
		  .max = ENV_MAX,                                                                  \
		  .summary = "Added to the minimal environment" },                                 \
		{ .name = "stdin",                                                                 \
		  .type = FIELD_STRING,                                                            \
		  .flags = FIELD_NULLABLE,                                                         \
		  .max = 2 << 20,                                                                  \
		  .summary = "The whole of standard input" },                                      \
		{ .name = "stdinEncoding",                                                         \
		  .type = FIELD_STRING,                                                            \
		  .one_of = ENCODINGS,                                                             \
		  .summary = "utf8 unless given" },                                                \
		{ .name = "stdinStream",                                                           \
		  .type = FIELD_BOOL,                                                              \
		  .summary = "Standard input goes on with POST /api/execs/:id/stdin until its "    \
			     "end is said" },                                                      \
		{ .name = "tty",                                                                   \
		  .type = FIELD_OBJECT,                                                            \
		  .flags = FIELD_NULLABLE,                                                         \
		  .fields = TTY_FIELDS,                                                            \
		  .summary = "A terminal instead of pipes; see /api/execs/:id/terminal" },         \
		{ .name = "onDisconnect",                                                          \
		  .type = FIELD_STRING,                                                            \
		  .one_of = DISCONNECTS,                                                           \
		  .summary = "keep (unless given): it runs on when this client goes away; kill: "  \
			     "it ends" },                                                          \
		{ .name = "user",                                                                  \
		  .type = FIELD_STRING,                                                            \
		  .flags = FIELD_NULLABLE,                                                         \
		  .min = 1,                                                                        \
		  .max = 64,                                                                       \
		  .summary = "A user of the place; its own unless given" },                        \
	{                                                                                          \
		.name = "timeoutMs", .type = FIELD_INT, .flags = FIELD_NULLABLE, .min = 1,         \
		.max = 30LL * 86400 * 1000,                                                        \
		.summary = "The whole process tree ends when it has run this long"                 \
	}

const struct field EXEC_FIELDS[] = {
	COMMAND_FIELDS,
	{ .name = "generation",
	  .type = FIELD_INT,
	  .min = 0,
	  .max = INT64_MAX,
	  .summary = "As the lease showed it; left out, it is not checked" },
	{ 0 },
};
const struct field FIRST_EXEC_FIELDS[] = {
	COMMAND_FIELDS,
	{ 0 },
};

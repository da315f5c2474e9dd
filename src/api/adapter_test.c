#include "api/adapter_test.h"

#include <poll.h>
#include <stdarg.h>

#include "api/exec_view.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "run/orchestrator.h"

#define SECOND ((int64_t)1000)
#define LOOK_MS (15 * SECOND)
#define VERSION_MS (30 * SECOND)
#define LATE_MS (15 * SECOND) /* a command is ended by its own deadline; this is for no answer */
/* Past every deadline of a test: a lease whose server was killed ends by itself soon after. */
#define LEASE_MS (300 * SECOND)
#define OUTPUT_MAX 4096

/* ---- what was found ---- */

static const char *const LEVEL_NAMES[] = {
#define X(name, wire, status) [name] = wire,
	CHECK_LEVELS(X)
#undef X
};
static const char *const STATUS_NAMES[] = {
#define X(name, wire, status) [name] = status,
	CHECK_LEVELS(X)
#undef X
};

void test_found(struct adapter_test *test, enum check_level level, const char *code,
		const char *detail, const char *hint, const char *message, ...)
{
	_cleanup_buf_ struct buf text = { 0 };
	json_t *check = json_object();
	va_list ap;

	va_start(ap, message);
	buf_vprintf(&text, message, ap);
	va_end(ap);
	json_put_str(check, "code", code);
	json_put_str(check, "level", LEVEL_NAMES[level]);
	json_put_str(check, "message", buf_str(&text));
	if (detail)
		json_put_str(check, "detail", detail);
	if (hint)
		json_put_str(check, "hint", hint);
	json_array_append_new(test->checks, check);
}

enum check_level test_worst(const struct adapter_test *test)
{
	enum check_level worst = CHECK_INFO;
	const json_t *check;
	size_t i;

	json_array_foreach (test->checks, i, check) {
		const char *level = json_str(check, "level");

		for (enum check_level l = CHECK_INFO; l <= CHECK_ERROR; l++) {
			if (streq(level, LEVEL_NAMES[l]) && l > worst)
				worst = l;
		}
	}
	return worst;
}

json_t *test_result(const struct adapter_test *test)
{
	json_t *result = json_object();

	json_put_str(result, "adapterType", test->adapter->type);
	json_put_str(result, "status", STATUS_NAMES[test_worst(test)]);
	json_put_ref(result, "checks", test->checks);
	json_put_time(result, "testedAt", clock_now(&test->server->clock));
	return result;
}

/* ---- the config ---- */

static void tell_unknown_keys(struct adapter_test *test)
{
	_cleanup_json_ json_t *unknown = adapter_config_unknown(test->adapter, test->config);
	_cleanup_buf_ struct buf names = { .max = 1000 };
	const json_t *name;
	size_t i;

	json_array_foreach (unknown, i, name) {
		buf_printf(&names, "%s%.64s", names.len ? ", " : "", json_string_value(name));
	}
	if (names.len)
		test_found(test, CHECK_WARN, "adapter_config_unknown_keys", buf_str(&names), NULL,
			   "adapterConfig has keys that adapter \"%s\" does not use here.",
			   test->adapter->type);
}

bool test_config(struct adapter_test *test)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_(adapter_command_clear) struct adapter_command command = { 0 };

	if (!test->adapter->config) {
		test_found(test, CHECK_WARN, "adapter_without_command", NULL, NULL,
			   "Adapter \"%s\" speaks to a service of its own: there is no command to "
			   "look for.",
			   test->adapter->type);
		return false;
	}
	if (adapter_config_check(test->adapter, test->config, false, &err) < 0 ||
	    adapter_command(test->adapter, test->config, NULL, &command, &err) < 0) {
		test_found(test, CHECK_ERROR, "adapter_config_invalid", err.message, NULL,
			   "adapterConfig cannot be used.");
		return false;
	}
	tell_unknown_keys(test);
	return true;
}

/* ---- commands in the place ---- */

/* A place taken for the test. */
struct bench {
	struct adapter_test *test;
	struct lease lease;
	struct place place;
	char *cwd;
	char **env;
	char *program;
};

static void bench_clear(struct bench *bench)
{
	lease_clear(&bench->lease);
	place_clear(&bench->place);
	free(bench->cwd);
	strv_free(bench->env);
	free(bench->program);
}

struct answer_of {
	struct exec_outcome outcome;
	struct buf out, errors;
};

static void answer_clear(struct answer_of *answer)
{
	buf_free(&answer->out);
	buf_free(&answer->errors);
}

static void keep_output(struct buf *to, const struct runlog_chunk *chunk)
{
	buf_append(to, chunk->data, MIN_OF(chunk->len, OUTPUT_MAX - MIN_OF(to->len, OUTPUT_MAX)));
}

/* Until it has ended; it has a deadline of its own. Nobody waits for the answer of one who left. */
static int hear_out(struct bench *bench, struct exec_view *view, int64_t timeout_ms,
		    struct answer_of *answer, struct error *err)
{
	struct runlog_chunk chunk;
	enum stream_event event;
	int r;

	for (;;) {
		r = exec_view_read(view, OUTPUT_MAX, &chunk, err);
		if (r < 0)
			return -1;
		if (r > 0) {
			keep_output(chunk.stream == RUNLOG_STDERR ? &answer->errors : &answer->out,
				    &chunk);
			continue;
		}
		if (!exec_view_is_live(view))
			return exec_view_outcome(view, &answer->outcome, err);
		event = stream_wait(bench->test->request->connection, exec_view_event(view),
				    (int)(timeout_ms + LATE_MS));
		if (event == STREAM_READY)
			continue;
		places_cancel(bench->test->server->places, view->id, EXEC_CANCELLED, false);
		if (event == STREAM_TIMEOUT)
			return error_set(err, ERR_TIMEOUT, "its end was not told in time");
		return error_set(err, ERR_CANCELLED, "the client went away");
	}
}

static int ask(struct bench *bench, char *const *argv, int64_t timeout_ms, struct answer_of *answer,
	       struct error *err)
{
	struct server *server = bench->test->server;
	_cleanup_exec_view_ struct exec_view view = { 0 };
	struct live_exec *live;
	char id[ID_SIZE];
	const struct exec_spec spec = {
		.exec_id = id,
		.place_id = bench->place.id,
		.generation = bench->lease.generation,
		.argv = argv,
		.env = bench->env,
		.cwd = bench->cwd,
		.timeout_ms = timeout_ms,
	};
	const struct exec_order order = {
		.place = &bench->place,
		.lease_id = bench->lease.id,
		.spec = &spec,
		.kill_when_left = true,
	};

	id_new(id);
	if (execs_start(server->execs, &order, &live, err) < 0 ||
	    exec_view_new(server, id, live, &view, err) < 0)
		return -1;
	return hear_out(bench, &view, timeout_ms, answer, err);
}

static bool succeeded(const struct answer_of *answer)
{
	return answer->outcome.result.reason == EXEC_EXITED &&
	       answer->outcome.result.exit_code == 0;
}

/* The first line with something in it, fit to be shown. NULL: there is none. */
static char *first_line(const struct buf *text)
{
	_cleanup_free_ char *copy = xstrdup(buf_str(text));
	char *rest = NULL;

	for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (!str_blank(line)) {
			_cleanup_free_ char *trimmed = str_trimmed(line);

			return xstrndup(trimmed, 240);
		}
	}
	return NULL;
}

static void tell_missing(struct adapter_test *test, const char *program)
{
	test_found(test, CHECK_ERROR, "adapter_command_missing", program,
		   test->adapter->install_hint, "Command \"%s\" was not found there.", program);
}

/* The place's own shell is asked, as it knows the place's PATH. */
static bool find_program(struct bench *bench)
{
	struct adapter_test *test = bench->test;
	char *const argv[] = { (char *)"sh", (char *)"-c",   (char *)"command -v \"$1\"",
			       (char *)"sh", bench->program, NULL };
	_cleanup_error_ struct error err = { 0 };
	_cleanup_(answer_clear) struct answer_of answer = { 0 };
	_cleanup_free_ char *path = NULL;

	if (ask(bench, argv, LOOK_MS, &answer, &err) < 0) {
		test_found(test, CHECK_ERROR, "adapter_probe_failed", err.message,
			   "Check adapterConfig.cwd, and that the place has a shell.",
			   "Nothing could be run there.");
		return false;
	}
	if (answer.outcome.result.reason == EXEC_TIMEOUT) {
		test_found(test, CHECK_ERROR, "adapter_probe_timeout", NULL, NULL,
			   "Looking for \"%s\" took more than %d s.", bench->program,
			   (int)(LOOK_MS / SECOND));
		return false;
	}
	path = first_line(&answer.out);
	if (!succeeded(&answer) || !path) {
		tell_missing(test, bench->program);
		return false;
	}
	test_found(test, CHECK_INFO, "adapter_command_found", path, NULL,
		   "Command \"%s\" is there.", bench->program);
	return true;
}

/* A tool that is there and does not say its version may still work. */
static void ask_version(struct bench *bench)
{
	struct adapter_test *test = bench->test;
	_cleanup_error_ struct error err = { 0 };
	_cleanup_(answer_clear) struct answer_of answer = { 0 };
	_cleanup_strv_ char **argv = NULL;
	_cleanup_free_ char *line = NULL;

	if (!test->adapter->version)
		return;
	strv_push(&argv, xstrdup(bench->program));
	for (const char *const *word = test->adapter->version; *word; word++)
		strv_push(&argv, xstrdup(*word));
	if (ask(bench, argv, VERSION_MS, &answer, &err) < 0) {
		test_found(test, CHECK_WARN, "adapter_version_failed", err.message, NULL,
			   "\"%s\" could not be asked for its version.", bench->program);
		return;
	}
	line = first_line(&answer.out);
	if (!succeeded(&answer) || !line) {
		_cleanup_free_ char *complaint = first_line(&answer.errors);

		test_found(test, CHECK_WARN, "adapter_version_failed",
			   complaint ? complaint : exec_reason_name(answer.outcome.result.reason),
			   NULL, "\"%s\" did not say its version.", bench->program);
		return;
	}
	test_found(test, CHECK_INFO, "adapter_version", line, NULL, "%s %s.", test->adapter->name,
		   line);
}

/* ---- the place ---- */

static bool client_left(const struct adapter_test *test)
{
	return stream_wait(test->request->connection, -1, 0) == STREAM_GONE;
}

static bool take_place(struct bench *bench, const struct environment *environment)
{
	struct adapter_test *test = bench->test;
	_cleanup_error_ struct error err = { 0 };
	_cleanup_close_ int gone_fd = request_gone_fd(test->request, &err);
	const struct lease_request wanted = {
		.company_id = environment->company_id,
		.environment = environment,
		.ttl_ms = LEASE_MS,
		.cancel_fd = gone_fd,
		.actor = &test->request->actor,
	};

	if (gone_fd >= 0 &&
	    lease_acquire(test->server->leases, &wanted, &bench->lease, &bench->place, &err) == 0)
		return true;
	test_found(test, CHECK_ERROR, "environment_lease_acquire_failed", err.message,
		   "Check the credentials and the quota of the environment, and whether all its "
		   "places are taken.",
		   "Could not acquire a lease in \"%s\".", environment->name);
	return false;
}

/* Where the command would start: its config's directory, else what the workspace comes to. */
static bool settle_in(struct bench *bench, const struct environment *environment)
{
	struct adapter_test *test = bench->test;
	_cleanup_error_ struct error err = { 0 };
	_cleanup_(place_realization_clear) struct place_realization realization = { 0 };
	_cleanup_(execution_target_clear) struct execution_target target = { 0 };
	const struct place_workspace workspace = {
		.local_path = environment->driver == DRIVER_LOCAL ? test->server->home_path : NULL,
		.remote_path = json_str_nonblank(bench->lease.metadata, "remoteCwd"),
	};
	const char *cwd = json_str_nonblank(test->config, "cwd");

	if (maker_realize(&test->server->makers, &bench->place, bench->lease.id, &workspace,
			  &realization, &err) < 0) {
		test_found(test, CHECK_ERROR, "environment_workspace_realize_failed", err.message,
			   NULL, "Could not prepare a workspace in \"%s\".", environment->name);
		return false;
	}
	if (execution_target(test->adapter->type, environment, bench->lease.metadata, &target,
			     &err) < 0) {
		test_found(test, CHECK_ERROR, "environment_target_failed", err.message, NULL,
			   "Could not find out how to run commands in \"%s\".", environment->name);
		return false;
	}
	if (cwd)
		bench->cwd = str_trimmed(cwd);
	else if (!str_blank(realization.cwd))
		bench->cwd = str_trimmed(realization.cwd);
	else
		bench->cwd = xstrdup(target.remote_cwd);
	return true;
}

/* The config has passed test_config, so all of it can be used. */
static void prepare(struct bench *bench)
{
	_cleanup_(adapter_command_clear) struct adapter_command command = { 0 };

	if (adapter_command(bench->test->adapter, bench->test->config, NULL, &command, NULL) < 0)
		return;
	bench->program = xstrdup(command.argv[0]);
	json_push_env(&bench->env, command.env);
}

static void give_back(struct bench *bench)
{
	struct adapter_test *test = bench->test;
	_cleanup_error_ struct error err = { 0 };
	_cleanup_lease_ struct lease ended = { 0 };
	const struct lease_release release = {
		.generation = bench->lease.generation,
		.status = test_worst(test) == CHECK_ERROR ? LEASE_FAILED : LEASE_RELEASED,
		.actor = &test->request->actor,
	};

	if (lease_release(test->server->leases, bench->lease.id, &release, &ended, &err) < 0)
		log_warn("lease %s of an adapter test: not released, it ends by itself: %s",
			 bench->lease.id, err.message);
}

void test_in_place(struct adapter_test *test, const struct environment *environment)
{
	_cleanup_(bench_clear) struct bench bench = { .test = test };

	if (!take_place(&bench, environment))
		return;
	prepare(&bench);
	if (settle_in(&bench, environment) && !client_left(test) && find_program(&bench) &&
	    !client_left(test))
		ask_version(&bench);
	give_back(&bench);
}

#include <sys/socket.h>
#include <sys/un.h>
#include "api/exec_view.h"
#include "stream.h"

/* A lease of the box, and where to run commands in it. */
static char *exec_path(struct api_test *t, char lease[ID_SIZE])
{
	take_id(acquire(t, t->box, "{}"), lease);
	return xasprintf("/api/environment-leases/%s/exec", lease);
}

static json_t *run_whole(struct api_test *t, const char *path, const char *body)
{
	_cleanup_free_ char *whole = xasprintf("%s?stream=0", path);

	return post(t, 200, whole, body);
}

static void an_exec_streams_start_output_and_exit(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	_cleanup_json_ json_t *lines =
		run_stream(t, CALL("POST", path,
				   "{\"command\": [\"sh\", \"-c\", \"printf %s \\\"$A\\\"; cat; "
				   "printf oops >&2; exit 3\"], \"env\": {\"A\": \"a b\"}, "
				   "\"stdin\": \"in\\n\", \"generation\": 1}"));
	_cleanup_buf_ struct buf out = { 0 }, errors = { 0 };

	gather(lines, "stdout", &out);
	gather(lines, "stderr", &errors);
	assert_string_equal(json_str(json_array_get(lines, 0), "type"), "start");
	assert_true(id_is_valid(json_str(json_array_get(lines, 0), "execId")));
	assert_string_equal(buf_str(&out), "a bin\n");
	assert_string_equal(buf_str(&errors), "oops");
	assert_string_equal(json_str(last_of(lines), "type"), "exit");
	assert_int_equal(json_int(last_of(lines), "exitCode", -1), 3);
	assert_string_equal(json_str(last_of(lines), "reason"), "exited");
	assert_int_equal(json_state(last_of(lines), "signal"), JSON_IS_NULL);
	assert_true(json_int(last_of(lines), "durationMs", -1) >= 0);
}

static void bytes_of_any_kind_come_through(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	_cleanup_buf_ struct buf raw = { 0 }, text = { 0 }, body = { 0 }, out = { 0 };

	for (int i = 0; i < 70000; i++)
		buf_putc(&raw, (char)(i * 7 + i / 256));
	base64_encode(&text, raw.data, raw.len);
	buf_printf(&body,
		   "{\"command\": [\"cat\"], \"stdinEncoding\": \"base64\", \"stdin\": \"%s\"}",
		   buf_str(&text));

	_cleanup_json_ json_t *lines = run_stream(t, CALL("POST", path, buf_str(&body)));

	gather(lines, "stdout", &out);
	assert_int_equal(out.len, raw.len);
	assert_memory_equal(out.data, raw.data, raw.len);
}

static void a_whole_answer_is_bounded(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	_cleanup_json_ json_t *small =
		run_whole(t, path, "{\"command\": [\"printf\", \"\\\\377\"]}");
	/* Two bytes a character and one before them, so that the limit falls into a character. */
	_cleanup_json_ json_t *large = run_whole(
		t, path,
		"{\"command\": [\"sh\", \"-c\", \"printf x; yes \xc3\xa9 | tr -d '\\\\n' | "
		"head -c 3000000; echo done >&2\"]}");

	assert_string_equal(json_str(small, "stdout"), "/w==");
	assert_string_equal(json_str(small, "stdoutEncoding"), "base64");
	assert_false(json_bool(small, "stdoutTruncated", true));
	assert_true(json_bool(large, "stdoutTruncated", false));
	assert_int_equal(strlen(json_str(large, "stdout")), (1 << 20) - 1);
	assert_null(json_str(large, "stdoutEncoding"));
	assert_string_equal(json_str(large, "stderr"), "done\n");
	assert_false(json_bool(large, "stderrTruncated", true));
}

static void how_it_ended_is_told(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	_cleanup_json_ json_t *killed =
		run_whole(t, path, "{\"command\": [\"sh\", \"-c\", \"kill -KILL $$\"]}");
	_cleanup_json_ json_t *late =
		run_whole(t, path, "{\"command\": [\"sleep\", \"60\"], \"timeoutMs\": 50}");

	assert_string_equal(json_str(killed, "reason"), "signalled");
	assert_string_equal(json_str(killed, "signal"), "SIGKILL");
	assert_int_equal(json_state(killed, "exitCode"), JSON_IS_NULL);
	assert_string_equal(json_str(late, "reason"), "timeout");
}

static void bad_requests_run_nothing(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	static const char *const bad[] = {
		"{}",
		"{\"command\": []}",
		"{\"command\": \"true\"}",
		"{\"command\": [\"\"]}",
		"{\"command\": [1]}",
		"{\"command\": [\"true\"], \"cwd\": \"here\"}",
		"{\"command\": [\"true\"], \"env\": {\"A=B\": \"c\"}}",
		"{\"command\": [\"true\"], \"env\": {\"\": \"c\"}}",
		"{\"command\": [\"true\"], \"env\": {\"A\": 1}}",
		"{\"command\": [\"true\"], \"stdin\": \"*\", \"stdinEncoding\": \"base64\"}",
		"{\"command\": [\"true\"], \"timeoutMs\": 0}",
		"{\"command\": [\"true\"], \"shell\": true}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		refused(t, 400, "validation_error", NULL, CALL("POST", path, bad[i]));
	refused(t, 422, "command_not_found", NULL,
		CALL("POST", path, "{\"command\": [\"no-such-program\"]}"));
	refused(t, 422, "command_not_executable", NULL,
		CALL("POST", path, "{\"command\": [\"/etc/passwd\"]}"));

	_cleanup_json_ json_t *health = get(t, "/api/health");

	assert_int_equal(json_int(json_object_at(health, "execs"), "active", -1), 0);
}

static size_t active(struct api_test *t)
{
	_cleanup_json_ json_t *health = get(t, "/api/health");

	return (size_t)json_int(json_object_at(health, "execs"), "active", -1);
}

static void a_client_that_hangs_up_does_not_end_its_exec(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	_cleanup_free_ char *go = xasprintf("%s/go", t->dir), *done = xasprintf("%s/done", t->dir);
	_cleanup_free_ char *body =
		xasprintf("{\"command\": [\"sh\", \"-c\", \"until [ -e %s ]; do sleep 0.01; done; "
			  "echo yes > %s\"]}",
			  go, done);

	close(open_stream(t, path, body, NULL));
	WAIT_FOR(http_connections(t->server->http) == 0);
	assert_int_equal(active(t), 1);
	assert_int_equal(file_replace(AT_FDCWD, go, "", 0, 0600, NULL), 0);
	WAIT_FOR(access(done, F_OK) == 0);
	WAIT_FOR(active(t) == 0);
}

static void releasing_the_lease_ends_its_execs(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	int fd = open_stream(t, path, "{\"command\": [\"sleep\", \"600\"]}", NULL);
	_cleanup_free_ char *release = xasprintf("/api/environment-leases/%s/release", lease);
	_cleanup_buf_ struct buf got = { 0 };
	char part[512];
	ssize_t n;

	json_decref(post(t, 200, release, "{}"));
	while (!strstr(buf_str(&got), "\"exit\"") && (n = recv(fd, part, sizeof(part), 0)) > 0)
		buf_append(&got, part, (size_t)n);
	assert_non_null(strstr(buf_str(&got), "\"reason\":\"lease_lost\""));
	close(fd);
}

static void the_same_key_gives_the_same_exec_from_its_first_byte(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	_cleanup_free_ char *count = xasprintf("%s/count", t->dir);
	_cleanup_free_ char *body =
		xasprintf("{\"command\": [\"sh\", \"-c\", \"echo x >> %s; echo out\"]}", count);
	_cleanup_json_ json_t *one = run_stream(t, CALL("POST", path, body, "k"));
	_cleanup_json_ json_t *two = run_stream(t, CALL("POST", path, body, "k"));
	_cleanup_buf_ struct buf out = { 0 }, ran = { 0 };

	assert_true(json_equal(one, two));
	gather(two, "stdout", &out);
	assert_string_equal(buf_str(&out), "out\n");
	refused(t, 409, "idempotency_key_reused", NULL,
		CALL("POST", path, "{\"command\": [\"true\"]}", "k"));

	/* Also by a later server, and when the lease is long gone. */
	server_end(t);
	server_begin(t, true);

	_cleanup_free_ char *release = xasprintf("/api/environment-leases/%s/release", lease);

	json_decref(post(t, 200, release, "{}"));

	_cleanup_json_ json_t *three = run_stream(t, CALL("POST", path, body, "k"));

	assert_true(json_equal(one, three));
	assert_int_equal(file_read(AT_FDCWD, count, &ran, 100, NULL), 0);
	assert_string_equal(buf_str(&ran), "x\n");
}

static void a_key_joins_an_exec_that_is_still_going(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	_cleanup_free_ char *go = xasprintf("%s/go", t->dir);
	_cleanup_free_ char *body = xasprintf(
		"{\"command\": [\"sh\", \"-c\", \"echo a; until [ -e %s ]; do sleep 0.01; done; "
		"echo b\"]}",
		go);
	int fd = open_stream(t, path, body, "j");
	_cleanup_buf_ struct buf out = { 0 };

	assert_int_equal(file_replace(AT_FDCWD, go, "", 0, 0600, NULL), 0);

	_cleanup_json_ json_t *lines = run_stream(t, CALL("POST", path, body, "j"));

	gather(lines, "stdout", &out);
	assert_string_equal(buf_str(&out), "a\nb\n");
	close(fd);
}

/* Started by a server that died: it must not be started a second time. */
static void the_end_that_a_dead_server_did_not_write_down_is_told_by_the_relay(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	_cleanup_free_ char *count = xasprintf("%s/count", t->dir);
	_cleanup_free_ char *body =
		xasprintf("{\"command\": [\"sh\", \"-c\", \"echo x >> %s; echo out\"]}", count);
	_cleanup_json_ json_t *one = run_stream(t, CALL("POST", path, body, "k"));
	_cleanup_free_ char *record =
		xasprintf("%s/execs/kept/%s", t->data, json_str(json_array_get(one, 0), "execId"));
	_cleanup_buf_ struct buf out = { 0 }, ran = { 0 }, was = { 0 };

	server_end(t);
	assert_int_equal(file_read(AT_FDCWD, record, &was, 65536, NULL), 0);

	/* As if the server had died before it could write down the end. */
	_cleanup_json_ json_t *kept = json_parse(buf_str(&was), was.len, NULL);
	_cleanup_free_ char *running = (json_put_str(kept, "state", "running"), json_text(kept));

	assert_int_equal(file_replace(AT_FDCWD, record, running, strlen(running), 0600, NULL), 0);
	server_begin(t, true);

	_cleanup_json_ json_t *two = run_stream(t, CALL("POST", path, body, "k"));

	gather(two, "stdout", &out);
	assert_string_equal(buf_str(&out), "out\n");
	assert_string_equal(json_str(last_of(two), "reason"), "exited");
	assert_int_equal(json_int(last_of(two), "exitCode", -1), 0);
	assert_int_equal(file_read(AT_FDCWD, count, &ran, 100, NULL), 0);
	assert_string_equal(buf_str(&ran), "x\n");
}

static size_t files_below(const char *dir)
{
	_cleanup_free_ char *command = xasprintf("find %s -type f | wc -l", dir);
	FILE *pipe = popen(command, "r");
	unsigned n = 0;

	assert_int_equal(fscanf(pipe, "%u", &n), 1);
	pclose(pipe);
	return n;
}

static void an_exec_that_could_not_start_leaves_nothing_behind(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	_cleanup_free_ char *dir = xasprintf("%s/execs", t->data);

	refused(t, 422, "command_not_found", NULL,
		CALL("POST", path, "{\"command\": [\"no-such-program\"]}", "k"));
	WAIT_FOR(files_below(dir) == 0);
}

static void a_brief_silent_exec_leaves_no_file_and_is_known_all_the_same(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	_cleanup_free_ char *dir = xasprintf("%s/execs", t->data);
	_cleanup_json_ json_t *brief = run_whole(t, path, "{\"command\": [\"false\"]}");
	_cleanup_free_ char *one = xasprintf("/api/execs/%s", json_str(brief, "execId"));
	_cleanup_free_ char *output = xasprintf("%s/output", one);
	_cleanup_json_ json_t *known = get(t, one);
	_cleanup_buf_ struct buf said = { 0 };

	assert_int_equal(json_int(brief, "exitCode", -1), 1);
	assert_int_equal(files_below(dir), 0);
	assert_string_equal(json_str(known, "status"), "ended");
	assert_int_equal(json_int(known, "exitCode", -1), 1);
	assert_int_equal(call_raw(t,
				  &(struct call){ .method = "GET",
						  .path = output,
						  .accept = "application/octet-stream" },
				  &said),
			 200);
	assert_int_equal(said.len, 0);
}

static void expect_output(struct api_test *t, const char *id, int since, const char *text)
{
	_cleanup_free_ char *path = xasprintf("/api/execs/%s/output?since=%d", id, since);
	_cleanup_buf_ struct buf said = { 0 };

	assert_int_equal(call_raw(t,
				  &(struct call){ .method = "GET",
						  .path = path,
						  .accept = "application/octet-stream" },
				  &said),
			 200);
	assert_string_equal(buf_str(&said), text);
}

static void what_a_brief_exec_said_can_be_read_again(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	_cleanup_json_ json_t *whole = run_whole(t, path, "{\"command\": [\"echo\", \"hello\"]}");
	_cleanup_json_ json_t *lines =
		run_stream(t, CALL("POST", path, "{\"command\": [\"echo\", \"hello\"]}"));
	const char *streamed = json_str(json_array_get(lines, 0), "execId");

	assert_string_equal(json_str(whole, "stdout"), "hello\n");
	expect_output(t, json_str(whole, "execId"), 0, "hello\n");
	expect_output(t, json_str(whole, "execId"), 2, "llo\n");
	assert_string_equal(json_str(last_of(lines), "type"), "exit");
	expect_output(t, streamed, 0, "hello\n");
	expect_output(t, streamed, 6, "");
}

/* A command that says "first" at once and "last" when it may. */
static char *two_words(struct api_test *t, char **go)
{
	*go = xasprintf("%s/go", t->dir);
	return xasprintf("echo first; until [ -e %s ]; do sleep 0.01; done; echo last", *go);
}

static void say_go(const char *go)
{
	assert_int_equal(file_replace(AT_FDCWD, go, "", 0, 0600, NULL), 0);
}

static void first_words_come_before_there_are_files(void **state)
{
	struct api_test *t = *state;
	char lease_id[ID_SIZE], id[ID_SIZE];
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };
	_cleanup_free_ char *go = NULL, *command = two_words(t, &go);
	_cleanup_free_ char *dir = xasprintf("%s/execs", t->data);
	_cleanup_exec_view_ struct exec_view view = { 0 };
	char *argv[] = { "sh", "-c", command, NULL };
	struct live_exec *live;
	struct runlog_chunk chunk;

	take_id(acquire(t, t->box, "{}"), lease_id);
	assert_int_equal(
		lease_use(t->server->leases, lease_id, GENERATION_UNCHECKED, &lease, &place, NULL),
		0);
	id_new(id);

	const struct exec_spec spec = {
		.exec_id = id, .place_id = place.id, .generation = lease.generation, .argv = argv
	};
	const struct exec_order order = { .place = &place,
					  .lease_id = lease.id,
					  .spec = &spec,
					  .unannounced = true,
					  .first_words = true };

	assert_int_equal(execs_start(t->server->execs, &order, &live, NULL), 0);
	assert_int_equal(exec_view_new(t->server, id, live, &view, NULL), 0);
	/* Under load its first words may come too late to be waited for. */
	if (live_exec_is_deferred(live)) {
		assert_int_equal(files_below(dir), 0);
		assert_int_equal(exec_view_read(&view, 100, &chunk, NULL), 1);
		assert_memory_equal(chunk.data, "first\n", 6);
		assert_int_equal(live_exec_detach(live, NULL), 0);
		assert_false(live_exec_is_deferred(live));
	}
	/* Its output, and no record before it has ended. */
	assert_int_equal(files_below(dir), 2);
	say_go(go);
	WAIT_FOR(active(t) == 0);
	assert_int_equal(files_below(dir), 3);
	expect_output(t, id, 0, "first\nlast\n");
}

/* The only exec of a lease, as it is shown. */
static json_t *the_exec(struct api_test *t, const char *lease)
{
	PATH("/api/environment-leases/%s/execs", lease);
	_cleanup_json_ json_t *list = get(t, path);

	assert_int_equal(json_array_size(list), 1);
	return json_incref(json_array_get(list, 0));
}

static void the_next_server_knows_from_the_relay_what_runs(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	_cleanup_free_ char *detached = xasprintf("%s?detach=1", path);
	_cleanup_json_ json_t *started =
		post(t, 201, detached,
		     "{\"command\": [\"sleep\", \"600\"], \"env\": {\"TOKEN\": \"hidden-value\"}, "
		     "\"tty\": {\"rows\": 31, \"cols\": 92}, \"onDisconnect\": \"kill\"}");
	_cleanup_free_ char *show = xasprintf("/api/execs/%s", json_str(started, "id"));
	_cleanup_json_ json_t *before = the_exec(t, lease), *after = NULL, *again = NULL;
	_cleanup_free_ char *find =
		xasprintf("! grep -rqa hidden-value %s/execs %s/keeper/places", t->data, t->data);
	_cleanup_free_ char *noted = xasprintf("grep -rqa %s %s/keeper/places", lease, t->data);
	_cleanup_free_ char *recent = xasprintf("%s/execs/recent", t->data);

	/* A moment after its start its relay has it on disk: no server has to reach the relay first. */
	WAIT_FOR(system(noted) == 0);
	for (int server = 0; server < 2; server++) {
		server_end(t);
		server_begin(t, true);
		assert_int_equal(files_below(recent), 0);
	}
	after = the_exec(t, lease);
	assert_string_equal(json_str(after, "id"), json_str(started, "id"));
	json_object_del(after, "statusReason");
	assert_true(json_equal(before, after));
	again = get(t, show);
	assert_int_equal(json_int(json_object_at(again, "tty"), "rows", 0), 31);
	assert_int_equal(system(find), 0);
}

static void a_command_that_no_server_reported_is_found(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	_cleanup_free_ char *detached = xasprintf("%s?detach=1", path);
	_cleanup_free_ char *go = xasprintf("%s/go", t->dir);
	_cleanup_free_ char *body =
		xasprintf("{\"command\": [\"sh\", \"-c\", \"until [ -e %s ]; do "
			  "sleep 0.01; done; echo out\"]}",
			  go);
	_cleanup_free_ char *clear = xasprintf("find %s/execs/scratch -type f -delete", t->data);
	_cleanup_json_ json_t *started = post(t, 201, detached, body), *found = NULL;

	server_end(t);
	/* As a server leaves it that died before it could answer. */
	assert_int_equal(system(clear), 0);
	server_begin(t, true);
	WAIT_FOR(active(t) == 1);
	found = the_exec(t, lease);
	assert_true(
		json_equal(json_object_get(found, "command"), json_object_get(started, "command")));
	assert_true(json_bool(found, "found", false));
	say_go(go);
	WAIT_FOR(active(t) == 0);
	expect_output(t, json_str(started, "id"), 0, "out\n");
}

static bool has_ended(struct api_test *t, const char *id, int code)
{
	PATH("/api/execs/%s", id);
	_cleanup_json_ json_t *exec = get(t, path);

	return str_equal(json_str(exec, "status"), "ended") &&
	       json_int(exec, "exitCode", -1) == code;
}

static void an_end_that_cannot_be_written_down_is_known_all_the_same(void **state)
{
	struct api_test *t = *state;
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	_cleanup_free_ char *detached = xasprintf("%s?detach=1", path);
	_cleanup_free_ char *recent = xasprintf("%s/execs/recent", t->data);
	_cleanup_json_ json_t *started =
		post(t, 201, detached,
		     "{\"command\": [\"sh\", \"-c\", \"sleep 0.2; echo out; exit 6\"]}");
	const char *id = json_str(started, "id");

	assert_int_equal(rmdir(recent), 0);
	WAIT_FOR(active(t) == 0);
	assert_true(has_ended(t, id, 6));
	expect_output(t, id, 0, "out\n");
	/* The relay was not told to forget it. */
	server_end(t);
	server_begin(t, true);
	WAIT_FOR(files_below(recent) == 1);
	assert_true(has_ended(t, id, 6));
	expect_output(t, id, 0, "out\n");
}

/*
 * As a server leaves it that died between an exec's first words and the files for them; or one of
 * the revision before, which wrote down in one file which commands had begun.
 */
static void take_up_without_files(struct api_test *t, bool from_old_file)
{
	char lease[ID_SIZE];
	_cleanup_free_ char *path = exec_path(t, lease);
	_cleanup_free_ char *go = NULL, *command = two_words(t, &go);
	_cleanup_free_ char *body = xasprintf("{\"command\": [\"sh\", \"-c\", \"%s\"]}", command);
	_cleanup_free_ char *clear = xasprintf("find %s/execs/scratch -type f -delete", t->data);
	_cleanup_free_ char *old = xasprintf("%s/execs/begun", t->data), *text = NULL;
	_cleanup_json_ json_t *exec = NULL;
	int fd = open_stream(t, path, body, NULL);

	WAIT_FOR(active(t) == 1);
	exec = the_exec(t, lease);
	text = json_text(exec);
	server_end(t);
	close(fd);
	assert_int_equal(system(clear), 0);
	if (from_old_file)
		assert_int_equal(file_replace(AT_FDCWD, old, text, strlen(text), 0600, NULL), 0);
	server_begin(t, true);
	assert_int_equal(access(old, F_OK), -1);
	WAIT_FOR(active(t) == 1);
	say_go(go);
	WAIT_FOR(active(t) == 0);
	expect_output(t, json_str(exec, "id"), 0, "first\nlast\n");
}

static void an_exec_without_files_is_taken_up_with_all_it_said(void **state)
{
	take_up_without_files(*state, false);
}

static void an_exec_that_an_earlier_revision_wrote_down_is_taken_up_too(void **state)
{
	take_up_without_files(*state, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		api_unit_test(an_exec_streams_start_output_and_exit),
		api_unit_test(bytes_of_any_kind_come_through),
		api_unit_test(a_whole_answer_is_bounded),
		api_unit_test(how_it_ended_is_told),
		api_unit_test(bad_requests_run_nothing),
		api_unit_test(a_client_that_hangs_up_does_not_end_its_exec),
		api_unit_test(releasing_the_lease_ends_its_execs),
		api_unit_test(the_same_key_gives_the_same_exec_from_its_first_byte),
		api_unit_test(a_key_joins_an_exec_that_is_still_going),
		api_unit_test(the_end_that_a_dead_server_did_not_write_down_is_told_by_the_relay),
		api_unit_test(an_exec_that_could_not_start_leaves_nothing_behind),
		api_unit_test(a_brief_silent_exec_leaves_no_file_and_is_known_all_the_same),
		api_unit_test(what_a_brief_exec_said_can_be_read_again),
		api_unit_test(first_words_come_before_there_are_files),
		api_unit_test(an_exec_without_files_is_taken_up_with_all_it_said),
		api_unit_test(an_exec_that_an_earlier_revision_wrote_down_is_taken_up_too),
		api_unit_test(the_next_server_knows_from_the_relay_what_runs),
		api_unit_test(a_command_that_no_server_reported_is_found),
		api_unit_test(an_end_that_cannot_be_written_down_is_known_all_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The fake provider as a cloud that offers nothing but "execute". */
#include "places.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>
#include "base/spawn.h"

#define BARE "{\"provider\":\"fake\",\"image\":\"debian:12\",\"reuseLease\":true,\"relay\":false}"
#define PLAIN "{\"provider\":\"fake\",\"image\":\"debian:12\",\"reuseLease\":true}"
#define COMMAND(...) ((char *const[]){ __VA_ARGS__, NULL })
#define SCRIPT(text) COMMAND((char *)"sh", (char *)"-c", (char *)(text))
#define PATIENCE_MS 10000

struct memory_log {
	struct places *p;
	json_t *config;
	struct made_place lease;
};

static void hold(struct memory_log *h, struct places *p, const char *config)
{
	struct place_view request = { .environment_id = ENV_1,
				      .run_id = RUN_1,
				      .lease_id = LEASE_1 };
	_cleanup_error_ struct error err = { 0 };

	*h = (struct memory_log){ .p = p, .config = J(config) };
	request.config.json = h->config;
	if (fake_acquire(p, &request, &h->lease, &err) < 0)
		fail_msg("%s", err.message);
}

static void held_clear(struct memory_log *h)
{
	json_decref(h->config);
	made_place_clear(&h->lease);
}
#define _cleanup_held_ _cleanup_(held_clear)

static int execute_call(struct memory_log *h, const struct one_shot_call *call,
			struct one_shot_result *result, struct error *err)
{
	const struct place_view place = { .ref = h->lease.ref,
					  .config = { h->config },
					  .metadata = h->lease.metadata };

	return h->p->fake->execute(h->p->fake, &place, call, result, err);
}

static int execute(struct memory_log *h, char *const *argv, struct one_shot_result *result,
		   struct error *err)
{
	struct one_shot_call call = {
		.argv = argv, .timeout_ms = PATIENCE_MS, .output_max = 4096, .cancel_fd = -1
	};

	*result = (struct one_shot_result){ .exit_code = -1 };
	return execute_call(h, &call, result, err);
}

static void a_place_without_a_relay_says_so_and_runs_commands_in_its_directory(void **state)
{
	_cleanup_held_ struct memory_log h = { 0 };
	_cleanup_one_shot_result_ struct one_shot_result r = { 0 };

	hold(&h, *state, BARE);
	assert_true(h.lease.no_relay);
	assert_true(json_is_false(json_object_get(h.lease.metadata, "relay")));
	assert_int_equal(execute(&h, SCRIPT("pwd; exit 3"), &r, NULL), 0);
	assert_int_equal(r.exit_code, 3);
	assert_true(str_starts(buf_str(&r.out), json_str(h.lease.metadata, "remoteCwd")));
	assert_false(r.out_cut || r.timed_out || r.cancelled || r.may_run);
}

static void the_usual_place_has_one(void **state)
{
	_cleanup_held_ struct memory_log h = { 0 };

	hold(&h, *state, PLAIN);
	assert_false(h.lease.no_relay);
	assert_null(json_object_get(h.lease.metadata, "relay"));
}

static void places_with_and_without_a_relay_are_not_taken_for_each_other(void **state)
{
	struct places *p = *state;
	_cleanup_held_ struct memory_log h = { 0 };
	_cleanup_json_ json_t *plain = J(PLAIN), *from = NULL;
	_cleanup_(made_place_clear) struct made_place other = { 0 };
	_cleanup_error_ struct error err = { 0 };
	struct place_view request = {
		.config = { plain }, .environment_id = ENV_1, .run_id = RUN_1, .lease_id = LEASE_1
	};

	hold(&h, p, BARE);
	assert_int_equal(fake_acquire(p, &request, &other, &err), -1);
	assert_says(&err, ERR_CONFLICT, "exists without a relay");
	/* What metadata says is enough to finish it. */
	from = h.p->fake->config_from_metadata(h.lease.metadata);
	assert_json(from, BARE);
}

static void the_key_is_typed(void **state)
{
	_cleanup_json_ json_t *config = J("{\"provider\":\"fake\",\"relay\":\"no\"}");
	_cleanup_json_ json_t *bare = J(BARE);
	struct places *p = *state;
	_cleanup_json_ json_t *normal = p->fake->normalize(p->fake, bare, true, NULL);
	_cleanup_error_ struct error err = { 0 };

	assert_null(p->fake->normalize(p->fake, config, true, &err));
	assert_int_equal(err.code, ERR_UNPROCESSABLE);
	assert_json(normal, BARE);
}

static void output_is_bounded_and_input_may_be_left_unread(void **state)
{
	_cleanup_held_ struct memory_log h = { 0 };
	_cleanup_one_shot_result_ struct one_shot_result r = { 0 };
	_cleanup_buf_ struct buf input = { 0 };
	struct one_shot_call call = {
		.argv = SCRIPT("head -c 100000 /dev/zero; head -c 100 /dev/zero >&2"),
		.timeout_ms = PATIENCE_MS,
		.output_max = 1000,
		.cancel_fd = -1,
	};

	signal(SIGPIPE, SIG_IGN);
	hold(&h, *state, BARE);
	for (int i = 0; i < 300000; i++)
		buf_putc(&input, 'x');
	call.input = input.data;
	call.input_len = input.len;
	assert_int_equal(execute_call(&h, &call, &r, NULL), 0);
	assert_int_equal(r.out.len, 1000);
	assert_true(r.out_cut);
	assert_int_equal(r.err.len, 100);
	assert_false(r.err_cut);
	assert_int_equal(r.exit_code, 0);
}

static void faults_of_execute_apply_to_calls(void **state)
{
	_cleanup_held_ struct memory_log h = { 0 };
	_cleanup_one_shot_result_ struct one_shot_result r = { 0 };
	_cleanup_error_ struct error err = { 0 };

	hold(&h, *state,
	     "{\"provider\":\"fake\",\"relay\":false,"
	     "\"faults\":{\"execute\":{\"fail\":1,\"lose\":2,\"message\":\"not today\"}}}");
	assert_int_equal(execute(&h, SCRIPT("echo ran"), &r, &err), -1);
	assert_says(&err, ERR_UNAVAILABLE, "not today");
	assert_int_equal(execute(&h, SCRIPT("echo ran"), &r, &err), -1);
	assert_says(&err, ERR_LEASE_LOST, "does not exist any more");
}

static bool is_alive(pid_t pid)
{
	unsigned long long started = process_start_time(pid);

	return started && process_is(pid, started);
}

/* One that was killed has no mark any more, and is there for a moment longer. */
static bool has_ended(pid_t pid)
{
	for (int i = 0; i < PATIENCE_MS && is_alive(pid); i++)
		poll(NULL, 0, 1);
	return !is_alive(pid);
}

/* As if the server had died in the middle of the call: a process with the place's mark. */
static pid_t leave_running(struct memory_log *h)
{
	_cleanup_one_shot_result_ struct one_shot_result r = { 0 };
	_cleanup_free_ char *mark = NULL;
	struct spawn_spec spec = { .argv = COMMAND((char *)"sleep", (char *)"600"),
				   .stdin_fd = -1,
				   .stdout_fd = STDERR_FILENO,
				   .stderr_fd = STDERR_FILENO,
				   .new_session = true };
	pid_t pid;

	assert_int_equal(execute(h, SCRIPT("printf %s \"$BERTH_FAKE_PLACE\""), &r, NULL), 0);
	mark = xasprintf("BERTH_FAKE_PLACE=%s", buf_str(&r.out));
	spec.envp = (char *[]){ mark, NULL };
	assert_int_equal(spawn(&spec, &pid, NULL, NULL), 0);
	assert_true(is_alive(pid));
	return pid;
}

static void what_a_dead_server_left_running_ends_with_the_holding(void **state)
{
	_cleanup_held_ struct memory_log h = { 0 };
	pid_t pid;

	hold(&h, *state, BARE);
	pid = leave_running(&h);
	assert_int_equal(fake_release(h.p, h.config, h.lease.ref, "released", NULL), 0);
	assert_true(has_ended(pid));
	pid = leave_running(&h);
	assert_int_equal(fake_destroy(h.p, h.config, h.lease.ref, NULL), 0);
	assert_true(has_ended(pid));
	assert_false(path_exists(json_str(h.lease.metadata, "remoteCwd")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		places_test(a_place_without_a_relay_says_so_and_runs_commands_in_its_directory),
		places_test(the_usual_place_has_one),
		places_test(places_with_and_without_a_relay_are_not_taken_for_each_other),
		places_test(the_key_is_typed),
		places_test(output_is_bounded_and_input_may_be_left_unread),
		places_test(faults_of_execute_apply_to_calls),
		places_test(what_a_dead_server_left_running_ends_with_the_holding),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Commands and files in a place without a relay: real commands, one call each. */
#include "execs.h"
#include <stdatomic.h>
#include <sys/wait.h>
#include "place/files.h"
#include "driver/fake/fake_execute.h"

#define SHELL_PLACE "shell-place"
#define MARK "BERTH_FAKE_PLACE=test-of-the-shell-runner"
#define MEGABYTE ((size_t)1 << 20)

struct shell {
	struct execs *t;
	struct place_ref in;
	char root[96];
	atomic_int calls;
	/* What calls do instead of running a command; NULL: they run it. */
	one_shot_fn *instead;
	const char *sh; /* what "sh" is there; NULL: sh */
};

static int call_here(void *arg, const struct one_shot_call *call, struct one_shot_result *result,
		     struct error *err)
{
	struct shell *s = arg;
	struct one_shot_call here = *call;
	_cleanup_strv_ char **argv = strv_copy(call->argv);

	atomic_fetch_add(&s->calls, 1);
	if (s->instead)
		return s->instead(arg, call, result, err);
	if (s->sh && streq(argv[0], "sh")) {
		free(argv[0]);
		argv[0] = xstrdup(s->sh);
	}
	here.argv = argv;
	return fake_run(&here, s->root, MARK, result, err);
}

static void open_shell(struct shell *s, int64_t generation)
{
	struct exec_place place = place_with(SHELL_PLACE, generation);

	place.root = place.cwd = s->root;
	place.one_shot = (struct one_shot){ .call = call_here, .arg = s };
	assert_int_equal(places_open(s->t->places, &place, NULL), 0);
}

static int shell_setup(void **state)
{
	struct shell *s = calloc(1, sizeof(*s));
	void *t;

	assert_non_null(s);
	signal(SIGPIPE, SIG_IGN);
	execs_setup(&t);
	s->t = t;
	snprintf(s->root, sizeof(s->root), "%s/root", s->t->dir->path);
	assert_int_equal(mkdir(s->root, 0755), 0);
	open_shell(s, 1);
	s->in = (struct place_ref){ s->t->places, SHELL_PLACE, 1 };
	*state = s;
	return 0;
}

static int bash_setup(void **state)
{
	struct shell *s;

	shell_setup(state);
	s = *state;
	s->sh = "bash";
	return 0;
}

static int shell_teardown(void **state)
{
	struct shell *s = *state;
	void *t = s->t;
	int rc;

	assert_int_equal(fake_end_marked(MARK, 5000, NULL), 0);
	places_stop(s->t->places, SHELL_PLACE, EXEC_LEASE_LOST, PATIENCE_MS, NULL);
	rc = execs_teardown(&t);
	free(s);
	return rc;
}

#define with_shell(test) cmocka_unit_test_setup_teardown(test, shell_setup, shell_teardown)
#define with_bash(test)                                                                            \
	{                                                                                          \
#test "_in_bash", test, bash_setup, shell_teardown, NULL                           \
	}

static void prepare_there(struct shell *s, struct going *g, char *const *argv)
{
	prepare(s->t, g, argv);
	g->spec.place_id = SHELL_PLACE;
	g->spec.generation = 1;
	g->spec.cwd = NULL;
}

static void run_there(struct shell *s, struct going *g, char *const *argv)
{
	prepare_there(s, g, argv);
	run(s->t, g);
}

/* Commands */

static void a_command_runs_in_the_root_and_says_how_it_ended(void **state)
{
	struct shell *s = *state;
	_cleanup_free_ char *where = xasprintf("%s\n", s->root);
	struct going g;

	run_there(s, &g, SHELL_COMMAND("pwd; echo wrong >&2; exit 7"));
	assert_int_equal(g.result.exit_code, 7);
	assert_int_equal(g.result.reason, EXEC_EXITED);
	assert_int_equal(g.result.stdout_bytes, strlen(where));
	assert_int_equal(g.result.stderr_bytes, 6);
	expect_output(s->t, &g, RUNLOG_STDOUT, where);
	expect_output(s->t, &g, RUNLOG_STDERR, "wrong\n");
	run_there(s, &g, COMMAND((char *)"true"));
	assert_int_equal(g.result.exit_code, 0);
	run_there(s, &g, COMMAND((char *)"false"));
	assert_int_equal(g.result.exit_code, 1);
}

static void what_cannot_start_ends_as_a_shell_would_say(void **state)
{
	struct shell *s = *state;
	struct going g;

	run_there(s, &g, COMMAND((char *)"no-such-command"));
	assert_int_equal(g.result.exit_code, 127);
	assert_int_equal(g.result.reason, EXEC_EXITED);
	expect_output(s->t, &g, RUNLOG_STDERR, "no-such-command: command not found\n");
	run_there(s, &g, COMMAND((char *)"/etc/passwd"));
	assert_int_equal(g.result.exit_code, 126);
	run_there(s, &g, SHELL_COMMAND("kill -USR1 $$"));
	assert_int_equal(g.result.exit_code, -1);
	assert_int_equal(g.result.reason, EXEC_SIGNALLED);
	assert_string_equal(g.result.signal, "SIGUSR1");
}

static void fill(struct buf *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		buf_putc(data, (char)(unsigned char)(i * 7 + i / 256));
}

static void assert_same(const struct buf *got, const struct buf *want)
{
	assert_int_equal(got->len, want->len);
	assert_memory_equal(got->data, want->data, want->len);
}

static void every_byte_goes_in_and_comes_out(void **state)
{
	struct shell *s = *state;
	_cleanup_buf_ struct buf data = { 0 };
	_cleanup_buf_ struct buf out = { 0 };
	_cleanup_buf_ struct buf err = { 0 };
	struct going g;

	fill(&data, MEGABYTE + 13);
	prepare_there(s, &g, SHELL_COMMAND("tee /dev/stderr"));
	g.spec.stdin_data = data.data;
	g.spec.stdin_len = data.len;
	run(s->t, &g);
	assert_int_equal(g.result.exit_code, 0);
	read_output(s->t, &g, RUNLOG_STDOUT, &out);
	read_output(s->t, &g, RUNLOG_STDERR, &err);
	assert_same(&out, &data);
	assert_same(&err, &data);
}

static void input_that_nobody_reads_holds_nobody(void **state)
{
	struct shell *s = *state;
	_cleanup_buf_ struct buf data = { 0 };
	struct going g;

	fill(&data, MEGABYTE);
	prepare_there(s, &g, COMMAND((char *)"true"));
	g.spec.stdin_data = data.data;
	g.spec.stdin_len = data.len;
	run(s->t, &g);
	assert_int_equal(g.result.exit_code, 0);
}

static void the_environment_is_what_was_asked_for_and_cannot_pass_for_another_place(void **state)
{
	struct shell *s = *state;
	char *const asked[] = { (char *)"GREETING=a b", (char *)"BERTH_PLACE_ID=another", NULL };
	_cleanup_free_ char *want = xasprintf("a b," SHELL_PLACE ",%s,unset\n", s->root);
	struct going g;

	setenv("SECRET_OF_THE_SERVER", "x", 1);
	prepare_there(s, &g,
		      SHELL_COMMAND("echo \"$GREETING,$BERTH_PLACE_ID,$HOME,"
				    "${SECRET_OF_THE_SERVER-unset}\""));
	g.spec.env = asked;
	run(s->t, &g);
	expect_output(s->t, &g, RUNLOG_STDOUT, want);
}

static void output_past_the_bound_is_dropped_and_said_so(void **state)
{
	struct shell *s = *state;
	_cleanup_buf_ struct buf err = { 0 };
	struct going g;

	run_there(s, &g,
		  COMMAND((char *)"head", (char *)"-c", (char *)"9000000", (char *)"/dev/zero"));
	assert_int_equal(g.result.exit_code, 0);
	assert_int_equal(g.result.stdout_bytes, ONE_SHOT_OUTPUT_MAX);
	read_output(s->t, &g, RUNLOG_STDERR, &err);
	assert_non_null(strstr(buf_str(&err), "was not kept"));
}

/* Says its pid, and that of a child which has left its session. */
#define FAMILY                                                                                     \
	"setsid sh -c 'echo $$ >child; exec sleep 600' & echo $$ >parent; "                        \
	"while ! [ -s child ]; do sleep 0.01; done; sleep 600"

static pid_t pid_there(struct shell *s, const char *file)
{
	char path[32];

	snprintf(path, sizeof(path), "root/%s", file);
	return pid_in(s->t, path);
}

static void a_timeout_ends_the_whole_tree(void **state)
{
	struct shell *s = *state;
	struct going g;

	prepare_there(s, &g, SHELL_COMMAND("echo before; " FAMILY));
	g.spec.timeout_ms = 400;
	run(s->t, &g);
	assert_int_equal(g.result.reason, EXEC_TIMEOUT);
	assert_int_equal(g.result.exit_code, -1);
	expect_output(s->t, &g, RUNLOG_STDOUT, "before\n");
	assert_true(pid_there(s, "child") > 0);
	wait_until(!is_alive(pid_there(s, "child")) && !is_alive(pid_there(s, "parent")));
}

static void a_cancelled_command_is_ended_with_its_tree(void **state)
{
	struct shell *s = *state;
	struct going g;

	prepare_there(s, &g, SHELL_COMMAND(FAMILY));
	start_in_thread(s->t, &g);
	wait_until(pid_there(s, "child") > 0);
	assert_true(places_is_busy(s->t->places, SHELL_PLACE));
	assert_int_equal(places_cancel(s->t->places, g.id, EXEC_CANCELLED, false), 0);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_CANCELLED);
	wait_until(!is_alive(pid_there(s, "child")));
	assert_false(places_is_busy(s->t->places, SHELL_PLACE));
	assert_false(places_is_unfenced(s->t->places, SHELL_PLACE));
}

static void nothing_runs_before_it_is_waited_for(void **state)
{
	struct shell *s = *state;
	struct going g;

	prepare_there(s, &g, SHELL_COMMAND("echo >ran"));
	start(s->t, &g);
	assert_int_equal(exec_pid(g.exec), -1);
	assert_int_equal(s->calls, 0);
	/* Not wanted any more before it began: it never begins. */
	places_cancel(s->t->places, g.id, EXEC_CANCELLED, true);
	wait_in_thread(&g);
	assert_int_equal(g.rc, 0);
	assert_int_equal(g.result.reason, EXEC_CANCELLED);
	assert_int_equal(s->calls, 0);
}

static void stopping_the_place_ends_what_runs_there(void **state)
{
	struct shell *s = *state;
	struct going g, late;

	prepare_there(s, &g, SHELL_COMMAND(FAMILY));
	start_in_thread(s->t, &g);
	wait_until(pid_there(s, "child") > 0);
	assert_int_equal(places_stop(s->t->places, SHELL_PLACE, EXEC_LEASE_LOST, PATIENCE_MS, NULL),
			 0);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_LEASE_LOST);
	assert_false(is_alive(pid_there(s, "child")));
	prepare_there(s, &late, COMMAND((char *)"true"));
	expect_refused(s->t, &late, ERR_LEASE_ENDED);
}

static void a_server_that_goes_takes_its_calls_along(void **state)
{
	struct shell *s = *state;
	struct going g;

	prepare_there(s, &g, SHELL_COMMAND(FAMILY));
	start_in_thread(s->t, &g);
	wait_until(pid_there(s, "child") > 0);
	places_detach(s->t->places);
	assert_int_equal(pthread_join(g.thread, NULL), 0);
	assert_int_equal(g.rc, -1);
	assert_int_equal(g.err.code, ERR_UNAVAILABLE);
	wait_until(!is_alive(pid_there(s, "child")));
	places_free(s->t->places);
	server_starts(s->t);
	open_shell(s, 1);
	/* What became of it, the next one cannot know. */
	assert_int_equal(runlog_open(s->t->logs, g.id, &g.log, NULL), 0);
	g.spec.log = g.log;
	assert_int_equal(exec_adopt(s->t->places, &g.spec, &g.exec, &g.err), -1);
	assert_int_equal(g.err.code, ERR_PROCESS_LOST);
	assert_non_null(strstr(g.err.message, "no relay"));
	runlog_close(g.log);
}

static void assert_no_relay(struct error *err)
{
	assert_string_equal(error_code_name(err->code), "unsupported_environment");
	assert_non_null(strstr(err->message, "this place has no relay: "));
	error_clear(err);
}

static void what_it_lacks_is_refused_by_name(void **state)
{
	struct shell *s = *state;
	const struct exec_terminal terminal = { .rows = 24, .cols = 80 };
	struct error err = { 0 };
	size_t taken;
	struct going g;

	prepare_there(s, &g, COMMAND((char *)"true"));
	g.spec.terminal = &terminal;
	assert_int_equal(exec_start(s->t->places, &g.spec, &g.exec, &err), -1);
	assert_no_relay(&err);
	g.spec.terminal = NULL;
	g.spec.stdin_stream = true;
	assert_int_equal(exec_start(s->t->places, &g.spec, &g.exec, &err), -1);
	assert_no_relay(&err);
	g.spec.stdin_stream = false;
	g.spec.user = "nobody";
	assert_int_equal(exec_start(s->t->places, &g.spec, &g.exec, &err), -1);
	assert_no_relay(&err);
	runlog_close(g.log);

	prepare_there(s, &g, SHELL_COMMAND(FAMILY));
	start_in_thread(s->t, &g);
	wait_until(pid_there(s, "child") > 0);
	assert_int_equal(places_signal(s->t->places, g.id, SIGINT, EXEC_TO_GROUP, &err), -1);
	assert_no_relay(&err);
	assert_int_equal(places_resize(s->t->places, g.id, 24, 80, &err), -1);
	assert_no_relay(&err);
	assert_int_equal(places_write_stdin(s->t->places, g.id, "x", 1, false, 0, &taken, &err),
			 -1);
	assert_no_relay(&err);
	/* This one is the same as cancelling. */
	assert_int_equal(places_signal(s->t->places, g.id, SIGKILL, EXEC_TO_TREE, &err), 0);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_CANCELLED);
}

/* Providers that cannot end what they have started, or do not answer. */

static int wait_in_vain(void *arg, const struct one_shot_call *call, struct one_shot_result *result,
			struct error *err)
{
	struct pollfd p = { call->cancel_fd, POLLIN, 0 };

	(void)arg;
	(void)err;
	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	result->cancelled = result->may_run = true;
	buf_puts(&result->out, "so far");
	return 0;
}

static void a_command_that_cannot_be_ended_makes_the_place_loose_until_its_timeout(void **state)
{
	struct shell *s = *state;
	_cleanup_buf_ struct buf err = { 0 };
	struct going g;

	s->instead = wait_in_vain;
	prepare_there(s, &g, COMMAND((char *)"endless"));
	g.spec.timeout_ms = 1500;
	start_in_thread(s->t, &g);
	wait_until(s->calls == 1);
	assert_int_equal(places_stop(s->t->places, SHELL_PLACE, EXEC_LEASE_LOST, PATIENCE_MS, NULL),
			 0);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_LEASE_LOST);
	expect_output(s->t, &g, RUNLOG_STDOUT, "so far");
	read_output(s->t, &g, RUNLOG_STDERR, &err);
	assert_non_null(strstr(buf_str(&err), "may run until its timeout"));
	assert_true(places_is_unfenced(s->t->places, SHELL_PLACE));
	assert_false(places_is_unfenced(s->t->places, PLACE));
	wait_until(!places_is_unfenced(s->t->places, SHELL_PLACE));
}

static atomic_bool may_return;

static int heed_nobody(void *arg, const struct one_shot_call *call, struct one_shot_result *result,
		       struct error *err)
{
	(void)arg;
	(void)call;
	(void)err;
	wait_until(may_return);
	result->exit_code = 0;
	return 0;
}

static void a_call_that_does_not_return_is_no_end_of_the_holding(void **state)
{
	struct shell *s = *state;
	struct error err = { 0 };
	struct going g;

	s->instead = heed_nobody;
	may_return = false;
	prepare_there(s, &g, COMMAND((char *)"endless"));
	start_in_thread(s->t, &g);
	wait_until(s->calls == 1);
	assert_int_equal(places_stop(s->t->places, SHELL_PLACE, EXEC_LEASE_LOST, 50, &err), -1);
	assert_int_equal(err.code, ERR_TIMEOUT);
	/* Trying again cannot know better, but the place is not for others. */
	assert_true(places_is_unfenced(s->t->places, SHELL_PLACE));
	may_return = true;
	join(&g);
	assert_int_equal(g.result.exit_code, 0);
}

static int answer_nothing(void *arg, const struct one_shot_call *call,
			  struct one_shot_result *result, struct error *err)
{
	(void)arg;
	(void)call;
	(void)result;
	return error_set(err, ERR_TIMEOUT, "no answer");
}

static int refuse(void *arg, const struct one_shot_call *call, struct one_shot_result *result,
		  struct error *err)
{
	(void)arg;
	(void)call;
	(void)result;
	return error_set(err, ERR_UNAVAILABLE, "no capacity");
}

static int lose(void *arg, const struct one_shot_call *call, struct one_shot_result *result,
		struct error *err)
{
	(void)arg;
	(void)call;
	(void)result;
	return error_set(err, ERR_LEASE_LOST, "it is gone");
}

static void calls_that_fail_end_the_command_and_nothing_hangs(void **state)
{
	struct shell *s = *state;
	struct going g;

	s->instead = answer_nothing;
	prepare_there(s, &g, COMMAND((char *)"true"));
	start_in_thread(s->t, &g);
	pthread_join(g.thread, NULL);
	assert_int_equal(g.rc, -1);
	assert_int_equal(g.err.code, ERR_PROCESS_LOST);
	assert_true(places_is_unfenced(s->t->places, SHELL_PLACE));
	s->instead = refuse;
	prepare_there(s, &g, COMMAND((char *)"true"));
	start_in_thread(s->t, &g);
	pthread_join(g.thread, NULL);
	/* Not "unavailable", which would say that this server is going. */
	assert_int_equal(g.err.code, ERR_EXEC);
	s->instead = lose;
	run_there(s, &g, COMMAND((char *)"true"));
	assert_int_equal(g.result.reason, EXEC_LEASE_LOST);
}

/* Files */

static int put_with(struct shell *s, const char *path, const void *data, size_t len,
		    const struct file_write_options *options, struct error *err)
{
	struct file_writer *writer;
	struct file_info info;

	if (place_file_create(&s->in, path, options, &writer, err) < 0)
		return -1;
	if (file_writer_append(writer, data, len, err) < 0) {
		file_writer_abandon(writer);
		return -1;
	}
	if (file_writer_commit(writer, &info, err) < 0)
		return -1;
	assert_int_equal(info.size, len);
	assert_string_equal(info.path, path);
	assert_string_equal(info.type, "file");
	file_info_clear(&info);
	return 0;
}

static void put(struct shell *s, const char *path, const void *data, size_t len)
{
	struct error err = { 0 };

	if (put_with(s, path, data, len, &(struct file_write_options){ 0 }, &err) < 0)
		fail_msg("%s: %s", path, err.message);
}

static int get(struct shell *s, const char *path, int64_t offset, int64_t length, struct buf *out,
	       struct error *err)
{
	struct file_reader *reader;
	struct file_info info;
	char part[70000];
	ssize_t n;

	if (place_file_open(&s->in, path, offset, length, &info, &reader, err) < 0)
		return -1;
	file_info_clear(&info);
	while ((n = file_reader_next(reader, part, sizeof(part), err)) > 0)
		buf_append(out, part, (size_t)n);
	file_reader_close(reader);
	return n < 0 ? -1 : 0;
}

static void expect_text(struct shell *s, const char *path, const char *text)
{
	_cleanup_buf_ struct buf got = { 0 };
	struct error err = { 0 };

	if (get(s, path, 0, -1, &got, &err) < 0)
		fail_msg("%s: %s", path, err.message);
	assert_string_equal(buf_str(&got), text);
}

#define expect_code(call, wanted)                                                                  \
	do {                                                                                       \
		struct error err = { 0 };                                                          \
		assert_int_equal((call), -1);                                                      \
		if (err.code != (wanted))                                                          \
			fail_msg("%s: %s", error_code_name(err.code), err.message);                \
		error_clear(&err);                                                                 \
	} while (0)

static int get_nothing(struct shell *s, const char *path, struct error *err)
{
	_cleanup_buf_ struct buf out = { 0 };

	return get(s, path, 0, -1, &out, err);
}

static int put_nothing(struct shell *s, const char *path, struct error *err)
{
	return put_with(s, path, "", 0, &(struct file_write_options){ 0 }, err);
}

static void contents_come_back_as_they_went(void **state)
{
	struct shell *s = *state;
	_cleanup_buf_ struct buf data = { 0 };
	_cleanup_buf_ struct buf got = { 0 };
	_cleanup_buf_ struct buf part = { 0 };

	fill(&data, 3 * MEGABYTE + 7);
	put(s, "big", data.data, data.len);
	assert_int_equal(get(s, "big", 0, -1, &got, NULL), 0);
	assert_same(&got, &data);
	assert_int_equal(get(s, "big", (int64_t)MEGABYTE - 3, 10, &part, NULL), 0);
	assert_int_equal(part.len, 10);
	assert_memory_equal(part.data, data.data + MEGABYTE - 3, 10);
	buf_reset(&part);
	assert_int_equal(get(s, "/big", (int64_t)data.len - 2, 10, &part, NULL), 0);
	assert_int_equal(part.len, 2);
	buf_reset(&part);
	assert_int_equal(get(s, "big", (int64_t)data.len + 5, -1, &part, NULL), 0);
	assert_int_equal(get(s, "big", 5, 0, &part, NULL), 0);
	assert_int_equal(part.len, 0);
	/* Exactly a block, and nothing at all. */
	put(s, "big", data.data, MEGABYTE);
	buf_reset(&got);
	assert_int_equal(get(s, "big", 0, -1, &got, NULL), 0);
	assert_int_equal(got.len, MEGABYTE);
	put(s, "big", "", 0);
	expect_text(s, "big", "");
}

static size_t entries_in(struct shell *s, const char *path)
{
	_cleanup_json_ json_t *page = place_file_list(&s->in, path, NULL, 0, NULL);

	assert_non_null(page);
	return json_array_size(json_array_at(page, "entries"));
}

static void no_name_is_too_odd(void **state)
{
	static const char *const names[] = {
		"-rf",      "--", "a b", " ",    "new\nline", "end\n", "\n",    "*",   "[x]",
		"?",        "'",  "\"",  "`id`", "$(id)",     "$HOME", "\\",    "\\n", ".hidden",
		"..almost", "#",  "~",   "%s",   "\xff\xfe",  "a=b",   ";exit", "|",
	};
	struct shell *s = *state;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_free_ char *inside = xasprintf("d%s/%s", names[i], names[i]);
		_cleanup_free_ char *dir = xasprintf("d%s", names[i]);
		struct file_info info;

		put(s, names[i], names[i], strlen(names[i]));
		expect_text(s, names[i], names[i]);
		assert_int_equal(place_file_stat(&s->in, names[i], &info, NULL), 0);
		assert_int_equal(info.size, strlen(names[i]));
		file_info_clear(&info);
		assert_int_equal(place_file_mkdir(&s->in, dir, 0755, false, NULL), 0);
		assert_int_equal(place_file_rename(&s->in, names[i], inside, false, NULL), 0);
		expect_text(s, inside, names[i]);
		assert_int_equal(entries_in(s, dir), 1);
		assert_int_equal(place_file_chmod(&s->in, inside, 0600, NULL), 0);
		expect_code(place_file_stat(&s->in, names[i], &info, &err), ERR_NOT_FOUND);
	}
	assert_int_equal(entries_in(s, "."), ARRAY_SIZE(names));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_free_ char *dir = xasprintf("d%s", names[i]);

		expect_code(place_file_remove(&s->in, dir, false, &err), ERR_CONFLICT);
		assert_int_equal(place_file_remove(&s->in, dir, true, NULL), 0);
	}
	assert_int_equal(entries_in(s, ""), 0);
}

static void link_there(struct shell *s, const char *target, const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", s->root, name);

	assert_int_equal(symlink(target, path), 0);
}

static void nothing_outside_the_root_is_touched(void **state)
{
	static const char *const ways_out[] = { "..",         "../canary",    "a/../../canary",
						"out/canary", "updir/canary", "a/up/canary" };
	struct shell *s = *state;
	_cleanup_free_ char *outside = xasprintf("%s/outside", s->t->dir->path);
	_cleanup_free_ char *canary = xasprintf("%s/canary", outside);
	_cleanup_free_ char *away = xasprintf("%s/canary", s->t->dir->path);
	_cleanup_buf_ struct buf kept = { 0 };
	struct file_info info;

	assert_int_equal(mkdir(outside, 0755), 0);
	assert_int_equal(file_replace(s->t->dir->fd, "canary", "alive", 5, 0644, NULL), 0);
	assert_int_equal(rename(away, canary), 0);
	assert_int_equal(place_file_mkdir(&s->in, "a", 0755, false, NULL), 0);
	link_there(s, outside, "out");
	link_there(s, "../outside", "updir");
	link_there(s, "../../outside", "a/up");
	link_there(s, canary, "absolute");
	link_there(s, "../outside/canary", "relative");
	link_there(s, "loop", "loop");
	for (size_t i = 0; i < ARRAY_SIZE(ways_out); i++) {
		expect_code(get_nothing(s, ways_out[i], &err), ERR_BAD_PATH);
		expect_code(put_nothing(s, ways_out[i], &err), ERR_BAD_PATH);
		expect_code(place_file_stat(&s->in, ways_out[i], &info, &err), ERR_BAD_PATH);
		expect_code(place_file_remove(&s->in, ways_out[i], true, &err), ERR_BAD_PATH);
		expect_code(place_file_chmod(&s->in, ways_out[i], 0, &err), ERR_BAD_PATH);
		expect_code(place_file_rename(&s->in, ways_out[i], "x", false, &err), ERR_BAD_PATH);
		expect_code(place_file_rename(&s->in, "a", ways_out[i], false, &err), ERR_BAD_PATH);
		expect_code(place_file_mkdir(&s->in, ways_out[i], 0755, true, &err), ERR_BAD_PATH);
	}
	expect_code(get_nothing(s, "absolute", &err), ERR_BAD_PATH);
	expect_code(get_nothing(s, "relative", &err), ERR_BAD_PATH);
	expect_code(get_nothing(s, "loop", &err), ERR_BAD_PATH);
	/* A link is not written through, nor is its mode changed; it can be looked at and removed.
	 */
	expect_code(put_nothing(s, "absolute", &err), ERR_UNPROCESSABLE);
	expect_code(place_file_chmod(&s->in, "absolute", 0, &err), ERR_UNPROCESSABLE);
	assert_null(place_file_list(&s->in, "out", NULL, 0, NULL));
	assert_int_equal(place_file_stat(&s->in, "relative", &info, NULL), 0);
	assert_string_equal(info.type, "symlink");
	assert_string_equal(info.target, "../outside/canary");
	file_info_clear(&info);
	assert_int_equal(place_file_remove(&s->in, "out", true, NULL), 0);
	for (size_t i = 0; i < 2; i++)
		expect_code(place_file_remove(&s->in, i ? "." : "/", true, &err), ERR_BAD_PATH);
	assert_int_equal(file_read(s->t->dir->fd, "outside/canary", &kept, 100, NULL), 0);
	assert_string_equal(buf_str(&kept), "alive");
}

static void links_that_stay_inside_are_followed(void **state)
{
	struct shell *s = *state;

	assert_int_equal(place_file_mkdir(&s->in, "a/b", 0755, true, NULL), 0);
	put(s, "a/b/file", "found", 5);
	link_there(s, "a/b", "way");
	link_there(s, "../way/file", "a/there");
	expect_text(s, "way/file", "found");
	expect_text(s, "a/there", "found");
	put(s, "way/new", "made", 4);
	expect_text(s, "a/b/new", "made");
}

static void a_file_appears_whole_or_not_at_all(void **state)
{
	struct shell *s = *state;
	_cleanup_buf_ struct buf data = { 0 };
	struct file_writer *writer;
	struct file_info info;

	fill(&data, 2 * MEGABYTE);
	put(s, "file", "old", 3);
	assert_int_equal(
		place_file_create(&s->in, "file", &(struct file_write_options){ 0 }, &writer, NULL),
		0);
	assert_int_equal(file_writer_append(writer, data.data, data.len, NULL), 0);
	expect_text(s, "file", "old");
	/* The hidden one is there, and goes when nobody wants it. */
	assert_int_equal(entries_in(s, "."), 2);
	file_writer_abandon(writer);
	assert_int_equal(entries_in(s, "."), 1);
	expect_text(s, "file", "old");
	assert_int_equal(place_file_chmod(&s->in, "file", 0640, NULL), 0);
	put(s, "file", data.data, data.len);
	assert_int_equal(place_file_stat(&s->in, "file", &info, NULL), 0);
	assert_int_equal(info.mode, 0640);
	file_info_clear(&info);
	assert_int_equal(
		put_with(s, "file", "x", 1, &(struct file_write_options){ .mode = 0751 }, NULL), 0);
	assert_int_equal(place_file_stat(&s->in, "file", &info, NULL), 0);
	assert_int_equal(info.mode, 0751);
	file_info_clear(&info);
	expect_code(put_with(s, "file", data.data, data.len,
			     &(struct file_write_options){ .no_clobber = true }, &err),
		    ERR_CONFLICT);
	expect_code(put_with(s, "file", "y", 1, &(struct file_write_options){ .no_clobber = true },
			     &err),
		    ERR_CONFLICT);
	expect_text(s, "file", "x");
	assert_int_equal(put_with(s, "other", "y", 1,
				  &(struct file_write_options){ .no_clobber = true }, NULL),
			 0);
	assert_int_equal(entries_in(s, "."), 2);
}

static void directories_files_and_the_rest_are_told_apart(void **state)
{
	struct shell *s = *state;
	_cleanup_free_ char *fifo = xasprintf("%s/fifo", s->root);
	struct file_info info;

	expect_code(place_file_mkdir(&s->in, "a/b", 0755, false, &err), ERR_NOT_FOUND);
	assert_int_equal(place_file_mkdir(&s->in, "a/b", 0700, true, NULL), 0);
	assert_int_equal(place_file_mkdir(&s->in, "a/b", 0700, true, NULL), 0);
	expect_code(place_file_mkdir(&s->in, "a/b", 0700, false, &err), ERR_CONFLICT);
	assert_int_equal(place_file_stat(&s->in, "a/b", &info, NULL), 0);
	assert_string_equal(info.type, "directory");
	assert_int_equal(info.mode, 0700);
	file_info_clear(&info);
	put(s, "file", "x", 1);
	assert_int_equal(mkfifo(fifo, 0644), 0);
	expect_code(get_nothing(s, "a", &err), ERR_UNPROCESSABLE);
	expect_code(get_nothing(s, "fifo", &err), ERR_UNPROCESSABLE);
	expect_code(put_nothing(s, "fifo", &err), ERR_UNPROCESSABLE);
	expect_code(put_nothing(s, "a", &err), ERR_UNPROCESSABLE);
	expect_code(put_nothing(s, "nowhere/file", &err), ERR_NOT_FOUND);
	expect_code(put_nothing(s, "file/below", &err), ERR_NOT_FOUND);
	expect_code(get_nothing(s, "nothing", &err), ERR_NOT_FOUND);
	assert_null(place_file_list(&s->in, "file", NULL, 0, NULL));
	/* Renaming: over a file, over an empty directory, not over a full one, not into itself. */
	put(s, "second", "y", 1);
	expect_code(place_file_rename(&s->in, "second", "file", true, &err), ERR_CONFLICT);
	assert_int_equal(place_file_rename(&s->in, "second", "file", false, NULL), 0);
	expect_text(s, "file", "y");
	assert_int_equal(place_file_rename(&s->in, "file", "third", true, NULL), 0);
	expect_text(s, "third", "y");
	assert_int_equal(place_file_mkdir(&s->in, "c", 0755, false, NULL), 0);
	expect_code(place_file_rename(&s->in, "c", "a", false, &err), ERR_CONFLICT);
	expect_code(place_file_rename(&s->in, "third", "c", false, &err), ERR_UNPROCESSABLE);
	expect_code(place_file_rename(&s->in, "a", "a/b/a", false, &err), ERR_BAD_PATH);
	assert_int_equal(place_file_rename(&s->in, "a", "c", false, NULL), 0);
	assert_int_equal(place_file_rename(&s->in, "c", "c", false, NULL), 0);
	assert_int_equal(entries_in(s, "c"), 1);
	assert_int_equal(place_file_remove(&s->in, "c/b", false, NULL), 0);
	assert_int_equal(place_file_remove(&s->in, "fifo", false, NULL), 0);
	expect_code(place_file_remove(&s->in, "fifo", false, &err), ERR_NOT_FOUND);
}

static void a_long_directory_is_listed_in_pages(void **state)
{
	struct shell *s = *state;
	_cleanup_json_ json_t *seen = json_object();
	_cleanup_free_ char *cursor = NULL;
	struct going g;
	int pages = 0;

	run_there(s, &g,
		  SHELL_COMMAND("mkdir d; cd d; seq 1 250 | xargs touch; ln -s 'a\nb' link"));
	do {
		_cleanup_json_ json_t *page = place_file_list(&s->in, "d", cursor, 60, NULL);
		json_t *entry;
		size_t i;

		assert_non_null(page);
		json_array_foreach (json_array_at(page, "entries"), i, entry) {
			if (str_equal(json_str(entry, "type"), "symlink"))
				assert_string_equal(json_str(entry, "target"), "a\nb");
			json_put_bool(seen, json_str(entry, "path"), true);
		}
		free(cursor);
		cursor = xstrdup(json_str(page, "nextCursor"));
		pages++;
	} while (cursor);
	assert_int_equal(pages, 5);
	assert_int_equal(json_object_size(seen), 251);
	assert_null(place_file_list(&s->in, "d", "nonsense", 60, NULL));
}

static void a_file_that_changes_while_it_is_read_is_not_mixed(void **state)
{
	struct shell *s = *state;
	_cleanup_buf_ struct buf data = { 0 };
	struct file_reader *reader;
	struct file_info info;
	struct error err = { 0 };
	char part[4096];
	ssize_t n;

	fill(&data, 2 * MEGABYTE);
	put(s, "file", data.data, data.len);
	assert_int_equal(place_file_open(&s->in, "file", 0, -1, &info, &reader, NULL), 0);
	file_info_clear(&info);
	assert_true(file_reader_next(reader, part, sizeof(part), NULL) > 0);
	put(s, "file", data.data, data.len);
	while ((n = file_reader_next(reader, part, sizeof(part), &err)) > 0)
		;
	assert_int_equal(n, -1);
	assert_int_equal(err.code, ERR_CONFLICT);
	file_reader_close(reader);
}

static int no_shell(void *arg, const struct one_shot_call *call, struct one_shot_result *result,
		    struct error *err)
{
	(void)arg;
	(void)call;
	(void)result;
	return error_set(err, ERR_COMMAND_NOT_FOUND, "sh: command not found");
}

static int babble(void *arg, const struct one_shot_call *call, struct one_shot_result *result,
		  struct error *err)
{
	(void)arg;
	(void)err;
	(void)call;
	result->exit_code = 0;
	buf_append(&result->out, "81a4 -1 x\0\0\n/", 12);
	return 0;
}

static void answers_of_an_odd_shell_are_refused(void **state)
{
	struct shell *s = *state;
	_cleanup_json_ json_t *page = NULL;
	struct file_info info;

	s->instead = no_shell;
	expect_code(place_file_stat(&s->in, "x", &info, &err), ERR_UNSUPPORTED_ENV);
	s->instead = babble;
	expect_code(place_file_stat(&s->in, "x", &info, &err), ERR_PROTOCOL);
	expect_code(get_nothing(s, "x", &err), ERR_PROTOCOL);
	expect_code(put_nothing(s, "x", &err), ERR_PROTOCOL);
	page = place_file_list(&s->in, ".", NULL, 0, NULL);
	assert_int_equal(json_array_size(json_array_at(page, "entries")), 0);
	s->instead = answer_nothing;
	expect_code(place_file_stat(&s->in, "x", &info, &err), ERR_TIMEOUT);
	s->instead = NULL;
	/* And nothing at all once the place is another holder's. */
	open_shell(s, 2);
	expect_code(place_file_stat(&s->in, "x", &info, &err), ERR_STALE_GENERATION);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_shell(a_command_runs_in_the_root_and_says_how_it_ended),
		with_shell(what_cannot_start_ends_as_a_shell_would_say),
		with_shell(every_byte_goes_in_and_comes_out),
		with_shell(input_that_nobody_reads_holds_nobody),
		with_shell(the_environment_is_what_was_asked_for_and_cannot_pass_for_another_place),
		with_shell(output_past_the_bound_is_dropped_and_said_so),
		with_shell(a_timeout_ends_the_whole_tree),
		with_shell(a_cancelled_command_is_ended_with_its_tree),
		with_shell(nothing_runs_before_it_is_waited_for),
		with_shell(stopping_the_place_ends_what_runs_there),
		with_shell(a_server_that_goes_takes_its_calls_along),
		with_shell(what_it_lacks_is_refused_by_name),
		with_shell(a_command_that_cannot_be_ended_makes_the_place_loose_until_its_timeout),
		with_shell(a_call_that_does_not_return_is_no_end_of_the_holding),
		with_shell(calls_that_fail_end_the_command_and_nothing_hangs),
		with_shell(contents_come_back_as_they_went),
		with_shell(no_name_is_too_odd),
		with_shell(nothing_outside_the_root_is_touched),
		with_shell(links_that_stay_inside_are_followed),
		with_shell(a_file_appears_whole_or_not_at_all),
		with_shell(directories_files_and_the_rest_are_told_apart),
		with_shell(a_long_directory_is_listed_in_pages),
		with_shell(a_file_that_changes_while_it_is_read_is_not_mixed),
		with_shell(answers_of_an_odd_shell_are_refused),
		with_bash(no_name_is_too_odd),
		with_bash(nothing_outside_the_root_is_touched),
		with_bash(directories_files_and_the_rest_are_told_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "execs.h"
#include <fcntl.h>

static void fill(unsigned char *data, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++) {
		seed = seed * 1103515245u + 12345u;
		data[i] = (unsigned char)(seed >> 16);
	}
}

static void write_bytes(struct execs *t, const char *name, const void *data, size_t len)
{
	int fd = openat(t->dir->fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, data, len, NULL), 0);
	close(fd);
}

static void a_command_runs_and_tells_how_it_ended(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, SHELL_COMMAND("echo out; echo err >&2; exit 7"));
	start(t, &g);
	assert_true(exec_pid(g.exec) > 0);
	wait_in_thread(&g);
	assert_int_equal(g.rc, 0);
	assert_int_equal(g.result.exit_code, 7);
	assert_int_equal(g.result.reason, EXEC_EXITED);
	assert_string_equal(g.result.signal, "");
	assert_int_equal(g.result.stdout_bytes, 4);
	assert_int_equal(g.result.stderr_bytes, 4);
	expect_output(t, &g, RUNLOG_STDOUT, "out\n");
	expect_output(t, &g, RUNLOG_STDERR, "err\n");
}

static void a_command_that_dies_by_a_signal_says_which(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, SHELL_COMMAND("kill -9 $$"));
	run(t, &g);
	assert_int_equal(g.result.exit_code, -1);
	assert_int_equal(g.result.reason, EXEC_SIGNALLED);
	assert_string_equal(g.result.signal, "SIGKILL");
}

static void binary_output_of_both_streams_is_kept_byte_for_byte(void **state)
{
	struct execs *t = *state;
	struct going g;
	_cleanup_buf_ struct buf out = { 0 }, errors = { 0 };
	size_t len = 5000011;
	_cleanup_free_ unsigned char *one = xmalloc(len), *two = xmalloc(len);

	fill(one, len, 1);
	fill(two, len, 2);
	write_bytes(t, "one", one, len);
	write_bytes(t, "two", two, len);
	prepare(t, &g, SHELL_COMMAND("cat two >&2 & cat one; wait"));
	run(t, &g);
	assert_int_equal(g.result.reason, EXEC_EXITED);
	assert_int_equal(g.result.stdout_bytes, len);
	assert_int_equal(g.result.stderr_bytes, len);
	read_output(t, &g, RUNLOG_STDOUT, &out);
	read_output(t, &g, RUNLOG_STDERR, &errors);
	assert_int_equal(out.len, len);
	assert_int_equal(errors.len, len);
	assert_memory_equal(out.data, one, len);
	assert_memory_equal(errors.data, two, len);
}

static void a_megabyte_of_stdin_comes_back(void **state)
{
	struct execs *t = *state;
	struct going g;
	_cleanup_buf_ struct buf out = { 0 };
	size_t len = 1 << 20;
	unsigned char *data = xmalloc(len);
	_cleanup_free_ unsigned char *copy = xmalloc(len);

	fill(data, len, 3);
	memcpy(copy, data, len);
	prepare(t, &g, COMMAND((char *)"cat"));
	g.spec.stdin_data = data;
	g.spec.stdin_len = len;
	start(t, &g);
	/* The caller's bytes are its own again once the exec has started. */
	memset(data, 0, len);
	free(data);
	wait_in_thread(&g);
	assert_int_equal(g.rc, 0);
	assert_int_equal(g.result.exit_code, 0);
	read_output(t, &g, RUNLOG_STDOUT, &out);
	assert_int_equal(out.len, len);
	assert_memory_equal(out.data, copy, len);
}

static void stdin_that_is_never_read_blocks_nobody(void **state)
{
	struct execs *t = *state;
	_cleanup_free_ char *data = xcalloc(1, 1 << 20);
	struct going g;

	prepare(t, &g, SHELL_COMMAND("echo done"));
	g.spec.stdin_data = data;
	g.spec.stdin_len = 1 << 20;
	run(t, &g);
	assert_int_equal(g.result.exit_code, 0);
	expect_output(t, &g, RUNLOG_STDOUT, "done\n");
	prepare(t, &g, SHELL_COMMAND("head -c 70000 | wc -c; exec <&-; sleep 0.1; echo done"));
	g.spec.stdin_data = data;
	g.spec.stdin_len = 1 << 20;
	run(t, &g);
	assert_int_equal(g.result.exit_code, 0);
	expect_output(t, &g, RUNLOG_STDOUT, "70000\ndone\n");
}

static void stdin_ends_where_the_data_ends(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, COMMAND((char *)"cat"));
	run(t, &g);
	expect_output(t, &g, RUNLOG_STDOUT, "");
	prepare(t, &g, COMMAND((char *)"cat"));
	g.spec.stdin_data = "";
	run(t, &g);
	expect_output(t, &g, RUNLOG_STDOUT, "");
	prepare(t, &g, COMMAND((char *)"cat"));
	g.spec.stdin_data = "a\0b";
	g.spec.stdin_len = 3;
	run(t, &g);
	assert_int_equal(g.result.stdout_bytes, 3);
}

static void stdin_can_be_written_while_it_runs(void **state)
{
	struct execs *t = *state;
	_cleanup_error_ struct error err = { 0 };
	_cleanup_buf_ struct buf out = { 0 };
	size_t len = 300000, taken;
	_cleanup_free_ unsigned char *data = xmalloc(len);
	struct going g;

	fill(data, len, 4);
	prepare(t, &g, COMMAND((char *)"cat"));
	g.spec.stdin_data = "first ";
	g.spec.stdin_len = 6;
	g.spec.stdin_stream = true;
	start_in_thread(t, &g);
	assert_int_equal(
		places_write_stdin(t->places, g.id, data, len, false, PATIENCE_MS, &taken, &err),
		0);
	assert_int_equal(taken, len);
	assert_int_equal(
		places_write_stdin(t->places, g.id, " last", 5, true, PATIENCE_MS, &taken, &err),
		0);
	join(&g);
	assert_int_equal(g.result.exit_code, 0);
	read_output(t, &g, RUNLOG_STDOUT, &out);
	assert_int_equal(out.len, len + 11);
	assert_memory_equal(out.data, "first ", 6);
	assert_memory_equal(out.data + 6, data, len);
	assert_memory_equal(out.data + 6 + len, " last", 5);
}

static void a_command_that_does_not_read_bounds_what_is_taken(void **state)
{
	struct execs *t = *state;
	_cleanup_error_ struct error err = { 0 };
	size_t len = 4 << 20, taken = 0;
	_cleanup_free_ char *data = xcalloc(1, len);
	struct going g;

	prepare(t, &g, SHELL_COMMAND("exec sleep 1000"));
	g.spec.stdin_stream = true;
	start_in_thread(t, &g);
	assert_int_equal(places_write_stdin(t->places, g.id, data, len, false, 100, &taken, &err),
			 -1);
	assert_int_equal(err.code, ERR_TIMEOUT);
	assert_true(taken > 0 && taken < 512 << 10);
	assert_int_equal(places_cancel(t->places, g.id, EXEC_CANCELLED, false), 0);
	join(&g);
	assert_int_equal(places_write_stdin(t->places, g.id, "x", 1, false, 100, &taken, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void a_child_may_close_its_output_and_go_on(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, SHELL_COMMAND("exec >&-; echo late >&2; exec 2>&-; sleep 0.05; exit 3"));
	run(t, &g);
	assert_int_equal(g.result.exit_code, 3);
	expect_output(t, &g, RUNLOG_STDERR, "late\n");
}

static void what_cannot_start_says_why(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, COMMAND((char *)"no-such-command-anywhere"));
	expect_refused(t, &g, ERR_COMMAND_NOT_FOUND);
	write_file_at(t->dir->fd, "plain", "text", 0600);
	prepare(t, &g, COMMAND((char *)"./plain"));
	expect_refused(t, &g, ERR_COMMAND_DENIED);
	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.cwd = "/no/such/directory";
	expect_refused(t, &g, ERR_EXEC);
	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.exec_id = "not a uuid";
	expect_refused(t, &g, ERR_VALIDATION);
	prepare(t, &g, COMMAND((char *)""));
	expect_refused(t, &g, ERR_VALIDATION);
}

static void the_environment_is_what_was_asked_for_and_a_fixed_set(void **state)
{
	struct execs *t = *state;
	_cleanup_buf_ struct buf out = { 0 };
	struct going g;

	setenv("LEAKED_FROM_THE_SERVER", "yes", 1);
	prepare(t, &g, SHELL_COMMAND("env | sort"));
	g.spec.env = COMMAND((char *)"ASKED=for", (char *)"TERM=vt100",
			     (char *)"BERTH_OWNER=forged", (char *)"BERTH_PLACE_ID=forged");
	run(t, &g);
	read_output(t, &g, RUNLOG_STDOUT, &out);
	assert_null(strstr(buf_str(&out), "LEAKED"));
	assert_null(strstr(buf_str(&out), "forged"));
	assert_non_null(strstr(buf_str(&out), "ASKED=for\n"));
	assert_non_null(strstr(buf_str(&out), "TERM=vt100\n"));
	assert_non_null(strstr(buf_str(&out), "LANG=C.UTF-8\n"));
	assert_non_null(strstr(buf_str(&out), "TMPDIR=/tmp\n"));
	assert_non_null(strstr(buf_str(&out), "BERTH_PLACE_ID=" PLACE "\n"));
	assert_non_null(strstr(buf_str(&out), g.id));
}

static void two_hundred_commands_run_side_by_side(void **state)
{
	enum { MANY = 200 };
	struct execs *t = *state;
	struct going *g = xcalloc(MANY, sizeof(*g));
	char script[MANY][64];

	for (int i = 0; i < MANY; i++) {
		snprintf(script[i], sizeof(script[i]), "echo n%d; read x; echo $x; exit %d", i, i);
		prepare(t, &g[i], SHELL_COMMAND(script[i]));
		g[i].spec.stdin_stream = true;
		start_in_thread(t, &g[i]);
	}
	for (int i = 0; i < MANY; i++) {
		size_t taken;

		assert_int_equal(places_write_stdin(t->places, g[i].id, "go\n", 3, true,
						    PATIENCE_MS, &taken, NULL),
				 0);
	}
	for (int i = 0; i < MANY; i++) {
		char text[32];

		join(&g[i]);
		assert_int_equal(g[i].result.exit_code, i);
		snprintf(text, sizeof(text), "n%d\ngo\n", i);
		expect_output(t, &g[i], RUNLOG_STDOUT, text);
	}
	free(g);
}

static void a_flood_arrives_whole(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, SHELL_COMMAND("head -c 100000000 /dev/zero"));
	run(t, &g);
	assert_int_equal(g.result.exit_code, 0);
	assert_int_equal(g.result.stdout_bytes, 100000000);
	assert_int_equal(runlog_size(t->logs, g.id), 100000000);
}

static void output_nobody_takes_makes_the_command_wait_and_is_not_lost(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, SHELL_COMMAND("head -c 20000000 /dev/zero; echo over >over"));
	start(t, &g);
	/* The relay's ring, both socket buffers and our window hold less than that. */
	poll(NULL, 0, 300);
	assert_false(exists_at(t->dir->fd, "over"));
	wait_in_thread(&g);
	assert_int_equal(g.rc, 0);
	assert_true(exists_at(t->dir->fd, "over"));
	assert_int_equal(runlog_size(t->logs, g.id), 20000000);
}

static void a_terminal_is_one(void **state)
{
	struct execs *t = *state;
	struct exec_terminal terminal = { .rows = 33, .cols = 77 };
	_cleanup_buf_ struct buf out = { 0 };
	struct going g;
	size_t taken;

	prepare(t, &g, SHELL_COMMAND("tty; stty size; echo $TERM; read x; stty size; echo got $x"));
	g.spec.terminal = &terminal;
	start_in_thread(t, &g);
	wait_until(runlog_end(g.log) >= 35);
	assert_int_equal(places_resize(t->places, g.id, 44, 88, NULL), 0);
	assert_int_equal(
		places_write_stdin(t->places, g.id, "word\n", 5, false, PATIENCE_MS, &taken, NULL),
		0);
	join(&g);
	assert_int_equal(g.result.exit_code, 0);
	read_output(t, &g, RUNLOG_PTY, &out);
	assert_non_null(strstr(buf_str(&out), "/dev/pts/"));
	assert_non_null(strstr(buf_str(&out), "33 77\r\n"));
	assert_non_null(strstr(buf_str(&out), "xterm-256color"));
	assert_non_null(strstr(buf_str(&out), "44 88\r\n"));
	assert_non_null(strstr(buf_str(&out), "got word"));
}

static struct mask *mask_for(const char *value)
{
	_cleanup_secret_ struct secret_text text = { 0 };

	secret_text_set(&text, value, strlen(value));
	return mask_new(&text, 1);
}

static void values_that_a_command_prints_are_masked_in_its_log(void **state)
{
	struct execs *t = *state;
	_cleanup_mask_ struct mask *mask = mask_for("open-sesame");
	struct going g;

	prepare(t, &g,
		SHELL_COMMAND("printf 'a open-'; printf 'sesame b'; printf open-sesame >&2;"
			      " printf 'b3Blbi1zZXNhbWU= op'"));
	g.spec.mask = mask;
	run(t, &g);
	expect_output(t, &g, RUNLOG_STDOUT, "a *********** b**************U= op");
	expect_output(t, &g, RUNLOG_STDERR, "***********");
}

static void a_server_that_takes_a_command_up_masks_on(void **state)
{
	struct execs *t = *state;
	_cleanup_mask_ struct mask *mask = mask_for("open-sesame");
	struct going g;

	prepare(t, &g,
		SHELL_COMMAND("printf 'a open'; while ! [ -e go ]; do sleep 0.01; done;"
			      " printf -- '-sesame b'"));
	g.spec.mask = mask;
	start_in_thread(t, &g);
	/* Longer than a value is held back. */
	wait_until(runlog_size(t->logs, g.id) == 6);
	places_detach(t->places);
	pthread_join(g.thread, NULL);
	assert_int_equal(g.err.code, ERR_UNAVAILABLE);
	error_clear(&g.err);
	places_free(t->places);
	server_starts(t);
	open_place(t, PLACE, GENERATION);
	adopt(t, &g);
	close(openat(t->dir->fd, "go", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	wait_in_thread(&g);
	assert_int_equal(g.rc, 0);
	expect_output(t, &g, RUNLOG_STDOUT, "a open******* b");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_execs(values_that_a_command_prints_are_masked_in_its_log),
		with_execs(a_server_that_takes_a_command_up_masks_on),
		with_execs(a_command_runs_and_tells_how_it_ended),
		with_execs(a_command_that_dies_by_a_signal_says_which),
		with_execs(binary_output_of_both_streams_is_kept_byte_for_byte),
		with_execs(a_megabyte_of_stdin_comes_back),
		with_execs(stdin_that_is_never_read_blocks_nobody),
		with_execs(stdin_ends_where_the_data_ends),
		with_execs(stdin_can_be_written_while_it_runs),
		with_execs(a_command_that_does_not_read_bounds_what_is_taken),
		with_execs(a_child_may_close_its_output_and_go_on),
		with_execs(what_cannot_start_says_why),
		with_execs(the_environment_is_what_was_asked_for_and_a_fixed_set),
		with_execs(two_hundred_commands_run_side_by_side),
		with_execs(a_flood_arrives_whole),
		with_execs(output_nobody_takes_makes_the_command_wait_and_is_not_lost),
		with_execs(a_terminal_is_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

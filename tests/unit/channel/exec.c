#include "execs.h"
#include <sys/resource.h>

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

static void binary_output_of_both_streams_is_kept_byte_for_byte(void **state)
{
	struct execs *t = *state;
	struct going g;
	_cleanup_buf_ struct buf out = { 0 }, errors = { 0 };
	size_t len = 300001;
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

	signal(SIGPIPE, SIG_DFL);
	prepare(t, &g, SHELL_COMMAND("echo done"));
	g.spec.stdin_data = data;
	g.spec.stdin_len = 1 << 20;
	run(t, &g);
	assert_int_equal(g.result.exit_code, 0);
	expect_output(t, &g, RUNLOG_STDOUT, "done\n");

	/* Closed while we are still writing: a broken pipe, and no signal for us. */
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

static void a_child_may_close_its_output_and_go_on(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, SHELL_COMMAND("exec >&-; echo late >&2; exec 2>&-; sleep 0.05; exit 3"));
	run(t, &g);
	assert_int_equal(g.result.reason, EXEC_EXITED);
	assert_int_equal(g.result.exit_code, 3);
	expect_output(t, &g, RUNLOG_STDERR, "late\n");
}

static void the_end_of_a_command_is_told_as_it_was(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, SHELL_COMMAND("exit 7"));
	run(t, &g);
	assert_int_equal(g.result.reason, EXEC_EXITED);
	assert_int_equal(g.result.exit_code, 7);
	assert_string_equal(g.result.signal, "");
	prepare(t, &g, SHELL_COMMAND("kill -SEGV $$"));
	run(t, &g);
	assert_int_equal(g.result.reason, EXEC_SIGNALLED);
	assert_int_equal(g.result.exit_code, -1);
	assert_string_equal(g.result.signal, "SIGSEGV");
}

static void arguments_are_never_seen_by_a_shell(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, COMMAND((char *)"printf", (char *)"%s|", (char *)"$HOME; *", (char *)""));
	run(t, &g);
	expect_output(t, &g, RUNLOG_STDOUT, "$HOME; *||");
}

static void what_cannot_start_is_told_as_a_shell_would(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, COMMAND((char *)"no-such-command-here"));
	expect_refused(t, &g, ERR_COMMAND_NOT_FOUND);
	write_file_at(t->dir->fd, "plain", "not a program", 0600);
	prepare(t, &g, COMMAND((char *)"./plain"));
	expect_refused(t, &g, ERR_COMMAND_DENIED);
	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.cwd = "/no/such/directory";
	expect_refused(t, &g, ERR_EXEC);
	assert_non_null(strstr(g.err.message, "/no/such/directory"));
	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.cwd = "relative";
	expect_refused(t, &g, ERR_VALIDATION);
	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.argv = (char *const[]){ NULL };
	expect_refused(t, &g, ERR_VALIDATION);
	/* A command that never started leaves nothing to stop. */
	assert_int_equal(executor_stop_place(t->executor, PLACE, EXEC_CANCELLED, 0, NULL), 0);
}

static void the_command_runs_in_its_directory(void **state)
{
	struct execs *t = *state;
	_cleanup_free_ char *expected = xasprintf("%s\n", t->dir->path);
	struct going g;

	prepare(t, &g, SHELL_COMMAND("pwd -P"));
	run(t, &g);
	expect_output(t, &g, RUNLOG_STDOUT, expected);
}

static int compare_lines(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The output of `env` as sorted lines. */
static char **environment_of(struct execs *t, char *const *env, struct going *g)
{
	_cleanup_buf_ struct buf out = { 0 };
	char **lines = NULL;

	prepare(t, g, COMMAND((char *)"/usr/bin/env"));
	g->spec.env = env;
	run(t, g);
	read_output(t, g, RUNLOG_STDOUT, &out);
	for (char *save = NULL, *line = strtok_r(out.data, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		strv_push(&lines, xstrdup(line));
	qsort(lines, strv_len(lines), sizeof(*lines), compare_lines);
	return lines;
}

static void the_environment_of_the_server_is_not_inherited(void **state)
{
	static const char *const names[] = {
		"BERTH_EXEC_ID=",        "BERTH_OWNER=",  "HOME=/",    "LANG=C.UTF-8", "LOGNAME=",
		"PATH=/usr/local/sbin:", "SHELL=/bin/sh", "TERM=dumb", "TMPDIR=/tmp",  "USER="
	};
	struct execs *t = *state;
	struct going g;

	setenv("CANARY", "sings", 1);
	setenv("TERM", "xterm-canary", 1);

	_cleanup_strv_ char **lines = environment_of(t, NULL, &g);

	assert_int_equal(strv_len(lines), ARRAY_SIZE(names));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_true(str_starts(lines[i], names[i]));
	assert_string_equal(lines[0] + strlen("BERTH_EXEC_ID="), g.id);
	assert_string_equal(lines[1] + strlen("BERTH_OWNER="), t->owner);
}

static void what_is_asked_for_wins_but_never_over_the_marks(void **state)
{
	char *const asked[] = {
		(char *)"TERM=vt100",      (char *)"A=1",           (char *)"A=2", (char *)"EMPTY=",
		(char *)"BERTH_EXEC_ID=x", (char *)"BERTH_OWNER=y", NULL
	};
	struct execs *t = *state;
	struct going g;
	_cleanup_strv_ char **lines = environment_of(t, asked, &g);

	assert_int_equal(strv_len(lines), 12);
	assert_string_equal(lines[0], "A=2");
	assert_string_equal(lines[1] + strlen("BERTH_EXEC_ID="), g.id);
	assert_string_equal(lines[2] + strlen("BERTH_OWNER="), t->owner);
	assert_string_equal(lines[3], "EMPTY=");
	assert_string_equal(lines[9], "TERM=vt100");
}

static void an_environment_variable_without_a_name_is_refused(void **state)
{
	static const char *const bad[] = { "", "=x", "NAME" };
	struct execs *t = *state;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char *const env[] = { (char *)bad[i], NULL };
		struct going g;

		prepare(t, &g, COMMAND((char *)"true"));
		g.spec.env = env;
		expect_refused(t, &g, ERR_VALIDATION);
	}
}

static void a_follower_sees_output_while_the_command_runs(void **state)
{
	struct execs *t = *state;
	struct going g;
	struct runlog_reader *reader;
	struct runlog_chunk chunk;

	prepare(t, &g,
		SHELL_COMMAND("echo ready; while [ ! -e go ]; do sleep 0.01; done; echo end"));
	assert_int_equal(runlog_reader_open(t->logs, g.id, 0, &reader, NULL), 0);
	start_in_thread(t, &g);

	struct pollfd p = { .fd = runlog_reader_event(reader), .events = POLLIN };

	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	latch_clear(p.fd);
	assert_int_equal(runlog_read(reader, 100, &chunk, NULL), 1);
	assert_memory_equal(chunk.data, "ready\n", chunk.len);
	assert_true(runlog_is_live(reader));
	write_file_at(t->dir->fd, "go", "", 0600);
	join(&g);
	assert_int_equal(runlog_read(reader, 100, &chunk, NULL), 1);
	assert_memory_equal(chunk.data, "end\n", chunk.len);
	assert_int_equal(runlog_read(reader, 100, &chunk, NULL), 0);
	assert_false(runlog_is_live(reader));
	runlog_reader_close(reader);
}

static void the_recorded_process_is_the_command(void **state)
{
	struct execs *t = *state;
	struct going g;
	_cleanup_free_ char *expected = NULL;

	prepare(t, &g, SHELL_COMMAND("echo $$"));
	start(t, &g);
	expected = xasprintf("%d\n", (int)exec_pid(g.exec));
	assert_int_equal(exec_start_time(g.exec), process_start_time(exec_pid(g.exec)));
	wait_in_thread(&g);
	expect_output(t, &g, RUNLOG_STDOUT, expected);
}

static void an_id_in_use_is_refused(void **state)
{
	struct execs *t = *state;
	struct going g, same;

	prepare(t, &g, SHELL_COMMAND("exec sleep 1000"));
	start_in_thread(t, &g);
	prepare(t, &same, COMMAND((char *)"true"));
	same.spec.exec_id = g.id;
	expect_refused(t, &same, ERR_CONFLICT);
	executor_cancel(t->executor, g.id, EXEC_CANCELLED);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_CANCELLED);
}

/* In a process of its own, because a limit on file sizes cannot be lifted again by everybody. */
static int run_with_full_disk(struct execs *t)
{
	struct rlimit limit = { .rlim_cur = 1000, .rlim_max = 1000 };
	struct going g;

	signal(SIGXFSZ, SIG_IGN);
	if (setrlimit(RLIMIT_FSIZE, &limit) < 0)
		return 2;
	prepare(t, &g, SHELL_COMMAND("trap '' TERM; while :; do echo 0123456789; done"));
	start(t, &g);
	wait_in_thread(&g);
	return g.rc < 0 && g.err.code == ERR_IO && g.result.duration_ms < PATIENCE_MS &&
			       runlog_size(t->logs, g.id) < 1001
		       ? 0
		       : 1;
}

static void a_command_whose_output_cannot_be_kept_is_ended(void **state)
{
	struct execs *t = *state;
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(run_with_full_disk(t));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

struct many {
	struct execs *t;
	int number;
	bool ok;
};

static void *run_many(void *arg)
{
	struct many *m = arg;

	m->ok = true;
	for (int i = 0; i < 8 && m->ok; i++) {
		_cleanup_free_ char *script =
			xasprintf("echo %d-%d; echo %d >&2; exit %d", m->number, i, i, m->number);
		_cleanup_free_ char *expected = xasprintf("%d-%d\n", m->number, i);
		_cleanup_buf_ struct buf out = { 0 };
		struct going g;

		prepare(m->t, &g, SHELL_COMMAND(script));
		run(m->t, &g);
		read_output(m->t, &g, RUNLOG_STDOUT, &out);
		m->ok = g.result.exit_code == m->number && streq(buf_str(&out), expected);
	}
	return NULL;
}

static void execs_side_by_side_do_not_mix(void **state)
{
	struct execs *t = *state;
	struct many many[8];
	pthread_t threads[8];

	for (int i = 0; i < 8; i++) {
		many[i] = (struct many){ .t = t, .number = i };
		assert_int_equal(pthread_create(&threads[i], NULL, run_many, &many[i]), 0);
	}
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], NULL);
		assert_true(many[i].ok);
	}
	assert_int_equal(executor_strays(t->executor, NULL, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_execs(binary_output_of_both_streams_is_kept_byte_for_byte),
		with_execs(a_megabyte_of_stdin_comes_back),
		with_execs(stdin_that_is_never_read_blocks_nobody),
		with_execs(stdin_ends_where_the_data_ends),
		with_execs(a_child_may_close_its_output_and_go_on),
		with_execs(the_end_of_a_command_is_told_as_it_was),
		with_execs(arguments_are_never_seen_by_a_shell),
		with_execs(what_cannot_start_is_told_as_a_shell_would),
		with_execs(the_command_runs_in_its_directory),
		with_execs(the_environment_of_the_server_is_not_inherited),
		with_execs(what_is_asked_for_wins_but_never_over_the_marks),
		with_execs(an_environment_variable_without_a_name_is_refused),
		with_execs(a_follower_sees_output_while_the_command_runs),
		with_execs(the_recorded_process_is_the_command),
		with_execs(an_id_in_use_is_refused),
		with_execs(a_command_whose_output_cannot_be_kept_is_ended),
		with_execs(execs_side_by_side_do_not_mix),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "execs.h"
#include <errno.h>
#include "base/fault.h"

static void a_place_nobody_opened_takes_no_command(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.place_id = "unknown";
	expect_refused(t, &g, ERR_LEASE_ENDED);
}

static void an_open_place_costs_nothing_until_it_is_used(void **state)
{
	struct execs *t = *state;

	assert_int_equal(keeper_pid(t), 0);
	assert_false(exists_at(t->dir->fd, "run/places"));
	assert_int_equal(places_stop(t->places, PLACE, EXEC_CANCELLED, 0, NULL), 0);
	assert_int_equal(keeper_pid(t), 0);
}

static void a_command_of_another_generation_is_refused(void **state)
{
	struct execs *t = *state;
	struct going g, old;

	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.generation = GENERATION - 1;
	expect_refused(t, &g, ERR_STALE_GENERATION);
	prepare(t, &old, SHELL_COMMAND("exec sleep 1000"));
	start_in_thread(t, &old);
	pid_t pid = exec_pid(old.exec);

	open_place(t, PLACE, GENERATION + 1);
	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.generation = GENERATION;
	expect_refused(t, &g, ERR_STALE_GENERATION);
	/* The new holder's first command finds nothing of the old one's left. */
	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.generation = GENERATION + 1;
	run(t, &g);
	assert_false(is_alive(pid));
	join(&old);
	assert_int_equal(old.result.reason, EXEC_LEASE_LOST);
}

static void without_the_fence_a_stale_command_gets_in(void **state)
{
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.generation = GENERATION - 1;
	assert_int_equal(fault_init("exec.fence:skip", NULL), 0);
	run(t, &g);
	assert_int_equal(fault_init(NULL, NULL), 0);
}

static void the_same_exec_cannot_go_twice(void **state)
{
	struct execs *t = *state;
	struct going g;
	struct exec *second;
	_cleanup_error_ struct error err = { 0 };

	prepare(t, &g, SHELL_COMMAND("exec sleep 1000"));
	start_in_thread(t, &g);
	assert_int_equal(exec_start(t->places, &g.spec, &second, &err), -1);
	assert_int_equal(err.code, ERR_CONFLICT);
	assert_true(places_is_busy(t->places, PLACE));
	assert_int_equal(places_cancel(t->places, g.id, EXEC_CANCELLED, false), 0);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_CANCELLED);
	assert_int_equal(places_cancel(t->places, g.id, EXEC_CANCELLED, false),
			 -(int)ERR_NOT_FOUND);
	assert_false(places_is_busy(t->places, PLACE));
}

#define TREE                                                                                       \
	"setsid sh -c 'echo $$ >%s; exec sleep 1000' >/dev/null 2>&1 & "                           \
	"(sh -c 'sh -c \"echo \\$\\$ >%s2; exec sleep 1000\" & exit' &) ; "                        \
	"while [ ! -s %s ] || [ ! -s %s2 ]; do sleep 0.01; done; echo ready; exec sleep 1000"

static void cancel_and_timeout_end_the_whole_tree_and_only_it(void **state)
{
	struct execs *t = *state;
	struct going g[3];
	char script[3][512], name[32];
	pid_t pid[3][2];

	for (int i = 0; i < 3; i++) {
		char file[16];

		snprintf(file, sizeof(file), "tree%d", i);
		snprintf(script[i], sizeof(script[i]), TREE, file, file, file, file);
		prepare(t, &g[i], SHELL_COMMAND(script[i]));
		if (i == 1)
			g[i].spec.timeout_ms = 1500;
		start_in_thread(t, &g[i]);
	}
	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "tree%d", i);
		wait_until((pid[i][0] = pid_in(t, name)) > 0);
		snprintf(name, sizeof(name), "tree%d2", i);
		wait_until((pid[i][1] = pid_in(t, name)) > 0);
	}
	assert_int_equal(places_cancel(t->places, g[0].id, EXEC_CANCELLED, false), 0);
	join(&g[0]);
	assert_int_equal(g[0].result.reason, EXEC_CANCELLED);
	assert_string_equal(g[0].result.signal, "SIGTERM");
	assert_false(is_alive(pid[0][0]) || is_alive(pid[0][1]));
	join(&g[1]);
	assert_int_equal(g[1].result.reason, EXEC_TIMEOUT);
	assert_false(is_alive(pid[1][0]) || is_alive(pid[1][1]));
	assert_true(is_alive(pid[2][0]) && is_alive(pid[2][1]));
	assert_int_equal(places_signal(t->places, g[2].id, SIGTERM, EXEC_TO_TREE, NULL), 0);
	join(&g[2]);
	assert_int_equal(g[2].result.reason, EXEC_SIGNALLED);
	assert_string_equal(g[2].result.signal, "SIGTERM");
}

/* Whatever holds it: the keeper ends the place, and each command says what became of it. */
static void a_relay_that_stands_still_keeps_no_command_past_its_deadline(void **state)
{
	struct execs *t = *state;
	struct going g[3];
	pid_t pids[3], relay;

	for (size_t i = 0; i < ARRAY_SIZE(g); i++) {
		prepare(t, &g[i], SHELL_COMMAND("echo begun; exec sleep 1000"));
		g[i].spec.timeout_ms = i == 0 ? 1000 : 0;
		start_in_thread(t, &g[i]);
		pids[i] = exec_pid(g[i].exec);
	}
	for (size_t i = 0; i < ARRAY_SIZE(g); i++)
		wait_until(runlog_size(t->logs, g[i].id) > 0);
	relay = relay_pid(t, PLACE);
	assert_int_equal(kill(relay, SIGSTOP), 0);
	assert_int_equal(places_cancel(t->places, g[1].id, EXEC_CANCELLED, false), 0);
	for (size_t i = 0; i < ARRAY_SIZE(g); i++) {
		join(&g[i]);
		wait_until(!is_alive(pids[i]));
	}
	/* Whichever was due first took the others with it. */
	assert_true(g[0].result.reason == EXEC_TIMEOUT || g[0].result.reason == EXEC_LEASE_LOST);
	assert_true(g[1].result.reason == EXEC_CANCELLED || g[1].result.reason == EXEC_LEASE_LOST);
	assert_int_not_equal(g[0].result.reason == EXEC_TIMEOUT,
			     g[1].result.reason == EXEC_CANCELLED);
	assert_int_equal(g[2].result.reason, EXEC_LEASE_LOST);
	assert_false(is_alive(relay));
}

static void a_stopped_place_ends_its_commands_and_takes_no_more(void **state)
{
	struct execs *t = *state;
	struct going g[3], late;
	pid_t pids[3], relay;

	for (size_t i = 0; i < ARRAY_SIZE(g); i++) {
		prepare(t, &g[i], SHELL_COMMAND("echo last words; exec sleep 1000"));
		start_in_thread(t, &g[i]);
		pids[i] = exec_pid(g[i].exec);
	}
	relay = relay_pid(t, PLACE);
	assert_true(is_alive(relay));
	for (size_t i = 0; i < ARRAY_SIZE(g); i++)
		wait_until(runlog_size(t->logs, g[i].id) > 0);
	assert_int_equal(places_stop(t->places, PLACE, EXEC_TIMEOUT, PATIENCE_MS, NULL), 0);
	assert_false(is_alive(relay));
	assert_false(exists_at(t->dir->fd, "run/places/" PLACE));
	for (size_t i = 0; i < ARRAY_SIZE(g); i++) {
		assert_false(is_alive(pids[i]));
		join(&g[i]);
		assert_int_equal(g[i].result.reason, EXEC_TIMEOUT);
		expect_output(t, &g[i], RUNLOG_STDOUT, "last words\n");
	}
	prepare(t, &late, COMMAND((char *)"true"));
	expect_refused(t, &late, ERR_LEASE_ENDED);
	assert_int_equal(places_stop(t->places, PLACE, EXEC_LEASE_LOST, 0, NULL), 0);
	/* The next holder of the same place gets a relay of its own. */
	open_place(t, PLACE, GENERATION + 1);
	prepare(t, &late, COMMAND((char *)"true"));
	late.spec.generation = GENERATION + 1;
	run(t, &late);
}

static void stopping_one_place_leaves_the_others(void **state)
{
	struct execs *t = *state;
	struct going here, there;

	open_place(t, "elsewhere", 1);
	prepare(t, &here, SHELL_COMMAND("exec sleep 1000"));
	start_in_thread(t, &here);
	prepare(t, &there, SHELL_COMMAND("exec sleep 1000"));
	there.spec.place_id = "elsewhere";
	there.spec.generation = 1;
	start_in_thread(t, &there);
	assert_int_equal(places_stop(t->places, PLACE, EXEC_CANCELLED, PATIENCE_MS, NULL), 0);
	join(&here);
	assert_int_equal(here.result.reason, EXEC_CANCELLED);
	assert_true(is_alive(exec_pid(there.exec)));
	assert_int_equal(places_stop(t->places, "elsewhere", EXEC_CANCELLED, PATIENCE_MS, NULL), 0);
	join(&there);
}

/* Ends only when the file $0 is there, however slowly this test gets on. */
#define COUNTING                                                                                   \
	"i=0; while [ $i -lt 4000 ]; do echo line $i; i=$((i+1)); "                                \
	"[ $((i % 40)) = 0 ] && sleep 0.01; "                                                      \
	"[ $i = 3000 ] && until [ -e \"$0\" ]; do echo waits >&2; sleep 0.05; done; done; exit 5"

static void check_counted(struct execs *t, const struct going *g, const struct exec_result *result)
{
	_cleanup_buf_ struct buf want = { 0 }, got = { 0 };

	for (int i = 0; i < 4000; i++)
		buf_printf(&want, "line %d\n", i);
	read_output(t, g, RUNLOG_STDOUT, &got);
	assert_int_equal(got.len, want.len);
	assert_memory_equal(got.data, want.data, want.len);
	assert_int_equal(result->exit_code, 5);
	assert_int_equal(result->reason, EXEC_EXITED);
	assert_int_equal(result->stdout_bytes, want.len);
}

static void a_restarted_server_adopts_what_runs_twice(void **state)
{
	enum { MANY = 20 };
	struct execs *t = *state;
	struct going *g = xcalloc(MANY, sizeof(*g));
	int64_t seen[MANY] = { 0 };
	_cleanup_free_ char *enough = path_join(t->dir->path, "enough");

	for (int i = 0; i < MANY; i++) {
		prepare(t, &g[i],
			COMMAND((char *)"/bin/sh", (char *)"-c", (char *)COUNTING, enough));
		start_in_thread(t, &g[i]);
	}
	for (int round = 0; round < 2; round++) {
		wait_until(runlog_size(t->logs, g[0].id) > 5000 * (round + 1));
		/* What grows has its thread in exec_wait. */
		for (int i = 0; i < MANY; i++)
			wait_until(runlog_size(t->logs, g[i].id) > seen[i]);
		places_free(t->places);
		for (int i = 0; i < MANY; i++) {
			assert_int_equal(pthread_join(g[i].thread, NULL), 0);
			assert_int_equal(g[i].rc, -1);
			assert_int_equal(g[i].err.code, ERR_UNAVAILABLE);
			error_clear(&g[i].err);
		}
		server_starts(t);
		open_place(t, PLACE, GENERATION);
		for (int i = 0; i < MANY; i++) {
			seen[i] = runlog_size(t->logs, g[i].id);
			adopt(t, &g[i]);
			spawn_wait(&g[i]);
		}
	}
	write_file_at(t->dir->fd, "enough", "", 0600);
	for (int i = 0; i < MANY; i++) {
		join(&g[i]);
		check_counted(t, &g[i], &g[i].result);
	}
	free(g);
}

static void an_exit_that_was_kept_is_told_again_until_it_is_forgotten(void **state)
{
	struct execs *t = *state;
	_cleanup_error_ struct error err = { 0 };
	struct going g;

	prepare(t, &g, SHELL_COMMAND("echo once; exit 9"));
	g.spec.keep_exit = true;
	run(t, &g);
	assert_int_equal(g.result.exit_code, 9);
	places_free(t->places);
	server_starts(t);
	open_place(t, PLACE, GENERATION);
	adopt(t, &g);
	wait_in_thread(&g);
	assert_int_equal(g.rc, 0);
	assert_int_equal(g.result.exit_code, 9);
	expect_output(t, &g, RUNLOG_STDOUT, "once\n");
	assert_int_equal(places_forget(t->places, PLACE, GENERATION, g.id, &err), 0);
	assert_int_equal(places_forget(t->places, PLACE, GENERATION, g.id, &err), 0);
	assert_int_equal(runlog_open(t->logs, g.id, &g.log, NULL), 0);
	g.spec.log = g.log;
	assert_int_equal(exec_adopt(t->places, &g.spec, &g.exec, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	runlog_close(g.log);
}

static void an_exec_that_was_never_started_cannot_be_adopted(void **state)
{
	struct execs *t = *state;
	_cleanup_error_ struct error err = { 0 };
	struct going g, other;

	/* Without a relay nobody can say whether it was. */
	prepare(t, &g, NULL);
	assert_int_equal(exec_adopt(t->places, &g.spec, &g.exec, &err), -1);
	assert_int_equal(err.code, ERR_LEASE_LOST);
	prepare(t, &other, COMMAND((char *)"true"));
	run(t, &other);
	assert_int_equal(exec_adopt(t->places, &g.spec, &g.exec, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	runlog_close(g.log);
}

static void a_killed_relay_is_a_lost_lease_and_leaves_no_process(void **state)
{
	struct execs *t = *state;
	struct going g, late;
	pid_t child;

	prepare(t, &g,
		SHELL_COMMAND(
			"setsid sleep 1000 >/dev/null 2>&1 & echo $! >child; echo hello; wait"));
	start_in_thread(t, &g);
	wait_until((child = pid_in(t, "child")) > 0);
	wait_until(runlog_size(t->logs, g.id) > 0);
	assert_int_equal(kill(relay_pid(t, PLACE), SIGKILL), 0);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_LEASE_LOST);
	assert_int_equal(g.result.exit_code, -1);
	expect_output(t, &g, RUNLOG_STDOUT, "hello\n");
	wait_until(!is_alive(child));
	prepare(t, &late, COMMAND((char *)"true"));
	expect_refused(t, &late, ERR_LEASE_LOST);
	assert_int_equal(places_stop(t->places, PLACE, EXEC_LEASE_LOST, PATIENCE_MS, NULL), 0);
	assert_false(exists_at(t->dir->fd, "run/places/" PLACE));
}

static bool text_into(const char *dir, const char *name, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

/* Memory for nobody but the process; it is dead as soon as it asks for more. */
static bool starve(const char *dir, pid_t pid)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", (int)pid);
	return mkdir(dir, 0755) == 0 && text_into(dir, "memory.limit_in_bytes", "65536") &&
	       text_into(dir, "cgroup.procs", number);
}

static void a_relay_that_the_kernel_kills_for_memory_is_a_lost_lease(void **state)
{
	struct execs *t = *state;
	char group[100];
	struct going g;
	pid_t relay, child;

	snprintf(group, sizeof(group), "/sys/fs/cgroup/memory/%.60s",
		 strrchr(t->dir->path, '/') + 1);

	prepare(t, &g,
		SHELL_COMMAND("setsid sleep 1000 & echo $! >child; echo hello; until test -e more;"
			      " do sleep 0.02; done; head -c 4000000 /dev/zero; sleep 1000"));
	start_in_thread(t, &g);
	wait_until((child = pid_in(t, "child")) > 0);
	wait_until(runlog_size(t->logs, g.id) > 0);
	relay = relay_pid(t, PLACE);
	if (!starve(group, relay)) {
		rmdir(group);
		kill(relay, SIGKILL);
		join(&g);
		skip();
	}
	/* What it would have to hold of this is more than it can have. */
	assert_int_equal(mkdirat(t->dir->fd, "more", 0700), 0);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_LEASE_LOST);
	assert_true(runlog_size(t->logs, g.id) >= (int64_t)strlen("hello\n"));
	wait_until(!is_alive(relay) && !is_alive(child));
	wait_until(rmdir(group) == 0);
}

/* Starts a command whose end nobody here takes, waits until it is written down, kills the relay. */
static void end_unheard(struct execs *t, struct going *g, const char *script)
{
	struct stat st;
	pid_t relay;

	prepare(t, g, SHELL_COMMAND(script));
	start(t, g);
	relay = relay_pid(t, PLACE);
	places_free(t->places);
	assert_int_equal(exec_wait(g->exec, &g->result, &g->err), -1);
	error_clear(&g->err);
	runlog_close(g->log);
	wait_until(fstatat(t->dir->fd, "run/places/" PLACE "/spool/exits", &st, 0) == 0 &&
		   st.st_size > 0);
	assert_int_equal(kill(relay, SIGKILL), 0);
	wait_until(!is_alive(relay));
	server_starts(t);
	open_place(t, PLACE, GENERATION);
}

static void an_end_that_a_dead_relay_had_written_down_is_found(void **state)
{
	struct execs *t = *state;
	struct going g;

	end_unheard(t, &g, "echo out; echo err >&2; exit 7");
	adopt(t, &g);
	wait_in_thread(&g);
	assert_int_equal(g.rc, 0);
	assert_int_equal(g.result.reason, EXEC_EXITED);
	assert_int_equal(g.result.exit_code, 7);
	assert_int_equal(g.result.stdout_bytes, 4);
	expect_output(t, &g, RUNLOG_STDOUT, "out\n");
	expect_output(t, &g, RUNLOG_STDERR, "err\n");
	/* A server that died before it wrote that down finds it once more, and nothing twice. */
	adopt(t, &g);
	wait_in_thread(&g);
	assert_int_equal(g.result.exit_code, 7);
	expect_output(t, &g, RUNLOG_STDOUT, "out\n");
}

static void the_output_of_a_dead_relay_is_found_in_its_ring(void **state)
{
	struct execs *t = *state;
	_cleanup_buf_ struct buf got = { 0 };
	struct going g;

	end_unheard(t, &g,
		    "i=0; while [ $i -lt 30000 ]; do echo $i; i=$((i+1)); done; echo last >&2");
	adopt(t, &g);
	wait_in_thread(&g);
	assert_int_equal(g.result.reason, EXEC_EXITED);
	assert_int_equal(g.result.exit_code, 0);
	read_output(t, &g, RUNLOG_STDOUT, &got);
	for (long i = 0, at = 0; i < 30000; i++) {
		char line[16];
		int len = snprintf(line, sizeof(line), "%ld\n", i);

		assert_true((size_t)(at + len) <= got.len);
		assert_memory_equal(got.data + at, line, (size_t)len);
		at += len;
	}
	assert_int_equal(got.len, g.result.stdout_bytes);
	expect_output(t, &g, RUNLOG_STDERR, "last\n");
}

static void damage(struct execs *t, const char *name, off_t at, const void *bytes, size_t len)
{
	_cleanup_free_ char *path = xasprintf("run/places/" PLACE "/spool/%s", name);
	_cleanup_close_ int fd = openat(t->dir->fd, path, O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	if (len == 0)
		assert_int_equal(ftruncate(fd, at), 0);
	else
		assert_int_equal(pwrite(fd, bytes, len, at), len);
}

/* Whatever a journal holds, the exec ends: with its exit, or lost. */
static void a_damaged_journal_is_a_lost_lease_not_a_lie(void **state)
{
	struct execs *t = *state;
	uint8_t garbage[64];
	struct stat st;
	struct going g;

	end_unheard(t, &g, "echo out; exit 7");
	assert_int_equal(fstatat(t->dir->fd, "run/places/" PLACE "/spool/exits", &st, 0), 0);
	/* Torn in the middle of the output: the exit stands, what is missing is a hole. */
	damage(t, "exits", st.st_size - 2, NULL, 0);
	adopt(t, &g);
	wait_in_thread(&g);
	assert_int_equal(g.result.reason, EXEC_EXITED);
	assert_int_equal(g.result.exit_code, 7);
	expect_output(t, &g, RUNLOG_STDOUT, "\n[4 ");
	/* Torn in the record, and no record at all. */
	memset(garbage, 0xff, sizeof(garbage));
	for (int i = 0; i < 2; i++) {
		if (i == 0)
			damage(t, "exits", 20, NULL, 0);
		else
			damage(t, "exits", 0, garbage, sizeof(garbage));
		assert_int_equal(runlog_open(t->logs, g.id, &g.log, NULL), 0);
		g.spec.log = g.log;
		assert_int_equal(exec_adopt(t->places, &g.spec, &g.exec, &g.err), -1);
		assert_int_equal(g.err.code, ERR_LEASE_LOST);
		error_clear(&g.err);
		runlog_close(g.log);
	}
}

static void a_killed_keeper_is_replaced_by_one_that_adopts(void **state)
{
	struct execs *t = *state;
	struct going g, other;
	_cleanup_json_ json_t *health = NULL, *strays = NULL;
	const char *known[] = { PLACE, "elsewhere" };
	pid_t first, second;

	prepare(t, &g, SHELL_COMMAND("read x; echo $x"));
	g.spec.stdin_stream = true;
	start_in_thread(t, &g);
	first = keeper_pid(t);
	assert_true(first > 0);
	assert_int_equal(kill(first, SIGKILL), 0);
	wait_until(!is_alive(first));
	open_place(t, "elsewhere", 1);
	prepare(t, &other, COMMAND((char *)"true"));
	other.spec.place_id = "elsewhere";
	other.spec.generation = 1;
	run(t, &other);
	second = keeper_pid(t);
	assert_true(second > 0 && second != first);
	health = places_health(t->places);
	assert_int_equal(json_int(json_object_at(health, "keeper"), "places", -1), 2);
	assert_true(json_bool(json_object_at(health, "keeper"), "ok", false));
	assert_true(json_bool(json_object_at(health, "relay"), "ok", false));
	strays = places_audit(t->places, known, 2, NULL);
	assert_int_equal(json_array_size(strays), 0);

	size_t taken;

	assert_int_equal(places_write_stdin(t->places, g.id, "still here\n", 11, true, PATIENCE_MS,
					    &taken, NULL),
			 0);
	join(&g);
	expect_output(t, &g, RUNLOG_STDOUT, "still here\n");
}

static void audit_names_what_nobody_explains_and_reap_ends_it(void **state)
{
	struct execs *t = *state;
	const char *known[] = { "elsewhere" };
	_cleanup_json_ json_t *strays = NULL, *after = NULL;
	bool relay = false, process = false;
	struct going g;
	pid_t pid;

	prepare(t, &g, SHELL_COMMAND("exec sleep 1000"));
	start_in_thread(t, &g);
	pid = exec_pid(g.exec);
	strays = places_audit(t->places, known, 1, NULL);
	for (size_t i = 0; i < json_array_size(strays); i++) {
		json_t *stray = json_array_get(strays, i);

		relay |= streq(json_str(stray, "kind"), "relay") &&
			 streq(json_str(stray, "id"), PLACE);
		process |= streq(json_str(stray, "kind"), "process") &&
			   atoi(json_str(stray, "id")) == pid;
	}
	assert_true(relay && process);
	assert_int_equal(places_reap(t->places, known, 1, NULL), 1);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_LEASE_LOST);
	assert_false(is_alive(pid));
	after = places_audit(t->places, known, 1, NULL);
	assert_int_equal(json_array_size(after), 0);
}

static void an_idle_place_is_kept_from_being_given_up(void **state)
{
	struct execs *t = *state;
	struct exec_place place = place_with("short", 1);
	struct going g;
	pid_t relay;

	place.absence_ms = 1000;
	assert_int_equal(places_open(t->places, &place, NULL), 0);
	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.place_id = "short";
	g.spec.generation = 1;
	run(t, &g);
	relay = relay_pid(t, "short");
	poll(NULL, 0, 2500);
	assert_true(is_alive(relay));
	/* A new server keeps it as well, only by opening the place. */
	places_free(t->places);
	server_starts(t);
	assert_int_equal(places_open(t->places, &place, NULL), 0);
	poll(NULL, 0, 2500);
	assert_true(is_alive(relay));
	/* And nobody keeps it when nobody has it. */
	places_free(t->places);
	wait_until(!is_alive(relay));
	wait_until(!exists_at(t->dir->fd, "run/places/short"));
	server_starts(t);
}

#define IDLE_PLACES 10
#define HUNG(i) ((i) == 0 || (i) == 9) /* the first two in the order of the table of open places */

static void open_idle_place(struct execs *t, int number, int64_t absence_ms)
{
	char id[16];
	struct exec_place place = place_with(id, 1);

	snprintf(id, sizeof(id), "idle-%d", number);
	place.absence_ms = absence_ms;
	assert_int_equal(places_open(t->places, &place, NULL), 0);
}

static void relays_that_hang_do_not_keep_the_others_from_being_reached(void **state)
{
	struct execs *t = *state;
	pid_t relays[IDLE_PLACES];
	uint64_t walls;
	char id[16];

	for (int i = 0; i < IDLE_PLACES; i++) {
		open_idle_place(t, i, 6000);
		snprintf(id, sizeof(id), "idle-%d", i);
		assert_int_equal(places_make(t->places, id, 1, 10000, &walls, NULL), 0);
		wait_until((relays[i] = relay_pid(t, id)) > 0);
	}
	places_free(t->places);
	for (int i = 0; i < IDLE_PLACES; i++)
		if (HUNG(i))
			kill(relays[i], SIGSTOP);
	server_starts(t);
	for (int i = 0; i < IDLE_PLACES; i++)
		open_idle_place(t, i, 6000);
	/* Whoever was not reached has ended by then. */
	poll(NULL, 0, 9000);
	for (int i = 0; i < IDLE_PLACES; i++) {
		if (HUNG(i))
			kill(relays[i], SIGCONT);
		else if (!is_alive(relays[i]))
			fail_msg("the relay of idle-%d was given up", i);
	}
}

static void prepare_in(struct execs *t, struct going *g, const char *place_id)
{
	static char *const argv[] = { (char *)"true", NULL };

	prepare(t, g, argv);
	g->spec.place_id = place_id;
	g->spec.generation = 1;
}

static void a_connection_that_cannot_be_watched_gives_its_place_back_once(void **state)
{
	/* The one that is handed over, the one that is made instead, and both. */
	static const char *const faults[] = { "channel.watch@1:error", "channel.watch@2:error",
					      "channel.watch:error" };
	struct execs *t = *state;
	struct going g;

	prepare(t, &g, COMMAND((char *)"true"));
	run(t, &g); /* the keeper's connection is there */
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		char id[16];

		snprintf(id, sizeof(id), "watched-%zu", i);
		open_place(t, id, 1);
		prepare_in(t, &g, id);
		assert_int_equal(fault_init(faults[i], NULL), 0);
		if (exec_start(t->places, &g.spec, &g.exec, &g.err) == 0)
			exec_wait(g.exec, &g.result, NULL);
		runlog_close(g.log);
		error_clear(&g.err);
		assert_int_equal(fault_init(NULL, NULL), 0);
		/* The place is as good as any. */
		prepare_in(t, &g, id);
		run(t, &g);
		assert_int_equal(g.result.exit_code, 0);
		assert_int_equal(places_stop(t->places, id, EXEC_CANCELLED, 10000, NULL), 0);
	}
}

static void faults_in_the_channel_are_survived_or_told(void **state)
{
	struct execs *t = *state;
	struct going g;

	assert_int_equal(fault_init("channel.exec_start.before:error", NULL), 0);
	prepare(t, &g, COMMAND((char *)"true"));
	expect_refused(t, &g, ERR_FAULT);
	assert_int_equal(fault_init("channel.exec_start.after:error", NULL), 0);
	prepare(t, &g, SHELL_COMMAND("echo $$ >ghost; exec sleep 1000"));
	expect_refused(t, &g, ERR_FAULT);
	assert_int_equal(fault_init("channel.ack.before:error,channel.forget.before:error", NULL),
			 0);
	wait_until(!exists_at(t->dir->fd, "ghost") ||
		   (pid_in(t, "ghost") > 0 && !is_alive(pid_in(t, "ghost"))));
	prepare(t, &g, SHELL_COMMAND("head -c 300000 /dev/zero"));
	run(t, &g);
	assert_int_equal(g.result.stdout_bytes, 300000);
	assert_int_equal(fault_init("keeper.make.before:error", NULL), 0);
	open_place(t, "elsewhere", 1);
	prepare(t, &g, COMMAND((char *)"true"));
	g.spec.place_id = "elsewhere";
	g.spec.generation = 1;
	expect_refused(t, &g, ERR_FAULT);
	assert_int_equal(fault_init(NULL, NULL), 0);
}

static void an_executor_can_go_before_anybody_waited(void **state)
{
	struct execs *t = *state;
	struct going g;
	pid_t pid;

	prepare(t, &g, SHELL_COMMAND("read x; exit 4"));
	g.spec.stdin_stream = true;
	start(t, &g);
	pid = exec_pid(g.exec);
	places_free(t->places);
	wait_in_thread(&g);
	assert_int_equal(g.rc, -1);
	assert_int_equal(g.err.code, ERR_UNAVAILABLE);
	assert_true(is_alive(pid));
	server_starts(t);
	open_place(t, PLACE, GENERATION);
	adopt(t, &g);

	size_t taken;

	assert_int_equal(
		places_write_stdin(t->places, g.id, "\n", 1, true, PATIENCE_MS, &taken, NULL), 0);
	wait_in_thread(&g);
	assert_int_equal(g.rc, 0);
	assert_int_equal(g.result.exit_code, 4);
}

static void an_executor_needs_an_owner_and_a_directory_of_its_own(void **state)
{
	struct execs *t = *state;
	struct places *places;
	_cleanup_error_ struct error err = { 0 };
	struct places_options options = { .clock = &t->clock, .runtime_path = t->runtime };

	assert_int_equal(places_new(&options, &places, &err), -1);
	options.owner = "somebody";
	options.runtime_path = "/tmp";
	assert_int_equal(places_new(&options, &places, &err), -1);
	assert_int_equal(err.code, ERR_FORBIDDEN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_execs(a_place_nobody_opened_takes_no_command),
		with_execs(an_open_place_costs_nothing_until_it_is_used),
		with_execs(a_command_of_another_generation_is_refused),
		with_execs(without_the_fence_a_stale_command_gets_in),
		with_execs(the_same_exec_cannot_go_twice),
		with_execs(cancel_and_timeout_end_the_whole_tree_and_only_it),
		with_execs(a_relay_that_stands_still_keeps_no_command_past_its_deadline),
		with_execs(a_stopped_place_ends_its_commands_and_takes_no_more),
		with_execs(stopping_one_place_leaves_the_others),
		with_execs(a_restarted_server_adopts_what_runs_twice),
		with_execs(an_exit_that_was_kept_is_told_again_until_it_is_forgotten),
		with_execs(an_exec_that_was_never_started_cannot_be_adopted),
		with_execs(a_killed_relay_is_a_lost_lease_and_leaves_no_process),
		with_execs(a_relay_that_the_kernel_kills_for_memory_is_a_lost_lease),
		with_execs(an_end_that_a_dead_relay_had_written_down_is_found),
		with_execs(the_output_of_a_dead_relay_is_found_in_its_ring),
		with_execs(a_damaged_journal_is_a_lost_lease_not_a_lie),
		with_execs(a_killed_keeper_is_replaced_by_one_that_adopts),
		with_execs(audit_names_what_nobody_explains_and_reap_ends_it),
		with_execs(an_idle_place_is_kept_from_being_given_up),
		with_execs(relays_that_hang_do_not_keep_the_others_from_being_reached),
		with_execs(a_connection_that_cannot_be_watched_gives_its_place_back_once),
		with_execs(faults_in_the_channel_are_survived_or_told),
		with_execs(an_executor_can_go_before_anybody_waited),
		with_execs(an_executor_needs_an_owner_and_a_directory_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

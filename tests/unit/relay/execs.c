#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/fd.h"
#include "base/id.h"
#include "client.h"
#include "wire/place.h"

struct fixture {
	struct rig rig;
	struct peer peer;
};

/* Every test runs twice: trees held by cgroups (when root) and by shims. */
static bool use_shim;

static int set_up(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));

	rig_start(&f->rig, &(struct rig_options){ .no_cgroup = use_shim });
	assert_int_equal(peer_open(&f->peer, &f->rig, 1), 0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	peer_close(&f->peer);
	rig_stop(&f->rig);
	free(f);
	return 0;
}

static void type_text(struct fixture *f, const struct outcome *o, const char *text)
{
	peer_data(&f->peer, o->stream, text, strlen(text), false);
}

static void a_command_gives_back_its_output_and_exit_code(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	outcome_run(&o, &f->peer, "printf out; printf err >&2; exit 7");
	assert_true(o.exited);
	assert_int_equal(o.exit.reason, REASON_EXITED);
	assert_int_equal(o.exit.exit_code, 7);
	assert_string_equal(buf_str(&o.out), "out");
	assert_string_equal(buf_str(&o.err), "err");
	outcome_free(&o);
}

static void the_environment_is_only_what_was_asked_for_and_a_minimum(void **state)
{
	struct fixture *f = *state;
	const char *env[] = { "ASKED=yes", "BERTH_EXEC_ID=forged" };
	struct wire_exec_start start =
		SHELL("env | cut -d= -f1 | sort | tr '\\n' ' '; test \"$BERTH_EXEC_ID\" != forged");
	struct outcome o;

	setenv("BERTH_TEST_LEAK", "leak", 1);
	start.env = (struct wire_strv){ .v = env, .count = 2 };
	outcome_start(&o, &f->peer, &start);
	outcome_wait(&o, &f->peer);
	assert_int_equal(o.exit.exit_code, 0);
	assert_non_null(strstr(buf_str(&o.out), "ASKED "));
	assert_non_null(strstr(buf_str(&o.out), "BERTH_PLACE_ID "));
	assert_non_null(strstr(buf_str(&o.out), "PATH "));
	assert_null(strstr(buf_str(&o.out), "BERTH_TEST_LEAK"));
	outcome_free(&o);
}

static void standard_input_arrives_byte_for_byte_and_ends(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL("cat");
	const size_t size = 3 << 20;
	uint8_t *data = xmalloc(size);
	size_t sent = 0, credit;
	struct outcome o;

	random_bytes(data, size);
	start.stdin_mode = WIRE_STDIN_STREAM;
	memset(&o, 0, sizeof(o));
	o.acknowledge = true;
	o.stream = peer_ask(&f->peer, WIRE_EXEC_START, &start);
	assert_int_equal(peer_next_on(&f->peer, o.stream), WIRE_EXEC_STARTED);
	credit = f->peer.m.exec_started.stdin_credit;
	while (!o.exited) {
		size_t n = MIN_OF(MIN_OF(credit, size - sent), 30000);

		if (n > 0) {
			peer_data(&f->peer, o.stream, data + sent, n, sent + n == size);
			sent += n;
			credit -= n;
			continue;
		}
		assert_int_not_equal(peer_next_on(&f->peer, o.stream), 0);
		if (f->peer.frame.type == WIRE_CREDIT)
			credit += f->peer.m.credit.bytes;
		outcome_take(&o, &f->peer);
	}
	assert_int_equal(o.out.len, size);
	assert_memory_equal(o.out.data, data, size);
	free(data);
	outcome_free(&o);
}

static void standard_input_that_nobody_reads_is_bounded_and_reported(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL("exec 0<&-; echo closed; sleep 0.2");
	char data[1000] = { 0 };
	struct outcome o;

	start.stdin_mode = WIRE_STDIN_STREAM;
	outcome_start(&o, &f->peer, &start);
	outcome_wait_text(&o, &f->peer, "closed");
	peer_data(&f->peer, o.stream, data, sizeof(data), false);
	outcome_wait(&o, &f->peer);
	assert_true(o.stdin_closed);
	assert_int_equal(o.exit.exit_code, 0);
	outcome_free(&o);
}

static void binary_output_of_both_channels_is_exact(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	outcome_run(&o, &f->peer,
		    "head -c 5000000 /dev/zero | tr '\\0' '\\377'; head -c 1000000 /dev/zero >&2");
	assert_int_equal(o.out.len, 5000000);
	assert_int_equal(o.err.len, 1000000);
	for (size_t i = 0; i < o.out.len; i++)
		if ((uint8_t)o.out.data[i] != 0xff)
			fail_msg("byte %zu", i);
	assert_int_equal(o.exit.stdout_offset, 5000000);
	assert_int_equal(o.exit.stderr_offset, 1000000);
	outcome_free(&o);
}

static void a_missing_command_a_file_without_x_and_a_missing_directory_are_told_apart(void **state)
{
	struct fixture *f = *state;
	const char *missing[] = { "no-such-command-here", NULL };
	const char *plain[] = { "/etc/passwd", NULL };
	struct wire_exec_start start = { .argv = { missing, 1 }, .credit = 1000 };

	exec_id_new(start.exec_id);
	assert_int_equal(peer_call(&f->peer, WIRE_EXEC_START, &start), WERR_COMMAND_NOT_FOUND);
	start.argv.v = plain;
	assert_int_equal(peer_call(&f->peer, WIRE_EXEC_START, &start), WERR_COMMAND_DENIED);
	start = SHELL("true");
	start.cwd = "/no/such/directory";
	assert_int_equal(peer_call(&f->peer, WIRE_EXEC_START, &start), WERR_BAD_CWD);
	start.cwd = NULL;
	start.user = "no-such-user-here";
	assert_int_equal(peer_call(&f->peer, WIRE_EXEC_START, &start), WERR_BAD_USER);
	/* Nothing of the failures stays. */
	peer_ask(&f->peer, WIRE_EXEC_LIST, &(struct wire_exec_list){});
	assert_int_equal(peer_next(&f->peer), WIRE_DONE);
}

/* 0 or the code of the refusal; what it says goes to `said`. */
static uint32_t run_tool(struct fixture *f, const char *path, char said[16])
{
	const char *argv[] = { "tool", NULL }, *env[] = { path };
	struct wire_exec_start start = { .argv = { argv, 1 }, .env = { env, 1 }, .credit = 1000 };
	uint32_t error;
	struct outcome o;

	exec_id_new(start.exec_id);
	outcome_start(&o, &f->peer, &start);
	outcome_wait(&o, &f->peer);
	snprintf(said, 16, "%s", buf_str(&o.out));
	error = o.error;
	outcome_free(&o);
	return error;
}

static void a_command_is_looked_for_as_a_shell_does(void **state)
{
	struct fixture *f = *state;
	char path[PATH_MAX + 100], here[200], said[16];
	struct outcome o;

	/* One that may not be run, one that may, and one where nobody looks. */
	outcome_run(
		&o, &f->peer,
		"mkdir a b; for d in a b .; do printf '#!/bin/sh\\necho %s\\n' $d >$d/tool; done;"
		" chmod 755 b/tool ./tool; printf %s \"$PWD\"");
	snprintf(here, sizeof(here), "%s", buf_str(&o.out));
	outcome_free(&o);
	snprintf(path, sizeof(path), "PATH=::%s/none:%s/a/tool:%s/a::%s/b:/bin", here, here, here,
		 here);
	assert_int_equal(run_tool(f, path, said), 0);
	assert_string_equal(said, "b\n");
	snprintf(path, sizeof(path), "PATH=%s/a:%s/none:", here, here);
	assert_int_equal(run_tool(f, path, said), WERR_COMMAND_DENIED);
	snprintf(path, sizeof(path), "PATH=:%s/none:", here);
	assert_int_equal(run_tool(f, path, said), WERR_COMMAND_NOT_FOUND);
	memset(path + 5, 'x', PATH_MAX);
	path[PATH_MAX + 5] = 0;
	assert_int_equal(run_tool(f, path, said), WERR_COMMAND_DENIED);
}

static void the_same_id_starts_only_once(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL("echo once >>count; echo started; sleep 0.1");
	struct outcome first, second, count;

	outcome_start(&first, &f->peer, &start);
	outcome_wait_text(&first, &f->peer, "started");
	outcome_start(&second, &f->peer, &start);
	assert_true(second.existing);
	assert_int_equal(second.pid, first.pid);
	second.truncated = 1;
	second.next_offset = 0;
	outcome_wait(&second, &f->peer);
	assert_true(second.exited);
	outcome_run(&count, &f->peer, "cat count");
	assert_string_equal(buf_str(&count.out), "once\n");
	outcome_free(&first);
	outcome_free(&second);
	outcome_free(&count);
}

static void a_deadline_ends_the_whole_tree_and_only_that_tree(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start =
		SHELL("(setsid sh -c 'sleep 1000 & echo $!; wait' &) ; sleep 1000");
	struct wire_exec_start other = SHELL("echo on; sleep 1000");
	struct outcome o, bystander;
	pid_t stray;

	outcome_start(&bystander, &f->peer, &other);
	outcome_wait_text(&bystander, &f->peer, "on\n");
	start.deadline_ms = 300;
	outcome_start(&o, &f->peer, &start);
	outcome_wait_text(&o, &f->peer, "\n");
	stray = atoi(buf_str(&o.out));
	assert_true(process_lives(stray));
	outcome_wait(&o, &f->peer);
	assert_int_equal(o.exit.reason, REASON_TIMEOUT);
	assert_false(process_lives(stray));
	assert_false(process_lives((pid_t)o.pid));
	assert_true(process_lives((pid_t)bystander.pid));
	outcome_free(&o);
	outcome_free(&bystander);
}

static void cancelling_ends_daemons_that_forked_twice(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL("setsid sh -c 'setsid sleep 1000 >/dev/null 2>&1 & "
					     "echo $!' ; echo ready; sleep 1000");
	struct wire_exec_kill kill_m = { .reason = REASON_CANCELLED };
	struct outcome o;
	pid_t daemon_pid;

	outcome_start(&o, &f->peer, &start);
	outcome_wait_text(&o, &f->peer, "ready");
	daemon_pid = atoi(buf_str(&o.out));
	assert_true(process_lives(daemon_pid));
	memcpy(kill_m.exec_id, start.exec_id, WIRE_ID_SIZE);
	assert_int_equal(peer_call(&f->peer, WIRE_EXEC_KILL, &kill_m), 0);
	outcome_wait(&o, &f->peer);
	assert_int_equal(o.exit.reason, REASON_CANCELLED);
	assert_int_equal(o.exit.signal, SIGTERM);
	assert_false(process_lives(daemon_pid));
	outcome_free(&o);
}

static uint32_t ask_to_leave(struct fixture *f, const struct wire_exec_start *start, bool at_once)
{
	struct wire_exec_kill m = { .reason = REASON_CANCELLED, .at_once = at_once };

	memcpy(m.exec_id, start->exec_id, WIRE_ID_SIZE);
	return peer_ask(&f->peer, WIRE_EXEC_KILL, &m);
}

/* The main process dies of SIGTERM at once; what it started still has time to say goodbye. */
static void everything_of_a_tree_may_say_goodbye(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL(
		"setsid sh -c 'trap \"sleep 0.3; echo bye >goodbye; exit 0\" TERM; echo ready; "
		"while :; do sleep 0.02; done' >out 2>&1 & "
		"until grep -q ready out; do sleep 0.02; done; echo up; sleep 1000");
	struct wire_exec_start other = SHELL("echo on; sleep 1000");
	struct outcome o, bystander, said;

	outcome_start(&bystander, &f->peer, &other);
	outcome_wait_text(&bystander, &f->peer, "on\n");
	outcome_start(&o, &f->peer, &start);
	outcome_wait_text(&o, &f->peer, "up");
	ask_to_leave(f, &start, false);
	outcome_wait(&o, &f->peer);
	assert_int_equal(o.exit.reason, REASON_CANCELLED);
	assert_int_equal(o.exit.signal, SIGTERM);
	assert_true(process_lives((pid_t)bystander.pid));
	outcome_run(&said, &f->peer, "cat goodbye");
	assert_string_equal(buf_str(&said.out), "bye\n");
	outcome_free(&o);
	outcome_free(&bystander);
	outcome_free(&said);
}

static void a_command_that_ends_by_itself_after_its_deadline_timed_out(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL(
		"trap 'echo last words; exit 0' TERM; echo ready; while :; do sleep 0.02; done");
	struct outcome o;

	start.deadline_ms = 300;
	outcome_start(&o, &f->peer, &start);
	outcome_wait(&o, &f->peer);
	assert_int_equal(o.exit.reason, REASON_TIMEOUT);
	assert_int_equal(o.exit.signal, 0);
	assert_int_equal(o.exit.exit_code, 0);
	assert_string_equal(buf_str(&o.out), "ready\nlast words\n");
	outcome_free(&o);
}

static void a_tree_that_ignores_sigterm_and_forks_dies_by_the_grace(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start =
		SHELL("trap '' TERM; echo ready; (while :; do sleep 0.2 & sleep 0.01; done) & "
		      "echo $!; while :; do sleep 0.2 & sleep 0.01; done");
	struct outcome o;
	pid_t below;

	start.deadline_ms = 300;
	outcome_start(&o, &f->peer, &start);
	outcome_wait(&o, &f->peer);
	assert_int_equal(o.exit.reason, REASON_TIMEOUT);
	assert_int_equal(o.exit.signal, SIGKILL);
	below = atoi(buf_str(&o.out) + strlen("ready\n"));
	assert_true(below > 0);
	assert_false(process_lives(below));
	outcome_free(&o);
}

static void a_second_cancel_kills_at_once_and_a_repeated_one_does_not(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start =
		SHELL("trap 'echo heard' TERM; echo ready; while :; do sleep 0.02; done");
	struct outcome o;

	outcome_start(&o, &f->peer, &start);
	outcome_wait_text(&o, &f->peer, "ready");
	ask_to_leave(f, &start, false);
	outcome_wait_text(&o, &f->peer, "heard");
	ask_to_leave(f, &start, false);
	assert_true(process_lives((pid_t)o.pid));
	ask_to_leave(f, &start, true);
	outcome_wait(&o, &f->peer);
	assert_int_equal(o.exit.reason, REASON_CANCELLED);
	assert_int_equal(o.exit.signal, SIGKILL);
	/* Once: the repetition sent no second signal. */
	assert_string_equal(buf_str(&o.out), "ready\nheard\n");
	outcome_free(&o);
}

static void a_stopped_process_hears_that_it_shall_leave(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start =
		SHELL("trap 'echo woken; exit 0' TERM; echo ready; kill -STOP $$; "
		      "while :; do sleep 0.02; done");
	struct outcome o;

	outcome_start(&o, &f->peer, &start);
	outcome_wait_text(&o, &f->peer, "ready");
	assert_true(process_stops((pid_t)o.pid));
	ask_to_leave(f, &start, false);
	outcome_wait(&o, &f->peer);
	assert_non_null(strstr(buf_str(&o.out), "woken"));
	assert_int_equal(o.exit.reason, REASON_CANCELLED);
	outcome_free(&o);
}

/* Ending the place is no request: nothing is waited for. */
static void the_end_of_a_place_leaves_no_grace(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start =
		SHELL("trap 'echo heard' TERM; echo ready; while :; do sleep 0.02; done");
	struct wire_exec_kill_all all = { .reason = REASON_LEASE_LOST };
	struct outcome o;

	outcome_start(&o, &f->peer, &start);
	outcome_wait_text(&o, &f->peer, "ready");
	peer_ask(&f->peer, WIRE_EXEC_KILL_ALL, &all);
	outcome_wait(&o, &f->peer);
	assert_int_equal(o.exit.reason, REASON_LEASE_LOST);
	assert_int_equal(o.exit.signal, SIGKILL);
	assert_string_equal(buf_str(&o.out), "ready\n");
	outcome_free(&o);
}

static void what_a_command_leaves_behind_ends_with_it(void **state)
{
	struct fixture *f = *state;
	struct outcome quiet, loud;
	int64_t before;

	outcome_run(&quiet, &f->peer, "sleep 1000 >/dev/null 2>&1 & echo $!");
	assert_int_equal(quiet.exit.exit_code, 0);
	assert_false(process_lives(atoi(buf_str(&quiet.out))));
	/* This one holds the pipe open: the grace passes first. */
	before = test_now_ms();
	outcome_run(&loud, &f->peer, "sleep 1000 & echo $!");
	assert_true(test_now_ms() - before >= WIRE_GRACE_MS - 50);
	assert_int_equal(loud.exit.reason, REASON_EXITED);
	assert_false(process_lives(atoi(buf_str(&loud.out))));
	outcome_free(&quiet);
	outcome_free(&loud);
}

static void signals_reach_the_process_the_group_or_the_tree(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start =
		SHELL("trap 'echo usr; exit 3' USR1; echo ready; while :; do sleep 0.05; done");
	struct wire_exec_start tree = SHELL(
		"setsid sh -c 'trap \"echo got\" USR1; echo ready; while :; do sleep 0.05; done'");
	struct wire_exec_signal m = { .signal = SIGUSR1 };
	struct outcome o, t;

	outcome_start(&o, &f->peer, &start);
	outcome_wait_text(&o, &f->peer, "ready");
	memcpy(m.exec_id, start.exec_id, WIRE_ID_SIZE);
	assert_int_equal(peer_call(&f->peer, WIRE_EXEC_SIGNAL, &m), 0);
	outcome_wait(&o, &f->peer);
	assert_int_equal(o.exit.exit_code, 3);
	assert_int_equal(peer_call(&f->peer, WIRE_EXEC_SIGNAL, &m), WERR_EXITED);
	outcome_start(&t, &f->peer, &tree);
	outcome_wait_text(&t, &f->peer, "ready");
	memcpy(m.exec_id, tree.exec_id, WIRE_ID_SIZE);
	m.target = WIRE_TO_TREE;
	peer_ask(&f->peer, WIRE_EXEC_SIGNAL, &m);
	outcome_wait(&t, &f->peer);
	/* The shell above died of it, the one below was in another session and caught it. */
	assert_int_equal(t.exit.signal, SIGUSR1);
	outcome_free(&o);
	outcome_free(&t);
}

static void a_signal_that_kills_is_reported_as_signalled(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	outcome_run(&o, &f->peer, "kill -SEGV $$");
	assert_int_equal(o.exit.reason, REASON_SIGNALLED);
	assert_int_equal(o.exit.signal, SIGSEGV);
	outcome_free(&o);
}

static void a_full_ring_stops_the_writer_until_output_is_acknowledged(void **state)
{
	struct wire_exec_start start = SHELL("head -c 1000000 /dev/zero; echo done >&2");
	struct peer peer;
	struct outcome o;
	struct rig rig;

	(void)state;
	rig_start(&rig, &(struct rig_options){ .ring_max = 64 << 10, .no_cgroup = use_shim });
	assert_int_equal(peer_open(&peer, &rig, 1), 0);
	outcome_start(&o, &peer, &start);
	o.acknowledge = false;
	while (o.stalls == 0) {
		assert_int_not_equal(peer_next_on(&peer, o.stream), 0);
		outcome_take(&o, &peer);
	}
	assert_int_equal(o.next_offset, 64 << 10);
	o.acknowledge = true;
	peer_say(&peer, o.stream, WIRE_EXEC_ACK,
		 &(struct wire_exec_ack){ .offset = o.next_offset });
	outcome_wait(&o, &peer);
	assert_int_equal(o.out.len, 1000000);
	assert_string_equal(buf_str(&o.err), "done\n");
	outcome_free(&o);
	peer_close(&peer);
	rig_stop(&rig);
}

static void two_hundred_commands_run_side_by_side(void **state)
{
	struct fixture *f = *state;
	const size_t count = 200;
	struct outcome *all = xcalloc(count, sizeof(*all));
	size_t open = count;

	for (size_t i = 0; i < count; i++) {
		_cleanup_free_ char *script =
			xasprintf("read x; echo %zu-$x; exit %zu", i, i % 100);
		struct wire_exec_start start = SHELL(script);

		start.stdin_mode = WIRE_STDIN_STREAM;
		all[i].acknowledge = true;
		all[i].stream = peer_ask(&f->peer, WIRE_EXEC_START, &start);
	}
	while (open > 0) {
		unsigned type = peer_next(&f->peer);
		struct outcome *o = NULL;

		assert_int_not_equal(type, 0);
		for (size_t i = 0; i < count && !o; i++)
			if (all[i].stream == f->peer.frame.stream)
				o = &all[i];
		assert_non_null(o);
		open -= !outcome_take(o, &f->peer);
		if (type == WIRE_EXEC_STARTED)
			peer_data(&f->peer, o->stream, "go\n", 3, true);
	}
	for (size_t i = 0; i < count; i++) {
		_cleanup_free_ char *wanted = xasprintf("%zu-go\n", i);

		assert_string_equal(buf_str(&all[i].out), wanted);
		assert_int_equal(all[i].exit.exit_code, i % 100);
		outcome_free(&all[i]);
	}
	free(all);
}

static void output_goes_on_where_the_old_connection_stopped(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start =
		SHELL("i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo line $i; done; exit 4");
	struct wire_exec_attach attach_m = { .credit = 8 << 20 };
	_cleanup_buf_ struct buf wanted = { 0 };
	struct outcome o;

	start.credit = 3000;
	outcome_start(&o, &f->peer, &start);
	o.acknowledge = false;
	while (o.next_offset < 3000) {
		assert_int_not_equal(peer_next_on(&f->peer, o.stream), 0);
		outcome_take(&o, &f->peer);
	}
	peer_close(&f->peer);
	assert_int_equal(peer_open(&f->peer, &f->rig, 2), 0);
	memcpy(attach_m.exec_id, start.exec_id, WIRE_ID_SIZE);
	attach_m.from_offset = o.next_offset;
	o.stream = peer_ask(&f->peer, WIRE_EXEC_ATTACH, &attach_m);
	o.acknowledge = true;
	outcome_wait(&o, &f->peer);
	assert_true(o.existing);
	assert_int_equal(o.exit.exit_code, 4);
	for (int i = 1; i <= 2000; i++)
		buf_printf(&wanted, "line %d\n", i);
	assert_string_equal(buf_str(&o.out), wanted.data);
	outcome_free(&o);
}

static void an_exit_waits_for_whoever_asks_and_is_in_the_journal_until_forgotten(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL("echo hello; exit 9");
	struct wire_exec_attach attach_m = { .credit = 1000 };
	struct wire_exec_forget forget = { 0 };
	_cleanup_buf_ struct buf journal = { 0 };
	struct outcome o;
	struct frame frame;
	struct wire_message m;
	size_t used;

	outcome_start(&o, &f->peer, &start);
	memcpy(forget.exec_id, start.exec_id, WIRE_ID_SIZE);
	memcpy(attach_m.exec_id, start.exec_id, WIRE_ID_SIZE);
	outcome_wait(&o, &f->peer);
	assert_int_equal(
		file_read(f->rig.dir_fd, "spool/" RELAY_JOURNAL_FILE, &journal, 4096, NULL), 0);
	assert_int_equal(
		frame_parse((uint8_t *)journal.data, journal.len, 4096, &frame, &used, NULL), 1);
	assert_int_equal(wire_decode(&frame, &m, NULL), 0);
	assert_int_equal(m.exec_state.exit_code, 9);
	wire_message_clear(&m);
	outcome_free(&o);
	memset(&o, 0, sizeof(o));
	/* The acknowledged bytes are gone; the rest can be had again. */
	attach_m.from_offset = 6;
	o.next_offset = 6;
	o.stream = peer_ask(&f->peer, WIRE_EXEC_ATTACH, &attach_m);
	outcome_wait(&o, &f->peer);
	assert_int_equal(o.exit.exit_code, 9);
	assert_int_equal(peer_call(&f->peer, WIRE_EXEC_FORGET, &forget), 0);
	assert_int_equal(peer_call(&f->peer, WIRE_EXEC_FORGET, &forget), WERR_NO_EXEC);
	assert_int_equal(peer_call(&f->peer, WIRE_EXEC_ATTACH, &attach_m), WERR_NO_EXEC);
	outcome_free(&o);
}

/* Whether the journal has a frame that says so of the exec, with that note. */
static bool is_in_journal(struct fixture *f, const uint8_t *id, uint32_t state, const char *note)
{
	_cleanup_buf_ struct buf journal = { 0 };
	struct frame frame;
	size_t used;
	bool found = false;

	if (file_read(f->rig.dir_fd, "spool/" RELAY_JOURNAL_FILE, &journal, 65536, NULL) < 0)
		return false;
	while (frame_parse((uint8_t *)buf_str(&journal), journal.len, 65536, &frame, &used, NULL) >
	       0) {
		struct wire_message m = { 0 };

		if (frame.type == WIRE_EXEC_STATE) {
			assert_int_equal(wire_decode(&frame, &m, NULL), 0);
			found |= memcmp(m.exec_state.exec_id, id, WIRE_ID_SIZE) == 0 &&
				 m.exec_state.state == state &&
				 m.exec_state.note.len == strlen(note) &&
				 memcmp(m.exec_state.note.data, note, strlen(note)) == 0;
			wire_message_clear(&m);
		}
		buf_consume(&journal, used);
	}
	return found;
}

static void a_note_is_given_back_and_in_the_journal_while_the_command_runs(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL("read line; exit 3"), plain = SHELL("true");
	struct outcome o;

	start.stdin_mode = WIRE_STDIN_STREAM;
	start.note = (struct wire_bytes){ (const uint8_t *)"whose it is", 11 };
	outcome_start(&o, &f->peer, &start);
	assert_int_equal(f->peer.m.exec_started.noted, 1);
	peer_ask(&f->peer, WIRE_EXEC_LIST, &(struct wire_exec_list){});
	assert_int_equal(peer_next(&f->peer), WIRE_EXEC_STATE);
	assert_int_equal(f->peer.m.exec_state.note.len, 11);
	assert_memory_equal(f->peer.m.exec_state.note.data, "whose it is", 11);
	assert_int_equal(peer_next(&f->peer), WIRE_DONE);
	for (int i = 0; i < 500; i++) {
		if (is_in_journal(f, start.exec_id, WIRE_EXEC_RUNNING, "whose it is"))
			break;
		poll(NULL, 0, 10);
	}
	assert_true(is_in_journal(f, start.exec_id, WIRE_EXEC_RUNNING, "whose it is"));
	peer_data(&f->peer, o.stream, "go\n", 3, true);
	outcome_wait(&o, &f->peer);
	assert_int_equal(o.exit.exit_code, 3);
	assert_true(is_in_journal(f, start.exec_id, WIRE_EXEC_EXITED, "whose it is"));
	outcome_free(&o);
	/* Without a note there is nothing to keep before the end. */
	outcome_start(&o, &f->peer, &plain);
	assert_int_equal(f->peer.m.exec_started.noted, 0);
	outcome_wait(&o, &f->peer);
	outcome_free(&o);
}

static void a_running_command_cannot_be_forgotten(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL("sleep 1000");
	struct wire_exec_forget forget = { 0 };
	struct outcome o;

	outcome_start(&o, &f->peer, &start);
	memcpy(forget.exec_id, start.exec_id, WIRE_ID_SIZE);
	assert_int_equal(peer_call(&f->peer, WIRE_EXEC_FORGET, &forget), WERR_RUNNING);
	outcome_free(&o);
}

static void the_places_limit_of_open_files_bites(void **state)
{
	struct outcome o;
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_start(&rig, &(struct rig_options){ .open_files = 64, .no_cgroup = use_shim });
	assert_int_equal(peer_open(&peer, &rig, 1), 0);
	outcome_run(&o, &peer, "ulimit -n; ulimit -Hn");
	assert_string_equal(buf_str(&o.out), "64\n64\n");
	outcome_free(&o);
	peer_close(&peer);
	rig_stop(&rig);
}

static void a_payload_inherits_no_descriptor_and_cannot_signal_its_relay_away(void **state)
{
	struct fixture *f = *state;
	struct outcome o;

	outcome_run(
		&o, &f->peer,
		"ls /proc/self/fd | wc -l; p=$PPID; for s in 1 2 3 13 15 10 12 32 33 34 64; do "
		"kill -$s $p 2>/dev/null; done; "
		"grep SigIgn /proc/self/status | cut -f2; grep SigBlk /proc/self/status | cut -f2");
	/* ls itself opens the directory as its fourth. */
	assert_string_equal(buf_str(&o.out), "4\n0000000000000000\n0000000000000000\n");
	assert_true(process_lives(f->rig.pid));
	outcome_free(&o);
}

static void a_terminal_has_a_size_that_follows_and_job_control(void **state)
{
	struct fixture *f = *state;
	const char *argv[] = { "bash", "--norc", "-i", NULL };
	struct wire_exec_start start = {
		.argv = { argv, 3 }, .credit = 1 << 20, .pty = 1, .rows = 33, .cols = 77
	};
	struct wire_exec_resize resize = { .rows = 11, .cols = 22 };
	struct outcome o;

	exec_id_new(start.exec_id);
	outcome_start(&o, &f->peer, &start);
	type_text(f, &o, "stty size; tty\n");
	outcome_wait_text(&o, &f->peer, "33 77");
	outcome_wait_text(&o, &f->peer, "/dev/pts/");
	memcpy(resize.exec_id, start.exec_id, WIRE_ID_SIZE);
	peer_ask(&f->peer, WIRE_EXEC_RESIZE, &resize);
	type_text(f, &o, "stty size\n");
	outcome_wait_text(&o, &f->peer, "11 22");
	type_text(f, &o, "sh -c 'echo in-$((1+1)); exec sleep 1000'\n");
	outcome_wait_text(&o, &f->peer, "in-2");
	type_text(f, &o, "\032");
	outcome_wait_text(&o, &f->peer, "Stopped");
	type_text(f, &o, "kill -9 %1; exit 5\nexit 5\n");
	outcome_wait(&o, &f->peer);
	assert_int_equal(o.exit.exit_code, 5);
	assert_int_equal(o.err.len, 0);
	outcome_free(&o);
}

static void ctrl_c_and_ctrl_d_work_in_a_terminal(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL("echo ready; cat; echo after");
	struct wire_exec_start interrupted = SHELL("echo ready; sleep 1000");
	struct outcome o;

	start.pty = 1;
	outcome_start(&o, &f->peer, &start);
	outcome_wait_text(&o, &f->peer, "ready");
	peer_data(&f->peer, o.stream, "text\n", 5, true);
	outcome_wait(&o, &f->peer);
	assert_non_null(strstr(buf_str(&o.out), "after"));
	outcome_free(&o);
	interrupted.pty = 1;
	outcome_start(&o, &f->peer, &interrupted);
	outcome_wait_text(&o, &f->peer, "ready");
	/* A shell that is just forking may miss one, as under a person's fingers. */
	do {
		type_text(f, &o, "\003");
		assert_int_not_equal(peer_next_on(&f->peer, o.stream), 0);
	} while (outcome_take(&o, &f->peer));
	assert_int_equal(o.exit.reason, REASON_SIGNALLED);
	assert_int_equal(o.exit.signal, SIGINT);
	outcome_free(&o);
}

/* A file system of its own that nobody else sees, with nothing free in it. -1: not allowed here. */
static int full_disk(void)
{
	_cleanup_close_ int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	_cleanup_close_ int mount = -1, fd = -1;
	char page[4096] = { 0 };

	if (fs < 0)
		return -1;
	assert_int_equal(fsconfig(fs, FSCONFIG_SET_STRING, "size", "64k", 0), 0);
	assert_int_equal(fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0), 0);
	mount = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	assert_true(mount >= 0);
	fd = openat(mount, "filler", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	while (write(fd, page, sizeof(page)) > 0)
		;
	assert_int_equal(errno, ENOSPC);
	return openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void assert_counted(const struct outcome *o, unsigned last)
{
	const char *at = buf_str(&o->out);
	char *end;

	for (unsigned i = 1; i <= last; i++, at = end + 1) {
		assert_int_equal(strtoul(at, &end, 10), i);
		assert_int_equal(*end, 10);
	}
	assert_int_equal(*at, 0);
}

#define COUNTED 60000

static void output_goes_on_without_a_disk_as_fast_as_it_is_acknowledged(void **state)
{
	_cleanup_close_ int disk = full_disk();
	struct rig rig;
	struct peer peer;
	struct outcome o;

	(void)state;
	if (disk < 0)
		skip();
	rig_start(&rig, &(struct rig_options){ .spool_fd = disk, .no_cgroup = use_shim });
	assert_int_equal(peer_open(&peer, &rig, 1), 0);
	outcome_run(&o, &peer, "seq 60000; exit 3");
	assert_int_equal(o.exit.exit_code, 3);
	assert_int_equal(o.exit.reason, REASON_EXITED);
	assert_int_equal(o.truncated, 0);
	assert_counted(&o, COUNTED);
	outcome_free(&o);
	peer_close(&peer);
	rig_stop(&rig);
}

static void stall_on(struct peer *peer, struct outcome *o, uint32_t deadline_ms)
{
	struct wire_exec_start start = SHELL("seq 60000; sleep 1000");

	start.deadline_ms = deadline_ms;
	outcome_start(o, peer, &start);
	o->acknowledge = false;
	while (o->stalls == 0) {
		assert_int_not_equal(peer_next_on(peer, o->stream), 0);
		outcome_take(o, peer);
	}
}

static void acknowledge_all(struct peer *peer, struct outcome *o)
{
	o->acknowledge = true;
	peer_say(peer, o->stream, WIRE_EXEC_ACK,
		 &(struct wire_exec_ack){ .offset = o->next_offset });
}

static void a_full_disk_makes_a_command_wait_and_does_not_keep_its_deadline_away(void **state)
{
	_cleanup_close_ int disk = full_disk();
	struct rig rig;
	struct peer peer;
	struct outcome late, waiting;

	(void)state;
	if (disk < 0)
		skip();
	rig_start(&rig, &(struct rig_options){ .spool_fd = disk, .no_cgroup = use_shim });
	assert_int_equal(peer_open(&peer, &rig, 1), 0);
	stall_on(&peer, &late, 300);
	assert_true(process_is_gone_soon((pid_t)late.pid));
	acknowledge_all(&peer, &late);
	outcome_wait(&late, &peer);
	assert_int_equal(late.exit.reason, REASON_TIMEOUT);
	/* Every byte that left the process. */
	assert_int_equal(late.exit.end_offset, late.out.len);
	assert_int_equal(late.truncated, 0);
	/* And with room again everything is as usual. */
	stall_on(&peer, &waiting, 0);
	assert_int_equal(unlinkat(disk, "filler", 0), 0);
	acknowledge_all(&peer, &waiting);
	outcome_wait_text(&waiting, &peer, "\n60000\n");
	assert_counted(&waiting, COUNTED);
	outcome_free(&late);
	outcome_free(&waiting);
	peer_close(&peer);
	rig_stop(&rig);
}

static void too_many_execs_are_refused(void **state)
{
	struct rig rig;
	struct peer peer;
	struct wire_exec_start start = SHELL("true");
	struct outcome o;

	(void)state;
	rig_start(&rig, &(struct rig_options){ .max_execs = 1, .no_cgroup = use_shim });
	assert_int_equal(peer_open(&peer, &rig, 1), 0);
	outcome_start(&o, &peer, &start);
	exec_id_new(start.exec_id);
	assert_int_equal(peer_call(&peer, WIRE_EXEC_START, &start), WERR_TOO_MANY);
	outcome_free(&o);
	peer_close(&peer);
	rig_stop(&rig);
}

static void processes_die_with_a_relay_that_is_killed(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL("setsid sh -c 'setsid sleep 1000 >/dev/null 2>&1 & "
					     "echo $!' ; echo ready; sleep 1000");
	struct outcome o;

	outcome_start(&o, &f->peer, &start);
	outcome_wait_text(&o, &f->peer, "ready");
	kill(f->rig.pid, SIGKILL);
	waitpid(f->rig.pid, NULL, 0);
	f->rig.pid = 0;
	assert_true(process_is_gone_soon((pid_t)o.pid));
	/* With cgroups the strays are the keeper's; a shim sees to them itself. */
	if (use_shim)
		assert_true(process_is_gone_soon(atoi(buf_str(&o.out))));
	outcome_free(&o);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_command_gives_back_its_output_and_exit_code),
		T(the_environment_is_only_what_was_asked_for_and_a_minimum),
		T(standard_input_arrives_byte_for_byte_and_ends),
		T(standard_input_that_nobody_reads_is_bounded_and_reported),
		T(binary_output_of_both_channels_is_exact),
		T(a_missing_command_a_file_without_x_and_a_missing_directory_are_told_apart),
		T(a_command_is_looked_for_as_a_shell_does),
		T(the_same_id_starts_only_once),
		T(a_deadline_ends_the_whole_tree_and_only_that_tree),
		T(cancelling_ends_daemons_that_forked_twice),
		T(everything_of_a_tree_may_say_goodbye),
		T(a_command_that_ends_by_itself_after_its_deadline_timed_out),
		T(a_tree_that_ignores_sigterm_and_forks_dies_by_the_grace),
		T(a_second_cancel_kills_at_once_and_a_repeated_one_does_not),
		T(a_stopped_process_hears_that_it_shall_leave),
		T(the_end_of_a_place_leaves_no_grace),
		T(what_a_command_leaves_behind_ends_with_it),
		T(signals_reach_the_process_the_group_or_the_tree),
		T(a_signal_that_kills_is_reported_as_signalled),
		cmocka_unit_test(a_full_ring_stops_the_writer_until_output_is_acknowledged),
		T(two_hundred_commands_run_side_by_side),
		T(output_goes_on_where_the_old_connection_stopped),
		T(an_exit_waits_for_whoever_asks_and_is_in_the_journal_until_forgotten),
		T(a_note_is_given_back_and_in_the_journal_while_the_command_runs),
		T(a_running_command_cannot_be_forgotten),
		cmocka_unit_test(the_places_limit_of_open_files_bites),
		T(a_payload_inherits_no_descriptor_and_cannot_signal_its_relay_away),
		T(a_terminal_has_a_size_that_follows_and_job_control),
		T(ctrl_c_and_ctrl_d_work_in_a_terminal),
		T(processes_die_with_a_relay_that_is_killed),
		cmocka_unit_test(output_goes_on_without_a_disk_as_fast_as_it_is_acknowledged),
		cmocka_unit_test(
			a_full_disk_makes_a_command_wait_and_does_not_keep_its_deadline_away),
		cmocka_unit_test(too_many_execs_are_refused),
	};
	int failed = 0;

	if (geteuid() == 0)
		failed = cmocka_run_group_tests_name("trees by cgroup", tests, NULL, NULL);
	use_shim = true;
	return failed + cmocka_run_group_tests_name("trees by shim", tests, NULL, NULL);
}

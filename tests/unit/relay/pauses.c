#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/fd.h"
#include "client.h"
#include "wire/place.h"

struct fixture {
	struct rig rig;
	struct peer peer;
};

static int set_up(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));

	rig_start(&f->rig, &(struct rig_options){ 0 });
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

/* Only cgroups can be frozen, and only root has them. */
static void needs_cgroup(const struct fixture *f)
{
	if (!f->rig.cgroup[0])
		skip();
}

static uint32_t set_paused(struct fixture *f, bool paused)
{
	return peer_call(&f->peer, WIRE_PLACE_PAUSE, &(struct wire_place_pause){ paused });
}

static void stand_still(struct fixture *f)
{
	assert_int_equal(set_paused(f, true), 0);
}

static void go_on(struct fixture *f)
{
	assert_int_equal(set_paused(f, false), 0);
}

/* One byte for every round of the loop. */
#define COUNTING "echo up; while :; do printf x >>count; done"

static off_t counted(const struct fixture *f)
{
	_cleanup_free_ char *path = xasprintf("%s/count", f->rig.root);
	struct stat st;

	return stat(path, &st) < 0 ? 0 : st.st_size;
}

static bool counts_beyond(const struct fixture *f, off_t from)
{
	for (int64_t until = test_now_ms() + CLIENT_WAIT_MS; test_now_ms() < until;) {
		if (counted(f) > from)
			return true;
		poll(NULL, 0, 2);
	}
	return false;
}

/* Returns how it is called. */
static struct wire_exec_signal begin(struct fixture *f, struct outcome *o, const char *script,
				     uint32_t deadline_ms)
{
	struct wire_exec_start start = SHELL(script);
	struct wire_exec_signal named = { .signal = SIGKILL, .target = WIRE_TO_TREE };

	start.deadline_ms = deadline_ms;
	outcome_start(o, &f->peer, &start);
	outcome_wait_text(o, &f->peer, "up");
	memcpy(named.exec_id, start.exec_id, WIRE_ID_SIZE);
	return named;
}

static void a_counter_stands_still_while_paused_and_goes_on(void **state)
{
	struct fixture *f = *state;
	struct outcome one, two;
	off_t at;

	needs_cgroup(f);
	begin(f, &one, COUNTING, 0);
	begin(f, &two, COUNTING, 0);
	assert_true(counts_beyond(f, 0));
	stand_still(f);
	at = counted(f);
	poll(NULL, 0, 60);
	assert_int_equal(counted(f), at);
	/* Said again it changes nothing. */
	stand_still(f);
	assert_int_equal(counted(f), at);
	go_on(f);
	assert_true(counts_beyond(f, at));
	go_on(f);
	outcome_free(&one);
	outcome_free(&two);
}

static void nothing_new_starts_while_paused_and_files_and_output_go_on(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL(COUNTING), refused = SHELL("true");
	struct wire_file_stat ask = { .path = "count" };
	struct outcome o, late;

	needs_cgroup(f);
	outcome_start(&o, &f->peer, &start);
	assert_true(counts_beyond(f, 0));
	stand_still(f);
	outcome_start(&late, &f->peer, &refused);
	assert_int_equal(late.error, WERR_PAUSED);
	outcome_free(&late);
	assert_int_equal(peer_call(&f->peer, WIRE_FILE_STAT, &ask), 0);
	/* The same again is no new one, and what it printed before is there to be read. */
	outcome_free(&o);
	outcome_start(&o, &f->peer, &start);
	assert_true(o.existing);
	outcome_wait_text(&o, &f->peer, "up");
	go_on(f);
	outcome_run(&late, &f->peer, "echo late");
	assert_string_equal(buf_str(&late.out), "late\n");
	outcome_free(&late);
	outcome_free(&o);
}

static void a_paused_command_can_be_killed_cancelled_and_runs_out_of_time(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_kill leave = { .reason = REASON_CANCELLED };
	struct wire_exec_signal first, second;
	struct outcome killed, cancelled, late, after;

	needs_cgroup(f);
	first = begin(f, &killed, "echo up; sleep 600 & wait", 0);
	second = begin(f, &cancelled, "trap '' TERM; echo up; while :; do sleep 1; done", 0);
	begin(f, &late, "trap 'echo bye' TERM; echo up; while :; do sleep 1; done", 300);
	stand_still(f);

	assert_int_equal(peer_call(&f->peer, WIRE_EXEC_SIGNAL, &first), 0);
	outcome_wait(&killed, &f->peer);
	assert_int_equal(killed.exit.reason, REASON_SIGNALLED);
	assert_int_equal(killed.exit.signal, SIGKILL);
	memcpy(leave.exec_id, second.exec_id, WIRE_ID_SIZE);
	assert_int_equal(peer_call(&f->peer, WIRE_EXEC_KILL, &leave), 0);
	outcome_wait(&cancelled, &f->peer);
	assert_int_equal(cancelled.exit.reason, REASON_CANCELLED);
	outcome_wait(&late, &f->peer);
	assert_int_equal(late.exit.reason, REASON_TIMEOUT);
	assert_null(strstr(buf_str(&late.out), "bye"));
	go_on(f);
	outcome_run(&after, &f->peer, "echo fine");
	assert_string_equal(buf_str(&after.out), "fine\n");
	outcome_free(&killed);
	outcome_free(&cancelled);
	outcome_free(&late);
	outcome_free(&after);
}

/* Its cgroup is empty without having been killed, and still frozen. */
static void the_cgroup_of_one_that_ended_while_paused_is_not_used_again(void **state)
{
	struct fixture *f = *state;
	struct outcome o, after;

	needs_cgroup(f);
	begin(f, &o, "echo up; exec sleep 600", 0);
	stand_still(f);
	assert_int_equal(kill((pid_t)o.pid, SIGKILL), 0);
	outcome_wait(&o, &f->peer);
	assert_int_equal(o.exit.reason, REASON_SIGNALLED);
	go_on(f);
	outcome_run(&after, &f->peer, "echo fine");
	assert_string_equal(buf_str(&after.out), "fine\n");
	outcome_free(&o);
	outcome_free(&after);
}

static void a_pause_outlives_its_connection(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start refused = SHELL("true");
	struct outcome o, late;
	off_t at;

	needs_cgroup(f);
	begin(f, &o, COUNTING, 0);
	assert_true(counts_beyond(f, 0));
	stand_still(f);
	at = counted(f);
	peer_close(&f->peer);
	assert_int_equal(peer_open(&f->peer, &f->rig, 2), 0);
	outcome_start(&late, &f->peer, &refused);
	assert_int_equal(late.error, WERR_PAUSED);
	assert_int_equal(counted(f), at);
	go_on(f);
	assert_true(counts_beyond(f, at));
	outcome_free(&o);
	outcome_free(&late);
}

static void a_paused_place_ends_when_no_server_comes(void **state)
{
	struct fixture f = { 0 };
	struct outcome o;
	int status;

	(void)state;
	rig_start(&f.rig, &(struct rig_options){ .absence_ms = 1000 });
	if (!f.rig.cgroup[0]) {
		rig_stop(&f.rig);
		skip();
	}
	assert_int_equal(peer_open(&f.peer, &f.rig, 1), 0);
	begin(&f, &o, "trap '' TERM; echo up; while :; do sleep 1; done", 0);
	stand_still(&f);
	peer_close(&f.peer);
	assert_true(rig_wait_end(&f.rig, &status));
	assert_int_equal(WEXITSTATUS(status), RELAY_EXIT_ABSENCE);
	assert_true(process_is_gone_soon((pid_t)o.pid));
	outcome_free(&o);
	rig_stop(&f.rig);
}

static void without_cgroups_a_pause_is_refused_and_nothing_stops(void **state)
{
	struct fixture f = { 0 };
	struct outcome o;

	(void)state;
	rig_start(&f.rig, &(struct rig_options){ .no_cgroup = true });
	assert_int_equal(peer_open(&f.peer, &f.rig, 1), 0);
	assert_int_equal(set_paused(&f, true), WERR_UNSUPPORTED);
	outcome_run(&o, &f.peer, "echo fine");
	assert_string_equal(buf_str(&o.out), "fine\n");
	outcome_free(&o);
	peer_close(&f.peer);
	rig_stop(&f.rig);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_counter_stands_still_while_paused_and_goes_on),
		T(nothing_new_starts_while_paused_and_files_and_output_go_on),
		T(a_paused_command_can_be_killed_cancelled_and_runs_out_of_time),
		T(the_cgroup_of_one_that_ended_while_paused_is_not_used_again),
		T(a_pause_outlives_its_connection),
		cmocka_unit_test(a_paused_place_ends_when_no_server_comes),
		cmocka_unit_test(without_cgroups_a_pause_is_refused_and_nothing_stops),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/fd.h"
#include "base/id.h"
#include "client.h"
#include "wire/place.h"

static int set_up(void **state)
{
	struct rig *rig = xcalloc(1, sizeof(*rig));

	rig_start(rig, NULL);
	*state = rig;
	return 0;
}

static int tear_down(void **state)
{
	rig_stop(*state);
	free(*state);
	return 0;
}

/* The relay answers a newcomer: whatever happened before has not harmed it. */
static void assert_still_serves(const struct rig *rig, uint64_t epoch)
{
	struct outcome o;
	struct peer p;

	assert_int_equal(peer_open(&p, rig, epoch), 0);
	outcome_run(&o, &p, "echo fine");
	assert_string_equal(buf_str(&o.out), "fine\n");
	outcome_free(&o);
	peer_close(&p);
}

/* The connection ends with that error on stream 0, whatever else is said before. */
static void assert_closed_with(struct peer *p, uint32_t code)
{
	uint32_t seen = 0;
	unsigned type;

	while ((type = peer_next(p)) != 0)
		if (type == WIRE_ERROR && p->frame.stream == 0)
			seen = p->m.error.code;
	assert_int_equal(seen, code);
}

static void a_wrong_key_is_refused(void **state)
{
	struct rig *rig = *state;
	uint8_t wrong[HELLO_KEY_SIZE] = { 1 };
	struct wire_proof forged = { .proof = { 7 } };
	struct hello hello;
	struct peer p;

	peer_open_fd(&p, rig_connect(rig));
	assert_int_equal(hello_offer(&hello, RIG_PLACE, 1, 0, &p.conn.out, NULL), 0);
	peer_raw(&p, NULL, 0);
	assert_int_equal(peer_next(&p), WIRE_CHALLENGE);
	/* Seen from the server, the relay would be the impostor. */
	assert_int_equal(hello_answer(&hello, wrong, &p.frame, &p.conn.out, NULL), -1);
	peer_say(&p, 0, WIRE_PROOF, &forged);
	assert_closed_with(&p, WERR_AUTH);
	peer_close(&p);
	assert_still_serves(rig, 1);
}

static void a_recorded_hello_cannot_be_played_again(void **state)
{
	struct rig *rig = *state;
	_cleanup_buf_ struct buf first = { 0 }, second = { 0 };
	struct hello hello;
	struct peer p;

	peer_open_fd(&p, rig_connect(rig));
	assert_int_equal(hello_offer(&hello, RIG_PLACE, 5, 0, &first, NULL), 0);
	peer_raw(&p, first.data, first.len);
	assert_int_equal(peer_next(&p), WIRE_CHALLENGE);
	assert_int_equal(hello_answer(&hello, rig->key, &p.frame, &second, NULL), 0);
	peer_raw(&p, second.data, second.len);
	assert_int_equal(peer_next(&p), WIRE_WELCOME);
	peer_close(&p);
	peer_open_fd(&p, rig_connect(rig));
	peer_raw(&p, first.data, first.len);
	assert_int_equal(peer_next(&p), WIRE_CHALLENGE);
	peer_raw(&p, second.data, second.len);
	assert_closed_with(&p, WERR_AUTH);
	peer_close(&p);
	assert_still_serves(rig, 6);
}

static void a_lower_epoch_is_refused_and_a_higher_one_replaces(void **state)
{
	struct rig *rig = *state;
	struct peer old, lower, same, newer;

	assert_int_equal(peer_open(&old, rig, 10), 0);
	assert_int_equal(peer_open(&lower, rig, 9), WERR_STALE_EPOCH);
	assert_int_equal(peer_open(&same, rig, 10), WERR_BUSY);
	assert_int_equal(peer_open(&newer, rig, 11), 0);
	assert_closed_with(&old, WERR_REPLACED);
	assert_int_equal(peer_call(&newer, WIRE_EXEC_LIST, &(struct wire_exec_list){}), 0);
	peer_close(&old);
	peer_close(&lower);
	peer_close(&same);
	peer_close(&newer);
	/* The same adopter may come back when its connection is gone. */
	assert_still_serves(rig, 11);
}

static void another_place_or_an_unknown_version_is_refused(void **state)
{
	struct rig *rig = *state;
	struct wire_hello future = { .version = 9, .min_version = 8, .place_id = RIG_PLACE };
	struct hello hello;
	struct peer p;

	peer_open_fd(&p, rig_connect(rig));
	hello_offer(&hello, "somewhere-else", 1, 0, &p.conn.out, NULL);
	peer_raw(&p, NULL, 0);
	assert_closed_with(&p, WERR_VERSION);
	peer_close(&p);
	peer_open_fd(&p, rig_connect(rig));
	peer_say(&p, 0, WIRE_HELLO, &future);
	assert_closed_with(&p, WERR_VERSION);
	peer_close(&p);
}

static void garbage_and_huge_frames_close_only_that_connection(void **state)
{
	struct rig *rig = *state;
	uint8_t garbage[512];
	struct peer p;

	for (int i = 0; i < 30; i++) {
		random_bytes(garbage, sizeof(garbage));
		/* Sizes that would be waited for before the proof are not believed. */
		put_le32(garbage, (uint32_t)(2000 + i));
		peer_open_fd(&p, rig_connect(rig));
		peer_raw(&p, garbage, sizeof(garbage));
		assert_closed_with(&p, WERR_PROTOCOL);
		peer_close(&p);
	}
	assert_int_equal(peer_open(&p, rig, 1), 0);
	put_le32(garbage, WIRE_FRAME_MAX);
	peer_raw(&p, garbage, WIRE_HEADER_SIZE);
	assert_closed_with(&p, WERR_PROTOCOL);
	peer_close(&p);
	assert_still_serves(rig, 2);
}

struct violation {
	const char *what;
	uint8_t type;
	uint8_t flags;
	uint32_t stream;
	const char *payload;
	uint32_t length;
};

static void broken_rules_of_an_open_session_close_it(void **state)
{
	static const struct violation violations[] = {
		{ "unknown type", 0xee, 0, 1, "", 0 },
		{ "a relay's own message", WIRE_WELCOME, 0, 0, "", 0 },
		{ "a hello again", WIRE_HELLO, 0, 0, "", 0 },
		{ "data on a stream never opened", WIRE_DATA, 0, 77, "x", 1 },
		{ "data on stream 0", WIRE_DATA, 0, 0, "x", 1 },
		{ "output from the server", WIRE_OUTPUT, 0, 1, "0123456789abcdefx", 17 },
		{ "flags on a message", WIRE_EXEC_LIST, 1, 1, "", 0 },
		{ "a request on stream 0", WIRE_EXEC_LIST, 0, 0, "", 0 },
		{ "a field cut off", WIRE_PING, 0, 0, "\1\2\10\0\0\0\1", 7 },
		{ "an unknown field", WIRE_PING, 0, 0,
		  "\1\2\10\0\0\0\1\2\3\4\5\6\7\10\11\1\0\0\0\0", 20 },
		{ "credit for nothing", WIRE_CREDIT, 0, 9, "\1\1\4\0\0\0\1\0\0\0", 10 },
	};
	struct rig *rig = *state;
	uint64_t epoch = 1;

	for (size_t i = 0; i < ARRAY_SIZE(violations); i++) {
		const struct violation *v = &violations[i];
		_cleanup_buf_ struct buf bytes = { 0 };
		struct peer p;

		print_message("%s\n", v->what);
		assert_int_equal(peer_open(&p, rig, epoch++), 0);
		frame_append(&bytes, v->type, v->flags, v->stream, v->payload, v->length);
		peer_raw(&p, bytes.data, bytes.len);
		assert_closed_with(&p, WERR_PROTOCOL);
		peer_close(&p);
	}
	assert_still_serves(rig, epoch);
}

static void more_input_than_credit_and_acknowledging_the_future_close_the_session(void **state)
{
	struct rig *rig = *state;
	struct wire_exec_start start = SHELL("sleep 1000");
	_cleanup_free_ char *flood = xcalloc(1, WIRE_STDIN_CREDIT + 1);
	struct outcome o;
	struct peer p;

	start.stdin_mode = WIRE_STDIN_STREAM;
	assert_int_equal(peer_open(&p, rig, 1), 0);
	outcome_start(&o, &p, &start);
	peer_data(&p, o.stream, flood, WIRE_STDIN_CREDIT + 1, false);
	assert_closed_with(&p, WERR_PROTOCOL);
	peer_close(&p);
	assert_int_equal(peer_open(&p, rig, 2), 0);
	exec_id_new(start.exec_id);
	outcome_start(&o, &p, &start);
	peer_say(&p, o.stream, WIRE_EXEC_ACK, &(struct wire_exec_ack){ .offset = 1 });
	assert_closed_with(&p, WERR_PROTOCOL);
	peer_close(&p);
	assert_still_serves(rig, 3);
}

static void a_stream_number_is_used_once(void **state)
{
	struct rig *rig = *state;
	struct peer p;

	assert_int_equal(peer_open(&p, rig, 1), 0);
	assert_int_equal(peer_call(&p, WIRE_EXEC_LIST, &(struct wire_exec_list){}), 0);
	peer_say(&p, 1, WIRE_EXEC_LIST, &(struct wire_exec_list){});
	assert_closed_with(&p, WERR_PROTOCOL);
	peer_close(&p);
}

static void a_crowd_of_silent_strangers_keeps_nobody_out(void **state)
{
	struct rig *rig = *state;
	int strangers[40];

	for (size_t i = 0; i < ARRAY_SIZE(strangers); i++)
		strangers[i] = rig_connect(rig);
	assert_still_serves(rig, 1);
	for (size_t i = 0; i < ARRAY_SIZE(strangers); i++)
		close(strangers[i]);
}

static void a_silent_stranger_is_dropped_after_the_hello_time(void **state)
{
	struct rig *rig = *state;
	struct pollfd wait = { .events = POLLIN };
	int64_t before = test_now_ms();

	wait.fd = rig_connect(rig);
	assert_int_equal(poll(&wait, 1, CLIENT_WAIT_MS), 1);
	assert_true(test_now_ms() - before >= WIRE_HELLO_MS - 100);
	close(wait.fd);
}

static void a_place_nobody_asks_after_ends_itself_and_its_commands(void **state)
{
	struct wire_exec_start start = SHELL("echo up; sleep 1000");
	_cleanup_buf_ struct buf ended = { 0 };
	struct outcome o;
	struct rig rig;
	struct peer p;
	int status;

	(void)state;
	rig_start(&rig, &(struct rig_options){ .absence_ms = 1000 });
	assert_int_equal(peer_open(&p, &rig, 1), 0);
	outcome_start(&o, &p, &start);
	outcome_wait_text(&o, &p, "up");
	/* Traffic keeps it alive beyond the TTL. */
	for (int64_t until = test_now_ms() + 1600; test_now_ms() < until;) {
		peer_say(&p, 0, WIRE_PING, &(struct wire_ping){ .token = 1 });
		assert_int_equal(peer_next(&p), WIRE_PONG);
		poll(NULL, 0, 50);
	}
	assert_true(process_lives((pid_t)o.pid));
	peer_close(&p);
	assert_true(rig_wait_end(&rig, &status));
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), RELAY_EXIT_ABSENCE);
	assert_false(process_lives((pid_t)o.pid));
	assert_int_equal(file_read(rig.dir_fd, "spool/" RELAY_ENDED_FILE, &ended, 100, NULL), 0);
	assert_string_equal(buf_str(&ended), "absence");
	outcome_free(&o);
	rig_stop(&rig);
}

static void killing_everything_leaves_the_place_usable(void **state)
{
	struct rig *rig = *state;
	struct wire_exec_start start = SHELL("echo up; sleep 1000");
	struct outcome o;
	struct peer p;

	assert_int_equal(peer_open(&p, rig, 1), 0);
	outcome_start(&o, &p, &start);
	outcome_wait_text(&o, &p, "up");
	peer_ask(&p, WIRE_EXEC_KILL_ALL,
		 &(struct wire_exec_kill_all){ .reason = REASON_LEASE_LOST });
	outcome_wait(&o, &p);
	assert_int_equal(o.exit.reason, REASON_LEASE_LOST);
	outcome_free(&o);
	peer_close(&p);
	assert_still_serves(rig, 2);
}

static void the_key_cannot_be_read_by_a_payload_of_the_same_user(void **state)
{
	struct rig rig;
	struct outcome o;
	struct peer p;

	(void)state;
	/* Not as root, for whom nothing is closed. */
	if (geteuid() != 0)
		skip();
	rig_start(&rig, &(struct rig_options){ .run_as = 65534 });
	assert_int_equal(peer_open(&p, &rig, 1), 0);
	outcome_run(&o, &p,
		    "id -u; cat /proc/$PPID/mem >/dev/null || echo no mem; ls /proc/$PPID/fd "
		    ">/dev/null || "
		    "echo no fds; kill -9 $PPID || echo no kill; cat /proc/$PPID/environ "
		    ">/dev/null || echo no env");
	assert_string_equal(buf_str(&o.out), "65534\nno mem\nno fds\nno kill\nno env\n");
	assert_true(process_lives(rig.pid));
	outcome_free(&o);
	peer_close(&p);
	rig_stop(&rig);
}

/* A connection for the config of a relay that does not run yet; the other end is the peer's. */
static struct rig_options handing(struct peer *p)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair),
			 0);
	peer_open_fd(p, pair[0]);
	return (struct rig_options){ .handed_fd = pair[1] };
}

static void say_hello(struct peer *p, const char *place, uint64_t epoch)
{
	struct hello hello;

	assert_int_equal(hello_offer(&hello, place, epoch, 0, &p->conn.out, NULL), 0);
	peer_raw(p, NULL, 0);
}

static void start_with(struct rig *rig, const struct rig_options *options)
{
	rig_start(rig, options);
	close(options->handed_fd);
}

static void a_connection_that_is_handed_over_needs_no_proof(void **state)
{
	struct wire_exec_start start = SHELL("echo at once");
	struct peer p, late;
	struct rig_options options = handing(&p);
	struct outcome o = { 0 };
	struct rig rig;

	(void)state;
	say_hello(&p, RIG_PLACE, 5);
	/* What is asked for behind the hello is not lost. */
	o.stream = peer_ask(&p, WIRE_EXEC_START, &start);
	start_with(&rig, &options);
	assert_int_equal(peer_next(&p), WIRE_WELCOME);
	assert_int_equal(p.m.welcome.version, WIRE_VERSION);
	assert_true(p.m.welcome.features & WIRE_FEATURE_EXEC);
	outcome_wait(&o, &p);
	assert_string_equal(buf_str(&o.out), "at once\n");
	/* It is a session like any other: an older one is refused, a newer one takes its place. */
	assert_int_equal(peer_open(&late, &rig, 4), WERR_STALE_EPOCH);
	peer_close(&late);
	assert_still_serves(&rig, 6);
	assert_closed_with(&p, WERR_REPLACED);
	outcome_free(&o);
	peer_close(&p);
	rig_stop(&rig);
}

static void one_that_is_meant_for_another_place_is_refused(void **state)
{
	struct peer p;
	struct rig_options options = handing(&p);
	struct rig rig;

	(void)state;
	say_hello(&p, "another-place", 5);
	start_with(&rig, &options);
	assert_closed_with(&p, WERR_VERSION);
	peer_close(&p);
	/* And its epoch counts for nothing. */
	assert_still_serves(&rig, 1);
	rig_stop(&rig);
}

static void one_that_says_nothing_sensible_is_closed_alone(void **state)
{
	struct peer p;
	struct rig_options options = handing(&p);
	struct rig rig;

	(void)state;
	peer_raw(&p, "this is not a frame at all", 26);
	start_with(&rig, &options);
	assert_closed_with(&p, WERR_PROTOCOL);
	peer_close(&p);
	assert_still_serves(&rig, 1);
	rig_stop(&rig);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_wrong_key_is_refused),
		T(a_recorded_hello_cannot_be_played_again),
		T(a_lower_epoch_is_refused_and_a_higher_one_replaces),
		T(another_place_or_an_unknown_version_is_refused),
		T(garbage_and_huge_frames_close_only_that_connection),
		T(broken_rules_of_an_open_session_close_it),
		T(more_input_than_credit_and_acknowledging_the_future_close_the_session),
		T(a_stream_number_is_used_once),
		T(a_crowd_of_silent_strangers_keeps_nobody_out),
		T(a_silent_stranger_is_dropped_after_the_hello_time),
		T(killing_everything_leaves_the_place_usable),
		cmocka_unit_test(a_connection_that_is_handed_over_needs_no_proof),
		cmocka_unit_test(one_that_is_meant_for_another_place_is_refused),
		cmocka_unit_test(one_that_says_nothing_sensible_is_closed_alone),
		cmocka_unit_test(a_place_nobody_asks_after_ends_itself_and_its_commands),
		cmocka_unit_test(the_key_cannot_be_read_by_a_payload_of_the_same_user),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

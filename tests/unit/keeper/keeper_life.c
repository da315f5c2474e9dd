#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "../relay/client.h"
#include "base/fd.h"
#include "base/id.h"
#include "wire/place.h"

/* One directory with a keeper in it, seen by a client. */
struct fixture {
	char dir[200];
	int dir_fd;
	pid_t keeper;
	struct peer peer;
	uint8_t key[HELLO_KEY_SIZE];
	/* Of the last PLACE_STATE. */
	struct wire_place_state place;
	char socket[300];
	char cgroup[300];
	char ended[100];
};

/* As root everything also runs as an ordinary user. */
static bool as_nobody;

static pid_t keeper_spawn(const char *dir, const char *idle_seconds, const char *fault)
{
	const char *program = getenv("BERTH_KEEPER");
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	if (as_nobody && (setgid(65534) < 0 || setuid(65534) < 0))
		_exit(97);
	if (fault)
		setenv("BERTH_FAULT", fault, 1);
	execl(program ? program : TEST_KEEPER, "berth-keeper", "--dir", dir, "--relay",
	      relay_program(), "--idle-seconds", idle_seconds, (char *)NULL);
	_exit(98);
}

static int socket_connect(int dir_fd, const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", dir_fd, name);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* A child of a keeper that was just killed may hold the old socket for a moment: then it is tried
 * again. */
static bool keeper_try(struct fixture *f)
{
	struct wire_keeper_hello hello = { .version = WIRE_VERSION,
					   .min_version = WIRE_MIN_VERSION };
	int fd = socket_connect(f->dir_fd, KEEPER_SOCKET_NAME);

	if (fd < 0)
		return false;
	peer_open_fd(&f->peer, fd);
	peer_say(&f->peer, 0, WIRE_KEEPER_HELLO, &hello);
	if (peer_next(&f->peer) == WIRE_KEEPER_WELCOME)
		return true;
	peer_close(&f->peer);
	return false;
}

static void keeper_greet(struct fixture *f)
{
	int64_t until = test_now_ms() + CLIENT_WAIT_MS;

	while (!keeper_try(f)) {
		assert_true(test_now_ms() < until);
		poll(NULL, 0, 5);
	}
}

static void keeper_start(struct fixture *f)
{
	f->keeper = keeper_spawn(f->dir, "30", NULL);
	keeper_greet(f);
}

static void keeper_kill(struct fixture *f)
{
	peer_close(&f->peer);
	kill(f->keeper, SIGKILL);
	waitpid(f->keeper, NULL, 0);
	f->keeper = 0;
}

static int set_up(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));
	char base[] = "/tmp/berth-keep-XXXXXX";

	assert_non_null(mkdtemp(base));
	/* Longer than a socket address can be. */
	snprintf(f->dir, sizeof(f->dir), "%s/%0100d", base, 0);
	assert_int_equal(mkdir(f->dir, 0700), 0);
	if (as_nobody) {
		assert_int_equal(chown(f->dir, 65534, 65534), 0);
		assert_int_equal(chmod(base, 0755), 0);
	}
	f->dir_fd = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	random_bytes(f->key, sizeof(f->key));
	keeper_start(f);
	*state = f;
	return 0;
}

static void keep_state(struct fixture *f)
{
	f->place = f->peer.m.place_state;
	snprintf(f->socket, sizeof(f->socket), "%s", f->place.socket ? f->place.socket : "");
	snprintf(f->cgroup, sizeof(f->cgroup), "%s", f->place.cgroup ? f->place.cgroup : "");
	snprintf(f->ended, sizeof(f->ended), "%s", f->place.ended ? f->place.ended : "");
}

static uint32_t make_with(struct fixture *f, struct wire_place_make *m)
{
	uint32_t stream;
	unsigned type;

	memcpy(m->key, f->key, sizeof(m->key));
	if (m->absence_ms == 0)
		m->absence_ms = 60000;
	stream = peer_ask(&f->peer, WIRE_PLACE_MAKE, m);
	type = peer_next_on(&f->peer, stream);
	if (type == WIRE_ERROR)
		return f->peer.m.error.code;
	assert_int_equal(type, WIRE_PLACE_STATE);
	keep_state(f);
	return 0;
}

static uint32_t make_place(struct fixture *f, const char *id)
{
	struct wire_place_make m = { .place_id = id, .kind = PLACE_DIR };

	return make_with(f, &m);
}

static uint32_t destroy(struct fixture *f, const char *id)
{
	return peer_call(&f->peer, WIRE_PLACE_DESTROY,
			 &(struct wire_place_destroy){ .place_id = id });
}

/* How many places are listed; the state of the one with that id is kept. */
static unsigned list_places(struct fixture *f, const char *id)
{
	uint32_t stream = peer_ask(&f->peer, WIRE_PLACE_LIST, &(struct wire_place_list){});
	unsigned count = 0;

	while (peer_next_on(&f->peer, stream) == WIRE_PLACE_STATE) {
		count++;
		if (strcmp(f->peer.m.place_state.place_id, id) == 0)
			keep_state(f);
	}
	return count;
}

/* A session with the relay of a place, as the server would have one. */
static void enter(struct fixture *f, const char *id, uint64_t epoch, struct peer *p)
{
	char name[100];
	struct hello hello;

	snprintf(name, sizeof(name), "places/%s/s", id);
	peer_open_fd(p, socket_connect(f->dir_fd, name));
	assert_true(p->conn.fd >= 0);
	assert_int_equal(hello_offer(&hello, id, epoch, 0, &p->conn.out, NULL), 0);
	peer_raw(p, NULL, 0);
	assert_int_equal(peer_next(p), WIRE_CHALLENGE);
	assert_int_equal(hello_answer(&hello, f->key, &p->frame, &p->conn.out, NULL), 0);
	peer_raw(p, NULL, 0);
	assert_int_equal(peer_next(p), WIRE_WELCOME);
}

static bool nothing_left(struct fixture *f)
{
	struct dirent *entry;
	bool empty = true;
	char path[300];
	DIR *dir;

	snprintf(path, sizeof(path), "%s/places", f->dir);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		empty &= entry->d_name[0] == '.';
	if (dir)
		closedir(dir);
	return empty && (!f->cgroup[0] || access(f->cgroup, F_OK) < 0);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	char base[30];

	if (f->keeper > 0) {
		char ids[16][65];
		unsigned count = 0;
		uint32_t stream = peer_ask(&f->peer, WIRE_PLACE_LIST, &(struct wire_place_list){});

		while (peer_next_on(&f->peer, stream) == WIRE_PLACE_STATE && count < 16)
			snprintf(ids[count++], 65, "%s", f->peer.m.place_state.place_id);
		while (count > 0)
			destroy(f, ids[--count]);
		peer_close(&f->peer);
		kill(f->keeper, SIGTERM);
		waitpid(f->keeper, NULL, 0);
	}
	assert_true(nothing_left(f));
	close(f->dir_fd);
	snprintf(base, sizeof(base), "%.22s", f->dir);
	assert_int_equal(dir_remove_tree(AT_FDCWD, base, NULL), 0);
	free(f);
	return 0;
}

static const char stray_script[] =
	"setsid sh -c 'setsid sleep 1000 >/dev/null 2>&1 & echo $!' ; echo ready; sleep 1000";

static void a_place_is_made_used_and_destroyed_without_a_trace(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL(stray_script);
	struct outcome o;
	struct peer p;

	assert_int_equal(make_place(f, "one"), 0);
	assert_int_equal(f->place.state, PLACE_ALIVE);
	assert_true(process_lives((pid_t)f->place.pid));
	enter(f, "one", 1, &p);
	outcome_start(&o, &p, &start);
	outcome_wait_text(&o, &p, "ready");
	assert_int_equal(destroy(f, "one"), 0);
	assert_false(process_lives((pid_t)f->place.pid));
	assert_true(process_is_gone_soon(atoi(buf_str(&o.out))));
	assert_true(process_is_gone_soon((pid_t)o.pid));
	assert_true(nothing_left(f));
	assert_int_equal(destroy(f, "one"), WERR_NO_PLACE);
	outcome_free(&o);
	peer_close(&p);
}

static void making_it_twice_gives_the_same_place(void **state)
{
	struct fixture *f = *state;
	uint32_t pid;

	assert_int_equal(make_place(f, "one"), 0);
	pid = f->place.pid;
	assert_int_equal(make_place(f, "one"), 0);
	assert_int_equal(f->place.pid, pid);
	assert_int_equal(list_places(f, "one"), 1);
}

/* Both requests in one write: the second comes while the relay is still starting. */
static void whoever_has_a_place_made_is_told_when_it_is_ended_meanwhile(void **state)
{
	struct fixture *f = *state;
	struct wire_place_make m = { .place_id = "one", .kind = PLACE_DIR, .absence_ms = 60000 };
	struct wire_place_destroy end = { .place_id = "one" };
	_cleanup_buf_ struct buf both = { 0 };
	uint32_t made = ++f->peer.last_stream, ended = ++f->peer.last_stream;

	memcpy(m.key, f->key, sizeof(m.key));
	assert_int_equal(wire_encode(&both, made, WIRE_PLACE_MAKE, &m, NULL), 0);
	assert_int_equal(wire_encode(&both, ended, WIRE_PLACE_DESTROY, &end, NULL), 0);
	peer_raw(&f->peer, both.data, both.len);
	assert_int_equal(peer_next(&f->peer), WIRE_ERROR);
	assert_int_equal(f->peer.frame.stream, made);
	assert_int_equal(f->peer.m.error.code, WERR_ENDING);
	assert_int_equal(peer_next(&f->peer), WIRE_DONE);
	assert_int_equal(f->peer.frame.stream, ended);
	assert_int_equal(list_places(f, "one"), 0);
}

static void requests_that_make_no_sense_are_refused(void **state)
{
	struct fixture *f = *state;
	struct wire_place_make m = { .place_id = "../x", .kind = PLACE_DIR };

	assert_int_equal(make_with(f, &m), WERR_INVALID);
	m.place_id = "ok";
	m.absence_ms = 5;
	assert_int_equal(make_with(f, &m), WERR_INVALID);
	m.absence_ms = 0;
	m.root = "relative";
	assert_int_equal(make_with(f, &m), WERR_INVALID);
	m.root = "/no/such/root";
	assert_int_equal(make_with(f, &m), WERR_START);
	for (int64_t until = test_now_ms() + CLIENT_WAIT_MS;
	     !nothing_left(f) && test_now_ms() < until;)
		poll(NULL, 0, 5);
	assert_true(nothing_left(f));
}

static void a_new_keeper_adopts_places_whose_keeper_was_killed(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL("read line; echo got $line; exit 6");
	struct wire_exec_attach attach = { .credit = 1000 };
	struct outcome o;
	struct peer p;
	uint32_t pid;

	assert_int_equal(make_place(f, "one"), 0);
	pid = f->place.pid;
	start.stdin_mode = WIRE_STDIN_STREAM;
	enter(f, "one", 1, &p);
	outcome_start(&o, &p, &start);
	keeper_kill(f);
	keeper_start(f);
	assert_int_equal(list_places(f, "one"), 1);
	assert_int_equal(f->place.state, PLACE_ALIVE);
	assert_int_equal(f->place.pid, pid);
	peer_close(&p);
	outcome_free(&o);
	memset(&o, 0, sizeof(o));
	enter(f, "one", 2, &p);
	memcpy(attach.exec_id, start.exec_id, WIRE_ID_SIZE);
	o.stream = peer_ask(&p, WIRE_EXEC_ATTACH, &attach);
	peer_data(&p, o.stream, "it\n", 3, true);
	outcome_wait(&o, &p);
	assert_string_equal(buf_str(&o.out), "got it\n");
	assert_int_equal(o.exit.exit_code, 6);
	outcome_free(&o);
	peer_close(&p);
	/* The adopted relay is no child any more; its death is noticed all the same. */
	kill((pid_t)pid, SIGKILL);
	for (int64_t until = test_now_ms() + CLIENT_WAIT_MS; f->place.state == PLACE_ALIVE;) {
		assert_true(test_now_ms() < until);
		list_places(f, "one");
	}
	assert_int_equal(f->place.state, PLACE_DEAD);
}

static void what_a_killed_relay_leaves_is_killed_and_listed_as_dead(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL(stray_script);
	struct outcome o;
	struct peer p;

	assert_int_equal(make_place(f, "one"), 0);
	enter(f, "one", 1, &p);
	outcome_start(&o, &p, &start);
	outcome_wait_text(&o, &p, "ready");
	kill((pid_t)f->place.pid, SIGKILL);
	assert_true(process_is_gone_soon((pid_t)o.pid));
	assert_true(process_is_gone_soon(atoi(buf_str(&o.out))));
	for (int64_t until = test_now_ms() + CLIENT_WAIT_MS; f->place.state == PLACE_ALIVE;) {
		assert_true(test_now_ms() < until);
		list_places(f, "one");
	}
	assert_int_equal(f->place.state, PLACE_DEAD);
	assert_string_equal(f->ended, "relay killed by signal 9");
	assert_int_equal(destroy(f, "one"), 0);
	assert_true(nothing_left(f));
	outcome_free(&o);
	peer_close(&p);
}

static void a_relay_that_died_while_no_keeper_ran_is_torn_down_by_the_next(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL(stray_script);
	struct outcome o;
	struct peer p;

	assert_int_equal(make_place(f, "one"), 0);
	enter(f, "one", 1, &p);
	outcome_start(&o, &p, &start);
	outcome_wait_text(&o, &p, "ready");
	keeper_kill(f);
	kill((pid_t)f->place.pid, SIGKILL);
	/* One that is still dying would be adopted, and its death seen. */
	assert_true(process_is_gone_soon((pid_t)f->place.pid));
	keeper_start(f);
	for (int64_t until = test_now_ms() + CLIENT_WAIT_MS; list_places(f, "one") > 0;)
		assert_true(test_now_ms() < until);
	assert_true(nothing_left(f));
	assert_false(process_lives(atoi(buf_str(&o.out))));
	outcome_free(&o);
	peer_close(&p);
}

static void a_keeper_killed_while_making_a_place_leaves_nothing_to_the_next(void **state)
{
	static const char *const points[] = { "keeper.make.recipe-written:kill",
					      "keeper.make.started:kill" };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
		struct wire_place_make m = { .place_id = "half",
					     .kind = PLACE_DIR,
					     .absence_ms = 60000 };
		int status;

		keeper_kill(f);
		f->keeper = keeper_spawn(f->dir, "30", points[i]);
		keeper_greet(f);
		peer_ask(&f->peer, WIRE_PLACE_MAKE, &m);
		assert_int_equal(peer_next(&f->peer), 0);
		assert_int_equal(waitpid(f->keeper, &status, 0), f->keeper);
		assert_true(WIFSIGNALED(status));
		peer_close(&f->peer);
		keeper_start(f);
		/* A relay that was running is adopted, anything less is being removed already. */
		destroy(f, "half");
		for (int64_t until = test_now_ms() + CLIENT_WAIT_MS; list_places(f, "half") > 0;)
			assert_true(test_now_ms() < until);
		assert_true(nothing_left(f));
	}
}

static void an_absent_server_leaves_nothing_behind_not_even_the_keeper(void **state)
{
	struct fixture *f = *state;
	struct wire_place_make m = { .place_id = "one", .kind = PLACE_DIR, .absence_ms = 1000 };
	struct outcome o;
	struct wire_exec_start start = SHELL("echo up; sleep 1000");
	int64_t until;
	struct peer p;

	keeper_kill(f);
	f->keeper = keeper_spawn(f->dir, "1", NULL);
	keeper_greet(f);
	assert_int_equal(make_with(f, &m), 0);
	enter(f, "one", 1, &p);
	outcome_start(&o, &p, &start);
	outcome_wait_text(&o, &p, "up");
	peer_close(&p);
	peer_close(&f->peer);
	until = test_now_ms() + CLIENT_WAIT_MS;
	while (waitpid(f->keeper, NULL, WNOHANG) != f->keeper) {
		assert_true(test_now_ms() < until);
		poll(NULL, 0, 10);
	}
	f->keeper = 0;
	assert_false(process_lives((pid_t)o.pid));
	assert_true(nothing_left(f));
	assert_int_equal(faccessat(f->dir_fd, KEEPER_SOCKET_NAME, F_OK, 0), -1);
	outcome_free(&o);
}

static void a_second_keeper_in_the_same_directory_gives_way(void **state)
{
	struct fixture *f = *state;
	pid_t second = keeper_spawn(f->dir, "30", NULL);
	int status;

	assert_int_equal(waitpid(second, &status, 0), second);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 3);
	assert_int_equal(peer_call(&f->peer, WIRE_KEEPER_STATUS, &(struct wire_keeper_status){}),
			 0);
}

/* Nobody may come after it who would. */
static void a_keeper_that_is_told_to_end_finishes_what_is_being_ended(void **state)
{
	static const char *const ids[] = { "one", "two", "three", "four" };
	struct fixture *f = *state;
	unsigned type;

	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		assert_int_equal(make_place(f, ids[i]), 0);
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		peer_ask(&f->peer, WIRE_PLACE_DESTROY,
			 &(struct wire_place_destroy){ .place_id = ids[i] });
	peer_say(&f->peer, 0, WIRE_PING, &(struct wire_ping){ .token = 1 });
	do
		type = peer_next(&f->peer);
	while (type == WIRE_DONE);
	assert_int_equal(type, WIRE_PONG);
	kill(f->keeper, SIGTERM);
	assert_int_equal(waitpid(f->keeper, NULL, 0), f->keeper);
	f->keeper = 0;
	peer_close(&f->peer);
	assert_true(nothing_left(f));
}

static void hostile_bytes_close_only_that_client(void **state)
{
	struct fixture *f = *state;
	uint8_t garbage[64];
	struct peer p;

	for (int i = 0; i < 20; i++) {
		random_bytes(garbage, sizeof(garbage));
		garbage[3] = 0x7f;
		peer_open_fd(&p, socket_connect(f->dir_fd, KEEPER_SOCKET_NAME));
		peer_raw(&p, garbage, sizeof(garbage));
		while (peer_next(&p) != 0)
			;
		peer_close(&p);
	}
	assert_int_equal(peer_call(&f->peer, WIRE_KEEPER_STATUS, &(struct wire_keeper_status){}),
			 0);
}

static void another_user_is_not_heard(void **state)
{
	struct fixture *f = *state;
	int status;
	pid_t pid;

	if (geteuid() != 0 || as_nobody)
		skip();
	pid = fork();
	if (pid == 0) {
		char byte;
		int fd = -1;

		/* With a descriptor of the directory in hand, the path's own protection does not
		 * count. */
		if (setgid(65534) == 0 && setuid(65534) == 0)
			fd = socket_connect(f->dir_fd, KEEPER_SOCKET_NAME);
		_exit(fd < 0 || read(fd, &byte, 1) == 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* PLACE_MAKE with a connection; its other end becomes the peer's, with a hello in it. */
static void make_handing(struct fixture *f, const char *id, uint64_t epoch, struct peer *p)
{
	struct wire_place_make m = {
		.place_id = id, .kind = PLACE_DIR, .absence_ms = 60000, .handed = 1
	};
	_cleanup_buf_ struct buf bytes = { 0 };
	struct hello hello;
	int pair[2];

	memcpy(m.key, f->key, sizeof(m.key));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair),
			 0);
	peer_open_fd(p, pair[0]);
	assert_int_equal(hello_offer(&hello, id, epoch, 0, &p->conn.out, NULL), 0);
	peer_raw(p, NULL, 0);
	assert_int_equal(wire_encode(&bytes, ++f->peer.last_stream, WIRE_PLACE_MAKE, &m, NULL), 0);
	assert_int_equal(
		fd_send_with(f->peer.conn.fd, bytes.data, bytes.len, &pair[1], 1, MSG_NOSIGNAL),
		bytes.len);
	close(pair[1]);
	assert_int_equal(peer_next_on(&f->peer, f->peer.last_stream), WIRE_PLACE_STATE);
	keep_state(f);
}

static void a_connection_that_comes_with_a_place_is_its_relays(void **state)
{
	struct fixture *f = *state;
	struct outcome o;
	struct peer p, again;

	make_handing(f, "one", 5, &p);
	assert_int_equal(f->place.handed, 1);
	assert_int_equal(peer_next(&p), WIRE_WELCOME);
	outcome_run(&o, &p, "echo here");
	assert_string_equal(buf_str(&o.out), "here\n");
	outcome_free(&o);
	/* Who asks for it again has not made it, and its connection goes to nobody. */
	make_handing(f, "one", 6, &again);
	assert_int_equal(f->place.handed, 0);
	assert_int_equal(peer_next(&again), 0);
	peer_close(&again);
	list_places(f, "one");
	assert_int_equal(f->place.handed, 0);
	peer_close(&p);
	assert_int_equal(destroy(f, "one"), 0);
}

/* Each question goes with its own, whatever else is on the way. */
static void a_connection_that_was_announced_and_did_not_come_is_none(void **state)
{
	struct wire_place_make m = { .place_id = "one", .kind = PLACE_DIR, .handed = 1 };
	struct fixture *f = *state;
	struct peer p;

	assert_int_equal(make_with(f, &m), 0);
	assert_int_equal(f->place.handed, 0);
	enter(f, "one", 1, &p);
	peer_close(&p);
	make_handing(f, "two", 5, &p);
	assert_int_equal(f->place.handed, 1);
	assert_int_equal(peer_next(&p), WIRE_WELCOME);
	peer_close(&p);
	assert_int_equal(destroy(f, "one"), 0);
	assert_int_equal(destroy(f, "two"), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_place_is_made_used_and_destroyed_without_a_trace),
		T(making_it_twice_gives_the_same_place),
		T(whoever_has_a_place_made_is_told_when_it_is_ended_meanwhile),
		T(requests_that_make_no_sense_are_refused),
		T(a_new_keeper_adopts_places_whose_keeper_was_killed),
		T(what_a_killed_relay_leaves_is_killed_and_listed_as_dead),
		T(a_relay_that_died_while_no_keeper_ran_is_torn_down_by_the_next),
		T(a_keeper_killed_while_making_a_place_leaves_nothing_to_the_next),
		T(an_absent_server_leaves_nothing_behind_not_even_the_keeper),
		T(a_second_keeper_in_the_same_directory_gives_way),
		T(a_keeper_that_is_told_to_end_finishes_what_is_being_ended),
		T(hostile_bytes_close_only_that_client),
		T(a_connection_that_comes_with_a_place_is_its_relays),
		T(a_connection_that_was_announced_and_did_not_come_is_none),
		T(another_user_is_not_heard),
	};
	int failed = 0;

	if (geteuid() == 0) {
		failed = cmocka_run_group_tests_name("as root", tests, NULL, NULL);
		as_nobody = true;
	}
	return failed + cmocka_run_group_tests_name("as an ordinary user", tests, NULL, NULL);
}

/* How many connections strangers may have, and how long a head may take. */
#include "client.h"
#include <sys/wait.h>

static int hello(void *server, struct request *request, struct response *response,
		 struct error *err)
{
	(void)server;
	(void)request;
	(void)err;
	response_json(response, 200, json_object());
	return 0;
}

static const struct field BODY[] = { { .name = "any", .type = FIELD_ANY }, { 0 } };
static const struct route ROUTES[] = {
	{ HTTP_GET, "/hello", .run = hello, .access = ACCESS_SIGNED_IN },
	{ HTTP_POST, "/hello", .run = hello, .body = BODY, .access = ACCESS_SIGNED_IN },
	{ HTTP_GET, "/public", .run = hello, .access = ACCESS_PUBLIC },
	{ 0 },
};
static const struct route *const TABLES[] = { ROUTES, NULL };

static int up_with(void **state, int head_seconds)
{
	struct test_server *server = xcalloc(1, sizeof(*server));

	server->head_seconds = head_seconds;
	server_up(server, TABLES, NULL);
	*state = server;
	return 0;
}

static int up(void **state)
{
	return up_with(state, 1);
}

/* Enough for a crowd to gather. */
static int up_patient(void **state)
{
	return up_with(state, 5);
}

static int down(void **state)
{
	server_down(*state);
	free(*state);
	return 0;
}

/* A byte at a time until the server has hung up. */
static void drip(int fd)
{
	int64_t bytes = 0;
	char got;

	while (!readable(fd, 20)) {
		assert_true(++bytes * 20 < CLIENT_MS);
		if (send(fd, "x", 1, MSG_NOSIGNAL) < 0)
			return;
	}
	assert_true(recv(fd, &got, 1, 0) <= 0);
}

static void a_head_that_drips_in_is_cut_off(void **state)
{
	const struct test_server *server = *state;
	_cleanup_close_ int tcp = dial(server), local = dial_unix(server);

	say(tcp, "GET /hello HTTP/1.1\r\nHost: localhost:%d\r\nX: ", server->port);
	drip(tcp);
	/* Behind an answer as well. */
	say(local, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
	assert_answer(read_answer(local), 200, NULL);
	say(local, "GET /hello HTTP/1.1\r\nHost: x\r\nX: ");
	drip(local);
}

static void a_connection_of_a_known_peer_may_rest(void **state)
{
	_cleanup_close_ int fd = dial_unix(*state);

	say(fd, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
	assert_answer(read_answer(fd), 200, NULL);
	assert_false(readable(fd, 2000));
	say(fd, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
	assert_answer(read_answer(fd), 200, NULL);
}

/* What `work` answers when another user does it, as an exit code. */
static int as_nobody(int (*work)(const struct test_server *), const struct test_server *server)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (setgid(65534) < 0 || setuid(65534) < 0)
			_exit(255);
		_exit(work(server));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 254;
}

enum { CROWD = 80 };

/* How many of them stay open until the deadline for heads is near. */
static int crowd(const struct test_server *server)
{
	int fds[CROWD], open = 0;

	for (int i = 0; i < CROWD; i++) {
		fds[i] = dial(server);
		say(fds[i], "GET /hello HTTP/1.1\r\nHost: localhost\r\nX: y");
	}
	for (int i = 0; i < CROWD; i++)
		open += !readable(fds[i], 1);
	return open;
}

static int wait_for_end(const struct test_server *server)
{
	_cleanup_close_ int fd = dial(server);
	char byte;

	/* Without a byte, too. */
	return readable(fd, CLIENT_MS) && recv(fd, &byte, 1, 0) == 0 ? 0 : 1;
}

static int drip_body(const struct test_server *server)
{
	_cleanup_close_ int fd = dial(server);
	_cleanup_buf_ struct buf got = { 0 };

	say(fd,
	    "POST /hello HTTP/1.1\r\nHost: localhost:%d\r\nContent-Type: application/json\r\n"
	    "Content-Length: 1000\r\n\r\n{",
	    server->port);
	read_until(fd, NULL, &got);
	return strstr(buf_str(&got), "HTTP/1.1 401") ? 0 : 1;
}

static void strangers_of_one_user_leave_room_for_the_others(void **state)
{
	const struct test_server *server = *state;

	if (geteuid() != 0)
		skip();
	assert_int_equal(as_nobody(crowd, server), 64);
	assert_answer(ask(server, "GET /hello", "", NULL), 200, NULL);
	assert_int_equal(as_nobody(wait_for_end, server), 0);
	assert_int_equal(as_nobody(drip_body, server), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_head_that_drips_in_is_cut_off),
		TEST(a_connection_of_a_known_peer_may_rest),
		cmocka_unit_test_setup_teardown(strangers_of_one_user_leave_room_for_the_others,
						up_patient, down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

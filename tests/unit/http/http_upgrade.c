#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "client.h"
#include "http/websocket.h"

#define HANDSHAKE                                                                                  \
	"Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"                                \
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"

/* What the sessions report. */
struct stage {
	int began, closed; /* latches */
	atomic_int sessions;
};

static void echo(void *arg, enum websocket_type type, const char *data, size_t len)
{
	websocket_send(*(struct websocket **)arg, type, data, len);
}

static void run_echo(void *arg, int fd, const void *early, size_t early_len, int stop_fd)
{
	struct stage *stage = arg;
	struct websocket *self;
	const struct websocket_options options = {
		.fd = fd,
		.is_server = true,
		.early = early,
		.early_len = early_len,
		.max_message = 1000,
		.message = echo,
		.arg = &self,
	};
	_cleanup_websocket_ struct websocket *ws = websocket_new(&options);

	self = ws;
	atomic_fetch_add(&stage->sessions, 1);
	latch_set(stage->began);
	while (websocket_step(ws, true)) {
		struct pollfd fds[] = { { .fd = fd, .events = websocket_events(ws, true) },
					{ .fd = stop_fd, .events = POLLIN } };

		poll(fds, 2, -1);
		if (fds[1].revents) {
			websocket_close(ws, 1001, "stopping", 100);
			return;
		}
	}
}

static void session_closed(void *arg)
{
	latch_set(((struct stage *)arg)->closed);
}

static int upgrade(void *server, struct request *request, struct response *response,
		   struct error *err)
{
	struct websocket_session session = { run_echo, session_closed, server };
	(void)request;
	(void)err;

	response_websocket(response, &session);
	return 0;
}

static int refuse(void *server, struct request *request, struct response *response,
		  struct error *err)
{
	(void)server;
	(void)request;
	(void)response;
	return error_set(err, ERR_NOT_FOUND, "no such thing");
}

static const struct route ROUTES[] = {
	{ HTTP_GET, "/echo", ROUTE_WEBSOCKET, .run = upgrade, .access = ACCESS_SIGNED_IN },
	{ HTTP_GET, "/none", ROUTE_WEBSOCKET, .run = refuse, .access = ACCESS_SIGNED_IN },
	{ 0 },
};
static const struct route *const TABLES[] = { ROUTES, NULL };

struct world {
	struct test_server server;
	struct stage stage;
};

static int up(void **state)
{
	struct world *world = xcalloc(1, sizeof(*world));

	world->stage.began = latch_new(NULL);
	world->stage.closed = latch_new(NULL);
	server_up(&world->server, TABLES, &world->stage);
	*state = world;
	return 0;
}

static int down(void **state)
{
	struct world *world = *state;

	if (world->server.http)
		server_down(&world->server);
	close(world->stage.began);
	close(world->stage.closed);
	free(world);
	return 0;
}

static int shake_hands(struct world *world, const char *more)
{
	int fd = dial(&world->server);
	_cleanup_buf_ struct buf head = { 0 };

	say(fd, "GET /echo HTTP/1.1\r\nHost: localhost:%d\r\n" HANDSHAKE "%s\r\n",
	    world->server.port, more);
	while (!str_ends(buf_str(&head), "\r\n\r\n") && read_some(fd, &head, 1))
		;
	if (!str_starts(buf_str(&head), "HTTP/1.1 101"))
		fail_msg("no upgrade: %s", buf_str(&head));
	assert_non_null(strstr(head.data, "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
	assert_non_null(strstr(head.data, "Upgrade: websocket"));
	return fd;
}

static void exchange_hi(int fd)
{
	unsigned char out[4];

	assert_int_equal(write(fd, "\x81\x82\0\0\0\0hi", 8), 8);
	for (size_t n = 0; n < 4;) {
		assert_true(readable(fd, CLIENT_MS));

		ssize_t r = read(fd, out + n, 4 - n);

		assert_true(r > 0);
		n += (size_t)r;
	}
	assert_memory_equal(out, "\x81\x02hi", 4);
}

static void a_handshake_becomes_a_session(void **state)
{
	struct world *world = *state;
	_cleanup_close_ int fd = shake_hands(world, "");

	exchange_hi(fd);
	exchange_hi(fd);
}

static void one_that_lacks_something_is_refused(void **state)
{
	struct world *world = *state;
	static const char *const LACKING[] = {
		"",
		"Upgrade: websocket\r\n",
		"Upgrade: websocket\r\nConnection: Upgrade\r\n",
		"Upgrade: h2c\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
		"Upgrade: websocket\r\nConnection: close\r\nSec-WebSocket-Version: 13\r\n"
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
		"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 8\r\n"
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
		"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
		"Sec-WebSocket-Key: short\r\n",
		HANDSHAKE "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(LACKING); i++)
		assert_answer(ask(&world->server, "GET /echo", LACKING[i], NULL), 400,
			      "bad_request");
	assert_int_equal(atomic_load(&world->stage.sessions), 0);
}

static void pages_of_other_sites_get_no_session(void **state)
{
	struct world *world = *state;
	_cleanup_free_ char *ours =
		xasprintf("Origin: http://localhost:%d\r\n", world->server.port);

	assert_answer(
		ask(&world->server, "GET /echo", HANDSHAKE "Origin: http://evil.example\r\n", NULL),
		403, "origin_not_allowed");
	close(shake_hands(world, ours));
}

static void a_handler_may_refuse_in_plain_http(void **state)
{
	struct world *world = *state;

	assert_answer(ask(&world->server, "GET /none", HANDSHAKE, NULL), 404, "not_found");
}

static void a_client_that_goes_ends_its_session(void **state)
{
	struct world *world = *state;
	int fd = shake_hands(world, "");

	assert_true(readable(world->stage.began, CLIENT_MS));
	close(fd);
	assert_true(readable(world->stage.closed, CLIENT_MS));
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void stopping_ends_sessions_and_says_so(void **state)
{
	struct world *world = *state;
	int fds[20];

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = shake_hands(world, "");
		exchange_hi(fds[i]);
	}

	int64_t began = now_ms();

	server_down(&world->server);
	world->server.http = NULL;
	assert_true(now_ms() - began < 5000);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		unsigned char out[4];

		assert_int_equal(recv(fds[i], out, 4, MSG_WAITALL), 4);
		assert_int_equal(out[0], 0x88);
		assert_int_equal(out[2] << 8 | out[3], 1001);
		close(fds[i]);
	}
}

#define upgrade_test(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		upgrade_test(a_handshake_becomes_a_session),
		upgrade_test(one_that_lacks_something_is_refused),
		upgrade_test(pages_of_other_sites_get_no_session),
		upgrade_test(a_handler_may_refuse_in_plain_http),
		upgrade_test(a_client_that_goes_ends_its_session),
		upgrade_test(stopping_ends_sessions_and_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

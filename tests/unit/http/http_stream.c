#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "client.h"

/* What the routes below are told to do, and what they report. */
struct stage {
	int feed;              /* latch: one line more for /lines */
	int closed;            /* latch: a stream was closed */
	int entered;           /* latch: a handler or stream has begun to wait */
	atomic_int last_event; /* what the last stream_wait said */
	atomic_int lines;
};

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static ssize_t next_line(void *arg, struct http_connection *connection, char *buf, size_t max)
{
	struct stage *stage = arg;

	latch_set(stage->entered);

	enum stream_event event = stream_wait(connection, stage->feed, 5000);

	atomic_store(&stage->last_event, (int)event);
	if (event == STREAM_GONE)
		return -1;
	latch_clear(stage->feed);
	if (atomic_fetch_add(&stage->lines, 1) == 2)
		return 0;
	return snprintf(buf, max, "line\n");
}

static void lines_closed(void *arg)
{
	struct stage *stage = arg;

	latch_set(stage->closed);
}

static int lines(void *server, struct request *request, struct response *response,
		 struct error *err)
{
	struct stream stream = { .next = next_line, .close = lines_closed, .arg = server };
	(void)request;
	(void)err;

	response_stream(response, "application/x-ndjson", &stream);
	return 0;
}

static ssize_t next_flood(void *arg, struct http_connection *connection, char *buf, size_t max)
{
	(void)arg;
	(void)connection;
	memset(buf, 'x', max);
	return (ssize_t)max;
}

static int flood(void *server, struct request *request, struct response *response,
		 struct error *err)
{
	struct stream stream = { .next = next_flood, .close = lines_closed, .arg = server };
	(void)request;
	(void)err;

	response_stream(response, "application/octet-stream", &stream);
	return 0;
}

static ssize_t next_broken(void *arg, struct http_connection *connection, char *buf, size_t max)
{
	struct stage *stage = arg;
	(void)connection;

	if (atomic_fetch_add(&stage->lines, 1))
		return -1;
	return snprintf(buf, max, "half\n");
}

static int broken(void *server, struct request *request, struct response *response,
		  struct error *err)
{
	struct stream stream = { .next = next_broken, .close = lines_closed, .arg = server };
	(void)request;
	(void)err;

	response_stream(response, "application/x-ndjson", &stream);
	return 0;
}

/* Blocks on something that only knows a descriptor to give up on. */
static int patient(void *server, struct request *request, struct response *response,
		   struct error *err)
{
	struct stage *stage = server;
	_cleanup_close_ int gone = request_gone_fd(request, err);

	assert_true(gone >= 0);
	latch_set(stage->entered);
	atomic_store(&stage->last_event, readable(gone, 3000) ? STREAM_GONE : STREAM_TIMEOUT);
	latch_set(stage->closed);
	response_json(response, 200, json_object());
	return 0;
}

static const struct route ROUTES[] = {
	{ HTTP_GET, "/lines", .run = lines, .flags = ROUTE_STREAM, .access = ACCESS_SIGNED_IN },
	{ HTTP_GET, "/flood", .run = flood, .flags = ROUTE_STREAM, .access = ACCESS_SIGNED_IN },
	{ HTTP_GET, "/broken", .run = broken, .flags = ROUTE_STREAM, .access = ACCESS_SIGNED_IN },
	{ HTTP_GET, "/patient", .run = patient, .access = ACCESS_SIGNED_IN },
	{ 0 },
};
static const struct route *const TABLES[] = { ROUTES, NULL };

struct scene {
	struct test_server server;
	struct stage stage;
};

static int up(void **state)
{
	struct scene *scene = xcalloc(1, sizeof(*scene));

	scene->stage.feed = latch_new(NULL);
	scene->stage.closed = latch_new(NULL);
	scene->stage.entered = latch_new(NULL);
	scene->server.idle_seconds = 1;
	server_up(&scene->server, TABLES, &scene->stage);
	*state = scene;
	return 0;
}

static int down(void **state)
{
	struct scene *scene = *state;

	server_down(&scene->server);
	close(scene->stage.feed);
	close(scene->stage.closed);
	close(scene->stage.entered);
	free(scene);
	return 0;
}

static int begin(const struct scene *scene, const char *path)
{
	int fd = dial(&scene->server);

	say(fd, "GET %s HTTP/1.1\r\nHost: localhost:%d\r\n\r\n", path, scene->server.port);
	return fd;
}

static void a_line_leaves_as_soon_as_it_is_there(void **state)
{
	struct scene *scene = *state;
	_cleanup_close_ int fd = begin(scene, "/lines");
	_cleanup_buf_ struct buf got = { 0 };

	read_until(fd, "\r\n\r\n", &got);
	assert_non_null(strstr(buf_str(&got), "Transfer-Encoding: chunked"));
	assert_false(readable(fd, 50));
	latch_set(scene->stage.feed);
	read_until(fd, "line\n", &got);
}

static void after_a_stream_the_connection_goes_on(void **state)
{
	struct scene *scene = *state;
	_cleanup_close_ int fd = begin(scene, "/lines");
	_cleanup_buf_ struct buf got = { 0 };

	for (int i = 0; i < 3; i++) {
		assert_true(readable(scene->stage.entered, CLIENT_MS));
		latch_clear(scene->stage.entered);
		latch_set(scene->stage.feed);
	}
	read_until(fd, "\r\n0\r\n\r\n", &got);
	assert_true(readable(scene->stage.closed, CLIENT_MS));
	say(fd, "GET /nowhere HTTP/1.1\r\nHost: localhost:%d\r\n\r\n", scene->server.port);
	assert_answer(read_answer(fd), 404, "not_found");
}

static void gone_within(struct scene *scene, int ms)
{
	assert_true(readable(scene->stage.closed, ms));
	assert_int_equal(atomic_load(&scene->stage.last_event), STREAM_GONE);
}

static void a_client_that_closes_is_noticed_while_waiting(void **state)
{
	struct scene *scene = *state;
	int fd = begin(scene, "/lines");

	assert_true(readable(scene->stage.entered, CLIENT_MS));
	close(fd);
	gone_within(scene, 1000);
}

static void a_client_that_half_closes_counts_as_gone(void **state)
{
	struct scene *scene = *state;
	_cleanup_close_ int fd = begin(scene, "/lines");

	assert_true(readable(scene->stage.entered, CLIENT_MS));
	shutdown(fd, SHUT_WR);
	gone_within(scene, 1000);
}

static void a_blocked_handler_can_give_up_on_a_gone_client(void **state)
{
	struct scene *scene = *state;
	int fd = begin(scene, "/patient");

	assert_true(readable(scene->stage.entered, CLIENT_MS));
	close(fd);
	gone_within(scene, 1000);
}

/* The limit on idle connections is a second here; the handler takes three. */
static void bytes_of_the_next_request_are_no_goodbye(void **state)
{
	struct scene *scene = *state;
	_cleanup_close_ int fd = begin(scene, "/patient");

	assert_true(readable(scene->stage.entered, CLIENT_MS));
	say(fd, "GET /nowhere HTTP/1.1\r\nHost: localhost:%d\r\n\r\n", scene->server.port);
	assert_answer(read_answer(fd), 200, NULL);
	assert_int_equal(atomic_load(&scene->stage.last_event), STREAM_TIMEOUT);
	assert_answer(read_answer(fd), 404, "not_found");
}

static void a_stream_that_breaks_off_has_no_end_mark(void **state)
{
	struct scene *scene = *state;
	_cleanup_close_ int fd = begin(scene, "/broken");
	_cleanup_buf_ struct buf got = { 0 };

	read_until(fd, NULL, &got);
	assert_non_null(strstr(buf_str(&got), "half\n"));
	assert_null(strstr(buf_str(&got), "\r\n0\r\n"));
	assert_true(readable(scene->stage.closed, CLIENT_MS));
}

static void stops_within(struct scene *scene, int64_t wait_ms)
{
	int64_t began = now_ms();

	http_stop(scene->server.http, wait_ms);
	scene->server.http = NULL;
	assert_true(now_ms() - began < 2000);
}

static void stopping_wakes_what_waits(void **state)
{
	struct scene *scene = *state;
	_cleanup_close_ int waiting = begin(scene, "/lines");
	_cleanup_close_ int idle = dial(&scene->server);

	assert_true(waiting >= 0 && idle >= 0);
	assert_true(readable(scene->stage.entered, CLIENT_MS));
	stops_within(scene, 20000);
	assert_int_equal(atomic_load(&scene->stage.last_event), STREAM_GONE);
}

static void stopping_wakes_a_handler_that_gives_up(void **state)
{
	struct scene *scene = *state;
	_cleanup_close_ int waiting = begin(scene, "/patient");

	assert_true(waiting >= 0);
	assert_true(readable(scene->stage.entered, CLIENT_MS));
	stops_within(scene, 20000);
	assert_int_equal(atomic_load(&scene->stage.last_event), STREAM_GONE);
}

static void stopping_does_not_wait_for_a_client_that_stopped_reading(void **state)
{
	struct scene *scene = *state;
	_cleanup_close_ int unread = begin(scene, "/flood");

	assert_true(readable(unread, CLIENT_MS));
	stops_within(scene, 300);
	assert_true(readable(scene->stage.closed, 0));
}

static void an_idle_connection_is_closed_and_a_stream_is_not(void **state)
{
	struct scene *scene = *state;
	_cleanup_close_ int idle = dial(&scene->server);
	_cleanup_close_ int fd = begin(scene, "/lines");
	_cleanup_buf_ struct buf got = { 0 };
	char byte;

	read_until(fd, "\r\n\r\n", &got);
	assert_true(readable(idle, 5000));
	assert_int_equal(recv(idle, &byte, 1, 0), 0);
	assert_false(readable(fd, 500));
	latch_set(scene->stage.feed);
	read_until(fd, "line\n", &got);
	assert_non_null(strstr(buf_str(&got), "line\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_line_leaves_as_soon_as_it_is_there, up, down),
		cmocka_unit_test_setup_teardown(after_a_stream_the_connection_goes_on, up, down),
		cmocka_unit_test_setup_teardown(a_client_that_closes_is_noticed_while_waiting, up,
						down),
		cmocka_unit_test_setup_teardown(a_client_that_half_closes_counts_as_gone, up, down),
		cmocka_unit_test_setup_teardown(a_blocked_handler_can_give_up_on_a_gone_client, up,
						down),
		cmocka_unit_test_setup_teardown(bytes_of_the_next_request_are_no_goodbye, up, down),
		cmocka_unit_test_setup_teardown(a_stream_that_breaks_off_has_no_end_mark, up, down),
		cmocka_unit_test_setup_teardown(stopping_wakes_what_waits, up, down),
		cmocka_unit_test_setup_teardown(stopping_wakes_a_handler_that_gives_up, up, down),
		cmocka_unit_test_setup_teardown(
			stopping_does_not_wait_for_a_client_that_stopped_reading, up, down),
		cmocka_unit_test_setup_teardown(an_idle_connection_is_closed_and_a_stream_is_not,
						up, down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

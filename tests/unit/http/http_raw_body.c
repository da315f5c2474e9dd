#include <stdatomic.h>
#include "client.h"

/* What the route below has taken, and what it is told to do. */
struct stage {
	_Atomic(int64_t) taken;
	atomic_uint sum;
	atomic_int opened, closed, ran;
	int gone;             /* latch: the sink was closed */
	int64_t refuse_after; /* bytes; -1: never */
	int slow_ms;          /* of each chunk */
};

static int chunk(void *arg, const char *data, size_t len, struct error *err)
{
	struct stage *stage = arg;
	unsigned sum = atomic_load(&stage->sum);

	for (size_t i = 0; i < len; i++)
		sum = sum * 31 + (unsigned char)data[i];
	atomic_store(&stage->sum, sum);
	atomic_fetch_add(&stage->taken, (int64_t)len);
	if (stage->slow_ms)
		usleep((unsigned)stage->slow_ms * 1000);
	if (stage->refuse_after >= 0 && atomic_load(&stage->taken) > stage->refuse_after)
		return error_set(err, ERR_DISK_FULL, "no room for that");
	return 0;
}

static void sink_closed(void *arg)
{
	struct stage *stage = arg;

	atomic_fetch_add(&stage->closed, 1);
	latch_set(stage->gone);
}

static int open_sink(void *server, struct request *request, struct body_sink *sink,
		     struct error *err)
{
	struct stage *stage = server;

	if (request_query_flag(request, "refuse", false))
		return error_set(err, ERR_CONFLICT, "not now");
	atomic_fetch_add(&stage->opened, 1);
	*sink = (struct body_sink){ chunk, sink_closed, stage };
	return 0;
}

static int finish(void *server, struct request *request, struct response *response,
		  struct error *err)
{
	struct stage *stage = request->sink->arg;
	json_t *json = json_object();
	(void)server;
	(void)err;

	atomic_fetch_add(&stage->ran, 1);
	json_put_int(json, "taken", atomic_load(&stage->taken));
	response_json(response, 200, json);
	return 0;
}

static const struct field QUERY[] = { { .name = "refuse", .type = FIELD_BOOL }, { 0 } };
static const struct route ROUTES[] = {
	{ HTTP_PUT, "/raw", ROUTE_RAW_BODY, .query = QUERY, .run = finish, .open = open_sink,
	  .access = ACCESS_SIGNED_IN },
	{ 0 },
};
static const struct route *const TABLES[] = { ROUTES, NULL };

struct world {
	struct test_server server;
	struct stage stage;
};

static int up_with_idle(void **state, int idle_seconds)
{
	struct world *world = xcalloc(1, sizeof(*world));

	world->stage.gone = latch_new(NULL);
	world->stage.refuse_after = -1;
	world->server.idle_seconds = idle_seconds;
	server_up(&world->server, TABLES, &world->stage);
	*state = world;
	return 0;
}

static int up(void **state)
{
	return up_with_idle(state, 0);
}

static int up_impatient(void **state)
{
	return up_with_idle(state, 1);
}

static int down(void **state)
{
	struct world *world = *state;

	server_down(&world->server);
	close(world->stage.gone);
	free(world);
	return 0;
}

static int begin(struct world *world, const char *query, int64_t length)
{
	int fd = dial(&world->server);

	say(fd,
	    "PUT /raw%s HTTP/1.1\r\nHost: localhost:%d\r\nContent-Type: "
	    "application/octet-stream\r\nContent-Length: %lld\r\n\r\n",
	    query, world->server.port, (long long)length);
	return fd;
}

/* Bytes that depend on where they stand. Stops when the other side does not read any more. */
static unsigned pour(int fd, size_t len)
{
	_cleanup_free_ char *data = xmalloc(len);
	unsigned sum = 0;

	for (size_t i = 0; i < len; i++) {
		data[i] = (char)(i * 7 + i / 251);
		sum = sum * 31 + (unsigned char)data[i];
	}
	for (size_t sent = 0; sent < len;) {
		ssize_t n = send(fd, data + sent, len - sent, MSG_NOSIGNAL);

		if (n <= 0)
			break;
		sent += (size_t)n;
	}
	return sum;
}

static void every_byte_arrives_though_the_body_is_above_any_limit(void **state)
{
	struct world *world = *state;
	size_t len = 3 * HTTP_MAX_BODY + 17;
	_cleanup_close_ int fd = begin(world, "", (int64_t)len);
	unsigned sum = pour(fd, len);

	assert_answer(read_answer(fd), 200, NULL);
	assert_int_equal(atomic_load(&world->stage.taken), len);
	assert_int_equal(atomic_load(&world->stage.sum), sum);
	assert_int_equal(atomic_load(&world->stage.closed), 1);
}

static void an_empty_body_is_one_too(void **state)
{
	struct world *world = *state;
	_cleanup_close_ int fd = begin(world, "", 0);

	assert_answer(read_answer(fd), 200, NULL);
	assert_int_equal(atomic_load(&world->stage.ran), 1);
	assert_int_equal(atomic_load(&world->stage.closed), 1);
}

static void a_body_in_chunks_needs_no_length(void **state)
{
	struct world *world = *state;
	_cleanup_close_ int fd = dial(&world->server);

	say(fd,
	    "PUT /raw HTTP/1.1\r\nHost: localhost:%d\r\nContent-Type: application/octet-stream\r\n"
	    "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n",
	    world->server.port);
	assert_answer(read_answer(fd), 200, NULL);
	assert_int_equal(atomic_load(&world->stage.taken), 6);
}

static void other_types_are_refused_before_anything_opens(void **state)
{
	struct world *world = *state;

	assert_answer(ask(&world->server, "PUT /raw", "", "{}"), 415, "unsupported_media_type");
	assert_int_equal(atomic_load(&world->stage.opened), 0);
}

static void a_refusal_before_the_body_is_heard(void **state)
{
	struct world *world = *state;
	_cleanup_close_ int fd = begin(world, "?refuse=1", 1 << 20);

	pour(fd, 1 << 20);
	assert_answer(read_answer(fd), 409, "conflict");
	assert_int_equal(atomic_load(&world->stage.taken), 0);
	assert_int_equal(atomic_load(&world->stage.ran), 0);
}

static void a_refusal_in_the_middle_of_it_is_heard(void **state)
{
	struct world *world = *state;

	world->stage.refuse_after = 100000;

	_cleanup_close_ int fd = begin(world, "", 2 << 20);

	pour(fd, 2 << 20);
	assert_answer(read_answer(fd), 507, "disk_full");
	assert_true(atomic_load(&world->stage.taken) < 200000);
	assert_int_equal(atomic_load(&world->stage.ran), 0);
	assert_int_equal(atomic_load(&world->stage.closed), 1);
}

static void a_refused_flood_is_cut_off(void **state)
{
	struct world *world = *state;

	world->stage.refuse_after = 0;

	_cleanup_close_ int fd = begin(world, "", (int64_t)1 << 40);

	pour(fd, 120 << 20);
	assert_answer(read_answer(fd), 507, "disk_full");
}

static void a_client_that_breaks_off_closes_the_sink_without_an_end(void **state)
{
	struct world *world = *state;
	int fd = begin(world, "", 1 << 20);

	pour(fd, 1000);
	for (int left = CLIENT_MS; atomic_load(&world->stage.taken) < 1000 && left > 0; left--)
		usleep(1000);
	assert_int_equal(atomic_load(&world->stage.taken), 1000);
	close(fd);
	assert_true(readable(world->stage.gone, CLIENT_MS));
	assert_int_equal(atomic_load(&world->stage.closed), 1);
	assert_int_equal(atomic_load(&world->stage.ran), 0);
}

static void a_slow_sink_is_no_idle_client(void **state)
{
	struct world *world = *state;

	world->stage.slow_ms = 1500;

	_cleanup_close_ int fd = begin(world, "", 40000);

	pour(fd, 40000);
	assert_answer(read_answer(fd), 200, NULL);
	assert_int_equal(atomic_load(&world->stage.taken), 40000);
}

#define raw_test(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		raw_test(every_byte_arrives_though_the_body_is_above_any_limit),
		raw_test(an_empty_body_is_one_too),
		raw_test(a_body_in_chunks_needs_no_length),
		raw_test(other_types_are_refused_before_anything_opens),
		raw_test(a_refusal_before_the_body_is_heard),
		raw_test(a_refusal_in_the_middle_of_it_is_heard),
		raw_test(a_refused_flood_is_cut_off),
		raw_test(a_client_that_breaks_off_closes_the_sink_without_an_end),
		cmocka_unit_test_setup_teardown(a_slow_sink_is_no_idle_client, up_impatient, down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Connections: frames whole, and in bulk long ones in parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/id.h"
#include "base/mem.h"
#include "base/fd.h"
#include "wire/conn.h"
#include "wire/message.h"

#define LONG (100u << 10)

struct pair {
	struct conn conn;
	int other;
	uint8_t *data;
};

static int pair_setup(void **state)
{
	struct pair *p = xcalloc(1, sizeof(*p));
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	conn_init(&p->conn, fds[0], WIRE_PAYLOAD_MAX);
	p->other = fds[1];
	p->data = xmalloc(LONG);
	random_bytes(p->data, LONG);
	*state = p;
	return 0;
}

static int pair_teardown(void **state)
{
	struct pair *p = *state;

	conn_close(&p->conn);
	close(p->other);
	free(p->data);
	free(p);
	return 0;
}

static void say(struct pair *p, const void *data, size_t len)
{
	assert_int_equal(write(p->other, data, len), (ssize_t)len);
}

static void say_header(struct pair *p, uint8_t type, uint8_t flags, uint32_t len)
{
	_cleanup_buf_ struct buf header = { 0 };

	frame_begin(&header, type, flags, 7, len);
	say(p, header.data, header.len);
}

static int next(struct pair *p, struct frame *frame)
{
	return conn_next(&p->conn, frame, NULL);
}

/* Everything that is there, as frames; returns how many bytes of data they had. */
static size_t take(struct pair *p, struct buf *out, bool *end)
{
	struct frame frame;

	while (conn_fill(&p->conn) > 0) {
		while (next(p, &frame) > 0) {
			assert_int_equal(frame.type, WIRE_DATA);
			assert_int_equal(frame.stream, 7);
			assert_false(*end);
			*end = frame.flags & WIRE_END;
			buf_append(out, frame.payload, frame.length);
		}
	}
	return out->len;
}

static void a_frame_comes_whole(void **state)
{
	struct pair *p = *state;
	struct frame frame;

	say_header(p, WIRE_DATA, WIRE_END, LONG);
	say(p, p->data, LONG / 2);
	while (conn_fill(&p->conn) > 0)
		assert_int_equal(next(p, &frame), 0);
	say(p, p->data + LONG / 2, LONG - LONG / 2);
	while (conn_fill(&p->conn) > 0)
		;
	assert_int_equal(next(p, &frame), 1);
	assert_int_equal(frame.length, LONG);
	assert_int_equal(frame.flags, WIRE_END);
	assert_memory_equal(frame.payload, p->data, LONG);
}

static void in_bulk_a_long_one_comes_in_parts_and_ends_once(void **state)
{
	struct pair *p = *state;
	_cleanup_buf_ struct buf got = { 0 };
	bool end = false;

	p->conn.bulk = true;
	say_header(p, WIRE_DATA, WIRE_END, LONG);
	say(p, p->data, 1000);
	assert_int_equal(take(p, &got, &end), 1000);
	assert_false(end);
	assert_int_equal(p->conn.rest, LONG - 1000);
	say(p, p->data + 1000, LONG - 1001);
	assert_int_equal(take(p, &got, &end), LONG - 1);
	assert_false(end);
	say(p, p->data + LONG - 1, 1);
	assert_int_equal(take(p, &got, &end), LONG);
	assert_true(end);
	assert_memory_equal(got.data, p->data, LONG);
}

static void what_follows_a_part_may_be_taken_from_the_descriptor(void **state)
{
	struct pair *p = *state;
	_cleanup_buf_ struct buf got = { 0 };
	uint8_t passed[LONG];
	struct frame frame;
	bool end = false;

	p->conn.bulk = true;
	say_header(p, WIRE_DATA, 0, LONG);
	assert_int_equal(take(p, &got, &end), 0);
	assert_true(conn_may_pass(&p->conn));
	say(p, p->data, LONG);
	assert_int_equal(recv(p->conn.fd, passed, LONG - 5, MSG_WAITALL), LONG - 5);
	assert_memory_equal(passed, p->data, LONG - 5);
	conn_passed(&p->conn, LONG - 5);
	assert_int_equal(take(p, &got, &end), 5);
	assert_memory_equal(got.data, p->data + LONG - 5, 5);
	assert_false(conn_may_pass(&p->conn));

	/* Of the next one nothing but the header is read, so that it may be passed from its start.
	 */
	say_header(p, WIRE_DATA, 0, LONG);
	say(p, p->data, LONG);
	assert_int_equal(conn_fill(&p->conn), 1);
	assert_int_equal(next(p, &frame), 0);
	assert_true(conn_may_pass(&p->conn));
	assert_int_equal(p->conn.rest, LONG);
	conn_passed(&p->conn, (size_t)recv(p->conn.fd, passed, LONG, MSG_WAITALL));
	assert_int_equal(p->conn.rest, 0);

	/* A short one behind it is whole. */
	say_header(p, WIRE_DATA, WIRE_END, 3);
	say(p, "abc", 3);
	buf_reset(&got);
	assert_int_equal(take(p, &got, &end), 3);
	assert_true(end);
}

static void in_bulk_messages_and_frames_that_are_too_long_are_as_ever(void **state)
{
	struct pair *p = *state;
	struct frame frame;

	p->conn.bulk = true;
	say_header(p, WIRE_PING, 0, LONG);
	say(p, p->data, 10);
	assert_int_equal(conn_fill(&p->conn), 1);
	assert_int_equal(next(p, &frame), 0);
	assert_int_equal(p->conn.rest, 0);
	p->conn.max_payload = LONG - 1;
	assert_int_equal(next(p, &frame), -1);
}

/* A pipe whose reading end can be told by what is in it. */
static int pipe_with(char letter)
{
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(write(fds[1], &letter, 1), 1);
	close(fds[1]);
	return fds[0];
}

static void say_with(struct pair *p, const char *bytes, char letter)
{
	int fd = pipe_with(letter);

	assert_int_equal(fd_send_with(p->other, bytes, strlen(bytes), &fd, 1, 0), strlen(bytes));
	close(fd);
}

static char letter_of(int fd)
{
	char letter = 0;

	assert_true(fd >= 0);
	assert_int_equal(read(fd, &letter, 1), 1);
	close(fd);
	return letter;
}

static void descriptors_are_taken_in_the_order_they_came(void **state)
{
	struct pair *p = *state;

	p->conn.takes_fds = true;
	say_with(p, "abc", 'x');
	say(p, "def", 3);
	say_with(p, "ghi", 'y');
	while (conn_fill(&p->conn) > 0)
		;
	assert_int_equal(p->conn.in.len, 9);
	assert_memory_equal(p->conn.in.data, "abcdefghi", 9);
	assert_int_equal(letter_of(conn_take_fd(&p->conn)), 'x');
	assert_int_equal(letter_of(conn_take_fd(&p->conn)), 'y');
	assert_int_equal(conn_take_fd(&p->conn), -1);
	/* One that nobody takes is closed with the rest. */
	say_with(p, "jkl", 'z');
	assert_int_equal(conn_fill(&p->conn), 1);
	assert_int_equal(p->conn.fd_count, 1);
}

static void who_sends_descriptors_nobody_asked_for_is_cut_off(void **state)
{
	struct pair *p = *state;
	int filled = 1;

	p->conn.takes_fds = true;
	for (int i = 0; i < CONN_FDS_MAX + 2; i++)
		say_with(p, "a", 'x');
	for (int i = 0; i < CONN_FDS_MAX + 2 && filled > 0; i++)
		filled = conn_fill(&p->conn);
	assert_int_equal(filled, -1);
	assert_int_equal(p->conn.fd_count, CONN_FDS_MAX);
}

static void a_connection_that_takes_none_lets_descriptors_go(void **state)
{
	struct pair *p = *state;

	say_with(p, "abc", 'x');
	assert_int_equal(conn_fill(&p->conn), 1);
	assert_int_equal(p->conn.in.len, 3);
	assert_int_equal(conn_take_fd(&p->conn), -1);
}

#define with_pair(test) cmocka_unit_test_setup_teardown(test, pair_setup, pair_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_pair(a_frame_comes_whole),
		with_pair(in_bulk_a_long_one_comes_in_parts_and_ends_once),
		with_pair(what_follows_a_part_may_be_taken_from_the_descriptor),
		with_pair(in_bulk_messages_and_frames_that_are_too_long_are_as_ever),
		with_pair(descriptors_are_taken_in_the_order_they_came),
		with_pair(who_sends_descriptors_nobody_asked_for_is_cut_off),
		with_pair(a_connection_that_takes_none_lets_descriptors_go),
	};

	return cmocka_run_group_tests_name("wire_conn", tests, NULL, NULL);
}

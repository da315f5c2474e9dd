#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "wire/conn.h"
#include "wire/frame.h"

static void a_frame_is_found_only_when_it_is_complete(void **state)
{
	_cleanup_buf_ struct buf b = { 0 };
	struct frame frame;
	size_t used = 0;

	(void)state;
	frame_append(&b, 9, 3, 0x01020304, "payload", 7);
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(frame_parse((uint8_t *)b.data, len, 100, &frame, &used, NULL), 0);
	assert_int_equal(frame_parse((uint8_t *)b.data, b.len, 100, &frame, &used, NULL), 1);
	assert_int_equal(used, b.len);
	assert_int_equal(frame.type, 9);
	assert_int_equal(frame.flags, 3);
	assert_int_equal(frame.stream, 0x01020304);
	assert_int_equal(frame.length, 7);
	assert_memory_equal(frame.payload, "payload", 7);
	/* Little-endian on every machine. */
	assert_memory_equal(b.data, "\7\0\0\0\11\3\4\3\2\1", 10);
}

static void a_frame_above_the_limit_is_refused_by_its_header_alone(void **state)
{
	uint8_t header[WIRE_HEADER_SIZE] = { 0 };
	struct frame frame;
	size_t used;

	(void)state;
	put_le32(header, 101);
	assert_int_equal(frame_parse(header, sizeof(header), 100, &frame, &used, NULL), -1);
	put_le32(header, 100);
	assert_int_equal(frame_parse(header, sizeof(header), 100, &frame, &used, NULL), 0);
	put_le32(header, UINT32_MAX);
	assert_int_equal(frame_parse(header, sizeof(header), UINT32_MAX, &frame, &used, NULL), -1);
	put_le32(header, WIRE_PAYLOAD_MAX + 1);
	assert_int_equal(frame_parse(header, sizeof(header), UINT32_MAX, &frame, &used, NULL), -1);
}

static void a_connection_hands_out_frames_however_the_bytes_are_cut(void **state)
{
	_cleanup_buf_ struct buf b = { 0 };
	struct frame frame;
	struct conn c;
	int fds[2];
	unsigned seen = 0;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	conn_init(&c, fds[0], 5000);
	for (uint32_t i = 0; i < 20; i++) {
		char payload[2000];

		memset(payload, (int)i, sizeof(payload));
		frame_append(&b, 1, 0, i, payload, i * 100);
	}
	for (size_t pos = 0, cut = 1; pos < b.len; pos += cut, cut = cut % 700 + 37) {
		size_t n = MIN_OF(cut, b.len - pos);

		assert_int_equal(write(fds[1], b.data + pos, n), n);
		assert_int_equal(conn_fill(&c), 1);
		while (conn_next(&c, &frame, NULL) > 0) {
			assert_int_equal(frame.stream, seen);
			assert_int_equal(frame.length, seen * 100);
			if (frame.length)
				assert_int_equal(frame.payload[frame.length - 1], seen);
			seen++;
		}
	}
	assert_int_equal(seen, 20);
	assert_int_equal(conn_fill(&c), 0);
	close(fds[1]);
	assert_int_equal(conn_fill(&c), -1);
	conn_close(&c);
}

static void a_connection_sends_what_fits_and_keeps_the_rest(void **state)
{
	static char big[3 << 20];
	size_t got = 0;
	struct conn c;
	int fds[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	conn_init(&c, fds[0], 5000);
	memset(big, 'x', sizeof(big));
	buf_append(&c.out, big, sizeof(big));
	assert_int_equal(conn_flush(&c), 0);
	assert_true(conn_backlog(&c) > 0);
	while (got < sizeof(big)) {
		ssize_t n = read(fds[1], big, sizeof(big));

		assert_true(n > 0);
		got += (size_t)n;
		assert_int_equal(conn_flush(&c), 0);
	}
	assert_int_equal(conn_backlog(&c), 0);
	close(fds[1]);
	buf_puts(&c.out, "x");
	assert_int_equal(conn_flush(&c), -1);
	conn_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_is_found_only_when_it_is_complete),
		cmocka_unit_test(a_frame_above_the_limit_is_refused_by_its_header_alone),
		cmocka_unit_test(a_connection_hands_out_frames_however_the_bytes_are_cut),
		cmocka_unit_test(a_connection_sends_what_fits_and_keeps_the_rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>
#include "base/buf.h"
#include "base/fd.h"
#include "base/text.h"
#include "http/websocket.h"

#define LIMIT 1000

/* A server's end under test, and the other end of the socket, which says what it likes. */
struct pair {
	int fds[2];
	struct websocket *ws;
	struct buf text, bytes;
	int messages;
};

static void take(void *arg, enum websocket_type type, const char *data, size_t len)
{
	struct pair *pair = arg;

	pair->messages++;
	buf_append(type == WEBSOCKET_TEXT ? &pair->text : &pair->bytes, data, len);
}

static int pair_up(void **state)
{
	struct pair *pair = xcalloc(1, sizeof(*pair));

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair->fds), 0);

	const struct websocket_options options = {
		.fd = pair->fds[0],
		.is_server = true,
		.max_message = LIMIT,
		.message = take,
		.arg = pair,
	};

	pair->ws = websocket_new(&options);
	*state = pair;
	return 0;
}

static int pair_down(void **state)
{
	struct pair *pair = *state;

	websocket_free(pair->ws);
	close(pair->fds[0]);
	close_fdp(&pair->fds[1]);
	buf_free(&pair->text);
	buf_free(&pair->bytes);
	free(pair);
	return 0;
}

/* A frame as a client sends it. */
static void frame(struct buf *out, int first, const void *data, size_t len)
{
	static const unsigned char mask[4] = { 0x12, 0x34, 0x56, 0x78 };

	buf_putc(out, (char)first);
	if (len < 126) {
		buf_putc(out, (char)(0x80 | len));
	} else {
		buf_putc(out, (char)(0x80 | 126));
		buf_putc(out, (char)(len >> 8));
		buf_putc(out, (char)(len & 255));
	}
	buf_append(out, mask, 4);
	for (size_t i = 0; i < len; i++)
		buf_putc(out, (char)(((const unsigned char *)data)[i] ^ mask[i % 4]));
}

static bool hear(struct pair *pair, int first, const void *data, size_t len)
{
	_cleanup_buf_ struct buf out = { 0 };

	frame(&out, first, data, len);
	assert_int_equal(write(pair->fds[1], out.data, out.len), out.len);
	return websocket_step(pair->ws, true);
}

/* What the server's end has said so far, without waiting. */
static size_t said(struct pair *pair, unsigned char *out, size_t max)
{
	ssize_t n = recv(pair->fds[1], out, max, MSG_DONTWAIT);

	return n > 0 ? (size_t)n : 0;
}

static void assert_closed_with(struct pair *pair, int code)
{
	unsigned char out[200];
	size_t n = said(pair, out, sizeof(out));

	assert_true(n >= 4);
	assert_int_equal(out[0], 0x88);
	assert_int_equal(out[2] << 8 | out[3], code);
}

static void the_key_of_the_standard_gets_its_answer(void **state)
{
	char accept[WEBSOCKET_ACCEPT_SIZE], key[WEBSOCKET_KEY_SIZE];
	(void)state;

	websocket_accept_for("dGhlIHNhbXBsZSBub25jZQ==", accept);
	assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
	websocket_key_new(key);
	assert_true(websocket_key_is_valid(key));
	assert_false(websocket_key_is_valid(""));
	assert_false(websocket_key_is_valid("dGhlIHNhbXBsZSBub25j"));
	assert_false(websocket_key_is_valid("dGhlIHNhbXBsZSBub25jZQ=*"));
	assert_false(websocket_key_is_valid("dGhlIHNhbXBsZSBub25jZQ==dGhl"));
}

static void words_of_a_header_are_whole_words(void **state)
{
	(void)state;
	assert_true(header_has_token("keep-alive, Upgrade", "upgrade"));
	assert_true(header_has_token("UPGRADE", "upgrade"));
	assert_true(header_has_token("a ,upgrade\t,b", "upgrade"));
	assert_false(header_has_token("upgrade-insecure", "upgrade"));
	assert_false(header_has_token("up grade", "upgrade"));
	assert_false(header_has_token("", "upgrade"));
	assert_false(header_has_token(NULL, "upgrade"));
}

static void messages_come_whole_whatever_their_frames(void **state)
{
	struct pair *pair = *state;

	assert_true(hear(pair, 0x81, "whole", 5));
	assert_true(hear(pair, 0x02, "\0\1", 2));
	assert_int_equal(pair->messages, 1);
	assert_true(hear(pair, 0x89, "hm", 2)); /* a ping may stand in between */
	assert_true(hear(pair, 0x80, "\2", 1));
	assert_int_equal(pair->messages, 2);
	assert_string_equal(buf_str(&pair->text), "whole");
	assert_int_equal(pair->bytes.len, 3);
	assert_memory_equal(pair->bytes.data, "\0\1\2", 3);
}

static void a_ping_is_answered_with_its_words(void **state)
{
	struct pair *pair = *state;
	unsigned char out[16];

	assert_true(hear(pair, 0x89, "abc", 3));
	assert_int_equal(said(pair, out, sizeof(out)), 5);
	assert_memory_equal(out,
			    "\x8a\x03"
			    "abc",
			    5);
}

static void a_byte_at_a_time_is_enough(void **state)
{
	struct pair *pair = *state;
	_cleanup_buf_ struct buf out = { 0 };

	frame(&out, 0x82, "slow", 4);
	for (size_t i = 0; i < out.len; i++) {
		assert_int_equal(pair->messages, 0);
		assert_int_equal(write(pair->fds[1], out.data + i, 1), 1);
		assert_true(websocket_step(pair->ws, true));
	}
	assert_string_equal(buf_str(&pair->bytes), "slow");
}

static void a_message_above_the_limit_ends_it(void **state)
{
	struct pair *pair = *state;
	char data[LIMIT + 1] = { 0 };

	assert_true(hear(pair, 0x82, data, LIMIT));
	assert_int_equal(pair->bytes.len, LIMIT);
	hear(pair, 0x02, data, LIMIT);
	hear(pair, 0x80, data, 1);
	assert_int_equal(pair->messages, 1);
	assert_closed_with(pair, 1009);
}

static void text_that_is_none_ends_it(void **state)
{
	struct pair *pair = *state;

	hear(pair, 0x81, "\xff\xfe", 2);
	assert_int_equal(pair->messages, 0);
	assert_closed_with(pair, 1007);
}

/* libwslay says 1002 for some of them and nothing for others. */
static void frames_that_break_the_rules_end_it(void **state)
{
	static const struct {
		int first;
		size_t len;
	} WRONG[] = {
		{ 0xc1, 1 },   /* a reserved bit */
		{ 0x83, 1 },   /* an unknown kind */
		{ 0x09, 1 },   /* a ping in parts */
		{ 0x89, 126 }, /* a ping too long */
		{ 0x80, 1 },   /* a continuation of nothing */
		{ 0x88, 1 },   /* half a code */
	};
	char data[126] = { 0 };
	(void)state;

	for (size_t i = 0; i < ARRAY_SIZE(WRONG); i++) {
		void *fresh;

		pair_up(&fresh);
		assert_false(hear(fresh, WRONG[i].first, data, WRONG[i].len));
		assert_int_equal(((struct pair *)fresh)->messages, 0);
		pair_down(&fresh);
	}
}

static void a_close_is_answered_and_told(void **state)
{
	struct pair *pair = *state;

	assert_false(hear(pair, 0x88,
			  "\x03\xe8"
			  "bye",
			  5));
	assert_int_equal(websocket_close_code(pair->ws), 1000);
	assert_string_equal(websocket_close_reason(pair->ws), "bye");
	assert_closed_with(pair, 1000);
}

static void a_peer_that_vanishes_is_noticed(void **state)
{
	struct pair *pair = *state;

	assert_true(websocket_step(pair->ws, true));
	close_fdp(&pair->fds[1]);
	assert_false(websocket_step(pair->ws, true));
	assert_int_equal(websocket_close_code(pair->ws), 1006);
}

static void closing_does_not_wait_for_ever(void **state)
{
	struct pair *pair = *state;
	unsigned char out[200];

	websocket_send(pair->ws, WEBSOCKET_BINARY, "last", 4);
	websocket_close(pair->ws, 4001, "replaced", 50);
	assert_int_equal(said(pair, out, sizeof(out)), 6 + 12);
	assert_memory_equal(out, "\x82\x04last\x88\x0a\x0f\xa1replaced", 18);
}

static void bytes_behind_the_handshake_count(void **state)
{
	struct pair *pair = *state;
	_cleanup_buf_ struct buf early = { 0 };

	frame(&early, 0x81, "eager", 5);

	const struct websocket_options options = {
		.fd = pair->fds[0],
		.is_server = true,
		.early = early.data,
		.early_len = early.len,
		.max_message = LIMIT,
		.message = take,
		.arg = pair,
	};
	_cleanup_websocket_ struct websocket *ws = websocket_new(&options);

	assert_true(websocket_has_early(ws));
	assert_true(websocket_step(ws, true));
	assert_false(websocket_has_early(ws));
	assert_string_equal(buf_str(&pair->text), "eager");
}

static void what_may_not_be_read_stays_in_the_socket(void **state)
{
	struct pair *pair = *state;
	_cleanup_buf_ struct buf out = { 0 };

	frame(&out, 0x81, "later", 5);
	assert_int_equal(write(pair->fds[1], out.data, out.len), out.len);
	assert_true(websocket_step(pair->ws, false));
	assert_int_equal(websocket_events(pair->ws, false) & POLLIN, 0);
	assert_int_equal(pair->messages, 0);
	assert_true(websocket_step(pair->ws, true));
	assert_int_equal(pair->messages, 1);
}

static void both_ends_of_ours_understand_each_other(void **state)
{
	struct pair *pair = *state, other = { 0 };
	const struct websocket_options options = {
		.fd = pair->fds[1],
		.max_message = LIMIT,
		.message = take,
		.arg = &other,
	};
	_cleanup_websocket_ struct websocket *client = websocket_new(&options);

	websocket_send(client, WEBSOCKET_BINARY, "to the server", 13);
	assert_true(websocket_step(client, true));
	assert_true(websocket_step(pair->ws, true));
	assert_string_equal(buf_str(&pair->bytes), "to the server");
	websocket_send(pair->ws, WEBSOCKET_TEXT, "to the client", 13);
	assert_true(websocket_step(pair->ws, true));
	assert_true(websocket_step(client, true));
	assert_string_equal(buf_str(&other.text), "to the client");
	websocket_close(pair->ws, 1000, "exited 0", 0);
	assert_false(websocket_step(client, true));
	assert_int_equal(websocket_close_code(client), 1000);
	assert_string_equal(websocket_close_reason(client), "exited 0");
	buf_free(&other.text);
}

#define pair_test(f) cmocka_unit_test_setup_teardown(f, pair_up, pair_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_key_of_the_standard_gets_its_answer),
		cmocka_unit_test(words_of_a_header_are_whole_words),
		pair_test(messages_come_whole_whatever_their_frames),
		pair_test(a_ping_is_answered_with_its_words),
		pair_test(a_byte_at_a_time_is_enough),
		pair_test(a_message_above_the_limit_ends_it),
		pair_test(text_that_is_none_ends_it),
		cmocka_unit_test(frames_that_break_the_rules_end_it),
		pair_test(a_close_is_answered_and_told),
		pair_test(a_peer_that_vanishes_is_noticed),
		pair_test(closing_does_not_wait_for_ever),
		pair_test(bytes_behind_the_handshake_count),
		pair_test(what_may_not_be_read_stays_in_the_socket),
		pair_test(both_ends_of_ours_understand_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

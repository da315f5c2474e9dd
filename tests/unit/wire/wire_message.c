#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "wire/message.h"

static struct frame only_frame(const struct buf *b)
{
	struct frame frame;
	size_t used;

	assert_int_equal(frame_parse((const uint8_t *)b->data, b->len, WIRE_PAYLOAD_MAX, &frame,
				     &used, NULL),
			 1);
	assert_int_equal(used, b->len);
	return frame;
}

static int decode_raw(enum wire_type type, const char *payload, uint32_t len,
		      struct wire_message *m)
{
	struct frame frame = { .type = (uint8_t)type,
			       .payload = (const uint8_t *)payload,
			       .length = len };

	return wire_decode(&frame, m, NULL);
}

static void a_start_request_survives_the_wire(void **state)
{
	const char *argv[] = { "sh", "-c", "" };
	const char *env[] = { "A=1", "B=two words" };
	struct wire_exec_start start = {
		.exec_id = { 1, 2, 3 },
		.argv = { argv, 3 },
		.env = { env, 2 },
		.cwd = "/somewhere",
		.deadline_ms = 1ull << 40,
		.pty = 1,
		.rows = 65535,
	};
	_cleanup_wire_message_ struct wire_message m = { 0 };
	_cleanup_buf_ struct buf b = { 0 };
	struct frame frame;

	(void)state;
	assert_int_equal(wire_encode(&b, 42, WIRE_EXEC_START, &start, NULL), 0);
	frame = only_frame(&b);
	assert_int_equal(wire_decode(&frame, &m, NULL), 0);
	assert_int_equal(m.type, WIRE_EXEC_START);
	assert_int_equal(m.stream, 42);
	assert_memory_equal(m.exec_start.exec_id, start.exec_id, 16);
	assert_int_equal(m.exec_start.argv.count, 3);
	assert_string_equal(m.exec_start.argv.v[1], "-c");
	assert_string_equal(m.exec_start.argv.v[2], "");
	assert_null(m.exec_start.argv.v[3]);
	assert_string_equal(m.exec_start.env.v[1], "B=two words");
	assert_string_equal(m.exec_start.cwd, "/somewhere");
	assert_null(m.exec_start.user);
	assert_int_equal(m.exec_start.deadline_ms, 1ull << 40);
	assert_int_equal(m.exec_start.rows, 65535);
	assert_int_equal(m.exec_start.cols, 0);
}

static void every_message_of_the_table_survives_empty_or_is_refused_for_a_missing_field(
	void **state)
{
	struct wire_message empty;

	(void)state;
	memset(&empty, 0, sizeof(empty));
#define M(NAME, name, number)                                                                      \
	{                                                                                          \
		_cleanup_wire_message_ struct wire_message m = { 0 };                              \
		_cleanup_buf_ struct buf b = { 0 };                                                \
		if (wire_encode(&b, 1, WIRE_##NAME, &empty.name, NULL) == 0) {                     \
			struct frame frame = only_frame(&b);                                       \
			assert_int_equal(wire_decode(&frame, &m, NULL), 0);                        \
			assert_int_equal(m.type, WIRE_##NAME);                                     \
			assert_string_equal(wire_type_name(m.type), #name);                        \
		} else {                                                                           \
			assert_int_equal(b.len, 0);                                                \
		}                                                                                  \
	}
	WIRE_MESSAGES(M)
#undef M
}

static void unknown_fields_are_skipped_only_when_their_sender_allows_it(void **state)
{
	static const char known[] = "\1\2\10\0\0\0\1\2\3\4\5\6\7\10";
	struct wire_message m;
	char payload[64];

	(void)state;
	memcpy(payload, known, 14);
	memcpy(payload + 14, "\33\x83\2\0\0\0x", 8);
	assert_int_equal(decode_raw(WIRE_PING, payload, 22, &m), 0);
	assert_int_equal(m.ping.token, 0x0807060504030201ull);
	payload[15] = 3;
	assert_int_equal(decode_raw(WIRE_PING, payload, 22, &m), -1);
}

/* What came after version 1 must not stop a peer that has never heard of it. */
static void fields_added_later_may_be_skipped_by_those_who_do_not_know_them(void **state)
{
	struct wire_exec_kill m = { .reason = REASON_CANCELLED, .at_once = 1 };
	_cleanup_buf_ struct buf out = { 0 };
	const uint8_t *p;

	(void)state;
	assert_int_equal(wire_encode(&out, 1, WIRE_EXEC_KILL, &m, NULL), 0);
	/* exec_id, reason, then at_once. */
	p = (const uint8_t *)out.data + WIRE_HEADER_SIZE;
	assert_int_equal(p[1] & 0x80, 0);
	assert_int_equal(p[22 + 1] & 0x80, 0);
	assert_int_equal(p[32], 4);
	assert_int_equal(p[32 + 1] & 0x80, 0x80);
}

/* A keeper that knows no parts of a filter finds the whole where it always was. */
static void a_filter_in_parts_may_be_skipped(void **state)
{
	struct wire_sandbox m = {
		.seccomp = { (const uint8_t *)"12345678", 8 },
		.seccomp_base = { (const uint8_t *)"base5678", 8 },
		.seccomp_exec = { (const uint8_t *)"exec5678", 8 },
	};
	_cleanup_buf_ struct buf out = { 0 };
	const uint8_t *p;

	(void)state;
	assert_int_equal(wire_encode(&out, 1, WIRE_SANDBOX, &m, NULL), 0);
	p = (const uint8_t *)out.data + WIRE_HEADER_SIZE;
	assert_int_equal(out.len, WIRE_HEADER_SIZE + 3 * 14);
	assert_int_equal(p[0], 11);
	assert_int_equal(p[1] & 0x80, 0);
	assert_memory_equal(p + 6, "12345678", 8);
	for (unsigned i = 1; i < 3; i++) {
		assert_int_equal(p[14 * i], 16 + i);
		assert_int_equal(p[14 * i + 1] & 0x80, 0x80);
	}
}

static void what_the_table_does_not_allow_is_refused(void **state)
{
	static const struct {
		const char *what;
		enum wire_type type;
		const char *payload;
		uint32_t len;
	} cases[] = {
		{ "unknown type", 0x7f, "", 0 },
		{ "data is no message", WIRE_DATA, "", 0 },
		{ "missing", WIRE_PING, "", 0 },
		{ "short header", WIRE_PING, "\1\2\10", 3 },
		{ "length past the end", WIRE_PING, "\1\2\11\0\0\0\1\2\3\4\5\6\7\10", 14 },
		{ "huge length", WIRE_PING, "\1\2\377\377\377\377\1\2\3\4\5\6\7\10", 14 },
		{ "wrong kind", WIRE_PING, "\1\1\4\0\0\0\1\2\3\4", 10 },
		{ "wrong size", WIRE_PING, "\1\2\4\0\0\0\1\2\3\4", 10 },
		{ "twice", WIRE_PING,
		  "\1\2\10\0\0\0\1\2\3\4\5\6\7\10\1\2\10\0\0\0\1\2\3\4\5\6\7\10", 28 },
		{ "string without its NUL", WIRE_FILE_STAT, "\1\3\1\0\0\0a", 7 },
		{ "empty string field", WIRE_FILE_STAT, "\1\3\0\0\0\0", 6 },
		{ "NUL inside a string", WIRE_FILE_STAT, "\1\3\3\0\0\0\0b\0", 9 },
		{ "number out of range", WIRE_EXEC_STALLED, "\1\1\4\0\0\0\2\0\0\0", 10 },
		{ "id of wrong size", WIRE_EXEC_FORGET, "\1\6\2\0\0\0ab", 8 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct wire_message m;

		print_message("%s\n", cases[i].what);
		assert_int_equal(decode_raw(cases[i].type, cases[i].payload, cases[i].len, &m), -1);
	}
}

static void more_values_than_the_bound_are_refused_before_memory_is_taken(void **state)
{
	_cleanup_buf_ struct buf b = { 0 };
	struct wire_message m;

	(void)state;
	for (int i = 0; i < 9000; i++)
		buf_append(&b, "\2\5\1\0\0\0\0", 7);
	assert_int_equal(decode_raw(WIRE_EXEC_START, b.data, (uint32_t)b.len, &m), -1);
}

static void a_message_that_does_not_fit_is_not_sent_at_all(void **state)
{
	_cleanup_free_ char *long_text = xcalloc(1, (1 << 20) + 1);
	const char *argv[] = { "x", long_text };
	struct wire_exec_start start = { .argv = { argv, 2 } };
	_cleanup_buf_ struct buf b = { 0 };

	(void)state;
	memset(long_text, 'y', 1 << 20);
	buf_puts(&b, "before");
	assert_int_equal(wire_encode(&b, 1, WIRE_EXEC_START, &start, NULL), -1);
	assert_string_equal(buf_str(&b), "before");
	long_text[5000] = 0;
	start.cwd = long_text;
	assert_int_equal(wire_encode(&b, 1, WIRE_EXEC_START, &start, NULL), -1);
	assert_string_equal(buf_str(&b), "before");
}

static void every_error_has_a_name_and_a_meaning(void **state)
{
	(void)state;
	for (uint32_t code = 0; code < WERR_COUNT; code++)
		assert_string_not_equal(wire_error_name(code), "unknown");
	assert_string_equal(wire_error_name(9999), "unknown");
	assert_int_equal(wire_error_meaning(WERR_COMMAND_NOT_FOUND), ERR_COMMAND_NOT_FOUND);
	assert_int_equal(wire_error_meaning(9999), ERR_PROTOCOL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_start_request_survives_the_wire),
		cmocka_unit_test(
			every_message_of_the_table_survives_empty_or_is_refused_for_a_missing_field),
		cmocka_unit_test(unknown_fields_are_skipped_only_when_their_sender_allows_it),
		cmocka_unit_test(fields_added_later_may_be_skipped_by_those_who_do_not_know_them),
		cmocka_unit_test(a_filter_in_parts_may_be_skipped),
		cmocka_unit_test(what_the_table_does_not_allow_is_refused),
		cmocka_unit_test(more_values_than_the_bound_are_refused_before_memory_is_taken),
		cmocka_unit_test(a_message_that_does_not_fit_is_not_sent_at_all),
		cmocka_unit_test(every_error_has_a_name_and_a_meaning),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "wire/tree_record.h"

static void a_record_is_found_only_when_it_is_complete(void **state)
{
	_cleanup_buf_ struct buf b = { 0 };
	struct record record;
	size_t used = 0;

	(void)state;
	wire_record_append(&b, RECORD_PATH, "a/b", 3);
	wire_record_append(&b, RECORD_FINISH, NULL, 0);
	for (size_t len = 0; len < 8; len++)
		assert_int_equal(wire_record_parse((uint8_t *)b.data, len, &record, &used, NULL),
				 0);
	assert_int_equal(wire_record_parse((uint8_t *)b.data, b.len, &record, &used, NULL), 1);
	assert_int_equal(used, 8);
	assert_int_equal(record.kind, RECORD_PATH);
	assert_memory_equal(record.payload, "a/b", 3);
	/* Little-endian on every machine. */
	assert_memory_equal(b.data, "\3\0\0\0\12a/b\0\0\0\0\17", 13);
	assert_int_equal(
		wire_record_parse((uint8_t *)b.data + used, b.len - used, &record, &used, NULL), 1);
	assert_int_equal(record.kind, RECORD_FINISH);
	assert_int_equal(record.length, 0);
}

static int parse_header(uint32_t length, uint8_t kind)
{
	uint8_t header[RECORD_HEADER_SIZE];
	struct record record;

	put_le32(header, length);
	header[4] = kind;
	return wire_record_parse_header(header, &record, NULL);
}

/* Its header alone says so, before any of its bytes is waited for. */
static void a_record_of_the_wrong_kind_or_length_is_refused(void **state)
{
	(void)state;
	assert_int_equal(parse_header(1, 0), -1);
	assert_int_equal(parse_header(0, RECORD_KINDS), -1);
	assert_int_equal(parse_header(0, 255), -1);
	assert_int_equal(parse_header(RECORD_MAX, RECORD_CONTENT), 0);
	assert_int_equal(parse_header(RECORD_MAX + 1, RECORD_CONTENT), -1);
	assert_int_equal(parse_header(UINT32_MAX, RECORD_CONTENT), -1);
	assert_int_equal(parse_header(0, RECORD_CONTENT), -1);
	assert_int_equal(parse_header(0, RECORD_PATH), -1);
	assert_int_equal(parse_header(4095, RECORD_PATH), 0);
	assert_int_equal(parse_header(4096, RECORD_PATH), -1);
	assert_int_equal(parse_header(7, RECORD_HOLE), -1);
	assert_int_equal(parse_header(8, RECORD_HOLE), 0);
	/* Reserved. */
	assert_int_equal(parse_header(5, 14), -1);
	assert_int_equal(parse_header(7, RECORD_FAILED), -1);
	assert_int_equal(parse_header(1, RECORD_DONE), -1);
	assert_int_equal(parse_header(1, RECORD_FINISH), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_record_is_found_only_when_it_is_complete),
		cmocka_unit_test(a_record_of_the_wrong_kind_or_length_is_refused),
	};

	return cmocka_run_group_tests_name("wire_record", tests, NULL, NULL);
}

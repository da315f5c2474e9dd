#include "fixture.h"
#include "api/output_events.h"

/* Feeds what the chunks say and returns the lines. */
struct piece {
	enum runlog_stream stream;
	const char *data;
	size_t len;
	bool truncated;
};
#define P(stream, text)                                                                            \
	{                                                                                          \
		stream, text, sizeof(text) - 1, false                                              \
	}

static char *lines(enum event_offsets offsets, const struct piece *pieces, size_t count)
{
	struct event_writer writer = { .offsets = offsets };
	int64_t offset = 0, of_stream[4] = { 0 };
	_cleanup_buf_ struct buf out = { 0 };
	char part[7];
	size_t n;

	for (size_t i = 0; i < count; i++) {
		struct runlog_chunk chunk = {
			.stream = pieces[i].stream,
			.offset = offset,
			.stream_offset = of_stream[pieces[i].stream],
			.time_ms = 1000,
			.len = pieces[i].len,
			.data = pieces[i].data,
			.truncated = pieces[i].truncated,
		};

		event_chunk(&writer, &chunk);
		offset += (int64_t)chunk.len;
		of_stream[chunk.stream] += (int64_t)chunk.len;
	}
	event_flush(&writer);
	while ((n = event_take(&writer, part, sizeof(part))) > 0)
		buf_append(&out, part, n);
	event_writer_clear(&writer);
	return buf_steal(&out);
}

static void text_goes_out_as_text_with_offsets_of_its_stream(void **state)
{
	const struct piece pieces[] = { P(RUNLOG_STDOUT, "one\n"), P(RUNLOG_STDERR, "oops\n"),
					P(RUNLOG_STDOUT, "h\xc3\xa9\n") };
	_cleanup_free_ char *got = lines(OFFSETS_OF_STREAM, pieces, 3);

	(void)state;
	assert_string_equal(got, "{\"type\":\"stdout\",\"offset\":0,\"data\":\"one\\n\"}\n"
				 "{\"type\":\"stderr\",\"offset\":0,\"data\":\"oops\\n\"}\n"
				 "{\"type\":\"stdout\",\"offset\":4,\"data\":\"h\xc3\xa9\\n\"}\n");
}

static void offsets_of_a_log_count_both_streams(void **state)
{
	const struct piece pieces[] = { P(RUNLOG_STDOUT, "one"), P(RUNLOG_STDERR, "two") };
	_cleanup_free_ char *got = lines(OFFSETS_OF_LOG, pieces, 2);

	(void)state;
	assert_non_null(strstr(got, "\"offset\":3,\"streamOffset\":0,"
				    "\"time\":\"1970-01-01T00:00:01.000Z\",\"data\":\"two\""));
}

static void a_character_cut_in_two_is_put_together_again(void **state)
{
	const struct piece pieces[] = { P(RUNLOG_STDOUT, "a\xe2\x82"), P(RUNLOG_STDOUT, "\xac"),
					P(RUNLOG_STDOUT, "b\xf0\x9f"), P(RUNLOG_STDOUT, "\x98"),
					P(RUNLOG_STDOUT, "\x80!") };
	_cleanup_free_ char *got = lines(OFFSETS_OF_STREAM, pieces, 5);

	(void)state;
	assert_string_equal(got,
			    "{\"type\":\"stdout\",\"offset\":0,\"data\":\"a\"}\n"
			    "{\"type\":\"stdout\",\"offset\":1,\"data\":\"\xe2\x82\xac\"}\n"
			    "{\"type\":\"stdout\",\"offset\":4,\"data\":\"b\"}\n"
			    "{\"type\":\"stdout\",\"offset\":5,\"data\":\"\xf0\x9f\x98\x80!\"}\n");
}

/* Waiting for the rest of it past another stream's output would put the bytes out of order. */
static void a_character_the_other_stream_cuts_goes_out_as_bytes(void **state)
{
	const struct piece pieces[] = { P(RUNLOG_STDOUT, "a\xc3"), P(RUNLOG_STDERR, "x"),
					P(RUNLOG_STDOUT, "\xa9") };
	_cleanup_free_ char *got = lines(OFFSETS_OF_STREAM, pieces, 3);

	(void)state;
	assert_string_equal(
		got,
		"{\"type\":\"stdout\",\"offset\":0,\"data\":\"a\"}\n"
		"{\"type\":\"stdout\",\"offset\":1,\"data\":\"ww==\",\"encoding\":\"base64\"}\n"
		"{\"type\":\"stderr\",\"offset\":0,\"data\":\"x\"}\n"
		"{\"type\":\"stdout\",\"offset\":2,\"data\":\"qQ==\",\"encoding\":\"base64\"}\n");
}

static void what_is_no_text_goes_out_as_base64(void **state)
{
	const struct piece pieces[] = { P(RUNLOG_STDOUT, "a\xff\xc3"), P(RUNLOG_STDOUT, "a\0b"),
					P(RUNLOG_STDOUT, "\xc3") };
	_cleanup_free_ char *got = lines(OFFSETS_OF_STREAM, pieces, 3);

	(void)state;
	assert_string_equal(
		got,
		"{\"type\":\"stdout\",\"offset\":0,\"data\":\"Yf/D\",\"encoding\":\"base64\"}\n"
		"{\"type\":\"stdout\",\"offset\":3,\"data\":\"YQBi\",\"encoding\":\"base64\"}\n"
		"{\"type\":\"stdout\",\"offset\":6,\"data\":\"ww==\",\"encoding\":\"base64\"}\n");
}

static void a_truncated_log_says_where_it_ends(void **state)
{
	const struct piece pieces[] = { P(RUNLOG_STDOUT, "abc"), { RUNLOG_STDOUT, "", 0, true } };
	_cleanup_free_ char *got = lines(OFFSETS_OF_LOG, pieces, 2);

	(void)state;
	assert_non_null(strstr(got, "{\"type\":\"truncated\",\"offset\":3}\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_goes_out_as_text_with_offsets_of_its_stream),
		cmocka_unit_test(offsets_of_a_log_count_both_streams),
		cmocka_unit_test(a_character_cut_in_two_is_put_together_again),
		cmocka_unit_test(a_character_the_other_stream_cuts_goes_out_as_bytes),
		cmocka_unit_test(what_is_no_text_goes_out_as_base64),
		cmocka_unit_test(a_truncated_log_says_where_it_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

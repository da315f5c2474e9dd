#include "logs.h"

static void expect_stretch(struct runlog_reader *reader, int64_t max, int64_t offset,
			   const char *text)
{
	struct runlog_stretch stretch;
	char data[64];

	assert_int_equal(runlog_read_stretch(reader, max, &stretch, NULL), 1);
	assert_int_equal(stretch.offset, offset);
	assert_int_equal(stretch.len, strlen(text));
	assert_int_equal(pread(stretch.fd, data, sizeof(data), stretch.offset) >= stretch.len, 1);
	assert_memory_equal(data, text, strlen(text));
}

static void expect_no_stretch(struct runlog_reader *reader)
{
	struct runlog_stretch stretch;

	assert_int_equal(runlog_read_stretch(reader, 100, &stretch, NULL), 0);
}

static void streams_are_not_told_apart(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);
	struct runlog_reader *reader = reader_at(store, 0);

	expect_no_stretch(reader);
	append(log, RUNLOG_STDOUT, "out");
	append(log, RUNLOG_STDERR, "err");
	append(log, RUNLOG_STDOUT, "more");
	expect_stretch(reader, 100, 0, "outerrmore");
	expect_no_stretch(reader);
	append(log, RUNLOG_STDOUT, "late");
	expect_stretch(reader, 100, 10, "late");
	runlog_close(log);
	assert_false(runlog_is_live(reader));
	runlog_reader_close(reader);
	runlog_store_close(store);
}

static void a_stretch_is_at_most_what_was_asked_for(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);
	struct runlog_reader *reader = reader_at(store, 2);

	append(log, RUNLOG_STDOUT, "01234");
	append(log, RUNLOG_STDERR, "56789");
	append(log, RUNLOG_STDOUT, "abc");
	expect_stretch(reader, 2, 2, "23");
	expect_stretch(reader, 1, 4, "4");
	expect_stretch(reader, 6, 5, "56789a");
	/* The two ways of reading share one position. */
	expect_chunk(reader, 1, RUNLOG_STDOUT, 11, 6, "b");
	expect_stretch(reader, 100, 12, "c");
	expect_no_stretch(reader);
	runlog_close(log);
	runlog_reader_close(reader);
	runlog_store_close(store);
}

static void the_mark_of_truncation_is_an_empty_one(void **state)
{
	struct runlog_store *store = store_at(state, 5);
	struct runlog *log = log_in(store);
	struct runlog_reader *reader = reader_at(store, 0);

	append(log, RUNLOG_STDOUT, "12345678");
	expect_stretch(reader, 100, 0, "12345");

	struct runlog_stretch stretch;

	assert_int_equal(runlog_read_stretch(reader, 100, &stretch, NULL), 1);
	assert_int_equal(stretch.len, 0);
	expect_no_stretch(reader);
	runlog_close(log);
	runlog_reader_close(reader);
	runlog_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_tempdir(streams_are_not_told_apart),
		with_tempdir(a_stretch_is_at_most_what_was_asked_for),
		with_tempdir(the_mark_of_truncation_is_an_empty_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

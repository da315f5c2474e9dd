#include "logs.h"
#include <poll.h>
#include <pthread.h>

#define PATIENCE_MS 10000

static void chunks_come_back_in_order_with_both_offsets(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);

	append(log, RUNLOG_STDOUT, "one");
	append(log, RUNLOG_STDERR, "oops");
	append(log, RUNLOG_STDOUT, "two");
	append(log, RUNLOG_PTY, "tty");
	append(log, RUNLOG_STDERR, "!");
	assert_int_equal(runlog_end(log), 14);

	struct runlog_reader *reader = reader_at(store, 0);

	expect_chunk(reader, 100, RUNLOG_STDOUT, 0, 0, "one");
	expect_chunk(reader, 100, RUNLOG_STDERR, 3, 0, "oops");
	expect_chunk(reader, 100, RUNLOG_STDOUT, 7, 3, "two");
	expect_chunk(reader, 100, RUNLOG_PTY, 10, 0, "tty");
	expect_chunk(reader, 100, RUNLOG_STDERR, 13, 4, "!");
	expect_nothing(reader);
	runlog_reader_close(reader);
	runlog_close(log);
	assert_int_equal(runlog_size(store, NAME), 14);
	runlog_store_close(store);
}

static void long_chunks_are_split_at_max(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);

	append(log, RUNLOG_STDERR, "..");
	append(log, RUNLOG_STDOUT, "abcdefg");

	struct runlog_reader *reader = reader_at(store, 1);

	expect_chunk(reader, 3, RUNLOG_STDERR, 1, 1, ".");
	expect_chunk(reader, 3, RUNLOG_STDOUT, 2, 0, "abc");
	expect_chunk(reader, 3, RUNLOG_STDOUT, 5, 3, "def");
	expect_chunk(reader, 3, RUNLOG_STDOUT, 8, 6, "g");
	expect_nothing(reader);
	runlog_reader_close(reader);
	runlog_close(log);
	runlog_store_close(store);
}

static void binary_data_comes_back_byte_for_byte(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);
	_cleanup_buf_ struct buf got = { 0 };
	unsigned char data[100000];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 7 + i / 256);
	assert_int_equal(runlog_append(log, RUNLOG_STDOUT, data, 70001, 1, NULL), 0);
	assert_int_equal(
		runlog_append(log, RUNLOG_STDERR, data + 70001, sizeof(data) - 70001, 1, NULL), 0);
	runlog_close(log);
	read_text(store, 0, &got);
	assert_int_equal(got.len, sizeof(data));
	assert_memory_equal(got.data, data, sizeof(data));
	runlog_store_close(store);
}

static void reading_starts_at_any_offset_of_a_long_log(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);
	_cleanup_buf_ struct buf all = { 0 };

	for (int i = 0; i < 1000; i++) {
		char text[16];

		snprintf(text, sizeof(text), "%d,", i);
		append(log, i % 3 ? RUNLOG_STDOUT : RUNLOG_STDERR, text);
		buf_puts(&all, text);
	}
	for (int64_t since = 0; since <= (int64_t)all.len; since++) {
		struct runlog_reader *reader = reader_at(store, since);
		struct runlog_chunk chunk;
		int rc = runlog_read(reader, 1, &chunk, NULL);

		assert_int_equal(rc, since < (int64_t)all.len);
		if (rc) {
			assert_int_equal(chunk.offset, since);
			assert_int_equal(chunk.data[0], all.data[since]);
		}
		runlog_reader_close(reader);
	}
	expect_text(store, 1234, all.data + 1234);
	runlog_close(log);
	runlog_store_close(store);
}

static void an_offset_past_the_end_waits_for_it(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);

	append(log, RUNLOG_STDOUT, "abc");

	struct runlog_reader *reader = reader_at(store, 5);

	expect_nothing(reader);
	append(log, RUNLOG_STDOUT, "d");
	expect_nothing(reader);
	append(log, RUNLOG_STDOUT, "efg");
	expect_chunk(reader, 100, RUNLOG_STDOUT, 5, 5, "fg");
	runlog_close(log);
	assert_false(runlog_is_live(reader));
	runlog_reader_close(reader);
	runlog_store_close(store);
}

static void a_log_goes_on_where_it_was_closed(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);

	append(log, RUNLOG_STDOUT, "abc");
	append(log, RUNLOG_STDERR, "x");
	runlog_close(log);
	log = log_in(store);
	assert_int_equal(runlog_end(log), 4);
	append(log, RUNLOG_STDOUT, "def");

	struct runlog_reader *reader = reader_at(store, 4);

	expect_chunk(reader, 100, RUNLOG_STDOUT, 4, 3, "def");
	runlog_reader_close(reader);
	runlog_close(log);
	expect_text(store, 0, "abcxdef");
	runlog_store_close(store);
}

static void a_second_writer_and_removal_of_a_written_log_are_refused(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store), *second;
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(runlog_open(store, NAME, &second, &err), -1);
	assert_int_equal(err.code, ERR_CONFLICT);
	assert_int_equal(runlog_remove(store, NAME, &err), -1);
	assert_int_equal(err.code, ERR_CONFLICT);
	append(log, RUNLOG_STDOUT, "still mine");
	runlog_close(log);
	expect_text(store, 0, "still mine");
	assert_int_equal(runlog_remove(store, NAME, NULL), 0);
	assert_int_equal(runlog_remove(store, NAME, NULL), 0);
	assert_int_equal(runlog_size(store, NAME), -1);
	runlog_store_close(store);
}

static void a_log_that_is_not_there_is_not_found(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog_reader *reader;
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(runlog_reader_open(store, NAME, 0, &reader, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	assert_int_equal(runlog_size(store, NAME), -1);
	runlog_store_close(store);
}

static void a_log_for_later_goes_on_with_what_is_there(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);

	append(log, RUNLOG_STDOUT, "first");
	runlog_close(log);
	assert_int_equal(runlog_open_later(store, NAME, &log, NULL), 0);
	assert_int_equal(runlog_end(log), 5);
	append(log, RUNLOG_STDOUT, "second");
	assert_int_equal(file_size(state, DATA_FILE), 11);
	runlog_close(log);
	assert_int_equal(runlog_remove(store, NAME, NULL), 0);

	/* One that was only made is empty. */
	assert_int_equal(runlog_open_later(store, NAME, &log, NULL), 0);
	assert_int_equal(runlog_sync(log, NULL), 0);
	assert_int_equal(runlog_make(log, NULL), 0);
	assert_int_equal(file_size(state, INDEX_FILE), 0);
	runlog_close(log);
	assert_int_equal(runlog_size(store, NAME), 0);
	runlog_store_close(store);
}

static void names_that_lead_elsewhere_are_refused(void **state)
{
	static const char *const bad[] = { "",     ".",   "..",      "../x",      "a/b",
					   "/etc", "..x", ".hidden", "ab/../../x" };
	struct runlog_store *store = store_at(state, 0);
	char longest[256];

	memset(longest, 'a', sizeof(longest));
	longest[255] = '\0';
	for (size_t i = 0; i <= ARRAY_SIZE(bad); i++) {
		const char *name = i < ARRAY_SIZE(bad) ? bad[i] : longest;
		_cleanup_error_ struct error err = { 0 };
		struct runlog_reader *reader;
		struct runlog *log;

		assert_int_equal(runlog_open(store, name, &log, &err), -1);
		assert_int_equal(err.code, ERR_BAD_PATH);
		assert_int_equal(runlog_reader_open(store, name, 0, &reader, &err), -1);
		assert_int_equal(err.code, ERR_BAD_PATH);
		assert_int_equal(runlog_remove(store, name, &err), -1);
		assert_int_equal(runlog_size(store, name), -1);
	}
	runlog_store_close(store);
}

static void short_names_are_names_too(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *one, *two;

	assert_int_equal(runlog_open(store, "a", &one, NULL), 0);
	assert_int_equal(runlog_open(store, "ab", &two, NULL), 0);
	append(one, RUNLOG_STDOUT, "1");
	append(two, RUNLOG_STDOUT, "22");
	assert_int_equal(runlog_sync(one, NULL), 0);
	assert_int_equal(runlog_size(store, "a"), 1);
	assert_int_equal(runlog_size(store, "ab"), 2);
	runlog_close(one);
	runlog_close(two);
	runlog_store_close(store);
}

static void output_past_the_bound_is_counted_and_marked_once(void **state)
{
	struct runlog_store *store = store_at(state, 10);
	struct runlog *log = log_in(store);

	append(log, RUNLOG_STDOUT, "1234567");

	struct runlog_reader *reader = reader_at(store, 0);

	expect_chunk(reader, 100, RUNLOG_STDOUT, 0, 0, "1234567");
	append(log, RUNLOG_STDERR, "abcdef");
	append(log, RUNLOG_STDOUT, "more");
	assert_int_equal(runlog_end(log), 17);
	expect_chunk(reader, 100, RUNLOG_STDERR, 7, 0, "abc");
	expect_truncated(reader, 10);
	runlog_close(log);
	expect_nothing(reader);
	assert_false(runlog_is_live(reader));
	runlog_reader_close(reader);

	assert_int_equal(runlog_size(store, NAME), 17);
	assert_int_equal(file_size(state, DATA_FILE), 10);
	for (int64_t since = 10; since < 17; since++) {
		reader = reader_at(store, since);
		expect_truncated(reader, 10);
		runlog_reader_close(reader);
	}
	runlog_store_close(store);
}

static void a_truncated_log_stays_truncated_when_it_is_opened_again(void **state)
{
	struct runlog_store *store = store_at(state, 4);
	struct runlog *log = log_in(store);

	append(log, RUNLOG_STDOUT, "123456");
	append(log, RUNLOG_STDOUT, "78");
	runlog_close(log);
	log = log_in(store);
	assert_int_equal(runlog_end(log), 8);
	append(log, RUNLOG_STDERR, "9");
	runlog_close(log);
	assert_int_equal(runlog_size(store, NAME), 9);

	struct runlog_reader *reader = reader_at(store, 0);

	expect_chunk(reader, 100, RUNLOG_STDOUT, 0, 0, "1234");
	expect_truncated(reader, 4);
	runlog_reader_close(reader);
	runlog_store_close(store);
}

static void exactly_as_much_as_the_bound_is_not_truncated(void **state)
{
	struct runlog_store *store = store_at(state, 4);
	struct runlog *log = log_in(store);

	append(log, RUNLOG_STDOUT, "1234");
	runlog_close(log);

	struct runlog_reader *reader = reader_at(store, 0);

	expect_chunk(reader, 100, RUNLOG_STDOUT, 0, 0, "1234");
	expect_nothing(reader);
	runlog_reader_close(reader);
	runlog_store_close(store);
}

static void byte_by_byte_output_cannot_grow_the_index_without_bound(void **state)
{
	struct runlog_store *store = store_at(state, 1 << 20);
	struct runlog *log = log_in(store);

	for (int i = 0; i < 40000; i++)
		append(log, RUNLOG_STDOUT, "x");
	runlog_close(log);
	assert_in_range(file_size(state, INDEX_FILE), (1 << 20) - 2 * RECORD_SIZE,
			(1 << 20) + RECORD_SIZE);
	assert_int_equal(runlog_size(store, NAME), 40000);
	runlog_store_close(store);
}

static bool event_is_set(struct runlog_reader *reader)
{
	struct pollfd p = { .fd = runlog_reader_event(reader), .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void a_follower_is_woken_by_output_and_by_the_end(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);
	struct runlog_reader *reader = reader_at(store, 0);

	assert_false(event_is_set(reader));
	assert_true(runlog_is_live(reader));
	append(log, RUNLOG_STDOUT, "a");
	assert_true(event_is_set(reader));
	latch_clear(runlog_reader_event(reader));
	expect_chunk(reader, 100, RUNLOG_STDOUT, 0, 0, "a");
	expect_nothing(reader);
	assert_false(event_is_set(reader));
	runlog_close(log);
	assert_true(event_is_set(reader));
	assert_false(runlog_is_live(reader));
	runlog_reader_close(reader);
	runlog_store_close(store);
}

static void output_just_before_the_end_counts_as_live(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);
	struct runlog_reader *reader = reader_at(store, 0);

	expect_nothing(reader);
	append(log, RUNLOG_STDOUT, "last words");
	runlog_close(log);
	assert_true(runlog_is_live(reader));
	expect_chunk(reader, 100, RUNLOG_STDOUT, 0, 0, "last words");
	assert_false(runlog_is_live(reader));
	runlog_reader_close(reader);
	runlog_store_close(store);
}

static void a_reader_outlives_its_store(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);

	append(log, RUNLOG_STDOUT, "abc");

	struct runlog_reader *reader = reader_at(store, 0);

	runlog_close(log);
	runlog_store_close(store);
	expect_chunk(reader, 100, RUNLOG_STDOUT, 0, 0, "abc");
	runlog_reader_close(reader);
}

#define PIECES 3000

struct writing {
	struct runlog_store *store;
	struct runlog *log;
};

static void *write_pieces(void *arg)
{
	struct writing *w = arg;
	char text[64];

	for (int i = 0; i < PIECES; i++) {
		int n = snprintf(text, sizeof(text), "%0*d\n", 5 + i % 40, i);

		if (runlog_append(w->log, i % 2 ? RUNLOG_STDOUT : RUNLOG_STDERR, text, (size_t)n, i,
				  NULL) < 0)
			return NULL;
	}
	runlog_close(w->log);
	return w;
}

struct following {
	struct runlog_reader *reader;
	struct buf got;
	int64_t next;
	bool ordered, ended;
};

static void *follow_to_the_end(void *arg)
{
	struct following *f = arg;
	struct pollfd p = { .fd = runlog_reader_event(f->reader), .events = POLLIN };

	f->ordered = true;
	do {
		struct runlog_chunk chunk;

		latch_clear(p.fd);
		while (runlog_read(f->reader, 4096, &chunk, NULL) == 1) {
			f->ordered = f->ordered && chunk.offset == f->next;
			f->next += (int64_t)chunk.len;
			buf_append(&f->got, chunk.data, chunk.len);
		}
		if (!runlog_is_live(f->reader)) {
			f->ended = true;
			break;
		}
	} while (poll(&p, 1, PATIENCE_MS) == 1);
	return NULL;
}

static void followers_in_other_threads_see_everything_and_then_the_end(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct writing writing = { store, log_in(store) };
	struct following following[3] = { 0 };
	pthread_t writer, threads[3];
	void *written;
	_cleanup_buf_ struct buf all = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(following); i++) {
		following[i].reader = reader_at(store, 0);
		assert_int_equal(
			pthread_create(&threads[i], NULL, follow_to_the_end, &following[i]), 0);
	}
	assert_int_equal(pthread_create(&writer, NULL, write_pieces, &writing), 0);
	pthread_join(writer, &written);
	assert_non_null(written);
	read_text(store, 0, &all);
	assert_true(all.len > PIECES * 5);
	for (size_t i = 0; i < ARRAY_SIZE(following); i++) {
		pthread_join(threads[i], NULL);
		assert_true(following[i].ended);
		assert_true(following[i].ordered);
		assert_int_equal(following[i].got.len, all.len);
		assert_memory_equal(following[i].got.data, all.data, all.len);
		buf_free(&following[i].got);
		runlog_reader_close(following[i].reader);
	}
	runlog_store_close(store);
}

static void *append_hundred(void *arg)
{
	for (int i = 0; i < 100; i++) {
		if (runlog_append(arg, RUNLOG_STDOUT, "0123456789", 10, i, NULL) < 0)
			return NULL;
	}
	return arg;
}

static void two_threads_may_append_to_one_log(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);
	pthread_t threads[2];
	_cleanup_buf_ struct buf all = { 0 };

	for (size_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, append_hundred, log), 0);
	for (size_t i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	runlog_close(log);
	read_text(store, 0, &all);
	assert_int_equal(all.len, 2000);
	for (size_t i = 0; i < all.len; i++)
		assert_int_equal(all.data[i], '0' + i % 10);
	runlog_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_tempdir(chunks_come_back_in_order_with_both_offsets),
		with_tempdir(long_chunks_are_split_at_max),
		with_tempdir(binary_data_comes_back_byte_for_byte),
		with_tempdir(reading_starts_at_any_offset_of_a_long_log),
		with_tempdir(an_offset_past_the_end_waits_for_it),
		with_tempdir(a_log_goes_on_where_it_was_closed),
		with_tempdir(a_second_writer_and_removal_of_a_written_log_are_refused),
		with_tempdir(a_log_that_is_not_there_is_not_found),
		with_tempdir(a_log_for_later_goes_on_with_what_is_there),
		with_tempdir(names_that_lead_elsewhere_are_refused),
		with_tempdir(short_names_are_names_too),
		with_tempdir(output_past_the_bound_is_counted_and_marked_once),
		with_tempdir(a_truncated_log_stays_truncated_when_it_is_opened_again),
		with_tempdir(exactly_as_much_as_the_bound_is_not_truncated),
		with_tempdir(byte_by_byte_output_cannot_grow_the_index_without_bound),
		with_tempdir(a_follower_is_woken_by_output_and_by_the_end),
		with_tempdir(output_just_before_the_end_counts_as_live),
		with_tempdir(a_reader_outlives_its_store),
		with_tempdir(followers_in_other_threads_see_everything_and_then_the_end),
		with_tempdir(two_threads_may_append_to_one_log),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

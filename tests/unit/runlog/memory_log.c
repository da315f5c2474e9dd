/* Logs that are in memory while they are short. */
#include "logs.h"

#include <poll.h>
#include <pthread.h>
#include "runlog/memory_log.h"

static struct runlog *new_log(struct runlog_store *store)
{
	struct runlog *log;

	assert_int_equal(runlog_open_new(store, NAME, &log, NULL), 0);
	return log;
}

static bool has_files(void **state)
{
	struct tempdir *t = *state;
	struct stat st;

	return fstatat(t->fd, DATA_FILE, &st, 0) == 0 || fstatat(t->fd, INDEX_FILE, &st, 0) == 0;
}

static void a_short_log_is_read_without_files_until_it_is_removed(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = new_log(store);
	struct runlog_reader *reader = reader_at(store, 0);

	expect_nothing(reader);
	assert_true(runlog_is_live(reader));
	append(log, RUNLOG_STDOUT, "out");
	append(log, RUNLOG_STDERR, "err");
	expect_chunk(reader, 100, RUNLOG_STDOUT, 0, 0, "out");
	runlog_close(log);
	expect_chunk(reader, 2, RUNLOG_STDERR, 3, 0, "er");
	assert_true(runlog_is_live(reader));
	expect_chunk(reader, 2, RUNLOG_STDERR, 5, 2, "r");
	assert_false(runlog_is_live(reader));
	expect_text(store, 2, "terr");
	assert_int_equal(runlog_size(store, NAME), 6);
	assert_false(has_files(state));

	assert_int_equal(runlog_remove(store, NAME, NULL), 0);
	assert_int_equal(runlog_size(store, NAME), -1);
	runlog_reader_close(reader);
	runlog_store_close(store);
}

static void a_log_without_a_byte_is_gone_when_it_closes(void **state)
{
	struct runlog_store *store = store_at(state, 0);

	runlog_close(new_log(store));
	assert_int_equal(runlog_size(store, NAME), -1);
	runlog_store_close(store);
}

static void a_reader_goes_on_when_the_log_goes_to_files(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = new_log(store);
	struct runlog_reader *reader = reader_at(store, 0), *behind = reader_at(store, 0);

	append(log, RUNLOG_STDOUT, "one");
	expect_chunk(reader, 2, RUNLOG_STDOUT, 0, 0, "on");
	assert_int_equal(runlog_make(log, NULL), 0);
	assert_int_equal(file_size(state, DATA_FILE), 3);
	assert_int_equal(file_size(state, INDEX_FILE), RECORD_SIZE);
	append(log, RUNLOG_STDERR, "two");
	expect_chunk(reader, 100, RUNLOG_STDOUT, 2, 2, "e");
	expect_chunk(reader, 100, RUNLOG_STDERR, 3, 0, "two");
	expect_chunk(behind, 100, RUNLOG_STDOUT, 0, 0, "one");
	runlog_close(log);
	expect_chunk(behind, 100, RUNLOG_STDERR, 3, 0, "two");
	assert_false(runlog_is_live(behind));
	runlog_reader_close(reader);
	runlog_reader_close(behind);
	runlog_store_close(store);

	store = store_at(state, 0);
	expect_text(store, 0, "onetwo");
	runlog_store_close(store);
}

static void a_log_that_grows_goes_to_files_whole(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = new_log(store);
	_cleanup_buf_ struct buf all = { 0 };

	for (int i = 0; i < 3000; i++) {
		char line[16];

		snprintf(line, sizeof(line), "line %d\n", i);
		buf_puts(&all, line);
		append(log, RUNLOG_STDOUT, line);
	}
	assert_int_equal(file_size(state, DATA_FILE), all.len);
	expect_text(store, 0, buf_str(&all));
	runlog_close(log);
	expect_text(store, 0, buf_str(&all));
	runlog_store_close(store);
}

static void all_short_logs_together_are_bounded(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	_cleanup_free_ char *text = xcalloc(1, 10001);
	int64_t logs = MEMORY_LOG_STORE_BYTES / 10000 + 1, in_files = 0;

	memset(text, 'x', 10000);
	for (int64_t i = 0; i < logs; i++) {
		struct runlog *log;
		char name[32];

		snprintf(name, sizeof(name), "log%lld", (long long)i);
		assert_int_equal(runlog_open_new(store, name, &log, NULL), 0);
		append(log, RUNLOG_STDOUT, text);
		runlog_close(log);
		assert_int_equal(runlog_size(store, name), 10000);
	}

	struct tempdir *t = *state;

	for (int64_t i = 0; i < logs; i++) {
		char path[32];

		snprintf(path, sizeof(path), "lo/log%lld.data", (long long)i);
		in_files += faccessat(t->fd, path, F_OK, 0) == 0;
	}
	assert_in_range(in_files, 1, 10);
	/* What is removed makes room. */
	assert_int_equal(runlog_remove(store, "log0", NULL), 0);

	struct runlog *log = new_log(store);

	append(log, RUNLOG_STDOUT, "short");
	runlog_close(log);
	assert_false(has_files(state));
	runlog_store_close(store);
}

static void a_closed_short_log_goes_on(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = new_log(store);

	append(log, RUNLOG_STDOUT, "one");
	runlog_close(log);
	assert_int_equal(runlog_open_later(store, NAME, &log, NULL), 0);
	assert_int_equal(runlog_end(log), 3);
	append(log, RUNLOG_STDOUT, "two");
	runlog_close(log);
	assert_false(has_files(state));
	log = log_in(store);
	append(log, RUNLOG_STDERR, "three");
	runlog_close(log);
	assert_int_equal(file_size(state, DATA_FILE), 11);
	expect_text(store, 0, "onetwothree");
	runlog_store_close(store);
}

static void the_bound_of_a_log_holds_in_memory(void **state)
{
	struct runlog_store *store = store_at(state, 5);
	struct runlog *log = new_log(store);
	struct runlog_reader *reader;

	append(log, RUNLOG_STDOUT, "12345678");
	append(log, RUNLOG_STDOUT, "9");
	runlog_close(log);
	assert_int_equal(runlog_size(store, NAME), 9);
	assert_false(has_files(state));
	reader = reader_at(store, 0);
	expect_chunk(reader, 100, RUNLOG_STDOUT, 0, 0, "12345");
	expect_truncated(reader, 5);
	runlog_reader_close(reader);
	runlog_store_close(store);
}

static void expect_stretch(struct runlog_reader *reader, int64_t max, const char *text)
{
	struct runlog_stretch stretch;
	char bytes[64] = "";

	assert_int_equal(runlog_read_stretch(reader, max, &stretch, NULL), 1);
	assert_int_equal(stretch.len, strlen(text));
	assert_int_equal(pread(stretch.fd, bytes, sizeof(bytes) - 1, stretch.offset) >= stretch.len,
			 true);
	assert_memory_equal(bytes, text, stretch.len);
}

static void stretches_of_memory_are_files_too(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = new_log(store);
	struct runlog_reader *reader = reader_at(store, 1);
	struct runlog_stretch stretch;

	append(log, RUNLOG_STDOUT, "one");
	append(log, RUNLOG_STDERR, "two");
	expect_stretch(reader, 3, "net");
	append(log, RUNLOG_STDOUT, "three");
	expect_stretch(reader, 100, "wothree");
	assert_int_equal(runlog_make(log, NULL), 0);
	append(log, RUNLOG_STDOUT, "four");
	expect_stretch(reader, 100, "four");
	assert_int_equal(runlog_read_stretch(reader, 100, &stretch, NULL), 0);
	runlog_close(log);
	runlog_reader_close(reader);
	runlog_store_close(store);
}

static void a_waiting_reader_hears_of_bytes_in_memory(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = new_log(store);
	struct runlog_reader *reader = reader_at(store, 0);
	struct pollfd p = { .fd = runlog_reader_event(reader), .events = POLLIN };

	latch_clear(p.fd);
	expect_nothing(reader);
	append(log, RUNLOG_STDOUT, "x");
	assert_int_equal(poll(&p, 1, 0), 1);
	runlog_close(log);
	runlog_reader_close(reader);

	/* One that came too late for all of it may still wait for another writer. */
	reader = reader_at(store, 1);
	expect_nothing(reader);
	assert_false(runlog_is_live(reader));
	p.fd = runlog_reader_event(reader);
	assert_true(p.fd >= 0);
	latch_clear(p.fd);
	assert_int_equal(runlog_open_later(store, NAME, &log, NULL), 0);
	append(log, RUNLOG_STDOUT, "y");
	assert_int_equal(poll(&p, 1, 0), 1);
	expect_chunk(reader, 100, RUNLOG_STDOUT, 1, 1, "y");
	runlog_close(log);
	runlog_reader_close(reader);
	runlog_store_close(store);
}

#define LINES 2000

static void *write_lines(void *arg)
{
	struct runlog *log = arg;

	for (int i = 0; i < LINES; i++) {
		char line[16];

		snprintf(line, sizeof(line), "line %d\n", i);
		append(log, i % 2 ? RUNLOG_STDERR : RUNLOG_STDOUT, line);
	}
	runlog_close(log);
	return NULL;
}

/* Past the point where the log goes to files. */
static void a_follower_misses_nothing_while_the_log_moves(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = new_log(store);
	struct runlog_reader *reader = reader_at(store, 0);
	_cleanup_buf_ struct buf got = { 0 }, wanted = { 0 };
	pthread_t writer;

	assert_int_equal(pthread_create(&writer, NULL, write_lines, log), 0);
	for (;;) {
		struct pollfd p = { .fd = runlog_reader_event(reader), .events = POLLIN };
		struct runlog_chunk chunk;

		latch_clear(p.fd);
		while (runlog_read(reader, 100, &chunk, NULL) == 1) {
			assert_int_equal(chunk.offset, got.len);
			buf_append(&got, chunk.data, chunk.len);
		}
		if (!runlog_is_live(reader))
			break;
		assert_int_equal(poll(&p, 1, 10000), 1);
	}
	pthread_join(writer, NULL);
	for (int i = 0; i < LINES; i++)
		buf_printf(&wanted, "line %d\n", i);
	assert_string_equal(buf_str(&got), buf_str(&wanted));
	assert_int_equal(file_size(state, DATA_FILE), wanted.len);
	runlog_reader_close(reader);
	runlog_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_tempdir(a_short_log_is_read_without_files_until_it_is_removed),
		with_tempdir(a_log_without_a_byte_is_gone_when_it_closes),
		with_tempdir(a_reader_goes_on_when_the_log_goes_to_files),
		with_tempdir(a_log_that_grows_goes_to_files_whole),
		with_tempdir(all_short_logs_together_are_bounded),
		with_tempdir(a_closed_short_log_goes_on),
		with_tempdir(the_bound_of_a_log_holds_in_memory),
		with_tempdir(stretches_of_memory_are_files_too),
		with_tempdir(a_waiting_reader_hears_of_bytes_in_memory),
		with_tempdir(a_follower_misses_nothing_while_the_log_moves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

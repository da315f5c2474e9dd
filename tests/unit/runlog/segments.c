/* Logs longer than one file, and logs compressed at rest: they read as if they were neither. */
#include "logs.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fault.h"

#define SEGMENT 4096
#define BYTES 20000

static struct runlog_store *small_store(void **state)
{
	struct runlog_store *store = store_at(state, 0);

	runlog_store_set_segment(store, SEGMENT);
	return store;
}

static char byte_at(int64_t offset)
{
	return (char)('a' + offset * 7 % 26 + (offset / 997) % 3 - 1);
}

/* Bytes [from, to) of the pattern in chunks of odd sizes, of both streams in turn. */
static void write_pattern(struct runlog *log, int64_t from, int64_t to)
{
	char part[777];
	bool err = false;

	while (from < to) {
		size_t n = (size_t)MIN_OF((int64_t)sizeof(part), to - from);

		for (size_t i = 0; i < n; i++)
			part[i] = byte_at(from + (int64_t)i);
		assert_int_equal(runlog_append(log, err ? RUNLOG_STDERR : RUNLOG_STDOUT, part, n,
					       1000, NULL),
				 0);
		from += (int64_t)n;
		err = !err;
	}
}

static void expect_pattern(struct runlog_store *store, int64_t since, int64_t to)
{
	struct runlog_reader *reader = reader_at(store, since);
	struct runlog_chunk chunk;
	int64_t at = since;
	int r;

	while ((r = runlog_read(reader, 1000, &chunk, NULL)) == 1) {
		assert_int_equal(chunk.offset, at);
		for (size_t i = 0; i < chunk.len; i++)
			assert_int_equal(chunk.data[i], byte_at(at + (int64_t)i));
		at += (int64_t)chunk.len;
	}
	assert_int_equal(r, 0);
	assert_int_equal(at, to);
	runlog_reader_close(reader);
}

static void expect_stretches(struct runlog_store *store, int64_t to)
{
	struct runlog_reader *reader = reader_at(store, 0);
	struct runlog_stretch stretch;
	int64_t at = 0;
	char part[3000];

	while (runlog_read_stretch(reader, sizeof(part), &stretch, NULL) == 1) {
		assert_int_equal(pread(stretch.fd, part, (size_t)stretch.len, stretch.offset),
				 stretch.len);
		for (int64_t i = 0; i < stretch.len; i++)
			assert_int_equal(part[i], byte_at(at + i));
		at += stretch.len;
	}
	assert_int_equal(at, to);
	runlog_reader_close(reader);
}

static bool there(void **state, const char *name)
{
	struct tempdir *t = *state;

	return faccessat(t->fd, name, F_OK, 0) == 0;
}

static void make_log(struct runlog_store *store)
{
	struct runlog *log = log_in(store);

	write_pattern(log, 0, BYTES);
	runlog_close(log);
}

static void offsets_go_on_from_file_to_file(void **state)
{
	struct runlog_store *store = small_store(state);

	make_log(store);
	assert_int_equal(file_size(state, DATA_FILE), SEGMENT);
	assert_int_equal(file_size(state, DATA_FILE "-4"), BYTES - 4 * SEGMENT);
	assert_int_equal(runlog_size(store, NAME), BYTES);
	expect_pattern(store, 0, BYTES);
	expect_pattern(store, SEGMENT, BYTES);
	expect_pattern(store, 3 * SEGMENT - 1, BYTES);
	expect_stretches(store, BYTES);
	runlog_store_close(store);
}

static void a_follower_passes_from_file_to_file(void **state)
{
	struct runlog_store *store = small_store(state);
	struct runlog *log = log_in(store);
	struct runlog_reader *reader = reader_at(store, 0);
	struct runlog_chunk chunk;
	int64_t at = 0;

	for (int64_t to = 1500; to <= BYTES; to += 1500) {
		write_pattern(log, at, to);
		while (runlog_read(reader, 400, &chunk, NULL) == 1) {
			assert_int_equal(chunk.offset, at);
			assert_int_equal(chunk.data[0], byte_at(at));
			at += (int64_t)chunk.len;
		}
		assert_int_equal(at, to);
	}
	runlog_reader_close(reader);
	runlog_close(log);
	runlog_store_close(store);
}

static void a_writer_goes_on_where_the_last_one_ended(void **state)
{
	struct runlog_store *store = small_store(state);
	struct runlog *log;

	make_log(store);
	log = log_in(store);
	assert_int_equal(runlog_end(log), BYTES);
	write_pattern(log, BYTES, 2 * BYTES);
	runlog_close(log);
	expect_pattern(store, 0, 2 * BYTES);
	runlog_store_close(store);
}

static void files_past_the_last_record_are_cut_off(void **state)
{
	struct runlog_store *store = small_store(state);
	struct runlog *log;

	make_log(store);
	/* As if the records of the last two files had never reached the disk. */
	file_cut(state, INDEX_FILE, 10 * RECORD_SIZE);
	log = log_in(store);
	assert_int_equal(runlog_end(log), 10 * 777);
	assert_true(there(state, DATA_FILE "-1"));
	assert_false(there(state, DATA_FILE "-2"));
	assert_false(there(state, DATA_FILE "-4"));
	write_pattern(log, 10 * 777, BYTES);
	runlog_close(log);
	expect_pattern(store, 0, BYTES);
	runlog_store_close(store);
}

static void a_packed_log_reads_as_before(void **state)
{
	struct runlog_store *store = small_store(state);

	make_log(store);
	assert_int_equal(runlog_pack(store, NAME, NULL, NULL), 0);
	assert_false(there(state, DATA_FILE));
	assert_false(there(state, DATA_FILE "-4"));
	assert_true(there(state, DATA_FILE ".zst"));
	assert_true(file_size(state, DATA_FILE ".zst") < SEGMENT / 2);
	assert_int_equal(runlog_size(store, NAME), BYTES);
	expect_pattern(store, 0, BYTES);
	expect_pattern(store, BYTES - 3, BYTES);
	expect_stretches(store, BYTES);
	/* Again is nothing. */
	assert_int_equal(runlog_pack(store, NAME, NULL, NULL), 0);
	expect_pattern(store, 0, BYTES);
	assert_int_equal(runlog_remove(store, NAME, NULL), 0);
	assert_false(there(state, DATA_FILE ".zst"));
	assert_false(there(state, DATA_FILE "-4.zst"));
	assert_int_equal(runlog_size(store, NAME), -1);
	runlog_store_close(store);
}

static void reading_in_the_middle_needs_one_frame_only(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);
	int64_t size = (int64_t)5 << 20;

	write_pattern(log, 0, size);
	runlog_close(log);
	assert_int_equal(runlog_pack(store, NAME, NULL, NULL), 0);
	assert_true(there(state, INDEX_FILE ".zst"));

	/* With the first frames' bytes gone the last ones still read. */
	struct tempdir *t = *state;
	int fd = openat(t->fd, DATA_FILE ".zst", O_WRONLY | O_CLOEXEC);

	assert_int_equal(pwrite(fd, "garbage garbage garbage", 23, 100), 23);
	close(fd);
	expect_pattern(store, size - 1000, size);

	struct runlog_reader *reader = reader_at(store, 0);
	struct runlog_chunk chunk;
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(runlog_read(reader, 100, &chunk, &err), -1);
	assert_non_null(strstr(err.message, "damaged"));
	runlog_reader_close(reader);
	runlog_store_close(store);
}

static void small_logs_stay_as_they_are(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);

	append(log, RUNLOG_STDOUT, "hello");
	runlog_close(log);
	assert_int_equal(runlog_pack(store, NAME, NULL, NULL), 0);
	assert_true(there(state, DATA_FILE));
	assert_false(there(state, DATA_FILE ".zst"));
	expect_text(store, 0, "hello");
	runlog_store_close(store);
}

static void a_packed_log_can_be_written_again(void **state)
{
	struct runlog_store *store = small_store(state);
	struct runlog *log;

	make_log(store);
	assert_int_equal(runlog_pack(store, NAME, NULL, NULL), 0);
	log = log_in(store);
	assert_int_equal(runlog_end(log), BYTES);
	write_pattern(log, BYTES, BYTES + 5000);
	expect_pattern(store, 0, BYTES + 5000);
	runlog_close(log);
	assert_int_equal(runlog_pack(store, NAME, NULL, NULL), 0);
	expect_pattern(store, 0, BYTES + 5000);
	runlog_store_close(store);
}

static void of_a_growing_log_only_what_is_left_behind_is_packed(void **state)
{
	struct runlog_store *store = small_store(state);
	struct runlog *log = log_in(store);

	write_pattern(log, 0, BYTES); /* ends in segment 4 */
	assert_int_equal(runlog_pack(store, NAME, NULL, NULL), 0);
	assert_true(there(state, DATA_FILE ".zst"));
	assert_true(there(state, DATA_FILE "-2.zst"));
	assert_true(there(state, DATA_FILE "-3"));
	assert_true(there(state, DATA_FILE "-4"));
	expect_pattern(store, 0, BYTES);
	write_pattern(log, BYTES, 2 * BYTES);
	runlog_close(log);
	expect_pattern(store, 0, 2 * BYTES);

	/* And a writer after a restart finds its way past what is packed. */
	log = log_in(store);
	assert_int_equal(runlog_end(log), 2 * BYTES);
	runlog_close(log);
	expect_pattern(store, 0, 2 * BYTES);
	runlog_store_close(store);
}

static void a_reader_does_not_notice_that_its_log_is_packed(void **state)
{
	struct runlog_store *store = small_store(state);
	struct runlog_chunk chunk;
	int64_t at = 0;

	make_log(store);

	struct runlog_reader *reader = reader_at(store, 0);

	for (int i = 0; i < 3; i++) {
		assert_int_equal(runlog_read(reader, 500, &chunk, NULL), 1);
		at += (int64_t)chunk.len;
	}
	assert_int_equal(runlog_pack(store, NAME, NULL, NULL), 0);
	while (runlog_read(reader, 500, &chunk, NULL) == 1) {
		assert_int_equal(chunk.offset, at);
		assert_int_equal(chunk.data[chunk.len - 1], byte_at(at + (int64_t)chunk.len - 1));
		at += (int64_t)chunk.len;
	}
	assert_int_equal(at, BYTES);
	runlog_reader_close(reader);
	runlog_store_close(store);
}

static void packing_can_be_broken_off(void **state)
{
	struct runlog_store *store = small_store(state);
	atomic_bool stop = true;
	_cleanup_error_ struct error err = { 0 };

	make_log(store);
	assert_int_equal(runlog_pack(store, NAME, &stop, &err), -1);
	assert_int_equal(err.code, ERR_CANCELLED);
	assert_false(there(state, DATA_FILE ".tmp"));
	expect_pattern(store, 0, BYTES);
	runlog_store_close(store);
}

/* A child that is killed at the nth time it passes the point, in the middle of `act`. */
static void killed_at(void **state, const char *point, int nth, void (*act)(struct runlog_store *))
{
	_cleanup_free_ char *spec = xasprintf("%s@%d:kill", point, nth);
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		struct runlog_store *store = small_store(state);

		if (fault_init(spec, NULL) < 0)
			_exit(3);
		act(store);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		fail_msg("%s was not reached: %d", spec, status);
}

static void pack_it(struct runlog_store *store)
{
	runlog_pack(store, NAME, NULL, NULL);
}

static void write_it_again(struct runlog_store *store)
{
	struct runlog *log;

	runlog_open(store, NAME, &log, NULL);
}

static const char *const TURNS[] = { "runlog.turn.written", "runlog.turn.renamed",
				     "runlog.turn.synced", "runlog.turn.removed" };

static void killed_while_packing_nothing_is_lost(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(TURNS); i++) {
		for (int nth = 1; nth <= 5; nth += 2) {
			struct runlog_store *store = small_store(state);

			make_log(store);
			killed_at(state, TURNS[i], nth, pack_it);
			expect_pattern(store, 0, BYTES);
			expect_stretches(store, BYTES);
			assert_int_equal(runlog_size(store, NAME), BYTES);
			/* The next attempt ends well, and so does a writer that comes instead. */
			if (nth == 1)
				assert_int_equal(runlog_pack(store, NAME, NULL, NULL), 0);

			struct runlog *log = log_in(store);

			assert_int_equal(runlog_end(log), BYTES);
			runlog_close(log);
			expect_pattern(store, 0, BYTES);
			assert_int_equal(runlog_remove(store, NAME, NULL), 0);
			assert_false(there(state, DATA_FILE ".tmp"));
			assert_false(there(state, DATA_FILE));
			assert_false(there(state, DATA_FILE ".zst"));
			runlog_store_close(store);
		}
	}
}

static void killed_while_unpacking_nothing_is_lost(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(TURNS); i++) {
		struct runlog_store *store = small_store(state);

		make_log(store);
		assert_int_equal(runlog_pack(store, NAME, NULL, NULL), 0);
		killed_at(state, TURNS[i], 1, write_it_again);
		expect_pattern(store, 0, BYTES);

		struct runlog *log = log_in(store);

		assert_int_equal(runlog_end(log), BYTES);
		runlog_close(log);
		expect_pattern(store, 0, BYTES);
		assert_int_equal(runlog_remove(store, NAME, NULL), 0);
		runlog_store_close(store);
	}
}

/* A log that is cut off, then packed, still says so. */
static void the_mark_of_truncation_survives_packing(void **state)
{
	struct runlog_store *store = store_at(state, 10000);
	struct runlog *log;

	runlog_store_set_segment(store, SEGMENT);
	log = log_in(store);
	write_pattern(log, 0, BYTES);
	runlog_close(log);
	assert_int_equal(runlog_pack(store, NAME, NULL, NULL), 0);

	struct runlog_reader *reader = reader_at(store, 9990);
	struct runlog_chunk chunk;

	assert_int_equal(runlog_read(reader, 100, &chunk, NULL), 1);
	assert_int_equal(chunk.len, 10);
	expect_truncated(reader, 10000);
	runlog_reader_close(reader);
	assert_int_equal(runlog_size(store, NAME), BYTES);
	runlog_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_tempdir(offsets_go_on_from_file_to_file),
		with_tempdir(a_follower_passes_from_file_to_file),
		with_tempdir(a_writer_goes_on_where_the_last_one_ended),
		with_tempdir(files_past_the_last_record_are_cut_off),
		with_tempdir(a_packed_log_reads_as_before),
		with_tempdir(reading_in_the_middle_needs_one_frame_only),
		with_tempdir(small_logs_stay_as_they_are),
		with_tempdir(a_packed_log_can_be_written_again),
		with_tempdir(of_a_growing_log_only_what_is_left_behind_is_packed),
		with_tempdir(a_reader_does_not_notice_that_its_log_is_packed),
		with_tempdir(packing_can_be_broken_off),
		with_tempdir(killed_while_packing_nothing_is_lost),
		with_tempdir(killed_while_unpacking_nothing_is_lost),
		with_tempdir(the_mark_of_truncation_survives_packing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

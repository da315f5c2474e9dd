#include "logs.h"
#include <signal.h>
#include <sys/resource.h>

static void write_three_chunks(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);

	append(log, RUNLOG_STDOUT, "abc");
	append(log, RUNLOG_STDERR, "de");
	append(log, RUNLOG_STDOUT, "fghi");
	runlog_close(log);
	runlog_store_close(store);
}

/* What readers see of the crashed log, and what the next writer makes of it. */
static void expect_recovery(void **state, const char *prefix)
{
	struct runlog_store *store = store_at(state, 0);

	expect_text(store, 0, prefix);
	assert_int_equal(runlog_size(store, NAME), strlen(prefix));

	struct runlog_reader *reader = reader_at(store, (int64_t)strlen(prefix));

	expect_nothing(reader);
	assert_false(runlog_is_live(reader));

	struct runlog *log = log_in(store);

	assert_int_equal(runlog_end(log), strlen(prefix));
	assert_int_equal(file_size(state, DATA_FILE), strlen(prefix));
	assert_int_equal(file_size(state, INDEX_FILE) % RECORD_SIZE, 0);
	append(log, RUNLOG_STDERR, "NEXT");
	expect_chunk(reader, 100, RUNLOG_STDERR, (int64_t)strlen(prefix),
		     strlen(prefix) >= 5 ? 2 : 0, "NEXT");
	runlog_reader_close(reader);
	runlog_close(log);
	runlog_store_close(store);
}

static void data_without_its_record_is_cut(void **state)
{
	write_three_chunks(state);
	file_add(state, DATA_FILE, "torn", 4);
	expect_recovery(state, "abcdefghi");
}

static void half_a_record_is_cut(void **state)
{
	write_three_chunks(state);
	file_cut(state, INDEX_FILE, 2 * RECORD_SIZE + 11);
	expect_recovery(state, "abcde");
}

static void records_whose_data_never_reached_the_disk_are_cut(void **state)
{
	write_three_chunks(state);
	file_cut(state, DATA_FILE, 4);
	expect_recovery(state, "abc");
}

static void zeros_in_place_of_records_are_cut(void **state)
{
	static const char zeros[3 * RECORD_SIZE];

	write_three_chunks(state);
	file_add(state, INDEX_FILE, zeros, sizeof(zeros));
	expect_recovery(state, "abcdefghi");
}

static void an_index_without_data_is_an_empty_log(void **state)
{
	write_three_chunks(state);
	file_cut(state, DATA_FILE, 0);
	expect_recovery(state, "");
}

static void data_left_by_half_a_removal_does_not_come_back(void **state)
{
	struct tempdir *t = *state;

	write_three_chunks(state);
	assert_int_equal(unlinkat(t->fd, INDEX_FILE, 0), 0);

	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);

	append(log, RUNLOG_STDOUT, "new");
	runlog_close(log);
	expect_text(store, 0, "new");
	runlog_store_close(store);
}

/* A write that fails must leave the log as it was, and the next one must find its place. */
static void an_append_that_fails_loses_nothing_before_it(void **state)
{
	struct runlog_store *store = store_at(state, 0);
	struct runlog *log = log_in(store);
	pid_t pid;
	int status;

	append(log, RUNLOG_STDOUT, "kept");
	/* In a child, because a file size limit cannot be lifted again by everybody. */
	pid = fork();
	if (pid == 0) {
		struct rlimit limit = { .rlim_cur = 6, .rlim_max = 6 };

		signal(SIGXFSZ, SIG_IGN);
		if (setrlimit(RLIMIT_FSIZE, &limit) < 0)
			_exit(2);
		_exit(runlog_append(log, RUNLOG_STDOUT, "too long", 8, 1, NULL) < 0 &&
				      runlog_end(log) == 4
			      ? 0
			      : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	append(log, RUNLOG_STDERR, " and more");
	runlog_close(log);
	expect_text(store, 0, "kept and more");
	runlog_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_tempdir(data_without_its_record_is_cut),
		with_tempdir(half_a_record_is_cut),
		with_tempdir(records_whose_data_never_reached_the_disk_are_cut),
		with_tempdir(zeros_in_place_of_records_are_cut),
		with_tempdir(an_index_without_data_is_an_empty_log),
		with_tempdir(data_left_by_half_a_removal_does_not_come_back),
		with_tempdir(an_append_that_fails_loses_nothing_before_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "../base/tempdir.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include "base/fd.h"
#include "base/text.h"
#include "driver/fake/fake_journal.h"

#define THREADS 8
#define ROUNDS 40

/* In place of libc's, so that a disk can fail at the one moment that matters. */
static bool disk_fails;

int fdatasync(int fd)
{
	if (disk_fails) {
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_fdatasync, fd);
}

static struct fake_journal *open_journal(struct tempdir *t)
{
	struct fake_journal *journal;
	_cleanup_error_ struct error err = { 0 };

	if (fake_journal_open(t->fd, &journal, &err) < 0)
		fail_msg("%s", err.message);
	return journal;
}

static void add(struct fake_journal *journal, const char *ref)
{
	_cleanup_json_ json_t *place = json_object();

	json_put_str(place, "image", ref);
	assert_int_equal(fake_journal_add(journal, ref, place, NULL), 0);
}

static bool has(struct fake_journal *journal, const char *ref)
{
	_cleanup_json_ json_t *place = fake_journal_get(journal, ref);

	return place && str_equal(json_str(place, "image"), ref);
}

static size_t count_places(struct fake_journal *journal)
{
	_cleanup_json_ json_t *places = fake_journal_places(journal);

	return json_object_size(places);
}

static void what_was_added_is_there_after_a_restart_and_what_was_removed_is_not(void **state)
{
	struct tempdir *t = *state;
	struct fake_journal *journal = open_journal(t);

	add(journal, "a");
	add(journal, "b");
	assert_int_equal(fake_journal_remove(journal, "a", NULL), 0);
	assert_int_equal(fake_journal_remove(journal, "never", NULL), 0);
	fake_journal_free(journal);

	journal = open_journal(t);
	assert_false(has(journal, "a"));
	assert_true(has(journal, "b"));
	assert_int_equal(count_places(journal), 1);
	fake_journal_free(journal);
}

static void counters_go_on_after_a_restart(void **state)
{
	struct tempdir *t = *state;
	struct fake_journal *journal = open_journal(t);

	assert_int_equal(fake_journal_count(journal, "k", NULL), 1);
	assert_int_equal(fake_journal_count(journal, "k", NULL), 2);
	assert_int_equal(fake_journal_count(journal, "other", NULL), 1);
	fake_journal_free(journal);
	journal = open_journal(t);
	assert_int_equal(fake_journal_count(journal, "k", NULL), 3);
	fake_journal_free(journal);
}

static void append_raw(struct tempdir *t, const char *text)
{
	_cleanup_close_ int fd =
		openat(t->fd, "journal.jsonl", O_WRONLY | O_APPEND | O_CREAT, 0600);

	assert_int_equal(fd_write_all(fd, text, strlen(text), NULL), 0);
}

static void a_torn_last_line_is_cut_wherever_it_is_torn(void **state)
{
	struct tempdir *t = *state;
	static const char line[] =
		"{\"op\":\"acquire\",\"ref\":\"torn\",\"place\":{\"image\":\"torn\"}}";

	for (size_t cut = 1; cut <= strlen(line); cut++) {
		_cleanup_free_ char *part = xstrndup(line, cut);
		struct fake_journal *journal = open_journal(t);
		struct stat before, after;

		fake_journal_free(journal);
		assert_int_equal(fstatat(t->fd, "journal.jsonl", &before, 0), 0);
		append_raw(t, part);
		journal = open_journal(t);
		assert_int_equal(fstatat(t->fd, "journal.jsonl", &after, 0), 0);
		assert_int_equal(before.st_size, after.st_size);
		assert_false(has(journal, "torn"));
		/* What comes behind the cut must be readable too. */
		add(journal, "after");
		fake_journal_free(journal);
		journal = open_journal(t);
		assert_true(has(journal, "after"));
		assert_int_equal(count_places(journal), 1);
		fake_journal_free(journal);
	}
}

static void damage_in_the_middle_is_refused_and_left_alone(void **state)
{
	struct tempdir *t = *state;
	struct fake_journal *journal = NULL;
	_cleanup_error_ struct error err = { 0 };
	_cleanup_buf_ struct buf before = { 0 }, after = { 0 };

	append_raw(t, "{\"op\":\"acquire\",\"ref\":\"a\",\"place\":{}}\nrubbish\n"
		      "{\"op\":\"destroy\",\"ref\":\"a\"}\n");
	assert_int_equal(file_read(t->fd, "journal.jsonl", &before, 4096, NULL), 0);
	assert_int_equal(fake_journal_open(t->fd, &journal, &err), -1);
	assert_non_null(strstr(err.message, "line 2"));
	assert_int_equal(file_read(t->fd, "journal.jsonl", &after, 4096, NULL), 0);
	assert_string_equal(buf_str(&before), buf_str(&after));
}

static void a_journal_that_is_mostly_history_is_written_anew(void **state)
{
	struct tempdir *t = *state;
	_cleanup_buf_ struct buf history = { 0 };
	struct stat st;

	buf_puts(&history, "{\"op\":\"acquire\",\"ref\":\"keep\",\"place\":{\"image\":\"keep\"}}\n"
			   "{\"op\":\"count\",\"key\":\"k\",\"n\":41}\n");
	while (history.len < 2 << 20)
		buf_puts(&history, "{\"op\":\"acquire\",\"ref\":\"x\",\"place\":{}}\n"
				   "{\"op\":\"destroy\",\"ref\":\"x\"}\n");
	append_raw(t, buf_str(&history));

	struct fake_journal *journal = open_journal(t);

	assert_int_equal(fstatat(t->fd, "journal.jsonl", &st, 0), 0);
	assert_true(st.st_size < 4096);
	add(journal, "new");
	fake_journal_free(journal);
	journal = open_journal(t);
	assert_true(has(journal, "keep"));
	assert_true(has(journal, "new"));
	assert_int_equal(count_places(journal), 2);
	assert_int_equal(fake_journal_count(journal, "k", NULL), 42);
	fake_journal_free(journal);
}

static void a_journal_in_use_does_not_grow_for_ever(void **state)
{
	struct tempdir *t = *state;
	struct fake_journal *journal = open_journal(t);
	_cleanup_free_ char *long_text = xcalloc(1, 30001);
	struct stat st;

	memset(long_text, 'x', 30000);
	add(journal, "kept");
	for (int i = 0; i < 80; i++) {
		_cleanup_json_ json_t *place = json_object();

		json_put_str(place, "image", long_text);
		assert_int_equal(fake_journal_add(journal, "big", place, NULL), 0);
		assert_int_equal(fake_journal_remove(journal, "big", NULL), 0);
		assert_int_equal(fake_journal_count(journal, "k", NULL), i + 1);
	}
	assert_int_equal(fstatat(t->fd, "journal.jsonl", &st, 0), 0);
	assert_true(st.st_size < 2 << 20);
	fake_journal_free(journal);
	journal = open_journal(t);
	assert_true(has(journal, "kept"));
	assert_int_equal(count_places(journal), 1);
	assert_int_equal(fake_journal_count(journal, "k", NULL), 81);
	fake_journal_free(journal);
}

static int try_add(struct fake_journal *journal, const char *ref, struct error *err)
{
	_cleanup_json_ json_t *place = json_object();

	json_put_str(place, "image", ref);
	return fake_journal_add(journal, ref, place, err);
}

static void a_line_whose_fsync_failed_never_was(void **state)
{
	struct tempdir *t = *state;
	struct fake_journal *journal = open_journal(t);
	_cleanup_error_ struct error err = { 0 };

	add(journal, "kept");
	disk_fails = true;
	assert_int_equal(try_add(journal, "lost", &err), -1);
	disk_fails = false;
	assert_int_equal(err.code, ERR_IO);
	assert_false(has(journal, "lost"));
	assert_true(has(journal, "kept"));
	add(journal, "next");
	fake_journal_free(journal);
	journal = open_journal(t);
	assert_false(has(journal, "lost"));
	assert_true(has(journal, "kept"));
	assert_true(has(journal, "next"));
	fake_journal_free(journal);
}

static void half_a_line_on_a_full_disk_never_was(void **state)
{
	struct tempdir *t = *state;
	struct fake_journal *journal = open_journal(t);
	struct rlimit limit, small;
	struct stat st;

	add(journal, "kept");
	assert_int_equal(fstatat(t->fd, "journal.jsonl", &st, 0), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = limit;
	small.rlim_cur = (rlim_t)st.st_size + 10;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);

	int r = try_add(journal, "a-longer-name-that-does-not-fit", NULL);

	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(r, -1);
	assert_int_equal(count_places(journal), 1);
	add(journal, "s");
	fake_journal_free(journal);
	journal = open_journal(t);
	assert_true(has(journal, "kept"));
	assert_true(has(journal, "s"));
	assert_int_equal(count_places(journal), 2);
	fake_journal_free(journal);
}

struct worker {
	struct fake_journal *journal;
	int number;
	int failures;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < ROUNDS; i++) {
		_cleanup_free_ char *ref = xasprintf("%d/%d", w->number, i);
		_cleanup_json_ json_t *place = json_object();

		json_put_str(place, "image", ref);
		if (fake_journal_add(w->journal, ref, place, NULL) < 0 || !has(w->journal, ref) ||
		    fake_journal_count(w->journal, "shared", NULL) < 0)
			w->failures++;
		if (i % 2 && fake_journal_remove(w->journal, ref, NULL) < 0)
			w->failures++;
	}
	return NULL;
}

static void threads_that_write_at_once_lose_nothing(void **state)
{
	struct tempdir *t = *state;
	struct fake_journal *journal = open_journal(t);
	struct worker workers[THREADS];
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .journal = journal, .number = i };
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(workers[i].failures, 0);
	}
	fake_journal_free(journal);
	journal = open_journal(t);
	assert_int_equal(count_places(journal), THREADS * ROUNDS / 2);
	assert_int_equal(fake_journal_count(journal, "shared", NULL), THREADS * ROUNDS + 1);
	fake_journal_free(journal);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_tempdir(what_was_added_is_there_after_a_restart_and_what_was_removed_is_not),
		with_tempdir(counters_go_on_after_a_restart),
		with_tempdir(a_torn_last_line_is_cut_wherever_it_is_torn),
		with_tempdir(damage_in_the_middle_is_refused_and_left_alone),
		with_tempdir(a_journal_that_is_mostly_history_is_written_anew),
		with_tempdir(a_journal_in_use_does_not_grow_for_ever),
		with_tempdir(a_line_whose_fsync_failed_never_was),
		with_tempdir(half_a_line_on_a_full_disk_never_was),
		with_tempdir(threads_that_write_at_once_lose_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

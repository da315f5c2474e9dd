#include "tempdir.h"
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include "base/fd.h"
#include "base/text.h"

static size_t count_entries(const char *path)
{
	DIR *dir = opendir(path);
	size_t n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}

static void a_replaced_file_has_exactly_the_new_content_and_mode(void **state)
{
	struct tempdir *t = *state;
	_cleanup_buf_ struct buf b = { 0 };
	struct stat st;

	mode_t old = umask(077);
	assert_int_equal(file_replace(t->fd, "f", "first version", 13, 0600, NULL), 0);
	assert_int_equal(file_replace(t->fd, "f", "second", 6, 0644, NULL), 0);
	umask(old);
	assert_int_equal(file_read(t->fd, "f", &b, 100, NULL), 0);
	assert_string_equal(buf_str(&b), "second");
	assert_int_equal(fstatat(t->fd, "f", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_int_equal(count_entries(t->path), 1);
}

static void a_file_in_a_folder_is_replaced_there(void **state)
{
	struct tempdir *t = *state;
	_cleanup_free_ char *absolute = xasprintf("%s/d/f", t->path);
	_cleanup_buf_ struct buf b = { 0 };

	assert_int_equal(dir_make(t->fd, "d", 0755, NULL), 0);
	assert_int_equal(file_replace(t->fd, "d/f", "one", 3, 0600, NULL), 0);
	assert_int_equal(file_replace(AT_FDCWD, absolute, "two", 3, 0600, NULL), 0);
	assert_int_equal(file_read(t->fd, "d/f", &b, 3, NULL), 0);
	assert_string_equal(buf_str(&b), "two");
	assert_int_equal(count_entries(t->path), 1);
}

static void replacing_a_link_leaves_its_target_alone(void **state)
{
	struct tempdir *t = *state;
	_cleanup_buf_ struct buf b = { 0 };

	write_file_at(t->fd, "target", "precious", 0600);
	assert_int_equal(symlinkat("target", t->fd, "f"), 0);
	assert_int_equal(file_replace(t->fd, "f", "new", 3, 0600, NULL), 0);
	assert_int_equal(file_read(t->fd, "target", &b, 100, NULL), 0);
	assert_string_equal(buf_str(&b), "precious");
}

static void a_failed_replacement_leaves_the_old_file_and_nothing_else(void **state)
{
	struct tempdir *t = *state;
	_cleanup_error_ struct error err = { 0 };
	struct rlimit old, small;

	assert_int_equal(dir_make(t->fd, "taken/by-a-folder", 0755, NULL), 0);
	assert_int_equal(file_replace(t->fd, "taken", "x", 1, 0600, &err), -1);
	assert_int_equal(err.code, ERR_IO);
	assert_int_equal(count_entries(t->path), 1);

	/* A file size limit stands in for a full disk: the write itself fails. */
	write_file_at(t->fd, "f", "old", 0600);
	getrlimit(RLIMIT_FSIZE, &old);
	small = (struct rlimit){ .rlim_cur = 2, .rlim_max = old.rlim_max };
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &small);
	int rc = file_replace(t->fd, "f", "longer", 6, 0600, &err);
	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(rc, -1);
	assert_int_equal(err.errnum, EFBIG);

	_cleanup_buf_ struct buf b = { 0 };

	assert_int_equal(file_read(t->fd, "f", &b, 100, NULL), 0);
	assert_string_equal(buf_str(&b), "old");
	assert_int_equal(count_entries(t->path), 2);
}

static void a_name_that_is_no_file_name_is_refused(void **state)
{
	struct tempdir *t = *state;
	static const char *const bad[] = { "", ".", "..", "d/", "/" };
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(dir_make(t->fd, "d", 0755, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(file_replace(t->fd, bad[i], "x", 1, 0600, &err), -1);
		assert_int_equal(err.code, ERR_BAD_PATH);
		assert_int_equal(dir_remove_tree(t->fd, bad[i], &err), -1);
		assert_int_equal(err.code, ERR_BAD_PATH);
	}
}

static void reading_stops_at_the_limit(void **state)
{
	struct tempdir *t = *state;
	_cleanup_error_ struct error err = { 0 };
	_cleanup_buf_ struct buf b = { 0 }, bounded = { .max = 6 };

	write_file_at(t->fd, "f", "12345", 0600);
	buf_puts(&b, "head");
	assert_int_equal(file_read(t->fd, "f", &b, 4, &err), -1);
	assert_int_equal(err.code, ERR_TOO_LARGE);
	assert_string_equal(buf_str(&b), "head");
	assert_int_equal(file_read(t->fd, "f", &b, 5, &err), 0);
	assert_string_equal(buf_str(&b), "head12345");
	assert_int_equal(file_read(t->fd, "f", &b, SIZE_MAX, &err), 0);
	assert_string_equal(buf_str(&b), "head1234512345");

	/* The buffer's own limit counts as well. */
	buf_puts(&bounded, "ab");
	assert_int_equal(file_read(t->fd, "f", &bounded, 100, &err), -1);
	assert_int_equal(err.code, ERR_TOO_LARGE);
	assert_string_equal(buf_str(&bounded), "ab");
}

static void a_large_file_is_read_whole(void **state)
{
	struct tempdir *t = *state;
	size_t size = 3 * 65536 + 17;
	_cleanup_free_ char *data = xmalloc(size);
	_cleanup_buf_ struct buf b = { 0 };

	for (size_t i = 0; i < size; i++)
		data[i] = (char)(i * 31);
	assert_int_equal(file_replace(t->fd, "f", data, size, 0600, NULL), 0);
	assert_int_equal(file_read(t->fd, "f", &b, size, NULL), 0);
	assert_int_equal(b.len, size);
	assert_memory_equal(b.data, data, size);
}

static void only_regular_files_are_read(void **state)
{
	struct tempdir *t = *state;
	_cleanup_error_ struct error err = { 0 };
	_cleanup_buf_ struct buf b = { 0 };

	assert_int_equal(mkfifoat(t->fd, "pipe", 0600), 0);
	/* Would hang for ever if it waited for a writer. */
	assert_int_equal(file_read(t->fd, "pipe", &b, 10, &err), -1);
	assert_int_equal(file_read(t->fd, ".", &b, 10, &err), -1);
	assert_int_equal(file_read(t->fd, "absent", &b, 10, &err), -1);
	assert_int_equal(err.code, ERR_IO);
	assert_int_equal(err.errnum, ENOENT);
	assert_non_null(strstr(err.message, "absent"));
}

static void directories_are_made_with_their_parents(void **state)
{
	struct tempdir *t = *state;
	_cleanup_error_ struct error err = { 0 };
	_cleanup_free_ char *absolute = xasprintf("%s//x/y/", t->path);

	assert_int_equal(dir_make(t->fd, "a/b/c", 0755, &err), 0);
	assert_int_equal(dir_make(t->fd, "a/b/c", 0755, &err), 0);
	assert_int_equal(dir_make(AT_FDCWD, absolute, 0755, &err), 0);
	assert_int_equal(dir_make(AT_FDCWD, "/", 0755, &err), 0);
	assert_true(exists_at(t->fd, "a/b/c"));
	assert_true(exists_at(t->fd, "x/y"));

	write_file_at(t->fd, "a/file", "", 0600);
	assert_int_equal(dir_make(t->fd, "a/file/d", 0755, &err), -1);
	assert_int_equal(err.errnum, ENOTDIR);
	assert_int_equal(dir_make(t->fd, "a/file", 0755, &err), -1);
	assert_int_equal(err.errnum, ENOTDIR);
}

static void writing_to_nobody_is_an_error(void **state)
{
	(void)state;
	_cleanup_error_ struct error err = { 0 };
	int fds[2];

	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	close(fds[0]);
	assert_int_equal(fd_write_all(fds[1], "x", 1, &err), -1);
	assert_int_equal(err.errnum, EPIPE);
	close(fds[1]);
}

static void a_positional_write_lands_where_it_should(void **state)
{
	struct tempdir *t = *state;
	_cleanup_close_ int fd = openat(t->fd, "f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	_cleanup_buf_ struct buf b = { 0 };

	assert_int_equal(fd_pwrite_all(fd, "world", 5, 6, NULL), 0);
	assert_int_equal(fd_pwrite_all(fd, "hello ", 6, 0, NULL), 0);
	assert_int_equal(fd_sync(fd, NULL), 0);
	assert_int_equal(fd_read_all(fd, &b, 100, NULL), 0);
	assert_string_equal(buf_str(&b), "hello world");
}

static void a_latch_stays_set_until_cleared(void **state)
{
	(void)state;
	_cleanup_close_ int latch = latch_new(NULL);
	struct pollfd p = { .fd = latch, .events = POLLIN };

	assert_true(latch >= 0);
	assert_false(latch_is_set(latch));
	latch_set(latch);
	latch_set(latch);
	assert_true(latch_is_set(latch));
	assert_int_equal(poll(&p, 1, 0), 1);
	assert_true(latch_is_set(latch));
	latch_clear(latch);
	assert_false(latch_is_set(latch));
	latch_clear(latch);
}

static void blocking_can_be_switched_on_and_off(void **state)
{
	(void)state;
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(fd_set_nonblock(fds[0], true, NULL), 0);
	assert_true(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
	assert_int_equal(fd_set_nonblock(fds[0], false, NULL), 0);
	assert_false(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(fd_set_nonblock(fds[0], true, NULL), -1);
}

static void free_space_is_known(void **state)
{
	struct tempdir *t = *state;

	assert_true(dir_free_bytes(t->fd) > 0);
	assert_true(dir_free_bytes(AT_FDCWD) > 0);
	assert_true(dir_free_bytes(-1) == -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_tempdir(a_replaced_file_has_exactly_the_new_content_and_mode),
		with_tempdir(a_file_in_a_folder_is_replaced_there),
		with_tempdir(replacing_a_link_leaves_its_target_alone),
		with_tempdir(a_failed_replacement_leaves_the_old_file_and_nothing_else),
		with_tempdir(a_name_that_is_no_file_name_is_refused),
		with_tempdir(reading_stops_at_the_limit),
		with_tempdir(a_large_file_is_read_whole),
		with_tempdir(only_regular_files_are_read),
		with_tempdir(directories_are_made_with_their_parents),
		cmocka_unit_test(writing_to_nobody_is_an_error),
		with_tempdir(a_positional_write_lands_where_it_should),
		cmocka_unit_test(a_latch_stays_set_until_cleared),
		cmocka_unit_test(blocking_can_be_switched_on_and_off),
		with_tempdir(free_space_is_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

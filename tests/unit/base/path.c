#include "tempdir.h"
#include <errno.h>
#include "base/fd.h"
#include "base/path.h"

static void assert_joined(const char *dir, const char *name, const char *want)
{
	_cleanup_free_ char *path = path_join(dir, name);

	assert_string_equal(path, want);
}

static void joining_puts_one_slash_between(void **state)
{
	(void)state;
	assert_joined("/a", "b", "/a/b");
	assert_joined("/a/", "b", "/a/b");
	assert_joined("/", "b", "/b");
	assert_joined("/a", "/b", "/b");
	assert_joined("", "b", "b");
	assert_joined("/a", "", "/a");
}

static void only_plain_paths_are_clean(void **state)
{
	(void)state;
	static const char *const good[] = {
		"a", "a/b", "/a/b", "/", "...", "a/.b", "a/b..", "..a"
	};
	static const char *const bad[] = { "",       ".",  "..",   "a/",  "a//b", "/a/", "a/./b",
					   "a/../b", "//", "a/..", "/..", "./a",  "//a" };

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(path_is_clean(good[i]));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(path_is_clean(bad[i]));
}

static void a_segment_is_one_file_name(void **state)
{
	(void)state;
	char name[257];

	memset(name, 'n', 256);
	name[256] = '\0';
	assert_false(path_is_segment(name));
	name[255] = '\0';
	assert_true(path_is_segment(name));
	assert_true(path_is_segment("..."));
	assert_true(path_is_segment(".git"));
	assert_false(path_is_segment(""));
	assert_false(path_is_segment("."));
	assert_false(path_is_segment(".."));
	assert_false(path_is_segment("a/b"));
	assert_false(path_is_segment("/"));
}

static void a_path_beneath_is_opened_through_inner_links(void **state)
{
	struct tempdir *t = *state;
	_cleanup_close_ int fd = -1, made = -1;
	struct stat st;

	assert_int_equal(dir_make(t->fd, "root/a", 0755, NULL), 0);
	write_file_at(t->fd, "root/a/file", "x", 0600);
	assert_int_equal(symlinkat("a", t->fd, "root/inner"), 0);

	_cleanup_close_ int root = -1;

	assert_int_equal(dir_open(t->fd, "root", &root, NULL), 0);
	assert_int_equal(path_open_beneath(root, "inner/../a/file", O_RDONLY, 0, &fd, NULL), 0);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(path_open_beneath(root, "new", O_WRONLY | O_CREAT, 0640, &made, NULL), 0);
	assert_int_equal(fstat(made, &st), 0);
	assert_int_equal(st.st_mode & 0777 & ~0640u, 0);
}

static void every_way_out_is_closed(void **state)
{
	struct tempdir *t = *state;
	_cleanup_error_ struct error err = { 0 };
	_cleanup_close_ int root = -1;
	static const char *const ways[] = { "..",       "../secret",     "/etc/passwd",
					    "absolute", "relative",      "dir/../../secret",
					    "dir/x",    "magic/root/etc" };
	int fd;

	write_file_at(t->fd, "secret", "x", 0600);
	assert_int_equal(dir_make(t->fd, "root/dir", 0755, NULL), 0);
	assert_int_equal(dir_open(t->fd, "root", &root, NULL), 0);
	assert_int_equal(symlinkat("/etc/passwd", root, "absolute"), 0);
	assert_int_equal(symlinkat("../secret", root, "relative"), 0);
	assert_int_equal(symlinkat("../..", root, "dir/x"), 0);
	assert_int_equal(symlinkat("/proc/self", root, "magic"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		fd = 99;
		assert_int_equal(path_open_beneath(root, ways[i], O_RDONLY, 0, &fd, &err), -1);
		assert_int_equal(err.code, ERR_BAD_PATH);
		assert_int_equal(fd, -1);
	}
	assert_int_equal(path_open_beneath(root, "absent", O_RDONLY, 0, &fd, &err), -1);
	assert_int_equal(err.code, ERR_IO);
	assert_int_equal(err.errnum, ENOENT);
}

static void a_loop_of_links_is_a_bad_path(void **state)
{
	struct tempdir *t = *state;
	_cleanup_error_ struct error err = { 0 };
	int fd;

	assert_int_equal(symlinkat("b", t->fd, "a"), 0);
	assert_int_equal(symlinkat("a", t->fd, "b"), 0);
	assert_int_equal(path_open_beneath(t->fd, "a", O_RDONLY, 0, &fd, &err), -1);
	assert_int_equal(err.code, ERR_BAD_PATH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(joining_puts_one_slash_between),
		cmocka_unit_test(only_plain_paths_are_clean),
		cmocka_unit_test(a_segment_is_one_file_name),
		with_tempdir(a_path_beneath_is_opened_through_inner_links),
		with_tempdir(every_way_out_is_closed),
		with_tempdir(a_loop_of_links_is_a_bad_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

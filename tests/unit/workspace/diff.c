#include "files_fixture.h"

#include "workspace/diff_lines.h"

static struct diff_text text(const char *s)
{
	return (struct diff_text){ s, strlen(s) };
}

static void expect_hunks(const char *before, const char *after, const char *want)
{
	_cleanup_buf_ struct buf out = { 0 };

	assert_true(diff_hunks(&out, text(before), text(after)));
	assert_string_equal(buf_str(&out), want);
}

static void hunks_are_those_of_a_unified_diff(void **state)
{
	(void)state;
	expect_hunks("a\nb\n", "a\nb\n", "");
	expect_hunks("", "a\n", "@@ -0,0 +1 @@\n+a\n");
	expect_hunks("a\n", "", "@@ -1 +0,0 @@\n-a\n");
	expect_hunks("a\nb\nc\n", "a\nX\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+X\n c\n");
	expect_hunks("a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n");
	expect_hunks("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n", "X\n2\n3\n4\n5\n6\n7\n8\n9\nY\n",
		     "@@ -1,4 +1,4 @@\n-1\n+X\n 2\n 3\n 4\n@@ -7,4 +7,4 @@\n 7\n 8\n 9\n-10\n+Y\n");
}

static void random_lines(struct buf *out, uint32_t *seed, unsigned lines)
{
	for (unsigned i = 0; i < lines; i++) {
		*seed = *seed * 1103515245 + 12345;
		buf_printf(out, "%u\n", (*seed >> 16) % 7);
	}
	if (*seed & 0x10000 && out->len)
		buf_puts(out, "tail");
}

static void run_shell(const struct files *f, const char *script)
{
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)script, (char *)f->path, NULL };

	run_command(argv);
}

/* The judge of a diff is git apply: what it makes of the old tree must be the new one. */
static void git_makes_the_new_tree_of_the_old_one_and_the_diff(void **state)
{
	struct files *f = *state;
	struct error err = { 0 };
	uint32_t seed = 5;
	char name[32];
	int fd;

	for (unsigned i = 0; i < 60; i++) {
		_cleanup_buf_ struct buf before = { 0 };

		random_lines(&before, &seed, i % 23);
		snprintf(name, sizeof(name), "f%u", i);
		put_bytes(f->host_fd, name, buf_str(&before), before.len, 0644);
	}
	put_text(f->host_fd, "gone", "gone\n");
	put_text(f->host_fd, "n\303\244me \"q\"\n", "odd\n");
	put_text(f->host_fd, "tool", "#!\n");
	put_text(f->host_fd, "becomes-link", "text\n");
	assert_int_equal(symlinkat("x", f->host_fd, "link"), 0);
	files_stage(f);
	for (unsigned i = 0; i < 60; i++) {
		_cleanup_buf_ struct buf after = { 0 };

		random_lines(&after, &seed, (i * 7) % 19);
		snprintf(name, sizeof(name), "f%u", i);
		put_bytes(f->place_fd, name, buf_str(&after), after.len, 0644);
	}
	unlinkat(f->place_fd, "gone", 0);
	put_text(f->place_fd, "n\303\244me \"q\"\n", "changed\n");
	assert_int_equal(fchmodat(f->place_fd, "tool", 0755, 0), 0);
	put_text(f->place_fd, "new", "new\n");
	close(open_made(f->place_fd, "dir"));
	put_text(f->place_fd, "dir/new", "");
	unlinkat(f->place_fd, "link", 0);
	assert_int_equal(symlinkat("y", f->place_fd, "link"), 0);
	unlinkat(f->place_fd, "becomes-link", 0);
	assert_int_equal(symlinkat("z", f->place_fd, "becomes-link"), 0);
	files_fetch(f);
	run_shell(f, "cp -a $0/host $0/old");
	/* Once with the host as staged, once when the old side is what was displaced. */
	for (int applied = 0; applied < 2; applied++) {
		if (applied)
			files_apply(f, NULL, NULL, NULL);
		fd = openat(f->fd, "patch", O_WRONLY | O_CREAT | O_TRUNC, 0600);
		must(results_diff(&f->results, f->state.run_id, fd, &err), &err);
		close(fd);
		run_shell(f, "rm -rf $0/try && cp -a $0/old $0/try && cd $0/try && "
			     "git apply --whitespace=nowarn $0/patch && "
			     "diff -r --no-dereference $0/try $0/place && test -x tool");
	}
}

static char *diff_of(struct files *f)
{
	struct error err = { 0 };
	int fd = openat(f->fd, "patch", O_WRONLY | O_CREAT | O_TRUNC, 0600);

	must(results_diff(&f->results, f->state.run_id, fd, &err), &err);
	close(fd);
	return get_text(f->fd, "patch");
}

static void binary_and_huge_files_are_told_by_a_line(void **state)
{
	struct files *f = *state;
	_cleanup_free_ char *huge = xmalloc(6 << 20), *diff = NULL;

	memset(huge, 'x', 6 << 20);
	put_bytes(f->host_fd, "bin", "a\0b", 3, 0644);
	files_stage(f);
	put_bytes(f->place_fd, "bin", "a\0c", 3, 0644);
	put_bytes(f->place_fd, "huge", huge, 6 << 20, 0644);
	files_fetch(f);
	diff = diff_of(f);
	assert_non_null(strstr(diff, "Binary files a/bin and b/bin differ\n"));
	assert_non_null(strstr(diff, "Binary files /dev/null and b/huge differ\n"));
	assert_true(strlen(diff) < 1000);
}

static void a_former_content_that_is_gone_is_said_to_be(void **state)
{
	struct files *f = *state;
	_cleanup_free_ char *diff = NULL;

	put_text(f->host_fd, "a", "base\n");
	files_stage(f);
	put_text(f->place_fd, "a", "place\n");
	put_text(f->host_fd, "a", "host\n");
	files_fetch(f);
	diff = diff_of(f);
	assert_non_null(strstr(diff, "is no longer kept: a\n"));
	assert_null(strstr(diff, "host"));
}

static void texts_with_nothing_in_common_take_no_time(void **state)
{
	_cleanup_buf_ struct buf a = { 0 }, b = { 0 }, out = { 0 };

	(void)state;
	for (int i = 0; i < 40000; i++) {
		buf_printf(&a, "a%d\n", i);
		buf_printf(&b, "b%d\n", i);
	}
	assert_true(diff_hunks(&out, text(buf_str(&a)), text(buf_str(&b))));
	assert_true(out.len > a.len + b.len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hunks_are_those_of_a_unified_diff),
		with_files(git_makes_the_new_tree_of_the_old_one_and_the_diff),
		with_files(binary_and_huge_files_are_told_by_a_line),
		with_files(a_former_content_that_is_gone_is_said_to_be),
		cmocka_unit_test(texts_with_nothing_in_common_take_no_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

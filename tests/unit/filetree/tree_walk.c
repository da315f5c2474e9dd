#include "../base/tempdir.h"
#include <pthread.h>
#include <stdatomic.h>
#include "base/fd.h"
#include "base/text.h"
#include "filetree/walk.h"

struct seen {
	struct buf lines; /* "type path\n" */
	char last[TREE_PATH_MAX + 1];
	size_t count;
	int (*also)(void *arg, const struct tree_entry *entry);
	void *arg;
};

static int note(void *arg, const struct tree_entry *e, int dir_fd, const char *name,
		struct error *err)
{
	static const char kinds[] = "-dfls";
	struct seen *s = arg;
	struct stat st;

	(void)err;
	assert_true(tree_path_is_valid(e->path, e->path_len));
	assert_int_equal(e->path[e->path_len], 0);
	if (s->count++ > 0)
		assert_true(tree_path_compare(s->last, strlen(s->last), e->path, e->path_len) < 0);
	memcpy(s->last, e->path, e->path_len + 1);
	if (!s->also && !(e->flags & TREE_UNREADABLE)) {
		assert_int_equal(fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
		assert_int_equal(st.st_ino, e->ino);
	}
	buf_printf(&s->lines, "%c%s %s\n", kinds[e->type], e->flags & TREE_UNREADABLE ? "!" : "",
		   e->path);
	return s->also ? s->also(s->arg, e) : 0;
}

static void walk(int fd, const struct tree_walk_options *options, struct seen *seen)
{
	struct error err = { 0 };

	if (tree_walk(fd, options, note, seen, &err) < 0)
		fail_msg("%s", err.message);
}

static void everything_is_seen_in_order_and_links_are_not_followed(void **state)
{
	struct tempdir *t = *state;
	struct tree_walk_options options = { 0 };
	struct seen seen = { 0 };

	mkdirat(t->fd, "a", 0755);
	mkdirat(t->fd, "a/empty", 0755);
	write_file_at(t->fd, "a/x", "", 0644);
	write_file_at(t->fd, "a-b", "", 0644);
	write_file_at(t->fd, "a\nb", "", 0644);
	write_file_at(t->fd, "\xff\xfe", "", 0644);
	assert_int_equal(symlinkat("/etc", t->fd, "l1"), 0);
	assert_int_equal(symlinkat("l2", t->fd, "l2"), 0);
	assert_int_equal(symlinkat("a", t->fd, "l3"), 0);
	mkfifoat(t->fd, "p", 0600);
	walk(t->fd, &options, &seen);
	assert_string_equal(buf_str(&seen.lines),
			    "d a\nd a/empty\nf a/x\nf a\nb\nf a-b\nl l1\nl l2\n"
			    "l l3\ns p\nf \xff\xfe\n");
	buf_free(&seen.lines);
}

static void git_is_left_out_at_the_root_only_and_rules_do_not_count_in_it(void **state)
{
	struct tempdir *t = *state;
	struct tree_walk_options options = { .ignore = ignore_new() };
	struct seen seen = { 0 };

	mkdirat(t->fd, ".git", 0755);
	write_file_at(t->fd, ".git/a.pack", "", 0644);
	mkdirat(t->fd, "v", 0755);
	mkdirat(t->fd, "v/.git", 0755);
	write_file_at(t->fd, "v/.git/b.pack", "", 0644);
	write_file_at(t->fd, "v/c.pack", "", 0644);
	ignore_add_global(options.ignore, "*.pack\n.git\n", 12);
	walk(t->fd, &options, &seen);
	assert_string_equal(buf_str(&seen.lines),
			    "d .git\nf .git/a.pack\nd v\nd v/.git\nf v/.git/b.pack\n");
	buf_reset(&seen.lines);
	seen.count = 0;
	options.skip_git = true;
	walk(t->fd, &options, &seen);
	assert_string_equal(buf_str(&seen.lines), "d v\nd v/.git\nf v/.git/b.pack\n");
	ignore_free(options.ignore);
	buf_free(&seen.lines);
}

static bool keeps(void *arg, const char *path, size_t len)
{
	(void)arg;
	(void)len;
	return streq(path, "out") || streq(path, "out/kept") || streq(path, "x.log");
}

static void what_was_staged_stays_although_rules_leave_it_out(void **state)
{
	struct tempdir *t = *state;
	struct tree_walk_options options = { .ignore = ignore_new(), .keeps = keeps };
	struct seen seen = { 0 };

	write_file_at(t->fd, ".gitignore", "out\n*.log\n", 0644);
	mkdirat(t->fd, "out", 0755);
	write_file_at(t->fd, "out/kept", "", 0644);
	write_file_at(t->fd, "out/other", "", 0644);
	write_file_at(t->fd, "x.log", "", 0644);
	write_file_at(t->fd, "y.log", "", 0644);
	walk(t->fd, &options, &seen);
	assert_string_equal(buf_str(&seen.lines), "f .gitignore\nd out\nf out/kept\nf x.log\n");
	ignore_free(options.ignore);
	buf_free(&seen.lines);
}

/* Deeper than descriptors stay open for, so that levels are given back and opened again. */
static void deep_trees_are_walked_and_have_a_bound(void **state)
{
	struct tempdir *t = *state;
	struct tree_walk_options options = { 0 };
	struct seen seen = { 0 };
	struct error err = { 0 };
	_cleanup_close_ int fd = dup(t->fd);
	const int depth = 100;

	for (int i = 0; i < depth; i++) {
		mkdirat(fd, "d", 0755);
		write_file_at(fd, "z", "", 0644);

		int next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		close(fd);
		fd = next;
	}
	walk(t->fd, &options, &seen);
	assert_int_equal(seen.count, 2 * depth);
	options.max_depth = 50;
	seen.count = 0;
	assert_int_equal(tree_walk(t->fd, &options, note, &seen, &err), -1);
	assert_int_equal(err.code, ERR_TOO_LARGE);
	buf_free(&seen.lines);
}

static void the_number_of_entries_has_a_bound(void **state)
{
	struct tempdir *t = *state;
	struct tree_walk_options options = { .max_entries = 3 };
	struct seen seen = { 0 };
	struct error err = { 0 };

	write_file_at(t->fd, "1", "", 0644);
	write_file_at(t->fd, "2", "", 0644);
	write_file_at(t->fd, "3", "", 0644);
	walk(t->fd, &options, &seen);
	write_file_at(t->fd, "4", "", 0644);
	seen.count = 0;
	assert_int_equal(tree_walk(t->fd, &options, note, &seen, &err), -1);
	assert_int_equal(err.code, ERR_TOO_LARGE);
	assert_non_null(strstr(err.message, "3 files"));
	buf_free(&seen.lines);
}

static void an_unreadable_directory_is_reported(void **state)
{
	struct tempdir *t = *state;
	struct tree_walk_options options = { 0 };
	struct seen seen = { 0 };

	mkdirat(t->fd, "shut", 0700);
	write_file_at(t->fd, "shut/x", "", 0644);
	mkdirat(t->fd, "open", 0755);
	assert_int_equal(fchmodat(t->fd, ".", 0755, 0), 0);
	assert_int_equal(seteuid(65534), 0);
	walk(t->fd, &options, &seen);
	assert_int_equal(seteuid(0), 0);
	assert_string_equal(buf_str(&seen.lines), "d open\nd! shut\n");
	buf_free(&seen.lines);
}

/* Nothing is known of what is in it, and its rules would be about that alone. */
static void a_directory_that_may_only_be_listed_does_not_end_the_walk(void **state)
{
	struct tempdir *t = *state;
	struct tree_walk_options options = { .ignore = ignore_new() };
	struct seen seen = { 0 };

	mkdirat(t->fd, "listed", 0744);
	write_file_at(t->fd, "listed/x", "", 0644);
	write_file_at(t->fd, "y", "", 0644);
	assert_int_equal(fchmodat(t->fd, "listed", 0744, 0), 0);
	assert_int_equal(fchmodat(t->fd, ".", 0755, 0), 0);
	assert_int_equal(seteuid(65534), 0);
	walk(t->fd, &options, &seen);
	assert_int_equal(seteuid(0), 0);
	assert_non_null(strstr(buf_str(&seen.lines), "d listed\n"));
	assert_non_null(strstr(buf_str(&seen.lines), "f y\n"));
	buf_free(&seen.lines);
	ignore_free(options.ignore);
}

static int remove_later_ones(void *arg, const struct tree_entry *entry)
{
	struct tempdir *t = arg;

	if (streq(entry->path, "a")) {
		unlinkat(t->fd, "b", 0);
		unlinkat(t->fd, "c/x", 0);
		unlinkat(t->fd, "c", AT_REMOVEDIR);
		assert_int_equal(symlinkat("/etc", t->fd, "c"), 0);
	}
	return 0;
}

static void what_vanishes_is_left_out_and_what_becomes_a_link_is_one(void **state)
{
	struct tempdir *t = *state;
	struct tree_walk_options options = { 0 };
	struct seen seen = { .also = remove_later_ones, .arg = t };

	write_file_at(t->fd, "a", "", 0644);
	write_file_at(t->fd, "b", "", 0644);
	mkdirat(t->fd, "c", 0755);
	write_file_at(t->fd, "c/x", "", 0644);
	write_file_at(t->fd, "d", "", 0644);
	walk(t->fd, &options, &seen);
	assert_string_equal(buf_str(&seen.lines), "f a\nl c\nf d\n");
	buf_free(&seen.lines);
}

struct swapper {
	int fd;
	atomic_bool stop;
};

static void *swap(void *arg)
{
	struct swapper *s = arg;

	while (!atomic_load(&s->stop))
		renameat2(s->fd, "dir", s->fd, "link", RENAME_EXCHANGE);
	return NULL;
}

static int look_for_canary(void *arg, const struct tree_entry *entry)
{
	(void)arg;
	assert_null(strstr(entry->path, "canary"));
	return 0;
}

static void a_directory_swapped_for_a_link_leads_nowhere(void **state)
{
	struct tempdir *t = *state;
	struct tree_walk_options options = { 0 };
	struct seen seen = { .also = look_for_canary };
	struct swapper swapper = { 0 };
	pthread_t thread;

	mkdirat(t->fd, "outside", 0755);
	write_file_at(t->fd, "outside/canary", "", 0644);
	mkdirat(t->fd, "tree", 0755);
	mkdirat(t->fd, "tree/dir", 0755);
	write_file_at(t->fd, "tree/dir/x", "", 0644);
	assert_int_equal(symlinkat("../outside", t->fd, "tree/link"), 0);
	swapper.fd = openat(t->fd, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(pthread_create(&thread, NULL, swap, &swapper), 0);
	for (int i = 0; i < 2000; i++) {
		seen.count = 0;
		buf_reset(&seen.lines);
		walk(swapper.fd, &options, &seen);
	}
	atomic_store(&swapper.stop, true);
	pthread_join(thread, NULL);
	close(swapper.fd);
	buf_free(&seen.lines);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_tempdir(everything_is_seen_in_order_and_links_are_not_followed),
		with_tempdir(git_is_left_out_at_the_root_only_and_rules_do_not_count_in_it),
		with_tempdir(what_was_staged_stays_although_rules_leave_it_out),
		with_tempdir(deep_trees_are_walked_and_have_a_bound),
		with_tempdir(the_number_of_entries_has_a_bound),
		with_tempdir(an_unreadable_directory_is_reported),
		with_tempdir(a_directory_that_may_only_be_listed_does_not_end_the_walk),
		with_tempdir(what_vanishes_is_left_out_and_what_becomes_a_link_is_one),
		with_tempdir(a_directory_swapped_for_a_link_leads_nowhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

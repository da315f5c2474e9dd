/*
 * The matcher against git's own: random rule files in random trees, and what `git check-ignore`
 * says of every path in them. BERTH_SEED=n tries that one seed.
 */
#include "../base/tempdir.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/spawn.h"
#include "base/text.h"
#include "filetree/walk.h"

#define SEEDS 300

static const char *const names[] = {
	"a",  "b",   "ab",  "abc", "foo", "x.o", "b.c", "[a]", "a*b",  "#c", "!d",
	"e ", "\\f", "a-b", "A",   "]",   "-",   "bar", "z\n", "\xff", ".h", "9",
};
static const char *const pieces[] = {
	"a",     "b",    "c",   "foo",           "bar",   ".o",        "*",
	"*",     "**",   "**/", "/**",           "/",     "/",         "?",
	"[ab",   "]",    "[",   "[!a]",          "-",     "\\",        "\\",
	"!",     "#",    " ",   "***",           "[a-c]", "[^b]",      "\\/",
	"[]a]",  "x",    "e ",  "[[:alpha:]]",   "A",     "[[:bad:]]", "[a-",
	"[\\]]", "\xff", "9",   "[[:digit:]-z]", "\t",    "[c-a]",     "[[:a]",
	"[*-z]",
};

static size_t pick(unsigned *seed, size_t bound)
{
	return (size_t)rand_r(seed) % bound;
}

static void random_rules(unsigned *seed, struct buf *out)
{
	size_t lines = 1 + pick(seed, 6);

	while (lines-- > 0) {
		if (pick(seed, 4) == 0)
			buf_putc(out, '!');
		if (pick(seed, 4) == 0)
			buf_putc(out, '/');
		for (size_t n = 1 + pick(seed, 5); n > 0; n--)
			buf_puts(out, pieces[pick(seed, ARRAY_SIZE(pieces))]);
		if (pick(seed, 4) == 0)
			buf_putc(out, '/');
		buf_puts(out, pick(seed, 8) ? "\n" : "\r\n");
	}
	if (pick(seed, 3) == 0)
		buf_puts(out, "*b"); /* a last line without an end */
}

static void write_text(int dir_fd, const char *name, const struct buf *text)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, buf_str(text), text->len, NULL), 0);
	close(fd);
}

/* The same for all seeds: making files is dear where the test runs. */
static void make_tree(unsigned *seed, int dir_fd, int depth)
{
	for (size_t i = 0; i < (depth == 0 ? ARRAY_SIZE(names) : 5); i++) {
		const char *name = names[depth == 0 ? i : pick(seed, ARRAY_SIZE(names))];
		size_t kind = pick(seed, 8);

		if (depth < 3 && kind < 4 && mkdirat(dir_fd, name, 0755) == 0) {
			int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

			make_tree(seed, fd, depth + 1);
			close(fd);
		} else if (kind == 4) {
			(void)!symlinkat("a", dir_fd, name);
		} else {
			int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

			if (fd >= 0)
				close(fd);
		}
	}
}

static int add_dir(void *arg, const struct tree_entry *entry, int dir_fd, const char *name,
		   struct error *err)
{
	(void)dir_fd;
	(void)name;
	(void)err;
	if (entry->type == TREE_DIR)
		strv_push(arg, xstrdup(entry->path));
	return 0;
}

/* Rule files at the root and in some directories; *at is where they are. */
static void place_rules(unsigned *seed, int tree, char **dirs, struct buf *at)
{
	size_t count = 1 + pick(seed, 6);

	for (size_t i = 0; i < count; i++) {
		_cleanup_buf_ struct buf rules = { 0 };
		_cleanup_free_ char *name =
			i == 0 ? xstrdup(".gitignore")
			       : xasprintf("%s/.gitignore", dirs[pick(seed, strv_len(dirs))]);

		random_rules(seed, &rules);
		write_text(tree, name, &rules);
		buf_append(at, name, strlen(name) + 1);
	}
}

/* NUL-terminated paths, in order. */
static int add_path(void *arg, const struct tree_entry *entry, int dir_fd, const char *name,
		    struct error *err)
{
	(void)dir_fd;
	(void)name;
	(void)err;
	buf_append(arg, entry->path, entry->path_len + 1);
	return 0;
}

static void list(int dir_fd, struct ignore *ignore, struct buf *out)
{
	struct tree_walk_options options = { .ignore = ignore };
	struct error err = { 0 };

	if (tree_walk(dir_fd, &options, add_path, out, &err) < 0)
		fail_msg("%s", err.message);
}

/* What git says of the NUL-terminated paths in t/all goes to t/out. Spawned: forking is dear. */
static void run_git(const struct tempdir *t, const char *where, char *const argv[])
{
	_cleanup_free_ char *cwd = xasprintf("%s/%s", t->path, where);
	_cleanup_free_ char *git_dir = xasprintf("GIT_DIR=%s/repo", t->path);
	_cleanup_free_ char *home = xasprintf("HOME=%s", t->path);
	char *envp[] = {
		git_dir, home, "GIT_WORK_TREE=.", "GIT_CONFIG_NOSYSTEM=1", "PATH=/usr/bin:/bin",
		NULL
	};
	_cleanup_close_ int in = openat(t->fd, "all", O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int out =
		openat(t->fd, "out", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	_cleanup_close_ int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	struct spawn_spec spec = {
		.argv = argv,
		.envp = envp,
		.cwd = cwd,
		.stdin_fd = in,
		.stdout_fd = out,
		.stderr_fd = null,
	};
	struct error err = { 0 };
	int status = 0;
	pid_t pid;

	if (spawn(&spec, &pid, NULL, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) > 1) /* 1: nothing is left out */
		fail_msg("git ended with %d", WEXITSTATUS(status));
}

static bool contains(const struct buf *paths, const char *path)
{
	for (const char *p = buf_str(paths); p < buf_str(paths) + paths->len; p += strlen(p) + 1)
		if (streq(p, path))
			return true;
	return false;
}

static void try_seed(struct tempdir *t, int tree, char **dirs, unsigned number)
{
	_cleanup_buf_ struct buf all = { 0 }, ours = { 0 }, left_out = { 0 }, exclude = { 0 };
	_cleanup_buf_ struct buf rules = { 0 };
	struct ignore *ignore = ignore_new();
	unsigned seed = number;

	place_rules(&seed, tree, dirs, &rules);
	random_rules(&seed, &exclude);
	write_text(t->fd, "repo/info/exclude", &exclude);
	ignore_add_global(ignore, buf_str(&exclude), exclude.len);
	list(tree, NULL, &all);
	list(tree, ignore, &ours);
	ignore_free(ignore);
	write_text(t->fd, "all", &all);
	run_git(t, "tree",
		(char *[]){ "git", "check-ignore", "--no-index", "-z", "--stdin", NULL });

	_cleanup_close_ int out = openat(t->fd, "out", O_RDONLY | O_CLOEXEC);

	assert_int_equal(fd_read_all(out, &left_out, 1 << 20, NULL), 0);
	for (const char *p = buf_str(&all); p < buf_str(&all) + all.len; p += strlen(p) + 1)
		if (contains(&ours, p) == contains(&left_out, p))
			fail_msg("seed %u: git %s %s", number,
				 contains(&left_out, p) ? "leaves out" : "takes", p);
	for (const char *p = buf_str(&rules); p < buf_str(&rules) + rules.len; p += strlen(p) + 1)
		unlinkat(tree, p, 0);
}

static void leaves_out_what_git_leaves_out(void **state)
{
	struct tempdir *t = *state;
	const char *one = getenv("BERTH_SEED");
	_cleanup_buf_ struct buf none = { 0 };
	_cleanup_strv_ char **dirs = NULL;
	struct tree_walk_options options = { 0 };
	unsigned seed = 7;

	write_text(t->fd, "all", &none);
	run_git(t, "", (char *[]){ "git", "init", "-q", NULL });
	assert_int_equal(mkdirat(t->fd, "tree", 0755), 0);

	_cleanup_close_ int tree = openat(t->fd, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	make_tree(&seed, tree, 0);
	assert_int_equal(tree_walk(tree, &options, add_dir, &dirs, NULL), 0);
	for (unsigned i = 1; i <= SEEDS; i++)
		try_seed(t, tree, dirs, one ? (unsigned)strtoul(one, NULL, 10) : i);
}

static bool leaves_out(const char *rules, const char *path, bool is_dir)
{
	struct ignore *ignore = ignore_new();

	ignore_add_global(ignore, rules, strlen(rules));

	bool yes = ignore_matches(ignore, path, strlen(path), is_dir);

	ignore_free(ignore);
	return yes;
}

static void rules_of_gitignore_5(void **state)
{
	(void)state;
	assert_true(leaves_out("\n# note\n*.o\n", "d/x.o", false));
	assert_false(leaves_out("*.o\n!keep.o\n", "keep.o", false));
	assert_true(leaves_out("\\#x\n", "#x", false));
	assert_true(leaves_out("\\!x\n", "!x", false));
	assert_true(leaves_out("name  \n", "name", false));
	assert_true(leaves_out("name\\ \n", "name ", false));
	assert_true(leaves_out("dir/\n", "a/dir", true));
	assert_false(leaves_out("dir/\n", "a/dir", false));
	assert_true(leaves_out("/dir\n", "dir", false));
	assert_false(leaves_out("/dir\n", "a/dir", false));
	assert_true(leaves_out("a/b\n", "a/b", false));
	assert_false(leaves_out("a/b\n", "x/a/b", false));
	assert_true(leaves_out("**/foo/bar\n", "x/y/foo/bar", false));
	assert_true(leaves_out("abc/**\n", "abc/x/y", false));
	assert_false(leaves_out("abc/**\n", "abc", true));
	assert_true(leaves_out("a/**/b\n", "a/b", false));
	assert_true(leaves_out("a/**/b\n", "a/x/y/b", false));
	assert_false(leaves_out("a/*/b\n", "a/x/y/b", false));
	assert_true(leaves_out("\xef\xbb\xbfname\n", "name", false));
}

static void the_staging_directory_is_never_part_of_a_tree(void **state)
{
	(void)state;
	assert_true(leaves_out("!.berth\n", ".berth", true));
	assert_false(leaves_out("", "a/.berth", true));
}

static void berthignore_ranks_above_gitignore(void **state)
{
	struct tempdir *t = *state;
	struct ignore *ignore = ignore_new();
	_cleanup_buf_ struct buf got = { 0 };

	write_file_at(t->fd, ".gitignore", "*.log\nbuild\n", 0644);
	write_file_at(t->fd, ".berthignore", "!wanted.log\nbig.bin\n", 0644);
	write_file_at(t->fd, "wanted.log", "", 0644);
	write_file_at(t->fd, "other.log", "", 0644);
	write_file_at(t->fd, "big.bin", "", 0644);
	mkdirat(t->fd, "build", 0755);
	list(t->fd, ignore, &got);
	ignore_free(ignore);
	assert_int_equal(got.len, sizeof(".berthignore\0.gitignore\0wanted.log"));
	assert_memory_equal(got.data, ".berthignore\0.gitignore\0wanted.log", got.len);
}

static void a_rule_file_has_a_bound_and_must_be_a_file(void **state)
{
	struct tempdir *t = *state;
	struct ignore *ignore = ignore_new();
	struct error err = { 0 };

	assert_int_equal(symlinkat("/etc/passwd", t->fd, ".gitignore"), 0);
	assert_int_equal(mkfifoat(t->fd, ".berthignore", 0644), 0);
	assert_int_equal(ignore_enter(ignore, "", t->fd, &err), 0);
	assert_false(ignore_matches(ignore, "root:x:0:0:root:/root:/bin/bash", 31, false));
	ignore_leave(ignore);
	assert_int_equal(unlinkat(t->fd, ".gitignore", 0), 0);
	write_file_at(t->fd, ".gitignore", "x", 0644);
	int fd = openat(t->fd, ".gitignore", O_WRONLY | O_CLOEXEC);
	assert_int_equal(ftruncate(fd, (1 << 20) + 1), 0);
	close(fd);
	assert_int_equal(ignore_enter(ignore, "", t->fd, &err), -1);
	assert_int_equal(err.code, ERR_TOO_LARGE);
	assert_non_null(strstr(err.message, ".gitignore"));
	ignore_free(ignore);
}

/* Matchers that try every way take longer than anybody waits for these. */
static void patterns_made_to_explode_do_not(void **state)
{
	_cleanup_buf_ struct buf rules = { 0 }, path = { 0 };

	(void)state;
	for (int i = 0; i < 30; i++)
		buf_puts(&rules, "**/a*a*a*/");
	buf_puts(&rules, "b\n");
	for (int i = 0; i < 300; i++)
		buf_puts(&path, "aaaaaaa/");
	buf_puts(&path, "c");
	for (int i = 0; i < 20; i++)
		assert_false(leaves_out(buf_str(&rules), buf_str(&path), false));
}

static void only_text_that_hides_at_least_as_much_shows_nothing_more(void **state)
{
	static const struct {
		const char *old, *now;
		bool more;
	} cases[] = {
		{ "a\n", "a\n", false },
		{ "", "", false },
		{ "a\n", "a\nb\n", false },
		{ "a\n", "b\n\n# why\na", false },
		{ "a\n!b\n", "a\n", false },
		{ "!x\na\n", "a\nb\n", false },
		{ "a\n!b\nc\n", "z\na\ny\n!b\nx\nc\nw\n", false },
		{ "!b\n", "", false },
		{ "a\n",
		  "\xef\xbb\xbf"
		  "a\n",
		  false },
		{ "", "!a\n", true },
		{ "a\n", "", true },
		{ "a\nb\n", "a\n", true },
		{ "a\n", "a\n!a\n", true },
		{ "a\nb\n", "b\na\n", true },
		{ "!a\na\n", "a\n!a\n", true },
		{ "a\n", "/a\n", true },
		{ "a\n", "#a\n", true },
		{ "a\n", "a/\n", true },
		{ "a\n!b\n", "!b\na\n!b\n!b\n", true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (ignore_shows_more(cases[i].old, strlen(cases[i].old), cases[i].now,
				      strlen(cases[i].now)) != cases[i].more)
			fail_msg("case %zu: \"%s\" for \"%s\"", i, cases[i].now, cases[i].old);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_tempdir(leaves_out_what_git_leaves_out),
		cmocka_unit_test(rules_of_gitignore_5),
		cmocka_unit_test(the_staging_directory_is_never_part_of_a_tree),
		with_tempdir(berthignore_ranks_above_gitignore),
		with_tempdir(a_rule_file_has_a_bound_and_must_be_a_file),
		cmocka_unit_test(patterns_made_to_explode_do_not),
		cmocka_unit_test(only_text_that_hides_at_least_as_much_shows_nothing_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

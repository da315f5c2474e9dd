#include "tree_place.h"
#include <sys/resource.h>
#include <sys/xattr.h>

#define SEEDS 5

static struct place_put new_tree(const char *root)
{
	return (struct place_put){ .root = root, .make_root = true, .only_ours = true };
}

static int scan(struct trees *f, const struct place_scan *options, struct kept *k,
		struct error *err)
{
	return place_tree_scan(&f->in, options, keep, k, err);
}

static void a_scan_finds_what_is_there(void **state)
{
	struct trees *f = *state;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct kept model = { 0 }, found = { 0 };
		struct tree_walk_options options = { 0 };
		uint64_t state_of_chance = seed;
		char name[16];
		int dir;

		snprintf(name, sizeof(name), "t%d", (int)seed);
		assert_int_equal(mkdirat(f->root_fd, name, 0755), 0);
		dir = open_dir(f->root_fd, name);
		grow(dir, &state_of_chance, 16, 3);
		must(tree_walk(dir, &options, keep_walked, &model, why));
		must(scan(f, &(struct place_scan){ .root = name, .no_rules = true }, &found, why));
		/* The walk has tests of its own; here it is the wire that could lose something. */
		assert_int_equal(found.bytes.len, model.bytes.len);
		assert_memory_equal(found.bytes.data, model.bytes.data, model.bytes.len);
		buf_free(&found.bytes);
		buf_free(&model.bytes);
		close(dir);
	}
}

static void a_scan_leaves_out_what_rules_say(void **state)
{
	struct trees *f = *state;
	static const char rules[] = "*.o\n/out/\n";
	struct {
		struct place_scan scan;
		const char *paths;
	} cases[] = {
		{ { .root = "" }, ".git .git/config .gitignore a.o keep out out/x sub sub/b.o" },
		{ { .root = "", .skip_git = true }, ".gitignore a.o keep out out/x sub sub/b.o" },
		{ { .root = "", .skip_git = true, .rules = rules, .rules_len = sizeof(rules) - 1 },
		  ".gitignore keep sub" },
		{ { .root = "/sub/", .no_rules = true }, "b.o" },
		{ { .root = "",
		    .no_rules = true,
		    .skip_git = true,
		    .rules = rules,
		    .rules_len = sizeof(rules) - 1 },
		  ".gitignore keep sub tmp tmp/y" },
	};

	mkdirat(f->root_fd, ".git", 0755);
	mkdirat(f->root_fd, ".berth", 0755);
	mkdirat(f->root_fd, "out", 0755);
	mkdirat(f->root_fd, "sub", 0755);
	mkdirat(f->root_fd, "tmp", 0755);
	write_text(f->root_fd, ".git/config", "");
	write_text(f->root_fd, ".berth/x", "");
	write_text(f->root_fd, ".gitignore", "tmp\n");
	write_text(f->root_fd, "a.o", "");
	write_text(f->root_fd, "keep", "");
	write_text(f->root_fd, "out/x", "");
	write_text(f->root_fd, "sub/b.o", "");
	write_text(f->root_fd, "tmp/y", "");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *paths = NULL;
		struct kept k = { 0 };

		must(scan(f, &cases[i].scan, &k, why));
		paths = kept_paths(&k);
		assert_string_equal(paths, cases[i].paths);
		buf_free(&k.bytes);
	}
}

static void a_scan_tells_specials_and_has_bounds(void **state)
{
	struct trees *f = *state;
	_cleanup_error_ struct error err = { 0 };
	struct kept k = { 0 };
	struct tree_entry entry;
	size_t pos = 0;

	assert_int_equal(mkfifoat(f->root_fd, "fifo", 0600), 0);
	assert_int_equal(mknodat(f->root_fd, "socket", S_IFSOCK | 0600, 0), 0);
	must(scan(f, &(struct place_scan){ .root = "." }, &k, why));
	while (kept_next(&k, &pos, &entry))
		assert_int_equal(entry.type, TREE_SPECIAL);
	assert_int_equal(k.count, 2);
	assert_int_equal(scan(f, &(struct place_scan){ .root = ".", .max_entries = 1 }, &k, &err),
			 -1);
	assert_int_equal(err.code, ERR_TOO_LARGE);
	assert_int_equal(scan(f, &(struct place_scan){ .root = "none" }, &k, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	assert_int_equal(scan(f, &(struct place_scan){ .root = "../host" }, &k, &err), -1);
	assert_int_equal(err.code, ERR_BAD_PATH);
	buf_free(&k.bytes);
}

static int stop_at_third(void *arg, const struct tree_entry *entry, struct error *err)
{
	int *count = arg;

	(void)entry;
	return ++*count == 3 ? error_set(err, ERR_CANCELLED, "enough") : 0;
}

static void a_scan_ends_when_its_reader_has_enough(void **state)
{
	struct trees *f = *state;
	struct place_scan options = { .root = "" };
	_cleanup_error_ struct error err = { 0 };
	struct kept k = { 0 };
	int count = 0;

	for (int i = 0; i < 2000; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%d", i);
		close(openat(f->root_fd, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	}
	assert_int_equal(place_tree_scan(&f->in, &options, stop_at_third, &count, &err), -1);
	assert_int_equal(err.code, ERR_CANCELLED);
	assert_int_equal(count, 3);
	must(scan(f, &options, &k, why));
	assert_int_equal(k.count, 2000);
	buf_free(&k.bytes);
}

/* Writing */

static void a_tree_arrives_as_it_was(void **state)
{
	struct trees *f = *state;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		uint64_t state_of_chance = seed + 1000;
		struct place_put put = new_tree("");
		char name[16], root[32];
		int from, to;

		snprintf(name, sizeof(name), "t%d", (int)seed);
		snprintf(root, sizeof(root), "deep/er/%s", name);
		put.root = root;
		assert_int_equal(mkdirat(f->host_fd, name, 0755), 0);
		from = open_dir(f->host_fd, name);
		grow(from, &state_of_chance, 16, 3);
		must(copy_in(&f->in, from, &put, why));
		to = open_dir(f->root_fd, root);
		assert_same_trees(from, to);
		/* Once more, over what is there. */
		must(copy_in(&f->in, from, &put, why));
		assert_same_trees(from, to);
		close(from);
		close(to);
	}
}

/* States that were told are those that are there, files and directories in order. */
static void what_was_written_is_told(void **state)
{
	struct trees *f = *state;
	struct kept told = { 0 }, found = { 0 };
	struct place_put put = new_tree("w");
	uint64_t seed = 77;
	struct tree_entry a, b;
	size_t pos = 0, at = 0;

	put.written = keep;
	put.arg = &told;
	grow(f->host_fd, &seed, 20, 3);
	must(copy_in(&f->in, f->host_fd, &put, why));
	must(scan(f, &(struct place_scan){ .root = "w", .no_rules = true }, &found, why));
	while (kept_next(&found, &pos, &a)) {
		if (a.type == TREE_SYMLINK)
			continue;
		assert_true(kept_next(&told, &at, &b));
		assert_string_equal(a.path, b.path);
		assert_int_equal(a.mode, b.mode);
		assert_int_equal(a.ino, b.ino);
		assert_int_equal(a.dev, b.dev);
		if (a.type == TREE_FILE)
			assert_true(tree_entry_same_state(&a, &b));
	}
	assert_false(kept_next(&told, &at, &b));
	buf_free(&told.bytes);
	buf_free(&found.bytes);
}

static struct tree_entry entry_of(enum tree_type type, const char *path, uint32_t mode)
{
	return (struct tree_entry){
		.path = path, .path_len = (uint32_t)strlen(path), .type = type, .mode = mode
	};
}

static int put_text(struct tree_writer *w, const char *path, const char *text, struct error *err)
{
	struct tree_entry entry = entry_of(TREE_FILE, path, 0644);

	entry.size = strlen(text);
	if (tree_writer_file(w, &entry, err) < 0)
		return -1;
	return tree_writer_data(w, text, strlen(text), err);
}

static int put_dir(struct tree_writer *w, const char *path, uint32_t mode, struct error *err)
{
	struct tree_entry entry = entry_of(TREE_DIR, path, mode);

	return tree_writer_dir(w, &entry, err);
}

static int put_link(struct tree_writer *w, const char *path, const char *target, struct error *err)
{
	struct tree_entry entry = entry_of(TREE_SYMLINK, path, 0777);

	entry.target = target;
	entry.target_len = (uint32_t)strlen(target);
	return tree_writer_symlink(w, &entry, err);
}

static struct tree_writer *begin(struct trees *f, const char *root)
{
	struct place_put put = new_tree(root);
	struct tree_writer *w;

	must(place_tree_put(&f->in, &put, &w, why));
	return w;
}

static mode_t mode_at(int dir, const char *path)
{
	struct stat st;

	assert_int_equal(fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_mode;
}

static void anything_can_take_the_place_of_anything(void **state)
{
	struct trees *f = *state;
	struct tree_writer *w = begin(f, "r");
	char target[16] = "";

	must(put_text(w, "file-to-dir", "x", why));
	must(put_dir(w, "dir-to-file", 0755, why));
	must(put_dir(w, "dir-to-file/sub", 0555, why));
	must(put_text(w, "dir-to-file/sub/deep", "x", why));
	must(put_dir(w, "dir-to-link", 0755, why));
	must(put_text(w, "dir-to-link/x", "x", why));
	must(put_link(w, "link-to-dir", "/etc", why));
	must(put_link(w, "link-to-file", "/etc/passwd", why));
	must(put_link(w, "link-to-link", "one", why));
	must(tree_writer_commit(w, why));
	w = begin(f, "r");
	must(put_dir(w, "file-to-dir", 0755, why));
	must(put_text(w, "file-to-dir/in", "new", why));
	must(put_text(w, "dir-to-file", "new", why));
	must(put_link(w, "dir-to-link", "two", why));
	must(put_dir(w, "link-to-dir", 0700, why));
	must(put_text(w, "link-to-dir/passwd", "mine", why));
	must(put_text(w, "link-to-file", "new", why));
	must(put_link(w, "link-to-link", "two", why));
	must(tree_writer_commit(w, why));
	assert_text(f->root_fd, "r/file-to-dir/in", "new");
	assert_text(f->root_fd, "r/dir-to-file", "new");
	assert_text(f->root_fd, "r/link-to-dir/passwd", "mine");
	assert_text(f->root_fd, "r/link-to-file", "new");
	assert_int_equal(readlinkat(f->root_fd, "r/link-to-link", target, sizeof(target)), 3);
	assert_memory_equal(target, "two", 3);
	assert_true(S_ISLNK(mode_at(f->root_fd, "r/dir-to-link")));
}

static void files_can_be_skipped_and_removed(void **state)
{
	struct trees *f = *state;
	struct tree_entry begun = entry_of(TREE_FILE, "short", 0644);
	struct tree_writer *w = begin(f, "s");
	_cleanup_buf_ struct buf all = { 0 };
	int dir;

	must(put_text(w, "old", "old", why));
	must(put_text(w, "gone", "x", why));
	must(put_dir(w, "full", 0755, why));
	must(put_text(w, "full/x", "x", why));
	must(put_dir(w, "void", 0755, why));
	must(tree_writer_commit(w, why));
	w = begin(f, "s");
	begun.size = 1 << 20;
	must(tree_writer_file(w, &begun, why));
	must(tree_writer_data(w, "some", 4, why));
	must(tree_writer_skip(w, why));
	begun.path = "old";
	begun.path_len = 3;
	must(tree_writer_file(w, &begun, why));
	must(tree_writer_data(w, "new", 3, why));
	must(tree_writer_skip(w, why));
	must(tree_writer_remove(w, "gone", why));
	must(tree_writer_remove(w, "full", why));
	must(tree_writer_remove(w, "void", why));
	must(tree_writer_remove(w, "never/was/there", why));
	must(tree_writer_commit(w, why));
	dir = open_dir(f->root_fd, "s");
	picture(dir, "", &all);
	close(dir);
	assert_non_null(strstr(buf_str(&all), "/full dir 755\n/full/x file 644"));
	assert_non_null(strstr(buf_str(&all), "/old file 644 3"));
	assert_null(strstr(buf_str(&all), "gone"));
	assert_null(strstr(buf_str(&all), "void"));
	assert_null(strstr(buf_str(&all), "short"));
	assert_null(strstr(buf_str(&all), ".berth-"));
	assert_text(f->root_fd, "s/old", "old");
}

static void modes_are_exact_and_set_id_bits_never_given(void **state)
{
	struct trees *f = *state;
	struct tree_writer *w = begin(f, "m");

	must(put_dir(w, "d", 07777, why));
	must(put_dir(w, "d/none", 0, why));
	must(put_text(w, "d/none/x", "x", why));
	must(put_dir(w, "e", 0111, why));
	must(tree_writer_commit(w, why));
	assert_int_equal(mode_at(f->root_fd, "m/d") & 07777, 0777);
	assert_int_equal(mode_at(f->root_fd, "m/d/none") & 07777, 0);
	assert_int_equal(mode_at(f->root_fd, "m/e") & 07777, 0111);
	assert_text(f->root_fd, "m/d/none/x", "x");
}

static void directories_that_were_not_named_are_made(void **state)
{
	struct trees *f = *state;
	struct tree_writer *w = begin(f, "p");

	must(put_text(w, "a/b/c/d", "deep", why));
	must(put_text(w, "a/x", "x", why));
	must(tree_writer_commit(w, why));
	assert_text(f->root_fd, "p/a/b/c/d", "deep");
	assert_text(f->root_fd, "p/a/x", "x");
	assert_int_equal(mode_at(f->root_fd, "p/a/b") & 07777, 0755);
}

static enum error_code refusal_of(struct trees *f, const struct place_put *put)
{
	_cleanup_error_ struct error err = { 0 };
	struct tree_writer *w;

	must(place_tree_put(&f->in, put, &w, why));
	if (tree_writer_commit(w, &err) == 0)
		return ERR_NONE;
	return err.code;
}

static void only_what_is_empty_or_ours_is_written_into(void **state)
{
	struct trees *f = *state;
	struct place_put put = { .root = "theirs", .only_ours = true };

	assert_int_equal(refusal_of(f, &put), ERR_NOT_FOUND);
	assert_int_equal(mkdirat(f->root_fd, "theirs", 0755), 0);
	write_text(f->root_fd, "theirs/precious", "x");
	put.make_root = true;
	assert_int_equal(refusal_of(f, &put), ERR_CONFLICT);
	assert_text(f->root_fd, "theirs/precious", "x");
	/* Who says so may. */
	put.only_ours = false;
	assert_int_equal(refusal_of(f, &put), ERR_NONE);
	/* That made it nobody else's. */
	put.only_ours = true;
	assert_int_equal(refusal_of(f, &put), ERR_CONFLICT);
	/* Empty is ours, and stays it. */
	assert_int_equal(mkdirat(f->root_fd, "empty", 0755), 0);
	put.root = "empty";
	assert_int_equal(refusal_of(f, &put), ERR_NONE);
	write_text(f->root_fd, "empty/by-somebody", "x");
	assert_int_equal(refusal_of(f, &put), ERR_NONE);
	/* Links to what is not ours do not make it ours. */
	assert_int_equal(symlinkat("theirs", f->root_fd, "alias"), 0);
	put.root = "alias";
	assert_int_equal(refusal_of(f, &put), ERR_CONFLICT);
	put.root = "empty/by-somebody";
	assert_int_not_equal(refusal_of(f, &put), ERR_NONE);
}

static void W9_directories_of_everybody_are_refused(void **state)
{
	struct trees *f = *state;
	struct place_put put = { .make_root = true };
	static const char *const everybodys[] = { "/", "/tmp", "/tmp/../tmp/", "/root" };

	/* A place that is the whole host. */
	f->in = (struct place_ref){ f->t->places, PLACE, GENERATION };
	for (size_t i = 0; i < ARRAY_SIZE(everybodys); i++) {
		put.root = everybodys[i];
		put.only_ours = i % 2;
		assert_int_equal(refusal_of(f, &put), ERR_BAD_PATH);
	}
}

static void the_first_failure_is_told_and_stays(void **state)
{
	struct trees *f = *state;
	_cleanup_error_ struct error err = { 0 };
	struct tree_writer *w;
	int rc = 0;

	write_text(f->root_fd, "file", "x");
	assert_int_equal(symlinkat("/etc", f->root_fd, "link"), 0);
	for (int i = 0; i < 2; i++) {
		struct place_put put = { .root = "" };

		error_clear(&err);
		must(place_tree_put(&f->in, &put, &w, why));
		must(put_text(w, i ? "link/x" : "file/x", "x", why));
		for (int n = 0; rc == 0 && n < 100000; n++) {
			char name[32];

			snprintf(name, sizeof(name), "more-%d", n);
			rc = put_text(w, name, "x", &err);
		}
		if (rc == 0)
			rc = tree_writer_commit(w, &err);
		else
			assert_int_equal(tree_writer_commit(w, NULL), -1);
		assert_int_equal(rc, -1);
		assert_int_equal(err.code, i ? ERR_BAD_PATH : ERR_NOT_FOUND);
		assert_non_null(strstr(err.message, i ? "link/x" : "file/x"));
		rc = 0;
	}
}

static void bad_entries_are_refused_before_they_travel(void **state)
{
	struct trees *f = *state;
	static const char *const bad[] = { "", "/", "/a", "a/", "..", "a/../b", ".", "a//b" };
	struct tree_writer *w = begin(f, "b");
	_cleanup_error_ struct error err = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(put_dir(w, bad[i], 0755, &err), -1);
		assert_int_equal(err.code, ERR_BAD_PATH);
		assert_int_equal(tree_writer_remove(w, bad[i], NULL), -1);
	}
	assert_int_equal(tree_writer_data(w, "x", 1, NULL), -1);
	assert_int_equal(tree_writer_skip(w, NULL), -1);
	must(put_text(w, "good", "x", why));
	must(tree_writer_commit(w, why));
	assert_text(f->root_fd, "b/good", "x");
}

static void an_abandoned_put_leaves_no_half_file(void **state)
{
	struct trees *f = *state;
	_cleanup_free_ char *data = xmalloc(1 << 20);
	struct tree_entry half = entry_of(TREE_FILE, "half", 0644);
	struct tree_writer *w = begin(f, "h");
	struct stat st;

	must(put_text(w, "replaced", "old", why));
	must(tree_writer_commit(w, why));
	random_bytes(data, 1 << 20);
	half.size = 100 << 20;
	for (int i = 0; i < 2; i++) {
		w = begin(f, "h");
		must(put_text(w, i ? "two" : "one", "x", why));
		half.path = i ? "replaced" : "half";
		half.path_len = (uint32_t)strlen(half.path);
		must(tree_writer_file(w, &half, why));
		for (int n = 0; n < 8; n++)
			must(tree_writer_data(w, data, 1 << 20, why));
		wait_until(fstatat(f->root_fd, i ? "h/two" : "h/one", &st, 0) == 0);
		tree_writer_abandon(w);
		wait_until(fstatat(f->root_fd, "h/half", &st, 0) < 0);
	}
	assert_text(f->root_fd, "h/replaced", "old");
}

/* Reading */

struct reading {
	const char *const *paths;
	size_t next;
	struct buf log; /* what came, a line each */
	struct sha256 sha;
	uint64_t bytes, holes;
	int hurdle_fd; /* >= 0: appended to while it is read */
};

static bool next_path(void *arg, const char **path)
{
	struct reading *r = arg;

	*path = r->paths[r->next];
	return r->paths[r->next++] != NULL;
}

static int got_begin(void *arg, const struct tree_entry *entry, struct error *err)
{
	struct reading *r = arg;

	(void)err;
	buf_printf(&r->log, "%s:", entry->path);
	if (entry->type == TREE_NONE)
		buf_puts(&r->log, "none\n");
	else if (entry->flags & TREE_UNREADABLE)
		buf_puts(&r->log, "unreadable\n");
	sha256_init(&r->sha);
	return 0;
}

static int got_data(void *arg, const void *data, size_t len, struct error *err)
{
	struct reading *r = arg;

	(void)err;
	sha256_update(&r->sha, data, len);
	r->bytes += len;
	if (r->hurdle_fd >= 0 && pwrite(r->hurdle_fd, "y", 1, 0) != 1)
		fail();
	return 0;
}

static int got_hole(void *arg, uint64_t len, struct error *err)
{
	struct reading *r = arg;
	char zeros[4096] = { 0 };

	(void)err;
	r->holes += len;
	for (; len > 0; len -= MIN_OF(len, sizeof(zeros)))
		sha256_update(&r->sha, zeros, (size_t)MIN_OF(len, sizeof(zeros)));
	return 0;
}

static int got_end(void *arg, const struct tree_entry *entry, bool changed, struct error *err)
{
	struct reading *r = arg;
	uint8_t digest[32];

	(void)err;
	sha256_final(&r->sha, digest);
	assert_memory_equal(digest, entry->sha256, sizeof(digest));
	buf_printf(&r->log, "%lld%s\n", (long long)entry->size, changed ? " changed" : "");
	return 0;
}

static void read_paths(struct trees *f, const char *const *paths, uint64_t max, struct reading *r,
		       int hurdle)
{
	struct place_get get = {
		.root = "",
		.next = next_path,
		.begin = got_begin,
		.data = got_data,
		.hole = got_hole,
		.end = got_end,
		.arg = r,
		.max_file = max,
	};

	*r = (struct reading){ .paths = paths, .hurdle_fd = hurdle };
	must(place_tree_get(&f->in, &get, why));
}

static void contents_come_back_and_what_is_no_file_is_told(void **state)
{
	struct trees *f = *state;
	struct reading r;
	static const char *const paths[] = { "a",      "gone",  "dir",   "fifo", "link", "gone/too",
					     "link/x", "empty", "large", "a",    NULL };

	write_text(f->root_fd, "a", "content");
	write_text(f->root_fd, "empty", "");
	write_text(f->root_fd, "large", "more than is wanted");
	assert_int_equal(mkdirat(f->root_fd, "dir", 0755), 0);
	assert_int_equal(mkfifoat(f->root_fd, "fifo", 0600), 0);
	assert_int_equal(symlinkat("/etc", f->root_fd, "link"), 0);
	read_paths(f, paths, 10, &r, -1);
	assert_string_equal(buf_str(&r.log),
			    "a:7\ngone:none\ndir:none\nfifo:none\nlink:none\ngone/too:none\n"
			    "link/x:none\nempty:0\nlarge:unreadable\na:7\n");
	buf_free(&r.log);
}

static void holes_do_not_travel_in_either_direction(void **state)
{
	struct trees *f = *state;
	struct place_put put = new_tree("copy");
	struct reading r;
	struct stat st;
	int fd = openat(f->host_fd, "sparse", O_CREAT | O_RDWR | O_CLOEXEC, 0644);
	static const char *const paths[] = { "copy/sparse", NULL };

	assert_int_equal(pwrite(fd, "begin", 5, 0), 5);
	assert_int_equal(pwrite(fd, "end", 3, 40 << 20), 3);
	assert_int_equal(ftruncate(fd, 64 << 20), 0);
	close(fd);
	must(copy_in(&f->in, f->host_fd, &put, why));
	assert_int_equal(fstatat(f->root_fd, "copy/sparse", &st, 0), 0);
	assert_int_equal(st.st_size, 64 << 20);
	assert_true(st.st_blocks * 512 < 8 << 20);
	read_paths(f, paths, 0, &r, -1);
	assert_true(r.bytes < 1 << 20);
	assert_int_equal(r.bytes + r.holes, 64 << 20);
	assert_string_equal(buf_str(&r.log), "copy/sparse:67108864\n");
	buf_free(&r.log);
}

static void a_file_that_changes_while_it_is_read_is_told(void **state)
{
	struct trees *f = *state;
	struct reading r;
	int fd = openat(f->root_fd, "busy", O_CREAT | O_RDWR | O_CLOEXEC, 0644);
	_cleanup_free_ char *data = xmalloc(32 << 20);
	static const char *const paths[] = { "busy", NULL };

	memset(data, 'x', 32 << 20);
	assert_int_equal(fd_write_all(fd, data, 32 << 20, NULL), 0);
	read_paths(f, paths, 0, &r, fd);
	assert_string_equal(buf_str(&r.log), "busy:33554432 changed\n");
	assert_int_equal(r.bytes, 32 << 20);
	buf_free(&r.log);
	close(fd);
}

/* Hashing */

struct hashes {
	struct kept *files;
	size_t pos;
	size_t asked, answered;
	struct trees *f;
	char path[TREE_PATH_MAX + 1];
};

static bool next_file(void *arg, const char **path)
{
	struct hashes *h = arg;
	struct tree_entry entry;

	do {
		if (!kept_next(h->files, &h->pos, &entry))
			return false;
	} while (entry.type != TREE_FILE);
	snprintf(h->path, sizeof(h->path), "%s", entry.path);
	*path = h->path;
	h->asked++;
	return true;
}

static int got_hash(void *arg, const struct tree_entry *entry, struct error *err)
{
	struct hashes *h = arg;
	_cleanup_buf_ struct buf content = { 0 };
	uint8_t digest[32];

	(void)err;
	h->answered++;
	assert_int_equal(entry->type, TREE_FILE);
	assert_int_equal(entry->flags, TREE_HAS_HASH);
	assert_int_equal(file_read(h->f->root_fd, entry->path, &content, 64 << 20, NULL), 0);
	sha256_once(content.data, content.len, digest);
	assert_memory_equal(entry->sha256, digest, sizeof(digest));
	return 0;
}

static void hashes_are_those_of_the_contents(void **state)
{
	struct trees *f = *state;
	struct kept found = { 0 };
	struct hashes h = { .files = &found, .f = f };
	uint64_t seed = 5;

	grow(f->root_fd, &seed, 24, 3);
	must(scan(f, &(struct place_scan){ .root = "", .no_rules = true }, &found, why));
	must(place_tree_hash(&f->in, "", next_file, got_hash, &h, why));
	assert_true(h.asked > 20);
	assert_int_equal(h.asked, h.answered);
	buf_free(&found.bytes);
}

static int type_only(void *arg, const struct tree_entry *entry, struct error *err)
{
	struct reading *r = arg;

	(void)err;
	buf_printf(&r->log, "%s:%d ", entry->path, (int)entry->type);
	return 0;
}

static void what_cannot_be_hashed_is_told(void **state)
{
	struct trees *f = *state;
	static const char *const paths[] = { "gone", "dir", "fifo", "link", "a", NULL };
	struct reading r = { .paths = paths };
	_cleanup_error_ struct error err = { 0 };
	static const char *const bad[] = { "a", "../a", NULL };

	write_text(f->root_fd, "a", "x");
	mkdirat(f->root_fd, "dir", 0755);
	mkfifoat(f->root_fd, "fifo", 0600);
	assert_int_equal(symlinkat("a", f->root_fd, "link"), 0);
	must(place_tree_hash(&f->in, "", next_path, type_only, &r, why));
	assert_string_equal(buf_str(&r.log), "gone:0 dir:0 fifo:0 link:0 a:2 ");
	r.paths = bad;
	r.next = 0;
	assert_int_equal(place_tree_hash(&f->in, "", next_path, type_only, &r, &err), -1);
	assert_int_equal(err.code, ERR_BAD_PATH);
	buf_free(&r.log);
}

/* AddressSanitizer keeps what was freed; here that would count as needed. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "quarantine_size_mb=8";
}

static void a_large_file_needs_no_memory(void **state)
{
	struct trees *f = *state;
	_cleanup_free_ char *data = xmalloc(1 << 20);
	struct tree_entry entry = entry_of(TREE_FILE, "large", 0644);
	struct tree_writer *w = begin(f, "l");
	static const char *const paths[] = { "l/large", NULL };
	struct rusage before, after;
	struct reading r;

	random_bytes(data, 1 << 20);
	entry.size = 96 << 20;
	getrusage(RUSAGE_SELF, &before);
	must(tree_writer_file(w, &entry, why));
	for (int i = 0; i < 96; i++)
		must(tree_writer_data(w, data, 1 << 20, why));
	must(tree_writer_commit(w, why));
	read_paths(f, paths, 0, &r, -1);
	assert_int_equal(r.bytes, entry.size);
	getrusage(RUSAGE_SELF, &after);
	assert_true(after.ru_maxrss - before.ru_maxrss < 32 << 10);
	buf_free(&r.log);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_trees(a_scan_finds_what_is_there),
		with_trees(a_scan_leaves_out_what_rules_say),
		with_trees(a_scan_tells_specials_and_has_bounds),
		with_trees(a_scan_ends_when_its_reader_has_enough),
		with_trees(a_tree_arrives_as_it_was),
		with_trees(what_was_written_is_told),
		with_trees(anything_can_take_the_place_of_anything),
		with_trees(files_can_be_skipped_and_removed),
		with_trees(modes_are_exact_and_set_id_bits_never_given),
		with_trees(directories_that_were_not_named_are_made),
		with_trees(only_what_is_empty_or_ours_is_written_into),
		with_trees(W9_directories_of_everybody_are_refused),
		with_trees(the_first_failure_is_told_and_stays),
		with_trees(bad_entries_are_refused_before_they_travel),
		with_trees(an_abandoned_put_leaves_no_half_file),
		with_trees(contents_come_back_and_what_is_no_file_is_told),
		with_trees(holes_do_not_travel_in_either_direction),
		with_trees(a_file_that_changes_while_it_is_read_is_told),
		with_trees(hashes_are_those_of_the_contents),
		with_trees(what_cannot_be_hashed_is_told),
		with_trees(a_large_file_needs_no_memory),
	};

	return cmocka_run_group_tests_name("tree_copy", tests, NULL, NULL);
}

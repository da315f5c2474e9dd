/* Layers made by hand, hostile ones among them, and what is hidden before a place has a tree. */
#include "../base/tempdir.h"

#include <errno.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include "base/fd.h"
#include "base/text.h"
#include "wire/hidden_paths.h"
#include "workspace/overlay.h"

#define RUN "11111111-2222-4333-8444-555555555555"

struct world {
	int host, upper, run;
	struct results results;
	json_t *refused;
	struct manifest *changes;
	struct error err;
	char host_path[100];
};

static int open_at(int dir, const char *name)
{
	int fd;

	assert_true(mkdirat(dir, name, 0755) == 0 || errno == EEXIST);
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void put(int dir, const char *name, const char *text)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void make(int dir, const char *name)
{
	close(open_at(dir, name));
}

static void mark(int dir, const char *name, const char *attribute, const char *value)
{
	char path[64];
	int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_int_equal(setxattr(path, attribute, value, strlen(value), 0), 0);
	close(fd);
}

static void begin(struct world *w, struct tempdir *t)
{
	char path[100];

	*w = (struct world){ .host = open_at(t->fd, "host"), .upper = open_at(t->fd, "upper") };
	snprintf(w->host_path, sizeof(w->host_path), "%s/host", t->path);
	snprintf(path, sizeof(path), "%s/workspaces", t->path);
	assert_int_equal(results_open(&w->results, path, &w->err), 0);
	assert_int_equal(results_dir(&w->results, RUN, true, &w->run, &w->err), 0);
	w->refused = json_array();
}

static int fetch(struct world *w, const struct overlay_limits *limits)
{
	static const struct scan_options options = {
		.hash = true, .use_ignore = true, .skip_git = true, .threads = 1, .cancel_fd = -1
	};
	const struct overlay_limits none = { .cancel_fd = -1 };
	struct scan_report report;
	struct manifest_writer *out;
	struct manifest *base;
	int r;

	assert_int_equal(workspace_scan(w->host, &options, w->run, RESULTS_BASE, &report, &w->err),
			 0);
	scan_report_clear(&report);
	assert_int_equal(manifest_open(w->run, RESULTS_BASE, &base, &w->err), 0);
	assert_int_equal(manifest_create(w->run, RESULTS_CHANGES, &out, &w->err), 0);
	r = overlay_fetch(w->upper, base, w->host, w->run, limits ? limits : &none, out, w->refused,
			  &w->err);
	manifest_close(base);
	if (r < 0) {
		manifest_abandon(out);
		return -1;
	}
	assert_int_equal(manifest_commit(out, &w->err), 0);
	assert_int_equal(manifest_open(w->run, RESULTS_CHANGES, &w->changes, &w->err), 0);
	return 0;
}

static void end(struct world *w)
{
	manifest_close(w->changes);
	json_decref(w->refused);
	error_clear(&w->err);
	results_close(&w->results);
	close(w->host);
	close(w->upper);
	close(w->run);
}

/* Type as a letter, or '-' when it is not told. */
static char told(const struct world *w, const char *path)
{
	struct tree_entry entry;

	if (!manifest_find(w->changes, path, strlen(path), &entry))
		return '-';
	return "xdfl?"[entry.type];
}

static bool is_refused(const struct world *w, const char *path)
{
	for (size_t i = 0; i < json_array_size(w->refused); i++)
		if (str_equal(json_str(json_array_get(w->refused, i), "path"), path))
			return true;
	return false;
}

static void both_forms_of_whiteouts_and_opaque_directories_are_understood(void **state)
{
	struct world w;

	begin(&w, *state);
	make(w.host, "d");
	make(w.host, "d/deep");
	put(w.host, "d/deep/x", "x");
	put(w.host, "d/y", "y");
	make(w.host, "e");
	put(w.host, "e/gone", "1");
	put(w.host, "e/same", "2");
	put(w.host, "f", "f");
	put(w.host, "g", "g");
	/* d: whiteout by device; f: by attribute; e: opaque, with one of its files again */
	assert_int_equal(mknodat(w.upper, "d", S_IFCHR, makedev(0, 0)), 0);
	put(w.upper, "f", "");
	mark(w.upper, "f", "user.overlay.whiteout", "y");
	make(w.upper, "e");
	mark(w.upper, "e", "user.overlay.opaque", "y");
	put(w.upper, "e/same", "2");
	/* g: empty, and no whiteout */
	put(w.upper, "g", "");
	assert_int_equal(fetch(&w, NULL), 0);
	assert_int_equal(told(&w, "d"), 'x');
	assert_int_equal(told(&w, "d/deep"), 'x');
	assert_int_equal(told(&w, "d/deep/x"), 'x');
	assert_int_equal(told(&w, "d/y"), 'x');
	assert_int_equal(told(&w, "f"), 'x');
	assert_int_equal(told(&w, "e"), '-');
	assert_int_equal(told(&w, "e/gone"), 'x');
	assert_int_equal(told(&w, "e/same"), '-');
	assert_int_equal(told(&w, "g"), 'f');
	assert_int_equal(manifest_count(w.changes), 7);
	end(&w);
}

static void a_hostile_layer_is_bounded_and_what_it_covers_stays(void **state)
{
	struct world w;
	int fd;

	begin(&w, *state);
	make(w.host, "moved");
	put(w.host, "moved/x", "x");
	put(w.host, "fifo", "x");
	put(w.host, "device", "x");
	make(w.upper, "moved");
	mark(w.upper, "moved", "user.overlay.redirect", "/etc");
	assert_int_equal(mkfifoat(w.upper, "fifo", 0644), 0);
	if (geteuid() == 0)
		assert_int_equal(mknodat(w.upper, "device", S_IFCHR, makedev(1, 3)), 0);
	else
		assert_int_equal(mkfifoat(w.upper, "device", 0644), 0);
	assert_int_equal(symlinkat("/etc/passwd", w.upper, "link"), 0);
	put(w.upper, "\xff\n", "odd");
	put(w.upper, "suid", "x");
	assert_int_equal(fchmodat(w.upper, "suid", 06755, 0), 0);
	fd = openat(w.upper, "huge", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0);
	close(fd);
	assert_int_equal(fetch(&w, NULL), 0);
	assert_true(is_refused(&w, "moved") && told(&w, "moved/x") == '-');
	assert_true(is_refused(&w, "fifo") && told(&w, "fifo") == '-');
	assert_true(is_refused(&w, "device") && told(&w, "device") == '-');
	assert_true(is_refused(&w, "huge") && told(&w, "huge") == '-');
	assert_int_equal(told(&w, "link"), 'l');
	assert_int_equal(told(&w, "\xff\n"), 'f');

	struct tree_entry entry;

	assert_true(manifest_find(w.changes, "suid", 4, &entry));
	assert_int_equal(entry.mode, 0755);
	end(&w);
}

static void more_than_may_be_collected_is_refused(void **state)
{
	const struct overlay_limits few = { .max_entries = 3, .cancel_fd = -1 };
	struct world w;

	begin(&w, *state);
	for (int i = 0; i < 4; i++)
		put(w.upper, (char[]){ (char)('a' + i), 0 }, "x");
	assert_int_equal(fetch(&w, &few), -1);
	assert_int_equal(w.err.code, ERR_TOO_LARGE);
	end(&w);
}

static void holes_stay_holes(void **state)
{
	struct tree_entry entry;
	struct world w;
	struct stat st;
	int fd;

	begin(&w, *state);
	fd = openat(w.upper, "sparse", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	assert_int_equal(pwrite(fd, "end", 3, 64 << 20), 3);
	close(fd);
	assert_int_equal(fetch(&w, NULL), 0);
	assert_true(manifest_find(w.changes, "sparse", 6, &entry));
	assert_int_equal(entry.size, (64 << 20) + 3);
	fd = blob_open(w.run, entry.sha256, &w.err);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, (64 << 20) + 3);
	assert_true(st.st_blocks < 1024);
	close(fd);
	end(&w);
}

static bool is_fetched(const struct world *w, const char *path, const char *text)
{
	_cleanup_free_ char *name = xasprintf(RESULTS_GIT "/%s", path);
	_cleanup_buf_ struct buf found = { 0 };

	return file_read(w->run, name, &found, 4096, NULL) == 0 && streq(buf_str(&found), text);
}

static void of_the_repository_comes_what_git_asks_for(void **state)
{
	static const char *const dirs[] = {
		".git", ".git/refs", ".git/refs/heads", ".git/refs/heads/old", ".git/hooks", NULL
	};
	struct world w;

	begin(&w, *state);
	for (const char *const *d = dirs; *d; d++)
		make(w.host, *d);
	put(w.host, ".git/HEAD", "ref: refs/heads/main\n");
	put(w.host, ".git/refs/heads/topic", "1");
	put(w.host, ".git/refs/heads/old/one", "1");
	for (const char *const *d = dirs; *d; d++)
		if (!streq(*d, ".git/refs/heads/old"))
			make(w.upper, *d);
	put(w.upper, ".git/HEAD", "ref: refs/heads/new\n");
	put(w.upper, ".git/refs/heads/new", "2");
	put(w.upper, ".git/config", "[core]\nfsmonitor = evil\n");
	put(w.upper, ".git/hooks/post-merge", "evil");
	assert_int_equal(mknodat(w.upper, ".git/refs/heads/topic", S_IFCHR, makedev(0, 0)), 0);
	assert_int_equal(mknodat(w.upper, ".git/refs/heads/old", S_IFCHR, makedev(0, 0)), 0);
	assert_int_equal(fetch(&w, NULL), 0);
	assert_int_equal(manifest_count(w.changes), 0);
	assert_true(is_fetched(&w, ".git/HEAD", "ref: refs/heads/new\n"));
	assert_true(is_fetched(&w, ".git/refs/heads/new", "2"));
	assert_true(is_fetched(&w, ".git/refs/heads/topic", ""));
	assert_true(is_fetched(&w, ".git/refs/heads/old/one", ""));
	assert_int_equal(faccessat(w.run, RESULTS_GIT "/.git/config", F_OK, 0), -1);
	assert_int_equal(faccessat(w.run, RESULTS_GIT "/.git/hooks", F_OK, 0), -1);
	end(&w);
}

static void rules_of_the_place_count_beside_those_of_the_host(void **state)
{
	struct world w;

	begin(&w, *state);
	put(w.host, ".gitignore", "*.o\n");
	put(w.upper, "a.o", "built");
	make(w.upper, "new");
	put(w.upper, "new/.gitignore", "modules\n");
	make(w.upper, "new/modules");
	put(w.upper, "new/modules/x", "x");
	put(w.upper, "new/kept", "x");
	assert_int_equal(fetch(&w, NULL), 0);
	assert_int_equal(told(&w, "a.o"), '-');
	assert_int_equal(told(&w, "new/modules"), '-');
	assert_int_equal(told(&w, "new/modules/x"), '-');
	assert_int_equal(told(&w, "new/kept"), 'f');
	end(&w);
}

/* An agent adds a line to .gitignore; what .berthignore takes back in still comes. */
static void a_gitignore_of_the_place_ranks_below_the_hosts_berthignore(void **state)
{
	struct world w;

	begin(&w, *state);
	put(w.host, ".gitignore", "node_modules/\n");
	put(w.host, ".berthignore", "!node_modules/\n");
	put(w.upper, ".gitignore", "node_modules/\n*.o\n");
	make(w.upper, "node_modules");
	put(w.upper, "node_modules/new", "x");
	put(w.upper, "a.o", "built");
	assert_int_equal(fetch(&w, NULL), 0);
	assert_int_equal(told(&w, "node_modules/new"), 'f');
	assert_int_equal(told(&w, "a.o"), '-');
	end(&w);
}

/* Not a line for each of its files. */
static void W3_a_repository_made_inside_is_told_once_and_stays(void **state)
{
	_cleanup_buf_ struct buf masks = { 0 };
	struct world w;

	begin(&w, *state);
	for (const char *const *d =
		     (const char *const[]){ "lib", "lib/.git", "lib/.git/objects", "old",
					    "old/.git", "seen", "seen/.git", NULL };
	     *d; d++)
		make(w.upper, *d);
	make(w.host, "old");
	make(w.host, "old/.git");
	put(w.host, "old/.git/index", "1");
	put(w.upper, "old/.git/index", "2");
	put(w.upper, "old/.git/HEAD", "2");
	make(w.host, "seen");
	make(w.host, "seen/.git");
	put(w.upper, "seen/.git/index", "as git status leaves it");
	put(w.upper, "seen/.git/config", "what hides it is in the layer");
	mask_add(&masks, MASK_HIDDEN, "seen/.git/config", NULL);
	assert_int_equal(file_replace(w.run, RESULTS_MASKED, masks.data, masks.len, 0600, NULL), 0);
	put(w.upper, "lib/.git/config", "[core]\n\tfsmonitor = touch /tmp/x\n");
	put(w.upper, "lib/.git/objects/x", "x");
	put(w.upper, "lib/file", "comes");
	assert_int_equal(fetch(&w, NULL), 0);
	assert_int_equal(told(&w, "lib/file"), 'f');
	assert_int_equal(told(&w, "lib/.git"), '-');
	assert_int_equal(told(&w, "lib/.git/config"), '-');
	assert_int_equal(told(&w, "old/.git/index"), '-');
	assert_true(is_refused(&w, "lib/.git"));
	assert_true(is_refused(&w, "old/.git"));
	assert_int_equal(json_array_size(w.refused), 2);
	end(&w);
}

static bool is_hidden(const struct world *w, const char *path, char kind)
{
	_cleanup_buf_ struct buf list = { 0 };
	const char *at, *stop;
	struct mask mask;

	assert_int_equal(file_read(w->run, RESULTS_MASKED, &list, MASKS_MAX, NULL), 0);
	at = buf_str(&list);
	stop = at + list.len;
	while (mask_next(&at, stop, &mask, NULL) > 0)
		if (streq(mask.path, path) && (char)mask.kind == kind)
			return true;
	return false;
}

static void what_must_not_be_seen_is_written_down(void **state)
{
	struct workspace_state s = { .run_id = RUN };
	_cleanup_free_ char *path = NULL;
	char command[500];
	struct world w;

	begin(&w, *state);
	s.path = w.host_path;
	snprintf(command, sizeof(command),
		 "cd %s && git init -q -b main . && mkdir -p build src .git/hooks && "
		 "echo s > .env && echo s > build/out && echo k > build/kept && "
		 "echo m > src/main && printf '.env\\nbuild\\n' > .gitignore && "
		 "git add -f build/kept src && git config x.y secret && echo t > .git/token && "
		 "git init -q lib && echo t > lib/.git/token",
		 w.host_path);
	assert_int_equal(system(command), 0);
	if (overlay_prepare(&w.results, &s, -1, &path, &w.err) < 0)
		fail_msg("%s", w.err.message);
	assert_int_equal(access(path, R_OK), 0);
	assert_true(is_hidden(&w, ".env", MASK_HIDDEN));
	assert_true(is_hidden(&w, "build/out", MASK_HIDDEN));
	assert_false(is_hidden(&w, "build", MASK_HIDDEN));
	assert_false(is_hidden(&w, "build/kept", MASK_HIDDEN));
	assert_false(is_hidden(&w, "src", MASK_HIDDEN));
	assert_true(is_hidden(&w, ".git/config", MASK_FILE));
	assert_true(is_hidden(&w, ".git/hooks", MASK_EMPTY));
	assert_true(is_hidden(&w, ".git/token", MASK_HIDDEN));
	assert_false(is_hidden(&w, ".git/HEAD", MASK_HIDDEN));
	/* Of a repository inside there is none to put in its place. */
	assert_true(is_hidden(&w, "lib/.git/config", MASK_HIDDEN));
	assert_true(is_hidden(&w, "lib/.git/hooks", MASK_HIDDEN));
	assert_true(is_hidden(&w, "lib/.git/token", MASK_HIDDEN));
	assert_false(is_hidden(&w, "lib/.git/HEAD", MASK_HIDDEN));
	assert_false(is_hidden(&w, "lib/.git/objects", MASK_HIDDEN));
	git_seen_free(s.seen);
	end(&w);
}

static void trees_that_reach_elsewhere_are_to_be_copied(void **state)
{
	struct world w;

	begin(&w, *state);
	assert_int_equal(overlay_suits(w.host_path, &w.err), 0);
	put(w.host, ".git", "gitdir: /elsewhere\n");
	assert_int_equal(overlay_suits(w.host_path, &w.err), -1);
	assert_int_equal(w.err.code, ERR_UNPROCESSABLE);
	assert_int_equal(unlinkat(w.host, ".git", 0), 0);
	for (const char *const *d =
		     (const char *const[]){ ".git", ".git/objects", ".git/objects/info", NULL };
	     *d; d++)
		make(w.host, *d);
	assert_int_equal(overlay_suits(w.host_path, &w.err), 0);
	put(w.host, ".git/objects/info/alternates", "/elsewhere\n");
	assert_int_equal(overlay_suits(w.host_path, &w.err), -1);
	/* Every machine has something mounted in there. */
	assert_int_equal(overlay_suits("/sys", &w.err), -1);
	assert_int_equal(w.err.code, ERR_UNPROCESSABLE);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_tempdir(both_forms_of_whiteouts_and_opaque_directories_are_understood),
		with_tempdir(a_hostile_layer_is_bounded_and_what_it_covers_stays),
		with_tempdir(more_than_may_be_collected_is_refused),
		with_tempdir(holes_stay_holes),
		with_tempdir(of_the_repository_comes_what_git_asks_for),
		with_tempdir(rules_of_the_place_count_beside_those_of_the_host),
		with_tempdir(a_gitignore_of_the_place_ranks_below_the_hosts_berthignore),
		with_tempdir(W3_a_repository_made_inside_is_told_once_and_stays),
		with_tempdir(what_must_not_be_seen_is_written_down),
		with_tempdir(trees_that_reach_elsewhere_are_to_be_copied),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

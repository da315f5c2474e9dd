#include "../base/tempdir.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/fsuid.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/sha256.h"
#include "base/text.h"
#include "workspace/manifest.h"

struct place {
	int tree, out;
	char cache[96];
	struct scan_options options;
	struct scan_report report;
};

static void place_open(struct tempdir *t, struct place *p)
{
	mkdirat(t->fd, "tree", 0755);
	mkdirat(t->fd, "out", 0755);
	mkdirat(t->fd, "cache", 0755);
	p->tree = openat(t->fd, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	p->out = openat(t->fd, "out", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(p->cache, sizeof(p->cache), "%s/cache", t->path);
	p->options = (struct scan_options){
		.cache_dir = p->cache,
		.hash = true,
		.use_ignore = true,
		.skip_git = true,
		.cancel_fd = -1,
	};
}

static void place_close(struct place *p)
{
	close(p->tree);
	close(p->out);
}

static void scan(struct place *p)
{
	struct error err = { 0 };

	scan_report_clear(&p->report);
	if (workspace_scan(p->tree, &p->options, p->out, "m", &p->report, &err) < 0)
		fail_msg("%s", err.message);
}

static bool find(struct place *p, const char *path, struct tree_entry *e)
{
	_cleanup_manifest_ struct manifest *m = NULL;

	assert_int_equal(manifest_open(p->out, "m", &m, NULL), 0);

	bool found = manifest_find(m, path, strlen(path), e);

	e->path = e->target = NULL;
	return found;
}

static void assert_content(struct place *p, const char *path, const char *text)
{
	struct tree_entry e;
	uint8_t want[SHA256_SIZE];

	assert_true(find(p, path, &e));
	assert_true(e.flags & TREE_HAS_HASH);
	sha256_once(text, strlen(text), want);
	assert_memory_equal(e.sha256, want, SHA256_SIZE);
}

/*
 * Until a change would show in the times. More than one tick of the coarse clock: the kernel gives
 * a file that was looked at a finer time, which may be ahead of it.
 */
static void pass_a_tick(struct place *p)
{
	uint64_t begin = workspace_file_clock(p->tree);

	while (workspace_file_clock(p->tree) < begin + 20000000)
		sched_yield();
}

static void hashes_are_of_the_content_and_special_files_are_told(void **state)
{
	struct tempdir *t = *state;
	struct place p = { 0 };
	struct tree_entry e;

	place_open(t, &p);
	write_file_at(p.tree, "a", "one", 0644);
	write_file_at(p.tree, "empty", "", 0600);
	mkdirat(p.tree, "d", 0755);
	write_file_at(p.tree, "d/b", "two", 0755);
	assert_int_equal(symlinkat("a", p.tree, "link"), 0);
	mkfifoat(p.tree, "fifo", 0600);
	write_file_at(p.tree, ".gitignore", "*.o\n", 0644);
	write_file_at(p.tree, "x.o", "out", 0644);
	scan(&p);
	assert_content(&p, "a", "one");
	assert_content(&p, "empty", "");
	assert_content(&p, "d/b", "two");
	assert_false(find(&p, "fifo", &e));
	assert_false(find(&p, "x.o", &e));
	assert_int_equal(p.report.files, 4);
	assert_int_equal(p.report.dirs, 1);
	assert_int_equal(p.report.symlinks, 1);
	assert_int_equal(p.report.skipped_count, 1);
	assert_string_equal(json_str(json_array_get(p.report.skipped, 0), "path"), "fifo");
	scan_report_clear(&p.report);
	place_close(&p);
}

static void an_unchanged_tree_is_not_read_again(void **state)
{
	struct tempdir *t = *state;
	struct place p = { 0 };

	place_open(t, &p);
	for (int i = 0; i < 50; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%d", i);
		write_file_at(p.tree, name, name, 0644);
	}
	pass_a_tick(&p);
	scan(&p);
	assert_int_equal(p.report.hashed, 50);
	assert_false(p.report.unchanged);
	scan(&p);
	assert_int_equal(p.report.hashed, 0);
	assert_true(p.report.unchanged);
	pass_a_tick(&p);
	write_file_at(p.tree, "f7", "new", 0644);
	unlinkat(p.tree, "f9", 0);
	unlinkat(p.tree, "f8", 0);
	write_file_at(p.tree, "zz", "last", 0644);
	pass_a_tick(&p);
	scan(&p);
	assert_int_equal(p.report.hashed, 2);
	assert_int_equal(p.report.files, 49);
	assert_content(&p, "f7", "new");
	assert_content(&p, "f6", "f6");
	assert_content(&p, "zz", "last");
	unlinkat(p.tree, "zz", 0);
	scan(&p);
	assert_int_equal(p.report.files, 48);
	scan(&p);
	assert_true(p.report.unchanged);
	scan_report_clear(&p.report);
	place_close(&p);
}

/* Same size, and the old time put back: only ctime tells. */
static void edit_in_hiding(struct place *p, const char *name, const char *text)
{
	struct stat st;
	int fd = openat(p->tree, name, O_WRONLY | O_CLOEXEC);

	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(pwrite(fd, text, strlen(text), 0), (ssize_t)strlen(text));
	assert_int_equal(futimens(fd, (struct timespec[]){ st.st_atim, st.st_mtim }), 0);
	close(fd);
}

static void an_edit_that_hides_its_time_is_seen(void **state)
{
	struct tempdir *t = *state;
	struct place p = { 0 };

	place_open(t, &p);
	write_file_at(p.tree, "a", "one", 0644);
	pass_a_tick(&p);
	scan(&p);
	pass_a_tick(&p);
	edit_in_hiding(&p, "a", "two");
	scan(&p);
	assert_content(&p, "a", "two");
	scan_report_clear(&p.report);
	place_close(&p);
}

static void without_ctime_it_would_not_be_seen(void **state)
{
	struct tempdir *t = *state;
	struct place p = { 0 };

	place_open(t, &p);
	write_file_at(p.tree, "a", "one", 0644);
	pass_a_tick(&p);
	assert_int_equal(fault_init("workspace.cache.ctime:skip", NULL), 0);
	scan(&p);
	pass_a_tick(&p);
	edit_in_hiding(&p, "a", "two");
	scan(&p);
	assert_int_equal(fault_init(NULL, NULL), 0);
	assert_content(&p, "a", "one");
	scan_report_clear(&p.report);
	place_close(&p);
}

/* Written in the tick of the scan: a change in the same tick may have the same times. */
static void what_was_just_written_is_read_again(void **state)
{
	struct tempdir *t = *state;
	struct place p = { 0 };
	struct tree_entry e;
	bool racy = false;

	place_open(t, &p);
	for (int i = 0; i < 200 && !racy; i++) {
		write_file_at(p.tree, "a", "one", 0644);
		scan(&p);
		assert_true(find(&p, "a", &e));
		racy = e.flags & TREE_RACY;
	}
	assert_true(racy);
	scan(&p);
	assert_int_equal(p.report.hashed, 1);
	scan_report_clear(&p.report);
	place_close(&p);
}

static void hashes_are_taken_only_where_known_when_not_asked_for(void **state)
{
	struct tempdir *t = *state;
	struct place p = { 0 };
	struct tree_entry e;

	place_open(t, &p);
	write_file_at(p.tree, "a", "one", 0644);
	pass_a_tick(&p);
	scan(&p);
	write_file_at(p.tree, "b", "two", 0644);
	p.options.hash = false;
	scan(&p);
	assert_content(&p, "a", "one");
	assert_true(find(&p, "b", &e));
	assert_false(e.flags & TREE_HAS_HASH);
	assert_int_equal(p.report.hashed, 0);
	p.options.hash = true;
	scan(&p);
	assert_int_equal(p.report.hashed, 1);
	scan_report_clear(&p.report);
	place_close(&p);
}

static void a_damaged_cache_is_no_cache(void **state)
{
	struct tempdir *t = *state;
	_cleanup_close_ int cache = -1;
	struct place p = { 0 };

	place_open(t, &p);
	write_file_at(p.tree, "a", "one", 0644);
	pass_a_tick(&p);
	scan(&p);
	cache = openat(t->fd, "cache", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char path[4096], link[64];
	snprintf(link, sizeof(link), "/proc/self/fd/%d", p.tree);
	ssize_t n = readlink(link, path, sizeof(path));
	uint8_t digest[SHA256_SIZE];
	char name[2 * SHA256_SIZE + 1];
	sha256_once(path, (size_t)n, digest);
	hex_encode(name, digest, sizeof(digest));
	assert_int_equal(unlinkat(cache, name, 0), 0);
	write_file_at(cache, name,
		      "berthmf1 and then nonsense that is long enough to be looked at "
		      "as if it were a manifest of something",
		      0600);
	scan(&p);
	assert_int_equal(p.report.hashed, 1);
	assert_content(&p, "a", "one");
	scan_report_clear(&p.report);
	place_close(&p);
}

static void limits_and_cancelling_end_it(void **state)
{
	struct tempdir *t = *state;
	struct place p = { 0 };
	struct error err = { 0 };

	place_open(t, &p);
	write_file_at(p.tree, "a", "1234567890", 0644);
	write_file_at(p.tree, "b", "1234567890", 0644);
	p.options.max_entries = 1;
	assert_int_equal(workspace_scan(p.tree, &p.options, p.out, "m", &p.report, &err), -1);
	assert_int_equal(err.code, ERR_TOO_LARGE);
	p.options.max_entries = 0;
	p.options.max_bytes = 15;
	p.options.hash = false;
	assert_int_equal(workspace_scan(p.tree, &p.options, p.out, "m", &p.report, &err), -1);
	assert_int_equal(err.code, ERR_TOO_LARGE);
	p.options.max_bytes = 0;
	p.options.cancel_fd = latch_new(NULL);
	latch_set(p.options.cancel_fd);
	assert_int_equal(workspace_scan(p.tree, &p.options, p.out, "m", &p.report, &err), -1);
	assert_int_equal(err.code, ERR_CANCELLED);
	close(p.options.cancel_fd);
	assert_false(exists_at(p.out, "m"));
	place_close(&p);
}

struct scribbler {
	int fd;
	atomic_bool stop;
};

static void *scribble(void *arg)
{
	struct scribbler *s = arg;

	while (!atomic_load(&s->stop))
		(void)!pwrite(s->fd, "x", 1, 0);
	return NULL;
}

static void a_file_that_keeps_changing_is_told_and_not_believed(void **state)
{
	struct tempdir *t = *state;
	struct place p = { 0 };
	struct scribbler s = { 0 };
	struct tree_entry e;
	pthread_t thread;
	bool told = false;

	place_open(t, &p);
	write_file_at(p.tree, "quiet", "q", 0644);
	s.fd = openat(p.tree, "log", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	assert_int_equal(ftruncate(s.fd, 64 << 20), 0);
	assert_int_equal(pthread_create(&thread, NULL, scribble, &s), 0);
	for (int i = 0; i < 50 && !told; i++) {
		scan(&p);
		told = p.report.skipped_count == 1;
	}
	atomic_store(&s.stop, true);
	pthread_join(thread, NULL);
	close(s.fd);
	assert_true(told);
	assert_string_equal(json_str(json_array_get(p.report.skipped, 0), "path"), "log");
	assert_true(find(&p, "log", &e));
	assert_true(e.flags & TREE_RACY);
	assert_content(&p, "quiet", "q");
	scan_report_clear(&p.report);
	place_close(&p);
}

static void rules_of_the_repository_count(void **state)
{
	struct tempdir *t = *state;
	struct place p = { 0 };
	struct tree_entry e;

	place_open(t, &p);
	mkdirat(p.tree, ".git", 0755);
	mkdirat(p.tree, ".git/info", 0755);
	write_file_at(p.tree, ".git/info/exclude", "secret\n", 0644);
	write_file_at(p.tree, "secret", "", 0644);
	write_file_at(p.tree, "open", "", 0644);
	scan(&p);
	assert_false(find(&p, "secret", &e));
	assert_true(find(&p, "open", &e));
	assert_false(find(&p, ".git", &e));
	scan_report_clear(&p.report);
	place_close(&p);
}

static void make_file(int dir, const char *name, uid_t uid, mode_t mode)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, name, strlen(name)), (ssize_t)strlen(name));
	assert_int_equal(fchown(fd, uid, uid), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

/* What is reported meanwhile, and what is written, is the server's and not the owner's. */
static void note_rights(void *arg, const struct scan_progress *now)
{
	uid_t *seen = arg;

	(void)now;
	*seen = (uid_t)setfsuid((uid_t)-1);
}

static void files_are_read_with_the_rights_of_the_trees_owner(void **state)
{
	struct place p = { 0 };
	struct tree_entry e;
	uid_t seen = 77;

	if (geteuid() != 0)
		skip();
	place_open(*state, &p);
	p.options.progress = note_rights;
	p.options.progress_arg = &seen;
	make_file(p.tree, "own", 1001, 0600);
	make_file(p.tree, "roots", 0, 0600);
	make_file(p.tree, "groups", 0, 0640);
	make_file(p.tree, "open", 0, 0644);
	assert_int_equal(fchown(p.tree, 1001, 1001), 0);
	scan(&p);
	assert_true(find(&p, "own", &e) && (e.flags & TREE_HAS_HASH));
	assert_true(find(&p, "open", &e));
	assert_false(find(&p, "roots", &e));
	assert_false(find(&p, "groups", &e));
	assert_int_equal(p.report.skipped_count, 2);
	assert_int_equal(seen, 0);
	assert_int_equal(setfsuid((uid_t)-1), 0);
	scan_report_clear(&p.report);
	place_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_tempdir(hashes_are_of_the_content_and_special_files_are_told),
		with_tempdir(an_unchanged_tree_is_not_read_again),
		with_tempdir(an_edit_that_hides_its_time_is_seen),
		with_tempdir(without_ctime_it_would_not_be_seen),
		with_tempdir(what_was_just_written_is_read_again),
		with_tempdir(hashes_are_taken_only_where_known_when_not_asked_for),
		with_tempdir(a_damaged_cache_is_no_cache),
		with_tempdir(limits_and_cancelling_end_it),
		with_tempdir(a_file_that_keeps_changing_is_told_and_not_believed),
		with_tempdir(rules_of_the_repository_count),
		with_tempdir(files_are_read_with_the_rights_of_the_trees_owner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

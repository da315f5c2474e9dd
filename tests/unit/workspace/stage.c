/* Staging through a real relay: what is in the place afterwards, and what was done for it. */
#include "../place/tree_place.h"
#include "base/fault.h"
#include "base/path.h"
#include "workspace/workspace.h"

struct staging {
	struct trees *trees;
	struct workspace_engine engine;
	struct workspace_state state;
	struct workspace_act act;
	char host[128];
	int seen_progress;
	struct workspace_progress last;
};

static int staging_setup(void **state)
{
	struct staging *s = calloc(1, sizeof(*s));
	char data[128];
	void *trees;

	assert_non_null(s);
	trees_setup(&trees);
	s->trees = trees;
	snprintf(data, sizeof(data), "%s/data", s->trees->t->dir->path);
	snprintf(s->host, sizeof(s->host), "%s/host", s->trees->t->dir->path);
	assert_int_equal(mkdir(data, 0700), 0);
	must(workspace_engine_open(&s->engine, data, NULL, why));
	s->act = (struct workspace_act){
		.place = &s->trees->in,
		.place_root = "/work",
		.cancel_fd = -1,
	};
	*state = s;
	return 0;
}

static int staging_teardown(void **state)
{
	struct staging *s = *state;
	void *trees = s->trees;

	workspace_state_clear(&s->state);
	workspace_engine_close(&s->engine);
	free(s);
	return trees_teardown(&trees);
}

#define with_staging(test) cmocka_unit_test_setup_teardown(test, staging_setup, staging_teardown)

static struct workspace_request wish_for(struct staging *s, enum workspace_mode mode,
					 char id[ID_SIZE])
{
	id_new(id);
	return (struct workspace_request){
		.run_id = id,
		.path = s->host,
		.mode = mode,
		.takes_relay = true,
	};
}

/* A new run, prepared. */
static void prepare_run(struct staging *s, enum workspace_mode mode)
{
	char id[ID_SIZE];
	struct workspace_request wish = wish_for(s, mode, id);

	workspace_state_clear(&s->state);
	must(workspace_prepare(&s->engine, &wish, &s->state, why));
}

static void stage(struct staging *s)
{
	must(workspace_stage(&s->engine, &s->state, &s->act, why));
	assert_int_equal(s->state.phase, PHASE_STAGED);
}

static void stage_new(struct staging *s)
{
	prepare_run(s, MODE_COPY);
	stage(s);
}

static int64_t staged(struct staging *s, const char *key)
{
	return json_int(json_object_at(s->state.report, "staged"), key, -1);
}

static int run_dir(struct staging *s)
{
	int fd = -1;

	must(results_dir(&s->engine.results, s->state.run_id, false, &fd, why));
	return fd;
}

/* The place's manifest says what is there, the base what the host has, and both the same content.
 */
static void check_manifests(struct staging *s)
{
	_cleanup_manifest_ struct manifest *base = NULL, *place = NULL;
	_cleanup_close_ int dir = run_dir(s), work = open_dir(s->trees->root_fd, "work");
	struct manifest_cursor cursor = { 0 };
	struct tree_entry b, p, now;
	struct stat st;
	size_t count = 0;

	must(manifest_open(dir, RESULTS_BASE, &base, why));
	must(manifest_open(dir, RESULTS_PLACE, &place, why));
	for (cursor.m = base; manifest_next(&cursor, &b); count++) {
		assert_true(manifest_find(place, b.path, b.path_len, &p));
		assert_int_equal(fstatat(s->trees->host_fd, b.path, &st, AT_SYMLINK_NOFOLLOW), 0);
		tree_entry_from_stat(&st, &now);
		assert_int_equal(b.type, now.type);
		if (b.type == TREE_SYMLINK)
			assert_true(tree_entry_same_content(&b, &p));
		if (b.type != TREE_FILE)
			continue;
		assert_true(b.flags & p.flags & TREE_HAS_HASH);
		assert_memory_equal(b.sha256, p.sha256, TREE_HASH_SIZE);
		b.flags &= ~(uint32_t)TREE_RACY;
		assert_true(tree_entry_same_state(&b, &now));
		assert_int_equal(fstatat(work, p.path, &st, AT_SYMLINK_NOFOLLOW), 0);
		tree_entry_from_stat(&st, &now);
		p.flags &= ~(uint32_t)TREE_RACY;
		assert_true(tree_entry_same_state(&p, &now));
	}
	assert_int_equal(count, manifest_count(base));
	if (!s->state.git)
		assert_int_equal(manifest_count(place), count);
}

static void assert_staged(struct staging *s)
{
	_cleanup_close_ int work = open_dir(s->trees->root_fd, "work");

	assert_same_trees(s->trees->host_fd, work);
	check_manifests(s);
}

static void a_tree_arrives_as_it_is_and_is_known_afterwards(void **state)
{
	struct staging *s = *state;
	uint64_t seed = 11;

	grow(s->trees->host_fd, &seed, 30, 3);
	stage_new(s);
	assert_staged(s);
	assert_true(staged(s, "files") > 0);
	assert_int_equal(staged(s, "sent"), staged(s, "files"));
	assert_int_equal(staged(s, "sentBytes"), staged(s, "bytes"));
	assert_int_equal(staged(s, "removed"), 0);
}

static void WS_48_an_empty_tree_and_an_empty_place_are_fine(void **state)
{
	struct staging *s = *state;

	stage_new(s);
	assert_staged(s);
	stage_new(s);
	assert_staged(s);
}

static void what_is_there_already_is_not_sent_again(void **state)
{
	struct staging *s = *state;
	uint64_t seed = 12;

	grow(s->trees->host_fd, &seed, 20, 2);
	stage_new(s);
	for (int i = 0; i < 3; i++) {
		stage_new(s);
		assert_int_equal(staged(s, "sent"), 0);
		assert_int_equal(staged(s, "removed"), 0);
		assert_staged(s);
	}
	write_text(s->trees->host_fd, "one", "new");
	stage_new(s);
	assert_int_equal(staged(s, "sent"), 1);
	assert_int_equal(staged(s, "sentBytes"), 3);
	assert_staged(s);
}

static void a_touched_file_is_read_but_does_not_travel(void **state)
{
	struct staging *s = *state;

	write_text(s->trees->host_fd, "one", "content");
	stage_new(s);
	assert_int_equal(utimensat(s->trees->host_fd, "one", NULL, 0), 0);
	stage_new(s);
	assert_int_equal(staged(s, "sent"), 0);
}

static void the_place_is_made_like_the_tree_whatever_was_done_there(void **state)
{
	struct staging *s = *state;
	int host = s->trees->host_fd;

	mkdirat(host, "dir", 0755);
	write_text(host, "dir/kept", "kept");
	write_text(host, "dir/edited", "mine");
	write_text(host, "gone", "gone");
	write_text(host, "file", "file");
	mkdirat(host, "was", 0755);
	write_text(host, "was/a", "directory");
	assert_int_equal(symlinkat("dir", host, "link"), 0);
	stage_new(s);

	_cleanup_close_ int work = open_dir(s->trees->root_fd, "work");

	write_text(work, "dir/edited", "not");
	write_text(work, "added", "added");
	mkdirat(work, "new", 0755);
	mkdirat(work, "new/deep", 0755);
	write_text(work, "new/deep/x", "x");
	unlinkat(work, "gone", 0);
	unlinkat(work, "file", 0);
	mkdirat(work, "file", 0755);
	write_text(work, "file/y", "y");
	unlinkat(work, "was/a", 0);
	unlinkat(work, "was", AT_REMOVEDIR);
	write_text(work, "was", "file");
	unlinkat(work, "link", 0);
	assert_int_equal(symlinkat("/etc", work, "link"), 0);
	assert_int_equal(fchmodat(work, "dir/kept", 0600, 0), 0);
	mkfifoat(work, "pipe", 0600);
	stage_new(s);
	assert_staged(s);
	assert_int_equal(staged(s, "sent"), 5);
}

static void what_rules_leave_out_stays_in_the_place_and_never_travels(void **state)
{
	struct staging *s = *state;
	int host = s->trees->host_fd;
	struct stat st;

	write_text(host, ".gitignore", "node_modules\n*.key\n");
	write_text(host, "secret.key", "secret");
	write_text(host, "a", "a");
	stage_new(s);

	_cleanup_close_ int work = open_dir(s->trees->root_fd, "work");

	assert_int_equal(fstatat(work, "secret.key", &st, 0), -1);
	mkdirat(work, "node_modules", 0755);
	write_text(work, "node_modules/built", "for hours");
	unlinkat(host, "a", 0);
	stage_new(s);
	assert_text(work, "node_modules/built", "for hours");
	assert_int_equal(fstatat(work, "a", &st, 0), -1);
	assert_int_equal(staged(s, "removed"), 1);
}

/* No command has to stand anywhere to make it. */
static void WS_43_a_nested_root_is_made(void **state)
{
	struct staging *s = *state;

	write_text(s->trees->host_fd, "a", "a");
	s->act.place_root = "/srv/deep/er/work";
	stage_new(s);

	_cleanup_close_ int work = open_dir(s->trees->root_fd, "srv/deep/er/work");

	assert_same_trees(s->trees->host_fd, work);
}

/* By rules, not by name: `build` may well be what somebody works on. */
static void WS_50_dependencies_go_along_unless_a_rule_leaves_them_out(void **state)
{
	struct staging *s = *state;
	int host = s->trees->host_fd;
	struct stat st;

	mkdirat(host, "node_modules", 0755);
	write_text(host, "node_modules/x", "x");
	mkdirat(host, "build", 0755);
	write_text(host, "build/rules", "written by hand");
	stage_new(s);

	_cleanup_close_ int work = open_dir(s->trees->root_fd, "work");

	assert_text(work, "node_modules/x", "x");
	assert_text(work, "build/rules", "written by hand");
	assert_int_equal(dir_remove_tree(work, "node_modules", NULL), 0);
	write_text(host, ".berthignore", "node_modules/\n");
	stage_new(s);
	assert_int_equal(fstatat(work, "node_modules", &st, 0), -1);
	/* And a .berthignore takes back in what a .gitignore leaves out. */
	write_text(host, ".gitignore", "node_modules/\n");
	write_text(host, ".berthignore", "!node_modules/\n");
	stage_new(s);
	assert_text(work, "node_modules/x", "x");
}

static void of_a_repository_inside_only_what_git_needs_goes_along(void **state)
{
	struct staging *s = *state;
	int host = s->trees->host_fd;
	struct stat st;

	for (const char *const *d = (const char *const[]){ "lib", "lib/.git", "lib/.git/hooks",
							   "lib/.git/refs", NULL };
	     *d; d++)
		mkdirat(host, *d, 0755);
	write_text(host, "lib/file", "file");
	write_text(host, "lib/.git/HEAD", "ref: refs/heads/main\n");
	write_text(host, "lib/.git/config", "[remote \"o\"]\n\turl = https://token@host/x\n");
	write_text(host, "lib/.git/hooks/pre-commit", "#!/bin/sh\n");
	stage_new(s);

	_cleanup_close_ int work = open_dir(s->trees->root_fd, "work");

	assert_text(work, "lib/file", "file");
	assert_text(work, "lib/.git/HEAD", "ref: refs/heads/main\n");
	assert_int_equal(fstatat(work, "lib/.git/refs", &st, 0), 0);
	assert_int_equal(fstatat(work, "lib/.git/config", &st, 0), -1);
	assert_int_equal(fstatat(work, "lib/.git/hooks", &st, 0), -1);
}

static void W9_a_directory_of_somebody_else_is_not_touched(void **state)
{
	struct staging *s = *state;
	struct error err = { 0 };

	mkdirat(s->trees->root_fd, "work", 0755);

	_cleanup_close_ int work = open_dir(s->trees->root_fd, "work");

	write_text(work, "theirs", "precious");
	write_text(s->trees->host_fd, "ours", "ours");
	prepare_run(s, MODE_COPY);
	assert_int_equal(workspace_stage(&s->engine, &s->state, &s->act, &err), -1);
	assert_text(work, "theirs", "precious");
	assert_int_equal(faccessat(work, "ours", F_OK, 0), -1);
	assert_int_equal(s->state.phase, PHASE_STAGING);
}

/* Edits at random, as a person on the host and a payload in the place would make them. */
static void edit_at_random(int dir, uint64_t *seed)
{
	for (int i = 0; i < 12; i++) {
		static const char *const names[] = { "a",   "b",   "c",   "d",
						     "a/a", "a/b", "b/c", "b/b/a" };
		const char *name = names[chance(seed, ARRAY_SIZE(names))];
		char text[32];

		switch (chance(seed, 6)) {
		case 0:
			mkdirat(dir, name, 0755);
			break;
		case 1:
			dir_remove_tree(dir, names[chance(seed, 4)], NULL);
			break;
		case 2:
			unlinkat(dir, name, 0);
			(void)!symlinkat("c", dir, name);
			break;
		case 3:
			(void)!fchmodat(dir, name, chance(seed, 2) ? 0755 : 0700,
					AT_SYMLINK_NOFOLLOW);
			break;
		default:
			snprintf(text, sizeof(text), "%u", chance(seed, 3));
			unlinkat(dir, name, 0);
			file_replace(dir, name, text, strlen(text), 0644, NULL);
			/* What has the same content is not sent for its time alone. */
			utimensat(dir, name, (struct timespec[]){ { 1, 0 }, { 1, 0 } },
				  AT_SYMLINK_NOFOLLOW);
			break;
		}
	}
}

static const char *const points[] = {
	"workspace.stage.before", "workspace.stage.begun",     "workspace.stage.scanned",
	"workspace.stage.put",    "workspace.stage.committed", "workspace.stage.manifests",
	"workspace.stage.after",
};

static void random_edits_and_failures_end_in_the_right_tree(void **state)
{
	struct staging *s = *state;
	const char *one = getenv("BERTH_SEED");
	uint64_t first = one ? strtoull(one, NULL, 10) : 1;

	for (uint64_t n = first; n < first + (one ? 1 : 40); n++) {
		uint64_t seed = n;

		print_message("seed %llu\n", (unsigned long long)n);
		edit_at_random(s->trees->host_fd, &seed);
		if (n > first) {
			_cleanup_close_ int work = open_dir(s->trees->root_fd, "work");

			edit_at_random(work, &seed);
		}
		prepare_run(s, MODE_COPY);
		if (chance(&seed, 2)) {
			_cleanup_free_ char *spec =
				xasprintf("%s:error", points[chance(&seed, ARRAY_SIZE(points))]);

			assert_int_equal(fault_init(spec, NULL), 0);
			assert_int_equal(workspace_stage(&s->engine, &s->state, &s->act, NULL), -1);
			assert_int_equal(fault_init(NULL, NULL), 0);
			if (chance(&seed, 2) && s->state.phase != PHASE_STAGED)
				edit_at_random(s->trees->host_fd, &seed);
		}
		stage(s);
		assert_staged(s);
	}
}

static int stat_of(int dir, const char *name, struct stat *st)
{
	return fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW);
}

/* What a crash between the phases leaves: the state on disk, and half a tree. */
static void staging_goes_on_after_a_crash_from_what_is_on_disk(void **state)
{
	struct staging *s = *state;
	char id[ID_SIZE];

	write_text(s->trees->host_fd, "a", "a");
	write_text(s->trees->host_fd, "b", "b");
	prepare_run(s, MODE_COPY);
	assert_int_equal(fault_init("workspace.stage.committed:error", NULL), 0);
	assert_int_equal(workspace_stage(&s->engine, &s->state, &s->act, NULL), -1);
	assert_int_equal(fault_init(NULL, NULL), 0);
	id_copy(id, s->state.run_id);
	workspace_state_clear(&s->state);
	must(workspace_state_load(&s->engine.results, id, &s->state, why));
	assert_int_equal(s->state.phase, PHASE_STAGING);

	/* Asking again does not forget what was begun. */
	struct workspace_request wish = wish_for(s, MODE_AUTO, id);

	wish.run_id = s->state.run_id;
	id_copy(id, s->state.run_id);
	wish.run_id = id;
	workspace_state_clear(&s->state);
	must(workspace_prepare(&s->engine, &wish, &s->state, why));
	assert_int_equal(s->state.phase, PHASE_STAGING);
	assert_int_equal(s->state.mode, MODE_COPY);
	stage(s);
	assert_staged(s);
	stage(s);
}

static void note_progress(void *arg, const struct workspace_progress *now)
{
	struct staging *s = arg;

	s->seen_progress++;
	s->last = *now;
}

static void progress_is_told_and_cancelling_ends_it(void **state)
{
	struct staging *s = *state;
	struct error err = { 0 };
	int fd = openat(s->trees->host_fd, "big", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

	assert_int_equal(fd_write_all(fd, "x", 1, NULL), 0);
	assert_int_equal(ftruncate(fd, 32 << 20), 0);
	close(fd);
	s->act.progress = note_progress;
	s->act.progress_arg = s;
	prepare_run(s, MODE_COPY);
	s->act.cancel_fd = latch_new(NULL);
	latch_set(s->act.cancel_fd);
	assert_int_equal(workspace_stage(&s->engine, &s->state, &s->act, &err), -1);
	assert_int_equal(err.code, ERR_CANCELLED);
	latch_clear(s->act.cancel_fd);
	stage(s);
	close(s->act.cancel_fd);
	assert_true(s->seen_progress > 3);
	assert_string_equal(s->last.step, "stage");
	assert_int_equal(s->last.files, 1);
	assert_int_equal(s->last.files_total, 1);
	assert_int_equal(s->last.bytes, 32 << 20);
	assert_int_equal(s->last.bytes_total, 32 << 20);
	assert_staged(s);
}

static void a_tree_that_is_too_large_is_refused_before_anything_travels(void **state)
{
	struct staging *s = *state;
	struct error err = { 0 };
	struct stat st;
	int fd = openat(s->trees->host_fd, "huge", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

	assert_int_equal(ftruncate(fd, (off_t)5 << 30), 0);
	close(fd);
	prepare_run(s, MODE_COPY);
	assert_int_equal(workspace_stage(&s->engine, &s->state, &s->act, &err), -1);
	assert_int_equal(err.code, ERR_TOO_LARGE);
	assert_non_null(strstr(err.message, ".berthignore"));
	assert_int_equal(stat_of(s->trees->root_fd, "work", &st), -1);
	write_text(s->trees->host_fd, ".berthignore", "huge\n");
	stage(s);
}

static void special_files_are_told(void **state)
{
	struct staging *s = *state;
	json_t *skipped;

	mkfifoat(s->trees->host_fd, "fifo", 0600);
	stage_new(s);
	skipped = json_array_at(json_object_at(s->state.report, "staged"), "skipped");
	assert_int_equal(json_array_size(skipped), 1);
	assert_string_equal(json_str(json_array_get(skipped, 0), "path"), "fifo");
	assert_int_equal(staged(s, "skippedCount"), 1);
}

static void an_overlay_only_notes_what_is_there(void **state)
{
	struct staging *s = *state;
	_cleanup_manifest_ struct manifest *base = NULL;
	struct tree_entry e;
	struct stat st;

	write_text(s->trees->host_fd, "a", "a");
	prepare_run(s, MODE_COPY);
	s->state.mode = MODE_OVERLAY;
	stage(s);

	_cleanup_close_ int dir = run_dir(s);

	must(manifest_open(dir, RESULTS_BASE, &base, why));
	assert_true(manifest_find(base, "a", 1, &e));
	assert_false(e.flags & TREE_HAS_HASH);
	assert_int_equal(stat_of(s->trees->root_fd, "work", &st), -1);
}

/* ---- repositories ---- */

static void git(struct staging *s, const char *dir, const char *command, struct buf *out)
{
	_cleanup_free_ char *line =
		xasprintf("cd '%s' && GIT_CONFIG_NOSYSTEM=1 HOME=/nonexistent git -c user.name=a "
			  "-c user.email=b -c safe.directory='*' %s",
			  dir, command);
	FILE *pipe = popen(line, "r");
	char chunk[4096];
	size_t n;

	(void)s;
	assert_non_null(pipe);
	while ((n = fread(chunk, 1, sizeof(chunk), pipe)) > 0)
		if (out)
			buf_append(out, chunk, n);
	assert_int_equal(pclose(pipe), 0);
}

static void assert_git_agrees(struct staging *s)
{
	static const char *const questions[] = { "status --porcelain -z --branch", "log --oneline",
						 "diff --cached", "diff", "fsck --strict 2>&1" };
	_cleanup_free_ char *work = xasprintf("%s/work", s->trees->root);

	for (size_t i = 0; i < ARRAY_SIZE(questions); i++) {
		_cleanup_buf_ struct buf here = { 0 }, there = { 0 };

		git(s, s->host, questions[i], &here);
		git(s, work, questions[i], &there);
		assert_int_equal(here.len, there.len);
		if (here.len)
			assert_memory_equal(here.data, there.data, here.len);
	}
}

static void a_repository_arrives_with_index_and_tracked_files_that_rules_leave_out(void **state)
{
	struct staging *s = *state;
	int host = s->trees->host_fd;
	struct stat st;

	git(s, s->host, "init -q -b main", NULL);
	write_text(host, "a", "a");
	write_text(host, "forced.log", "tracked all the same");
	write_text(host, "renamed", "renamed renamed renamed");
	mkdirat(host, "logs", 0755);
	write_text(host, "logs/x", "x");
	git(s, s->host, "add -A", NULL);
	git(s, s->host, "commit -q -m one", NULL);
	write_text(host, ".gitignore", "*.log\nlogs\n*.idx\n");
	write_text(host, "other.log", "not tracked");
	write_text(host, "logs/y", "not tracked");
	write_text(host, "a", "changed");
	git(s, s->host, "mv renamed moved", NULL);
	stage_new(s);

	_cleanup_close_ int work = open_dir(s->trees->root_fd, "work");

	assert_text(work, "forced.log", "tracked all the same");
	assert_text(work, "logs/x", "x");
	assert_int_equal(stat_of(work, "other.log", &st), -1);
	assert_int_equal(stat_of(work, "logs/y", &st), -1);
	assert_git_agrees(s);
	git(s, s->host, "commit -q -am two", NULL);
	git(s, s->host, "gc -q", NULL);
	write_text(work, ".git/config", "[core]\n\tfsmonitor = evil\n");
	stage_new(s);
	assert_git_agrees(s);
}

/* The layer's walk leaves out what rules say, unless it is in the base. */
static void an_overlay_knows_tracked_files_that_rules_leave_out(void **state)
{
	struct staging *s = *state;
	_cleanup_manifest_ struct manifest *base = NULL;
	struct tree_entry e;

	git(s, s->host, "init -q -b main", NULL);
	write_text(s->trees->host_fd, ".gitignore", "*.log\n");
	write_text(s->trees->host_fd, "forced.log", "tracked all the same");
	write_text(s->trees->host_fd, "other.log", "not tracked");
	git(s, s->host, "add -f forced.log", NULL);
	prepare_run(s, MODE_COPY);
	s->state.mode = MODE_OVERLAY;
	stage(s);

	_cleanup_close_ int dir = run_dir(s);

	must(manifest_open(dir, RESULTS_BASE, &base, why));
	assert_true(manifest_find(base, "forced.log", strlen("forced.log"), &e));
	assert_false(manifest_find(base, "other.log", strlen("other.log"), &e));
}

static void a_worktree_is_made_for_the_run_and_arrives_as_a_repository_of_its_own(void **state)
{
	struct staging *s = *state;
	int host = s->trees->host_fd;
	_cleanup_buf_ struct buf branch = { 0 }, here = { 0 };
	_cleanup_free_ char *work = xasprintf("%s/work", s->trees->root);

	git(s, s->host, "init -q -b main", NULL);
	write_text(host, "a", "a");
	git(s, s->host, "add -A", NULL);
	git(s, s->host, "commit -q -m one", NULL);
	write_text(host, "a", "not committed");
	prepare_run(s, MODE_WORKTREE);
	assert_non_null(s->state.worktree);
	stage(s);
	git(s, work, "rev-parse --abbrev-ref HEAD", &branch);
	assert_true(str_starts(buf_str(&branch), "berth/"));
	git(s, s->host, "status --porcelain", &here);
	assert_string_equal(buf_str(&here), " M a\n");

	_cleanup_close_ int in = open_dir(s->trees->root_fd, "work");

	assert_text(in, "a", "not committed");

	/* Where the place is this host, it is worked in as it is. */
	prepare_run(s, MODE_WORKTREE);
	s->act.place_root = s->state.worktree;
	stage(s);
	assert_int_equal(staged(s, "sent"), 0);

	_cleanup_close_ int tree = open(s->state.worktree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_text(tree, "a", "not committed");
}

static void what_is_remembered_of_a_place_goes_with_it_or_after_a_week(void **state)
{
	struct staging *s = *state;
	const struct timespec old[2] = { { 1, 0 }, { 1, 0 } };
	int root = s->engine.results.root_fd;

	write_text(s->trees->host_fd, "a", "a");
	stage_new(s);
	assert_int_equal(faccessat(root, "places/tree-place", F_OK, 0), 0);
	must(workspace_forget_place(&s->engine, "tree-place", why));
	assert_int_equal(faccessat(root, "places/tree-place", F_OK, 0), -1);
	must(workspace_forget_place(&s->engine, "tree-place", why));
	stage_new(s);
	assert_staged(s);
	workspace_sweep(&s->engine);
	assert_int_equal(faccessat(root, "places/tree-place", F_OK, 0), 0);
	assert_int_equal(utimensat(root, "places/tree-place", old, 0), 0);
	workspace_sweep(&s->engine);
	assert_int_equal(faccessat(root, "places/tree-place", F_OK, 0), -1);
	stage_new(s);
	assert_staged(s);
}

/* ---- what is refused beforehand ---- */

static void assert_refused(struct staging *s, struct workspace_request wish, const char *word)
{
	struct error err = { 0 };

	workspace_state_clear(&s->state);
	assert_int_equal(workspace_prepare(&s->engine, &wish, &s->state, &err), -1);
	assert_int_equal(err.code, ERR_UNPROCESSABLE);
	if (!strstr(err.message, word))
		fail_msg("%s", err.message);
}

static void directories_no_run_should_have_are_refused(void **state)
{
	struct staging *s = *state;
	_cleanup_free_ char *data = xasprintf("%s/data", s->trees->t->dir->path);
	_cleanup_free_ char *inside = xasprintf("%s/data/workspaces", s->trees->t->dir->path);
	_cleanup_free_ char *file = xasprintf("%s/file", s->host);
	char id[ID_SIZE];
	struct workspace_request wish = wish_for(s, MODE_COPY, id);

	write_text(s->trees->host_fd, "file", "");
	wish.path = "/";
	assert_refused(s, wish, "whole machine");
	wish.path = "/root";
	assert_refused(s, wish, "home");
	wish.path = data;
	assert_refused(s, wish, "data");
	wish.path = inside;
	assert_refused(s, wish, "data");
	wish.path = s->trees->t->dir->path;
	assert_refused(s, wish, "data");
	wish.path = file;
	assert_refused(s, wish, "file");
	wish.path = "relative";
	assert_refused(s, wish, "absolute");
	wish.path = "/nonexistent/x";
	assert_refused(s, wish, "No such file");
}

static void modes_a_place_cannot_have_are_refused(void **state)
{
	struct staging *s = *state;
	char id[ID_SIZE];
	struct workspace_request wish = wish_for(s, MODE_OVERLAY, id);

	assert_refused(s, wish, "native");
	wish.mode = MODE_IN_PLACE;
	assert_refused(s, wish, "on this host");
	wish.mode = MODE_WORKTREE;
	assert_refused(s, wish, "git repository");
	wish.mode = MODE_COPY;
	wish.takes_relay = false;
	assert_refused(s, wish, "relay");
	wish.mode = MODE_AUTO;
	assert_refused(s, wish, "relay");
}

static void auto_is_in_place_here_and_copy_elsewhere(void **state)
{
	struct staging *s = *state;
	char id[ID_SIZE];
	struct workspace_request wish = wish_for(s, MODE_AUTO, id);

	must(workspace_prepare(&s->engine, &wish, &s->state, why));
	assert_int_equal(s->state.mode, MODE_COPY);
	workspace_state_clear(&s->state);
	wish.mounts = wish.shared = true;
	must(workspace_prepare(&s->engine, &wish, &s->state, why));
	assert_int_equal(s->state.mode, MODE_COPY);
	workspace_state_clear(&s->state);
	wish.is_local = true;
	wish.mounts = wish.takes_relay = false;
	must(workspace_prepare(&s->engine, &wish, &s->state, why));
	assert_int_equal(s->state.mode, MODE_IN_PLACE);
	stage(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_staging(a_tree_arrives_as_it_is_and_is_known_afterwards),
		with_staging(WS_48_an_empty_tree_and_an_empty_place_are_fine),
		with_staging(what_is_there_already_is_not_sent_again),
		with_staging(a_touched_file_is_read_but_does_not_travel),
		with_staging(the_place_is_made_like_the_tree_whatever_was_done_there),
		with_staging(what_rules_leave_out_stays_in_the_place_and_never_travels),
		with_staging(WS_43_a_nested_root_is_made),
		with_staging(WS_50_dependencies_go_along_unless_a_rule_leaves_them_out),
		with_staging(of_a_repository_inside_only_what_git_needs_goes_along),
		with_staging(W9_a_directory_of_somebody_else_is_not_touched),
		with_staging(random_edits_and_failures_end_in_the_right_tree),
		with_staging(staging_goes_on_after_a_crash_from_what_is_on_disk),
		with_staging(progress_is_told_and_cancelling_ends_it),
		with_staging(a_tree_that_is_too_large_is_refused_before_anything_travels),
		with_staging(special_files_are_told),
		with_staging(an_overlay_only_notes_what_is_there),
		with_staging(
			a_repository_arrives_with_index_and_tracked_files_that_rules_leave_out),
		with_staging(an_overlay_knows_tracked_files_that_rules_leave_out),
		with_staging(a_worktree_is_made_for_the_run_and_arrives_as_a_repository_of_its_own),
		with_staging(what_is_remembered_of_a_place_goes_with_it_or_after_a_week),
		with_staging(directories_no_run_should_have_are_refused),
		with_staging(modes_a_place_cannot_have_are_refused),
		with_staging(auto_is_in_place_here_and_copy_elsewhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Fetching and applying through a real relay. */
#include "../place/tree_place.h"
#include <signal.h>
#include "base/fault.h"
#include "workspace/workspace.h"

struct home {
	struct trees *trees;
	struct clock clock;
	struct workspace_engine engine;
	struct workspace_state state;
	struct workspace_act act;
	char host[128];
	int work; /* the workspace in the place */
};

static int home_setup(void **state)
{
	struct home *h = calloc(1, sizeof(*h));
	char data[128];
	void *trees;

	assert_non_null(h);
	trees_setup(&trees);
	h->trees = trees;
	snprintf(data, sizeof(data), "%s/data", h->trees->t->dir->path);
	snprintf(h->host, sizeof(h->host), "%s/host", h->trees->t->dir->path);
	assert_int_equal(mkdir(data, 0700), 0);
	clock_init_system(&h->clock);
	must(workspace_engine_open(&h->engine, data, &h->clock, why));
	h->act = (struct workspace_act){ .place = &h->trees->in,
					 .place_root = "/work",
					 .cancel_fd = -1 };
	h->work = -1;
	*state = h;
	return 0;
}

static int home_teardown(void **state)
{
	struct home *h = *state;
	void *trees = h->trees;

	close_fdp(&h->work);
	workspace_state_clear(&h->state);
	workspace_engine_close(&h->engine);
	free(h);
	return trees_teardown(&trees);
}
#define with_home(test) cmocka_unit_test_setup_teardown(test, home_setup, home_teardown)

static void stage(struct home *h)
{
	char id[ID_SIZE];
	struct workspace_request wish = {
		.run_id = id, .path = h->host, .mode = MODE_COPY, .takes_relay = true
	};

	id_new(id);
	workspace_state_clear(&h->state);
	must(workspace_prepare(&h->engine, &wish, &h->state, why));
	must(workspace_stage(&h->engine, &h->state, &h->act, why));
	close_fdp(&h->work);
	h->work = open_dir(h->trees->root_fd, "work");
}

static void fetch(struct home *h)
{
	must(workspace_fetch(&h->engine, &h->state, &h->act, why));
	assert_int_equal(h->state.phase, PHASE_FETCHED);
}

static void apply(struct home *h)
{
	const struct apply_options options = { .cancel_fd = -1 };

	must(workspace_apply(&h->engine, &h->state, &options, why));
	assert_int_equal(h->state.phase, PHASE_APPLIED);
}

static int64_t fetched(struct home *h, const char *key)
{
	return json_int(json_object_at(h->state.report, "fetched"), key, -1);
}

static int64_t counted(struct home *h, const char *key)
{
	return json_int(json_object_at(h->state.report, "counts"), key, -1);
}

static const char *reason_for(struct home *h, const char *path)
{
	json_t *refused = json_array_at(json_object_at(h->state.report, "fetched"), "refused");
	json_t *one;
	size_t i;

	json_array_foreach (refused, i, one) {
		if (streq(json_str(one, "path"), path))
			return json_str(one, "reason");
	}
	return "";
}

static void expect(int dir, const char *path, const char *want)
{
	_cleanup_buf_ struct buf text = { 0 };

	if (!want) {
		assert_int_equal(faccessat(dir, path, F_OK, AT_SYMLINK_NOFOLLOW), -1);
		return;
	}
	if (file_read(dir, path, &text, 1 << 20, NULL) < 0)
		fail_msg("%s is not there", path);
	assert_string_equal(buf_str(&text), want);
}

/* Removes about one in three of what is in a directory, and chmods or rewrites some. */
static void disturb(int dir, uint64_t *seed)
{
	struct dirent *entry;
	DIR *d = fdopendir(dup(dir));

	assert_non_null(d);
	rewinddir(d);
	while ((entry = readdir(d))) {
		struct stat st;

		if (streq(entry->d_name, ".") || streq(entry->d_name, "..") ||
		    fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		switch (chance(seed, 4)) {
		case 0:
			dir_remove_tree(dir, entry->d_name, NULL);
			break;
		case 1:
			if (S_ISREG(st.st_mode))
				(void)!fchmodat(dir, entry->d_name, st.st_mode ^ 0100, 0);
			break;
		case 2:
			if (S_ISREG(st.st_mode)) {
				unlinkat(dir, entry->d_name, 0);
				write_text(dir, entry->d_name, "rewritten in the place");
			}
			break;
		default:
			if (S_ISDIR(st.st_mode)) {
				int fd = openat(dir, entry->d_name, O_RDONLY | O_DIRECTORY);

				disturb(fd, seed);
				close(fd);
			}
		}
	}
	closedir(d);
}

static void twenty_random_trees_come_home_as_the_place_left_them(void **state)
{
	struct home *h = *state;
	uint64_t seed = 77;

	for (int i = 0; i < 20; i++) {
		assert_int_equal(dir_remove_tree(h->trees->t->dir->fd, "host", NULL), 0);
		assert_int_equal(mkdirat(h->trees->t->dir->fd, "host", 0755), 0);
		close(h->trees->host_fd);
		h->trees->host_fd = open_dir(h->trees->t->dir->fd, "host");
		grow(h->trees->host_fd, &seed, 12, 2);
		stage(h);
		disturb(h->work, &seed);
		grow(h->work, &seed, 6, 2);
		fetch(h);
		apply(h);
		assert_int_equal(counted(h, "conflicts"), 0);
		assert_int_equal(counted(h, "refused"), 0);
		assert_int_equal(counted(h, "keptHost"), 0);
		must(workspace_drop(&h->engine, h->state.run_id, why));
		assert_same_trees(h->trees->host_fd, h->work);
	}
}

static void what_was_only_touched_does_not_travel(void **state)
{
	struct home *h = *state;

	write_text(h->trees->host_fd, "one", "content");
	write_text(h->trees->host_fd, "two", "content");
	stage(h);
	assert_int_equal(utimensat(h->work, "one", NULL, 0), 0);
	fetch(h);
	assert_int_equal(fetched(h, "files"), 0);
	apply(h);
	assert_int_equal(counted(h, "modified"), 0);
}

static void W4_what_rules_of_the_place_hide_is_not_taken_for_deleted(void **state)
{
	struct home *h = *state;

	write_text(h->trees->host_fd, "hidden", "staged");
	write_text(h->trees->host_fd, "edited", "staged");
	write_text(h->trees->host_fd, "really", "staged");
	assert_int_equal(mkdirat(h->trees->host_fd, "dir", 0755), 0);
	write_text(h->trees->host_fd, "dir/in", "staged");
	assert_int_equal(symlinkat("a", h->trees->host_fd, "link"), 0);
	stage(h);
	write_text(h->work, ".gitignore", "hidden\nedited\nreally\ndir\nlink\nnew\n");
	write_text(h->work, "edited", "by the place");
	write_text(h->work, "new", "ignored");
	assert_int_equal(unlinkat(h->work, "really", 0), 0);
	fetch(h);
	apply(h);
	expect(h->trees->host_fd, "hidden", "staged");
	expect(h->trees->host_fd, "edited", "by the place");
	expect(h->trees->host_fd, "dir/in", "staged");
	expect(h->trees->host_fd, "really", NULL);
	expect(h->trees->host_fd, "new", NULL);
	assert_int_equal(faccessat(h->trees->host_fd, "link", F_OK, AT_SYMLINK_NOFOLLOW), 0);
}

static void a_directory_that_became_a_link_brings_only_the_link(void **state)
{
	struct home *h = *state;
	char target[32] = "";

	assert_int_equal(mkdirat(h->trees->host_fd, "dir", 0755), 0);
	write_text(h->trees->host_fd, "dir/in", "staged");
	assert_int_equal(mkdirat(h->trees->host_fd, "other", 0755), 0);
	write_text(h->trees->host_fd, "other/in", "other");
	stage(h);
	assert_int_equal(dir_remove_tree(h->work, "dir", NULL), 0);
	assert_int_equal(symlinkat("other", h->work, "dir"), 0);
	fetch(h);
	apply(h);
	assert_int_equal(readlinkat(h->trees->host_fd, "dir", target, sizeof(target)), 5);
	assert_string_equal(target, "other");
	assert_int_equal(counted(h, "conflicts"), 0);
}

static void what_is_too_large_is_refused_and_the_rest_comes(void **state)
{
	struct home *h = *state;
	int fd;

	stage(h);
	h->engine.max_fetch_bytes = 1 << 20;
	fd = openat(h->work, "huge", O_WRONLY | O_CREAT, 0644);
	assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0); /* a sparse terabyte */
	close(fd);
	write_text(h->work, "small", "small");
	write_text(h->work, "a", "first");
	fetch(h);
	assert_non_null(strstr(reason_for(h, "huge"), "larger"));
	apply(h);
	assert_int_equal(counted(h, "refused"), 1);
	expect(h->trees->host_fd, "small", "small");
	expect(h->trees->host_fd, "a", "first");
	expect(h->trees->host_fd, "huge", NULL);
}

static void a_bomb_of_files_costs_only_what_is_new_behind_it(void **state)
{
	struct home *h = *state;
	char name[32];

	write_text(h->trees->host_fd, "a", "staged");
	write_text(h->trees->host_fd, "z", "staged");
	write_text(h->trees->host_fd, "zz", "staged");
	stage(h);
	h->engine.max_fetch_entries = 50;
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "bomb-%d", i);
		write_text(h->work, name, "boom");
	}
	write_text(h->work, "a", "edited");
	write_text(h->work, "z", "edited");
	assert_int_equal(unlinkat(h->work, "zz", 0), 0);
	write_text(h->work, "zzz", "new behind it");
	fetch(h);
	assert_true(fetched(h, "refusedCount") >= 1);
	apply(h);
	expect(h->trees->host_fd, "a", "edited");
	expect(h->trees->host_fd, "z", "edited");
	expect(h->trees->host_fd, "zz", NULL);
	expect(h->trees->host_fd, "zzz", NULL);
	assert_true(counted(h, "added") < 60);
}

static void special_files_and_repositories_inside_stay_in_the_place(void **state)
{
	struct home *h = *state;

	write_text(h->trees->host_fd, "was-file", "staged");
	stage(h);
	assert_int_equal(mkfifoat(h->work, "fifo", 0644), 0);
	assert_int_equal(unlinkat(h->work, "was-file", 0), 0);
	assert_int_equal(mkfifoat(h->work, "was-file", 0644), 0);
	assert_int_equal(mkdirat(h->work, "vendor", 0755), 0);
	assert_int_equal(mkdirat(h->work, "vendor/.git", 0755), 0);
	write_text(h->work, "vendor/.git/config", "[core]\n\tfsmonitor = touch /tmp/x\n");
	write_text(h->work, "vendor/file", "comes");
	fetch(h);
	assert_non_null(strstr(reason_for(h, "fifo"), "fifo"));
	assert_non_null(strstr(reason_for(h, "vendor/.git"), ".git"));
	apply(h);
	expect(h->trees->host_fd, "fifo", NULL);
	expect(h->trees->host_fd, "was-file", "staged");
	expect(h->trees->host_fd, "vendor/.git", NULL);
	expect(h->trees->host_fd, "vendor/file", "comes");
}

static void a_repository_inside_is_told_once_and_only_when_something_was_done_in_it(void **state)
{
	struct home *h = *state;
	int host = h->trees->host_fd;

	for (const char *const *d = (const char *const[]){ "lib", "lib/.git", "lib/.git/objects",
							   "vendor", "vendor/.git", NULL };
	     *d; d++)
		assert_int_equal(mkdirat(host, *d, 0755), 0);
	write_text(host, "lib/.git/HEAD", "ref: refs/heads/main\n");
	write_text(host, "lib/.git/objects/x", "x");
	write_text(host, "vendor/.git/HEAD", "ref: refs/heads/main\n");
	write_text(host, "lib/file", "staged");
	stage(h);
	write_text(h->work, "lib/file", "edited");
	fetch(h);
	assert_int_equal(fetched(h, "refusedCount"), 0);
	apply(h);
	expect(host, "lib/file", "edited");
	stage(h);
	assert_int_equal(unlinkat(h->work, "lib/.git/objects/x", 0), 0);
	write_text(h->work, "lib/.git/objects/y", "y");
	write_text(h->work, "lib/.git/ORIG_HEAD", "x");
	write_text(h->work, "lib/.git/HEAD", "ref: refs/heads/other\n");
	assert_int_equal(dir_remove_tree(h->work, "vendor/.git", NULL), 0);
	fetch(h);
	assert_int_equal(fetched(h, "refusedCount"), 2);
	assert_non_null(strstr(reason_for(h, "lib/.git"), "pushed"));
	assert_non_null(strstr(reason_for(h, "vendor/.git"), "pushed"));
	apply(h);
	expect(host, "lib/.git/HEAD", "ref: refs/heads/main\n");
	expect(host, "lib/.git/objects/x", "x");
	expect(host, "lib/.git/objects/y", NULL);
	expect(host, "vendor/.git/HEAD", "ref: refs/heads/main\n");
}

static void what_is_counted_are_files_and_directories_apart(void **state)
{
	struct home *h = *state;

	assert_int_equal(mkdirat(h->trees->host_fd, "old", 0755), 0);
	write_text(h->trees->host_fd, "old/a", "a");
	stage(h);
	assert_int_equal(dir_remove_tree(h->work, "old", NULL), 0);
	assert_int_equal(mkdirat(h->work, "new", 0755), 0);
	assert_int_equal(mkdirat(h->work, "new/er", 0755), 0);
	write_text(h->work, "new/a", "a");
	write_text(h->work, "new/er/b", "b");
	fetch(h);
	{
		_cleanup_json_ json_t *report =
			workspace_report(&h->engine, h->state.run_id, 0, NULL);
		const json_t *counts = json_object_at(report, "counts");

		assert_int_equal(json_int(counts, "pending", -1), 3);
		assert_int_equal(json_int(counts, "directories", -1), 3);
	}
	apply(h);
	assert_int_equal(counted(h, "added"), 2);
	assert_int_equal(counted(h, "deleted"), 1);
	assert_int_equal(counted(h, "directories"), 3);
}

static void WS_48_a_place_that_was_emptied_empties_the_workspace(void **state)
{
	struct home *h = *state;

	stage(h);
	fetch(h);
	assert_int_equal(fetched(h, "files"), 0);
	apply(h);
	assert_int_equal(mkdirat(h->trees->host_fd, "dir", 0755), 0);
	write_text(h->trees->host_fd, "dir/a", "a");
	write_text(h->trees->host_fd, "b", "b");
	stage(h);
	write_text(h->trees->host_fd, "later", "made on the host meanwhile");
	assert_int_equal(dir_remove_tree(h->work, "dir", NULL), 0);
	assert_int_equal(unlinkat(h->work, "b", 0), 0);
	fetch(h);
	apply(h);
	expect(h->trees->host_fd, "dir", NULL);
	expect(h->trees->host_fd, "b", NULL);
	expect(h->trees->host_fd, "later", "made on the host meanwhile");
}

static void a_file_that_never_stops_growing_costs_only_itself(void **state)
{
	struct home *h = *state;
	char block[65536] = "x";
	pid_t pid;
	int fd;

	stage(h);
	write_text(h->work, "other", "comes");
	fd = openat(h->work, "log", O_WRONLY | O_CREAT | O_APPEND, 0644);
	for (int i = 0; i < 64; i++)
		assert_int_equal(write(fd, block, sizeof(block)), (ssize_t)sizeof(block));
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		for (;;) {
			if (write(fd, "x", 1) != 1 || usleep(50) < 0)
				_exit(1);
		}
	}
	fetch(h);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(fd);
	apply(h);
	expect(h->trees->host_fd, "other", "comes");
	/* It was read whole between two writes, or refused; never in part. */
	if (*reason_for(h, "log"))
		assert_non_null(strstr(reason_for(h, "log"), "changing"));
}

static void fetching_is_finished_after_it_broke_anywhere(void **state)
{
	static const char *const points[] = { "workspace.fetch.before", "workspace.fetch.looked",
					      "workspace.fetch.file",   "workspace.fetch.got",
					      "workspace.fetch.synced", "workspace.fetch.kept",
					      "workspace.fetch.after" };
	struct home *h = *state;

	for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
		_cleanup_free_ char *spec = xasprintf("%s:error", points[i]);
		_cleanup_(workspace_state_clear) struct workspace_state again = { 0 };
		struct error err = { 0 };
		char id[ID_SIZE];

		write_text(h->trees->host_fd, "a", points[i]);
		stage(h);
		write_text(h->work, "a", "by the place");
		write_text(h->work, "b", points[i]);
		must(fault_init(spec, why));
		assert_int_equal(workspace_fetch(&h->engine, &h->state, &h->act, &err), -1);
		assert_int_equal(err.code, ERR_FAULT);
		error_clear(&err);
		must(fault_init(NULL, why));
		/* As another server would. */
		id_copy(id, h->state.run_id);
		workspace_state_clear(&h->state);
		must(workspace_state_load(&h->engine.results, id, &h->state, why));
		fetch(h);
		apply(h);
		expect(h->trees->host_fd, "a", "by the place");
		expect(h->trees->host_fd, "b", points[i]);
	}
}

static void the_report_tells_every_change_and_a_dry_run_the_same_before(void **state)
{
	struct home *h = *state;
	const struct apply_options dry = { .cancel_fd = -1, .dry_run = true };
	_cleanup_json_ json_t *report = NULL;
	json_t *change;

	write_text(h->trees->host_fd, "alone", "staged");
	write_text(h->trees->host_fd, "both", "staged");
	write_text(h->trees->host_fd, "mine", "staged");
	stage(h);
	write_text(h->work, "alone", "place");
	write_text(h->work, "both", "place");
	write_text(h->work, "mine", "place");
	write_text(h->trees->host_fd, "both", "host!");
	fetch(h);
	must(workspace_apply(&h->engine, &h->state, &dry, why));
	assert_int_equal(counted(h, "conflicts"), 1);
	expect(h->trees->host_fd, "mine", "staged");
	workspace_state_clear(&h->state);

	char **ids = NULL;

	must(results_list(&h->engine.results, &ids, why));
	must(workspace_state_load(&h->engine.results, ids[0], &h->state, why));
	strv_free(ids);
	apply(h);
	expect(h->trees->host_fd, "both", "host!");
	expect(h->trees->host_fd, "mine", "place");
	report = workspace_report(&h->engine, h->state.run_id, 1, NULL);
	assert_string_equal(json_str(report, "phase"), "applied");
	assert_true(json_bool(report, "truncated", false));
	assert_int_equal(json_array_size(json_array_at(report, "changes")), 1);
	/* What did not simply go its way is told before what did. */
	change = json_array_get(json_array_at(report, "changes"), 0);
	assert_string_equal(json_str(change, "path"), "both");
	assert_string_equal(json_str(change, "fate"), "conflict");
	assert_string_equal(json_str(change, "kind"), "modified");
	expect(h->trees->host_fd, json_str(change, "beside"), "place");
	assert_int_equal(json_int(json_object_at(report, "counts"), "modified", -1), 2);
	assert_int_equal(json_int(json_object_at(report, "fetched"), "files", -1), 3);
}

static void dropping_leaves_nothing_behind(void **state)
{
	struct home *h = *state;
	_cleanup_strv_ char **ids = NULL;
	struct error err = { 0 };

	write_text(h->trees->host_fd, "a", "staged");
	stage(h);
	write_text(h->work, "a", "place");
	fetch(h);
	apply(h);
	assert_int_equal(faccessat(h->trees->host_fd, ".berth", F_OK, 0), 0);
	must(workspace_drop(&h->engine, h->state.run_id, why));
	expect(h->trees->host_fd, ".berth", NULL);
	expect(h->trees->host_fd, "a", "place");
	must(results_list(&h->engine.results, &ids, why));
	assert_null(ids[0]);
	assert_int_equal(workspace_drop(&h->engine, h->state.run_id, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	error_clear(&err);
}

static void shell(const char *dir, const char *script)
{
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)script, (char *)dir, NULL };
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (chdir(dir) < 0)
			_exit(126);
		execvp(argv[0], argv);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	if (status)
		fail_msg("%s: %d", script, status);
}

static void commits_of_the_place_come_home_with_its_files(void **state)
{
	struct home *h = *state;
	char work[160];

	snprintf(work, sizeof(work), "%s/work", h->trees->root);
	shell(h->host, "git init -q -b main . && git config user.name N && git config user.email e "
		       "&& echo one > a && echo keep > b && git add . && git commit -qm first");
	stage(h);
	shell(work, "export HOME=/nonexistent; echo two > a && git -c safe.directory='*' commit "
		    "-qam second && echo new > c && echo dirty > b");
	fetch(h);
	apply(h);
	expect(h->trees->host_fd, "a", "two\n");
	expect(h->trees->host_fd, "b", "dirty\n");
	expect(h->trees->host_fd, "c", "new\n");
	shell(h->host, "test \"$(git log --format=%s | tr '\\n' ' ')\" = 'second first ' && "
		       "test \"$(git status --porcelain | tr '\\n' ' ')\" = ' M b ?? c ' && "
		       "git fsck --strict");
	assert_true(json_bool(json_object_at(h->state.report, "git"), "moved", false));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_home(twenty_random_trees_come_home_as_the_place_left_them),
		with_home(what_was_only_touched_does_not_travel),
		with_home(W4_what_rules_of_the_place_hide_is_not_taken_for_deleted),
		with_home(a_directory_that_became_a_link_brings_only_the_link),
		with_home(what_is_too_large_is_refused_and_the_rest_comes),
		with_home(a_bomb_of_files_costs_only_what_is_new_behind_it),
		with_home(special_files_and_repositories_inside_stay_in_the_place),
		with_home(a_repository_inside_is_told_once_and_only_when_something_was_done_in_it),
		with_home(what_is_counted_are_files_and_directories_apart),
		with_home(WS_48_a_place_that_was_emptied_empties_the_workspace),
		with_home(a_file_that_never_stops_growing_costs_only_itself),
		with_home(fetching_is_finished_after_it_broke_anywhere),
		with_home(the_report_tells_every_change_and_a_dry_run_the_same_before),
		with_home(dropping_leaves_nothing_behind),
		with_home(commits_of_the_place_come_home_with_its_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "files_fixture.h"

#include <sched.h>
#include <sys/mount.h>
#include "base/fault.h"

static void arm(const char *spec)
{
	struct error err = { 0 };

	must(fault_init(spec, &err), &err);
}

static void expect_fate(const struct told_list *told, const char *path, enum change_fate fate)
{
	const struct told *t = told_of(told, path);

	if (!t)
		fail_msg("%s was not told", path);
	if (t->fate != fate)
		fail_msg("%s: fate %s, want %s (%s)", path, change_fate_name(t->fate),
			 change_fate_name(fate), t->reason);
}

static void WS_42_what_the_place_edited_comes_home_and_what_it_did_not_stays(void **state)
{
	struct files *f = *state;
	struct told_list told;
	struct apply_report report;

	put_text(f->host_fd, "README.md", "one\n");
	put_text(f->host_fd, "same.txt", "same\n");
	open_made(f->host_fd, "src");
	put_text(f->host_fd, "src/main.c", "int main;\n");
	files_stage(f);
	save_text(f->place_fd, "README.md", "two\n");
	put_text(f->place_fd, "src/new.c", "new\n");
	files_fetch(f);
	put_text(f->host_fd, "overlay.local", "mine\n");
	files_apply(f, NULL, &told, &report);
	expect_text(f->host_fd, "README.md", "two\n");
	expect_text(f->host_fd, "src/new.c", "new\n");
	expect_text(f->host_fd, "same.txt", "same\n");
	expect_text(f->host_fd, "overlay.local", "mine\n");
	assert_int_equal(told.count, 2);
	assert_int_equal(report.added, 1);
	assert_int_equal(report.modified, 1);
	assert_int_equal(report.bytes, 8);
}

static void WS_44_a_file_deleted_in_the_place_goes_and_what_was_never_staged_stays(void **state)
{
	struct files *f = *state;
	struct told_list told;

	put_text(f->host_fd, "stale.txt", "old\n");
	open_made(f->host_fd, "gone");
	put_text(f->host_fd, "gone/a", "a");
	open_made(f->host_fd, "half");
	put_text(f->host_fd, "half/a", "a");
	files_stage(f);
	put_text(f->host_fd, ".claude.json", "{}");
	put_text(f->host_fd, "half/mine", "m");
	unlinkat(f->place_fd, "stale.txt", 0);
	unlinkat(f->place_fd, "gone/a", 0);
	unlinkat(f->place_fd, "gone", AT_REMOVEDIR);
	unlinkat(f->place_fd, "half/a", 0);
	unlinkat(f->place_fd, "half", AT_REMOVEDIR);
	files_fetch(f);
	files_apply(f, NULL, &told, NULL);
	assert_false(exists(f->host_fd, "stale.txt"));
	assert_false(exists(f->host_fd, "gone"));
	assert_false(exists(f->host_fd, "half/a"));
	expect_text(f->host_fd, ".claude.json", "{}");
	expect_text(f->host_fd, "half/mine", "m");
	expect_fate(&told, "stale.txt", FATE_APPLIED);
	expect_fate(&told, "gone", FATE_APPLIED);
	expect_fate(&told, "half", FATE_KEPT_HOST);
}

static void WS_45_a_file_made_on_the_host_after_staging_survives(void **state)
{
	struct files *f = *state;

	put_text(f->host_fd, "README.md", "one\n");
	files_stage(f);
	put_text(f->place_fd, "README.md", "remote\n");
	put_text(f->place_fd, "remote-only", "r\n");
	put_text(f->host_fd, "local-only", "l\n");
	files_fetch(f);
	files_apply(f, NULL, NULL, NULL);
	expect_text(f->host_fd, "README.md", "remote\n");
	expect_text(f->host_fd, "remote-only", "r\n");
	expect_text(f->host_fd, "local-only", "l\n");
}

static void WS_46_two_runs_of_one_base_add_to_the_same_new_directory(void **state)
{
	struct files *f = *state;
	struct files second;

	files_open(&second, "/dev/shm");
	put_text(f->host_fd, "a", "a");
	files_stage(f);
	snapshot(f->host_fd, second.run_fd, RESULTS_BASE);
	snapshot(f->host_fd, second.run_fd, RESULTS_PLACE);
	put_text(second.place_fd, "a", "a");
	close(open_made(f->place_fd, "nested"));
	close(open_made(f->place_fd, "nested/deep"));
	put_text(f->place_fd, "nested/deep/one", "1");
	close(open_made(second.place_fd, "nested"));
	close(open_made(second.place_fd, "nested/deep"));
	put_text(second.place_fd, "nested/deep/two", "2");
	files_fetch(f);
	files_fetch(&second);
	free(second.state.path);
	second.state.path = xstrdup(f->state.path);
	files_apply(f, NULL, NULL, NULL);
	files_apply(&second, NULL, NULL, NULL);
	expect_text(f->host_fd, "nested/deep/one", "1");
	expect_text(f->host_fd, "nested/deep/two", "2");
	files_close(&second);
}

static void WS_47_sockets_and_fifos_on_either_side_do_no_harm(void **state)
{
	struct files *f = *state;
	struct told_list told;
	char beside[600];

	put_text(f->host_fd, "a", "a");
	files_stage(f);
	mkfifoat(f->place_fd, "pipe", 0600);
	mkfifoat(f->host_fd, "b", 0600);
	put_text(f->place_fd, "b", "b");
	files_fetch(f);
	files_apply(f, NULL, &told, NULL);
	assert_false(exists(f->host_fd, "pipe"));
	expect_fate(&told, "b", FATE_CONFLICT);
	expect_text(f->host_fd, beside_name(f, "b", beside), "b");
}

static int count_entries(int dir_fd, const char *path)
{
	char command[700];
	int n = 0;
	FILE *out;

	snprintf(command, sizeof(command), "find /proc/%d/fd/%d/%s -mindepth 1 | wc -l", getpid(),
		 dir_fd, path);
	out = popen(command, "r");
	assert_int_equal(fscanf(out, "%d", &n), 1);
	pclose(out);
	return n;
}

static void WS_52_applying_leaves_no_temporary_file_behind(void **state)
{
	struct files *f = *state;

	put_text(f->host_fd, "keep", "k");
	files_stage(f);
	put_text(f->place_fd, "new", "n");
	close(open_made(f->place_fd, "dir"));
	put_text(f->place_fd, "dir/new", "n");
	files_fetch(f);
	files_apply(f, NULL, NULL, NULL);
	/* Nothing was displaced, so not even .berth is left. */
	assert_int_equal(count_entries(f->host_fd, "."), 4);
}

static void what_was_displaced_is_kept_and_hidden_from_git(void **state)
{
	struct files *f = *state;
	char path[128];

	put_text(f->host_fd, "a", "old");
	files_stage(f);
	put_text(f->place_fd, "a", "new");
	files_fetch(f);
	files_apply(f, NULL, NULL, NULL);
	snprintf(path, sizeof(path), ".berth/files-%s/0", f->state.run_id);
	expect_text(f->host_fd, path, "old");
	expect_text(f->host_fd, ".berth/.gitignore", "*\n");
}

static void a_repository_has_the_staging_directory_inside_git(void **state)
{
	struct files *f = *state;
	char path[128];

	close(open_made(f->host_fd, ".git"));
	put_text(f->host_fd, "a", "old");
	files_stage(f);
	put_text(f->place_fd, "a", "new");
	files_fetch(f);
	files_apply(f, NULL, NULL, NULL);
	snprintf(path, sizeof(path), ".git/berth/files-%s/0", f->state.run_id);
	expect_text(f->host_fd, path, "old");
	assert_false(exists(f->host_fd, ".berth"));
}

static void changed_on_both_sides_both_are_kept(void **state)
{
	struct files *f = *state;
	struct told_list told;
	char beside[600];

	put_text(f->host_fd, "a", "base");
	put_text(f->host_fd, "b", "base");
	put_text(f->host_fd, "c", "base");
	put_text(f->host_fd, "d", "base");
	files_stage(f);
	put_text(f->place_fd, "a", "place");
	put_text(f->host_fd, "a", "host");
	put_text(f->place_fd, "b", "equal");
	put_text(f->host_fd, "b", "equal");
	unlinkat(f->place_fd, "c", 0);
	put_text(f->host_fd, "c", "host");
	put_text(f->place_fd, "d", "place");
	unlinkat(f->host_fd, "d", 0);
	files_fetch(f);
	files_apply(f, NULL, &told, NULL);
	expect_text(f->host_fd, "a", "host");
	expect_text(f->host_fd, beside_name(f, "a", beside), "place");
	assert_string_equal(told_of(&told, "a")->beside, beside);
	expect_text(f->host_fd, "b", "equal");
	expect_text(f->host_fd, "c", "host");
	assert_false(exists(f->host_fd, "d"));
	expect_text(f->host_fd, beside_name(f, "d", beside), "place");
	expect_fate(&told, "a", FATE_CONFLICT);
	expect_fate(&told, "b", FATE_SAME);
	expect_fate(&told, "c", FATE_KEPT_HOST);
	expect_fate(&told, "d", FATE_CONFLICT);
}

static void names_of_conflicts_collide_with_nothing(void **state)
{
	struct files *f = *state;
	char beside[600], second[620], place_made[620], longest[256];
	struct told_list told;

	memset(longest, 'x', 253);
	memcpy(longest + 253, "\xc3\xa9", 3);
	put_text(f->host_fd, "a", "base");
	put_text(f->host_fd, longest, "base");
	files_stage(f);
	put_text(f->place_fd, "a", "place");
	put_text(f->host_fd, "a", "host");
	put_text(f->place_fd, longest, "place");
	put_text(f->host_fd, longest, "host");
	beside_name(f, "a", beside);
	put_text(f->host_fd, beside, "taken");
	snprintf(place_made, sizeof(place_made), "%s.2", beside);
	put_text(f->place_fd, place_made, "the place made this");
	files_fetch(f);
	files_apply(f, NULL, &told, NULL);
	expect_text(f->host_fd, beside, "taken");
	expect_text(f->host_fd, place_made, "the place made this");
	snprintf(second, sizeof(second), "%s.3", beside);
	expect_text(f->host_fd, second, "place");
	assert_string_equal(told_of(&told, "a")->beside, second);
	expect_text(f->host_fd, longest, "host");
	assert_true(strlen(told_of(&told, longest)->beside) <= NAME_MAX);
	expect_text(f->host_fd, told_of(&told, longest)->beside, "place");
}

static void types_change_every_way(void **state)
{
	struct files *f = *state;
	struct told_list told;
	struct stat st;
	char target[16] = "";

	put_text(f->host_fd, "file-dir", "x");
	close(open_made(f->host_fd, "dir-file"));
	put_text(f->host_fd, "dir-file/in", "x");
	assert_return_code(symlinkat("t", f->host_fd, "link-file"), errno);
	put_text(f->host_fd, "file-link", "x");
	close(open_made(f->host_fd, "dir-link"));
	put_text(f->host_fd, "dir-link/in", "x");
	assert_return_code(symlinkat("t", f->host_fd, "link-dir"), errno);
	files_stage(f);
	unlinkat(f->place_fd, "file-dir", 0);
	close(open_made(f->place_fd, "file-dir"));
	put_text(f->place_fd, "file-dir/in", "new");
	unlinkat(f->place_fd, "dir-file/in", 0);
	unlinkat(f->place_fd, "dir-file", AT_REMOVEDIR);
	put_text(f->place_fd, "dir-file", "now a file");
	unlinkat(f->place_fd, "link-file", 0);
	put_text(f->place_fd, "link-file", "now a file");
	unlinkat(f->place_fd, "file-link", 0);
	assert_return_code(symlinkat("u", f->place_fd, "file-link"), errno);
	unlinkat(f->place_fd, "dir-link/in", 0);
	unlinkat(f->place_fd, "dir-link", AT_REMOVEDIR);
	assert_return_code(symlinkat("v", f->place_fd, "dir-link"), errno);
	unlinkat(f->place_fd, "link-dir", 0);
	close(open_made(f->place_fd, "link-dir"));
	put_text(f->place_fd, "link-dir/in", "new");
	files_fetch(f);
	files_apply(f, NULL, &told, NULL);
	for (size_t i = 0; i < told.count; i++)
		expect_fate(&told, told.items[i].path, FATE_APPLIED);
	expect_text(f->host_fd, "file-dir/in", "new");
	expect_text(f->host_fd, "dir-file", "now a file");
	expect_text(f->host_fd, "link-file", "now a file");
	assert_int_equal(readlinkat(f->host_fd, "file-link", target, 16), 1);
	assert_int_equal(target[0], 'u');
	assert_int_equal(readlinkat(f->host_fd, "dir-link", target, 16), 1);
	assert_int_equal(target[0], 'v');
	expect_text(f->host_fd, "link-dir/in", "new");
	assert_return_code(fstatat(f->host_fd, "link-dir", &st, AT_SYMLINK_NOFOLLOW), errno);
	assert_true(S_ISDIR(st.st_mode));
}

static void a_directory_that_became_a_file_yields_to_what_somebody_put_into_it(void **state)
{
	struct files *f = *state;
	struct told_list told;
	char beside[600];

	close(open_made(f->host_fd, "d"));
	put_text(f->host_fd, "d/in", "x");
	files_stage(f);
	unlinkat(f->place_fd, "d/in", 0);
	unlinkat(f->place_fd, "d", AT_REMOVEDIR);
	put_text(f->place_fd, "d", "file");
	put_text(f->host_fd, "d/mine", "mine");
	files_fetch(f);
	files_apply(f, NULL, &told, NULL);
	expect_text(f->host_fd, "d/mine", "mine");
	assert_false(exists(f->host_fd, "d/in"));
	expect_text(f->host_fd, beside_name(f, "d", beside), "file");
	expect_fate(&told, "d", FATE_CONFLICT);
}

static void what_is_in_the_way_of_a_directory_is_gone_around(void **state)
{
	struct files *f = *state;
	struct told_list told;
	char beside[600], in[620];

	close(open_made(f->host_fd, "d"));
	put_text(f->host_fd, "d/in", "x");
	files_stage(f);
	put_text(f->place_fd, "d/in", "place");
	put_text(f->place_fd, "d/new", "new");
	close(open_made(f->place_fd, "d/sub"));
	put_text(f->place_fd, "d/sub/deep", "deep");
	close(open_made(f->place_fd, "e"));
	put_text(f->place_fd, "e/in", "e");
	put_text(f->host_fd, "e", "a file of the host");
	unlinkat(f->host_fd, "d/in", 0);
	unlinkat(f->host_fd, "d", AT_REMOVEDIR);
	/* A person made a link of it that leads out. */
	close(open_made(f->fd, "outside"));
	assert_return_code(symlinkat("../outside", f->host_fd, "d"), errno);
	files_fetch(f);
	files_apply(f, NULL, &told, NULL);
	assert_int_equal(count_entries(f->fd, "outside"), 0);
	beside_name(f, "d", beside);
	snprintf(in, sizeof(in), "%s/in", beside);
	expect_text(f->host_fd, in, "place");
	snprintf(in, sizeof(in), "%s/new", beside);
	expect_text(f->host_fd, in, "new");
	snprintf(in, sizeof(in), "%s/sub/deep", beside);
	expect_text(f->host_fd, in, "deep");
	assert_string_equal(told_of(&told, "d/sub/deep")->beside, in);
	expect_fate(&told, "d/sub/deep", FATE_CONFLICT);
	expect_text(f->host_fd, "e", "a file of the host");
	beside_name(f, "e", beside);
	snprintf(in, sizeof(in), "%s/in", beside);
	expect_text(f->host_fd, in, "e");
}

static mode_t mode_of(int dir, const char *path)
{
	struct stat st;

	assert_return_code(fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW), errno);
	return st.st_mode & 07777;
}

static void modes_come_back_without_setuid_and_read_only_directories_are_filled(void **state)
{
	struct files *f = *state;
	struct told_list told;
	struct stat before, after;

	put_text(f->host_fd, "tool", "#!/bin/sh\n");
	put_text(f->host_fd, "edited", "x");
	files_stage(f);
	(void)!fchmodat(f->place_fd, "tool", 04755, 0);
	put_bytes(f->place_fd, "edited", "y", 1, 06711);
	close(open_made(f->place_fd, "ro"));
	put_text(f->place_fd, "ro/in", "in");
	(void)!fchmodat(f->place_fd, "ro", 0555, 0);
	fstatat(f->host_fd, "tool", &before, 0);
	files_fetch(f);
	files_apply(f, NULL, &told, NULL);
	fstatat(f->host_fd, "tool", &after, 0);
	assert_int_equal(mode_of(f->host_fd, "tool"), 0755);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(told_of(&told, "tool")->kind, CHANGE_MODE);
	assert_int_equal(mode_of(f->host_fd, "edited"), 0711);
	assert_int_equal(mode_of(f->host_fd, "ro"), 0555);
	expect_text(f->host_fd, "ro/in", "in");
}

static void owners_are_those_of_the_file_replaced_or_of_the_directory(void **state)
{
	struct files *f = *state;
	struct stat st;

	if (geteuid() != 0)
		skip();
	put_text(f->host_fd, "a", "x");
	close(open_made(f->host_fd, "d"));
	(void)!fchownat(f->host_fd, "a", 1234, 1235, 0);
	(void)!fchownat(f->host_fd, "d", 1236, 1237, 0);
	files_stage(f);
	put_text(f->place_fd, "a", "y");
	put_text(f->place_fd, "d/new", "y");
	(void)!symlinkat("x", f->place_fd, "d/link");
	files_fetch(f);
	files_apply(f, NULL, NULL, NULL);
	fstatat(f->host_fd, "a", &st, 0);
	assert_int_equal(st.st_uid, 1234);
	assert_int_equal(st.st_gid, 1235);
	fstatat(f->host_fd, "d/new", &st, 0);
	assert_int_equal(st.st_uid, 1236);
	fstatat(f->host_fd, "d/link", &st, AT_SYMLINK_NOFOLLOW);
	assert_int_equal(st.st_gid, 1237);
}

/* Root has collected once; the next one may be a server of the owner's own. */
static void what_is_kept_in_a_workspace_is_its_owners(void **state)
{
	static const char *const names[] = { ".berth", ".berth/lock", ".berth/.gitignore" };
	struct files *f = *state;
	struct stat st;

	if (geteuid() != 0)
		skip();
	assert_int_equal(fchown(f->host_fd, 1234, 1235), 0);
	put_text(f->host_fd, "a", "x");
	files_stage(f);
	put_text(f->place_fd, "a", "y");
	files_fetch(f);
	files_apply(f, NULL, NULL, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		assert_int_equal(fstatat(f->host_fd, names[i], &st, 0), 0);
		assert_int_equal(st.st_uid, 1234);
		assert_int_equal(st.st_gid, 1235);
	}
}

static void W29_links_come_verbatim_and_those_that_escape_are_listed(void **state)
{
	struct files *f = *state;
	struct told_list told;
	char target[64] = "";

	close(open_made(f->host_fd, "d"));
	files_stage(f);
	(void)!symlinkat("/etc/passwd", f->place_fd, "absolute");
	(void)!symlinkat("../../x", f->place_fd, "d/up");
	(void)!symlinkat("../ok", f->place_fd, "d/inside");
	(void)!symlinkat("loop", f->place_fd, "loop");
	(void)!symlinkat("nowhere", f->place_fd, "dangling");
	files_fetch(f);
	files_apply(f, NULL, &told, NULL);
	assert_int_equal(readlinkat(f->host_fd, "absolute", target, 64), 11);
	assert_string_equal(target, "/etc/passwd");
	for (size_t i = 0; i < told.count; i++)
		expect_fate(&told, told.items[i].path, FATE_APPLIED);
	assert_non_null(strstr(told_of(&told, "absolute")->reason, "out of the workspace"));
	assert_non_null(strstr(told_of(&told, "d/up")->reason, "out of the workspace"));
	assert_string_equal(told_of(&told, "d/inside")->reason, "");
	assert_string_equal(told_of(&told, "dangling")->reason, "");
}

static void hard_links_come_as_files_and_the_report_says_so(void **state)
{
	struct files *f = *state;
	struct told_list told;

	put_text(f->host_fd, "a", "one");
	(void)!linkat(f->host_fd, "a", f->host_fd, "b", 0);
	files_stage(f);
	put_text(f->place_fd, "a", "two"); /* in the place a and b are one file as well */
	files_fetch(f);
	files_apply(f, NULL, &told, NULL);
	expect_text(f->host_fd, "a", "two");
	expect_text(f->host_fd, "b", "two");
	assert_non_null(strstr(told_of(&told, "a")->reason, "hard link"));
}

static void strange_names_and_sparse_files_come_home(void **state)
{
	struct files *f = *state;
	static const char *const names[] = { "new\nline", "\xff\xfe", " blank ", "-dash",
					     "Case",      "case",     "quote\"'" };
	char longest[256];
	struct stat st;
	int fd;

	memset(longest, 'n', 255);
	longest[255] = '\0';
	files_stage(f);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		put_text(f->place_fd, names[i], names[i]);
	put_text(f->place_fd, longest, "long");
	fd = openat(f->place_fd, "sparse", O_WRONLY | O_CREAT, 0644);
	assert_int_equal(pwrite(fd, "end", 3, 64 << 20), 3);
	assert_return_code(ftruncate(fd, 128 << 20), errno);
	close(fd);
	/* The fixture's blobs are not sparse; this one is made as the relay tells it. */
	files_fetch(f);
	files_apply(f, NULL, NULL, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		expect_text(f->host_fd, names[i], names[i]);
	expect_text(f->host_fd, longest, "long");
	fstatat(f->host_fd, "sparse", &st, 0);
	assert_int_equal(st.st_size, 128 << 20);
}

static void holes_of_a_blob_stay_holes(void **state)
{
	struct files *f = *state;
	struct tree_entry entry = { .path = "s",
				    .path_len = 1,
				    .type = TREE_FILE,
				    .mode = 0644,
				    .size = (64 << 20) + 3 + (32 << 20),
				    .flags = TREE_HAS_HASH };
	struct blob_writer *w;
	struct error err = { 0 };
	struct stat st;
	char text[4] = "";
	int fd;

	files_stage(f);
	must(blob_create(f->run_fd, &w, &err), &err);
	must(blob_hole(w, 64 << 20, &err), &err);
	must(blob_append(w, "end", 3, &err), &err);
	must(blob_hole(w, 32 << 20, &err), &err);
	must(blob_commit(w, entry.sha256, &err), &err);
	files_forge(f, &entry, 1);
	files_apply(f, NULL, NULL, NULL);
	fd = openat(f->host_fd, "s", O_RDONLY);
	fstat(fd, &st);
	assert_int_equal(st.st_size, entry.size);
	assert_true(st.st_blocks < 4096);
	assert_int_equal(pread(fd, text, 3, 64 << 20), 3);
	assert_string_equal(text, "end");
	close(fd);
}

/* --- somebody else at work --- */

struct person {
	struct files *f;
	const char *step;
	int calls, at; /* at its how manieth call */
	void (*act)(struct files *f);
};

static void meddle(void *arg, const char *step)
{
	struct person *p = arg;

	if (streq(step, p->step) && ++p->calls == p->at)
		p->act(p->f);
}

static void edit_in_place(struct files *f)
{
	put_text(f->host_fd, "a", "the person's");
}

static void edit_by_rename(struct files *f)
{
	save_text(f->host_fd, "a", "the person's");
}

static void edit_newer(struct files *f)
{
	save_text(f->host_fd, "a", "newer");
}

static void delete_it(struct files *f)
{
	unlinkat(f->host_fd, "a", 0);
}

static void replace_by_dir(struct files *f)
{
	unlinkat(f->host_fd, "a", 0);
	close(open_made(f->host_fd, "a"));
	put_text(f->host_fd, "a/in", "the person's");
}

static void meddled(struct files *f, const char *step, void (*act)(struct files *f),
		    struct told_list *told)
{
	struct person person = { .f = f, .step = step, .at = 1, .act = act };
	struct apply_options options = { .cancel_fd = -1,
					 .at_step = meddle,
					 .at_step_arg = &person };

	files_apply(f, &options, told, NULL);
	assert_true(person.calls >= 1);
}

static void stage_a(struct files *f, const char *place)
{
	put_text(f->host_fd, "a", "base");
	files_stage(f);
	if (place)
		put_text(f->place_fd, "a", place);
	else
		unlinkat(f->place_fd, "a", 0);
	files_fetch(f);
}

static void W5_an_edit_in_the_last_moment_before_the_swap_survives(void **state)
{
	struct files *f = *state;
	struct told_list told;
	char beside[600];

	stage_a(f, "place");
	meddled(f, "workspace.apply.swap", edit_in_place, &told);
	expect_text(f->host_fd, "a", "the person's");
	expect_text(f->host_fd, beside_name(f, "a", beside), "place");
	expect_fate(&told, "a", FATE_CONFLICT);
}

static void a_save_by_rename_before_the_swap_survives(void **state)
{
	struct files *f = *state;
	struct told_list told;

	stage_a(f, "place");
	meddled(f, "workspace.apply.swap", edit_by_rename, &told);
	expect_text(f->host_fd, "a", "the person's");
	expect_fate(&told, "a", FATE_CONFLICT);
}

static void a_save_after_the_swap_is_newer_than_what_was_collected(void **state)
{
	struct files *f = *state;
	struct told_list told;

	stage_a(f, "place");
	meddled(f, "workspace.apply.check", edit_by_rename, &told);
	expect_text(f->host_fd, "a", "the person's");
	expect_fate(&told, "a", FATE_APPLIED);
}

struct two {
	struct person first, second;
};

static void meddle_twice(void *arg, const char *step)
{
	struct two *t = arg;

	meddle(&t->first, step);
	meddle(&t->second, step);
}

static void two_saves_around_the_swap_are_both_kept(void **state)
{
	struct files *f = *state;
	struct told_list told;
	char beside[600], second[620];
	struct two two = {
		{ .f = f, .step = "workspace.apply.swap", .at = 1, .act = edit_in_place },
		{ .f = f, .step = "workspace.apply.back", .at = 1, .act = edit_newer },
	};
	struct apply_options options = { .cancel_fd = -1,
					 .at_step = meddle_twice,
					 .at_step_arg = &two };

	stage_a(f, "place");
	files_apply(f, &options, &told, NULL);
	expect_text(f->host_fd, "a", "newer");
	expect_text(f->host_fd, beside_name(f, "a", beside), "the person's");
	snprintf(second, sizeof(second), "%s.2", beside);
	expect_text(f->host_fd, second, "place");
	assert_string_equal(told_of(&told, "a")->beside, second);
	assert_non_null(strstr(told_of(&told, "a")->reason, beside));
}

static void a_file_deleted_before_the_swap_stays_deleted(void **state)
{
	struct files *f = *state;
	struct told_list told;
	char beside[600];

	stage_a(f, "place");
	meddled(f, "workspace.apply.swap", delete_it, &told);
	assert_false(exists(f->host_fd, "a"));
	expect_text(f->host_fd, beside_name(f, "a", beside), "place");
}

static void a_file_that_became_a_directory_before_the_swap_is_put_back(void **state)
{
	struct files *f = *state;
	struct told_list told;
	char beside[600];

	stage_a(f, "place");
	meddled(f, "workspace.apply.swap", replace_by_dir, &told);
	expect_text(f->host_fd, "a/in", "the person's");
	expect_text(f->host_fd, beside_name(f, "a", beside), "place");
}

static void an_edit_before_the_deletion_survives(void **state)
{
	struct files *f = *state;
	struct told_list told;

	stage_a(f, NULL);
	meddled(f, "workspace.apply.out", edit_in_place, &told);
	expect_text(f->host_fd, "a", "the person's");
	expect_fate(&told, "a", FATE_KEPT_HOST);
}

static void a_name_taken_again_during_the_deletion_costs_neither_version(void **state)
{
	struct files *f = *state;
	struct told_list told;
	struct two two = {
		{ .f = f, .step = "workspace.apply.out", .at = 1, .act = edit_in_place },
		{ .f = f, .step = "workspace.apply.back", .at = 1, .act = edit_newer },
	};
	struct apply_options options = { .cancel_fd = -1,
					 .at_step = meddle_twice,
					 .at_step_arg = &two };

	stage_a(f, NULL);
	files_apply(f, &options, &told, NULL);
	expect_text(f->host_fd, "a", "newer");
	expect_text(f->host_fd, told_of(&told, "a")->beside, "the person's");
}

static void make_it(struct files *f)
{
	put_text(f->host_fd, "n", "the person's");
}

static void make_it_the_same(struct files *f)
{
	put_text(f->host_fd, "n", "place");
}

static void a_new_file_never_lands_on_one_that_came_in_between(void **state)
{
	struct files *f = *state;
	struct told_list told;
	char beside[600];

	files_stage(f);
	put_text(f->place_fd, "n", "place");
	files_fetch(f);
	meddled(f, "workspace.apply.put", make_it, &told);
	expect_text(f->host_fd, "n", "the person's");
	expect_text(f->host_fd, beside_name(f, "n", beside), "place");
}

static void the_same_file_made_in_between_is_nothing_to_do(void **state)
{
	struct files *f = *state;
	struct told_list told;

	files_stage(f);
	put_text(f->place_fd, "n", "place");
	files_fetch(f);
	meddled(f, "workspace.apply.put", make_it_the_same, &told);
	expect_fate(&told, "n", FATE_SAME);
	assert_int_equal(count_entries(f->host_fd, "."), 1);
}

static void a_file_that_is_open_for_writing_is_not_replaced(void **state)
{
	struct files *f = *state;
	struct told_list told;
	int fd;

	stage_a(f, "place");
	fd = openat(f->host_fd, "a", O_WRONLY);
	files_apply(f, NULL, &told, NULL);
	expect_fate(&told, "a", FATE_CONFLICT);
	/* So what is still to be written goes where its writer believes. */
	assert_int_equal(pwrite(fd, "late", 4, 0), 4);
	close(fd);
	expect_text(f->host_fd, "a", "late");
}

static void dir_to_link(struct files *f)
{
	(void)!renameat(f->host_fd, "d", f->host_fd, "moved");
	(void)!symlinkat("../outside", f->host_fd, "d");
}

static void a_directory_swapped_for_a_link_while_collecting_leads_nowhere(void **state)
{
	struct files *f = *state;
	struct told_list told;

	close(open_made(f->fd, "outside"));
	put_text(f->fd, "outside/a", "canary");
	close(open_made(f->host_fd, "d"));
	put_text(f->host_fd, "d/a", "base");
	put_text(f->host_fd, "d/b", "base");
	files_stage(f);
	put_text(f->place_fd, "d/a", "place");
	put_text(f->place_fd, "d/new", "place");
	unlinkat(f->place_fd, "d/b", 0);
	put_text(f->fd, "outside/b", "canary");
	files_fetch(f);
	meddled(f, "workspace.apply.intended", dir_to_link, &told);
	expect_text(f->fd, "outside/a", "canary");
	expect_text(f->fd, "outside/b", "canary");
	assert_int_equal(count_entries(f->fd, "outside"), 2);
	expect_text(f->host_fd, "moved/a", "base");
	expect_fate(&told, "d/a", FATE_CONFLICT);
	expect_text(f->host_fd, told_of(&told, "d/a")->beside, "place");
	expect_text(f->host_fd, told_of(&told, "d/new")->beside, "place");
}

/* --- hostile results --- */

static void W3_nothing_under_a_git_directory_is_taken_from_a_place(void **state)
{
	struct files *f = *state;
	struct told_list told;
	struct tree_entry entries[5];

	close(open_made(f->host_fd, ".git"));
	put_text(f->host_fd, ".git/config", "[core]\n");
	files_stage(f);
	entries[0] = forge_file(f, ".berth/lock", "x");
	entries[1] = forge_file(f, ".git/config", "[core]\n\tfsmonitor = touch /tmp/x\n");
	entries[2] = forge_file(f, ".git/hooks/post-checkout", "x");
	entries[3] = forge_file(f, "vendor/.GIT/config", "x");
	entries[4] = (struct tree_entry){ .path = "vendor/.git",
					  .path_len = 11,
					  .type = TREE_SYMLINK,
					  .target = "/tmp",
					  .target_len = 4 };
	files_forge(f, entries, 5);
	files_apply(f, NULL, &told, NULL);
	for (size_t i = 0; i < told.count; i++)
		expect_fate(&told, told.items[i].path, FATE_REFUSED);
	expect_text(f->host_fd, ".git/config", "[core]\n");
	assert_false(exists(f->host_fd, ".git/hooks"));
	assert_false(exists(f->host_fd, "vendor"));
}

static void damaged_contents_cost_that_file_and_no_other(void **state)
{
	struct files *f = *state;
	struct told_list told;
	struct tree_entry entries[2];
	char hex[65], path[128];

	put_text(f->host_fd, "a", "base");
	files_stage(f);
	entries[0] = forge_file(f, "a", "place");
	entries[1] = forge_file(f, "b", "good");
	hex_encode(hex, entries[0].sha256, 32);
	snprintf(path, sizeof(path), "blobs/%s", hex);
	put_text(f->run_fd, path, "plac!");
	files_forge(f, entries, 2);
	files_apply(f, NULL, &told, NULL);
	expect_fate(&told, "a", FATE_REFUSED);
	expect_text(f->host_fd, "a", "base");
	expect_text(f->host_fd, "b", "good");
}

static void a_link_in_place_of_the_staging_directory_is_not_followed(void **state)
{
	struct files *f = *state;
	struct apply_options options = { .cancel_fd = -1 };
	struct apply_report report;
	struct error err = { 0 };

	stage_a(f, "place");
	close(open_made(f->fd, "outside"));
	(void)!symlinkat("../outside", f->host_fd, ".berth");
	assert_int_equal(results_apply(&f->results, &f->state, &options, NULL, NULL, &report, &err),
			 -1);
	error_clear(&err);
	assert_int_equal(count_entries(f->fd, "outside"), 0);
	expect_text(f->host_fd, "a", "base");
}

/* --- again, in part, not at all --- */

static void applying_twice_does_nothing_the_second_time(void **state)
{
	struct files *f = *state;
	struct told_list told;
	struct apply_report report;

	stage_a(f, "place");
	files_apply(f, NULL, NULL, NULL);
	put_text(f->host_fd, "a", "the person's, later");
	files_apply(f, NULL, &told, &report);
	expect_text(f->host_fd, "a", "the person's, later");
	assert_int_equal(report.modified, 1);
	assert_int_equal(count_entries(f->host_fd, "."), 6);
}

static void what_was_refused_is_tried_again(void **state)
{
	struct files *f = *state;
	struct told_list told;
	struct tree_entry entry;
	char hex[65], path[128];

	put_text(f->host_fd, "a", "base");
	files_stage(f);
	entry = forge_file(f, "a", "place");
	hex_encode(hex, entry.sha256, 32);
	snprintf(path, sizeof(path), "blobs/%s", hex);
	put_text(f->run_fd, path, "torn");
	files_forge(f, &entry, 1);
	files_apply(f, NULL, &told, NULL);
	expect_fate(&told, "a", FATE_REFUSED);
	put_text(f->run_fd, path, "place");
	files_apply(f, NULL, &told, NULL);
	expect_fate(&told, "a", FATE_APPLIED);
	expect_text(f->host_fd, "a", "place");
}

static void a_dry_run_touches_nothing_and_says_what_would_be(void **state)
{
	struct files *f = *state;
	struct told_list told;
	struct apply_options options = { .cancel_fd = -1, .dry_run = true };
	char beside[600];

	put_text(f->host_fd, "a", "base");
	put_text(f->host_fd, "b", "base");
	files_stage(f);
	put_text(f->place_fd, "a", "place");
	put_text(f->place_fd, "b", "place");
	put_text(f->host_fd, "b", "host");
	files_fetch(f);
	files_apply(f, &options, &told, NULL);
	expect_fate(&told, "a", FATE_APPLIED);
	expect_fate(&told, "b", FATE_CONFLICT);
	assert_string_equal(told_of(&told, "b")->beside, beside_name(f, "b", beside));
	expect_text(f->host_fd, "a", "base");
	assert_int_equal(count_entries(f->host_fd, "."), 2);
	assert_false(exists(f->run_fd, RESULTS_JOURNAL));
}

static void a_second_collect_waits_and_is_told(void **state)
{
	struct files *f = *state;
	struct apply_options options = { .cancel_fd = -1 };
	struct apply_report report;
	struct error err = { 0 };
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int cancel = latch_new(&err), fd;

	stage_a(f, "place");
	close(open_made(f->host_fd, ".berth"));
	fd = openat(f->host_fd, ".berth/lock", O_RDWR | O_CREAT, 0600);
	assert_return_code(fcntl(fd, F_OFD_SETLK, &lock), errno);
	latch_set(cancel);
	options.cancel_fd = cancel;
	assert_int_equal(results_apply(&f->results, &f->state, &options, NULL, NULL, &report, &err),
			 -1);
	assert_int_equal(err.code, ERR_CANCELLED);
	error_clear(&err);
	close(fd);
	options.cancel_fd = -1;
	must(results_apply(&f->results, &f->state, &options, NULL, NULL, &report, &err), &err);
	expect_text(f->host_fd, "a", "place");
	close(cancel);
}

static void without_exchange_files_are_taken_out_and_put_in(void **state)
{
	struct files *f = *state;
	struct told_list told;
	char beside[600];

	put_text(f->host_fd, "a", "base");
	put_text(f->host_fd, "b", "base");
	put_text(f->host_fd, "gone", "base");
	files_stage(f);
	put_text(f->place_fd, "a", "place");
	put_text(f->place_fd, "b", "place");
	put_text(f->place_fd, "new", "place");
	close(open_made(f->place_fd, "dir"));
	unlinkat(f->place_fd, "gone", 0);
	files_fetch(f);
	arm("workspace.apply.probe:skip");
	meddled(f, "workspace.apply.swap", edit_in_place, &told);
	arm(NULL);
	expect_text(f->host_fd, "a", "the person's");
	expect_text(f->host_fd, beside_name(f, "a", beside), "place");
	expect_text(f->host_fd, "b", "place");
	expect_text(f->host_fd, "new", "place");
	assert_false(exists(f->host_fd, "gone"));
	assert_true(exists(f->host_fd, "dir"));
	expect_fate(&told, "a", FATE_CONFLICT);
	expect_fate(&told, "b", FATE_APPLIED);
}

static void a_mount_inside_the_workspace_is_left_alone(void **state)
{
	struct files *f = *state;
	pid_t pid;
	int status;

	if (geteuid() != 0)
		skip();
	close(open_made(f->host_fd, "m"));
	files_stage(f);
	put_text(f->place_fd, "m/new", "place");
	put_text(f->place_fd, "b", "place");
	files_fetch(f);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		struct told_list told;
		char path[128];

		snprintf(path, sizeof(path), "%s/host/m", f->path);
		if (unshare(CLONE_NEWNS) < 0 ||
		    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		    mount("tmpfs", path, "tmpfs", 0, NULL) < 0)
			_exit(77);
		files_apply(f, NULL, &told, NULL);

		const struct told *inside = told_of(&told, "m/new"), *other = told_of(&told, "b");

		_exit(inside && inside->fate == FATE_REFUSED && strstr(inside->reason, "mounted") &&
				      other && other->fate == FATE_APPLIED
			      ? 0
			      : 1);
	}
	waitpid(pid, &status, 0);
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

/* In a process of its own: how far it came, 0 at the end. */
static int apply_to_a_full_disk(struct files *f)
{
	static char large[1 << 20];
	const struct apply_options options = { .cancel_fd = -1 };
	struct apply_report report;
	struct error err = { 0 };
	struct stat st;
	char path[128];

	snprintf(path, sizeof(path), "%s/host", f->path);
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", path, "tmpfs", 0, "size=256k") < 0)
		return 77;
	/* By its path: the descriptors from before are of the tree without the mount. */
	close(f->host_fd);
	f->host_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	put_text(f->host_fd, "a", "old");
	files_stage(f);
	memset(large, 'x', sizeof(large));
	put_bytes(f->place_fd, "a", large, sizeof(large), 0644);
	put_text(f->place_fd, "b", "place");
	files_fetch(f);
	if (results_apply(&f->results, &f->state, &options, NULL, NULL, &report, &err) == 0 ||
	    err.code != ERR_DISK_FULL)
		return 1;
	expect_text(f->host_fd, "a", "old");
	error_clear(&err);
	if (mount("tmpfs", path, "tmpfs", MS_REMOUNT, "size=16m") < 0)
		return 77;
	if (results_apply(&f->results, &f->state, &options, NULL, NULL, &report, &err) < 0)
		return 2;
	expect_text(f->host_fd, "b", "place");
	return fstatat(f->host_fd, "a", &st, 0) == 0 && st.st_size == sizeof(large) ? 0 : 3;
}

static void a_full_disk_leaves_the_old_file_and_applying_again_finishes(void **state)
{
	struct files *f = *state;
	pid_t pid;
	int status;

	if (geteuid() != 0)
		skip();
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(apply_to_a_full_disk(f));
	waitpid(pid, &status, 0);
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_files(WS_42_what_the_place_edited_comes_home_and_what_it_did_not_stays),
		with_files(WS_44_a_file_deleted_in_the_place_goes_and_what_was_never_staged_stays),
		with_files(WS_45_a_file_made_on_the_host_after_staging_survives),
		with_files(WS_46_two_runs_of_one_base_add_to_the_same_new_directory),
		with_files(WS_47_sockets_and_fifos_on_either_side_do_no_harm),
		with_files(WS_52_applying_leaves_no_temporary_file_behind),
		with_files(what_was_displaced_is_kept_and_hidden_from_git),
		with_files(a_repository_has_the_staging_directory_inside_git),
		with_files(changed_on_both_sides_both_are_kept),
		with_files(names_of_conflicts_collide_with_nothing),
		with_files(types_change_every_way),
		with_files(a_directory_that_became_a_file_yields_to_what_somebody_put_into_it),
		with_files(what_is_in_the_way_of_a_directory_is_gone_around),
		with_files(modes_come_back_without_setuid_and_read_only_directories_are_filled),
		with_files(owners_are_those_of_the_file_replaced_or_of_the_directory),
		with_files(what_is_kept_in_a_workspace_is_its_owners),
		with_files(W29_links_come_verbatim_and_those_that_escape_are_listed),
		with_files(hard_links_come_as_files_and_the_report_says_so),
		with_files(strange_names_and_sparse_files_come_home),
		with_files(holes_of_a_blob_stay_holes),
		with_files(W5_an_edit_in_the_last_moment_before_the_swap_survives),
		with_files(a_save_by_rename_before_the_swap_survives),
		with_files(a_save_after_the_swap_is_newer_than_what_was_collected),
		with_files(two_saves_around_the_swap_are_both_kept),
		with_files(a_file_deleted_before_the_swap_stays_deleted),
		with_files(a_file_that_became_a_directory_before_the_swap_is_put_back),
		with_files(an_edit_before_the_deletion_survives),
		with_files(a_name_taken_again_during_the_deletion_costs_neither_version),
		with_files(a_new_file_never_lands_on_one_that_came_in_between),
		with_files(the_same_file_made_in_between_is_nothing_to_do),
		with_files(a_file_that_is_open_for_writing_is_not_replaced),
		with_files(a_directory_swapped_for_a_link_while_collecting_leads_nowhere),
		with_files(W3_nothing_under_a_git_directory_is_taken_from_a_place),
		with_files(damaged_contents_cost_that_file_and_no_other),
		with_files(a_link_in_place_of_the_staging_directory_is_not_followed),
		with_files(applying_twice_does_nothing_the_second_time),
		with_files(what_was_refused_is_tried_again),
		with_files(a_dry_run_touches_nothing_and_says_what_would_be),
		with_files(a_second_collect_waits_and_is_told),
		with_files(without_exchange_files_are_taken_out_and_put_in),
		with_files(a_mount_inside_the_workspace_is_left_alone),
		with_files(a_full_disk_leaves_the_old_file_and_applying_again_finishes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

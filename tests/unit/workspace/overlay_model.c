/*
 * Random work in a real overlay, and what overlay_fetch says of it, against a plain model: the tree
 * as it was before and as it is after, compared by somebody who knows nothing of layers. As root
 * with both kinds of attributes, and as an ordinary user in a user namespace.
 */
#include "../base/tempdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/sha256.h"
#include "base/text.h"
#include "wire/hidden_paths.h"
#include "workspace/overlay.h"

#define SEEDS 25
#define NOBODY 65534
#define ENTRIES_MAX 400

enum mode { ROOT_TRUSTED, ROOT_USER, AS_NOBODY };

/* ---- the model ---- */

struct seen {
	char path[256];
	mode_t mode;
	uint8_t hash[SHA256_SIZE]; /* of content or target */
};
struct view {
	struct seen items[ENTRIES_MAX];
	size_t count;
};

static bool is_ignored(const char *path)
{
	const char *object = strstr(path, ".o");

	return (object && (object[2] == '\0' || object[2] == '/')) || streq(path, "out") ||
	       str_starts(path, "out/");
}

static void look_at(struct view *v, int root, const char *path)
{
	struct seen *s = &v->items[v->count];
	struct stat st;

	if (fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || is_ignored(path) ||
	    S_ISFIFO(st.st_mode))
		return;
	*s = (struct seen){ .mode = st.st_mode };
	snprintf(s->path, sizeof(s->path), "%.255s", path);
	if (S_ISREG(st.st_mode)) {
		_cleanup_buf_ struct buf text = { 0 };

		if (file_read(root, path, &text, 1 << 22, NULL) < 0)
			_exit(50);
		sha256_once(text.data ? text.data : "", text.len, s->hash);
	} else if (S_ISLNK(st.st_mode)) {
		char target[256];
		ssize_t n = readlinkat(root, path, target, sizeof(target));

		sha256_once(target, n > 0 ? (size_t)n : 0, s->hash);
	}
	if (++v->count == ENTRIES_MAX)
		_exit(51);
}

static void take_view(struct view *v, int root, const char *dir)
{
	int fd = openat(root, dir[0] ? dir : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *list = fdopendir(fd);
	struct dirent *entry;

	while ((entry = readdir(list))) {
		char path[600];
		struct stat st;

		if (streq(entry->d_name, ".") || streq(entry->d_name, ".."))
			continue;
		snprintf(path, sizeof(path), "%s%s%s", dir, dir[0] ? "/" : "", entry->d_name);
		look_at(v, root, path);
		if (fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
			take_view(v, root, path);
	}
	closedir(list);
}

static const struct seen *view_find(const struct view *v, const char *path)
{
	for (size_t i = 0; i < v->count; i++)
		if (streq(v->items[i].path, path))
			return &v->items[i];
	return NULL;
}

static bool is_same(const struct seen *a, const struct seen *b)
{
	if ((a->mode & S_IFMT) != (b->mode & S_IFMT))
		return false;
	if (S_ISREG(a->mode) && (a->mode & 0777) != (b->mode & 0777))
		return false;
	return memcmp(a->hash, b->hash, sizeof(a->hash)) == 0;
}

/* ---- random work ---- */

static unsigned luck;

static unsigned pick(unsigned n)
{
	luck = luck * 1664525u + 1013904223u;
	return (luck >> 8) % n;
}

static void pick_name(char out[64])
{
	static const char *const parts[] = { "a", "a-b", "b", "dir", "x\ny", "\xff", "z.o", "out" };

	unsigned depth = 1 + pick(3);

	out[0] = '\0';
	for (unsigned i = 0; i < depth; i++)
		snprintf(out + strlen(out), 64 - strlen(out), "%s%s", i ? "/" : "",
			 parts[pick(ARRAY_SIZE(parts))]);
}

static void put(int root, const char *path, unsigned what)
{
	char text[64];
	int fd = openat(root, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK, 0644);
	int len = snprintf(text, sizeof(text), "content %u of something\n", what);

	if (fd < 0)
		return;
	if (what % 7 == 0 && lseek(fd, 100000, SEEK_SET) < 0)
		_exit(52);
	if (write(fd, text, (size_t)len) != len)
		_exit(53);
	close(fd);
}

static void remove_at(int root, const char *path)
{
	if (unlinkat(root, path, 0) < 0)
		dir_remove_tree(root, path, NULL);
}

static void work(int root, bool in_place)
{
	char path[64], other[64];
	int r = 0; /* much of it cannot be done, and that is as well */

	pick_name(path);
	pick_name(other);
	switch (pick(in_place ? 12 : 4)) {
	case 0:
	case 1:
		put(root, path, pick(9));
		break;
	case 2:
		r = mkdirat(root, path, 0755);
		break;
	case 3:
		r = symlinkat(other, root, path);
		break;
	case 4:
		remove_at(root, path);
		break;
	case 5:
		r = renameat(root, path, root, other);
		break;
	case 6:
		r = fchmodat(root, path, 0600 + pick(2) * 0155, 0);
		break;
	case 7: /* what is there is not what was there */
		remove_at(root, path);
		if (pick(2))
			r = mkdirat(root, path, 0755);
		else
			put(root, path, pick(9));
		break;
	case 8:
		r = linkat(root, path, root, other, 0);
		break;
	case 9: /* copied up, and nothing changed */
		r = utimensat(root, path, NULL, AT_SYMLINK_NOFOLLOW);
		break;
	case 10:
		r = mkfifoat(root, path, 0644);
		break;
	case 11: {
		/* Gone and back as it was. */
		_cleanup_buf_ struct buf text = { 0 };
		int fd;

		if (file_read(root, path, &text, 1 << 22, NULL) < 0)
			break;
		unlinkat(root, path, 0);
		fd = openat(root, path, O_WRONLY | O_CREAT | O_EXCL, 0644);
		if (fd >= 0 && write(fd, text.data, text.len) >= 0)
			close(fd);
		break;
	}
	}
	(void)r;
}

/* ---- one world ---- */

static void write_map(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		_exit(60);
	close(fd);
}

static void enter_world(enum mode mode, const char *dir)
{
	char text[32];

	if (mode == AS_NOBODY) {
		if (chown(dir, NOBODY, NOBODY) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
			_exit(61);
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
			_exit(77);
		prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
		snprintf(text, sizeof(text), "0 %d 1", NOBODY);
		write_map("/proc/self/uid_map", text);
		write_map("/proc/self/setgroups", "deny");
		write_map("/proc/self/gid_map", text);
	} else if (unshare(CLONE_NEWNS) < 0) {
		_exit(62);
	}
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || chdir(dir) < 0)
		_exit(63);
}

static int open_dir(const char *name)
{
	int fd;

	if (mkdir(name, 0755) < 0 && errno != EEXIST)
		_exit(64);
	fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd >= 0 ? fd : (_exit(65), -1);
}

/* As the sandbox does it. */
static void hide(int upper, int run)
{
	_cleanup_buf_ struct buf list = { 0 };

	mask_add(&list, MASK_HIDDEN, "out", NULL);
	mask_add(&list, MASK_HIDDEN, "secret.o", NULL);
	if (mknodat(upper, "out", S_IFCHR, makedev(0, 0)) < 0 ||
	    mknodat(upper, "secret.o", S_IFCHR, makedev(0, 0)) < 0 ||
	    file_replace(run, RESULTS_MASKED, list.data, list.len, 0600, NULL) < 0)
		_exit(66);
}

struct judging {
	const struct view *before, *after;
	struct manifest *changes;
	int run_fd;
	unsigned seed;
};

static void complain(const struct judging *j, const char *path, const char *what)
{
	print_message("seed %u: %s: %s\n", j->seed, path, what);
	_exit(1);
}

static void judge_one(const struct judging *j, const char *path)
{
	const struct seen *was = view_find(j->before, path), *is = view_find(j->after, path);
	struct tree_entry told;
	bool found = manifest_find(j->changes, path, strlen(path), &told);

	if (was && is && is_same(was, is)) {
		if (found)
			complain(j, path, "told as a change, and is none");
		return;
	}
	if (!found)
		complain(j, path, is ? "changed, and not told" : "gone, and not told");
	if (!is != (told.type == TREE_NONE))
		complain(j, path, "gone or not?");
	if (is && S_ISREG(is->mode)) {
		_cleanup_close_ int blob = blob_open(j->run_fd, told.sha256, NULL);

		if (told.type != TREE_FILE || memcmp(told.sha256, is->hash, SHA256_SIZE) != 0 ||
		    told.mode != (is->mode & 0777) || blob < 0)
			complain(j, path, "told with another content");
	}
	if (is && S_ISDIR(is->mode) && told.type != TREE_DIR)
		complain(j, path, "is a directory");
	if (is && S_ISLNK(is->mode) && told.type != TREE_SYMLINK)
		complain(j, path, "is a link");
}

/* A fifo takes the place of what was there; then that stays on the host. */
static bool is_fifo(int root, const char *path)
{
	char part[256];

	for (size_t i = 1; i <= strlen(path); i++) {
		struct stat st;

		if (path[i] && path[i] != '/')
			continue;
		snprintf(part, sizeof(part), "%.*s", (int)i, path);
		if (fstatat(root, part, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISFIFO(st.st_mode))
			return true;
	}
	return false;
}

static void judge(const struct judging *j, int merged)
{
	struct manifest_cursor c = { .m = j->changes };
	struct tree_entry told;

	for (size_t i = 0; i < j->before->count; i++)
		if (!is_fifo(merged, j->before->items[i].path))
			judge_one(j, j->before->items[i].path);
	for (size_t i = 0; i < j->after->count; i++)
		judge_one(j, j->after->items[i].path);
	while (manifest_next(&c, &told))
		if (!view_find(j->before, told.path) && !view_find(j->after, told.path))
			complain(j, told.path, "told, and never was");
}

static void fetch(struct judging *j, int upper, int host, int run)
{
	struct overlay_limits limits = { .cancel_fd = -1 };
	_cleanup_json_ json_t *refused = json_array();
	struct error err = { 0 };
	struct manifest_writer *w;
	struct manifest *base;

	if (manifest_open(run, RESULTS_BASE, &base, &err) < 0 ||
	    manifest_create(run, RESULTS_CHANGES, &w, &err) < 0 ||
	    overlay_fetch(upper, base, host, run, &limits, w, refused, &err) < 0 ||
	    manifest_commit(w, &err) < 0 ||
	    manifest_open(run, RESULTS_CHANGES, &j->changes, &err) < 0) {
		print_message("seed %u: %s\n", j->seed, err.message);
		_exit(2);
	}
	manifest_close(base);
}

static void scan_base(int host, int run, bool hash)
{
	struct scan_options scan = {
		.hash = hash, .use_ignore = true, .skip_git = true, .threads = 1, .cancel_fd = -1
	};
	struct scan_report report;
	struct error err = { 0 };
	uint64_t now = workspace_file_clock(host);

	/*
	 * What was written in the tick of the scan has no state to be known again by; the kernel's
	 * finer times may be ahead of its ticks.
	 */
	for (int i = 0; i < 1000 && workspace_file_clock(host) < now + 20000000; i++)
		poll(NULL, 0, 1);
	if (workspace_scan(host, &scan, run, RESULTS_BASE, &report, &err) < 0) {
		print_message("scan: %s\n", err.message);
		_exit(3);
	}
	scan_report_clear(&report);
}

static _Noreturn void live(enum mode mode, unsigned seed, const char *dir)
{
	static struct view before, after;
	struct judging j = { .before = &before, .after = &after, .seed = seed };
	char options[200];
	int host, upper, run, merged;

	luck = seed * 7919 + (unsigned)mode;
	enter_world(mode, dir);
	host = open_dir("host");
	upper = open_dir("upper");
	open_dir("work");
	open_dir("merged");
	run = j.run_fd = open_dir("run");
	for (int i = 0; i < 30; i++)
		work(host, false);
	put(host, ".gitignore", 0);
	if (file_replace(host, ".gitignore", "*.o\n/out\n", 9, 0644, NULL) < 0)
		_exit(67);
	remove_at(host, "out");
	open_dir("host/out");
	put(host, "out/secret", 1);
	put(host, "secret.o", 1);
	take_view(&before, host, "");
	hide(upper, run);
	scan_base(host, run, seed % 2);
	snprintf(options, sizeof(options), "lowerdir=host,upperdir=upper,workdir=work,volatile%s",
		 mode == ROOT_TRUSTED ? ",redirect_dir=off,metacopy=off" : ",userxattr");
	if (mount("overlay", "merged", "overlay", 0, options) < 0)
		_exit(errno == EPERM ? 77 : 68);
	merged = open("merged", O_RDONLY | O_DIRECTORY);
	if (faccessat(merged, "secret.o", F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
	    faccessat(merged, "out", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		complain(&j, "out", "is seen");
	for (int i = 0; i < 40; i++)
		work(merged, true);
	take_view(&after, merged, "");
	fetch(&j, upper, host, run);
	judge(&j, merged);
	manifest_close(j.changes);
	/* Once more: the same. */
	fetch(&j, upper, host, run);
	judge(&j, merged);
	manifest_close(j.changes);
	_exit(0);
}

static void try_seeds(enum mode mode)
{
	const char *only = getenv("BERTH_SEED");

	for (unsigned seed = 1; seed <= SEEDS; seed++) {
		char dir[64] = "/tmp/berth-overlay-XXXXXX";
		int status;
		pid_t pid;

		if (only && seed != (unsigned)atoi(only))
			continue;
		assert_non_null(mkdtemp(dir));
		pid = fork();
		if (pid == 0)
			live(mode, seed, dir);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		dir_remove_tree(AT_FDCWD, dir, NULL);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
			skip(); /* this machine allows no such overlay */
		if (status != 0)
			fail_msg("seed %u (BERTH_SEED=%u): status %x", seed, seed, status);
	}
}

static void a_layer_says_what_was_done_as_root(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	try_seeds(ROOT_TRUSTED);
}

static void a_layer_says_what_was_done_with_user_attributes(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	try_seeds(ROOT_USER);
}

static void a_layer_says_what_was_done_as_an_ordinary_user(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	try_seeds(AS_NOBODY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_layer_says_what_was_done_as_root),
		cmocka_unit_test(a_layer_says_what_was_done_with_user_attributes),
		cmocka_unit_test(a_layer_says_what_was_done_as_an_ordinary_user),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

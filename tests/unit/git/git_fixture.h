/*
 * A repository on "the host" and a directory that plays the place: staged by copying what git_list
 * says, worked in with real git, fed back as collect does: only what changed, an empty file for
 * what is gone.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <cmocka.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/spawn.h"
#include "base/text.h"
#include "git/git.h"

#define RUN_ID "0199a000-0000-7000-8000-000000000001"
#define KEPT "refs/berth/" RUN_ID

struct git_fixture {
	char base[64];
	char *host, *place, *fetched;
	json_t *about, *report;
	struct error err;
	char last_path[4096];
	size_t listed;
	enum git_care care; /* of settling */
};

/* Output of a shell command in dir, without the last newline; it must succeed. */
__attribute__((unused, format(printf, 2, 3))) static char *sh(const char *dir, const char *fmt, ...)
{
	static char *const env[] = {
		"PATH=/usr/bin:/bin",
		"HOME=/nonexistent",
		"LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ada",
		"GIT_AUTHOR_EMAIL=ada@example.com",
		"GIT_COMMITTER_NAME=Ada",
		"GIT_EDITOR=true",
		"GIT_COMMITTER_EMAIL=ada@example.com",
		"GIT_CONFIG_COUNT=2",
		"GIT_CONFIG_KEY_0=init.defaultBranch",
		"GIT_CONFIG_VALUE_0=main",
		"GIT_CONFIG_KEY_1=advice.detachedHead",
		"GIT_CONFIG_VALUE_1=false",
		NULL,
	};
	_cleanup_free_ char *text = NULL;
	va_list ap;
	int fds[2], status;
	pid_t pid;
	struct buf out = { 0 };
	struct error err = { 0 };

	va_start(ap, fmt);
	assert_true(vasprintf(&text, fmt, ap) >= 0);
	va_end(ap);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);

	struct spawn_spec spec = {
		.argv = (char *const[]){ "/bin/bash", "-euc", text, NULL },
		.envp = env,
		.cwd = dir,
		.stdin_fd = -1,
		.stdout_fd = fds[1],
		.stderr_fd = fds[1],
	};

	if (spawn(&spec, &pid, NULL, &err) < 0)
		fail_msg("%s", err.message);
	close(fds[1]);
	assert_int_equal(fd_read_all(fds[0], &out, 8 << 20, NULL), 0);
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status != 0)
		fail_msg("%s\n-> status %x\n%s", text, status, buf_str(&out));
	while (out.len && out.data[out.len - 1] == '\n')
		out.data[--out.len] = '\0';
	return buf_steal(&out);
}
#define SH(dir, ...) free(sh(dir, __VA_ARGS__))

__attribute__((unused)) static void assert_sh(const char *dir, const char *command,
					      const char *want)
{
	_cleanup_free_ char *got = sh(dir, "%s", command);

	assert_string_equal(got, want);
}

__attribute__((unused)) static void assert_ok(struct git_fixture *f, int rc)
{
	if (rc < 0)
		fail_msg("%s: %s", error_code_name(f->err.code), f->err.message);
}

__attribute__((unused)) static int root_of(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

__attribute__((unused)) static int fixture_setup(void **state)
{
	struct git_fixture *f = xcalloc(1, sizeof(*f));

	snprintf(f->base, sizeof(f->base), "/tmp/berth-git-XXXXXX");
	assert_non_null(mkdtemp(f->base));
	assert_int_equal(chmod(f->base, 0755), 0);
	f->host = path_join(f->base, "host");
	f->place = path_join(f->base, "place");
	f->fetched = path_join(f->base, "fetched");
	SH(f->base, "mkdir host place fetched && cd host && git init -q .");
	*state = f;
	return 0;
}

__attribute__((unused)) static int fixture_teardown(void **state)
{
	struct git_fixture *f = *state;

	assert_int_equal(dir_remove_tree(AT_FDCWD, f->base, NULL), 0);
	json_decref(f->about);
	json_decref(f->report);
	error_clear(&f->err);
	free(f->host);
	free(f->place);
	free(f->fetched);
	free(f);
	return 0;
}

static int put_in_place(void *arg, const struct git_file *file, struct error *err)
{
	struct git_fixture *f = arg;
	_cleanup_free_ char *to = path_join(f->place, file->entry.path);

	/* The order is part of the promise. */
	if (f->listed++)
		assert_true(tree_path_compare(f->last_path, strlen(f->last_path), file->entry.path,
					      file->entry.path_len) < 0);
	assert_true(tree_path_is_valid(file->entry.path, file->entry.path_len));
	snprintf(f->last_path, sizeof(f->last_path), "%s", file->entry.path);
	if (file->entry.type == TREE_DIR) {
		assert_int_equal(mkdir(to, file->entry.mode), 0);
		return 0;
	}

	_cleanup_close_ int out = open(to, O_WRONLY | O_CREAT | O_EXCL, file->entry.mode);
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_close_ int in = -1, root = root_of(f->host);

	assert_true(out >= 0);
	if (file->content)
		return fd_write_all(out, file->content, file->entry.size, err);
	if (git_open_source(root, file->source, file->entry.size, &in, err) < 0 ||
	    fd_read_all(in, &text, 256 << 20, err) < 0)
		return -1;
	assert_int_equal(text.len, file->entry.size);
	return fd_write_all(out, buf_str(&text), text.len, err);
}

/* Inspects and lists the host, copies the work tree; `staged` keeps a copy to compare with. */
__attribute__((unused)) static void stage(struct git_fixture *f)
{
	_cleanup_close_ int root = root_of(f->host);
	enum git_kind kind;

	assert_ok(f, git_inspect(root, f->host, -1, NULL, &kind, &f->about, &f->err));
	assert_true(kind != GIT_NONE);
	SH(f->base,
	   "cd host && tar cf - --exclude=./.git . | tar xf - --no-same-owner -C ../place");
	assert_ok(f, git_list(root, f->host, -1, NULL, f->about, put_in_place, f, &f->err));
	SH(f->base, "rm -rf staged && mkdir staged && cp -a place/.git staged");
}

static struct {
	size_t skip;
	FILE *list;
} walking; /* nftw has no argument for us */

static int list_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	const char *rel = path + walking.skip;

	(void)ftw;
	if (flag != FTW_D && git_path_comes_back(rel, strlen(rel)) && S_ISREG(st->st_mode)) {
		fputs(rel, walking.list);
		fputc('\0', walking.list);
	}
	return 0;
}

static void list_files(struct git_fixture *f, const char *dir, const char *list)
{
	_cleanup_free_ char *to = path_join(f->base, list);
	_cleanup_free_ char *git = xasprintf("%s/%s/.git", f->base, dir);

	walking.list = fopen(to, "we");
	walking.skip = strlen(git) - 4;
	assert_non_null(walking.list);
	nftw(git, list_one, 16, FTW_PHYS);
	assert_int_equal(fclose(walking.list), 0);
}

/* What collect does with the place's .git: changed files, and an empty file for what is gone. */
__attribute__((unused)) static void fetch(struct git_fixture *f)
{
	list_files(f, "place", "now");
	list_files(f, "staged", "then");
	SH(f->base, "put() { mkdir -p \"fetched/${1%%/*}\"; }; "
		    "while IFS= read -r -d '' p; do cmp -s \"staged/$p\" \"place/$p\" || "
		    "{ put \"$p\"; cp \"place/$p\" \"fetched/$p\"; }; done <now; "
		    "while IFS= read -r -d '' p; do case $p in .git/objects/*) continue;; esac; "
		    "test -e \"place/$p\" || { put \"$p\"; : >\"fetched/$p\"; }; done <then");
}

__attribute__((unused)) static void import(struct git_fixture *f)
{
	_cleanup_close_ int root = root_of(f->host), fetched = root_of(f->fetched);

	json_decref(f->report);
	f->report = NULL;
	assert_ok(f, git_import(root, f->host, RUN_ID, f->about, fetched, -1, NULL, &f->report,
				&f->err));
	assert_non_null(f->report);
}

/* The files, as apply does when nobody else has touched the host's. */
__attribute__((unused)) static void apply_files(struct git_fixture *f)
{
	SH(f->base,
	   "cd host && find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -rf {} + && "
	   "cd ../place && tar cf - --exclude=./.git . | tar xf - --no-same-owner -C ../host");
}

__attribute__((unused)) static void settle(struct git_fixture *f)
{
	_cleanup_close_ int root = root_of(f->host), fetched = root_of(f->fetched);

	assert_ok(f, git_settle(root, f->host, RUN_ID, f->about, fetched, f->care, -1, NULL,
				f->report, &f->err));
}

__attribute__((unused)) static void come_home(struct git_fixture *f)
{
	fetch(f);
	import(f);
	apply_files(f);
	settle(f);
}

__attribute__((unused)) static void assert_clean_fsck(struct git_fixture *f)
{
	assert_sh(f->host,
		  "git fsck --strict --full --no-dangling 2>&1 | "
		  "grep -v -e '^notice: ' -e '^Checking' || true",
		  "");
}

/* Host and place look the same to git. */
__attribute__((unused)) static void assert_same_status(struct git_fixture *f)
{
	static const char *const questions[] = {
		"git status --porcelain=v2 -b -z | tr '\\0' '\\n'",
		/* Which commit a detached HEAD came from is in its log, and logs do not travel. */
		"git status | grep -v -e '^HEAD detached' -e '^Not currently'",
		"git diff --cached --raw --abbrev=40",
		"git diff",
		"git ls-files -s",
		"git log --format='%H %s' -20 2>/dev/null || true",
	};

	for (size_t i = 0; i < ARRAY_SIZE(questions); i++) {
		_cleanup_free_ char *host = sh(f->host, "%s", questions[i]);
		_cleanup_free_ char *place = sh(f->place, "%s", questions[i]);

		assert_string_equal(host, place);
	}
	assert_clean_fsck(f);
}

__attribute__((unused)) static void assert_report(struct git_fixture *f, const char *key,
						  const char *want)
{
	const char *got = json_str(f->report, key);
	_cleanup_free_ char *text = json_text(f->report);

	if (!got || !strstr(got, want))
		fail_msg("%s is not \"%s\" in %s", key, want, text);
}

__attribute__((unused)) static void assert_moved(struct git_fixture *f, bool moved)
{
	_cleanup_free_ char *text = json_text(f->report);

	if (json_bool(f->report, "moved", !moved) != moved)
		fail_msg("moved is not %d in %s", moved, text);
}

#define GIT_TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

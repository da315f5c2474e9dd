#include "tempdir.h"
#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include "base/fd.h"
#include "base/text.h"

#define SKIPPED 77

/* Runs fn in a child and returns its exit code: for what would change this process for good. */
static int in_child(int (*fn)(struct tempdir *), struct tempdir *t)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(fn(t));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void a_tree_goes_with_everything_in_it(void **state)
{
	struct tempdir *t = *state;
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(dir_make(t->fd, "top/a/b", 0755, NULL), 0);
	assert_int_equal(dir_make(t->fd, "top/c", 0755, NULL), 0);
	for (int i = 0; i < 500; i++) {
		_cleanup_free_ char *file = xasprintf("top/a/file-%d", i);
		_cleanup_free_ char *dir = xasprintf("top/c/dir-%d/sub", i);

		write_file_at(t->fd, file, "x", 0400);
		assert_int_equal(dir_make(t->fd, dir, 0755, NULL), 0);
	}
	assert_int_equal(mkfifoat(t->fd, "top/a/fifo", 0600), 0);
	assert_int_equal(symlinkat("nowhere", t->fd, "top/a/dangling"), 0);
	assert_int_equal(dir_remove_tree(t->fd, "top", &err), 0);
	assert_false(exists_at(t->fd, "top"));
}

static void a_single_file_or_link_goes_too(void **state)
{
	struct tempdir *t = *state;
	_cleanup_free_ char *absolute = xasprintf("%s/file", t->path);

	write_file_at(t->fd, "file", "x", 0600);
	assert_int_equal(dir_make(t->fd, "kept", 0755, NULL), 0);
	write_file_at(t->fd, "kept/inside", "x", 0600);
	assert_int_equal(symlinkat("kept", t->fd, "link"), 0);
	assert_int_equal(dir_remove_tree(AT_FDCWD, absolute, NULL), 0);
	assert_int_equal(dir_remove_tree(t->fd, "link", NULL), 0);
	assert_false(exists_at(t->fd, "file"));
	assert_false(exists_at(t->fd, "link"));
	assert_true(exists_at(t->fd, "kept/inside"));
}

static void links_inside_are_removed_and_not_followed(void **state)
{
	struct tempdir *t = *state;

	assert_int_equal(dir_make(t->fd, "outside", 0755, NULL), 0);
	write_file_at(t->fd, "outside/precious", "x", 0600);
	assert_int_equal(dir_make(t->fd, "top/sub", 0755, NULL), 0);
	assert_int_equal(symlinkat("../outside", t->fd, "top/link"), 0);
	assert_int_equal(symlinkat("../../outside", t->fd, "top/sub/link"), 0);
	assert_int_equal(dir_remove_tree(t->fd, "top", NULL), 0);
	assert_true(exists_at(t->fd, "outside/precious"));
}

static void what_is_not_there_is_removed_already(void **state)
{
	struct tempdir *t = *state;
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(dir_remove_tree(t->fd, "absent", &err), 0);
	assert_int_equal(dir_remove_tree(t->fd, "absent/too", &err), 0);
	assert_int_equal(err.code, ERR_NONE);
	write_file_at(t->fd, "file", "x", 0600);
	assert_int_equal(dir_remove_tree(t->fd, "file/below", &err), -1);
	assert_int_equal(err.errnum, ENOTDIR);
}

static int remove_deep_tree(struct tempdir *t)
{
	struct rlimit few = { .rlim_cur = 40, .rlim_max = 40 };
	int fd = fcntl(t->fd, F_DUPFD_CLOEXEC, 3);

	/* Deeper than PATH_MAX and than any number of descriptors, with a sibling on every level.
	 */
	for (int i = 0; i < 5000; i++) {
		if (mkdirat(fd, "d", 0755) < 0 || mkdirat(fd, "e", 0755) < 0 ||
		    mkdirat(fd, "e/f", 0755) < 0)
			return 2;

		int next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		close(fd);
		fd = next;
	}
	close(fd);
	setrlimit(RLIMIT_NOFILE, &few);
	if (dir_remove_tree(t->fd, "d", NULL) < 0)
		return 3;
	return exists_at(t->fd, "d") ? 4 : 0;
}

static void depth_costs_neither_stack_nor_descriptors(void **state)
{
	assert_int_equal(in_child(remove_deep_tree, *state), 0);
}

static int remove_unreadable_tree(struct tempdir *t)
{
	if (geteuid() == 0) {
		/* Root is never refused, so be somebody who is. */
		if (fchown(t->fd, 65534, 65534) < 0 || setresgid(65534, 65534, 65534) < 0 ||
		    setresuid(65534, 65534, 65534) < 0)
			return SKIPPED;
	}
	if (dir_make(t->fd, "top/work/work", 0755, NULL) < 0 ||
	    dir_make(t->fd, "top/readonly/sub", 0755, NULL) < 0)
		return 2;
	write_file_at(t->fd, "top/work/work/file", "x", 0);
	write_file_at(t->fd, "top/readonly/sub/file", "x", 0);
	if (fchmodat(t->fd, "top/work/work", 0, 0) < 0 ||
	    fchmodat(t->fd, "top/readonly/sub", 0500, 0) < 0 ||
	    fchmodat(t->fd, "top/readonly", 0400, 0) < 0 || fchmodat(t->fd, "top", 0500, 0) < 0)
		return 3;
	if (dir_remove_tree(t->fd, "top", NULL) < 0)
		return 4;
	return exists_at(t->fd, "top") ? 5 : 0;
}

static void directories_their_owner_may_not_enter_go_as_well(void **state)
{
	int rc = in_child(remove_unreadable_tree, *state);

	if (rc == SKIPPED)
		skip();
	assert_int_equal(rc, 0);
}

static int remove_around_a_bind_mount(struct tempdir *t)
{
	struct error err = { 0 };
	char source[128], target[128];

	if (unshare(geteuid() ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return SKIPPED;
	snprintf(source, sizeof(source), "%s/workspace", t->path);
	snprintf(target, sizeof(target), "%s/top/a/mnt", t->path);
	if (mount(source, target, NULL, MS_BIND, NULL) < 0)
		return SKIPPED;
	/* The same device on both sides: only the mount tells them apart. */
	if (dir_remove_tree(t->fd, "top", &err) == 0)
		return 2;
	if (err.errnum != EBUSY && err.errnum != EXDEV)
		return 3;
	if (!exists_at(t->fd, "workspace/precious"))
		return 4;
	if (umount2(target, MNT_DETACH) < 0)
		return 5;
	return dir_remove_tree(t->fd, "top", &err) == 0 ? 0 : 6;
}

static void a_workspace_mounted_inside_is_not_entered(void **state)
{
	struct tempdir *t = *state;

	assert_int_equal(dir_make(t->fd, "workspace", 0755, NULL), 0);
	write_file_at(t->fd, "workspace/precious", "x", 0600);
	assert_int_equal(dir_make(t->fd, "top/a/mnt", 0755, NULL), 0);

	int rc = in_child(remove_around_a_bind_mount, t);

	if (rc == SKIPPED)
		skip();
	assert_int_equal(rc, 0);
	assert_true(exists_at(t->fd, "workspace/precious"));
}

static void the_error_names_what_could_not_be_removed(void **state)
{
	struct tempdir *t = *state;
	_cleanup_error_ struct error err = { 0 };

	/* /proc refuses everybody. */
	assert_int_equal(dir_remove_tree(AT_FDCWD, "/proc/self/task", &err), -1);
	assert_non_null(strstr(err.message, "/proc/self/task"));
	(void)t;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_tempdir(a_tree_goes_with_everything_in_it),
		with_tempdir(a_single_file_or_link_goes_too),
		with_tempdir(links_inside_are_removed_and_not_followed),
		with_tempdir(what_is_not_there_is_removed_already),
		with_tempdir(depth_costs_neither_stack_nor_descriptors),
		with_tempdir(directories_their_owner_may_not_enter_go_as_well),
		with_tempdir(a_workspace_mounted_inside_is_not_entered),
		with_tempdir(the_error_names_what_could_not_be_removed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * A directory of its own for every test: give the test to with_tempdir(), find it in *state.
 * cmocka's header wants its company in this order, so it comes from here as well.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct tempdir {
	char path[64];
	int fd;
};

static inline struct tempdir *tempdir_open(void **state)
{
	struct tempdir *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	snprintf(t->path, sizeof(t->path), "/tmp/berth-test-XXXXXX");
	assert_non_null(mkdtemp(t->path));
	t->fd = open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(t->fd >= 0);
	*state = t;
	return t;
}

static inline int tempdir_setup(void **state)
{
	tempdir_open(state);
	return 0;
}

/* Not with our own dir_remove_tree: a bug in it must not run against what is left of a test. */
static inline int tempdir_teardown(void **state)
{
	struct tempdir *t = *state;
	char *argv[] = { (char *)"rm", (char *)"-rf", (char *)"--one-file-system", t->path, NULL };
	pid_t pid = fork();

	if (pid == 0) {
		execvp(argv[0], argv);
		_exit(127);
	}
	waitpid(pid, NULL, 0);
	close(t->fd);
	free(t);
	return 0;
}

static inline void write_file_at(int dirfd, const char *name, const char *text, mode_t mode)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static inline int exists_at(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

#define with_tempdir(test) cmocka_unit_test_setup_teardown(test, tempdir_setup, tempdir_teardown)

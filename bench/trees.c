#include "trees.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"

#define PER_DIRECTORY 100

extern char **environ;

void trees_begin(struct trees *t)
{
	snprintf(t->dir, sizeof(t->dir), "/tmp/berth-trees-XXXXXX");
	if (!mkdtemp(t->dir))
		bench_fail("no temporary directory");
}

void trees_end(struct trees *t)
{
	trees_command((char *[]){ "rm", "-rf", t->dir, NULL });
}

void trees_new(struct trees *t, const char *name)
{
	snprintf(t->tree, sizeof(t->tree), "%s/%s", t->dir, name);
	snprintf(t->target, sizeof(t->target), "%s/%s-copy", t->dir, name);
	trees_command((char *[]){ "rm", "-rf", t->tree, NULL });
	if (mkdir(t->tree, 0755) < 0)
		bench_fail("cannot make %s", t->tree);
}

void trees_fill(const struct trees *t, size_t count, size_t size)
{
	_cleanup_free_ char *data = xmalloc(size);
	char path[256];

	for (size_t i = 0; i < count; i++) {
		if (i % PER_DIRECTORY == 0) {
			snprintf(path, sizeof(path), "%s/dir%04zu", t->tree, i / PER_DIRECTORY);
			if (mkdir(path, 0755) < 0)
				bench_fail("cannot make %s", path);
		}
		random_bytes(data, size);
		snprintf(path, sizeof(path), "%s/dir%04zu/file%06zu.txt", t->tree,
			 i / PER_DIRECTORY, i);
		trees_write(path, data, size);
	}
}

void trees_write(const char *path, const void *data, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || fd_write_all(fd, data, len, NULL) < 0)
		bench_fail("cannot write %s", path);
	close(fd);
}

double trees_command(char *const argv[])
{
	posix_spawn_file_actions_t actions;
	double begin = bench_now();
	pid_t pid;
	int status;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	if (posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ) != 0 ||
	    waitpid(pid, &status, 0) < 0 || status != 0)
		bench_fail("%s failed", argv[0]);
	posix_spawn_file_actions_destroy(&actions);
	return bench_now() - begin;
}

double trees_copy(const struct trees *t)
{
	char *tree = (char *)(uintptr_t)t->tree, *target = (char *)(uintptr_t)t->target;

	trees_command((char *[]){ "rm", "-rf", target, NULL });
	return trees_command((char *[]){ "cp", "-a", tree, target, NULL });
}

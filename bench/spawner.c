#include "spawner.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

extern char **environ;

double spawn_true(int times)
{
	char *argv[] = { "true", NULL };
	double begin = bench_now();

	for (int i = 0; i < times; i++) {
		pid_t pid;

		if (posix_spawnp(&pid, "true", NULL, NULL, argv, environ) != 0)
			bench_fail("cannot start true");
		waitpid(pid, NULL, 0);
	}
	return bench_now() - begin;
}

double pipe_bytes(long long bytes)
{
	char count[32], buffer[65536];
	char *argv[] = { "head", "-c", count, "/dev/zero", NULL };
	posix_spawn_file_actions_t actions;
	double begin = bench_now();
	int pipes[2];
	pid_t pid;

	snprintf(count, sizeof(count), "%lld", bytes);
	if (pipe2(pipes, O_CLOEXEC) < 0)
		bench_fail("pipe");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
	if (posix_spawnp(&pid, "head", &actions, NULL, argv, environ) != 0)
		bench_fail("cannot start head");
	posix_spawn_file_actions_destroy(&actions);
	close(pipes[1]);
	while (read(pipes[0], buffer, sizeof(buffer)) > 0)
		;
	close(pipes[0]);
	waitpid(pid, NULL, 0);
	return bench_now() - begin;
}

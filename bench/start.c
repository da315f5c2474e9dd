/*
 * Server start to healthy, against `sqlite3 FILE 'select 1'`; then the idle memory of its
 * processes.
 */
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "bench.h"

extern char **environ;

static double ours(struct bench *b, void *arg)
{
	double begin = bench_now(), took;

	(void)arg;
	bench_server_start(b);
	took = bench_now() - begin;
	bench_server_stop(b);
	return took;
}

static double peer(struct bench *b, void *arg)
{
	_cleanup_free_ char *file = xasprintf("%s/peer.db", b->dir);
	char *argv[] = { "sqlite3", file, "select 1", NULL };
	posix_spawn_file_actions_t actions;
	double begin = bench_now();
	pid_t pid;

	(void)arg;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", 1, 0);
	if (posix_spawnp(&pid, "sqlite3", &actions, NULL, argv, environ) != 0)
		bench_fail("cannot start sqlite3");
	posix_spawn_file_actions_destroy(&actions);
	waitpid(pid, NULL, 0);
	return bench_now() - begin;
}

int main(int argc, char **argv)
{
	struct bench b;
	double ratio;
	long kb;

	bench_begin(&b, argc, argv);
	ratio = bench_compare(&b, ours, peer, NULL);
	bench_server_start(&b);
	usleep(500000); /* idle is what is measured */
	kb = bench_memory_kb(b.server);
	bench_end(&b);
	printf("idle memory of all its processes: %.1f MB\n", (double)kb / 1024);
	bench_print("start", ratio);
	return 0;
}

/*
 * Durable acquire, `true` and release of a native place over HTTP, one after another, against
 * bubblewrap running `true` behind all its namespaces. The same with other configs is printed
 * first; the last line is the default config.
 */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "native.h"

#define CYCLES 25
#define FEW_ROUNDS 5

extern char **environ;

struct state {
	struct client client;
	char environment_id[40];
};

static double ours(struct bench *b, void *arg)
{
	struct state *s = arg;
	double begin = bench_now();
	char lease[40];

	(void)b;
	for (int i = 0; i < CYCLES; i++) {
		native_acquire(&s->client, s->environment_id, lease);
		native_exec(&s->client, lease, "[\"true\"]");
		client_release(&s->client, lease);
	}
	return bench_now() - begin;
}

static double bwrap(struct bench *b, void *arg)
{
	char *argv[] = { "bwrap", "--unshare-all", "--ro-bind", "/",    "/", "--proc",
			 "/proc", "--dev",         "/dev",      "true", NULL };
	double begin = bench_now();
	int status;

	(void)b;
	(void)arg;
	for (int i = 0; i < CYCLES; i++) {
		pid_t pid;

		if (posix_spawnp(&pid, "bwrap", NULL, NULL, argv, environ) != 0 ||
		    waitpid(pid, &status, 0) < 0 || status != 0)
			bench_fail("bwrap does not work here");
	}
	return bench_now() - begin;
}

static const struct {
	const char *name, *config;
} VARIANTS[] = {
	{ "pool off", "{\"provider\":\"native\",\"warmPool\":{\"size\":0}}" },
	{ "pool of 8", "{\"provider\":\"native\",\"warmPool\":{\"size\":8}}" },
	{ "tmpfs", "{\"provider\":\"native\",\"writable\":\"tmpfs\"}" },
	{ "limits on, pool off", "{\"provider\":\"native\",\"warmPool\":{\"size\":0},\"limits\":{"
				 "\"memoryMb\":256,\"pids\":256}}" },
	{ "limits on, pool of 8", "{\"provider\":\"native\",\"warmPool\":{\"size\":8},\"limits\":{"
				  "\"memoryMb\":256,\"pids\":256}}" },
};

int main(int argc, char **argv)
{
	static struct state s;
	struct bench b;
	char company[40], standard[40];
	double ratio, variant;
	int rounds;

	bench_begin(&b, argc, argv);
	native_print_attach_cost();
	bench_server_start(&b);
	client_open(&s.client, b.socket);
	native_company(&s.client, company);
	if (!native_environment(&s.client, company, "default", "{\"provider\":\"native\"}",
				standard))
		bench_fail("no native places");
	rounds = b.rounds;
	b.rounds = rounds < FEW_ROUNDS ? rounds : FEW_ROUNDS;
	for (size_t i = 0; i < sizeof(VARIANTS) / sizeof(VARIANTS[0]); i++) {
		if (!native_environment(&s.client, company, VARIANTS[i].name, VARIANTS[i].config,
					s.environment_id))
			continue;
		printf("%s:\n", VARIANTS[i].name);
		variant = bench_compare(&b, ours, bwrap, &s);
		printf("%s, against bwrap: %.2f\n", VARIANTS[i].name, variant);
	}
	memcpy(s.environment_id, standard, sizeof(standard));
	b.rounds = rounds;
	printf("default:\n");
	ratio = bench_compare(&b, ours, bwrap, &s);
	client_close(&s.client);
	bench_end(&b);
	bench_print("lease-cycle-native", ratio);
	return 0;
}

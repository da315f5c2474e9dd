#include "exec_held.h"

#include <stdio.h>

#include "bench.h"
#include "spawner.h"

struct state {
	struct client client;
	char path[240];
};

static double ours(struct bench *b, void *arg)
{
	struct state *s = arg;
	double begin = bench_now();

	(void)b;
	for (int i = 0; i < SPAWNS; i++) {
		json_t *answer =
			client_json(&s->client, "POST", s->path, "{\"command\":[\"true\"]}", 200);

		if (json_int(answer, "exitCode", -1) != 0)
			bench_fail("true did not exit with 0");
		json_decref(answer);
	}
	return bench_now() - begin;
}

static double peer(struct bench *b, void *arg)
{
	(void)b;
	(void)arg;
	return spawn_true(SPAWNS);
}

void exec_held(int argc, char **argv, const char *name,
	       void (*acquire)(struct client *c, char lease_id[160]))
{
	static struct state s;
	struct bench b;
	char lease[160];
	double ratio;

	bench_begin(&b, argc, argv);
	b.rounds *= SPAWN_ROUNDS;
	bench_server_start(&b);
	client_open(&s.client, b.socket);
	acquire(&s.client, lease);
	snprintf(s.path, sizeof(s.path), "/api/environment-leases/%s/exec?stream=0", lease);
	ratio = bench_compare(&b, ours, peer, &s);
	client_release(&s.client, lease);
	client_close(&s.client);
	bench_end(&b);
	bench_print(name, ratio);
}

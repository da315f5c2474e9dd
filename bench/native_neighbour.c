/*
 * `true` in a held native place while a place beside it, limited to half a processor, forks as fast
 * as it can; against the same with a quiet neighbour.
 */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "native.h"

#define EXECS 50

struct state {
	struct client client;
	char lease[40], hog[40];
};

static double execs(struct state *s)
{
	double begin = bench_now();

	for (int i = 0; i < EXECS; i++)
		native_exec(&s->client, s->lease, "[\"true\"]");
	return bench_now() - begin;
}

static double quiet(struct bench *b, void *arg)
{
	(void)b;
	return execs(arg);
}

static double beside_hog(struct bench *b, void *arg)
{
	struct state *s = arg;
	char path[128];
	json_t *exec;
	double taken;

	(void)b;
	snprintf(path, sizeof(path), "/api/environment-leases/%s/exec?detach=1", s->hog);
	exec = client_json(&s->client, "POST", path,
			   "{\"command\":[\"bash\",\"-c\",\"b() { b | b & }; b; sleep 60\"],"
			   "\"timeoutMs\":60000}",
			   201);
	taken = execs(s);
	snprintf(path, sizeof(path), "/api/execs/%s/signal", json_str(exec, "id"));
	json_decref(exec);
	json_decref(client_json(&s->client, "POST", path, "{\"signal\":\"KILL\"}", 200));
	return taken;
}

int main(int argc, char **argv)
{
	static struct state s;
	struct bench b;
	char company[40], plain[40], limited[40];
	double ratio;

	bench_begin(&b, argc, argv);
	native_print_attach_cost();
	bench_server_start(&b);
	client_open(&s.client, b.socket);
	native_company(&s.client, company);
	if (!native_environment(&s.client, company, "plain", "{\"provider\":\"native\"}", plain) ||
	    !native_environment(&s.client, company, "limited",
				"{\"provider\":\"native\",\"limits\":{\"cpus\":0.5,\"pids\":64,"
				"\"memoryMb\":128}}",
				limited))
		bench_fail("no native places");
	native_acquire(&s.client, plain, s.lease);
	native_acquire(&s.client, limited, s.hog);
	ratio = bench_compare(&b, beside_hog, quiet, &s);
	client_release(&s.client, s.lease);
	client_release(&s.client, s.hog);
	client_close(&s.client);
	bench_end(&b);
	bench_print("native-neighbour", ratio);
	return 0;
}

/*
 * 1 GB of output to an HTTP client as octet-stream, against the same bytes through a bare pipe; and
 * what server and relay take meanwhile, also when the reader stops reading.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "client.h"
#include "spawner.h"

#define BYTES (1LL << 30)
#define COMMAND "{\"command\":[\"head\",\"-c\",\"1073741824\",\"/dev/zero\"]}"

struct state {
	struct client client;
	char lease[160];
	long peak_kb, idle_kb;
};

static double ours(struct bench *b, void *arg)
{
	struct state *s = arg;
	double begin = bench_now();
	_cleanup_free_ char *start =
		xasprintf("/api/environment-leases/%s/exec?detach=1", s->lease);
	json_t *exec = client_json(&s->client, "POST", start, COMMAND, 201);
	_cleanup_free_ char *path =
		xasprintf("/api/execs/%s/output?follow=1", json_str(exec, "id"));
	long long got;

	json_decref(exec);
	got = client_drain(b->socket, path, &s->peak_kb, b->server);
	if (got < BYTES)
		bench_fail("%lld bytes instead of %lld", got, (long long)BYTES);
	return bench_now() - begin;
}

static double peer(struct bench *b, void *arg)
{
	(void)b;
	(void)arg;
	return pipe_bytes(BYTES);
}

int main(int argc, char **argv)
{
	static struct state s;
	struct bench b;
	double ratio;

	bench_begin(&b, argc, argv);
	bench_server_start(&b);
	client_open(&s.client, b.socket);
	client_acquire_local(&s.client, s.lease);
	s.idle_kb = bench_memory_kb(b.server);
	ratio = bench_compare(&b, ours, peer, &s);
	client_release(&s.client, s.lease);
	client_close(&s.client);
	bench_end(&b);
	printf("server: %.1f MB idle, %.1f MB at most\n", (double)s.idle_kb / 1024,
	       (double)s.peak_kb / 1024);
	bench_print("output", ratio);
	return 0;
}

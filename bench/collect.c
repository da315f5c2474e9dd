/*
 * Bringing work home from a native place, against cp -a of the same files, which neither compares
 * nor syncs nor can be interrupted:
 *
 *     collect    1,000 files of 10 KB, all of them changed in the place
 *
 * The place, the staging and the changes are made before a round's clock starts.
 */
#include <stdio.h>

#include "base/json.h"
#include "native.h"
#include "trees.h"

#define FILES 1000
#define SIZE 10240

struct state {
	struct client client;
	char environment_id[40];
	char lease[40];
	struct trees trees;
};

static json_t *ask(struct state *s, const char *verb, const char *body)
{
	char path[128];

	snprintf(path, sizeof(path), "/api/environment-leases/%s/%s", s->lease, verb);
	return client_json(&s->client, "POST", path, body, 200);
}

static double collect(struct bench *b, void *arg)
{
	struct state *s = arg;
	double begin, seconds;
	char body[256];
	json_t *report;

	(void)b;
	trees_new(&s->trees, "tree");
	trees_fill(&s->trees, FILES, SIZE);
	native_acquire(&s->client, s->environment_id, s->lease);
	snprintf(body, sizeof(body), "{\"path\":\"%s\",\"mode\":\"copy\"}", s->trees.tree);
	json_decref(ask(s, "stage", body));
	native_exec(&s->client, s->lease,
		    "[\"sh\",\"-c\",\"for f in /workspace/dir*/file*; do echo x >> $f; done\"]");
	begin = bench_now();
	report = ask(s, "collect", "{}");
	seconds = bench_now() - begin;
	if (json_int(json_object_at(report, "counts"), "modified", 0) != FILES)
		bench_fail("not all changes came home");
	json_decref(report);
	client_release(&s->client, s->lease);
	return seconds;
}

static double copy_away(struct bench *b, void *arg)
{
	struct state *s = arg;

	(void)b;
	return trees_copy(&s->trees);
}

int main(int argc, char **argv)
{
	static struct state s;
	struct bench b;
	char company[40];

	bench_begin(&b, argc, argv);
	trees_begin(&s.trees);
	bench_server_start(&b);
	client_open(&s.client, b.socket);
	native_company(&s.client, company);
	if (!native_environment(&s.client, company, "native", "{\"provider\":\"native\"}",
				s.environment_id))
		bench_fail("no native places");
	bench_print("collect", bench_compare(&b, collect, copy_away, &s));
	client_close(&s.client);
	trees_end(&s.trees);
	bench_end(&b);
	return 0;
}

/*
 * `berth run -- true` in a checkout of 1,000 files, whole: from the start of the client to its end.
 * Against the same by another berth program, each with a warm server of its own, if
 * BERTH_BENCH_BASE names one; else against `git status` and `true` in the same checkout.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "bench.h"
#include "trees.h"

#define FILES 1000
#define FILE_BYTES 1024
#define RUNS 5 /* of a round */

struct sides {
	struct bench ours, base;
	bool has_base;
};

static double run_true(const struct bench *b)
{
	char *argv[] = { (char *)b->berth, "run", "--", "true", NULL };
	double took = 0;

	setenv("BERTH_DATA", b->dir, 1);
	for (int i = 0; i < RUNS; i++)
		took += trees_command(argv);
	return took;
}

static double ours(struct bench *b, void *arg)
{
	const struct sides *sides = arg;

	(void)b;
	return run_true(&sides->ours);
}

static double peer(struct bench *b, void *arg)
{
	const struct sides *sides = arg;
	char *argv[] = { "sh", "-c", "git status && true", NULL };
	double took = 0;

	(void)b;
	if (sides->has_base)
		return run_true(&sides->base);
	for (int i = 0; i < RUNS; i++)
		took += trees_command(argv);
	return took;
}

static void make_checkout(struct trees *t)
{
	char *git[] = { "sh", "-c",
			"git init -q -b main && git add -A && git -c user.name=bench -c "
			"user.email=bench@localhost commit -q -m first",
			NULL };

	trees_new(t, "checkout");
	trees_fill(t, FILES, FILE_BYTES);
	if (chdir(t->tree) < 0)
		bench_fail("cannot go to %s", t->tree);
	trees_command(git);
}

static void start_server(struct bench *b, const char *program)
{
	b->berth = realpath(program, NULL);
	if (!b->berth)
		bench_fail("there is no %s", program);
	bench_server_start(b);
}

int main(int argc, char **argv)
{
	const char *base = getenv("BERTH_BENCH_BASE");
	struct sides sides = { .has_base = base && base[0] };
	struct trees t;
	double ratio;

	bench_begin(&sides.ours, argc, argv);
	start_server(&sides.ours, sides.ours.berth);
	if (sides.has_base) {
		bench_begin(&sides.base, argc, argv);
		start_server(&sides.base, base);
	}
	printf("peer: %s\n", sides.has_base ? base : "git status && true");
	trees_begin(&t);
	make_checkout(&t);
	ratio = bench_compare(&sides.ours, ours, peer, &sides);
	if (sides.has_base)
		bench_end(&sides.base);
	bench_end(&sides.ours);
	if (chdir("/") < 0)
		bench_fail("cannot leave %s", t.tree);
	trees_end(&t);
	bench_print("run", ratio);
	free((char *)sides.ours.berth);
	if (sides.has_base)
		free((char *)sides.base.berth);
	return 0;
}

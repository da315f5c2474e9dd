/*
 * `true` through channel and relay, in a place that is held, against bare posix_spawn and wait.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "bench.h"
#include "place/exec.h"
#include "spawner.h"

#define PLACE "11111111-1111-4111-8111-111111111111"

struct state {
	struct places *places;
	struct runlog_store *logs;
	int serial;
};

static void exec_true(struct state *s)
{
	char *argv[] = { "true", NULL };
	char id[ID_SIZE];
	struct exec_spec spec = {
		.exec_id = id, .place_id = PLACE, .generation = 1, .argv = argv, .cwd = "/"
	};
	struct error err = { 0 };
	struct exec_result result;
	struct exec *exec;

	id_new(id);
	if (runlog_open_new(s->logs, id, &spec.log, &err) < 0 ||
	    exec_start(s->places, &spec, &exec, &err) < 0 || exec_wait(exec, &result, &err) < 0)
		bench_fail("exec: %s", err.message);
	runlog_close(spec.log);
	if (result.exit_code != 0)
		bench_fail("true exited with %d", result.exit_code);
}

static double ours(struct bench *b, void *arg)
{
	double begin = bench_now();

	(void)b;
	for (int i = 0; i < SPAWNS; i++)
		exec_true(arg);
	return bench_now() - begin;
}

static double peer(struct bench *b, void *arg)
{
	(void)b;
	(void)arg;
	return spawn_true(SPAWNS);
}

int main(int argc, char **argv)
{
	struct bench b;
	struct state s = { 0 };
	struct clock clock;
	struct error err = { 0 };
	struct exec_place place = { .place_id = PLACE, .generation = 1 };
	char runtime[96], keeper[4096], relay[4096];
	double ratio;
	int dirfd;

	bench_begin(&b, argc, argv);
	b.rounds *= SPAWN_ROUNDS;
	bench_beside(&b, "berth-keeper", keeper, sizeof(keeper));
	bench_beside(&b, "berth-relay", relay, sizeof(relay));
	clock_init_system(&clock);
	snprintf(runtime, sizeof(runtime), "%s/keeper", b.dir);
	if (dir_open(AT_FDCWD, b.dir, &dirfd, &err) < 0 ||
	    runlog_store_open(dirfd, 0, &s.logs, &err) < 0 ||
	    places_new(&(struct places_options){ .clock = &clock,
						 .owner = "bench",
						 .boot_epoch = 1,
						 .runtime_path = runtime,
						 .keeper_path = keeper,
						 .relay_path = relay },
		       &s.places, &err) < 0 ||
	    places_open(s.places, &place, &err) < 0)
		bench_fail("%s", err.message);
	ratio = bench_compare(&b, ours, peer, &s);
	places_stop(s.places, PLACE, EXEC_CANCELLED, 5000, NULL);
	places_free(s.places);
	runlog_store_close(s.logs);
	bench_end(&b);
	bench_print("exec-relay", ratio);
	return 0;
}

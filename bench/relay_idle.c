/*
 * 1,000 local places, each with its relay, doing nothing: what they take of MemAvailable and of the
 * CPU. The last line is MB per place.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "bench.h"
#include "channel/exec.h"

#define PLACES 1000

static long available_kb(void)
{
	char line[128];
	long kb = 0;
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemAvailable: %ld kB", &kb) == 1)
			break;
	}
	if (f)
		fclose(f);
	return kb;
}

int main(int argc, char **argv)
{
	static char ids[PLACES][ID_SIZE];
	struct bench b;
	struct clock clock;
	struct error err = { 0 };
	struct executor *executor;
	struct runlog_store *logs;
	char runtime[96], keeper[4096], relay[4096];
	char *command[] = { "true", NULL };
	long before, after;
	double begin;
	int dirfd;

	bench_begin(&b, argc, argv);
	bench_beside(&b, "berth-keeper", keeper, sizeof(keeper));
	bench_beside(&b, "berth-relay", relay, sizeof(relay));
	clock_init_system(&clock);
	snprintf(runtime, sizeof(runtime), "%s/keeper", b.dir);
	if (dir_open(AT_FDCWD, b.dir, &dirfd, &err) < 0 ||
	    runlog_store_open(dirfd, 0, &logs, &err) < 0 ||
	    executor_new(&(struct executor_options){ .clock = &clock,
						     .owner = "bench",
						     .boot_epoch = 1,
						     .runtime_path = runtime,
						     .keeper_path = keeper,
						     .relay_path = relay },
			 &executor, &err) < 0)
		bench_fail("%s", err.message);
	before = available_kb();
	begin = bench_now();
	for (int i = 0; i < PLACES; i++) {
		struct exec_spec spec = { .exec_id = ids[i],
					  .place_id = ids[i],
					  .generation = 1,
					  .argv = command,
					  .cwd = "/" };
		struct exec_place place = { .place_id = ids[i], .generation = 1 };
		struct exec_result result;
		struct exec *exec;

		id_new(ids[i]);
		if (runlog_open(logs, ids[i], &spec.log, &err) < 0 ||
		    executor_open_place(executor, &place, &err) < 0 ||
		    exec_start(executor, &spec, &exec, &err) < 0 ||
		    exec_wait(exec, &result, &err) < 0)
			bench_fail("place %d: %s", i, err.message);
		runlog_close(spec.log);
	}
	printf("made in %.1f s\n", bench_now() - begin);
	usleep(2000000); /* idle is what is measured */
	after = available_kb();
	for (int i = 0; i < PLACES; i++)
		executor_stop_place(executor, ids[i], EXEC_CANCELLED, 10000, NULL);
	executor_free(executor);
	runlog_store_close(logs);
	bench_end(&b);
	printf("MB of MemAvailable per idle place:\n");
	bench_print("relay-idle", (double)(before - after) / 1024 / PLACES);
	return 0;
}

/*
 * 1,000 native places held at once: what each takes of MemAvailable, whether the last is as quickly
 * acquired as the tenth, and how long it takes until nothing is left of them. The last line is MB
 * per place.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "native.h"

#define PLACES 1000
#define WINDOW 11
#define CLIENTS 4

static char leases[PLACES][40];
static double seconds[PLACES];

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

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* In the middle of those around number n. */
static double typical(size_t n)
{
	double window[WINDOW];

	memcpy(window, &seconds[n - WINDOW], sizeof(window));
	qsort(window, WINDOW, sizeof(window[0]), by_value);
	return window[WINDOW / 2];
}

static size_t places_left(const struct bench *b)
{
	char path[128];
	DIR *dir;
	size_t count = 0;
	struct dirent *entry;

	snprintf(path, sizeof(path), "%s/keeper/places", b->dir);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		count += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return count;
}

static void release_some(int index, void *arg)
{
	struct bench *b = arg;
	struct client c;

	client_open(&c, b->socket);
	for (int i = index; i < PLACES; i += CLIENTS)
		client_release(&c, leases[i]);
	client_close(&c);
}

int main(int argc, char **argv)
{
	struct client c;
	struct bench b;
	char company[40], environment[40];
	long before, after;
	double begin, release;
	size_t left;

	bench_begin(&b, argc, argv);
	native_print_attach_cost();
	bench_server_start(&b);
	client_open(&c, b.socket);
	native_company(&c, company);
	/* Those that are kept ready would be counted as left. */
	if (!native_environment(&c, company, "held",
				"{\"provider\":\"native\",\"warmPool\":{\"size\":0}}", environment))
		bench_fail("no native places");
	native_acquire(&c, environment, leases[0]);
	native_exec(&c, leases[0], "[\"true\"]");
	client_release(&c, leases[0]);
	before = available_kb();
	begin = bench_now();
	for (size_t i = 0; i < PLACES; i++) {
		double start = bench_now();

		native_acquire(&c, environment, leases[i]);
		seconds[i] = bench_now() - start;
	}
	printf("made in %.1f s; around the 10th %.2f ms, around the last %.2f ms: %.2f (at most "
	       "1.5 is wanted)\n",
	       bench_now() - begin, typical(15) * 1e3, typical(PLACES) * 1e3,
	       typical(PLACES) / typical(15));
	usleep(2000000); /* idle is what is measured */
	after = available_kb();
	native_exec(&c, leases[PLACES - 1], "[\"true\"]");
	release = bench_parallel(CLIENTS, release_some, &b);
	begin = bench_now();
	while ((left = places_left(&b)) > 0 && bench_now() - begin < 60)
		usleep(10000);
	printf("released in %.1f s, all torn down %.1f s later (%zu left; within 10 s is wanted)\n",
	       release, bench_now() - begin, left);
	client_close(&c);
	bench_end(&b);
	printf("MB of MemAvailable per held place:\n");
	bench_print("native-held", (double)(before - after) / 1024 / PLACES);
	return 0;
}

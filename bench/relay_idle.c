/*
 * 1,000 local places, each with a relay that ran a command once, doing nothing: what they take of
 * MemAvailable, and the clock ticks that server, keeper and relays spend in five seconds of it. The
 * ratio is MB per place to LIMIT_MB. Others on the machine take and give memory meanwhile, so it is
 * read after every hundred places, on the way up and on the way down, and the figure is the median
 * of what lies between any two readings: a burst moves few of them, a steady drift cancels out.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "client.h"

#define PLACES 1000
#define LIMIT_MB 0.25
#define BATCH 100
#define READINGS (PLACES / BATCH + 1)
#define SETTLE_S 0.5
#define IDLE_S 5

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

static long most_available_kb(double seconds)
{
	double until = bench_now() + seconds;
	long most = 0;

	while (bench_now() < until) {
		long now = available_kb();

		most = now > most ? now : most;
		usleep(50000);
	}
	return most;
}

struct process {
	pid_t pid, parent;
	long ticks;
};

/* utime and stime; what children took is in their own lines. */
static bool process_read(const char *pid, struct process *p)
{
	char path[64], text[1024];
	unsigned long user, system;
	const char *rest;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = 0;
	rest = strrchr(text, ')');
	if (!rest || sscanf(rest + 2, "%*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
			    &p->parent, &user, &system) != 3)
		return false;
	p->pid = (pid_t)strtol(pid, NULL, 10);
	p->ticks = (long)(user + system);
	return true;
}

/* The server, its keeper and the keeper's relays: three generations. */
struct family {
	size_t relays;
	long server_ticks, keeper_ticks, relay_ticks;
};

static struct family family_of(pid_t server)
{
	static struct process all[65536];
	struct family family = { 0 };
	struct dirent *entry;
	size_t count = 0;
	pid_t keeper = 0;
	DIR *dir = opendir("/proc");

	while (dir && count < 65536 && (entry = readdir(dir)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			count += process_read(entry->d_name, &all[count]);
	if (dir)
		closedir(dir);
	for (size_t i = 0; i < count; i++)
		if (all[i].parent == server)
			keeper = all[i].pid;
	for (size_t i = 0; i < count; i++) {
		if (all[i].pid == server) {
			family.server_ticks += all[i].ticks;
		} else if (all[i].pid == keeper) {
			family.keeper_ticks += all[i].ticks;
		} else if (keeper > 0 && all[i].parent == keeper) {
			family.relay_ticks += all[i].ticks;
			family.relays++;
		}
	}
	return family;
}

/* Where leases of the default Local environment are had. */
static void find_local(struct client *c, char path[160])
{
	json_t *company = client_json(c, "POST", "/api/companies", "{\"name\":\"bench\"}", 201);
	json_t *environments;

	snprintf(path, 160, "/api/companies/%s/environments", json_str(company, "id"));
	environments = client_json(c, "GET", path, NULL, 200);
	snprintf(path, 160, "/api/environments/%s/leases",
		 json_str(json_array_get(environments, 0), "id"));
	json_decref(company);
	json_decref(environments);
}

static void use_new_place(struct client *c, const char *local, char lease_id[64])
{
	json_t *lease = client_json(c, "POST", local, "{}", 201);
	char path[256];

	snprintf(lease_id, 64, "%s", json_str(lease, "id"));
	json_decref(lease);
	snprintf(path, sizeof(path), "/api/environment-leases/%s/exec?stream=0", lease_id);
	json_decref(client_json(c, "POST", path, "{\"command\":[\"true\"]}", 200));
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* kB per place: the median over all pairs of readings, of which index i was taken with i batches.
 */
static double slope(const long *kb)
{
	static double slopes[READINGS * READINGS];
	size_t count = 0;

	for (int i = 0; i < READINGS; i++)
		for (int j = i + 1; j < READINGS; j++)
			slopes[count++] = (double)(kb[i] - kb[j]) / ((j - i) * BATCH);
	qsort(slopes, count, sizeof(slopes[0]), by_size);
	return slopes[count / 2];
}

int main(int argc, char **argv)
{
	static char leases[PLACES + 1][64];
	char local[160];
	struct bench b;
	struct client c;
	struct family busy, idle;
	long up[READINGS], down[READINGS];
	double begin, each;

	bench_begin(&b, argc, argv);
	bench_server_start(&b);
	client_open(&c, b.socket);
	/* The first brings the keeper, which is not what a place costs. */
	find_local(&c, local);
	use_new_place(&c, local, leases[PLACES]);
	begin = bench_now();
	up[0] = most_available_kb(SETTLE_S);
	for (int i = 0; i < PLACES; i++) {
		use_new_place(&c, local, leases[i]);
		if ((i + 1) % BATCH == 0)
			up[(i + 1) / BATCH] = most_available_kb(SETTLE_S);
	}
	printf("%d places made and used in %.1f s\n", PLACES, bench_now() - begin);
	busy = family_of(b.server);
	sleep(IDLE_S); /* idle is what is measured */
	idle = family_of(b.server);
	if (idle.relays != PLACES + 1)
		bench_fail("there are %zu relays instead of %d", idle.relays, PLACES + 1);
	down[READINGS - 1] = most_available_kb(SETTLE_S);
	for (int i = PLACES; i-- > 0;) {
		client_release(&c, leases[i]);
		if (i % BATCH == 0)
			down[i / BATCH] = most_available_kb(SETTLE_S);
	}
	client_release(&c, leases[PLACES]);
	client_close(&c);
	bench_end(&b);
	each = (slope(up) + slope(down)) / 2 / 1024;
	printf("clock ticks in %d idle seconds: server %ld, keeper %ld, %zu relays %ld\n", IDLE_S,
	       idle.server_ticks - busy.server_ticks, idle.keeper_ticks - busy.keeper_ticks,
	       idle.relays, idle.relay_ticks - busy.relay_ticks);
	printf("MB of MemAvailable per idle place: %.3f\n", each);
	bench_print("relay-idle", each / LIMIT_MB);
	return 0;
}

#include "bench.h"

#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "client.h"

extern char **environ;

_Noreturn void bench_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

double bench_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

void bench_begin(struct bench *b, int argc, char **argv)
{
	*b = (struct bench){ .berth = "build/berth", .rounds = 9 };
	for (int i = 1; i < argc; i++) {
		int64_t n;

		if (streq(argv[i], "--berth") && i + 1 < argc)
			b->berth = argv[++i];
		else if (streq(argv[i], "--rounds") && i + 1 < argc &&
			 parse_i64(argv[i + 1], 1, 1000, &n))
			b->rounds = (int)n, i++;
		else
			bench_fail("usage: %s [--berth PROGRAM] [--rounds N]", argv[0]);
	}
	snprintf(b->dir, sizeof(b->dir), "/tmp/berth-bench-XXXXXX");
	if (!mkdtemp(b->dir))
		bench_fail("no temporary directory");
	setvbuf(stdout, NULL, _IOLBF, 0);
}

void bench_beside(const struct bench *b, const char *name, char *out, size_t size)
{
	const char *slash = strrchr(b->berth, '/');
	char here[2048];

	snprintf(here, sizeof(here), "%.*s%s", slash ? (int)(slash - b->berth) + 1 : 0, b->berth,
		 name);
	if (strlen(here) >= size || !realpath(here, out))
		bench_fail("there is no %s", here);
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st, (void)flag, (void)ftw;
	return remove(path);
}

void bench_end(struct bench *b)
{
	bench_server_stop(b);
	nftw(b->dir, remove_entry, 32, FTW_DEPTH | FTW_PHYS);
}

void bench_server_start(struct bench *b)
{
	char *argv[] = { (char *)b->berth, "serve", "--data", b->dir, "--allow-fake", NULL };
	posix_spawn_file_actions_t actions;
	double deadline = bench_now() + 20;
	_cleanup_free_ char *log = xasprintf("%s/server.log", b->dir);

	snprintf(b->socket, sizeof(b->socket), "%s/berth.sock", b->dir);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 2, log, 02101,
					 0600); /* O_WRONLY|O_CREAT|O_APPEND */
	if (posix_spawn(&b->server, b->berth, &actions, NULL, argv, environ) != 0)
		bench_fail("cannot start %s", b->berth);
	posix_spawn_file_actions_destroy(&actions);
	for (;;) {
		struct client c;

		if (access(b->socket, F_OK) == 0) {
			client_open(&c, b->socket);
			if (c.fd >= 0 && client_call(&c, "GET", "/api/health", NULL, NULL) == 200) {
				client_close(&c);
				return;
			}
			client_close(&c);
		}
		if (bench_now() > deadline || waitpid(b->server, NULL, WNOHANG) > 0)
			bench_fail("the server did not come up; see %s", log);
		usleep(500);
	}
}

void bench_server_stop(struct bench *b)
{
	if (b->server <= 0)
		return;
	kill(b->server, SIGTERM);
	waitpid(b->server, NULL, 0);
	b->server = 0;
}

static long pss_kb(const char *pid)
{
	char path[64], line[256];
	long kb = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/smaps_rollup", pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "Pss: %ld kB", &kb) == 1)
			break;
	}
	fclose(f);
	return kb;
}

long bench_memory_kb(pid_t pid)
{
	char self[24], path[64], children[1024] = "";
	long total;
	FILE *f;

	snprintf(self, sizeof(self), "%d", (int)pid);
	total = pss_kb(self);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	f = fopen(path, "re");
	if (f) {
		if (fgets(children, sizeof(children), f)) {
			char *rest = NULL;

			for (char *p = strtok_r(children, " ", &rest); p;
			     p = strtok_r(NULL, " ", &rest))
				total += pss_kb(p);
		}
		fclose(f);
	}
	return total;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double bench_compare(struct bench *b, bench_fn *ours, bench_fn *peer, void *arg)
{
	_cleanup_free_ double *ratios = xcalloc((size_t)b->rounds, sizeof(*ratios));

	ours(b, arg);
	peer(b, arg);
	for (int i = 0; i < b->rounds; i++) {
		double mine, theirs;

		/* Whoever goes first in a round meets the colder machine: take turns. */
		if (i % 2) {
			mine = ours(b, arg);
			theirs = peer(b, arg);
		} else {
			theirs = peer(b, arg);
			mine = ours(b, arg);
		}
		ratios[i] = mine / theirs;
		printf("round %d: %.3f ms against %.3f ms, ratio %.2f\n", i + 1, mine * 1e3,
		       theirs * 1e3, ratios[i]);
	}
	qsort(ratios, (size_t)b->rounds, sizeof(*ratios), by_value);
	return ratios[b->rounds / 2];
}

void bench_print(const char *name, double ratio)
{
	printf("%s ratio %.2f\n", name, ratio);
}

struct worker {
	pthread_t thread;
	int index;
	void (*fn)(int, void *);
	void *arg;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	w->fn(w->index, w->arg);
	return NULL;
}

double bench_parallel(int threads, void (*fn)(int, void *), void *arg)
{
	_cleanup_free_ struct worker *w = xcalloc((size_t)threads, sizeof(*w));
	double begin = bench_now();

	for (int i = 0; i < threads; i++) {
		w[i] = (struct worker){ .index = i, .fn = fn, .arg = arg };
		if (pthread_create(&w[i].thread, NULL, work, &w[i]) != 0)
			bench_fail("no thread");
	}
	for (int i = 0; i < threads; i++)
		pthread_join(w[i].thread, NULL);
	return bench_now() - begin;
}

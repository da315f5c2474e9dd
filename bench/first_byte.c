/*
 * From the request for a native place to the first byte that a command prints there, against bare
 * posix_spawn of the same command: asked for when the lease is there and together with it, one
 * after another and with the pool full again each time. The last line is one request, pool full.
 */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "native.h"

/* One against one, and many of them: the machine's speed changes from one moment to the next. */
#define CYCLES 1
#define ROUNDS_EACH 15
#define PAUSE_US 50000

extern char **environ;

struct state {
	struct client client;
	char environment_id[40];
	useconds_t pause_us; /* before each, ours and the peer's: the pool is full again */
	bool at_once;        /* lease and command in one request */
};

/* Whether all of an answer is there, which came in chunks or with its length. */
static bool is_whole(const char *answer, const char *body)
{
	const char *length = strcasestr(answer, "\r\nContent-Length:");

	return length && length < body ? strlen(body) >= strtoul(length + 17, NULL, 10)
				       : strstr(body - 2, "\r\n0\r\n") != NULL;
}

static void post(struct client *client, const char *path, const char *id, const char *last,
		 const char *body)
{
	dprintf(client->fd,
		"POST %s/%s/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
		"Content-Length: %zu\r\n\r\n%s",
		path, id, last, strlen(body), body);
}

/*
 * From the request for a lease to the first byte that the command prints: asked for with the lease,
 * or when that is there.
 */
static double first_byte(struct state *s)
{
	char lease[40], answer[4096], *start;
	double begin = bench_now(), seconds = 0;
	size_t len = 0;

	if (s->at_once) {
		post(&s->client, "/api/environments", s->environment_id, "leases",
		     "{\"exec\":{\"command\":[\"echo\",\"x\"]}}");
	} else {
		native_acquire(&s->client, s->environment_id, lease);
		post(&s->client, "/api/environment-leases", lease, "exec",
		     "{\"command\":[\"echo\",\"x\"]}");
	}
	do {
		ssize_t n = read(s->client.fd, answer + len, sizeof(answer) - 1 - len);

		if (n <= 0)
			bench_fail("no output came");
		len += (size_t)n;
		answer[len] = 0;
		start = strstr(answer, "\r\n\r\n");
		/* In the event of the output: that of the start has an x in "execId". */
		if (seconds == 0 && start && strstr(start, "\"data\":\"x"))
			seconds = bench_now() - begin;
	} while (seconds == 0 || !is_whole(answer, start + 4));
	if (s->at_once) {
		const char *id = strstr(answer, "\"lease\":{\"id\":\"");

		if (!id)
			bench_fail("no lease came: %s", answer);
		snprintf(lease, sizeof(lease), "%.36s", id + 15);
	}
	client_release(&s->client, lease);
	return seconds;
}

static double ours_first(struct bench *b, void *arg)
{
	double seconds = 0;

	(void)b;
	for (int i = 0; i < CYCLES; i++) {
		usleep(((struct state *)arg)->pause_us);
		seconds += first_byte(arg);
	}
	return seconds;
}

static double peer_first(struct bench *b, void *arg)
{
	char *argv[] = { "echo", "x", NULL };
	double seconds = 0;

	(void)b;
	for (int i = 0; i < CYCLES; i++) {
		posix_spawn_file_actions_t actions;
		double begin;
		int pipes[2];
		pid_t pid;
		char byte;

		usleep(((struct state *)arg)->pause_us);
		begin = bench_now();

		if (pipe2(pipes, O_CLOEXEC) < 0)
			bench_fail("pipe");
		posix_spawn_file_actions_init(&actions);
		posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
		if (posix_spawnp(&pid, "echo", &actions, NULL, argv, environ) != 0 ||
		    read(pipes[0], &byte, 1) != 1)
			bench_fail("cannot start echo");
		seconds += bench_now() - begin;
		posix_spawn_file_actions_destroy(&actions);
		close(pipes[0]);
		close(pipes[1]);
		waitpid(pid, NULL, 0);
	}
	return seconds;
}

static const struct {
	const char *name;
	bool at_once;
	useconds_t pause_us;
} WAYS[] = {
	{ "the command asked for when the lease is there, one after another", false, 0 },
	{ "the command asked for when the lease is there", false, PAUSE_US },
	{ "the command asked for with the lease, one after another", true, 0 },
	{ "the command asked for with the lease", true, PAUSE_US },
};

int main(int argc, char **argv)
{
	static struct state s;
	double ratio = 0;
	char company[40];
	struct bench b;

	bench_begin(&b, argc, argv);
	native_print_attach_cost();
	bench_server_start(&b);
	client_open(&s.client, b.socket);
	native_company(&s.client, company);
	if (!native_environment(&s.client, company, "default", "{\"provider\":\"native\"}",
				s.environment_id))
		bench_fail("no native places");
	b.rounds *= ROUNDS_EACH;
	for (size_t i = 0; i < sizeof(WAYS) / sizeof(WAYS[0]); i++) {
		s.at_once = WAYS[i].at_once;
		s.pause_us = WAYS[i].pause_us;
		printf("%s:\n", WAYS[i].name);
		ratio = bench_compare(&b, ours_first, peer_first, &s);
		printf("%s, against posix_spawn: %.2f\n", WAYS[i].name, ratio);
	}
	client_close(&s.client);
	bench_end(&b);
	bench_print("first-byte", ratio);
	return 0;
}

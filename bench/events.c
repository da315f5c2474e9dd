/*
 * One event to 1,000 readers of server-sent events: from the request that causes it until the last
 * of them has it, against a loop that writes the same bytes to 1,000 sockets once a byte tells it
 * to. On both sides one thread here reads all of them. Also prints what a reader takes of memory.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "bench.h"
#include "client.h"

#define READERS 1000
#define EVENTS 5 /* of one round */
#define PATIENCE_MS 20000

struct crowd {
	int fds[READERS];
	int epoll_fd;
};

struct world {
	struct client client;
	char company_id[40];
	struct crowd served, bare;
	int bare_ends[READERS];
	int tell_fd; /* a byte makes the writer write */
	char frame[1024];
	size_t frame_len;
	int made;
};

static void crowd_add(struct crowd *crowd, int index, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	crowd->fds[index] = fd;
	if (epoll_ctl(crowd->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		bench_fail("epoll: %s", strerror(errno));
}

/* Until each of the crowd has had `bytes` more. */
static void hear(struct crowd *crowd, size_t bytes)
{
	static char part[65536];
	size_t left = bytes * READERS;

	while (left) {
		struct epoll_event events[256];
		int n = epoll_wait(crowd->epoll_fd, events, 256, PATIENCE_MS);

		if (n <= 0)
			bench_fail("%zu bytes never came", left);
		for (int i = 0; i < n; i++) {
			ssize_t got = recv(events[i].data.fd, part, sizeof(part), MSG_DONTWAIT);

			if (got <= 0)
				bench_fail("a reader was dropped");
			if ((size_t)got > left)
				bench_fail("more came than there was");
			left -= (size_t)got;
		}
	}
}

/* One reader alone learns how long the frame is that a request causes. */
static void measure_frame(struct bench *b, struct world *w)
{
	struct client probe;
	ssize_t n;

	client_open(&probe, b->socket);
	dprintf(probe.fd,
		"GET /api/companies/%s/events?types=activity.logged HTTP/1.1\r\n"
		"Host: localhost\r\n\r\n",
		w->company_id);
	n = recv(probe.fd, w->frame, sizeof(w->frame), 0);
	if (n <= 0)
		bench_fail("no stream of events");
	while (n > 0 && !memmem(w->frame, (size_t)n, "retry: ", 7))
		n = recv(probe.fd, w->frame, sizeof(w->frame), 0);
	json_decref(client_json(&w->client, "POST", "/api/companies", "{\"name\":\"other\"}", 201));

	char path[128];

	snprintf(path, sizeof(path), "/api/companies/%s/projects", w->company_id);
	json_decref(client_json(&w->client, "POST", path, "{\"name\":\"p\"}", 201));
	n = recv(probe.fd, w->frame, sizeof(w->frame), 0);
	if (n < 10 || memcmp(w->frame + n - 2, "\n\n", 2) != 0)
		bench_fail("no frame");
	w->frame_len = (size_t)n;
	client_close(&probe);
}

static void open_readers(struct bench *b, struct world *w)
{
	for (int i = 0; i < READERS; i++) {
		struct client c;
		char head[2048] = "";
		size_t len = 0;

		client_open(&c, b->socket);
		if (c.fd < 0)
			bench_fail("reader %d cannot connect", i);
		dprintf(c.fd,
			"GET /api/companies/%s/events?types=activity.logged HTTP/1.1\r\n"
			"Host: localhost\r\n\r\n",
			w->company_id);
		/* The preamble: it is attached, or about to be. */
		while (!strstr(head, "\nid: ") || strcmp(head + len - 2, "\n\n") != 0) {
			ssize_t n = recv(c.fd, head + len, sizeof(head) - len - 1, 0);

			if (n <= 0)
				bench_fail("reader %d was refused: %s", i, head);
			len += (size_t)n;
			head[len] = '\0';
		}
		crowd_add(&w->served, i, c.fd);
	}
}

static void *write_loop(void *arg)
{
	struct world *w = arg;
	char byte;

	while (read(w->tell_fd, &byte, 1) == 1) {
		for (int i = 0; i < READERS; i++) {
			if (write(w->bare_ends[i], w->frame, w->frame_len) != (ssize_t)w->frame_len)
				bench_fail("short write");
		}
	}
	return NULL;
}

static int start_writer(struct world *w)
{
	int pair[2];
	pthread_t thread;

	for (int i = 0; i < READERS; i++) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
			bench_fail("socketpair: %s", strerror(errno));
		crowd_add(&w->bare, i, pair[0]);
		w->bare_ends[i] = pair[1];
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		bench_fail("socketpair: %s", strerror(errno));
	w->tell_fd = pair[0];
	if (pthread_create(&thread, NULL, write_loop, w) != 0)
		bench_fail("no thread");
	pthread_detach(thread);
	return pair[1];
}

static double ours(struct bench *b, void *arg)
{
	struct world *w = arg;
	double begin = bench_now();
	char path[128];
	(void)b;

	snprintf(path, sizeof(path), "/api/companies/%s/projects", w->company_id);
	for (int i = 0; i < EVENTS; i++) {
		/* The request's own answer comes somewhere in between, and counts. */
		json_decref(client_json(&w->client, "POST", path, "{\"name\":\"p\"}", 201));
		/* Numbers get longer now and then; all readers see the same. */
		int before = snprintf(NULL, 0, "%d", w->made), after;

		w->made++;
		after = snprintf(NULL, 0, "%d", w->made);
		w->frame_len += 2 * (size_t)(after - before);
		hear(&w->served, w->frame_len);
	}
	return bench_now() - begin;
}

static int tell_fd;

static double peer(struct bench *b, void *arg)
{
	struct world *w = arg;
	double begin = bench_now();
	(void)b;

	for (int i = 0; i < EVENTS; i++) {
		if (write(tell_fd, "x", 1) != 1)
			bench_fail("the writer is gone");
		hear(&w->bare, w->frame_len);
	}
	return bench_now() - begin;
}

static int seq_in(const char *frame)
{
	int seq = 0;

	if (sscanf(frame, "id: %d", &seq) != 1)
		bench_fail("a frame without an id");
	return seq;
}

int main(int argc, char **argv)
{
	static struct world w;
	struct rlimit files = { 8192, 8192 };
	struct bench b;
	json_t *company;
	long before_kb, after_kb;
	double ratio;

	setrlimit(RLIMIT_NOFILE, &files);
	bench_begin(&b, argc, argv);
	bench_server_start(&b);
	client_open(&w.client, b.socket);
	company = client_json(&w.client, "POST", "/api/companies", "{\"name\":\"bench\"}", 201);
	snprintf(w.company_id, sizeof(w.company_id), "%s", json_str(company, "id"));
	json_decref(company);
	w.served.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	w.bare.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	measure_frame(&b, &w);
	w.made = seq_in(w.frame);
	tell_fd = start_writer(&w);
	before_kb = bench_memory_kb(b.server);
	open_readers(&b, &w);
	after_kb = bench_memory_kb(b.server);
	ratio = bench_compare(&b, ours, peer, &w);
	printf("%d readers: %.1f kB each, %.1f kB after events\n", READERS,
	       (double)(after_kb - before_kb) / READERS,
	       (double)(bench_memory_kb(b.server) - before_kb) / READERS);
	client_close(&w.client);
	bench_end(&b);
	bench_print("events", ratio);
	return 0;
}

/*
 * GET of one environment over kept-alive connections by 8 clients, against a bare libmicrohttpd
 * handler in the same mode (a thread per connection) that answers the same bytes from memory.
 */
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"
#include "bench.h"
#include "client.h"

#define CLIENTS 8
#define CALLS 1500

struct state {
	char path[128], peer_socket[100];
	char *body;
	struct client ours[CLIENTS], peers[CLIENTS];
};

static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url,
			      const char *method, const char *version, const char *upload,
			      size_t *upload_len, void **context)
{
	struct state *s = arg;
	static int seen;
	(void)url;
	(void)method;
	(void)version;
	(void)upload;
	(void)upload_len;

	if (!*context) {
		*context = &seen;
		return MHD_YES;
	}

	struct MHD_Response *response =
		MHD_create_response_from_buffer(strlen(s->body), s->body, MHD_RESPMEM_PERSISTENT);
	MHD_add_response_header(response, "Content-Type", "application/json");

	enum MHD_Result queued = MHD_queue_response(connection, MHD_HTTP_OK, response);

	MHD_destroy_response(response);
	return queued;
}

static struct MHD_Daemon *start_peer(struct state *s)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct MHD_Daemon *daemon;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", s->peer_socket);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, 64) < 0)
		bench_fail("the peer cannot listen");
	daemon = MHD_start_daemon(
		MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL, 0,
		NULL, NULL, answer, s, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_END);
	if (!daemon)
		bench_fail("the peer cannot start");
	return daemon;
}

static void call_all(struct client *c, const struct state *s)
{
	for (int i = 0; i < CALLS; i++) {
		const char *body;

		if (client_call(c, "GET", s->path, NULL, &body) != 200 || !streq(body, s->body))
			bench_fail("GET %s did not give the environment", s->path);
	}
}

static void call_ours(int index, void *arg)
{
	struct state *s = arg;

	call_all(&s->ours[index], s);
}

static void call_peer(int index, void *arg)
{
	struct state *s = arg;

	call_all(&s->peers[index], s);
}

static double ours(struct bench *b, void *arg)
{
	(void)b;
	return bench_parallel(CLIENTS, call_ours, arg);
}

static double peer(struct bench *b, void *arg)
{
	(void)b;
	return bench_parallel(CLIENTS, call_peer, arg);
}

int main(int argc, char **argv)
{
	struct bench b;
	struct state s = { 0 };
	struct MHD_Daemon *daemon;
	char environment_id[40], company_id[40];
	const char *body;
	double ratio;

	bench_begin(&b, argc, argv);
	bench_server_start(&b);
	for (int i = 0; i < CLIENTS; i++)
		client_open(&s.ours[i], b.socket);
	client_setup_fake(&s.ours[0], true, environment_id, company_id);
	snprintf(s.path, sizeof(s.path), "/api/environments/%s", environment_id);
	if (client_call(&s.ours[0], "GET", s.path, NULL, &body) != 200)
		bench_fail("the environment is not there");
	s.body = xstrdup(body);
	snprintf(s.peer_socket, sizeof(s.peer_socket), "%s/peer.sock", b.dir);
	daemon = start_peer(&s);
	for (int i = 0; i < CLIENTS; i++)
		client_open(&s.peers[i], s.peer_socket);
	ratio = bench_compare(&b, ours, peer, &s);
	for (int i = 0; i < CLIENTS; i++) {
		client_close(&s.ours[i]);
		client_close(&s.peers[i]);
	}
	MHD_stop_daemon(daemon);
	free(s.body);
	bench_end(&b);
	bench_print("api-get", ratio);
	return 0;
}

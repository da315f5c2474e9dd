#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "keeper/keeper.h"
#include "wire/hello.h"

#define CLIENTS_MAX 64
#define BACKLOG_LISTEN 32
#define BACKLOG_OUT (4u << 20)
#define REQUEST_MAX (32u << 10)

static void client_free(struct client *c)
{
	struct keeper *keeper = c->keeper;

	for (struct client **p = &keeper->clients; *p; p = &(*p)->next) {
		if (*p == c) {
			*p = c->next;
			break;
		}
	}
	keeper->client_count--;
	for (struct place *place = keeper->places; place; place = place->next) {
		if (place->maker.client == c)
			place->maker.client = NULL;
		if (place->destroyer.client == c)
			place->destroyer.client = NULL;
	}
	for (struct store *store = keeper->stores; store; store = store->next)
		if (store->remove_waiter.client == c)
			store->remove_waiter.client = NULL;
	loop_unwatch(&keeper->loop, &c->watch);
	loop_disarm(&keeper->loop, &c->timer);
	loop_disarm(&keeper->loop, &c->end);
	conn_close(&c->conn);
	free(c);
	pool_client_left(keeper);
	keeper_check_idle(keeper);
}

static void end_due(struct timer *timer)
{
	client_free(container_of(timer, struct client, end));
}

static void client_break(struct client *c)
{
	if (c->broken)
		return;
	c->broken = true;
	loop_unwatch(&c->keeper->loop, &c->watch);
	loop_arm(&c->keeper->loop, &c->end, 0);
}

static void client_flush(struct client *c)
{
	if (c->broken)
		return;
	/* Lists are bounded by the places there are; whoever lets them pile up is not listening. */
	if (conn_flush(&c->conn) < 0 || conn_backlog(&c->conn) > BACKLOG_OUT)
		client_break(c);
	else
		loop_change(&c->keeper->loop, &c->watch,
			    EPOLLIN | (conn_backlog(&c->conn) > 0 ? EPOLLOUT : 0u));
}

static void client_send(struct client *c, uint32_t stream, enum wire_type type, const void *msg)
{
	_cleanup_error_ struct error err = { 0 };

	if (!c->broken && wire_encode(&c->conn.out, stream, type, msg, &err) < 0)
		log_error("cannot answer: %s", err.message);
}

static void client_done(struct client *c, uint32_t stream)
{
	client_send(c, stream, WIRE_DONE, &(struct wire_done){});
}

static void client_reject(struct client *c, enum wire_error_code code, const char *message)
{
	if (c->broken)
		return;
	log_warn("client closed: %s: %s", wire_error_name(code), message);
	wire_encode_error(&c->conn.out, 0, code, 0, "%s", message);
	client_flush(c);
	client_break(c);
}

static void send_state(struct client *c, uint32_t stream, const struct place *place)
{
	struct place_paths paths;
	struct wire_place_state state;

	place_describe(place, &paths, &state);
	client_send(c, stream, WIRE_PLACE_STATE, &state);
}

/* To the one who had it made; its connection is not the next one's who asks. */
static void send_made(struct client *c, uint32_t stream, struct place *place)
{
	send_state(c, stream, place);
	place->handed = false;
}

void client_place_ready(struct place *place)
{
	struct client *c = place->maker.client;

	place->maker.client = NULL;
	if (!c)
		return;
	send_made(c, place->maker.stream, place);
	client_flush(c);
}

void client_place_failed(struct place *place, enum wire_error_code code, const char *why)
{
	struct client *c = place->maker.client;

	place->maker.client = NULL;
	if (!c || c->broken)
		return;
	wire_encode_error(&c->conn.out, place->maker.stream, code, 0, "%s", why);
	client_flush(c);
}

void client_place_gone(struct place *place)
{
	struct client *c = place->destroyer.client;

	place->destroyer.client = NULL;
	if (!c)
		return;
	client_done(c, place->destroyer.stream);
	client_flush(c);
}

void client_answer(struct waiter *waiter, enum wire_error_code code, const char *why)
{
	struct client *c = waiter->client;

	waiter->client = NULL;
	if (!c || c->broken)
		return;
	if (code == WERR_NONE)
		client_done(c, waiter->stream);
	else
		wire_encode_error(&c->conn.out, waiter->stream, code, 0, "%s", why);
	client_flush(c);
}

static void serve_store_remove(struct client *c, const struct wire_message *m)
{
	struct store *store = store_find(c->keeper, m->store_remove.store);

	if (!store)
		client_done(c, m->stream);
	else
		store_remove(store, c, m->stream);
}

static void serve_make(struct client *c, const struct wire_message *m)
{
	struct place *place = place_find(c->keeper, m->place_make.place_id);
	_cleanup_close_ int handed = m->place_make.handed ? conn_take_fd(&c->conn) : -1;
	_cleanup_error_ struct error err = { 0 };
	enum wire_error_code code;

	if (place && place->maker.client) {
		wire_encode_error(&c->conn.out, m->stream, WERR_BUSY, 0, "it is being made");
		return;
	}
	/* What went with another question is the connection of somebody who has gone. */
	if (place)
		place->handed = false;
	if (place && place->phase != PHASE_MAKING) {
		send_state(c, m->stream, place);
		return;
	}
	if (!place && place_make(c->keeper, &m->place_make, &handed, &place, &code, &err) < 0) {
		wire_encode_error(&c->conn.out, m->stream, code, 0, "%s", err.message);
		return;
	}
	if (place->phase != PHASE_MAKING) {
		send_made(c, m->stream, place);
		return;
	}
	place->maker.client = c;
	place->maker.stream = m->stream;
}

static void serve_list(struct client *c, const struct wire_message *m)
{
	for (const struct place *p = c->keeper->places; p; p = p->next)
		send_state(c, m->stream, p);
	client_done(c, m->stream);
}

static void serve_destroy(struct client *c, const struct wire_message *m)
{
	struct place *place = place_find(c->keeper, m->place_destroy.place_id);

	if (!place) {
		wire_encode_error(&c->conn.out, m->stream, WERR_NO_PLACE, 0,
				  "there is no such place");
		return;
	}
	if (m->place_destroy.processes_only) {
		place_end_processes(place);
		client_done(c, m->stream);
		return;
	}
	/* The last one to ask is told; asking again after a lost answer is how it is meant. */
	if (place->destroyer.client)
		wire_encode_error(&place->destroyer.client->conn.out, place->destroyer.stream,
				  WERR_REPLACED, 0, "asked again");
	place->destroyer.client = c;
	place->destroyer.stream = m->stream;
	place_destroy(place);
}

static void serve_status(struct client *c, const struct wire_message *m)
{
	struct wire_keeper_state state = {
		.clients = c->keeper->client_count,
		.uptime_ms = (uint64_t)(boottime_ms() - c->keeper->started_ms),
		.cgroup = c->keeper->cgroup,
	};

	for (const struct place *p = c->keeper->places; p; p = p->next) {
		state.alive += place_is_up(p);
		state.dead += !place_is_up(p);
	}
	client_send(c, m->stream, WIRE_KEEPER_STATE, &state);
}

static void serve_ping(struct client *c, const struct wire_message *m)
{
	client_send(c, m->stream, WIRE_PONG, &(struct wire_pong){ .token = m->ping.token });
}

static void greet(struct client *c, const struct wire_message *m)
{
	_cleanup_error_ struct error err = { 0 };
	struct wire_keeper_welcome welcome = { .features = WIRE_KEEPER_HANDS | WIRE_KEEPER_BOUNDS,
					       .pid = (uint32_t)getpid(),
					       .program_version = BERTH_VERSION };
	char boot[ID_SIZE];

	if (m->type != WIRE_KEEPER_HELLO) {
		client_reject(c, WERR_PROTOCOL, "the first message must be keeper_hello");
		return;
	}
	if (hello_agree_version(m->keeper_hello.version, m->keeper_hello.min_version,
				&welcome.version, &err) < 0) {
		client_reject(c, WERR_VERSION, err.message);
		return;
	}
	c->greeted = true;
	loop_disarm(&c->keeper->loop, &c->timer);
	for (const struct place *p = c->keeper->places; p; p = p->next)
		welcome.places++;
	boot_id(boot);
	welcome.boot_id = boot;
	client_send(c, m->stream, WIRE_KEEPER_WELCOME, &welcome);
}

static const struct verb {
	enum wire_type type;
	void (*serve)(struct client *, const struct wire_message *);
} verbs[] = {
	{ WIRE_PLACE_MAKE, serve_make },           { WIRE_PLACE_LIST, serve_list },
	{ WIRE_PLACE_DESTROY, serve_destroy },     { WIRE_KEEPER_STATUS, serve_status },
	{ WIRE_STORE_REMOVE, serve_store_remove },
};

static void serve_message(struct client *c, const struct wire_message *m)
{
	if (!c->greeted) {
		greet(c, m);
		return;
	}
	if (m->type == WIRE_PING) {
		serve_ping(c, m);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		if (verbs[i].type != m->type)
			continue;
		if (m->stream <= c->highest_stream) {
			client_reject(c, WERR_PROTOCOL, "the stream was used before");
			return;
		}
		c->highest_stream = m->stream;
		verbs[i].serve(c, m);
		return;
	}
	client_reject(c, WERR_PROTOCOL, "a keeper takes no such message");
}

static void client_ready(struct watch *watch, uint32_t events)
{
	struct client *c = container_of(watch, struct client, watch);
	_cleanup_error_ struct error err = { 0 };
	struct frame frame;
	int filled = 0, r = 0;

	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		filled = conn_fill(&c->conn);
	while (!c->broken && !c->keeper->loop.stop && (r = conn_next(&c->conn, &frame, &err)) > 0) {
		_cleanup_wire_message_ struct wire_message m = { 0 };

		if (wire_decode(&frame, &m, &err) < 0)
			client_reject(c, WERR_PROTOCOL, err.message);
		else
			serve_message(c, &m);
	}
	if (r < 0)
		client_reject(c, WERR_PROTOCOL, err.message);
	client_flush(c);
	if (filled < 0)
		client_break(c);
}

static void hello_late(struct timer *timer)
{
	client_reject(container_of(timer, struct client, timer), WERR_PROTOCOL, "no hello in time");
}

/* The directory is 0700; this also stops a descriptor of it that got into other hands. */
static bool peer_is_trusted(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return false;
	return peer.uid == geteuid() || peer.uid == 0;
}

static void listener_ready(struct watch *watch, uint32_t events)
{
	struct keeper *keeper = container_of(watch, struct keeper, listener);
	int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct client *c;

	(void)events;
	if (fd < 0)
		return;
	if (!peer_is_trusted(fd) || keeper->client_count >= CLIENTS_MAX) {
		log_warn("a connection was refused");
		close(fd);
		return;
	}
	c = xcalloc(1, sizeof(*c));
	c->keeper = keeper;
	c->watch = (struct watch){ .fd = -1, .ready = client_ready };
	c->timer.due = hello_late;
	c->end.due = end_due;
	conn_init(&c->conn, fd, REQUEST_MAX);
	c->conn.takes_fds = c->conn.wide = true;
	c->next = keeper->clients;
	keeper->clients = c;
	keeper->client_count++;
	if (loop_watch(&keeper->loop, &c->watch, fd, EPOLLIN, NULL) < 0)
		client_break(c);
	loop_arm(&keeper->loop, &c->timer, WIRE_HELLO_MS);
	keeper_check_idle(keeper);
}

int client_listen(struct keeper *keeper, struct error *err)
{
	static const char fresh[] = KEEPER_SOCKET_NAME ".new";
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (fd < 0)
		return error_errno(err, errno, "making a socket");
	unlinkat(keeper->dir_fd, fresh, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", keeper->dir_fd,
		 fresh);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, BACKLOG_LISTEN) < 0)
		return error_errno(err, errno, "binding the keeper's socket");
	/* It listens before it has its name: nobody finds a socket that does not answer. */
	if (renameat(keeper->dir_fd, fresh, keeper->dir_fd, KEEPER_SOCKET_NAME) < 0)
		return error_errno(err, errno, "naming the keeper's socket");
	keeper->listener.ready = listener_ready;
	return loop_watch(&keeper->loop, &keeper->listener, steal_fd(&fd), EPOLLIN, err);
}

void client_close_all(struct keeper *keeper)
{
	while (keeper->clients)
		client_free(keeper->clients);
}

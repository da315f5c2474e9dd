#include "relay/session.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/log.h"
#include "relay/exec.h"
#include "relay/file_tree.h"
#include "relay/files.h"
#include "wire/place.h"

#define PENDING_MAX 8
#define LINGER_MS 2
#define BACKLOG_LISTEN 16
/* Strangers can connect as often as they like; the log tells only of so many. */
#define REFUSALS_LOGGED 100

static void session_free(struct session *s)
{
	struct relay *relay = s->relay;

	loop_unwatch(&relay->loop, &s->watch);
	loop_disarm(&relay->loop, &s->timer);
	loop_disarm(&relay->loop, &s->end);
	loop_disarm(&relay->loop, &s->linger);
	for (struct session **p = &relay->pending; *p; p = &(*p)->next) {
		if (*p == s) {
			*p = s->next;
			relay->pending_count--;
			break;
		}
	}
	if (relay->session == s) {
		relay->session = NULL;
		for (struct exec *e = relay->execs; e; e = e->next)
			e->stream = 0;
	}
	files_detach(s);
	file_tree_detach(s);
	conn_close(&s->conn);
	free(s);
}

static void end_due(struct timer *timer)
{
	session_free(container_of(timer, struct session, end));
}

static void session_break(struct session *s)
{
	if (s->broken)
		return;
	s->broken = true;
	loop_unwatch(&s->relay->loop, &s->watch);
	loop_arm(&s->relay->loop, &s->end, 0);
}

bool session_has_room(const struct session *s)
{
	return !s->broken && conn_backlog(&s->conn) < SESSION_BACKLOG;
}

static void linger_due(struct timer *timer)
{
	session_flush(container_of(timer, struct session, linger));
}

void session_linger(struct session *s)
{
	s->linger.due = linger_due;
	s->lingering = conn_backlog(&s->conn);
	loop_arm(&s->relay->loop, &s->linger, LINGER_MS);
}

void session_flush(struct session *s)
{
	uint32_t events;

	if (s->broken)
		return;
	/* Nothing has been added to what may wait. */
	if (s->linger.at != 0 && conn_backlog(&s->conn) == s->lingering)
		return;
	loop_disarm(&s->relay->loop, &s->linger);
	if (conn_flush(&s->conn) < 0) {
		session_break(s);
		return;
	}
	/* Whoever does not take answers gets no more questions in. */
	events = session_has_room(s) ? EPOLLIN : 0;
	if (conn_backlog(&s->conn) > 0)
		events |= EPOLLOUT;
	loop_change(&s->relay->loop, &s->watch, events);
	file_tree_resume(s);
}

void session_send(struct session *s, uint32_t stream, enum wire_type type, const void *msg)
{
	_cleanup_error_ struct error err = { 0 };

	if (!s->broken && wire_encode(&s->conn.out, stream, type, msg, &err) < 0)
		log_error("cannot send: %s", err.message);
}

void session_done(struct session *s, uint32_t stream)
{
	session_send(s, stream, WIRE_DONE, &(struct wire_done){});
}

void session_refuse(struct session *s, uint32_t stream, enum wire_error_code code, int errnum,
		    const char *fmt, ...)
{
	char text[256];
	va_list ap;

	if (s->broken)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	wire_encode_error(&s->conn.out, stream, code, errnum, "%s", text);
}

void session_reject(struct session *s, enum wire_error_code code, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	if (s->broken)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (s->step == SESSION_OPEN || s->relay->refused_count++ < REFUSALS_LOGGED)
		log_warn("connection closed: %s: %s", wire_error_name(code), text);
	wire_encode_error(&s->conn.out, 0, code, 0, "%s", text);
	session_flush(s);
	session_break(s);
}

void session_pump(struct session *s)
{
	bool progress = true;

	while (progress && session_has_room(s)) {
		progress = false;
		for (struct exec *e = s->relay->execs; e && session_has_room(s); e = e->next)
			progress |= output_pump(e);
		progress |= files_pump(s);
		progress |= file_tree_pump(s);
		if (progress)
			session_flush(s);
	}
}

static uint64_t features(const struct relay *relay)
{
	return WIRE_FEATURE_EXEC | WIRE_FEATURE_PTY | WIRE_FEATURE_FILES | WIRE_FEATURE_TREES |
	       relay->tree->feature | (relay->tree->freeze ? WIRE_FEATURE_PAUSE : 0) |
	       (geteuid() == 0 ? WIRE_FEATURE_USERS : 0);
}

/* A proven session takes the place of the one before it. */
static void session_open(struct session *s)
{
	struct relay *relay = s->relay;
	struct wire_welcome welcome = {
		.absence_ms = relay->config.absence_ms,
		.pid = (uint32_t)getpid(),
		.execs = relay->exec_count,
		.max_execs = relay->config.max_execs,
		.ring_max = relay->config.ring_max,
		.boot_id = relay->boot_id,
		.version = s->hello.version,
		.features = features(relay),
	};

	if (s->hello.epoch < relay->epoch) {
		session_reject(s, WERR_STALE_EPOCH, "epoch %llu is over, %llu has come",
			       (unsigned long long)s->hello.epoch,
			       (unsigned long long)relay->epoch);
		return;
	}
	if (relay->session && !relay->session->broken && s->hello.epoch == relay->epoch) {
		session_reject(s, WERR_BUSY, "epoch %llu is connected already",
			       (unsigned long long)s->hello.epoch);
		return;
	}
	for (struct session **p = &relay->pending; *p; p = &(*p)->next) {
		if (*p == s) {
			*p = s->next;
			relay->pending_count--;
			break;
		}
	}
	if (relay->session) {
		session_reject(relay->session, WERR_REPLACED, "epoch %llu has come",
			       (unsigned long long)s->hello.epoch);
		session_free(relay->session);
	}
	relay->epoch = s->hello.epoch;
	relay->session = s;
	s->step = SESSION_OPEN;
	s->conn.max_payload = WIRE_PAYLOAD_MAX;
	s->heard_ms = relay->heard_ms = boottime_ms();
	loop_arm(&relay->loop, &s->timer, WIRE_RELAY_PING_MS);
	session_send(s, 0, WIRE_WELCOME, &welcome);
}

static void take_hello(struct session *s, const struct frame *frame)
{
	const struct config *config = &s->relay->config;
	_cleanup_error_ struct error err = { 0 };

	if (s->handed) {
		if (hello_accept(&s->hello, config->place_id, frame, &err) < 0)
			session_reject(s, WERR_VERSION, "%s", err.message);
		else
			session_open(s);
		return;
	}
	if (s->step == SESSION_HELLO) {
		if (hello_challenge(&s->hello, config->key, config->place_id, features(s->relay),
				    frame, &s->conn.out, &err) < 0)
			session_reject(s, WERR_VERSION, "%s", err.message);
		else
			s->step = SESSION_PROOF;
		return;
	}
	if (hello_verify(&s->hello, config->key, frame, &err) < 0)
		session_reject(s, WERR_AUTH, "%s", err.message);
	else
		session_open(s);
}

static void take_frame(struct session *s, const struct frame *frame)
{
	_cleanup_wire_message_ struct wire_message m = { 0 };
	_cleanup_error_ struct error err = { 0 };

	if (s->step != SESSION_OPEN) {
		take_hello(s, frame);
		return;
	}
	if (frame->type == WIRE_DATA) {
		request_data(s, frame);
		return;
	}
	if (wire_decode(frame, &m, &err) < 0)
		session_reject(s, WERR_PROTOCOL, "%s", err.message);
	else
		request_serve(s, &m);
}

static void serve_frames(struct session *s)
{
	_cleanup_error_ struct error err = { 0 };
	struct frame frame;
	int r = 1;

	while (!s->broken && session_has_room(s) && (r = conn_next(&s->conn, &frame, &err)) > 0)
		take_frame(s, &frame);
	if (r < 0)
		session_reject(s, WERR_PROTOCOL, "%s", err.message);
}

static void session_ready(struct watch *watch, uint32_t events)
{
	struct session *s = container_of(watch, struct session, watch);
	int filled = 0;

	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		filled = file_tree_pass(s) ? 1 : conn_fill(&s->conn);
		if (filled > 0 && s->step == SESSION_OPEN) {
			s->heard_ms = s->relay->heard_ms = boottime_ms();
			s->pinged = false;
		}
	}
	serve_frames(s);
	session_flush(s);
	if (s->step == SESSION_OPEN && (events & EPOLLOUT))
		session_pump(s);
	/* Room may have come back while whole requests were waiting in memory, where epoll cannot
	 * see. */
	serve_frames(s);
	session_flush(s);
	if (filled < 0)
		session_break(s);
}

static void timer_due(struct timer *timer)
{
	struct session *s = container_of(timer, struct session, timer);
	int64_t silent = boottime_ms() - s->heard_ms;

	if (s->step != SESSION_OPEN) {
		session_reject(s, WERR_AUTH, "no hello in time");
		return;
	}
	if (s->pinged && silent >= WIRE_RELAY_PING_MS + WIRE_ANSWER_MS) {
		session_reject(s, WERR_PROTOCOL, "nothing was heard for %lld ms",
			       (long long)silent);
		return;
	}
	if (silent >= WIRE_RELAY_PING_MS && !s->pinged) {
		session_send(s, 0, WIRE_PING,
			     &(struct wire_ping){ .token = (uint64_t)boottime_ms() });
		session_flush(s);
		s->pinged = true;
	}
	loop_arm(&s->relay->loop, timer,
		 MAX_OF(WIRE_RELAY_PING_MS + (s->pinged ? WIRE_ANSWER_MS : 0) - silent, 1));
}

static struct session *session_new(struct relay *relay, int fd)
{
	struct session *s = xcalloc(1, sizeof(*s));

	s->relay = relay;
	s->watch = (struct watch){ .fd = -1, .ready = session_ready };
	s->timer.due = timer_due;
	s->end.due = end_due;
	s->heard_ms = boottime_ms();
	conn_init(&s->conn, fd, WIRE_HELLO_PAYLOAD);
	s->next = relay->pending;
	relay->pending = s;
	relay->pending_count++;
	if (loop_watch(&relay->loop, &s->watch, fd, EPOLLIN, NULL) < 0)
		session_break(s);
	loop_arm(&relay->loop, &s->timer, WIRE_HELLO_MS);
	return s;
}

void session_take(struct relay *relay, int fd)
{
	session_new(relay, fd)->handed = true;
}

static void listener_ready(struct watch *watch, uint32_t events)
{
	struct relay *relay = container_of(watch, struct relay, listener);
	int fd = accept4(RELAY_FD_LISTEN, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (fd < 0)
		return;
	/* The oldest stranger makes way: holding connections open keeps nobody else out. */
	if (relay->pending_count >= PENDING_MAX) {
		struct session *oldest = relay->pending;

		while (oldest->next)
			oldest = oldest->next;
		session_free(oldest);
	}
	session_new(relay, fd);
}

int session_listen(struct relay *relay, struct error *err)
{
	if (listen(RELAY_FD_LISTEN, BACKLOG_LISTEN) < 0)
		return error_errno(err, errno, "listening");
	relay->listener.ready = listener_ready;
	return loop_watch(&relay->loop, &relay->listener, RELAY_FD_LISTEN, EPOLLIN, err);
}

void session_close_all(struct relay *relay)
{
	while (relay->pending)
		session_free(relay->pending);
	if (relay->session)
		session_free(relay->session);
}

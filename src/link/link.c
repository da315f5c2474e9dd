/*
 * The life of a link:
 *
 *     link_new, handed over     link_new, after the handshake
 *            |                         |
 *            v        WELCOME          v
 *        GREETING ------------------> UP
 *            |                         |
 *            +-----------+-------------+
 *                        | link_close, a broken rule, silence, the other side hung up
 *                        v
 *                     BROKEN      every waiting thread is woken; nothing is sent or taken any more
 *                        |
 *                        | link_retire, from the loop's thread
 *                        v
 *                     RETIRED     `down` is called once; memory goes with the last reference
 *
 * phase      what may be called
 * GREETING   all but what needs an answer first: requests are sent, and only a WELCOME may come
 * UP         all
 * BROKEN     all; requests and waits fail with ERR_UNAVAILABLE, what was queued can be taken
 * RETIRED    the same, but nothing of the loop's: link_ready, link_tick, link_retire
 *
 * Apart from that, who receives (`reader`):
 *
 *     NONE --- link_ready: the loop begins ------> LOOP   --- it has received --> NONE
 *     NONE --- link_wait_locked, nobody waits ---> THREAD --- it has waited ----> NONE
 *
 * While a THREAD reads, epoll reports only room to send and the end, and the loop leaves the end to
 * that thread. A link that is RETIRED meanwhile keeps its descriptor until the thread leaves.
 */
#include "link/link.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include "base/cond.h"
#include "base/fd.h"
#include "base/log.h"
#include "link/link_internal.h"

void item_free(struct item *item)
{
	free(item);
}

void items_free(struct item **list)
{
	while (*list) {
		struct item *item = *list;

		*list = item->next;
		free(item);
	}
}

struct link *link_ref(struct link *l)
{
	atomic_fetch_add(&l->refs, 1);
	return l;
}

void link_unref(struct link *l)
{
	if (atomic_fetch_sub(&l->refs, 1) > 1)
		return;
	close_fdp(&l->fd);
	if (l->out.data)
		wipe(l->out.data, l->out.cap);
	buf_free(&l->out);
	buf_free(&l->partial);
	pthread_cond_destroy(&l->welcomed);
	pthread_mutex_destroy(&l->lock);
	free(l->name);
	free(l);
}

/*
 * What a tree may have on its way fits into the socket, so that it is not copied to wait here. Only
 * root gets all of it; less is slower, and nothing else.
 */
static void widen(int fd)
{
	int size = SOCKET_BUFFER;

	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) < 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

int link_new(struct channel_loop *loop, int fd, const struct link_options *options,
	     const void *early, size_t early_len, struct link **out, struct error *err)
{
	struct link *l = xcalloc(1, sizeof(*l));

	*out = NULL;
	atomic_init(&l->refs, 1);
	pthread_mutex_init(&l->lock, NULL);
	cond_init(&l->welcomed);
	l->loop = loop;
	l->fd = fd;
	l->name = xstrdup(options->name);
	l->ping_ms = options->ping_ms;
	l->phase = options->handed ? LINK_GREETING : LINK_UP;
	l->features = options->handed ? FEATURES_UNKNOWN : options->features;
	l->leader_latch = -1;
	l->owner = options->owner;
	l->down = options->down;
	l->heard_ms = l->said_ms = boottime_ms();
	l->wanted = EPOLLIN;
	if (early_len > 0)
		buf_append(&l->partial, early, early_len);
	if (fd_set_nonblock(fd, true, err) < 0) {
		link_unref(l);
		return -1;
	}
	widen(fd);
	if (channel_loop_add(loop, link_ref(l), l->ping_ms, err) < 0) {
		link_unref(l);
		return -1;
	}
	*out = l;
	return 0;
}

void link_move_locked(struct link *l, enum link_phase phase)
{
	assert(phase == LINK_UP       ? l->phase == LINK_GREETING
	       : phase == LINK_BROKEN ? link_is_open_locked(l)
				      : phase == LINK_RETIRED && l->phase == LINK_BROKEN);
	l->phase = phase;
}

bool link_is_up(struct link *l)
{
	pthread_mutex_lock(&l->lock);

	bool up = link_is_open_locked(l);

	pthread_mutex_unlock(&l->lock);
	return up;
}

int link_features(struct link *l, uint64_t *features, struct error *err)
{
	int64_t deadline = boottime_ms() + WIRE_HELLO_MS;
	int rc = 0;

	pthread_mutex_lock(&l->lock);
	while (l->phase == LINK_GREETING && cond_wait_until(&l->welcomed, &l->lock, deadline))
		;
	*features = l->features;
	if (l->phase == LINK_GREETING)
		rc = error_set(err, ERR_TIMEOUT, "%s: no welcome in time", l->name);
	else if (l->features == FEATURES_UNKNOWN)
		rc = link_down_error(l, err);
	pthread_mutex_unlock(&l->lock);
	return rc;
}

void link_break_locked(struct link *l)
{
	if (!link_is_open_locked(l))
		return;
	link_move_locked(l, LINK_BROKEN);
	/* The loop sees the end of it and retires the link. */
	shutdown(l->fd, SHUT_RDWR);
	for (size_t i = 0; i < ARRAY_SIZE(l->streams); i++)
		for (struct stream *s = l->streams[i]; s; s = s->next)
			stream_wake_locked(s);
	pthread_cond_broadcast(&l->welcomed);
}

void link_close(struct link *l)
{
	pthread_mutex_lock(&l->lock);
	if (link_is_open_locked(l))
		link_flush_locked(l);
	link_break_locked(l);
	pthread_mutex_unlock(&l->lock);
}

void link_ended_locked(struct link *l, const char *text)
{
	if (link_is_open_locked(l))
		log_warn("%s: closed: %s", l->name, text);
	link_break_locked(l);
}

void link_violated_locked(struct link *l, const char *text)
{
	l->hostile = true;
	link_ended_locked(l, text);
}

bool link_was_hostile(struct link *l)
{
	pthread_mutex_lock(&l->lock);

	bool hostile = l->hostile;

	pthread_mutex_unlock(&l->lock);
	return hostile;
}

int link_violated(struct link *l, struct error *err, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&l->lock);
	link_violated_locked(l, text);
	pthread_mutex_unlock(&l->lock);
	return error_set(err, ERR_PROTOCOL, "%s: %s", l->name, text);
}

int link_fd(const struct link *l)
{
	return l->fd;
}

struct link **link_list_next(struct link *l)
{
	return &l->list_next;
}

void link_retire(struct link *l)
{
	pthread_mutex_lock(&l->lock);
	link_break_locked(l);
	link_move_locked(l, LINK_RETIRED);
	assert(l->reader != READER_LOOP);
	/* A thread that reads still holds the descriptor's number; it closes it when it leaves. */
	if (l->reader == READER_NONE)
		close_fdp(&l->fd);
	pthread_mutex_unlock(&l->lock);
	if (l->down)
		l->down(l, l->owner);
}

/* Sending */

void link_want_locked(struct link *l)
{
	uint32_t events = (l->paused || l->reader == READER_THREAD ? 0u : EPOLLIN) |
			  (l->out.len > l->out_pos ? EPOLLOUT : 0u);

	/* A descriptor that is closed may be another link's by now. */
	if (events == l->wanted || l->phase == LINK_RETIRED || l->unwatched)
		return;
	l->wanted = events;
	channel_loop_want(l->loop, l, events);
}

void link_flush_locked(struct link *l)
{
	struct buf *out = &l->out;

	while (link_is_open_locked(l) && out->len > l->out_pos) {
		ssize_t n = send(l->fd, out->data + l->out_pos, out->len - l->out_pos,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN) {
			link_break_locked(l);
			return;
		}
		if (n < 0)
			break;
		l->out_pos += (size_t)n;
		l->said_ms = boottime_ms();
	}
	if (out->len == l->out_pos) {
		/* Environments carry secrets. */
		if (out->data)
			wipe(out->data, out->len);
		buf_reset(out);
		l->out_pos = 0;
		if (out->cap > OUT_KEPT)
			buf_free(out);
	} else if (l->out_pos > out->len / 2) {
		/* One that never takes everything must not make it grow for ever. */
		size_t gone = l->out_pos;

		buf_consume(out, gone);
		wipe(out->data + out->len, gone);
		l->out_pos = 0;
	}
	l->out_data = MIN_OF(l->out_data, out->len - l->out_pos);
	link_want_locked(l);
}

/* Header, lead and data. */
#define FRAME_PARTS 3

/* How much of a frame the socket takes now; 0 also when it is broken, which flushing notices. */
static size_t send_straight(struct link *l, struct iovec parts[FRAME_PARTS])
{
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = FRAME_PARTS };
	ssize_t n = sendmsg(l->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n <= 0)
		return 0;
	l->said_ms = boottime_ms();
	return (size_t)n;
}

void link_data_locked(struct link *l, uint32_t stream, uint8_t flags, const struct led_data *data)
{
	_cleanup_buf_ struct buf header = { 0 };
	struct iovec parts[FRAME_PARTS] = {
		{ NULL, WIRE_HEADER_SIZE },
		{ (void *)(uintptr_t)data->lead, data->lead_len },
		{ (void *)(uintptr_t)data->data, data->len },
	};
	size_t before = l->out.len, sent = 0;

	frame_begin(&header, WIRE_DATA, flags, stream, (uint32_t)(data->lead_len + data->len));
	parts[0].iov_base = header.data;
	if (l->out.len == l->out_pos)
		sent = send_straight(l, parts);
	for (size_t i = 0; i < FRAME_PARTS; i++) {
		size_t gone = MIN_OF(sent, parts[i].iov_len);

		if (parts[i].iov_len > gone)
			buf_append(&l->out, (const char *)parts[i].iov_base + gone,
				   parts[i].iov_len - gone);
		sent -= gone;
	}
	l->out_data += l->out.len - before;
	link_flush_locked(l);
}

int link_down_error(const struct link *l, struct error *err)
{
	return error_set(err, ERR_UNAVAILABLE, "%s: the connection is down", l->name);
}

int link_send_locked(struct link *l, uint32_t stream, enum wire_type type, const void *msg,
		     struct error *err)
{
	if (!link_is_open_locked(l))
		return link_down_error(l, err);
	if (wire_encode(&l->out, stream, type, msg, err) < 0)
		return -1;
	link_flush_locked(l);
	return 0;
}

bool link_hand_locked(struct link *l, uint32_t stream, enum wire_type type, const void *msg, int fd)
{
	struct buf *out = &l->out;
	ssize_t n;

	/* With something before it, it would come with that. */
	if (!link_is_open_locked(l) || out->len > l->out_pos ||
	    wire_encode(out, stream, type, msg, NULL) < 0)
		return false;
	n = fd_send_with(l->fd, out->data, out->len, &fd, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n > 0)
		l->out_pos = (size_t)n;
	else
		wipe(out->data, out->len), out->len = 0;
	l->said_ms = boottime_ms();
	link_flush_locked(l);
	return n > 0;
}

int link_request_locked(struct link *l, enum wire_type type, const void *msg, uint32_t *stream,
			struct error *err)
{
	if (link_is_open_locked(l) && link_backlog_locked(l) > BACKLOG_MAX)
		return error_set(err, ERR_UNAVAILABLE, "%s: it takes no requests", l->name);
	if (l->last_stream == UINT32_MAX) {
		link_break_locked(l);
		return link_down_error(l, err);
	}
	if (link_send_locked(l, l->last_stream + 1, type, msg, err) < 0)
		return -1;
	*stream = ++l->last_stream;
	return 0;
}

int link_send(struct link *l, enum wire_type type, const void *msg, struct error *err)
{
	uint32_t stream;

	pthread_mutex_lock(&l->lock);

	int rc = link_request_locked(l, type, msg, &stream, err);

	pthread_mutex_unlock(&l->lock);
	return rc;
}

int link_send_later(struct link *l, enum wire_type type, const void *msg, struct error *err)
{
	int rc = -1;

	pthread_mutex_lock(&l->lock);
	/* A lot that waits is a reason to wait no longer, and so is the last number of a stream. */
	if (!link_is_open_locked(l) || l->out.len > 0 || l->last_stream >= UINT32_MAX - 1) {
		uint32_t stream;

		rc = link_request_locked(l, type, msg, &stream, err);
	} else if (wire_encode(&l->out, l->last_stream + 1, type, msg, err) == 0) {
		l->last_stream++;
		rc = 0;
	}
	pthread_mutex_unlock(&l->lock);
	return rc;
}

/* Calls */

int item_decode(struct link *l, const struct item *item, struct wire_message *m, struct error *err)
{
	struct frame frame = {
		.type = item->type,
		.flags = item->flags,
		.payload = item->data,
		.length = item->len,
	};
	_cleanup_error_ struct error why = { 0 };

	if (item->type == WIRE_DATA || item->type == WIRE_OUTPUT)
		return link_violated(l, err, "data where an answer belongs");
	if (wire_decode(&frame, m, &why) < 0)
		return link_violated(l, err, "%s", why.message);
	return 0;
}

int wire_error_take(const struct wire_error *e, struct error *err)
{
	return error_set(err, wire_error_meaning(e->code), "%s", e->message);
}

/* 1: that was the last one. */
static int answer_take(struct link *l, const struct item *item, enum wire_type last,
		       link_answer_fn *each, void *arg, struct error *err)
{
	_cleanup_wire_message_ struct wire_message m = { 0 };

	if (item_decode(l, item, &m, err) < 0)
		return -1;
	if (m.type == WIRE_ERROR)
		return wire_error_take(&m.error, err);
	if (each && each(arg, &m, err) < 0)
		return -1;
	if (m.type == last)
		return 1;
	if (!each)
		return link_violated(l, err, "%s where %s was asked for", wire_type_name(m.type),
				     wire_type_name(last));
	return 0;
}

int stream_await(struct stream *s, enum wire_type last, link_answer_fn *each, void *arg,
		 int64_t deadline, struct error *err)
{
	struct link *l = stream_link(s);
	int rc = 0;

	while (rc == 0) {
		struct item *items;
		int got = stream_take(s, deadline, &items);

		if (got < 0)
			rc = link_down_error(l, err);
		else if (got == 0 && boottime_ms() >= deadline)
			rc = error_set(err, ERR_TIMEOUT, "%s: no answer in time", l->name);
		for (struct item *i = items; i && rc == 0; i = i->next)
			rc = answer_take(l, i, last, each, arg, err);
		items_free(&items);
	}
	return rc < 0 ? -1 : 0;
}

int link_call(struct link *l, enum wire_type type, const void *msg, enum wire_type last,
	      link_answer_fn *each, void *arg, int64_t deadline, struct error *err)
{
	struct stream *s = link_open(l, type, msg, 0, err);
	int rc = s ? stream_await(s, last, each, arg, deadline, err) : -1;

	stream_close(s);
	return rc;
}

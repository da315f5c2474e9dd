/*
 * What comes in on a link: bytes -> frames -> queues of streams. Runs in the loop's thread, or in
 * that of the only one who waits; every rule that can be checked before a frame costs memory is
 * checked here.
 */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "base/cond.h"
#include "base/fd.h"
#include "base/log.h"
#include "link/link_internal.h"

/* No message of a relay or keeper is larger; the largest holds two paths. */
#define MESSAGE_MAX (16u << 10)
/* The longest answer is a page of a directory. */
#define MESSAGES_MAX 4096
/* A frame of which this much is there is received where it stays, not through the scratch. */
#define LONG_FRAME ((size_t)32 << 10)

static struct stream *find_locked(struct link *l, uint32_t id)
{
	struct stream *s = l->streams[id % BUCKETS];

	while (s && s->id != id)
		s = s->next;
	return s;
}

static void push_locked(struct link *l, struct stream *s, const struct frame *f)
{
	struct item *item = xmalloc(sizeof(*item) + f->length);
	size_t size = sizeof(*item) + f->length;

	item->next = NULL;
	item->type = f->type;
	item->flags = f->flags;
	item->len = f->length;
	if (f->length > 0)
		memcpy(item->data, f->payload, f->length);
	*s->tail = item;
	s->tail = &item->next;
	s->queued += size;
	l->queued += size;
	if (l->queued > QUEUED_MAX)
		l->paused = true;
	pthread_cond_broadcast(&s->changed);
}

static void take_data_locked(struct link *l, const struct frame *f)
{
	uint32_t overhead = f->type == WIRE_OUTPUT ? WIRE_OUTPUT_OVERHEAD : 0;
	struct stream *s = find_locked(l, f->stream);
	char text[96];

	if (f->length < overhead) {
		link_violated_locked(l, "output without offsets");
		return;
	}
	/* What crosses the end of its stream on the way is no violation. */
	if (!s)
		return;
	if (f->length - overhead > s->allowed) {
		snprintf(text, sizeof(text), "more data than stream %u has credit for",
			 (unsigned)f->stream);
		link_violated_locked(l, text);
		return;
	}
	s->allowed -= f->length - overhead;
	push_locked(l, s, f);
}

/* Credit and stalls are state, not events: they are never queued. */
static bool take_state_locked(struct link *l, struct stream *s, const struct frame *f)
{
	_cleanup_wire_message_ struct wire_message m = { 0 };
	_cleanup_error_ struct error err = { 0 };

	if (f->type != WIRE_CREDIT && f->type != WIRE_EXEC_STALLED &&
	    f->type != WIRE_EXEC_STDIN_CLOSED)
		return false;
	if (wire_decode(f, &m, &err) < 0) {
		link_violated_locked(l, err.message);
		return true;
	}
	if (f->type == WIRE_CREDIT) {
		s->credit += m.credit.bytes;
		if (s->credit > WIRE_CREDIT_MAX)
			link_violated_locked(l, "more credit than a stream can have");
	}
	if (f->type == WIRE_EXEC_STDIN_CLOSED)
		s->deaf = true;
	if (f->type == WIRE_EXEC_STALLED)
		s->stalled = m.exec_stalled.stalled;
	s->poked |= f->type != WIRE_EXEC_STALLED || s->stalled;
	pthread_cond_broadcast(&s->changed);
	return true;
}

static void take_message_locked(struct link *l, const struct frame *f)
{
	struct stream *s = find_locked(l, f->stream);
	char text[96];

	if (!wire_type_name(f->type) || f->length > MESSAGE_MAX) {
		snprintf(text, sizeof(text), "a message of type 0x%02x with %u bytes", f->type,
			 (unsigned)f->length);
		link_violated_locked(l, text);
		return;
	}
	if (!s || take_state_locked(l, s, f))
		return;
	if (++s->messages > MESSAGES_MAX) {
		link_violated_locked(l, "more messages than any answer has");
		return;
	}
	push_locked(l, s, f);
}

/* Who did not have to prove anything says here what a challenge would have said. */
static void take_welcome_locked(struct link *l, const struct wire_welcome *m)
{
	if (m->version < WIRE_MIN_VERSION || m->version > WIRE_VERSION) {
		link_violated_locked(l, "it speaks a version that was not offered");
		return;
	}
	l->features = m->features & ~(1ull << 63);
	link_move_locked(l, LINK_UP);
	pthread_cond_broadcast(&l->welcomed);
}

/* Stream 0: the connection itself. */
static void take_own_locked(struct link *l, const struct frame *f)
{
	_cleanup_wire_message_ struct wire_message m = { 0 };
	_cleanup_error_ struct error err = { 0 };
	char text[400];

	if (f->type == WIRE_DATA || f->type == WIRE_OUTPUT || f->length > MESSAGE_MAX) {
		link_violated_locked(l, "data on the connection's own stream");
		return;
	}
	if (wire_decode(f, &m, &err) < 0) {
		link_violated_locked(l, err.message);
		return;
	}
	if (m.type == WIRE_WELCOME && l->phase == LINK_GREETING) {
		take_welcome_locked(l, &m.welcome);
		return;
	}
	switch (m.type) {
	case WIRE_PING:
		/* One that asks without listening gets no more answers than fit. */
		if (link_backlog_locked(l) > BACKLOG_MAX)
			link_violated_locked(l, "it does not take its answers");
		else
			wire_encode(&l->out, 0, WIRE_PONG,
				    &(struct wire_pong){ .token = m.ping.token }, NULL);
		break;
	case WIRE_PONG:
		break;
	case WIRE_ERROR:
		snprintf(text, sizeof(text), "it said %s: %.300s", wire_error_name(m.error.code),
			 m.error.message);
		link_ended_locked(l, text);
		break;
	default:
		snprintf(text, sizeof(text), "%s belongs to a stream", wire_type_name(m.type));
		link_violated_locked(l, text);
	}
}

static void take_frame_locked(struct link *l, const struct frame *f)
{
	char text[64];

	if (f->stream == 0) {
		take_own_locked(l, f);
	} else if (l->phase == LINK_GREETING) {
		link_violated_locked(l, "an answer before the welcome");
	} else if (f->stream > l->last_stream) {
		snprintf(text, sizeof(text), "stream %u was never opened", (unsigned)f->stream);
		link_violated_locked(l, text);
	} else if (f->type == WIRE_DATA || f->type == WIRE_OUTPUT) {
		take_data_locked(l, f);
	} else {
		take_message_locked(l, f);
	}
}

/* Returns how many bytes belonged to whole frames. */
static size_t take_frames(struct link *l, const uint8_t *data, size_t len)
{
	_cleanup_error_ struct error err = { 0 };
	size_t pos = 0, used;
	struct frame f;
	int r = 0;

	pthread_mutex_lock(&l->lock);
	l->heard_ms = boottime_ms();
	l->pinged_ms = 0;
	while (link_is_open_locked(l) &&
	       (r = frame_parse(data + pos, len - pos, WIRE_PAYLOAD_MAX, &f, &used, &err)) > 0) {
		take_frame_locked(l, &f);
		pos += used;
	}
	if (r < 0)
		link_violated_locked(l, err.message);
	link_flush_locked(l);
	pthread_mutex_unlock(&l->lock);
	return pos;
}

static bool received(struct link *l, ssize_t n)
{
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return true;
	link_close(l);
	return false;
}

/* The rest of one long frame, straight behind its beginning. */
static bool receive_long(struct link *l)
{
	struct buf *p = &l->partial;
	size_t whole = WIRE_HEADER_SIZE + (size_t)get_le32((const uint8_t *)p->data);
	ssize_t n;

	/* Its length was checked when its beginning was parsed. */
	buf_reserve(p, whole - p->len);
	n = recv(l->fd, p->data + p->len, whole - p->len, MSG_DONTWAIT);
	if (!received(l, n))
		return false;
	if (n > 0)
		p->len += (size_t)n;
	if (p->len == whole) {
		take_frames(l, (const uint8_t *)p->data, p->len);
		buf_free(p);
	}
	return true;
}

static bool receive(struct link *l, uint8_t *scratch, size_t size)
{
	struct buf *p = &l->partial;
	size_t have = p->len, used;
	ssize_t n;

	if (have >= LONG_FRAME)
		return receive_long(l);
	if (have > 0)
		memcpy(scratch, p->data, have);
	n = recv(l->fd, scratch + have, size - have, MSG_DONTWAIT);
	if (!received(l, n))
		return false;
	if (n <= 0)
		return true;
	have += (size_t)n;
	used = take_frames(l, scratch, have);
	if (used == have) {
		buf_free(p);
	} else {
		buf_reset(p);
		buf_append(p, scratch + used, have - used);
	}
	return true;
}

/* What the loop is to do about it is left to a leader, if there is one. */
static bool begin_reading(struct link *l, uint32_t events)
{
	pthread_mutex_lock(&l->lock);

	bool ours = l->reader != READER_THREAD;

	assert(l->phase != LINK_RETIRED && l->reader != READER_LOOP);
	if (ours)
		l->reader = READER_LOOP;
	if (!ours && (events & (EPOLLHUP | EPOLLERR)) && !l->unwatched) {
		/* It would be reported again and again until the leader has seen to it. */
		l->unwatched = true;
		channel_loop_unwatch(l->loop, l);
	}
	pthread_mutex_unlock(&l->lock);
	return ours;
}

bool link_ready(struct link *l, uint32_t events, uint8_t *scratch, size_t size)
{
	bool up = true, ours = begin_reading(l, events);

	if (ours && (events & EPOLLIN))
		up = receive(l, scratch, size);
	else if (ours && (events & (EPOLLHUP | EPOLLERR)))
		link_close(l);
	pthread_mutex_lock(&l->lock);
	if (ours)
		l->reader = READER_NONE;
	if (events & EPOLLOUT)
		link_flush_locked(l);
	up = (up && link_is_open_locked(l)) || !ours;
	pthread_mutex_unlock(&l->lock);
	return up;
}

/* Leading: a thread that waits reads what it waits for by itself */

static int poll_timeout(int64_t deadline)
{
	int64_t left;

	if (deadline < 0)
		return -1;
	left = deadline - boottime_ms();
	return (int)MIN_OF(MAX_OF(left, (int64_t)0), (int64_t)INT_MAX);
}

static void read_once(struct link *l, const struct seat *seat, int timeout)
{
	struct pollfd fds[] = {
		{ .fd = l->fd, .events = POLLIN },
		{ .fd = seat->latch, .events = POLLIN },
	};

	if (poll(fds, ARRAY_SIZE(fds), timeout) > 0 && fds[0].revents)
		receive(l, seat->scratch, SEAT_SCRATCH);
}

static void leave_locked(struct link *l)
{
	l->leader = NULL;
	l->reader = READER_NONE;
	if (l->phase == LINK_RETIRED) {
		close_fdp(&l->fd);
		return;
	}
	if (l->unwatched) {
		l->unwatched = false;
		l->wanted = EPOLLIN;
		if (!channel_loop_watch(l->loop, l, EPOLLIN))
			link_break_locked(l);
	}
	link_want_locked(l);
}

static bool lead_locked(struct link *l, struct stream *s, const struct seat *seat, int64_t deadline)
{
	int timeout = 0;

	assert(l->reader == READER_NONE);
	l->reader = READER_THREAD;
	l->leader = s;
	l->leader_latch = seat->latch;
	link_want_locked(l);
	while (!s->head && !s->poked && !s->closed && link_is_open_locked(l) && !l->paused &&
	       (timeout = poll_timeout(deadline)) != 0) {
		pthread_mutex_unlock(&l->lock);
		read_once(l, seat, timeout);
		pthread_mutex_lock(&l->lock);
	}
	if (l->leader_latch < 0)
		latch_clear(seat->latch);
	leave_locked(l);
	return timeout != 0;
}

bool link_wait_locked(struct link *l, struct stream *s, int64_t deadline)
{
	struct seat seat;
	bool in_time;

	/* Where several wait, the loop serves them all with fewer turns. */
	if (l->reader == READER_NONE && !l->paused && l->waiting == 0 && link_is_open_locked(l) &&
	    channel_loop_seat_get(l->loop, &seat)) {
		in_time = lead_locked(l, s, &seat, deadline);
		channel_loop_seat_put(l->loop, &seat);
		return in_time;
	}
	l->waiting++;
	in_time = cond_wait_until(&s->changed, &l->lock, deadline);
	l->waiting--;
	return in_time;
}

static bool has_streams(const struct link *l)
{
	for (size_t i = 0; i < ARRAY_SIZE(l->streams); i++)
		if (l->streams[i])
			return true;
	return false;
}

/*
 * Pings of many idle links go out together: a thousand of them are one wake-up in five seconds.
 * Never later than they are due.
 */
#define TOGETHER_MS 5000

static int64_t slack(int64_t ms)
{
	return ms >= WIRE_PING_MS ? TOGETHER_MS : 0;
}

static int64_t together(int64_t at, int64_t step)
{
	return step > 0 ? (at + step - 1) / step * step : at;
}

static void ping_locked(struct link *l, int64_t now)
{
	wire_encode(&l->out, 0, WIRE_PING, &(struct wire_ping){ .token = (uint64_t)now }, NULL);
	link_flush_locked(l);
	if (l->pinged_ms == 0)
		l->pinged_ms = now;
	/* What the socket does not take now is said all the same, as soon as it can be. */
	l->said_ms = now;
}

bool link_tick(struct link *l, int64_t now, int64_t *next)
{
	pthread_mutex_lock(&l->lock);
	assert(l->phase != LINK_RETIRED);
	/* While we do not read, its silence is ours. */
	if (l->paused) {
		l->heard_ms = now;
		l->pinged_ms = 0;
	}

	int64_t quiet = has_streams(l) ? WIRE_PING_MS : WIRE_IDLE_MS;
	int64_t quiet_at = l->heard_ms + quiet - slack(quiet);
	int64_t say_at = l->said_ms + l->ping_ms - slack(l->ping_ms);

	if (l->pinged_ms > 0 && now - l->pinged_ms >= WIRE_ANSWER_MS)
		link_ended_locked(l, "nothing was heard of it for too long");
	if (link_is_open_locked(l) && (now >= say_at || (now >= quiet_at && l->pinged_ms == 0))) {
		ping_locked(l, now);
		say_at = now + l->ping_ms - slack(l->ping_ms);
	}
	*next = MIN_OF(together(say_at, slack(l->ping_ms)),
		       l->pinged_ms > 0 ? l->pinged_ms + WIRE_ANSWER_MS
					: together(quiet_at, slack(quiet)));

	bool up = link_is_open_locked(l);

	pthread_mutex_unlock(&l->lock);
	return up;
}

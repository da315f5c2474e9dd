/* Streams of a link, for the threads that use them. */
#include <pthread.h>
#include <stdatomic.h>
#include "base/cond.h"
#include "base/fd.h"
#include "link/link_internal.h"

static struct stream *stream_new(uint32_t credit)
{
	struct stream *s = xcalloc(1, sizeof(*s));

	atomic_init(&s->refs, 2); /* the caller's and the link's */
	s->tail = &s->head;
	s->allowed = credit;
	cond_init(&s->changed);
	return s;
}

/* NULL, and nothing left of it, unless its request is on the way. */
static struct stream *opened_locked(struct link *l, struct stream *s, bool asked)
{
	if (!asked) {
		pthread_cond_destroy(&s->changed);
		free(s);
		return NULL;
	}
	s->link = link_ref(l);
	s->next = l->streams[s->id % ARRAY_SIZE(l->streams)];
	l->streams[s->id % ARRAY_SIZE(l->streams)] = s;
	return s;
}

struct stream *link_open(struct link *l, enum wire_type type, const void *msg, uint32_t credit,
			 struct error *err)
{
	struct stream *s = stream_new(credit);

	pthread_mutex_lock(&l->lock);
	s = opened_locked(l, s, link_request_locked(l, type, msg, &s->id, err) == 0);
	pthread_mutex_unlock(&l->lock);
	return s;
}

struct stream *link_open_handing(struct link *l, enum wire_type type, const void *msg, int fd,
				 const void *plainly, struct error *err)
{
	struct stream *s = stream_new(0);
	bool asked;

	pthread_mutex_lock(&l->lock);
	asked = l->last_stream < UINT32_MAX &&
		link_hand_locked(l, l->last_stream + 1, type, msg, fd);
	if (asked)
		s->id = ++l->last_stream;
	else
		asked = link_request_locked(l, type, plainly, &s->id, err) == 0;
	s = opened_locked(l, s, asked);
	pthread_mutex_unlock(&l->lock);
	return s;
}

struct stream *stream_ref(struct stream *s)
{
	atomic_fetch_add(&s->refs, 1);
	return s;
}

void stream_unref(struct stream *s)
{
	struct link *l = s->link;

	if (atomic_fetch_sub(&s->refs, 1) > 1)
		return;
	pthread_cond_destroy(&s->changed);
	free(s);
	link_unref(l);
}

void stream_wake_locked(struct stream *s)
{
	pthread_cond_broadcast(&s->changed);
	if (s->link && s->link->leader == s && s->link->leader_latch >= 0) {
		latch_set(s->link->leader_latch);
		s->link->leader_latch = -1;
	}
}

static void taken_locked(struct link *l, size_t bytes)
{
	l->queued -= bytes;
	if (l->paused && l->queued < QUEUED_MAX / 2) {
		l->paused = false;
		link_want_locked(l);
	}
}

static struct item *drain_locked(struct stream *s)
{
	struct item *list = s->head;

	s->head = NULL;
	s->tail = &s->head;
	s->messages = 0;
	taken_locked(s->link, s->queued);
	s->queued = 0;
	return list;
}

void stream_close(struct stream *s)
{
	struct item *left;
	struct link *l;

	if (!s)
		return;
	l = s->link;
	pthread_mutex_lock(&l->lock);
	for (struct stream **p = &l->streams[s->id % ARRAY_SIZE(l->streams)]; *p; p = &(*p)->next) {
		if (*p == s) {
			*p = s->next;
			break;
		}
	}
	s->closed = true;
	left = drain_locked(s);
	stream_wake_locked(s);
	pthread_mutex_unlock(&l->lock);
	items_free(&left);
	stream_unref(s);
	stream_unref(s);
}

int stream_send(struct stream *s, enum wire_type type, const void *msg, struct error *err)
{
	pthread_mutex_lock(&s->link->lock);

	int rc = link_send_locked(s->link, s->id, type, msg, err);

	pthread_mutex_unlock(&s->link->lock);
	return rc;
}

ssize_t stream_data(struct stream *s, const void *data, size_t len, bool end, struct error *err)
{
	struct link *l = s->link;
	ssize_t rc = -1;

	pthread_mutex_lock(&l->lock);
	if (!link_is_open_locked(l) || s->closed) {
		link_down_error(l, err);
	} else {
		size_t n = MIN_OF(MIN_OF(len, s->credit), DATA_MAX);
		bool last = end && n == len;

		if (n > 0 || last) {
			s->credit -= n;
			link_data_locked(l, s->id, last ? WIRE_END : 0,
					 &(struct led_data){ .data = data, .len = n });
		}
		rc = (ssize_t)n;
	}
	pthread_mutex_unlock(&l->lock);
	return rc;
}

int stream_data_led(struct stream *s, const void *lead, size_t lead_len, const void *data,
		    size_t len, struct error *err)
{
	struct led_data both = { .lead = lead, .data = data, .lead_len = lead_len, .len = len };
	struct link *l = s->link;
	int rc = 0;

	pthread_mutex_lock(&l->lock);
	if (!link_is_open_locked(l) || s->closed) {
		rc = link_down_error(l, err);
	} else if (s->credit >= lead_len + len) {
		s->credit -= lead_len + len;
		link_data_locked(l, s->id, 0, &both);
		rc = 1;
	}
	pthread_mutex_unlock(&l->lock);
	return rc;
}

void stream_grant(struct stream *s, uint32_t bytes)
{
	pthread_mutex_lock(&s->link->lock);
	s->credit += bytes;
	pthread_mutex_unlock(&s->link->lock);
}

size_t stream_credit(struct stream *s)
{
	pthread_mutex_lock(&s->link->lock);

	size_t credit = s->credit;

	pthread_mutex_unlock(&s->link->lock);
	return credit;
}

int stream_allow(struct stream *s, uint32_t bytes, struct error *err)
{
	struct wire_credit m = { .bytes = bytes };

	pthread_mutex_lock(&s->link->lock);
	s->allowed += bytes;

	int rc = link_send_locked(s->link, s->id, WIRE_CREDIT, &m, err);

	pthread_mutex_unlock(&s->link->lock);
	return rc;
}

int stream_acknowledge(struct stream *s, uint64_t offset, uint32_t bytes, struct error *err)
{
	struct link *l = s->link;
	struct wire_exec_ack ack = { .offset = offset };
	int rc = 0;

	pthread_mutex_lock(&l->lock);
	if (link_is_open_locked(l))
		rc = wire_encode(&l->out, s->id, WIRE_EXEC_ACK, &ack, err);
	if (rc == 0) {
		s->allowed += bytes;
		rc = link_send_locked(l, s->id, WIRE_CREDIT,
				      &(struct wire_credit){ .bytes = bytes }, err);
	}
	pthread_mutex_unlock(&l->lock);
	return rc;
}

bool stream_is_closed(struct stream *s)
{
	pthread_mutex_lock(&s->link->lock);

	bool deaf = s->deaf;

	pthread_mutex_unlock(&s->link->lock);
	return deaf;
}

bool stream_is_stalled(struct stream *s)
{
	pthread_mutex_lock(&s->link->lock);

	bool stalled = s->stalled;

	pthread_mutex_unlock(&s->link->lock);
	return stalled;
}

struct link *stream_link(struct stream *s)
{
	return s->link;
}

bool stream_wait_credit(struct stream *s, int64_t deadline)
{
	struct link *l = s->link;

	pthread_mutex_lock(&l->lock);
	l->waiting++;
	while (s->credit == 0 && !s->closed && link_is_open_locked(l) && !s->deaf)
		if (!cond_wait_until(&s->changed, &l->lock, deadline))
			break;
	l->waiting--;

	bool ready = s->credit > 0 && !s->closed && link_is_open_locked(l);

	pthread_mutex_unlock(&l->lock);
	return ready;
}

int stream_take(struct stream *s, int64_t deadline, struct item **items)
{
	struct link *l = s->link;
	int rc = 0;

	pthread_mutex_lock(&l->lock);
	while (!s->head && link_is_open_locked(l) && !s->poked)
		if (!link_wait_locked(l, s, deadline))
			break;
	s->poked = false;
	*items = NULL;
	if (s->head) {
		*items = drain_locked(s);
		rc = 1;
	} else if (!link_is_open_locked(l)) {
		rc = -1;
	}
	pthread_mutex_unlock(&l->lock);
	return rc;
}

void stream_poke(struct stream *s)
{
	pthread_mutex_lock(&s->link->lock);
	s->poked = true;
	stream_wake_locked(s);
	pthread_mutex_unlock(&s->link->lock);
}

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include "base/fd.h"
#include "live/feed_internal.h"

#define GATHER 32 /* frames of one write */

static bool wants(const struct feed_reader *reader, const struct frame *frame)
{
	return (frame->type & reader->types) && (!frame->seq || frame->seq > reader->after);
}

/* Its own thread sees the socket's end, leaves and closes it. */
static void reader_end(struct feed_reader *reader)
{
	reader->over = true;
	if (reader->fd >= 0)
		shutdown(reader->fd, SHUT_RDWR);
}

static void set_lagging(struct feed_reader *reader, bool lagging)
{
	struct feed *feed = reader->feed;
	struct epoll_event event = { .events = EPOLLOUT, .data.fd = reader->fd };

	if (reader->lagging == lagging)
		return;
	reader->lagging = lagging;
	if (lagging) {
		reader->lag_prev = NULL;
		reader->lag_next = feed->laggards;
		if (reader->lag_next)
			reader->lag_next->lag_prev = reader;
		feed->laggards = reader;
	} else {
		if (reader->lag_prev)
			reader->lag_prev->lag_next = reader->lag_next;
		else
			feed->laggards = reader->lag_next;
		if (reader->lag_next)
			reader->lag_next->lag_prev = reader->lag_prev;
	}
	if (epoll_ctl(feed->epoll_fd, lagging ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, reader->fd, &event) <
		    0 &&
	    lagging)
		reader_end(reader);
}

/* The ring has gone over the reader: where it can go on is the last thing it hears. */
static void drop(struct feed_reader *reader)
{
	_cleanup_buf_ struct buf text = { 0 };

	buf_printf(
		&text,
		"id: %lld\nevent: dropped\ndata: {\"companyId\":\"%s\",\"lastEventId\":%lld}\n\n",
		(long long)reader->after, reader->ring->company_id, (long long)reader->after);
	reader->dropped = true;
	reader->drop_at = clock_mono(reader->feed->options.clock) + reader->feed->options.drop_ms;
	if (!reader->frame) {
		reader->frame = frame_new(ANY_TYPE, 0, &text);
		reader->sent = 0;
		return;
	}

	/* Behind the rest of the frame it is in the middle of. */
	_cleanup_buf_ struct buf rest = { 0 };

	buf_append(&rest, reader->frame->data + reader->sent, reader->frame->len - reader->sent);
	buf_append(&rest, text.data, text.len);
	frame_put(reader->frame);
	reader->frame = frame_new(ANY_TYPE, 0, &rest);
	reader->sent = 0;
}

/* The next frame for the reader, passing those that are not; NULL when there is none. */
static struct frame *next_frame(struct feed_reader *reader, uint64_t *position)
{
	const struct ring *ring = reader->ring;

	for (; *position < ring->end; (*position)++) {
		struct frame *frame = frame_at(ring, *position);

		if (wants(reader, frame))
			return frame;
	}
	return NULL;
}

static size_t gather(struct feed_reader *reader, struct iovec iov[GATHER])
{
	uint64_t position = reader->position;
	struct frame *frame;
	size_t n = 0;

	if (reader->frame)
		iov[n++] = (struct iovec){ reader->frame->data + reader->sent,
					   reader->frame->len - reader->sent };
	while (!reader->dropped && n < GATHER && (frame = next_frame(reader, &position))) {
		iov[n++] = (struct iovec){ frame->data, frame->len };
		position++;
	}
	return n;
}

/* So many bytes of what gather found are out. */
static void advance(struct feed_reader *reader, size_t bytes)
{
	while (bytes) {
		if (!reader->frame) {
			reader->frame = next_frame(reader, &reader->position);
			reader->frame->refs++;
			reader->sent = 0;
			reader->position++;
		}

		size_t n = MIN_OF(bytes, reader->frame->len - reader->sent);

		bytes -= n;
		reader->sent += n;
		if (reader->sent < reader->frame->len)
			return;
		reader->after = MAX_OF(reader->after, reader->frame->seq);
		frame_put(reader->frame);
		reader->frame = NULL;
	}
}

static void check_overrun(struct feed_reader *reader)
{
	if (!reader->dropped && reader->position < reader->ring->first)
		drop(reader);
}

/* Writes what the socket takes. */
static void flush(struct feed_reader *reader)
{
	struct iovec iov[GATHER];
	struct msghdr message = { .msg_iov = iov };

	check_overrun(reader);
	while (!reader->over && (message.msg_iovlen = gather(reader, iov)) > 0) {
		ssize_t n = sendmsg(reader->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0) {
			advance(reader, (size_t)n);
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno == EAGAIN) {
			set_lagging(reader, true);
			return;
		}
		reader_end(reader);
	}
	if (reader->dropped)
		reader_end(reader);
	set_lagging(reader, false);
}

static void tell(struct feed_reader *reader)
{
	if (!reader->attached || reader->over)
		return;
	if (reader->fd >= 0) {
		if (!reader->lagging)
			flush(reader);
		else
			check_overrun(reader);
	} else if (reader->latch >= 0) {
		latch_set(reader->latch);
	}
}

void tell_all(struct ring *ring)
{
	for (struct feed_reader *reader = ring->readers; reader; reader = reader->next)
		tell(reader);
}

void flush_laggards(struct feed *feed)
{
	struct feed_reader *next;
	int64_t now = clock_mono(feed->options.clock);

	for (struct feed_reader *reader = feed->laggards; reader; reader = next) {
		next = reader->lag_next;
		flush(reader);
		if (reader->lagging && reader->dropped && now >= reader->drop_at) {
			reader_end(reader);
			set_lagging(reader, false);
		}
	}
}

int feed_join(struct feed *feed, const char *company_id, unsigned types, int64_t now,
	      struct feed_reader **out, struct error *err)
{
	struct feed_reader *reader = xcalloc(1, sizeof(*reader));

	*out = NULL;
	reader->feed = feed;
	reader->fd = reader->latch = -1;
	reader->types = types | ANY_TYPE;
	pthread_mutex_lock(&feed->lock);

	struct ring *ring = ring_of(feed, company_id, now);
	bool full = feed->reader_count >= feed->options.max_readers ||
		    ring->reader_count >= feed->options.max_per_company;

	reader->ring = ring;
	ring->refs++;
	if (full) {
		ring_put(feed, ring);
	} else {
		reader->next = ring->readers;
		if (reader->next)
			reader->next->prev = reader;
		ring->readers = reader;
		ring->reader_count++;
		feed->reader_count++;
		feed->log_readers += types >> EVENT_RUN_LOG & 1;
		atomic_fetch_add(&feed->watched, 1);
	}
	pthread_mutex_unlock(&feed->lock);
	if (full) {
		free(reader);
		return error_set(err, ERR_UNAVAILABLE,
				 "too many read events at the moment; try again later");
	}
	/* Whatever was committed before the first reader came woke nobody. */
	feed->listener.committed(feed);
	*out = reader;
	return 0;
}

bool feed_attach(struct feed_reader *reader, int64_t after, int fd)
{
	struct feed *feed = reader->feed;
	struct ring *ring = reader->ring;

	pthread_mutex_lock(&feed->lock);

	bool reached = after >= ring->floor;

	if (reached) {
		reader->fd = fd;
		reader->after = after;
		reader->position = ring->first;
		/* Comments from before it came are not for it. */
		while (reader->position < ring->end &&
		       frame_at(ring, reader->position)->seq <= after)
			reader->position++;
		reader->attached = true;
		tell(reader);
	}
	pthread_mutex_unlock(&feed->lock);
	return reached;
}

void feed_leave(struct feed_reader *reader)
{
	struct feed *feed = reader->feed;
	struct ring *ring = reader->ring;

	pthread_mutex_lock(&feed->lock);
	set_lagging(reader, false);
	if (reader->prev)
		reader->prev->next = reader->next;
	else
		ring->readers = reader->next;
	if (reader->next)
		reader->next->prev = reader->prev;
	ring->reader_count--;
	feed->reader_count--;
	feed->log_readers -= reader->types >> EVENT_RUN_LOG & 1;
	atomic_fetch_sub(&feed->watched, 1);
	frame_put(reader->frame);
	ring_put(feed, ring);
	pthread_mutex_unlock(&feed->lock);
	close_fdp(&reader->latch);
	free(reader);
}

size_t feed_readers(struct feed *feed)
{
	return (size_t)atomic_load(&feed->watched);
}

int feed_event(struct feed_reader *reader, struct error *err)
{
	pthread_mutex_lock(&reader->feed->lock);
	if (reader->latch < 0)
		reader->latch = latch_new(err);
	pthread_mutex_unlock(&reader->feed->lock);
	return reader->latch;
}

ssize_t feed_take(struct feed_reader *reader, char *buf, size_t max)
{
	struct iovec iov[GATHER];
	ssize_t total = 0;

	pthread_mutex_lock(&reader->feed->lock);
	latch_clear(reader->latch);
	check_overrun(reader);

	size_t count = gather(reader, iov);

	for (size_t i = 0; i < count && (size_t)total < max; i++) {
		size_t n = MIN_OF(iov[i].iov_len, max - (size_t)total);

		memcpy(buf + total, iov[i].iov_base, n);
		total += (ssize_t)n;
	}
	advance(reader, (size_t)total);
	if (total == 0 && (reader->dropped || reader->over))
		total = -1;
	pthread_mutex_unlock(&reader->feed->lock);
	return total;
}

#include "api/feed.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include "api/growth.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

#define MAX_READERS 2048
#define MAX_PER_COMPANY 1024
#define RING_FRAMES 1024
#define RING_BYTES ((size_t)1 << 20)
#define BEAT_MS 15000
#define DROP_MS 10000
#define PAGE 200
#define GATHER 32 /* frames of one write */
#define FEED_STACK (256u << 10)
#define OTHERS_MS 1000 /* how often to look for what other nodes wrote */
#define GROWTH_MS 300  /* how often logs are looked at while somebody wants to know */
#define DB_TROUBLE_MS 1000

#define ANY_TYPE (1u << 31) /* comments: for every reader */

struct frame {
	int refs; /* the ring's and those of readers in the middle of it */
	unsigned type;
	int64_t seq; /* 0: not in the sequence, nothing to go on from */
	size_t len;
	char data[];
};

/* The frames of one company, and those who read them. */
struct ring {
	struct ring *next;
	int refs; /* readers, and the thread while it looks at the database */
	char company_id[ID_SIZE];
	int64_t head;        /* the newest number read from the database */
	int64_t floor;       /* every event after this one up to head is in the ring */
	uint64_t first, end; /* positions of the frames that are there */
	size_t bytes, size;
	struct feed_reader *readers;
	int reader_count;
	struct frame *frames[];
};

struct feed_reader {
	struct feed *feed;
	struct ring *ring;
	struct feed_reader *prev, *next;         /* in the ring */
	struct feed_reader *lag_prev, *lag_next; /* among those whose socket is full */
	int fd;
	int latch; /* without a socket; -1 until asked for */
	unsigned types;
	bool attached, lagging, dropped, over;
	uint64_t position;   /* of the next frame */
	struct frame *frame; /* in the middle of this one; NULL: between two */
	size_t sent;         /* bytes of it */
	int64_t after;       /* the last number this reader has had */
	int64_t drop_at;     /* mono: a dropped reader that takes nothing is ended */
};

struct feed {
	struct feed_options options;
	struct db_listener listener;
	struct growth *growth;
	pthread_t thread;
	bool running;
	int wake_fd, epoll_fd;
	atomic_bool stopping, asked; /* asked: the latch is set and not looked at yet */
	atomic_int watched;          /* readers: commits wake nobody when there are none */

	pthread_mutex_t lock; /* the rest; writes to sockets under it do not block */
	struct ring *rings;
	struct feed_reader *laggards;
	int reader_count, log_readers;
};

/* ---- frames and rings ---- */

static struct frame *frame_new(unsigned type, int64_t seq, const struct buf *text)
{
	struct frame *frame = xmalloc(sizeof(*frame) + text->len);

	*frame = (struct frame){ .refs = 1, .type = type, .seq = seq, .len = text->len };
	memcpy(frame->data, text->data, text->len);
	return frame;
}

static void frame_put(struct frame *frame)
{
	if (frame && --frame->refs == 0)
		free(frame);
}

static struct frame *frame_at(const struct ring *ring, uint64_t position)
{
	return ring->frames[position % ring->size];
}

void frame_event(struct buf *out, const char *company_id, const struct event_row *row)
{
	const char *type = event_type_name(row->type);
	char time[TIME_ISO_SIZE];

	time_iso(row->created_at, time);
	if (row->seq)
		buf_printf(out, "id: %lld\n", (long long)row->seq);
	buf_printf(out, "event: %s\ndata: {\"id\":", type);
	if (row->seq)
		buf_printf(out, "%lld", (long long)row->seq);
	else
		buf_puts(out, "null");
	buf_printf(out, ",\"companyId\":\"%s\",\"type\":\"%s\",\"createdAt\":\"%s\",\"payload\":",
		   company_id, type, time);
	buf_puts(out, row->payload);
	buf_puts(out, "}\n\n");
}

static void ring_push(struct feed *feed, struct ring *ring, struct frame *frame)
{
	while (ring->first < ring->end && (ring->end - ring->first == ring->size ||
					   ring->bytes + frame->len > feed->options.ring_bytes)) {
		struct frame *old = frame_at(ring, ring->first);

		ring->bytes -= old->len;
		ring->floor = MAX_OF(ring->floor, old->seq);
		frame_put(old);
		ring->first++;
	}
	ring->frames[ring->end++ % ring->size] = frame;
	ring->bytes += frame->len;
}

static void push_text(struct feed *feed, struct ring *ring, unsigned type, int64_t seq,
		      const struct buf *text)
{
	ring_push(feed, ring, frame_new(type, seq, text));
}

static void ring_put(struct feed *feed, struct ring *ring)
{
	if (--ring->refs > 0)
		return;
	for (struct ring **at = &feed->rings; *at; at = &(*at)->next) {
		if (*at != ring)
			continue;
		*at = ring->next;
		break;
	}
	for (; ring->first < ring->end; ring->first++)
		frame_put(frame_at(ring, ring->first));
	free(ring);
}

static struct ring *ring_of(struct feed *feed, const char *company_id, int64_t now)
{
	for (struct ring *ring = feed->rings; ring; ring = ring->next) {
		if (streq(ring->company_id, company_id))
			return ring;
	}

	size_t size = feed->options.ring_frames;
	struct ring *ring = xcalloc(1, sizeof(*ring) + size * sizeof(ring->frames[0]));

	id_copy(ring->company_id, company_id);
	ring->size = size;
	ring->head = ring->floor = now;
	ring->next = feed->rings;
	feed->rings = ring;
	return ring;
}

/* ---- readers ---- */

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

static void tell_all(struct ring *ring)
{
	for (struct feed_reader *reader = ring->readers; reader; reader = reader->next)
		tell(reader);
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

/* ---- the thread ---- */

static void commit_happened(void *arg)
{
	struct feed *feed = arg;

	if (atomic_load(&feed->watched) > 0 && !atomic_exchange(&feed->asked, true))
		latch_set(feed->wake_fd);
}

/* With the lock held: what the page brings, into the ring and out. */
static void publish(struct feed *feed, struct ring *ring, const struct event_page *page)
{
	for (size_t i = 0; i < page->count; i++) {
		const struct event_row *row = &page->rows[i];
		_cleanup_buf_ struct buf text = { 0 };

		ring->head = row->seq;
		if (!row->payload)
			continue;
		frame_event(&text, ring->company_id, row);
		push_text(feed, ring, 1u << row->type, row->seq, &text);
	}
	if (!page->more)
		ring->head = MAX_OF(ring->head, page->now);
	if (page->count)
		tell_all(ring);
}

/* Everything the database has for one company. */
static int catch_up(struct feed *feed, struct ring *ring, struct error *err)
{
	_cleanup_event_page_ struct event_page page = { 0 };

	do {
		/* Only this thread moves `head`. */
		if (events_after(feed->options.db, ring->company_id, ring->head, PAGE, &page, err) <
		    0)
			return -1;
		pthread_mutex_lock(&feed->lock);
		publish(feed, ring, &page);
		pthread_mutex_unlock(&feed->lock);
	} while (page.more && !atomic_load(&feed->stopping));
	return 0;
}

/* The ring behind `ring`, or the first; keeps it until it is given back here. */
static struct ring *next_ring(struct feed *feed, struct ring *ring)
{
	pthread_mutex_lock(&feed->lock);

	struct ring *next = ring ? ring->next : feed->rings;

	if (next)
		next->refs++;
	if (ring)
		ring_put(feed, ring);
	pthread_mutex_unlock(&feed->lock);
	return next;
}

static bool look_at_database(struct feed *feed)
{
	_cleanup_error_ struct error err = { 0 };
	bool fine = true;

	for (struct ring *ring = next_ring(feed, NULL); ring; ring = next_ring(feed, ring)) {
		if (catch_up(feed, ring, &err) < 0) {
			log_warn("events cannot be read: %s", err.message);
			fine = false;
		}
	}
	return fine;
}

/* Everybody hears something, and learns how far it has got. */
static void beat(struct feed *feed)
{
	pthread_mutex_lock(&feed->lock);
	for (struct ring *ring = feed->rings; ring; ring = ring->next) {
		_cleanup_buf_ struct buf text = { 0 };

		buf_printf(&text, ": heartbeat\nid: %lld\n\n", (long long)ring->head);
		push_text(feed, ring, ANY_TYPE, 0, &text);
		tell_all(ring);
	}
	pthread_mutex_unlock(&feed->lock);
}

static void flush_laggards(struct feed *feed)
{
	struct feed_reader *next;
	int64_t now = clock_mono(feed->options.clock);

	pthread_mutex_lock(&feed->lock);
	for (struct feed_reader *reader = feed->laggards; reader; reader = next) {
		next = reader->lag_next;
		flush(reader);
		if (reader->lagging && reader->dropped && now >= reader->drop_at) {
			reader_end(reader);
			set_lagging(reader, false);
		}
	}
	pthread_mutex_unlock(&feed->lock);
}

static void announce(void *arg, const char *company_id, const struct event_row *row)
{
	struct feed *feed = arg;
	_cleanup_buf_ struct buf text = { 0 };

	frame_event(&text, company_id, row);
	pthread_mutex_lock(&feed->lock);
	for (struct ring *ring = feed->rings; ring; ring = ring->next) {
		if (!streq(ring->company_id, company_id))
			continue;
		push_text(feed, ring, 1u << row->type, 0, &text);
		tell_all(ring);
	}
	pthread_mutex_unlock(&feed->lock);
}

/* When the thread has to do something by itself; mono. */
struct due {
	int64_t beat, others, growth, trouble;
};

static bool is_due(int64_t *at, int64_t now, int64_t period)
{
	if (now < *at)
		return false;
	*at = now + period;
	return true;
}

static int wait_ms(struct feed *feed, const struct due *due)
{
	struct clock *clock = feed->options.clock;
	int64_t next = due->beat;

	if (db_is_postgres(feed->options.db))
		next = MIN_OF(next, due->others);
	if (due->trouble)
		next = MIN_OF(next, due->trouble);
	pthread_mutex_lock(&feed->lock);
	if (feed->log_readers)
		next = MIN_OF(next, due->growth);
	/* A laggard that takes nothing is ended at its time. */
	if (feed->laggards)
		next = MIN_OF(next, clock_mono(clock) + OTHERS_MS);
	if (!feed->rings)
		next = -1;
	pthread_mutex_unlock(&feed->lock);
	return clock_poll_timeout(clock, next);
}

static void do_what_is_due(struct feed *feed, struct due *due, bool woken)
{
	int64_t now = clock_mono(feed->options.clock);
	bool others = is_due(&due->others, now, OTHERS_MS) && db_is_postgres(feed->options.db);
	bool again = due->trouble && now >= due->trouble;

	if (woken || others || again)
		due->trouble = look_at_database(feed) ? 0 : now + DB_TROUBLE_MS;
	if (is_due(&due->growth, now, GROWTH_MS)) {
		pthread_mutex_lock(&feed->lock);

		bool wanted = feed->log_readers > 0;

		pthread_mutex_unlock(&feed->lock);
		if (wanted)
			growth_look(feed->growth, clock_now(feed->options.clock), announce, feed);
		else
			growth_forget(feed->growth);
	}
	if (is_due(&due->beat, now, feed->options.beat_ms))
		beat(feed);
	flush_laggards(feed);
}

static void *feed_main(void *arg)
{
	struct feed *feed = arg;
	struct due due = { .beat = clock_mono(feed->options.clock) + feed->options.beat_ms };

	while (!atomic_load(&feed->stopping)) {
		struct epoll_event events[16];

		if (epoll_wait(feed->epoll_fd, events, ARRAY_SIZE(events), wait_ms(feed, &due)) <
			    0 &&
		    errno != EINTR) {
			log_error("events stop: %s", strerror(errno));
			break;
		}

		bool woken = latch_is_set(feed->wake_fd);

		/* In this order: a commit from here on sets it again. */
		latch_clear(feed->wake_fd);
		atomic_store(&feed->asked, false);
		do_what_is_due(feed, &due, woken);
	}
	return NULL;
}

static int start_thread(struct feed *feed, struct error *err)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, FEED_STACK);

	int failed = pthread_create(&feed->thread, &attr, feed_main, feed);

	pthread_attr_destroy(&attr);
	if (failed)
		return error_errno(err, failed, "cannot start the thread of events");
	feed->running = true;
	return 0;
}

static void set_defaults(struct feed_options *o)
{
	o->max_readers = o->max_readers ? o->max_readers : MAX_READERS;
	o->max_per_company = o->max_per_company ? o->max_per_company : MAX_PER_COMPANY;
	o->ring_frames = o->ring_frames ? o->ring_frames : RING_FRAMES;
	o->ring_bytes = o->ring_bytes ? o->ring_bytes : RING_BYTES;
	o->beat_ms = o->beat_ms ? o->beat_ms : BEAT_MS;
	o->drop_ms = o->drop_ms ? o->drop_ms : DROP_MS;
}

int feed_new(const struct feed_options *options, struct feed **out, struct error *err)
{
	struct feed *feed = xcalloc(1, sizeof(*feed));
	struct epoll_event event = { .events = EPOLLIN };

	feed->options = *options;
	set_defaults(&feed->options);
	feed->listener = (struct db_listener){ commit_happened, feed };
	pthread_mutex_init(&feed->lock, NULL);
	feed->growth = growth_new(options->db, options->logs);
	feed->wake_fd = latch_new(err);
	feed->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	event.data.fd = feed->wake_fd;
	if (feed->wake_fd < 0 || feed->epoll_fd < 0 ||
	    epoll_ctl(feed->epoll_fd, EPOLL_CTL_ADD, feed->wake_fd, &event) < 0) {
		if (feed->wake_fd >= 0)
			error_errno(err, errno, "cannot watch for events");
		feed_free(feed);
		return -1;
	}
	if (start_thread(feed, err) < 0) {
		feed_free(feed);
		return -1;
	}
	db_listen(options->db, &feed->listener);
	*out = feed;
	return 0;
}

void feed_stop(struct feed *feed)
{
	if (!feed || !feed->running)
		return;
	atomic_store(&feed->stopping, true);
	latch_set(feed->wake_fd);
	pthread_join(feed->thread, NULL);
	feed->running = false;
}

void feed_free(struct feed *feed)
{
	if (!feed)
		return;
	feed_stop(feed);
	growth_free(feed->growth);
	close_fdp(&feed->epoll_fd);
	close_fdp(&feed->wake_fd);
	pthread_mutex_destroy(&feed->lock);
	free(feed);
}

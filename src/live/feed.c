#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "live/feed_internal.h"
#include "live/log_growth.h"

#define MAX_READERS 2048
#define MAX_PER_COMPANY 1024
#define RING_FRAMES 1024
#define RING_BYTES ((size_t)1 << 20)
#define BEAT_MS 15000
#define DROP_MS 10000
#define PAGE 200
#define FEED_STACK (256u << 10)
#define OTHERS_MS 1000 /* how often to look for what other nodes wrote */
#define GROWTH_MS 300  /* how often logs are looked at while somebody wants to know */
#define DB_TROUBLE_MS 1000

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
		ring_push(feed, ring, 1u << row->type, row->seq, &text);
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
		ring_push(feed, ring, ANY_TYPE, 0, &text);
		tell_all(ring);
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
		ring_push(feed, ring, 1u << row->type, 0, &text);
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
			log_growth_look(feed->growth, clock_now(feed->options.clock), announce,
					feed);
		else
			log_growth_forget(feed->growth);
	}
	if (is_due(&due->beat, now, feed->options.beat_ms))
		beat(feed);
	pthread_mutex_lock(&feed->lock);
	flush_laggards(feed);
	pthread_mutex_unlock(&feed->lock);
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
	feed->growth = log_growth_new(options->db, options->logs);
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
	log_growth_free(feed->growth);
	close_fdp(&feed->epoll_fd);
	close_fdp(&feed->wake_fd);
	pthread_mutex_destroy(&feed->lock);
	free(feed);
}

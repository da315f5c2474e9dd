#include "link/loop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "link/link.h"

#define BATCH 64
#define SCRATCH_SIZE ((size_t)256 << 10)
/* Deadlines of links that lie close together are met together: fewer wake-ups. */
#define TICK_MS 250
#define SEATS_KEPT 8

struct channel_loop {
	pthread_t thread;
	int epoll_fd;
	int wake_fd;
	atomic_bool stop;
	atomic_bool ticks;    /* every WIRE_PING_MS at least */
	pthread_mutex_t lock; /* the list */
	struct link *links;
	uint8_t *scratch;
	/* Those nobody uses; under the lock. Making them anew for every command costs what many do.
	 */
	struct seat seats[SEATS_KEPT];
	size_t seat_count;
};

static void unlist(struct channel_loop *loop, struct link *link)
{
	pthread_mutex_lock(&loop->lock);
	for (struct link **p = &loop->links; *p; p = link_list_next(*p)) {
		if (*p == link) {
			*p = *link_list_next(link);
			break;
		}
	}
	pthread_mutex_unlock(&loop->lock);
}

static void retire(struct channel_loop *loop, struct link *link)
{
	unlist(loop, link);
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, link_fd(link), NULL);
	link_retire(link);
	link_unref(link);
}

/* Only this thread takes links out of the list, so its front part can be walked without the lock.
 */
static int64_t tick_all(struct channel_loop *loop, int64_t now)
{
	int64_t earliest = INT64_MAX;
	struct link *next;

	pthread_mutex_lock(&loop->lock);

	struct link *link = loop->links;

	pthread_mutex_unlock(&loop->lock);
	for (; link; link = next) {
		int64_t at;

		next = *link_list_next(link);
		if (link_tick(link, now, &at))
			earliest = MIN_OF(earliest, at);
		else
			retire(loop, link);
	}
	return earliest;
}

static int wait_ms(int64_t due, int64_t now)
{
	if (due == INT64_MAX)
		return -1;
	if (due <= now)
		return 0;
	return (int)MIN_OF((due - now + TICK_MS - 1) / TICK_MS * TICK_MS, (int64_t)60000);
}

static void *loop_main(void *arg)
{
	struct channel_loop *loop = arg;
	struct epoll_event events[BATCH];
	int64_t due = INT64_MAX;

	while (!atomic_load(&loop->stop)) {
		int n = epoll_wait(loop->epoll_fd, events, BATCH, wait_ms(due, boottime_ms()));
		bool woken = false;

		if (n < 0 && errno != EINTR) {
			log_error("the channel loop cannot wait: errno %d", errno);
			n = 0;
		}
		for (int i = 0; i < n; i++) {
			struct link *link = events[i].data.ptr;

			if (!link) {
				latch_clear(loop->wake_fd);
				woken = true;
			} else if (!link_ready(link, events[i].events, loop->scratch,
					       SCRATCH_SIZE)) {
				retire(loop, link);
			}
		}

		int64_t now = boottime_ms();

		/* An idle link can have got streams since, and is then to be pinged more often. */
		if (woken || now >= due) {
			due = MIN_OF(tick_all(loop, now), now + WIRE_PING_MS);
			atomic_store(&loop->ticks, true);
		}
	}
	return NULL;
}

static void seat_clear(struct seat *seat)
{
	close_fdp(&seat->latch);
	free(seat->scratch);
}

static void loop_destroy(struct channel_loop *loop)
{
	close_fdp(&loop->epoll_fd);
	close_fdp(&loop->wake_fd);
	while (loop->seat_count > 0)
		seat_clear(&loop->seats[--loop->seat_count]);
	pthread_mutex_destroy(&loop->lock);
	free(loop->scratch);
	free(loop);
}

/* Signals are for the thread that main chose. */
static int start_thread(struct channel_loop *loop)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&loop->thread, NULL, loop_main, loop);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

int channel_loop_new(struct channel_loop **out, struct error *err)
{
	struct channel_loop *loop = xcalloc(1, sizeof(*loop));
	struct epoll_event event = { .events = EPOLLIN };
	int r;

	*out = NULL;
	pthread_mutex_init(&loop->lock, NULL);
	loop->scratch = xmalloc(SCRATCH_SIZE);
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	loop->wake_fd = latch_new(err);
	if (loop->epoll_fd < 0 || loop->wake_fd < 0 ||
	    epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &event) < 0) {
		error_errno(err, errno, "making the channel loop");
		loop_destroy(loop);
		return -1;
	}
	r = start_thread(loop);
	if (r != 0) {
		error_errno(err, r, "starting the channel loop");
		loop_destroy(loop);
		return -1;
	}
	*out = loop;
	return 0;
}

void channel_loop_free(struct channel_loop *loop)
{
	if (!loop)
		return;
	atomic_store(&loop->stop, true);
	latch_set(loop->wake_fd);
	pthread_join(loop->thread, NULL);
	while (loop->links) {
		link_close(loop->links);
		retire(loop, loop->links);
	}
	loop_destroy(loop);
}

int channel_loop_add(struct channel_loop *loop, struct link *link, int64_t within_ms,
		     struct error *err)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = link };
	int rc = FAULT_HERE("channel.watch", err);

	/* Its end may be reported before it is listed; who takes it out waits for the lock. */
	pthread_mutex_lock(&loop->lock);
	if (rc == 0 && epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, link_fd(link), &event) < 0)
		rc = error_errno(err, errno, "watching a connection");
	if (rc == 0) {
		*link_list_next(link) = loop->links;
		loop->links = link;
	}
	pthread_mutex_unlock(&loop->lock);
	if (rc < 0) {
		link_unref(link);
		return -1;
	}
	/* Once there was a link all are looked at often enough for most. */
	if (within_ms < 2 * WIRE_PING_MS || !atomic_load(&loop->ticks))
		latch_set(loop->wake_fd);
	return 0;
}

void channel_loop_want(struct channel_loop *loop, struct link *link, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = link };

	epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, link_fd(link), &event);
}

void channel_loop_unwatch(struct channel_loop *loop, struct link *link)
{
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, link_fd(link), NULL);
}

bool channel_loop_watch(struct channel_loop *loop, struct link *link, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = link };

	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, link_fd(link), &event) == 0)
		return true;
	/* It is broken now; the loop finds that out when it looks at all links. */
	latch_set(loop->wake_fd);
	return false;
}

bool channel_loop_seat_get(struct channel_loop *loop, struct seat *seat)
{
	bool found;

	pthread_mutex_lock(&loop->lock);
	found = loop->seat_count > 0;
	if (found)
		*seat = loop->seats[--loop->seat_count];
	pthread_mutex_unlock(&loop->lock);
	if (found)
		return true;
	*seat = (struct seat){ .latch = latch_new(NULL) };
	if (seat->latch < 0)
		return false;
	seat->scratch = xmalloc(SEAT_SCRATCH);
	return true;
}

void channel_loop_seat_put(struct channel_loop *loop, struct seat *seat)
{
	bool kept;

	pthread_mutex_lock(&loop->lock);
	kept = loop->seat_count < SEATS_KEPT;
	if (kept)
		loop->seats[loop->seat_count++] = *seat;
	pthread_mutex_unlock(&loop->lock);
	if (!kept)
		seat_clear(seat);
}

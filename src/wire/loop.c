#include "wire/loop.h"

#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <time.h>
#include "base/mem.h"

int64_t loop_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int loop_init(struct loop *loop, struct error *err)
{
	*loop = (struct loop){ .epoll_fd = epoll_create1(EPOLL_CLOEXEC) };
	if (loop->epoll_fd < 0)
		return error_errno(err, errno, "epoll");
	return 0;
}

int loop_watch(struct loop *loop, struct watch *watch, int fd, uint32_t events, struct error *err)
{
	struct epoll_event event = { .events = events, .data.ptr = watch };

	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return error_errno(err, errno, "watching a descriptor");
	watch->fd = fd;
	watch->events = events;
	return 0;
}

void loop_change(struct loop *loop, struct watch *watch, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = watch };

	if (watch->fd < 0 || watch->events == events)
		return;
	watch->events = events;
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event);
}

void loop_unwatch(struct loop *loop, struct watch *watch)
{
	if (watch->fd < 0)
		return;
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
	watch->fd = -1;
	for (size_t i = 0; i < LOOP_BATCH; i++)
		if (loop->batch[i] == watch)
			loop->batch[i] = NULL;
}

void loop_disarm(struct loop *loop, struct timer *timer)
{
	if (timer->at == 0)
		return;
	for (struct timer **t = &loop->timers; *t; t = &(*t)->next) {
		if (*t == timer) {
			*t = timer->next;
			break;
		}
	}
	timer->at = 0;
	timer->next = NULL;
}

void loop_arm(struct loop *loop, struct timer *timer, int64_t after_ms)
{
	struct timer **t = &loop->timers;

	loop_disarm(loop, timer);
	timer->at = boottime_ms() + MAX_OF(after_ms, 0);
	while (*t && (*t)->at <= timer->at)
		t = &(*t)->next;
	timer->next = *t;
	*t = timer;
}

static int next_timeout(const struct loop *loop)
{
	int64_t left;

	if (!loop->timers)
		return -1;
	left = loop->timers->at - boottime_ms();
	return (int)MIN_OF(MAX_OF(left, 0), (int64_t)INT_MAX);
}

static void run_due(struct loop *loop)
{
	while (loop->timers && loop->timers->at <= boottime_ms() && !loop->stop) {
		struct timer *timer = loop->timers;

		loop_disarm(loop, timer);
		timer->due(timer);
	}
}

int loop_run(struct loop *loop, struct error *err)
{
	struct epoll_event events[LOOP_BATCH];

	while (!loop->stop) {
		int n = epoll_wait(loop->epoll_fd, events, LOOP_BATCH, next_timeout(loop));

		if (n < 0 && errno != EINTR)
			return error_errno(err, errno, "waiting for events");
		for (int i = 0; i < n; i++)
			loop->batch[i] = events[i].data.ptr;
		for (int i = 0; i < n && !loop->stop; i++) {
			struct watch *watch = loop->batch[i];

			loop->batch[i] = NULL;
			if (watch)
				watch->ready(watch, events[i].events);
		}
		for (int i = 0; i < n; i++)
			loop->batch[i] = NULL;
		run_due(loop);
	}
	return 0;
}

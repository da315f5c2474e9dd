/*
 * The dead-man switch: a place nobody has asked after for its absence TTL ends itself. The clock
 * counts suspended time too, and the timer is only looked at again when it fires, so traffic costs
 * nothing.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "relay/relay.h"
#include "wire/place.h"

static void arm(struct relay *relay, int64_t ms)
{
	struct itimerspec when = {
		.it_value = { .tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000 + 1 },
	};

	timerfd_settime(relay->absence.fd, 0, &when, NULL);
}

static void absence_ready(struct watch *watch, uint32_t events)
{
	struct relay *relay = container_of(watch, struct relay, absence);
	int64_t left;
	uint64_t ticks;

	(void)events;
	if (read(watch->fd, &ticks, sizeof(ticks)) < 0)
		return;
	left = relay->heard_ms + (int64_t)relay->config.absence_ms - boottime_ms();
	if (left > 0)
		arm(relay, left);
	else
		relay_end(relay);
}

int absence_open(struct relay *relay, struct error *err)
{
	int fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);

	if (fd < 0)
		return error_errno(err, errno, "making the absence timer");
	relay->absence.ready = absence_ready;
	return loop_watch(&relay->loop, &relay->absence, fd, EPOLLIN, err);
}

void absence_start(struct relay *relay)
{
	relay->heard_ms = boottime_ms();
	arm(relay, (int64_t)relay->config.absence_ms);
}

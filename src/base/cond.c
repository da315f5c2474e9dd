#include "base/cond.h"

#include <errno.h>
#include <time.h>
#include "base/clock.h"

void cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

bool cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline)
{
	struct timespec until;
	int64_t left;

	if (deadline < 0) {
		pthread_cond_wait(cond, lock);
		return true;
	}
	left = deadline - boottime_ms();
	if (left <= 0)
		return false;
	/* Condition variables know no CLOCK_BOOTTIME; a suspended machine wakes them late at worst.
	 */
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(left / 1000);
	until.tv_nsec += (long)(left % 1000) * 1000000L;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000L;
	}
	return pthread_cond_timedwait(cond, lock, &until) != ETIMEDOUT;
}

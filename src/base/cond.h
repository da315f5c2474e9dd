/* Condition variables with deadlines of boottime_ms (base/clock.h). */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

void cond_init(pthread_cond_t *cond);
/* Waits until signalled or the deadline (below 0: none); false when that has passed. */
bool cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline);

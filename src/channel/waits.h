/* Condition variables with deadlines of channel_now. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

void channel_cond_init(pthread_cond_t *cond);
/* Waits until signalled or the deadline (below 0: none); false when that has passed. */
bool channel_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline);

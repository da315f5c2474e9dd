#include "db/pool.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

void pool_init(struct pool *pool, int capacity, int wait_ms)
{
	*pool = (struct pool){ .capacity = MIN_OF(capacity, POOL_MAX), .wait_ms = wait_ms };
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&pool->returned, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&pool->lock, NULL);
}

static struct timespec deadline_in(int ms)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

int pool_take(struct pool *pool, struct tx **connection, struct error *err)
{
	int r = 0;
	*connection = NULL;

	pthread_mutex_lock(&pool->lock);
	if (pool->lent >= pool->capacity) {
		struct timespec deadline = deadline_in(pool->wait_ms);
		while (pool->lent >= pool->capacity && !pool->closing && r != ETIMEDOUT)
			r = pthread_cond_timedwait(&pool->returned, &pool->lock, &deadline);
	}
	bool closing = pool->closing;
	bool free_room = pool->lent < pool->capacity && !closing;
	if (free_room) {
		pool->lent++;
		if (pool->idle_count > 0)
			*connection = pool->idle[--pool->idle_count];
	}
	pthread_mutex_unlock(&pool->lock);

	if (closing)
		return error_set(err, ERR_UNAVAILABLE, "the database is being closed");
	if (!free_room)
		return error_set(err, ERR_DB_BUSY,
				 "all %d database connections were busy for %d ms", pool->capacity,
				 pool->wait_ms);
	return 0;
}

void pool_give(struct pool *pool, struct tx *connection)
{
	pthread_mutex_lock(&pool->lock);
	assert(pool->lent > 0);
	pool->lent--;
	if (connection)
		pool->idle[pool->idle_count++] = connection;
	/* While closing, the one who waits for all may be among several. */
	if (pool->closing)
		pthread_cond_broadcast(&pool->returned);
	else
		pthread_cond_signal(&pool->returned);
	pthread_mutex_unlock(&pool->lock);
}

void pool_each_idle(struct pool *pool, void (*fn)(struct tx *connection))
{
	pthread_mutex_lock(&pool->lock);
	for (int i = 0; i < pool->idle_count; i++)
		fn(pool->idle[i]);
	pthread_mutex_unlock(&pool->lock);
}

void pool_close_idle(struct pool *pool, void (*close)(struct tx *connection))
{
	pthread_mutex_lock(&pool->lock);
	struct tx *idle[POOL_MAX];
	int count = 0;
	while (pool->idle_count > 0)
		idle[count++] = pool->idle[--pool->idle_count];
	pthread_mutex_unlock(&pool->lock);
	for (int i = 0; i < count; i++)
		close(idle[i]);
}

void pool_drain(struct pool *pool, void (*close)(struct tx *connection))
{
	pthread_mutex_lock(&pool->lock);
	pool->closing = true;
	pthread_cond_broadcast(&pool->returned);
	struct timespec deadline = deadline_in(pool->wait_ms);
	int r = 0;
	while (pool->lent > 0 && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&pool->returned, &pool->lock, &deadline);
	/* A borrower that outlives the database would write to freed memory. */
	assert(pool->lent == 0);
	while (pool->idle_count > 0)
		close(pool->idle[--pool->idle_count]);
	pthread_mutex_unlock(&pool->lock);
	pthread_cond_destroy(&pool->returned);
	pthread_mutex_destroy(&pool->lock);
}

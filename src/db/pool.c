#include "db/pool.h"

#include <assert.h>
#include "base/clock.h"
#include "base/cond.h"

void pool_init(struct pool *pool, int capacity, int wait_ms)
{
	*pool = (struct pool){ .capacity = MIN_OF(capacity, POOL_MAX), .wait_ms = wait_ms };
	cond_init(&pool->returned);
	pthread_mutex_init(&pool->lock, NULL);
}

int pool_take(struct pool *pool, struct tx **connection, struct error *err)
{
	*connection = NULL;

	pthread_mutex_lock(&pool->lock);
	if (pool->lent >= pool->capacity) {
		int64_t deadline = boottime_ms() + pool->wait_ms;

		while (pool->lent >= pool->capacity && !pool->closing &&
		       cond_wait_until(&pool->returned, &pool->lock, deadline))
			;
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
	int64_t deadline = boottime_ms() + pool->wait_ms;

	while (pool->lent > 0 && cond_wait_until(&pool->returned, &pool->lock, deadline))
		;
	/* A borrower that outlives the database would write to freed memory. */
	assert(pool->lent == 0);
	while (pool->idle_count > 0)
		close(pool->idle[--pool->idle_count]);
	pthread_mutex_unlock(&pool->lock);
	pthread_cond_destroy(&pool->returned);
	pthread_mutex_destroy(&pool->lock);
}

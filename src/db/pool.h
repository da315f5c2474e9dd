/*
 * A bounded set of connections, opened when first needed and lent to one thread at a time. The
 * connection returned last is lent first, so that a quiet server keeps few of them busy.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include "base/error.h"

#define POOL_MAX 64

struct tx;

struct pool {
	pthread_mutex_t lock;
	pthread_cond_t returned;
	int capacity;
	int lent;
	int idle_count;
	struct tx *idle[POOL_MAX];
	int wait_ms;
	bool closing;
};

/* wait_ms: how long a borrower waits when everything is lent. */
void pool_init(struct pool *pool, int capacity, int wait_ms);
/* Lends no more, waits for what is lent, closes everything and ends the pool. */
void pool_drain(struct pool *pool, void (*close)(struct tx *connection));

/*
 * 0 with an idle connection, or with NULL: the caller may then open one. Either way it owes a
 * pool_give. ERR_DB_BUSY when none came back in time.
 */
int pool_take(struct pool *pool, struct tx **connection, struct error *err);
/* NULL: the connection is gone or was never opened, another one may take its room. */
void pool_give(struct pool *pool, struct tx *connection);
/* For what nobody holds at the moment; nobody can take one meanwhile, so `fn` is to be quick. */
void pool_each_idle(struct pool *pool, void (*fn)(struct tx *connection));
/* Closes what nobody holds at the moment. */
void pool_close_idle(struct pool *pool, void (*close)(struct tx *connection));

/*
 * A log that is in memory only: the bytes that its files would have. Private to runlog/.
 *
 * Most commands are over in a moment and say little, and files that are made to be read once cost
 * more than such a command does. A log stays here while it is short; written to files it begins
 * there with the same bytes, so that readers go on where they were.
 */
#pragma once

#include <pthread.h>
#include "base/buf.h"
#include "runlog/layout.h"

#define HELD_LOG_BYTES ((int64_t)16 << 10)  /* of one log, its index included */
#define HELD_STORE_BYTES ((int64_t)4 << 20) /* of all logs of a store */

struct held {
	struct runlog_store *store; /* whose bytes are counted; the topic keeps it alive */
	pthread_mutex_t lock;       /* a leaf; the rest */
	int refs;
	bool moved; /* to files */
	int64_t counted;
	struct buf part[2]; /* by enum log_file */
};

struct held *held_new(struct runlog_store *store);
struct held *held_ref(struct held *held);
void held_unref(struct held *held);
/* False, and nothing happened, when there is no room for so many more bytes. */
bool held_take_room(struct held *held, int64_t bytes);
/* Gives its room back: its bytes are only there for those who still read them. */
void held_leave(struct held *held, bool moved);
bool held_has_moved(struct held *held);
void held_append(struct held *held, enum log_file which, const void *data, size_t len);
int64_t held_size(struct held *held, enum log_file which);
/* As pread. */
ssize_t held_read(struct held *held, enum log_file which, void *buf, size_t len, int64_t offset);

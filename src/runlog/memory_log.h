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

#define MEMORY_LOG_LOG_BYTES ((int64_t)16 << 10)  /* of one log, its index included */
#define MEMORY_LOG_STORE_BYTES ((int64_t)4 << 20) /* of all logs of a store */

struct memory_log {
	struct runlog_store *store; /* whose bytes are counted; the topic keeps it alive */
	pthread_mutex_t lock;       /* a leaf; the rest */
	int refs;
	bool moved; /* to files */
	int64_t counted;
	struct buf part[2]; /* by enum log_file */
};

struct memory_log *memory_log_new(struct runlog_store *store);
struct memory_log *memory_log_ref(struct memory_log *held);
void memory_log_unref(struct memory_log *held);
/* False, and nothing happened, when there is no room for so many more bytes. */
bool memory_log_take_room(struct memory_log *held, int64_t bytes);
/* Gives its room back: its bytes are only there for those who still read them. */
void memory_log_leave(struct memory_log *held, bool moved);
bool memory_log_has_moved(struct memory_log *held);
void memory_log_append(struct memory_log *held, enum log_file which, const void *data, size_t len);
int64_t memory_log_size(struct memory_log *held, enum log_file which);
/* As pread. */
ssize_t memory_log_read(struct memory_log *held, enum log_file which, void *buf, size_t len,
			int64_t offset);

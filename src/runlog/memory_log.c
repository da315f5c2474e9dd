#include "runlog/memory_log.h"

#include <string.h>

struct memory_log *memory_log_new(struct runlog_store *store)
{
	struct memory_log *held = xcalloc(1, sizeof(*held));

	pthread_mutex_init(&held->lock, NULL);
	held->store = store;
	held->refs = 1;
	return held;
}

struct memory_log *memory_log_ref(struct memory_log *held)
{
	pthread_mutex_lock(&held->lock);
	held->refs++;
	pthread_mutex_unlock(&held->lock);
	return held;
}

void memory_log_unref(struct memory_log *held)
{
	if (!held)
		return;
	pthread_mutex_lock(&held->lock);

	bool last = --held->refs == 0;

	pthread_mutex_unlock(&held->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&held->lock);
	buf_free(&held->part[LOG_DATA]);
	buf_free(&held->part[LOG_INDEX]);
	free(held);
}

bool memory_log_take_room(struct memory_log *held, int64_t bytes)
{
	struct runlog_store *store = held->store;

	/* What goes to files goes into the first segment. */
	if (bytes > MIN_OF(MEMORY_LOG_LOG_BYTES, store->segment_bytes) - held->counted)
		return false;
	if (atomic_fetch_add(&store->memory_log_bytes, bytes) + bytes > MEMORY_LOG_STORE_BYTES) {
		atomic_fetch_sub(&store->memory_log_bytes, bytes);
		return false;
	}
	held->counted += bytes;
	return true;
}

void memory_log_leave(struct memory_log *held, bool moved)
{
	pthread_mutex_lock(&held->lock);
	held->moved = moved;
	pthread_mutex_unlock(&held->lock);
	atomic_fetch_sub(&held->store->memory_log_bytes, held->counted);
	held->counted = 0;
	memory_log_unref(held);
}

bool memory_log_has_moved(struct memory_log *held)
{
	pthread_mutex_lock(&held->lock);

	bool moved = held->moved;

	pthread_mutex_unlock(&held->lock);
	return moved;
}

void memory_log_append(struct memory_log *held, enum log_file which, const void *data, size_t len)
{
	pthread_mutex_lock(&held->lock);
	buf_append(&held->part[which], data, len);
	pthread_mutex_unlock(&held->lock);
}

int64_t memory_log_size(struct memory_log *held, enum log_file which)
{
	pthread_mutex_lock(&held->lock);

	int64_t size = (int64_t)held->part[which].len;

	pthread_mutex_unlock(&held->lock);
	return size;
}

ssize_t memory_log_read(struct memory_log *held, enum log_file which, void *buf, size_t len,
			int64_t offset)
{
	const struct buf *part = &held->part[which];
	size_t n = 0;

	pthread_mutex_lock(&held->lock);
	if (offset < (int64_t)part->len) {
		n = MIN_OF(len, part->len - (size_t)offset);
		memcpy(buf, part->data + offset, n);
	}
	pthread_mutex_unlock(&held->lock);
	return (ssize_t)n;
}

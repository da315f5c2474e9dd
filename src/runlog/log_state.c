#include "runlog/memory_log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include "base/fd.h"

#define SEGMENT_BYTES ((int64_t)64 << 20)

int runlog_store_open(int dirfd, int64_t max_bytes, struct runlog_store **out, struct error *err)
{
	*out = NULL;
	if (max_bytes < 0)
		return error_set(err, ERR_VALIDATION, "a log cannot hold %lld bytes",
				 (long long)max_bytes);

	int own = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);

	if (own < 0)
		return error_errno(err, errno, "open the directory of logs");

	struct runlog_store *store = xcalloc(1, sizeof(*store));

	pthread_mutex_init(&store->lock, NULL);
	store->refs = 1;
	store->dirfd = own;
	store->max_bytes = max_bytes;
	store->segment_bytes = SEGMENT_BYTES;
	*out = store;
	return 0;
}

static void store_put(struct runlog_store *store)
{
	pthread_mutex_lock(&store->lock);

	bool last = --store->refs == 0;

	pthread_mutex_unlock(&store->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&store->lock);
	close(store->dirfd);
	free(store);
}

/* One that nobody writes any more; a reference. */
static struct log_state *find_held(struct runlog_store *store)
{
	struct log_state *found = NULL;

	pthread_mutex_lock(&store->lock);
	for (size_t i = 0; i < ARRAY_SIZE(store->topics) && !found; i++) {
		for (struct log_state *t = store->topics[i]; t && !found; t = t->next) {
			pthread_mutex_lock(&t->lock);
			if (t->held && !t->claimed)
				found = t;
			pthread_mutex_unlock(&t->lock);
		}
	}
	if (found)
		found->refs++;
	pthread_mutex_unlock(&store->lock);
	return found;
}

void runlog_store_close(struct runlog_store *store)
{
	struct log_state *topic;

	if (!store)
		return;
	atomic_store(&store->closed, true);
	while ((topic = find_held(store))) {
		log_state_release(topic, false);
		log_state_put(topic);
	}
	store_put(store);
}

static struct log_state **bucket_of(struct runlog_store *store, const char *name)
{
	uint32_t hash = 2166136261u;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 16777619u;
	return &store->topics[hash % ARRAY_SIZE(store->topics)];
}

struct log_state *log_state_get(struct runlog_store *store, const char *name)
{
	struct log_state **bucket = bucket_of(store, name);
	struct log_state *topic;

	pthread_mutex_lock(&store->lock);
	for (topic = *bucket; topic; topic = topic->next) {
		if (strcmp(topic->name, name) == 0)
			break;
	}
	if (!topic) {
		size_t size = strlen(name) + 1;

		topic = xcalloc(1, sizeof(*topic) + size);
		pthread_mutex_init(&topic->lock, NULL);
		memcpy(topic->name, name, size);
		topic->store = store;
		topic->next = *bucket;
		*bucket = topic;
		store->refs++;
	}
	topic->refs++;
	pthread_mutex_unlock(&store->lock);
	return topic;
}

void log_state_put(struct log_state *topic)
{
	struct runlog_store *store = topic->store;

	pthread_mutex_lock(&store->lock);
	if (--topic->refs > 0) {
		pthread_mutex_unlock(&store->lock);
		return;
	}
	for (struct log_state **p = bucket_of(store, topic->name); *p; p = &(*p)->next) {
		if (*p == topic) {
			*p = topic->next;
			break;
		}
	}
	pthread_mutex_unlock(&store->lock);
	pthread_mutex_destroy(&topic->lock);
	free(topic);
	store_put(store);
}

int log_state_claim(struct log_state *topic, struct error *err)
{
	pthread_mutex_lock(&topic->lock);

	bool taken = topic->claimed;

	topic->claimed = true;
	pthread_mutex_unlock(&topic->lock);
	if (taken)
		return error_set(err, ERR_CONFLICT, "log %s is being written", topic->name);
	return 0;
}

void log_state_unclaim(struct log_state *topic)
{
	pthread_mutex_lock(&topic->lock);
	topic->claimed = false;
	pthread_mutex_unlock(&topic->lock);
}

void log_state_hold(struct log_state *topic, struct memory_log *held)
{
	pthread_mutex_lock(&topic->store->lock);
	topic->refs++;
	pthread_mutex_unlock(&topic->store->lock);
	pthread_mutex_lock(&topic->lock);
	topic->held = held;
	pthread_mutex_unlock(&topic->lock);
}

bool log_state_release(struct log_state *topic, bool moved)
{
	pthread_mutex_lock(&topic->lock);

	struct memory_log *held = steal(topic->held);

	pthread_mutex_unlock(&topic->lock);
	if (!held)
		return false;
	memory_log_leave(held, moved);
	log_state_put(topic);
	return true;
}

struct memory_log *log_state_held(struct log_state *topic)
{
	pthread_mutex_lock(&topic->lock);

	struct memory_log *held = topic->held ? memory_log_ref(topic->held) : NULL;

	pthread_mutex_unlock(&topic->lock);
	return held;
}

void runlog_store_set_segment(struct runlog_store *store, int64_t bytes)
{
	store->segment_bytes = bytes;
}

void runlog_each_live(struct runlog_store *store, runlog_live_fn *fn, void *arg)
{
	pthread_mutex_lock(&store->lock);
	for (size_t i = 0; i < ARRAY_SIZE(store->topics); i++) {
		for (struct log_state *topic = store->topics[i]; topic; topic = topic->next) {
			if (log_state_is_live(topic))
				fn(arg, topic->name,
				   __atomic_load_n(&topic->end, __ATOMIC_ACQUIRE));
		}
	}
	pthread_mutex_unlock(&store->lock);
}

static void wake_locked(struct log_state *topic)
{
	for (struct follower *f = topic->followers; f; f = f->next)
		if (f->event_fd >= 0)
			latch_set(f->event_fd);
}

void log_state_wake(struct log_state *topic)
{
	pthread_mutex_lock(&topic->lock);
	wake_locked(topic);
	pthread_mutex_unlock(&topic->lock);
}

void log_state_set_live(struct log_state *topic, bool live)
{
	pthread_mutex_lock(&topic->lock);
	topic->live = live;
	wake_locked(topic);
	pthread_mutex_unlock(&topic->lock);
}

bool log_state_is_live(struct log_state *topic)
{
	pthread_mutex_lock(&topic->lock);

	bool live = topic->live;

	pthread_mutex_unlock(&topic->lock);
	return live;
}

void log_state_follow(struct log_state *topic, struct follower *f)
{
	pthread_mutex_lock(&topic->lock);
	f->prev = NULL;
	f->next = topic->followers;
	if (f->next)
		f->next->prev = f;
	topic->followers = f;
	pthread_mutex_unlock(&topic->lock);
}

int log_state_watch(struct log_state *topic, struct follower *f, struct error *err)
{
	pthread_mutex_lock(&topic->lock);
	f->event_fd = latch_new(err);
	pthread_mutex_unlock(&topic->lock);
	return f->event_fd < 0 ? -1 : 0;
}

void log_state_unfollow(struct log_state *topic, struct follower *f)
{
	pthread_mutex_lock(&topic->lock);
	if (f->prev)
		f->prev->next = f->next;
	else
		topic->followers = f->next;
	if (f->next)
		f->next->prev = f->prev;
	pthread_mutex_unlock(&topic->lock);
}

#include <pthread.h>
#include "base/mem.h"
#include "base/sha256.h"
#include "workspace/stage_internal.h"

struct side_hash {
	struct sha256 sum;
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t given, taken;
	const void *data; /* NULL: nothing is to be hashed */
	size_t len;
	bool ending;
};

static void *work(void *arg)
{
	struct side_hash *h = arg;

	pthread_mutex_lock(&h->mutex);
	while (h->data || !h->ending) {
		if (!h->data) {
			pthread_cond_wait(&h->given, &h->mutex);
			continue;
		}
		pthread_mutex_unlock(&h->mutex);
		sha256_update(&h->sum, h->data, h->len);
		pthread_mutex_lock(&h->mutex);
		h->data = NULL;
		pthread_cond_signal(&h->taken);
	}
	pthread_mutex_unlock(&h->mutex);
	return NULL;
}

static void side_hash_free(struct side_hash *h)
{
	pthread_cond_destroy(&h->given);
	pthread_cond_destroy(&h->taken);
	pthread_mutex_destroy(&h->mutex);
	free(h);
}

struct side_hash *side_hash_start(void)
{
	struct side_hash *h = xcalloc(1, sizeof(*h));

	sha256_init(&h->sum);
	pthread_mutex_init(&h->mutex, NULL);
	pthread_cond_init(&h->given, NULL);
	pthread_cond_init(&h->taken, NULL);
	if (pthread_create(&h->thread, NULL, work, h) == 0)
		return h;
	side_hash_free(h);
	return NULL;
}

void side_hash_give(struct side_hash *h, const void *data, size_t len)
{
	pthread_mutex_lock(&h->mutex);
	while (h->data)
		pthread_cond_wait(&h->taken, &h->mutex);
	h->data = data;
	h->len = len;
	pthread_cond_signal(&h->given);
	pthread_mutex_unlock(&h->mutex);
}

void side_hash_finish(struct side_hash *h, uint8_t digest[TREE_HASH_SIZE])
{
	pthread_mutex_lock(&h->mutex);
	h->ending = true;
	pthread_cond_signal(&h->given);
	pthread_mutex_unlock(&h->mutex);
	pthread_join(h->thread, NULL);
	sha256_final(&h->sum, digest);
	side_hash_free(h);
}

/*
 * A ring of slots. The pusher fills the slot at `tail` and empties the one at `head`; threads take
 * the slots between by `next`, in order. Everything in `ring` is guarded by `mutex`, except that
 * the slot a thread has taken is its own until it says done.
 */
#include "workspace/hasher.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include "base/fd.h"
#include "base/mem.h"
#include "base/owner.h"
#include "base/path.h"
#include "base/sha256.h"

#define MAX_THREADS 8
#define READ_SIZE ((size_t)65536)
/* How often a file that changes while it is read is read. */
#define TRIES 3

struct slot {
	struct tree_entry entry; /* path and target in `text` */
	struct buf text;
	enum hasher_fate fate;
	bool wanted, done, mark;
	struct error error; /* what a thread could not do; ends the scan */
};

struct hasher {
	int root_fd, cancel_fd;
	int want_threads, threads;
	struct owner owner; /* with whose rights files are opened */
	hasher_emit_fn *emit;
	void *arg;
	pthread_t thread[MAX_THREADS];
	pthread_mutex_t mutex;
	pthread_cond_t work, done;
	bool ending;
	size_t head, next, tail; /* rising; a slot is the number modulo the window */
	struct slot slots[HASHER_WINDOW];
};

int hash_file(int fd, int cancel_fd, struct tree_entry *entry, struct error *err)
{
	_cleanup_free_ uint8_t *chunk = xmalloc_pages(READ_SIZE);
	struct tree_entry before = *entry, after = *entry;
	struct sha256 sum;
	struct stat st;
	uint64_t total = 0;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "look at %s", entry->path);
	tree_entry_from_stat(&st, &before);
	sha256_init(&sum);
	while ((n = pread(fd, chunk, READ_SIZE, (off_t)total)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "read %s", entry->path);
		if (cancel_fd >= 0 && latch_is_set(cancel_fd))
			return error_set(err, ERR_CANCELLED, "cancelled");
		sha256_update(&sum, chunk, (size_t)n);
		total += (uint64_t)n;
		if (total > before.size) /* growing: perhaps for ever */
			break;
	}
	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "look at %s", entry->path);
	tree_entry_from_stat(&st, &after);
	*entry = after;
	sha256_final(&sum, entry->sha256);
	entry->flags |= TREE_HAS_HASH;
	if (tree_entry_same_state(&before, &after) && total == after.size)
		return 0;
	entry->size = total;
	entry->flags |= TREE_RACY;
	return 1;
}

static enum hasher_fate hash_path(struct hasher *h, struct tree_entry *entry, struct error *err)
{
	for (int i = 0; i < TRIES; i++) {
		_cleanup_close_ int fd = path_open_unlinked(
			h->root_fd, entry->path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
		struct stat st;

		if (fd < 0 && (errno == EACCES || errno == EPERM))
			return HASHER_UNREADABLE;
		if (fd < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP &&
		    errno != ENXIO)
			error_errno(err, errno, "open %s", entry->path);
		if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
			return HASHER_GONE;

		int rc = hash_file(fd, h->cancel_fd, entry, err);

		if (rc <= 0)
			return rc == 0 ? HASHER_READY : HASHER_GONE;
	}
	return HASHER_CHANGING;
}

static void *work(void *arg)
{
	struct hasher *h = arg;
	_cleanup_(owner_leave) struct owner_rights as = { 0 };
	struct error refused = { 0 };

	owner_take(&h->owner, &as, &refused);
	pthread_mutex_lock(&h->mutex);
	for (;;) {
		while (!h->ending && h->next == h->tail)
			pthread_cond_wait(&h->work, &h->mutex);
		if (h->ending)
			break;

		struct slot *slot = &h->slots[h->next++ % HASHER_WINDOW];

		if (!slot->wanted)
			continue;
		pthread_mutex_unlock(&h->mutex);
		if (refused.code == ERR_NONE)
			slot->fate = hash_path(h, &slot->entry, &slot->error);
		else
			error_set(&slot->error, refused.code, "%s", refused.message);
		pthread_mutex_lock(&h->mutex);
		slot->done = true;
		pthread_cond_signal(&h->done);
	}
	pthread_mutex_unlock(&h->mutex);
	error_clear(&refused);
	return NULL;
}

struct hasher *hasher_new(int root_fd, int threads, int cancel_fd, hasher_emit_fn *emit, void *arg)
{
	struct hasher *h = xcalloc(1, sizeof(*h));
	long processors = sysconf(_SC_NPROCESSORS_ONLN);

	h->root_fd = root_fd;
	h->cancel_fd = cancel_fd;
	h->emit = emit;
	h->arg = arg;
	h->want_threads = threads > 0 ? threads : (int)MAX_OF(1, processors);
	h->want_threads = MIN_OF(h->want_threads, MAX_THREADS);
	pthread_mutex_init(&h->mutex, NULL);
	pthread_cond_init(&h->work, NULL);
	pthread_cond_init(&h->done, NULL);
	return h;
}

static int start_threads(struct hasher *h, struct error *err)
{
	while (h->threads < h->want_threads) {
		int errnum = pthread_create(&h->thread[h->threads], NULL, work, h);

		if (errnum && h->threads == 0)
			return error_errno(err, errnum, "start a thread");
		if (errnum)
			h->want_threads = h->threads;
		else
			h->threads++;
	}
	return 0;
}

/* The oldest entry comes out, when it is done. */
static int emit_head(struct hasher *h, struct error *err)
{
	struct slot *slot = &h->slots[h->head % HASHER_WINDOW];

	pthread_mutex_lock(&h->mutex);
	while (slot->wanted && !slot->done)
		pthread_cond_wait(&h->done, &h->mutex);
	pthread_mutex_unlock(&h->mutex);
	h->head++;
	if (slot->error.code) {
		error_move(err, &slot->error);
		return -1;
	}
	return h->emit(h->arg, &slot->entry, slot->fate, slot->mark, err);
}

static void fill(struct slot *slot, const struct tree_entry *entry, bool hash, bool mark)
{
	buf_reset(&slot->text);
	buf_append(&slot->text, entry->path, entry->path_len + 1);
	if (entry->target)
		buf_append(&slot->text, entry->target, entry->target_len + 1);
	slot->entry = *entry;
	slot->entry.path = slot->text.data;
	slot->entry.target = entry->target ? slot->text.data + entry->path_len + 1 : NULL;
	slot->fate = HASHER_PASSED;
	slot->wanted = hash;
	slot->done = false;
	slot->mark = mark;
}

int hasher_push(struct hasher *h, const struct tree_entry *entry, bool hash, bool mark,
		struct error *err)
{
	if (!hash && h->head == h->tail) /* nothing waits: the common case of an unchanged tree */
		return h->emit(h->arg, entry, HASHER_PASSED, mark, err);
	if (hash && h->threads == 0 && owner_of(h->root_fd, &h->owner, err) < 0)
		return -1;
	if (hash && start_threads(h, err) < 0)
		return -1;
	if (h->tail - h->head == HASHER_WINDOW && emit_head(h, err) < 0)
		return -1;
	fill(&h->slots[h->tail % HASHER_WINDOW], entry, hash, mark);
	pthread_mutex_lock(&h->mutex);
	h->tail++;
	if (hash)
		pthread_cond_signal(&h->work);
	pthread_mutex_unlock(&h->mutex);
	return 0;
}

int hasher_drain(struct hasher *h, struct error *err)
{
	while (h->head != h->tail)
		if (emit_head(h, err) < 0)
			return -1;
	return 0;
}

void hasher_free(struct hasher *h)
{
	if (!h)
		return;
	pthread_mutex_lock(&h->mutex);
	h->ending = true;
	pthread_cond_broadcast(&h->work);
	pthread_mutex_unlock(&h->mutex);
	for (int i = 0; i < h->threads; i++)
		pthread_join(h->thread[i], NULL);
	for (size_t i = 0; i < HASHER_WINDOW; i++) {
		buf_free(&h->slots[i].text);
		error_clear(&h->slots[i].error);
	}
	pthread_cond_destroy(&h->work);
	pthread_cond_destroy(&h->done);
	pthread_mutex_destroy(&h->mutex);
	free(h);
}

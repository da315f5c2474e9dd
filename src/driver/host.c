#include "driver/host.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/text.h"

/* What is kept for one maker. What is in one does not change. */
struct corner {
	struct corner *next;
	char *key, *path;
	int dirfd;
	const struct maker_state_kind *kind; /* NULL until there is state */
	void *state;
};

struct maker_store {
	int dirfd;
	char *path;
	pthread_mutex_t lock; /* the list, and held while state is opened */
	struct corner *corners;
};

int maker_store_new(int dirfd, const char *path, struct maker_store **out, struct error *err)
{
	int own = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);

	if (own < 0)
		return error_errno(err, errno, "keep the makers' directory open");

	struct maker_store *store = xcalloc(1, sizeof(*store));

	store->dirfd = own;
	store->path = xstrdup(path);
	pthread_mutex_init(&store->lock, NULL);
	*out = store;
	return 0;
}

void maker_store_free(struct maker_store *store)
{
	if (!store)
		return;
	while (store->corners) {
		struct corner *c = store->corners;

		store->corners = c->next;
		if (c->kind)
			c->kind->free(c->state);
		close_fdp(&c->dirfd);
		free(c->key);
		free(c->path);
		free(c);
	}
	pthread_mutex_destroy(&store->lock);
	close_fdp(&store->dirfd);
	free(store->path);
	free(store);
}

/* A new directory is as durable as what will be kept in it. */
static int open_or_make(int parent, const char *name, int *dirfd, struct error *err)
{
	_cleanup_error_ struct error missing = { 0 };

	if (dir_open(parent, name, dirfd, &missing) == 0)
		return 0;
	if (missing.errnum != ENOENT) {
		error_move(err, &missing);
		return -1;
	}
	if (dir_make(parent, name, 0700, err) < 0 || dir_sync(parent, err) < 0)
		return -1;
	return dir_open(parent, name, dirfd, err);
}

static struct corner *corner_locked(struct maker_store *store, const char *key, struct error *err)
{
	_cleanup_close_ int dirfd = -1;
	struct corner *corner;

	for (corner = store->corners; corner; corner = corner->next) {
		if (streq(corner->key, key))
			return corner;
	}
	if (!path_is_segment(key)) {
		error_set(err, ERR_BAD_PATH, "provider key \"%.100s\" names no directory", key);
		return NULL;
	}
	if (open_or_make(store->dirfd, key, &dirfd, err) < 0) {
		error_wrap(err, "directory of sandbox provider \"%s\"", key);
		return NULL;
	}
	corner = xcalloc(1, sizeof(*corner));
	*corner = (struct corner){
		.next = store->corners,
		.key = xstrdup(key),
		.path = path_join(store->path, key),
		.dirfd = steal_fd(&dirfd),
	};
	store->corners = corner;
	return corner;
}

int maker_store_dir(struct maker_store *store, const char *key, int *dirfd, char **path,
		    struct error *err)
{
	pthread_mutex_lock(&store->lock);

	struct corner *corner = corner_locked(store, key, err);

	if (corner) {
		*dirfd = corner->dirfd;
		if (path)
			*path = xstrdup(corner->path);
	}
	pthread_mutex_unlock(&store->lock);
	return corner ? 0 : -1;
}

int maker_host_state(struct maker_host *host, const struct maker_state_kind *kind, void **state,
		     struct error *err)
{
	struct maker_store *store = host->store;
	int r = 0;

	pthread_mutex_lock(&store->lock);

	struct corner *corner = corner_locked(store, kind->key, err);

	if (!corner) {
		r = -1;
	} else if (!corner->kind) {
		r = kind->open(host, corner->dirfd, corner->path, &corner->state, err);
		if (r == 0)
			corner->kind = kind;
	}
	if (r == 0)
		*state = corner->state;
	pthread_mutex_unlock(&store->lock);
	return r;
}

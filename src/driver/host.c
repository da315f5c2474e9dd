#include "driver/host.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"

#define MAX_PROVIDERS 8

/* What the host keeps for one provider. */
struct corner {
	char *key, *path;
	int dirfd;
	const struct provider_state_kind *kind; /* NULL until there is state */
	void *state;
};

struct provider_host {
	int state_dirfd;
	char *state_path;
	bool allow_fake;
	struct clock *clock;
	struct places *places;
	char *socket_dir;
	pthread_mutex_t lock; /* held while a corner is made; what is in one does not change */
	struct corner corners[MAX_PROVIDERS];
	size_t count;
};

int provider_host_new(const struct provider_host_options *options, struct provider_host **host,
		      struct error *err)
{
	int dirfd = fcntl(options->state_dirfd, F_DUPFD_CLOEXEC, 3);

	if (dirfd < 0)
		return error_errno(err, errno, "keep the providers' directory open");

	struct provider_host *h = xcalloc(1, sizeof(*h));

	h->state_dirfd = dirfd;
	h->state_path = xstrdup(options->state_path);
	h->allow_fake = options->allow_fake;
	h->clock = options->clock;
	h->places = options->places;
	h->socket_dir = options->socket_dir ? xstrdup(options->socket_dir) : NULL;
	pthread_mutex_init(&h->lock, NULL);
	*host = h;
	return 0;
}

void provider_host_free(struct provider_host *host)
{
	if (!host)
		return;
	for (size_t i = 0; i < host->count; i++) {
		struct corner *c = &host->corners[i];

		if (c->kind)
			c->kind->free(c->state);
		close_fdp(&c->dirfd);
		free(c->key);
		free(c->path);
	}
	pthread_mutex_destroy(&host->lock);
	close_fdp(&host->state_dirfd);
	free(host->state_path);
	free(host->socket_dir);
	free(host);
}

bool provider_host_allows_fake(const struct provider_host *host)
{
	return host->allow_fake;
}

struct clock *provider_host_clock(const struct provider_host *host)
{
	return host->clock;
}

struct places *provider_host_places(const struct provider_host *host)
{
	return host->places;
}

const char *provider_host_socket_dir(const struct provider_host *host)
{
	return host->socket_dir;
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

static struct corner *corner_of(struct provider_host *host, const char *key, struct error *err)
{
	_cleanup_close_ int dirfd = -1;

	for (size_t i = 0; i < host->count; i++) {
		if (streq(host->corners[i].key, key))
			return &host->corners[i];
	}
	if (!path_is_segment(key)) {
		error_set(err, ERR_BAD_PATH, "provider key \"%.100s\" names no directory", key);
		return NULL;
	}
	if (host->count == MAX_PROVIDERS) {
		error_set(err, ERR_INTERNAL, "more than %d providers keep state", MAX_PROVIDERS);
		return NULL;
	}
	if (open_or_make(host->state_dirfd, key, &dirfd, err) < 0) {
		error_wrap(err, "directory of sandbox provider \"%s\"", key);
		return NULL;
	}

	struct corner *corner = &host->corners[host->count++];

	*corner = (struct corner){
		.key = xstrdup(key),
		.path = path_join(host->state_path, key),
		.dirfd = steal_fd(&dirfd),
	};
	return corner;
}

int provider_host_dir(struct provider_host *host, const char *key, int *dirfd, char **path,
		      struct error *err)
{
	pthread_mutex_lock(&host->lock);

	struct corner *corner = corner_of(host, key, err);

	if (corner) {
		*dirfd = corner->dirfd;
		if (path)
			*path = xstrdup(corner->path);
	}
	pthread_mutex_unlock(&host->lock);
	return corner ? 0 : -1;
}

int provider_host_state(struct provider_host *host, const struct provider_state_kind *kind,
			void **state, struct error *err)
{
	int r = 0;

	pthread_mutex_lock(&host->lock);

	struct corner *corner = corner_of(host, kind->key, err);

	if (!corner) {
		r = -1;
	} else if (!corner->kind) {
		r = kind->open(host, corner->dirfd, corner->path, &corner->state, err);
		if (r == 0)
			corner->kind = kind;
	}
	if (r == 0)
		*state = corner->state;
	pthread_mutex_unlock(&host->lock);
	return r;
}

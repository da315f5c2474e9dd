/*
 * Native places beyond what all places share: made ahead of the first exec, named by labels, with
 * files that may outlive their relay.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "place/places.h"

#define ASK_WAIT_MS 10000

int places_make(struct places *places, const char *place_id, int64_t generation, int64_t wait_ms,
		uint64_t *walls, struct error *err)
{
	_cleanup_place_ struct open_place *place = place_admit(places, place_id, generation, err);

	_cleanup_link_ struct link *link = NULL;

	if (!place || place_link(place, true, boottime_ms() + wait_ms, &link, err) < 0)
		return -1;
	pthread_mutex_lock(&place->lock);
	*walls = place->walls;
	pthread_mutex_unlock(&place->lock);
	return 0;
}

int places_workspace_upper(struct places *places, const char *place_id, int64_t generation,
			   char **path, struct error *err)
{
	_cleanup_place_ struct open_place *place = place_admit(places, place_id, generation, err);
	int64_t deadline = boottime_ms() + ASK_WAIT_MS;
	struct dialer *dialer;

	*path = NULL;
	if (!place || place_dialer(place, deadline, &dialer, err) < 0)
		return -1;
	if (!dialer->workspace_upper)
		return error_set(
			err, ERR_UNSUPPORTED_ENV,
			"the place is on another host: its workspace is no layer over one here");
	return dialer->workspace_upper(dialer, place_id, deadline, path, err);
}

/* The keeper writes it before the first file; what has none yet has no files either. */
static int add_store(struct places *places, const char *name, char ***labels, struct error *err)
{
	_cleanup_free_ char *path = xasprintf(STORES_NAME "/%s/" STORE_LABEL_NAME, name);
	_cleanup_error_ struct error why = { 0 };
	_cleanup_buf_ struct buf label = { 0 };

	if (file_read(places->dirfd, path, &label, STORE_LABEL_MAX, &why) < 0) {
		if (why.errnum == 0 || why.errnum == ENOENT || why.errnum == ENOTDIR)
			return 0;
		error_move(err, &why);
		return -1;
	}
	if (label.len > 0)
		strv_push(labels, xstrdup(buf_str(&label)));
	return 0;
}

/* All of them or an error: what is not listed counts as lost. */
static int add_stores(struct places *places, char ***labels, struct error *err)
{
	int fd = openat(places->dirfd, STORES_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	if (!dir) {
		if (fd < 0 && errno == ENOENT)
			return 0;
		error_errno(err, errno, "listing kept files");
		close_fdp(&fd);
		return -1;
	}
	while (rc == 0 && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			rc = add_store(places, entry->d_name, labels, err);
	closedir(dir);
	return rc;
}

static bool is_listed(char *const *labels, const char *label)
{
	for (; labels && *labels; labels++)
		if (streq(*labels, label))
			return true;
	return false;
}

int places_labels(struct places *places, char ***labels, struct error *err)
{
	_cleanup_(relay_place_list_clear) struct relay_place_list list = { 0 };

	*labels = NULL;
	if (keeper_list(places->keeper, boottime_ms() + ASK_WAIT_MS, &list, err) < 0)
		return -1;
	if (add_stores(places, labels, err) < 0) {
		strv_free(*labels);
		*labels = NULL;
		return -1;
	}
	for (size_t i = 0; i < list.count; i++)
		if (list.items[i].label && list.items[i].label[0] &&
		    !is_listed(*labels, list.items[i].label))
			strv_push(labels, xstrdup(list.items[i].label));
	return 0;
}

int places_stop_label(struct places *places, const char *label, int64_t wait_ms, struct error *err)
{
	_cleanup_(relay_place_list_clear) struct relay_place_list list = { 0 };

	if (keeper_list(places->keeper, boottime_ms() + ASK_WAIT_MS, &list, err) < 0)
		return -1;
	for (size_t i = 0; i < list.count; i++)
		if (list.items[i].label && streq(list.items[i].label, label) &&
		    places_stop(places, list.items[i].id, EXEC_LEASE_LOST, wait_ms, err) < 0)
			return -1;
	return 0;
}

int places_remove_store(struct places *places, const char *store, int64_t wait_ms,
			struct error *err)
{
	return keeper_store_remove(places->keeper, store, boottime_ms() + wait_ms, err);
}

bool places_has_store(struct places *places, const char *store)
{
	_cleanup_free_ char *path = xasprintf(STORES_NAME "/%s", store);

	return path_is_segment(store) &&
	       faccessat(places->dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/*
 * Stores: files of native places that are used again after their relay has ended. A store keeps the
 * uid range its files belong to, and gives it back when the last of them is gone.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "keeper/keeper.h"
#include "wire/place.h"

#define RANGE_NAME "range"

struct store *store_find(struct keeper *keeper, const char *name)
{
	for (struct store *s = keeper->stores; s; s = s->next)
		if (strcmp(s->name, name) == 0)
			return s;
	return NULL;
}

bool store_uses_range(const struct keeper *keeper, uint32_t range)
{
	for (const struct store *s = keeper->stores; s; s = s->next)
		if (s->range == range)
			return true;
	return false;
}

static struct store *store_new(struct keeper *keeper, const char *name, uint32_t range)
{
	struct store *s = xcalloc(1, sizeof(*s));

	s->keeper = keeper;
	snprintf(s->name, sizeof(s->name), "%.64s", name);
	s->range = range;
	s->next = keeper->stores;
	keeper->stores = s;
	return s;
}

static int open_store(const struct keeper *keeper, const char *name, int *fd, struct error *err)
{
	_cleanup_free_ char *path = xasprintf(STORES_NAME "/%s", name);

	return dir_open(keeper->dir_fd, path, fd, err);
}

struct store *store_make(struct keeper *keeper, const char *name, const char *label, uint32_t range,
			 struct error *err)
{
	_cleanup_free_ char *path = xasprintf(STORES_NAME "/%s", name);
	_cleanup_close_ int fd = -1;
	char text[16];
	int len = snprintf(text, sizeof(text), "%u\n", range);

	if (dir_make(keeper->dir_fd, path, 0700, err) < 0 ||
	    open_store(keeper, name, &fd, err) < 0 ||
	    file_replace(fd, STORE_LABEL_NAME, label ? label : "", label ? strlen(label) : 0, 0600,
			 err) < 0 ||
	    file_replace(fd, RANGE_NAME, text, (size_t)len, 0600, err) < 0 ||
	    dir_sync(keeper->dir_fd, err) < 0)
		return NULL;
	return store_new(keeper, name, range);
}

int store_files(struct store *store, int *out, struct error *err)
{
	_cleanup_close_ int fd = -1;

	if (open_store(store->keeper, store->name, &fd, err) < 0)
		return -1;
	if (mkdirat(fd, PLACE_FILES_NAME, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "making the store's files");
	return dir_open(fd, PLACE_FILES_NAME, out, err);
}

static void load(struct keeper *keeper, const char *name)
{
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_close_ int fd = -1;
	int64_t range = 0;

	if (open_store(keeper, name, &fd, NULL) < 0)
		return;
	/* Its files come after its range: without one there are none. */
	if (file_read(fd, RANGE_NAME, &text, 16, NULL) == 0) {
		text.data[strcspn(text.data, "\n")] = 0;
		if (!parse_i64(text.data, 0, keeper->ranges.count, &range))
			log_error("store %s: its range cannot be read", name);
	}
	store_new(keeper, name, (uint32_t)range);
	if (range > 0 && keeper->has_ranges)
		range_keep(&keeper->ranges, (uint32_t)range - 1);
}

void store_load_all(struct keeper *keeper)
{
	int fd = openat(keeper->dir_fd, STORES_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && strlen(entry->d_name) <= 64)
			load(keeper, entry->d_name);
	if (dir)
		closedir(dir);
}

static void store_free(struct store *store)
{
	struct keeper *keeper = store->keeper;
	uint32_t range = store->range;

	for (struct store **s = &keeper->stores; *s; s = &(*s)->next) {
		if (*s == store) {
			*s = store->next;
			break;
		}
	}
	free(store);
	native_range_left(keeper, range);
}

void store_remove(struct store *store, struct client *client, uint32_t stream)
{
	struct waiter waiter = { client, stream };

	for (const struct place *p = store->keeper->places; p; p = p->next) {
		if (p->store && strcmp(p->store, store->name) == 0) {
			client_answer(&waiter, WERR_BUSY, "a place uses the store");
			return;
		}
	}
	client_answer(&store->remove_waiter, WERR_REPLACED, "asked again");
	if (!store->removing && trash_store(store)) {
		client_answer(&waiter, WERR_NONE, NULL);
		store_free(store);
		return;
	}
	store->removing = true;
	store->remove_waiter = waiter;
}

void store_removed(struct store *store)
{
	client_answer(&store->remove_waiter, WERR_NONE, NULL);
	store_free(store);
}

void store_not_removed(struct store *store)
{
	client_answer(&store->remove_waiter, WERR_IO, "its files could not be removed");
}

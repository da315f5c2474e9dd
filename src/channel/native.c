/*
 * Native places beyond what all places share: made ahead of the first exec, named by labels, with
 * files that may outlive their relay.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/path.h"
#include "base/text.h"
#include "channel/executor.h"

#define ASK_WAIT_MS 10000

int executor_make_place(struct executor *executor, const char *place_id, int64_t generation,
			int64_t wait_ms, uint64_t *walls, struct error *err)
{
	_cleanup_place_ struct open_place *place = place_admit(executor, place_id, generation, err);
	_cleanup_link_ struct link *link = NULL;

	if (!place || place_link(place, true, channel_now() + wait_ms, &link, err) < 0)
		return -1;
	pthread_mutex_lock(&place->lock);
	*walls = place->walls;
	pthread_mutex_unlock(&place->lock);
	return 0;
}

int executor_labels(struct executor *executor, char ***labels, struct error *err)
{
	_cleanup_(relay_place_list_clear) struct relay_place_list list = { 0 };

	*labels = NULL;
	if (keeper_list(executor->keeper, channel_now() + ASK_WAIT_MS, &list, err) < 0)
		return -1;
	for (size_t i = 0; i < list.count; i++)
		if (list.items[i].label && list.items[i].label[0])
			strv_push(labels, xstrdup(list.items[i].label));
	return 0;
}

int executor_stop_label(struct executor *executor, const char *label, int64_t wait_ms,
			struct error *err)
{
	_cleanup_(relay_place_list_clear) struct relay_place_list list = { 0 };

	if (keeper_list(executor->keeper, channel_now() + ASK_WAIT_MS, &list, err) < 0)
		return -1;
	for (size_t i = 0; i < list.count; i++)
		if (list.items[i].label && streq(list.items[i].label, label) &&
		    executor_stop_place(executor, list.items[i].id, EXEC_LEASE_LOST, wait_ms, err) <
			    0)
			return -1;
	return 0;
}

int executor_remove_store(struct executor *executor, const char *store, int64_t wait_ms,
			  struct error *err)
{
	return keeper_store_remove(executor->keeper, store, channel_now() + wait_ms, err);
}

bool executor_has_store(struct executor *executor, const char *store)
{
	_cleanup_free_ char *path = xasprintf("stores/%s", store);

	return path_is_segment(store) &&
	       faccessat(executor->dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

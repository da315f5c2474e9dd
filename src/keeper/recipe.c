#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "keeper/keeper.h"

#define RECIPE_MAX 16384u

/*
 * Of a native place without a store nothing outlives the machine but its directory, and one without
 * a recipe is removed. So a keeper that is killed must find the recipe, a machine that went down
 * need not.
 */
bool recipe_is_durable(const struct place *place)
{
	return place->kind != PLACE_NATIVE || place->store;
}

/* In one write over what is there: whoever reads it finds the old one or the new one. */
static int write_over(int place_fd, const struct buf *bytes, struct error *err)
{
	_cleanup_close_ int fd =
		openat(place_fd, PLACE_RECIPE_NAME, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || pwrite(fd, bytes->data, bytes->len, 0) != (ssize_t)bytes->len)
		return error_errno(err, errno, "writing the recipe");
	return 0;
}

int recipe_write(const struct place *place, int place_fd, struct error *err)
{
	_cleanup_buf_ struct buf bytes = { 0 };
	struct wire_recipe m = {
		.place_id = place->id,
		.kind = place->kind,
		.root = place->root,
		.made_root = place->made_root,
		.cgroup = place->cgroup,
		.boot_id = place->boot,
		.absence_ms = place->absence_ms,
		.tag = place->tag,
		.label = place->label,
		.range = place->range,
		.store = place->store,
		.pool = place_is_pooled(place),
		.overlaid = place->overlaid,
	};
	const char *limits[LIMITS + 1] = { 0 };

	for (int i = 0; i < LIMITS; i++)
		if (place->limits[i])
			limits[m.limit_cgroups.count++] = place->limits[i];
	m.limit_cgroups.v = limits;

	if (wire_encode(&bytes, 0, WIRE_RECIPE, &m, err) < 0)
		return -1;
	if (!recipe_is_durable(place))
		return write_over(place_fd, &bytes, err);
	return file_replace(place_fd, PLACE_RECIPE_NAME, bytes.data, bytes.len, 0600, err);
}

int recipe_read(struct place *place, int place_fd, bool *unowned, struct error *err)
{
	_cleanup_buf_ struct buf bytes = { 0 };
	_cleanup_wire_message_ struct wire_message m = { 0 };
	struct frame frame;
	size_t used;

	if (file_read(place_fd, PLACE_RECIPE_NAME, &bytes, RECIPE_MAX, err) < 0)
		return -1;
	if (frame_parse((const uint8_t *)bytes.data, bytes.len, RECIPE_MAX, &frame, &used, err) <=
		    0 ||
	    frame.type != WIRE_RECIPE || wire_decode(&frame, &m, err) < 0)
		return error_set(err, ERR_PROTOCOL, "the recipe of %s cannot be read", place->id);
	/* One that was taken and not yet told of has its new name on the directory only. */
	if (!m.recipe.pool && strcmp(m.recipe.place_id, place->id) != 0)
		return error_set(err, ERR_PROTOCOL, "the recipe of %s is another place's",
				 place->id);
	*unowned = m.recipe.pool;
	place->kind = m.recipe.kind;
	place->root = xstrdup(m.recipe.root);
	place->made_root = m.recipe.made_root;
	place->cgroup = xstrdup(m.recipe.cgroup);
	place->absence_ms = m.recipe.absence_ms;
	id_copy(place->boot, m.recipe.boot_id);
	snprintf(place->tag, sizeof(place->tag), "%s", m.recipe.tag);
	place->label = xstrdup(m.recipe.label);
	place->range = m.recipe.range;
	place->store = xstrdup(m.recipe.store);
	place->overlaid = m.recipe.overlaid;
	for (uint32_t i = 0; i < MIN_OF(m.recipe.limit_cgroups.count, (uint32_t)LIMITS); i++)
		place->limits[i] = xstrdup(m.recipe.limit_cgroups.v[i]);
	return 0;
}

int relay_write(const struct place *place, int place_fd, struct error *err)
{
	/*
	 * Always as long, over what is there: file systems write a file that was cut off and
	 * written anew to the disk when it is closed, and the next one who cuts it off waits for
	 * that.
	 */
	_cleanup_close_ int fd =
		openat(place_fd, PLACE_RELAY_NAME, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	char text[96];
	int len = snprintf(text, sizeof(text), "%-10d %-20llu %-16llx\n", (int)place->pid,
			   place->start_time, (unsigned long long)place->walls);

	if (fd < 0)
		return error_errno(err, errno, "writing down the relay of %s", place->id);
	return fd_pwrite_all(fd, text, (size_t)len, 0, err);
}

bool relay_read(struct place *place, int place_fd)
{
	_cleanup_buf_ struct buf text = { 0 };
	unsigned long long walls = 0;
	int pid;

	if (file_read(place_fd, PLACE_RELAY_NAME, &text, 96, NULL) < 0)
		return false;
	if (sscanf(buf_str(&text), "%d %llu %llx", &pid, &place->start_time, &walls) < 2 ||
	    pid <= 0)
		return false;
	place->walls = walls;
	place->pid = pid;
	return true;
}

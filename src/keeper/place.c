/*
 * A place, as the keeper knows it, and its life:
 *
 *     pool_refill           place_make             place_adopt_all
 *         |                     |                         |
 *         v                     |                         v
 *      POOLED ----> WARM        |                       FOUND
 *         |          |          |                      /  |  \
 *         +----+-----+          |                     /   |   \
 *              | pool_take      |                    /    |    \
 *              v                v                   v     |     |
 *           MAKING <------------+      relay dies ALIVE   |     |
 *              |    \                  +-----------+ ^    |     |
 *              |     +-----------------|-------------+    |     |
 *              |       relay listens   v                  |     |
 *              |                     DYING <--------------+     |
 *              |                       | nothing runs           |
 *              |                       v                        |
 *              |                      DEAD                      |
 *              |                       |                        |
 *              +-----------+-----------+--- place_destroy ------+
 *                          v
 *                       ENDING      from every phase; nothing runs: trash_place, then it is gone
 *
 * phase     what there is of it                       what may be called
 * FOUND     a directory of an earlier keeper          only teardown.c's adoption
 * POOLED    recipe, relay that builds its walls;      pool_take, place_died, place_destroy
 *           the recipe says that it is nobody's
 * WARM      the same, with its walls                  as POOLED
 * MAKING    the relay has its config, or will; a      place_died, place_destroy; PLACE_MAKE again
 *           client may wait for it                    waits for it
 * ALIVE     a relay that listens                      all of them
 * DYING     processes that are being ended; timer     place_died, place_destroy
 * DEAD      files; the timer ends it                  place_destroy
 * ENDING    processes that are being ended; timer     place_died; place_destroy changes nothing
 *
 * `pid` is there while its relay may be, `pidfd` beside it when another keeper started that.
 * `ready_fd` is open in POOLED, WARM and MAKING.
 */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include "base/fd.h"
#include "keeper/keeper.h"

#define TO(phase) (1u << PHASE_##phase)

static const unsigned moves[] = {
	[PHASE_FOUND] = TO(ALIVE) | TO(DYING) | TO(ENDING),
	[PHASE_POOLED] = TO(WARM) | TO(MAKING) | TO(ENDING),
	[PHASE_WARM] = TO(MAKING) | TO(ENDING),
	[PHASE_MAKING] = TO(ALIVE) | TO(ENDING),
	[PHASE_ALIVE] = TO(DYING) | TO(ENDING),
	[PHASE_DYING] = TO(DEAD) | TO(ENDING),
	[PHASE_DEAD] = TO(ENDING),
	[PHASE_ENDING] = 0,
};

void place_move(struct place *place, enum place_phase phase)
{
	assert(moves[place->phase] & (1u << phase));
	place->phase = phase;
}

struct place *place_find(struct keeper *keeper, const char *id)
{
	for (struct place *p = keeper->places; p; p = p->next)
		if (strcmp(p->id, id) == 0)
			return p;
	return NULL;
}

struct place *place_new(struct keeper *keeper, const char *id, enum place_phase phase)
{
	struct place *place = xcalloc(1, sizeof(*place));

	assert(phase == PHASE_FOUND || phase == PHASE_POOLED || phase == PHASE_MAKING);
	place->keeper = keeper;
	place->phase = phase;
	snprintf(place->id, sizeof(place->id), "%s", id);
	place->pidfd = place->ready_fd = place->handed_fd = -1;
	place->net_fd = place->mounts_fd = -1;
	place->death.fd = place->ready.fd = -1;
	place->next = keeper->places;
	keeper->places = place;
	keeper_check_idle(keeper);
	return place;
}

void place_hold_mounts(struct place *place)
{
	struct keeper *keeper = place->keeper;
	char path[64];

	if (place->mounts_fd >= 0 || keeper->mounts_count == MOUNTS_MAX)
		return;
	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)place->pid);
	place->mounts_fd = open(path, O_RDONLY | O_CLOEXEC);
	keeper->mounts_count += place->mounts_fd >= 0;
}

/* The kernel takes its time, in which it waits for all processors. */
void mounts_drop(struct keeper *keeper, int *mounts_fd)
{
	keeper->mounts_count -= *mounts_fd >= 0;
	close_fdp(mounts_fd);
}

/* Its range must have gone to the directory in trash/, or be given back. */
void place_free(struct place *place)
{
	struct keeper *keeper = place->keeper;

	assert(place->range == 0);
	for (struct place **p = &keeper->places; *p; p = &(*p)->next) {
		if (*p == place) {
			*p = place->next;
			break;
		}
	}
	loop_unwatch(&keeper->loop, &place->death);
	loop_unwatch(&keeper->loop, &place->ready);
	loop_disarm(&keeper->loop, &place->timer);
	close_fdp(&place->pidfd);
	close_fdp(&place->ready_fd);
	close_fdp(&place->handed_fd);
	close_fdp(&place->net_fd);
	mounts_drop(keeper, &place->mounts_fd);
	free(place->root);
	free(place->cgroup);
	free(place->label);
	free(place->store);
	for (int i = 0; i < LIMITS; i++)
		free(place->limits[i]);
	free(place);
	keeper_check_idle(keeper);
}

void place_describe(const struct place *place, struct place_paths *paths,
		    struct wire_place_state *out)
{
	const char *dir = place->keeper->dir;
	bool up = place_is_up(place);

	snprintf(paths->socket, sizeof(paths->socket), "%s/places/%s/" PLACE_SOCKET_NAME, dir,
		 place->id);
	snprintf(paths->upper, sizeof(paths->upper), "%s/%s/%s/" PLACE_FILES_NAME "/" SANDBOX_UPPER,
		 dir, place->store ? STORES_NAME : "places",
		 place->store ? place->store : place->id);
	*out = (struct wire_place_state){
		.place_id = place->id,
		.state = up                             ? PLACE_ALIVE
			 : place->phase == PHASE_ENDING ? PLACE_ENDING
							: PLACE_DEAD,
		.socket = paths->socket,
		.upper = place->overlaid ? paths->upper : NULL,
		.pid = up ? (uint32_t)place->pid : 0,
		.start_time = up ? place->start_time : 0,
		.kind = place->kind,
		.root = place->root,
		.cgroup = place->cgroup,
		.ended = up ? NULL : place->ended,
		.walls = place->walls,
		.label = place->label,
		.pool = place_is_pooled(place) ? 1 + (place->phase == PHASE_WARM) : 0,
		.handed = place->handed,
	};
}

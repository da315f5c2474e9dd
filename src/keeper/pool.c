/*
 * The warm pool: native places made ahead of use. A prepared place is a place with a recipe, walls
 * and a relay that waits for its config; it has no server and no key, only a name of its own. Who
 * takes it sends the config, so that the relay can begin, and renames its directory: from then on
 * it is the place that was asked for.
 *
 * Places are alike when their SANDBOX frames are, byte for byte. Those with mounts, a root, a
 * store or a workspace of the host are not prepared: what their paths mean is judged when they are
 * made for somebody.
 *
 * The recipe says `pool` until the relay of a taken place has its config. Whatever says so when a
 * keeper starts is destroyed: nobody has been told of it.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/log.h"
#include "keeper/keeper.h"

#define POOL_PER_SHAPE 16u
#define POOL_IN_ALL 64u
/* The request that emptied it is still being answered. */
#define FILL_AFTER_MS 1
/*
 * While one is left there is no hurry, and who took the last one is about to use it: its first
 * command should not have to share the processors with the making of the next place.
 */
#define FILL_QUIETLY_MS 20
#define IDLE_MS (5 * 60 * 1000)
/* A server that is started again finds it as it was. */
#define ABSENCE_MS 10000
#define STOP_MS 3000

struct shape {
	struct shape *next;
	struct keeper *keeper;
	uint8_t *sandbox;
	uint32_t len;
	uint32_t want;
	struct timer fill;
	struct timer idle;
};

static unsigned count(const struct keeper *keeper, const struct shape *shape)
{
	unsigned n = 0;

	for (const struct place *p = keeper->places; p; p = p->next)
		n += place_is_pooled(p) && (!shape || p->shape == shape);
	return n;
}

static void drain(struct keeper *keeper, const struct shape *shape, unsigned keep)
{
	struct place *next;

	for (struct place *p = keeper->places; p; p = next) {
		next = p->next;
		if (!place_is_pooled(p) || (shape && p->shape != shape))
			continue;
		if (keep > 0)
			keep--;
		else
			place_destroy(p);
	}
}

static void fill_due(struct timer *timer)
{
	struct shape *shape = container_of(timer, struct shape, fill);
	struct keeper *keeper = shape->keeper;
	_cleanup_error_ struct error err = { 0 };
	enum wire_error_code code;
	struct place *place;
	char id[ID_SIZE];
	struct wire_place_make m = {
		.place_id = id,
		.kind = PLACE_NATIVE,
		.absence_ms = PLACE_ABSENCE_MAX_MS,
		.sandbox = { shape->sandbox, shape->len },
	};

	if (count(keeper, shape) >= shape->want || count(keeper, NULL) >= POOL_IN_ALL)
		return;
	id_new(id);
	if (place_prepare(keeper, &m, shape, NULL, &place, &code, &err) < 0) {
		log_warn("no place can be kept ready: %s", err.message);
		shape->want = 0;
		return;
	}
	loop_arm(&keeper->loop, timer, FILL_QUIETLY_MS);
}

static void shape_free(struct shape *shape)
{
	for (struct shape **s = &shape->keeper->shapes; *s; s = &(*s)->next) {
		if (*s == shape) {
			*s = shape->next;
			break;
		}
	}
	loop_disarm(&shape->keeper->loop, &shape->fill);
	loop_disarm(&shape->keeper->loop, &shape->idle);
	free(shape->sandbox);
	free(shape);
}

static void idle_due(struct timer *timer)
{
	struct shape *shape = container_of(timer, struct shape, idle);
	bool is_known = false, is_used = false;

	for (const struct place *p = shape->keeper->places; p; p = p->next) {
		is_known |= p->shape == shape;
		is_used |= p->shape == shape && !place_is_pooled(p);
	}
	if (!is_known) {
		shape_free(shape);
		return;
	}
	if (!is_used) {
		shape->want = 0;
		drain(shape->keeper, shape, 0);
	}
	loop_arm(&shape->keeper->loop, timer, IDLE_MS);
}

static struct shape *shape_of(struct keeper *keeper, const struct wire_bytes *sandbox)
{
	struct shape *s;

	for (s = keeper->shapes; s; s = s->next)
		if (s->len == sandbox->len && memcmp(s->sandbox, sandbox->data, s->len) == 0)
			return s;
	s = xcalloc(1, sizeof(*s));
	s->keeper = keeper;
	s->sandbox = xmalloc(sandbox->len);
	memcpy(s->sandbox, sandbox->data, sandbox->len);
	s->len = sandbox->len;
	s->fill.due = fill_due;
	s->idle.due = idle_due;
	s->next = keeper->shapes;
	keeper->shapes = s;
	return s;
}

struct shape *pool_shape(struct keeper *keeper, const struct wire_place_make *m,
			 const struct sandbox_spec *spec)
{
	struct shape *shape;

	if (m->pool == 0 || spec->mount_count > 0 || spec->root_fd >= 0 || spec->store ||
	    spec->workspace.source_fd >= 0)
		return NULL;
	shape = shape_of(keeper, &m->sandbox);
	shape->want = MIN_OF(m->pool, POOL_PER_SHAPE);
	loop_arm(&keeper->loop, &shape->idle, IDLE_MS);
	drain(keeper, shape, shape->want);
	return shape;
}

void pool_refill(struct shape *shape)
{
	struct keeper *keeper = shape->keeper;

	if (shape->want > 0 && !keeper->stopping)
		loop_arm(&keeper->loop, &shape->fill,
			 count(keeper, shape) > 0 ? FILL_QUIETLY_MS : FILL_AFTER_MS);
}

/* One whose walls stand, or else one that is being built: it is further than a new one would be. */
static struct place *find_for(const struct shape *shape, const char *place_id)
{
	struct place *found = NULL;

	for (struct place *p = shape->keeper->places; p; p = p->next) {
		/* argv of its relay has room for a name as long as its own. */
		if (p->shape != shape || !place_is_pooled(p) || strlen(place_id) > strlen(p->id))
			continue;
		if (p->phase == PHASE_WARM)
			return p;
		found = found ? found : p;
	}
	return found;
}

struct place *pool_take(struct shape *shape, const struct wire_place_make *m, bool *warm)
{
	struct place *place = find_for(shape, m->place_id);

	if (!place)
		return NULL;
	*warm = place->phase == PHASE_WARM;
	place_move(place, PHASE_MAKING);
	place->absence_ms = m->absence_ms;
	place->label = xstrdup(m->label);
	return place;
}

int pool_rename(struct place *place, const char *id, struct error *err)
{
	int places_fd = place->keeper->places_fd;

	assert(place->phase == PHASE_MAKING);
	if (renameat(places_fd, place->id, places_fd, id) < 0)
		return error_errno(err, errno, "naming the place's directory");
	snprintf(place->id, sizeof(place->id), "%s", id);
	return 0;
}

void pool_lost(struct place *place)
{
	/* Not again and again for nothing: the next one who asks has it tried once more. */
	if (place_is_pooled(place) && place->shape)
		place->shape->want = 0;
}

static bool pool_is_empty(const struct keeper *keeper)
{
	for (const struct place *p = keeper->places; p; p = p->next)
		if (place_is_pooled(p))
			return false;
	return true;
}

void pool_drain(struct keeper *keeper)
{
	for (struct shape *s = keeper->shapes; s; s = s->next)
		s->want = 0;
	drain(keeper, NULL, 0);
}

static void absence_due(struct timer *timer)
{
	struct keeper *keeper = container_of(timer, struct keeper, pool_absence);

	if (!keeper->clients)
		pool_drain(keeper);
}

void pool_client_left(struct keeper *keeper)
{
	keeper->pool_absence.due = absence_due;
	if (!keeper->clients && !pool_is_empty(keeper))
		loop_arm(&keeper->loop, &keeper->pool_absence, ABSENCE_MS);
}

static void stop_due(struct timer *timer)
{
	container_of(timer, struct keeper, pool_absence)->loop.stop = true;
}

bool pool_may_stop(const struct keeper *keeper)
{
	for (const struct place *p = keeper->places; p; p = p->next)
		if (place_is_pooled(p) || p->phase == PHASE_ENDING)
			return false;
	return !trash_is_waiting(keeper);
}

void pool_stop(struct keeper *keeper)
{
	keeper->stopping = true;
	pool_drain(keeper);
	if (pool_may_stop(keeper)) {
		keeper->loop.stop = true;
		return;
	}
	/* The next keeper does what is not done by then. */
	keeper->pool_absence.due = stop_due;
	loop_arm(&keeper->loop, &keeper->pool_absence, STOP_MS);
}

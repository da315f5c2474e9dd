/*
 * Pausing a place: its relay freezes every command. The relay keeps it until it is told otherwise,
 * whoever connects; that a place is to be paused is remembered here too and said again with every
 * new link, for the one case that the relay was never told (lease/pause.c).
 */
#include "place/places.h"
#include "link/fault_points.h"
#include "place/shell/shell_internal.h"

#define PAUSE_WAIT_MS 20000

static int refuse(struct error *err, const char *why)
{
	return error_set(err, ERR_UNSUPPORTED_ENV, "the lease cannot be paused: %s", why);
}

static int check_features(struct link *link, struct error *err)
{
	uint64_t features;

	if (link_features(link, &features, err) < 0)
		return -1;
	if (features & WIRE_FEATURE_PAUSE)
		return 0;
	if (features & WIRE_FEATURE_TREE_SHIM)
		return refuse(err, "its commands are not held by cgroups, which is what can be "
				   "frozen (that needs root and a cgroup v2 tree)");
	return refuse(err, "its relay is of an older version; that of a new lease can");
}

/* The relay of an open place that can be paused; a reference. */
static int reach(struct open_place *place, int64_t deadline, struct link **link, struct error *err)
{
	if (place_is_shell(place))
		return refuse(err, "its place has no relay that could stop what runs there");
	if (place_link(place, true, deadline, link, err) < 0)
		return -1;
	return check_features(*link, err);
}

int places_check_pause(struct places *places, const char *place_id, int64_t generation,
		       struct error *err)
{
	_cleanup_place_ struct open_place *place = place_admit(places, place_id, generation, err);
	_cleanup_link_ struct link *link = NULL;

	return place ? reach(place, boottime_ms() + PAUSE_WAIT_MS, &link, err) : -1;
}

void place_repeat_pause_locked(struct open_place *place)
{
	if (place->paused && place->link && check_features(place->link, NULL) == 0)
		link_send(place->link, WIRE_PLACE_PAUSE, &(struct wire_place_pause){ 1 }, NULL);
}

static void remember(struct open_place *place, bool paused, bool repeat)
{
	pthread_mutex_lock(&place->lock);
	place->paused = paused;
	if (repeat)
		place_repeat_pause_locked(place);
	pthread_mutex_unlock(&place->lock);
}

void places_expect_pause(struct places *places, const char *place_id, int64_t generation)
{
	_cleanup_place_ struct open_place *place = place_admit(places, place_id, generation, NULL);

	if (place && !place_is_shell(place))
		remember(place, true, true);
}

/* What a link that broke has done with it is not known, and saying it again does no harm. */
static int tell(struct open_place *place, bool paused, struct error *err)
{
	struct wire_place_pause m = { paused };
	int64_t deadline = boottime_ms() + PAUSE_WAIT_MS;

	for (;;) {
		_cleanup_link_ struct link *link = NULL;

		error_clear(err);
		if (reach(place, deadline, &link, err) < 0)
			return -1;
		if (link_call(link, WIRE_PLACE_PAUSE, &m, WIRE_DONE, NULL, NULL, deadline, err) ==
		    0)
			return 0;
		if (link_is_up(link) || boottime_ms() >= deadline)
			return -1;
	}
}

int places_pause(struct places *places, const char *place_id, int64_t generation, bool paused,
		 struct error *err)
{
	_cleanup_place_ struct open_place *place = place_admit(places, place_id, generation, err);

	if (!place)
		return -1;
	/* Before it is told: a link that breaks just then must not bring the old word back. */
	remember(place, paused, false);
	if (SAY_GUARDED("channel.pause", tell(place, paused, err), err) == 0)
		return 0;
	/* As long as it is not known that it goes on, it is paused. */
	remember(place, true, false);
	return -1;
}

/*
 * What relays hold, against what this server knows of. A relay that was reached anew is asked for
 * its commands: an earlier server may have died between starting one and writing that down, and a
 * start that failed here may have succeeded there after all.
 */
#include <stdio.h>
#include <string.h>
#include "base/fault.h"
#include "base/text.h"
#include "link/fault_points.h"
#include "place/places.h"

#define MEMORY_LOG_MAX 4096 /* commands of one relay */

void place_note_reached(struct open_place *place)
{
	struct places *places = place->places;

	pthread_mutex_lock(&places->lock);
	pthread_cond_broadcast(&places->reached);
	pthread_mutex_unlock(&places->lock);
}

static bool take_unlisted(struct open_place *place, struct reached_place *out)
{
	bool due;

	pthread_mutex_lock(&place->lock);
	due = place->unlisted && place->stopped == NOT_STOPPED;
	place->unlisted = false;
	if (due) {
		snprintf(out->place_id, sizeof(out->place_id), "%s", place->id);
		out->generation = place->generation;
		out->again = place->listed;
		place->listed = true;
	}
	pthread_mutex_unlock(&place->lock);
	return due;
}

static bool next_locked(struct places *places, struct reached_place *out)
{
	/* On from the last one: a relay that does not answer must not keep the others waiting. */
	for (size_t i = 0; i < PLACES_BUCKETS; i++) {
		places->surveyed = (places->surveyed + 1) % PLACES_BUCKETS;
		for (struct open_place *p = places->open[places->surveyed]; p; p = p->next)
			if (take_unlisted(p, out))
				return true;
	}
	return false;
}

bool places_await_reached(struct places *places, struct reached_place *out)
{
	bool found = false;

	pthread_mutex_lock(&places->lock);
	while (!atomic_load(&places->detached) && !(found = next_locked(places, out)))
		cond_wait_until(&places->reached, &places->lock, -1);
	pthread_mutex_unlock(&places->lock);
	return found;
}

void places_ask_again(struct places *places, const struct reached_place *reached)
{
	_cleanup_place_ struct open_place *place =
		place_admit(places, reached->place_id, reached->generation, NULL);

	if (!place)
		return;
	pthread_mutex_lock(&place->lock);
	/* Without a link it comes up by itself, when there is one again. */
	place->unlisted = place->link != NULL;
	place->listed = reached->again;
	pthread_mutex_unlock(&place->lock);
}

struct listing {
	struct held_exec *items;
	size_t count;
};

static int take_state(void *arg, const struct wire_message *m, struct error *err)
{
	struct listing *l = arg;
	struct held_exec *held;

	if (m->type != WIRE_EXEC_STATE)
		return 0;
	if (l->count == MEMORY_LOG_MAX)
		return error_set(err, ERR_TOO_MANY, "the relay lists more than %d commands",
				 MEMORY_LOG_MAX);
	if ((l->count & (l->count - 1)) == 0)
		l->items =
			xreallocarray(l->items, MAX_OF(2 * l->count, (size_t)8), sizeof(*l->items));
	held = &l->items[l->count++];
	exec_text_id(m->exec_state.exec_id, held->id);
	held->running = m->exec_state.state != WIRE_EXEC_EXITED;
	held->started_ms = (int64_t)MIN_OF(m->exec_state.started_ms, (uint64_t)INT64_MAX);
	return 0;
}

int places_list_execs(struct places *places, const struct reached_place *reached, int64_t wait_ms,
		      struct held_exec **held, size_t *count, struct error *err)
{
	_cleanup_place_ struct open_place *place =
		place_admit(places, reached->place_id, reached->generation, err);
	_cleanup_link_ struct link *link = NULL;
	int64_t deadline = boottime_ms() + wait_ms;
	struct listing l = { 0 };

	*held = NULL;
	*count = 0;
	if (!place || place_link(place, false, deadline, &link, err) < 0)
		return -1;
	if (SAY_GUARDED("channel.list",
			link_call(link, WIRE_EXEC_LIST, &(struct wire_exec_list){}, WIRE_DONE,
				  take_state, &l, deadline, err),
			err) < 0) {
		free(l.items);
		return -1;
	}
	*held = l.items;
	*count = l.count;
	return 0;
}

bool places_has_exec(struct places *places, const char *exec_id)
{
	pthread_mutex_lock(&places->lock);

	bool has = exec_find_locked(places, exec_id) != NULL;

	pthread_mutex_unlock(&places->lock);
	return has;
}

int places_end_unknown(struct places *places, const struct reached_place *reached,
		       const char *exec_id, struct error *err)
{
	_cleanup_place_ struct open_place *place =
		place_admit(places, reached->place_id, reached->generation, err);
	struct wire_exec_kill m = { .reason = REASON_CANCELLED, .at_once = 1 };
	_cleanup_link_ struct link *link = place ? place_current_link(place) : NULL;

	if (!place)
		return -1;
	if (!link || !exec_wire_id(exec_id, m.exec_id))
		return error_set(err, ERR_UNAVAILABLE, "the place has no connection now");
	return link_send(link, WIRE_EXEC_KILL, &m, err);
}

/*
 * What relays hold, against what this server knows of. A relay is the record of its commands: at
 * the start the server reads the relays' files, and every relay that is reached anew is asked. An
 * earlier server may have left commands there, and a start that failed here may have succeeded
 * there after all.
 */
#include <stdio.h>
#include <string.h>
#include "base/fault.h"
#include "base/text.h"
#include "link/fault_points.h"
#include "place/places.h"
#include "place/shell/shell_internal.h"

#define LISTED_MAX 4096 /* commands of one relay */

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

size_t places_with_relay(struct places *places, struct reached_place **list)
{
	size_t count = 0, room = 0;

	*list = NULL;
	pthread_mutex_lock(&places->lock);
	for (size_t i = 0; i < PLACES_BUCKETS; i++) {
		for (struct open_place *p = places->open[i]; p; p = p->next) {
			struct reached_place *one;

			if (place_is_shell(p))
				continue;
			if (count == room) {
				room = MAX_OF(2 * room, (size_t)16);
				*list = xreallocarray(*list, room, sizeof(**list));
			}
			one = &(*list)[count++];
			*one = (struct reached_place){ .generation = p->generation };
			snprintf(one->place_id, sizeof(one->place_id), "%s", p->id);
		}
	}
	pthread_mutex_unlock(&places->lock);
	return count;
}

void held_execs_clear(struct held_execs *held)
{
	for (size_t i = 0; i < held->count; i++)
		free(held->items[i].note);
	free(held->items);
	*held = (struct held_execs){ 0 };
}

static int add_held(struct held_execs *held, const struct wire_exec_state *state, struct error *err)
{
	struct held_exec *one;

	if (held->count == LISTED_MAX)
		return error_set(err, ERR_TOO_MANY, "the relay lists more than %d commands",
				 LISTED_MAX);
	if ((held->count & (held->count - 1)) == 0)
		held->items = xreallocarray(held->items, MAX_OF(2 * held->count, (size_t)8),
					    sizeof(*held->items));
	one = &held->items[held->count++];
	*one = (struct held_exec){
		.running = state->state != WIRE_EXEC_EXITED,
		.started_ms = (int64_t)MIN_OF(state->started_ms, (uint64_t)INT64_MAX),
	};
	exec_text_id(state->exec_id, one->id);
	if (state->note.len > 0)
		one->note = xstrndup((const char *)state->note.data, state->note.len);
	return 0;
}

static int take_state(void *arg, const struct wire_message *m, struct error *err)
{
	return m->type == WIRE_EXEC_STATE ? add_held(arg, &m->exec_state, err) : 0;
}

int places_list_execs(struct places *places, const struct reached_place *reached, int64_t wait_ms,
		      struct held_execs *held, struct error *err)
{
	_cleanup_place_ struct open_place *place =
		place_admit(places, reached->place_id, reached->generation, err);
	_cleanup_link_ struct link *link = NULL;
	int64_t deadline = boottime_ms() + wait_ms;

	*held = (struct held_execs){ 0 };
	if (!place || place_link(place, false, deadline, &link, err) < 0)
		return -1;
	if (SAY_GUARDED("channel.list",
			link_call(link, WIRE_EXEC_LIST, &(struct wire_exec_list){}, WIRE_DONE,
				  take_state, held, deadline, err),
			err) < 0) {
		held_execs_clear(held);
		return -1;
	}
	return 0;
}

/* The last of several states of one exec counts. What is no frame of a journal ends it. */
static int take_recorded(void *arg, const struct frame *frame, struct error *err)
{
	struct held_execs *held = arg;
	_cleanup_wire_message_ struct wire_message m = { 0 };
	char id[ID_SIZE];

	if (frame->type == WIRE_OUTPUT)
		return 0;
	if (wire_decode(frame, &m, NULL) < 0)
		return 1;
	if (m.type != WIRE_EXEC_STATE)
		return m.type != WIRE_EXEC_RING;
	exec_text_id(m.exec_state.exec_id, id);
	for (size_t i = 0; i < held->count; i++) {
		if (streq(held->items[i].id, id)) {
			held->items[i].running = m.exec_state.state != WIRE_EXEC_EXITED;
			return 0;
		}
	}
	return m.exec_state.note.len > 0 ? add_held(held, &m.exec_state, err) : 0;
}

int places_recorded_execs(struct places *places, const struct reached_place *reached,
			  struct held_execs *held, struct error *err)
{
	_cleanup_place_ struct open_place *place =
		place_admit(places, reached->place_id, reached->generation, NULL);

	*held = (struct held_execs){ 0 };
	if (!place) /* closed since */
		return 0;
	if (FAULT_HERE("channel.recorded", err) == 0 &&
	    journal_read(place, take_recorded, held, err) == 0)
		return 0;
	held_execs_clear(held);
	return -1;
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

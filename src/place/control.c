/* What can be asked of an exec that is going: its end, a signal, another size. */
#include <signal.h>
#include <string.h>
#include "base/text.h"
#include "link/fault_points.h"
#include "place/places.h"
#include "place/shell/shell_internal.h"

#define CONTROL_WAIT_MS 20000

void exec_send_kill(struct exec *exec)
{
	struct wire_exec_kill m = { 0 };
	struct link *link;
	int why;

	pthread_mutex_lock(&exec->lock);
	why = exec->kill_reason;
	m.at_once = exec->kill_at_once;
	pthread_mutex_unlock(&exec->lock);
	if (why != NOT_STOPPED) {
		shell_exec_cancel(exec);
		exec_expect_end(exec, 0);
		pthread_mutex_lock(&exec->lock);
		if (exec->stream)
			stream_poke(exec->stream);
		pthread_mutex_unlock(&exec->lock);
	}
	link = why == NOT_STOPPED ? NULL : place_current_link(exec->place);
	if (!link)
		return;
	m.reason = reason_to_wire((enum exec_reason)why);
	memcpy(m.exec_id, exec->wire_id, sizeof(m.exec_id));
	link_send(link, WIRE_EXEC_KILL, &m, NULL);
	link_unref(link);
}

int places_cancel(struct places *places, const char *exec_id, enum exec_reason why, bool at_once)
{
	struct exec *exec;

	pthread_mutex_lock(&places->lock);
	exec = exec_find_locked(places, exec_id);
	if (exec) {
		pthread_mutex_lock(&exec->lock);
		if (exec->kill_reason == NOT_STOPPED)
			exec->kill_reason = (int)why;
		exec->kill_at_once |= at_once;
		pthread_mutex_unlock(&exec->lock);
		exec_send_kill(exec);
	}
	pthread_mutex_unlock(&places->lock);
	return exec ? 0 : -(int)ERR_NOT_FOUND;
}

/* How many of the place's execs are going; asks each to end at once. */
static size_t end_locked(struct places *places, const char *place_id, enum exec_reason why)
{
	size_t count = 0;

	for (size_t i = 0; i < PLACES_BUCKETS; i++) {
		for (struct exec *exec = places->execs[i]; exec; exec = exec->next) {
			if (!streq(exec->place->id, place_id))
				continue;
			count++;
			pthread_mutex_lock(&exec->lock);
			if (exec->kill_reason == NOT_STOPPED)
				exec->kill_reason = (int)why;
			exec->kill_at_once = true;
			pthread_mutex_unlock(&exec->lock);
			exec_send_kill(exec);
		}
	}
	return count;
}

int places_end_execs(struct places *places, const char *place_id, enum exec_reason why,
		     int64_t wait_ms, struct error *err)
{
	int64_t deadline = boottime_ms() + wait_ms;
	size_t left;

	pthread_mutex_lock(&places->lock);
	while ((left = end_locked(places, place_id, why)) > 0)
		if (!cond_wait_until(&places->changed, &places->lock, deadline))
			break;
	pthread_mutex_unlock(&places->lock);
	if (left > 0)
		return error_set(err, ERR_TIMEOUT, "%zu commands did not end within %lld ms", left,
				 (long long)wait_ms);
	return 0;
}

/* The place of an exec that is going, a reference, and its id on the wire. */
static struct open_place *place_of(struct places *places, const char *exec_id,
				   uint8_t wire_id[WIRE_ID_SIZE], struct error *err)
{
	struct open_place *place = NULL;
	struct exec *exec;

	pthread_mutex_lock(&places->lock);
	exec = exec_find_locked(places, exec_id);
	if (exec) {
		memcpy(wire_id, exec->wire_id, WIRE_ID_SIZE);
		place = place_ref(exec->place);
	}
	pthread_mutex_unlock(&places->lock);
	if (!place)
		error_set(err, ERR_NOT_FOUND, "no such exec is running");
	return place;
}

static int control(struct open_place *place, enum wire_type type, const void *msg,
		   struct error *err)
{
	int64_t deadline = boottime_ms() + CONTROL_WAIT_MS;
	_cleanup_link_ struct link *link = NULL;

	if (place_link(place, false, deadline, &link, err) < 0)
		return -1;
	return link_call(link, type, msg, WIRE_DONE, NULL, NULL, deadline, err);
}

/* The one thing that a call can be told is that nobody wants it. */
static int signal_shell(struct places *places, const char *exec_id, int number,
			enum exec_target target, struct error *err)
{
	if (number != SIGKILL || target != EXEC_TO_TREE)
		return shell_refuse(err, "a command there cannot be sent signals, only be ended "
					 "(cancel it, or KILL its whole tree)");
	if (places_cancel(places, exec_id, EXEC_CANCELLED, true) < 0)
		return error_set(err, ERR_NOT_FOUND, "no such exec is running");
	return 0;
}

int places_signal(struct places *places, const char *exec_id, int number, enum exec_target target,
		  struct error *err)
{
	static const enum wire_target targets[] = {
		[EXEC_TO_PROCESS] = WIRE_TO_PROCESS,
		[EXEC_TO_GROUP] = WIRE_TO_GROUP,
		[EXEC_TO_TREE] = WIRE_TO_TREE,
	};
	struct wire_exec_signal m = { .signal = (uint32_t)number };
	_cleanup_place_ struct open_place *place = NULL;

	if (number < 1 || number > 64 || (size_t)target >= ARRAY_SIZE(targets))
		return error_set(err, ERR_VALIDATION, "%d is not a signal", number);
	m.target = targets[target];
	place = place_of(places, exec_id, m.exec_id, err);
	if (place && place_is_shell(place))
		return signal_shell(places, exec_id, number, target, err);
	return place ? control(place, WIRE_EXEC_SIGNAL, &m, err) : -1;
}

int places_resize(struct places *places, const char *exec_id, uint16_t rows, uint16_t cols,
		  struct error *err)
{
	struct wire_exec_resize m = { .rows = rows, .cols = cols };
	_cleanup_place_ struct open_place *place = place_of(places, exec_id, m.exec_id, err);

	if (place && place_is_shell(place))
		return shell_refuse(err, "a command there has no terminal");
	return place ? control(place, WIRE_EXEC_RESIZE, &m, err) : -1;
}

/* The answer is waited for only where there is no link to lose it with. */
static int forget(struct open_place *place, const struct wire_exec_forget *m, struct error *err)
{
	_cleanup_link_ struct link *link = place_current_link(place);

	if (link && link_send(link, WIRE_EXEC_FORGET, m, NULL) == 0)
		return 0;
	return control(place, WIRE_EXEC_FORGET, m, err);
}

int places_forget(struct places *places, const char *place_id, int64_t generation,
		  const char *exec_id, struct error *err)
{
	struct wire_exec_forget m = { 0 };
	_cleanup_error_ struct error why = { 0 };
	_cleanup_place_ struct open_place *place = place_admit(places, place_id, generation, &why);

	/* Without a relay nobody keeps anything. */
	if (!place || place_is_shell(place))
		return 0;
	if (!exec_wire_id(exec_id, m.exec_id))
		return error_set(err, ERR_VALIDATION, "this is not an exec id");
	if (SAY_GUARDED("channel.forget", forget(place, &m, &why), &why) == 0 ||
	    why.code == ERR_NOT_FOUND || why.code == ERR_LEASE_LOST)
		return 0;
	error_move(err, &why);
	return -1;
}

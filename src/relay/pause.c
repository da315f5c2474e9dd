/*
 * Pausing: the cgroup of every exec is frozen, one by one. The relay is in none of them, so it goes
 * on serving files and output, and keeps deadlines. The kernel freezes a process when it leaves the
 * kernel; whoever asked hears of it when all are, or after a bounded time (what is stuck inside the
 * kernel runs nothing of its own meanwhile, and stops on its way out).
 */
#include <string.h>
#include "base/log.h"
#include "relay/exec.h"
#include "relay/session.h"

#define SETTLE_MS 2000
#define STEP_MAX_MS 20

static bool all_frozen(const struct relay *relay)
{
	for (struct exec *e = relay->execs; e; e = e->next)
		if (e->phase != WIRE_EXEC_EXITED && !relay->tree->is_frozen(e))
			return false;
	return true;
}

/* Whoever connected since has other streams. */
static void answer(struct relay *relay)
{
	uint32_t stream = relay->pause.stream;

	relay->pause.stream = 0;
	if (stream == 0 || !relay->session || relay->session->hello.epoch != relay->pause.epoch)
		return;
	session_done(relay->session, stream);
	session_flush(relay->session);
}

static void check_due(struct timer *timer)
{
	struct relay *relay = container_of(timer, struct relay, pause.check);
	struct pause *pause = &relay->pause;
	bool frozen = all_frozen(relay);

	if (!frozen && boottime_ms() < pause->until) {
		pause->step_ms = MIN_OF(pause->step_ms * 2, STEP_MAX_MS);
		loop_arm(&relay->loop, timer, pause->step_ms);
		return;
	}
	if (!frozen)
		log_warn("paused, but something is still inside the kernel");
	answer(relay);
}

/* 0 or -errno of the first that would not. */
static int freeze_all(struct relay *relay, bool frozen)
{
	int result = 0;

	for (struct exec *e = relay->execs; e; e = e->next) {
		int r = e->phase == WIRE_EXEC_EXITED ? 0 : relay->tree->freeze(e, frozen);

		if (r < 0 && result == 0)
			result = r;
	}
	return result;
}

void pause_serve(struct session *s, const struct wire_message *m)
{
	struct relay *relay = s->relay;
	struct pause *pause = &relay->pause;
	bool paused = m->place_pause.paused;
	int r;

	if (!relay->tree->freeze) {
		session_refuse(
			s, m->stream, WERR_UNSUPPORTED, 0,
			"commands here are not held by cgroups, which is what can be frozen");
		return;
	}
	/* Asked again, or otherwise, before the last answer: that one is overtaken. */
	loop_disarm(&relay->loop, &pause->check);
	answer(relay);
	r = freeze_all(relay, paused);
	if (r < 0 && paused)
		freeze_all(relay, false);
	pause->paused = paused ? r == 0 : pause->paused && r < 0;
	if (r < 0) {
		session_refuse(s, m->stream, WERR_IO, -r, "cgroup.freeze: %s", strerror(-r));
		return;
	}
	if (!paused) {
		session_done(s, m->stream);
		return;
	}
	*pause = (struct pause){
		.paused = true,
		.stream = m->stream,
		.epoch = s->hello.epoch,
		.until = boottime_ms() + SETTLE_MS,
		.step_ms = 1,
		.check.due = check_due,
	};
	check_due(&pause->check);
}

#include "exec/execs_internal.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

#define MAX_RUNNING 1024
#define STACK_BYTES ((size_t)256 << 10)
#define STOP_MS 30000
#define BRIEF_MS 20 /* a command that is over by then costs no thread and no file */
/* What talks without ending soon after is not brief. */
#define LAST_WORDS_MS 2

int execs_new(const struct execs_options *options, struct execs **out, struct error *err)
{
	struct execs *execs = xcalloc(1, sizeof(*execs));

	execs->drivers = options->drivers;
	execs->places = options->places;
	execs->leases = options->leases;
	execs->clock = options->clock;
	execs->max_running = options->max_running ? options->max_running : MAX_RUNNING;
	execs->store[KEPT] = execs->store[RECENT] = EXEC_STORE_NONE;
	execs->pad = PAD_NONE;
	pthread_mutex_init(&execs->lock, NULL);
	cond_init(&execs->ended);
	if (exec_store_open(&execs->store[KEPT], options->dirfd, "kept", "logs", options->log_bytes,
			    true, err) < 0 ||
	    exec_store_open(&execs->store[RECENT], options->dirfd, "recent", "scratch",
			    options->log_bytes, false, err) < 0 ||
	    pad_open(&execs->pad, options->dirfd, "begun", err) < 0) {
		execs_free(execs);
		return -1;
	}
	*out = execs;
	return 0;
}

void execs_free(struct execs *execs)
{
	if (!execs)
		return;
	for (size_t i = 0; i < RECENT_EXECS; i++)
		if (execs->recent[i].brief)
			live_exec_unref(execs->recent[i].brief);
	exec_store_close(&execs->store[KEPT]);
	exec_store_close(&execs->store[RECENT]);
	pad_close(&execs->pad);
	for (size_t i = 0; i < SHELVES; i++)
		strv_free(execs->later[i]);
	pthread_cond_destroy(&execs->ended);
	pthread_mutex_destroy(&execs->lock);
	free(execs);
}

size_t execs_active(struct execs *execs)
{
	pthread_mutex_lock(&execs->lock);
	size_t running = execs->running;
	pthread_mutex_unlock(&execs->lock);
	return running;
}

void execs_stop(struct execs *execs)
{
	int64_t deadline = clock_mono(execs->clock) + STOP_MS;

	places_detach(execs->places);
	pthread_mutex_lock(&execs->lock);
	execs->stopping = true;
	pthread_cond_broadcast(&execs->ended);
	while (execs->running && clock_mono(execs->clock) < deadline)
		cond_wait_until(&execs->ended, &execs->lock, boottime_ms() + 1000);
	if (execs->running)
		log_error("%zu commands could not be let go of", execs->running);
	pthread_mutex_unlock(&execs->lock);
}

/* ---- an exec that is going ---- */

struct live_exec *live_exec_new(struct execs *execs, struct exec_store *store)
{
	struct live_exec *live = xcalloc(1, sizeof(*live));

	live->execs = execs;
	live->store = store;
	live->slot = -1;
	return live;
}

void live_exec_free(struct live_exec *live)
{
	json_decref(live->command);
	json_decref(live->found);
	free(live);
}

void live_exec_unref(struct live_exec *live)
{
	struct execs *execs = live->execs;

	pthread_mutex_lock(&execs->lock);
	bool last = --live->refs == 0;
	pthread_mutex_unlock(&execs->lock);
	if (!last)
		return;
	live_exec_free(live);
}

struct live_exec *execs_find(struct execs *execs, const char *id)
{
	struct live_exec *live;

	pthread_mutex_lock(&execs->lock);
	for (live = execs->list; live && !streq(live->id, id); live = live->next)
		;
	if (live)
		live->refs++;
	pthread_mutex_unlock(&execs->lock);
	return live;
}

int live_exec_read(struct live_exec *live, int64_t since, struct runlog_reader **reader,
		   struct error *err)
{
	pthread_mutex_lock(&live->execs->lock);
	bool is_silent = live->is_silent, unread = live->adopting && !live->log;
	pthread_mutex_unlock(&live->execs->lock);
	if (unread)
		return error_set(err, ERR_UNAVAILABLE, "the output of exec %s cannot be opened yet",
				 live->id);
	if (is_silent)
		return error_set(err, ERR_NOT_FOUND, "exec %s said nothing", live->id);
	return runlog_reader_open(live->store->logs, live->id, since, reader, err);
}

bool live_exec_dies_when_left(const struct live_exec *live)
{
	return live->kill_when_left;
}

void live_exec_outcome(struct live_exec *live, struct exec_outcome *outcome)
{
	pthread_mutex_lock(&live->execs->lock);
	*outcome = live->outcome;
	pthread_mutex_unlock(&live->execs->lock);
}

int live_exec_enlist(struct live_exec *live, struct error *err)
{
	struct execs *execs = live->execs;
	int r = 0;

	pthread_mutex_lock(&execs->lock);
	if (execs->stopping)
		r = error_set(err, ERR_UNAVAILABLE, "the server is stopping");
	else if (execs->running == execs->max_running && !live->adopting)
		r = error_set(err, ERR_TOO_MANY, "%zu commands run already", execs->running);
	if (r == 0) {
		live->refs = 2; /* its thread and whoever asked for it */
		live->next = execs->list;
		execs->list = live;
		execs->running++;
	}
	pthread_mutex_unlock(&execs->lock);
	return r;
}

void live_exec_leave(struct live_exec *live)
{
	struct execs *execs = live->execs;
	struct live_exec **p = &execs->list;

	pthread_mutex_lock(&execs->lock);
	while (*p != live)
		p = &(*p)->next;
	*p = live->next;
	execs->running--;
	if (execs->stopping)
		pthread_cond_broadcast(&execs->ended);

	bool last = --live->refs == 0;

	pthread_mutex_unlock(&execs->lock);
	if (last)
		live_exec_free(live);
}

/* A record that survives the machine must not outlive its output; when it does, readers are told.
 */
static void settle_log(struct live_exec *live)
{
	_cleanup_error_ struct error err = { 0 };

	if (runlog_sync(live->log, &err) < 0)
		log_warn("exec %s: its output may not be on the disk: %s", live->id, err.message);
}

/*
 * The outcome is there before the log closes, since closing tells the readers that it is; and the
 * exec stays on the list until its record has it, so that it is always found in one of the two. A
 * durable record is there before anybody hears of the end; the other costs nobody any time.
 */
static void finish(struct live_exec *live, struct exec_outcome *outcome)
{
	struct execs *execs = live->execs;
	_cleanup_error_ struct error err = { 0 };

	outcome->output_bytes = runlog_end(live->log);
	if (live->store->durable) {
		settle_log(live);
		record_ended(live, outcome);
	}
	pthread_mutex_lock(&execs->lock);
	live->outcome = *outcome;
	pthread_mutex_unlock(&execs->lock);
	runlog_close(live->log);
	if (!live->store->durable) {
		record_ended(live, outcome);
		remember_recent(execs, live->id, clock_now(execs->clock), outcome->output_bytes);
	}
	if (places_forget(execs->places, live->place_id, live->generation, live->id, &err) < 0)
		log_debug("exec %s stays with its relay until the place ends: %s", live->id,
			  err.message);
}

static void *wait_for_end(void *arg)
{
	struct live_exec *live = arg;
	struct exec_outcome outcome = { .result = { .exit_code = -1, .reason = EXEC_LEASE_LOST } };
	_cleanup_error_ struct error err = { 0 };

	if ((live->adopting && live_exec_reach(live, &err) < 0) ||
	    exec_wait(live->exec, &outcome.result, &err) < 0) {
		/* This server goes, the command stays: the record says "running" to the next one.
		 */
		if (err.code == ERR_UNAVAILABLE) {
			if (live->log)
				runlog_close(live->log);
			live_exec_leave(live);
			return NULL;
		}
		outcome.result = (struct exec_result){ .exit_code = -1, .reason = EXEC_LEASE_LOST };
		snprintf(outcome.error, sizeof(outcome.error), "%.200s", err.message);
	}
	finish(live, &outcome);
	live_exec_leave(live);
	return NULL;
}

int live_exec_follow(struct live_exec *live, struct error *err)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);

	int failed = pthread_create(&thread, &attr, wait_for_end, live);

	pthread_attr_destroy(&attr);
	return failed ? error_errno(err, failed, "cannot start a thread for the command") : 0;
}

static void clear_slot(struct live_exec *live)
{
	if (live->slot >= 0)
		pad_clear(&live->execs->pad, live->slot);
	live->slot = -1;
}

/* From here on a successor takes it up, with everything it has said. */
static int write_down(struct live_exec *live, struct error *err)
{
	_cleanup_json_ json_t *record = NULL;

	if (live->on_record)
		return 0;
	record = running_record(live);
	if (exec_store_put(live->store, live->id, record, err) < 0)
		return -1;
	live->on_record = true;
	clear_slot(live);
	return 0;
}

/* The same of one that may be over in a moment. */
static int note_down(struct live_exec *live, struct error *err)
{
	_cleanup_json_ json_t *record = NULL;

	if (live->on_record || live->slot >= 0)
		return 0;
	record = running_record(live);
	live->slot = pad_put(&live->execs->pad, record);
	return live->slot >= 0 ? 0 : write_down(live, err);
}

static int announce(struct live_exec *live, struct error *err)
{
	if (write_down(live, err) < 0)
		return -1;
	return runlog_make(live->log, err);
}

/* Its start is known to nobody else: what cannot be written down must not go on. */
static void give_up(struct live_exec *live)
{
	struct exec_result result;

	places_cancel(live->execs->places, live->id, EXEC_CANCELLED, true);
	exec_wait(live->exec, &result, NULL);
}

/* From here on it outlives whoever asked for it. */
static int go_on(struct live_exec *live, struct error *err)
{
	exec_keep_exit(live->exec);
	if (announce(live, err) == 0 && live_exec_follow(live, err) == 0)
		return 0;
	give_up(live);
	return -1;
}

/* Of one that has ended: its record turned out to be needless. */
static void strike_out(struct live_exec *live)
{
	_cleanup_error_ struct error err = { 0 };

	clear_slot(live);
	if (live->on_record && exec_store_delete(live->store, live->id, &err) < 0)
		log_warn("%s", err.message);
	/* Not before: a successor that finds the record has to find the exit too. */
	if (places_forget(live->execs->places, live->place_id, live->generation, live->id, &err) <
	    0)
		log_debug("exec %s stays with its relay until the place ends: %s", live->id,
			  err.message);
}

/* 1: it is over, and what is left to do of it is live_exec_detach's. */
static int wait_briefly(struct live_exec *live, int64_t wait_ms, int64_t words_ms,
			struct error *err)
{
	struct execs *execs = live->execs;
	struct exec_outcome outcome = { 0 };
	int r = exec_wait_briefly(live->exec, wait_ms, words_ms, &outcome.result, err);

	/* The server goes, the command stays: its successor has to know of it. */
	if (r < 0 && err->code == ERR_UNAVAILABLE)
		live->left_behind = announce(live, NULL) == 0 || live->slot >= 0;
	if (r <= 0)
		return r;

	/* Its record is to be struck out, which nobody has to wait for. */
	live->start_deferred = live->on_record || live->slot >= 0;

	int64_t bytes = runlog_end(live->log);

	outcome.output_bytes = bytes;
	pthread_mutex_lock(&execs->lock);
	live->outcome = outcome;
	live->ended_ms = clock_now(execs->clock);
	live->is_silent = bytes == 0;
	pthread_mutex_unlock(&execs->lock);
	runlog_close(steal(live->log));
	remember_brief(live, bytes);
	live_exec_leave(live);
	return 1;
}

/* An id that came with a key may have been used before. */
static int open_log(struct live_exec *live, bool kept, struct error *err)
{
	if (kept)
		return runlog_open_later(live->store->logs, live->id, &live->log, err);
	return runlog_open_new(live->store->logs, live->id, &live->log, err);
}

static int start_command(struct live_exec *live, const struct exec_order *order, struct error *err)
{
	struct exec_spec spec = *order->spec;
	bool brief = order->unannounced && !order->kept && !spec.stdin_stream && !spec.terminal;
	int r;

	if (open_log(live, order->kept, err) < 0)
		return -1;
	if (!brief && announce(live, err) < 0)
		return -1;
	spec.log = live->log;
	spec.keep_exit = !brief;
	if (driver_start(live->execs->drivers, order->place, &spec, &live->exec, err) < 0)
		return -1;
	if (!brief)
		return go_on(live, err);
	r = wait_briefly(live, BRIEF_MS, order->first_words ? 0 : LAST_WORDS_MS, err);
	if (r != 0)
		return r < 0 ? -1 : 0;
	if (!order->first_words || runlog_end(live->log) == 0)
		return go_on(live, err);
	exec_keep_exit(live->exec);
	if (note_down(live, err) < 0) {
		give_up(live);
		return -1;
	}
	live->start_deferred = true;
	return 0;
}

static void forget(struct live_exec *live)
{
	if (live->log)
		runlog_close(live->log);
	if (!live->left_behind) {
		clear_slot(live);
		exec_store_remove(live->store, live->id, NULL);
	}
	live_exec_leave(live);
}

bool live_exec_is_deferred(const struct live_exec *live)
{
	return live->start_deferred;
}

int live_exec_detach(struct live_exec *live, struct error *err)
{
	_cleanup_error_ struct error why = { 0 };

	if (!live->start_deferred)
		return 0;
	live->start_deferred = false;
	if (!live->log) {
		strike_out(live);
		return 0;
	}

	int r = wait_briefly(live, LAST_WORDS_MS, LAST_WORDS_MS, &why);

	if (r > 0 || (r == 0 && go_on(live, &why) == 0))
		return 0;
	forget(live);
	error_move(err, &why);
	return -1;
}

int execs_start(struct execs *execs, const struct exec_order *order, struct live_exec **out,
		struct error *err)
{
	struct live_exec *live = live_exec_new(execs, &execs->store[order->kept ? KEPT : RECENT]);

	describe_order(live, order);
	if (live_exec_enlist(live, err) < 0) {
		live_exec_free(live);
		return -1;
	}
	if (start_command(live, order, err) < 0) {
		forget(live);
		live_exec_unref(live);
		return -1;
	}
	*out = live;
	return 0;
}

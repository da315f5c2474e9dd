/*
 * Commands that were started through the API, each in one phase:
 *
 *      execs_start                        execs_recover, execs_take_up
 *           |                                      |
 *       STARTING ----> BRIEF ----> RUNNING <---- SEEKING
 *           |            |            |            |
 *           |            +-----> ENDED <-----------+
 *           |            |            |            |
 *           +------------+---> LEFT <-+------------+
 *
 *   STARTING  Its relay is asked to start it. It is on the list, so that it is known when its relay
 *             is asked what it holds.
 *   BRIEF     It runs, and the thread in execs_start takes its output. When execs_start returns it
 *             so, live_exec_detach is due.
 *   SEEKING   An earlier server started it; its own thread looks for its relay (exec_recovery.c).
 *   RUNNING   It runs, and its own thread takes its output and waits for its end.
 *   ENDED     The outcome is known. It is on the list until its record is written, if it gets one.
 *   LEFT      It could not be started, or this server goes and its relay keeps it for the next one.
 *
 *   call                     phases in which it is legal
 *   live_exec_read           all; ERR_UNAVAILABLE in SEEKING before its log is open
 *   live_exec_detach         all, by the caller of execs_start; does something in BRIEF only
 *   live_exec_outcome        ENDED and LEFT; before that it says lease_lost
 *   live_exec_follow         RUNNING, SEEKING
 *   live_exec_reach          SEEKING
 *   exec_wait, in a thread   RUNNING
 *
 * live_exec_move is the only function that changes the phase.
 */
#include "exec/execs_internal.h"
#include <assert.h>
#include <fcntl.h>
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

	execs->makers = options->makers;
	execs->places = options->places;
	execs->leases = options->leases;
	execs->clock = options->clock;
	execs->max_running = options->max_running ? options->max_running : MAX_RUNNING;
	execs->store[KEPT] = execs->store[RECENT] = EXEC_STORE_NONE;
	execs->dirfd = fcntl(options->dirfd, F_DUPFD_CLOEXEC, 3);
	pthread_mutex_init(&execs->lock, NULL);
	cond_init(&execs->ended);
	if (exec_store_open(&execs->store[KEPT], options->dirfd, "kept", "logs", options->log_bytes,
			    true, err) < 0 ||
	    exec_store_open(&execs->store[RECENT], options->dirfd, "recent", "scratch",
			    options->log_bytes, false, err) < 0) {
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
	close_fdp(&execs->dirfd);
	for (size_t i = 0; i < STORES; i++)
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

struct live_exec *live_exec_new(struct execs *execs, struct exec_store *store,
				enum exec_phase phase)
{
	struct live_exec *live = xcalloc(1, sizeof(*live));

	live->execs = execs;
	live->store = store;
	live->phase = phase;
	live->outcome.result = (struct exec_result){ .exit_code = -1, .reason = EXEC_LEASE_LOST };
	return live;
}

enum exec_phase live_exec_phase(struct live_exec *live)
{
	pthread_mutex_lock(&live->execs->lock);
	enum exec_phase phase = live->phase;
	pthread_mutex_unlock(&live->execs->lock);
	return phase;
}

void live_exec_move(struct live_exec *live, enum exec_phase phase)
{
	static const unsigned FROM[EXEC_PHASES] = {
		[EXEC_BRIEF] = 1u << EXEC_STARTING,
		[EXEC_RUNNING] = 1u << EXEC_STARTING | 1u << EXEC_BRIEF | 1u << EXEC_SEEKING,
		[EXEC_ENDED] = 1u << EXEC_BRIEF | 1u << EXEC_RUNNING | 1u << EXEC_SEEKING,
		[EXEC_LEFT] = 1u << EXEC_STARTING | 1u << EXEC_BRIEF | 1u << EXEC_RUNNING |
			      1u << EXEC_SEEKING,
	};

	pthread_mutex_lock(&live->execs->lock);
	assert(FROM[phase] & 1u << live->phase);
	live->phase = phase;
	pthread_mutex_unlock(&live->execs->lock);
}

void live_exec_free(struct live_exec *live)
{
	json_decref(live->command);
	json_decref(live->record);
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
	bool unopened = live->phase == EXEC_SEEKING && !live->log;
	bool is_silent = live->phase == EXEC_ENDED && live->outcome.output_bytes == 0;
	pthread_mutex_unlock(&live->execs->lock);
	if (unopened)
		return error_set(err, ERR_UNAVAILABLE, "the output of exec %s cannot be opened yet",
				 live->id);
	if (is_silent)
		return error_set(err, ERR_NOT_FOUND, "exec %s printed nothing", live->id);
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
	else if (execs->running == execs->max_running && live->phase != EXEC_SEEKING)
		r = error_set(err, ERR_TOO_MANY, "%zu commands run already", execs->running);
	if (r == 0) {
		live->refs = 2; /* the list's and the caller's */
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

/* A durable record must not outlive its output; when it does, readers get to know how much is lost. */
static void settle_log(struct live_exec *live)
{
	_cleanup_error_ struct error err = { 0 };

	if (runlog_sync(live->log, &err) < 0)
		log_warn("exec %s: its output may not be on the disk: %s", live->id, err.message);
}

static void set_ended(struct live_exec *live, const struct exec_outcome *outcome)
{
	pthread_mutex_lock(&live->execs->lock);
	live->outcome = *outcome;
	live->ended_ms = clock_now(live->execs->clock);
	pthread_mutex_unlock(&live->execs->lock);
	live_exec_move(live, EXEC_ENDED);
}

/*
 * The outcome is there before the log closes, since closing tells the readers that it is; and the
 * exec stays on the list until its record has it, so that it is always found in one of the two. A
 * durable record is there before a client hears of the end; the other costs no client any time. The
 * relay forgets the exec after its record is written: one that cannot be written is known from
 * memory, and a later server asks the relay again.
 */
static void finish(struct live_exec *live, struct exec_outcome *outcome)
{
	struct execs *execs = live->execs;
	_cleanup_error_ struct error err = { 0 };

	bool durable = live->store->durable, recorded = false;

	outcome->output_bytes = runlog_end(live->log);
	if (durable) {
		settle_log(live);
		recorded = record_ended(live, outcome) == 0;
	}
	set_ended(live, outcome);
	runlog_close(live->log);
	if (!durable) {
		recorded = record_ended(live, outcome) == 0;
		remember_recent(live, recorded);
	}
	if (!recorded)
		return;
	if (places_forget(execs->places, live->place_id, live->generation, live->id, &err) < 0)
		log_debug("exec %s stays with its relay until the place ends: %s", live->id,
			  err.message);
}

/* Off the list without an end of its own. The files go unless a later server takes it up. */
static void give_back(struct live_exec *live, bool remove_files)
{
	live_exec_move(live, EXEC_LEFT);
	if (live->log)
		runlog_close(live->log);
	if (remove_files)
		exec_store_remove(live->store, live->id, NULL);
	live_exec_leave(live);
}

/* Its relay holds no such exec, and no record says that one ran: it has ended and was forgotten. */
static bool is_forgotten(const struct live_exec *live, const struct error *err)
{
	return err->code == ERR_NOT_FOUND && !exec_store_has(live->store, live->id);
}

static int seek(struct live_exec *live, struct error *err)
{
	if (live_exec_reach(live, err) < 0)
		return -1;
	live_exec_move(live, EXEC_RUNNING);
	return 0;
}

static void *wait_for_end(void *arg)
{
	struct live_exec *live = arg;
	struct exec_outcome outcome = { .result = { .exit_code = -1, .reason = EXEC_LEASE_LOST } };
	_cleanup_error_ struct error err = { 0 };

	if ((live_exec_phase(live) == EXEC_SEEKING && seek(live, &err) < 0) ||
	    exec_wait(live->exec, &outcome.result, &err) < 0) {
		/* This server goes, the command stays with its relay. */
		if (err.code == ERR_UNAVAILABLE || is_forgotten(live, &err)) {
			give_back(live, err.code != ERR_UNAVAILABLE);
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
	enum exec_phase phase = live_exec_phase(live);
	pthread_attr_t attr;
	pthread_t thread;

	assert(phase == EXEC_RUNNING || phase == EXEC_SEEKING);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);

	int failed = pthread_create(&thread, &attr, wait_for_end, live);

	pthread_attr_destroy(&attr);
	return failed ? error_errno(err, failed, "cannot start a thread for the command") : 0;
}

/* ---- starting one ---- */

/* From here on a later server takes it up by its record. */
static int record_running(struct live_exec *live, struct error *err)
{
	_cleanup_json_ json_t *record = running_record(live);

	return exec_store_put(live->store, live->id, record, err);
}

/* A kept one has its record, and for others the note that their relay keeps does. */
static bool lacks_record(const struct live_exec *live)
{
	return !live->store->durable && !exec_is_noted(live->exec);
}

/* From here on it outlives the caller. What cannot be kept must not go on: it is ended. */
static int go_on(struct live_exec *live, struct error *err)
{
	struct exec_result result;

	exec_keep_exit(live->exec);
	if ((!lacks_record(live) || record_running(live, err) == 0) &&
	    runlog_make(live->log, err) == 0) {
		live_exec_move(live, EXEC_RUNNING);
		if (live_exec_follow(live, err) == 0)
			return 0;
	}
	places_cancel(live->execs->places, live->id, EXEC_CANCELLED, true);
	exec_wait(live->exec, &result, NULL);
	return -1;
}

/*
 * BRIEF: 1 when it has ended. -1 with ERR_UNAVAILABLE: the server goes, the command stays; any other
 * error: there is no command.
 */
static int wait_briefly(struct live_exec *live, int64_t wait_ms, int64_t words_ms,
			struct error *err)
{
	struct exec_outcome outcome = { 0 };
	int r;

	assert(live_exec_phase(live) == EXEC_BRIEF);
	r = exec_wait_briefly(live->exec, wait_ms, words_ms, &outcome.result, err);
	if (r <= 0)
		return r;
	outcome.output_bytes = runlog_end(live->log);
	set_ended(live, &outcome);
	runlog_close(steal(live->log));
	remember_recent(live, false);
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
	_cleanup_free_ char *note = exec_note(live);
	bool brief = order->unannounced && !order->kept && !spec.stdin_stream && !spec.terminal;
	int r;

	if (open_log(live, order->kept, err) < 0)
		return -1;
	/* What a key stands for is on the disk before it starts: it must not start twice. */
	if (order->kept && (record_running(live, err) < 0 || runlog_make(live->log, err) < 0))
		return -1;
	spec.log = live->log;
	spec.keep_exit = !brief;
	spec.note = note;
	if (maker_start(live->execs->makers, order->place, &spec, &live->exec, err) < 0)
		return -1;
	if (!brief)
		return go_on(live, err);
	live_exec_move(live, EXEC_BRIEF);
	r = wait_briefly(live, BRIEF_MS, order->first_words ? 0 : LAST_WORDS_MS, err);
	if (r != 0)
		return r < 0 ? -1 : 0;
	if (order->first_words && runlog_end(live->log) > 0)
		return 0;
	return go_on(live, err);
}

/* A start that failed leaves nothing, unless it is this server that goes, and the command stays. */
static void fail(struct live_exec *live, const struct error *why)
{
	bool stays = why->code == ERR_UNAVAILABLE && live_exec_phase(live) == EXEC_BRIEF;

	give_back(live, !stays);
}

bool live_exec_is_deferred(struct live_exec *live)
{
	return live_exec_phase(live) == EXEC_BRIEF;
}

int live_exec_detach(struct live_exec *live, struct error *err)
{
	_cleanup_error_ struct error why = { 0 };
	int r;

	if (live_exec_phase(live) != EXEC_BRIEF)
		return 0;
	r = wait_briefly(live, LAST_WORDS_MS, LAST_WORDS_MS, &why);
	if (r > 0 || (r == 0 && go_on(live, &why) == 0))
		return 0;
	fail(live, &why);
	error_move(err, &why);
	return -1;
}

int execs_start(struct execs *execs, const struct exec_order *order, struct live_exec **out,
		struct error *err)
{
	struct live_exec *live =
		live_exec_new(execs, &execs->store[order->kept ? KEPT : RECENT], EXEC_STARTING);
	_cleanup_error_ struct error why = { 0 };

	describe_order(live, order);
	if (live_exec_enlist(live, err) < 0) {
		live_exec_free(live);
		return -1;
	}
	if (start_command(live, order, &why) < 0) {
		fail(live, &why);
		live_exec_unref(live);
		error_move(err, &why);
		return -1;
	}
	*out = live;
	return 0;
}

#include "api/execs.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

#define MAX_RUNNING 1024
#define STACK_BYTES ((size_t)256 << 10)
#define STOP_MS 30000
#define RECENT_EXECS 1024
#define RECENT_BYTES ((int64_t)1 << 30)
#define RECENT_MS ((int64_t)3600 * 1000)
#define COMMAND_BYTES 2048 /* of it in a record: it is for people */
#define BRIEF_MS 20        /* a command that is over by then costs no thread and no file */

enum { KEPT, RECENT, SHELVES };

/* Ended, without a key, and still to be had. */
struct recent {
	char id[ID_SIZE];
	int64_t ended_ms, bytes;
	char *record; /* of one that was brief; NULL: it is on the shelf */
};

struct execs {
	const struct drivers *drivers;
	struct executor *executor;
	struct clock *clock;
	struct shelf shelf[SHELVES];
	size_t max_running;

	pthread_mutex_t lock; /* a leaf */
	pthread_cond_t ended;
	struct live_exec *list; /* those whose command has not ended */
	size_t running;
	bool stopping;
	struct exec_seat *seats;
	struct recent recent[RECENT_EXECS]; /* a ring, oldest at first_recent */
	size_t first_recent, recent_count;
	int64_t recent_bytes;
};

struct live_exec {
	struct execs *execs;
	struct live_exec *next;
	char id[ID_SIZE];
	struct shelf *shelf;
	bool kill_when_left;
	bool adopting;    /* its command was started by an earlier server */
	bool left_behind; /* its command goes on without this server */
	json_t *record;
	struct exec *exec;
	struct runlog *log;

	int refs; /* these under execs->lock */
	struct exec_outcome outcome;
};

int execs_new(const struct execs_options *options, struct execs **out, struct error *err)
{
	struct execs *execs = xcalloc(1, sizeof(*execs));
	pthread_condattr_t attr;

	execs->drivers = options->drivers;
	execs->executor = options->executor;
	execs->clock = options->clock;
	execs->max_running = options->max_running ? options->max_running : MAX_RUNNING;
	execs->shelf[KEPT] = execs->shelf[RECENT] = SHELF_NONE;
	pthread_mutex_init(&execs->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&execs->ended, &attr);
	pthread_condattr_destroy(&attr);
	if (shelf_open(&execs->shelf[KEPT], options->dirfd, "kept", "logs", options->log_bytes,
		       true, err) < 0 ||
	    shelf_open(&execs->shelf[RECENT], options->dirfd, "recent", "scratch",
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
	shelf_close(&execs->shelf[KEPT]);
	shelf_close(&execs->shelf[RECENT]);
	for (size_t i = 0; i < RECENT_EXECS; i++)
		free(execs->recent[i].record);
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

	executor_detach(execs->executor);
	pthread_mutex_lock(&execs->lock);
	execs->stopping = true;
	while (execs->running && clock_mono(execs->clock) < deadline) {
		struct timespec soon;

		clock_gettime(CLOCK_MONOTONIC, &soon);
		soon.tv_sec++;
		pthread_cond_timedwait(&execs->ended, &execs->lock, &soon);
	}
	if (execs->running)
		log_error("%zu commands could not be let go of", execs->running);
	pthread_mutex_unlock(&execs->lock);
}

/* ---- what is written down ---- */

void exec_outcome_put(json_t *object, const struct exec_outcome *outcome)
{
	const struct exec_result *result = &outcome->result;

	if (result->exit_code >= 0)
		json_put_int(object, "exitCode", result->exit_code);
	else
		json_put_new(object, "exitCode", NULL);
	json_put_str(object, "signal", result->signal[0] ? result->signal : NULL);
	json_put_str(object, "reason", exec_reason_name(result->reason));
	json_put_int(object, "durationMs", result->duration_ms);
	if (outcome->error[0])
		json_put_str(object, "error", outcome->error);
}

static json_t *brief_command(char *const *argv)
{
	json_t *command = json_array();
	size_t left = COMMAND_BYTES;

	for (; *argv && left > 0; argv++) {
		_cleanup_buf_ struct buf word = { 0 };

		utf8_repair(&word, *argv, MIN_OF(strlen(*argv), left));
		left -= MIN_OF(word.len + 1, left);
		json_array_append_new(command, json_stringn(buf_str(&word), word.len));
	}
	return command;
}

static json_t *new_record(struct execs *execs, const struct exec_order *order)
{
	const struct exec_spec *spec = order->spec;
	json_t *record = json_object(), *tty = NULL;

	if (spec->terminal) {
		tty = json_object();
		json_put_int(tty, "rows", spec->terminal->rows);
		json_put_int(tty, "cols", spec->terminal->cols);
	}
	json_put_str(record, "id", spec->exec_id);
	json_put_str(record, "leaseId", order->lease_id);
	json_put_str(record, "placeId", spec->place_id);
	json_put_int(record, "generation", spec->generation);
	json_put_new(record, "command", brief_command(spec->argv));
	json_put_new(record, "tty", tty);
	json_put_bool(record, "stdinStream", spec->stdin_stream);
	json_put_str(record, "onDisconnect", order->kill_when_left ? "kill" : "keep");
	json_put_time(record, "createdAt", clock_now(execs->clock));
	json_put_str(record, "status", "running");
	return record;
}

static json_t *ended_record(const struct live_exec *live, const struct exec_outcome *outcome)
{
	json_t *record = json_copy(live->record);

	json_put_str(record, "status", "ended");
	json_put_time(record, "endedAt", clock_now(live->execs->clock));
	exec_outcome_put(record, outcome);
	return record;
}

static void record_ended(struct live_exec *live, const struct exec_outcome *outcome)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *record = ended_record(live, outcome);

	if (shelf_replace(live->shelf, live->id, record, &err) < 0)
		log_warn("the outcome of exec %s could not be kept: %s", live->id, err.message);
}

static json_t *find_brief(struct execs *execs, const char *id)
{
	_cleanup_free_ char *text = NULL;

	pthread_mutex_lock(&execs->lock);
	for (size_t i = 0; i < execs->recent_count && !text; i++) {
		const struct recent *r = &execs->recent[(execs->first_recent + i) % RECENT_EXECS];

		if (r->record && streq(r->id, id))
			text = xstrdup(r->record);
	}
	pthread_mutex_unlock(&execs->lock);
	return text ? json_loads(text, 0, NULL) : NULL;
}

static json_t *find_record(struct execs *execs, const char *id, struct shelf **shelf)
{
	json_t *record = find_brief(execs, id);

	*shelf = &execs->shelf[RECENT];

	for (size_t i = 0; i < SHELVES && !record; i++) {
		*shelf = &execs->shelf[i];
		record = shelf_get(*shelf, id);
	}
	return record;
}

static int no_such_exec(const char *id, struct error *err)
{
	return error_set(err, ERR_NOT_FOUND, "there is no exec %.40s", id);
}

json_t *execs_describe(struct execs *execs, const char *id, struct error *err)
{
	struct live_exec *live = execs_find(execs, id);
	struct shelf *shelf;
	json_t *record = live ? json_deep_copy(live->record) : find_record(execs, id, &shelf);

	if (live)
		live_exec_unref(live);
	if (!record)
		no_such_exec(id, err);
	return record;
}

int execs_recall(struct execs *execs, const char *id, struct exec_outcome *outcome,
		 struct error *err)
{
	struct shelf *shelf;
	_cleanup_json_ json_t *record = find_record(execs, id, &shelf);

	if (!record)
		return no_such_exec(id, err);
	*outcome =
		(struct exec_outcome){ .result = { .exit_code = -1, .reason = EXEC_LEASE_LOST } };
	if (!str_equal(json_str(record, "status"), "ended")) {
		snprintf(outcome->error, sizeof(outcome->error),
			 "the server ended while the command ran");
		return 0;
	}
	outcome->result.exit_code = (int)json_int(record, "exitCode", -1);
	outcome->result.duration_ms = json_int(record, "durationMs", 0);
	snprintf(outcome->result.signal, sizeof(outcome->result.signal), "%s",
		 json_str(record, "signal") ? json_str(record, "signal") : "");
	snprintf(outcome->error, sizeof(outcome->error), "%s",
		 json_str(record, "error") ? json_str(record, "error") : "");
	if (json_str(record, "reason"))
		exec_reason_parse(json_str(record, "reason"), &outcome->result.reason);
	return 0;
}

int execs_read(struct execs *execs, const char *id, int64_t since, struct runlog_reader **reader,
	       struct error *err)
{
	struct live_exec *live = execs_find(execs, id);
	struct shelf *shelf = live ? live->shelf : NULL;
	_cleanup_json_ json_t *record = live ? NULL : find_record(execs, id, &shelf);

	if (live)
		live_exec_unref(live);
	if (!live && !record)
		return no_such_exec(id, err);
	return runlog_reader_open(shelf->logs, id, since, reader, err);
}

/* ---- what is forgotten ---- */

static bool take_oldest(struct execs *execs, int64_t now, struct recent *out)
{
	const struct recent *oldest = &execs->recent[execs->first_recent];

	if (!execs->recent_count)
		return false;
	if (execs->recent_count < RECENT_EXECS - 1 && oldest->ended_ms > now - RECENT_MS &&
	    (execs->recent_bytes <= RECENT_BYTES || execs->recent_count == 1))
		return false;
	*out = *oldest;
	execs->recent[execs->first_recent].record = NULL;
	execs->recent_bytes -= out->bytes;
	execs->first_recent = (execs->first_recent + 1) % RECENT_EXECS;
	execs->recent_count--;
	return true;
}

static void forget_recent(struct execs *execs)
{
	int64_t now = clock_now(execs->clock);

	for (;;) {
		_cleanup_error_ struct error err = { 0 };
		struct recent old;

		pthread_mutex_lock(&execs->lock);
		bool some = take_oldest(execs, now, &old);
		pthread_mutex_unlock(&execs->lock);
		if (!some)
			return;
		/* One that was brief and silent has nothing on the shelf. */
		if ((!old.record || old.bytes > 0) &&
		    shelf_remove(&execs->shelf[RECENT], old.id, &err) < 0)
			log_warn("exec %s stays until the next start: %s", old.id, err.message);
		free(old.record);
	}
}

/* Takes `record`. */
static void remember_recent(struct execs *execs, const char *id, int64_t ended_ms, int64_t bytes,
			    char *record)
{
	pthread_mutex_lock(&execs->lock);
	if (execs->recent_count < RECENT_EXECS) {
		struct recent *slot =
			&execs->recent[(execs->first_recent + execs->recent_count) % RECENT_EXECS];

		id_copy(slot->id, id);
		slot->ended_ms = ended_ms;
		slot->bytes = bytes;
		slot->record = steal(record);
		execs->recent_count++;
		execs->recent_bytes += bytes;
	}
	pthread_mutex_unlock(&execs->lock);
	free(record);
	forget_recent(execs);
}

struct pruning {
	struct execs *execs;
	int64_t before_ms, removed;
};

static int prune_one(void *arg, const char *id, int64_t changed_ms, struct error *err)
{
	struct pruning *pruning = arg;
	struct live_exec *live = execs_find(pruning->execs, id);

	if (live)
		live_exec_unref(live);
	if (live || changed_ms >= pruning->before_ms)
		return 0;
	pruning->removed++;
	return shelf_remove(&pruning->execs->shelf[KEPT], id, err);
}

int64_t execs_prune(struct execs *execs, int64_t before_ms, struct error *err)
{
	struct pruning pruning = { execs, before_ms, 0 };

	forget_recent(execs);
	if (shelf_each(&execs->shelf[KEPT], prune_one, &pruning, err) < 0)
		return -1;
	return pruning.removed;
}

/* ---- an exec that is going ---- */

void live_exec_unref(struct live_exec *live)
{
	struct execs *execs = live->execs;

	pthread_mutex_lock(&execs->lock);
	bool last = --live->refs == 0;
	pthread_mutex_unlock(&execs->lock);
	if (!last)
		return;
	json_decref(live->record);
	free(live);
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

static int enlist(struct execs *execs, struct live_exec *live, struct error *err)
{
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

/* Off the list, and the last that its thread has to do with any of this. */
static void leave(struct live_exec *live)
{
	struct execs *execs = live->execs;
	struct live_exec **p = &execs->list;

	pthread_mutex_lock(&execs->lock);
	while (*p != live)
		p = &(*p)->next;
	*p = live->next;
	pthread_mutex_unlock(&execs->lock);
	live_exec_unref(live);
	pthread_mutex_lock(&execs->lock);
	execs->running--;
	pthread_cond_broadcast(&execs->ended);
	pthread_mutex_unlock(&execs->lock);
}

/*
 * The outcome is there before the log closes, since closing tells the readers that it is; and the
 * exec stays on the list until its record has it, so that it is always found in one of the two. A
 * durable record is there before anybody hears of the end; the other costs nobody any time.
 */
static void finish(struct live_exec *live, const struct exec_outcome *outcome)
{
	struct execs *execs = live->execs;
	int64_t bytes = runlog_end(live->log);
	_cleanup_error_ struct error err = { 0 };

	if (live->shelf->durable)
		record_ended(live, outcome);
	pthread_mutex_lock(&execs->lock);
	live->outcome = *outcome;
	pthread_mutex_unlock(&execs->lock);
	runlog_close(live->log);
	if (!live->shelf->durable) {
		record_ended(live, outcome);
		remember_recent(execs, live->id, clock_now(execs->clock), bytes, NULL);
	}
	if (executor_forget(execs->executor, json_str(live->record, "placeId"),
			    json_int(live->record, "generation", 0), live->id, &err) < 0)
		log_debug("exec %s stays with its relay until the place ends: %s", live->id,
			  err.message);
}

static int take_up(struct live_exec *live, struct error *err)
{
	const struct exec_spec spec = {
		.exec_id = live->id,
		.place_id = json_str(live->record, "placeId"),
		.generation = json_int(live->record, "generation", 0),
		.log = live->log,
		.keep_exit = true,
	};

	return exec_adopt(live->execs->executor, &spec, &live->exec, err);
}

static void *wait_for_end(void *arg)
{
	struct live_exec *live = arg;
	struct exec_outcome outcome = { .result = { .exit_code = -1, .reason = EXEC_LEASE_LOST } };
	_cleanup_error_ struct error err = { 0 };

	if ((live->adopting && take_up(live, &err) < 0) ||
	    exec_wait(live->exec, &outcome.result, &err) < 0) {
		/* This server goes, the command stays: the record says "running" to the next one.
		 */
		if (err.code == ERR_UNAVAILABLE) {
			runlog_close(live->log);
			leave(live);
			return NULL;
		}
		outcome.result = (struct exec_result){ .exit_code = -1, .reason = EXEC_LEASE_LOST };
		snprintf(outcome.error, sizeof(outcome.error), "%.200s", err.message);
	}
	finish(live, &outcome);
	leave(live);
	return NULL;
}

static int start_thread(struct live_exec *live, struct error *err)
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

static int announce(struct live_exec *live, struct error *err)
{
	if (shelf_put(live->shelf, live->id, live->record, err) < 0)
		return -1;
	return runlog_make(live->log, err);
}

/* From here on it outlives whoever asked for it. */
static int go_on(struct live_exec *live, struct error *err)
{
	struct exec_result result;

	exec_keep_exit(live->exec);
	if (start_thread(live, err) == 0)
		return 0;
	executor_cancel(live->execs->executor, live->id, EXEC_CANCELLED, true);
	exec_wait(live->exec, &result, NULL);
	return -1;
}

/* 1: it is over, and nothing of it is left to do. */
static int wait_briefly(struct live_exec *live, struct error *err)
{
	struct execs *execs = live->execs;
	struct exec_outcome outcome = { 0 };
	int r = exec_wait_briefly(live->exec, BRIEF_MS, &outcome.result, err);

	/* The server goes, the command stays: its successor has to know of it. */
	if (r < 0 && err->code == ERR_UNAVAILABLE)
		live->left_behind = announce(live, NULL) == 0;
	if (r <= 0)
		return r;

	_cleanup_json_ json_t *record = ended_record(live, &outcome);
	int64_t bytes = runlog_end(live->log);

	pthread_mutex_lock(&execs->lock);
	live->outcome = outcome;
	pthread_mutex_unlock(&execs->lock);
	runlog_close(steal(live->log));
	remember_recent(execs, live->id, clock_now(execs->clock), bytes, json_text(record));
	leave(live);
	return 1;
}

/* Its start is known to nobody else: when it cannot be written down, it must not go on. */
static int announce_late(struct live_exec *live, struct error *err)
{
	struct exec_result result;

	if (announce(live, err) == 0)
		return 0;
	executor_cancel(live->execs->executor, live->id, EXEC_CANCELLED, true);
	exec_wait(live->exec, &result, NULL);
	return -1;
}

static int start_command(struct live_exec *live, const struct exec_order *order, struct error *err)
{
	struct exec_spec spec = *order->spec;
	bool brief = order->unannounced && !order->kept && !spec.stdin_stream && !spec.terminal;
	int r;

	if (runlog_open_later(live->shelf->logs, live->id, &live->log, err) < 0)
		return -1;
	if (!brief && announce(live, err) < 0)
		return -1;
	spec.log = live->log;
	spec.keep_exit = !brief;
	if (driver_start(live->execs->drivers, order->place, &spec, &live->exec, err) < 0)
		return -1;
	if (brief) {
		r = wait_briefly(live, err);
		if (r != 0)
			return r < 0 ? -1 : 0;
		if (announce_late(live, err) < 0)
			return -1;
	}
	return go_on(live, err);
}

static void forget(struct live_exec *live)
{
	if (live->log)
		runlog_close(live->log);
	if (!live->left_behind)
		shelf_remove(live->shelf, live->id, NULL);
	leave(live);
	live_exec_unref(live);
}

int execs_start(struct execs *execs, const struct exec_order *order, struct live_exec **out,
		struct error *err)
{
	struct live_exec *live = xcalloc(1, sizeof(*live));

	live->execs = execs;
	live->shelf = &execs->shelf[order->kept ? KEPT : RECENT];
	live->kill_when_left = order->kill_when_left;
	live->record = new_record(execs, order);
	id_copy(live->id, order->spec->exec_id);
	if (enlist(execs, live, err) < 0) {
		json_decref(live->record);
		free(live);
		return -1;
	}
	if (start_command(live, order, err) < 0) {
		forget(live);
		return -1;
	}
	*out = live;
	return 0;
}

/* ---- after a restart ---- */

struct recovery {
	struct execs *execs;
	struct shelf *shelf;
};

static int adopt(struct execs *execs, struct shelf *shelf, const char *id, json_t *record,
		 struct error *err)
{
	struct live_exec *live = xcalloc(1, sizeof(*live));

	live->execs = execs;
	live->shelf = shelf;
	live->adopting = true;
	live->kill_when_left = str_equal(json_str(record, "onDisconnect"), "kill");
	live->record = json_incref(record);
	id_copy(live->id, id);
	if (runlog_open(shelf->logs, id, &live->log, err) < 0 || enlist(execs, live, err) < 0) {
		if (live->log)
			runlog_close(live->log);
		json_decref(live->record);
		free(live);
		return -1;
	}
	if (start_thread(live, err) < 0) {
		runlog_close(live->log);
		leave(live);
		live_exec_unref(live);
		return -1;
	}
	live_exec_unref(live);
	return 0;
}

static int recover_one(void *arg, const char *id, int64_t changed_ms, struct error *err)
{
	struct recovery *recovery = arg;
	struct execs *execs = recovery->execs;
	_cleanup_json_ json_t *record = shelf_get(recovery->shelf, id);

	/* Not written whole: its command was never started. */
	if (!record || !json_str(record, "placeId"))
		return shelf_remove(recovery->shelf, id, err);
	if (!str_equal(json_str(record, "status"), "ended"))
		return adopt(execs, recovery->shelf, id, record, err);
	if (!recovery->shelf->durable)
		remember_recent(execs, id, changed_ms, runlog_size(recovery->shelf->logs, id),
				NULL);
	return 0;
}

int execs_recover(struct execs *execs, struct error *err)
{
	for (size_t i = 0; i < SHELVES; i++) {
		struct recovery recovery = { execs, &execs->shelf[i] };

		if (shelf_each(recovery.shelf, recover_one, &recovery, err) < 0)
			return error_wrap(err, "taking up commands");
	}
	return 0;
}

/* ---- who sits at a terminal ---- */

void execs_sit(struct execs *execs, struct exec_seat *seat, bool alone)
{
	pthread_mutex_lock(&execs->lock);
	for (struct exec_seat *s = execs->seats; alone && s; s = s->next) {
		if (!streq(s->id, seat->id))
			continue;
		s->replaced = true;
		latch_set(s->wake_fd);
	}
	seat->next = execs->seats;
	execs->seats = seat;
	pthread_mutex_unlock(&execs->lock);
}

bool exec_seat_is_replaced(struct execs *execs, const struct exec_seat *seat)
{
	pthread_mutex_lock(&execs->lock);
	bool replaced = seat->replaced;
	pthread_mutex_unlock(&execs->lock);
	return replaced;
}

size_t execs_rise(struct execs *execs, struct exec_seat *seat)
{
	struct exec_seat **p = &execs->seats;
	size_t left = 0;

	pthread_mutex_lock(&execs->lock);
	while (*p != seat)
		p = &(*p)->next;
	*p = seat->next;
	for (const struct exec_seat *s = execs->seats; s; s = s->next)
		left += streq(s->id, seat->id);
	pthread_mutex_unlock(&execs->lock);
	return left;
}

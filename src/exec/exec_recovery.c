/*
 * Commands that an earlier server started through the API: those that their relays hold, which
 * server/exec_survey.c finds, and those whose records say that they run. A relay that cannot be reached now, a
 * place or a log that cannot be opened now, a record that cannot be read now: none of them means
 * that the command is lost, so each is tried again, beside serving. Lost is what the relay or its
 * keeper says is lost, and what was in a lease that has ended.
 */
#include "exec/execs_internal.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/cond.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

#define ATTACH_MS 2000
#define RETRY_FIRST_MS 50
#define RETRY_MAX_MS 1000

/* False: the server is going. */
static bool pause_for(struct execs *execs, int64_t ms)
{
	int64_t deadline = clock_mono(execs->clock) + ms, left;

	pthread_mutex_lock(&execs->lock);
	while (!execs->stopping && (left = deadline - clock_mono(execs->clock)) > 0)
		cond_wait_until(&execs->ended, &execs->lock,
				boottime_ms() + MIN_OF(left, (int64_t)900));

	bool go_on = !execs->stopping;

	pthread_mutex_unlock(&execs->lock);
	return go_on;
}

static int open_log(struct live_exec *live, struct error *err)
{
	struct runlog *log;

	if (FAULT_HERE("exec.recover.log", err) < 0 ||
	    runlog_open(live->store->logs, live->id, &log, err) < 0)
		return -1;
	pthread_mutex_lock(&live->execs->lock);
	live->log = log;
	pthread_mutex_unlock(&live->execs->lock);
	return 0;
}

/* Everything that needs no relay; may be repeated. */
static int prepare(struct live_exec *live, struct error *err)
{
	struct execs *execs = live->execs;
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };
	struct exec_spec spec = {
		.exec_id = live->id,
		.place_id = live->place_id,
		.generation = live->generation,
		.keep_exit = true,
	};

	if (!live->log && open_log(live, err) < 0)
		return -1;
	if (live->exec)
		return 0;
	if (execs->leases &&
	    lease_open_again(execs->leases, live->lease_id, &lease, &place, err) < 0)
		return -1;
	spec.log = live->log;
	return exec_expect(execs->places, &spec, &live->exec, err);
}

static bool is_lost(const struct error *err)
{
	return err->code == ERR_LEASE_LOST || err->code == ERR_NOT_FOUND ||
	       err->code == ERR_PROCESS_LOST || err->code == ERR_LEASE_ENDED ||
	       err->code == ERR_STALE_GENERATION;
}

static void note_trouble(struct live_exec *live, const char *text)
{
	bool changed;

	pthread_mutex_lock(&live->execs->lock);
	changed = !streq(live->trouble, text);
	snprintf(live->trouble, sizeof(live->trouble), "%.199s", text);
	pthread_mutex_unlock(&live->execs->lock);
	if (changed && text[0])
		log_warn("exec %s is not followed yet: %s", live->id, text);
}

int live_exec_reach(struct live_exec *live, struct error *err)
{
	int64_t pause_ms = RETRY_FIRST_MS;
	bool going = false;

	assert(live_exec_phase(live) == EXEC_SEEKING);
	for (;;) {
		error_clear(err);
		if (prepare(live, err) == 0) {
			if (exec_attach(live->exec, ATTACH_MS, err) == 0) {
				note_trouble(live, "");
				return 0;
			}
			going = err->code == ERR_UNAVAILABLE;
		}
		if (going || (live->log && is_lost(err)))
			break;
		note_trouble(live, err->message);
		if (!pause_for(live->execs, pause_ms)) {
			error_set(err, ERR_UNAVAILABLE, "the server is going");
			break;
		}
		pause_ms = MIN_OF(pause_ms * 2, RETRY_MAX_MS);
	}
	if (live->exec)
		exec_abandon(steal(live->exec));
	return -1;
}

static int adopt(struct execs *execs, struct exec_store *store, const char *id, json_t *record,
		 struct error *err)
{
	struct live_exec *live = live_exec_new(execs, store, EXEC_SEEKING);
	_cleanup_error_ struct error later = { 0 };

	live->kill_when_left = str_equal(json_str(record, "onDisconnect"), "kill");
	live->record = json_incref(record);
	id_copy(live->id, id);
	id_copy(live->lease_id, json_str(record, "leaseId"));
	id_copy(live->place_id, json_str(record, "placeId"));
	live->generation = json_int(record, "generation", 0);
	if (live_exec_enlist(live, err) < 0) {
		live_exec_free(live);
		return -1;
	}
	/* Its place is busy and its log live before anything is served, if that can be had now. */
	prepare(live, &later);
	if (live_exec_follow(live, err) < 0) {
		if (live->exec)
			exec_abandon(live->exec);
		live_exec_move(live, EXEC_LEFT);
		if (live->log)
			runlog_close(live->log);
		live_exec_leave(live);
		live_exec_unref(live);
		return -1;
	}
	live_exec_unref(live);
	return 0;
}

int execs_take_up(struct execs *execs, const struct found_exec *found, struct error *err)
{
	_cleanup_json_ json_t *record = record_of_note(found);

	return adopt(execs, &execs->store[RECENT], found->id, record, err);
}

struct recovery {
	struct execs *execs;
	size_t store;
};

static int recover_now(struct execs *execs, struct exec_store *store, const char *id,
		       int64_t changed_ms, struct error *err)
{
	_cleanup_json_ json_t *record = NULL;

	if (FAULT_HERE("exec.recover.record", err) < 0 ||
	    exec_store_read(store, id, &record, err) < 0)
		return -1;
	/* Not written whole, with a key: its command was never started. */
	if (!record || !json_str(record, "placeId"))
		return exec_store_remove(store, id, err);
	if (!str_equal(json_str(record, "status"), "ended"))
		return adopt(execs, store, id, record, err);
	if (!store->durable)
		remember_record(execs, id, changed_ms, runlog_size(store->logs, id));
	return 0;
}

static int recover_one(void *arg, const char *id, int64_t changed_ms, struct error *err)
{
	struct recovery *recovery = arg;
	struct execs *execs = recovery->execs;
	_cleanup_error_ struct error later = { 0 };

	(void)err;
	if (recover_now(execs, &execs->store[recovery->store], id, changed_ms, &later) == 0)
		return 0;
	log_warn("exec %s is not taken up yet: %s", id, later.message);
	strv_push(&execs->later[recovery->store], xstrdup(id));
	return 0;
}

static void recover_store(struct execs *execs, size_t store)
{
	struct recovery recovery = { execs, store };
	_cleanup_error_ struct error err = { 0 };
	bool failed = FAULT_HERE("exec.recover.list", &err) < 0 ||
		      exec_store_each(&execs->store[store], recover_one, &recovery, &err) < 0;

	if (failed)
		log_warn("commands are not taken up yet: %s", err.message);
	execs->unlisted[store] = failed;
}

void execs_recover_rest(struct execs *execs)
{
	for (size_t i = 0; i < STORES; i++) {
		_cleanup_strv_ char **ids = steal(execs->later[i]);
		struct recovery recovery = { execs, i };

		if (execs->unlisted[i])
			recover_store(execs, i);
		for (char **id = ids; id && *id; id++)
			recover_one(&recovery, *id, clock_now(execs->clock), NULL);
	}
}

/* ---- what the revision before wrote of commands that had just begun ---- */

#define OLD_PAD "begun"
#define OLD_PAD_SLOT 4096
#define OLD_PAD_SLOTS 64

static int take_old_record(struct exec_store *store, const char *text, size_t len,
			   struct error *err)
{
	_cleanup_json_ json_t *record = json_parse(text, strnlen(text, len), NULL);
	const char *id = record ? json_str(record, "id") : NULL;

	/* A slot that is empty or was not written whole is no record. */
	if (!id || !id_is_valid(id) || exec_store_has(store, id))
		return 0;
	return exec_store_put(store, id, record, err);
}

/* Its slots become records as all others; the file is not needed any more. */
static int take_old_pad(struct execs *execs, struct error *err)
{
	_cleanup_close_ int fd = openat(execs->dirfd, OLD_PAD, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char slot[OLD_PAD_SLOT];

	if (fd < 0)
		return 0;
	for (off_t i = 0; i < OLD_PAD_SLOTS; i++) {
		ssize_t n = pread(fd, slot, sizeof(slot), i * OLD_PAD_SLOT);

		if (n < 0)
			return error_errno(err, errno, "cannot read " OLD_PAD);
		if (n > 0 && take_old_record(&execs->store[RECENT], slot, (size_t)n, err) < 0)
			return -1;
	}
	unlinkat(execs->dirfd, OLD_PAD, 0);
	return 0;
}

int execs_recover(struct execs *execs, struct error *err)
{
	if (take_old_pad(execs, err) < 0)
		return error_wrap(err, "taking up commands that had begun");
	for (size_t i = 0; i < STORES; i++)
		recover_store(execs, i);
	return 0;
}

#include "api/execs.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

#define MAX_RUNNING 512
#define STACK_BYTES ((size_t)256 << 10)
#define RECORD_BYTES ((size_t)8 << 10)
/* TERM, grace, KILL, and the last of the output. */
#define STOP_MS 30000

struct execs {
	const struct drivers *drivers;
	struct executor *executor;
	struct clock *clock;
	int dirfd;
	struct runlog_store *kept_logs, *scratch_logs;
	size_t max_running;

	pthread_mutex_t lock; /* a leaf */
	pthread_cond_t ended;
	struct live_exec *list; /* those whose command has not ended */
	size_t running;
	bool stopping;
};

struct live_exec {
	struct execs *execs;
	struct live_exec *next;
	char id[ID_SIZE];
	bool kept;
	struct exec *exec;
	struct runlog *log;

	int refs; /* these under execs->lock */
	struct exec_outcome outcome;
};

static int open_logs(struct execs *execs, const char *name, int64_t log_bytes,
		     struct runlog_store **store, struct error *err)
{
	_cleanup_close_ int fd = -1;

	if (dir_make(execs->dirfd, name, 0700, err) < 0 ||
	    dir_open(execs->dirfd, name, &fd, err) < 0)
		return -1;
	return runlog_store_open(fd, log_bytes, store, err);
}

int execs_new(const struct execs_options *options, struct execs **out, struct error *err)
{
	struct execs *execs = xcalloc(1, sizeof(*execs));
	pthread_condattr_t attr;

	execs->drivers = options->drivers;
	execs->executor = options->executor;
	execs->clock = options->clock;
	execs->max_running = options->max_running ? options->max_running : MAX_RUNNING;
	execs->dirfd = fcntl(options->dirfd, F_DUPFD_CLOEXEC, 3);
	pthread_mutex_init(&execs->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&execs->ended, &attr);
	pthread_condattr_destroy(&attr);
	if (execs->dirfd < 0)
		error_errno(err, errno, "cannot keep the directory of execs open");
	/* Nobody can ask for the output of an earlier server's execs without a key. */
	if (execs->dirfd < 0 || dir_remove_tree(execs->dirfd, "scratch", err) < 0 ||
	    dir_make(execs->dirfd, "kept", 0700, err) < 0 ||
	    open_logs(execs, "scratch", options->log_bytes, &execs->scratch_logs, err) < 0 ||
	    open_logs(execs, "logs", options->log_bytes, &execs->kept_logs, err) < 0) {
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
	runlog_store_close(execs->kept_logs);
	runlog_store_close(execs->scratch_logs);
	close_fdp(&execs->dirfd);
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

	pthread_mutex_lock(&execs->lock);
	execs->stopping = true;
	for (struct live_exec *live = execs->list; live; live = live->next)
		executor_cancel(execs->executor, live->id, EXEC_CANCELLED);
	while (execs->running && clock_mono(execs->clock) < deadline) {
		struct timespec soon;

		clock_gettime(CLOCK_MONOTONIC, &soon);
		soon.tv_sec++;
		pthread_cond_timedwait(&execs->ended, &execs->lock, &soon);
	}
	if (execs->running)
		log_error("%zu commands did not end", execs->running);
	pthread_mutex_unlock(&execs->lock);
}

static struct runlog_store *logs_of(struct execs *execs, bool kept)
{
	return kept ? execs->kept_logs : execs->scratch_logs;
}

static char *record_name(const char *id)
{
	return xasprintf("kept/%s", id);
}

static int record_write(struct execs *execs, const char *id, const json_t *record,
			struct error *err)
{
	_cleanup_close_ int fd = -1;
	_cleanup_free_ char *text = json_text(record);

	if (dir_open(execs->dirfd, "kept", &fd, err) < 0)
		return -1;
	return file_replace(fd, id, text, strlen(text), 0600, err);
}

static int record_running(struct execs *execs, const char *id, struct error *err)
{
	_cleanup_json_ json_t *record = json_object();

	json_put_str(record, "state", "running");
	return record_write(execs, id, record, err);
}

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

static void record_ended(struct execs *execs, const char *id, const struct exec_outcome *outcome)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *record = json_object();

	json_put_str(record, "state", "ended");
	exec_outcome_put(record, outcome);
	if (record_write(execs, id, record, &err) < 0)
		log_warn("the outcome of exec %s could not be kept: %s", id, err.message);
}

int execs_recall(struct execs *execs, const char *id, struct exec_outcome *outcome,
		 struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_free_ char *name = record_name(id);
	_cleanup_json_ json_t *record = NULL;

	if (!id_is_valid(id) || file_read(execs->dirfd, name, &text, RECORD_BYTES, NULL) < 0)
		return error_set(err, ERR_NOT_FOUND, "there is no exec %s", id);
	record = json_parse(buf_str(&text), text.len, err);
	if (!record)
		return error_wrap(err, "the record of exec %s", id);
	*outcome =
		(struct exec_outcome){ .result = { .exit_code = -1, .reason = EXEC_LEASE_LOST } };
	if (!str_equal(json_str(record, "state"), "ended")) {
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

static int prune_one(struct execs *execs, DIR *dir, const char *name, int64_t before_ms,
		     struct error *err)
{
	struct stat st;
	struct live_exec *live;

	if (!id_is_valid(name) || fstatat(dirfd(dir), name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    (int64_t)st.st_mtim.tv_sec * 1000 >= before_ms)
		return 0;
	live = execs_find(execs, name);
	if (live) {
		live_exec_unref(live);
		return 0;
	}
	/* The log first: a crash in between leaves the file, and the next time tries again. */
	if (runlog_remove(execs->kept_logs, name, err) < 0)
		return -1;
	if (unlinkat(dirfd(dir), name, 0) < 0)
		return error_errno(err, errno, "cannot remove the record of exec %s", name);
	return 1;
}

int64_t execs_prune(struct execs *execs, int64_t before_ms, struct error *err)
{
	int64_t removed = 0;
	int fd = -1, r = 0;

	if (dir_open(execs->dirfd, "kept", &fd, err) < 0)
		return -1;

	DIR *dir = fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		close(fd);
		return error_errno(err, errno, "cannot list the records of execs");
	}
	while (r >= 0 && (entry = readdir(dir))) {
		r = prune_one(execs, dir, entry->d_name, before_ms, err);
		removed += r > 0;
	}
	closedir(dir);
	return r < 0 ? -1 : removed;
}

static void live_free(struct live_exec *live)
{
	_cleanup_error_ struct error err = { 0 };

	if (!live->kept && runlog_remove(live->execs->scratch_logs, live->id, &err) < 0)
		log_warn("the output of exec %s stays until the next start: %s", live->id,
			 err.message);
	free(live);
}

void live_exec_unref(struct live_exec *live)
{
	struct execs *execs = live->execs;

	pthread_mutex_lock(&execs->lock);
	bool last = --live->refs == 0;
	pthread_mutex_unlock(&execs->lock);
	if (last)
		live_free(live);
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

void live_exec_outcome(struct live_exec *live, struct exec_outcome *outcome)
{
	pthread_mutex_lock(&live->execs->lock);
	*outcome = live->outcome;
	pthread_mutex_unlock(&live->execs->lock);
}

int execs_read(struct execs *execs, const struct live_exec *live, const char *id,
	       struct runlog_reader **reader, struct error *err)
{
	return runlog_reader_open(logs_of(execs, !live || live->kept), id, 0, reader, err);
}

static int enlist(struct execs *execs, struct live_exec *live, struct error *err)
{
	int r = 0;

	pthread_mutex_lock(&execs->lock);
	if (execs->stopping)
		r = error_set(err, ERR_UNAVAILABLE, "the server is stopping");
	else if (execs->running == execs->max_running)
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
 * exec stays on the list until its file has it, so that it is always found in one of the two.
 */
static void *wait_for_end(void *arg)
{
	struct live_exec *live = arg;
	struct execs *execs = live->execs;
	struct exec_outcome outcome = { 0 };
	_cleanup_error_ struct error err = { 0 };

	if (exec_wait(live->exec, &outcome.result, &err) < 0)
		snprintf(outcome.error, sizeof(outcome.error), "%.200s", err.message);
	if (live->kept)
		record_ended(execs, live->id, &outcome);
	pthread_mutex_lock(&execs->lock);
	live->outcome = outcome;
	pthread_mutex_unlock(&execs->lock);
	runlog_close(live->log);
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

static int start_command(struct live_exec *live, const struct place *place,
			 const struct exec_spec *spec, struct error *err)
{
	struct execs *execs = live->execs;
	struct exec_spec with_log = *spec;

	if (live->kept && record_running(execs, live->id, err) < 0)
		return -1;
	if (runlog_open(logs_of(execs, live->kept), live->id, &live->log, err) < 0)
		return -1;
	with_log.log = live->log;
	if (driver_start(execs->drivers, place, &with_log, &live->exec, err) < 0)
		return -1;
	if (start_thread(live, err) < 0) {
		struct exec_result result;

		executor_cancel(execs->executor, live->id, EXEC_CANCELLED);
		exec_wait(live->exec, &result, NULL);
		return -1;
	}
	return 0;
}

static void forget(struct live_exec *live)
{
	_cleanup_free_ char *name = record_name(live->id);

	if (live->log)
		runlog_close(live->log);
	if (live->kept) {
		runlog_remove(live->execs->kept_logs, live->id, NULL);
		unlinkat(live->execs->dirfd, name, 0);
	}
	leave(live);
	live_exec_unref(live);
}

int execs_start(struct execs *execs, const struct place *place, const struct exec_spec *spec,
		bool kept, struct live_exec **out, struct error *err)
{
	struct live_exec *live = xcalloc(1, sizeof(*live));

	live->execs = execs;
	live->kept = kept;
	id_copy(live->id, spec->exec_id);
	if (enlist(execs, live, err) < 0) {
		free(live);
		return -1;
	}
	if (start_command(live, place, spec, err) < 0) {
		forget(live);
		return -1;
	}
	*out = live;
	return 0;
}

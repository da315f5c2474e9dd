#include "db/sqlite_writer.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include "base/mem.h"
#include "db/sqlite_conn.h"

/*
 * Enough to share an fsync among everybody who waits, few enough that the first of them does not
 * wait long for the last.
 */
#define BATCH_MAX 64
#define CHECKPOINTER_STACK (256u << 10)
/* When the WAL is emptied: writing over an old one costs a commit less than making it longer. */
#define WAL_PAGES 2000
/* How long a reader may keep the WAL from beginning anew before we go on without. */
#define READERS_WAIT_MS 20

static const struct sql BEGIN = { "BEGIN", "BEGIN IMMEDIATE", NULL };
static const struct sql COMMIT = { "COMMIT", "COMMIT", NULL };
static const struct sql ROLLBACK = { "ROLLBACK", "ROLLBACK", NULL };
static const struct sql SAVEPOINT = { "SAVEPOINT", "SAVEPOINT job", NULL };
static const struct sql RELEASE = { "RELEASE", "RELEASE SAVEPOINT job", NULL };
static const struct sql ROLLBACK_TO = { "ROLLBACK_TO", "ROLLBACK TO SAVEPOINT job", NULL };

/* Lives on the stack of the thread that waits for it. */
struct job {
	enum db_promise promise;
	db_fn *fn;
	void *arg;
	struct error *err;
	int result;
	bool leads;    /* woken to run a batch, not because it is done */
	sem_t settled; /* done, or to lead */
	struct job *next;
};

struct sqlite_writer {
	atomic_uint_fast64_t commits;
	/* The leader's, which changes hands under the lock. */
	struct sqlite_conn *conn;
	struct sqlite_readers readers;
	enum db_promise promise; /* of the batch that runs */
	enum db_promise setting; /* PRAGMA synchronous, as it is */
	int wal_pages;           /* after the last commit */
	int checkpoint_at;       /* as many of them; 0: not by us */
	int failure;             /* why a commit failed that no checkpoint followed; 0: none */

	pthread_t checkpointer;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t changed;
	bool led;            /* somebody has the connection */
	bool checkpoint_due; /* before the next batch */
	struct job *first;
	struct job **last;
	bool stopping;
	struct sqlite_writer_stats stats;
};

struct batch {
	struct job *jobs[BATCH_MAX];
	size_t count;
};

static struct job *pop(struct sqlite_writer *w)
{
	struct job *job = w->first;
	if (job) {
		w->stats.queued--;
		w->first = job->next;
		if (!w->first)
			w->last = &w->first;
	}
	return job;
}

/* The next that can share the transaction: one with an fsync is good enough for everybody. */
static struct job *next_job(struct sqlite_writer *w, bool begins)
{
	pthread_mutex_lock(&w->lock);
	bool fits =
		w->first && (begins || w->promise == DB_DURABLE || w->first->promise == w->promise);
	struct job *job = fits ? pop(w) : NULL;
	pthread_mutex_unlock(&w->lock);
	return job;
}

/* The job's memory belongs to its thread again as soon as it is posted. */
static void answer(struct job *job, int result)
{
	job->result = result;
	sem_post(&job->settled);
}

static void refuse(struct job *job, const struct error *why)
{
	error_set(job->err, why->code, "%s", why->message);
	answer(job, -1);
}

static void roll_back(struct sqlite_conn *conn)
{
	if (!sqlite_conn_lost_transaction(conn))
		sqlite_conn_control(conn, &ROLLBACK, NULL);
}

static int run_closure(struct sqlite_writer *w, struct job *job)
{
	pthread_mutex_lock(&w->lock);
	w->stats.jobs++;
	pthread_mutex_unlock(&w->lock);

	int r = tx_run(&w->conn->tx, job->fn, job->arg, job->err);
	sqlite_conn_end_cursors(w->conn);
	return r;
}

/* Empties the WAL, so that it begins anew; waits so long for those who read from it. */
static int checkpoint(struct sqlite_writer *w, int wait_ms)
{
	struct sqlite_conn *conn = w->conn;
	int rc;

	if (w->readers.leave)
		w->readers.leave(w->readers.arg);
	sqlite3_busy_timeout(conn->handle, wait_ms);
	rc = sqlite3_wal_checkpoint_v2(conn->handle, NULL, SQLITE_CHECKPOINT_RESTART, NULL, NULL);
	sqlite3_busy_timeout(conn->handle, conn->busy_timeout_ms);
	if (w->readers.stay)
		w->readers.stay(w->readers.arg);
	if (rc == SQLITE_OK) {
		w->wal_pages = 0;
		w->failure = 0;
	} else if ((rc & 0xff) == SQLITE_IOERR) {
		w->failure = SQLITE_IOERR;
	}
	return rc;
}

/*
 * A sync that fails makes the kernel forget which pages are not on the disk yet. Frames of earlier
 * commits that were never synced may be among them: they are still read, but a commit behind them
 * would be cut off after a power loss, however well it was synced itself. The database and a WAL
 * that begins anew stand on none of them.
 */
static int mend(struct sqlite_writer *w, struct error *err)
{
	bool must = w->failure == SQLITE_IOERR;

	if (checkpoint(w, must ? w->conn->busy_timeout_ms : READERS_WAIT_MS) == SQLITE_OK || !must)
		return 0;
	sqlite_conn_error(w->conn, err);
	return error_wrap(err, "an earlier write did not reach the disk, and the database must "
			       "be brought in order before the next one");
}

/* Not inside a transaction, and not by a kept statement: SQLite acts when it reads the text. */
static int set_promise(struct sqlite_writer *w, struct error *err)
{
	const char *text = w->promise == DB_DURABLE ? "PRAGMA synchronous = FULL"
						    : "PRAGMA synchronous = NORMAL";

	if (w->setting == w->promise)
		return 0;
	if (sqlite_exec_text(&w->conn->tx, text, err) < 0)
		return -1;
	w->setting = w->promise;
	return 0;
}

static int begin(struct sqlite_writer *w, struct error *err)
{
	if (w->failure && w->promise == DB_DURABLE && !FENCE_OFF("store.mend") && mend(w, err) < 0)
		return -1;
	if (set_promise(w, err) < 0)
		return -1;
	return sqlite_conn_control(w->conn, &BEGIN, err);
}

static int commit(struct sqlite_writer *w, struct error *err)
{
	int r = sqlite_conn_control(w->conn, &COMMIT, err);

	if (r == 0) {
		atomic_fetch_add(&w->commits, 1);
		return 0;
	}
	if (w->failure != SQLITE_IOERR)
		w->failure = sqlite3_errcode(w->conn->handle) & 0xff;
	roll_back(w->conn);
	return r;
}

static void run_alone(struct sqlite_writer *w, struct job *job)
{
	int r = begin(w, job->err);
	if (r < 0) {
		answer(job, r);
		return;
	}
	r = run_closure(w, job);
	if (r == 0)
		r = commit(w, job->err);
	else
		roll_back(w->conn);
	answer(job, r);
}

/*
 * The first of a batch, which mostly is alone: to undo it is to undo the transaction. SQLite keeps
 * a copy of every page that changes within a savepoint, which is saved here.
 */
static bool run_first(struct sqlite_writer *w, struct job *job)
{
	int r = run_closure(w, job);

	if (r == 0)
		return true;
	roll_back(w->conn);
	answer(job, r);
	return false;
}

enum outcome { KEPT, UNDONE, TRANSACTION_LOST };

static enum outcome run_in_savepoint(struct sqlite_writer *w, struct job *job)
{
	struct sqlite_conn *conn = w->conn;
	job->result = sqlite_conn_control(conn, &SAVEPOINT, job->err);
	if (job->result < 0)
		return sqlite_conn_lost_transaction(conn) ? TRANSACTION_LOST : UNDONE;

	job->result = run_closure(w, job);
	if (job->result == 0)
		job->result = sqlite_conn_control(conn, &RELEASE, job->err);
	if (job->result == 0)
		return KEPT;

	/*
	 * A full disk, an I/O error or a lack of memory makes SQLite roll everything back,
	 * savepoints included; what comes next would run outside any transaction.
	 */
	if (sqlite_conn_lost_transaction(conn) ||
	    sqlite_conn_control(conn, &ROLLBACK_TO, NULL) < 0 ||
	    sqlite_conn_control(conn, &RELEASE, NULL) < 0)
		return TRANSACTION_LOST;
	return UNDONE;
}

/*
 * The work of the whole batch is gone. The job that lost it has its answer; all others run again,
 * also those that had failed, since they may have failed over work that now does not exist.
 */
static void run_again(struct sqlite_writer *w, struct batch *batch, struct job *culprit)
{
	roll_back(w->conn);
	for (size_t i = 0; i < batch->count; i++) {
		if (batch->jobs[i] != culprit)
			run_alone(w, batch->jobs[i]);
	}
	answer(culprit, -1);
}

static void commit_batch(struct sqlite_writer *w, struct batch *batch)
{
	_cleanup_error_ struct error why = { 0 };
	if (commit(w, &why) < 0) {
		for (size_t i = 0; i < batch->count; i++)
			refuse(batch->jobs[i], &why);
		return;
	}
	for (size_t i = 0; i < batch->count; i++)
		answer(batch->jobs[i], batch->jobs[i]->result);
}

/*
 * A foreign lock has been waited for long enough, also on behalf of those queued meanwhile; whoever
 * comes now waits on his own.
 */
static void refuse_queue(struct sqlite_writer *w, struct job *first, const struct error *why)
{
	pthread_mutex_lock(&w->lock);
	struct job *waiting = w->first;
	w->first = NULL;
	w->last = &w->first;
	w->stats.queued = 0;
	pthread_mutex_unlock(&w->lock);

	refuse(first, why);
	while (waiting) {
		struct job *job = waiting;
		waiting = job->next;
		refuse(job, why);
	}
}

static void run_batch(struct sqlite_writer *w, struct job *first)
{
	_cleanup_error_ struct error why = { 0 };
	w->promise = first->promise;
	if (begin(w, &why) < 0) {
		refuse_queue(w, first, &why);
		return;
	}
	if (!run_first(w, first))
		return;
	struct batch batch = { .jobs = { first }, .count = 1 };
	while (batch.count < BATCH_MAX) {
		struct job *job = next_job(w, false);

		if (!job)
			break;
		batch.jobs[batch.count++] = job;
		if (run_in_savepoint(w, job) == TRANSACTION_LOST) {
			run_again(w, &batch, job);
			return;
		}
	}
	commit_batch(w, &batch);
}

/*
 * The connection goes to whoever waits for it, first of all to empty the WAL. Mostly that is
 * nobody: waking the checkpointer to find that out would cost each commit two changes of threads.
 */
static void hand_over_locked(struct sqlite_writer *w)
{
	struct job *next = w->checkpoint_due ? NULL : w->first;

	w->led = next != NULL;
	if (next) {
		next->leads = true;
		sem_post(&next->settled);
	} else if (w->checkpoint_due || w->stopping) {
		pthread_cond_broadcast(&w->changed);
	}
}

/* The first in the queue is the caller's own job; those behind it come along. */
static void lead(struct sqlite_writer *w)
{
	run_batch(w, next_job(w, true));
	pthread_mutex_lock(&w->lock);
	w->checkpoint_due |=
		!w->stopping && w->checkpoint_at > 0 && w->wal_pages >= w->checkpoint_at;
	hand_over_locked(w);
	pthread_mutex_unlock(&w->lock);
}

/* The jobs it delays are those of a few milliseconds of writing. */
static void checkpoint_locked(struct sqlite_writer *w)
{
	w->led = true;
	pthread_mutex_unlock(&w->lock);
	checkpoint(w, READERS_WAIT_MS);
	/* A long reader, or a disk that is full: tried again when there is as much more. */
	w->checkpoint_at = w->wal_pages + WAL_PAGES;
	pthread_mutex_lock(&w->lock);
	w->checkpoint_due = false;
	hand_over_locked(w);
}

static void *checkpointer_main(void *arg)
{
	struct sqlite_writer *w = arg;

	pthread_mutex_lock(&w->lock);
	while (!w->stopping) {
		if (w->checkpoint_due && !w->led)
			checkpoint_locked(w);
		else
			pthread_cond_wait(&w->changed, &w->lock);
	}
	/* Whoever made way for it must not wait for ever. */
	w->checkpoint_due = false;
	if (!w->led)
		hand_over_locked(w);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static int note_pages(void *arg, sqlite3 *handle, const char *schema, int pages)
{
	struct sqlite_writer *w = arg;
	(void)handle;
	(void)schema;
	w->wal_pages = pages;
	return SQLITE_OK;
}

void sqlite_writer_checkpoints(struct sqlite_writer *w, const struct sqlite_readers *readers)
{
	w->readers = *readers;
	w->checkpoint_at = WAL_PAGES;
	/* In place of SQLite's own, which is the same hook. */
	sqlite3_wal_hook(w->conn->handle, note_pages, w);
	/* A server before this one may have had a sync that failed, and ended with it. */
	checkpoint(w, READERS_WAIT_MS);
}

int sqlite_writer_start(struct sqlite_writer **out, struct sqlite_conn *conn, struct error *err)
{
	struct sqlite_writer *w = xcalloc(1, sizeof(*w));
	w->conn = conn;
	w->last = &w->first;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);

	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, CHECKPOINTER_STACK);
	int r = pthread_create(&w->checkpointer, &attr, checkpointer_main, w);
	pthread_attr_destroy(&attr);
	if (r != 0) {
		pthread_mutex_destroy(&w->lock);
		pthread_cond_destroy(&w->changed);
		free(w);
		return error_errno(err, r, "cannot start the database's checkpoints");
	}
	*out = w;
	return 0;
}

void sqlite_writer_stop(struct sqlite_writer *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stopping = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->checkpointer, NULL);
	pthread_mutex_lock(&w->lock);
	while (w->led || w->first)
		pthread_cond_wait(&w->changed, &w->lock);
	pthread_mutex_unlock(&w->lock);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->changed);
	free(w);
}

/* True: the connection is the caller's, to run the batch that begins with this job. */
static bool enqueue_locked(struct sqlite_writer *w, struct job *job)
{
	bool leads = !w->led && !w->checkpoint_due;

	*w->last = job;
	w->last = &job->next;
	w->stats.queued++;
	w->led |= leads;
	return leads;
}

/*
 * No deadline of its own: the closure may be running on this frame's memory. The leader's waits are
 * bounded by the busy timeout, and it answers every job.
 */
static void wait_settled(struct job *job)
{
	while (sem_wait(&job->settled) < 0 && errno == EINTR)
		continue;
}

int sqlite_writer_run(struct sqlite_writer *w, enum db_promise promise, db_fn *fn, void *arg,
		      struct error *err)
{
	struct job job = { .promise = promise, .fn = fn, .arg = arg, .err = err };
	bool leads = false;

	pthread_mutex_lock(&w->lock);
	if (w->stopping) {
		pthread_mutex_unlock(&w->lock);
		return error_set(err, ERR_UNAVAILABLE, "the database is being closed");
	}
	sem_init(&job.settled, 0, 0);
	leads = enqueue_locked(w, &job);
	pthread_mutex_unlock(&w->lock);

	if (!leads) {
		wait_settled(&job);
		leads = job.leads;
	}
	if (leads) {
		lead(w);
		wait_settled(&job);
	}
	sem_destroy(&job.settled);
	return job.result;
}

uint64_t sqlite_writer_commits(struct sqlite_writer *w)
{
	return atomic_load(&w->commits);
}

void sqlite_writer_stats(struct sqlite_writer *w, struct sqlite_writer_stats *stats)
{
	pthread_mutex_lock(&w->lock);
	*stats = w->stats;
	pthread_mutex_unlock(&w->lock);
	stats->commits = sqlite_writer_commits(w);
}

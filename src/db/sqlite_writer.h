/*
 * All writing to a SQLite database, one transaction at a time. Jobs that are queued while one runs
 * share the next transaction and so an fsync: each but the first runs in a savepoint of its own,
 * and the transaction is committed as soon as the queue is empty. A job gets its answer after the
 * commit. Jobs that are to be kept only while the machine is up share a transaction without an
 * fsync, until one comes that needs it.
 *
 * There is no thread that writes: whoever comes first leads, runs the jobs of all who came
 * meanwhile, and hands the connection to the first who waits. Who comes alone, which is the rule,
 * is not kept waiting for another thread to wake up.
 *
 * A thread of its own empties the WAL into the file, between two transactions: done in the middle
 * of a commit, as SQLite would, it makes somebody wait, and the WAL begins anew only in a moment
 * without readers, which a busy server does not have by itself.
 *
 * Which commits wait for the disk is PRAGMA synchronous: NORMAL for a batch in which every job is
 * DB_NO_FSYNC, FULL for every other. A FULL commit syncs the whole WAL, so that what was committed
 * before it is on the disk as well. After a commit that failed the WAL is emptied before the next
 * durable one begins, and durable jobs are refused until that has succeeded.
 */
#pragma once

#include "db/engine.h"

struct sqlite_conn;
struct sqlite_writer;

/*
 * Readers must be out of the WAL for it to begin anew: `leave` has them go and keeps them from
 * staying, `stay` allows it again. Both are called while nobody writes.
 */
struct sqlite_readers {
	void (*leave)(void *arg);
	void (*stay)(void *arg);
	void *arg;
};
/* From now on; before the first job, on a connection in WAL mode. */
void sqlite_writer_checkpoints(struct sqlite_writer *writer, const struct sqlite_readers *readers);

/* Borrows conn until sqlite_writer_stop. */
int sqlite_writer_start(struct sqlite_writer **writer, struct sqlite_conn *conn, struct error *err);
void sqlite_writer_stop(struct sqlite_writer *writer); /* after the queued jobs; NULL is fine */

/* Runs fn, on this thread or another, and waits for the commit. */
int sqlite_writer_run(struct sqlite_writer *writer, enum db_promise promise, db_fn *fn, void *arg,
		      struct error *err);

/* Transactions made durable so far; counted before the jobs in one get their answers. */
uint64_t sqlite_writer_commits(struct sqlite_writer *writer);

struct sqlite_writer_stats {
	uint64_t jobs;    /* closures run, again counted again */
	uint64_t commits; /* sqlite_writer_commits */
	size_t queued;    /* waiting now */
};
void sqlite_writer_stats(struct sqlite_writer *writer, struct sqlite_writer_stats *stats);

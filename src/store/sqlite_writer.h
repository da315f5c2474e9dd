/*
 * The one thread that writes a SQLite database. Jobs that are queued while it works share a
 * transaction and so an fsync: each runs in a savepoint of its own, and the transaction is
 * committed as soon as the queue is empty. A job gets its answer after the commit.
 */
#pragma once

#include "store/engine.h"

struct sqlite_conn;
struct sqlite_writer;

/* Borrows conn until sqlite_writer_stop. */
int sqlite_writer_start(struct sqlite_writer **writer, struct sqlite_conn *conn, struct error *err);
void sqlite_writer_stop(struct sqlite_writer *writer); /* after the queued jobs; NULL is fine */

/* Runs fn on the writer's thread and waits for the commit. */
int sqlite_writer_run(struct sqlite_writer *writer, db_fn *fn, void *arg, struct error *err);

/* Transactions made durable so far; counted before the jobs in one get their answers. */
uint64_t sqlite_writer_commits(struct sqlite_writer *writer);

struct sqlite_writer_stats {
	uint64_t jobs;    /* closures run, again counted again */
	uint64_t commits; /* sqlite_writer_commits */
	size_t queued;    /* waiting now */
};
void sqlite_writer_stats(struct sqlite_writer *writer, struct sqlite_writer_stats *stats);

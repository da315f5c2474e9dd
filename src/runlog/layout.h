/*
 * How a log lies on disk, and who has one open in this process. Private to runlog/.
 *
 * Logs fan out over directories named by two bytes of their names, the first or, of identifiers
 * that begin with their time, the last, so that 100,000 of them stay quick to find and to list:
 * `ab/abc.data`, `ab/abc.index`. The index makes a log exist:
 * it is created last and removed first. The data is cut into segments of 64 MiB, and files that
 * nobody writes any more are compressed: log_file.h has the names.
 *
 * A record is 32 bytes, little-endian: u64 end, u64 stdout, u64 stderr, u64 time << 8 | stream.
 * Each carries the totals of all streams (the PTY's is what the other two leave of `end`), so any
 * record alone places its chunk in the log and in its stream, and finding an offset is a binary
 * search. 32 divides the page size: a record never lies across two pages, hence a reader that sees
 * the file's new length sees the whole record.
 *
 * A record with RECORD_MARK is the truncation mark: it has no data, and its totals count what was
 * not kept. The first one is written when the first byte is dropped, another when the writer closes
 * and more was dropped since; nothing but marks can follow a mark.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include "runlog/runlog.h"

#define RECORD_SIZE 32
#define RECORD_MARK 0x80

struct record {
	int64_t end; /* bytes of all streams, this chunk included */
	int64_t out, err;
	int64_t time_ms;
	uint8_t stream;
	bool mark;
};

void record_encode(const struct record *record, unsigned char out[RECORD_SIZE]);
/* False for bytes that no writer wrote: the rest of an interrupted write. */
bool record_decode(const unsigned char in[RECORD_SIZE], struct record *record);
int64_t record_stream_total(const struct record *record, uint8_t stream);
struct source;
/* 1 read, 0 not there or not a record, -1. */
int record_read(struct source *index, int64_t number, struct record *record, struct error *err);

/* The sound end of a log: what readers may rely on and where the writer goes on. */
struct log_tail {
	int64_t records;    /* sound ones */
	int64_t kept;       /* bytes of data they cover */
	struct record last; /* zero for an empty log */
};
int log_tail_find(struct source *index, int64_t data_size, struct log_tail *tail,
		  struct error *err);

#define FAN_SIZE 3
void log_fan(const char *name, char fan[FAN_SIZE]);
int log_name_check(const char *name, struct error *err);
enum log_file { LOG_DATA, LOG_INDEX };
/* To write, plain. With O_CREAT in flags makes the directory as well. */
int log_file_open(struct runlog_store *store, const char *name, enum log_file which,
		  int64_t segment, int flags, int *fd, struct error *err);
/* Brings back the plain form of what a writer goes on with; see archive.c. */
int log_unpack(struct runlog_store *store, const char *name, enum log_file which, int64_t segment,
	       struct error *err);
/* Its data files from the last down to this segment, in every form. */
int log_data_remove(struct runlog_store *store, const char *name, int64_t from, struct error *err);

/* One reader waiting for more; lives inside struct runlog_reader. */
struct follower {
	int event_fd; /* -1: it does not wait yet */
	struct follower *next, *prev;
};

/* A log somebody in this process has open. Lock order: store, then topic. */
struct log_state {
	struct runlog_store *store;
	struct log_state *next;
	int refs; /* under the store's lock */
	pthread_mutex_t lock;
	bool claimed; /* by a writer, or by whoever removes the log */
	bool live;    /* a writer is appending */
	struct memory_log
		*held; /* its bytes, while they are in no file; holds a reference to this */
	int64_t end;   /* bytes so far, kept or not; atomic, of the writer that has it */
	struct follower *followers;
	char name[];
};

struct runlog_store {
	pthread_mutex_t lock;
	int refs; /* the owner's and one per topic: readers may outlive runlog_store_close */
	int dirfd;
	int64_t max_bytes;
	int64_t segment_bytes;
	_Atomic(int64_t) memory_log_bytes; /* of all logs that are in memory */
	atomic_bool closed;
	struct log_state *topics[64];
};

struct log_state *log_state_get(struct runlog_store *store, const char *name);
void log_state_put(struct log_state *topic);
int log_state_claim(struct log_state *topic, struct error *err); /* ERR_CONFLICT when it is taken */
void log_state_unclaim(struct log_state *topic);
void log_state_set_live(struct log_state *topic, bool live); /* tells the followers */
bool log_state_is_live(struct log_state *topic);
void log_state_follow(struct log_state *topic, struct follower *follower);
/* From now on it has an event. */
int log_state_watch(struct log_state *topic, struct follower *follower, struct error *err);
void log_state_unfollow(struct log_state *topic, struct follower *follower);
void log_state_wake(struct log_state *topic);
/* From here on until log_state_release the log is in memory, and stays there when its writer closes. */
void log_state_hold(struct log_state *topic, struct memory_log *held);
/* moved: its bytes are in files now; else it is gone. False when it was not in memory. */
bool log_state_release(struct log_state *topic, bool moved);
/* A reference of the caller's, or NULL: it is in files, if anywhere. */
struct memory_log *log_state_held(struct log_state *topic);

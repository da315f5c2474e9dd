/*
 * Append-only output logs with byte offsets.
 *
 * A log is a pair of files: `<name>.data` holds the payload bytes of all streams in arrival order,
 * `<name>.index` fixed-size records {end offset, stream, time} that cut the data into chunks. Data
 * beyond 64 MiB goes on in `<name>.data-1` and so forth, with offsets going on; what is finished is
 * compressed by runlog_pack and read as before. An offset counts payload bytes of both streams; a
 * chunk also knows its offset within its own stream. Data is written before its index record, so
 * after a crash a reader sees a prefix and the writer cuts the ragged end when it opens the log
 * again.
 *
 * One writer per log; any number of readers, in any thread, before, during and after. Readers never
 * slow the writer down.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/error.h"

enum runlog_stream { RUNLOG_STDOUT = 1, RUNLOG_STDERR = 2, RUNLOG_PTY = 3 };

struct runlog_store; /* all logs below one directory */
struct runlog;       /* a writer */
struct runlog_reader;

/* dirfd is duplicated. max_bytes bounds each log (0: no bound): past it output is counted, not
 * kept, and the reader meets one truncation mark. */
int runlog_store_open(int dirfd, int64_t max_bytes, struct runlog_store **store, struct error *err);
void runlog_store_close(struct runlog_store *store);
/* How many bytes a file of data holds, instead of 64 MiB: for tests, before anything is opened. */
void runlog_store_set_segment(struct runlog_store *store, int64_t bytes);
/* Every log that is being written, and how many bytes it has. fn may only take notes. */
typedef void runlog_live_fn(void *arg, const char *name, int64_t end);
void runlog_each_live(struct runlog_store *store, runlog_live_fn *fn, void *arg);

/* Opens for appending, creating it if absent; name is one path segment without a leading dot, at
 * most 200 bytes (ERR_BAD_PATH). ERR_CONFLICT while another writer has it. */
int runlog_open(struct runlog_store *store, const char *name, struct runlog **log,
		struct error *err);
/*
 * The same, but a log that is new stays in memory while it is short, or until runlog_make: most
 * commands say little, and files that are read once cost more than the command. Readers see no
 * difference. One that is closed before stays until runlog_remove, an empty one is gone; all are
 * with the process, so what only such a log has must not be acknowledged to anybody.
 */
int runlog_open_later(struct runlog_store *store, const char *name, struct runlog **log,
		      struct error *err);
/* The same for a name that was made a moment ago: nothing is looked for. */
int runlog_open_new(struct runlog_store *store, const char *name, struct runlog **log,
		    struct error *err);
/* On return it is in files, and goes on there. */
int runlog_make(struct runlog *log, struct error *err);
int runlog_append(struct runlog *log, enum runlog_stream stream, const void *data, size_t len,
		  int64_t now_ms, struct error *err);
int64_t runlog_end(const struct runlog *log); /* bytes so far, kept or not */
/* On return everything so far is on the disk, in files. */
int runlog_sync(struct runlog *log, struct error *err);
/* No more output will come: followers see the end. Frees the writer. */
void runlog_close(struct runlog *log);

struct runlog_chunk {
	enum runlog_stream stream;
	int64_t offset;        /* of data[0] in the whole log */
	int64_t stream_offset; /* of data[0] in its stream */
	int64_t time_ms;
	size_t len;
	const char *data; /* until the next call */
	bool truncated;   /* output behind this point was not kept */
};
/* A log that does not exist is ERR_NOT_FOUND. `since` past the end waits there or ends. */
int runlog_reader_open(struct runlog_store *store, const char *name, int64_t since,
		       struct runlog_reader **reader, struct error *err);
/* 1: a chunk (at most max bytes; chunks are split, never merged over streams); 0: nothing more now;
 * -1. */
int runlog_read(struct runlog_reader *reader, size_t max, struct runlog_chunk *chunk,
		struct error *err);
/*
 * For readers who want only the bytes, of all streams as they came: where the next ones lie in the
 * file of the data, which stays the reader's. At most max of them; as runlog_read otherwise. len 0
 * with 1 is the truncation mark.
 */
struct runlog_stretch {
	int fd;
	int64_t offset, len;
};
int runlog_read_stretch(struct runlog_reader *reader, int64_t max, struct runlog_stretch *stretch,
			struct error *err);
/* True while a writer has the log open or something is still unread, that is, while 0 from
 * runlog_read may become 1 later: a loop of "read; when 0 and not live, stop" misses nothing. */
bool runlog_is_live(struct runlog_reader *reader);
/*
 * Becomes readable when there may be something new or the writer closed; clear it before reading.
 * -1: there are no descriptors left, of a log that was not being written when it was opened.
 */
int runlog_reader_event(struct runlog_reader *reader);
void runlog_reader_close(struct runlog_reader *reader);

/*
 * Compresses what is finished: of a log that has ended everything, unless it is too small to gain
 * by it; of one that is being written the segments its writer has left behind. Killed at any point
 * it leaves the log whole. ERR_CANCELLED once *stop (may be NULL) is set; again is fine.
 */
int runlog_pack(struct runlog_store *store, const char *name, const atomic_bool *stop,
		struct error *err);
/* Absence is success; ERR_CONFLICT while it is being written or compressed. Open readers read on to
 * the end of their segment. */
int runlog_remove(struct runlog_store *store, const char *name, struct error *err);
/* As runlog_end; -1: no such log. */
int64_t runlog_size(struct runlog_store *store, const char *name);
/* The same of a log that has no writer, and on return all of it is on the disk. */
int64_t runlog_settle(struct runlog_store *store, const char *name, struct error *err);
/*
 * How many bytes are missing of a log that had so many when its end was recorded: some when the
 * machine went down before they were on the disk. 0 when that cannot be found out now.
 */
int64_t runlog_missing(struct runlog_store *store, const char *name, int64_t recorded);

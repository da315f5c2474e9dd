/*
 * The files of a log as they are read: segments of its data and its index, plain or packed. Private
 * to runlog/.
 *
 * Byte n of a log lies in segment n / segment_bytes: `abc.data` is the first, then `abc.data-1`,
 * `abc.data-2` ... A packed file has `.zst` behind its name and the plain one is gone; while both
 * are there (somebody was killed in between) the plain one counts. Segments are packed in ascending
 * order and the index last, so a log of which anything is packed has its first segment packed.
 */
#pragma once

#include "runlog/layout.h"
#include "runlog/memory_log.h"
#include "runlog/pack.h"

struct source {
	int fd;                  /* plain; -1: it is one of the others, or nothing is open */
	struct pack *pack;       /* or NULL */
	struct memory_log *held; /* or NULL; a reference */
	enum log_file which;
};
#define SOURCE_NONE ((struct source){ .fd = -1 })
void source_close(struct source *source);
#define _cleanup_source_ _cleanup_(source_close)
/* ERR_NOT_FOUND. The index has only segment 0. */
int source_open(struct runlog_store *store, const char *name, enum log_file which, int64_t segment,
		struct source *source, struct error *err);
int64_t source_size(const struct source *source, struct error *err); /* -1 */
/* As pread, but gives less only at the end. */
ssize_t source_read(struct source *source, void *buf, size_t len, int64_t offset,
		    struct error *err);
/* What is in memory; takes the reference. */
struct source source_of_memory(struct memory_log *held, enum log_file which);

enum log_form { FORM_PLAIN, FORM_PACKED, FORM_HALF }; /* HALF: being packed or unpacked */
/* The path below the store's directory; free it. */
char *log_path(const char *name, enum log_file which, int64_t segment, enum log_form form);
bool log_file_exists(struct runlog_store *store, const char *name, enum log_file which,
		     int64_t segment, enum log_form form);
/* Bytes of data there are: all segments up to the first that is not full. -1. */
int64_t log_data_size(struct runlog_store *store, const char *name, struct error *err);

/*
 * What is written down of execs: a file each, beside their logs. It is there before the command
 * starts, with everything a later server needs to take the exec up again, and gets the outcome when
 * it has ended. A durable shelf survives a crash of the machine; the other only one of the server,
 * which is as long as the exec itself lives, and costs a few microseconds.
 */
#pragma once

#include "base/json.h"
#include "runlog/runlog.h"

struct shelf {
	int dirfd; /* of the records */
	struct runlog_store *logs;
	bool durable;
};
#define SHELF_NONE ((struct shelf){ .dirfd = -1 })

/* `records` and `logs` are directories below dirfd, made if absent. */
int shelf_open(struct shelf *shelf, int dirfd, const char *records, const char *logs,
	       int64_t log_bytes, bool durable, struct error *err);
void shelf_close(struct shelf *shelf);

/* A record that was not there. */
int shelf_put(struct shelf *shelf, const char *id, const json_t *record, struct error *err);
/* A record in the place of a shorter one. */
int shelf_replace(struct shelf *shelf, const char *id, const json_t *record, struct error *err);
/* *record is NULL when there is none, or none that was written whole. -1: it cannot be read now. */
int shelf_read(struct shelf *shelf, const char *id, json_t **record, struct error *err);
/* The same where that is no different from none. */
json_t *shelf_get(struct shelf *shelf, const char *id);
bool shelf_has(struct shelf *shelf, const char *id); /* written whole or not */
/* The log first: a crash in between leaves the record, and the next time tries again. */
int shelf_remove(struct shelf *shelf, const char *id, struct error *err);
/* The record alone. */
int shelf_strike(struct shelf *shelf, const char *id, struct error *err);
/* Every record with the time of its last change, oldest first; -1 from `visit` ends it. */
typedef int shelf_visit_fn(void *arg, const char *id, int64_t changed_ms, struct error *err);
int shelf_each(struct shelf *shelf, shelf_visit_fn *visit, void *arg, struct error *err);

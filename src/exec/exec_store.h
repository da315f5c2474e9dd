/*
 * Records of execs: a file each, beside their logs. A record is written when the exec has ended;
 * before that its relay knows everything about it. It is there while the exec runs only where no
 * relay holds the exec's note, and where the exec has an Idempotency-Key. A durable store survives
 * a crash of the machine; the other only one of the server, and costs a few microseconds.
 */
#pragma once

#include "base/json.h"
#include "runlog/runlog.h"

struct exec_store {
	int dirfd; /* of the records */
	struct runlog_store *logs;
	bool durable;
};
#define EXEC_STORE_NONE ((struct exec_store){ .dirfd = -1 })

/* `records` and `logs` are directories below dirfd, made if absent. */
int exec_store_open(struct exec_store *store, int dirfd, const char *records, const char *logs,
		    int64_t log_bytes, bool durable, struct error *err);
void exec_store_close(struct exec_store *store);

/* A new record, or one in the place of a shorter one. */
int exec_store_put(struct exec_store *store, const char *id, const json_t *record,
		   struct error *err);
/* *record is NULL when there is none, or none that was written whole. -1: it cannot be read now. */
int exec_store_read(struct exec_store *store, const char *id, json_t **record, struct error *err);
/* The same where that is no different from none. */
json_t *exec_store_get(struct exec_store *store, const char *id);
bool exec_store_has(struct exec_store *store, const char *id); /* written whole or not */
/* The log first: a crash in between leaves the record, and the next time tries again. */
int exec_store_remove(struct exec_store *store, const char *id, struct error *err);
/* The record alone. */
int exec_store_delete(struct exec_store *store, const char *id, struct error *err);
/* Every record with the time of its last change, oldest first; -1 from `visit` ends it. */
typedef int exec_store_visit_fn(void *arg, const char *id, int64_t changed_ms, struct error *err);
int exec_store_each(struct exec_store *store, exec_store_visit_fn *visit, void *arg,
		    struct error *err);

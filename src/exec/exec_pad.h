/*
 * Records of execs that have just begun, most of which are over in a moment: slots of one file that
 * stays open. A file for each would be made and removed again, and that takes longer than the
 * command where many were removed lately, since a file system looks past all of them for room. As
 * with a plain store what is written survives the server, not the machine.
 */
#pragma once

#include <pthread.h>
#include "base/json.h"

#define PAD_SLOTS 64

struct pad {
	int fd;
	pthread_mutex_t lock;
	uint64_t used; /* a bit for each slot */
};
#define PAD_NONE ((struct pad){ .fd = -1 })

/* A file of that name below dirfd, made if absent; what an earlier server left there stays. */
int pad_open(struct pad *pad, int dirfd, const char *name, struct error *err);
void pad_close(struct pad *pad);

/* The slot; -1: none is free, the record is too long for one, or the disk is full. */
int pad_put(struct pad *pad, const json_t *record);
void pad_clear(struct pad *pad, int slot);

/*
 * What an earlier server left, before anything is put. Each is cleared once `visit` was content;
 * what was not written whole is no record.
 */
typedef int pad_visit_fn(void *arg, json_t *record, struct error *err);
int pad_take(struct pad *pad, pad_visit_fn *visit, void *arg, struct error *err);

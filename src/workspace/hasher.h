/*
 * Hashing files by several threads while their entries stay in order. Entries are pushed; each
 * comes out by `emit`, in the pusher's thread and in the order of pushing, once its hash is known.
 * At most HASHER_WINDOW wait, so memory is bounded.
 */
#pragma once

#include "filetree/entry.h"

#define HASHER_WINDOW 512

enum hasher_fate {
	HASHER_READY,      /* the entry has its hash, and the state it was read in */
	HASHER_PASSED,     /* was not to be hashed */
	HASHER_GONE,       /* is not there any more */
	HASHER_UNREADABLE, /* may not be read */
	HASHER_CHANGING,   /* changed each time it was read; the hash is of the last time */
};
typedef int hasher_emit_fn(void *arg, const struct tree_entry *entry, enum hasher_fate fate,
			   bool mark, struct error *err);

struct hasher;
/* threads 0: as many as processors, at most 8. They are started when the first file comes. */
struct hasher *hasher_new(int root_fd, int threads, int cancel_fd, hasher_emit_fn *emit, void *arg);
/* `mark` is handed to emit. */
int hasher_push(struct hasher *h, const struct tree_entry *entry, bool hash, bool mark,
		struct error *err);
/* Everything pushed is emitted. */
int hasher_drain(struct hasher *h, struct error *err);
void hasher_free(struct hasher *h);

/*
 * Reads and hashes one open file. 1: it changed meanwhile. *entry gets the state and hash of what
 * was read. Used by the threads, and by who reads a file for another reason.
 */
int hash_file(int fd, int cancel_fd, struct tree_entry *entry, struct error *err);

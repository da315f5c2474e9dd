/*
 * What applying a run's changes has done and is about to do: records appended to <run>/journal. An
 * intent is on disk before its act begins; an outcome after it has ended. Changes are told by their
 * number, their place in the manifest `changes`, which never changes once it is there.
 *
 * A record that a crash tore, and what follows it, does not count and is cut off at opening: an
 * intent that is not whole was not synced, so its act has not begun.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"

enum journal_act {
	ACT_PUT,    /* the staged entry goes to `path`, where nothing is */
	ACT_SWAP,   /* the staged entry and what is at `path` change places */
	ACT_REMOVE, /* what is at `path` goes to the staging directory */
	ACT_RMDIR,  /* the directory at `path` goes if it is empty */
	ACT_CHMOD,
};

struct journal_intent {
	uint32_t number;
	enum journal_act act;
	uint32_t fate;     /* enum change_fate, when the act succeeds */
	uint64_t dev, ino; /* of the staged entry */
	/* SHA-256 in hex of the file that is to come out; NULL: it is none. */
	const char *expected;
	const char *path; /* NULL: the change's own; until the next record is added */
};

struct journal_outcome {
	uint32_t number;
	uint32_t fate;
	const char *beside; /* NULL: none */
	const char *reason;
};

struct journal;
/* `count` changes. `writable` false: what is there is read and nothing is made. */
int journal_open(int run_fd, uint32_t count, bool writable, struct journal **out,
		 struct error *err);
void journal_close(struct journal *j);

/* Kept in memory until journal_sync, which returns when everything is on disk. */
void journal_add_intent(struct journal *j, const struct journal_intent *intent);
void journal_add_outcome(struct journal *j, const struct journal_outcome *outcome);
/* The staging directory: its path in the workspace and which one it is. A new one makes all intents
 * before it void. */
void journal_add_staging(struct journal *j, const char *path, uint64_t dev, uint64_t ino);
/* What the place has below `path` goes below `beside`. */
void journal_add_redirect(struct journal *j, const char *path, const char *beside);
int journal_sync(struct journal *j, struct error *err);

/* The last one that is not followed by an outcome. */
bool journal_intent(const struct journal *j, uint32_t number, struct journal_intent *out);
bool journal_outcome(const struct journal *j, uint32_t number, struct journal_outcome *out);
/* NULL: none yet. */
const char *journal_staging(const struct journal *j, uint64_t *dev, uint64_t *ino);
const char *journal_redirect(const struct journal *j, const char *path, size_t len);
/* Forgets outcomes of this fate, so that it is tried again. In memory; the next outcome counts. */
void journal_retry(struct journal *j, uint32_t fate);

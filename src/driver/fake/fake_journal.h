/*
 * What the fake provider knows to exist, kept outside the database as a cloud would keep it: one
 * line of JSON per change in `journal.jsonl`. What comes to exist is on disk before the call that
 * made it returns; what ceases to need not be: after a power cut it is listed once more, found to
 * be nobody's, and removed again.
 *
 *     {"op":"acquire","ref":"sandbox://fake/...","place":{...}}
 *     {"op":"destroy","ref":"sandbox://fake/..."}
 *     {"op":"count","key":"...","n":3}
 *
 * Safe from any thread. Callers that meet share one fsync. A torn last line (a crash in the middle
 * of an append) is cut off; damage before it is refused.
 */
#pragma once

#include "base/error.h"
#include "base/json.h"

struct fake_journal;

int fake_journal_open(int dirfd, struct fake_journal **journal, struct error *err);
void fake_journal_free(struct fake_journal *journal);

/* On error nothing has changed. `place` is shared and not to be changed. */
int fake_journal_add(struct fake_journal *journal, const char *ref, json_t *place,
		     struct error *err);
int fake_journal_remove(struct fake_journal *journal, const char *ref, struct error *err);
/* New reference; NULL when there is no such place. */
json_t *fake_journal_get(struct fake_journal *journal, const char *ref);
json_t *fake_journal_places(struct fake_journal *journal); /* new object: ref -> place */

/* Raises the counter of that name and returns its new value, or -1. */
int64_t fake_journal_count(struct fake_journal *journal, const char *key, struct error *err);

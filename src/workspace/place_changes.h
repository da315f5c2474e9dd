/*
 * What a place has now against what was put there last: most of it is usually the same, so only
 * the difference is kept. The relay's scan runs in a thread of its own, beside the host's.
 */
#pragma once

#include "place/tree.h"
#include "workspace/manifest.h"

struct place_changes;
struct place_changes_options {
	const struct place_ref *place;
	const char *root;
	const char *rules; /* that count everywhere */
	size_t rules_len;
	const struct manifest *before; /* NULL: nothing is known */
	int dir_fd;                    /* where the difference is written */
	const char *name;
	int cancel_fd;
};
int place_changes_start(const struct place_changes_options *options, struct place_changes **out,
			struct error *err);
/*
 * Waits and frees it. The manifest `name` then has every entry that is not as before, with type
 * TREE_NONE for what is gone. A place without that root has nothing.
 */
int place_changes_finish(struct place_changes *d, struct error *err);

/* Everything that is in the place, in order: `before` with the difference over it. */
struct place_cursor {
	struct manifest_cursor before, drift;
	struct tree_entry old, new;
	bool has_old, has_new;
};
void place_cursor_init(struct place_cursor *c, const struct manifest *before,
		       const struct manifest *drift);
/*
 * False at the end. *known: it is as it was put, so its hash is known; else *entry is as it was
 * scanned (TREE_NONE: it is gone).
 */
bool place_cursor_next(struct place_cursor *c, struct tree_entry *entry, bool *known);

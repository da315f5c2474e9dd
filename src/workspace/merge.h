/*
 * What is to happen to one path, from what was staged, what the place made of it and what the host
 * has now. No file is touched here; who asks has looked and, where merge_wants_hash says so, hashed
 * the host's file.
 *
 * An entry of type TREE_NONE is a path that is not there. A directory is what it is whatever it
 * holds: entries of its contents are asked for by themselves.
 */
#pragma once

#include "filetree/entry.h"

enum merge_verdict {
	MERGE_NOTHING,   /* the host has what the place has */
	MERGE_TAKE,      /* the host is as staged: the place's goes in, deletion included */
	MERGE_KEEP_HOST, /* deleted in the place, changed on the host */
	MERGE_KEEP_BOTH, /* changed on both sides, differently */
};

/* Whether the verdict hangs on what is in the host's file. */
bool merge_wants_hash(const struct tree_entry *base, const struct tree_entry *place,
		      const struct tree_entry *host);
enum merge_verdict merge_decide(const struct tree_entry *base, const struct tree_entry *place,
				const struct tree_entry *host);

/* The host's entry is the one that was staged: the same state of the same file, or equal. */
bool merge_is_base(const struct tree_entry *base, const struct tree_entry *host);
/* The host's entry is what the place has. */
bool merge_is_place(const struct tree_entry *place, const struct tree_entry *host);

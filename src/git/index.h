/*
 * Entries of an index, read by git with a git directory of our own, so that neither the place's
 * index nor the host's config is believed more than needed: what comes out is a list that is
 * checked entry by entry, and what goes in is made anew from it. Extensions (cached trees, lists of
 * untracked files, monitors) and the flags that hide changes never travel.
 */
#pragma once

#include "git/quarantine.h"

enum index_flag {
	INDEX_ASSUME_VALID = 1 << 0,
	INDEX_SKIP_WORKTREE = 1 << 1,
	INDEX_INTENT_TO_ADD = 1 << 2,
};
struct index_entry {
	unsigned mode; /* 0100644, 0100755, 0120000, 0160000 */
	unsigned stage, flags;
	const char *path; /* in `text` */
	char oid[GIT_OID_MAX];
};
struct index_entries {
	struct index_entry *items;
	size_t count, cap;
	struct buf text;
};
void index_entries_clear(struct index_entries *entries);

/* The host's own; git looks for the other half of a split one beside it. */
int index_entries_host(const struct git_quarantine *q, struct index_entries *entries,
		       struct error *err);
/*
 * Puts what was fetched as index (and its other half) into the private git directory and reads it.
 * *there false: the place's index is as staged, or gone. ERR_UNPROCESSABLE with the reason
 * when it is not one that we take.
 */
int index_entries_fetch(const struct git_quarantine *q, int fetched_fd,
			struct index_entries *entries, bool *there, struct error *err);
/* The same entries; flags that hide files do not count. */
bool index_entries_equal(const struct index_entries *a, const struct index_entries *b);
/*
 * A new index file at `file` with these entries, refreshed against the work tree. Entries of `old`
 * lend the flags by which the host's owner hides files from git.
 */
int index_entries_write(const struct git_quarantine *q, const char *file,
			const struct index_entries *entries, const struct index_entries *old,
			struct error *err);

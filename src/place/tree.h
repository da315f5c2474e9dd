/*
 * Whole trees of a place, through its relay: scanned, hashed, written and read as streams, with
 * memory bounded on both sides. The relay knows nothing between calls; what a tree was like is the
 * caller's to remember (workspace/manifest.h).
 *
 * `root` is a directory of the place as in files.h; every path is relative to it and is resolved by
 * the relay beneath it without following a link. Files are touched as the place's user. Answers are
 * hostile: order, bounds and sizes are checked here, and what breaks them is ERR_PROTOCOL.
 *
 * A place without a relay: ERR_UNSUPPORTED_ENV, in words that say so. A stream without progress for
 * 60 s is ERR_TIMEOUT; ERR_DISK_FULL says which end is full.
 */
#pragma once

#include "filetree/entry.h"
#include "place/files.h"

typedef int tree_entry_fn(void *arg, const struct tree_entry *entry, struct error *err);

struct place_scan {
	const char *root;
	const char *rules; /* ignore rules that count everywhere, besides those in the tree; NULL:
			      none */
	size_t rules_len;
	bool no_rules; /* neither .gitignore nor .berthignore count */
	bool skip_git;
	uint64_t max_entries; /* 0: 1,000,000 */
};
/* Every entry in order, without hashes. A root that is not there is ERR_NOT_FOUND. */
int place_tree_scan(const struct place_ref *place, const struct place_scan *scan, tree_entry_fn *fn,
		    void *arg, struct error *err);

/*
 * Hashes of files: `next` names them (false: no more), `fn` gets each in the same order with its
 * state and TREE_HAS_HASH, TREE_UNREADABLE instead when it cannot be read, TREE_RACY too when it
 * changed all the time, or type TREE_NONE when it is gone or no file. Many are asked for at
 * once.
 */
int place_tree_hash(const struct place_ref *place, const char *root,
		    bool (*next)(void *arg, const char **path), tree_entry_fn *fn, void *arg,
		    struct error *err);

/*
 * Writing. Operations are applied in the order they are put; the first that fails ends the writer
 * and is told by the next call or by commit. `written` gets the state each file and directory then
 * has (dev, ino, mtime, ctime), in order, from any of these calls, in the caller's thread. Not
 * atomic as a whole: who puts files into a place lets no command run there before commit has
 * succeeded.
 *
 * Links are not told. A directory is told when it is there, with the mode it will have: its times
 * are those before it was filled. An mtime of 0 is left as it comes. What is in the way of an entry
 * goes, a directory with all that is in it. After commit a later change always shows in the times
 * that were told.
 */
struct tree_writer;
struct place_put {
	const char *root;
	bool make_root; /* with its parents; what is made carries a mark, see below */
	/* The root must be empty or have been made by an earlier put: nothing else is ever
	 * overwritten. */
	bool only_ours;
	tree_entry_fn *written;
	void *arg;
};
int place_tree_put(const struct place_ref *place, const struct place_put *put,
		   struct tree_writer **writer, struct error *err);
int tree_writer_dir(struct tree_writer *w, const struct tree_entry *entry, struct error *err);
int tree_writer_symlink(struct tree_writer *w, const struct tree_entry *entry, struct error *err);
/* entry->size bytes follow by tree_writer_data. The old file, if any, stays until they are
 * complete. */
int tree_writer_file(struct tree_writer *w, const struct tree_entry *entry, struct error *err);
int tree_writer_data(struct tree_writer *w, const void *data, size_t len, struct error *err);
/* The file that was begun turned out to be shorter, or cannot be read on: it is left out. */
int tree_writer_skip(struct tree_writer *w, struct error *err);
/* Files are unlinked; a directory only when it is empty, else it stays. What is not there is
 * success. */
int tree_writer_remove(struct tree_writer *w, const char *path, struct error *err);
/* Frees it. Everything put is there. */
int tree_writer_commit(struct tree_writer *w, struct error *err);
void tree_writer_abandon(struct tree_writer *w);

/*
 * Reading. Contents of files, in the order `next` names them; `begin` gets each entry (type
 * TREE_NONE: gone or no file; then no data), `data` its bytes, `end` the entry with the hash of
 * what came and whether it `changed` while it was read (then TREE_RACY, too). Holes of sparse files
 * do not travel: `hole` says how long.
 */
struct place_get {
	const char *root;
	bool (*next)(void *arg, const char **path);
	int (*begin)(void *arg, const struct tree_entry *entry, struct error *err);
	int (*data)(void *arg, const void *data, size_t len, struct error *err);
	int (*hole)(void *arg, uint64_t len, struct error *err);
	int (*end)(void *arg, const struct tree_entry *entry, bool changed, struct error *err);
	void *arg;
	uint64_t max_file; /* a larger one is left out: begin with TREE_UNREADABLE. 0: no bound */
};
int place_tree_get(const struct place_ref *place, const struct place_get *get, struct error *err);

/*
 * Manifests: a tree as it was at a moment, on disk, in the order of filetree/entry.h. Written as a
 * stream to a temporary name and put in place by rename after fsync; read as a stream or by path
 * (mapped, with an index of blocks; pages that were read in order are given back). A manifest ends
 * with a count and a checksum: a torn one is refused (ERR_IO, in words that say so).
 *
 * Scanning a directory of this host gives one. The hash cache is the last manifest of that
 * directory: an entry whose device, inode, size, mtime and ctime (ns) are what they were keeps its
 * hash, unless it is racy: its ctime was not older than the scan's begin by the file system's clock
 * (git's rule), since a change in the same tick would not show. Files are hashed by several
 * threads.
 */
#pragma once

#include "base/json.h"
#include "filetree/entry.h"
#include "filetree/ignore.h"
#include "filetree/walk.h"

struct manifest_writer;
int manifest_create(int dir_fd, const char *name, struct manifest_writer **w, struct error *err);
/* Entries in order; anything else is ERR_INTERNAL. */
int manifest_add(struct manifest_writer *w, const struct tree_entry *entry, struct error *err);
/* Files whose ctime is not before this are read as TREE_RACY. */
void manifest_racy_from(struct manifest_writer *w, uint64_t ctime_ns);
/* It need not outlive a crash. */
void manifest_temporary(struct manifest_writer *w);
int manifest_commit(struct manifest_writer *w, struct error *err); /* frees it */
void manifest_abandon(struct manifest_writer *w);

struct manifest;
int manifest_open(int dir_fd, const char *name, struct manifest **m, struct error *err);
void manifest_close(struct manifest *m);
static inline void manifest_closep(struct manifest **m)
{
	manifest_close(*m);
}
#define _cleanup_manifest_ _cleanup_(manifest_closep)
uint64_t manifest_count(const struct manifest *m);
/* Bytes of all files. */
uint64_t manifest_bytes(const struct manifest *m);
/* By path. *out points into the manifest. */
bool manifest_find(const struct manifest *m, const char *path, size_t len, struct tree_entry *out);

struct manifest_cursor {
	const struct manifest *m;
	size_t at;
};
/* In order; false at the end. NULL m has no entries. */
bool manifest_next(struct manifest_cursor *c, struct tree_entry *out);

/*
 * Gives to_dir the same manifest under that name, by a link: manifests never change. Durable once
 * it returns. Another file system gets a copy.
 */
int manifest_share(int from_dir, const char *from, int to_dir, const char *to, struct error *err);
/* The same, but it need not outlive a crash: then it is the one before, or torn and refused. */
int manifest_lend(int from_dir, const char *from, int to_dir, const char *to, struct error *err);
/* One that is there under its name outlives a crash from now on; not so its name. */
int manifest_sync(int dir_fd, const char *name, struct error *err);
/* The same file: then nothing in them differs. */
bool manifest_is_same(int a_dir, const char *a, int b_dir, const char *b);

struct scan_progress {
	uint64_t files, bytes;
};
struct scan_options {
	const char *cache_dir; /* where caches are kept; NULL: none is used or written */
	bool hash;             /* otherwise hashes only where the cache knows them */
	bool use_ignore;       /* .gitignore, .berthignore, info/exclude */
	bool skip_git;         /* the repository's own, and what git_inside_hidden says of others */
	bool temporary;        /* the manifest need not outlive a crash */
	uint64_t max_entries, max_bytes; /* 0: none; beyond is ERR_TOO_LARGE, found while walking */
	int threads;                     /* 0: as many as processors, at most 8 */
	struct hidden *hidden; /* names hide too, and what is taken all the same; NULL: neither */
	/* Each path that is hidden, but not what is in it: as in filetree/walk.h. NULL: not asked. */
	tree_hidden_fn *on_hidden;
	void *on_hidden_arg;
	void (*progress)(void *arg, const struct scan_progress *now);
	void *progress_arg;
	int cancel_fd; /* readable: ERR_CANCELLED; -1: none */
};
/* Appends {path, reason} to a list of what is left out, which holds no more than LEFT_OUT_MAX. */
#define LEFT_OUT_MAX 1000
void left_out_add(json_t *list, const char *path, const char *reason);
struct scan_report {
	uint64_t files, dirs, symlinks, bytes;
	uint64_t hashed, hashed_bytes; /* read, not known from the cache */
	bool unchanged;                /* the manifest is the one in the cache */
	json_t *skipped; /* of left_out_add: specials, unreadable, changing while read */
	uint64_t skipped_count;
	uint64_t hidden_by_name; /* that no rule hides */
};
/*
 * Writes the manifest DIR/name of root_fd's tree, which is the cache's next. Not in it: special and
 * unreadable files. A file that kept changing while it was read is in it as racy.
 */
int workspace_scan(int root_fd, const struct scan_options *options, int dir_fd, const char *name,
		   struct scan_report *report, struct error *err);
void scan_report_clear(struct scan_report *report);
/* Makes DIR/name the cache of root_fd's tree. Only speed is lost when it cannot. */
void workspace_cache(const char *cache_dir, int root_fd, int dir_fd, const char *name);

/* The file system's clock now: a file changed from here on has no older ctime. */
uint64_t workspace_file_clock(int root_fd);

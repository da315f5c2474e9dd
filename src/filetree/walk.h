/*
 * Walks a tree beneath a directory, in the order of filetree/entry.h, without following a link and
 * without leaving its file tree by one: every step is openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS
 * | RESOLVE_NO_MAGICLINKS) or a name in a descriptor. Nothing is hashed here.
 *
 * What changes while it is walked is seen before or after; what vanishes is left out. An unreadable
 * directory is reported with TREE_UNREADABLE and not entered. Sockets, fifos and devices are
 * reported as TREE_SPECIAL. Memory: names of the directories on the way only.
 */
#pragma once

#include "filetree/entry.h"
#include "filetree/ignore.h"

/*
 * Told of every path that is left out, but not of what is in it: which name hides it (of `hides`,
 * or NULL) and which rule file (see ignore_reason, or NULL). Both NULL: what it is in is left out.
 */
typedef void tree_hidden_fn(void *arg, const char *path, size_t len, bool is_dir, const char *name,
			    const char *rules);

struct tree_walk_options {
	struct ignore *ignore; /* NULL: nothing is left out */
	bool skip_git;         /* the entry `.git` at the root is left out */
	uint64_t max_entries;  /* 0: 4,000,000; more is ERR_TOO_LARGE */
	uint32_t max_depth;    /* 0: 1,000; deeper is ERR_TOO_LARGE */
	/* What is left out whatever rules say, not NULL: by which name. NULL: nothing. */
	const char *(*hides)(void *arg, const char *path, size_t len, bool is_dir);
	/*
	 * A path that is reported although rules or `hides` leave it out (and its directories
	 * entered): what was staged stays part of the tree. NULL: none.
	 */
	bool (*keeps)(void *arg, const char *path, size_t len);
	void *arg; /* of both */
	tree_hidden_fn *hidden;
	void *hidden_arg;
};

/* 0 goes on, -1 ends the walk with err. `dir_fd` and `name` reach the entry itself (not for long:
 * they are the walk's). */
typedef int tree_walk_fn(void *arg, const struct tree_entry *entry, int dir_fd, const char *name,
			 struct error *err);
int tree_walk(int root_fd, const struct tree_walk_options *options, tree_walk_fn *fn, void *arg,
	      struct error *err);

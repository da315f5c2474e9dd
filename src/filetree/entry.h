/*
 * What a tree of files is made of, for the server and the relay alike: entries with paths relative
 * to the tree's root, in one order, and their form on the wire and on disk.
 *
 * A path is bytes, not text: components divided by single slashes, none of them empty, "." or "..",
 * at most TREE_PATH_MAX bytes, no NUL. Entries come in the order of tree_path_compare: a directory
 * before what is in it, names by their bytes. Two streams in this order are merged without memory.
 *
 * Entries that come from a place or a file are hostile: tree_entry_decode accepts nothing that
 * breaks these rules, and whoever reads a stream checks the order with tree_path_compare.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include "base/buf.h"
#include "base/error.h"

#define TREE_PATH_MAX 4095
#define TREE_HASH_SIZE 32

/* Numbers are on the wire and on disk: append only. */
enum tree_type { TREE_NONE, TREE_DIR, TREE_FILE, TREE_SYMLINK, TREE_SPECIAL };

enum tree_flag {
	TREE_HAS_HASH = 1 << 0,   /* sha256 is that of the content */
	TREE_UNREADABLE = 1 << 1, /* could not be opened or listed: what is in it is not known */
	TREE_RACY = 1 << 2, /* written so late that a later change may not show in the times */
};

struct tree_entry {
	const char *path; /* with a closing NUL behind path_len bytes */
	uint32_t path_len;
	enum tree_type type;
	uint32_t flags;
	uint32_t mode;     /* permission bits, 07777 */
	uint64_t size;     /* of a file */
	uint64_t mtime_ns; /* since 1970; 0 when before */
	uint64_t ctime_ns; /* with dev and ino: which state of which file this is */
	uint64_t dev, ino;
	uint32_t links;     /* of a file: more than 1, it has other names */
	const char *target; /* of a symlink, else NULL; with a closing NUL */
	uint32_t target_len;
	uint8_t sha256[TREE_HASH_SIZE];
};

/* <0, 0, >0. A slash sorts below every other byte. */
int tree_path_compare(const char *a, size_t a_len, const char *b, size_t b_len);
/* Whether it may be the path of an entry; `root` itself has none. */
bool tree_path_is_valid(const char *path, size_t len);
/* path equals dir or is beneath it. */
bool tree_path_is_within(const char *path, size_t len, const char *dir, size_t dir_len);

/* Type, mode, size, times and identity; path, target and hash are left. */
void tree_entry_from_stat(const struct stat *st, struct tree_entry *out);
/* Same state of the same file: type, mode, size, mtime, ctime, dev, ino, and not TREE_RACY. */
bool tree_entry_same_state(const struct tree_entry *a, const struct tree_entry *b);
/* Same to whoever looks at the tree: type; mode and content of files (both must have hashes);
 * target of links. Directories are always equal. */
bool tree_entry_same_content(const struct tree_entry *a, const struct tree_entry *b);

/* Appends one record. */
void tree_entry_encode(struct buf *out, const struct tree_entry *entry);
/*
 * One record from the front of data. How many bytes it took, 0 when more are needed, -1 with
 * ERR_PROTOCOL. path and target point into data (a record carries their closing NULs).
 */
ssize_t tree_entry_decode(const void *data, size_t len, struct tree_entry *out, struct error *err);
/* No record is longer. */
#define TREE_RECORD_MAX (2 * (TREE_PATH_MAX + 1) + 160)

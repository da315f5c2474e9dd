/*
 * What a place must not see of a directory it is given to lay its own layer over: a list the server
 * writes to a file and the keeper reads from there. Records one behind the other, each a letter, a
 * path relative to the directory, and NUL; MASK_FILE has its content and another NUL behind it.
 *
 * What is named is dealt with in the layer, so that it costs no mount; what lies beneath it is
 * named along with it.
 */
#pragma once

#include <stddef.h>
#include "base/buf.h"
#include "base/error.h"

#define MASKS_MAX (4u << 20) /* bytes of the list */
#define MASKS_COUNT_MAX 65536u

enum mask_kind {
	MASK_HIDDEN = '-', /* not there */
	MASK_EMPTY = 'd',  /* an empty directory instead */
	MASK_FILE = 'f',   /* a file of this content instead */
};
struct mask {
	enum mask_kind kind;
	const char *path;    /* clean, no link of it is followed */
	const char *content; /* NULL but for MASK_FILE */
};

/*
 * The record at *at, which moves behind it. 1: there is one; 0: that was all; -1: this is no such
 * list. `end` is the end of the list; nothing of `out` outlives it.
 */
int mask_next(const char **at, const char *end, struct mask *out, struct error *err);
void mask_add(struct buf *list, enum mask_kind kind, const char *path, const char *content);

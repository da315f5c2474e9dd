/*
 * The difference of two texts as a unified diff's hunks. Time and memory are bounded: where two
 * texts have too little in common for that, the hunk is correct but says more than it must.
 */
#pragma once

#include "base/buf.h"

struct diff_text {
	const char *data;
	size_t len;
};

/* Appends the hunks, nothing when both are equal. False: a text has too many lines. */
bool diff_hunks(struct buf *out, struct diff_text before, struct diff_text after);

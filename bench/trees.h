/* What the benchmarks that move trees of files share. */
#pragma once

#include <stddef.h>
#include "bench.h"

struct trees {
	char dir[64];     /* temporary, and not in the server's data, which no workspace may be */
	char tree[128];   /* that is moved */
	char target[128]; /* where the peer copies it to */
};

void trees_begin(struct trees *t);
void trees_end(struct trees *t);
/* An empty tree under this name; one that is there goes. */
void trees_new(struct trees *t, const char *name);
/* So many files of random bytes, a hundred in a directory: dir0003/file000333.txt */
void trees_fill(const struct trees *t, size_t count, size_t size);
void trees_write(const char *path, const void *data, size_t len);

/* Seconds; what it prints goes nowhere, and it must end with 0. */
double trees_command(char *const argv[]);
/* The peer: cp -a of the tree to where nothing is. */
double trees_copy(const struct trees *t);

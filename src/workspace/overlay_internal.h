/* What the files of fetching from a layer share: overlay.c finds the changes, overlay_file.c reads.
 */
#pragma once

#include "workspace/overlay.h"

struct layer {
	int upper_fd, host_fd, run_fd;
	uint64_t entries_left, bytes_left;
	int cancel_fd;
	json_t *refused;
	struct buf block; /* for contents */
};

/* Told, up to a number. */
void layer_refuse(struct layer *l, const char *path, const char *reason);
int layer_tick(const struct layer *l, struct error *err);

/*
 * The file `name` of dir_fd: against the base's entry, if it had one. 1: `entry`, filled from st,
 * is a change; its content is a blob, its hash in it. 0: it is none, or was refused.
 */
int layer_file(struct layer *l, int dir_fd, const char *name, const struct stat *st,
	       const struct tree_entry *base, struct tree_entry *entry, struct error *err);

/* Files below .git that come back: <run>/git/<path>. */
int layer_git_begin(struct layer *l, struct error *err);
int layer_git_file(struct layer *l, int dir_fd, const char *name, const struct stat *st,
		   const char *path, struct error *err);
/* The same, of what is gone: an empty file, for each file if it was a directory of the host. */
int layer_git_gone(struct layer *l, const char *path, struct error *err);

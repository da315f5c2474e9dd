/*
 * What the files of fetching share. A place's tree is read in three steps, each a stream, with
 * manifests in the run's directory between them, so that nothing is held in memory:
 *
 *     fetch_scan.c     what the place has, against what was put there: entries that differ in their
 *                      state, entries that are new, entries that do not show
 *     fetch_verify.c   which of them really differ: hashes, and whether what does not show is gone
 *     fetch_content.c  contents come: to the blobs, or to <run>/git
 */
#pragma once

#include "workspace/workspace.h"

/* In the run's directory, while fetching. */
#define FETCH_SEEN "fetch.seen"
#define FETCH_KNOWN "fetch.known"
#define FETCH_SURE "fetch.sure"
#define FETCH_GIT "fetch.git"

#define FETCH_MAX_ENTRIES 1000000
#define FETCH_MAX_BYTES ((uint64_t)16 << 30)

struct fetch {
	struct workspace_engine *engine;
	struct workspace_state *state;
	const struct workspace_act *act;
	int run_fd;
	struct manifest *base, *place;
	uint64_t max_entries, max_bytes;
	uint64_t files, bytes; /* that came */
	json_t *refused;       /* of left_out_add */
	uint64_t refused_count;
	struct workspace_progress now;
};
void fetch_refuse(struct fetch *f, const char *path, const char *reason);
/* Tells how far it is and looks whether to stop: ERR_CANCELLED. */
int fetch_tick(struct fetch *f, struct error *err);
/* The entry that was put into the place under the path; TREE_NONE: none. */
void fetch_put_before(const struct fetch *f, const struct tree_entry *entry,
		      struct tree_entry *out);
/* Same bytes, told by hashes that both must have. */
bool fetch_same_bytes(const struct tree_entry *a, const struct tree_entry *b);

/*
 * Writes FETCH_SEEN. An entry of type TREE_NONE does not show any more; `links` 1 on it: it is
 * certainly gone, for what was above it is no directory now.
 */
struct look_found {
	uint64_t entries;
	uint64_t unsure_files, unsure_others; /* that do not show */
	uint64_t same_size;                   /* files that only a hash can tell */
};
int fetch_look(struct fetch *f, struct look_found *found, struct error *err);
/* A repository that was made in the place, where the workspace has none, is told. */
int fetch_look_made(struct fetch *f, struct error *err);
/* Writes FETCH_GIT: files under .git that git_import wants; TREE_NONE: gone. */
int fetch_look_git(struct fetch *f, uint64_t *entries, struct error *err);
/* *name is the manifest that has what really differs. */
int fetch_make_sure(struct fetch *f, const struct look_found *found, const char **name,
		    struct error *err);
/* Contents of the files in manifest `name`; entries in order go to `changes`, NULL: to <run>/git.
 */
int fetch_get(struct fetch *f, const char *name, struct manifest_writer *changes,
	      struct error *err);

/*
 * What is told of a run's files (GET /runs/:id/changes): {added, modified, deleted, same, conflicts,
 * keptHost, refused, bytes}; refused also counts what could not be fetched.
 */
void report_counts(const struct apply_report *report, const struct workspace_state *state,
		   json_t *counts);
/* As workspace_report, of what applying would do now; nothing is touched. */
json_t *report_foretold(struct workspace_engine *engine, struct workspace_state *state,
			const struct apply_options *options, struct error *err);

/*
 * What a run brought home, on this host's disk, until it is dropped: one directory per run below
 * <data>/workspaces. The place may be gone and the server may have died any number of times.
 *
 *     <run>/state.json      struct workspace_state: where the workspace is, mode, phase, report
 *     <run>/base            manifest: what was staged, with the host's identities; what applying
 *                           compares with
 *     <run>/place           manifest: the same tree in the place, with the place's identities
 *     <run>/changes         manifest of what the place changed, with hashes; a deleted path has
 *                           type TREE_NONE. Written last: it is there only when every blob is
 *     <run>/blobs/<hex>     contents of changed files by SHA-256
 *     <run>/git/            files of the place's repository, for git_import
 *     <run>/journal         what applying has done and is about to do
 *
 * Files of the host that were displaced by applying stay on the workspace's own file system, in the
 * staging directory of apply.h, until the run is dropped.
 *
 * Phases, in order; each step is idempotent and a crash repeats the last one:
 *
 *     prepared -> staging -> staged -> fetching -> fetched -> applying -> applied
 *                                                     |
 *                                                     +-> kept as it is, until dropped
 */
#pragma once

#include "base/id.h"
#include "base/json.h"
#include "git/git.h"
#include "workspace/manifest.h"

#define RESULTS_STATE "state.json"
/* Why a file stays behind, for people. */
#define COLLECT_TOO_LARGE                                                                          \
	"it is larger than what may be collected of one run (berth serve --max-collect-mb)"
#define RESULTS_BASE "base"
#define RESULTS_PLACE "place"
#define RESULTS_CHANGES "changes"
#define RESULTS_BLOBS "blobs"
#define RESULTS_GIT "git"
#define RESULTS_JOURNAL "journal"
#define RESULTS_MASKED "masked"

#define WORKSPACE_MODES(X)                                                                         \
	X(MODE_AUTO, "auto")                                                                       \
	X(MODE_COPY, "copy")                                                                       \
	X(MODE_OVERLAY, "overlay")                                                                 \
	X(MODE_IN_PLACE, "in_place")                                                               \
	X(MODE_WORKTREE, "worktree")                                                               \
	X(MODE_NONE, "none") /* the run brings no files */

#define WORKSPACE_PHASES(X)                                                                        \
	X(PHASE_PREPARED, "prepared")                                                              \
	X(PHASE_STAGING, "staging")                                                                \
	X(PHASE_STAGED, "staged")                                                                  \
	X(PHASE_FETCHING, "fetching")                                                              \
	X(PHASE_FETCHED, "fetched")                                                                \
	X(PHASE_APPLYING, "applying")                                                              \
	X(PHASE_APPLIED, "applied")

#define X(name, text) name,
enum workspace_mode { WORKSPACE_MODES(X) };
enum workspace_phase { WORKSPACE_PHASES(X) };
#undef X
const char *workspace_mode_name(enum workspace_mode mode);
int workspace_mode_parse(const char *text, enum workspace_mode *out); /* -1: no such mode */
const char *workspace_phase_name(enum workspace_phase phase);

struct workspace_state {
	char run_id[ID_SIZE];
	char *path;               /* absolute, on this host */
	enum workspace_mode mode; /* the one chosen, never auto */
	enum workspace_phase phase;
	bool collect;     /* apply by itself when the run has ended */
	bool careful;     /* what runs by itself is kept beside, see guard.c */
	bool allow_large; /* no bound on files and bytes */
	char *place_root; /* where it is in the place */
	char *place_id;
	char *worktree; /* of mode worktree: the directory that is staged instead of path; else NULL
			 */
	json_t *show;   /* paths that the run sees although they are hidden; NULL: none */
	json_t *git;    /* what git.c remembers of the repository; NULL: none, or not one */
	struct git_seen *seen; /* what git answered before the place; not saved; NULL: nothing */
	json_t *report;        /* of staging and collecting, as GET /runs/:id/changes shows it */
	int64_t applied_at;    /* when the changes were merged; 0: not yet, or by an older server */
};
void workspace_state_clear(struct workspace_state *state);

struct results {
	int root_fd; /* <data>/workspaces */
};
int results_open(struct results *results, const char *path, struct error *err);
void results_close(struct results *results);
/* A descriptor of the run's directory; ERR_NOT_FOUND without make. */
int results_dir(const struct results *results, const char *run_id, bool make, int *fd,
		struct error *err);
int workspace_state_load(const struct results *results, const char *run_id,
			 struct workspace_state *out, struct error *err);
/* Atomic; phases that others build on are durable too. */
int workspace_state_save(const struct results *results, const struct workspace_state *state,
			 struct error *err);
/* Ids of the runs that have a directory: for recovery, prune and audit. */
int results_list(const struct results *results, char ***run_ids, struct error *err);
/* Everything of the run that is below root_fd goes; workspace_drop also knows what is elsewhere. */
int results_drop(const struct results *results, const char *run_id, struct error *err);

/*
 * A blob is there under its hash only when it is whole. It is durable after blobs_sync: whoever
 * writes the manifest that names blobs calls it before, and clears what an earlier try left.
 */
struct blob_writer;
int blob_create(int run_fd, struct blob_writer **w, struct error *err);
int blob_append(struct blob_writer *w, const void *data, size_t len, struct error *err);
int blob_hole(struct blob_writer *w, uint64_t len, struct error *err);
/* Frees it, also when it fails. */
int blob_commit(struct blob_writer *w, uint8_t sha256[TREE_HASH_SIZE], struct error *err);
void blob_abandon(struct blob_writer *w);
/* A descriptor, or -1. */
int blob_open(int run_fd, const uint8_t sha256[TREE_HASH_SIZE], struct error *err);
int blobs_sync(int run_fd, struct error *err);
int blobs_clear(int run_fd, struct error *err);

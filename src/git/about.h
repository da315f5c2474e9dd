/*
 * What is remembered of a repository between staging and collecting, as JSON on the run's state:
 *
 *     kind           "directory" | "worktree"
 *     objectFormat   "sha1" | "sha256"
 *     head           commit of HEAD, null when the branch has none yet
 *     headRef        "refs/heads/...", null when detached
 *     index          SHA-256 of the index's bytes, null when there is none
 *     state          {"MERGE_HEAD": SHA-256, ...} of what was under way
 *     warnings       [text]
 */
#pragma once

#include "git/refs.h"

#define GIT_INDEX_MAX (1U << 30)
#define GIT_STATE_MAX (1U << 20) /* of one file of a merge's or rebase's state */

/* Files that say what is under way and hold nothing but names of commits and messages. */
extern const char *const git_state_files[]; /* NULL-terminated */

bool git_about_is_sha256(const json_t *about);
/* head, headRef, index and state as they are now; the index's bytes are left in `index`. */
int git_about_fill(const struct git_repo *repo, json_t *about, struct buf *index,
		   struct error *err);
/* SHA-256 as the about has it; out is "" for an absent file. */
int git_file_hash(const struct git_repo *repo, const char *name, size_t max, char out[65],
		  struct error *err);

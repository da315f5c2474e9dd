/*
 * Mode overlay: the place sees the workspace through an overlay, and nothing is copied. What it
 * writes is in the upper layer, a directory of this host (places_workspace_upper). That layer is
 * the difference: whiteouts (character device 0:0, or the xattr form), opaque directories.
 * Redirects and metadata-only copies are off in the mount; where they are found all the same they
 * are refused. Names are hostile, owners are shifted. Reads with the care of filetree/walk.h.
 *
 *     overlay_suits     may this tree be shown so at all? (workspace_prepare, mode auto)
 *     overlay_prepare   what must not be seen of it is written down: before the place is leased,
 *                       the path goes into struct workspace_mount (record/place.h) as `masks`
 *     overlay_fetch     afterwards
 *
 * Not seen in the place: what the ignore rules leave out, the repository's config (another one is
 * in its place, see git_place_config), hooks, alternates, reflogs, other worktrees, what runs keep
 * there, and whatever is mounted below the workspace. What appears in the tree while the place has
 * it is seen there, ignored or not: an overlay is for trees that nobody else works in.
 */
#pragma once

#include "workspace/results.h"

/* In the run's directory: wire/hidden_paths.h. What is named there is no part of the workspace, in either
 * direction. */
#define RESULTS_MASKED "masked"
/* Below it in the run's directory: files of the place's .git that git_import wants. */
#define OVERLAY_GIT_NAME "git"

/*
 * 0, or ERR_UNPROCESSABLE in words for people: something is mounted in it, its file system is known
 * not to take part, its repository is elsewhere (a worktree, alternates). A lease may still be
 * refused with ERR_UNPROCESSABLE by who knows better; either way the tree is to be copied.
 */
int overlay_suits(const char *path, struct error *err);
/*
 * Writes <run>/masked for state->path; *masks_path is its absolute path. Repeated, it is written
 * anew. ERR_UNPROCESSABLE also when too much would have to be hidden one by one.
 */
int overlay_prepare(const struct results *results, struct workspace_state *state, int cancel_fd,
		    char **masks_path, struct error *err);

/*
 * What the upper layer changed against `base`, in order, as entries with hashes (TREE_NONE:
 * deleted), one for each path of the base that is gone too (an opaque or removed directory means
 * everything in it). Contents go to the run's blobs. A file that was copied up but has the content
 * and mode of the base is no change; without a hash in the base it is compared with the host's file
 * while that is still as staged. What the ignore rules of the place leave out does not come, unless
 * it is in the base; nor does what is masked. Modes keep 0777 only.
 *
 * Files below .git that git_path_comes_back names go to <run>/git/ under their paths, with an empty
 * file for each that is gone, as git_import wants them.
 *
 * What cannot come (special files, unreadable ones, those beyond the limits) is told in `refused`,
 * an array of {path, reason} of at most 1,000; NULL: not asked. All of it may be repeated.
 */
struct overlay_limits {
	uint64_t max_entries; /* 0: 1,000,000; beyond is ERR_TOO_LARGE */
	uint64_t max_bytes;   /* of all files that come; 0: 16 GiB; a file beyond is refused */
	int cancel_fd;        /* -1: none */
	const json_t *show;   /* what comes although names hide it; NULL: nothing */
};
int overlay_fetch(int upper_fd, const struct manifest *base, int host_fd, int run_fd,
		  const struct overlay_limits *limits, struct manifest_writer *changes,
		  json_t *refused, struct error *err);

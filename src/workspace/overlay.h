/*
 * Mode overlay: the place saw the workspace through an overlay; what it wrote is in the upper
 * layer, a directory of this host. That layer is the difference: whiteouts (character device 0:0,
 * or the xattr form), opaque directories, redirects (refused: the mount has them off),
 * metadata-only copies (off as well). Names are hostile, owners are shifted. Reads with the care of
 * tree/walk.h.
 */
#pragma once

#include "workspace/results.h"

/*
 * What the upper layer changed against `base`, in order, as entries with hashes (TREE_NONE:
 * deleted), one for each path of the base that is gone too (an opaque or removed directory means
 * everything in it). Contents go to the run's blobs. A file that was copied up but has the content
 * and mode of the base is no change; without a hash in the base it is compared with the host's file
 * while that is still as staged.
 */
int overlay_fetch(int upper_fd, const struct manifest *base, int host_fd, int run_fd,
		  struct manifest_writer *changes, struct error *err);

/*
 * Files compressed at rest. Private to runlog/.
 *
 * A packed file is a row of zstd frames of 1 MiB of content each, with checksums, and behind them a
 * table of their sizes in a frame that decompressors skip: the layout known as zstd's seekable
 * format, so `zstd -d` reads it, and reading in the middle decompresses one frame.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/error.h"

#define PACK_FRAME ((int64_t)1 << 20)

/* Compresses the first `len` bytes of one file to another. ERR_CANCELLED once *stop is set. */
int pack_write(int from_fd, int64_t len, int to_fd, const atomic_bool *stop, struct error *err);

struct pack;
/* Takes fd over, also on failure. What is no packed file, or a damaged one, is ERR_IO. */
int pack_open(int fd, struct pack **pack, struct error *err);
void pack_close(struct pack *pack);
int64_t pack_size(const struct pack *pack); /* of the content */
/* As pread: at most the rest of one frame. */
ssize_t pack_read(struct pack *pack, void *buf, size_t len, int64_t offset, struct error *err);
/* The frame around an offset as a file of its own, which stays the pack's until the next call. */
struct pack_stretch {
	int fd;
	int64_t start, len; /* in the content */
};
int pack_frame(struct pack *pack, int64_t offset, struct pack_stretch *out, struct error *err);
/* Gives back what reading took; the next read begins anew. */
void pack_rest(struct pack *pack);

/*
 * The ring: an exec's output between the process and the server's acknowledgement. Bytes have a
 * total offset in arrival order and an offset within their channel. The first kilobytes stay in
 * memory, since most commands say little; after that a file in the spool directory holds them, and
 * memory holds only which stretch belongs to which channel. A disk that refuses is done without
 * once everything before is acknowledged: one portion at a time is then in memory. What is left of
 * it when the exec ends goes into the journal (memory) or is described there (the file), so that it
 * can be had when the relay is dead. Nothing is synced: the page cache survives the death of server
 * and relay, and a machine that loses power has lost the processes too.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/error.h"
#include "wire/message.h"

/* Room for the name of a ring's file. */
#define RING_NAME_SIZE 48

struct segment {
	uint64_t offset;
	uint64_t channel_offset;
	uint32_t len;
	uint32_t channel;
};

struct ring {
	uint64_t size;
	uint64_t begin; /* oldest byte that is kept */
	uint64_t end;
	uint64_t channel_end[WIRE_CHANNELS];
	struct segment *segments; /* circular */
	uint32_t seg_first, seg_count, seg_cap;
	uint8_t *memory; /* all that is kept, unless the file has it */
	size_t memory_cap;
	uint64_t memory_from; /* offset of its first byte */
	int spool_fd;
	int fd;
	char name[RING_NAME_SIZE]; /* of the file, which is there when fd is */
};

/* `id` tells rings apart: it names the file, should there be one. */
void ring_init(struct ring *ring, int spool_fd, const char *id, uint64_t size);
void ring_free(struct ring *ring);
/* Bytes that may be appended now. */
size_t ring_room(const struct ring *ring);
/* len is at most ring_room. -1: the disk refused; nothing was appended. */
int ring_append(struct ring *ring, enum wire_channel channel, const void *data, size_t len,
		struct error *err);
/* Up to max bytes of one channel from `offset` (begin <= offset < end). Returns how many, -1 on
 * failure. */
ssize_t ring_read(const struct ring *ring, uint64_t offset, void *out, size_t max,
		  enum wire_channel *channel, uint64_t *channel_offset, struct error *err);
/* The stretches that are kept, for the journal. */
uint32_t ring_segment_count(const struct ring *ring);
const struct segment *ring_segment(const struct ring *ring, uint32_t index);
/* Frees everything below `offset`. */
void ring_release(struct ring *ring, uint64_t offset);

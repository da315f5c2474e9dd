/*
 * Frames: the outermost layer of every byte stream between server, relay and keeper.
 *
 *     u32 length | u8 type | u8 flags | u32 stream | payload[length]          little-endian
 *
 * `length` counts the payload only; header and payload together are at most WIRE_FRAME_MAX bytes,
 * and a receiver may set a lower limit (before authentication it does). Type and flags are
 * explained in wire/message.h. The functions here are pure: they look at bytes and keep no state,
 * so that a receiver can be fuzzed with a plain array.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/error.h"

#define WIRE_HEADER_SIZE 10
#define WIRE_FRAME_MAX (1u << 20)
#define WIRE_PAYLOAD_MAX (WIRE_FRAME_MAX - WIRE_HEADER_SIZE)

struct frame {
	uint8_t type;
	uint8_t flags;
	uint32_t stream;
	const uint8_t *payload; /* borrowed from the bytes that were parsed */
	uint32_t length;
};

/*
 * Looks for one frame at the start of the bytes. 1: `out` is filled and *used bytes belong to it.
 * 0: more bytes are needed. -1 (ERR_PROTOCOL): the frame announces a payload above max_payload, the
 * stream is lost and must be closed.
 */
int frame_parse(const uint8_t *data, size_t len, uint32_t max_payload, struct frame *out,
		size_t *used, struct error *err);

/* Appends a header announcing `length` payload bytes; the caller appends exactly those. */
void frame_begin(struct buf *out, uint8_t type, uint8_t flags, uint32_t stream, uint32_t length);
/* Makes the frame that begins at `start` and reaches to the end of `out` whole: its flags and
 * length. */
void frame_amend(struct buf *out, size_t start, uint8_t flags);
/* Appends a whole frame. */
void frame_append(struct buf *out, uint8_t type, uint8_t flags, uint32_t stream,
		  const void *payload, uint32_t length);

static inline uint32_t get_le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t get_le64(const uint8_t *p)
{
	return (uint64_t)get_le32(p) | (uint64_t)get_le32(p + 4) << 32;
}

static inline void put_le32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
	p[2] = (uint8_t)(v >> 16);
	p[3] = (uint8_t)(v >> 24);
}

static inline void put_le64(uint8_t *p, uint64_t v)
{
	put_le32(p, (uint32_t)v);
	put_le32(p + 4, (uint32_t)(v >> 32));
}

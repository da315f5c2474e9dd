/*
 * Records: what the DATA of TREE_SCAN, TREE_HASH, TREE_PUT and TREE_GET is made of, in both
 * directions. They form one stream of bytes each way; frames cut it anywhere, so that thousands of
 * small files share a frame and a large one needs no frame of its own.
 *
 *     u32 length | u8 kind | payload[length]                                      little-endian
 *
 * An entry is one record of filetree/entry.h, alone in the payload; a path is its bytes without a NUL,
 * valid as that page says. What each request takes (S) and answers (R):
 *
 *   TREE_SCAN  R  ENTRY*                                 in the order of tree_path_compare
 *   TREE_HASH  S  PATH* FINISH
 *              R  (ENTRY | NONE)*                        one for each PATH, in the same order
 *   TREE_PUT   S  (PUT | PUT-of-a-file (CONTENT | HOLE)* [SKIP] | REMOVE)* FINISH
 *              R  ENTRY*                                 one for each PUT of a directory or a file
 *   TREE_GET   S  PATH* FINISH
 *              R  (NONE | ENTRY | ENTRY (CONTENT | HOLE)* (ENDED | CHANGED))*    one per PATH
 *
 * The content of a file that is put adds up to its entry's size, or SKIP ends it early; that of a
 * file that is got adds up to its entry's size, or CHANGED ends it. An ENTRY of TREE_GET that is
 * flagged unreadable is all there is of it. The relay ends its side with DONE or FAILED, after
 * which the stream is at its end; TICK may stand between any two of its records, so that slow work
 * is not taken for none.
 *
 * The functions are pure: they look at bytes and keep no state.
 */
#pragma once

#include "wire/frame.h"

#define RECORD_HEADER_SIZE 5
/* Payload of one record. Content is cut into stretches of at most this. */
#define RECORD_MAX (256u << 10)

/* Numbers are on the wire: append only. */
enum record_kind {
	RECORD_ENTRY = 1, /* R */
	RECORD_NONE,      /* R: a path; there is nothing, or no file */
	RECORD_CONTENT,   /* bytes of a file */
	RECORD_HOLE,      /* u64: so many zeros of a file */
	RECORD_ENDED,     /* R: entry as it is after reading */
	RECORD_CHANGED,   /* R: the same, and it was changed meanwhile */
	RECORD_TICK,      /* R: no payload */
	RECORD_DONE,      /* R: no payload */
	RECORD_FAILED,    /* R: u32 enum wire_error_code, u32 errno, text */
	RECORD_PATH,      /* S */
	RECORD_PUT,       /* S: entry */
	RECORD_SKIP,      /* S: no payload; the file that was begun is left out */
	RECORD_REMOVE,    /* S: path */
	/* 14 is reserved: a change of mode alone, which no server ever asked for. */
	RECORD_FINISH = 15, /* S: no payload; nothing follows */
	RECORD_KINDS
};

struct record {
	enum record_kind kind;
	const uint8_t *payload; /* borrowed from the bytes that were parsed */
	uint32_t length;
};

/*
 * Looks for one record at the start of the bytes. 1: `out` is filled and *used bytes belong to it.
 * 0: more bytes are needed. -1 (ERR_PROTOCOL): no such kind, or too long, or of the wrong length
 * for its kind.
 */
int wire_record_parse(const uint8_t *data, size_t len, struct record *out, size_t *used,
		      struct error *err);
/* The header alone, of RECORD_HEADER_SIZE bytes: kind and length are filled, payload is not. */
int wire_record_parse_header(const uint8_t *data, struct record *out, struct error *err);

void wire_record_append(struct buf *out, enum record_kind kind, const void *payload, size_t length);
/* For a payload whose length is known later: begin returns what end wants to know. */
size_t wire_record_begin(struct buf *out, enum record_kind kind);
void wire_record_end(struct buf *out, size_t start);

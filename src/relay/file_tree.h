/*
 * Whole trees of files: TREE_SCAN, TREE_HASH, TREE_PUT, TREE_GET (wire/tree_record.h).
 *
 * Each is served by a forked child with plain blocking code: walking a million entries or hashing
 * gigabytes takes its time, and the loop, which has execs to hold and pings to answer, never waits
 * for a disk. A child also survives nothing it should not: a session that ends, a RESET and the
 * relay's own death all end it, and bytes that would confuse it confuse nobody else. The loop only
 * moves bytes, under credit both ways: connection -> pipe -> child -> pipe -> connection. It looks
 * into none of them, so at most WIRE_TREE_CREDIT of a stream waits here.
 *
 * The child has closed what it does not need, acts as the payload's user, and holds one buffer each
 * way. Paths are resolved beneath the root (FILE_TREE_RESOLVE), one directory at a time.
 */
#pragma once

#include "relay/session.h"

void file_tree_scan(struct session *s, const struct wire_message *m);
void file_tree_hash(struct session *s, const struct wire_message *m);
void file_tree_put(struct session *s, const struct wire_message *m);
void file_tree_get(struct session *s, const struct wire_message *m);

/* Streams of these. False: the number is none of them. */
bool file_tree_credit(struct session *s, uint32_t stream, uint32_t bytes);
bool file_tree_data(struct session *s, uint32_t stream, const uint8_t *data, uint32_t len,
		    bool end);
/*
 * What is still to come of a long frame goes from the connection to its child without being copied
 * here. False: nothing could go that way now, and reading tells why.
 */
bool file_tree_pass(struct session *s);
bool file_tree_reset(struct session *s, uint32_t stream);
/* One stretch of each into the connection; false when there is nothing to add. */
bool file_tree_pump(struct session *s);
/* Listens to those for whose answers there is credit, and room in the connection. */
void file_tree_resume(struct session *s);
/* The session ends: what was being read is given up, what was being written cleans up. */
void file_tree_detach(struct session *s);

/*
 * One TREE_* request on its way: records out and in, in the thread of whoever asked. Sending and
 * receiving take turns, so that neither side can wait for the other for ever: what cannot be sent
 * for want of credit waits here while answers are taken.
 */
#pragma once

#include "place/place_files.h"
#include "place/tree.h"
#include "wire/tree_record.h"

/* Enough to send at once. */
#define TREE_PORTION ((size_t)256 << 10)

/*
 * A record of the relay's: ENTRY, NONE, CONTENT, HOLE, ENDED or CHANGED. Content may come in
 * smaller pieces than it was sent in. -1 ends the request; a broken rule is told by
 * tree_flow_violated.
 */
typedef int tree_record_fn(void *arg, const struct record *record, struct error *err);

struct tree_flow {
	struct stream *stream;
	tree_record_fn *take;
	void *arg;
	struct buf out; /* records to be sent, from out_pos on */
	size_t out_pos;
	struct buf partial;    /* the beginning of a record */
	uint32_t content_left; /* of the CONTENT that is being received */
	uint32_t owed;
	uint32_t ticks;   /* in a row */
	int64_t moved_ms; /* when bytes went either way */
	bool done;        /* the relay has said DONE */
};

/* The request, with its root and credit to be filled in. */
struct tree_request {
	enum wire_type type;
	void *msg;
	const char *root, **root_field;
	uint32_t *credit_field;
};
/* Opens the stream. The flow is to be closed in any case. */
int tree_flow_open(struct tree_flow *flow, const struct place_ref *place,
		   const struct tree_request *request, struct error *err);
/* Ends the request where it is; nothing more is done or answered. */
void tree_flow_close(struct tree_flow *flow);
#define _cleanup_tree_flow_ _cleanup_(tree_flow_close)

/* Bytes of `out` that could not be sent yet. */
size_t tree_flow_backlog(const struct tree_flow *flow);
/*
 * Sends what there is credit for and takes what has come; with `wait` something happens first, or
 * the connection breaks, or ERR_TIMEOUT after FILE_WAIT_MS without a byte either way.
 */
int tree_flow_turn(struct tree_flow *flow, bool wait, struct error *err);
/* Takes turns until all of `out` is sent. */
int tree_flow_push(struct tree_flow *flow, struct error *err);
/*
 * The same, and behind it these bytes, at most RECORD_MAX, in one frame: the relay then hands frame
 * after frame on from socket to file and reads no more of them than their headers.
 */
int tree_flow_push_long(struct tree_flow *flow, const void *data, size_t len, struct error *err);
/* Takes turns until DONE. */
int tree_flow_finish(struct tree_flow *flow, struct error *err);

/* Bytes as they come, cut anywhere. Pure but for `take`, so that it can be fuzzed. */
int tree_flow_feed(struct tree_flow *flow, const uint8_t *data, size_t len, struct error *err);
/* The relay broke a rule. Returns -1 with ERR_PROTOCOL. */
int tree_flow_violated(struct tree_flow *flow, struct error *err, const char *why);
/* The entry that is a record's whole payload. */
int tree_flow_entry(struct tree_flow *flow, const struct record *record, struct tree_entry *entry,
		    struct error *err);
void tree_flow_put_entry(struct tree_flow *flow, enum record_kind kind,
			 const struct tree_entry *entry);

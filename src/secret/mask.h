/*
 * Masking: values that a command was given do not get into its log. A masked byte is `*`, so
 * lengths and offsets stay those of the output.
 *
 *     mask        what must not be shown, in every form; made once, used by many execs
 *     mask_flow   the output of one exec on its way to the log
 *
 * A value of MASK_VALUE_MIN bytes and more is looked for as it is, JSON-escaped, percent-encoded
 * and in base64 (both alphabets, three alignments), and so is each of its lines that has
 * MASK_LINE_MIN. A form that is longer than MASK_PIECE_MAX is looked for in pieces of that size, so
 * that a part of a long value is masked as well and little has to be held back.
 *
 * Masking is for accidents. A command that wants to show a value finds a form that is not masked.
 */
#pragma once

#include "secret/secret.h"

#define MASK_VALUE_MIN 8
#define MASK_LINE_MIN 16
#define MASK_PIECE_MAX 76 /* a line of base64 as most programs cut it */
#define MASK_HOLD_MS 100
#define MASK_TERMINAL_MIN 4
#define MASK_CHANNELS 3
/* How far before the end of the log a later server begins to read. */
#define MASK_LOOKBACK (64u << 10)

struct mask;

/* NULL when no value is long enough. Keeps copies, which are wiped when the last user lets go. */
struct mask *mask_new(const struct secret_text *values, size_t count);
struct mask *mask_ref(struct mask *mask); /* NULL in, NULL out */
void mask_unref(struct mask *mask);
static inline void mask_unrefp(struct mask **mask)
{
	mask_unref(*mask);
}
#define _cleanup_mask_ _cleanup_(mask_unrefp)

/* A form that begins before `starts` and ends within the data. In order of their beginnings. */
typedef void mask_found_fn(void *arg, size_t begin, size_t end);
/*
 * Finds the forms that begin before `starts` (at most len). Returns where the first form begins
 * that agrees with all of the data behind its beginning but is longer; `starts` when there is none.
 */
size_t mask_scan(const struct mask *mask, const void *data, size_t len, size_t starts,
		 mask_found_fn *found, void *arg);

/*
 * Output goes in as it comes, of all channels; it comes out masked, in the same order, by calls of
 * `emit`. What may be the beginning of a value is held back, and whatever came behind it on any
 * channel: offsets count the bytes of all channels in the order they came. After MASK_HOLD_MS it is
 * emitted as it is (mask_flow_due, mask_flow_flush). On a terminal less than MASK_TERMINAL_MIN bytes
 * are not held back: people wait for their echo.
 *
 * What is held back is in no log, so it must not be acknowledged. A later server reads on from
 * where mask_flow_acked says; of what the log has already it only has to know how it may go on.
 */
struct mask_flow;

typedef int mask_emit_fn(void *arg, unsigned channel, const void *data, size_t len,
			 struct error *err);

/* `at`: offset of the next byte; bytes before `stored` are in the log already. */
struct mask_flow *mask_flow_new(struct mask *mask, bool terminal, uint64_t at, uint64_t stored);
void mask_flow_free(struct mask_flow *flow);
/* As a new one, at another offset. */
void mask_flow_restart(struct mask_flow *flow, uint64_t at, uint64_t stored);
/* -1 only when emit fails; then the flow is of no more use. */
int mask_flow_take(struct mask_flow *flow, unsigned channel, const void *data, size_t len,
		   int64_t now_mono, mask_emit_fn *emit, void *arg, struct error *err);
/* Emits everything that is held back. A value that goes on behind it is masked from there on. */
int mask_flow_flush(struct mask_flow *flow, mask_emit_fn *emit, void *arg, struct error *err);
/* So many bytes are lost; nothing may be held back then. */
void mask_flow_skip(struct mask_flow *flow, uint64_t len);
/* When to flush; 0: nothing is held back. */
int64_t mask_flow_due(const struct mask_flow *flow);
/* Everything before may be forgotten where it came from. */
uint64_t mask_flow_acked(const struct mask_flow *flow);

/*
 * The output of one exec on its way to the log.
 *
 *     bytes of all channels, in the order they came:
 *
 *         acked            emitted             total
 *     ------+-----------------+------------------+
 *           | in the log, but | held back: `held`|
 *           | needed again    |                  |
 *
 * A later server begins with `emitted`, the end of the log. To mask what follows exactly as this one
 * would have, it must read from the beginning of whatever covers that point: a value that was
 * emitted in part because its time was up, or one whose other part is still held back. So a piece
 * before it stays unacknowledged. `segments` are the stretches of that part and of what is held
 * back; they translate offsets within a channel into offsets of all.
 */
#include "secret/mask.h"

#include <assert.h>
#include <string.h>
#include "base/buf.h"
#include "base/fault.h"

#define HELD_MAX ((size_t)1 << 20)
#define SEGMENTS_MAX 128 /* of what is in the log */

/* A stretch of output of one channel. */
struct segment {
	unsigned channel;
	uint64_t at;   /* offset of all channels */
	uint64_t from; /* offset within the channel */
	size_t len;
	int64_t came; /* when */
};

struct channel {
	uint64_t end;    /* bytes so far */
	uint64_t masked; /* where the last value that was found ends */
	/* The last bytes, as they came: all of them are the beginning of a value. */
	uint8_t tail[MASK_PIECE_MAX];
	size_t tail_len;
};

struct range {
	uint64_t begin, end;
};

struct mask_flow {
	struct mask *mask;
	bool terminal;
	uint64_t total, stored;
	struct buf held;
	struct channel channels[MASK_CHANNELS];
	struct segment *segments;
	size_t segment_count, segment_room;
	struct range *found; /* of one call, within the channel, in order and apart */
	size_t found_count, found_room;
};

struct mask_flow *mask_flow_new(struct mask *mask, bool terminal, uint64_t at, uint64_t stored)
{
	struct mask_flow *flow = xcalloc(1, sizeof(*flow));

	flow->mask = mask_ref(mask);
	flow->terminal = terminal;
	mask_flow_restart(flow, at, stored);
	return flow;
}

void mask_flow_restart(struct mask_flow *flow, uint64_t at, uint64_t stored)
{
	flow->total = at;
	flow->stored = MAX_OF(at, stored);
	flow->segment_count = 0;
	buf_reset(&flow->held);
	memset(flow->channels, 0, sizeof(flow->channels));
}

void mask_flow_free(struct mask_flow *flow)
{
	if (!flow)
		return;
	mask_unref(flow->mask);
	if (flow->held.data)
		wipe(flow->held.data, flow->held.cap);
	buf_free(&flow->held);
	free(flow->segments);
	free(flow->found);
	wipe(flow, sizeof(*flow));
	free(flow);
}

static uint64_t emitted_end(const struct mask_flow *flow)
{
	return flow->total - flow->held.len;
}

/* Where the values are */

struct search {
	struct mask_flow *flow;
	uint64_t base; /* offset within the channel of the first byte that is searched */
};

static void note_found(void *arg, size_t begin, size_t end)
{
	struct search *s = arg;
	struct mask_flow *flow = s->flow;
	struct range *last = flow->found_count ? &flow->found[flow->found_count - 1] : NULL;

	if (last && s->base + begin <= last->end) {
		last->end = MAX_OF(last->end, s->base + end);
		return;
	}
	if (flow->found_count == flow->found_room) {
		flow->found_room = MAX_OF(2 * flow->found_room, (size_t)16);
		flow->found = xreallocarray(flow->found, flow->found_room, sizeof(*flow->found));
	}
	flow->found[flow->found_count++] = (struct range){ s->base + begin, s->base + end };
}

/* Finds what is complete now, and keeps what may become so as the tail. */
static void search(struct mask_flow *flow, struct channel *channel, const uint8_t *data, size_t len)
{
	struct channel *own = FENCE_OFF("secret.mask.streams") ? &flow->channels[0] : channel;
	uint8_t joint[2 * MASK_PIECE_MAX];
	size_t old = FENCE_OFF("secret.mask.carry") ? 0 : own->tail_len;
	size_t fresh = MIN_OF(len, (size_t)MASK_PIECE_MAX), open = old;
	struct search s = { flow, channel->end - old };

	flow->found_count = 0;
	if (old > 0) {
		memcpy(joint, own->tail, old);
		memcpy(joint + old, data, fresh);
		open = mask_scan(flow->mask, joint, old + fresh, old, note_found, &s);
	}
	own->tail_len = open < old ? old + fresh - open : 0;
	memcpy(own->tail, joint + open, own->tail_len);
	s.base = channel->end;
	open = mask_scan(flow->mask, data, len, len, note_found, &s);
	/* An older beginning covers it. */
	if (own->tail_len == 0 && open < len) {
		own->tail_len = len - open;
		memcpy(own->tail, data + open, len - open);
	}
	channel->end += len;
	if (flow->found_count > 0)
		channel->masked = MAX_OF(channel->masked, flow->found[flow->found_count - 1].end);
}

/* What is held back, and what is needed again */

static void push_segment(struct mask_flow *flow, unsigned channel, size_t len, int64_t now)
{
	if (flow->segment_count == flow->segment_room) {
		flow->segment_room = MAX_OF(2 * flow->segment_room, (size_t)16);
		flow->segments =
			xreallocarray(flow->segments, flow->segment_room, sizeof(*flow->segments));
	}
	flow->segments[flow->segment_count++] = (struct segment){
		.channel = channel,
		.at = flow->total,
		.from = flow->channels[channel].end - len,
		.len = len,
		.came = now,
	};
	flow->total += len;
}

/* Where the byte of a channel is among all; what came before the segments is not known any more. */
static bool find_offset(const struct mask_flow *flow, unsigned channel, uint64_t from, uint64_t *at)
{
	for (size_t i = 0; i < flow->segment_count; i++) {
		const struct segment *s = &flow->segments[i];

		if (s->channel == channel && s->from + s->len > from) {
			*at = s->at + (MAX_OF(from, s->from) - s->from);
			return true;
		}
	}
	return false;
}

/* How many bytes of the channel are held back. */
static size_t held_of(const struct mask_flow *flow, unsigned channel)
{
	size_t sum = 0;

	for (size_t i = flow->segment_count; i > 0; i--) {
		const struct segment *s = &flow->segments[i - 1];
		uint64_t from = MAX_OF(s->at, emitted_end(flow));

		if (s->at + s->len <= from)
			break;
		if (s->channel == channel)
			sum += (size_t)(s->at + s->len - from);
	}
	return sum;
}

uint64_t mask_flow_acked(const struct mask_flow *flow)
{
	uint64_t emitted = emitted_end(flow), acked = emitted;

	if (FENCE_OFF("secret.mask.ack"))
		return flow->total;
	for (unsigned i = 0; i < MASK_CHANNELS; i++) {
		const struct channel *channel = &flow->channels[i];
		uint64_t border = channel->end - held_of(flow, i);
		uint64_t need = MIN_OF(border, channel->end - channel->tail_len);
		uint64_t at;

		/* No value is longer than a piece. */
		if (channel->masked > border)
			need = MIN_OF(need, border - MIN_OF(border, (uint64_t)MASK_PIECE_MAX));
		if (need < border && find_offset(flow, i, need, &at) && at < acked &&
		    emitted - at < MASK_LOOKBACK)
			acked = at;
	}
	return acked;
}

static void drop_segments(struct mask_flow *flow)
{
	uint64_t acked = mask_flow_acked(flow), emitted = emitted_end(flow);
	size_t n = 0, emitted_count = 0;

	while (emitted_count < flow->segment_count &&
	       flow->segments[emitted_count].at + flow->segments[emitted_count].len <= emitted)
		emitted_count++;
	while (n < emitted_count && (flow->segments[n].at + flow->segments[n].len <= acked ||
				     emitted_count - n > SEGMENTS_MAX))
		n++;
	if (n == 0)
		return;
	flow->segment_count -= n;
	memmove(flow->segments, flow->segments + n, flow->segment_count * sizeof(*flow->segments));
}

/* Emits the first bytes of what is held back; neighbours of one channel together. */
static int emit_held(struct mask_flow *flow, size_t len, mask_emit_fn *emit, void *arg,
		     struct error *err)
{
	uint64_t begin = emitted_end(flow), end = begin + len;
	size_t done = 0;

	for (size_t i = 0; i < flow->segment_count && done < len; i++) {
		const struct segment *s = &flow->segments[i];
		uint64_t to;

		if (s->at + s->len <= begin + done)
			continue;
		while (i + 1 < flow->segment_count && s->channel == flow->segments[i + 1].channel)
			i++;
		to = MIN_OF(end, flow->segments[i].at + flow->segments[i].len);
		if (emit(arg, s->channel, flow->held.data + done, (size_t)(to - begin) - done,
			 err) < 0)
			return -1;
		done = (size_t)(to - begin);
	}
	if (len > 0)
		buf_consume(&flow->held, len);
	drop_segments(flow);
	return 0;
}

static void cover(struct mask_flow *flow, unsigned channel)
{
	uint64_t emitted = emitted_end(flow);

	for (size_t i = 0; i < flow->found_count; i++) {
		for (size_t j = flow->segment_count; j > 0; j--) {
			const struct segment *s = &flow->segments[j - 1];
			uint64_t begin = MAX_OF(flow->found[i].begin, s->from);
			uint64_t end = MIN_OF(flow->found[i].end, s->from + s->len);

			if (s->at + s->len <= emitted)
				break;
			if (s->channel != channel || begin >= end)
				continue;
			begin = MAX_OF(s->at + (begin - s->from), emitted);
			end = s->at + (end - s->from);
			if (begin < end)
				memset(flow->held.data + (begin - emitted), '*',
				       (size_t)(end - begin));
		}
	}
}

/* How much of what is held back need not be. */
static size_t free_to_go(const struct mask_flow *flow)
{
	uint64_t emitted = emitted_end(flow), until = flow->total;

	if (flow->held.len > HELD_MAX)
		return flow->held.len;
	for (unsigned i = 0; i < MASK_CHANNELS; i++) {
		const struct channel *channel = &flow->channels[i];
		uint64_t first = channel->end - held_of(flow, i);
		uint64_t at;

		if (channel->tail_len == 0 ||
		    (flow->terminal && channel->tail_len < MASK_TERMINAL_MIN))
			continue;
		first = MAX_OF(first, channel->end - channel->tail_len);
		if (find_offset(flow, i, first, &at))
			until = MIN_OF(until, at);
	}
	return (size_t)(until - emitted);
}

/* What the log has already: only how it may go on is of interest. */
static void prime(struct mask_flow *flow, unsigned channel, const uint8_t *data, size_t len,
		  int64_t now)
{
	search(flow, &flow->channels[channel], data, len);
	push_segment(flow, channel, len, now);
	drop_segments(flow);
}

int mask_flow_take(struct mask_flow *flow, unsigned channel, const void *data, size_t len,
		   int64_t now_mono, mask_emit_fn *emit, void *arg, struct error *err)
{
	struct channel *to = &flow->channels[channel];

	assert(channel < MASK_CHANNELS);
	if (flow->total < flow->stored) {
		size_t known = (size_t)MIN_OF((uint64_t)len, flow->stored - flow->total);

		prime(flow, channel, data, known, now_mono);
		data = (const uint8_t *)data + known;
		len -= known;
	}
	if (len == 0)
		return 0;
	search(flow, to, data, len);
	if (flow->found_count == 0 && flow->held.len == 0 && to->tail_len == 0) {
		if (emit(arg, channel, data, len, err) < 0)
			return -1;
		flow->total += len;
		if (flow->segment_count > 0)
			drop_segments(flow);
		return 0;
	}
	push_segment(flow, channel, len, now_mono);
	buf_append(&flow->held, data, len);
	cover(flow, channel);
	return emit_held(flow, free_to_go(flow), emit, arg, err);
}

int mask_flow_flush(struct mask_flow *flow, mask_emit_fn *emit, void *arg, struct error *err)
{
	return flow->held.len > 0 ? emit_held(flow, flow->held.len, emit, arg, err) : 0;
}

void mask_flow_skip(struct mask_flow *flow, uint64_t len)
{
	assert(flow->held.len == 0);
	flow->total += len;
	flow->segment_count = 0;
	for (unsigned i = 0; i < MASK_CHANNELS; i++) {
		flow->channels[i].tail_len = 0;
		flow->channels[i].masked = 0;
	}
}

int64_t mask_flow_due(const struct mask_flow *flow)
{
	uint64_t emitted = emitted_end(flow);

	if (flow->held.len == 0)
		return 0;
	for (size_t i = 0; i < flow->segment_count; i++) {
		if (flow->segments[i].at + flow->segments[i].len > emitted)
			return flow->segments[i].came + MASK_HOLD_MS;
	}
	return 0;
}

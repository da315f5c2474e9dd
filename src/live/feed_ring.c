#include <string.h>
#include "base/text.h"
#include "live/feed_internal.h"

struct frame *frame_new(unsigned type, int64_t seq, const struct buf *text)
{
	struct frame *frame = xmalloc(sizeof(*frame) + text->len);

	*frame = (struct frame){ .refs = 1, .type = type, .seq = seq, .len = text->len };
	memcpy(frame->data, text->data, text->len);
	return frame;
}

void frame_put(struct frame *frame)
{
	if (frame && --frame->refs == 0)
		free(frame);
}

struct frame *frame_at(const struct ring *ring, uint64_t position)
{
	return ring->frames[position % ring->size];
}

void frame_event(struct buf *out, const char *company_id, const struct event_row *row)
{
	const char *type = event_type_name(row->type);
	char time[TIME_ISO_SIZE];

	time_iso(row->created_at, time);
	if (row->seq)
		buf_printf(out, "id: %lld\n", (long long)row->seq);
	buf_printf(out, "event: %s\ndata: {\"id\":", type);
	if (row->seq)
		buf_printf(out, "%lld", (long long)row->seq);
	else
		buf_puts(out, "null");
	buf_printf(out, ",\"companyId\":\"%s\",\"type\":\"%s\",\"createdAt\":\"%s\",\"payload\":",
		   company_id, type, time);
	buf_puts(out, row->payload);
	buf_puts(out, "}\n\n");
}

void ring_push(struct feed *feed, struct ring *ring, unsigned type, int64_t seq,
	       const struct buf *text)
{
	struct frame *frame = frame_new(type, seq, text);

	while (ring->first < ring->end && (ring->end - ring->first == ring->size ||
					   ring->bytes + frame->len > feed->options.ring_bytes)) {
		struct frame *old = frame_at(ring, ring->first);

		ring->bytes -= old->len;
		ring->floor = MAX_OF(ring->floor, old->seq);
		frame_put(old);
		ring->first++;
	}
	ring->frames[ring->end++ % ring->size] = frame;
	ring->bytes += frame->len;
}

void ring_put(struct feed *feed, struct ring *ring)
{
	if (--ring->refs > 0)
		return;
	for (struct ring **at = &feed->rings; *at; at = &(*at)->next) {
		if (*at != ring)
			continue;
		*at = ring->next;
		break;
	}
	for (; ring->first < ring->end; ring->first++)
		frame_put(frame_at(ring, ring->first));
	free(ring);
}

struct ring *ring_of(struct feed *feed, const char *company_id, int64_t now)
{
	for (struct ring *ring = feed->rings; ring; ring = ring->next) {
		if (streq(ring->company_id, company_id))
			return ring;
	}

	size_t size = feed->options.ring_frames;
	struct ring *ring = xcalloc(1, sizeof(*ring) + size * sizeof(ring->frames[0]));

	id_copy(ring->company_id, company_id);
	ring->size = size;
	ring->head = ring->floor = now;
	ring->next = feed->rings;
	feed->rings = ring;
	return ring;
}

#include "relay/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "wire/place.h"

#define MEMORY_STAGE (16u << 10)
#define MEMORY_FIRST 512u
/* A flood of tiny alternating writes fills this before the ring: it then counts as full. */
#define SEGMENTS_MAX RELAY_RING_SEGMENTS

void ring_init(struct ring *ring, int spool_fd, const char *id, uint64_t size)
{
	*ring = (struct ring){
		.size = size,
		.spool_fd = spool_fd,
		.fd = -1,
	};
	snprintf(ring->name, sizeof(ring->name), RELAY_RING_PREFIX "%s", id);
}

void ring_free(struct ring *ring)
{
	free(ring->segments);
	free(ring->memory);
	if (ring->fd >= 0) {
		unlinkat(ring->spool_fd, ring->name, 0);
		close(ring->fd);
	}
	ring->segments = NULL;
	ring->memory = NULL;
	ring->fd = -1;
}

static struct segment *segment_at(const struct ring *ring, uint32_t index)
{
	return &ring->segments[(ring->seg_first + index) % ring->seg_cap];
}

size_t ring_room(const struct ring *ring)
{
	if (ring->seg_count >= SEGMENTS_MAX)
		return 0;
	return ring->size - (ring->end - ring->begin);
}

uint32_t ring_segment_count(const struct ring *ring)
{
	return ring->seg_count;
}

const struct segment *ring_segment(const struct ring *ring, uint32_t index)
{
	return segment_at(ring, index);
}

void ring_release(struct ring *ring, uint64_t offset)
{
	offset = MIN_OF(offset, ring->end);
	if (offset <= ring->begin)
		return;
	ring->begin = offset;
	while (ring->seg_count > 0) {
		struct segment *first = segment_at(ring, 0);

		if (first->offset + first->len > offset)
			break;
		ring->seg_first = (ring->seg_first + 1) % ring->seg_cap;
		ring->seg_count--;
	}
}

static void segment_push(struct ring *ring, enum wire_channel channel, size_t len)
{
	struct segment *last = ring->seg_count ? segment_at(ring, ring->seg_count - 1) : NULL;

	if (last && last->channel == channel && last->len + (uint64_t)len <= INT32_MAX) {
		last->len += (uint32_t)len;
		return;
	}
	if (ring->seg_count == ring->seg_cap) {
		uint32_t cap = MAX_OF(ring->seg_cap * 2, 4u);
		struct segment *grown = xcalloc(cap, sizeof(*grown));

		for (uint32_t i = 0; i < ring->seg_count; i++)
			grown[i] = *segment_at(ring, i);
		free(ring->segments);
		ring->segments = grown;
		ring->seg_cap = cap;
		ring->seg_first = 0;
	}
	ring->seg_count++;
	*segment_at(ring, ring->seg_count - 1) = (struct segment){
		.offset = ring->end,
		.channel_offset = ring->channel_end[channel],
		.len = (uint32_t)len,
		.channel = channel,
	};
}

static int file_open(struct ring *ring, struct error *err)
{
	ring->fd = openat(ring->spool_fd, ring->name,
			  O_CREAT | O_TRUNC | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (ring->fd < 0)
		return error_errno(err, errno, "opening a ring file");
	return 0;
}

static int file_store(struct ring *ring, uint64_t offset, const uint8_t *data, size_t len,
		      struct error *err)
{
	uint64_t pos = offset % ring->size;
	size_t first = (size_t)MIN_OF((uint64_t)len, ring->size - pos);

	if (fd_pwrite_all(ring->fd, data, first, (off_t)pos, err) < 0)
		return -1;
	if (first == len)
		return 0;
	return fd_pwrite_all(ring->fd, data + first, len - first, 0, err);
}

/* Moves from memory to the file. */
static int spill(struct ring *ring, struct error *err)
{
	if (ring->fd < 0 && file_open(ring, err) < 0)
		return -1;
	if (ring->memory && file_store(ring, ring->memory_from, ring->memory,
				       (size_t)(ring->end - ring->memory_from), err) < 0)
		return -1;
	free(ring->memory);
	ring->memory = NULL;
	ring->memory_cap = 0;
	return 0;
}

static void memory_store(struct ring *ring, const void *data, size_t len)
{
	size_t need = (size_t)ring->end + len;

	/* Most say little, and of that much the allocator needs no pages of the kernel. */
	if (need > ring->memory_cap) {
		ring->memory_cap = MAX_OF(2 * ring->memory_cap, MEMORY_FIRST);
		ring->memory_cap = MIN_OF(MAX_OF(ring->memory_cap, need), MEMORY_STAGE);
		ring->memory = xrealloc(ring->memory, ring->memory_cap);
	}
	memcpy(ring->memory + ring->end, data, len);
}

static int disk_store(struct ring *ring, const void *data, size_t len, struct error *err)
{
	if ((ring->fd < 0 || ring->memory) && spill(ring, err) < 0)
		return -1;
	return file_store(ring, ring->end, data, len, err);
}

/* The ring is empty: this portion is all that there is to keep. */
static void memory_restart(struct ring *ring, const void *data, size_t len)
{
	free(ring->memory);
	ring->memory = xmalloc(len);
	ring->memory_cap = len;
	ring->memory_from = ring->end;
	memcpy(ring->memory, data, len);
}

int ring_append(struct ring *ring, enum wire_channel channel, const void *data, size_t len,
		struct error *err)
{
	if (len == 0)
		return 0;
	if (ring->fd < 0 && ring->memory_from == 0 && ring->end + len <= MEMORY_STAGE) {
		memory_store(ring, data, len);
	} else if (disk_store(ring, data, len, err) < 0) {
		if (ring->begin < ring->end)
			return -1;
		error_clear(err);
		memory_restart(ring, data, len);
	}
	segment_push(ring, channel, len);
	ring->end += len;
	ring->channel_end[channel] += len;
	return 0;
}

static const struct segment *segment_find(const struct ring *ring, uint64_t offset)
{
	uint32_t low = 0, high = ring->seg_count;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (segment_at(ring, middle)->offset <= offset)
			low = middle;
		else
			high = middle;
	}
	return segment_at(ring, low);
}

ssize_t ring_read(const struct ring *ring, uint64_t offset, void *out, size_t max,
		  enum wire_channel *channel, uint64_t *channel_offset, struct error *err)
{
	const struct segment *segment;
	uint64_t inside, pos;
	size_t len;
	ssize_t n;

	if (offset < ring->begin || offset >= ring->end)
		return error_set(err, ERR_INTERNAL, "offset %llu is not in the ring",
				 (unsigned long long)offset);
	segment = segment_find(ring, offset);
	inside = offset - segment->offset;
	*channel = segment->channel;
	*channel_offset = segment->channel_offset + inside;
	len = (size_t)MIN_OF((uint64_t)max, segment->len - inside);
	if (ring->memory) {
		memcpy(out, ring->memory + (offset - ring->memory_from), len);
		return (ssize_t)len;
	}
	pos = offset % ring->size;
	len = (size_t)MIN_OF((uint64_t)len, ring->size - pos);
	do {
		n = pread(ring->fd, out, len, (off_t)pos);
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		return error_errno(err, n < 0 ? errno : EIO, "reading the ring");
	return n;
}

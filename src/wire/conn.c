#include "wire/conn.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/fd.h"
#include "wire/message.h"

#define FILL_CHUNK (64u << 10)
/* A buffer above this is given back when it is empty: idle relays are many. */
#define KEEP_CAPACITY 8192
/* Of a connection in bulk: giving memory back and having it cleared again costs as much as copying.
 */
#define BULK_CHUNK (256u << 10)
#define BULK_CAPACITY (2u << 20)
/* Shorter frames are not worth two more calls. */
#define PART_MIN (64u << 10)

void conn_init(struct conn *c, int fd, uint32_t max_payload)
{
	*c = (struct conn){ .fd = fd, .max_payload = max_payload };
}

void conn_close(struct conn *c)
{
	/* Requests may have carried secrets. */
	if (c->in.data)
		wipe(c->in.data, c->in.cap);
	buf_free(&c->in);
	buf_free(&c->out);
	while (c->fd_count > 0)
		close(c->fds[--c->fd_count]);
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

static void drop_front(const struct conn *c, struct buf *b, size_t *pos)
{
	if (*pos == b->len) {
		b->len = 0;
		if (b->cap > (c->bulk ? BULK_CAPACITY : KEEP_CAPACITY))
			buf_free(b);
	} else if (*pos > 0) {
		memmove(b->data, b->data + *pos, b->len - *pos);
		b->len -= *pos;
	}
	*pos = 0;
}

/* How much is to be read behind what is there. */
static size_t wanted_room(struct conn *c)
{
	size_t have = c->in.len, room;
	uint32_t wanted = 0;

	if (c->rest > 0)
		return MIN_OF(c->rest, BULK_CHUNK);
	if (c->lean && have < WIRE_HEADER_SIZE)
		return WIRE_HEADER_SIZE - have;
	if (have >= WIRE_HEADER_SIZE)
		wanted = MIN_OF(get_le32((const uint8_t *)c->in.data), c->max_payload);
	room = MAX_OF(MIN_OF(FILL_CHUNK, c->max_payload + WIRE_HEADER_SIZE), 512);
	if (wanted + WIRE_HEADER_SIZE > have && !(c->wide && have == 0))
		room = MIN_OF(MAX_OF((size_t)wanted + WIRE_HEADER_SIZE - have, 512), room);
	/* The first bytes of an idle connection are usually one small request. */
	if (have == 0)
		room = MIN_OF(room, KEEP_CAPACITY - 1);
	return c->bulk ? MAX_OF(room, BULK_CHUNK) : room;
}

/* Whoever sends more than it speaks of is not one of ours. */
static ssize_t receive_with_fds(struct conn *c, void *data, size_t room)
{
	size_t count = CONN_FDS_MAX - c->fd_count;
	ssize_t n;

	if (count == 0) {
		errno = EPROTO;
		return -1;
	}
	n = fd_recv_with(c->fd, data, room, c->fds + c->fd_count, &count, MSG_DONTWAIT);
	c->fd_count += (unsigned)count;
	return n;
}

int conn_take_fd(struct conn *c)
{
	int fd = c->fd_count > 0 ? c->fds[0] : -1;

	if (fd >= 0)
		memmove(c->fds, c->fds + 1, --c->fd_count * sizeof(c->fds[0]));
	return fd;
}

int conn_fill(struct conn *c)
{
	size_t room;
	ssize_t n;

	drop_front(c, &c->in, &c->in_pos);
	room = wanted_room(c);
	buf_reserve(&c->in, room);
	n = c->takes_fds ? receive_with_fds(c, c->in.data + c->in.len, room)
			 : recv(c->fd, c->in.data + c->in.len, room, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (n == 0)
		return -1;
	c->in.len += (size_t)n;
	return 1;
}

void conn_passed(struct conn *c, size_t bytes)
{
	c->rest -= (uint32_t)bytes;
	c->lean = c->rest == 0;
}

/* The beginning of a frame is there, and its length was found right. */
static void begin_part(struct conn *c)
{
	const uint8_t *data = (const uint8_t *)c->in.data + c->in_pos;

	c->lean = false;
	if (!c->bulk || c->in.len - c->in_pos < WIRE_HEADER_SIZE || data[4] != WIRE_DATA ||
	    get_le32(data) < PART_MIN)
		return;
	c->part = (struct frame){ .type = data[4], .flags = data[5], .stream = get_le32(data + 6) };
	c->rest = get_le32(data);
	c->in_pos += WIRE_HEADER_SIZE;
}

static int next_part(struct conn *c, struct frame *frame)
{
	size_t n = MIN_OF(c->in.len - c->in_pos, (size_t)c->rest);

	if (n == 0)
		return 0;
	*frame = c->part;
	frame->payload = (const uint8_t *)c->in.data + c->in_pos;
	frame->length = (uint32_t)n;
	c->in_pos += n;
	conn_passed(c, n);
	if (c->rest > 0)
		frame->flags &= (uint8_t)~WIRE_END;
	return 1;
}

int conn_next(struct conn *c, struct frame *frame, struct error *err)
{
	size_t used = 0;
	int r;

	if (c->in_pos == c->in.len)
		return 0;
	if (c->rest > 0)
		return next_part(c, frame);
	r = frame_parse((const uint8_t *)c->in.data + c->in_pos, c->in.len - c->in_pos,
			c->max_payload, frame, &used, err);
	if (r > 0) {
		c->in_pos += used;
		c->lean = c->bulk && frame->type == WIRE_DATA && frame->length >= PART_MIN;
	}
	if (r != 0)
		return r;
	begin_part(c);
	return next_part(c, frame);
}

int conn_flush(struct conn *c)
{
	while (conn_backlog(c) > 0) {
		ssize_t n = send(c->fd, c->out.data + c->out_pos, conn_backlog(c),
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -1;
		c->out_pos += (size_t)n;
	}
	drop_front(c, &c->out, &c->out_pos);
	return 0;
}

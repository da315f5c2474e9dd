#include "wire/conn.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FILL_CHUNK (64u << 10)
/* A buffer above this is given back when it is empty: idle relays are many. */
#define KEEP_CAPACITY 4096
/* Of a connection in bulk: giving memory back and having it cleared again costs as much as copying.
 */
#define BULK_CHUNK (256u << 10)
#define BULK_CAPACITY (2u << 20)

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

int conn_fill(struct conn *c)
{
	uint32_t wanted = 0;
	size_t have, room;
	ssize_t n;

	drop_front(c, &c->in, &c->in_pos);
	have = c->in.len;
	if (have >= WIRE_HEADER_SIZE)
		wanted = MIN_OF(get_le32((const uint8_t *)c->in.data), c->max_payload);
	room = MAX_OF(MIN_OF(FILL_CHUNK, c->max_payload + WIRE_HEADER_SIZE), 512);
	if (wanted + WIRE_HEADER_SIZE > have)
		room = MIN_OF(MAX_OF((size_t)wanted + WIRE_HEADER_SIZE - have, 512), room);
	/* The first bytes of an idle connection are usually one small request. */
	if (have == 0)
		room = MIN_OF(room, KEEP_CAPACITY - 1);
	if (c->bulk)
		room = MAX_OF(room, BULK_CHUNK);
	buf_reserve(&c->in, room);
	n = recv(c->fd, c->in.data + have, room, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (n == 0)
		return -1;
	c->in.len += (size_t)n;
	return 1;
}

int conn_next(struct conn *c, struct frame *frame, struct error *err)
{
	size_t used = 0;
	int r;

	if (c->in_pos == c->in.len)
		return 0;
	r = frame_parse((const uint8_t *)c->in.data + c->in_pos, c->in.len - c->in_pos,
			c->max_payload, frame, &used, err);
	if (r > 0)
		c->in_pos += used;
	return r;
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

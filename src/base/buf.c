#include "base/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BUF_FIRST_CAP 64

/*
 * True when `extra` more bytes may be kept; otherwise the buffer remembers that something was
 * dropped.
 */
static bool buf_admits(struct buf *b, size_t extra)
{
	if (b->max && (b->len > b->max || extra > b->max - b->len)) {
		b->overflow = true;
		return false;
	}
	return true;
}

void buf_reserve(struct buf *b, size_t extra)
{
	size_t need;

	if (__builtin_add_overflow(b->len, extra, &need) || __builtin_add_overflow(need, 1, &need))
		abort();
	if (need <= b->cap)
		return;

	size_t cap = b->cap ? b->cap : BUF_FIRST_CAP;

	while (cap < need) {
		if (__builtin_mul_overflow(cap, 2, &cap))
			cap = need;
	}
	b->data = xrealloc(b->data, cap);
	b->cap = cap;
	b->data[b->len] = '\0';
}

void buf_append(struct buf *b, const void *data, size_t len)
{
	if (!buf_admits(b, len))
		return;
	buf_reserve(b, len);
	if (len)
		memcpy(b->data + b->len, data, len);
	b->len += len;
	b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *s)
{
	buf_append(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c)
{
	buf_append(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(b, fmt, ap);
	va_end(ap);
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;

	va_copy(again, ap);
	buf_reserve(b, 0);

	size_t room = b->cap - b->len;
	int n = vsnprintf(b->data + b->len, room, fmt, ap);

	/* Only a broken format or a text beyond INT_MAX gets here: a bug, not an input. */
	if (n < 0)
		abort();

	size_t len = (size_t)n;

	if (!buf_admits(b, len)) {
		b->data[b->len] = '\0';
	} else {
		if (len >= room) {
			buf_reserve(b, len);
			vsnprintf(b->data + b->len, b->cap - b->len, fmt, again);
		}
		b->len += len;
	}
	va_end(again);
}

void buf_consume(struct buf *b, size_t n)
{
	assert(n <= b->len);
	if (!n)
		return;
	b->len -= n;
	/* One byte more than what is left: the terminator moves along. */
	memmove(b->data, b->data + n, b->len + 1);
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->overflow = false;
	if (b->data)
		b->data[0] = '\0';
}

char *buf_steal(struct buf *b)
{
	buf_reserve(b, 0);

	char *data = b->data;

	*b = (struct buf){ .max = b->max };
	return data;
}

const char *buf_str(const struct buf *b)
{
	return b->data ? b->data : "";
}

void buf_free(struct buf *b)
{
	free(b->data);
	*b = (struct buf){ .max = b->max };
}

void buf_free_wiped(struct buf *b)
{
	if (b->data)
		wipe(b->data, b->len);
	buf_free(b);
}

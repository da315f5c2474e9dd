/*
 * The one string builder: a growing byte buffer, always NUL-terminated behind `len`.
 * A buffer with `max` set refuses to grow past it and remembers that in `overflow`.
 * Zero-initialise to start: `struct buf b = { 0 };`
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include "base/mem.h"

struct buf {
	char *data;
	size_t len;
	size_t cap;
	size_t max;    /* 0: no limit */
	bool overflow; /* something did not fit and was dropped whole */
};

void buf_append(struct buf *b, const void *data, size_t len);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/* Room for extra more bytes behind len, whatever max says: who writes there looks at max first. */
void buf_reserve(struct buf *b, size_t extra);
void buf_consume(struct buf *b, size_t n); /* drops n bytes from the front */
void buf_reset(struct buf *b);             /* empty, keeps the memory */
char *buf_steal(struct buf *b);            /* never NULL; the buffer is empty afterwards */
const char *buf_str(const struct buf *b);  /* never NULL */
void buf_free(struct buf *b);
#define _cleanup_buf_ _cleanup_(buf_free)
void buf_free_wiped(struct buf *b); /* for what nobody may find in memory later */
#define _cleanup_buf_wiped_ _cleanup_(buf_free_wiped)

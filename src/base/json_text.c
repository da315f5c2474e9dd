#include <stdio.h>
#include <string.h>
#include "base/json_plain.h"
#include "base/text.h"

/*
 * jansson writes through a callback, decodes every character and keeps a hash table against loops:
 * half of what answering a request took. Values of ours hold valid UTF-8 and are trees, so it is
 * enough to look for the few bytes that must not stand in a string.
 */
#define FIRST_SIZE 512

static void put_value(struct buf *out, const json_t *value);

static void put_escaped(struct buf *out, unsigned char c)
{
	static const char SHORT[] = { ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
				      ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\' };
	char text[8];

	if (c < sizeof(SHORT) && SHORT[c])
		snprintf(text, sizeof(text), "\\%c", SHORT[c]);
	else
		snprintf(text, sizeof(text), "\\u%04X", c);
	buf_puts(out, text);
}

static void put_string_in_parts(struct buf *out, const char *s, size_t len)
{
	buf_putc(out, '"');
	for (;;) {
		size_t plain = json_plain_length(s, len);

		buf_append(out, s, plain);
		if (plain == len)
			break;
		put_escaped(out, (unsigned char)s[plain]);
		s += plain + 1;
		len -= plain + 1;
	}
	buf_putc(out, '"');
}

/* Most strings are short and plain: room is made once, and nothing else is asked. */
static void put_string(struct buf *out, const char *s, size_t len)
{
	char *p;

	if (out->max || json_plain_length(s, len) < len) {
		put_string_in_parts(out, s, len);
		return;
	}
	buf_reserve(out, len + 2);
	p = out->data + out->len;
	*p++ = '"';
	memcpy(p, s, len);
	p[len] = '"';
	p[len + 1] = '\0';
	out->len += len + 2;
}

void json_write_str(struct buf *out, const char *text)
{
	size_t len = strlen(text);
	_cleanup_buf_ struct buf mended = { 0 };

	if (!utf8_valid(text, len)) {
		utf8_repair(&mended, text, len);
		text = mended.data;
		len = mended.len;
	}
	put_string(out, text, len);
}

static void put_integer(struct buf *out, json_int_t value)
{
	char digits[24], *p = digits + sizeof(digits);
	uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;

	do {
		*--p = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest);
	if (value < 0)
		*--p = '-';
	buf_append(out, p, (size_t)(digits + sizeof(digits) - p));
}

/* Rare, and with rules of its own: the shortest digits that read back as the same number. */
static void put_real(struct buf *out, const json_t *value)
{
	char text[64];
	size_t len = json_dumpb(value, text, sizeof(text), JSON_ENCODE_ANY);

	if (!len || len > sizeof(text))
		abort();
	buf_append(out, text, len);
}

static void put_object(struct buf *out, const json_t *value)
{
	json_t *object = (json_t *)(uintptr_t)value; /* jansson's iterators are not for const */
	char separator = '{';

	if (!json_object_size(object)) {
		buf_append(out, "{}", 2);
		return;
	}
	for (void *i = json_object_iter(object); i; i = json_object_iter_next(object, i)) {
		buf_putc(out, separator);
		put_string(out, json_object_iter_key(i), json_object_iter_key_len(i));
		buf_putc(out, ':');
		put_value(out, json_object_iter_value(i));
		separator = ',';
	}
	buf_putc(out, '}');
}

static void put_array(struct buf *out, const json_t *array)
{
	buf_putc(out, '[');
	for (size_t i = 0; i < json_array_size(array); i++) {
		if (i)
			buf_putc(out, ',');
		put_value(out, json_array_get(array, i));
	}
	buf_putc(out, ']');
}

static void put_value(struct buf *out, const json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		put_object(out, value);
		break;
	case JSON_ARRAY:
		put_array(out, value);
		break;
	case JSON_STRING:
		put_string(out, json_string_value(value), json_string_length(value));
		break;
	case JSON_INTEGER:
		put_integer(out, json_integer_value(value));
		break;
	case JSON_REAL:
		put_real(out, value);
		break;
	case JSON_TRUE:
		buf_append(out, "true", 4);
		break;
	case JSON_FALSE:
		buf_append(out, "false", 5);
		break;
	case JSON_NULL:
		buf_append(out, "null", 4);
		break;
	}
}

char *json_text(const json_t *value)
{
	_cleanup_buf_ struct buf out = { 0 };

	if (!value)
		return xstrdup("null");
	buf_reserve(&out, FIRST_SIZE);
	put_value(&out, value);
	return buf_steal(&out);
}

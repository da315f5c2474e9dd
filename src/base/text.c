#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool str_equal(const char *a, const char *b)
{
	return a && b ? streq(a, b) : a == b;
}

bool str_starts(const char *s, const char *prefix)
{
	return s && strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
	if (!s)
		return false;

	size_t len = strlen(s), tail = strlen(suffix);

	return len >= tail && streq(s + len - tail, suffix);
}

/*
 * Decodes one character of [s, s+len), len > 0. Returns its length; 0 when the bytes are no UTF-8
 * (overlong forms, surrogates and values past U+10FFFF are none); -1 when they begin a character
 * that is not complete.
 */
static int utf8_decode(const unsigned char *s, size_t len, uint32_t *cp)
{
	unsigned char lead = s[0], low = 0x80, high = 0xbf;
	int need;

	if (lead < 0x80) {
		*cp = lead;
		return 1;
	}
	if (lead >= 0xc2 && lead <= 0xdf) {
		need = 1;
		*cp = lead & 0x1fu;
	} else if (lead >= 0xe0 && lead <= 0xef) {
		need = 2;
		*cp = lead & 0x0fu;
		if (lead == 0xe0)
			low = 0xa0;
		else if (lead == 0xed)
			high = 0x9f;
	} else if (lead >= 0xf0 && lead <= 0xf4) {
		need = 3;
		*cp = lead & 0x07u;
		if (lead == 0xf0)
			low = 0x90;
		else if (lead == 0xf4)
			high = 0x8f;
	} else {
		return 0;
	}
	for (int i = 1; i <= need; i++) {
		if ((size_t)i >= len)
			return -1;
		if (s[i] < low || s[i] > high)
			return 0;
		*cp = *cp << 6 | (s[i] & 0x3fu);
		low = 0x80;
		high = 0xbf;
	}
	return need + 1;
}

bool utf8_valid(const char *s, size_t len)
{
	const unsigned char *p = (const unsigned char *)s;
	uint32_t cp;

	while (len) {
		int n = utf8_decode(p, len, &cp);

		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

size_t utf8_partial_tail(const char *s, size_t len)
{
	const unsigned char *p = (const unsigned char *)s;
	uint32_t cp;

	for (size_t back = 1; back <= 3 && back <= len; back++) {
		unsigned char c = p[len - back];

		if (c < 0x80)
			return 0;
		if (c >= 0xc0)
			return utf8_decode(p + len - back, back, &cp) < 0 ? back : 0;
	}
	return 0;
}

void utf8_repair(struct buf *out, const char *s, size_t len)
{
	const unsigned char *p = (const unsigned char *)s;
	size_t i = 0, start = 0;
	uint32_t cp;

	while (i < len) {
		int n = utf8_decode(p + i, len - i, &cp);

		if (n > 0) {
			i += (size_t)n;
			continue;
		}
		buf_append(out, s + start, i - start);
		buf_puts(out, "\xef\xbf\xbd");
		start = ++i;
	}
	buf_append(out, s + start, len - start);
}

/* What JavaScript's trim removes: WhiteSpace and LineTerminator of ECMA-262. */
static bool is_space(uint32_t cp)
{
	switch (cp) {
	case '\t':
	case '\n':
	case '\v':
	case '\f':
	case '\r':
	case ' ':
	case 0x00a0:
	case 0x1680:
	case 0x2028:
	case 0x2029:
	case 0x202f:
	case 0x205f:
	case 0x3000:
	case 0xfeff:
		return true;
	default:
		return cp >= 0x2000 && cp <= 0x200a;
	}
}

size_t str_trim(const char *s, const char **start)
{
	const unsigned char *p = (const unsigned char *)s;
	size_t len = strlen(s), i = 0, first = 0, end = 0;
	bool seen = false;

	while (i < len) {
		uint32_t cp = 0;
		int n = utf8_decode(p + i, len - i, &cp);
		bool space = n > 0 && is_space(cp);

		if (!space && !seen) {
			first = i;
			seen = true;
		}
		i += n > 0 ? (size_t)n : 1;
		if (!space)
			end = i;
	}
	*start = s + (seen ? first : len);
	return end - first;
}

char *str_trimmed(const char *s)
{
	const char *start;
	size_t len = str_trim(s, &start);

	return xstrndup(start, len);
}

bool str_blank(const char *s)
{
	const char *start;

	return !s || str_trim(s, &start) == 0;
}

bool parse_i64(const char *s, int64_t min, int64_t max, int64_t *out)
{
	bool negative = s && *s == '-';
	int64_t value = 0;

	if (!s)
		return false;
	if (negative)
		s++;
	if (!*s)
		return false;
	/* Counted downward, because INT64_MIN has no positive twin. */
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return false;
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_sub_overflow(value, *s - '0', &value))
			return false;
	}
	if (!negative && __builtin_sub_overflow((int64_t)0, value, &value))
		return false;
	if (value < min || value > max)
		return false;
	*out = value;
	return true;
}

bool parse_duration_ms(const char *s, int64_t *out)
{
	static const struct {
		const char *suffix;
		int64_t ms;
	} units[] = {
		{ "", 1000 },       { "ms", 1 },          { "s", 1000 },
		{ "m", 60 * 1000 }, { "h", 3600 * 1000 }, { "d", 24 * 3600 * 1000 },
	};
	char digits[24];
	int64_t value;

	if (!s)
		return false;

	size_t n = strspn(s, "0123456789");

	if (n == 0 || n >= sizeof(digits))
		return false;
	memcpy(digits, s, n);
	digits[n] = '\0';
	if (!parse_i64(digits, 0, INT64_MAX, &value))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (streq(s + n, units[i].suffix))
			return !__builtin_mul_overflow(value, units[i].ms, out);
	}
	return false;
}

void format_duration(int64_t ms, char *out, size_t size)
{
	int64_t s = ms / 1000;

	if (ms < 1000)
		snprintf(out, size, "%" PRId64 " ms", ms < 0 ? 0 : ms);
	else if (s < 60)
		snprintf(out, size, "%" PRId64 ".%" PRId64 " s", s, ms % 1000 / 100);
	else if (s < 3600)
		snprintf(out, size, "%" PRId64 " m %02" PRId64 " s", s / 60, s % 60);
	else if (s < 24 * 3600)
		snprintf(out, size, "%" PRId64 " h %02" PRId64 " m", s / 3600, s / 60 % 60);
	else
		snprintf(out, size, "%" PRId64 " d %02" PRId64 " h", s / 86400, s / 3600 % 24);
}

static const char base64_digits[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(struct buf *out, const void *data, size_t len)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < len; i += 3) {
		size_t n = MIN_OF(len - i, (size_t)3);
		uint32_t v = (uint32_t)p[i] << 16;

		if (n > 1)
			v |= (uint32_t)p[i + 1] << 8;
		if (n > 2)
			v |= p[i + 2];

		char quad[4] = {
			base64_digits[v >> 18],
			base64_digits[v >> 12 & 63],
			n > 1 ? base64_digits[v >> 6 & 63] : '=',
			n > 2 ? base64_digits[v & 63] : '=',
		};

		buf_append(out, quad, sizeof(quad));
	}
}

static int base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/*
 * One group of four; `pad` says how many '=' end it. Bits that the padding cuts off must be zero.
 */
static bool base64_group(struct buf *out, const char *s, int pad)
{
	uint32_t v = 0;

	for (int i = 0; i < 4 - pad; i++) {
		int digit = base64_value(s[i]);

		if (digit < 0)
			return false;
		v |= (uint32_t)digit << (18 - 6 * i);
	}
	if (pad && v << (32 - 8 * pad) != 0)
		return false;

	char bytes[3] = { (char)(v >> 16), (char)(v >> 8 & 0xff), (char)(v & 0xff) };

	buf_append(out, bytes, (size_t)(3 - pad));
	return !out->overflow;
}

bool base64_decode(struct buf *out, const char *s, size_t len)
{
	size_t start = out->len;

	if (len % 4)
		return false;
	for (size_t i = 0; i < len; i += 4) {
		int pad = 0;

		if (i + 4 == len && s[i + 3] == '=')
			pad = s[i + 2] == '=' ? 2 : 1;
		if (!base64_group(out, s + i, pad)) {
			if (out->data)
				out->data[start] = '\0';
			out->len = start;
			return false;
		}
	}
	return true;
}

void hex_encode(char *out, const void *data, size_t len)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *p = data;

	for (size_t i = 0; i < len; i++) {
		out[2 * i] = digits[p[i] >> 4];
		out[2 * i + 1] = digits[p[i] & 15];
	}
	out[2 * len] = '\0';
}

int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

bool hex_decode(void *out, const char *hex, size_t out_len)
{
	unsigned char *p = out;

	for (size_t i = 0; i < out_len; i++) {
		int high = hex_digit(hex[2 * i]);
		int low = high < 0 ? -1 : hex_digit(hex[2 * i + 1]);

		if (low < 0)
			return false;
		p[i] = (unsigned char)(high << 4 | low);
	}
	return hex[2 * out_len] == '\0';
}

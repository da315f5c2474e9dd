/* What reading and writing JSON share. Private to json*.c. */
#pragma once

#include <stdint.h>
#include <string.h>
#include "base/json.h"

/*
 * How many bytes, from the first on, stand for themselves in a JSON string: neither quote nor
 * backslash nor control character. Eight at a time; a byte that does not makes the whole word look
 * so, which is then looked at byte by byte.
 */
static inline size_t json_plain_length(const char *s, size_t len)
{
	const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
	size_t i = 0;

	for (; len - i >= 8; i += 8) {
		uint64_t word, quote, backslash;

		memcpy(&word, s + i, 8);
		quote = word ^ ones * '"';
		backslash = word ^ ones * '\\';
		if ((((word - ones * 0x20) & ~word) | ((quote - ones) & ~quote) |
		     ((backslash - ones) & ~backslash)) &
		    tops)
			break;
	}
	while (i < len && (unsigned char)s[i] >= 0x20 && s[i] != '"' && s[i] != '\\')
		i++;
	return i;
}

/*
 * Reads what is plain: no escapes, no fractions, no number of more than 18 digits. NULL for
 * anything else, be it valid or not: jansson is to look at it.
 */
json_t *json_read_plain(const char *text, size_t len);

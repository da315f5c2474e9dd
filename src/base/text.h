/*
 * Questions about text: validity, trimming, numbers, encodings. Nothing here allocates unless it
 * says so.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/buf.h"

#define streq(a, b) (strcmp((a), (b)) == 0)
bool str_equal(const char *a, const char *b); /* NULL equals only NULL */
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);

/* Length of s without what JavaScript's trim removes around it; *start is where it begins. */
size_t str_trim(const char *s, const char **start);
char *str_trimmed(const char *s); /* allocated */
bool str_blank(const char *s);    /* NULL, empty or only white space */

bool utf8_valid(const char *s, size_t len);
/* Bytes at the end of [s, s+len) that begin a character which is not complete yet: 0..3. */
size_t utf8_partial_tail(const char *s, size_t len);
/* Appends s with every byte that is not UTF-8 replaced by U+FFFD. */
void utf8_repair(struct buf *out, const char *s, size_t len);

/* Whole-string decimal; false on anything else, on overflow, and outside [min, max]. */
bool parse_i64(const char *s, int64_t min, int64_t max, int64_t *out);
/* "90", "90s", "10m", "2h", "1d", "1500ms" -> milliseconds; bare numbers are seconds. */
bool parse_duration_ms(const char *s, int64_t *out);
/* "12 ms", "3.4 s", "2 m 05 s" */
void format_duration(int64_t ms, char *out, size_t size);

void base64_encode(struct buf *out, const void *data, size_t len);
bool base64_decode(struct buf *out, const char *s, size_t len); /* strict, with padding */
void hex_encode(char *out, const void *data, size_t len);       /* writes 2*len+1 bytes */
bool hex_decode(void *out, const char *hex, size_t out_len);    /* wants exactly 2*out_len digits */
int hex_digit(char c);                                          /* its value; -1: it is none */

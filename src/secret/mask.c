/*
 * Every form of every value, and the search for all of them at once.
 *
 * The search looks at the last three bytes of a window of eight. If no form has them within its
 * first eight bytes, no form begins in the window before its last two, and the window moves by six
 * (the idea of Wu and Manber). Output that resembles no value is passed at a sixth of its bytes.
 */
#include "secret/mask.h"

#include <ctype.h>
#include <endian.h>
#include <stdatomic.h>
#include <string.h>
#include "base/text.h"

#define WINDOW MASK_VALUE_MIN
#define BLOCK 3
#define SHIFT_BITS 15
#define SHIFT_MAX (WINDOW - BLOCK + 1)
/* What is left behind the last whole piece is a piece of its own if it is not too short. */
#define PIECE_MIN MASK_LINE_MIN

struct form {
	struct form *next; /* in its bucket; while the mask is made: of all */
	uint32_t len;
	uint8_t bytes[];
};

struct mask {
	atomic_int refs;
	uint8_t shift[1u << SHIFT_BITS]; /* by hash of a block: how far the window may move */
	unsigned bucket_bits;
	struct form **buckets; /* by hash of the first WINDOW bytes */
	size_t count;
	uint64_t *firsts; /* the first WINDOW bytes of all forms as numbers, sorted */
};

static uint64_t first_number(const uint8_t *bytes)
{
	uint64_t number;

	memcpy(&number, bytes, sizeof(number));
	return be64toh(number);
}

static size_t bucket_of(const struct mask *mask, const uint8_t *bytes)
{
	uint64_t number;

	memcpy(&number, bytes, sizeof(number));
	return (size_t)((number * 0x9E3779B97F4A7C15u) >> (64 - mask->bucket_bits));
}

/* Of the three bytes behind the first. */
static unsigned block_hash(const uint8_t *bytes)
{
	uint32_t number;

	memcpy(&number, bytes, sizeof(number));
	return ((le32toh(number) >> 8) * 0x9E3779B1u) >> (32 - SHIFT_BITS);
}

/* The forms of a value */

struct forms {
	struct form *all;
	size_t count;
};

static void add_piece(struct forms *forms, const void *bytes, size_t len)
{
	struct form *form = xmalloc(sizeof(*form) + len);

	form->next = forms->all;
	form->len = (uint32_t)len;
	memcpy(form->bytes, bytes, len);
	forms->all = form;
	forms->count++;
}

static void add_form(struct forms *forms, const struct buf *text)
{
	const char *bytes = text->data;
	size_t len = text->len;

	if (len < WINDOW)
		return;
	while (len > MASK_PIECE_MAX) {
		size_t rest = len - MASK_PIECE_MAX;

		add_piece(forms, bytes, MASK_PIECE_MAX);
		/* A short rest is covered by a piece that overlaps the one before. */
		if (rest < PIECE_MIN) {
			add_piece(forms, bytes + rest, MASK_PIECE_MAX);
			return;
		}
		bytes += MASK_PIECE_MAX;
		len = rest;
	}
	add_piece(forms, bytes, len);
}

static void escape_json(struct buf *out, const uint8_t *s, size_t len)
{
	static const char short_forms[] = { ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
					    ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\' };

	for (size_t i = 0; i < len; i++) {
		if (s[i] < sizeof(short_forms) && short_forms[s[i]]) {
			buf_putc(out, '\\');
			buf_putc(out, short_forms[s[i]]);
		} else if (s[i] < 0x20) {
			buf_printf(out, "\\u%04x", s[i]);
		} else {
			buf_putc(out, (char)s[i]);
		}
	}
}

/* Encoders differ in what they leave as it is, and in the case of the digits. */
static const struct {
	const char *plain; /* besides letters, digits and -._~ */
	const char *digits;
} PERCENT[] = {
	{ "", "0123456789ABCDEF" },
	{ "", "0123456789abcdef" },
	{ "/", "0123456789ABCDEF" },
	{ "!'()*", "0123456789ABCDEF" },
};

static bool stays_plain(uint8_t c, size_t way)
{
	return isalnum(c) || (c && (strchr("-._~", c) || strchr(PERCENT[way].plain, c)));
}

static void escape_percent(struct buf *out, const uint8_t *s, size_t len, size_t way)
{
	const char *digits = PERCENT[way].digits;

	for (size_t i = 0; i < len; i++) {
		char escaped[3] = { '%', digits[s[i] >> 4], digits[s[i] & 15] };

		if (stays_plain(s[i], way))
			buf_putc(out, (char)s[i]);
		else
			buf_append(out, escaped, sizeof(escaped));
	}
}

/* The characters that only the value decides, when so many bytes come before it in a group. */
static void encode_base64(struct buf *out, const uint8_t *s, size_t len, size_t before, bool url)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
	size_t first = (8 * before + 5) / 6, end = 8 * (before + len) / 6;

	for (size_t i = first; i < end; i++) {
		size_t bit = 6 * i - 8 * before, byte = bit / 8;
		unsigned pair = (unsigned)s[byte] << 8 | (byte + 1 < len ? s[byte + 1] : 0);
		unsigned six = pair >> (10 - bit % 8) & 63;

		buf_putc(out, six < 62 ? letters[six] : (url ? "-_" : "+/")[six - 62]);
	}
}

static void add_forms(struct forms *forms, const uint8_t *s, size_t len)
{
	_cleanup_buf_ struct buf out = { 0 };

	/* Never moved while it grows, so that no copy is left behind. */
	buf_reserve(&out, 6 * len + 1);
	buf_append(&out, s, len);
	add_form(forms, &out);
	buf_reset(&out);
	escape_json(&out, s, len);
	add_form(forms, &out);
	for (size_t i = 0; i < ARRAY_SIZE(PERCENT); i++) {
		buf_reset(&out);
		escape_percent(&out, s, len, i);
		add_form(forms, &out);
	}
	for (size_t i = 0; i < 6; i++) {
		buf_reset(&out);
		encode_base64(&out, s, len, i % 3, i >= 3);
		add_form(forms, &out);
	}
	wipe(out.data, out.cap);
}

static void add_value(struct forms *forms, const struct secret_text *value)
{
	size_t len;
	const uint8_t *s = (const uint8_t *)secret_text_reveal(value, &len);
	size_t bare = len;

	/* Programs print it without the newline at its end as well. */
	while (bare > 0 && (s[bare - 1] == '\n' || s[bare - 1] == '\r'))
		bare--;
	if (len >= MASK_VALUE_MIN)
		add_forms(forms, s, len);
	if (bare != len && bare >= MASK_VALUE_MIN)
		add_forms(forms, s, bare);
	for (size_t at = 0, end; at < bare; at = end + 1) {
		const uint8_t *newline = memchr(s + at, '\n', bare - at);
		size_t line;

		end = newline ? (size_t)(newline - s) : bare;
		if (at == 0 && end == bare)
			return;
		line = end - at;
		if (line > 0 && s[end - 1] == '\r')
			line--;
		if (line >= MASK_LINE_MIN)
			add_forms(forms, s + at, line);
	}
}

/* The tables */

static void form_free(struct form *form)
{
	wipe(form->bytes, form->len);
	free(form);
}

static bool is_known(const struct form *bucket, const struct form *form)
{
	for (; bucket; bucket = bucket->next) {
		if (bucket->len == form->len && memcmp(bucket->bytes, form->bytes, form->len) == 0)
			return true;
	}
	return false;
}

static void enter(struct mask *mask, struct form *form)
{
	struct form **bucket = &mask->buckets[bucket_of(mask, form->bytes)];

	if (is_known(*bucket, form)) {
		form_free(form);
		return;
	}
	form->next = *bucket;
	*bucket = form;
	mask->firsts[mask->count++] = first_number(form->bytes);
	for (unsigned at = 0; at + BLOCK <= WINDOW; at++) {
		uint8_t block[BLOCK + 1] = { 0 };
		uint8_t *shift;

		memcpy(block + 1, form->bytes + at, BLOCK);
		shift = &mask->shift[block_hash(block)];
		*shift = (uint8_t)MIN_OF(*shift, WINDOW - BLOCK - at);
	}
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

struct mask *mask_new(const struct secret_text *values, size_t count)
{
	struct forms forms = { 0 };
	struct mask *mask;

	for (size_t i = 0; i < count; i++)
		add_value(&forms, &values[i]);
	if (forms.count == 0)
		return NULL;
	mask = xcalloc(1, sizeof(*mask));
	atomic_init(&mask->refs, 1);
	memset(mask->shift, SHIFT_MAX, sizeof(mask->shift));
	mask->bucket_bits = 6;
	while ((size_t)1 << mask->bucket_bits < 4 * forms.count)
		mask->bucket_bits++;
	mask->buckets = xcalloc((size_t)1 << mask->bucket_bits, sizeof(*mask->buckets));
	mask->firsts = xcalloc(forms.count, sizeof(*mask->firsts));
	while (forms.all) {
		struct form *form = forms.all;

		forms.all = form->next;
		enter(mask, form);
	}
	qsort(mask->firsts, mask->count, sizeof(*mask->firsts), compare_numbers);
	return mask;
}

struct mask *mask_ref(struct mask *mask)
{
	if (mask)
		atomic_fetch_add(&mask->refs, 1);
	return mask;
}

void mask_unref(struct mask *mask)
{
	if (!mask || atomic_fetch_sub(&mask->refs, 1) > 1)
		return;
	for (size_t i = 0; i < (size_t)1 << mask->bucket_bits; i++) {
		for (struct form *form = mask->buckets[i], *next; form; form = next) {
			next = form->next;
			form_free(form);
		}
	}
	free(mask->buckets);
	wipe(mask->firsts, mask->count * sizeof(*mask->firsts));
	free(mask->firsts);
	free(mask);
}

/* The search */

/* Whether fewer than WINDOW bytes are the beginning of a form. */
static bool begins_form(const struct mask *mask, const uint8_t *bytes, size_t len)
{
	uint8_t padded[WINDOW] = { 0 };
	size_t low = 0, high = mask->count;
	uint64_t key;

	memcpy(padded, bytes, len);
	key = first_number(padded);
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (mask->firsts[middle] < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low < mask->count && (mask->firsts[low] ^ key) >> (64 - 8 * len) == 0;
}

size_t mask_scan(const struct mask *mask, const void *data, size_t len, size_t starts,
		 mask_found_fn *found, void *arg)
{
	const uint8_t *bytes = data;
	size_t open = starts, at = 0;

	while (at < starts && at + WINDOW <= len) {
		unsigned shift = mask->shift[block_hash(bytes + at + WINDOW - BLOCK - 1)];
		size_t longest = 0;

		if (shift > 0) {
			at += shift;
			continue;
		}
		for (const struct form *form = mask->buckets[bucket_of(mask, bytes + at)]; form;
		     form = form->next) {
			size_t have = MIN_OF(len - at, (size_t)form->len);

			if (memcmp(form->bytes, bytes + at, have) != 0)
				continue;
			if (have == form->len)
				longest = MAX_OF(longest, have);
			else
				open = MIN_OF(open, at);
		}
		if (longest > 0)
			found(arg, at, at + longest);
		at++;
	}
	for (; at < starts && open == starts; at++) {
		if (begins_form(mask, bytes + at, len - at))
			open = at;
	}
	return open;
}

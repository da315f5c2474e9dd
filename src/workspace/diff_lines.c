/*
 * Myers' greedy algorithm over lines, after what is common at both ends is taken off. Each round d
 * finds how far one gets with d insertions and deletions; the rounds are remembered, and the way
 * back through them is the difference. Beyond MAX_ROUNDS all that is left in the middle is replaced
 * as a whole.
 */
#include "workspace/diff_lines.h"

#include <stdint.h>
#include <string.h>

#define MAX_LINES 500000
#define MAX_ROUNDS 1024
#define CONTEXT 3

struct line {
	const char *text;
	size_t len; /* with its newline, if it has one */
	uint64_t hash;
};

struct lines {
	struct line *at;
	size_t count;
};

/* Per line of each side: whether it is in this side only. */
struct marks {
	bool *deleted, *added;
};

static uint64_t hash_line(const char *s, size_t len)
{
	uint64_t h = 1469598103934665603ULL;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)s[i]) * 1099511628211ULL;
	return h;
}

static bool split(struct diff_text text, struct lines *out)
{
	size_t cap = 0;

	*out = (struct lines){ 0 };
	for (size_t at = 0; at < text.len;) {
		const char *newline = memchr(text.data + at, '\n', text.len - at);
		size_t len = newline ? (size_t)(newline - text.data) - at + 1 : text.len - at;

		if (out->count == MAX_LINES)
			return false;
		if (out->count == cap) {
			cap = cap ? cap * 2 : 256;
			out->at = xreallocarray(out->at, cap, sizeof(*out->at));
		}
		out->at[out->count++] =
			(struct line){ text.data + at, len, hash_line(text.data + at, len) };
		at += len;
	}
	return true;
}

static bool same_line(const struct line *a, const struct line *b)
{
	return a->hash == b->hash && a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

/* The middle of both texts, and the rounds through it. */
struct search {
	const struct line *a, *b;
	long n, m;
	int32_t **rounds; /* [d][(k + d) / 2]: how far in a on diagonal k after d steps */
	long count;
};

static int32_t reached(const struct search *s, long d, long k)
{
	return s->rounds[d][(k + d) / 2];
}

/* Whether the best way to diagonal k in round d comes from above (an insertion). */
static bool comes_down(const struct search *s, long d, long k)
{
	return k == -d || (k != d && reached(s, d - 1, k - 1) < reached(s, d - 1, k + 1));
}

static bool round_through(struct search *s, long d)
{
	bool done = false;

	s->rounds[d] = xcalloc((size_t)d + 1, sizeof(**s->rounds));
	s->count = d + 1;
	for (long k = -d; k <= d; k += 2) {
		long x = 0, y;

		if (d > 0)
			x = comes_down(s, d, k) ? reached(s, d - 1, k + 1)
						: reached(s, d - 1, k - 1) + 1;
		y = x - k;
		while (x >= 0 && y >= 0 && x < s->n && y < s->m && same_line(&s->a[x], &s->b[y])) {
			x++;
			y++;
		}
		s->rounds[d][(k + d) / 2] = (int32_t)x;
		done = done || (x >= s->n && y >= s->m);
	}
	return done;
}

/* From the end of both back to their beginning, marking what was stepped over. */
static void mark_way_back(const struct search *s, struct marks marks)
{
	long x = s->n, y = s->m;

	for (long d = s->count - 1; d > 0; d--) {
		long k = x - y;
		bool down = comes_down(s, d, k);
		long from = reached(s, d - 1, down ? k + 1 : k - 1);

		x = from;
		y = from - (down ? k + 1 : k - 1);
		if (down)
			marks.added[y] = true;
		else
			marks.deleted[x] = true;
	}
}

static void mark_all(struct marks marks, long n, long m)
{
	memset(marks.deleted, true, (size_t)n);
	memset(marks.added, true, (size_t)m);
}

static void compare(const struct lines *a, const struct lines *b, struct marks marks)
{
	size_t head = 0, tail = 0, both = MIN_OF(a->count, b->count);
	bool found = false;

	while (head < both && same_line(&a->at[head], &b->at[head]))
		head++;
	while (tail < both - head &&
	       same_line(&a->at[a->count - 1 - tail], &b->at[b->count - 1 - tail]))
		tail++;

	struct search s = { .a = a->at + head,
			    .b = b->at + head,
			    .n = (long)(a->count - head - tail),
			    .m = (long)(b->count - head - tail) };
	struct marks middle = { marks.deleted + head, marks.added + head };

	if (s.n == 0 || s.m == 0) {
		mark_all(middle, s.n, s.m);
		return;
	}
	s.rounds = xcalloc(MAX_ROUNDS, sizeof(*s.rounds));
	for (long d = 0; d < MAX_ROUNDS && !found; d++)
		found = round_through(&s, d);
	if (found)
		mark_way_back(&s, middle);
	else
		mark_all(middle, s.n, s.m);
	for (long d = 0; d < s.count; d++)
		free(s.rounds[d]);
	free(s.rounds);
}

static void put_line(struct buf *out, char sign, const struct line *line)
{
	buf_putc(out, sign);
	buf_append(out, line->text, line->len);
	if (line->text[line->len - 1] != '\n')
		buf_puts(out, "\n\\ No newline at end of file\n");
}

static void put_range(struct buf *out, char sign, size_t first, size_t count)
{
	/* An empty range is told by the line before it. */
	buf_printf(out, "%c%zu", sign, count ? first + 1 : first);
	if (count != 1)
		buf_printf(out, ",%zu", count);
}

struct hunk {
	size_t a, a_end, b, b_end;
};

/* The next stretch of changes with its context, from where the last one ended. */
static bool next_hunk(const struct lines *a, const struct lines *b, struct marks marks, size_t *i,
		      size_t *j, struct hunk *h)
{
	size_t equal = 0, x, y;

	while (*i < a->count && *j < b->count && !marks.deleted[*i] && !marks.added[*j]) {
		++*i;
		++*j;
		equal++;
	}
	if (*i == a->count && *j == b->count)
		return false;
	equal = MIN_OF(equal, (size_t)CONTEXT);
	*h = (struct hunk){ .a = *i - equal, .b = *j - equal };
	equal = 0;
	x = *i;
	y = *j;
	while ((x < a->count || y < b->count) && equal <= 2 * CONTEXT) {
		if (x < a->count && marks.deleted[x]) {
			x++;
			equal = 0;
		} else if (y < b->count && marks.added[y]) {
			y++;
			equal = 0;
		} else {
			x++;
			y++;
			equal++;
		}
	}
	x -= equal;
	y -= equal;
	*i = x;
	*j = y;
	equal = MIN_OF(equal, (size_t)CONTEXT);
	h->a_end = x + equal;
	h->b_end = y + equal;
	return true;
}

static void put_hunk(struct buf *out, const struct lines *a, const struct lines *b,
		     struct marks marks, const struct hunk *h)
{
	size_t x = h->a, y = h->b;

	buf_puts(out, "@@ ");
	put_range(out, '-', h->a, h->a_end - h->a);
	buf_putc(out, ' ');
	put_range(out, '+', h->b, h->b_end - h->b);
	buf_puts(out, " @@\n");
	while (x < h->a_end || y < h->b_end) {
		if (x < h->a_end && marks.deleted[x]) {
			put_line(out, '-', &a->at[x++]);
		} else if (y < h->b_end && marks.added[y]) {
			put_line(out, '+', &b->at[y++]);
		} else {
			put_line(out, ' ', &a->at[x++]);
			y++;
		}
	}
}

bool diff_hunks(struct buf *out, struct diff_text before, struct diff_text after)
{
	struct lines a = { 0 }, b = { 0 };
	bool fits = split(before, &a) && split(after, &b);

	if (fits) {
		struct marks marks = { xcalloc(a.count + 1, 1), xcalloc(b.count + 1, 1) };
		struct hunk h;

		compare(&a, &b, marks);
		for (size_t i = 0, j = 0; next_hunk(&a, &b, marks, &i, &j, &h);)
			put_hunk(out, &a, &b, marks, &h);
		free(marks.deleted);
		free(marks.added);
	}
	free(a.at);
	free(b.at);
	return fits;
}

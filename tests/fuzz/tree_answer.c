/*
 * What a relay says about trees, as the server takes it: a scan, hashes of two files or their
 * contents, by the first byte. Whatever gets through is a tree: paths that are valid, in order,
 * each in a directory that was named before.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "place/tree_replies.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SIZE_MAX_OF_FILE ((uint64_t)1 << 20)

static int check_entry(void *arg, const struct tree_entry *entry, struct error *err)
{
	(void)arg;
	(void)err;
	if (!tree_path_is_valid(entry->path, entry->path_len) || entry->path[entry->path_len] ||
	    (entry->type == TREE_SYMLINK) != (entry->target != NULL))
		abort();
	return 0;
}

struct seen {
	const char *const *next;
	uint64_t bytes, size;
};

static int see_begin(void *arg, const struct tree_entry *entry, struct error *err)
{
	struct seen *s = arg;

	s->bytes = 0;
	s->size = entry->size;
	return check_entry(arg, entry, err);
}

static int see_data(void *arg, const void *data, size_t len, struct error *err)
{
	struct seen *s = arg;

	(void)data;
	(void)err;
	s->bytes += len;
	if (s->bytes > s->size || s->bytes > SIZE_MAX_OF_FILE)
		abort();
	return 0;
}

static int see_end(void *arg, const struct tree_entry *entry, bool changed, struct error *err)
{
	struct seen *s = arg;

	if (!changed && (s->bytes != s->size || entry->size != s->size))
		abort();
	return check_entry(arg, entry, err);
}

static bool next_path(void *arg, const char **path)
{
	struct seen *s = arg;

	*path = *s->next;
	return *s->next++ != NULL;
}

/* In pieces, because frames cut records anywhere. */
static void feed(struct tree_flow *flow, const uint8_t *data, size_t size, size_t piece)
{
	for (size_t at = 0; at < size; at += piece)
		if (tree_flow_feed(flow, data + at, MIN_OF(piece, size - at), NULL) < 0)
			return;
}

static void fuzz_scan(const uint8_t *data, size_t size, size_t piece)
{
	struct tree_scanning s = { .fn = check_entry, .left = 1000 };

	s.flow.take = tree_scanning_take;
	s.flow.arg = &s;
	feed(&s.flow, data, size, piece);
	tree_flow_close(&s.flow);
}

static void fuzz_hash(const uint8_t *data, size_t size, size_t piece, struct seen *seen)
{
	struct tree_hashing h = { .ask = { .next = next_path, .arg = seen }, .fn = check_entry };

	h.ask.flow.take = tree_hashing_take;
	h.ask.flow.arg = &h;
	if (tree_ask_name(&h.ask, NULL) == 0)
		feed(&h.ask.flow, data, size, piece);
	tree_ask_close(&h.ask);
}

static void fuzz_get(const uint8_t *data, size_t size, size_t piece, struct seen *seen)
{
	struct place_get get = {
		.next = next_path,
		.begin = see_begin,
		.data = see_data,
		.end = see_end,
		.arg = seen,
		.max_file = SIZE_MAX_OF_FILE,
	};
	struct tree_getting g = { .ask = { .next = next_path, .arg = seen }, .get = &get };

	g.ask.flow.take = tree_getting_take;
	g.ask.flow.arg = &g;
	if (tree_ask_name(&g.ask, NULL) == 0)
		feed(&g.ask.flow, data, size, piece);
	tree_ask_close(&g.ask);
	free(g.zeros);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const paths[] = { "a", "b/c", NULL };
	struct seen seen = { .next = paths };
	size_t piece;

	if (size < 2)
		return 0;
	piece = data[1] ? data[1] : size;
	if (data[0] % 3 == 0)
		fuzz_scan(data + 2, size - 2, piece);
	else if (data[0] % 3 == 1)
		fuzz_hash(data + 2, size - 2, piece, &seen);
	else
		fuzz_get(data + 2, size - 2, piece, &seen);
	return 0;
}

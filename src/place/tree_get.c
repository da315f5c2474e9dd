/*
 * Contents of files. Hashed here, not in the place: then the hash is that of the bytes that came,
 * whoever sent them.
 */
#include <string.h>
#include "place/tree_replies.h"

#define ZEROS ((size_t)64 << 10)
#define LOOK_AROUND 1024

static int violated(struct tree_getting *g, struct error *err, const char *why)
{
	return tree_flow_violated(&g->ask.flow, err, why);
}

static int take_none(struct tree_getting *g, const struct record *record, struct error *err)
{
	struct tree_entry entry = { .path_len = record->length };
	int rc;

	entry.path = tree_ask_expected(&g->ask, (const char *)record->payload, record->length);
	if (!entry.path || g->in_file)
		return violated(g, err, "an answer about another path");
	rc = g->get->begin(g->get->arg, &entry, err);
	tree_ask_answered(&g->ask);
	return rc;
}

static int take_begin(struct tree_getting *g, const struct record *record, struct error *err)
{
	struct tree_entry entry;

	if (tree_flow_entry(&g->ask.flow, record, &entry, err) < 0)
		return -1;
	if (g->in_file || !tree_ask_expected(&g->ask, entry.path, entry.path_len))
		return violated(g, err, "an answer about another path");
	if (entry.type != TREE_FILE || (entry.flags & TREE_HAS_HASH))
		return violated(g, err, "it sent an entry that is not a file");
	g->in_file = !(entry.flags & TREE_UNREADABLE);
	if (g->in_file && g->get->max_file > 0 && entry.size > g->get->max_file)
		return violated(g, err, "a file larger than was asked for");
	if (!g->in_file)
		tree_ask_answered(&g->ask);
	g->size = entry.size;
	g->got = 0;
	sha256_init(&g->sha);
	return g->get->begin(g->get->arg, &entry, err);
}

static int take_data(struct tree_getting *g, const struct record *record, struct error *err)
{
	if (!g->in_file || record->length > g->size - g->got)
		return violated(g, err, "more of a file than it has");
	g->got += record->length;
	sha256_update(&g->sha, record->payload, record->length);
	return g->get->data(g->get->arg, record->payload, record->length, err);
}

/* A hole is cheap to claim and takes long to hash: whoever gives up the place must not wait. */
static int hash_zeros(struct tree_getting *g, uint64_t len, bool as_data, struct error *err)
{
	if (!g->zeros)
		g->zeros = xcalloc(1, ZEROS);
	for (unsigned turn = 1; len > 0; turn++) {
		size_t n = (size_t)MIN_OF(len, (uint64_t)ZEROS);

		sha256_update(&g->sha, g->zeros, n);
		if (as_data && g->get->data(g->get->arg, g->zeros, n, err) < 0)
			return -1;
		len -= n;
		if (turn % LOOK_AROUND == 0 && g->ask.flow.stream &&
		    !link_is_up(stream_link(g->ask.flow.stream)))
			return error_set(err, ERR_UNAVAILABLE, "the connection to the place broke");
	}
	return 0;
}

static int take_hole(struct tree_getting *g, const struct record *record, struct error *err)
{
	uint64_t len = get_le64(record->payload);

	if (!g->in_file || len > g->size - g->got)
		return violated(g, err, "more of a file than it has");
	g->got += len;
	if (hash_zeros(g, len, !g->get->hole, err) < 0)
		return -1;
	return g->get->hole ? g->get->hole(g->get->arg, len, err) : 0;
}

static int take_end(struct tree_getting *g, const struct record *record, bool changed,
		    struct error *err)
{
	struct tree_entry entry;

	if (tree_flow_entry(&g->ask.flow, record, &entry, err) < 0)
		return -1;
	if (!g->in_file || !tree_ask_expected(&g->ask, entry.path, entry.path_len) ||
	    entry.type != TREE_FILE || entry.flags != 0)
		return violated(g, err, "the end of another file");
	if (!changed && (g->got != g->size || entry.size != g->size))
		return violated(g, err, "less of a file than it has");
	g->in_file = false;
	tree_ask_answered(&g->ask);
	sha256_final(&g->sha, entry.sha256);
	entry.flags |= TREE_HAS_HASH;
	/* What was got is the entry's content only if nobody wrote meanwhile. */
	if (changed)
		entry.flags |= TREE_RACY;
	return g->get->end(g->get->arg, &entry, changed, err);
}

int tree_getting_take(void *arg, const struct record *record, struct error *err)
{
	struct tree_getting *g = arg;

	switch (record->kind) {
	case RECORD_NONE:
		return take_none(g, record, err);
	case RECORD_ENTRY:
		return take_begin(g, record, err);
	case RECORD_CONTENT:
		return take_data(g, record, err);
	case RECORD_HOLE:
		return take_hole(g, record, err);
	case RECORD_ENDED:
	case RECORD_CHANGED:
		return take_end(g, record, record->kind == RECORD_CHANGED, err);
	default:
		return violated(g, err, "something else than a file");
	}
}

static void getting_close(struct tree_getting *g)
{
	tree_ask_close(&g->ask);
	free(g->zeros);
}

int place_tree_get(const struct place_ref *place, const struct place_get *get, struct error *err)
{
	struct wire_tree_get m = { .max_file = get->max_file };
	struct tree_request request = {
		.type = WIRE_TREE_GET,
		.msg = &m,
		.root = get->root,
		.root_field = &m.root,
		.credit_field = &m.credit,
	};
	_cleanup_(getting_close) struct tree_getting g = {
		.ask = { .next = get->next, .arg = get->arg },
		.get = get,
	};

	g.ask.flow.take = tree_getting_take;
	g.ask.flow.arg = &g;
	if (tree_flow_open(&g.ask.flow, place, &request, err) < 0 || tree_ask_run(&g.ask, err) < 0)
		return -1;
	return g.in_file ? violated(&g, err, "done in the middle of a file") : 0;
}

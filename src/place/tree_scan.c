/*
 * What is in a tree, and hashes of it.
 */
#include <string.h>
#include "place/tree_replies.h"

#define DEFAULT_ENTRIES 1000000

static size_t parent_len(const struct tree_entry *entry)
{
	const char *slash = memrchr(entry->path, '/', entry->path_len);

	return slash ? (size_t)(slash - entry->path) : 0;
}

static int check_order(struct tree_scanning *s, const struct tree_entry *entry, struct error *err)
{
	size_t parent = parent_len(entry);

	if (s->last_len > 0 &&
	    tree_path_compare(s->last, s->last_len, entry->path, entry->path_len) >= 0)
		return tree_flow_violated(&s->flow, err, "entries of a tree out of order");
	if (!tree_path_is_within(s->last, s->dir_len, entry->path, parent))
		return tree_flow_violated(
			&s->flow, err, "it sent an entry inside something that is not a directory");
	memcpy(s->last, entry->path, entry->path_len);
	s->last_len = entry->path_len;
	s->dir_len =
		entry->type == TREE_DIR && !(entry->flags & TREE_UNREADABLE) ? s->last_len : parent;
	return 0;
}

int tree_scanning_take(void *arg, const struct record *record, struct error *err)
{
	struct tree_scanning *s = arg;
	struct tree_entry entry;

	if (record->kind != RECORD_ENTRY)
		return tree_flow_violated(&s->flow, err, "something else than an entry");
	if (tree_flow_entry(&s->flow, record, &entry, err) < 0 || check_order(s, &entry, err) < 0)
		return -1;
	if (entry.type == TREE_NONE || (entry.flags & TREE_HAS_HASH))
		return tree_flow_violated(&s->flow, err,
					  "it sent an entry with fields it cannot know");
	if (s->left-- == 0)
		return tree_flow_violated(&s->flow, err, "more entries than were asked for");
	return s->fn(s->arg, &entry, err);
}

static void scan_close(struct tree_scanning *s)
{
	tree_flow_close(&s->flow);
}

int place_tree_scan(const struct place_ref *place, const struct place_scan *scan, tree_entry_fn *fn,
		    void *arg, struct error *err)
{
	uint64_t max = scan->max_entries ? scan->max_entries : DEFAULT_ENTRIES;
	struct wire_tree_scan m = {
		.rules = { (const uint8_t *)scan->rules, (uint32_t)scan->rules_len },
		.no_rules = scan->no_rules,
		.skip_git = scan->skip_git,
		.max_entries = max,
	};
	struct tree_request request = {
		.type = WIRE_TREE_SCAN,
		.msg = &m,
		.root = scan->root,
		.root_field = &m.root,
		.credit_field = &m.credit,
	};
	_cleanup_(scan_close) struct tree_scanning s = { .fn = fn, .arg = arg, .left = max };

	if (scan->rules_len > WIRE_RULES_MAX)
		return error_set(err, ERR_TOO_LARGE, "ignore rules have at most %u bytes",
				 WIRE_RULES_MAX);
	s.flow.take = tree_scanning_take;
	s.flow.arg = &s;
	if (tree_flow_open(&s.flow, place, &request, err) < 0)
		return -1;
	return tree_flow_finish(&s.flow, err);
}

static int take_none(struct tree_hashing *h, const struct record *record, struct error *err)
{
	struct tree_entry entry = { .path_len = record->length };
	int rc;

	entry.path = tree_ask_expected(&h->ask, (const char *)record->payload, record->length);
	if (!entry.path)
		return tree_flow_violated(&h->ask.flow, err, "an answer about another path");
	rc = h->fn(h->ask.arg, &entry, err);
	tree_ask_answered(&h->ask);
	return rc;
}

int tree_hashing_take(void *arg, const struct record *record, struct error *err)
{
	struct tree_hashing *h = arg;
	struct tree_entry entry;

	if (record->kind == RECORD_NONE)
		return take_none(h, record, err);
	if (record->kind != RECORD_ENTRY)
		return tree_flow_violated(&h->ask.flow, err, "something else than a hash");
	if (tree_flow_entry(&h->ask.flow, record, &entry, err) < 0)
		return -1;
	if (!tree_ask_expected(&h->ask, entry.path, entry.path_len))
		return tree_flow_violated(&h->ask.flow, err, "an answer about another path");
	if (entry.type != TREE_FILE || !(entry.flags & (TREE_HAS_HASH | TREE_UNREADABLE)))
		return tree_flow_violated(&h->ask.flow, err, "an answer without a hash");
	tree_ask_answered(&h->ask);
	return h->fn(h->ask.arg, &entry, err);
}

static void hashing_close(struct tree_hashing *h)
{
	tree_ask_close(&h->ask);
}

int place_tree_hash(const struct place_ref *place, const char *root,
		    bool (*next)(void *arg, const char **path), tree_entry_fn *fn, void *arg,
		    struct error *err)
{
	struct wire_tree_hash m = { 0 };
	struct tree_request request = {
		.type = WIRE_TREE_HASH,
		.msg = &m,
		.root = root,
		.root_field = &m.root,
		.credit_field = &m.credit,
	};
	_cleanup_(hashing_close) struct tree_hashing h = { .ask = { .next = next, .arg = arg },
							   .fn = fn };

	h.ask.flow.take = tree_hashing_take;
	h.ask.flow.arg = &h;
	if (tree_flow_open(&h.ask.flow, place, &request, err) < 0)
		return -1;
	return tree_ask_run(&h.ask, err);
}

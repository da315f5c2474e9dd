/*
 * What the requests about trees make of the relay's records: every rule that a record can break is
 * checked in these, which need no connection and can be fuzzed.
 */
#pragma once

#include "base/sha256.h"
#include "place/tree_ask.h"

/* Entries must come in order, each after its directory: then no consumer needs to doubt it. */
struct tree_scanning {
	struct tree_flow flow;
	tree_entry_fn *fn;
	void *arg;
	uint64_t left; /* entries that may still come */
	char last[TREE_PATH_MAX + 1];
	size_t last_len;
	size_t dir_len; /* of `last`: the directory that what comes next may be in */
};
int tree_scanning_take(void *scanning, const struct record *record, struct error *err);

struct tree_hashing {
	struct tree_ask ask;
	tree_entry_fn *fn;
};
int tree_hashing_take(void *hashing, const struct record *record, struct error *err);

struct tree_getting {
	struct tree_ask ask;
	const struct place_get *get;
	uint8_t *zeros;
	bool in_file;
	uint64_t size, got;
	struct sha256 sha;
};
int tree_getting_take(void *getting, const struct record *record, struct error *err);

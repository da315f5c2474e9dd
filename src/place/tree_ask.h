/*
 * Paths that were named to the relay and are to be answered in the same order: the common part of
 * hashing and reading. Many are under way at a time, but not without bound.
 */
#pragma once

#include "place/tree_flow.h"

struct tree_ask {
	struct tree_flow flow;
	bool (*next)(void *arg, const char **path);
	void *arg;
	struct buf paths; /* unanswered, each with its NUL, from paths_pos on */
	size_t paths_pos;
	size_t count;
	bool named_all;
};

void tree_ask_close(struct tree_ask *ask);
#define _cleanup_tree_ask_ _cleanup_(tree_ask_close)
/* Puts paths into what is to be sent, as many as may be under way. */
int tree_ask_name(struct tree_ask *ask, struct error *err);
/* Names paths and takes answers until all are answered. */
int tree_ask_run(struct tree_ask *ask, struct error *err);
/*
 * Whether the answer is about the path whose turn it is; it is kept until tree_ask_answered. NULL
 * otherwise.
 */
const char *tree_ask_expected(const struct tree_ask *ask, const char *path, size_t len);
void tree_ask_answered(struct tree_ask *ask);

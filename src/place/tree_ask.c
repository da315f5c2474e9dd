#include "place/tree_ask.h"

#include <string.h>

#define ASKED_MAX 8192
#define ASKED_BYTES ((size_t)1 << 20)

void tree_ask_close(struct tree_ask *ask)
{
	tree_flow_close(&ask->flow);
	buf_free(&ask->paths);
}

const char *tree_ask_expected(const struct tree_ask *ask, const char *path, size_t len)
{
	const char *expected = ask->paths.data + ask->paths_pos;

	if (ask->count == 0 || strlen(expected) != len || memcmp(expected, path, len) != 0)
		return NULL;
	return expected;
}

void tree_ask_answered(struct tree_ask *ask)
{
	ask->paths_pos += strlen(ask->paths.data + ask->paths_pos) + 1;
	ask->count--;
	if (ask->paths_pos < ask->paths.len / 2)
		return;
	buf_consume(&ask->paths, ask->paths_pos);
	ask->paths_pos = 0;
}

int tree_ask_name(struct tree_ask *ask, struct error *err)
{
	while (!ask->named_all && ask->count < ASKED_MAX && ask->paths.len < ASKED_BYTES &&
	       tree_flow_backlog(&ask->flow) < TREE_PORTION) {
		const char *path;

		if (!ask->next(ask->arg, &path)) {
			wire_record_append(&ask->flow.out, RECORD_FINISH, NULL, 0);
			ask->named_all = true;
			continue;
		}
		if (!tree_path_is_valid(path, strlen(path)))
			return error_set(err, ERR_BAD_PATH, "this is not a path of a tree");
		wire_record_append(&ask->flow.out, RECORD_PATH, path, strlen(path));
		buf_append(&ask->paths, path, strlen(path) + 1);
		ask->count++;
	}
	return 0;
}

int tree_ask_run(struct tree_ask *ask, struct error *err)
{
	while (!ask->flow.done) {
		if (tree_ask_name(ask, err) < 0 || tree_flow_turn(&ask->flow, true, err) < 0)
			return -1;
	}
	if (!ask->named_all || ask->count > 0)
		return tree_flow_violated(&ask->flow, err, "done before everything was answered");
	return 0;
}

/* Where a tree may be put; see file_tree_mark.c. */
#pragma once

#include "relay/file_tree_work.h"
#include "relay/root_path.h"

struct root_refusal {
	enum wire_error_code code;
	int errnum;
	const char *why; /* to be read behind the root's name; a constant or strerror's */
};

/* The root, made and marked as asked for; -1 with the refusal. */
int tree_root_for_put(const struct relay *relay, const struct wire_tree_put *m,
		      struct root_refusal *why);

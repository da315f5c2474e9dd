/*
 * Records of trees as a place sends them, one after another. What decodes keeps the rules of
 * filetree/entry.h and encodes to the same bytes again: nothing is accepted that could not have been
 * sent.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "filetree/entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_buf_ struct buf again = { 0 };
	struct tree_entry entry;
	ssize_t n;

	for (; (n = tree_entry_decode(data, size, &entry, NULL)) > 0;
	     data += n, size -= (size_t)n) {
		if ((size_t)n > size || !tree_path_is_valid(entry.path, entry.path_len) ||
		    entry.path[entry.path_len])
			abort();
		if (entry.type == TREE_SYMLINK && entry.target[entry.target_len])
			abort();
		buf_reset(&again);
		tree_entry_encode(&again, &entry);
		if (again.len != (size_t)n || memcmp(again.data, data, again.len) != 0)
			abort();
	}
	return 0;
}

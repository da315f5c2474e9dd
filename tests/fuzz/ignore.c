/*
 * Rule files from a place: the text up to the first NUL is rules, the rest a path. Any of it is
 * taken, in time that is linear in rules times path; the same question has the same answer.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "filetree/entry.h"
#include "filetree/ignore.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
	const char *path = (const char *)(nul ? nul + 1 : data + size);
	size_t rules_len = nul ? (size_t)(nul - data) : size;
	size_t len = nul ? size - rules_len - 1 : 0;
	struct ignore *ignore = ignore_new();

	if (size > 8192)
		len = 0;
	ignore_add_global(ignore, (const char *)data, rules_len);
	if (tree_path_is_valid(path, len)) {
		bool as_file = ignore_matches(ignore, path, len, false);

		if (as_file != ignore_matches(ignore, path, len, false))
			abort();
		/* A rule for directories can only add to what is left out, or take it back. */
		ignore_matches(ignore, path, len, true);
	}
	ignore_free(ignore);
	return 0;
}

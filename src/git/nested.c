/*
 * Repositories inside the workspace that are not its own: somebody cloned one into the tree. On the
 * way in they are plain files, but for what only their owner should see; on the way out nothing of
 * them is taken.
 */
#include <string.h>
#include "base/text.h"
#include "git/git.h"

/*
 * A list of what is seen, not of what is hidden: whatever tools keep in .git, tokens among it,
 * stays out of sight unless git itself needs it.
 */
bool git_shows(const char *name, size_t len)
{
	static const char *const shown[] = {
		"HEAD",        "ORIG_HEAD",    "MERGE_HEAD",   "MERGE_MODE",
		"MERGE_MSG",   "AUTO_MERGE",   "SQUASH_MSG",   "CHERRY_PICK_HEAD",
		"REVERT_HEAD", "REBASE_HEAD",  "index",        "objects",
		"refs",        "packed-refs",  "info",         "shallow",
		"description", "rebase-merge", "rebase-apply", "sequencer",
		"BISECT_LOG",  "BISECT_START", "BISECT_NAMES", "BISECT_TERMS"
	};
	static const char shared[] = "sharedindex.";

	for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
		if (strlen(shown[i]) == len && memcmp(shown[i], name, len) == 0)
			return true;
	return len >= strlen(shared) && memcmp(name, shared, strlen(shared)) == 0;
}

size_t git_inside_hidden(const char *path, size_t len)
{
	static const char git[] = "/.git/";
	const char *found = memmem(path, len, git, strlen(git)), *name, *end;

	if (!found)
		return 0;
	name = found + strlen(git);
	end = memchr(name, '/', len - (size_t)(name - path));
	if (!end)
		end = path + len;
	return git_shows(name, (size_t)(end - name)) ? 0 : (size_t)(end - path);
}

size_t git_inside(const char *path, size_t len)
{
	for (size_t at = 0; at < len;) {
		const char *slash = memchr(path + at, '/', len - at);
		size_t name_len = slash ? (size_t)(slash - path) - at : len - at;

		/* In whatever case: there are file systems that do not tell them apart. */
		if (name_len == 4 && strncasecmp(path + at, ".git", 4) == 0)
			return at + name_len;
		at += name_len + 1;
	}
	return 0;
}

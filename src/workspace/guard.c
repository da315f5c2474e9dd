/*
 * What of a run's changes is not merged by itself, although the host's file is as it was staged.
 *
 * Rule files decide what later runs see. A run may hide more, never show more: otherwise it would
 * write `!.env` today and read .env tomorrow.
 *
 * What runs by itself (git/known_names.h) would carry a run's commands out of its place. With `careful` it
 * waits beside its name for a person; without, the report lists it apart.
 */
#include <fcntl.h>
#include <string.h>
#include "base/fd.h"
#include "base/text.h"
#include "filetree/ignore.h"
#include "git/known_names.h"
#include "workspace/apply_internal.h"

#define SHOWS_MORE                                                                                 \
	"it would show later runs files that are hidden now: read it, then rename it yourself"

/* ---- rule files ---- */

static bool read_host(const struct apply *a, const char *path, struct buf *text)
{
	const char *name;
	_cleanup_close_ int parent = host_open_parent(a->workspace_fd, path, &name);
	_cleanup_close_ int fd =
		parent < 0 ? -1
			   : openat(parent, name,
				    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	return fd >= 0 && fd_read_all(fd, text, IGNORE_TEXT_MAX, NULL) == 0;
}

static bool read_place(const struct apply *a, const struct tree_entry *place, struct buf *text)
{
	_cleanup_close_ int fd = blob_open(a->run_fd, place->sha256, NULL);

	return fd >= 0 && fd_read_all(fd, text, IGNORE_TEXT_MAX, NULL) == 0;
}

/* A link, a directory, or a file that its owner may not read holds no rules. */
static bool shows_more(const struct apply *a, const struct tree_entry *place,
		       const struct tree_entry *host)
{
	_cleanup_buf_ struct buf old = { 0 }, now = { 0 };
	bool is_file = place->type == TREE_FILE;

	if (host->type == TREE_FILE && !read_host(a, place->path, &old))
		return true;
	if (is_file && (!(place->mode & 0400) || !read_place(a, place, &now)))
		return true;
	return ignore_shows_more(buf_str(&old), old.len, buf_str(&now), now.len);
}

/* ---- repositories without a work tree ---- */

/* Whether the tree has DIR/name once the run's changes are in it. */
static bool has_entry(const struct manifest *base, const struct manifest *changes, const char *dir,
		      size_t dir_len, const char *name)
{
	_cleanup_free_ char *path =
		xasprintf("%.*s%s%s", (int)dir_len, dir, dir_len ? "/" : "", name);
	struct tree_entry entry;

	if (manifest_find(changes, path, strlen(path), &entry))
		return entry.type != TREE_NONE;
	return base && manifest_find(base, path, strlen(path), &entry);
}

/* Git takes a directory for a repository by these. `commondir` leads to the rest of it. */
static bool is_repository(const struct manifest *base, const struct manifest *changes,
			  const char *dir, size_t len)
{
	bool head = has_entry(base, changes, dir, len, "HEAD");
	bool objects = has_entry(base, changes, dir, len, "objects");
	bool refs = has_entry(base, changes, dir, len, "refs");

	return (head && (objects || refs)) || (objects && refs) ||
	       (head && has_entry(base, changes, dir, len, "commondir"));
}

/* A directory that makes a repository of what an earlier run left there. */
static bool completes(const struct manifest *base, const char *dir, size_t len, const char *name)
{
	_cleanup_free_ char *head = xasprintf("%.*s%sHEAD", (int)len, dir, len ? "/" : "");
	struct tree_entry entry;

	return (streq(name, "objects") || streq(name, "refs")) && base &&
	       manifest_find(base, head, strlen(head), &entry);
}

static bool is_part_of_repository(const struct manifest *base, const struct manifest *changes,
				  const struct tree_entry *entry)
{
	const char *path = entry->path, *slash = strrchr(path, '/');
	size_t dir_len = slash ? (size_t)(slash - path) : 0, dirs[NAMES_PARTS_MAX], count;

	if (entry->type != TREE_FILE && completes(base, path, dir_len, slash ? slash + 1 : path) &&
	    is_repository(base, changes, path, dir_len))
		return true;
	count = entry->type == TREE_DIR ? 0 : names_part_of_repository(path, entry->path_len, dirs);
	for (size_t i = 0; i < count; i++)
		if (is_repository(base, changes, path, dirs[i]))
			return true;
	return false;
}

const char *change_runs(const struct manifest *base, const struct manifest *changes,
			const struct tree_entry *entry)
{
	const char *by;

	if (entry->type == TREE_NONE)
		return NULL;
	by = names_run(entry->path, entry->path_len, entry->type);
	if (!by && is_part_of_repository(base, changes, entry))
		by = NAMES_RUN_BY_GIT;
	return by;
}

char *guard_change(const struct apply *a, const struct tree_entry *place,
		   const struct tree_entry *host)
{
	const char *by;

	if (ignore_is_rule_file(place->path, place->path_len) && shows_more(a, place, host))
		return xstrdup(SHOWS_MORE);
	by = a->careful ? change_runs(a->base, a->changes, place) : NULL;
	return by ? xasprintf("%s runs it by itself: read it, then rename it yourself", by) : NULL;
}

/*
 * What a run does not see of its workspace, and so does not bring home either. A path is hidden by
 *
 *     rules   .gitignore, .berthignore and info/exclude, as they are before the run (a run cannot
 *             widen them: guard.c)
 *     names   the table of known_names.h, which nothing in the tree takes back
 *
 * and is seen all the same if git tracks it (its content is in the objects anyway; a run cannot
 * make a hidden file tracked: git_settle) or the operator shows it by path.
 */
#pragma once

#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"

struct hidden {
	struct buf text;
	const char **paths; /* that are tracked although something hides them, in order of trees */
	size_t count;
	const json_t *show; /* array of paths that are seen; borrowed, NULL: none */
};
struct git_seen;
/* Asks git, as the owner of the workspace, if there is a repository. `seen`: see git.h. */
int hidden_load(struct hidden *h, int root_fd, const char *path, const json_t *show, int cancel_fd,
		struct git_seen *seen, struct error *err);
void hidden_free(struct hidden *h);

/* For struct tree_walk_options: the name that hides the path; and what is seen all the same. */
const char *hidden_by_name(void *hidden, const char *path, size_t len, bool is_dir);
bool hidden_keeps(void *hidden, const char *path, size_t len);

/* The path, or a directory it is in, is one that is shown. */
bool hidden_is_shown(const json_t *show, const char *path, size_t len);
/* Whether a file that a place made stays there for its name, for the reason given. */
bool hidden_stays(const json_t *show, const char *path, size_t len, bool is_dir);
#define HIDDEN_STAYS                                                                               \
	"stays in the place: its name is one that is hidden from runs (--show lets it come)"

/*
 * Whether rules that are in root_fd's tree now, or its name, hide the path: 1, 0, or -1. Tracked or
 * shown makes no difference.
 */
int hidden_now(int root_fd, const char *path, struct error *err);

/*
 * The rules that count everywhere in root_fd's tree: info/exclude of its repository, if any. What
 * struct place_scan wants as `rules`.
 */
int hidden_rules(int root_fd, struct buf *out, struct error *err);

/*
 * Repositories. Git is run through its CLI behind one wrapper: hooks and fsmonitor off, no prompts,
 * no pager, no global or system config of the user that could run programs, `-z` everywhere, a
 * deadline, output bounded.
 *
 * INTO THE PLACE goes a repository of its own: HEAD, the branches, tags and remote refs, the index
 * and every object (packs and loose files, of the common directory and of alternates, verbatim:
 * they are immutable, so have/want by name and size is enough), state of a merge or rebase that is
 * under way, and a synthesised config (core.*, user.name and user.email, remotes with their URLs
 * without passwords). Never: hooks, the real config, alternates, credentials, other worktrees. A
 * `.git` file (worktree) becomes such a directory as well. Submodules are refused in words that say
 * what to do, unless they are not initialised.
 *
 * OUT OF THE PLACE come commits: HEAD and branches are read from the place's files by a strict
 * parser; new packs and loose objects go to a quarantine directory, are packed again by git
 * pack-objects from there and enter by index-pack --strict; the place's head lands on
 * refs/berth/<run> before anything else. A branch moves only by fast-forward, only if the host's is
 * still where it was staged, and the index follows if it is still what was staged; else the ref is
 * there and the report says so.
 */
#pragma once

#include "workspace/manifest.h"
#include "workspace/results.h"

enum git_kind { GIT_NONE, GIT_DIRECTORY, GIT_WORKTREE };
/*
 * What is at root_fd. GIT_NONE without an error when it is no repository; an error when it is one
 * that cannot be staged (submodules that are initialised, a bare one, one we may not read, git not
 * installed).
 */
int git_inspect(int root_fd, const char *path, enum git_kind *kind, json_t **about,
		struct error *err);

/*
 * What is to be under .git in the place: entries in order with their source. `content` non-NULL is
 * made up; else `source_fd`/`source_name` is a file of the host. Hashes are given only for made-up
 * ones: objects are known by name and size.
 */
struct git_file {
	struct tree_entry entry; /* path begins with ".git" */
	const void *content;
	const char *source; /* absolute path on the host; NULL: content, or a directory */
	bool immutable;     /* same name and size: same content */
};
typedef int git_file_fn(void *arg, const struct git_file *file, struct error *err);
int git_list(int root_fd, const char *path, const json_t *about, git_file_fn *fn, void *arg,
	     struct error *err);

/* Paths under .git of the place that are of interest coming back: asked for every path a scan
 * finds. */
bool git_path_comes_back(const char *path, size_t len);
/*
 * Takes what was fetched from the place's .git (a directory that holds those files under their
 * paths, hostile) into the repository. The report: {head, branch, commits, ref, moved, index,
 * reason}.
 */
int git_import(int root_fd, const char *path, const char *run_id, const json_t *about,
	       int fetched_fd, json_t **report, struct error *err);
/* refs/berth/<run> goes. */
int git_forget(const char *path, const char *run_id, struct error *err);

/* Mode worktree: a worktree on a new branch berth/<run> at `where`, with uncommitted changes of the
 * checkout carried over; idempotent. */
int git_worktree_add(const char *path, const char *run_id, const char *where, struct error *err);
/* Removed only when nothing in it is uncommitted or it was asked for; the branch stays if it has
 * commits. */
int git_worktree_remove(const char *path, const char *run_id, const char *where, bool force,
			struct error *err);

/*
 * Repositories. Git is run through its CLI behind one wrapper (cli.h): hooks and fsmonitor off,
 * no prompts, no network, no global or system config that could run programs, `-z` everywhere, a
 * deadline, output bounded, at most four at a time. When the server is root and the workspace is
 * another user's, git runs as that user and files are opened with that user's rights, so that what
 * is made in .git belongs to the right person and a repository cannot point the server at files its
 * owner may not read.
 *
 * INTO THE PLACE goes a repository of its own: HEAD, the branches, tags and remote refs, the index
 * and every object (packs and loose files, of the common directory and of alternates, verbatim:
 * they are immutable, so have/want by name and size is enough), state of a merge or rebase that is
 * under way, and a synthesised config (core.*, user.name and user.email, remotes with their URLs
 * without passwords). Never: hooks, the real config, alternates, reflogs, credentials, other
 * worktrees, refs of other runs. A `.git` file (worktree) becomes such a directory as well.
 * Submodules are refused in words that say what to do, unless they are not initialised.
 *
 * OUT OF THE PLACE come commits, in two steps with the files (apply.h) between them:
 *
 *     git_import   before the files: HEAD and branches are read from the place's files by a strict
 *                  parser; new packs and loose objects go to a quarantine (<git>/berth/<run>/), are
 *                  packed again by git pack-objects from there, checked by index-pack --strict and
 *                  for connectivity, and only then enter. The place's head lands on
 *                  refs/berth/<run>; its other refs that have something new are kept as
 *                  refs/berth-branches/<run>/..., refs/berth-tags/<run>/... and, for a stash or
 *                  notes, refs/berth-refs/<run>/... A new tag is not made a tag of the host: it
 *                  could take the meaning of a branch's name.
 *     git_settle   after the files: the branch that was checked out moves, only by fast-forward and
 *                  only if HEAD and branch of the host are still what was staged, and nothing
 *                  is in the commits that a person must see first (guard.h); then the index
 *                  follows if it is still what was staged, and with it what a merge, pick or
 *                  revert has under way (never a rebase: its list may hold commands). Otherwise
 *                  the refs are there and the report says so. In a worktree of the run's own the
 *                  branch is berth/<run>, and refs/berth/<run> goes when that has moved. A crash
 *                  before it leaves files that differ from the old HEAD; calling it again finishes.
 *
 * Nothing else under .git ever comes back.
 */
#pragma once

#include "base/json.h"
#include "filetree/entry.h"

enum git_kind { GIT_NONE, GIT_DIRECTORY, GIT_WORKTREE };

/*
 * What git answered about one repository: its settings, and which hidden paths it tracks. The steps
 * of a run hand it on, so that git is asked once before the place and once after it. The functions
 * that take one fill it, or use what is in it; NULL: git is asked. Answers older than a second are
 * asked for again: a run may have waited for its place in between.
 */
struct git_seen;
struct git_seen *git_seen_new(void);
void git_seen_free(struct git_seen *seen); /* NULL is fine */
void git_seen_reset(struct git_seen *seen);
static inline void git_seen_freep(struct git_seen **seen)
{
	git_seen_free(*seen);
}
#define _cleanup_git_seen_ _cleanup_(git_seen_freep)

/*
 * What is at root_fd, whose absolute path is `path`. GIT_NONE without an error when it is no
 * repository (about is NULL then); ERR_UNPROCESSABLE with what to do when it is one that cannot be
 * staged (submodules that are initialised, a bare one, a partial clone, a format this git does not
 * know, one its owner may not read, git not installed). `about` is for git_list, git_import and
 * git_settle, which may run in another process: {kind, objectFormat, head, headRef, index, state,
 * warnings}. Overlays need nothing but this and git_place_config. cancel_fd, here and below:
 * readable means ERR_CANCELLED; -1: none.
 */
int git_inspect(int root_fd, const char *path, int cancel_fd, struct git_seen *seen,
		enum git_kind *kind, json_t **about, struct error *err);

/*
 * What is to be under .git in the place, in the order of filetree/entry.h, `.git` itself first.
 * Exactly one of the three: a directory, `content` (entry.size bytes, hash in the entry), or
 * `source`, to be opened by git_open_source and no other way; it may vanish before that (somebody
 * repacks), then staging is to be begun again. Pointers are good during the call only. `about` is
 * brought up to date: HEAD and index are what was listed, so save it afterwards.
 */
struct git_file {
	struct tree_entry entry; /* path begins with ".git" */
	const void *content;
	const char *source; /* absolute path on the host */
	bool immutable;     /* same name and size: same content */
};
typedef int git_file_fn(void *arg, const struct git_file *file, struct error *err);
int git_list(int root_fd, const char *path, int cancel_fd, struct git_seen *seen, json_t *about,
	     git_file_fn *fn, void *arg, struct error *err);
/* A regular file of that size, opened through no link and with the rights of root_fd's owner. */
int git_open_source(int root_fd, const char *source, uint64_t size, int *fd, struct error *err);
/* The text of .git/config in the place; also what an overlay puts over the host's. */
int git_place_config(int root_fd, const char *path, int cancel_fd, struct git_seen *seen,
		     char **text, struct error *err);

/*
 * Paths under .git of the place that are of interest coming back: asked for every path a scan
 * finds. Never config, hooks, alternates, or anything else that git would act upon.
 */
bool git_path_comes_back(const char *path, size_t len);
/*
 * Takes what was fetched from the place's .git into the repository: objects and kept refs. No ref
 * of the host's own moves. fetched_fd is a directory with the regular files that
 * git_path_comes_back names and that are new or changed against what was staged, under their paths
 * (".git/HEAD"), and an EMPTY file for each such path that was staged and is gone from the place.
 * Its contents are hostile, and links in it are never followed. Idempotent. When nothing is in it,
 * the place left its repository alone: no git process is started, here and in git_settle.
 *
 * 0 also when the place's repository is refused in part or whole: then the report says why and the
 * files of the workspace may be applied all the same. The report, for the state and for people:
 * {taken, head, branch, commits, ref, kept:[{name, ref, head}], moved:false, index:"unchanged",
 * reason}. `taken` is false then. -1 is for what may work the next time (disk full, cancelled).
 */
int git_import(int root_fd, const char *path, const char *run_id, const json_t *about,
	       int fetched_fd, int cancel_fd, struct git_seen *seen, json_t **report,
	       struct error *err);
/* What branch and index do not move over, see guard.h. */
enum git_care {
	GIT_CARE_NONE,  /* in a worktree of the run's own, which no other run sees */
	GIT_CARE_RULES, /* what later runs would see more by */
	GIT_CARE_ALL,   /* and what runs by itself */
};
/*
 * Branch and index, after the files. Changes in `report` (of git_import): moved, index
 * ("unchanged", "updated", "left"), reason. Idempotent; 0 also when something was left.
 */
int git_settle(int root_fd, const char *path, const char *run_id, const json_t *about,
	       int fetched_fd, enum git_care care, int cancel_fd, struct git_seen *seen,
	       json_t *report, struct error *err);
/* The kept refs of the run and what is left of its quarantine go; without a repository: nothing. */
int git_forget(const char *path, const char *run_id, struct error *err);

/*
 * Repositories inside the tree, other than its own (nested.c). git_shows: a name directly under
 * a .git that a place may see. git_inside_hidden: the length of the part of the path that is under
 * such a repository's .git and is not shown (its config, hooks, reflogs, ...); 0: it is shown.
 * git_inside: the length of the path of the .git the path is in or is; 0: it is in none. Nothing of
 * that is taken from a place, for the reason given.
 */
#define GIT_INSIDE_REASON                                                                          \
	"nothing under a .git directory is taken from a place; what is committed there comes "     \
	"only "                                                                                    \
	"if it is pushed"
/* The same for one that was made where the workspace had none. */
#define GIT_MADE_REASON "the repository that was made in the place stays there; its files come"
bool git_shows(const char *name, size_t len);
size_t git_inside_hidden(const char *path, size_t len);
size_t git_inside(const char *path, size_t len);

/*
 * Mode worktree: a worktree of the repository at `path` on a new branch berth/<run>, in the
 * directory `where` (which is made, as is what it is in; reachable for the repository's owner),
 * with the index and the files of the checkout as they are: staged and unstaged changes and
 * untracked files that are neither ignored nor hidden by their names (hidden.h; `show` is what is
 * copied all the same). Nothing is stashed, nothing in the checkout changes. Idempotent.
 */
int git_worktree_add(const char *path, const char *run_id, const char *where, const json_t *show,
		     int cancel_fd, struct error *err);
/*
 * ERR_CONFLICT when something in it is not committed, unless `force`. The branch stays if it has
 * commits that no other ref has. Absence is success.
 */
int git_worktree_remove(const char *path, const char *run_id, const char *where, bool force,
			struct error *err);

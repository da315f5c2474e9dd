/*
 * Which paths of a tree are left out: .gitignore semantics to the letter of gitignore(5) (anchored
 * patterns, **, negation, directories only, escapes, trailing blanks), read from .gitignore and
 * then .berthignore of every directory on the way, after rules given from outside (the repository's
 * info/exclude). One matcher for both directions: the host's walk and the relay's.
 *
 * Always left out, whatever rules say: .berth at the root. `.git` is not this room's matter: as in
 * git, rules do not count for it and in it, and the walker's caller says whether it is walked.
 *
 * Bounds: a rule file of at most 1 MiB is read, the rest of it is reported as too large; patterns
 * take time linear in path times pattern (no exponential **).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "base/buf.h"
#include "base/error.h"

struct ignore; /* a stack of rule sets, one per directory from the root down */

struct ignore *ignore_new(void);
void ignore_free(struct ignore *ignore);
/* Rules that count everywhere, below all others in rank. Text as in a .gitignore; may be called
 * repeatedly. */
void ignore_add_global(struct ignore *ignore, const char *text, size_t len);
/*
 * Entering the directory `path` ("" is the root) whose descriptor is dir_fd: reads its rule files,
 * if they are regular files. ignore_leave undoes the last enter.
 */
int ignore_enter(struct ignore *ignore, const char *path, int dir_fd, struct error *err);
/* The same where .gitignore and .berthignore may be in two directories; -1: there is none. */
int ignore_enter_from(struct ignore *ignore, const char *path, int git_fd, int berth_fd,
		      struct error *err);
void ignore_leave(struct ignore *ignore);
/* The last rule that matches wins; a directory that is left out is not entered, so nothing in it
 * can be taken back in, as in git. */
bool ignore_matches(const struct ignore *ignore, const char *path, size_t len, bool is_dir);
/*
 * Which rule file hides the path, for people: its path in the tree, or ".git/info/exclude" for
 * rules that count everywhere. Appends nothing when no rule does.
 */
void ignore_reason(const struct ignore *ignore, const char *path, size_t len, bool is_dir,
		   struct buf *out);

/* The name of a file whose text is rules, in whatever case: some file systems ignore it. */
bool ignore_is_rule_file(const char *path, size_t len);
/* No rule file is longer. */
#define IGNORE_TEXT_MAX ((size_t)1 << 20)
/*
 * Whether the text `now` in the place of `old` could show a path that was hidden. False only when
 * `now` is `old` with lines that hide put in, or lines that take something back left out. Either
 * may be empty: there is no such file.
 */
bool ignore_shows_more(const char *old, size_t old_len, const char *now, size_t now_len);

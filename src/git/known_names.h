/*
 * Names that mean something wherever they are in a tree. Two tables, both in known_names.c:
 *
 *     hidden    by their names these hold passwords and keys. Nothing in the tree takes them back:
 *               a run sees one only if git tracks it, or the operator shows it by path
 *     running   a shell, an editor, an agent's tool, git or a server of others runs what these say
 *               without being told to by the person who looks at the directory
 */
#pragma once

#include "filetree/entry.h"

/* The name that hides the last part of `path`; NULL: none. The directories above are not asked. */
const char *names_hide(const char *path, size_t len, bool is_dir);
/* The same of the path and every directory above it. */
const char *names_hide_within(const char *path, size_t len, bool is_dir);
/* The table, each a pattern as of a rule file; ends with a text of NULL. */
struct name_pattern {
	const char *text;
	size_t len;
};
extern const struct name_pattern NAMES_HIDDEN[];

/*
 * What runs the entry, in words that follow "run by"; NULL: nothing is known to. A directory alone
 * is nothing to run; a link is judged by what it could stand for. Names in whatever case.
 */
const char *names_run(const char *path, size_t len, enum tree_type type);

/*
 * The directories above the path, by the lengths of their paths, in which git would act upon it if
 * they were repositories: it is named as their HEAD or config, or is in their hooks. How many.
 */
#define NAMES_PARTS_MAX 8
size_t names_part_of_repository(const char *path, size_t len, size_t dirs[NAMES_PARTS_MAX]);
#define NAMES_RUN_BY_GIT "git, in a repository without a work tree"

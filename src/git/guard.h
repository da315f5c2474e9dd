/*
 * What commits and indexes of a place may not do by themselves, as guard.c has it for files. They
 * never touch a file of the host, but a `git checkout .` of its owner would follow them, and what
 * is tracked is shown to runs. So neither branch nor index moves over
 *
 *     a rule file that would show more
 *     a path that was not tracked and is hidden from runs: tracked, it would be seen
 *     with GIT_CARE_ALL what runs by itself
 */
#pragma once

#include "git/index.h"

/* *why, allocated, says what is in the way; NULL: nothing is. */
int git_guard_commits(const struct git_quarantine *q, enum git_care care, const char *from,
		      const char *to, char **why, struct error *err);
int git_guard_index(const struct git_quarantine *q, enum git_care care,
		    const struct index_entries *old, const struct index_entries *now, char **why,
		    struct error *err);

/*
 * One-shot commands of the fake provider: what a cloud's "execute" does, done on this host. The
 * command leads a process group of its own, which ends with it. When its time is over or nobody
 * wants it any more, everything that carries its mark is killed as well; what a command leaves
 * behind in another session otherwise ends with the place.
 */
#pragma once

#include "place/shell/shell.h"

/* As one_shot_fn. `home` is where the command runs unless the call says otherwise, and its HOME;
 * `mark` ("NAME=value") goes into its environment. */
int fake_run(const struct one_shot_call *call, const char *home, const char *mark,
	     struct one_shot_result *result, struct error *err);
/* Kills every process with that mark, until there is none or the time is over (ERR_TIMEOUT). */
int fake_end_marked(const char *mark, int64_t wait_ms, struct error *err);

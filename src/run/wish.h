/*
 * What a request says about its workspace: `workspace {path, mode, collect, root, allowLarge}` of a
 * run, and of POST /api/environment-leases/:id/stage.
 */
#pragma once

#include "run/run.h"

extern const char *const WORKSPACE_MODE_NAMES[];   /* NULL-terminated */
extern const char *const WORKSPACE_COLLECTS[];     /* "auto", "manual" */
extern const struct field WORKSPACE_WISH_FIELDS[]; /* of `workspace` in the body of a run */

/*
 * The wish as it is kept: {path, mode, collect, root, allowLarge}, the path canonical. *out is NULL
 * when no files are wanted (absent, null, or mode none). `wish` has passed WORKSPACE_WISH_FIELDS.
 * ERR_VALIDATION, ERR_UNPROCESSABLE for what is no directory, ERR_FORBIDDEN for one that is not
 * this caller's to name.
 */
int workspace_wanted(const struct runs *runs, const struct actor *actor, const json_t *wish,
		     json_t **out, struct error *err);
/*
 * Who came in as the server's own user (or root) may name any directory. Everybody else, with
 * whatever token, only what is below --allow-path.
 */
int workspace_allowed(const struct runs *runs, const struct actor *actor, const char *canonical,
		      struct error *err);
/* The same directory, or one that is below the other. Both canonical. */
bool paths_overlap(const char *a, const char *b);
/* What follows `root` in a path that is it or below it, beginning with a slash or empty; else NULL.
 */
const char *path_beneath(const char *root, const char *path);

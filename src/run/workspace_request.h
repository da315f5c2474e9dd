/*
 * What a request says about its workspace: `workspace {path, mode, collect, root, allowLarge,
 * show}` of a run, and of POST /api/environment-leases/:id/stage.
 */
#pragma once

#include "run/run.h"

extern const char *const WORKSPACE_MODE_NAMES[]; /* NULL-terminated */
extern const char *const WORKSPACE_COLLECTS[];   /* "auto", "manual", "careful" */
#define WORKSPACE_SHOWN_MAX 100
extern const struct field WORKSPACE_WISH_FIELDS[]; /* of `workspace` in the body of a run */

/*
 * The wish as it is kept: {path, mode, collect, root, allowLarge, show, careful}, the path
 * canonical. *out is NULL when no files are wanted (absent, null, or mode none). `wish` has passed
 * WORKSPACE_WISH_FIELDS. `agent`: the run is an agent's, whoever starts it; those are collected
 * with care unless a person says otherwise.
 * ERR_VALIDATION, ERR_UNPROCESSABLE for what is no directory, ERR_FORBIDDEN for one that is not
 * this caller's to name.
 */
int workspace_wanted(const struct runs *runs, const struct actor *actor, const char *company_id,
		     bool agent, const json_t *wish, json_t **out, struct error *err);
/*
 * The server's own user and root may name any directory, in any mode. Every other caller, with
 * whatever token, only what is below --allow-workspace, and mode in_place only where that is open.
 */
int workspace_allowed(const struct runs *runs, const struct actor *actor, const char *company_id,
		      const char *canonical, const char *mode, struct error *err);
/*
 * What is hidden, and what is merged without a look, is decided by people: ERR_FORBIDDEN for an
 * agent whose wish shows paths, or is collected without care.
 */
int workspace_trusted(const struct actor *actor, const json_t *wish, struct error *err);
/* The same directory, or one that is below the other. Both canonical. */
bool paths_overlap(const char *a, const char *b);

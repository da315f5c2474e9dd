/*
 * Runs that name a prompt: the request is turned into one that names a command before it is
 * written, so that everything behind it knows commands only.
 */
#pragma once

#include "run/run.h"

/* Sandboxes cost money while they wait: without a limit of its own an adapter gets this one. */
#define ADAPTER_SANDBOX_TIMEOUT_MS (4LL * 3600 * 1000)

/*
 * `body` has passed RUN_FIELDS. *plain is the request to write (new reference): the body itself
 * when it names a command. ERR_VALIDATION unless exactly one of command and prompt is there.
 */
int prompt_resolve(struct runs *runs, const char *company_id, const char *run_id,
		   const json_t *body, json_t **plain, struct error *err);
/*
 * The run's own limit, within that of its place's config (limits.wallSeconds); in a sandbox four
 * hours where neither says anything. 0: none.
 */
int64_t run_time_limit(const struct run *run, const json_t *config);

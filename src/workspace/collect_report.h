/* What is told of a run's files: GET /runs/:id/changes. */
#pragma once

#include "workspace/workspace.h"

/* {added, modified, deleted, same, conflicts, keptHost, refused, bytes}; refused also counts what
 * could not be fetched. */
void report_counts(const struct apply_report *report, const struct workspace_state *state,
		   json_t *counts);
/* As workspace_report, of what applying would do now; nothing is touched. */
json_t *report_foretold(struct workspace_engine *engine, struct workspace_state *state,
			const struct apply_options *options, struct error *err);

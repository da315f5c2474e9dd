/*
 * Which environment a run gets (spec 01 E.8): reused workspace, issue, project, agent, company
 * default. At every level "not set" falls through and null means the company's default, also when
 * it was stored: clearing a choice never leads to this host unless the host is that default.
 */
#pragma once

#include <jansson.h>
#include "record/environment.h"

struct selection {
	const json_t
		*requested; /* environmentId of the request: NULL absent, json null the default */
	const json_t *workspace_config; /* config of a workspace that is reused; NULL otherwise */
	const json_t *issue_settings;   /* executionWorkspaceSettings or NULL */
	const json_t *project_policy;   /* executionWorkspacePolicy or NULL */
	const char *agent_default_id;   /* "" or NULL: none */
	const char *default_id;         /* the company's default environment */
};
/* Borrowed id and where it came from: "request", "workspace", "issue", "project", "agent",
 * "default". */
const char *select_environment(const struct selection *selection, const char **source);

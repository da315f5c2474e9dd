#include "record/workspace.h"

/* Modes of issues, projects and workspaces are three lists of words; these are the ways between. */

static const char *wanted_by_project(const json_t *policy)
{
	enum project_workspace_mode mode;

	if (!json_bool(policy, "enabled", false) ||
	    !project_workspace_mode_parse(json_str(policy, "defaultMode"), &mode))
		return issue_workspace_mode_name(ISSUE_WORKSPACE_SHARED);
	switch (mode) {
	case PROJECT_WORKSPACE_ADAPTER_DEFAULT:
		return issue_workspace_mode_name(ISSUE_WORKSPACE_AGENT_DEFAULT);
	case PROJECT_WORKSPACE_ISOLATED:
		return issue_workspace_mode_name(ISSUE_WORKSPACE_ISOLATED);
	case PROJECT_WORKSPACE_OPERATOR_BRANCH:
		return issue_workspace_mode_name(ISSUE_WORKSPACE_OPERATOR_BRANCH);
	default:
		return issue_workspace_mode_name(ISSUE_WORKSPACE_SHARED);
	}
}

const char *issue_mode_wanted(const json_t *issue_settings, const json_t *project_policy)
{
	enum issue_workspace_mode mode;

	if (issue_workspace_mode_parse(json_str(issue_settings, "mode"), &mode) &&
	    mode != ISSUE_WORKSPACE_INHERIT && mode != ISSUE_WORKSPACE_REUSE_EXISTING)
		return issue_workspace_mode_name(mode);
	return wanted_by_project(project_policy);
}

const char *workspace_mode_for_issue(const char *issue_mode)
{
	enum issue_workspace_mode mode;

	if (!issue_workspace_mode_parse(issue_mode, &mode))
		return execution_mode_name(WORKSPACE_SHARED);
	switch (mode) {
	case ISSUE_WORKSPACE_ISOLATED:
		return execution_mode_name(WORKSPACE_ISOLATED);
	case ISSUE_WORKSPACE_OPERATOR_BRANCH:
		return execution_mode_name(WORKSPACE_OPERATOR_BRANCH);
	case ISSUE_WORKSPACE_AGENT_DEFAULT:
		return execution_mode_name(WORKSPACE_ADAPTER_MANAGED);
	default:
		return execution_mode_name(WORKSPACE_SHARED);
	}
}

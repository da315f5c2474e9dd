/*
 * Every verb, each defined in the file named after it; and the few things two verbs share.
 */
#pragma once

#include "cli/cli.h"

extern const struct verb VERB_SERVE, VERB_RUN, VERB_EXEC, VERB_ATTACH, VERB_CP;
extern const struct verb VERB_ENV_ADD, VERB_ENV_LS, VERB_ENV_SHOW, VERB_ENV_RM, VERB_ENV_PROBE;
extern const struct verb VERB_LEASE_ACQUIRE, VERB_LEASE_LS, VERB_LEASE_SHOW, VERB_LEASE_RENEW,
	VERB_LEASE_PAUSE, VERB_LEASE_RESUME, VERB_LEASE_RELEASE, VERB_LEASE_DESTROY;
extern const struct verb VERB_EVENTS, VERB_TOP;
extern const struct verb VERB_RUNS, VERB_LOGS, VERB_CANCEL, VERB_RETRY;
extern const struct verb VERB_COLLECT, VERB_DIFF, VERB_DROP;
extern const struct verb VERB_ENV_EDIT, VERB_ENV_ARCHIVE, VERB_ENV_USAGE;
extern const struct verb VERB_COMPANY_LS, VERB_COMPANY_ADD;
extern const struct verb VERB_AGENT_ADD, VERB_AGENT_LS, VERB_AGENT_SHOW, VERB_AGENT_EDIT,
	VERB_AGENT_RM;
extern const struct verb VERB_PROJECT_ADD, VERB_PROJECT_LS, VERB_PROJECT_SHOW, VERB_PROJECT_EDIT,
	VERB_PROJECT_RM;
extern const struct verb VERB_ISSUE_ADD, VERB_ISSUE_LS, VERB_ISSUE_SHOW, VERB_ISSUE_EDIT,
	VERB_ISSUE_RM;
extern const struct verb VERB_WORKSPACE_ADD, VERB_WORKSPACE_LS, VERB_WORKSPACE_SHOW,
	VERB_WORKSPACE_EDIT, VERB_WORKSPACE_CLOSE, VERB_WORKSPACE_RM;
extern const struct verb VERB_ADAPTER_LS, VERB_ADAPTER_TEST;
extern const struct verb VERB_AUDIT, VERB_DOCTOR, VERB_PRUNE, VERB_BACKUP, VERB_VERSION,
	VERB_FAULTS, VERB_OPENAPI;
extern const struct verb VERB_CONFIG_CHECK, VERB_CONFIG_SHOW, VERB_RESTORE;
extern const struct verb VERB_COMPLETION, VERB_MAN;

extern const struct verb VERB_TOKEN_CREATE, VERB_TOKEN_LS, VERB_TOKEN_REVOKE;
extern const struct verb VERB_USER_ADD, VERB_USER_LS, VERB_USER_SET, VERB_WHOAMI;
extern const struct verb VERB_MEMBER_SET, VERB_MEMBER_LS, VERB_MEMBER_RM;

/* What -e gave, into the body's env. */
int put_variables(const struct args *args, json_t *body, struct error *err);
/* A JSON object given on the command line, or @FILE with one; new reference. */
json_t *config_argument(const char *text, struct error *err);
/* The terminal here into the body's tty. */
void put_terminal(json_t *body);

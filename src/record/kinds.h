/*
 * The closed sets of words in records: each is one table of C name and wire string, from which come
 * the enum, its parser and its printer.
 *
 *     const char *lease_status_name(enum lease_status);
 *     bool lease_status_parse(const char *, enum lease_status *);      false when unknown
 */
#pragma once

#include <stdbool.h>

#define DRIVER_KINDS(X)                                                                            \
	X(DRIVER_LOCAL, "local")                                                                   \
	X(DRIVER_SSH, "ssh")                                                                       \
	X(DRIVER_SANDBOX, "sandbox")                                                               \
	X(DRIVER_PLUGIN, "plugin")

#define ENVIRONMENT_STATUSES(X)                                                                    \
	X(ENVIRONMENT_ACTIVE, "active")                                                            \
	X(ENVIRONMENT_ARCHIVED, "archived")

#define LEASE_STATUSES(X)                                                                          \
	X(LEASE_ACTIVE, "active")                                                                  \
	X(LEASE_RELEASED, "released")                                                              \
	X(LEASE_EXPIRED, "expired")                                                                \
	X(LEASE_FAILED, "failed")                                                                  \
	X(LEASE_RETAINED, "retained")                                                              \
	X(LEASE_PENDING_CLEANUP, "pending_cleanup")

#define LEASE_POLICIES(X)                                                                          \
	X(POLICY_EPHEMERAL, "ephemeral")                                                           \
	X(POLICY_REUSE_BY_ENVIRONMENT, "reuse_by_environment")                                     \
	X(POLICY_REUSE_BY_WORKSPACE, "reuse_by_execution_workspace")                               \
	X(POLICY_RETAIN_ON_FAILURE, "retain_on_failure")

#define CLEANUP_STATUSES(X)                                                                        \
	X(CLEANUP_PENDING, "pending")                                                              \
	X(CLEANUP_SUCCESS, "success")                                                              \
	X(CLEANUP_FAILED, "failed")

/* The life of a place; drawn at the head of lease/place.c. */
#define PLACE_STATES(X)                                                                            \
	X(PLACE_HELD, "held")                                                                      \
	X(PLACE_RESUMING, "resuming")                                                              \
	X(PLACE_RELEASING, "releasing")                                                            \
	X(PLACE_FREE, "free")                                                                      \
	X(PLACE_RETAINED, "retained")                                                              \
	X(PLACE_CLEANUP, "cleanup")                                                                \
	X(PLACE_GONE, "gone")

#define FENCINGS(X)                                                                                \
	X(FENCING_PLACE, "place")                                                                  \
	X(FENCING_SERVER, "server")                                                                \
	X(FENCING_NONE, "none")

#define RUN_STATUSES(X)                                                                            \
	X(RUN_QUEUED, "queued")                                                                    \
	X(RUN_SCHEDULED_RETRY, "scheduled_retry")                                                  \
	X(RUN_RUNNING, "running")                                                                  \
	X(RUN_SUCCEEDED, "succeeded")                                                              \
	X(RUN_FAILED, "failed")                                                                    \
	X(RUN_CANCELLED, "cancelled")                                                              \
	X(RUN_TIMED_OUT, "timed_out")

/* Why an exec ended. */
#define EXEC_REASONS(X)                                                                            \
	X(EXEC_EXITED, "exited")                                                                   \
	X(EXEC_SIGNALLED, "signalled")                                                             \
	X(EXEC_TIMEOUT, "timeout")                                                                 \
	X(EXEC_OOM, "oom")                                                                         \
	X(EXEC_CANCELLED, "cancelled")                                                             \
	X(EXEC_LEASE_LOST, "lease_lost")

#define EXECUTION_MODES(X)                                                                         \
	X(WORKSPACE_SHARED, "shared_workspace")                                                    \
	X(WORKSPACE_ISOLATED, "isolated_workspace")                                                \
	X(WORKSPACE_OPERATOR_BRANCH, "operator_branch")                                            \
	X(WORKSPACE_ADAPTER_MANAGED, "adapter_managed")                                            \
	X(WORKSPACE_CLOUD_SANDBOX, "cloud_sandbox")

#define WORKSPACE_STATUSES(X)                                                                      \
	X(WORKSPACE_ACTIVE, "active")                                                              \
	X(WORKSPACE_IDLE, "idle")                                                                  \
	X(WORKSPACE_IN_REVIEW, "in_review")                                                        \
	X(WORKSPACE_ARCHIVED, "archived")                                                          \
	X(WORKSPACE_CLEANUP_FAILED, "cleanup_failed")

#define ISSUE_WORKSPACE_MODES(X)                                                                   \
	X(ISSUE_WORKSPACE_INHERIT, "inherit")                                                      \
	X(ISSUE_WORKSPACE_SHARED, "shared_workspace")                                              \
	X(ISSUE_WORKSPACE_ISOLATED, "isolated_workspace")                                          \
	X(ISSUE_WORKSPACE_OPERATOR_BRANCH, "operator_branch")                                      \
	X(ISSUE_WORKSPACE_REUSE_EXISTING, "reuse_existing")                                        \
	X(ISSUE_WORKSPACE_AGENT_DEFAULT, "agent_default")

#define PROJECT_WORKSPACE_MODES(X)                                                                 \
	X(PROJECT_WORKSPACE_SHARED, "shared_workspace")                                            \
	X(PROJECT_WORKSPACE_ISOLATED, "isolated_workspace")                                        \
	X(PROJECT_WORKSPACE_OPERATOR_BRANCH, "operator_branch")                                    \
	X(PROJECT_WORKSPACE_ADAPTER_DEFAULT, "adapter_default")

#define DESIRED_STATES(X)                                                                          \
	X(DESIRED_RUNNING, "running")                                                              \
	X(DESIRED_STOPPED, "stopped")                                                              \
	X(DESIRED_MANUAL, "manual")

#define PRINCIPAL_KINDS(X)                                                                         \
	X(PRINCIPAL_USER, "user")                                                                  \
	X(PRINCIPAL_AGENT, "agent")

#define MEMBER_ROLES(X)                                                                            \
	X(ROLE_OWNER, "owner")                                                                     \
	X(ROLE_ADMIN, "admin")                                                                     \
	X(ROLE_OPERATOR, "operator")                                                               \
	X(ROLE_VIEWER, "viewer")                                                                   \
	X(ROLE_MEMBER, "member")

#define MEMBER_STATUSES(X)                                                                         \
	X(MEMBER_PENDING, "pending")                                                               \
	X(MEMBER_ACTIVE, "active")                                                                 \
	X(MEMBER_SUSPENDED, "suspended")                                                           \
	X(MEMBER_ARCHIVED, "archived")

/* At most as many as an unsigned has bits: a set of them is one (auth/member.h). */
#define PERMISSIONS(X)                                                                             \
	X(PERMISSION_AGENTS_CREATE, "agents:create")                                               \
	X(PERMISSION_ENVIRONMENTS_MANAGE, "environments:manage")                                   \
	X(PERMISSION_USERS_INVITE, "users:invite")                                                 \
	X(PERMISSION_USERS_MANAGE, "users:manage_permissions")                                     \
	X(PERMISSION_TASKS_ASSIGN, "tasks:assign")                                                 \
	X(PERMISSION_TASKS_ASSIGN_SCOPE, "tasks:assign_scope")                                     \
	X(PERMISSION_TASKS_CHECKOUTS, "tasks:manage_active_checkouts")                             \
	X(PERMISSION_JOINS_APPROVE, "joins:approve")                                               \
	X(PERMISSION_LEASES_USE, "leases:use")                                                     \
	X(PERMISSION_METRICS_READ, "metrics:read")

#define COMPANY_STATUSES(X)                                                                        \
	X(COMPANY_STATUS_ACTIVE, "active")                                                         \
	X(COMPANY_STATUS_PAUSED, "paused")                                                         \
	X(COMPANY_STATUS_ARCHIVED, "archived")

#define AGENT_STATUSES(X)                                                                          \
	X(AGENT_STATUS_ACTIVE, "active")                                                           \
	X(AGENT_STATUS_PAUSED, "paused")                                                           \
	X(AGENT_STATUS_IDLE, "idle")                                                               \
	X(AGENT_STATUS_RUNNING, "running")                                                         \
	X(AGENT_STATUS_ERROR, "error")                                                             \
	X(AGENT_STATUS_PENDING_APPROVAL, "pending_approval")                                       \
	X(AGENT_STATUS_TERMINATED, "terminated")

#define PROJECT_STATUSES(X)                                                                        \
	X(PROJECT_STATUS_BACKLOG, "backlog")                                                       \
	X(PROJECT_STATUS_PLANNED, "planned")                                                       \
	X(PROJECT_STATUS_IN_PROGRESS, "in_progress")                                               \
	X(PROJECT_STATUS_COMPLETED, "completed")                                                   \
	X(PROJECT_STATUS_CANCELLED, "cancelled")

#define ISSUE_STATUSES(X)                                                                          \
	X(ISSUE_STATUS_BACKLOG, "backlog")                                                         \
	X(ISSUE_STATUS_TODO, "todo")                                                               \
	X(ISSUE_STATUS_IN_PROGRESS, "in_progress")                                                 \
	X(ISSUE_STATUS_IN_REVIEW, "in_review")                                                     \
	X(ISSUE_STATUS_DONE, "done")                                                               \
	X(ISSUE_STATUS_BLOCKED, "blocked")                                                         \
	X(ISSUE_STATUS_CANCELLED, "cancelled")

#define ISSUE_PRIORITIES(X)                                                                        \
	X(ISSUE_PRIORITY_CRITICAL, "critical")                                                     \
	X(ISSUE_PRIORITY_HIGH, "high")                                                             \
	X(ISSUE_PRIORITY_MEDIUM, "medium")                                                         \
	X(ISSUE_PRIORITY_LOW, "low")

#define WORKSPACE_STRATEGIES(X)                                                                    \
	X(STRATEGY_PROJECT_PRIMARY, "project_primary")                                             \
	X(STRATEGY_GIT_WORKTREE, "git_worktree")                                                   \
	X(STRATEGY_ADAPTER_MANAGED, "adapter_managed")                                             \
	X(STRATEGY_CLOUD_SANDBOX, "cloud_sandbox")

#define WORKSPACE_PROVIDERS(X)                                                                     \
	X(WORKSPACE_LOCAL_FS, "local_fs")                                                          \
	X(WORKSPACE_GIT_WORKTREE, "git_worktree")                                                  \
	X(WORKSPACE_BY_ADAPTER, "adapter_managed")                                                 \
	X(WORKSPACE_IN_CLOUD, "cloud_sandbox")

#define KINDS(X)                                                                                   \
	X(driver_kind, DRIVER_KINDS)                                                               \
	X(environment_status, ENVIRONMENT_STATUSES)                                                \
	X(lease_status, LEASE_STATUSES)                                                            \
	X(lease_policy, LEASE_POLICIES)                                                            \
	X(cleanup_status, CLEANUP_STATUSES)                                                        \
	X(place_state, PLACE_STATES)                                                               \
	X(fencing, FENCINGS)                                                                       \
	X(run_status, RUN_STATUSES)                                                                \
	X(exec_reason, EXEC_REASONS)                                                               \
	X(execution_mode, EXECUTION_MODES)                                                         \
	X(workspace_status, WORKSPACE_STATUSES)                                                    \
	X(issue_workspace_mode, ISSUE_WORKSPACE_MODES)                                             \
	X(project_workspace_mode, PROJECT_WORKSPACE_MODES)                                         \
	X(desired_state, DESIRED_STATES)                                                           \
	X(company_status, COMPANY_STATUSES)                                                        \
	X(agent_status, AGENT_STATUSES)                                                            \
	X(project_status, PROJECT_STATUSES)                                                        \
	X(issue_status, ISSUE_STATUSES)                                                            \
	X(issue_priority, ISSUE_PRIORITIES)                                                        \
	X(workspace_strategy, WORKSPACE_STRATEGIES)                                                \
	X(workspace_provider, WORKSPACE_PROVIDERS)                                                 \
	X(principal_kind, PRINCIPAL_KINDS)                                                         \
	X(member_role, MEMBER_ROLES)                                                               \
	X(member_status, MEMBER_STATUSES)                                                          \
	X(permission, PERMISSIONS)

#define KIND_VALUE_(c_name, wire) c_name,
enum driver_kind { DRIVER_KINDS(KIND_VALUE_) DRIVER_KIND_COUNT };
enum environment_status { ENVIRONMENT_STATUSES(KIND_VALUE_) ENVIRONMENT_STATUS_COUNT };
enum lease_status { LEASE_STATUSES(KIND_VALUE_) LEASE_STATUS_COUNT };
enum lease_policy { LEASE_POLICIES(KIND_VALUE_) LEASE_POLICY_COUNT };
enum cleanup_status { CLEANUP_STATUSES(KIND_VALUE_) CLEANUP_STATUS_COUNT };
enum place_state { PLACE_STATES(KIND_VALUE_) PLACE_STATE_COUNT };
enum fencing { FENCINGS(KIND_VALUE_) FENCING_COUNT };
enum run_status { RUN_STATUSES(KIND_VALUE_) RUN_STATUS_COUNT };
enum exec_reason { EXEC_REASONS(KIND_VALUE_) EXEC_REASON_COUNT };
enum execution_mode { EXECUTION_MODES(KIND_VALUE_) EXECUTION_MODE_COUNT };
enum workspace_status { WORKSPACE_STATUSES(KIND_VALUE_) WORKSPACE_STATUS_COUNT };
enum issue_workspace_mode { ISSUE_WORKSPACE_MODES(KIND_VALUE_) ISSUE_WORKSPACE_MODE_COUNT };
enum project_workspace_mode { PROJECT_WORKSPACE_MODES(KIND_VALUE_) PROJECT_WORKSPACE_MODE_COUNT };
enum desired_state { DESIRED_STATES(KIND_VALUE_) DESIRED_STATE_COUNT };
enum company_status { COMPANY_STATUSES(KIND_VALUE_) COMPANY_STATUS_COUNT };
enum agent_status { AGENT_STATUSES(KIND_VALUE_) AGENT_STATUS_COUNT };
enum project_status { PROJECT_STATUSES(KIND_VALUE_) PROJECT_STATUS_COUNT };
enum issue_status { ISSUE_STATUSES(KIND_VALUE_) ISSUE_STATUS_COUNT };
enum issue_priority { ISSUE_PRIORITIES(KIND_VALUE_) ISSUE_PRIORITY_COUNT };
enum workspace_strategy { WORKSPACE_STRATEGIES(KIND_VALUE_) WORKSPACE_STRATEGY_COUNT };
enum workspace_provider { WORKSPACE_PROVIDERS(KIND_VALUE_) WORKSPACE_PROVIDER_COUNT };
enum principal_kind { PRINCIPAL_KINDS(KIND_VALUE_) PRINCIPAL_KIND_COUNT };
enum member_role { MEMBER_ROLES(KIND_VALUE_) MEMBER_ROLE_COUNT };
enum member_status { MEMBER_STATUSES(KIND_VALUE_) MEMBER_STATUS_COUNT };
enum permission { PERMISSIONS(KIND_VALUE_) PERMISSION_COUNT };
#undef KIND_VALUE_

#define KIND_PROTOTYPE_(kind, table)                                                               \
	const char *kind##_name(enum kind value);                                                  \
	bool kind##_parse(const char *text, enum kind *value);                                     \
	extern const char *const kind##_names[]; /* NULL-terminated, for field tables */
KINDS(KIND_PROTOTYPE_)
#undef KIND_PROTOTYPE_

/* A run or lease that will not change any more. */
static inline bool run_status_is_final(enum run_status s)
{
	return s == RUN_SUCCEEDED || s == RUN_FAILED || s == RUN_CANCELLED || s == RUN_TIMED_OUT;
}

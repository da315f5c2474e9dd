#include "db/migrate.h"

/*
 * The schema, one text for both engines. Four words are written by migrate.c per dialect: TEXT
 * gets COLLATE "C" on PostgreSQL so that text cursors order as in SQLite, BIGINT is INTEGER in
 * SQLite because STRICT tables know no other name for it, STRICT itself is dropped on PostgreSQL,
 * and so is CLUSTERED, which is STRICT with the rows in the tree of the primary key.
 *
 * Ids are TEXT, times BIGINT milliseconds, booleans BIGINT 0/1, JSON is TEXT that SQL never looks
 * into. A migration that has been released is never edited; a change is a new one at the foot.
 */

static const char *const core[] = {
	"CREATE TABLE nodes ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" boot_epoch BIGINT NOT NULL,"
	" boot_id TEXT NOT NULL,"
	" pid BIGINT,"
	" hostname TEXT,"
	" version TEXT,"
	" started_at BIGINT NOT NULL,"
	" heartbeat_at BIGINT NOT NULL"
	") STRICT",

	/* Sequences whose order is the order of commits: the row is updated in the same
	   transaction. */
	"CREATE TABLE counters ("
	" name TEXT NOT NULL PRIMARY KEY,"
	" value BIGINT NOT NULL DEFAULT 0"
	") STRICT",
	"INSERT INTO counters (name, value) VALUES ('activity', 0)",

	"CREATE TABLE companies ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" name TEXT NOT NULL UNIQUE,"
	" created_at BIGINT NOT NULL,"
	" updated_at BIGINT NOT NULL"
	") STRICT",

	"CREATE TABLE environments ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,"
	" name TEXT NOT NULL,"
	" description TEXT,"
	" driver TEXT NOT NULL DEFAULT 'local',"
	" status TEXT NOT NULL DEFAULT 'active',"
	" config TEXT NOT NULL DEFAULT '{}',"
	" metadata TEXT,"
	" created_at BIGINT NOT NULL,"
	" updated_at BIGINT NOT NULL"
	") STRICT",
	"CREATE INDEX environments_company_status_idx ON environments (company_id, status)",
	"CREATE UNIQUE INDEX environments_company_driver_idx ON environments (company_id, driver)"
	" WHERE driver = 'local'",
	"CREATE INDEX environments_company_name_idx ON environments (company_id, name)",

	"CREATE TABLE agents ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" company_id TEXT NOT NULL REFERENCES companies (id),"
	" name TEXT NOT NULL,"
	" adapter_type TEXT NOT NULL DEFAULT 'process',"
	" adapter_config TEXT NOT NULL DEFAULT '{}',"
	" runtime_config TEXT NOT NULL DEFAULT '{}',"
	" permissions TEXT NOT NULL DEFAULT '{}',"
	" default_environment_id TEXT REFERENCES environments (id) ON DELETE SET NULL,"
	" created_at BIGINT NOT NULL,"
	" updated_at BIGINT NOT NULL"
	") STRICT",
	"CREATE INDEX agents_company_environment_idx ON agents (company_id, "
	"default_environment_id)",
	"CREATE INDEX agents_environment_idx ON agents (default_environment_id)",

	"CREATE TABLE projects ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" company_id TEXT NOT NULL REFERENCES companies (id),"
	" name TEXT NOT NULL,"
	" execution_workspace_policy TEXT,"
	" created_at BIGINT NOT NULL,"
	" updated_at BIGINT NOT NULL"
	") STRICT",
	"CREATE INDEX projects_company_idx ON projects (company_id, created_at)",

	"CREATE TABLE issues ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" company_id TEXT NOT NULL REFERENCES companies (id),"
	" project_id TEXT REFERENCES projects (id) ON DELETE SET NULL,"
	" assignee_agent_id TEXT REFERENCES agents (id) ON DELETE SET NULL,"
	" title TEXT NOT NULL,"
	" status TEXT NOT NULL DEFAULT 'open',"
	" execution_workspace_id TEXT,"
	" execution_workspace_preference TEXT,"
	" execution_workspace_settings TEXT,"
	" created_at BIGINT NOT NULL,"
	" updated_at BIGINT NOT NULL"
	") STRICT",
	"CREATE INDEX issues_company_idx ON issues (company_id, created_at)",
	"CREATE INDEX issues_project_idx ON issues (project_id)",
	"CREATE INDEX issues_assignee_idx ON issues (assignee_agent_id)",

	"CREATE TABLE execution_workspaces ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" company_id TEXT NOT NULL REFERENCES companies (id),"
	" project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,"
	" project_workspace_id TEXT,"
	" source_issue_id TEXT REFERENCES issues (id) ON DELETE SET NULL,"
	" mode TEXT NOT NULL,"
	" strategy_type TEXT NOT NULL,"
	" name TEXT NOT NULL,"
	" status TEXT NOT NULL DEFAULT 'active',"
	" cwd TEXT,"
	" repo_url TEXT,"
	" base_ref TEXT,"
	" branch_name TEXT,"
	" provider_type TEXT NOT NULL DEFAULT 'local_fs',"
	" provider_ref TEXT,"
	" derived_from_execution_workspace_id TEXT"
	" REFERENCES execution_workspaces (id) ON DELETE SET NULL,"
	" last_used_at BIGINT NOT NULL,"
	" opened_at BIGINT NOT NULL,"
	" closed_at BIGINT,"
	" cleanup_eligible_at BIGINT,"
	" cleanup_reason TEXT,"
	" metadata TEXT,"
	" created_at BIGINT NOT NULL,"
	" updated_at BIGINT NOT NULL"
	") STRICT",
	"CREATE INDEX execution_workspaces_project_status_idx"
	" ON execution_workspaces (company_id, project_id, status)",
	"CREATE INDEX execution_workspaces_project_workspace_idx"
	" ON execution_workspaces (company_id, project_workspace_id, status)",
	"CREATE INDEX execution_workspaces_source_issue_idx"
	" ON execution_workspaces (company_id, source_issue_id)",
	"CREATE INDEX execution_workspaces_last_used_idx"
	" ON execution_workspaces (company_id, last_used_at)",
	"CREATE INDEX execution_workspaces_branch_idx"
	" ON execution_workspaces (company_id, branch_name)",

	/*
	 * A place is what must never leak, so nothing deletes its row by cascade: a company with
	 * places cannot go, and an environment leaves its places behind without it.
	 */
	"CREATE TABLE places ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" company_id TEXT NOT NULL REFERENCES companies (id),"
	" environment_id TEXT REFERENCES environments (id) ON DELETE SET NULL,"
	" driver TEXT NOT NULL,"
	" provider TEXT NOT NULL,"
	" provider_ref TEXT NOT NULL UNIQUE,"
	" scope TEXT NOT NULL DEFAULT '',"
	" fingerprint TEXT NOT NULL DEFAULT '',"
	" state TEXT NOT NULL,"
	" holder_lease TEXT UNIQUE,"
	" generation BIGINT NOT NULL DEFAULT 0,"
	" epoch BIGINT NOT NULL DEFAULT 0,"
	" node_id TEXT NOT NULL,"
	" boot_epoch BIGINT NOT NULL,"
	" boot_id TEXT NOT NULL DEFAULT '',"
	" relay TEXT,"
	" uid_base BIGINT,"
	" uid_count BIGINT,"
	" boundary TEXT,"
	" fencing TEXT NOT NULL,"
	" discoverable BIGINT NOT NULL,"
	" absence_ms BIGINT NOT NULL DEFAULT 900000,"
	" config TEXT NOT NULL DEFAULT '{}',"
	" metadata TEXT NOT NULL DEFAULT '{}',"
	" cleanup_action TEXT,"
	" cleanup_attempts BIGINT NOT NULL DEFAULT 0,"
	" cleanup_next_at BIGINT,"
	" cleanup_reason TEXT,"
	" retain_until BIGINT,"
	" created_at BIGINT NOT NULL,"
	" updated_at BIGINT NOT NULL"
	") STRICT",
	/*
	 * One index of the living serves every sweep: they are few, and a place that changes its
	 * state writes one entry instead of four. Statements repeat the condition, SQLite wants to
	 * see it.
	 */
	"CREATE INDEX places_live_idx ON places (state, environment_id) WHERE state <> 'gone'",

	"CREATE TABLE leases ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" company_id TEXT NOT NULL REFERENCES companies (id),"
	" environment_id TEXT REFERENCES environments (id) ON DELETE SET NULL,"
	" place_id TEXT NOT NULL REFERENCES places (id),"
	" generation BIGINT NOT NULL,"
	" execution_workspace_id TEXT,"
	" issue_id TEXT,"
	" agent_id TEXT,"
	" run_id TEXT,"
	" status TEXT NOT NULL,"
	" final_status TEXT,"
	" lease_policy TEXT NOT NULL,"
	" provider TEXT,"
	" provider_lease_id TEXT,"
	" acquired_at BIGINT NOT NULL,"
	" last_used_at BIGINT NOT NULL,"
	" expires_at BIGINT,"
	" released_at BIGINT,"
	" idle_ms BIGINT,"
	" retain_ms BIGINT,"
	" failure_reason TEXT,"
	" cleanup_status TEXT,"
	" metadata TEXT NOT NULL DEFAULT '{}',"
	" node_id TEXT NOT NULL,"
	" boot_epoch BIGINT NOT NULL,"
	" created_at BIGINT NOT NULL,"
	" updated_at BIGINT NOT NULL"
	") STRICT",
	"CREATE INDEX leases_environment_used_idx"
	" ON leases (environment_id, last_used_at DESC, created_at DESC, id)",
	"CREATE INDEX leases_run_idx ON leases (run_id) WHERE run_id IS NOT NULL",
	"CREATE INDEX leases_place_idx ON leases (place_id, generation)",
	"CREATE INDEX leases_expiry_idx ON leases (expires_at) WHERE status = 'active'",
	"CREATE INDEX leases_open_idx ON leases (status, environment_id)"
	" WHERE status IN ('active', 'pending_cleanup', 'retained')",
	"CREATE INDEX leases_released_idx ON leases (released_at) WHERE released_at IS NOT NULL",

	"CREATE TABLE intents ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" company_id TEXT NOT NULL REFERENCES companies (id),"
	" environment_id TEXT NOT NULL,"
	" kind TEXT NOT NULL,"
	" driver TEXT NOT NULL,"
	" provider TEXT NOT NULL,"
	" provider_ref TEXT NOT NULL UNIQUE,"
	" place_id TEXT,"
	" config TEXT NOT NULL,"
	" request TEXT NOT NULL,"
	" scope TEXT,"
	" fingerprint TEXT,"
	" node_id TEXT NOT NULL,"
	" boot_epoch BIGINT NOT NULL,"
	" state TEXT NOT NULL,"
	" reason TEXT,"
	" created_at BIGINT NOT NULL,"
	" updated_at BIGINT NOT NULL"
	") STRICT",
	"CREATE INDEX intents_environment_idx ON intents (environment_id)",
	"CREATE INDEX intents_node_idx ON intents (node_id, boot_epoch)",

	"CREATE TABLE runs ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" company_id TEXT NOT NULL REFERENCES companies (id),"
	" agent_id TEXT,"
	" project_id TEXT,"
	" issue_id TEXT,"
	" execution_workspace_id TEXT,"
	" environment_id TEXT,"
	" lease_id TEXT,"
	" invocation_source TEXT NOT NULL DEFAULT 'on_demand',"
	" status TEXT NOT NULL,"
	" status_reason TEXT,"
	" command TEXT NOT NULL,"
	" cwd TEXT,"
	" env TEXT NOT NULL DEFAULT '{}',"
	" stdin TEXT,"
	" stdin_encoding TEXT,"
	" timeout_ms BIGINT,"
	" exit_code BIGINT,"
	" signal TEXT,"
	" reason TEXT,"
	" error TEXT,"
	" error_code TEXT,"
	" process_pid BIGINT,"
	" process_start_time BIGINT,"
	" log_bytes BIGINT NOT NULL DEFAULT 0,"
	" retry_of_run_id TEXT,"
	" process_loss_retry_count BIGINT NOT NULL DEFAULT 0,"
	" cancel_requested_at BIGINT,"
	" context TEXT NOT NULL DEFAULT '{}',"
	" timings TEXT NOT NULL DEFAULT '{}',"
	" result TEXT,"
	" node_id TEXT NOT NULL,"
	" boot_epoch BIGINT NOT NULL,"
	" created_at BIGINT NOT NULL,"
	" started_at BIGINT,"
	" finished_at BIGINT,"
	" updated_at BIGINT NOT NULL"
	") STRICT",
	"CREATE INDEX runs_company_idx ON runs (company_id, created_at DESC, id DESC)",
	"CREATE INDEX runs_company_status_idx"
	" ON runs (company_id, status, created_at DESC, id DESC)",
	"CREATE INDEX runs_open_idx ON runs (node_id)"
	" WHERE status IN ('queued', 'running', 'scheduled_retry')",
	"CREATE INDEX runs_agent_idx ON runs (agent_id, created_at)",
	"CREATE INDEX runs_finished_idx ON runs (finished_at) WHERE finished_at IS NOT NULL",

	"CREATE TABLE agent_runtime_state ("
	" agent_id TEXT NOT NULL PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE,"
	" company_id TEXT NOT NULL REFERENCES companies (id),"
	" adapter_type TEXT NOT NULL,"
	" session_id TEXT,"
	" state_json TEXT NOT NULL DEFAULT '{}',"
	" last_run_id TEXT,"
	" last_run_status TEXT,"
	" total_input_tokens BIGINT NOT NULL DEFAULT 0,"
	" total_output_tokens BIGINT NOT NULL DEFAULT 0,"
	" total_cached_input_tokens BIGINT NOT NULL DEFAULT 0,"
	" total_cost_cents BIGINT NOT NULL DEFAULT 0,"
	" last_error TEXT,"
	" created_at BIGINT NOT NULL,"
	" updated_at BIGINT NOT NULL"
	") STRICT",

	"CREATE TABLE activity ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" seq BIGINT NOT NULL,"
	" company_id TEXT NOT NULL REFERENCES companies (id),"
	" actor_type TEXT NOT NULL DEFAULT 'system',"
	" actor_id TEXT NOT NULL,"
	" action TEXT NOT NULL,"
	" entity_type TEXT NOT NULL,"
	" entity_id TEXT NOT NULL,"
	" agent_id TEXT,"
	" run_id TEXT,"
	" details TEXT,"
	" created_at BIGINT NOT NULL"
	") STRICT",
	"CREATE INDEX activity_company_idx ON activity (company_id, seq DESC)",
	"CREATE INDEX activity_run_idx ON activity (run_id) WHERE run_id IS NOT NULL",
	"CREATE INDEX activity_entity_idx ON activity (entity_type, entity_id)",

	/* No reference to companies: making a company may carry a key before there is one. */
	"CREATE TABLE idempotency_keys ("
	" company_id TEXT NOT NULL,"
	" actor TEXT NOT NULL,"
	" route TEXT NOT NULL,"
	" key TEXT NOT NULL,"
	" body_hash TEXT NOT NULL,"
	" entity_id TEXT,"
	" state TEXT NOT NULL,"
	" status BIGINT,"
	" response TEXT,"
	" node_id TEXT NOT NULL,"
	" boot_epoch BIGINT NOT NULL,"
	" created_at BIGINT NOT NULL,"
	" PRIMARY KEY (company_id, actor, route, key)"
	") STRICT",
	"CREATE INDEX idempotency_keys_created_idx ON idempotency_keys (created_at)",
	NULL,
};

const struct migration migrations[] = {
	{ 1, core },
	{ 2, MIGRATION_AUTH },
	{ 3, MIGRATION_RECORDS },
	{ 4, MIGRATION_LIVE },
	{ 5, MIGRATION_FILES },
	{ 6, MIGRATION_HISTORY },
	{ 7, MIGRATION_PAUSE },
	{ 8, MIGRATION_WRITES },
	{ 9, MIGRATION_TREES },
	{ 10, MIGRATION_SCOPES },
	{ 11, MIGRATION_NAMES },
	{ 12, MIGRATION_SECRETS },
	{ 13, MIGRATION_TRUST },
	{ 14, MIGRATION_CLOCK },
	{ 0, NULL },
};

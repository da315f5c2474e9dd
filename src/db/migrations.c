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

static const char *const v1_core[] = {
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

/* Who may come in: people, what they and agents are in a company, and their tokens. */
static const char *const v2_auth[] = {
	"CREATE TABLE users ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" name TEXT NOT NULL UNIQUE,"
	" disabled BIGINT NOT NULL DEFAULT 0,"
	" created_at BIGINT NOT NULL,"
	" updated_at BIGINT NOT NULL"
	") STRICT",

	"CREATE TABLE instance_user_roles ("
	" user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,"
	" role TEXT NOT NULL,"
	" created_at BIGINT NOT NULL,"
	" PRIMARY KEY (user_id, role)"
	") STRICT",

	/* A principal is a row of users or of agents, so neither can be referred to. */
	"CREATE TABLE company_memberships ("
	" company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,"
	" principal_type TEXT NOT NULL,"
	" principal_id TEXT NOT NULL,"
	" status TEXT NOT NULL,"
	" role TEXT NOT NULL,"
	" created_at BIGINT NOT NULL,"
	" updated_at BIGINT NOT NULL,"
	" PRIMARY KEY (company_id, principal_type, principal_id)"
	") STRICT",
	"CREATE INDEX company_memberships_principal_idx"
	" ON company_memberships (principal_type, principal_id)",

	"CREATE TABLE principal_permission_grants ("
	" company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,"
	" principal_type TEXT NOT NULL,"
	" principal_id TEXT NOT NULL,"
	" permission_key TEXT NOT NULL,"
	" granted_by TEXT NOT NULL,"
	" created_at BIGINT NOT NULL,"
	" PRIMARY KEY (company_id, principal_type, principal_id, permission_key)"
	") STRICT",

	/* Of a user or of an agent. What is kept is a hash: the text itself is shown once. */
	"CREATE TABLE tokens ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" user_id TEXT REFERENCES users (id) ON DELETE CASCADE,"
	" agent_id TEXT REFERENCES agents (id) ON DELETE CASCADE,"
	" name TEXT NOT NULL,"
	" prefix TEXT NOT NULL,"
	" hash TEXT NOT NULL UNIQUE,"
	" expires_at BIGINT,"
	" revoked_at BIGINT,"
	" last_used_at BIGINT,"
	" created_at BIGINT NOT NULL,"
	" CHECK ((user_id IS NULL) <> (agent_id IS NULL))"
	") STRICT",
	"CREATE INDEX tokens_user_idx ON tokens (user_id, created_at) WHERE user_id IS NOT NULL",
	"CREATE INDEX tokens_agent_idx ON tokens (agent_id, created_at) WHERE agent_id IS NOT NULL",
	NULL,
};

/*
 * Context records in full. What was there before gets what a new record would have got: companies a
 * prefix, issues a number in the order they were made. Statuses were free text and are now words of
 * a list.
 */
static const char *const v3_records[] = {
	"ALTER TABLE companies ADD COLUMN status TEXT NOT NULL DEFAULT 'active'",
	"ALTER TABLE companies ADD COLUMN issue_prefix TEXT",
	"ALTER TABLE companies ADD COLUMN issue_counter BIGINT NOT NULL DEFAULT 0",
	"UPDATE companies SET issue_prefix = 'CO' || n.number"
	" FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY created_at, id) AS number FROM companies) "
	"AS n"
	" WHERE n.id = companies.id",
	"UPDATE companies SET issue_counter ="
	" (SELECT COUNT(*) FROM issues WHERE issues.company_id = companies.id)",
	"CREATE UNIQUE INDEX companies_issue_prefix_idx ON companies (issue_prefix)",

	"ALTER TABLE agents ADD COLUMN role TEXT NOT NULL DEFAULT 'general'",
	"ALTER TABLE agents ADD COLUMN title TEXT",
	"ALTER TABLE agents ADD COLUMN status TEXT NOT NULL DEFAULT 'idle'",
	"CREATE INDEX agents_company_idx ON agents (company_id, created_at, id)",

	"ALTER TABLE projects ADD COLUMN status TEXT NOT NULL DEFAULT 'backlog'",
	"ALTER TABLE projects ADD COLUMN env TEXT NOT NULL DEFAULT '{}'",

	"ALTER TABLE issues ADD COLUMN description TEXT",
	"ALTER TABLE issues ADD COLUMN priority TEXT NOT NULL DEFAULT 'medium'",
	"ALTER TABLE issues ADD COLUMN issue_number BIGINT",
	"ALTER TABLE issues ADD COLUMN identifier TEXT",
	"ALTER TABLE issues ADD COLUMN execution_run_id TEXT",
	"ALTER TABLE issues ADD COLUMN checkout_run_id TEXT",
	"UPDATE issues SET status = 'todo' WHERE status NOT IN ('backlog', 'todo', 'in_progress',"
	" 'in_review', 'done', 'blocked', 'cancelled')",
	"UPDATE issues SET issue_number = n.number"
	" FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY company_id ORDER BY created_at, id)"
	" AS number FROM issues) AS n WHERE n.id = issues.id",
	"UPDATE issues SET identifier = companies.issue_prefix || '-' || issue_number"
	" FROM companies WHERE companies.id = issues.company_id",
	"CREATE UNIQUE INDEX issues_identifier_idx ON issues (identifier)",
	"CREATE INDEX issues_company_status_idx ON issues (company_id, status, created_at)",

	"CREATE INDEX issues_workspace_idx ON issues (execution_workspace_id)"
	" WHERE execution_workspace_id IS NOT NULL",
	"CREATE INDEX execution_workspaces_company_idx"
	" ON execution_workspaces (company_id, created_at, id)",
	/* Whether something may be closed or removed depends on who still uses it. */
	"CREATE INDEX leases_open_workspace_idx ON leases (execution_workspace_id)"
	" WHERE status IN ('active', 'pending_cleanup', 'retained')",
	NULL,
};

/*
 * Live events. Their numbers come from the counter that numbers the activity, so that both tables
 * together are one sequence in commit order; an entry of the activity is an event without being
 * written twice. event_floors remembers per company the highest number that pruning took from
 * either table: whoever asks for events after a smaller one is told that some are gone.
 */
static const char *const v4_live[] = {
	"CREATE TABLE events ("
	" seq BIGINT NOT NULL PRIMARY KEY,"
	" company_id TEXT NOT NULL REFERENCES companies (id),"
	" type TEXT NOT NULL,"
	" run_id TEXT,"
	" payload TEXT NOT NULL,"
	" created_at BIGINT NOT NULL"
	") STRICT",
	"CREATE INDEX events_company_idx ON events (company_id, seq)",
	"CREATE INDEX events_run_idx ON events (run_id, seq) WHERE run_id IS NOT NULL",
	"CREATE TABLE event_floors ("
	" company_id TEXT NOT NULL PRIMARY KEY REFERENCES companies (id),"
	" seq BIGINT NOT NULL"
	") STRICT",
	NULL,
};

/*
 * Workspaces of runs. `workspace` is what was asked for, `workspace_report` what became of it; the
 * engine itself remembers in files. place_kept_until: the run has ended, but what it changed is
 * still in its place, so its lease is not ended before that time.
 */
static const char *const v5_files[] = {
	"ALTER TABLE runs ADD COLUMN workspace TEXT",
	"ALTER TABLE runs ADD COLUMN workspace_report TEXT",
	"ALTER TABLE runs ADD COLUMN place_kept_until BIGINT",
	NULL,
};

/*
 * Places that are gone and may be forgotten, the oldest first: pruning looks at those that are old
 * and not at a million that are not. The condition is that of PRUNE_PLACES, word for word.
 */
static const char *const v6_history[] = {
	"CREATE INDEX places_gone_idx ON places (updated_at, id)"
	" WHERE state = 'gone' AND (scope = '' OR environment_id IS NULL)",
	NULL,
};

/* Whether a lease is paused: 0 no, 1 it is being paused, 2 it is. See lease/pause.c. */
static const char *const v7_pause[] = {
	"ALTER TABLE leases ADD COLUMN paused BIGINT NOT NULL DEFAULT 0",
	NULL,
};

/*
 * Fewer pages for the writes of a lease.
 *
 * Intents are there for milliseconds, so the table is small: what is asked of it beside its two
 * keys reads it whole, and the rows lie in the primary key itself.
 *
 * Leases: SQLite evaluates the condition of a partial index for the row before and after every
 * write, and builds a table for an IN of three words each time; comparisons cost nothing. Only the
 * leases that have a workspace are looked for by it.
 */
#define OPEN_LEASES "(status = 'active' OR status = 'pending_cleanup' OR status = 'retained')"

static const char *const v8_writes[] = {
	"CREATE TABLE intents_by_id ("
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
	") CLUSTERED",
	"INSERT INTO intents_by_id (id, company_id, environment_id, kind, driver, provider,"
	" provider_ref, place_id, config, request, scope, fingerprint, node_id, boot_epoch,"
	" state, reason, created_at, updated_at)"
	" SELECT id, company_id, environment_id, kind, driver, provider,"
	" provider_ref, place_id, config, request, scope, fingerprint, node_id, boot_epoch,"
	" state, reason, created_at, updated_at FROM intents",
	"DROP TABLE intents",
	"ALTER TABLE intents_by_id RENAME TO intents",

	"DROP INDEX leases_open_idx",
	"CREATE INDEX leases_open_idx ON leases (status, environment_id) WHERE " OPEN_LEASES,
	"DROP INDEX leases_open_workspace_idx",
	"CREATE INDEX leases_open_workspace_idx ON leases (execution_workspace_id)"
	" WHERE execution_workspace_id IS NOT NULL AND " OPEN_LEASES,
	NULL,
};

/*
 * Fewer trees for the writes of a lease: each of them is a page more to log and to sync.
 *
 * The activity lies under its number, which is unique anyway; nobody looks for an entry by its id,
 * nor for those of a run. Leases that expire are few and open, so they are found among the open
 * ones; an index by time was written at each renewal, too. The boundary of a place stands in its
 * metadata; its column stays for nodes of the version before, which write it.
 */
static const char *const v9_trees[] = {
	"CREATE TABLE activity_by_seq ("
	" seq BIGINT NOT NULL PRIMARY KEY,"
	" id TEXT NOT NULL,"
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
	"INSERT INTO activity_by_seq (seq, id, company_id, actor_type, actor_id, action,"
	" entity_type, entity_id, agent_id, run_id, details, created_at)"
	" SELECT seq, id, company_id, actor_type, actor_id, action,"
	" entity_type, entity_id, agent_id, run_id, details, created_at"
	" FROM activity ORDER BY seq",
	"DROP TABLE activity",
	"ALTER TABLE activity_by_seq RENAME TO activity",
	"CREATE INDEX activity_company_idx ON activity (company_id, seq)",
	"CREATE INDEX activity_entity_idx ON activity (entity_type, entity_id)",

	"DROP INDEX IF EXISTS leases_expiry_idx",
	NULL,
};

/* Permissions that a token is limited to, as a JSON array; NULL: it may what its owner may. */
static const char *const v10_scopes[] = {
	"ALTER TABLE tokens ADD COLUMN permissions TEXT",
	NULL,
};

/*
 * A name is one environment: of several of one name the oldest keeps it, the others get the end of
 * their id behind theirs. Runs are listed by what they belong to.
 */
static const char *const v11_names[] = {
	"UPDATE environments SET name = name || ' (' || substr(id, 29, 8) || ')'"
	" WHERE EXISTS (SELECT 1 FROM environments AS older"
	"  WHERE older.company_id = environments.company_id AND older.name = environments.name"
	"  AND (older.created_at < environments.created_at"
	"   OR (older.created_at = environments.created_at AND older.id < environments.id)))",
	"DROP INDEX environments_company_name_idx",
	"CREATE UNIQUE INDEX environments_company_name_idx ON environments (company_id, name)",

	"CREATE INDEX runs_issue_idx ON runs (issue_id, created_at DESC, id DESC)"
	" WHERE issue_id IS NOT NULL",
	"CREATE INDEX runs_project_idx ON runs (project_id, created_at DESC, id DESC)"
	" WHERE project_id IS NOT NULL",
	"CREATE INDEX runs_environment_idx ON runs (environment_id, created_at DESC, id DESC)"
	" WHERE environment_id IS NOT NULL",
	NULL,
};

/*
 * Values that may be secrets are kept once, and not longer than they are needed. Places, intents
 * and leases had copies of their environment's env; runs have a mark that says whether they hold
 * some: 0 none, 1 in env or stdin, 2 deleted.
 */
static const char *const v12_secrets[] = {
	"UPDATE places SET config = CONFIG_ENV_ELSEWHERE"
	" WHERE config LIKE '%\"env\"%'",
	"UPDATE places SET metadata = METADATA_WITHOUT_ENV"
	" WHERE metadata LIKE '%\"env\"%'",
	"UPDATE intents SET config = CONFIG_WITHOUT_ENV WHERE config LIKE '%\"env\"%'",
	"UPDATE leases SET metadata = METADATA_WITHOUT_ENV"
	" WHERE metadata LIKE '%\"env\"%'",

	"ALTER TABLE runs ADD COLUMN secrets BIGINT NOT NULL DEFAULT 0",
	"UPDATE runs SET secrets = 1 WHERE env <> '{}' OR stdin IS NOT NULL",
	"CREATE INDEX runs_secrets_idx ON runs (finished_at) WHERE secrets = 1",
	NULL,
};

/*
 * Who wrote what decides where and how something runs (record/trust.h). Of what is older nobody
 * knows the writer, so it counts as a token's; but for the Local environments that nobody has
 * changed, which the server made itself.
 */
static const char *const v13_trust[] = {
	"ALTER TABLE agents ADD COLUMN trust TEXT",
	"ALTER TABLE projects ADD COLUMN trust TEXT",
	"ALTER TABLE issues ADD COLUMN trust TEXT",
	"ALTER TABLE execution_workspaces ADD COLUMN trust TEXT",
	"ALTER TABLE environments ADD COLUMN trust TEXT",
	"UPDATE environments SET"
	" trust = '{\"config\":\"local\",\"driver\":\"local\",\"name\":\"local\"}'"
	" WHERE driver = 'local' AND config = '{}'",
	NULL,
};

/* Civil time minus the time since boot, as a node's last server had it: see record/node.c. */
static const char *const v14_clock[] = {
	"ALTER TABLE nodes ADD COLUMN clock_offset_ms BIGINT",
	NULL,
};

const struct migration migrations[] = {
	{ 1, v1_core },    { 2, v2_auth },     { 3, v3_records }, { 4, v4_live },
	{ 5, v5_files },   { 6, v6_history },  { 7, v7_pause },   { 8, v8_writes },
	{ 9, v9_trees },   { 10, v10_scopes }, { 11, v11_names }, { 12, v12_secrets },
	{ 13, v13_trust }, { 14, v14_clock },  { 0, NULL },
};

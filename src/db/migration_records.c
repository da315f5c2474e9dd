#include "db/migrate.h"

/*
 * Context records in full. What was there before gets what a new record would have got: companies a
 * prefix, issues a number in the order they were made. Statuses were free text and are now words of
 * a list.
 */
const char *const MIGRATION_RECORDS[] = {
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

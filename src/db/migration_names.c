#include "db/migrate.h"

/*
 * A name is one environment: of several of one name the oldest keeps it, the others get the end of
 * their id behind theirs. Runs are listed by what they belong to.
 */
const char *const MIGRATION_NAMES[] = {
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

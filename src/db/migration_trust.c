#include "db/migrate.h"

/*
 * Who wrote what decides where and how something runs (record/trust.h). Of what is older nobody
 * knows the writer, so it counts as a token's; but for the Local environments that nobody has
 * changed, which the server made itself.
 */
const char *const MIGRATION_TRUST[] = {
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

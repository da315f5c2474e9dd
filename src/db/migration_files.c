#include "db/migrate.h"

/*
 * Workspaces of runs. `workspace` is what was asked for, `workspace_report` what became of it; the
 * engine itself remembers in files. place_kept_until: the run has ended, but what it changed is
 * still in its place, so its lease is not ended before that time.
 */
const char *const MIGRATION_FILES[] = {
	"ALTER TABLE runs ADD COLUMN workspace TEXT",
	"ALTER TABLE runs ADD COLUMN workspace_report TEXT",
	"ALTER TABLE runs ADD COLUMN place_kept_until BIGINT",
	NULL,
};

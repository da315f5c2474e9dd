#include "db/migrate.h"

/*
 * Values that may be secrets are kept once, and not longer than they are needed. Places, intents
 * and leases had copies of their environment's env; runs have a mark that says whether they hold
 * some: 0 none, 1 in env or stdin, 2 deleted.
 */
const char *const MIGRATION_SECRETS[] = {
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

#include "db/migrate.h"

/* Permissions that a token is limited to, as a JSON array; NULL: it may what its owner may. */
const char *const MIGRATION_SCOPES[] = {
	"ALTER TABLE tokens ADD COLUMN permissions TEXT",
	NULL,
};

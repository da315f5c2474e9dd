#include "db/migrate.h"

/*
 * Places that are gone and may be forgotten, the oldest first: pruning looks at those that are old
 * and not at a million that are not. The condition is that of PRUNE_PLACES, word for word.
 */
const char *const MIGRATION_HISTORY[] = {
	"CREATE INDEX places_gone_idx ON places (updated_at, id)"
	" WHERE state = 'gone' AND (scope = '' OR environment_id IS NULL)",
	NULL,
};

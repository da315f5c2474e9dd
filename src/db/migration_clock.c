#include "db/migrate.h"

/* Civil time minus the time since boot, as a node's last server had it: see record/node.c. */
const char *const MIGRATION_CLOCK[] = {
	"ALTER TABLE nodes ADD COLUMN clock_offset_ms BIGINT",
	NULL,
};

#include "db/migrate.h"

/* Whether a lease is paused: 0 no, 1 it is being paused, 2 it is. See lease/pause.c. */
const char *const MIGRATION_PAUSE[] = {
	"ALTER TABLE leases ADD COLUMN paused BIGINT NOT NULL DEFAULT 0",
	NULL,
};

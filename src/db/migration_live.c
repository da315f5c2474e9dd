#include "db/migrate.h"

/*
 * Live events. Their numbers come from the counter that numbers the activity, so that both tables
 * together are one sequence in commit order; an entry of the activity is an event without being
 * written twice. event_floors remembers per company the highest number that pruning took from
 * either table: whoever asks for events after a smaller one is told that some are gone.
 */
const char *const MIGRATION_LIVE[] = {
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

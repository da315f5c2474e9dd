#include "db/migrate.h"

/*
 * Fewer trees for the writes of a lease: each of them is a page more to log and to sync.
 *
 * The activity lies under its number, which is unique anyway; nobody looks for an entry by its id,
 * nor for those of a run. Leases that expire are few and open, so they are found among the open
 * ones; an index by time was written at each renewal, too. The boundary of a place stands in its
 * metadata; its column stays for nodes of the version before, which write it.
 */
const char *const MIGRATION_TREES[] = {
	"CREATE TABLE activity_by_seq ("
	" seq BIGINT NOT NULL PRIMARY KEY,"
	" id TEXT NOT NULL,"
	" company_id TEXT NOT NULL REFERENCES companies (id),"
	" actor_type TEXT NOT NULL DEFAULT 'system',"
	" actor_id TEXT NOT NULL,"
	" action TEXT NOT NULL,"
	" entity_type TEXT NOT NULL,"
	" entity_id TEXT NOT NULL,"
	" agent_id TEXT,"
	" run_id TEXT,"
	" details TEXT,"
	" created_at BIGINT NOT NULL"
	") STRICT",
	"INSERT INTO activity_by_seq (seq, id, company_id, actor_type, actor_id, action,"
	" entity_type, entity_id, agent_id, run_id, details, created_at)"
	" SELECT seq, id, company_id, actor_type, actor_id, action,"
	" entity_type, entity_id, agent_id, run_id, details, created_at"
	" FROM activity ORDER BY seq",
	"DROP TABLE activity",
	"ALTER TABLE activity_by_seq RENAME TO activity",
	"CREATE INDEX activity_company_idx ON activity (company_id, seq)",
	"CREATE INDEX activity_entity_idx ON activity (entity_type, entity_id)",

	"DROP INDEX IF EXISTS leases_expiry_idx",
	NULL,
};

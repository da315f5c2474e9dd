#include "db/migrate.h"

/*
 * Fewer pages for the writes of a lease.
 *
 * Intents are there for milliseconds, so the table is small: what is asked of it beside its two
 * keys reads it whole, and the rows lie in the primary key itself.
 *
 * Leases: SQLite evaluates the condition of a partial index for the row before and after every
 * write, and builds a table for an IN of three words each time; comparisons cost nothing. Only the
 * leases that have a workspace are looked for by it.
 */
#define OPEN "(status = 'active' OR status = 'pending_cleanup' OR status = 'retained')"

const char *const MIGRATION_WRITES[] = {
	"CREATE TABLE intents_by_id ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" company_id TEXT NOT NULL REFERENCES companies (id),"
	" environment_id TEXT NOT NULL,"
	" kind TEXT NOT NULL,"
	" driver TEXT NOT NULL,"
	" provider TEXT NOT NULL,"
	" provider_ref TEXT NOT NULL UNIQUE,"
	" place_id TEXT,"
	" config TEXT NOT NULL,"
	" request TEXT NOT NULL,"
	" scope TEXT,"
	" fingerprint TEXT,"
	" node_id TEXT NOT NULL,"
	" boot_epoch BIGINT NOT NULL,"
	" state TEXT NOT NULL,"
	" reason TEXT,"
	" created_at BIGINT NOT NULL,"
	" updated_at BIGINT NOT NULL"
	") CLUSTERED",
	"INSERT INTO intents_by_id (id, company_id, environment_id, kind, driver, provider,"
	" provider_ref, place_id, config, request, scope, fingerprint, node_id, boot_epoch,"
	" state, reason, created_at, updated_at)"
	" SELECT id, company_id, environment_id, kind, driver, provider,"
	" provider_ref, place_id, config, request, scope, fingerprint, node_id, boot_epoch,"
	" state, reason, created_at, updated_at FROM intents",
	"DROP TABLE intents",
	"ALTER TABLE intents_by_id RENAME TO intents",

	"DROP INDEX leases_open_idx",
	"CREATE INDEX leases_open_idx ON leases (status, environment_id) WHERE " OPEN,
	"DROP INDEX leases_open_workspace_idx",
	"CREATE INDEX leases_open_workspace_idx ON leases (execution_workspace_id)"
	" WHERE execution_workspace_id IS NOT NULL AND " OPEN,
	NULL,
};

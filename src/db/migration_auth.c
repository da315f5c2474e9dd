#include "db/migrate.h"

/* Who may come in: people, what they and agents are in a company, and their tokens. */
const char *const MIGRATION_AUTH[] = {
	"CREATE TABLE users ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" name TEXT NOT NULL UNIQUE,"
	" disabled BIGINT NOT NULL DEFAULT 0,"
	" created_at BIGINT NOT NULL,"
	" updated_at BIGINT NOT NULL"
	") STRICT",

	"CREATE TABLE instance_user_roles ("
	" user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,"
	" role TEXT NOT NULL,"
	" created_at BIGINT NOT NULL,"
	" PRIMARY KEY (user_id, role)"
	") STRICT",

	/* A principal is a row of users or of agents, so neither can be referred to. */
	"CREATE TABLE company_memberships ("
	" company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,"
	" principal_type TEXT NOT NULL,"
	" principal_id TEXT NOT NULL,"
	" status TEXT NOT NULL,"
	" role TEXT NOT NULL,"
	" created_at BIGINT NOT NULL,"
	" updated_at BIGINT NOT NULL,"
	" PRIMARY KEY (company_id, principal_type, principal_id)"
	") STRICT",
	"CREATE INDEX company_memberships_principal_idx"
	" ON company_memberships (principal_type, principal_id)",

	"CREATE TABLE principal_permission_grants ("
	" company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,"
	" principal_type TEXT NOT NULL,"
	" principal_id TEXT NOT NULL,"
	" permission_key TEXT NOT NULL,"
	" granted_by TEXT NOT NULL,"
	" created_at BIGINT NOT NULL,"
	" PRIMARY KEY (company_id, principal_type, principal_id, permission_key)"
	") STRICT",

	/* Of a user or of an agent. What is kept is a hash: the text itself is shown once. */
	"CREATE TABLE tokens ("
	" id TEXT NOT NULL PRIMARY KEY,"
	" user_id TEXT REFERENCES users (id) ON DELETE CASCADE,"
	" agent_id TEXT REFERENCES agents (id) ON DELETE CASCADE,"
	" name TEXT NOT NULL,"
	" prefix TEXT NOT NULL,"
	" hash TEXT NOT NULL UNIQUE,"
	" expires_at BIGINT,"
	" revoked_at BIGINT,"
	" last_used_at BIGINT,"
	" created_at BIGINT NOT NULL,"
	" CHECK ((user_id IS NULL) <> (agent_id IS NULL))"
	") STRICT",
	"CREATE INDEX tokens_user_idx ON tokens (user_id, created_at) WHERE user_id IS NOT NULL",
	"CREATE INDEX tokens_agent_idx ON tokens (agent_id, created_at) WHERE agent_id IS NOT NULL",
	NULL,
};

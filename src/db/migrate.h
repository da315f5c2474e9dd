/*
 * Numbered migrations. The schema of a database is the highest version in schema_migrations;
 * opening brings it to the highest this program knows, each migration in one transaction of its
 * own, after a copy was made when there was something to lose. A database that is ahead is left
 * alone.
 */
#pragma once

#include <stdint.h>
#include "base/buf.h"
#include "base/error.h"

struct db;
struct db_options;

struct migration {
	int64_t version;               /* 1, 2, 3 ... */
	const char *const *statements; /* NULL-terminated */
};

/* All of them (migrations.c), in order; ends with version 0. */
extern const struct migration migrations[];

/* ERR_DB_SCHEMA when the database is newer than `known`, or holds tables that are not ours. */
int migrate(struct db *db, const struct migration *known, const struct db_options *options,
	    struct error *err);

/* Which words of the schema text are written differently. */
enum dialect { DIALECT_SQLITE, DIALECT_POSTGRES };

/* One statement of a migration in the words of an engine. Quoted text is left as it is. */
void ddl_render(struct buf *out, const char *text, enum dialect dialect);

#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "db/engine.h"

/*
 * Not registered: the probe differs per engine, and the others run before the table they name
 * exists everywhere.
 */
static const struct sql VERSION_READ = { "VERSION_READ",
					 "SELECT COALESCE(MAX(version), 0) FROM schema_migrations",
					 NULL };
static const struct sql VERSION_WRITE = {
	"VERSION_WRITE", "INSERT INTO schema_migrations (version, applied_at) VALUES ($1, $2)", NULL
};
static const char VERSION_TABLE[] = "CREATE TABLE schema_migrations ("
				    " version BIGINT NOT NULL PRIMARY KEY,"
				    " applied_at BIGINT NOT NULL"
				    ") STRICT";

static const struct {
	const char *word;
	const char *as[2]; /* by enum dialect */
} dialect_words[] = {
	{ "TEXT", { "TEXT", "TEXT COLLATE \"C\"" } },
	{ "BIGINT", { "INTEGER", "BIGINT" } },
	{ "STRICT", { "STRICT", "" } },
	{ "CLUSTERED", { "STRICT, WITHOUT ROWID", "" } },
	/* Of v12_secrets, the only one that looks into JSON. */
	{ "CONFIG_WITHOUT_ENV",
	  { "json_remove(config, '$.env')", "CAST(CAST(config AS jsonb) - 'env' AS TEXT)" } },
	{ "METADATA_WITHOUT_ENV",
	  { "json_remove(metadata, '$.env')", "CAST(CAST(metadata AS jsonb) - 'env' AS TEXT)" } },
	{ "CONFIG_ENV_ELSEWHERE",
	  { "json_set(json_remove(config, '$.env'), '$.envOfEnvironment', json('true'))",
	    "CAST((CAST(config AS jsonb) - 'env') || '{\"envOfEnvironment\": true}' AS TEXT)" } },
};

static bool is_word(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
	       c == '_';
}

static void render_word(struct buf *out, const char *word, size_t len, enum dialect dialect)
{
	for (size_t i = 0; i < ARRAY_SIZE(dialect_words); i++) {
		const char *from = dialect_words[i].word;
		if (strlen(from) == len && memcmp(from, word, len) == 0) {
			buf_puts(out, dialect_words[i].as[dialect]);
			return;
		}
	}
	buf_append(out, word, len);
}

void ddl_render(struct buf *out, const char *text, enum dialect dialect)
{
	char quote = 0;
	for (const char *p = text; *p;) {
		size_t len = 0;
		while (!quote && is_word(p[len]))
			len++;
		if (len > 0) {
			render_word(out, p, len, dialect);
			p += len;
			continue;
		}
		if (quote)
			quote = *p == quote ? 0 : quote;
		else if (*p == '\'' || *p == '"')
			quote = *p;
		buf_putc(out, *p++);
	}
}

struct schema {
	int64_t version;
	bool exists;
	int64_t foreign_tables;
};

static int read_number(struct tx *tx, const struct sql *sql, int64_t *first, int64_t *second,
		       struct error *err)
{
	_cleanup_cursor_ struct cursor c;
	if (tx_query(tx, &c, sql, err) < 0)
		return -1;
	int r = cursor_next(&c, err);
	if (r < 0)
		return -1;
	if (r == 0)
		return error_set(err, ERR_DB, "%s gave no row", sql->name);
	*first = col_int(&c, 0);
	if (second)
		*second = col_int(&c, 1);
	return 0;
}

static int read_schema(struct tx *tx, void *arg, struct error *err)
{
	struct schema *schema = arg;
	int64_t exists = 0;
	*schema = (struct schema){ 0 };
	if (read_number(tx, &tx->engine->schema_probe, &exists, &schema->foreign_tables, err) < 0)
		return -1;
	schema->exists = exists > 0;
	return schema->exists ? read_number(tx, &VERSION_READ, &schema->version, NULL, err) : 0;
}

static int run_statement(struct tx *tx, const char *text, struct error *err)
{
	_cleanup_buf_ struct buf ddl = { 0 };
	ddl_render(&ddl, text, tx->engine->dialect);
	return tx_exec_text(tx, buf_str(&ddl), err);
}

/*
 * Looks at the version again inside the transaction: another process may have opened the same
 * database at the same time and been first.
 */
static int apply(struct tx *tx, void *arg, struct error *err)
{
	const struct migration *migration = arg;
	struct schema schema;
	if (read_schema(tx, &schema, err) < 0)
		return -1;
	if (schema.version >= migration->version)
		return 0;

	if (!schema.exists && run_statement(tx, VERSION_TABLE, err) < 0)
		return -1;
	for (const char *const *s = migration->statements; *s; s++) {
		if (run_statement(tx, *s, err) < 0)
			return error_wrap(err, "migration %lld", (long long)migration->version);
	}
	struct clock clock;
	clock_init_system(&clock);
	return tx_exec(tx, &VERSION_WRITE, err, B_INT(migration->version),
		       B_INT(clock_now(&clock))) < 0
		       ? -1
		       : 0;
}

static int apply_all(struct db *db, const struct migration *known, int64_t from, struct error *err)
{
	for (const struct migration *m = known; m->version; m++) {
		if (m->version <= from)
			continue;
		/* The last one takes the others along; until then there is nothing to be kept. */
		enum db_promise promise = m[1].version ? DB_NO_FSYNC : DB_DURABLE;
		if (DB_WRITE_AS(db, promise, "migrate", apply, (void *)(uintptr_t)m, err) < 0)
			return -1;
		log_info("database schema is now at version %lld", (long long)m->version);
	}
	return 0;
}

/* <file>.v<old version>.<time>.bak, beside the database or in the directory asked for. */
static int copy_before(struct db *db, const struct db_options *options, int64_t version,
		       struct error *err)
{
	if (!options->path) {
		log_warn("migrating a PostgreSQL database from version %lld without a copy; "
			 "pg_dump makes one",
			 (long long)version);
		return 0;
	}
	struct clock clock;
	clock_init_system(&clock);
	time_t seconds = (time_t)(clock_now(&clock) / 1000);
	struct tm utc;
	char stamp[32];
	gmtime_r(&seconds, &utc);
	strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", &utc);

	const char *slash = strrchr(options->path, '/');
	const char *name = slash && options->backup_dir ? slash + 1 : options->path;
	_cleanup_free_ char *file = xasprintf("%s.v%lld.%s.bak", name, (long long)version, stamp);
	_cleanup_free_ char *path =
		options->backup_dir ? path_join(options->backup_dir, file) : steal(file);
	if (db_backup(db, path, err) < 0)
		return error_wrap(err, "the copy before migrating");
	log_info("kept a copy of the database of version %lld as %s", (long long)version, path);
	return 0;
}

int migrate(struct db *db, const struct migration *known, const struct db_options *options,
	    struct error *err)
{
	struct schema schema;
	if (db_read(db, read_schema, &schema, err) < 0)
		return -1;

	int64_t newest = 0;
	for (const struct migration *m = known; m->version; m++)
		newest = m->version;
	if (schema.version > newest)
		return error_set(err, ERR_DB_SCHEMA,
				 "the database has schema version %lld, this program knows up to "
				 "%lld: start the newer Berth, or restore a copy made before "
				 "it migrated",
				 (long long)schema.version, (long long)newest);
	if (!schema.exists && schema.foreign_tables > 0)
		return error_set(err, ERR_DB_SCHEMA,
				 "the database has %lld tables that are not Berth's; give Berth a "
				 "file of its own",
				 (long long)schema.foreign_tables);

	if (db->engine->adopt(db, err) < 0)
		return -1;
	if (schema.version == newest)
		return 0;
	if (schema.version > 0 && copy_before(db, options, schema.version, err) < 0)
		return -1;

	if (db->engine->lock_schema(db, err) < 0)
		return -1;
	int r = apply_all(db, known, schema.version, err);
	db->engine->unlock_schema(db);
	return r;
}

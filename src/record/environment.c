#include "record/environment.h"

#include "base/sha256.h"
#include "base/text.h"
#include "record/row.h"

#define AT(member) .offset = offsetof(struct environment, member)
const struct column ENVIRONMENT_COLUMNS[] = {
	{ "id", "id", COLUMN_ID, COLUMN_INSERT, AT(id) },
	{ "companyId", "company_id", COLUMN_ID, COLUMN_INSERT, AT(company_id) },
	{ "name", "name", COLUMN_TEXT, COLUMN_WRITE, AT(name) },
	{ "description", "description", COLUMN_TEXT, COLUMN_WRITE | COLUMN_NULLABLE,
	  AT(description) },
	{ "driver", "driver", COLUMN_WORD, COLUMN_WRITE, AT(driver), .words = driver_kind_names,
	  .summary = "How its places are reached" },
	{ "status", "status", COLUMN_WORD, COLUMN_WRITE, AT(status),
	  .words = environment_status_names },
	{ "config", "config", COLUMN_JSON, COLUMN_WRITE, AT(config),
	  .summary = "Settings of the driver; secrets are left out" },
	{ "metadata", "metadata", COLUMN_JSON, COLUMN_WRITE | COLUMN_NULLABLE, AT(metadata) },
	{ "configRedacted", NULL, COLUMN_BOOL, COLUMN_VIEW,
	  .summary = "The config is not for the reader" },
	{ "metadataRedacted", NULL, COLUMN_BOOL, COLUMN_VIEW,
	  .summary = "The metadata is not for the reader" },
	COLUMN_TIMES(struct environment),
	COLUMN_TRUST(struct environment),
	{ 0 },
};
static const struct row_kind ENVIRONMENT = { "Environment", sizeof(struct environment),
					     ENVIRONMENT_COLUMNS };

SQL_OF(ENVIRONMENT_GET, ENVIRONMENT_COLUMNS, "SELECT {*} FROM environments WHERE id = $1");
SQL_OF(ENVIRONMENT_GET_LOCAL, ENVIRONMENT_COLUMNS,
       "SELECT {*} FROM environments WHERE company_id = $1 AND driver = 'local'");
SQL_OF(ENVIRONMENT_FIND, ENVIRONMENT_COLUMNS,
       "SELECT {*} FROM environments WHERE company_id = $1 AND (id = $2 OR name = $2)"
       " ORDER BY CASE WHEN id = $2 THEN 0 ELSE 1 END LIMIT 1");
SQL_OF(ENVIRONMENT_LIST, ENVIRONMENT_COLUMNS,
       "SELECT {*} FROM environments WHERE company_id = $1"
       " AND (CAST($2 AS TEXT) IS NULL OR status = $2)"
       " AND (CAST($3 AS TEXT) IS NULL OR driver = $3)"
       " ORDER BY updated_at DESC, created_at DESC, id LIMIT 1000");
/* The column `trust` of what the server itself makes; the migration writes it for older rows. */
#define WRITTEN_BY_SERVER "{\"config\":\"local\",\"driver\":\"local\",\"name\":\"local\"}"

SQL(ENVIRONMENT_ENSURE_LOCAL,
    "INSERT INTO environments (id, company_id, name, description, driver, status, config,"
    " metadata, created_at, updated_at, trust)"
    " VALUES ($1, $2, 'Local', $3, 'local', 'active', '{}', $4, $5, $5, $6)"
    " ON CONFLICT (company_id, driver) WHERE driver = 'local' DO NOTHING");
SQL(ENVIRONMENT_ENSURE_SANDBOX,
    "INSERT INTO environments (id, company_id, name, description, driver, status, config,"
    " metadata, created_at, updated_at, trust)"
    " VALUES ($1, $2, '" SANDBOX_NAME "', $3, 'sandbox', 'active', $4, NULL, $5, $5, $6)"
    " ON CONFLICT (id) DO NOTHING");

void environment_clear(struct environment *environment)
{
	row_clear(&ENVIRONMENT, environment);
}

json_t *environment_json(const struct environment *environment)
{
	return row_json(&ENVIRONMENT, environment);
}

char *environment_text(struct db *db, const char *id, struct error *err)
{
	return row_text(db, &ENVIRONMENT, &ENVIRONMENT_GET, err, B_TEXT(id));
}

void environment_copy(struct environment *to, const struct environment *from)
{
	row_copy(&ENVIRONMENT, to, from);
}

int64_t environment_max_leases(const struct environment *environment)
{
	return json_int(environment->metadata, "maxLeases", 0);
}

int environment_get(struct db *db, const char *id, struct environment *out, struct error *err)
{
	return row_get(db, &ENVIRONMENT, &ENVIRONMENT_GET, out, err, B_TEXT(id));
}

int environment_get_tx(struct tx *tx, const char *id, struct environment *out, struct error *err)
{
	return row_get_tx(tx, &ENVIRONMENT, &ENVIRONMENT_GET, out, err, B_TEXT(id));
}

json_t *environment_list(struct db *db, const char *company_id, const char *status,
			 const char *driver, struct error *err)
{
	return row_list(db, &ENVIRONMENT, &ENVIRONMENT_LIST, err, B_TEXT(company_id),
			B_TEXT(status), B_TEXT(driver));
}

struct environment_search {
	const char *company_id, *name_or_id;
	struct environment found;
};

/* An id wins over names (somebody may have called an environment by another's id) and comes first.
 */
static int search_environment(struct tx *tx, void *arg, struct error *err)
{
	struct environment_search *search = arg;
	_cleanup_cursor_ struct cursor c = { 0 };

	environment_clear(&search->found);
	if (tx_query(tx, &c, &ENVIRONMENT_FIND, err, B_TEXT(search->company_id),
		     B_TEXT(search->name_or_id)) < 0)
		return -1;

	int r = cursor_next(&c, err);

	if (r < 0)
		return -1;
	if (r == 0)
		return error_set(err, ERR_NOT_FOUND, "Environment not found");
	return row_read(&ENVIRONMENT, &c, &search->found, err);
}

int environment_find(struct db *db, const char *company_id, const char *name_or_id,
		     struct environment *out, struct error *err)
{
	struct environment_search search = { .company_id = company_id, .name_or_id = name_or_id };

	if (db_read(db, search_environment, &search, err) < 0) {
		environment_clear(&search.found);
		return -1;
	}
	*out = search.found;
	return 0;
}

int environment_ensure_local_tx(struct tx *tx, int64_t now, const char *company_id,
				struct error *err)
{
	_cleanup_json_ json_t *metadata = json_object();
	_cleanup_free_ char *text = NULL;
	char id[ID_SIZE];

	id_new(id);
	json_put_bool(metadata, "managedByPaperclip", true);
	json_put_bool(metadata, "defaultForCompany", true);
	text = json_text(metadata);
	return tx_exec(tx, &ENVIRONMENT_ENSURE_LOCAL, err, B_TEXT(id), B_TEXT(company_id),
		       B_TEXT("Runs on the machine the server runs on."), B_TEXT(text), B_INT(now),
		       B_TEXT(WRITTEN_BY_SERVER)) < 0
		       ? -1
		       : 0;
}

struct local_ensure {
	const char *company_id;
	int64_t now;
};

static int ensure_local(struct tx *tx, void *arg, struct error *err)
{
	const struct local_ensure *ensure = arg;

	if (company_exists_tx(tx, ensure->company_id, err) < 0)
		return -1;
	return environment_ensure_local_tx(tx, ensure->now, ensure->company_id, err);
}

int environment_ensure_local(struct db *db, struct clock *clock, const char *company_id,
			     struct environment *out, struct error *err)
{
	struct local_ensure ensure = { company_id, clock_now(clock) };
	_cleanup_error_ struct error missing = { 0 };

	/* Every run asks and nearly every time it is there: only its absence is worth a write. */
	if (row_get(db, &ENVIRONMENT, &ENVIRONMENT_GET_LOCAL, out, &missing, B_TEXT(company_id)) ==
	    0)
		return 0;
	if (missing.code != ERR_NOT_FOUND) {
		error_move(err, &missing);
		return -1;
	}
	if (DB_WRITE(db, "environment.ensure_local", ensure_local, &ensure, err) < 0)
		return -1;
	return row_get(db, &ENVIRONMENT, &ENVIRONMENT_GET_LOCAL, out, err, B_TEXT(company_id));
}

void environment_sandbox_id(const char *company_id, char out[ID_SIZE])
{
	_cleanup_free_ char *text = xasprintf("sandbox of company %s", company_id);
	char hash[SHA256_HEX_SIZE];

	sha256_hex(text, strlen(text), hash);
	snprintf(out, ID_SIZE, "%.8s-%.4s-8%.3s-8%.3s-%.12s", hash, hash + 8, hash + 13, hash + 17,
		 hash + 20);
}

int environment_ensure_sandbox_tx(struct tx *tx, int64_t now, const char *company_id,
				  const json_t *config, struct error *err)
{
	_cleanup_free_ char *text = json_text(config);
	char id[ID_SIZE];

	environment_sandbox_id(company_id, id);
	return tx_exec(tx, &ENVIRONMENT_ENSURE_SANDBOX, err, B_TEXT(id), B_TEXT(company_id),
		       B_TEXT(SANDBOX_DESCRIPTION), B_TEXT(text), B_INT(now),
		       B_TEXT(WRITTEN_BY_SERVER)) < 0
		       ? -1
		       : 0;
}

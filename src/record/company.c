#include "record/record.h"

#include "record/activity.h"
#include "record/environment.h"
#include "record/row.h"

#define COMPANY_NAME_MAX 100
#define COMPANY_COLUMNS "id, name, created_at, updated_at"

SQL(COMPANY_GET, "SELECT " COMPANY_COLUMNS " FROM companies WHERE id = $1");
SQL(COMPANY_GET_BY_NAME, "SELECT " COMPANY_COLUMNS " FROM companies WHERE name = $1");
SQL(COMPANY_LIST, "SELECT " COMPANY_COLUMNS " FROM companies ORDER BY created_at, id LIMIT 1000");
SQL(COMPANY_EXISTS, "SELECT 1 FROM companies WHERE id = $1");
SQL(COMPANY_INSERT, "INSERT INTO companies (id, name, created_at, updated_at)"
		    " VALUES ($1, $2, $3, $3) ON CONFLICT (name) DO NOTHING");

const struct actor ACTOR_SYSTEM = { .type = "system", .id = "system" };

void company_clear(struct company *company)
{
	free(company->name);
	*company = (struct company){ 0 };
}

json_t *company_json(const struct company *company)
{
	json_t *o = json_object();

	json_put_str(o, "id", company->id);
	json_put_str(o, "name", company->name);
	json_put_time(o, "createdAt", company->created_at);
	json_put_time(o, "updatedAt", company->updated_at);
	return o;
}

static int company_read(struct cursor *c, struct company *out, struct error *err)
{
	(void)err;
	*out = (struct company){
		.name = xstrdup(col_text(c, 1)),
		.created_at = col_int(c, 2),
		.updated_at = col_int(c, 3),
	};
	id_copy(out->id, col_text(c, 0));
	return 0;
}

ROW_KIND(COMPANY, company, "Company");

int company_get(struct db *db, const char *id, struct company *out, struct error *err)
{
	return row_get(db, &COMPANY, &COMPANY_GET, out, err, B_TEXT(id));
}

int company_get_by_name(struct db *db, const char *name, struct company *out, struct error *err)
{
	return row_get(db, &COMPANY, &COMPANY_GET_BY_NAME, out, err, B_TEXT(name));
}

json_t *company_list(struct db *db, struct error *err)
{
	return row_list(db, &COMPANY, &COMPANY_LIST, err);
}

int company_exists_tx(struct tx *tx, const char *id, struct error *err)
{
	int r = row_exists_tx(tx, &COMPANY_EXISTS, err, B_TEXT(id));

	if (r == 0)
		return error_set(err, ERR_NOT_FOUND, "Company not found");
	return r < 0 ? -1 : 0;
}

struct company_creation {
	const struct actor *actor;
	const struct company *row;
};

static int insert_company(struct tx *tx, void *arg, struct error *err)
{
	const struct company_creation *creation = arg;
	const struct company *row = creation->row;
	_cleanup_json_ json_t *details = json_object();
	int64_t n = tx_exec(tx, &COMPANY_INSERT, err, B_TEXT(row->id), B_TEXT(row->name),
			    B_INT(row->created_at));

	if (n < 0)
		return -1;
	if (n == 0)
		return error_set(err, ERR_CONFLICT, "A company named \"%s\" exists already",
				 row->name);
	if (environment_ensure_local_tx(tx, row->created_at, row->id, err) < 0)
		return -1;
	json_put_str(details, "name", row->name);
	return activity_write_tx(tx, row->created_at,
				 &(struct activity){ .company_id = row->id,
						     .actor = creation->actor,
						     .action = "company.created",
						     .entity_type = "company",
						     .entity_id = row->id,
						     .details = details },
				 err);
}

int company_create(struct db *db, struct clock *clock, const struct actor *actor, const char *name,
		   struct company *out, struct error *err)
{
	_cleanup_(company_clear) struct company row = { 0 };
	struct company_creation creation = { actor, &row };

	row.name = name_trimmed("A company's name", name, COMPANY_NAME_MAX, err);
	if (!row.name)
		return -1;
	id_new(row.id);
	row.created_at = row.updated_at = clock_now(clock);
	if (DB_WRITE(db, "company.create", insert_company, &creation, err) < 0)
		return -1;
	hand_over(out, row);
	return 0;
}

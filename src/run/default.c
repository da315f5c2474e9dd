#include "run/default.h"

#include "base/text.h"

#define LOCAL_NAME "Local"

/* 1 found, 0 there is none, -1. */
static int found(int r, struct error *why, struct error *err)
{
	if (r == 0)
		return 1;
	if (why->code == ERR_NOT_FOUND)
		return 0;
	error_move(err, why);
	return -1;
}

static int by_id(struct db *db, const char *id, struct environment *out, struct error *err)
{
	_cleanup_error_ struct error why = { 0 };

	return found(environment_get(db, id, out, &why), &why, err);
}

static int by_name(struct db *db, const char *company_id, const char *name, struct environment *out,
		   struct error *err)
{
	_cleanup_error_ struct error why = { 0 };

	return found(environment_find(db, company_id, name, out, &why), &why, err);
}

struct ensuring {
	const char *company_id;
	const json_t *config;
	int64_t now;
};

static int ensure_sandbox(struct tx *tx, void *arg, struct error *err)
{
	const struct ensuring *ensuring = arg;

	return environment_ensure_sandbox_tx(tx, ensuring->now, ensuring->company_id,
					     ensuring->config, err);
}

/* By its id first: a name can be given to another one. Older companies, and those where it was
 * deleted, get it again. */
static int find_sandbox(struct db *db, struct clock *clock, const struct default_place *place,
			const char *company_id, struct environment *out, struct error *err)
{
	struct ensuring ensuring = { company_id, place->sandbox, clock_now(clock) };
	char id[ID_SIZE];
	int r;

	environment_sandbox_id(company_id, id);
	r = by_id(db, id, out, err);
	if (r == 0)
		r = by_name(db, company_id, SANDBOX_NAME, out, err);
	if (r != 0 || !place->sandbox)
		return r;
	if (DB_WRITE(db, "environment.ensure_sandbox", ensure_sandbox, &ensuring, err) < 0)
		return -1;
	return by_id(db, id, out, err);
}

int default_environment(struct db *db, struct clock *clock, const struct default_place *place,
			const char *company_id, struct environment *out, struct error *err)
{
	const char *name = place->name ? place->name : SANDBOX_NAME;
	int r = streq(name, SANDBOX_NAME) ? find_sandbox(db, clock, place, company_id, out, err)
					  : by_name(db, company_id, name, out, err);

	if (r == 0 && streq(name, LOCAL_NAME))
		return environment_ensure_local(db, clock, company_id, out, err);
	if (r != 0)
		return r < 0 ? -1 : 0;
	return error_set(
		err, ERR_ENV_NOT_FOUND,
		"this company has no environment \"%.200s\", which is the server's default: "
		"make it, or name another one",
		name);
}

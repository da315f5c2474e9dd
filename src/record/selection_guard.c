#include "record/selection.h"

#include <string.h>
#include "base/text.h"
#include "record/row.h"
#include "record/trust.h"

/*
 * What may be chosen where (spec 01 F.6). The row is looked at as text: a driver this program does
 * not know is refused like one that is not allowed.
 */

SQL(SELECTION_GUARD, "SELECT status, driver, config FROM environments"
		     " WHERE id = $1 AND company_id = $2");
SQL(SELECTION_IS_LOCAL, "SELECT 1 FROM environments WHERE id = $1 AND driver = 'local'");

unsigned drivers_for_adapter(const struct writer *writer, const char *adapter_type)
{
	unsigned allowed = 0;

	for (enum driver_kind kind = 0; kind < DRIVER_KIND_COUNT; kind++) {
		if (!writer->adapter_allows || writer->adapter_allows(adapter_type, kind))
			allowed |= 1u << kind;
	}
	return allowed & DRIVERS_FOR_WORK;
}

static int refuse_driver(const char *driver, unsigned allowed, struct error *err)
{
	_cleanup_buf_ struct buf list = { 0 };

	for (enum driver_kind kind = 0; kind < DRIVER_KIND_COUNT; kind++) {
		if (allowed & 1u << kind)
			buf_printf(&list, "%s%s", list.len ? ", " : "", driver_kind_name(kind));
	}
	return error_set(err, ERR_UNPROCESSABLE,
			 "Environment driver \"%.100s\" is not allowed here. Allowed: %s.", driver,
			 buf_str(&list));
}

static int check_provider(struct cursor *c, const struct writer *writer, struct error *err)
{
	_cleanup_json_ json_t *config = NULL;
	const char *provider;

	if (col_json(c, 2, "environment config", &config, err) < 0)
		return -1;
	provider = json_str(config, "provider");
	if (writer->refuse_fake && (!provider || streq(provider, "fake")))
		return error_set(err, ERR_UNPROCESSABLE,
				 "Environment sandbox provider \"fake\" is not allowed here.");
	return 0;
}

int selection_guard_tx(struct tx *tx, const struct writer *writer, const char *company_id,
		       const char *environment_id, unsigned allowed, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	enum driver_kind driver;
	int r;

	if (!id_is_set(environment_id))
		return 0;
	if (tx_query(tx, &c, &SELECTION_GUARD, err, B_TEXT(environment_id), B_TEXT(company_id)) < 0)
		return -1;
	r = cursor_next(&c, err);
	if (r < 0)
		return -1;
	if (r == 0)
		return error_set(err, ERR_UNPROCESSABLE, "Environment not found.");
	if (streq(col_text(&c, 0), environment_status_name(ENVIRONMENT_ARCHIVED)))
		return error_set(
			err, ERR_UNPROCESSABLE,
			"Environment is archived: make it active again or choose another.");
	if (!driver_kind_parse(col_text(&c, 1), &driver) || !(allowed & 1u << driver))
		return refuse_driver(col_text(&c, 1), allowed, err);
	if (writer->usable && !(writer->usable & 1u << driver))
		return error_set(err, ERR_UNPROCESSABLE,
				 "Environment driver \"%s\" cannot be used by this server: choose "
				 "another environment.",
				 driver_kind_name(driver));
	return driver == DRIVER_SANDBOX ? check_provider(&c, writer, err) : 0;
}

int selection_host_tx(struct tx *tx, const struct writer *writer, const char *former,
		      const char *chosen, const char *path, struct error *err)
{
	int local;

	if (actor_trust(writer->actor) == TRUST_LOCAL || !id_is_set(chosen) ||
	    str_equal(former, chosen))
		return 0;
	local = row_exists_tx(tx, &SELECTION_IS_LOCAL, err, B_TEXT(chosen));
	if (local <= 0)
		return local;
	refuse_local(err);
	return error_wrap(err, "%s", path);
}

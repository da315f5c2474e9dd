#include "server/config_environments.h"

#include <errno.h>
#include <fcntl.h>
#include "base/fd.h"
#include "base/sha256.h"
#include "base/log.h"
#include "base/text.h"

#define MANAGED_BY "config-file"
#define DEFAULT_COMPANY "default"

struct declaration {
	struct server *server;
	const json_t *item;
	char company_id[ID_SIZE], id[ID_SIZE];
	struct environment wanted; /* borrows from item, config and metadata */
	json_t *config, *metadata;
};

static void declaration_clear(struct declaration *d)
{
	json_decref(d->config);
	json_decref(d->metadata);
}

static const char *company_name(const json_t *item)
{
	const char *name = json_str(item, "company");

	return name ? name : DEFAULT_COMPANY;
}

static int make_default_company(struct server *server, struct company *out, struct error *err)
{
	struct writer writer = { .db = server->db,
				 .clock = &server->clock,
				 .actor = &ACTOR_SYSTEM,
				 .sandbox = server->sandbox };

	return company_create(&writer, DEFAULT_COMPANY, NULL, out, err);
}

int default_company_ensure(struct server *server, struct error *err)
{
	_cleanup_json_ json_t *companies = company_list(server->db, err);
	_cleanup_(company_clear) struct company made = { 0 };
	_cleanup_error_ struct error why = { 0 };

	if (!companies)
		return -1;
	if (json_array_size(companies) || make_default_company(server, &made, &why) == 0 ||
	    why.code == ERR_CONFLICT)
		return 0;
	error_move(err, &why);
	return error_wrap(err, "making the first company");
}

/* A company that is not there is somebody's typing error, but for the one every server begins
 * with. */
static int find_company(struct server *server, const char *name, char id[ID_SIZE],
			struct error *err)
{
	_cleanup_(company_clear) struct company company = { 0 };
	_cleanup_error_ struct error why = { 0 };
	int r = id_is_valid(name) ? company_get(server->db, name, &company, &why)
				  : company_get_by_name(server->db, name, &company, &why);

	if (r < 0 && why.code == ERR_NOT_FOUND && streq(name, DEFAULT_COMPANY)) {
		error_clear(&why);
		r = make_default_company(server, &company, &why);
	}
	if (r < 0) {
		error_move(err, &why);
		return -1;
	}
	id_copy(id, company.id);
	return 0;
}

/* A UUID of the name-based kind over company and name. */
static void derive_id(const char *company_id, const char *name, char id[ID_SIZE])
{
	_cleanup_free_ char *text = xasprintf("berth environment %s/%s", company_id, name);
	char hex[SHA256_HEX_SIZE];

	sha256_hex(text, strlen(text), hex);
	/* Version 8 (one's own way of making it), variant 10. */
	hex[12] = '8';
	hex[16] = "89ab"[hex[16] & 3];
	snprintf(id, ID_SIZE, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
		 hex + 20);
}

/* The file may describe the company's own Sandbox, unless an earlier file made another. */
static void choose_id(struct declaration *d)
{
	_cleanup_environment_ struct environment made = { 0 };
	const char *name = json_str(d->item, "name");

	derive_id(d->company_id, name, d->id);
	if (streq(name, SANDBOX_NAME) && environment_get(d->server->db, d->id, &made, NULL) < 0)
		environment_sandbox_id(d->company_id, d->id);
}

static int read_declaration(struct declaration *d, struct error *err)
{
	const json_t *item = d->item, *metadata = json_object_at(item, "metadata");
	_cleanup_json_ json_t *empty = json_object();
	const json_t *config = json_object_at(item, "config");
	const char *status = json_str(item, "status");

	if (find_company(d->server, company_name(item), d->company_id, err) < 0)
		return -1;
	choose_id(d);
	d->metadata = metadata ? json_deep_copy(metadata) : json_object();
	json_put_str(d->metadata, "managedBy", MANAGED_BY);
	d->wanted = (struct environment){
		.name = (char *)json_str(item, "name"),
		.description = (char *)json_str(item, "description"),
		.metadata = d->metadata,
	};
	driver_kind_parse(json_str(item, "driver"), &d->wanted.driver);
	if (status)
		environment_status_parse(status, &d->wanted.status);
	d->config = maker_normalize(&d->server->makers, d->wanted.driver, config ? config : empty,
				    true, err);
	if (!d->config)
		return -1;
	d->wanted.config = d->config;
	id_copy(d->wanted.id, d->id);
	id_copy(d->wanted.company_id, d->company_id);
	return 0;
}

/* Whether somebody else has an environment of that name there. */
static int check_name(const struct declaration *d, struct error *err)
{
	_cleanup_json_ json_t *list =
		environment_list(d->server->db, d->company_id, NULL, NULL, err);
	size_t i;
	json_t *item;

	if (!list)
		return -1;
	json_array_foreach (list, i, item)
		if (str_equal(json_str(item, "name"), d->wanted.name) &&
		    !str_equal(json_str(item, "id"), d->id))
			return error_set(err, ERR_CONFLICT,
					 "there is one of that name (%s) that the config file did "
					 "not make; rename one of the two",
					 json_str(item, "id"));
	return 0;
}

static bool is_as_wanted(const struct declaration *d, const struct environment *now)
{
	return streq(now->name, d->wanted.name) &&
	       str_equal(now->description, d->wanted.description) &&
	       now->driver == d->wanted.driver && now->status == d->wanted.status &&
	       json_equal(now->config, d->config) && json_equal(now->metadata, d->metadata);
}

static int change(const struct declaration *d, struct error *err)
{
	_cleanup_environment_ struct environment changed = { 0 };
	_cleanup_json_ json_t *description =
		d->wanted.description ? json_string(d->wanted.description) : json_null();
	struct environment_patch patch = {
		.name = d->wanted.name,
		.description = description,
		.driver = &d->wanted.driver,
		.status = &d->wanted.status,
		.config = d->config,
		.metadata = d->metadata,
	};

	return environment_update(d->server->db, &d->server->clock, &ACTOR_SYSTEM, d->id, &patch,
				  &changed, err);
}

static int ensure(struct declaration *d, struct error *err)
{
	_cleanup_environment_ struct environment now = { 0 }, made = { 0 };
	_cleanup_error_ struct error why = { 0 };

	if (read_declaration(d, err) < 0)
		return -1;
	if (environment_get(d->server->db, d->id, &now, &why) == 0)
		return is_as_wanted(d, &now) ? 0 : change(d, err);
	if (why.code != ERR_NOT_FOUND) {
		error_move(err, &why);
		return -1;
	}
	if (check_name(d, err) < 0)
		return -1;
	if (environment_create(d->server->db, &d->server->clock, &ACTOR_SYSTEM, &d->wanted, &made,
			       err) == 0)
		return 0;
	/* Another node with the same file may have been quicker. */
	return environment_get(d->server->db, d->id, &now, NULL);
}

static bool is_wanted(const json_t *ids, const char *id)
{
	return json_object_get(ids, id) != NULL;
}

/* What an earlier file wanted in the companies of this one. */
static void note_left_over(struct server *server, const char *company_id, const json_t *ids,
			   json_t *said)
{
	_cleanup_json_ json_t *list = environment_list(server->db, company_id, NULL, NULL, NULL);
	size_t i;
	json_t *item;

	json_array_foreach (list, i, item) {
		const char *by = json_str(json_object_at(item, "metadata"), "managedBy");

		if (str_equal(by, MANAGED_BY) && !is_wanted(ids, json_str(item, "id")))
			json_array_append_new(
				said, json_sprintf("environment %s (%s) is no longer in the config "
						   "file; it stays until you delete it",
						   json_str(item, "name"), json_str(item, "id")));
	}
}

json_t *environments_ensure(struct server *server, const json_t *wanted)
{
	json_t *said = json_array(), *item;
	_cleanup_json_ json_t *ids = json_object(), *companies = json_object();
	const char *company;
	size_t i;

	json_array_foreach (wanted, i, item) {
		_cleanup_(declaration_clear) struct declaration d = { .server = server,
								      .item = item };
		_cleanup_error_ struct error err = { 0 };

		if (ensure(&d, &err) < 0)
			json_array_append_new(said,
					      json_sprintf("environment %s of the config file: %s",
							   json_str(item, "name"), err.message));
		if (id_is_set(d.id))
			json_put_bool(ids, d.id, true);
		if (id_is_set(d.company_id))
			json_put_bool(companies, d.company_id, true);
	}
	json_object_foreach (companies, company, item)
		note_left_over(server, company, ids, said);
	json_array_foreach (said, i, item)
		log_warn("%s", json_string_value(item));
	return said;
}

/* Makers open their directories with the first use, which is none here. */
int environment_declared_check(const json_t *item, bool allow_fake, struct error *err)
{
	struct maker_host host = { .allow_fake = allow_fake };
	_cleanup_json_ json_t *empty = json_object(), *taken = NULL;
	const json_t *config = json_object_at(item, "config");
	enum driver_kind driver;
	struct makers makers;

	if (!driver_kind_parse(json_str(item, "driver"), &driver))
		return error_set(err, ERR_VALIDATION, "unknown driver");
	makers_init(&makers, &host);
	taken = maker_normalize(&makers, driver, config ? config : empty, true, err);
	makers_clear(&makers);
	return taken ? 0 : -1;
}

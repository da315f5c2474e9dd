#include "api/answer.h"

#include "driver/config.h"
#include "run/adapter.h"

/*
 * What can be configured and chosen (spec 01 F.5), for pages that offer it: drivers and providers
 * with the schema of their configs, adapters with where they can run.
 */

static const char *supported(bool yes)
{
	return yes ? "supported" : "unsupported";
}

/* Environments of the other drivers can be stored, and are not offered. */
static json_t *drivers_json(unsigned usable)
{
	json_t *out = json_object();

	for (enum driver_kind kind = 0; kind < DRIVER_KIND_COUNT; kind++)
		json_put_str(out, driver_kind_name(kind), supported(usable & 1u << kind));
	return out;
}

static json_t *driver_schemas(const struct drivers *drivers)
{
	json_t *out = json_object();

	for (size_t i = 0; drivers->table[i]; i++) {
		const struct driver *driver = drivers->table[i];

		if (driver->config)
			json_put_new(out, driver_kind_name(driver->kind),
				     config_schema_json(driver->config));
	}
	return out;
}

/* The fake provider is for trying things out, unless the server was started to use it. */
static json_t *provider_json(const struct provider *provider, bool allow_fake)
{
	bool usable = provider != &PROVIDER_FAKE || allow_fake;
	json_t *out = json_object();

	json_put_str(out, "status", supported(usable));
	json_put_bool(out, "supportsSavedProbe", true);
	json_put_bool(out, "supportsUnsavedProbe", true);
	json_put_bool(out, "supportsRunExecution", usable);
	json_put_bool(out, "supportsReusableLeases", provider->supports_reuse);
	json_put_str(out, "displayName", provider->display_name);
	json_put_str(out, "source", "builtin");
	if (provider->config)
		json_put_new(out, "configSchema", config_schema_json(provider->config));
	return out;
}

static json_t *providers_json(bool allow_fake)
{
	const struct provider *const *list = provider_list();
	json_t *out = json_object();

	for (size_t i = 0; list[i]; i++)
		json_put_new(out, list[i]->key, provider_json(list[i], allow_fake));
	return out;
}

static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };
	unsigned usable = drivers_usable(&server->drivers);
	json_t *out;

	if (company_of_path(server, request, &company, err) < 0)
		return -1;
	out = json_object();
	json_put_new(out, "adapters", adapter_capabilities(usable));
	json_put_new(out, "drivers", drivers_json(usable));
	json_put_new(out, "driverConfigSchemas", driver_schemas(&server->drivers));
	json_put_new(out, "sandboxProviders", providers_json(server->options.allow_fake));
	return answer(response, 200, out);
}

ROUTES(CAPABILITY_ROUTES, 50) = {
	{ HTTP_GET, "/api/companies/:cid/environments/capabilities", .access = ACCESS_READ,
	  .subject = SUBJECT_COMPANY, .run = show, .answer = "Capabilities",
	  .summary = "What environments can be made of, and which adapter can use which" },
	{ 0 },
};

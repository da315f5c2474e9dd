#include "api/answer.h"

#include "driver/config.h"
#include "adapter/adapter.h"

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

static json_t *driver_schemas(const struct makers *makers)
{
	json_t *out = json_object();

	for (enum driver_kind kind = 0; kind < DRIVER_KIND_COUNT; kind++) {
		const struct config_schema *schema = driver_config_schema(makers, kind);

		if (schema)
			json_put_new(out, driver_kind_name(kind), config_schema_json(schema));
	}
	return out;
}

/* One for tests is only for probes, unless the server was started to use it. */
static json_t *provider_json(const struct maker *maker)
{
	bool usable = !maker->traits.for_tests || maker->host->allow_fake;
	json_t *out = json_object();

	json_put_str(out, "status", supported(usable));
	json_put_bool(out, "supportsSavedProbe", true);
	json_put_bool(out, "supportsUnsavedProbe", true);
	json_put_bool(out, "supportsRunExecution", usable);
	json_put_bool(out, "supportsReusableLeases", maker->traits.reusable);
	json_put_str(out, "displayName", maker->display_name);
	json_put_str(out, "source", "builtin");
	if (maker->config)
		json_put_new(out, "configSchema", config_schema_json(maker->config));
	return out;
}

static json_t *providers_json(const struct makers *makers)
{
	json_t *out = json_object();

	for (size_t i = 0; i < makers->count; i++)
		if (makers->items[i]->driver == DRIVER_SANDBOX)
			json_put_new(out, makers->items[i]->key, provider_json(makers->items[i]));
	return out;
}

static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };
	unsigned usable = makers_usable(&server->makers);
	json_t *out;

	if (company_of_path(server, request, &company, err) < 0)
		return -1;
	out = json_object();
	json_put_new(out, "adapters", adapter_capabilities(&server->makers));
	json_put_new(out, "drivers", drivers_json(usable));
	json_put_new(out, "driverConfigSchemas", driver_schemas(&server->makers));
	json_put_new(out, "sandboxProviders", providers_json(&server->makers));
	return answer(response, 200, out);
}

ROUTES(CAPABILITY_ROUTES, 50) = {
	{ HTTP_GET, "/api/companies/:cid/environments/capabilities", .access = ACCESS_READ,
	  .subject = SUBJECT_COMPANY, .run = show, .answer = "Capabilities",
	  .summary = "What environments can be made of, and which adapter can use which" },
	{ 0 },
};

#include "adapter/adapter.h"

#include "base/text.h"
#include "driver/maker.h"

/* Not weak: without an adapter there would be nothing to start. */
extern const struct adapter *const __start_berth_adapters[];
extern const struct adapter *const __stop_berth_adapters[];

/* The linker has them in any order. There are about ten, so this looks at all of them. */
const struct adapter *adapter_after(const struct adapter *before)
{
	const struct adapter *next = NULL;

	for (const struct adapter *const *a = __start_berth_adapters; a < __stop_berth_adapters;
	     a++) {
		if ((!before || (*a)->order > before->order) &&
		    (!next || (*a)->order < next->order))
			next = *a;
	}
	return next;
}

const struct adapter *adapter_find(const char *type)
{
	for (const struct adapter *a = type ? adapter_after(NULL) : NULL; a; a = adapter_after(a)) {
		if (streq(a->type, type))
			return a;
	}
	return NULL;
}

/*
 * Besides the remote-managed ones `process` runs in a sandbox, since Berth starts its command there
 * itself. Driver `plugin` can be stored and is offered to nobody.
 */
bool adapter_allows(const char *type, enum driver_kind driver)
{
	const struct adapter *adapter = adapter_find(type);

	switch (driver) {
	case DRIVER_LOCAL:
		return true;
	case DRIVER_SSH:
		return adapter && adapter->remote_managed;
	case DRIVER_SANDBOX:
		return adapter && adapter->config;
	default:
		return false;
	}
}

static const char *status(bool supported)
{
	return supported ? "supported" : "unsupported";
}

static json_t *drivers_json(const struct adapter *adapter, unsigned usable)
{
	json_t *drivers = json_object();

	for (enum driver_kind kind = 0; kind < DRIVER_KIND_COUNT; kind++)
		json_put_str(drivers, driver_kind_name(kind),
			     status((usable & 1u << kind) && adapter_allows(adapter->type, kind)));
	return drivers;
}

/* Those for tests are never offered for runs. */
static json_t *providers_json(const struct makers *makers, const struct adapter *adapter)
{
	json_t *providers = json_object();

	for (size_t i = 0; i < makers->count; i++) {
		const struct maker *maker = makers->items[i];

		if (maker->driver == DRIVER_SANDBOX)
			json_put_str(providers, maker->key,
				     status(!maker->traits.for_tests &&
					    adapter_allows(adapter->type, maker->driver)));
	}
	return providers;
}

json_t *adapter_capabilities(const struct makers *makers)
{
	unsigned usable = makers_usable(makers);
	json_t *list = json_array();

	for (const struct adapter *a = adapter_after(NULL); a; a = adapter_after(a)) {
		json_t *entry = json_object();

		json_put_str(entry, "adapterType", a->type);
		json_put_new(entry, "drivers", drivers_json(a, usable));
		json_put_new(entry, "sandboxProviders", providers_json(makers, a));
		json_array_append_new(list, entry);
	}
	return list;
}

static json_t *words_json(const char *const *words)
{
	return words ? json_from_strv((char *const *)words) : NULL;
}

static json_t *keys_json(const struct field *fields)
{
	json_t *keys = json_array();

	for (; fields && fields->name; fields++) {
		json_t *key = json_object();

		json_put_str(key, "name", fields->name);
		json_put_str(key, "summary", fields->summary);
		json_array_append_new(keys, key);
	}
	return keys;
}

json_t *adapter_list(unsigned usable)
{
	json_t *list = json_array();

	for (const struct adapter *a = adapter_after(NULL); a; a = adapter_after(a)) {
		json_t *entry = json_object();

		json_put_str(entry, "adapterType", a->type);
		json_put_str(entry, "name", a->name);
		json_put_bool(entry, "takesPrompt", a->config != NULL);
		json_put_bool(entry, "remoteManaged", a->remote_managed);
		json_put_str(entry, "command", a->program);
		json_put_new(entry, "versionArgs", words_json(a->version));
		json_put_str(entry, "installHint", a->install_hint);
		json_put_new(entry, "drivers", drivers_json(a, usable));
		json_put_new(entry, "configKeys", keys_json(a->config));
		json_array_append_new(list, entry);
	}
	return list;
}

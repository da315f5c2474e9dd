/*
 * Which maker a config names: the registry, and the rules of driver `sandbox`, whose configs name a
 * provider that may not be here.
 */
#include "driver/maker.h"

#include <string.h>
#include "base/text.h"
#include "driver/config.h"

/* Of a sandbox config that names no provider. */
#define DEFAULT_PROVIDER "fake"

/* Not weak: without a maker there would be nothing to start. */
extern const struct maker *const __start_berth_makers[];
extern const struct maker *const __stop_berth_makers[];

void makers_add(struct makers *makers, struct maker *maker)
{
	maker->host = makers->host;
	makers->items = xreallocarray(makers->items, makers->count + 1, sizeof(struct maker *));
	makers->items[makers->count++] = maker;
}

/* In the order of their keys, whatever order the linker has put them in. */
static int by_key(const void *a, const void *b)
{
	const struct maker *const *left = a, *const *right = b;

	return strcmp((*left)->key, (*right)->key);
}

void makers_init(struct makers *makers, struct maker_host *host)
{
	*makers = (struct makers){ .host = host };
	for (const struct maker *const *m = __start_berth_makers; m < __stop_berth_makers; m++) {
		struct maker *own = xmalloc(sizeof(*own));

		*own = **m;
		makers_add(makers, own);
	}
	qsort(makers->items, makers->count, sizeof(struct maker *), by_key);
}

void makers_clear(struct makers *makers)
{
	for (size_t i = 0; i < makers->count; i++)
		free(makers->items[i]);
	free(makers->items);
	*makers = (struct makers){ 0 };
}

const struct maker *makers_find(const struct makers *makers, enum driver_kind driver,
				const char *provider)
{
	for (size_t i = makers->count; i-- > 0;) {
		const struct maker *maker = makers->items[i];

		if (maker->driver == driver &&
		    (driver != DRIVER_SANDBOX || str_equal(maker->key, provider)))
			return maker;
	}
	return NULL;
}

const struct maker *makers_require(const struct makers *makers, enum driver_kind driver,
				   const char *provider, struct error *err)
{
	const struct maker *maker = makers_find(makers, driver, provider);

	if (!maker && driver == DRIVER_SANDBOX)
		error_set(err, ERR_UNSUPPORTED_ENV,
			  "Sandbox provider \"%.100s\" is not registered as a built-in provider.",
			  provider ? provider : "");
	else if (!maker)
		error_set(err, ERR_UNSUPPORTED_ENV,
			  "Environment driver \"%s\" is not registered in the environment runtime "
			  "yet.",
			  driver_kind_name(driver));
	return maker;
}

struct traits makers_traits(const struct makers *makers, enum driver_kind driver,
			    const char *provider)
{
	const struct maker *maker = makers_find(makers, driver, provider);

	return maker ? maker->traits : (struct traits){ .fencing = FENCING_SERVER };
}

struct traits environment_traits(const struct makers *makers, const struct environment *environment)
{
	return makers_traits(makers, environment->driver,
			     json_str(environment->config, "provider"));
}

unsigned makers_usable(const struct makers *makers)
{
	unsigned usable = 0;

	for (size_t i = 0; i < makers->count; i++) {
		const struct maker *maker = makers->items[i];

		if (maker->acquire && !(maker->traits.is_host && makers->host->no_local))
			usable |= 1u << maker->driver;
	}
	return usable;
}

/* Configs of sandboxes, whoever makes them */

static const struct field OPEN_FIELDS[] = {
	{ .name = "provider",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED,
	  .max = 255,
	  .summary = "key of the sandbox provider" },
	{ .name = "reuseLease", .type = FIELD_BOOL, .summary = "false if absent" },
	{ .name = "timeoutMs",
	  .type = FIELD_INT,
	  .min = 1,
	  .max = 86400000,
	  .summary = "how long the provider may take" },
	{ 0 },
};

static const char *refuse_odd_key(const json_t *value)
{
	return config_key_is_valid(json_string_value(value))
		       ? NULL
		       : "must be lower case letters, digits, dots, underscores and dashes";
}

static const struct config_rule OPEN_RULES[] = {
	{ .name = "provider", .how = CONFIG_TRIM, .refuse = refuse_odd_key },
	{ .name = "reuseLease", .fallback = "false" },
	{ .name = "timeoutMs", .how = CONFIG_NUMBER },
	{ 0 },
};

/* A provider that is not here: what its keys mean is its own business. */
static const struct config_schema OPEN_CONFIG = {
	.fields = OPEN_FIELDS,
	.rules = OPEN_RULES,
	.open = true,
};

const struct config_schema *driver_config_schema(const struct makers *makers,
						 enum driver_kind driver)
{
	const struct maker *maker = makers_find(makers, driver, NULL);

	if (driver == DRIVER_SANDBOX)
		return &OPEN_CONFIG;
	return maker ? maker->config : NULL;
}

static json_t *normalize_unknown(const char *key, const json_t *config, bool saving,
				 struct error *err)
{
	json_t *open = config_normalize(&OPEN_CONFIG, config, err);

	if (!open || !saving)
		return open;
	json_decref(open);
	error_set(err, ERR_UNPROCESSABLE, "Sandbox provider \"%.100s\" is not installed.", key);
	return NULL;
}

json_t *maker_normalize(const struct makers *makers, enum driver_kind driver, const json_t *config,
			bool saving, struct error *err)
{
	const char *named = json_str_nonblank(config, "provider");
	_cleanup_free_ char *key = named ? str_trimmed(named) : xstrdup(DEFAULT_PROVIDER);
	const struct maker *maker = makers_find(makers, driver, key);

	if (!maker && driver == DRIVER_SANDBOX)
		return normalize_unknown(key, config, saving, err);
	if (!maker)
		maker = makers_require(makers, driver, key, err);
	if (!maker)
		return NULL;
	/* Config that makes such a maker misbehave is refused too: saving is what is asked here. */
	if (saving && maker->traits.for_tests && !makers->host->allow_fake) {
		error_set(err, ERR_UNPROCESSABLE,
			  "The built-in fake sandbox provider is reserved for internal probes "
			  "and cannot be saved.");
		return NULL;
	}
	return maker->normalize(maker, config, saving, err);
}

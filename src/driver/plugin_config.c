/*
 * Maker `plugin`: its config is checked and stored, and that is all. Every use is refused by the
 * wrappers of maker.c, because the table below has no function for it.
 */
#include "driver/maker.h"

#include "driver/config.h"

static const struct field PLUGIN_FIELDS[] = {
	{ .name = "pluginKey",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED,
	  .min = 1,
	  .max = 255,
	  .summary = "which plugin" },
	{ .name = "driverKey",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED,
	  .min = 1,
	  .max = 255,
	  .summary = "which of its environment drivers" },
	{ .name = "driverConfig", .type = FIELD_OBJECT, .summary = "what the plugin is given" },
	{ 0 },
};

static const char *refuse_odd_key(const json_t *value)
{
	return config_key_is_valid(json_string_value(value))
		       ? NULL
		       : "must be lower case letters, digits, dots, underscores and dashes";
}

static const struct config_rule PLUGIN_RULES[] = {
	{ .name = "driverKey", .refuse = refuse_odd_key },
	{ .name = "driverConfig", .fallback = "{}" },
	{ 0 },
};

static const struct config_schema PLUGIN_CONFIG = { .fields = PLUGIN_FIELDS,
						    .rules = PLUGIN_RULES };

static json_t *plugin_normalize(const struct maker *self, const json_t *config, bool saving,
				struct error *err)
{
	(void)self;
	(void)saving;
	return config_normalize(&PLUGIN_CONFIG, config, err);
}

static const struct maker PLUGIN = {
	.key = "plugin",
	.display_name = "Plugin",
	.driver = DRIVER_PLUGIN,
	.config = &PLUGIN_CONFIG,
	.normalize = plugin_normalize,
};
MAKER_REGISTER(PLUGIN);

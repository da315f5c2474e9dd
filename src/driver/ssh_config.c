/*
 * Maker `ssh`: its config is checked and stored, and that is all. Every use is refused by the
 * wrappers of maker.c, because the table below has no function for it.
 */
#include "driver/maker.h"

#include <ctype.h>
#include "base/text.h"
#include "driver/config.h"

static const char *const SECRET_REF[] = { "secret_ref", NULL };

static const struct field SECRET_REF_FIELDS[] = {
	{ .name = "type", .type = FIELD_STRING, .flags = FIELD_REQUIRED, .one_of = SECRET_REF },
	{ .name = "secretId", .type = FIELD_UUID, .flags = FIELD_REQUIRED },
	{ .name = "version", .type = FIELD_ANY, .summary = "latest or a version number" },
	{ 0 },
};

static const struct config_rule SECRET_REF_RULES[] = {
	{ .name = "version", .fallback = "\"latest\"" },
	{ 0 },
};

static const struct config_schema SECRET_REF_CONFIG = {
	.fields = SECRET_REF_FIELDS,
	.rules = SECRET_REF_RULES,
};

static const struct field SSH_FIELDS[] = {
	{ .name = "host",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED | FIELD_NONBLANK,
	  .max = 255,
	  .summary = "name or address of the host" },
	{ .name = "port", .type = FIELD_INT, .min = 1, .max = 65535, .summary = "22 if absent" },
	{ .name = "username",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED | FIELD_NONBLANK,
	  .max = 255 },
	{ .name = "remoteWorkspacePath",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED | FIELD_NONBLANK,
	  .max = 4096,
	  .summary = "absolute directory on the host" },
	{ .name = "privateKey", .type = FIELD_ANY, .flags = FIELD_NULLABLE, .summary = "null" },
	{ .name = "privateKeySecretRef",
	  .type = FIELD_OBJECT,
	  .flags = FIELD_NULLABLE,
	  .fields = SECRET_REF_FIELDS },
	{ .name = "knownHosts", .type = FIELD_STRING, .flags = FIELD_NULLABLE, .max = 65536 },
	{ .name = "strictHostKeyChecking", .type = FIELD_BOOL, .summary = "true if absent" },
	{ 0 },
};

/* These become words of an ssh command line: none may look like an option or like two words. */
static const char *refuse_odd_word(const json_t *value)
{
	const char *s = json_string_value(value);

	if (*s == '-')
		return "must not begin with a dash";
	for (; *s; s++) {
		if (isspace((unsigned char)*s) || iscntrl((unsigned char)*s))
			return "must not hold spaces or control characters";
	}
	return NULL;
}

static const char *refuse_relative(const json_t *value)
{
	return *json_string_value(value) == '/' ? NULL : "(remote workspace path) must be absolute";
}

static const char *refuse_raw_key(const json_t *value)
{
	return json_is_null(value) ? NULL
				   : "must not be in a stored config; name a privateKeySecretRef";
}

static const char *refuse_version(const json_t *value)
{
	const json_t *version = json_object_get(value, "version");

	if (!version || str_equal(json_string_value(version), "latest") ||
	    (json_is_integer(version) && json_integer_value(version) > 0))
		return NULL;
	return "must have \"latest\" or a positive number as its version";
}

static const char *refuse_odd_key(const json_t *value)
{
	return json_is_null(value) || json_is_string(value) ? NULL : "must be a string or null";
}

#define RULES(key_how, key_refuse)                                                                 \
	{ .name = "host", .how = CONFIG_TRIM, .refuse = refuse_odd_word },                         \
		{ .name = "port", .how = CONFIG_NUMBER, .fallback = "22" },                        \
		{ .name = "username", .how = CONFIG_TRIM, .refuse = refuse_odd_word },             \
		{ .name = "remoteWorkspacePath",                                                   \
		  .how = CONFIG_TRIM,                                                              \
		  .refusal = "(remote workspace path) must be an absolute path",                   \
		  .refuse = refuse_relative },                                                     \
		{ .name = "privateKey",                                                            \
		  .how = (key_how),                                                                \
		  .fallback = "null",                                                              \
		  .refuse = (key_refuse) },                                                        \
		{ .name = "privateKeySecretRef",                                                   \
		  .fallback = "null",                                                              \
		  .refuse = refuse_version,                                                        \
		  .nested = &SECRET_REF_CONFIG },                                                  \
		{ .name = "knownHosts",                                                            \
		  .how = CONFIG_TRIM | CONFIG_BLANK_IS_NULL,                                       \
		  .fallback = "null" },                                                            \
		{ .name = "strictHostKeyChecking", .fallback = "true" }, { 0 },

static const struct config_rule STORED_RULES[] = { RULES(CONFIG_BLANK_IS_NULL, refuse_raw_key) };
static const struct config_schema STORED_CONFIG = { .fields = SSH_FIELDS, .rules = STORED_RULES };

/* A key that was typed in may be tried before it is put away. */
static const struct config_rule TRIED_RULES[] = { RULES(CONFIG_TRIM | CONFIG_BLANK_IS_NULL,
							refuse_odd_key) };
static const struct config_schema TRIED_CONFIG = { .fields = SSH_FIELDS, .rules = TRIED_RULES };

static json_t *ssh_normalize(const struct maker *self, const json_t *config, bool saving,
			     struct error *err)
{
	(void)self;
	return config_normalize(saving ? &STORED_CONFIG : &TRIED_CONFIG, config, err);
}

static const struct maker SSH = {
	.key = "ssh",
	.display_name = "SSH",
	.driver = DRIVER_SSH,
	.config = &STORED_CONFIG,
	.normalize = ssh_normalize,
};
MAKER_REGISTER(SSH);

/*
 * Configs as people write them, made into configs as Berth stores them: text trimmed, numbers
 * coerced, defaults filled in, keys in the order of the table, everything else refused. The same
 * config always gives the same result, and a result gives itself again.
 */
#pragma once

#include "base/json.h"

enum config_how {
	CONFIG_TRIM = 1,          /* surrounding white space of a string goes */
	CONFIG_NUMBER = 2,        /* a number as JavaScript's Number() would read it */
	CONFIG_BLANK_IS_NULL = 4, /* a string of nothing but white space is null */
};

struct config_schema;

/* What a field table cannot say about one key of it. */
struct config_rule {
	const char *name; /* NULL ends the table */
	unsigned how;
	const char *fallback; /* JSON text taken when the key is absent */
	const char *refusal;  /* said instead of the general complaint about the key */
	/* What is wrong with a value that has passed the field table; NULL when nothing is. */
	const char *(*refuse)(const json_t *value);
	const struct config_schema *nested; /* how an object below this key is normalised */
};

struct config_schema {
	const struct field *fields;
	const struct config_rule *rules; /* NULL for none */
	bool open; /* keys that are not in the table are kept as they are, behind the others */
};

/*
 * New reference. ERR_UNPROCESSABLE says the first issue; details are {"issues": [{path, message},
 * ...]}. A NULL config is an empty one.
 */
json_t *config_normalize(const struct config_schema *schema, const json_t *config,
			 struct error *err);

/* JSON Schema of what may be written, with the defaults; new reference. */
json_t *config_schema_json(const struct config_schema *schema);

/* Lower case letters, digits, dot, underscore and dash, not beginning with a mark. */
bool config_key_is_valid(const char *key);

/*
 * The config file, as YAML: keys are the names of `berth serve`'s flags, and `environments` lists
 * environments that are to exist. (Debian has no TOML library for C; libyaml is kept, small, and
 * knows the line of everything.) Anchors, tags, and keys that stand twice are refused: what a file
 * says must be plain to whoever reads it.
 */
#pragma once

#include "base/json.h"

#define CONFIG_MAX_BYTES (1 << 20)

struct config_value {
	char *key;
	int line;
	json_t *value;   /* string, true, false, integer, null, array or object */
	int *item_lines; /* of an array: where each element begins */
};
struct config_file {
	char *path;
	struct config_value *values;
	size_t count;
};

/* ERR_VALIDATION with "path:line: what is wrong"; ERR_NOT_FOUND when there is no such file. */
int config_file_read(const char *path, struct config_file *file, struct error *err);
void config_file_clear(struct config_file *file);
const struct config_value *config_file_find(const struct config_file *file, const char *key);

/*
 * Tables of fields as JSON Schema (2020-12, which is what OpenAPI 3.1 speaks), for machines that
 * want to know what a body or a config may hold before sending it.
 */
#pragma once

#include "base/json.h"

/*
 * {"type": "object", "properties": {...}, "required": [...], "additionalProperties": false}; new
 * reference. Sizes that fields.c counts in bytes are told in characters, so what the schema lets
 * pass may still be refused for its length, and never the other way round.
 */
json_t *fields_schema(const struct field *fields);
/* The schema of one value of the table. */
json_t *field_schema(const struct field *field);

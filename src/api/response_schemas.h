/*
 * What answers look like: named shapes, each a table of fields or of a record's columns, for the
 * documents that describe the API. Types are words:
 *
 *     string int number bool uuid time any object map   and the name of a shape
 *     [T] is an array of T, T? may be null, a field whose name ends in ? may be absent
 *
 * A route's `answer` is such a type, with the status before it when that is not 200: "201 Lease".
 */
#pragma once

#include "base/json.h"
#include "db/column.h"

struct shape_field {
	const char *name, *type, *summary;
	const char *const *one_of; /* NULL-terminated, or NULL */
};
struct shape {
	const char *name; /* NULL ends the table */
	const char *summary;
	const struct column *columns; /* of a record, whose table says its keys; or NULL and */
	const struct shape_field *fields;
};
extern const struct shape SHAPES[];

const struct shape *shape_find(const char *name); /* NULL: there is none */
json_t *shape_schema(const struct shape *shape);
/* JSON Schema of a type; NULL when a word in it is unknown. */
json_t *shape_type_schema(const char *type);
/* Whether a value is what the type says, no key more; what is wrong is appended to `why`. */
bool shape_matches(const char *type, const json_t *value, struct buf *why);

/*
 * Reading JSON with three states kept apart: a key that is absent, a key that is null, a key with a
 * value. jansson does the parsing and the counting of references; this adds limits, the accessor
 * set everybody uses, and checks of whole objects against a table of fields.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/error.h"

/* With jansson's own json_decrefp. */
#define _cleanup_json_ _cleanup_(json_decrefp)

/*
 * Parses hostile text: valid UTF-8, no NUL in strings, no duplicate keys, nesting at most
 * JSON_MAX_DEPTH and at most JSON_MAX_VALUES values (both checked before jansson allocates, as an
 * empty object takes a hundred times its text). Any value may be the root. NULL with
 * ERR_INVALID_JSON, whose message tells the place and never repeats the text.
 */
#define JSON_MAX_DEPTH 64
#define JSON_MAX_VALUES 262144
json_t *json_parse(const char *text, size_t len, struct error *err);
char *json_text(const json_t *value); /* compact, key order kept; allocated; NULL -> "null" */
/* Appends the text as a JSON string; bytes that are no UTF-8 become U+FFFD. */
void json_write_str(struct buf *out, const char *text);
/* Text with sorted keys: equal values give equal text whatever their key order. */
char *json_canonical(const json_t *value);

enum json_state { JSON_IS_ABSENT, JSON_IS_NULL, JSON_IS_VALUE };
enum json_state json_state(const json_t *object, const char *key);

/* Borrowed; NULL unless the key holds a string (or: a non-blank one). */
const char *json_str(const json_t *object, const char *key);
const char *json_str_nonblank(const json_t *object, const char *key);
int64_t json_int(const json_t *object, const char *key, int64_t fallback);
bool json_bool(const json_t *object, const char *key, bool fallback);
json_t *json_object_at(const json_t *object, const char *key); /* borrowed object or NULL */
json_t *json_array_at(const json_t *object, const char *key);  /* borrowed array or NULL */

/*
 * Builders; only json_put_new takes ownership of anything, text is copied. NULL becomes JSON null;
 * bytes that are no UTF-8 become U+FFFD.
 */
void json_put_str(json_t *object, const char *key, const char *value);
void json_put_int(json_t *object, const char *key, int64_t value);
void json_put_bool(json_t *object, const char *key, bool value);
void json_put_time(json_t *object, const char *key, int64_t ms);   /* ISO text; ms <= 0 -> null */
void json_put_new(json_t *object, const char *key, json_t *value); /* takes it; NULL -> null */
void json_put_ref(json_t *object, const char *key, json_t *value); /* shares; NULL -> null */
char **json_to_strv(const json_t *array); /* NULL unless an array of strings */
json_t *json_from_strv(char *const *v);
/* An object of environment variables: ERR_VALIDATION when a name is empty or contains '='. */
int json_check_env(const json_t *env, struct error *err);
/* Appends NAME=value of each. */
void json_push_env(char ***out, const json_t *env);

/*
 * A schema is a table of fields, used to check bodies strictly (unknown keys refused), to document
 * routes and to describe them to machines. Checking collects every issue, not only the first.
 */
enum field_type {
	FIELD_STRING, /* min/max: length in bytes after trimming if FIELD_TRIM */
	FIELD_INT,
	FIELD_BOOL,
	FIELD_OBJECT,       /* any object, or `fields` if given */
	FIELD_STRING_ARRAY, /* min/max: number of elements */
	FIELD_STRING_MAP,   /* min/max: number of entries */
	FIELD_UUID,
	FIELD_ANY,
};

enum field_flags {
	FIELD_REQUIRED = 1,
	FIELD_NULLABLE = 2,
	FIELD_NONBLANK = 4, /* something besides white space in it; of arrays: in each element */
	FIELD_TRIM = 8,     /* surrounding white space does not count towards min and max */
};

struct field {
	const char *name; /* NULL ends the table */
	enum field_type type;
	unsigned flags;
	int64_t min, max;           /* both 0: no limit; for sizes max 0 alone means none above */
	const char *const *one_of;  /* NULL-terminated, or NULL */
	const struct field *fields; /* FIELD_OBJECT: strict nested table, or NULL for any object */
	const char *summary;        /* one line for the documentation */
};

/*
 * ERR_VALIDATION with details [{"path": ["config", "args", 2], "message": ..., "code": ...}, ...];
 * body must be an object. Codes: required, unknown_key, invalid_type, invalid_value, too_small,
 * too_big. Values are never repeated in a message. At most FIELDS_MAX_ISSUES issues are reported.
 */
#define FIELDS_MAX_ISSUES 50
int fields_check(const struct field *fields, const json_t *body, struct error *err);

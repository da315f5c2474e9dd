#include "base/json.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/json_plain.h"
#include "base/text.h"

/* jansson's own texts quote the input, which may be a secret; these do not. */
static const char *parse_problem(enum json_error_code code)
{
	switch (code) {
	case json_error_premature_end_of_input:
		return "the text ends too early";
	case json_error_end_of_input_expected:
		return "something follows the value";
	case json_error_invalid_utf8:
		return "not valid UTF-8";
	case json_error_null_character:
	case json_error_null_byte_in_key:
		return "NUL character";
	case json_error_duplicate_key:
		return "duplicate key";
	case json_error_numeric_overflow:
		return "number out of range";
	case json_error_stack_overflow:
		return "nested too deep";
	case json_error_out_of_memory:
		abort();
	default:
		return "not valid JSON";
	}
}

static int parse_error(struct error *err, const char *problem, int line, int column)
{
	return error_set(err, ERR_INVALID_JSON, "invalid JSON: %s at line %d, column %d", problem,
			 line, column);
}

/*
 * Walks over the text before jansson sees it: jansson recurses as deep as the text nests and
 * allocates as many values as it holds. Counting brackets and commas outside strings is exact for
 * valid JSON, and for the rest it does not matter.
 */
static int check_limits(const char *text, size_t len, struct error *err)
{
	int depth = 0, values = 1, line = 1;
	size_t line_start = 0;
	bool in_string = false;

	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (c == '\n') {
			line++;
			line_start = i + 1;
		}
		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
			continue;
		}
		if (c == '"')
			in_string = true;
		else if (c == '[' || c == '{')
			depth++;
		else if (c == ']' || c == '}')
			depth--;
		if (c == '[' || c == '{' || c == ',')
			values++;

		int column = (int)MIN_OF(i - line_start + 1, (size_t)INT32_MAX);

		if (depth > JSON_MAX_DEPTH)
			return parse_error(err, "nested too deep", line, column);
		if (values > JSON_MAX_VALUES)
			return parse_error(err, "too many values", line, column);
	}
	return 0;
}

json_t *json_parse(const char *text, size_t len, struct error *err)
{
	json_error_t problem;
	json_t *value = json_read_plain(text, len);

	if (value)
		return value;
	if (check_limits(text, len, err) < 0)
		return NULL;
	value = json_loadb(text, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &problem);

	if (!value)
		parse_error(err, parse_problem(json_error_code(&problem)), MAX_OF(problem.line, 1),
			    MAX_OF(problem.column, 0));
	return value;
}

char *json_canonical(const json_t *value)
{
	if (!value)
		return xstrdup("null");

	char *text = json_dumps(value, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENCODE_ANY);

	/* Every value we hold can be written, so this is memory. */
	if (!text)
		abort();
	return text;
}

enum json_state json_state(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	if (!value)
		return JSON_IS_ABSENT;
	return json_is_null(value) ? JSON_IS_NULL : JSON_IS_VALUE;
}

const char *json_str(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

const char *json_str_nonblank(const json_t *object, const char *key)
{
	const char *s = json_str(object, key);

	return str_blank(s) ? NULL : s;
}

int64_t json_int(const json_t *object, const char *key, int64_t fallback)
{
	const json_t *value = json_object_get(object, key);

	return json_is_integer(value) ? (int64_t)json_integer_value(value) : fallback;
}

bool json_bool(const json_t *object, const char *key, bool fallback)
{
	const json_t *value = json_object_get(object, key);

	return json_is_boolean(value) ? json_is_true(value) : fallback;
}

json_t *json_object_at(const json_t *object, const char *key)
{
	json_t *value = json_object_get(object, key);

	return json_is_object(value) ? value : NULL;
}

json_t *json_array_at(const json_t *object, const char *key)
{
	json_t *value = json_object_get(object, key);

	return json_is_array(value) ? value : NULL;
}

/*
 * Text from file names and programs need not be UTF-8, and JSON must be: better mended than lost.
 */
static json_t *new_string(const char *s)
{
	size_t len = strlen(s);
	json_t *value;

	if (utf8_valid(s, len)) {
		value = json_stringn_nocheck(s, len);
	} else {
		_cleanup_buf_ struct buf mended = { 0 };

		utf8_repair(&mended, s, len);
		value = json_stringn_nocheck(mended.data, mended.len);
	}
	if (!value)
		abort();
	return value;
}

void json_put_new(json_t *object, const char *key, json_t *value)
{
	_cleanup_buf_ struct buf mended = { 0 };
	size_t len = strlen(key);

	assert(json_is_object(object));
	if (!utf8_valid(key, len)) {
		utf8_repair(&mended, key, len);
		key = mended.data;
		len = mended.len;
	}
	if (json_object_setn_new_nocheck(object, key, len, value ? value : json_null()) < 0)
		abort();
}

void json_put_ref(json_t *object, const char *key, json_t *value)
{
	json_put_new(object, key, json_incref(value));
}

void json_put_str(json_t *object, const char *key, const char *value)
{
	json_put_new(object, key, value ? new_string(value) : NULL);
}

void json_put_int(json_t *object, const char *key, int64_t value)
{
	json_put_new(object, key, json_integer(value));
}

void json_put_bool(json_t *object, const char *key, bool value)
{
	json_put_new(object, key, json_boolean(value));
}

void json_put_time(json_t *object, const char *key, int64_t ms)
{
	char text[TIME_ISO_SIZE];

	if (ms > 0)
		time_iso(ms, text);
	json_put_str(object, key, ms > 0 ? text : NULL);
}

char **json_to_strv(const json_t *array)
{
	if (!json_is_array(array))
		return NULL;

	size_t n = json_array_size(array);
	_cleanup_strv_ char **v = xcalloc(n + 1, sizeof(*v));

	for (size_t i = 0; i < n; i++) {
		const char *s = json_string_value(json_array_get(array, i));

		if (!s)
			return NULL;
		v[i] = xstrdup(s);
	}
	return steal(v);
}

json_t *json_from_strv(char *const *v)
{
	json_t *array = json_array();

	for (; v && *v; v++) {
		if (json_array_append_new(array, new_string(*v)) < 0)
			abort();
	}
	return array;
}

int json_check_env(const json_t *env, struct error *err)
{
	const char *name;
	json_t *value;

	json_object_foreach ((json_t *)env, name, value) {
		if (!name[0] || strchr(name, '='))
			return error_set(err, ERR_VALIDATION,
					 "env has a name that is empty or contains '='");
	}
	return 0;
}

void json_push_env(char ***out, const json_t *env)
{
	const char *name;
	json_t *value;

	json_object_foreach ((json_t *)env, name, value) {
		strv_push(out, xasprintf("%s=%s", name, json_string_value(value)));
	}
}

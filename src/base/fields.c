#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/id.h"
#include "base/json.h"
#include "base/text.h"

#define KEY_SHOWN 64

/* Where in the body a check stands: a chain of keys and indices up to the root. */
struct spot {
	const struct spot *above;
	const char *key; /* NULL: the index counts */
	size_t index;
};

struct issues {
	json_t *list;
	size_t count;
	struct buf first; /* the first one as text for people */
};

static void spot_json(json_t *path, const struct spot *spot)
{
	if (!spot)
		return;
	spot_json(path, spot->above);
	json_array_append_new(path, spot->key ? json_string(spot->key)
					      : json_integer((json_int_t)spot->index));
}

static void spot_text(struct buf *out, const struct spot *spot)
{
	if (!spot)
		return;
	spot_text(out, spot->above);
	if (spot->key)
		buf_printf(out, "%s%s", out->len ? "." : "", spot->key);
	else
		buf_printf(out, "[%zu]", spot->index);
}

static void complain(struct issues *issues, const struct spot *spot, const char *code,
		     const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static void complain(struct issues *issues, const struct spot *spot, const char *code,
		     const char *fmt, ...)
{
	_cleanup_buf_ struct buf message = { 0 };
	va_list ap;

	if (issues->count++ >= FIELDS_MAX_ISSUES)
		return;
	va_start(ap, fmt);
	buf_vprintf(&message, fmt, ap);
	va_end(ap);

	json_t *issue = json_object(), *path = json_array();

	spot_json(path, spot);
	json_put_new(issue, "path", path);
	json_put_str(issue, "message", buf_str(&message));
	json_put_str(issue, "code", code);
	if (json_array_append_new(issues->list, issue) < 0)
		abort();
	if (issues->count == 1) {
		spot_text(&issues->first, spot);
		buf_printf(&issues->first, "%s%s", issues->first.len ? " " : "", buf_str(&message));
	}
}

struct unit {
	const char *one, *many;
};
static const struct unit bytes = { "byte", "bytes" };
static const struct unit elements = { "element", "elements" };
static const struct unit entries = { "entry", "entries" };

static void check_size(const struct field *f, size_t size, struct unit unit,
		       const struct spot *spot, struct issues *issues)
{
	if (f->min > 0 && size < (uint64_t)f->min)
		complain(issues, spot, "too_small", "must have at least %lld %s", (long long)f->min,
			 f->min == 1 ? unit.one : unit.many);
	if (f->max > 0 && size > (uint64_t)f->max)
		complain(issues, spot, "too_big", "must have at most %lld %s", (long long)f->max,
			 f->max == 1 ? unit.one : unit.many);
}

static bool is_one_of(const struct field *f, const char *s)
{
	for (const char *const *choice = f->one_of; *choice; choice++) {
		if (streq(*choice, s))
			return true;
	}
	return false;
}

static void complain_choices(const struct field *f, const struct spot *spot, struct issues *issues)
{
	_cleanup_buf_ struct buf text = { 0 };

	for (const char *const *choice = f->one_of; *choice; choice++)
		buf_printf(&text, "%s%s", text.len ? ", " : "", *choice);
	complain(issues, spot, "invalid_value", "must be one of: %s", buf_str(&text));
}

static bool want(bool right, const char *what, const struct spot *spot, struct issues *issues)
{
	if (!right)
		complain(issues, spot, "invalid_type", "must be %s", what);
	return right;
}

/* What a string and each element of an array of strings have in common. */
static void check_text(const struct field *f, const char *s, const struct spot *spot,
		       struct issues *issues)
{
	if ((f->flags & FIELD_NONBLANK) && str_blank(s))
		complain(issues, spot, "too_small", "must not be blank");
	else if (f->one_of && !is_one_of(f, s))
		complain_choices(f, spot, issues);
}

static void check_string(const struct field *f, const json_t *value, const struct spot *spot,
			 struct issues *issues)
{
	if (!want(json_is_string(value), "a string", spot, issues))
		return;

	const char *s = json_string_value(value), *start;

	check_text(f, s, spot, issues);
	check_size(f, f->flags & FIELD_TRIM ? str_trim(s, &start) : strlen(s), bytes, spot, issues);
}

static void check_int(const struct field *f, const json_t *value, const struct spot *spot,
		      struct issues *issues)
{
	if (!want(json_is_integer(value), "an integer", spot, issues))
		return;

	json_int_t n = json_integer_value(value);

	if ((f->min || f->max) && (n < f->min || n > f->max))
		complain(issues, spot, n < f->min ? "too_small" : "too_big",
			 "must be between %lld and %lld", (long long)f->min, (long long)f->max);
}

static void check_bool(const struct field *f, const json_t *value, const struct spot *spot,
		       struct issues *issues)
{
	(void)f;
	want(json_is_boolean(value), "a boolean", spot, issues);
}

static void check_table(const struct field *fields, const json_t *object, const struct spot *spot,
			struct issues *issues);

static void check_object(const struct field *f, const json_t *value, const struct spot *spot,
			 struct issues *issues)
{
	if (want(json_is_object(value), "an object", spot, issues) && f->fields)
		check_table(f->fields, value, spot, issues);
}

static void check_string_array(const struct field *f, const json_t *value, const struct spot *spot,
			       struct issues *issues)
{
	if (!want(json_is_array(value), "an array of strings", spot, issues))
		return;
	check_size(f, json_array_size(value), elements, spot, issues);
	for (size_t i = 0; i < json_array_size(value); i++) {
		const json_t *element = json_array_get(value, i);
		struct spot at = { .above = spot, .index = i };

		if (want(json_is_string(element), "a string", &at, issues))
			check_text(f, json_string_value(element), &at, issues);
	}
}

/* Keys come from the caller and may be long; what is shown of them is not. */
static char *shown_key(const char *key)
{
	size_t len = strnlen(key, KEY_SHOWN + 1);

	if (len <= KEY_SHOWN)
		return xstrdup(key);
	len = KEY_SHOWN - utf8_partial_tail(key, KEY_SHOWN);
	return xasprintf("%.*s...", (int)len, key);
}

static void check_string_map(const struct field *f, const json_t *value, const struct spot *spot,
			     struct issues *issues)
{
	const char *key;
	json_t *element;

	if (!want(json_is_object(value), "an object of strings", spot, issues))
		return;
	check_size(f, json_object_size(value), entries, spot, issues);
	json_object_foreach ((json_t *)value, key, element) {
		_cleanup_free_ char *shown = shown_key(key);
		struct spot at = { .above = spot, .key = shown };

		if (want(json_is_string(element), "a string", &at, issues))
			check_text(f, json_string_value(element), &at, issues);
	}
}

static void check_uuid(const struct field *f, const json_t *value, const struct spot *spot,
		       struct issues *issues)
{
	(void)f;
	want(id_is_valid(json_string_value(value)), "a UUID", spot, issues);
}

static void check_any(const struct field *f, const json_t *value, const struct spot *spot,
		      struct issues *issues)
{
	(void)f;
	(void)value;
	(void)spot;
	(void)issues;
}

typedef void field_check(const struct field *, const json_t *, const struct spot *,
			 struct issues *);

static field_check *const checks[] = {
	[FIELD_STRING] = check_string,
	[FIELD_INT] = check_int,
	[FIELD_BOOL] = check_bool,
	[FIELD_OBJECT] = check_object,
	[FIELD_STRING_ARRAY] = check_string_array,
	[FIELD_STRING_MAP] = check_string_map,
	[FIELD_UUID] = check_uuid,
	[FIELD_ANY] = check_any,
};

static const struct field *find_field(const struct field *fields, const char *name)
{
	for (const struct field *f = fields; f->name; f++) {
		if (streq(f->name, name))
			return f;
	}
	return NULL;
}

static void check_table(const struct field *fields, const json_t *object, const struct spot *spot,
			struct issues *issues)
{
	const char *key;
	json_t *value;

	for (const struct field *f = fields; f->name; f++) {
		struct spot at = { .above = spot, .key = f->name };

		value = json_object_get(object, f->name);
		if (!value && (f->flags & FIELD_REQUIRED))
			complain(issues, &at, "required", "is required");
		else if (json_is_null(value) && !(f->flags & FIELD_NULLABLE))
			complain(issues, &at, "invalid_type", "must not be null");
		else if (value && !json_is_null(value))
			checks[f->type](f, value, &at, issues);
	}
	json_object_foreach ((json_t *)object, key, value) {
		if (find_field(fields, key))
			continue;

		_cleanup_free_ char *shown = shown_key(key);
		struct spot at = { .above = spot, .key = shown };

		complain(issues, &at, "unknown_key", "is not a known field");
	}
}

int fields_check(const struct field *fields, const json_t *body, struct error *err)
{
	_cleanup_json_ json_t *list = json_array();
	struct issues issues = { .list = list };
	_cleanup_buf_ struct buf more = { 0 };

	if (json_is_object(body))
		check_table(fields, body, NULL, &issues);
	else
		complain(&issues, NULL, "invalid_type", "the body must be an object");
	if (!issues.count)
		return 0;
	if (issues.count > 1)
		buf_printf(&more, " (and %zu more)", issues.count - 1);
	error_set(err, ERR_VALIDATION, "Validation error: %s%s", buf_str(&issues.first),
		  buf_str(&more));
	error_set_details(err, json_text(list));
	buf_free(&issues.first);
	return -1;
}

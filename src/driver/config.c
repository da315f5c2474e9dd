#include "driver/config.h"

#include <string.h>
#include "base/mem.h"
#include "base/schema.h"
#include "base/text.h"

/* Every whole number up to here has a double of its own. */
#define EXACT_LIMIT 9007199254740992.0

static const struct field *field_of(const struct config_schema *schema, const char *name)
{
	for (const struct field *f = schema->fields; f->name; f++) {
		if (streq(f->name, name))
			return f;
	}
	return NULL;
}

static const struct config_rule *rule_of(const struct config_schema *schema, const char *name)
{
	for (const struct config_rule *r = schema->rules; r && r->name; r++) {
		if (streq(r->name, name))
			return r;
	}
	return NULL;
}

/* strtod alone would also take "inf", "nan" and hexadecimal fractions. */
static bool looks_like_number(const char *s)
{
	if (s[0] == '0' && (s[1] == 'x' || s[1] == 'X'))
		return s[2] && strspn(s + 2, "0123456789abcdefABCDEF") == strlen(s + 2);
	return *s && strspn(s, "0123456789+-.eE") == strlen(s);
}

static bool text_to_number(const char *text, double *number)
{
	_cleanup_free_ char *trimmed = str_trimmed(text);
	char *end;

	*number = 0;
	if (!*trimmed)
		return true;
	if (!looks_like_number(trimmed))
		return false;
	*number = strtod(trimmed, &end);
	return !*end;
}

/* What is no whole number stays as it is, and the field table says so. */
static json_t *coerced_number(json_t *value)
{
	double number = 0;

	if (json_is_integer(value))
		return json_incref(value);
	if (json_is_real(value))
		number = json_real_value(value);
	else if (json_is_true(value))
		number = 1;
	else if (json_is_string(value) && !text_to_number(json_string_value(value), &number))
		return json_incref(value);
	else if (json_is_object(value) || json_is_array(value))
		return json_incref(value);
	if (!(number >= -EXACT_LIMIT && number <= EXACT_LIMIT))
		return json_incref(value);

	json_int_t whole = (json_int_t)number;

	return (double)whole == number ? json_integer(whole) : json_incref(value);
}

static json_t *prepared(const struct config_schema *schema, const json_t *config);

/* New reference; NULL when the key is absent and has no default. */
static json_t *prepared_value(const struct config_rule *rule, json_t *value)
{
	if (!rule)
		return json_deep_copy(value);
	if (!value)
		return rule->fallback ? json_parse(rule->fallback, strlen(rule->fallback), NULL)
				      : NULL;
	if (rule->how & CONFIG_NUMBER)
		return coerced_number(value);
	if (rule->nested && json_is_object(value))
		return prepared(rule->nested, value);
	if (!json_is_string(value))
		return json_deep_copy(value);
	if ((rule->how & CONFIG_BLANK_IS_NULL) && str_blank(json_string_value(value)))
		return json_null();
	if (rule->how & CONFIG_TRIM) {
		const char *start;
		size_t len = str_trim(json_string_value(value), &start);

		return json_stringn_nocheck(start, len);
	}
	return json_incref(value);
}

/* The keys of the table in its order, then all others as they came. */
static json_t *prepared(const struct config_schema *schema, const json_t *config)
{
	json_t *out = json_object(), *value;
	const char *key;

	for (const struct field *f = schema->fields; f->name; f++) {
		value = prepared_value(rule_of(schema, f->name), json_object_get(config, f->name));
		if (value)
			json_put_new(out, f->name, value);
	}
	json_object_foreach ((json_t *)config, key, value) {
		if (!field_of(schema, key))
			json_put_new(out, key, json_deep_copy(value));
	}
	return out;
}

/* The part the field table is about: an open object may hold what it likes beside that. */
static json_t *known_part(const struct config_schema *schema, json_t *config)
{
	json_t *known = json_object();

	for (const struct field *f = schema->fields; f->name; f++) {
		json_t *value = json_object_get(config, f->name);

		if (value)
			json_put_ref(known, f->name, value);
	}
	return known;
}

static void add_issue(json_t *issues, const char *key, const char *message)
{
	json_t *issue = json_object(), *path = json_array();

	json_array_append_new(path, json_string(key));
	json_put_new(issue, "path", path);
	json_put_str(issue, "message", message);
	json_array_append_new(issues, issue);
}

static const char *issue_key(const json_t *issue)
{
	return json_string_value(json_array_get(json_array_at(issue, "path"), 0));
}

static bool has_issue(const json_t *issues, const char *key)
{
	for (size_t i = 0; i < json_array_size(issues); i++) {
		const char *of = issue_key(json_array_get(issues, i));

		if (of && streq(of, key))
			return true;
	}
	return false;
}

static void collect_issues(const struct config_schema *schema, json_t *config, json_t *issues)
{
	_cleanup_json_ json_t *known = schema->open ? known_part(schema, config) : NULL;
	_cleanup_json_ json_t *found = NULL;
	_cleanup_error_ struct error problem = { 0 };

	if (fields_check(schema->fields, known ? known : config, &problem) < 0)
		found = json_parse(problem.details, strlen(problem.details), NULL);
	for (size_t i = 0; i < json_array_size(found); i++) {
		json_t *issue = json_array_get(found, i);
		const char *key = issue_key(issue);
		const struct config_rule *rule = key ? rule_of(schema, key) : NULL;

		if (rule && rule->refusal)
			json_put_str(issue, "message", rule->refusal);
		json_array_append(issues, issue);
	}
	for (const struct config_rule *r = schema->rules; r && r->name; r++) {
		const json_t *value = json_object_get(config, r->name);
		const char *complaint;

		if (!r->refuse || !value || has_issue(issues, r->name))
			continue;
		complaint = r->refuse(value);
		if (complaint)
			add_issue(issues, r->name, complaint);
	}
}

/* "remoteWorkspacePath must be absolute" */
static void put_issue_text(struct buf *out, const json_t *issue)
{
	const json_t *path = json_array_at(issue, "path");

	for (size_t i = 0; i < json_array_size(path); i++) {
		const json_t *step = json_array_get(path, i);

		if (json_is_string(step))
			buf_printf(out, "%s%s", i ? "." : "", json_string_value(step));
		else
			buf_printf(out, "[%lld]", (long long)json_integer_value(step));
	}
	buf_printf(out, " %s", json_str(issue, "message"));
}

static int refuse_config(json_t *issues, struct error *err)
{
	_cleanup_json_ json_t *details = json_object();
	_cleanup_buf_ struct buf text = { 0 };
	size_t more = json_array_size(issues) - 1;

	put_issue_text(&text, json_array_get(issues, 0));
	if (more)
		buf_printf(&text, " (and %zu more)", more);
	json_put_ref(details, "issues", issues);
	error_set(err, ERR_UNPROCESSABLE, "Invalid environment config: %s", buf_str(&text));
	error_set_details(err, json_text(details));
	return -1;
}

json_t *config_normalize(const struct config_schema *schema, const json_t *config,
			 struct error *err)
{
	_cleanup_json_ json_t *issues = json_array();

	if (config && !json_is_object(config)) {
		error_set(err, ERR_UNPROCESSABLE, "Invalid environment config: not an object");
		return NULL;
	}

	_cleanup_json_ json_t *out = prepared(schema, config);

	collect_issues(schema, out, issues);
	if (json_array_size(issues)) {
		refuse_config(issues, err);
		return NULL;
	}
	return steal(out);
}

bool config_key_is_valid(const char *key)
{
	const char *letters = "abcdefghijklmnopqrstuvwxyz0123456789";

	return *key && strchr(letters, *key) &&
	       strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789._-") == strlen(key);
}

json_t *config_schema_json(const struct config_schema *schema)
{
	json_t *out = fields_schema(schema->fields);
	json_t *properties = json_object_at(out, "properties");

	for (const struct config_rule *r = schema->rules; r && r->name; r++) {
		json_t *property = json_object_at(properties, r->name);
		json_t *fallback =
			r->fallback ? json_parse(r->fallback, strlen(r->fallback), NULL) : NULL;

		if (fallback)
			json_put_new(property, "default", fallback);
	}
	json_put_bool(out, "additionalProperties", schema->open);
	return out;
}

/*
 * The page for people: a heading per path, a table of what goes in, a line on what comes out.
 */
#include "api/openapi.h"
#include <ctype.h>
#include "base/text.h"

static void put_upper(struct buf *out, const char *text)
{
	for (; *text; text++)
		buf_putc(out, (char)toupper(*text));
}

/* One cell of a table: no bar and no new line may end it early. */
static void put_cell(struct buf *out, const char *text)
{
	for (; text && *text; text++) {
		if (*text == '|')
			buf_puts(out, "\\|");
		else
			buf_putc(out, *text == '\n' ? ' ' : *text);
	}
}

static void put_link(struct buf *out, const char *ref)
{
	const char *name = strrchr(ref, '/') + 1;
	_cleanup_free_ char *anchor = xstrdup(name);

	for (char *p = anchor; *p; p++)
		*p = (char)tolower(*p);
	buf_printf(out, "[%s](#%s)", name, anchor);
}

static void put_choices(struct buf *out, const json_t *choices)
{
	for (size_t i = 0; i < json_array_size(choices); i++) {
		const char *word = json_string_value(json_array_get(choices, i));

		buf_puts(out, i ? ", " : "");
		if (word)
			buf_printf(out, "`%s`", word);
		else
			buf_puts(out, "null");
	}
}

static void put_limits(struct buf *out, const json_t *schema)
{
	static const char *const KEYS[][2] = {
		{ "minimum", "at least" },  { "maximum", "at most" },   { "minLength", "at least" },
		{ "maxLength", "at most" }, { "minItems", "at least" }, { "maxItems", "at most" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(KEYS); i++)
		if (json_is_integer(json_object_get(schema, KEYS[i][0])))
			buf_printf(out, ", %s %lld%s", KEYS[i][1],
				   (long long)json_int(schema, KEYS[i][0], 0),
				   strstr(KEYS[i][0], "Length")  ? " bytes"
				   : strstr(KEYS[i][0], "Items") ? " of them"
								 : "");
}

static void put_type(struct buf *out, const json_t *schema)
{
	const json_t *type = json_object_get(schema, "type");
	const char *ref = json_str(schema, "$ref"), *format = json_str(schema, "format");
	const json_t *any = json_object_get(schema, "anyOf");

	if (ref)
		put_link(out, ref);
	for (size_t i = 0; i < json_array_size(any); i++) {
		buf_puts(out, i ? " or " : "");
		put_type(out, json_array_get(any, i));
	}
	if (json_object_get(schema, "enum")) {
		put_choices(out, json_object_get(schema, "enum"));
	} else if (json_is_string(type)) {
		buf_puts(out, format && !streq(format, "int64") ? format : json_string_value(type));
	} else if (json_is_array(type)) {
		for (size_t i = 0; i < json_array_size(type); i++)
			buf_printf(out, "%s%s", i ? " or " : "",
				   json_string_value(json_array_get(type, i)));
	} else if (!ref && !any) {
		buf_puts(out, "anything");
	}
	if (json_object_get(schema, "items")) {
		buf_puts(out, " of ");
		put_type(out, json_object_get(schema, "items"));
	}
	put_limits(out, schema);
}

static void put_row(struct buf *out, const char *name, const char *where, bool required,
		    const json_t *schema, const char *summary)
{
	_cleanup_buf_ struct buf type = { 0 };

	put_type(&type, schema);
	buf_printf(out, "| `%s` | %s%s | ", name, where, required ? ", required" : "");
	put_cell(out, buf_str(&type));
	buf_puts(out, " | ");
	put_cell(out, summary);
	buf_puts(out, " |\n");
}

static bool is_required(const json_t *schema, const char *name)
{
	const json_t *list = json_object_get(schema, "required");

	for (size_t i = 0; i < json_array_size(list); i++)
		if (str_equal(json_string_value(json_array_get(list, i)), name))
			return true;
	return false;
}

/* Nested tables follow their field, with its name before theirs. */
static void put_properties(struct buf *out, const json_t *schema, const char *prefix,
			   const char *where)
{
	json_t *properties = json_object_at(schema, "properties"), *property;
	const char *name;

	json_object_foreach (properties, name, property) {
		_cleanup_free_ char *full = xasprintf("%s%s", prefix, name);

		put_row(out, full, where, is_required(schema, name), property,
			json_str(property, "description"));
		if (json_object_at(property, "properties")) {
			_cleanup_free_ char *deeper = xasprintf("%s.", full);

			put_properties(out, property, deeper, where);
		}
	}
}

static void put_inputs(struct buf *out, const json_t *operation)
{
	const json_t *parameters = json_array_at(operation, "parameters");
	const json_t *contents =
		json_object_at(json_object_at(operation, "requestBody"), "content");
	const json_t *body = json_object_at(json_object_at(contents, "application/json"), "schema");
	_cleanup_buf_ struct buf rows = { 0 };

	for (size_t i = 0; i < json_array_size(parameters); i++) {
		const json_t *p = json_array_get(parameters, i);

		if (!str_equal(json_str(p, "in"), "path"))
			put_row(&rows, json_str(p, "name"), json_str(p, "in"),
				json_bool(p, "required", false), json_object_get(p, "schema"),
				json_str(p, "description"));
	}
	put_properties(&rows, body, "", "body");
	if (rows.len)
		buf_printf(out, "\n| name | in | type | |\n|---|---|---|---|\n%s", buf_str(&rows));
	if (json_object_at(contents, "application/octet-stream"))
		buf_puts(out, "\nThe body is bytes, `application/octet-stream`.\n");
}

static void put_answers(struct buf *out, const json_t *operation)
{
	json_t *responses = json_object_at(operation, "responses"), *response;
	const char *status;

	buf_puts(out, "\n");
	json_object_foreach (responses, status, response) {
		json_t *contents = json_object_at(response, "content"), *media;
		const char *type, *before = ": ";

		if (streq(status, "default"))
			continue;
		buf_printf(out, "- **%s**", status);
		if (status[0] >= '4') {
			buf_printf(out, ": %s\n", json_str(response, "description"));
			continue;
		}
		json_object_foreach (contents, type, media) {
			buf_puts(out, before);
			if (streq(type, "application/json"))
				put_type(out, json_object_at(media, "schema"));
			else
				buf_printf(out, "`%s`", type);
			before = ", or ";
		}
		if (!json_object_size(contents))
			buf_printf(out, ": %s", json_str(response, "description"));
		buf_puts(out, "\n");
	}
}

static void put_operation(struct buf *out, const char *method, const char *path,
			  const json_t *operation)
{
	buf_puts(out, "\n### ");
	put_upper(out, method);
	buf_printf(out, " %s\n\n%s. For %s.\n", path, json_str(operation, "summary"),
		   json_str(operation, "x-berth-access"));
	put_inputs(out, operation);
	put_answers(out, operation);
}

static const char *tag_of(const json_t *operation)
{
	return json_string_value(json_array_get(json_array_at(operation, "tags"), 0));
}

static void put_tag(struct buf *out, const json_t *document, const char *tag)
{
	json_t *paths = json_object_at(document, "paths"), *item, *operation;
	const char *path, *method;

	buf_printf(out, "\n## %s\n", tag);
	json_object_foreach (paths, path, item)
		json_object_foreach (item, method, operation)
			if (str_equal(tag_of(operation), tag))
				put_operation(out, method, path, operation);
}

static void put_tags(struct buf *out, const json_t *document)
{
	_cleanup_json_ json_t *seen = json_object();
	json_t *paths = json_object_at(document, "paths"), *item, *operation;
	const char *path, *method;

	json_object_foreach (paths, path, item) {
		json_object_foreach (item, method, operation) {
			if (json_object_get(seen, tag_of(operation)))
				continue;
			json_put_bool(seen, tag_of(operation), true);
			put_tag(out, document, tag_of(operation));
		}
	}
}

static void put_shapes(struct buf *out, const json_t *document)
{
	json_t *schemas = json_object_at(json_object_at(document, "components"), "schemas"),
	       *schema;
	const char *name;

	buf_puts(out, "\n## Shapes\n");
	json_object_foreach (schemas, name, schema) {
		if (streq(name, "Error"))
			continue;
		buf_printf(out, "\n### %s\n\n%s.\n", name, json_str(schema, "description"));
		if (json_object_size(json_object_at(schema, "properties")))
			buf_puts(out, "\n| name | | type | |\n|---|---|---|---|\n");
		put_properties(out, schema, "", "");
	}
}

/* Every list of codes in the document, wherever it is. */
static void collect_codes(const json_t *value, json_t *codes)
{
	const json_t *list =
		json_array_at(json_object_at(json_object_at(value, "properties"), "code"), "enum");
	const char *key;
	json_t *inner;
	size_t i;

	for (i = 0; i < json_array_size(list); i++)
		json_put_bool(codes, json_string_value(json_array_get(list, i)), true);
	if (json_is_array(value))
		json_array_foreach (value, i, inner)
			collect_codes(inner, codes);
	json_object_foreach ((json_t *)value, key, inner)
		collect_codes(inner, codes);
}

static void put_codes(struct buf *out, const json_t *document)
{
	_cleanup_json_ json_t *codes = json_object();

	collect_codes(document, codes);
	buf_puts(out, "\n## Error codes\n\n| code | status |\n|---|---|\n");
#define X(name, wire, http)                                                                        \
	if (json_object_get(codes, wire))                                                          \
		buf_printf(out, "| `%s` | %d |\n", wire, http);
	ERROR_CODES(X)
#undef X
}

char *openapi_page(const json_t *document)
{
	_cleanup_buf_ struct buf out = { 0 };
	const json_t *refused = json_object_at(
		json_object_at(json_object_at(document, "components"), "responses"), "Refused");

	buf_puts(&out,
		 "# The API\n\n"
		 "Written by `scripts/api-docs` from the route table; `GET /api/openapi.json` and "
		 "`berth openapi` give the same to machines.\n\n"
		 "Answers are JSON in camelCase, times ISO 8601 in UTC. Bodies are strict: a key "
		 "that is not listed is refused. A refusal is `{error, code, details}`: a sentence "
		 "for people, a code for programs, and more where there is more. Callers say who "
		 "they are with `Authorization: Bearer TOKEN`; the server's own user and root need "
		 "nothing on the unix socket and on loopback. Every answer has an "
		 "`X-Request-Id`.\n\n"
		 "Besides what is listed with a route, each can answer ");
	buf_printf(&out, "%s.\n", json_str(refused, "description"));
	put_tags(&out, document);
	put_shapes(&out, document);
	put_codes(&out, document);
	return buf_steal(&out);
}

#include "base/schema.h"

static json_t *typed(const char *type)
{
	json_t *schema = json_object();

	json_put_str(schema, "type", type);
	return schema;
}

static void put_bounds(json_t *schema, const struct field *f, const char *min, const char *max)
{
	if (f->min > 0)
		json_put_int(schema, min, f->min);
	if (f->max > 0)
		json_put_int(schema, max, f->max);
}

static void put_choices(json_t *schema, const struct field *f)
{
	json_t *choices;

	if (!f->one_of)
		return;
	choices = json_array();
	for (const char *const *choice = f->one_of; *choice; choice++)
		json_array_append_new(choices, json_string(*choice));
	json_put_new(schema, "enum", choices);
}

static json_t *string_schema(const struct field *f)
{
	json_t *schema = typed("string");

	/* Characters are never more than bytes, so only an upper limit can be told as it is. */
	if (f->min > 0 || (f->flags & FIELD_NONBLANK))
		json_put_int(schema, "minLength", 1);
	if (f->max > 0)
		json_put_int(schema, "maxLength", f->max);
	if ((f->flags & FIELD_NONBLANK) && !f->one_of)
		json_put_str(schema, "pattern", "\\S");
	put_choices(schema, f);
	return schema;
}

static json_t *int_schema(const struct field *f)
{
	json_t *schema = typed("integer");

	if (f->min || f->max) {
		json_put_int(schema, "minimum", f->min);
		json_put_int(schema, "maximum", f->max);
	}
	return schema;
}

static json_t *object_schema(const struct field *f)
{
	json_t *schema;

	if (f->fields)
		return fields_schema(f->fields);
	/* Said aloud: generators of clients take an object without properties for an empty one. */
	schema = typed("object");
	json_put_bool(schema, "additionalProperties", true);
	return schema;
}

static json_t *string_array_schema(const struct field *f)
{
	json_t *schema = typed("array"), *element = typed("string");

	if (f->flags & FIELD_NONBLANK)
		json_put_str(element, "pattern", "\\S");
	put_choices(element, f);
	json_put_new(schema, "items", element);
	put_bounds(schema, f, "minItems", "maxItems");
	return schema;
}

static json_t *string_map_schema(const struct field *f)
{
	json_t *schema = typed("object"), *element = typed("string");

	put_choices(element, f);
	json_put_new(schema, "additionalProperties", element);
	put_bounds(schema, f, "minProperties", "maxProperties");
	return schema;
}

static json_t *uuid_schema(const struct field *f)
{
	json_t *schema = typed("string");

	(void)f;
	json_put_str(schema, "format", "uuid");
	return schema;
}

static json_t *bool_schema(const struct field *f)
{
	(void)f;
	return typed("boolean");
}

static json_t *any_schema(const struct field *f)
{
	(void)f;
	return json_object();
}

static json_t *(*const schemas[])(const struct field *) = {
	[FIELD_STRING] = string_schema,
	[FIELD_INT] = int_schema,
	[FIELD_BOOL] = bool_schema,
	[FIELD_OBJECT] = object_schema,
	[FIELD_STRING_ARRAY] = string_array_schema,
	[FIELD_STRING_MAP] = string_map_schema,
	[FIELD_UUID] = uuid_schema,
	[FIELD_ANY] = any_schema,
};

/* null beside what the value may be otherwise, also where a list of choices would shut it out. */
static void allow_null(json_t *schema)
{
	json_t *type = json_object_get(schema, "type"), *choices = json_array_at(schema, "enum");

	if (type)
		json_put_new(schema, "type", json_pack("[O, s]", type, "null"));
	if (choices)
		json_array_append_new(choices, json_null());
}

json_t *field_schema(const struct field *field)
{
	json_t *schema = schemas[field->type](field);

	if (field->flags & FIELD_NULLABLE)
		allow_null(schema);
	if (field->summary)
		json_put_str(schema, "description", field->summary);
	return schema;
}

json_t *fields_schema(const struct field *fields)
{
	json_t *schema = typed("object"), *properties = json_object(), *required = json_array();

	for (const struct field *f = fields; f && f->name; f++) {
		json_put_new(properties, f->name, field_schema(f));
		if (f->flags & FIELD_REQUIRED)
			json_array_append_new(required, json_string(f->name));
	}
	json_put_new(schema, "properties", properties);
	if (json_array_size(required))
		json_put_ref(schema, "required", required);
	json_decref(required);
	json_put_bool(schema, "additionalProperties", false);
	return schema;
}

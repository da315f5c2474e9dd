#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "base/schema.h"

static const char *const COLOURS[] = { "red", "green", NULL };
static const struct field INNER[] = {
	{ .name = "deep", .type = FIELD_BOOL, .flags = FIELD_REQUIRED },
	{ 0 },
};
static const struct field TABLE[] = {
	{ .name = "name",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED | FIELD_NONBLANK,
	  .min = 3,
	  .max = 9,
	  .summary = "A name" },
	{ .name = "colour", .type = FIELD_STRING, .flags = FIELD_NULLABLE, .one_of = COLOURS },
	{ .name = "port", .type = FIELD_INT, .min = 0, .max = 65535 },
	{ .name = "inner", .type = FIELD_OBJECT, .fields = INNER },
	{ .name = "id", .type = FIELD_UUID, .flags = FIELD_NULLABLE },
	{ .name = "words", .type = FIELD_STRING_ARRAY, .min = 1 },
	{ .name = "env", .type = FIELD_STRING_MAP },
	{ .name = "whatever", .type = FIELD_ANY, .flags = FIELD_NULLABLE },
	{ 0 },
};

static void expect(const char *name, const char *text)
{
	_cleanup_json_ json_t *schema = fields_schema(TABLE);
	_cleanup_free_ char *found =
		json_canonical(json_object_get(json_object_at(schema, "properties"), name));

	assert_string_equal(found, text);
}

static void a_table_is_a_strict_object(void **state)
{
	_cleanup_json_ json_t *schema = fields_schema(TABLE);
	_cleanup_free_ char *required = json_text(json_object_get(schema, "required"));

	(void)state;
	assert_string_equal(json_str(schema, "type"), "object");
	assert_string_equal(required, "[\"name\"]");
	assert_false(json_bool(schema, "additionalProperties", true));
	assert_int_equal(json_object_size(json_object_at(schema, "properties")), 8);
}

static void a_table_without_required_fields_requires_nothing(void **state)
{
	static const struct field none[] = { { 0 } };
	_cleanup_json_ json_t *schema = fields_schema(none);

	(void)state;
	assert_null(json_object_get(schema, "required"));
}

static void limits_are_told_so_that_nothing_valid_is_shut_out(void **state)
{
	(void)state;
	expect("name", "{\"description\":\"A name\",\"maxLength\":9,\"minLength\":1,"
		       "\"pattern\":\"\\\\S\",\"type\":\"string\"}");
	expect("port", "{\"maximum\":65535,\"minimum\":0,\"type\":\"integer\"}");
	expect("words", "{\"items\":{\"type\":\"string\"},\"minItems\":1,\"type\":\"array\"}");
}

static void null_is_among_the_types_and_among_the_choices(void **state)
{
	(void)state;
	expect("colour", "{\"enum\":[\"red\",\"green\",null],\"type\":[\"string\",\"null\"]}");
	expect("id", "{\"format\":\"uuid\",\"type\":[\"string\",\"null\"]}");
	expect("whatever", "{}");
}

static void tables_within_tables_are_strict_too(void **state)
{
	(void)state;
	expect("inner", "{\"additionalProperties\":false,\"properties\":{\"deep\":"
			"{\"type\":\"boolean\"}},\"required\":[\"deep\"],\"type\":\"object\"}");
	expect("env", "{\"additionalProperties\":{\"type\":\"string\"},\"type\":\"object\"}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_table_is_a_strict_object),
		cmocka_unit_test(a_table_without_required_fields_requires_nothing),
		cmocka_unit_test(limits_are_told_so_that_nothing_valid_is_shut_out),
		cmocka_unit_test(null_is_among_the_types_and_among_the_choices),
		cmocka_unit_test(tables_within_tables_are_strict_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

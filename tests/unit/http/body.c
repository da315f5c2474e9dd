#include "client.h"

static const struct field FIELDS[] = {
	{ .name = "name", .type = FIELD_STRING, .flags = FIELD_REQUIRED },
	{ .name = "count", .type = FIELD_INT },
	{ .name = "any", .type = FIELD_ANY },
	{ 0 },
};

static enum error_code parse(const char *text, size_t len)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = body_parse(text, len, FIELDS, &err);

	assert_int_equal(body == NULL, err.code != ERR_NONE);
	return err.code;
}

static enum error_code parse_text(const char *text)
{
	return parse(text, strlen(text));
}

static void a_body_that_fits_its_table_is_an_object(void **state)
{
	_cleanup_error_ struct error err = { 0 };
	const char *text = " {\"name\": \"x,[{\\\"\", \"count\": 3} ";
	_cleanup_json_ json_t *body = body_parse(text, strlen(text), FIELDS, &err);

	(void)state;
	assert_non_null(body);
	assert_string_equal(json_str(body, "name"), "x,[{\"");
	assert_int_equal(json_int(body, "count", 0), 3);
}

static void malformed_json_is_told_from_a_wrong_body(void **state)
{
	(void)state;
	assert_int_equal(parse_text("{"), ERR_INVALID_JSON);
	assert_int_equal(parse_text(""), ERR_INVALID_JSON);
	assert_int_equal(parse_text("{\"name\": \"x\"} {}"), ERR_INVALID_JSON);
	assert_int_equal(parse_text("{\"name\": \"\xff\"}"), ERR_INVALID_JSON);
	assert_int_equal(parse("{\"name\": \"a\0b\"}", 15), ERR_INVALID_JSON);
	assert_int_equal(parse_text("{\"name\": \"x\", \"name\": \"y\"}"), ERR_INVALID_JSON);
	assert_int_equal(parse_text("[]"), ERR_VALIDATION);
	assert_int_equal(parse_text("null"), ERR_VALIDATION);
	assert_int_equal(parse_text("{}"), ERR_VALIDATION);
	assert_int_equal(parse_text("{\"name\": 1}"), ERR_VALIDATION);
	assert_int_equal(parse_text("{\"name\": \"x\", \"other\": 1}"), ERR_VALIDATION);
}

static void ten_thousand_levels_are_refused(void **state)
{
	_cleanup_buf_ struct buf text = { 0 };

	(void)state;
	buf_puts(&text, "{\"name\": \"x\", \"any\": ");
	for (int i = 0; i < 10000; i++)
		buf_putc(&text, '[');
	for (int i = 0; i < 10000; i++)
		buf_putc(&text, ']');
	buf_putc(&text, '}');
	assert_int_equal(parse(text.data, text.len), ERR_INVALID_JSON);
}

/* Two bytes of text take some forty as a value; four megabytes of them would take two hundred. */
static void a_body_of_very_many_values_is_refused(void **state)
{
	_cleanup_buf_ struct buf text = { 0 };

	(void)state;
	buf_puts(&text, "{\"name\": \"x\", \"any\": [0");
	for (int i = 0; i < HTTP_MAX_BODY_VALUES - 10; i++)
		buf_puts(&text, ",0");
	buf_puts(&text, "]}");
	assert_int_equal(parse(text.data, text.len), ERR_NONE);
	buf_consume(&text, 0);
	text.len -= 2;
	buf_puts(&text, ",0,0,0,0,0,0,0,0,0,0,0]}");
	assert_int_equal(parse(text.data, text.len), ERR_VALIDATION);
}

static void a_body_longer_than_any_route_takes_is_refused(void **state)
{
	_cleanup_free_ char *text = xmalloc(HTTP_MAX_BODY + 1);

	(void)state;
	memset(text, ' ', HTTP_MAX_BODY + 1);
	assert_int_equal(parse(text, HTTP_MAX_BODY + 1), ERR_TOO_LARGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_body_that_fits_its_table_is_an_object),
		cmocka_unit_test(malformed_json_is_told_from_a_wrong_body),
		cmocka_unit_test(ten_thousand_levels_are_refused),
		cmocka_unit_test(a_body_of_very_many_values_is_refused),
		cmocka_unit_test(a_body_longer_than_any_route_takes_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

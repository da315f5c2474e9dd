#include "tempdir.h"
#include "base/json.h"
#include "base/text.h"

static const char *const drivers[] = { "local", "ssh", NULL };

static const struct field config_fields[] = {
	{ .name = "host", .type = FIELD_STRING, .flags = FIELD_REQUIRED | FIELD_NONBLANK },
	{ .name = "port", .type = FIELD_INT, .min = 1, .max = 65535 },
	{ 0 },
};

static const struct field fields[] = {
	{ .name = "name",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED | FIELD_TRIM,
	  .min = 1,
	  .max = 8 },
	{ .name = "driver", .type = FIELD_STRING, .one_of = drivers },
	{ .name = "config", .type = FIELD_OBJECT, .fields = config_fields },
	{ .name = "metadata", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE },
	{ .name = "args", .type = FIELD_STRING_ARRAY, .flags = FIELD_NONBLANK, .min = 1 },
	{ .name = "env", .type = FIELD_STRING_MAP, .max = 2 },
	{ .name = "id", .type = FIELD_UUID },
	{ .name = "offset", .type = FIELD_INT },
	{ .name = "below", .type = FIELD_INT, .min = -5 },
	{ .name = "on", .type = FIELD_BOOL },
	{ .name = "any", .type = FIELD_ANY },
	{ 0 },
};

static int check(const char *text, struct error *err)
{
	_cleanup_json_ json_t *body = json_parse(text, strlen(text), NULL);

	assert_non_null(body);
	return fields_check(fields, body, err);
}

static void assert_good(const char *text)
{
	_cleanup_error_ struct error err = { 0 };
	int rc = check(text, &err);

	assert_string_equal(err.message, "");
	assert_int_equal(rc, 0);
}

/* The text breaks one rule, and `details` is what is said about it, its code apart. */
static void assert_issue(const char *text, const char *details)
{
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(check(text, &err), -1);
	assert_int_equal(err.code, ERR_VALIDATION);

	_cleanup_json_ json_t *issues = json_parse(err.details, strlen(err.details), NULL);

	for (size_t i = 0; i < json_array_size(issues); i++)
		json_object_del(json_array_get(issues, i), "code");

	_cleanup_free_ char *without_code = json_text(issues);

	assert_string_equal(without_code, details);
}

static void assert_code(const char *text, const char *code)
{
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(check(text, &err), -1);

	_cleanup_json_ json_t *issues = json_parse(err.details, strlen(err.details), NULL);

	assert_string_equal(json_str(json_array_get(issues, 0), "code"), code);
}

static void each_rule_has_a_code_for_programs(void **state)
{
	(void)state;
	assert_code("{}", "required");
	assert_code("{\"name\":1}", "invalid_type");
	assert_code("{\"name\":null}", "invalid_type");
	assert_code("{\"name\":\"123456789\"}", "too_big");
	assert_code("{\"name\":\"  \"}", "too_small");
	assert_code("{\"name\":\"a\",\"driver\":\"docker\"}", "invalid_value");
	assert_code("{\"name\":\"a\",\"config\":{\"host\":\"h\",\"port\":0}}", "too_small");
	assert_code("{\"name\":\"a\",\"mystery\":1}", "unknown_key");
}

static void a_body_that_fits_passes(void **state)
{
	(void)state;
	assert_good("{\"name\":\"a\"}");
	assert_good(
		"{\"name\":\"  12345678  "
		"\",\"driver\":\"ssh\",\"config\":{\"host\":\"h\",\"port\":22},"
		"\"metadata\":null,\"args\":[\"x\"],\"env\":{\"A\":\"\"},"
		"\"id\":\"00000000-0000-4000-8000-00000000ABCD\",\"offset\":-9223372036854775808,"
		"\"below\":0,\"on\":false,\"any\":[1]}");
	assert_good("{\"name\":\"a\",\"metadata\":{\"free\":{\"form\":1}}}");
}

static void each_rule_says_what_is_wrong_and_where(void **state)
{
	(void)state;
	assert_issue("{}", "[{\"path\":[\"name\"],\"message\":\"is required\"}]");
	assert_issue("{\"name\":null}", "[{\"path\":[\"name\"],\"message\":\"must not be null\"}]");
	assert_issue("{\"name\":1}", "[{\"path\":[\"name\"],\"message\":\"must be a string\"}]");
	assert_issue("{\"name\":\"  \"}",
		     "[{\"path\":[\"name\"],\"message\":\"must have at least 1 byte\"}]");
	assert_issue("{\"name\":\"123456789\"}",
		     "[{\"path\":[\"name\"],\"message\":\"must have at most 8 bytes\"}]");
	assert_issue("{\"name\":\"a\",\"driver\":\"docker\"}",
		     "[{\"path\":[\"driver\"],\"message\":\"must be one of: local, ssh\"}]");
	assert_issue("{\"name\":\"a\",\"config\":[]}",
		     "[{\"path\":[\"config\"],\"message\":\"must be an object\"}]");
	assert_issue("{\"name\":\"a\",\"config\":{\"host\":\" \"}}",
		     "[{\"path\":[\"config\",\"host\"],\"message\":\"must not be blank\"}]");
	assert_issue(
		"{\"name\":\"a\",\"config\":{\"host\":\"h\",\"port\":0}}",
		"[{\"path\":[\"config\",\"port\"],\"message\":\"must be between 1 and 65535\"}]");
	assert_issue("{\"name\":\"a\",\"args\":[]}",
		     "[{\"path\":[\"args\"],\"message\":\"must have at least 1 element\"}]");
	assert_issue("{\"name\":\"a\",\"args\":[\"x\",2]}",
		     "[{\"path\":[\"args\",1],\"message\":\"must be a string\"}]");
	assert_issue("{\"name\":\"a\",\"args\":[\"\"]}",
		     "[{\"path\":[\"args\",0],\"message\":\"must not be blank\"}]");
	assert_issue("{\"name\":\"a\",\"env\":{\"A\":1}}",
		     "[{\"path\":[\"env\",\"A\"],\"message\":\"must be a string\"}]");
	assert_issue("{\"name\":\"a\",\"env\":{\"A\":\"\",\"B\":\"\",\"C\":\"\"}}",
		     "[{\"path\":[\"env\"],\"message\":\"must have at most 2 entries\"}]");
	assert_issue("{\"name\":\"a\",\"id\":\"x\"}",
		     "[{\"path\":[\"id\"],\"message\":\"must be a UUID\"}]");
	assert_issue("{\"name\":\"a\",\"id\":7}",
		     "[{\"path\":[\"id\"],\"message\":\"must be a UUID\"}]");
	assert_issue("{\"name\":\"a\",\"offset\":1.5}",
		     "[{\"path\":[\"offset\"],\"message\":\"must be an integer\"}]");
	assert_issue("{\"name\":\"a\",\"below\":1}",
		     "[{\"path\":[\"below\"],\"message\":\"must be between -5 and 0\"}]");
	assert_issue("{\"name\":\"a\",\"on\":1}",
		     "[{\"path\":[\"on\"],\"message\":\"must be a boolean\"}]");
	assert_issue("{\"name\":\"a\",\"any\":null}",
		     "[{\"path\":[\"any\"],\"message\":\"must not be null\"}]");
	assert_issue("[]", "[{\"path\":[],\"message\":\"the body must be an object\"}]");
}

static void unknown_keys_are_refused_at_every_level(void **state)
{
	(void)state;
	assert_issue("{\"name\":\"a\",\"nmae\":1}",
		     "[{\"path\":[\"nmae\"],\"message\":\"is not a known field\"}]");
	assert_issue("{\"name\":\"a\",\"config\":{\"host\":\"h\",\"x\":1}}",
		     "[{\"path\":[\"config\",\"x\"],\"message\":\"is not a known field\"}]");
}

static void all_issues_are_told_and_the_first_is_the_message(void **state)
{
	(void)state;
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(check("{\"config\":{},\"on\":\"yes\",\"x\":1}", &err), -1);
	assert_string_equal(err.message, "Validation error: name is required (and 3 more)");

	_cleanup_json_ json_t *list = json_parse(err.details, strlen(err.details), NULL);

	assert_int_equal(json_array_size(list), 4);
	assert_int_equal(check("{\"name\":\"a\",\"config\":{\"host\":3}}", &err), -1);
	assert_string_equal(err.message, "Validation error: config.host must be a string");
	assert_int_equal(check("{\"name\":\"a\",\"args\":[3]}", &err), -1);
	assert_string_equal(err.message, "Validation error: args[0] must be a string");
}

static void values_are_never_repeated(void **state)
{
	(void)state;
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(
		check("{\"name\":\"sk-canary-123\",\"driver\":\"sk-canary\",\"id\":\"canary\"}",
		      &err),
		-1);
	assert_null(strstr(err.message, "canary"));
	assert_null(strstr(err.details, "canary"));
}

static void a_flood_of_issues_is_cut(void **state)
{
	(void)state;
	_cleanup_error_ struct error err = { 0 };
	_cleanup_buf_ struct buf b = { 0 };

	buf_puts(&b, "{\"name\":\"a\"");
	for (int i = 0; i < 5000; i++) {
		buf_printf(&b, ",\"%d", i);
		for (int j = 0; j < 40; j++)
			buf_puts(&b, "\xe2\x82\xac");
		buf_puts(&b, "\":1");
	}
	buf_puts(&b, "}");
	assert_int_equal(check(buf_str(&b), &err), -1);
	assert_true(strlen(err.details) < 8192);

	_cleanup_json_ json_t *list = json_parse(err.details, strlen(err.details), NULL);

	assert_int_equal(json_array_size(list), FIELDS_MAX_ISSUES);
	/* Wherever a long key is cut, what remains of it is shown. */
	for (size_t i = 0; i < json_array_size(list); i++)
		assert_int_equal(json_array_size(json_array_at(json_array_get(list, i), "path")),
				 1);
	assert_true(str_ends(err.message, "(and 4999 more)"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_body_that_fits_passes),
		cmocka_unit_test(each_rule_says_what_is_wrong_and_where),
		cmocka_unit_test(each_rule_has_a_code_for_programs),
		cmocka_unit_test(unknown_keys_are_refused_at_every_level),
		cmocka_unit_test(all_issues_are_told_and_the_first_is_the_message),
		cmocka_unit_test(values_are_never_repeated),
		cmocka_unit_test(a_flood_of_issues_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

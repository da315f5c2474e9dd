#include "tempdir.h"
#include "base/json.h"
#include "base/text.h"

static json_t *parse(const char *text)
{
	return json_parse(text, strlen(text), NULL);
}

static void assert_refused(const char *text, size_t len, const char *why)
{
	_cleanup_error_ struct error err = { 0 };

	assert_null(json_parse(text, len, &err));
	assert_int_equal(err.code, ERR_INVALID_JSON);
	assert_non_null(strstr(err.message, why));
}

static void any_value_may_be_the_root(void **state)
{
	(void)state;
	static const char *const good[] = { "null", "true", "7", "\"s\"", "[]", "{}", " [1, 2] " };

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		_cleanup_json_ json_t *v = parse(good[i]);

		assert_non_null(v);
	}
}

static void hostile_text_is_refused_with_its_place(void **state)
{
	(void)state;
	assert_refused("", 0, "ends too early");
	assert_refused("{\"a\":", 5, "ends too early");
	assert_refused("{} x", 4, "something follows");
	assert_refused("{\"a\":1,\"a\":2}", 13, "duplicate key");
	assert_refused("\"\\u0000\"", 8, "NUL");
	assert_refused("{\"a\\u0000b\":1}", 14, "NUL");
	assert_refused("\"\xff\"", 3, "UTF-8");
	assert_refused("\"\xed\xa0\x80\"", 5, "UTF-8");
	assert_refused("99999999999999999999", 20, "out of range");
	assert_refused("1e999", 5, "out of range");
	assert_refused("[1]\0[2]", 7, "");
	assert_refused("{'a':1}", 7, "not valid JSON");
	assert_refused("[1,]", 4, "not valid JSON");
	assert_refused("NaN", 3, "not valid JSON");
	assert_refused("[1,\n 2,\n  oops]", 15, "line 3");
}

/* Reads it as json_parse would if all of it were left to jansson. */
static json_t *by_jansson(const char *text, size_t len)
{
	return json_loadb(text, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
}

static void expect_same(const char *text, size_t len)
{
	_cleanup_json_ json_t *ours = json_parse(text, len, NULL), *theirs = by_jansson(text, len);

	if ((ours && theirs && !json_equal(ours, theirs)) || !ours != !theirs)
		fail_msg("read differently: %.*s", (int)len, text);
}

/* Every text that comes of a good one by one changed, missing or doubled byte. */
static void plain_text_is_read_as_jansson_reads_it(void **state)
{
	static const char *const good[] = {
		"{\"a\": [1, -20, 0, true, false, null], \"b\": {\"c\": \"\", \"d\": {}}, \"e\": "
		"[]}",
		" [ \"grüße\" , \"a\\nb\" , \"\\u00e9\" , 1.5 , 1e3 , -0 , \"\x7f\" ] ",
		"[123456789012345678,1234567890123456789,9223372036854775807,9223372036854775808]",
		"{\"long enough for a word\":\"and so is this, with a \\\"quote\\\" in it\"}",
	};
	static const char bytes[] = "{}[]\",:\\ \n\t0129-.eEtnax\x01\x1f\x7f\x80\xc3\xff";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		size_t len = strlen(good[i]);

		expect_same(good[i], len);
		for (size_t at = 0; at < len; at++) {
			_cleanup_free_ char *text = xstrndup(good[i], len);
			_cleanup_buf_ struct buf doubled = { 0 };

			expect_same(text, at);
			for (size_t b = 0; b < sizeof(bytes); b++) {
				text[at] = bytes[b];
				expect_same(text, len);
			}
			buf_append(&doubled, good[i], at + 1);
			buf_puts(&doubled, good[i] + at);
			expect_same(doubled.data, doubled.len);
			memmove(text + at, good[i] + at + 1, len - at);
			expect_same(text, len - 1);
		}
	}
}

static void strings_of_every_length_come_back(void **state)
{
	static const char special[] = "\"\\\n\x01";
	char text[64];

	(void)state;
	for (size_t len = 0; len < 40; len++) {
		for (size_t at = 0; at <= len; at++) {
			for (size_t c = 0; c < sizeof(special) - 1; c++) {
				memset(text, 'x', len);
				text[len] = '\0';
				if (at < len)
					text[at] = special[c];

				_cleanup_json_ json_t *value = json_string(text);
				_cleanup_free_ char *written = json_text(value);
				_cleanup_json_ json_t *again = parse(written);

				assert_string_equal(json_string_value(again), text);
			}
		}
	}
}

static void the_message_never_repeats_the_text(void **state)
{
	(void)state;
	static const char text[] = "{\"apiKey\": \"sk-canary-123\" sk-canary-456}";
	_cleanup_error_ struct error err = { 0 };

	assert_null(json_parse(text, strlen(text), &err));
	assert_null(strstr(err.message, "canary"));
	assert_null(strstr(err.message, "apiKey"));
}

static json_t *nested(int depth, struct error *err)
{
	_cleanup_buf_ struct buf b = { 0 };

	for (int i = 0; i < depth; i++)
		buf_puts(&b, i % 2 ? "{\"k\":" : "[");
	buf_putc(&b, '0');
	for (int i = depth; i-- > 0;)
		buf_putc(&b, i % 2 ? '}' : ']');
	return json_parse(b.data, b.len, err);
}

static void nesting_ends_at_the_limit(void **state)
{
	(void)state;
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *deep = nested(JSON_MAX_DEPTH, NULL);

	assert_non_null(deep);
	assert_null(nested(JSON_MAX_DEPTH + 1, &err));
	assert_non_null(strstr(err.message, "too deep"));
	assert_null(nested(1000000, &err));
	assert_non_null(strstr(err.message, "too deep"));
}

static void brackets_in_strings_do_not_count(void **state)
{
	(void)state;
	_cleanup_buf_ struct buf b = { 0 };

	buf_puts(&b, "{\"a\\\"[\":\"");
	for (int i = 0; i < 1000; i++)
		buf_puts(&b, "[{\\\\\\\"");
	buf_puts(&b, "\"}");

	_cleanup_json_ json_t *v = json_parse(b.data, b.len, NULL);

	assert_non_null(v);
}

static void a_small_text_cannot_become_a_large_heap(void **state)
{
	(void)state;
	_cleanup_buf_ struct buf b = { 0 };

	buf_putc(&b, '[');
	for (int i = 0; i < JSON_MAX_VALUES; i++)
		buf_puts(&b, "{},");
	buf_puts(&b, "1]");
	assert_refused(b.data, b.len, "too many values");
}

static void absent_null_and_value_are_three_things(void **state)
{
	(void)state;
	_cleanup_json_ json_t *v = parse("{\"n\":null,\"s\":\"x\",\"f\":false}");

	assert_int_equal(json_state(v, "missing"), JSON_IS_ABSENT);
	assert_int_equal(json_state(v, "n"), JSON_IS_NULL);
	assert_int_equal(json_state(v, "s"), JSON_IS_VALUE);
	assert_int_equal(json_state(v, "f"), JSON_IS_VALUE);
	assert_int_equal(json_state(NULL, "s"), JSON_IS_ABSENT);
}

static void accessors_take_only_their_own_type(void **state)
{
	(void)state;
	_cleanup_json_ json_t *v =
		parse("{\"s\":\"x\",\"blank\":\" \\t\",\"i\":5,\"r\":5.5,\"b\":true,"
		      "\"n\":null,\"o\":{},\"a\":[]}");

	assert_string_equal(json_str(v, "s"), "x");
	assert_null(json_str(v, "i"));
	assert_null(json_str(v, "n"));
	assert_string_equal(json_str(v, "blank"), " \t");
	assert_null(json_str_nonblank(v, "blank"));
	assert_string_equal(json_str_nonblank(v, "s"), "x");
	assert_int_equal(json_int(v, "i", -1), 5);
	assert_int_equal(json_int(v, "r", -1), -1);
	assert_int_equal(json_int(v, "s", -1), -1);
	assert_int_equal(json_int(v, "n", -1), -1);
	assert_true(json_bool(v, "b", false));
	assert_true(json_bool(v, "i", true));
	assert_non_null(json_object_at(v, "o"));
	assert_null(json_object_at(v, "a"));
	assert_non_null(json_array_at(v, "a"));
	assert_null(json_array_at(v, "o"));
	assert_null(json_str(NULL, "s"));
}

static void what_is_built_is_written_in_order(void **state)
{
	(void)state;
	_cleanup_json_ json_t *v = json_object(), *shared = json_integer(1);

	json_put_str(v, "z", "\xc3\xa4\"\n");
	json_put_str(v, "none", NULL);
	json_put_int(v, "a", INT64_MIN);
	json_put_bool(v, "b", true);
	json_put_time(v, "t", 1794773236123);
	json_put_time(v, "never", 0);
	json_put_new(v, "o", json_object());
	json_put_new(v, "gone", NULL);
	json_put_ref(v, "ref", shared);
	json_put_ref(v, "noref", NULL);

	_cleanup_free_ char *text = json_text(v), *none = json_text(NULL);

	assert_string_equal(text,
			    "{\"z\":\"\xc3\xa4\\\"\\n\",\"none\":null,\"a\":-9223372036854775808,"
			    "\"b\":true,\"t\":\"2026-11-15T20:07:16.123Z\",\"never\":null,\"o\":{},"
			    "\"gone\":null,\"ref\":1,\"noref\":null}");
	assert_string_equal(none, "null");
}

static void what_is_written_is_what_jansson_would_write(void **state)
{
	(void)state;
	static const char *const texts[] = {
		"null",
		"\"\"",
		"[]",
		"[{}]",
		"[0,-1,10,9223372036854775807,-9223372036854775808]",
		"[1.5,-0.0,1e300,0.1,3.0]",
		"[true,false,null,[[[]]]]",
		"{\"a\\\"b\":{\"c\":[{\"d\":\"\\\\\"}]},\"\":\"/\"}",
		"\"\\u0001\\u001f\\b\\f\\n\\r\\t\\\"\\\\\\/ \\u007f\\u00e4\\u20ac\\ud83d\\ude00\"",
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		_cleanup_json_ json_t *value = parse(texts[i]);
		_cleanup_free_ char *ours = json_text(value);
		_cleanup_free_ char *theirs = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

		assert_non_null(value);
		assert_string_equal(ours, theirs);
	}
}

static void text_that_is_no_utf8_is_mended_not_lost(void **state)
{
	(void)state;
	_cleanup_json_ json_t *v = json_object();
	char *strings[] = { (char *)"ok", (char *)"\xff", NULL };

	json_put_str(v, "file",
		     "a\xff"
		     "b");
	json_put_int(v, "k\xff", 1);
	json_put_new(v, "list", json_from_strv(strings));

	_cleanup_free_ char *text = json_text(v);

	assert_string_equal(text, "{\"file\":\"a\xef\xbf\xbd"
				  "b\",\"k\xef\xbf\xbd\":1,\"list\":[\"ok\",\"\xef\xbf\xbd\"]}");
}

static void equal_values_have_one_canonical_text(void **state)
{
	(void)state;
	_cleanup_json_ json_t *a = parse("{\"b\":{\"y\":1,\"x\":[2]},\"a\":null}");
	_cleanup_json_ json_t *b = parse(" {\"a\":null, \"b\":{\"x\":[2],\"y\":1}} ");
	_cleanup_free_ char *one = json_canonical(a), *two = json_canonical(b);

	assert_string_equal(one, two);
	assert_string_equal(one, "{\"a\":null,\"b\":{\"x\":[2],\"y\":1}}");
}

static void arrays_of_strings_become_vectors_and_back(void **state)
{
	(void)state;
	_cleanup_json_ json_t *array = parse("[\"a\",\"b\"]"), *empty = parse("[]");
	_cleanup_json_ json_t *mixed = parse("[\"a\",1]"), *none = json_from_strv(NULL);
	_cleanup_strv_ char **v = json_to_strv(array), **e = json_to_strv(empty);
	_cleanup_json_ json_t *back = json_from_strv(v);

	assert_int_equal(strv_len(v), 2);
	assert_true(json_equal(array, back));
	assert_non_null(e);
	assert_null(e[0]);
	assert_null(json_to_strv(mixed));
	assert_null(json_to_strv(NULL));
	assert_true(json_equal(none, empty));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_value_may_be_the_root),
		cmocka_unit_test(hostile_text_is_refused_with_its_place),
		cmocka_unit_test(plain_text_is_read_as_jansson_reads_it),
		cmocka_unit_test(strings_of_every_length_come_back),
		cmocka_unit_test(the_message_never_repeats_the_text),
		cmocka_unit_test(nesting_ends_at_the_limit),
		cmocka_unit_test(brackets_in_strings_do_not_count),
		cmocka_unit_test(a_small_text_cannot_become_a_large_heap),
		cmocka_unit_test(absent_null_and_value_are_three_things),
		cmocka_unit_test(accessors_take_only_their_own_type),
		cmocka_unit_test(what_is_built_is_written_in_order),
		cmocka_unit_test(what_is_written_is_what_jansson_would_write),
		cmocka_unit_test(text_that_is_no_utf8_is_mended_not_lost),
		cmocka_unit_test(equal_values_have_one_canonical_text),
		cmocka_unit_test(arrays_of_strings_become_vectors_and_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

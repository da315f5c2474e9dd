#include "tempdir.h"
#include <time.h>
#include "base/sha256.h"
#include "base/id.h"
#include "base/text.h"

static void trimming_follows_javascript(void **state)
{
	(void)state;
	_cleanup_free_ char *a = str_trimmed(" \t\xc2\xa0 a b \xe3\x80\x80\xef\xbb\xbf\n");
	_cleanup_free_ char *b = str_trimmed("");
	/* U+200B is no white space there, and broken bytes are text. */
	_cleanup_free_ char *c = str_trimmed(" \xe2\x80\x8b ");
	_cleanup_free_ char *d = str_trimmed(" \xff ");

	assert_string_equal(a, "a b");
	assert_string_equal(b, "");
	assert_string_equal(c, "\xe2\x80\x8b");
	assert_string_equal(d, "\xff");
	assert_true(str_blank(NULL));
	assert_true(str_blank(""));
	assert_true(str_blank("\xe2\x80\xa8\xe2\x80\x8a\v"));
	assert_false(str_blank(" . "));
}

static void prefixes_and_suffixes_are_found(void **state)
{
	(void)state;
	assert_true(str_starts("sandbox://x", "sandbox://"));
	assert_false(str_starts("sand", "sandbox"));
	assert_false(str_starts(NULL, "x"));
	assert_true(str_ends("a.json", ".json"));
	assert_false(str_ends("json", ".json"));
	assert_true(str_equal(NULL, NULL));
	assert_false(str_equal("", NULL));
	assert_true(str_equal("a", "a"));
}

static void only_well_formed_utf8_is_valid(void **state)
{
	(void)state;
	static const char *const good[] = { "",
					    "abc",
					    "\xc3\xa4",
					    "\xe2\x82\xac",
					    "\xed\x9f\xbf",
					    "\xee\x80\x80",
					    "\xf0\x9f\x9a\xa2",
					    "\xf4\x8f\xbf\xbf" };
	/* overlong, surrogate, past the end, lone continuation, cut, never legal */
	static const char *const bad[] = { "\xc0\x80",
					   "\xc1\xbf",
					   "\xe0\x9f\xbf",
					   "\xed\xa0\x80",
					   "\xf0\x8f\xbf\xbf",
					   "\xf4\x90\x80\x80",
					   "\x80",
					   "\xe2\x82",
					   "\xf5\x80\x80\x80",
					   "a\xff",
					   "\xc3(" };

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(utf8_valid(good[i], strlen(good[i])));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(utf8_valid(bad[i], strlen(bad[i])));
}

static void a_character_cut_by_a_chunk_is_recognised(void **state)
{
	(void)state;
	static const char ship[] = "ab\xf0\x9f\x9a\xa2";

	assert_int_equal(utf8_partial_tail(ship, 2), 0);
	assert_int_equal(utf8_partial_tail(ship, 3), 1);
	assert_int_equal(utf8_partial_tail(ship, 4), 2);
	assert_int_equal(utf8_partial_tail(ship, 5), 3);
	assert_int_equal(utf8_partial_tail(ship, 6), 0);
	assert_int_equal(utf8_partial_tail("", 0), 0);
	/* Bytes that can never become a character are not worth waiting for. */
	assert_int_equal(utf8_partial_tail("\x80\x80\x80\x80", 4), 0);
	assert_int_equal(utf8_partial_tail("\xff", 1), 0);
	assert_int_equal(utf8_partial_tail("\xed\xa0", 2), 0);
}

static void broken_utf8_is_mended_and_the_rest_kept(void **state)
{
	(void)state;
	_cleanup_buf_ struct buf b = { 0 };

	utf8_repair(&b, "a\xff\xc3\xa4\xe2\x82", 6);
	assert_string_equal(buf_str(&b), "a\xef\xbf\xbd\xc3\xa4\xef\xbf\xbd\xef\xbf\xbd");
	assert_true(utf8_valid(b.data, b.len));
}

static void numbers_are_whole_decimals_in_range(void **state)
{
	(void)state;
	static const char *const bad[] = { "",
					   "-",
					   "+1",
					   " 1",
					   "1 ",
					   "1x",
					   "0x10",
					   "1.0",
					   "9223372036854775808",
					   "-9223372036854775809",
					   "99999999999999999999" };
	int64_t v = 0;

	assert_true(parse_i64("-9223372036854775808", INT64_MIN, INT64_MAX, &v));
	assert_true(v == INT64_MIN);
	assert_true(parse_i64("9223372036854775807", INT64_MIN, INT64_MAX, &v));
	assert_true(v == INT64_MAX);
	assert_true(parse_i64("007", 0, 7, &v));
	assert_int_equal(v, 7);
	assert_false(parse_i64("8", 0, 7, &v));
	assert_false(parse_i64("-1", 0, 7, &v));
	assert_false(parse_i64(NULL, 0, 7, &v));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(parse_i64(bad[i], INT64_MIN, INT64_MAX, &v));
	assert_int_equal(v, 7);
}

static void durations_have_units(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int64_t ms;
	} good[] = { { "90", 90000 },    { "90s", 90000 },   { "10m", 600000 }, { "2h", 7200000 },
		     { "1d", 86400000 }, { "1500ms", 1500 }, { "0", 0 } };
	static const char *const bad[] = { "",
					   "s",
					   "1w",
					   "-1s",
					   "1.5s",
					   "1 s",
					   "1S",
					   "9223372036854775807",
					   "99999999999999999999999999s" };
	int64_t ms;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_true(parse_duration_ms(good[i].text, &ms));
		assert_int_equal(ms, good[i].ms);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(parse_duration_ms(bad[i], &ms));
	assert_false(parse_duration_ms(NULL, &ms));
}

static void durations_are_written_for_people(void **state)
{
	(void)state;
	static const struct {
		int64_t ms;
		const char *text;
	} cases[] = { { 12, "12 ms" },        { 3456, "3.4 s" },       { 59999, "59.9 s" },
		      { 125000, "2 m 05 s" }, { 3720000, "1 h 02 m" }, { 90000000, "1 d 01 h" },
		      { -5, "0 ms" } };
	char text[32];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		format_duration(cases[i].ms, text, sizeof(text));
		assert_string_equal(text, cases[i].text);
	}
}

static void base64_comes_back_byte_for_byte(void **state)
{
	(void)state;
	unsigned char data[67];

	random_bytes(data, sizeof(data));
	for (size_t len = 0; len <= sizeof(data); len++) {
		_cleanup_buf_ struct buf text = { 0 }, back = { 0 };

		base64_encode(&text, data, len);
		assert_int_equal(text.len, (len + 2) / 3 * 4);
		assert_true(base64_decode(&back, buf_str(&text), text.len));
		assert_int_equal(back.len, len);
		assert_memory_equal(buf_str(&back), data, len);
	}

	_cleanup_buf_ struct buf known = { 0 };

	base64_encode(&known, "foob", 4);
	assert_string_equal(buf_str(&known), "Zm9vYg==");
}

static void base64_has_one_spelling_only(void **state)
{
	(void)state;
	static const char *const bad[] = { "Zg",   "Zg=",    "Zh==", "Zm9=", "Zg==Zg==", "====",
					   "Z===", "Zm9v\n", "Zm 9", "Zm9-", "=m9v",     "Zm=v" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_buf_ struct buf b = { 0 };

		buf_puts(&b, "kept");
		assert_false(base64_decode(&b, bad[i], strlen(bad[i])));
		assert_string_equal(buf_str(&b), "kept");
	}

	_cleanup_buf_ struct buf small = { .max = 3 };

	assert_false(base64_decode(&small, "Zm9vYg==", 8));
}

static void hex_wants_exactly_its_digits(void **state)
{
	(void)state;
	unsigned char b[3];
	char text[7];

	assert_true(hex_decode(b, "00fFa5", 3));
	hex_encode(text, b, 3);
	assert_string_equal(text, "00ffa5");
	assert_false(hex_decode(b, "00ffa", 3));
	assert_false(hex_decode(b, "00ffa50", 3));
	assert_false(hex_decode(b, "00ffg5", 3));
	assert_false(hex_decode(b, "", 3));
}

static void ids_are_random_and_in_the_order_of_their_times(void **state)
{
	(void)state;
	char a[ID_SIZE], b[ID_SIZE];

	id_new(a);
	usleep(2000);
	id_new(b);
	assert_true(id_is_valid(a));
	assert_int_equal(a[14], '7');
	assert_true(strcmp(a, b) < 0);
	assert_string_not_equal(a + 19, b + 19);
	assert_non_null(strchr("89ab", a[19]));
	assert_string_not_equal(a, b);
	assert_true(id_is_valid("00000000-0000-0000-0000-00000000ABCD"));
	assert_false(id_is_valid("00000000-0000-0000-0000-00000000ABCDE"));
	assert_false(id_is_valid("00000000-0000-0000-0000-00000000ABC"));
	assert_false(id_is_valid("00000000x0000-0000-0000-00000000ABCD"));
	assert_false(id_is_valid("g0000000-0000-0000-0000-00000000ABCD"));
	assert_false(id_is_valid(""));
	assert_false(id_is_valid(NULL));
}

static int64_t wall_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void ids_of_one_millisecond_are_in_the_order_in_which_they_were_made(void **state)
{
	(void)state;
	char before[ID_SIZE], id[ID_SIZE];

	id_new(before);
	for (int i = 0; i < 1000; i++) {
		int64_t from = wall_us();

		while (wall_us() < from + 2)
			;
		id_new(id);
		assert_true(strcmp(before, id) < 0);
		id_copy(before, id);
	}
}

static void copying_an_id_never_overruns(void **state)
{
	(void)state;
	char out[ID_SIZE];

	id_copy(out, "0123456789012345678901234567890123456789");
	assert_string_equal(out, "012345678901234567890123456789012345");
	id_copy(out, NULL);
	assert_false(id_is_set(out));
	id_copy(out, "");
	assert_string_equal(out, "");
}

static void the_boot_id_is_stable_within_a_boot(void **state)
{
	(void)state;
	char a[ID_SIZE], b[ID_SIZE];

	boot_id(a);
	boot_id(b);
	assert_string_equal(a, b);
	assert_true(id_is_valid(a));
}

static void sha256_agrees_with_the_standard(void **state)
{
	(void)state;
	char hex[SHA256_HEX_SIZE];

	sha256_hex("abc", 3, hex);
	assert_string_equal(hex,
			    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	sha256_hex("", 0, hex);
	assert_string_equal(hex,
			    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trimming_follows_javascript),
		cmocka_unit_test(prefixes_and_suffixes_are_found),
		cmocka_unit_test(only_well_formed_utf8_is_valid),
		cmocka_unit_test(a_character_cut_by_a_chunk_is_recognised),
		cmocka_unit_test(broken_utf8_is_mended_and_the_rest_kept),
		cmocka_unit_test(numbers_are_whole_decimals_in_range),
		cmocka_unit_test(durations_have_units),
		cmocka_unit_test(durations_are_written_for_people),
		cmocka_unit_test(base64_comes_back_byte_for_byte),
		cmocka_unit_test(base64_has_one_spelling_only),
		cmocka_unit_test(hex_wants_exactly_its_digits),
		cmocka_unit_test(ids_are_random_and_in_the_order_of_their_times),
		cmocka_unit_test(ids_of_one_millisecond_are_in_the_order_in_which_they_were_made),
		cmocka_unit_test(copying_an_id_never_overruns),
		cmocka_unit_test(the_boot_id_is_stable_within_a_boot),
		cmocka_unit_test(sha256_agrees_with_the_standard),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

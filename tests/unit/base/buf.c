#include "tempdir.h"
#include "base/buf.h"

static void an_empty_buffer_reads_as_empty_text(void **state)
{
	(void)state;
	_cleanup_buf_ struct buf b = { 0 };

	assert_string_equal(buf_str(&b), "");
	_cleanup_free_ char *text = buf_steal(&b);
	assert_string_equal(text, "");
}

static void what_is_appended_stays_terminated(void **state)
{
	(void)state;
	_cleanup_buf_ struct buf b = { 0 };

	for (int i = 0; i < 1000; i++) {
		buf_putc(&b, (char)('a' + i % 26));
		assert_int_equal(strlen(b.data), b.len);
	}
	buf_printf(&b, "<%s:%d>", "n", 42);
	assert_int_equal(b.len, 1006);
	assert_string_equal(b.data + 1000, "<n:42>");
}

static void formatted_text_longer_than_the_room_arrives_whole(void **state)
{
	(void)state;
	_cleanup_buf_ struct buf b = { 0 };

	buf_printf(&b, "%0500d", 7);
	assert_int_equal(b.len, 500);
	assert_int_equal(b.data[499], '7');
	assert_int_equal(strlen(b.data), 500);
}

static void a_bounded_buffer_drops_whole_what_does_not_fit(void **state)
{
	(void)state;
	_cleanup_buf_ struct buf b = { .max = 8 };

	buf_puts(&b, "12345");
	assert_false(b.overflow);
	buf_puts(&b, "6789");
	assert_true(b.overflow);
	assert_string_equal(buf_str(&b), "12345");
	buf_printf(&b, "%s", "abcdefgh");
	assert_string_equal(buf_str(&b), "12345");
	buf_puts(&b, "678");
	assert_string_equal(buf_str(&b), "12345678");
	buf_reset(&b);
	assert_false(b.overflow);
	assert_string_equal(buf_str(&b), "");
}

static void consuming_moves_the_rest_to_the_front(void **state)
{
	(void)state;
	_cleanup_buf_ struct buf b = { 0 };

	buf_puts(&b, "frame1frame2");
	buf_consume(&b, 6);
	assert_string_equal(buf_str(&b), "frame2");
	assert_int_equal(b.len, 6);
	buf_consume(&b, 6);
	assert_string_equal(buf_str(&b), "");
	buf_consume(&b, 0);
}

static void bytes_are_kept_as_they_are(void **state)
{
	(void)state;
	_cleanup_buf_ struct buf b = { 0 };

	buf_append(&b, "a\0b", 3);
	buf_append(&b, NULL, 0);
	assert_int_equal(b.len, 3);
	assert_memory_equal(b.data, "a\0b", 4);
}

static void reserving_gives_the_room_even_above_the_limit(void **state)
{
	(void)state;
	_cleanup_buf_ struct buf b = { .max = 4 };

	buf_reserve(&b, 100);
	assert_true(b.cap > 100);
	memset(b.data, 'x', 100);
	assert_false(b.overflow);
}

static void a_string_vector_grows_by_pushing(void **state)
{
	(void)state;
	_cleanup_strv_ char **v = NULL;

	assert_int_equal(strv_len(v), 0);
	strv_push(&v, xstrdup("a"));
	strv_push(&v, xasprintf("%d", 2));
	assert_int_equal(strv_len(v), 2);

	_cleanup_strv_ char **copy = strv_copy(v);

	assert_string_equal(copy[1], "2");
	assert_ptr_not_equal(copy[1], v[1]);
	assert_null(copy[2]);
	assert_null(strv_copy(NULL));
	assert_null(xstrdup(NULL));
}

static void stealing_leaves_nothing_behind(void **state)
{
	(void)state;
	char *text = xstrndup("hello", 2);
	_cleanup_free_ char *taken = steal(text);

	assert_null(text);
	assert_string_equal(taken, "he");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_buffer_reads_as_empty_text),
		cmocka_unit_test(what_is_appended_stays_terminated),
		cmocka_unit_test(formatted_text_longer_than_the_room_arrives_whole),
		cmocka_unit_test(a_bounded_buffer_drops_whole_what_does_not_fit),
		cmocka_unit_test(consuming_moves_the_rest_to_the_front),
		cmocka_unit_test(bytes_are_kept_as_they_are),
		cmocka_unit_test(reserving_gives_the_room_even_above_the_limit),
		cmocka_unit_test(a_string_vector_grows_by_pushing),
		cmocka_unit_test(stealing_leaves_nothing_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

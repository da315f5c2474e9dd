#include "tempdir.h"
#include <errno.h>
#include "base/error.h"
#include "base/text.h"

static void a_code_and_its_wire_name_find_each_other(void **state)
{
	(void)state;
	for (int i = ERR_NONE + 1; i < ERR_COUNT; i++) {
		const char *name = error_code_name((enum error_code)i);

		assert_int_equal(error_code_from_name(name), i);
		assert_in_range(error_http_status((enum error_code)i), 400, 599);
	}
	assert_string_equal(error_code_name(ERR_STALE_GENERATION), "lease_generation_stale");
	assert_int_equal(error_http_status(ERR_STALE_GENERATION), 409);
	assert_int_equal(error_code_from_name("no_such_code"), ERR_INTERNAL);
	assert_int_equal(error_code_from_name(NULL), ERR_INTERNAL);
	assert_string_equal(error_code_name((enum error_code)9999), "internal_error");
}

static void context_comes_before_the_cause(void **state)
{
	(void)state;
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(error_errno(&err, ENOENT, "open %s", "x"), -1);
	error_set_details(&err, xstrdup("{}"));
	assert_int_equal(error_wrap(&err, "stage %d", 3), -1);
	assert_string_equal(err.message, "stage 3: open x: No such file or directory");
	assert_int_equal(err.code, ERR_IO);
	assert_int_equal(err.errnum, ENOENT);
	assert_string_equal(err.details, "{}");
	error_recode(&err, ERR_REALIZE);
	assert_int_equal(err.code, ERR_REALIZE);
	assert_string_equal(err.message, "stage 3: open x: No such file or directory");
}

static void a_full_disk_has_its_own_code(void **state)
{
	(void)state;
	_cleanup_error_ struct error err = { 0 };

	error_errno(&err, ENOSPC, "write");
	assert_int_equal(err.code, ERR_DISK_FULL);
	error_errno(&err, EDQUOT, "write");
	assert_int_equal(err.code, ERR_DISK_FULL);
	error_errno(&err, EIO, "write");
	assert_int_equal(err.code, ERR_IO);
}

static void a_new_error_replaces_the_old_one_whole(void **state)
{
	(void)state;
	_cleanup_error_ struct error err = { 0 };

	error_errno(&err, EIO, "first");
	error_set_details(&err, xstrdup("[1]"));
	/* The old message is an argument of the new one. */
	error_set(&err, ERR_CONFLICT, "second after %s", err.message);
	assert_string_equal(err.message, "second after first: Input/output error");
	assert_null(err.details);
	assert_int_equal(err.errnum, 0);
}

static void a_cut_message_ends_on_a_whole_character(void **state)
{
	(void)state;
	_cleanup_error_ struct error err = { 0 };
	char text[1025];

	for (size_t shift = 0; shift < 4; shift++) {
		memset(text, 'x', shift);
		for (size_t i = shift; i + 3 < sizeof(text); i += 3)
			memcpy(text + i, "\xe2\x82\xac", 4);
		error_set(&err, ERR_CONFLICT, "%s", text);
		assert_true(utf8_valid(err.message, strlen(err.message)));
		assert_true(strlen(err.message) > sizeof(err.message) - 5);
		error_wrap(&err, "%s", text);
		assert_true(utf8_valid(err.message, strlen(err.message)));
	}
}

static void a_long_message_does_not_push_the_reason_out(void **state)
{
	(void)state;
	_cleanup_error_ struct error err = { 0 };
	char name[2000];

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	error_errno(&err, EACCES, "open %s", name);
	assert_true(str_ends(err.message, "nnn: Permission denied"));
	/* Nor does a long context push out the cause. */
	error_set(&err, ERR_CONFLICT, "the cause");
	error_wrap(&err, "%s", name);
	assert_true(str_ends(err.message, ": the cause"));
}

static void nobody_has_to_want_the_error(void **state)
{
	(void)state;
	assert_int_equal(error_set(NULL, ERR_IO, "x"), -1);
	assert_int_equal(error_errno(NULL, EIO, "x"), -1);
	assert_int_equal(error_wrap(NULL, "x"), -1);
	assert_int_equal(error_recode(NULL, ERR_IO), -1);
	error_set_details(NULL, xstrdup("freed"));
	error_clear(NULL);

	struct error from = { 0 };

	error_set(&from, ERR_IO, "x");
	error_set_details(&from, xstrdup("freed"));
	error_move(NULL, &from);
	assert_int_equal(from.code, ERR_NONE);
}

static void moving_hands_over_the_details(void **state)
{
	(void)state;
	_cleanup_error_ struct error to = { 0 };
	struct error from = { 0 };

	error_set(&to, ERR_IO, "old");
	error_set_details(&to, xstrdup("old"));
	error_set(&from, ERR_CONFLICT, "new");
	error_set_details(&from, xstrdup("[2]"));
	error_move(&to, &from);
	assert_string_equal(to.details, "[2]");
	assert_int_equal(to.code, ERR_CONFLICT);
	assert_null(from.details);
	assert_int_equal(from.code, ERR_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_code_and_its_wire_name_find_each_other),
		cmocka_unit_test(context_comes_before_the_cause),
		cmocka_unit_test(a_full_disk_has_its_own_code),
		cmocka_unit_test(a_new_error_replaces_the_old_one_whole),
		cmocka_unit_test(a_cut_message_ends_on_a_whole_character),
		cmocka_unit_test(a_long_message_does_not_push_the_reason_out),
		cmocka_unit_test(nobody_has_to_want_the_error),
		cmocka_unit_test(moving_hands_over_the_details),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

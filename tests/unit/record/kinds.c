#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "record/kinds.h"

#define ROUND_TRIP_(kind, table)                                                                   \
	for (unsigned i = 0; kind##_names[i]; i++) {                                               \
		enum kind value;                                                                   \
		assert_true(kind##_parse(kind##_names[i], &value));                                \
		assert_int_equal(value, i);                                                        \
		assert_string_equal(kind##_name(value), kind##_names[i]);                          \
	}

static void every_word_of_every_kind_reads_back(void **state)
{
	(void)state;
	KINDS(ROUND_TRIP_)
}

static void words_are_the_wire_words_of_the_reference(void **state)
{
	(void)state;
	assert_string_equal(lease_policy_name(POLICY_REUSE_BY_WORKSPACE),
			    "reuse_by_execution_workspace");
	assert_string_equal(run_status_name(RUN_TIMED_OUT), "timed_out");
	assert_string_equal(lease_status_name(LEASE_PENDING_CLEANUP), "pending_cleanup");
	assert_null(driver_kind_names[DRIVER_KIND_COUNT]);
}

static void an_unknown_word_is_refused_and_leaves_the_value_alone(void **state)
{
	enum driver_kind kind = DRIVER_SSH;

	(void)state;
	assert_false(driver_kind_parse("kubernetes", &kind));
	assert_false(driver_kind_parse("Local", &kind));
	assert_false(driver_kind_parse("", &kind));
	assert_false(driver_kind_parse(NULL, &kind));
	assert_int_equal(kind, DRIVER_SSH);
}

static void a_value_outside_the_kind_has_a_name_all_the_same(void **state)
{
	(void)state;
	assert_string_equal(driver_kind_name((enum driver_kind)77), "unknown");
	assert_string_equal(driver_kind_name(DRIVER_KIND_COUNT), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_word_of_every_kind_reads_back),
		cmocka_unit_test(words_are_the_wire_words_of_the_reference),
		cmocka_unit_test(an_unknown_word_is_refused_and_leaves_the_value_alone),
		cmocka_unit_test(a_value_outside_the_kind_has_a_name_all_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

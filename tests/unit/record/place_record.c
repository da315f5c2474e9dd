#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "record/place.h"

static void a_cleared_place_is_empty(void **state)
{
	struct place place = { .provider = xstrdup("fake"), .generation = 4 };

	(void)state;
	place_clear(&place);
	assert_null(place.provider);
	assert_int_equal(place.generation, 0);
	place_clear(&place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cleared_place_is_empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

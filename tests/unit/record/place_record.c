#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "record/place.h"

static void a_place_is_shown_without_its_config_and_epoch(void **state)
{
	_cleanup_place_ struct place place = {
		.driver = DRIVER_SANDBOX,
		.provider = xstrdup("fake"),
		.provider_ref = xstrdup("sandbox://fake/1"),
		.state = PLACE_CLEANUP,
		.generation = 4,
		.epoch = 99,
		.config = json_pack("{s:s}", "image", "hidden"),
		.metadata = json_pack("{s:s}", "remoteCwd", "/w"),
		.cleanup_action = xstrdup("destroy"),
		.cleanup_next_at = 1000,
	};
	_cleanup_json_ json_t *json = place_json(&place);

	(void)state;
	assert_string_equal(json_str(json, "driver"), "sandbox");
	assert_string_equal(json_str(json, "state"), "cleanup");
	assert_string_equal(json_str(json, "cleanupNextAt"), "1970-01-01T00:00:01.000Z");
	assert_int_equal(json_int(json, "generation", 0), 4);
	assert_int_equal(json_state(json, "holderLeaseId"), JSON_IS_NULL);
	assert_int_equal(json_state(json, "retainUntil"), JSON_IS_NULL);
	assert_int_equal(json_state(json, "config"), JSON_IS_ABSENT);
	assert_int_equal(json_state(json, "epoch"), JSON_IS_ABSENT);
}

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
		cmocka_unit_test(a_place_is_shown_without_its_config_and_epoch),
		cmocka_unit_test(a_cleared_place_is_empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "tempdir.h"
#include <limits.h>
#include <time.h>
#include "base/clock.h"
#include "base/mem.h"

static void now_is_civil_time_and_never_goes_back(void **state)
{
	(void)state;
	struct clock c;

	clock_init_system(&c);

	int64_t wall = (int64_t)time(NULL) * 1000, last = 0;

	assert_in_range(clock_now(&c), wall - 2000, wall + 3000);
	for (int i = 0; i < 1000; i++) {
		int64_t now = clock_now(&c);

		assert_true(now >= last);
		last = now;
	}
	assert_in_range(c.drift_ms(&c) + 2000, 0, 4000);
}

static void a_jump_of_the_wall_clock_is_drift_and_moves_nothing(void **state)
{
	(void)state;
	struct clock c;

	clock_init_system(&c);
	/* As if the wall clock had been an hour behind when the program started. */
	c.offset_ms -= 3600000;
	assert_in_range(c.drift_ms(&c), 3600000 - 2000, 3600000 + 2000);
}

static void a_fake_clock_moves_only_when_told(void **state)
{
	(void)state;
	struct fake_clock f;

	clock_init_fake(&f, 1000);
	assert_int_equal(clock_now(&f.clock), 1000);
	clock_fake_advance(&f, 234);
	assert_int_equal(clock_now(&f.clock), 1234);
	assert_int_equal(clock_mono(&f.clock), 1234);
	assert_int_equal(f.clock.drift_ms(&f.clock), 0);
}

static void a_deadline_becomes_a_poll_timeout(void **state)
{
	(void)state;
	struct fake_clock f;

	clock_init_fake(&f, 1000);
	assert_int_equal(clock_poll_timeout(&f.clock, -1), -1);
	assert_int_equal(clock_poll_timeout(&f.clock, 500), 0);
	assert_int_equal(clock_poll_timeout(&f.clock, 1000), 0);
	assert_int_equal(clock_poll_timeout(&f.clock, 1250), 250);
	assert_int_equal(clock_poll_timeout(&f.clock, INT64_MAX), INT_MAX);
}

static void times_are_written_and_read_alike(void **state)
{
	(void)state;
	static const struct {
		int64_t ms;
		const char *text;
	} cases[] = {
		{ 0, "1970-01-01T00:00:00.000Z" },
		{ 1794773236123, "2026-11-15T20:07:16.123Z" },
		{ -1, "1969-12-31T23:59:59.999Z" },
		{ 951782400000, "2000-02-29T00:00:00.000Z" },
		{ 4107542399999, "2100-02-28T23:59:59.999Z" },
		{ -62167219200000, "0000-01-01T00:00:00.000Z" },
		{ 253402300799999, "9999-12-31T23:59:59.999Z" },
	};
	char text[TIME_ISO_SIZE];
	int64_t ms;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		time_iso(cases[i].ms, text);
		assert_string_equal(text, cases[i].text);
		assert_int_equal(time_parse_iso(text, &ms), 0);
		assert_true(ms == cases[i].ms);
	}
	time_iso(INT64_MAX, text);
	assert_string_equal(text, "9999-12-31T23:59:59.999Z");
	time_iso(INT64_MIN, text);
	assert_string_equal(text, "0000-01-01T00:00:00.000Z");
}

static void every_day_of_an_era_comes_back(void **state)
{
	(void)state;
	char text[TIME_ISO_SIZE];

	for (int64_t day = -200000; day < 200000; day += 13) {
		int64_t ms;

		time_iso(day * 86400000 + 7, text);
		assert_int_equal(time_parse_iso(text, &ms), 0);
		assert_true(ms == day * 86400000 + 7);
	}
}

static void zones_and_fractions_are_understood(void **state)
{
	(void)state;
	int64_t utc, ms;

	assert_int_equal(time_parse_iso("2026-11-15T20:07:16Z", &utc), 0);
	assert_int_equal(time_parse_iso("2026-11-15T22:37:16+02:30", &ms), 0);
	assert_true(ms == utc);
	assert_int_equal(time_parse_iso("2026-11-15T19:07:16.5-01:00", &ms), 0);
	assert_true(ms == utc + 500);
	assert_int_equal(time_parse_iso("2026-11-15T20:07:16.123456789Z", &ms), 0);
	assert_true(ms == utc + 123);
}

static void what_is_no_time_is_refused(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"",
		"2026",
		"2026-11-15",
		"2026-11-15T20:07:16",
		"2026-11-15 20:07:16Z",
		"2026-13-15T20:07:16Z",
		"2026-00-15T20:07:16Z",
		"2026-02-29T20:07:16Z",
		"1900-02-29T00:00:00Z",
		"2026-04-31T20:07:16Z",
		"2026-11-15T24:00:00Z",
		"2026-11-15T20:60:16Z",
		"2026-11-15T20:07:60Z",
		"2026-11-15T20:07:16.Z",
		"2026-11-15T20:07:16.1234567890Z",
		"2026-11-15T20:07:16Zx",
		"2026-11-15T20:07:16+0200",
		"2026-11-15T20:07:16+24:00",
		"-026-11-15T20:07:16Z",
		"2026-1-15T20:07:16Z",
	};
	int64_t ms = 5;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(time_parse_iso(bad[i], &ms), -1);
	assert_int_equal(time_parse_iso(NULL, &ms), -1);
	assert_int_equal(ms, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(now_is_civil_time_and_never_goes_back),
		cmocka_unit_test(a_jump_of_the_wall_clock_is_drift_and_moves_nothing),
		cmocka_unit_test(a_fake_clock_moves_only_when_told),
		cmocka_unit_test(a_deadline_becomes_a_poll_timeout),
		cmocka_unit_test(times_are_written_and_read_alike),
		cmocka_unit_test(every_day_of_an_era_comes_back),
		cmocka_unit_test(zones_and_fractions_are_understood),
		cmocka_unit_test(what_is_no_time_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

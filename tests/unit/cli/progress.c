/*
 * What `berth run` says about files: the line that is written over, sizes, and the summary.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run_files.h"
#include "cli/progress.h"

static void sizes_are_said_in_units_people_read(void **state)
{
	static const struct {
		int64_t bytes;
		const char *text;
	} CASES[] = {
		{ 0, "0 B" },          { 999, "999 B" },         { 1000, "1.0 kB" },
		{ 1234567, "1.2 MB" }, { 4294967296, "4.3 GB" }, { INT64_MAX, "9223372.0 TB" }
	};
	char text[32];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(CASES); i++) {
		format_bytes(CASES[i].bytes, text, sizeof(text));
		assert_string_equal(text, CASES[i].text);
	}
}

static json_t *progress_of(const char *step, int64_t files, int64_t all, int64_t bytes,
			   int64_t whole)
{
	return json_pack("{s:s,s:I,s:I,s:I,s:I}", "step", step, "files", files, "filesTotal", all,
			 "bytes", bytes, "bytesTotal", whole);
}

static void the_line_says_files_bytes_rate_and_how_far(void **state)
{
	_cleanup_json_ json_t *now = progress_of("stage", 50, 100, 2000000, 8000000);
	char line[256];

	(void)state;
	progress_line(now, 2000, 100, line, sizeof(line));
	assert_string_equal(line, "staging  50/100 files  2.0 MB of 8.0 MB  1.0 MB/s"
				  "  [######                  ]");
}

static void totals_that_are_not_known_are_not_made_up(void **state)
{
	_cleanup_json_ json_t *now = progress_of("scan", 7, 0, 0, 0);
	char line[256];

	(void)state;
	progress_line(now, 2000, 100, line, sizeof(line));
	assert_string_equal(line, "looking at files  7 files");
}

static void the_line_never_wraps(void **state)
{
	_cleanup_json_ json_t *now = progress_of("fetch", 123456789, 987654321, 1, 2);
	char line[256];

	(void)state;
	for (int columns = 1; columns < 120; columns++) {
		progress_line(now, 5000, columns, line, sizeof(line));
		assert_true(strlen(line) < (size_t)columns);
		/* A bar is whole or not there. */
		if (columns > 60 && strchr(line, '['))
			assert_int_equal(line[strlen(line) - 1], ']');
	}
}

static void the_summary_names_what_happened_and_nothing_else(void **state)
{
	_cleanup_json_ json_t *counts =
		json_pack("{s:i,s:i,s:i,s:i,s:i,s:i}", "modified", 3, "added", 1, "deleted", 0,
			  "conflicts", 1, "keptHost", 2, "refused", 0);
	_cleanup_json_ json_t *none = json_object();
	_cleanup_free_ char *text = run_files_counts(counts), *empty = run_files_counts(none),
			    *null = run_files_counts(NULL);

	(void)state;
	assert_string_equal(text, "3 changed, 1 added, 1 conflict, 2 deletions not done");
	assert_string_equal(empty, "");
	assert_string_equal(null, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_said_in_units_people_read),
		cmocka_unit_test(the_line_says_files_bytes_rate_and_how_far),
		cmocka_unit_test(totals_that_are_not_known_are_not_made_up),
		cmocka_unit_test(the_line_never_wraps),
		cmocka_unit_test(the_summary_names_what_happened_and_nothing_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

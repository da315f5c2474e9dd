/*
 * Every test gets a database of its own with the real schema, a clock that stands still, and a
 * company. A test that holds for both engines is listed with ON_BOTH.
 *
 * cmocka.h wants these before it.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "record/activity.h"
#include "record/environment.h"
#include "record/idempotency.h"
#include "record/record.h"

struct records {
	char dir[64];
	int dirfd;
	char *path, *url;
	struct db_options options;
	struct db *db;
	struct fake_clock fake;
	struct clock *clock;
	struct company company;
	struct error err;
};

#define RECORDS_START_MS 1700000000000

int records_setup_sqlite(void **state);
int records_setup_postgres(void **state);
int records_teardown(void **state);
#define ON_SQLITE(test)                                                                            \
	{                                                                                          \
#test " (sqlite)", test, records_setup_sqlite, records_teardown, NULL              \
	}
#define ON_POSTGRES(test)                                                                          \
	{                                                                                          \
#test " (postgresql)", test, records_setup_postgres, records_teardown, NULL        \
	}
#define ON_BOTH(test) ON_SQLITE(test), ON_POSTGRES(test)

/* Of this test; skips it where there is no PostgreSQL. */
struct records *records_of(void **state);

extern const struct actor SOMEBODY;

#define assert_done(r, expression)                                                                 \
	do {                                                                                       \
		if ((expression) < 0)                                                              \
			fail_msg("%s: %s", #expression, (r)->err.message);                         \
	} while (0)
#define assert_refused(r, expected, expression)                                                    \
	do {                                                                                       \
		error_clear(&(r)->err);                                                            \
		assert_true((expression) < 0);                                                     \
		if ((r)->err.code != (expected))                                                   \
			fail_msg("%s gave %s: %s", #expression, error_code_name((r)->err.code),    \
				 (r)->err.message);                                                \
	} while (0)

/* Runs a statement; the number of rows it changed. */
#define records_exec(r, sql, ...) records_exec_((r), (sql), B_ARRAY_(__VA_ARGS__))
int64_t records_exec_(struct records *r, const struct sql *sql, const struct bind *binds);
/* The number in the first column of the first row; -1 without a row. */
#define records_number(r, sql, ...) records_number_((r), (sql), B_ARRAY_(__VA_ARGS__))
int64_t records_number_(struct records *r, const struct sql *sql, const struct bind *binds);
/* The text there, allocated; NULL for NULL and without a row. */
#define records_text(r, sql, ...) records_text_((r), (sql), B_ARRAY_(__VA_ARGS__))
char *records_text_(struct records *r, const struct sql *sql, const struct bind *binds);

/* JSON written with single quotes. */
json_t *json_of(const char *text);
void assert_json(const json_t *value, const char *expected);

/* An environment with this name, driver and config. */
void records_environment(struct records *r, const char *name, enum driver_kind driver,
			 struct environment *out);
/* All activity of the company, newest first: new reference to the items. */
json_t *records_activity(struct records *r);

/* fn on so many threads at once, each with its own number; waits for all. */
void in_parallel(int threads, void (*fn)(int number, void *arg), void *arg);

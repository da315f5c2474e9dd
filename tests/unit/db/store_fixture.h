/*
 * Every test gets a database of its own with one table, kv (k TEXT PRIMARY KEY, n BIGINT), on
 * SQLite or on PostgreSQL; a test that holds for both is listed twice.
 *
 * cmocka.h wants these before it.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "db/engine.h"

struct store {
	char dir[64];
	char *path; /* NULL on PostgreSQL */
	char *url;  /* NULL on SQLite */
	struct db_options options;
	struct db *db;
	struct error err;
};

extern const struct migration kv_migrations[];
extern const struct sql KV_PUT, KV_GET, KV_COUNT, KV_LIST;

int store_setup_sqlite(void **state);
int store_setup_postgres(void **state);
/* With the schema of the program instead of kv. */
int store_setup_sqlite_schema(void **state);
int store_setup_postgres_schema(void **state);
int store_teardown(void **state);
#define ON_SQLITE(test)                                                                            \
	{                                                                                          \
#test " (sqlite)", test, store_setup_sqlite, store_teardown, NULL                  \
	}
#define ON_POSTGRES(test)                                                                          \
	{                                                                                          \
#test " (postgresql)", test, store_setup_postgres, store_teardown, NULL            \
	}

/* The store of this test; skips it where there is no PostgreSQL. */
struct store *store_of(void **state);
/* Closes and opens again with other migrations; 0 or -1 with store->err. */
int store_reopen(struct store *store, const struct migration *known);

/* Succeeds or fails the test with the message. */
#define assert_done(store, expression)                                                             \
	do {                                                                                       \
		if ((expression) < 0)                                                              \
			fail_msg("%s: %s", #expression, (store)->err.message);                     \
	} while (0)
/* Wants a failure with this code. */
#define assert_refused(store, expected, expression)                                                \
	do {                                                                                       \
		error_clear(&(store)->err);                                                        \
		assert_true((expression) < 0);                                                     \
		if ((store)->err.code != (expected))                                               \
			fail_msg("%s gave %s: %s", #expression,                                    \
				 error_code_name((store)->err.code), (store)->err.message);        \
	} while (0)

struct pair {
	const char *key;
	int64_t number;
};
db_fn kv_put; /* arg: struct pair */
/* Rows in kv as a reader sees them. */
int64_t kv_count(struct store *store);
/* The number under a key; -1 when absent. */
int64_t kv_number(struct store *store, const char *key);

/* This program again as another process, with argv[1] = role; *out is its stdin, *in its stdout. */
pid_t role_start(const char *role, const char *path, const char *fault, int *out, int *in);

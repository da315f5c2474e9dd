#include "store_fixture.h"

#include <string.h>

/* What is declared with SQL() anywhere in the program is in the registry by being declared. */
static void every_statement_of_the_program_is_understood(void **state)
{
	struct store *s = store_of(state);
	assert_true(sql_count() > 0);
	assert_done(s, db_prepare_all(s->db, &s->err));
	print_message("%zu statements\n", sql_count());
}

static int prepare_one(struct tx *tx, void *arg, struct error *err)
{
	return tx->engine->prepare(tx, &(struct sql){ "ONE", arg, NULL }, err);
}

static int prepare(struct store *s, const char *text)
{
	return db_read(s->db, prepare_one, (void *)(uintptr_t)text, &s->err);
}

static void a_statement_that_is_wrong_on_both_engines_is_found(void **state)
{
	struct store *s = store_of(state);
	assert_done(s, prepare(s, "SELECT id FROM companies WHERE name = $1"));
	assert_refused(s, ERR_DB, prepare(s, "SELECT nothing FROM companies"));
	/* In double quotes SQLite would take a misspelt column for a string. */
	assert_refused(s, ERR_DB, prepare(s, "SELECT \"nothing\" FROM companies"));
	/* A gap in the numbers. */
	assert_int_equal(prepare(s, "SELECT id FROM companies WHERE name = $2"), -1);
	/* Two statements. */
	assert_int_equal(prepare(s, "SELECT id FROM companies; SELECT name FROM companies"), -1);
}

static void a_parameter_of_another_kind_is_found_on_sqlite(void **state)
{
	struct store *s = store_of(state);
	assert_refused(s, ERR_INTERNAL, prepare(s, "SELECT id FROM companies WHERE name = ?"));
	assert_refused(s, ERR_INTERNAL, prepare(s, "SELECT id FROM companies WHERE name = :name"));
}

static void a_parameter_or_column_with_a_trap_is_found_on_postgresql(void **state)
{
	struct store *s = store_of(state);
	/* Read as a 4-byte integer, which no time in milliseconds fits. */
	assert_refused(s, ERR_INTERNAL,
		       prepare(s, "SELECT id FROM companies WHERE created_at < $1 + 1000"));
	assert_non_null(strstr(s->err.message, "$1"));
	assert_done(s, prepare(s, "SELECT id FROM companies"
				  " WHERE created_at < CAST($1 AS BIGINT) + 1000"));
	/* Reads as "t", whose number is 0. */
	assert_refused(s, ERR_INTERNAL,
		       prepare(s, "SELECT EXISTS (SELECT 1 FROM companies WHERE id = $1)"));
	assert_refused(s, ERR_DB, prepare(s, "SELECT id FROM companies WHERE $1 IS NULL"));
}

#define ON_SCHEMA(test)                                                                            \
	{ #test " (sqlite)", test, store_setup_sqlite_schema, store_teardown, NULL },              \
	{                                                                                          \
#test " (postgresql)", test, store_setup_postgres_schema, store_teardown, NULL     \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_SCHEMA(every_statement_of_the_program_is_understood),
		ON_SCHEMA(a_statement_that_is_wrong_on_both_engines_is_found),
		cmocka_unit_test_setup_teardown(a_parameter_of_another_kind_is_found_on_sqlite,
						store_setup_sqlite_schema, store_teardown),
		cmocka_unit_test_setup_teardown(
			a_parameter_or_column_with_a_trap_is_found_on_postgresql,
			store_setup_postgres_schema, store_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

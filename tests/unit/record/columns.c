#include "record/row.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "base/text.h"

struct boat {
	char id[ID_SIZE], harbour_id[ID_SIZE], owner_id[ID_SIZE];
	char *name;
	enum issue_priority priority;
	json_t *cargo, *trust;
	bool afloat;
	int64_t created_at, updated_at;
};

static json_t *loud_name(const void *record)
{
	const struct boat *boat = record;

	return json_sprintf("%s!", boat->name);
}

#define AT(member) .offset = offsetof(struct boat, member)
static const struct column BOAT_COLUMNS[] = {
	{ "id", "id", COLUMN_ID, COLUMN_INSERT, AT(id) },
	{ "harbourId", "harbour_id", COLUMN_ID, COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH,
	  AT(harbour_id) },
	{ "ownerId", "o.owner_id", COLUMN_ID, COLUMN_SPARSE, AT(owner_id) },
	{ "name", "name", COLUMN_TEXT, COLUMN_WRITE | COLUMN_PATCH, AT(name) },
	{ "loud", NULL, COLUMN_TEXT, 0, .make = loud_name },
	{ "priority", "priority", COLUMN_WORD, COLUMN_WRITE | COLUMN_PATCH, AT(priority),
	  .words = issue_priority_names },
	{ "cargo", "cargo", COLUMN_JSON, COLUMN_WRITE | COLUMN_PATCH | COLUMN_NULLABLE, AT(cargo) },
	{ "cargoRedacted", NULL, COLUMN_BOOL, COLUMN_VIEW, .summary = "Not for the reader" },
	{ "afloat", "CASE WHEN o.role IS NULL THEN 0 ELSE 1 END", COLUMN_BOOL, 0, AT(afloat) },
	COLUMN_TIMES(struct boat),
	COLUMN_TRUST(struct boat),
	{ 0 },
};
static const struct row_kind BOAT = { "Boat", sizeof(struct boat), BOAT_COLUMNS };

static void assert_written(const char *text, const char *expected)
{
	const struct sql sql = { "TEST", text, BOAT_COLUMNS };
	char *written = sql_written(&sql);

	assert_string_equal(written, expected);
	free(written);
}

static void words_in_a_statement_stand_for_columns(void **state)
{
	(void)state;
	assert_written("INSERT INTO boats ({insert}) VALUES ({values})",
		       "INSERT INTO boats (id, harbour_id, name, priority, cargo, created_at,"
		       " updated_at, trust) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)");
	assert_written("UPDATE boats SET {set} WHERE id = $1",
		       "UPDATE boats SET harbour_id = $2, name = $3, priority = $4, cargo = $5,"
		       " updated_at = $6, trust = $7 WHERE id = $1");
	assert_written("SELECT {b.*} FROM boats b",
		       "SELECT b.id, b.harbour_id, o.owner_id, b.name, b.priority, b.cargo,"
		       " CASE WHEN o.role IS NULL THEN 0 ELSE 1 END, b.created_at, b.updated_at,"
		       " b.trust FROM boats b");
}

static void other_braces_in_a_statement_stay(void **state)
{
	const struct sql plain = { "PLAIN", "SELECT '{*}'", NULL };
	char *written = sql_written(&plain);

	(void)state;
	assert_string_equal(written, "SELECT '{*}'");
	free(written);
	assert_written("SET cargo = '{}', note = '{\"a\":1}', b = '{'",
		       "SET cargo = '{}', note = '{\"a\":1}', b = '{'");
}

static struct boat a_boat(void)
{
	struct boat boat = { .id = "b", .priority = ISSUE_PRIORITY_MEDIUM, .created_at = 1000 };

	boat.name = xstrdup("Ada");
	boat.cargo = json_pack("{s:i}", "tea", 3);
	boat.trust = json_pack("{s:s}", "name", "local");
	return boat;
}

static void json_has_the_keys_in_order_and_neither_trust_nor_what_is_sparse(void **state)
{
	struct boat boat = a_boat();
	json_t *json = row_json(&BOAT, &boat);
	char *text = json_text(json);

	(void)state;
	assert_string_equal(text,
			    "{\"id\":\"b\",\"harbourId\":null,\"name\":\"Ada\",\"loud\":\"Ada!\","
			    "\"priority\":\"medium\",\"cargo\":{\"tea\":3},\"afloat\":false,"
			    "\"createdAt\":\"1970-01-01T00:00:01.000Z\",\"updatedAt\":null}");
	free(text);
	json_decref(json);
	id_copy(boat.owner_id, "o");
	json = row_json(&BOAT, &boat);
	assert_string_equal(json_str(json, "ownerId"), "o");
	json_decref(json);
	row_clear(&BOAT, &boat);
	assert_null(boat.name);
	assert_int_equal(boat.created_at, 0);
}

static void a_body_goes_over_the_columns_that_take_it(void **state)
{
	struct boat boat = a_boat();
	json_t *body = json_pack("{s:n,s:s,s:s,s:i}", "cargo", "priority", "high", "name", "Bee",
				 "createdAt", 7);

	(void)state;
	row_patch(&BOAT, &boat, body);
	assert_null(boat.cargo);
	assert_int_equal(boat.priority, ISSUE_PRIORITY_HIGH);
	assert_string_equal(boat.name, "Bee");
	assert_int_equal(boat.created_at, 1000);
	json_decref(body);
	row_clear(&BOAT, &boat);
}

static void a_copy_shares_nothing(void **state)
{
	struct boat boat = a_boat(), copy;

	(void)state;
	row_copy(&BOAT, &copy, &boat);
	json_put_str(boat.cargo, "tea", "gone");
	boat.name[0] = 'U';
	assert_string_equal(copy.name, "Ada");
	assert_int_equal(json_int(copy.cargo, "tea", 0), 3);
	row_clear(&BOAT, &boat);
	row_clear(&BOAT, &copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_in_a_statement_stand_for_columns),
		cmocka_unit_test(other_braces_in_a_statement_stay),
		cmocka_unit_test(json_has_the_keys_in_order_and_neither_trust_nor_what_is_sparse),
		cmocka_unit_test(a_body_goes_over_the_columns_that_take_it),
		cmocka_unit_test(a_copy_shares_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

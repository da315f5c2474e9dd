#include "record_fixture.h"

SQL(LOCAL_COUNT, "SELECT COUNT(*) FROM environments WHERE company_id = $1 AND driver = 'local'");
SQL(DRIVER_COUNT, "SELECT COUNT(*) FROM environments WHERE company_id = $1 AND driver = $2");
SQL(LOCAL_REMOVE, "DELETE FROM environments WHERE company_id = $1 AND driver = 'local'");
SQL(LOCAL_ARCHIVED, "INSERT INTO environments (id, company_id, name, driver, status, metadata,"
		    " created_at, updated_at) VALUES ($1, $2, 'Archived Local', 'local',"
		    " 'archived', $3, 5, 7)");
SQL(SPOIL_DRIVER, "UPDATE environments SET driver = 'teleport' WHERE id = $1");
SQL(SPOIL_STATUS, "UPDATE environments SET status = 'asleep' WHERE id = $1");
SQL(SPOIL_CONFIG, "UPDATE environments SET config = '{' WHERE id = $1");

static int ensure(struct records *r, struct environment *out)
{
	return environment_ensure_local(r->db, r->clock, r->company.id, out, &r->err);
}

static void ES_3_ensuring_local_twice_gives_one_row_named_local(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment first = { 0 }, second = { 0 };

	records_exec(r, &LOCAL_REMOVE, B_TEXT(r->company.id));
	assert_done(r, ensure(r, &first));
	assert_done(r, ensure(r, &second));
	assert_string_equal(first.id, second.id);
	assert_string_equal(first.name, "Local");
	assert_int_equal(first.driver, DRIVER_LOCAL);
	assert_int_equal(first.status, ENVIRONMENT_ACTIVE);
	assert_non_null(first.description);
	assert_json(first.config, "{}");
	assert_json(first.metadata, "{'managedByPaperclip':true,'defaultForCompany':true}");
	assert_int_equal(records_number(r, &LOCAL_COUNT, B_TEXT(r->company.id)), 1);
}

static void the_text_of_an_environment_is_what_its_record_would_give(void **state)
{
	struct records *r = records_of(state);
	_cleanup_json_ json_t *config =
		json_pack("{s:s,s:[i,b,n]}", "image", "a\"b\\c\n\xc3\xa4", "list", -7, 1);
	struct environment wanted = { .name = (char *)"n\"\xe2\x82\xac",
				      .driver = DRIVER_SANDBOX,
				      .config = config };
	_cleanup_environment_ struct environment made = { 0 }, read = { 0 };

	id_copy(wanted.company_id, r->company.id);
	assert_done(r, environment_create(r->db, r->clock, &SOMEBODY, &wanted, &made, &r->err));
	assert_done(r, environment_get(r->db, made.id, &read, &r->err));

	_cleanup_json_ json_t *json = environment_json(&read);
	_cleanup_free_ char *slow = json_text(json);
	_cleanup_free_ char *quick = environment_text(r->db, made.id, &r->err);

	assert_string_equal(quick, slow);
	assert_null(environment_text(r->db, "nobody", &r->err));
	assert_int_equal(r->err.code, ERR_NOT_FOUND);
}

/* Without the look beforehand that environment_ensure_local takes. */
static int ensure_in_transaction(struct tx *tx, void *arg, struct error *err)
{
	struct records *r = arg;

	return environment_ensure_local_tx(tx, RECORDS_START_MS, r->company.id, err);
}

static void ES_4_an_archived_local_environment_is_returned_unchanged(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment found = { 0 };
	char id[ID_SIZE];

	id_new(id);
	records_exec(r, &LOCAL_REMOVE, B_TEXT(r->company.id));
	records_exec(r, &LOCAL_ARCHIVED, B_TEXT(id), B_TEXT(r->company.id),
		     B_TEXT("{\"owner\":\"operator\"}"));
	assert_done(r, DB_WRITE(r->db, "test.ensure", ensure_in_transaction, r, &r->err));
	assert_done(r, ensure(r, &found));
	assert_string_equal(found.id, id);
	assert_string_equal(found.name, "Archived Local");
	assert_int_equal(found.status, ENVIRONMENT_ARCHIVED);
	assert_json(found.metadata, "{'owner':'operator'}");
	assert_int_equal(found.updated_at, 7);
	assert_int_equal(records_number(r, &LOCAL_COUNT, B_TEXT(r->company.id)), 1);
}

struct ensures {
	struct records *r;
	struct environment found[8];
	bool done[8];
};

static void ensure_one(int number, void *arg)
{
	struct ensures *e = arg;
	_cleanup_error_ struct error err = { 0 };

	e->done[number] = environment_ensure_local(e->r->db, e->r->clock, e->r->company.id,
						   &e->found[number], &err) == 0;
}

static void ES_5_eight_ensures_at_once_give_one_active_row(void **state)
{
	struct records *r = records_of(state);
	struct ensures e = { .r = r };

	records_exec(r, &LOCAL_REMOVE, B_TEXT(r->company.id));
	in_parallel(8, ensure_one, &e);
	for (int i = 0; i < 8; i++) {
		assert_true(e.done[i]);
		assert_string_equal(e.found[i].id, e.found[0].id);
		assert_int_equal(e.found[i].status, ENVIRONMENT_ACTIVE);
	}
	for (int i = 0; i < 8; i++)
		environment_clear(&e.found[i]);
	assert_int_equal(records_number(r, &LOCAL_COUNT, B_TEXT(r->company.id)), 1);
}

static void ES_6_a_company_may_have_several_ssh_environments(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment one = { 0 }, two = { 0 };

	records_environment(r, "Builder", DRIVER_SSH, &one);
	records_environment(r, "Builder 2", DRIVER_SSH, &two);
	assert_int_equal(records_number(r, &DRIVER_COUNT, B_TEXT(r->company.id), B_TEXT("ssh")), 2);
}

static void a_name_is_one_environment_of_a_company(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment one = { 0 }, two = { 0 }, refused = { 0 };
	struct environment_patch patch = { .name = "Builder" };
	struct environment same = { .name = (char *)"Builder", .driver = DRIVER_SSH };

	id_copy(same.company_id, r->company.id);
	records_environment(r, "Builder", DRIVER_SSH, &one);
	records_environment(r, "Builder 2", DRIVER_SSH, &two);
	assert_refused(r, ERR_CONFLICT,
		       environment_create(r->db, r->clock, &SOMEBODY, &same, &refused, &r->err));
	assert_refused(
		r, ERR_CONFLICT,
		environment_update(r->db, r->clock, &SOMEBODY, two.id, &patch, NULL, &r->err));
	/* Its own name is no other's. */
	assert_done(r,
		    environment_update(r->db, r->clock, &SOMEBODY, one.id, &patch, NULL, &r->err));
}

static void ensuring_local_for_no_company_fails(void **state)
{
	struct records *r = records_of(state);
	struct environment out = { 0 };

	assert_refused(r, ERR_NOT_FOUND,
		       environment_ensure_local(r->db, r->clock, "nobody", &out, &r->err));
}

static void a_second_local_environment_is_a_conflict(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment ssh = { 0 };
	struct environment in = { .name = (char *)"Mine", .driver = DRIVER_LOCAL };
	enum driver_kind local = DRIVER_LOCAL;
	struct environment_patch patch = { .driver = &local };

	id_copy(in.company_id, r->company.id);
	assert_refused(r, ERR_CONFLICT,
		       environment_create(r->db, r->clock, &SOMEBODY, &in, NULL, &r->err));
	records_environment(r, "Builder", DRIVER_SSH, &ssh);
	assert_refused(
		r, ERR_CONFLICT,
		environment_update(r->db, r->clock, &SOMEBODY, ssh.id, &patch, NULL, &r->err));
	assert_int_equal(records_number(r, &LOCAL_COUNT, B_TEXT(r->company.id)), 1);
}

static void I20_the_local_environment_cannot_be_archived(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment local = { 0 }, after = { 0 };
	enum environment_status archived = ENVIRONMENT_ARCHIVED;
	struct environment_patch patch = { .status = &archived };

	assert_done(r, ensure(r, &local));
	assert_refused(
		r, ERR_UNPROCESSABLE,
		environment_update(r->db, r->clock, &SOMEBODY, local.id, &patch, NULL, &r->err));
	assert_non_null(strstr(r->err.message, "Local environment cannot be archived"));
	assert_done(r, environment_get(r->db, local.id, &after, &r->err));
	assert_int_equal(after.status, ENVIRONMENT_ACTIVE);
}

static void creating_an_environment_stores_it_as_given_and_says_so(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment made = { 0 }, stored = { 0 };
	_cleanup_json_ json_t *config = json_of("{'host':'h','privateKey':null}");
	struct environment in = { .name = (char *)" Builder ",
				  .description = (char *)"fast",
				  .driver = DRIVER_SSH,
				  .config = config };

	id_copy(in.company_id, r->company.id);
	assert_done(r, environment_create(r->db, r->clock, &SOMEBODY, &in, &made, &r->err));
	assert_done(r, environment_get(r->db, made.id, &stored, &r->err));

	_cleanup_json_ json_t *json = environment_json(&stored);

	json_object_del(json, "id");
	json_object_del(json, "companyId");
	assert_json(json, "{'name':' Builder ','description':'fast','driver':'ssh',"
			  "'status':'active','config':{'host':'h','privateKey':null},"
			  "'metadata':null,'createdAt':'2023-11-14T22:13:20.000Z',"
			  "'updatedAt':'2023-11-14T22:13:20.000Z'}");

	_cleanup_json_ json_t *activity = records_activity(r);
	const json_t *entry = json_array_get(activity, 0);

	assert_string_equal(json_str(entry, "action"), "environment.created");
	assert_string_equal(json_str(entry, "entityType"), "environment");
	assert_string_equal(json_str(entry, "entityId"), made.id);
	assert_json(json_object_get(entry, "details"),
		    "{'name':' Builder ','driver':'ssh','status':'active'}");
}

static void max_leases_must_be_a_positive_integer(void **state)
{
	struct records *r = records_of(state);
	const char *const wrong[] = { "{'maxLeases':0}", "{'maxLeases':-1}", "{'maxLeases':1.5}",
				      "{'maxLeases':'3'}", "{'maxLeases':null}" };
	_cleanup_environment_ struct environment made = { 0 }, plain = { 0 };
	_cleanup_json_ json_t *good = json_of("{'maxLeases':3,'team':'a'}");
	struct environment in = { .name = (char *)"Box", .driver = DRIVER_SANDBOX };

	id_copy(in.company_id, r->company.id);
	records_environment(r, "Plain", DRIVER_SANDBOX, &plain);
	assert_int_equal(environment_max_leases(&plain), 0);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		_cleanup_json_ json_t *metadata = json_of(wrong[i]);
		struct environment_patch patch = { .metadata = metadata };

		in.metadata = metadata;
		assert_refused(r, ERR_UNPROCESSABLE,
			       environment_create(r->db, r->clock, &SOMEBODY, &in, NULL, &r->err));
		assert_refused(r, ERR_UNPROCESSABLE,
			       environment_update(r->db, r->clock, &SOMEBODY, plain.id, &patch,
						  NULL, &r->err));
	}
	in.metadata = good;
	assert_done(r, environment_create(r->db, r->clock, &SOMEBODY, &in, &made, &r->err));
	assert_int_equal(environment_max_leases(&made), 3);
}

static void RO_23_an_update_tells_which_fields_changed_and_no_values(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment made = { 0 }, after = { 0 };
	_cleanup_json_ json_t *config =
		json_of("{'host':'h','username':'u','apiKey':'super-secret-key'}");
	_cleanup_json_ json_t *metadata = json_of("{'owner':'quiet-owner'}");
	enum environment_status archived = ENVIRONMENT_ARCHIVED;
	struct environment_patch patch = { .config = config,
					   .metadata = metadata,
					   .status = &archived };

	records_environment(r, "Builder", DRIVER_SSH, &made);
	assert_done(r, environment_update(r->db, r->clock, &SOMEBODY, made.id, &patch, &after,
					  &r->err));
	assert_int_equal(after.status, ENVIRONMENT_ARCHIVED);

	_cleanup_json_ json_t *activity = records_activity(r);
	_cleanup_free_ char *told = json_text(activity);
	const json_t *entry = json_array_get(activity, 0);

	assert_string_equal(json_str(entry, "action"), "environment.updated");
	assert_json(json_object_get(entry, "details"),
		    "{'changedFields':['config','metadata','status'],'status':'archived',"
		    "'configChanged':true,'configTopLevelKeyCount':3,'metadataChanged':true,"
		    "'metadataTopLevelKeyCount':1}");
	assert_null(strstr(told, "super-secret-key"));
	assert_null(strstr(told, "quiet-owner"));
}

static void an_update_changes_what_it_names_and_null_clears(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment made = { 0 }, after = { 0 }, cleared = { 0 };
	_cleanup_json_ json_t *metadata = json_of("{'a':1}"), *null = json_null();
	_cleanup_json_ json_t *description = json_string("fast");
	enum driver_kind sandbox = DRIVER_SANDBOX;
	_cleanup_json_ json_t *config = json_of("{'provider':'fake'}");
	struct environment_patch first = { .name = "Box",
					   .description = description,
					   .driver = &sandbox,
					   .config = config,
					   .metadata = metadata };
	struct environment_patch second = { .description = null, .metadata = null };

	records_environment(r, "Builder", DRIVER_SSH, &made);
	clock_fake_advance(&r->fake, 3);
	assert_done(r, environment_update(r->db, r->clock, &SOMEBODY, made.id, &first, &after,
					  &r->err));
	assert_string_equal(after.name, "Box");
	assert_string_equal(after.description, "fast");
	assert_int_equal(after.driver, DRIVER_SANDBOX);
	assert_int_equal(after.updated_at, RECORDS_START_MS + 3);
	assert_int_equal(after.created_at, RECORDS_START_MS);
	assert_done(r, environment_update(r->db, r->clock, &SOMEBODY, made.id, &second, &cleared,
					  &r->err));
	assert_null(cleared.description);
	assert_null(cleared.metadata);
	assert_string_equal(cleared.name, "Box");
	assert_json(cleared.config, "{'provider':'fake'}");

	_cleanup_json_ json_t *activity = records_activity(r);

	assert_json(json_object_get(json_array_get(activity, 0), "details"),
		    "{'changedFields':['description','metadata'],'descriptionChanged':true,"
		    "'metadataChanged':true,'metadataTopLevelKeyCount':0}");
	assert_json(json_object_get(json_array_get(activity, 1), "details"),
		    "{'changedFields':['config','description','driver','metadata','name'],"
		    "'name':'Box','driver':'sandbox','descriptionChanged':true,"
		    "'configChanged':true,'configTopLevelKeyCount':1,'metadataChanged':true,"
		    "'metadataTopLevelKeyCount':1}");
}

static void an_update_on_what_somebody_else_changed_is_a_conflict(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment made = { 0 }, after = { 0 };
	_cleanup_json_ json_t *mine = json_of("{'a':1}"), *theirs = json_of("{'b':1}");
	struct environment_patch late = { .config = mine };
	struct environment_patch early = { .config = theirs };

	records_environment(r, "Builder", DRIVER_SANDBOX, &made);
	late.merged_with = early.merged_with = made.updated_at;
	/* In the same millisecond. */
	assert_done(r,
		    environment_update(r->db, r->clock, &SOMEBODY, made.id, &early, NULL, &r->err));
	assert_refused(
		r, ERR_CONFLICT,
		environment_update(r->db, r->clock, &SOMEBODY, made.id, &late, NULL, &r->err));
	assert_done(r, environment_get(r->db, made.id, &after, &r->err));
	assert_json(after.config, "{'b':1}");
}

static void RO_27_updating_what_is_not_there_is_not_found_and_says_nothing(void **state)
{
	struct records *r = records_of(state);
	struct environment_patch patch = { .name = "Box" };
	char id[ID_SIZE];

	id_new(id);
	assert_refused(r, ERR_NOT_FOUND,
		       environment_update(r->db, r->clock, &SOMEBODY, id, &patch, NULL, &r->err));
	assert_string_equal(r->err.message, "Environment not found");

	_cleanup_json_ json_t *activity = records_activity(r);

	assert_int_equal(json_array_size(activity), 1);
}

static void an_environment_name_must_be_sayable(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment made = { 0 };
	struct environment in = { .name = (char *)"  ", .driver = DRIVER_SSH };
	struct environment_patch patch = { .name = "" };

	id_copy(in.company_id, r->company.id);
	assert_refused(r, ERR_VALIDATION,
		       environment_create(r->db, r->clock, &SOMEBODY, &in, NULL, &r->err));
	in.name = NULL;
	assert_refused(r, ERR_VALIDATION,
		       environment_create(r->db, r->clock, &SOMEBODY, &in, NULL, &r->err));
	records_environment(r, "Builder", DRIVER_SSH, &made);
	assert_refused(
		r, ERR_VALIDATION,
		environment_update(r->db, r->clock, &SOMEBODY, made.id, &patch, NULL, &r->err));
}

static void the_list_is_newest_updated_first_and_filters_exactly(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment one = { 0 }, two = { 0 };
	enum environment_status archived = ENVIRONMENT_ARCHIVED;
	struct environment_patch patch = { .status = &archived };

	clock_fake_advance(&r->fake, 1);
	records_environment(r, "One", DRIVER_SSH, &one);
	clock_fake_advance(&r->fake, 1);
	records_environment(r, "Two", DRIVER_SANDBOX, &two);
	clock_fake_advance(&r->fake, 1);
	assert_done(r,
		    environment_update(r->db, r->clock, &SOMEBODY, one.id, &patch, NULL, &r->err));

	_cleanup_json_ json_t *all = environment_list(r->db, r->company.id, NULL, NULL, &r->err);
	_cleanup_json_ json_t *active =
		environment_list(r->db, r->company.id, "active", NULL, &r->err);
	_cleanup_json_ json_t *archived_ssh =
		environment_list(r->db, r->company.id, "archived", "ssh", &r->err);
	_cleanup_json_ json_t *none =
		environment_list(r->db, r->company.id, "archived", "sandbox", &r->err);

	assert_int_equal(json_array_size(all), 3);
	assert_string_equal(json_str(json_array_get(all, 0), "name"), "One");
	assert_string_equal(json_str(json_array_get(all, 1), "name"), "Two");
	assert_string_equal(json_str(json_array_get(all, 2), "name"), "Local");
	assert_int_equal(json_array_size(active), 2);
	assert_int_equal(json_array_size(archived_ssh), 1);
	assert_int_equal(json_array_size(none), 0);
}

static void an_environment_is_found_by_id_or_name_within_its_company(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment one = { 0 }, named_so = { 0 };
	_cleanup_environment_ struct environment found = { 0 };
	_cleanup_(company_clear) struct company other = { 0 };

	struct environment in = { .name = (char *)"Builder", .driver = DRIVER_SSH };

	/* Sorts behind every other id. */
	id_copy(in.id, "ffffffff-ffff-4fff-bfff-ffffffffffff");
	id_copy(in.company_id, r->company.id);
	assert_done(r, environment_create(r->db, r->clock, &SOMEBODY, &in, &one, &r->err));
	assert_string_equal(one.id, in.id);
	assert_done(r, environment_find(r->db, r->company.id, "Builder", &found, &r->err));
	assert_string_equal(found.id, one.id);
	environment_clear(&found);
	/* Called by another's id: the id still means the other. */
	records_environment(r, one.id, DRIVER_SSH, &named_so);
	assert_done(r, environment_find(r->db, r->company.id, one.id, &found, &r->err));
	assert_string_equal(found.name, "Builder");
	assert_done(r, company_create(WRITER(r->db, r->clock, &SOMEBODY), "Other", NULL, &other,
				      &r->err));
	assert_refused(r, ERR_NOT_FOUND,
		       environment_find(r->db, other.id, one.id, &found, &r->err));
	assert_refused(r, ERR_NOT_FOUND,
		       environment_find(r->db, r->company.id, "Nowhere", &found, &r->err));
}

static void an_unknown_word_in_an_environment_row_is_reported(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment one = { 0 }, two = { 0 }, three = { 0 };
	struct environment out = { 0 };

	records_environment(r, "One", DRIVER_SSH, &one);
	records_environment(r, "Two", DRIVER_SSH, &two);
	records_environment(r, "Three", DRIVER_SSH, &three);
	records_exec(r, &SPOIL_DRIVER, B_TEXT(one.id));
	records_exec(r, &SPOIL_STATUS, B_TEXT(two.id));
	records_exec(r, &SPOIL_CONFIG, B_TEXT(three.id));
	assert_refused(r, ERR_DB, environment_get(r->db, one.id, &out, &r->err));
	assert_string_equal(r->err.message, "unexpected environment driver value: teleport");
	assert_refused(r, ERR_DB, environment_get(r->db, two.id, &out, &r->err));
	assert_string_equal(r->err.message, "unexpected environment status value: asleep");
	assert_refused(r, ERR_DB, environment_get(r->db, three.id, &out, &r->err));
	assert_null(environment_list(r->db, r->company.id, NULL, NULL, &r->err));
}

static void a_copy_of_an_environment_stands_alone(void **state)
{
	struct records *r = records_of(state);
	struct environment made = { 0 };
	_cleanup_environment_ struct environment copy = { 0 };

	records_environment(r, "Builder", DRIVER_SSH, &made);
	environment_copy(&copy, &made);
	json_put_int(made.config, "later", 1);
	environment_clear(&made);
	assert_string_equal(copy.name, "Builder");
	assert_json(copy.config, "{}");
	assert_null(copy.metadata);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BOTH(the_text_of_an_environment_is_what_its_record_would_give),
		ON_BOTH(ES_3_ensuring_local_twice_gives_one_row_named_local),
		ON_BOTH(ES_4_an_archived_local_environment_is_returned_unchanged),
		ON_BOTH(ES_5_eight_ensures_at_once_give_one_active_row),
		ON_BOTH(ES_6_a_company_may_have_several_ssh_environments),
		ON_BOTH(a_name_is_one_environment_of_a_company),
		ON_SQLITE(ensuring_local_for_no_company_fails),
		ON_BOTH(a_second_local_environment_is_a_conflict),
		ON_BOTH(I20_the_local_environment_cannot_be_archived),
		ON_BOTH(creating_an_environment_stores_it_as_given_and_says_so),
		ON_BOTH(max_leases_must_be_a_positive_integer),
		ON_BOTH(RO_23_an_update_tells_which_fields_changed_and_no_values),
		ON_BOTH(an_update_changes_what_it_names_and_null_clears),
		ON_BOTH(an_update_on_what_somebody_else_changed_is_a_conflict),
		ON_BOTH(RO_27_updating_what_is_not_there_is_not_found_and_says_nothing),
		ON_SQLITE(an_environment_name_must_be_sayable),
		ON_BOTH(the_list_is_newest_updated_first_and_filters_exactly),
		ON_BOTH(an_environment_is_found_by_id_or_name_within_its_company),
		ON_BOTH(an_unknown_word_in_an_environment_row_is_reported),
		ON_SQLITE(a_copy_of_an_environment_stands_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

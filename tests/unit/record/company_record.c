#include "record_fixture.h"

SQL(COMPANY_COUNT, "SELECT COUNT(*) FROM companies");
SQL(ENVIRONMENT_COUNT, "SELECT COUNT(*) FROM environments");
SQL(ACTIVITY_COUNT, "SELECT COUNT(*) FROM activity");
SQL(AGENT_COUNT, "SELECT COUNT(*) FROM agents");
SQL(ISSUE_COUNT, "SELECT COUNT(*) FROM issues");
SQL(STATE_COUNT, "SELECT COUNT(*) FROM agent_runtime_state");
SQL(STATE_LAST_RUN, "SELECT last_run_status FROM agent_runtime_state WHERE agent_id = $1");
SQL(STATE_LAST_ERROR, "SELECT last_error FROM agent_runtime_state WHERE agent_id = $1");

static void second_company(struct records *r, struct company *out)
{
	assert_done(
		r, company_create(WRITER(r->db, r->clock, &SOMEBODY), "Other", NULL, out, &r->err));
}

static void creating_a_company_makes_its_local_environment_and_says_so(void **state)
{
	struct records *r = records_of(state);
	_cleanup_json_ json_t *environments =
		environment_list(r->db, r->company.id, NULL, NULL, &r->err);
	_cleanup_json_ json_t *activity = records_activity(r);
	const json_t *local = json_array_get(environments, 0);
	const json_t *entry = json_array_get(activity, 0);

	assert_int_equal(json_array_size(environments), 1);
	assert_string_equal(json_str(local, "name"), "Local");
	assert_string_equal(json_str(local, "driver"), "local");
	assert_json(json_object_get(local, "metadata"),
		    "{'managedByPaperclip':true,'defaultForCompany':true}");
	assert_int_equal(json_array_size(activity), 1);
	assert_string_equal(json_str(entry, "action"), "company.created");
	assert_string_equal(json_str(entry, "entityId"), r->company.id);
	assert_string_equal(json_str(entry, "actorType"), "user");
	assert_json(json_object_get(entry, "details"), "{'name':'Acme'}");
}

static void a_company_name_is_trimmed_and_one_to_a_hundred_bytes(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(company_clear) struct company trimmed = { 0 }, longest = { 0 };
	char name[102];

	assert_done(r, company_create(WRITER(r->db, r->clock, &SOMEBODY), " \tBeta\n", NULL,
				      &trimmed, &r->err));
	assert_string_equal(trimmed.name, "Beta");
	assert_refused(
		r, ERR_VALIDATION,
		company_create(WRITER(r->db, r->clock, &SOMEBODY), " \t ", NULL, NULL, &r->err));
	assert_refused(
		r, ERR_VALIDATION,
		company_create(WRITER(r->db, r->clock, &SOMEBODY), NULL, NULL, NULL, &r->err));
	assert_refused(r, ERR_VALIDATION,
		       company_create(WRITER(r->db, r->clock, &SOMEBODY), "a\x1b[2Jb", NULL, NULL,
				      &r->err));
	memset(name, 'x', sizeof(name));
	name[101] = '\0';
	assert_refused(
		r, ERR_VALIDATION,
		company_create(WRITER(r->db, r->clock, &SOMEBODY), name, NULL, NULL, &r->err));
	name[100] = '\0';
	assert_done(r, company_create(WRITER(r->db, r->clock, &SOMEBODY), name, NULL, &longest,
				      &r->err));
	assert_int_equal(records_number(r, &COMPANY_COUNT), 3);
}

static void a_taken_company_name_is_a_conflict_and_changes_nothing(void **state)
{
	struct records *r = records_of(state);

	assert_refused(
		r, ERR_CONFLICT,
		company_create(WRITER(r->db, r->clock, &SOMEBODY), "Acme ", NULL, NULL, &r->err));
	assert_int_equal(records_number(r, &COMPANY_COUNT), 1);
	assert_int_equal(records_number(r, &ENVIRONMENT_COUNT), 1);
	assert_int_equal(records_number(r, &ACTIVITY_COUNT), 1);
}

static void a_company_is_found_by_id_and_by_name_and_listed_oldest_first(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(company_clear) struct company other = { 0 }, by_id = { 0 }, by_name = { 0 };

	clock_fake_advance(&r->fake, 5);
	second_company(r, &other);
	assert_done(r, company_get(r->db, other.id, &by_id, &r->err));
	assert_string_equal(by_id.name, "Other");
	assert_int_equal(by_id.created_at, RECORDS_START_MS + 5);
	assert_done(r, company_get_by_name(r->db, "Other", &by_name, &r->err));
	assert_string_equal(by_name.id, other.id);
	assert_refused(r, ERR_NOT_FOUND, company_get(r->db, "nobody", &by_id, &r->err));
	assert_string_equal(r->err.message, "Company not found");

	_cleanup_json_ json_t *list = company_list(r->db, &r->err);

	assert_int_equal(json_array_size(list), 2);
	assert_string_equal(json_str(json_array_get(list, 0), "name"), "Acme");
	assert_string_equal(json_str(json_array_get(list, 1), "createdAt"),
			    "2023-11-14T22:13:20.005Z");
}

static int make_agent(struct records *r, const char *body, struct agent *out)
{
	_cleanup_json_ json_t *json = json_of(body);

	error_clear(&r->err);
	if (fields_check(AGENT_FIELDS, json, &r->err) < 0)
		return -1;
	return agent_create(WRITER(r->db, r->clock, &SOMEBODY), r->company.id, json, out, &r->err);
}

static void an_agent_is_kept_as_given_with_defaults_for_the_rest(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(agent_clear) struct agent plain = { 0 }, full = { 0 }, stored = { 0 };

	assert_done(r, make_agent(r, "{'name':' Ada '}", &plain));
	assert_string_equal(plain.name, "Ada");
	assert_string_equal(plain.adapter_type, "process");
	assert_json(plain.adapter_config, "{}");
	assert_done(r, make_agent(r,
				  "{'name':'Bob','adapterType':'codex_local','adapterConfig':"
				  "{'env':{'API_KEY':'hush-hush'}},'permissions':"
				  "{'canCreateAgents':true},'defaultEnvironmentId':null}",
				  &full));
	assert_done(r, agent_get(r->db, full.id, &stored, &r->err));
	assert_string_equal(stored.adapter_type, "codex_local");
	assert_json(stored.adapter_config, "{'env':{'API_KEY':'hush-hush'}}");
	assert_json(stored.permissions, "{'canCreateAgents':true}");
	assert_json(stored.runtime_config, "{}");
	assert_string_equal(stored.default_environment_id, "");

	_cleanup_json_ json_t *activity = records_activity(r);
	_cleanup_free_ char *told = json_text(activity);

	assert_string_equal(json_str(json_array_get(activity, 0), "action"), "agent.created");
	assert_null(strstr(told, "hush-hush"));

	_cleanup_json_ json_t *list =
		agent_list(r->db, &(struct list_query){ .company_id = r->company.id }, &r->err);

	assert_int_equal(json_array_size(list), 2);
}

static void an_agent_body_with_a_wrong_key_or_type_is_refused(void **state)
{
	struct records *r = records_of(state);

	assert_refused(r, ERR_VALIDATION, make_agent(r, "{'name':'Ada','color':'red'}", NULL));
	assert_refused(r, ERR_VALIDATION, make_agent(r, "{'name':7}", NULL));
	assert_refused(r, ERR_VALIDATION, make_agent(r, "{}", NULL));
	assert_refused(r, ERR_VALIDATION,
		       make_agent(r, "{'name':'Ada','defaultEnvironmentId':'nope'}", NULL));
	assert_int_equal(records_number(r, &AGENT_COUNT), 0);
}

static void a_reference_into_another_company_is_refused(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(company_clear) struct company other = { 0 };
	_cleanup_environment_ struct environment foreign = { 0 };
	_cleanup_json_ json_t *body = json_object(), *settings = json_object();

	second_company(r, &other);
	assert_done(r, environment_ensure_local(r->db, r->clock, other.id, &foreign, &r->err));
	json_put_str(body, "name", "Ada");
	json_put_str(body, "defaultEnvironmentId", foreign.id);
	assert_refused(r, ERR_UNPROCESSABLE,
		       agent_create(WRITER(r->db, r->clock, &SOMEBODY), r->company.id, body, NULL,
				    &r->err));
	assert_string_equal(r->err.message, "Environment not found.");
	assert_int_equal(records_number(r, &AGENT_COUNT), 0);

	json_object_clear(body);
	json_put_str(settings, "environmentId", foreign.id);
	json_put_str(body, "name", "Apollo");
	json_put_ref(body, "executionWorkspacePolicy", settings);
	assert_refused(r, ERR_UNPROCESSABLE,
		       project_create(WRITER(r->db, r->clock, &SOMEBODY), r->company.id, body, NULL,
				      &r->err));
	json_object_clear(body);
	json_put_str(body, "title", "Fix it");
	json_put_ref(body, "executionWorkspaceSettings", settings);
	assert_refused(r, ERR_UNPROCESSABLE,
		       issue_create(WRITER(r->db, r->clock, &SOMEBODY), r->company.id, body, NULL,
				    &r->err));
	json_object_del(body, "executionWorkspaceSettings");
	json_put_str(body, "projectId", foreign.id);
	assert_refused(r, ERR_UNPROCESSABLE,
		       issue_create(WRITER(r->db, r->clock, &SOMEBODY), r->company.id, body, NULL,
				    &r->err));
	assert_string_equal(r->err.message, "Project not found.");
	assert_int_equal(records_number(r, &ISSUE_COUNT), 0);
}

static void nothing_is_made_in_a_company_that_does_not_exist(void **state)
{
	struct records *r = records_of(state);
	_cleanup_json_ json_t *body = json_of("{'name':'Ada','title':'Fix it'}");
	char nobody[ID_SIZE];

	id_new(nobody);
	assert_refused(
		r, ERR_NOT_FOUND,
		agent_create(WRITER(r->db, r->clock, &SOMEBODY), nobody, body, NULL, &r->err));
	assert_refused(
		r, ERR_NOT_FOUND,
		project_create(WRITER(r->db, r->clock, &SOMEBODY), nobody, body, NULL, &r->err));
	assert_refused(
		r, ERR_NOT_FOUND,
		issue_create(WRITER(r->db, r->clock, &SOMEBODY), nobody, body, NULL, &r->err));
}

static void an_issue_keeps_a_null_choice_apart_from_no_choice(void **state)
{
	struct records *r = records_of(state);
	_cleanup_json_ json_t *local =
		json_of("{'title':'One','executionWorkspaceSettings':{'environmentId':null}}");
	_cleanup_json_ json_t *unset =
		json_of("{'title':'Two','executionWorkspaceSettings':{'mode':'inherit'},"
			"'executionWorkspacePreference':'reuse_existing'}");
	_cleanup_(issue_clear) struct issue one = { 0 }, two = { 0 }, stored = { 0 };

	assert_done(r, fields_check(ISSUE_FIELDS, local, &r->err));
	assert_done(r, fields_check(ISSUE_FIELDS, unset, &r->err));
	assert_done(r, issue_create(WRITER(r->db, r->clock, &SOMEBODY), r->company.id, local, &one,
				    &r->err));
	assert_done(r, issue_create(WRITER(r->db, r->clock, &SOMEBODY), r->company.id, unset, &two,
				    &r->err));
	assert_done(r, issue_get(r->db, one.id, &stored, &r->err));
	assert_int_equal(json_state(stored.execution_workspace_settings, "environmentId"),
			 JSON_IS_NULL);
	issue_clear(&stored);
	assert_done(r, issue_get(r->db, two.id, &stored, &r->err));
	assert_int_equal(json_state(stored.execution_workspace_settings, "environmentId"),
			 JSON_IS_ABSENT);
	assert_string_equal(stored.execution_workspace_preference, "reuse_existing");
	assert_int_equal(stored.status, ISSUE_STATUS_BACKLOG);

	_cleanup_json_ json_t *list =
		issue_list(r->db, &(struct list_query){ .company_id = r->company.id }, &r->err);

	assert_int_equal(json_array_size(list), 2);
}

static void a_project_keeps_its_policy(void **state)
{
	struct records *r = records_of(state);
	_cleanup_json_ json_t *body =
		json_of("{'name':'Apollo','executionWorkspacePolicy':{'enabled':true,"
			"'defaultMode':'adapter_default','environmentId':null}}");
	_cleanup_json_ json_t *wrong =
		json_of("{'name':'Apollo','executionWorkspacePolicy':{'defaultMode':'inherit'}}");
	_cleanup_(project_clear) struct project made = { 0 }, stored = { 0 };

	assert_refused(r, ERR_VALIDATION, fields_check(PROJECT_FIELDS, wrong, &r->err));
	error_clear(&r->err);
	assert_done(r, fields_check(PROJECT_FIELDS, body, &r->err));
	assert_done(r, project_create(WRITER(r->db, r->clock, &SOMEBODY), r->company.id, body,
				      &made, &r->err));
	assert_done(r, project_get(r->db, made.id, &stored, &r->err));
	assert_json(stored.execution_workspace_policy,
		    "{'enabled':true,'defaultMode':'adapter_default','environmentId':null}");

	_cleanup_json_ json_t *list =
		project_list(r->db, &(struct list_query){ .company_id = r->company.id }, &r->err);

	assert_int_equal(json_array_size(list), 1);
}

struct first_runs {
	struct records *r;
	const struct agent *agent;
	int done[8];
};

static void begin_first_run(int number, void *arg)
{
	struct first_runs *runs = arg;
	_cleanup_error_ struct error err = { 0 };

	runs->done[number] =
		agent_ensure_state(runs->r->db, runs->r->clock, runs->agent, &err) == 0;
}

static void first_runs_that_meet_make_one_state_of_the_agent(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(agent_clear) struct agent agent = { 0 };

	assert_done(r, make_agent(r, "{'name':'Ada'}", &agent));

	struct first_runs runs = { .r = r, .agent = &agent };

	in_parallel(8, begin_first_run, &runs);
	for (int i = 0; i < 8; i++)
		assert_true(runs.done[i]);
	assert_int_equal(records_number(r, &STATE_COUNT), 1);
}

static void the_last_run_of_an_agent_is_noted_with_and_without_a_state(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(agent_clear) struct agent agent = { 0 };

	assert_done(r, make_agent(r, "{'name':'Ada'}", &agent));
	assert_done(r, agent_note_run(r->db, r->clock, agent.id, "run-1", "failed", "it broke",
				      &r->err));
	_cleanup_free_ char *first = records_text(r, &STATE_LAST_ERROR, B_TEXT(agent.id));

	assert_string_equal(first, "it broke");
	assert_done(r,
		    agent_note_run(r->db, r->clock, agent.id, "run-2", "succeeded", NULL, &r->err));
	_cleanup_free_ char *status = records_text(r, &STATE_LAST_RUN, B_TEXT(agent.id));
	_cleanup_free_ char *error = records_text(r, &STATE_LAST_ERROR, B_TEXT(agent.id));

	assert_string_equal(status, "succeeded");
	assert_null(error);
	assert_int_equal(records_number(r, &STATE_COUNT), 1);
	assert_refused(r, ERR_NOT_FOUND,
		       agent_note_run(r->db, r->clock, "nobody", "run-3", "failed", NULL, &r->err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BOTH(creating_a_company_makes_its_local_environment_and_says_so),
		ON_SQLITE(a_company_name_is_trimmed_and_one_to_a_hundred_bytes),
		ON_BOTH(a_taken_company_name_is_a_conflict_and_changes_nothing),
		ON_BOTH(a_company_is_found_by_id_and_by_name_and_listed_oldest_first),
		ON_BOTH(an_agent_is_kept_as_given_with_defaults_for_the_rest),
		ON_SQLITE(an_agent_body_with_a_wrong_key_or_type_is_refused),
		ON_BOTH(a_reference_into_another_company_is_refused),
		ON_BOTH(nothing_is_made_in_a_company_that_does_not_exist),
		ON_BOTH(an_issue_keeps_a_null_choice_apart_from_no_choice),
		ON_BOTH(a_project_keeps_its_policy),
		ON_BOTH(first_runs_that_meet_make_one_state_of_the_agent),
		ON_BOTH(the_last_run_of_an_agent_is_noted_with_and_without_a_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

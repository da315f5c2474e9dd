#include "record_fixture.h"
#include "record/selection.h"
#include "record/workspace.h"

SQL(WORKSPACE_SPOIL, "UPDATE execution_workspaces SET mode = 'balcony' WHERE id = $1");

static void project_of(struct records *r, const char *company_id, struct project *out)
{
	_cleanup_json_ json_t *body = json_of("{'name':'Apollo'}");

	assert_done(r, project_create(WRITER(r->db, r->clock, &SOMEBODY), company_id, body, out,
				      &r->err));
}

static void a_workspace_gets_defaults_and_keeps_what_it_was_given(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(project_clear) struct project project = { 0 };
	_cleanup_(workspace_record_clear) struct workspace_record made = { 0 }, stored = { 0 };
	struct workspace_record in = { .name = (char *)"main", .cwd = (char *)"/srv/apollo" };

	project_of(r, r->company.id, &project);
	id_copy(in.company_id, r->company.id);
	id_copy(in.project_id, project.id);
	assert_done(r, workspace_record_create(WRITER(r->db, r->clock, &ACTOR_SYSTEM), &in, &made,
					       &r->err));
	assert_done(r, workspace_record_get(r->db, made.id, &stored, &r->err));
	assert_string_equal(stored.mode, "shared_workspace");
	assert_string_equal(stored.status, "active");
	assert_string_equal(stored.strategy_type, "project_primary");
	assert_string_equal(stored.provider_type, "local_fs");
	assert_string_equal(stored.cwd, "/srv/apollo");
	assert_null(stored.metadata);
	assert_int_equal(stored.opened_at, RECORDS_START_MS);
	assert_int_equal(stored.closed_at, 0);

	_cleanup_json_ json_t *json = workspace_record_json(&stored);

	assert_int_equal(json_state(json, "config"), JSON_IS_NULL);
	assert_int_equal(json_state(json, "sourceIssueId"), JSON_IS_NULL);
}

static void a_workspace_needs_a_project_of_its_company_and_known_words(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(company_clear) struct company other = { 0 };
	_cleanup_(project_clear) struct project foreign = { 0 }, own = { 0 };
	struct workspace_record in = { .name = (char *)"main" };

	assert_done(r, company_create(WRITER(r->db, r->clock, &SOMEBODY), "Other", NULL, &other,
				      &r->err));
	project_of(r, other.id, &foreign);
	project_of(r, r->company.id, &own);
	id_copy(in.company_id, r->company.id);
	assert_refused(r, ERR_VALIDATION,
		       workspace_record_create(WRITER(r->db, r->clock, &ACTOR_SYSTEM), &in, NULL,
					       &r->err));
	id_copy(in.project_id, foreign.id);
	assert_refused(r, ERR_UNPROCESSABLE,
		       workspace_record_create(WRITER(r->db, r->clock, &ACTOR_SYSTEM), &in, NULL,
					       &r->err));
	id_copy(in.project_id, own.id);
	in.mode = (char *)"balcony";
	assert_refused(r, ERR_VALIDATION,
		       workspace_record_create(WRITER(r->db, r->clock, &ACTOR_SYSTEM), &in, NULL,
					       &r->err));
	in.mode = (char *)"cloud_sandbox";
	in.status = (char *)"gone";
	assert_refused(r, ERR_VALIDATION,
		       workspace_record_create(WRITER(r->db, r->clock, &ACTOR_SYSTEM), &in, NULL,
					       &r->err));
}

static void metadata_of_a_workspace_is_replaced_but_for_its_config(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(project_clear) struct project project = { 0 };
	_cleanup_(workspace_record_clear) struct workspace_record made = { 0 }, stored = { 0 };
	_cleanup_json_ json_t *first = json_of("{'a':1,'config':{'provisionCommand':'make'}}");
	_cleanup_json_ json_t *second = json_of("{'b':2}");
	struct workspace_record in = { .name = (char *)"main", .metadata = first };

	project_of(r, r->company.id, &project);
	id_copy(in.company_id, r->company.id);
	id_copy(in.project_id, project.id);
	assert_done(r, workspace_record_create(WRITER(r->db, r->clock, &ACTOR_SYSTEM), &in, &made,
					       &r->err));
	clock_fake_advance(&r->fake, 10);
	assert_done(r, workspace_record_set_metadata(r->db, r->clock, made.id, second, &r->err));
	assert_done(r, workspace_record_get(r->db, made.id, &stored, &r->err));
	assert_json(stored.metadata, "{'b':2,'config':{'provisionCommand':'make'}}");
	assert_int_equal(stored.updated_at, RECORDS_START_MS + 10);
	assert_refused(r, ERR_NOT_FOUND,
		       workspace_record_set_metadata(r->db, r->clock, "nobody", second, &r->err));
}

static void an_unknown_word_in_a_workspace_row_is_reported(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(project_clear) struct project project = { 0 };
	_cleanup_(workspace_record_clear) struct workspace_record made = { 0 }, stored = { 0 };
	struct workspace_record in = { .name = (char *)"main" };

	project_of(r, r->company.id, &project);
	id_copy(in.company_id, r->company.id);
	id_copy(in.project_id, project.id);
	assert_done(r, workspace_record_create(WRITER(r->db, r->clock, &ACTOR_SYSTEM), &in, &made,
					       &r->err));
	records_exec(r, &WORKSPACE_SPOIL, B_TEXT(made.id));
	assert_refused(r, ERR_DB, workspace_record_get(r->db, made.id, &stored, &r->err));
	assert_string_equal(r->err.message, "unexpected workspace mode value: balcony");
}

static json_t *config_of(const char *metadata)
{
	_cleanup_json_ json_t *json = json_of(metadata);

	return workspace_config(json);
}

static void WC_9_the_config_is_read_from_metadata_with_every_key(void **state)
{
	_cleanup_json_ json_t *config = config_of(
		"{'other':1,'config':{'environmentId':' env-1 ','provisionCommand':'make',"
		"'teardownCommand':'  ','cleanupCommand':7,'workspaceRuntime':{'port':1},"
		"'desiredState':'running','serviceStates':{'web':'manual','db':'asleep'},"
		"'extra':true}}");

	(void)state;
	assert_json(config, "{'environmentId':'env-1','provisionCommand':'make',"
			    "'teardownCommand':null,'cleanupCommand':null,"
			    "'workspaceRuntime':{'port':1},'desiredState':'running',"
			    "'serviceStates':{'web':'manual'}}");
}

static void WC_9_a_config_without_anything_in_it_is_none(void **state)
{
	(void)state;
	assert_null(workspace_config(NULL));
	assert_null(config_of("{}"));
	assert_null(config_of("{'config':null}"));
	assert_null(config_of("{'config':[]}"));
	assert_null(config_of("{'config':{}}"));
	assert_null(config_of("{'config':{'environmentId':' ','provisionCommand':null,"
			      "'desiredState':'asleep','serviceStates':{'web':'asleep'},"
			      "'workspaceRuntime':[]}}"));
}

static void I11_a_config_that_chose_nothing_does_not_choose_this_host(void **state)
{
	_cleanup_json_ json_t *unset = config_of("{'config':{'provisionCommand':'make'}}");
	_cleanup_json_ json_t *local =
		config_of("{'config':{'provisionCommand':'make','environmentId':null}}");
	_cleanup_json_ json_t *only_local = config_of("{'config':{'environmentId':null}}");

	(void)state;
	assert_int_equal(json_state(unset, "environmentId"), JSON_IS_ABSENT);
	assert_int_equal(json_state(local, "environmentId"), JSON_IS_NULL);
	assert_int_equal(json_state(only_local, "environmentId"), JSON_IS_NULL);
}

static void a_workspace_has_the_mode_that_its_issue_asks_for(void **state)
{
	static const char *const TABLE[][2] = {
		{ "isolated_workspace", "isolated_workspace" },
		{ "operator_branch", "operator_branch" },
		{ "agent_default", "adapter_managed" },
		{ "shared_workspace", "shared_workspace" },
		{ "inherit", "shared_workspace" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(TABLE); i++)
		assert_string_equal(workspace_mode_for_issue(TABLE[i][0]), TABLE[i][1]);
}

static void assert_wanted(const char *settings, const char *policy, const char *mode)
{
	_cleanup_json_ json_t *own = json_of(settings), *project = json_of(policy);

	assert_string_equal(issue_mode_wanted(own, project), mode);
}

static void an_issue_has_its_own_mode_or_its_projects(void **state)
{
	(void)state;
	assert_wanted("{'mode':'operator_branch'}", "{'enabled':true}", "operator_branch");
	assert_wanted("{'mode':'inherit'}", "{'enabled':true,'defaultMode':'isolated_workspace'}",
		      "isolated_workspace");
	assert_wanted("{}", "{'enabled':true,'defaultMode':'adapter_default'}", "agent_default");
	assert_wanted("{'mode':'reuse_existing'}", "{'enabled':true}", "shared_workspace");
	/* A policy that is not enabled has no say in it. */
	assert_wanted("{}", "{'defaultMode':'isolated_workspace'}", "shared_workspace");
}

static json_t *merged(const char *metadata, const char *patch)
{
	_cleanup_json_ json_t *before = json_of(metadata), *over = json_of(patch);

	return workspace_config_merge(before, over);
}

static void WC_10_a_merge_keeps_other_metadata_and_other_keys(void **state)
{
	_cleanup_json_ json_t *after =
		merged("{'source':'task','config':{'environmentId':'env-1','cleanupCommand':'c'}}",
		       "{'provisionCommand':'make'}");

	(void)state;
	assert_json(after, "{'source':'task','config':{'environmentId':'env-1',"
			   "'provisionCommand':'make','teardownCommand':null,"
			   "'cleanupCommand':'c','workspaceRuntime':null,'desiredState':null,"
			   "'serviceStates':null}}");
}

static void WC_11_taking_the_only_key_away_removes_the_config(void **state)
{
	_cleanup_json_ json_t *kept = merged("{'source':'task','config':{'environmentId':'env-1'}}",
					     "{'environmentId':null}");

	(void)state;
	assert_json(kept, "{'source':'task'}");
	assert_null(merged("{'config':{'environmentId':'env-1'}}", "{'environmentId':null}"));
}

static void WC_12_a_patch_of_null_drops_the_config(void **state)
{
	_cleanup_json_ json_t *kept = merged("{'a':1,'config':{'cleanupCommand':'c'}}", "null");

	(void)state;
	assert_json(kept, "{'a':1}");
	assert_null(merged("{'config':{'cleanupCommand':'c'}}", "null"));
}

struct clearing {
	const char *company_id, *environment_id;
	struct selection_counts counts;
};

static int clear_selection(struct tx *tx, void *arg, struct error *err)
{
	struct clearing *clearing = arg;

	return selection_clear_tx(tx, RECORDS_START_MS, &ACTOR_SYSTEM, clearing->company_id,
				  clearing->environment_id, &clearing->counts, err);
}

static void workspace_with(struct records *r, const struct project *project, const char *metadata,
			   struct workspace_record *out)
{
	_cleanup_json_ json_t *json = json_of(metadata);
	struct workspace_record in = { .name = (char *)"w", .metadata = json };

	id_copy(in.company_id, r->company.id);
	id_copy(in.project_id, project->id);
	assert_done(r, workspace_record_create(WRITER(r->db, r->clock, &ACTOR_SYSTEM), &in, out,
					       &r->err));
}

SQL(WORKSPACE_CHOOSE, "UPDATE execution_workspaces SET metadata = $2 WHERE id = $1");

static void WC_13_clearing_a_choice_touches_only_those_who_made_it(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(project_clear) struct project project = { 0 };
	_cleanup_workspace_ struct workspace_record one = { 0 }, two = { 0 }, after = { 0 };
	_cleanup_workspace_ struct workspace_record other = { 0 };
	struct clearing clearing = { .company_id = r->company.id, .environment_id = "env-1" };

	project_of(r, r->company.id, &project);
	workspace_with(r, &project, "{}", &one);
	workspace_with(r, &project, "{}", &two);
	records_exec(r, &WORKSPACE_CHOOSE, B_TEXT(one.id),
		     B_TEXT("{\"config\":{\"environmentId\":\"env-1\","
			    "\"cleanupCommand\":\"c\"}}"));
	records_exec(r, &WORKSPACE_CHOOSE, B_TEXT(two.id),
		     B_TEXT("{\"config\":{\"environmentId\":\"env-2\"}}"));
	assert_done(r, DB_WRITE(r->db, "test.clear", clear_selection, &clearing, &r->err));
	assert_int_equal(clearing.counts.workspaces, 1);
	assert_done(r, workspace_record_get(r->db, one.id, &after, &r->err));
	assert_json(after.metadata, "{'config':{'cleanupCommand':'c'}}");
	assert_done(r, workspace_record_get(r->db, two.id, &other, &r->err));
	assert_json(other.metadata, "{'config':{'environmentId':'env-2'}}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BOTH(a_workspace_gets_defaults_and_keeps_what_it_was_given),
		ON_BOTH(a_workspace_needs_a_project_of_its_company_and_known_words),
		ON_BOTH(metadata_of_a_workspace_is_replaced_but_for_its_config),
		ON_SQLITE(an_unknown_word_in_a_workspace_row_is_reported),
		cmocka_unit_test(WC_9_the_config_is_read_from_metadata_with_every_key),
		cmocka_unit_test(WC_9_a_config_without_anything_in_it_is_none),
		cmocka_unit_test(I11_a_config_that_chose_nothing_does_not_choose_this_host),
		cmocka_unit_test(a_workspace_has_the_mode_that_its_issue_asks_for),
		cmocka_unit_test(an_issue_has_its_own_mode_or_its_projects),
		cmocka_unit_test(WC_10_a_merge_keeps_other_metadata_and_other_keys),
		cmocka_unit_test(WC_11_taking_the_only_key_away_removes_the_config),
		cmocka_unit_test(WC_12_a_patch_of_null_drops_the_config),
		ON_BOTH(WC_13_clearing_a_choice_touches_only_those_who_made_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

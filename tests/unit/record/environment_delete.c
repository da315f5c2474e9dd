#include "record_fixture.h"
#include "record/workspace.h"

#include <stdio.h>

SQL(PUT_PLACE, "INSERT INTO places (id, company_id, environment_id, driver, provider, provider_ref,"
	       " state, node_id, boot_epoch, fencing, discoverable, created_at, updated_at)"
	       " VALUES ($1, $2, $3, 'sandbox', 'fake', $1, $4, 'node', 1, 'server', 1, 1, 1)");
SQL(PUT_LEASE, "INSERT INTO leases (id, company_id, environment_id, place_id, generation, status,"
	       " lease_policy, acquired_at, last_used_at, node_id, boot_epoch, created_at,"
	       " updated_at) VALUES ($1, $2, $3, $4, 1, $5, 'ephemeral', 1, 1, 'node', 1, 1, 1)");
SQL(PUT_INTENT, "INSERT INTO intents (id, company_id, environment_id, kind, driver, provider,"
		" provider_ref, config, request, node_id, boot_epoch, state, created_at,"
		" updated_at) VALUES ($1, $2, $3, 'create', 'sandbox', 'fake', $1, '{}', '{}',"
		" 'node', 1, 'open', 1, 1)");
SQL(PUT_RUN, "INSERT INTO runs (id, company_id, environment_id, status, command, node_id,"
	     " boot_epoch, created_at, updated_at)"
	     " VALUES ($1, $2, $3, $4, '[]', 'node', 1, 1, 1)");
SQL(PUT_ISSUE, "INSERT INTO issues (id, company_id, title, execution_workspace_settings,"
	       " created_at, updated_at) VALUES ($1, $2, 'x', $3, $4, 1)");
SQL(DROP_LEASES, "DELETE FROM leases");
SQL(DROP_PLACES, "DELETE FROM places");
SQL(DROP_INTENTS, "DELETE FROM intents");
SQL(DROP_RUNS, "DELETE FROM runs");
SQL(COUNT_INTENTS, "SELECT COUNT(*) FROM intents WHERE environment_id = $1");
SQL(COUNT_ENVIRONMENT, "SELECT COUNT(*) FROM environments WHERE id = $1");
SQL(LEASE_ENVIRONMENT, "SELECT environment_id FROM leases WHERE id = $1");
SQL(COUNT_LEASES, "SELECT COUNT(*) FROM leases");
SQL(ISSUE_SETTINGS, "SELECT execution_workspace_settings FROM issues WHERE id = $1");
SQL(COUNT_CHOOSING_ISSUES,
    "SELECT COUNT(*) FROM issues WHERE execution_workspace_settings <> '{}'");

static int delete_by_id(struct records *r, const char *id)
{
	return environment_delete(r->db, r->clock, &SOMEBODY, id, NULL, &r->err);
}

static void assert_blocked(struct records *r, const char *id, const char *reasons, const char *key,
			   int64_t count)
{
	assert_refused(r, ERR_ENVIRONMENT_IN_USE, delete_by_id(r, id));

	_cleanup_json_ json_t *details = json_parse(r->err.details, strlen(r->err.details), NULL);

	assert_json(json_object_get(details, "deleteBlockedReasons"), reasons);
	assert_int_equal(json_int(details, key, -1), count);
	assert_int_equal(records_number(r, &COUNT_ENVIRONMENT, B_TEXT(id)), 1);
}

static void the_local_environment_cannot_be_deleted(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment local = { 0 };

	assert_done(r, environment_ensure_local(r->db, r->clock, r->company.id, &local, &r->err));
	assert_blocked(r, local.id, "['local_environment']", "activeLeases", 0);
	assert_non_null(strstr(r->err.message, "the company's Local environment"));
}

static void I12_an_environment_in_use_cannot_be_deleted(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment e = { 0 };
	const char *company = r->company.id;
	const char *const unfinished[] = { "queued", "running", "scheduled_retry" };
	const struct {
		const char *status, *reasons, *key;
	} leases[] = {
		{ "active", "['active_leases']", "activeLeases" },
		{ "retained", "['retained_leases']", "retainedLeases" },
		{ "pending_cleanup", "['pending_cleanup_leases']", "pendingCleanupLeases" },
	};

	records_environment(r, "Box", DRIVER_SANDBOX, &e);
	for (size_t i = 0; i < ARRAY_SIZE(leases); i++) {
		records_exec(r, &PUT_PLACE, B_TEXT("p"), B_TEXT(company), B_TEXT(e.id),
			     B_TEXT("gone"));
		records_exec(r, &PUT_LEASE, B_TEXT("l"), B_TEXT(company), B_TEXT(e.id), B_TEXT("p"),
			     B_TEXT(leases[i].status));
		assert_blocked(r, e.id, leases[i].reasons, leases[i].key, 1);
		records_exec(r, &DROP_LEASES);
		records_exec(r, &DROP_PLACES);
	}
	for (enum place_state s = PLACE_HELD; s < PLACE_GONE; s++) {
		records_exec(r, &PUT_PLACE, B_TEXT("p"), B_TEXT(company), B_TEXT(e.id),
			     B_TEXT(place_state_name(s)));
		assert_blocked(r, e.id, "['live_places']", "livePlaces", 1);
		records_exec(r, &DROP_PLACES);
	}
	records_exec(r, &PUT_INTENT, B_TEXT("i"), B_TEXT(company), B_TEXT(e.id));
	assert_blocked(r, e.id, "['open_intents']", "openIntents", 1);
	records_exec(r, &DROP_INTENTS);
	for (size_t i = 0; i < ARRAY_SIZE(unfinished); i++) {
		records_exec(r, &PUT_RUN, B_TEXT("r"), B_TEXT(company), B_TEXT(e.id),
			     B_TEXT(unfinished[i]));
		assert_blocked(r, e.id, "['unfinished_runs']", "unfinishedRuns", 1);
		records_exec(r, &DROP_RUNS);
	}
	assert_done(r, delete_by_id(r, e.id));
}

static void every_reason_is_named_at_once(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment e = { 0 };
	const char *company = r->company.id;

	records_environment(r, "Box", DRIVER_SANDBOX, &e);
	records_exec(r, &PUT_PLACE, B_TEXT("p"), B_TEXT(company), B_TEXT(e.id), B_TEXT("held"));
	records_exec(r, &PUT_LEASE, B_TEXT("l"), B_TEXT(company), B_TEXT(e.id), B_TEXT("p"),
		     B_TEXT("active"));
	records_exec(r, &PUT_RUN, B_TEXT("r"), B_TEXT(company), B_TEXT(e.id), B_TEXT("running"));
	assert_blocked(r, e.id, "['active_leases','live_places','unfinished_runs']",
		       "unfinishedRuns", 1);
	assert_string_equal(r->err.message,
			    "Environment \"Box\" is in use: 1 active leases, 1 places that exist, "
			    "1 unfinished runs. To delete it: release them (berth lease release); "
			    "cancel them (berth cancel) or wait for their end");
}

static void history_does_not_keep_an_environment_and_outlives_it(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment e = { 0 }, removed = { 0 };
	const char *company = r->company.id;

	records_environment(r, "Box", DRIVER_SANDBOX, &e);
	records_exec(r, &PUT_PLACE, B_TEXT("p"), B_TEXT(company), B_TEXT(e.id), B_TEXT("gone"));
	records_exec(r, &PUT_LEASE, B_TEXT("l"), B_TEXT(company), B_TEXT(e.id), B_TEXT("p"),
		     B_TEXT("released"));
	records_exec(r, &PUT_RUN, B_TEXT("r"), B_TEXT(company), B_TEXT(e.id), B_TEXT("succeeded"));
	assert_done(r, environment_delete(r->db, r->clock, &SOMEBODY, e.id, &removed, &r->err));
	assert_string_equal(removed.name, "Box");
	assert_int_equal(records_number(r, &COUNT_LEASES), 1);

	_cleanup_free_ char *environment = records_text(r, &LEASE_ENVIRONMENT, B_TEXT("l"));

	assert_null(environment);
	assert_refused(r, ERR_NOT_FOUND, delete_by_id(r, e.id));
}

struct choosers {
	struct agent agent;
	struct issue issue;
	struct project project;
	struct workspace_record workspace;
};

static void choosers_clear(struct choosers *c)
{
	agent_clear(&c->agent);
	issue_clear(&c->issue);
	project_clear(&c->project);
	workspace_record_clear(&c->workspace);
}

/* An agent, an issue, a project and a workspace that chose the environment. */
static void choose(struct records *r, const char *environment_id, struct choosers *out)
{
	const char *company = r->company.id;
	_cleanup_json_ json_t *agent = json_of("{'name':'Ada'}");
	_cleanup_json_ json_t *issue =
		json_of("{'title':'Fix','executionWorkspaceSettings':{'mode':'inherit'}}");
	_cleanup_json_ json_t *project =
		json_of("{'name':'Apollo','executionWorkspacePolicy':{'enabled':true}}");
	_cleanup_json_ json_t *metadata = json_of("{'a':1,'config':{'cleanupCommand':'rm'}}");
	struct workspace_record in = { .name = (char *)"main", .metadata = metadata };

	json_put_str(agent, "defaultEnvironmentId", environment_id);
	json_put_str(json_object_at(issue, "executionWorkspaceSettings"), "environmentId",
		     environment_id);
	json_put_str(json_object_at(project, "executionWorkspacePolicy"), "environmentId",
		     environment_id);
	json_put_str(json_object_at(metadata, "config"), "environmentId", environment_id);
	assert_done(r, agent_create(WRITER(r->db, r->clock, &SOMEBODY), company, agent, &out->agent,
				    &r->err));
	assert_done(r, issue_create(WRITER(r->db, r->clock, &SOMEBODY), company, issue, &out->issue,
				    &r->err));
	assert_done(r, project_create(WRITER(r->db, r->clock, &SOMEBODY), company, project,
				      &out->project, &r->err));
	id_copy(in.company_id, company);
	id_copy(in.project_id, out->project.id);
	assert_done(r, workspace_record_create(WRITER(r->db, r->clock, &ACTOR_SYSTEM), &in,
					       &out->workspace, &r->err));
}

static void read_again(struct records *r, struct choosers *c)
{
	char agent[ID_SIZE], issue[ID_SIZE], project[ID_SIZE], workspace[ID_SIZE];

	id_copy(agent, c->agent.id);
	id_copy(issue, c->issue.id);
	id_copy(project, c->project.id);
	id_copy(workspace, c->workspace.id);
	choosers_clear(c);
	assert_done(r, agent_get(r->db, agent, &c->agent, &r->err));
	assert_done(r, issue_get(r->db, issue, &c->issue, &r->err));
	assert_done(r, project_get(r->db, project, &c->project, &r->err));
	assert_done(r, workspace_record_get(r->db, workspace, &c->workspace, &r->err));
}

static void deleting_an_environment_unsets_every_choice_of_it_and_no_other(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment gone = { 0 }, stays = { 0 };
	_cleanup_(choosers_clear) struct choosers of_gone = { 0 }, of_stays = { 0 };

	records_environment(r, "Gone", DRIVER_SANDBOX, &gone);
	records_environment(r, "Stays", DRIVER_SANDBOX, &stays);
	choose(r, gone.id, &of_gone);
	choose(r, stays.id, &of_stays);
	assert_done(r, delete_by_id(r, gone.id));

	_cleanup_json_ json_t *activity = records_activity(r);
	const json_t *entry = json_array_get(activity, 0);

	assert_string_equal(json_str(entry, "action"), "environment.deleted");
	assert_json(json_object_get(entry, "details"),
		    "{'name':'Gone','driver':'sandbox','status':'active','clearedSelections':"
		    "{'agents':1,'issues':1,'projects':1,'executionWorkspaces':1}}");
	read_again(r, &of_gone);
	assert_string_equal(of_gone.agent.default_environment_id, "");
	assert_json(of_gone.issue.execution_workspace_settings, "{'mode':'inherit'}");
	assert_json(of_gone.project.execution_workspace_policy, "{'enabled':true}");
	assert_json(of_gone.workspace.metadata, "{'a':1,'config':{'cleanupCommand':'rm'}}");
	read_again(r, &of_stays);
	assert_string_equal(of_stays.agent.default_environment_id, stays.id);
	assert_string_equal(json_str(of_stays.issue.execution_workspace_settings, "environmentId"),
			    stays.id);
	assert_string_equal(json_str(of_stays.project.execution_workspace_policy, "environmentId"),
			    stays.id);
	assert_string_equal(
		json_str(json_object_at(of_stays.workspace.metadata, "config"), "environmentId"),
		stays.id);
}

static void a_workspace_that_chose_nothing_else_has_no_config_afterwards(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment e = { 0 };
	_cleanup_(choosers_clear) struct choosers c = { 0 };
	_cleanup_json_ json_t *nothing = json_of("{'config':null,'metadata':null}");
	_cleanup_json_ json_t *body = json_of("{'config':{}}");

	records_environment(r, "Box", DRIVER_SANDBOX, &e);
	choose(r, e.id, &c);
	json_put_str(json_object_at(body, "config"), "environmentId", e.id);
	assert_done(r, workspace_record_update(WRITER(r->db, r->clock, &ACTOR_SYSTEM),
					       c.workspace.id, nothing, NULL, &r->err));
	assert_done(r, workspace_record_update(WRITER(r->db, r->clock, &ACTOR_SYSTEM),
					       c.workspace.id, body, NULL, &r->err));
	assert_done(r, delete_by_id(r, e.id));
	read_again(r, &c);
	assert_null(c.workspace.metadata);
}

struct many_issues {
	struct records *r;
	const char *settings;
	int count;
};

static int put_issues(struct tx *tx, void *arg, struct error *err)
{
	const struct many_issues *many = arg;

	for (int i = 0; i < many->count; i++) {
		char id[ID_SIZE];

		id_new(id);
		/* Many in one millisecond, so that pages end in the middle of one. */
		if (tx_exec(tx, &PUT_ISSUE, err, B_TEXT(id), B_TEXT(many->r->company.id),
			    B_TEXT(many->settings), B_INT(i / 300)) < 0)
			return -1;
	}
	return 0;
}

static void choices_are_found_however_many_issues_there_are(void **state)
{
	struct records *r = records_of(state);
	_cleanup_environment_ struct environment e = { 0 };
	_cleanup_free_ char *settings = NULL;
	struct many_issues many = { .r = r, .count = 1250 };

	records_environment(r, "Box", DRIVER_SANDBOX, &e);
	settings = xasprintf("{\"environmentId\":\"%s\"}", e.id);
	many.settings = settings;
	assert_done(r, DB_WRITE(r->db, "test.issues", put_issues, &many, &r->err));
	assert_int_equal(records_number(r, &COUNT_CHOOSING_ISSUES), 1250);
	assert_done(r, delete_by_id(r, e.id));
	assert_int_equal(records_number(r, &COUNT_CHOOSING_ISSUES), 0);
}

/* As acquiring does it: look whether the environment is there, then write the intent. */
static int intend(struct tx *tx, void *arg, struct error *err)
{
	const struct environment *e = arg;
	_cleanup_environment_ struct environment found = { 0 };

	if (environment_get_tx(tx, e->id, &found, err) < 0)
		return -1;
	return tx_exec(tx, &PUT_INTENT, err, B_TEXT(e->id), B_TEXT(e->company_id), B_TEXT(e->id)) ==
			       1
		       ? 0
		       : -1;
}

struct race {
	struct records *r;
	struct environment *environment;
	bool done[2];
};

static void delete_or_intend(int number, void *arg)
{
	struct race *race = arg;
	_cleanup_error_ struct error err = { 0 };
	struct records *r = race->r;
	struct environment *e = race->environment;

	if (number == 0)
		race->done[0] =
			environment_delete(r->db, r->clock, &SOMEBODY, e->id, NULL, &err) == 0;
	else
		race->done[1] = DB_WRITE(r->db, "test.intend", intend, e, &err) == 0;
}

static void a_delete_and_an_acquire_that_meet_do_not_both_succeed(void **state)
{
	struct records *r = records_of(state);

	for (int i = 0; i < 25; i++) {
		_cleanup_environment_ struct environment e = { 0 };
		struct race race = { .r = r, .environment = &e };
		_cleanup_free_ char *name = xasprintf("Box %d", i);

		records_environment(r, name, DRIVER_SANDBOX, &e);
		in_parallel(2, delete_or_intend, &race);
		assert_true(race.done[0] != race.done[1]);
		assert_int_equal(records_number(r, &COUNT_ENVIRONMENT, B_TEXT(e.id)),
				 race.done[0] ? 0 : 1);
		assert_int_equal(records_number(r, &COUNT_INTENTS, B_TEXT(e.id)),
				 race.done[1] ? 1 : 0);
	}
}

static void a_choice_in_another_company_is_left_alone(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(company_clear) struct company other = { 0 };
	_cleanup_environment_ struct environment e = { 0 };
	_cleanup_free_ char *settings = NULL, *after = NULL;

	assert_done(r, company_create(WRITER(r->db, r->clock, &SOMEBODY), "Other", NULL, &other,
				      &r->err));
	records_environment(r, "Box", DRIVER_SANDBOX, &e);
	settings = xasprintf("{\"environmentId\":\"%s\"}", e.id);
	records_exec(r, &PUT_ISSUE, B_TEXT("theirs"), B_TEXT(other.id), B_TEXT(settings), B_INT(1));
	assert_done(r, delete_by_id(r, e.id));
	after = records_text(r, &ISSUE_SETTINGS, B_TEXT("theirs"));
	assert_string_equal(after, settings);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BOTH(the_local_environment_cannot_be_deleted),
		ON_BOTH(I12_an_environment_in_use_cannot_be_deleted),
		ON_BOTH(every_reason_is_named_at_once),
		ON_BOTH(history_does_not_keep_an_environment_and_outlives_it),
		ON_BOTH(deleting_an_environment_unsets_every_choice_of_it_and_no_other),
		ON_BOTH(a_workspace_that_chose_nothing_else_has_no_config_afterwards),
		ON_BOTH(choices_are_found_however_many_issues_there_are),
		ON_BOTH(a_delete_and_an_acquire_that_meet_do_not_both_succeed),
		ON_BOTH(a_choice_in_another_company_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

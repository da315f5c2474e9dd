/*
 * What the matrix of routes does not show: what tokens open and when they close, what a caller may
 * say about itself, and what handlers look at besides.
 */
#include "people.h"

static json_t *asked_json(struct people *p, enum who who, int status, const struct call *call)
{
	_cleanup_buf_ struct buf out = { 0 };
	int got = ask(p, who, call, &out);

	if (got != status)
		fail_msg("%s %s by %s: wanted %d, got %d %s", call->method, call->path, WHO[who],
			 status, got, buf_str(&out));
	return json_parse(buf_str(&out), out.len, NULL);
}

static void asked_refused(struct people *p, enum who who, int status, const char *text,
			  const struct call *call)
{
	_cleanup_json_ json_t *answer = asked_json(p, who, status, call);

	if (!strstr(json_str(answer, "error"), text))
		fail_msg("\"%s\" does not say \"%s\"", json_str(answer, "error"), text);
}

/* ---- the cases of the reference ---- */

#define LOCAL_SHELL                                                                                \
	"{\"name\": \"%s\", \"driver\": \"sandbox\", \"config\": {\"provider\": \"fake\"}}"

static void create_environment(struct people *p, enum who who, int status)
{
	PATH("/api/companies/%s/environments", p->ours.company);
	_cleanup_free_ char *body = xasprintf(LOCAL_SHELL, WHO[who]);

	if (status == 403)
		asked_refused(p, who, 403, "environments:manage", CALL("POST", path, body));
	else
		json_decref(asked_json(p, who, status, CALL("POST", path, body)));
}

static size_t environments(struct people *p)
{
	PATH("/api/companies/%s/environments", p->ours.company);
	_cleanup_json_ json_t *list = get(&p->api, path);

	return json_array_size(list);
}

static void RO_7_an_agent_that_may_create_agents_makes_an_environment(void **state)
{
	struct people *p = *state;
	PATH("/api/companies/%s/activity?limit=1", p->ours.company);

	create_environment(p, CREATOR, 201);

	_cleanup_json_ json_t *page = get(&p->api, path);
	const json_t *last = json_array_get(json_array_at(page, "items"), 0);

	assert_string_equal(json_str(last, "action"), "environment.created");
	assert_string_equal(json_str(last, "actorType"), "agent");
}

static void RO_8_a_person_with_the_permission_makes_an_environment(void **state)
{
	struct people *p = *state;
	PATH("/api/companies/%s/members/user/%s", p->ours.company, p->user[OPERATOR]);

	create_environment(p, OPERATOR, 403);
	json_decref(call_json(&p->api, 200,
			      CALL("PUT", path, "{\"permissions\": [\"environments:manage\"]}")));
	create_environment(p, OPERATOR, 201);
}

static void RO_9_a_person_without_it_does_not(void **state)
{
	struct people *p = *state;
	size_t before = environments(p);

	create_environment(p, OPERATOR, 403);
	assert_int_equal(environments(p), before);
}

static void RO_10_an_agent_with_the_grant_makes_an_environment(void **state)
{
	create_environment(*state, GRANTED, 201);
}

static void RO_11_an_agent_without_it_does_not(void **state)
{
	create_environment(*state, AGENT, 403);
}

static void RO_22_an_agent_of_another_company_is_told_so(void **state)
{
	struct people *p = *state;
	PATH("/api/companies/%s/environments", p->ours.company);

	asked_refused(p, OUT_AGENT, 403, "another company", CALL("GET", path));
}

/* ---- bearers ---- */

static void a_bad_bearer_is_refused_even_where_none_is_needed(void **state)
{
	static const char *const bad[] = { "Authorization: Bearer pcp_board_no",
					   "Authorization: Bearer a.b.c", "Authorization: Bearer ",
					   "Authorization: Basic cm9vdDo=" };
	struct people *p = *state;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct call call = { .method = "GET", .path = "/api/me", .header = bad[i] };

		refused(&p->api, 401, "unauthenticated", NULL, &call);
		call.path = "/api/health";
		refused(&p->api, 401, "unauthenticated", NULL, &call);
	}
	json_decref(get(&p->api, "/api/me"));
}

static void too_many_bad_bearers_have_to_wait(void **state)
{
	struct people *p = *state;

	for (int i = 0; i < 10; i++)
		assert_asked(p, 401, BAD_TOKEN, CALL("GET", "/api/me"));
	asked_refused(p, BAD_TOKEN, 429, "try again later", CALL("GET", "/api/me"));
	/* Nor does a good one help from there; without one there is nothing to guess. */
	assert_asked(p, 429, OWNER, CALL("GET", "/api/me"));
	assert_asked(p, 200, LOCAL, CALL("GET", "/api/me"));
}

static void what_a_proxy_passes_on_is_not_trusted(void **state)
{
	static const char *const marks[] = { "Forwarded: for=192.0.2.1", "Via: 1.1 proxy",
					     "X-Forwarded-For: 127.0.0.1", "X-Real-IP: ::1" };
	struct people *p = *state;

	for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
		struct call call = { .method = "GET", .path = "/api/me", .header = marks[i] };

		refused(&p->api, 401, "unauthenticated", NULL, &call);
		call.token = p->token[OWNER];
		json_decref(call_json(&p->api, 200, &call));
	}
}

static void a_revoked_token_and_a_disabled_user_are_out_at_once(void **state)
{
	struct people *p = *state;
	_cleanup_json_ json_t *own = asked_json(p, OWNER, 200, CALL("GET", "/api/tokens"));
	_cleanup_free_ char *token =
		xasprintf("/api/tokens/%s", json_str(json_array_get(own, 0), "id"));
	_cleanup_free_ char *user = xasprintf("/api/users/%s", p->user[ADMIN]);

	asked_refused(p, OPERATOR, 404, "Token not found", CALL("DELETE", token));
	assert_asked(p, 200, OWNER, CALL("DELETE", token));
	assert_asked(p, 401, OWNER, CALL("GET", "/api/me"));
	json_decref(call_json(&p->api, 200, CALL("PATCH", user, "{\"disabled\": true}")));
	assert_asked(p, 401, ADMIN, CALL("GET", "/api/me"));
}

static void a_terminated_agent_is_out_at_once(void **state)
{
	struct people *p = *state;
	PATH("/api/agents/%s", p->ours.agent);
	_cleanup_free_ char *keys = xasprintf("%s/keys", path);

	assert_asked(p, 200, AGENT, CALL("GET", "/api/me"));
	assert_asked(p, 200, RUN, CALL("GET", "/api/me"));
	json_decref(call_json(&p->api, 200, CALL("PATCH", path, "{\"status\": \"terminated\"}")));
	assert_asked(p, 401, AGENT, CALL("GET", "/api/me"));
	assert_asked(p, 401, RUN, CALL("GET", "/api/me"));
	refused(&p->api, 409, "conflict", "terminated", CALL("POST", keys, "{\"name\": \"k\"}"));
}

/* ---- tokens of runs ---- */

static void the_token_of_a_run_ends_with_it(void **state)
{
	struct people *p = *state;
	_cleanup_json_ json_t *me = asked_json(p, RUN, 200, CALL("GET", "/api/me"));

	assert_string_equal(json_str(me, "runId"), p->ours.run);
	assert_string_equal(json_str(me, "agentId"), p->ours.agent);
	assert_string_equal(json_str(me, "source"), "agent_jwt");
	end_run(p, p->ours.run);
	assert_asked(p, 401, RUN, CALL("GET", "/api/me"));
}

static void the_token_of_a_run_is_of_its_agent_and_company(void **state)
{
	struct people *p = *state;
	struct holdings mixed = p->ours;
	char *own = p->token[RUN];

	id_copy(mixed.agent, p->theirs.agent);
	p->token[RUN] = token_of_run(p, &mixed);
	assert_asked(p, 401, RUN, CALL("GET", "/api/me"));
	free(p->token[RUN]);
	mixed = p->ours;
	id_copy(mixed.company, p->theirs.company);
	p->token[RUN] = token_of_run(p, &mixed);
	assert_asked(p, 401, RUN, CALL("GET", "/api/me"));
	free(p->token[RUN]);
	p->token[RUN] = own;
}

/* The process of a run finds a token that works, and the URL to use it on. */
static void a_run_with_an_agent_is_given_a_token(void **state)
{
	struct people *p = *state;
	PATH("/api/companies/%s/runs", p->ours.company);
	_cleanup_free_ char *body = xasprintf(
		"{\"command\": [\"sh\", \"-c\", \"echo $BERTH_API_KEY; test $BERTH_API_KEY = "
		"$PAPERCLIP_API_KEY; sleep 60\"], \"agentId\": \"%s\", \"environmentId\": \"%s\"}",
		p->ours.agent, p->ours.environment);
	char run[ID_SIZE];
	_cleanup_buf_ struct buf log = { 0 };

	take_id(post(&p->api, 201, path, body), run);

	_cleanup_free_ char *log_path = xasprintf("/api/runs/%s/log?follow=0", run);

	WAIT_FOR(({
		struct call call = { .method = "GET",
				     .path = log_path,
				     .accept = "application/octet-stream" };

		buf_reset(&log);
		call_raw(&p->api, &call, &log) == 200 && log.len > 100;
	}));
	log.data[strcspn(log.data, "\n")] = '\0';
	free(p->token[RUN]);
	p->token[RUN] = xstrdup(log.data);

	_cleanup_json_ json_t *me = asked_json(p, RUN, 200, CALL("GET", "/api/me"));

	assert_string_equal(json_str(me, "runId"), run);
	end_run(p, run);
	assert_asked(p, 401, RUN, CALL("GET", "/api/me"));
}

static void a_run_that_brings_its_own_key_keeps_it(void **state)
{
	struct people *p = *state;
	PATH("/api/companies/%s/runs", p->ours.company);
	_cleanup_free_ char *body = xasprintf(
		"{\"command\": [\"sh\", \"-c\", \"echo $PAPERCLIP_API_KEY+$BERTH_API_KEY\"],"
		" \"env\": {\"PAPERCLIP_API_KEY\": \"mine\"}, \"agentId\": \"%s\","
		" \"environmentId\": \"%s\"}",
		p->ours.agent, p->ours.environment);
	char run[ID_SIZE];
	_cleanup_buf_ struct buf log = { 0 };

	take_id(post(&p->api, 201, path, body), run);

	_cleanup_free_ char *log_path = xasprintf("/api/runs/%s/log?follow=1", run);
	struct call call = { .method = "GET",
			     .path = log_path,
			     .accept = "application/octet-stream" };

	assert_int_equal(call_raw(&p->api, &call, &log), 200);
	assert_string_equal(buf_str(&log), "mine+\n");
}

/* ---- on behalf of which run ---- */

static void a_run_header_must_be_true(void **state)
{
	struct people *p = *state;
	PATH("/api/companies/%s/projects", p->ours.company);
	_cleanup_free_ char *ours = xasprintf("X-Paperclip-Run-Id: %s", p->ours.run);
	_cleanup_free_ char *theirs = xasprintf("X-Paperclip-Run-Id: %s", p->theirs.run);
	static const enum who everybody[] = { LOCAL, OWNER, AGENT, RUN };
	struct call call = { .method = "POST", .path = path, .body = "{\"name\": \"x\"}" };

	for (size_t i = 0; i < ARRAY_SIZE(everybody); i++) {
		call.header = theirs;
		asked_refused(p, everybody[i], 422, "X-Paperclip-Run-Id", &call);
		call.header = "X-Paperclip-Run-Id: bogus";
		asked_refused(p, everybody[i], 422, "X-Paperclip-Run-Id", &call);
		call.header = "X-Paperclip-Run-Id: 44444444-4444-4444-8444-444444444444";
		asked_refused(p, everybody[i], 422, "X-Paperclip-Run-Id", &call);
		call.header = ours;
		json_decref(asked_json(p, everybody[i], 201, &call));
	}
	/* Another agent's run is not one's own. */
	asked_refused(p, CREATOR, 422, "X-Paperclip-Run-Id", &call);

	_cleanup_free_ char *activity =
		xasprintf("/api/companies/%s/activity?limit=1", p->ours.company);
	_cleanup_json_ json_t *page = get(&p->api, activity);

	assert_string_equal(json_str(json_array_get(json_array_at(page, "items"), 0), "runId"),
			    p->ours.run);
}

/* ---- driver local ---- */

static void a_token_does_not_open_this_host(void **state)
{
	struct people *p = *state;
	_cleanup_free_ char *list =
		xasprintf("/api/companies/%s/environments?driver=local", p->ours.company);
	_cleanup_json_ json_t *found = get(&p->api, list);
	const char *local = json_str(json_array_get(found, 0), "id");
	_cleanup_free_ char *leases = xasprintf("/api/environments/%s/leases", local);
	_cleanup_free_ char *runs = xasprintf("/api/companies/%s/runs", p->ours.company);
	_cleanup_free_ char *here =
		xasprintf("{\"command\": [\"true\"], \"environmentId\": \"%s\"}", local);
	char lease[ID_SIZE], run[ID_SIZE];

	asked_refused(p, OWNER, 403, "driver local", CALL("POST", leases, "{}"));
	asked_refused(p, OWNER, 403, "driver local", CALL("POST", runs, here));
	/* By its name neither, whatever else is asked. */
	asked_refused(p, OWNER, 403, "driver local",
		      CALL("POST", runs, "{\"command\": [\"true\"], \"environment\": \"Local\"}"));
	asked_refused(p, OWNER, 403, "driver local",
		      CALL("POST", runs,
			   "{\"command\": [\"true\"], \"environment\": \"Local\", \"cwd\": \"/\","
			   " \"workspace\": {\"path\": \"/\"}, \"workspaceIfSandbox\": true}"));
	take_id(asked_json(p, OWNER, 201, CALL("POST", runs, "{\"command\": [\"true\"]}")), run);

	_cleanup_free_ char *show = xasprintf("/api/runs/%s", run);

	WAIT_FOR(({
		_cleanup_json_ json_t *now = get(&p->api, show);

		json_str(now, "finishedAt") != NULL;
	}));

	_cleanup_json_ json_t *ended = get(&p->api, show);

	assert_string_equal(json_str(ended, "status"), "failed");
	assert_string_equal(json_str(ended, "errorCode"), "forbidden");

	/* What local trust holds there is closed to tokens as well. */
	take_id(post(&p->api, 201, leases, "{}"), lease);

	_cleanup_free_ char *exec = xasprintf("/api/environment-leases/%s/exec", lease);
	_cleanup_free_ char *file =
		xasprintf("/api/environment-leases/%s/files?path=/etc/passwd", lease);
	_cleanup_free_ char *release = xasprintf("/api/environment-leases/%s/release", lease);

	asked_refused(p, OWNER, 403, "driver local",
		      CALL("POST", exec, "{\"command\": [\"true\"]}"));
	asked_refused(p, INSTANCE_ADMIN, 403, "driver local", CALL("GET", file));
	assert_asked(p, 200, OWNER, CALL("POST", release));
}

static void a_token_does_not_write_anywhere_as_the_server(void **state)
{
	struct people *p = *state;
	_cleanup_free_ char *body = xasprintf("{\"path\": \"%s/copy.db\"}", p->api.dir);
	_cleanup_free_ char *copy = xasprintf("%s/copy.db", p->api.dir);

	asked_refused(p, INSTANCE_ADMIN, 403, "leave it out", CALL("POST", "/api/backup", body));
	assert_int_equal(access(copy, F_OK), -1);
	assert_asked(p, 201, INSTANCE_ADMIN, CALL("POST", "/api/backup"));
	assert_asked(p, 201, LOCAL, CALL("POST", "/api/backup", body));
}

/* ---- what goes on in leases ---- */

static void execs_in_a_lease_are_for_those_who_may_have_leases(void **state)
{
	struct people *p = *state;
	_cleanup_free_ char *start =
		xasprintf("/api/environment-leases/%s/exec?detach=1", p->ours.lease);
	_cleanup_json_ json_t *exec = asked_json(
		p, GRANTED, 201, CALL("POST", start, "{\"command\": [\"sleep\", \"60\"]}"));
	_cleanup_free_ char *show = xasprintf("/api/execs/%s", json_str(exec, "id"));
	_cleanup_free_ char *signal = xasprintf("%s/signal", show);

	asked_refused(p, VIEWER, 403, "leases:use", CALL("GET", show));
	asked_refused(p, AGENT, 403, "leases:use", CALL("GET", show));
	asked_refused(p, OUTSIDER, 404, "Exec not found", CALL("GET", show));
	assert_asked(p, 200, ADMIN, CALL("GET", show));
	assert_asked(p, 200, OPERATOR, CALL("GET", show));
	asked_refused(p, VIEWER, 403, "read-only", CALL("POST", signal, "{\"signal\": \"KILL\"}"));
	assert_asked(p, 200, GRANTED, CALL("POST", signal, "{\"signal\": \"KILL\"}"));
}

static void an_operator_uses_places_and_does_not_redefine_them(void **state)
{
	struct people *p = *state;
	_cleanup_free_ char *leases = xasprintf("/api/environments/%s/leases", p->ours.environment);
	_cleanup_free_ char *environment = xasprintf("/api/environments/%s", p->ours.environment);
	_cleanup_json_ json_t *lease = asked_json(p, OPERATOR, 201, CALL("POST", leases, "{}"));
	_cleanup_free_ char *exec =
		xasprintf("/api/environment-leases/%s/exec?stream=0", json_str(lease, "id"));
	_cleanup_free_ char *files =
		xasprintf("/api/environment-leases/%s/files/list?path=.", json_str(lease, "id"));
	_cleanup_free_ char *release =
		xasprintf("/api/environment-leases/%s/release", json_str(lease, "id"));

	assert_asked(p, 200, OPERATOR, CALL("GET", leases));
	assert_asked(p, 200, OPERATOR, CALL("POST", exec, "{\"command\": [\"true\"]}"));
	assert_asked(p, 200, OPERATOR, CALL("GET", files));
	assert_asked(p, 200, OPERATOR, CALL("POST", release, "{}"));
	asked_refused(p, OPERATOR, 403, "environments:manage",
		      CALL("PATCH", environment, "{\"config\": {}}"));
	asked_refused(p, OPERATOR, 403, "environments:manage", CALL("DELETE", environment));
}

/* ---- words for permissions ---- */

static void a_word_that_is_no_permission_is_named_with_those_there_are(void **state)
{
	struct people *p = *state;
	_cleanup_free_ char *member =
		xasprintf("/api/companies/%s/members/user/%s", p->ours.company, p->user[OPERATOR]);
	const char *grant = "{\"permissions\": [\"leases:use\", \"leases:manage\"]}";
	const char *token = "{\"name\": \"t\", \"permissions\": [\"leases:manage\"]}";

	asked_refused(p, OWNER, 400, "\"leases:manage\"; there are agents:create, ",
		      CALL("PUT", member, grant));
	asked_refused(p, OWNER, 400, "leases:use, metrics:read", CALL("PUT", member, grant));
	asked_refused(p, OWNER, 400, "\"leases:manage\"; there are agents:create, ",
		      CALL("POST", "/api/tokens", token));
}

static void metrics_read_is_an_instance_admins_to_give_and_opens_metrics_alone(void **state)
{
	struct people *p = *state;
	const char *wish = "{\"name\": \"t\", \"permissions\": [\"metrics:read\"]}";
	_cleanup_free_ char *member =
		xasprintf("/api/companies/%s/members/user/%s", p->ours.company, p->user[OPERATOR]);

	asked_refused(p, OWNER, 403, "instance admins", CALL("POST", "/api/tokens", wish));
	asked_refused(p, LOCAL, 400, "--only metrics:read",
		      CALL("PUT", member, "{\"permissions\": [\"metrics:read\"]}"));
	assert_asked(p, 200, SCRAPER, CALL("GET", "/metrics"));
	asked_refused(p, SCRAPER, 403, "this token is for", CALL("GET", "/api/me"));
	asked_refused(p, SCRAPER, 403, "this token is for", CALL("POST", "/api/tokens", wish));
	asked_refused(p, SCRAPER, 403, "this token is for", CALL("GET", "/api/users"));
}

static void a_limited_token_of_an_admin_is_no_admin(void **state)
{
	struct people *p = *state;
	_cleanup_free_ char *wish = xasprintf(
		"{\"name\": \"t\", \"userId\": \"%s\", \"permissions\": [\"leases:use\"]}",
		p->user[OWNER]);
	_cleanup_json_ json_t *made = asked_json(p, LOCAL, 201, CALL("POST", "/api/tokens", wish));
	_cleanup_free_ char *leases = xasprintf("/api/environments/%s/leases", p->ours.environment);
	_cleanup_free_ char *theirs =
		xasprintf("/api/environments/%s/leases", p->theirs.environment);
	_cleanup_free_ char *environment = xasprintf("/api/environments/%s", p->ours.environment);
	struct call call = { .method = "GET", .path = leases, .token = json_str(made, "token") };
	_cleanup_buf_ struct buf out = { 0 };

	assert_string_equal(
		json_string_value(json_array_get(json_array_at(made, "permissions"), 0)),
		"leases:use");
	assert_int_equal(call_raw(&p->api, &call, &out), 200);
	call.path = theirs;
	assert_int_equal(call_raw(&p->api, &call, &out), 404);
	call.path = environment;
	assert_int_equal(call_raw(&p->api, &call, &out), 403);
	call.path = "/metrics";
	assert_int_equal(call_raw(&p->api, &call, &out), 403);
}

/* ---- what is one's own ---- */

static void people_see_their_own_companies_and_tokens(void **state)
{
	struct people *p = *state;
	_cleanup_json_ json_t *mine = asked_json(p, OPERATOR, 200, CALL("GET", "/api/companies"));
	_cleanup_json_ json_t *agents =
		asked_json(p, OUT_AGENT, 200, CALL("GET", "/api/companies"));
	_cleanup_json_ json_t *none = asked_json(p, SUSPENDED, 200, CALL("GET", "/api/companies"));
	_cleanup_json_ json_t *tokens = asked_json(p, OPERATOR, 200, CALL("GET", "/api/tokens"));
	_cleanup_json_ json_t *all = get(&p->api, "/api/tokens");
	_cleanup_free_ char *others = xasprintf("/api/tokens?userId=%s", p->user[OWNER]);
	_cleanup_free_ char *wish =
		xasprintf("{\"name\": \"x\", \"userId\": \"%s\"}", p->user[OWNER]);

	assert_int_equal(json_array_size(mine), 1);
	assert_string_equal(json_str(json_array_get(mine, 0), "id"), p->ours.company);
	assert_int_equal(json_array_size(agents), 1);
	assert_string_equal(json_str(json_array_get(agents, 0), "id"), p->theirs.company);
	assert_int_equal(json_array_size(none), 0);
	assert_int_equal(json_array_size(tokens), 1);
	assert_int_equal(json_array_size(all), 8);
	asked_refused(p, OPERATOR, 403, "Instance admin", CALL("GET", others));
	asked_refused(p, OPERATOR, 403, "Instance admin", CALL("POST", "/api/tokens", wish));
	asked_refused(p, AGENT, 403, "Board access", CALL("GET", "/api/tokens"));
	assert_asked(p, 200, INSTANCE_ADMIN, CALL("GET", others));
	refused(&p->api, 422, "unprocessable", "userId",
		CALL("POST", "/api/tokens", "{\"name\": \"x\"}"));
}

/* By name as by id, and a company that is not there cannot be told from one that is not theirs. */
static void the_name_of_another_company_tells_nothing(void **state)
{
	static const char *const foreign[] = { "theirs-only", "no-such-company" };
	struct people *p = *state;

	for (enum who who = OWNER; who <= RUN; who++) {
		if (who == SUSPENDED)
			continue;
		assert_asked(p, 200, who, CALL("GET", "/api/companies/ours/agents"));
		for (size_t i = 0; i < ARRAY_SIZE(foreign); i++) {
			PATH("/api/companies/%s/agents", foreign[i]);

			asked_refused(p, who, 403,
				      who >= AGENT ? "Agent key cannot access another company"
						   : "User does not have access to this company",
				      CALL("GET", path));
		}
	}
	assert_asked(p, 403, SUSPENDED, CALL("GET", "/api/companies/ours/agents"));
	assert_asked(p, 403, OUTSIDER, CALL("GET", "/api/companies/ours/agents"));
	assert_asked(p, 403, OUT_AGENT, CALL("GET", "/api/companies/ours/agents"));
	assert_asked(p, 403, VIEWER,
		     CALL("POST", "/api/companies/ours/agents", "{\"name\": \"a\"}"));
	assert_asked(p, 404, INSTANCE_ADMIN, CALL("GET", "/api/companies/no-such-company/agents"));
}

static void a_token_of_ones_own_can_be_made_with_a_token(void **state)
{
	struct people *p = *state;
	_cleanup_json_ json_t *made =
		asked_json(p, OPERATOR, 201, CALL("POST", "/api/tokens", "{\"name\": \"second\"}"));

	free(p->token[OPERATOR]);
	p->token[OPERATOR] = xstrdup(json_str(made, "token"));

	_cleanup_json_ json_t *me = asked_json(p, OPERATOR, 200, CALL("GET", "/api/me"));
	_cleanup_json_ json_t *tokens = asked_json(p, OPERATOR, 200, CALL("GET", "/api/tokens"));
	_cleanup_free_ char *listed = json_text(tokens);

	assert_string_equal(json_str(me, "id"), p->user[OPERATOR]);
	assert_non_null(json_str(made, "expiresAt"));
	assert_null(strstr(listed, p->token[OPERATOR]));
}

static void agents_make_no_keys(void **state)
{
	struct people *p = *state;
	PATH("/api/agents/%s/keys", p->ours.agent);

	asked_refused(p, CREATOR, 403, "Board access", CALL("POST", path, "{\"name\": \"k\"}"));
	asked_refused(p, CREATOR, 403, "Board access", CALL("GET", path));
	assert_asked(p, 201, ADMIN, CALL("POST", path, "{\"name\": \"k\"}"));
}

static void an_agent_that_was_removed_has_no_keys(void **state)
{
	struct people *p = *state;
	char gone[ID_SIZE];

	make_at(p, gone, "{\"name\": \"gone\"}", "/api/companies/%s/agents", p->ours.company);

	PATH("/api/agents/%s", gone);
	_cleanup_free_ char *keys = xasprintf("%s/keys", path);
	_cleanup_json_ json_t *key = post(&p->api, 201, keys, "{\"name\": \"k\"}");
	struct call me = { .method = "GET", .path = "/api/me", .token = json_str(key, "token") };

	json_decref(call_json(&p->api, 200, &me));
	json_decref(call_json(&p->api, 200, CALL("DELETE", path)));
	refused(&p->api, 401, "unauthenticated", NULL, &me);
	refused(&p->api, 404, "not_found", "Agent not found", CALL("GET", keys));
	refused(&p->api, 404, "not_found", NULL, CALL("POST", keys, "{\"name\": \"k\"}"));
}

static void an_agent_starts_runs_of_itself_only(void **state)
{
	struct people *p = *state;
	PATH("/api/companies/%s/runs", p->ours.company);
	_cleanup_free_ char *own =
		xasprintf("{\"command\": [\"true\"], \"agentId\": \"%s\"}", p->ours.agent);
	_cleanup_free_ char *elsewhere = xasprintf(
		"{\"command\": [\"true\"], \"agentId\": \"%s\", \"environmentId\": \"%s\"}",
		p->ours.agent, p->ours.environment);
	_cleanup_free_ char *by_name =
		xasprintf("{\"command\": [\"true\"], \"agentId\": \"%s\", \"environment\": \"%s\"}",
			  p->ours.agent, p->ours.environment);
	const char *nobodys = "{\"command\": [\"true\"]}";

	assert_asked(p, 201, AGENT, CALL("POST", path, own));
	assert_asked(p, 201, RUN, CALL("POST", path, own));
	asked_refused(p, CREATOR, 403, "of its own", CALL("POST", path, own));
	asked_refused(p, AGENT, 403, "of its own", CALL("POST", path, nobodys));
	/* Where it runs others have chosen. */
	asked_refused(p, AGENT, 403, "environmentId", CALL("POST", path, elsewhere));
	asked_refused(p, AGENT, 403, "environmentId", CALL("POST", path, by_name));
}

static void members_are_managed_by_owners(void **state)
{
	struct people *p = *state;
	PATH("/api/companies/%s/members/user/%s", p->ours.company, p->user[VIEWER]);
	_cleanup_free_ char *self =
		xasprintf("/api/companies/%s/members/user/%s", p->ours.company, p->user[OWNER]);

	assert_asked(p, 200, OWNER, CALL("PUT", path, "{\"role\": \"operator\"}"));
	assert_asked(p, 403, ADMIN, CALL("PUT", path, "{\"role\": \"owner\"}"));
	asked_refused(p, OWNER, 400, "permissions",
		      CALL("PUT", path, "{\"permissions\": [\"everything\"]}"));
	asked_refused(p, OWNER, 409, "needs an owner", CALL("DELETE", self));
	assert_asked(p, 200, OWNER, CALL("DELETE", path));
	assert_asked(p, 404, OWNER, CALL("DELETE", path));
}

/* ---- this host, as environments name it ---- */

#define NATIVE(config)                                                                             \
	"{\"name\": \"n\", \"driver\": \"sandbox\", \"config\": {\"provider\": "                   \
	"\"native\", " config "}}"
#define MOUNT(mode)                                                                                \
	"\"mounts\": [{\"source\": \"/usr/share\", \"target\": \"/mnt/x\", \"readOnly\": " mode "}]"

static const struct {
	const char *body, *patch, *flag;
	enum allow_switch opened; /* ALLOW_SWITCHES: it is a list */
	enum allow_list list;
} HOSTS[] = {
	{ NATIVE("\"network\": \"host\""), "{\"config\": {\"network\": \"host\"}}",
	  "--allow-host-network-for-tokens", ALLOW_HOST_NETWORK, ALLOW_LISTS },
	{ NATIVE("\"user\": \"root\""), "{\"config\": {\"user\": \"root\"}}",
	  "--allow-root-user-for-tokens", ALLOW_ROOT_USER, ALLOW_LISTS },
	{ NATIVE("\"sockets\": true"), "{\"config\": {\"sockets\": true}}",
	  "--allow-sockets-for-tokens", ALLOW_SOCKETS, ALLOW_LISTS },
	{ NATIVE(MOUNT("false")), "{\"config\": {" MOUNT("false") "}}",
	  "--allow-writable-mounts-for-tokens", ALLOW_WRITABLE_MOUNTS, ALLOW_MOUNT_RW },
	{ NATIVE(MOUNT("true")), "{\"config\": {" MOUNT("true") "}}", "--allow-mount gives",
	  ALLOW_SWITCHES, ALLOW_MOUNT },
	{ NATIVE("\"root\": \"/usr/share\""), "{\"config\": {\"root\": \"/usr/share\"}}",
	  "--allow-root gives", ALLOW_SWITCHES, ALLOW_ROOT },
};

static void a_token_saves_nothing_of_this_host_that_is_not_open(void **state)
{
	struct people *p = *state;
	struct allow *allow = &p->api.server->options.allow;
	char *list[] = { (char[]){ "/usr" }, NULL }, *theirs[] = { NULL, NULL };
	PATH("/api/companies/%s/environments", p->ours.company);
	_cleanup_free_ char *probe = xasprintf("%s/probe-config", path);

	theirs[0] = xasprintf("%s=/usr", p->theirs.company);
	for (size_t i = 0; i < ARRAY_SIZE(HOSTS); i++) {
		static const enum who ASKING[] = { INSTANCE_ADMIN, OWNER };
		_cleanup_json_ json_t *plain = asked_json(
			p, OWNER, 201, CALL("POST", path, NATIVE("\"network\": \"none\"")));
		_cleanup_free_ char *one = xasprintf("/api/environments/%s", json_str(plain, "id"));
		_cleanup_free_ char *probed = xasprintf("%s/probe", one);

		for (size_t k = 0; k < ARRAY_SIZE(ASKING); k++) {
			asked_refused(p, ASKING[k], 403, HOSTS[i].flag,
				      CALL("POST", path, HOSTS[i].body));
			asked_refused(p, ASKING[k], 403, HOSTS[i].flag,
				      CALL("PATCH", one, HOSTS[i].patch));
		}
		asked_refused(p, OWNER, 403, HOSTS[i].flag, CALL("POST", probe, HOSTS[i].body));
		/* Agents never do, whatever is open. */
		assert_asked(p, 403, CREATOR, CALL("POST", path, HOSTS[i].body));
		assert_asked(p, 403, GRANTED, CALL("PATCH", one, HOSTS[i].patch));
		if (HOSTS[i].opened < ALLOW_SWITCHES)
			allow->open[HOSTS[i].opened] = true;
		/* A list of another company is none of ours; a switch alone opens no directory. */
		if (HOSTS[i].list < ALLOW_LISTS) {
			allow->list[HOSTS[i].list] = theirs;
			asked_refused(p, OWNER, 403, ALLOW_LIST_FLAGS[HOSTS[i].list],
				      CALL("PATCH", one, HOSTS[i].patch));
			allow->list[HOSTS[i].list] = list;
		}
		assert_asked(p, 200, OWNER, CALL("PATCH", one, HOSTS[i].patch));
		*allow = (struct allow){ 0 };
		/* Saved while it was open: refused now, where it would be used. */
		{
			_cleanup_free_ char *leases = xasprintf("%s/leases", one);

			asked_refused(p, OPERATOR, 403, HOSTS[i].flag, CALL("POST", leases, "{}"));
			asked_refused(p, OWNER, 403, HOSTS[i].flag, CALL("POST", probed, "{}"));
		}
		assert_asked(p, 200, OWNER, CALL("PATCH", one, "{\"name\": \"renamed\"}"));
		/* The server's own user needs none of it. */
		_cleanup_json_ json_t *wide =
			asked_json(p, LOCAL, 201, CALL("POST", path, HOSTS[i].body));
		_cleanup_free_ char *its = xasprintf("/api/environments/%s", json_str(wide, "id"));

		assert_asked(p, 200, LOCAL, CALL("DELETE", its));
		assert_asked(p, 200, OWNER, CALL("DELETE", one));
	}
	free(theirs[0]);
}

static void a_run_of_a_token_gets_nothing_of_this_host_that_is_not_open(void **state)
{
	struct people *p = *state;
	PATH("/api/companies/%s/environments", p->ours.company);
	_cleanup_json_ json_t *wide =
		asked_json(p, LOCAL, 201, CALL("POST", path, NATIVE("\"network\": \"host\"")));
	_cleanup_free_ char *runs = xasprintf("/api/companies/%s/runs", p->ours.company);
	_cleanup_free_ char *body = xasprintf(
		"{\"command\": [\"true\"], \"environmentId\": \"%s\"}", json_str(wide, "id"));
	char id[ID_SIZE];

	take_id(asked_json(p, OWNER, 201, CALL("POST", runs, body)), id);
	_cleanup_free_ char *show = xasprintf("/api/runs/%s", id);

	WAIT_FOR(({
		_cleanup_json_ json_t *run = get(&p->api, show);
		bool ended = json_str(run, "finishedAt") != NULL;

		if (ended) {
			assert_string_equal(json_str(run, "status"), "failed");
			assert_non_null(
				strstr(json_str(run, "error"), "--allow-host-network-for-tokens"));
		}
		ended;
	}));
}

/* ---- directories of the server's machine ---- */

static void a_token_brings_no_directory_that_the_operator_did_not_allow(void **state)
{
	struct people *p = *state;
	PATH("/api/companies/%s/runs", p->ours.company);
	_cleanup_free_ char *plan = xasprintf("/api/companies/%s/workspace-plan", p->ours.company);
	_cleanup_free_ char *stage = xasprintf("/api/environment-leases/%s/stage", p->ours.lease);
	_cleanup_free_ char *wish = xasprintf("{\"workspace\": {\"path\": \"%s\"}}", p->api.dir);
	_cleanup_free_ char *body = xasprintf("{\"command\": [\"true\"], \"environmentId\": \"%s\","
					      " \"workspace\": {\"path\": \"%s/work\"}}",
					      p->ours.environment, p->api.dir);
	_cleanup_free_ char *work = xasprintf("%s/work", p->api.dir);
	_cleanup_free_ char *retry = NULL;
	char id[ID_SIZE];

	assert_int_equal(mkdir(work, 0755), 0);
	asked_refused(p, OWNER, 403, "--allow-workspace", CALL("POST", path, body));
	asked_refused(p, INSTANCE_ADMIN, 403, "--allow-workspace", CALL("POST", path, body));
	asked_refused(p, OWNER, 403, "--allow-workspace", CALL("POST", plan, wish));
	asked_refused(p, OWNER, 403, "--allow-workspace",
		      CALL("POST", stage, "{\"path\": \"/usr/share\"}"));
	/* Nor one that is not there, in other words. */
	asked_refused(p, OWNER, 403, "--allow-workspace",
		      CALL("POST", stage, "{\"path\": \"/no/such/directory\"}"));
	/* Nor by repeating a run of the server's own user. */
	take_id(asked_json(p, LOCAL, 201, CALL("POST", path, body)), id);
	retry = xasprintf("/api/runs/%s/retry", id);
	for (int left = PATIENCE_MS; left > 0; left -= 5) {
		_cleanup_free_ char *at = xasprintf("/api/runs/%s", id);
		_cleanup_json_ json_t *run = get(&p->api, at);

		if (json_str(run, "finishedAt"))
			break;
		usleep(5000);
	}
	asked_refused(p, OWNER, 403, "--allow-workspace", CALL("POST", retry, "{}"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		people_test(RO_7_an_agent_that_may_create_agents_makes_an_environment),
		people_test(RO_8_a_person_with_the_permission_makes_an_environment),
		people_test(RO_9_a_person_without_it_does_not),
		people_test(RO_10_an_agent_with_the_grant_makes_an_environment),
		people_test(RO_11_an_agent_without_it_does_not),
		people_test(RO_22_an_agent_of_another_company_is_told_so),
		people_test(a_bad_bearer_is_refused_even_where_none_is_needed),
		people_test(too_many_bad_bearers_have_to_wait),
		people_test(what_a_proxy_passes_on_is_not_trusted),
		people_test(a_revoked_token_and_a_disabled_user_are_out_at_once),
		people_test(a_terminated_agent_is_out_at_once),
		people_test(the_token_of_a_run_ends_with_it),
		people_test(the_token_of_a_run_is_of_its_agent_and_company),
		people_test(a_run_with_an_agent_is_given_a_token),
		people_test(a_run_that_brings_its_own_key_keeps_it),
		people_test(a_run_header_must_be_true),
		people_test(a_token_does_not_open_this_host),
		people_test(a_token_does_not_write_anywhere_as_the_server),
		people_test(execs_in_a_lease_are_for_those_who_may_have_leases),
		people_test(an_operator_uses_places_and_does_not_redefine_them),
		people_test(a_word_that_is_no_permission_is_named_with_those_there_are),
		people_test(metrics_read_is_an_instance_admins_to_give_and_opens_metrics_alone),
		people_test(a_limited_token_of_an_admin_is_no_admin),
		people_test(people_see_their_own_companies_and_tokens),
		people_test(the_name_of_another_company_tells_nothing),
		people_test(a_token_of_ones_own_can_be_made_with_a_token),
		people_test(agents_make_no_keys),
		people_test(an_agent_that_was_removed_has_no_keys),
		people_test(an_agent_starts_runs_of_itself_only),
		people_test(members_are_managed_by_owners),
		people_test(a_token_brings_no_directory_that_the_operator_did_not_allow),
		people_test(a_token_saves_nothing_of_this_host_that_is_not_open),
		people_test(a_run_of_a_token_gets_nothing_of_this_host_that_is_not_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

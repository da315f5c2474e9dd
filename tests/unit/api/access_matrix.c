/*
 * Every route there is, asked by everybody there can be. What must come of it stands here, apart
 * from the tables of routes: a route that is not in the list below fails the test until somebody
 * has decided who it is for.
 *
 * The first test asks a server whose handlers are replaced, so that it can ask for anything; the
 * second one reads everything that can be read from the real one.
 */
#include "people.h"

#include "api/server.h"
#include "server/data_dir.h"
#include "http/router.h"

#define BIT(who) (1u << (who))
enum {
	ADMINS = BIT(LOCAL) | BIT(INSTANCE_ADMIN),
	MANAGERS = ADMINS | BIT(OWNER) | BIT(ADMIN),
	PEOPLE = MANAGERS | BIT(OPERATOR),
	LIMITED = BIT(SCRAPER),
	AGENTS = BIT(AGENT) | BIT(CREATOR) | BIT(GRANTED) | BIT(RUN),
	OUTSIDE = BIT(SUSPENDED) | BIT(OUTSIDER) | BIT(OUT_AGENT) | BIT(SCRAPER),
	UNKNOWN = BIT(NOBODY) | BIT(BAD_TOKEN),

	/* who may */
	ANYBODY = (BIT(WHO_COUNT) - 1) & ~BIT(BAD_TOKEN),
	SIGNED_IN = (BIT(WHO_COUNT) - 1) & ~UNKNOWN & ~LIMITED,
	READERS = PEOPLE | BIT(VIEWER) | AGENTS,
	WRITERS = PEOPLE | AGENTS,
	AGENT_MAKERS = MANAGERS | BIT(CREATOR),
	ENVIRONMENT_MANAGERS = MANAGERS | BIT(CREATOR) | BIT(GRANTED),
	LEASE_USERS = ENVIRONMENT_MANAGERS | BIT(OPERATOR),
	OWNERS = ADMINS | BIT(OWNER),
};

static const struct expectation {
	const char *route;
	unsigned allowed;
} EXPECTED[] = {
	{ "GET /api/health", ANYBODY },
	{ "GET /api/openapi.json", ANYBODY },
	{ "GET /metrics", ADMINS | BIT(SCRAPER) },
	{ "GET /api/audit", ADMINS },
	{ "GET /api/keeper", ADMINS },
	{ "POST /api/prune", ADMINS },
	{ "POST /api/backup", ADMINS },
	{ "GET /api/me", SIGNED_IN },
	{ "GET /api/adapters", SIGNED_IN },
	{ "GET /api/tokens", SIGNED_IN },
	{ "POST /api/tokens", SIGNED_IN },
	{ "DELETE /api/tokens/:id", SIGNED_IN },
	{ "GET /api/users", ADMINS },
	{ "POST /api/users", ADMINS },
	{ "PATCH /api/users/:id", ADMINS },
	{ "GET /api/companies", SIGNED_IN },
	{ "POST /api/companies", ADMINS },
	{ "GET /api/companies/:id", READERS },
	{ "PATCH /api/companies/:id", OWNERS },
	{ "GET /api/companies/:cid/members", READERS },
	{ "GET /api/companies/:cid/members/:type/:id", READERS },
	{ "PUT /api/companies/:cid/members/:type/:id", OWNERS },
	{ "DELETE /api/companies/:cid/members/:type/:id", OWNERS },
	{ "GET /api/companies/:cid/activity", READERS },
	{ "GET /api/companies/:cid/events", READERS },
	{ "GET /api/companies/:cid/events/ws", READERS },
	{ "POST /api/companies/:cid/adapters/:type/test-environment", AGENT_MAKERS },
	{ "GET /api/companies/:cid/adapters/:type/models", READERS },
	{ "GET /api/companies/:cid/agents", READERS },
	{ "POST /api/companies/:cid/agents", AGENT_MAKERS },
	{ "GET /api/agents/:id", READERS },
	{ "PATCH /api/agents/:id", AGENT_MAKERS },
	{ "DELETE /api/agents/:id", AGENT_MAKERS },
	{ "GET /api/agents/:id/keys", AGENT_MAKERS },
	{ "POST /api/agents/:id/keys", AGENT_MAKERS },
	{ "DELETE /api/agents/:id/keys/:keyId", AGENT_MAKERS },
	{ "GET /api/companies/:cid/projects", READERS },
	{ "POST /api/companies/:cid/projects", WRITERS },
	{ "GET /api/projects/:id", READERS },
	{ "PATCH /api/projects/:id", WRITERS },
	{ "DELETE /api/projects/:id", PEOPLE },
	{ "GET /api/companies/:cid/issues", READERS },
	{ "POST /api/companies/:cid/issues", WRITERS },
	{ "GET /api/issues/:id", READERS },
	{ "PATCH /api/issues/:id", WRITERS },
	{ "DELETE /api/issues/:id", PEOPLE },
	{ "POST /api/issues/:id/checkout", WRITERS },
	{ "POST /api/issues/:id/release", WRITERS },
	{ "GET /api/companies/:cid/execution-workspaces", READERS },
	{ "POST /api/companies/:cid/execution-workspaces", WRITERS },
	{ "GET /api/execution-workspaces/:id", READERS },
	{ "PATCH /api/execution-workspaces/:id", WRITERS },
	{ "DELETE /api/execution-workspaces/:id", PEOPLE },
	{ "POST /api/execution-workspaces/:id/close", WRITERS },
	{ "GET /api/companies/:cid/environments", READERS },
	{ "GET /api/companies/:cid/environments/capabilities", READERS },
	{ "GET /api/companies/:cid/environments/default", READERS },
	{ "POST /api/companies/:cid/environments", ENVIRONMENT_MANAGERS },
	{ "POST /api/companies/:cid/environments/probe-config", ENVIRONMENT_MANAGERS },
	{ "GET /api/environments/:id", READERS },
	{ "GET /api/environments/:id/usage", ENVIRONMENT_MANAGERS },
	{ "PATCH /api/environments/:id", ENVIRONMENT_MANAGERS },
	{ "DELETE /api/environments/:id", ENVIRONMENT_MANAGERS },
	{ "POST /api/environments/:id/probe", ENVIRONMENT_MANAGERS },
	{ "POST /api/companies/:cid/sandbox", WRITERS },
	{ "POST /api/sandbox/test", ADMINS },
	{ "GET /api/environments/:id/leases", LEASE_USERS },
	{ "POST /api/environments/:id/leases", LEASE_USERS },
	{ "GET /api/environment-leases/:id", LEASE_USERS },
	{ "POST /api/environment-leases/:id/renew", LEASE_USERS },
	{ "POST /api/environment-leases/:id/pause", LEASE_USERS },
	{ "POST /api/environment-leases/:id/resume", LEASE_USERS },
	{ "POST /api/environment-leases/:id/release", LEASE_USERS },
	{ "POST /api/environment-leases/:id/destroy", LEASE_USERS },
	{ "POST /api/environment-leases/:id/exec", LEASE_USERS },
	{ "GET /api/environment-leases/:id/execs", LEASE_USERS },
	{ "GET /api/environment-leases/:id/files", LEASE_USERS },
	{ "PUT /api/environment-leases/:id/files", LEASE_USERS },
	{ "DELETE /api/environment-leases/:id/files", LEASE_USERS },
	{ "GET /api/environment-leases/:id/files/stat", LEASE_USERS },
	{ "GET /api/environment-leases/:id/files/list", LEASE_USERS },
	{ "POST /api/environment-leases/:id/files/mkdir", LEASE_USERS },
	{ "POST /api/environment-leases/:id/files/rename", LEASE_USERS },
	{ "POST /api/environment-leases/:id/files/chmod", LEASE_USERS },
	{ "GET /api/companies/:cid/runs", READERS },
	{ "POST /api/companies/:cid/runs", WRITERS },
	{ "GET /api/runs/:id", READERS },
	{ "GET /api/runs/:id/log", READERS },
	{ "POST /api/runs/:id/cancel", PEOPLE },
	{ "POST /api/runs/:id/retry", WRITERS },
	{ "GET /api/runs/:id/changes", READERS },
	{ "GET /api/runs/:id/diff", READERS },
	{ "POST /api/runs/:id/collect", PEOPLE },
	{ "DELETE /api/runs/:id/workspace", PEOPLE },
	{ "POST /api/companies/:cid/workspace-plan", WRITERS },
	{ "POST /api/environment-leases/:id/stage", LEASE_USERS },
	{ "POST /api/environment-leases/:id/collect", LEASE_USERS },
	{ "GET /api/heartbeat-runs/:id", READERS },
	{ "GET /api/heartbeat-runs/:id/events", READERS },
	{ "GET /api/heartbeat-runs/:id/log", READERS },
	{ "POST /api/heartbeat-runs/:id/cancel", PEOPLE },
	/* asked with the command of a run; what goes on in a lease is in api_access.c */
	{ "GET /api/execs/:id", READERS },
	{ "GET /api/execs/:id/output", READERS },
	{ "POST /api/execs/:id/stdin", PEOPLE },
	{ "POST /api/execs/:id/signal", PEOPLE },
	{ "POST /api/execs/:id/resize", PEOPLE },
	{ "GET /api/execs/:id/terminal", PEOPLE },
};

static const struct expectation *expected_of(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(EXPECTED); i++)
		if (streq(EXPECTED[i].route, name))
			return &EXPECTED[i];
	return NULL;
}

/* ---- the matrix ---- */

static int stand_in(void *server, struct request *request, struct response *response,
		    struct error *err)
{
	json_t *json = json_object();
	(void)server;
	(void)err;

	json_put_str(json, "companyId", request->company_id);
	response_json(response, 200, json);
	return 0;
}

struct shadow {
	struct http *http;
	const struct route **tables;
	size_t count;
};

/* The same routes, for the same people, behind which nothing happens. */
static void shadow_up(struct people *p, struct shadow *shadow)
{
	_cleanup_error_ struct error err = { 0 };
	struct http_options options = {
		.tcp_fd = -1,
		.unix_fd = -1,
		.server = p->api.server,
		.clock = &p->api.server->clock,
		.access = { access_authenticate, access_authorize },
		.max_bad_tokens = 1000000,
	};

	while (route_table_at(shadow->count))
		shadow->count++;
	shadow->tables = xcalloc(shadow->count + 1, sizeof(*shadow->tables));
	for (size_t t = 0; t < shadow->count; t++) {
		size_t len = 0;

		while (route_table_at(t)[len].path)
			len++;

		struct route *copy = xcalloc(len + 1, sizeof(*copy));

		for (size_t i = 0; i < len; i++)
			copy[i] = (struct route){ .method = route_table_at(t)[i].method,
						  .path = route_table_at(t)[i].path,
						  .access = route_table_at(t)[i].access,
						  .subject = route_table_at(t)[i].subject,
						  .flags = route_table_at(t)[i].flags &
							   ROUTE_IN_PLACE,
						  .run = stand_in };
		shadow->tables[t] = copy;
	}
	options.tables = shadow->tables;
	snprintf(p->api.socket, sizeof(p->api.socket), "%s/shadow.sock", p->api.dir);
	if (socket_listen(p->api.socket, &options.unix_fd, &err) < 0 ||
	    http_start(&options, &shadow->http, &err) < 0)
		fail_msg("%s", err.message);
}

static void shadow_down(struct people *p, struct shadow *shadow)
{
	http_stop(shadow->http, 1000);
	for (size_t t = 0; t < shadow->count; t++)
		free((void *)(uintptr_t)shadow->tables[t]);
	free(shadow->tables);
	snprintf(p->api.socket, sizeof(p->api.socket), "%s/berth.sock", p->api.data);
}

static int wanted_status(const char *path, unsigned allowed, enum who who)
{
	if (allowed & BIT(who))
		return 200;
	if (UNKNOWN & BIT(who))
		return 401;
	if (is_scoped(path) && OUTSIDE & BIT(who) && !str_starts(path, "/api/companies/"))
		return 404;
	return 403;
}

static void ask_everybody(struct people *p, const struct route *route, const char *name,
			  struct buf *wrong)
{
	const struct expectation *expected = expected_of(name);
	_cleanup_free_ char *path = filled(route->path, &p->ours);

	if (!expected) {
		buf_printf(wrong, "nobody has said in access_matrix.c who may use %s\n", name);
		return;
	}
	for (enum who who = 0; who < WHO_COUNT; who++) {
		struct call call = { .method = http_method_name(route->method), .path = path };
		int wanted = wanted_status(route->path, expected->allowed, who);
		_cleanup_buf_ struct buf out = { 0 };
		int got = ask(p, who, &call, &out);

		if (got != wanted)
			buf_printf(wrong, "%s by %s: wanted %d, got %d %s\n", name, WHO[who],
				   wanted, got, buf_str(&out));
		if (got == 200 && is_scoped(route->path) && !strstr(buf_str(&out), p->ours.company))
			buf_printf(wrong, "%s: the handler does not learn the company\n", name);
	}
}

/* What is another's cannot be told from what is not there, however much one may do at home. */
static void ask_abroad(struct people *p, const struct route *route, const char *name,
		       struct buf *wrong)
{
	static const enum who HOME[] = { OWNER, OPERATOR, CREATOR, RUN };
	_cleanup_free_ char *foreign = filled(route->path, &p->theirs);
	_cleanup_free_ char *none = filled(route->path, NULL);
	int wanted = str_starts(route->path, "/api/companies/") ? 403 : 404;

	if (!is_scoped(route->path))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(HOME); i++) {
		struct call call = { .method = http_method_name(route->method), .path = foreign };
		_cleanup_buf_ struct buf theirs = { 0 }, nothing = { 0 };
		int got = ask(p, HOME[i], &call, &theirs);

		if (got != wanted)
			buf_printf(wrong, "%s of another company by %s: wanted %d, got %d %s\n",
				   name, WHO[HOME[i]], wanted, got, buf_str(&theirs));
		call.path = none;
		if (ask(p, HOME[i], &call, &nothing) != got ||
		    !streq(buf_str(&theirs), buf_str(&nothing)))
			buf_printf(wrong, "%s: another's is told from nothing: %s %s\n", name,
				   buf_str(&theirs), buf_str(&nothing));
	}
}

static void everybody_gets_what_is_theirs_of_every_route(void **state)
{
	struct people *p = *state;
	struct shadow shadow = { 0 };
	_cleanup_buf_ struct buf wrong = { 0 };
	size_t routes = 0;

	shadow_up(p, &shadow);
	for (size_t t = 0; route_table_at(t); t++)
		for (const struct route *route = route_table_at(t); route->path;
		     route++, routes++) {
			_cleanup_free_ char *name =
				xasprintf("%s %s", http_method_name(route->method), route->path);

			ask_everybody(p, route, name, &wrong);
			ask_abroad(p, route, name, &wrong);
		}
	shadow_down(p, &shadow);
	assert_true(routes > 60);
	if (wrong.len)
		fputs(buf_str(&wrong), stderr);
	assert_int_equal(wrong.len, 0);
}

/* ---- nothing of the others in any answer ---- */

static void assert_nothing_of(const struct holdings *h, const char *answer, const char *name,
			      enum who who)
{
	const char *ids = (const char *)h;

	for (size_t at = 0; at < sizeof(*h); at += ID_SIZE)
		if (strstr(answer, ids + at))
			fail_msg("%s tells %s of %s: %.2000s", name, WHO[who], ids + at, answer);
	if (strstr(answer, "theirs-only"))
		fail_msg("%s tells %s the name of another's: %.2000s", name, WHO[who], answer);
}

/* Some answers have no end: what has come after a moment is looked at. */
static void read_some(struct people *p, enum who who, const char *path, struct buf *out)
{
	CURL *curl = curl_easy_init();
	_cleanup_free_ char *url = xasprintf("http://localhost%s", path);
	_cleanup_free_ char *bearer = xasprintf("Authorization: Bearer %s", p->token[who]);
	struct curl_slist *headers = curl_slist_append(NULL, bearer);

	headers = curl_slist_append(headers, "Last-Event-ID: 0");
	curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, p->api.socket);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, 400L);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, out);
	curl_easy_perform(curl);
	curl_slist_free_all(headers);
	curl_easy_cleanup(curl);
}

static bool is_endless(const struct route *route)
{
	return route->flags & ROUTE_STREAM || strstr(route->path, "/events") != NULL;
}

static void read_as(struct people *p, enum who who)
{
	for (size_t t = 0; route_table_at(t); t++)
		for (const struct route *route = route_table_at(t); route->path; route++) {
			_cleanup_free_ char *path = filled(route->path, &p->ours);
			_cleanup_buf_ struct buf out = { 0 };

			if (route->method != HTTP_GET || route->flags & ROUTE_WEBSOCKET)
				continue;
			if (is_endless(route))
				read_some(p, who, path, &out);
			else
				ask(p, who, CALL("GET", path), &out);
			assert_nothing_of(&p->theirs, buf_str(&out), route->path, who);
		}
}

static void no_answer_tells_of_another_company(void **state)
{
	struct people *p = *state;
	_cleanup_buf_ struct buf seen = { 0 };

	/* That there is something to be seen, for those who may. */
	ask(p, LOCAL, CALL("GET", "/api/companies"), &seen);
	assert_non_null(strstr(buf_str(&seen), p->theirs.company));
	read_as(p, OWNER);
	read_as(p, CREATOR);
	read_as(p, RUN);
	read_as(p, VIEWER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		people_test(everybody_gets_what_is_theirs_of_every_route),
		people_test(no_answer_tells_of_another_company),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

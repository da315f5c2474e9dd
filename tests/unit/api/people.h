/*
 * Two companies with people and agents of every kind, and a token of each.
 */
#pragma once

#include "fixture.h"
#include "auth/run_token.h"

enum who {
	NOBODY, /* without a token, from somewhere */
	BAD_TOKEN,
	LOCAL, /* the server's own user */
	INSTANCE_ADMIN,
	OWNER,
	ADMIN,
	OPERATOR,
	VIEWER,
	SUSPENDED,
	AGENT,     /* with a key */
	CREATOR,   /* an agent that may create agents */
	GRANTED,   /* an agent that was granted environments:manage */
	RUN,       /* the agent again, with the token of a run */
	OUTSIDER,  /* the owner of the other company */
	OUT_AGENT, /* an agent of the other company */
	SCRAPER,   /* a person in no company, whose token is for metrics:read alone */
	WHO_COUNT
};
static const char *const WHO[] = { "nobody",    "a bad token", "local trust",   "instance admin",
				   "owner",     "admin",       "operator",      "viewer",
				   "suspended", "agent",       "creator",       "granted agent",
				   "run",       "outsider",    "outside agent", "scraper" };

/* What a company has, one of each. */
struct holdings {
	char company[ID_SIZE], environment[ID_SIZE], lease[ID_SIZE], agent[ID_SIZE], run[ID_SIZE];
	char project[ID_SIZE], issue[ID_SIZE], workspace[ID_SIZE];
};
struct people {
	struct api_test api;
	struct holdings ours, theirs;
	char user[WHO_COUNT][ID_SIZE];
	char *token[WHO_COUNT]; /* NULL: none */
};

static inline void make_at(struct people *p, char out[ID_SIZE], const char *body,
			   const char *format, const char *id)
{
	_cleanup_buf_ struct buf path = { 0 };
	const char *at = strstr(format, "%s");

	buf_append(&path, format, (size_t)(at - format));
	buf_puts(&path, id);
	buf_puts(&path, at + 2);
	take_id(post(&p->api, 201, buf_str(&path), body), out);
}

static inline void make_key(struct people *p, enum who who, const char *agent_id)
{
	PATH("/api/agents/%s/keys", agent_id);
	_cleanup_json_ json_t *key = post(&p->api, 201, path, "{\"name\": \"key\"}");

	p->token[who] = xstrdup(json_str(key, "token"));
}

static inline void make_user(struct people *p, enum who who, const char *company_id,
			     const char *member)
{
	_cleanup_free_ char *name = xasprintf("{\"name\": \"%s\", \"isInstanceAdmin\": %s}",
					      WHO[who], who == INSTANCE_ADMIN ? "true" : "false");

	take_id(post(&p->api, 201, "/api/users", name), p->user[who]);

	_cleanup_free_ char *wish =
		xasprintf("{\"name\": \"t\", \"userId\": \"%s\"%s}", p->user[who],
			  who == SCRAPER ? ", \"permissions\": [\"metrics:read\"]" : "");
	_cleanup_json_ json_t *token = post(&p->api, 201, "/api/tokens", wish);

	p->token[who] = xstrdup(json_str(token, "token"));
	if (member) {
		PATH("/api/companies/%s/members/user/%s", company_id, p->user[who]);

		json_decref(call_json(&p->api, 200, CALL("PUT", path, member)));
	}
}

/* `mark` is in every name, so that it is seen wherever something of the company is told. */
static inline void make_holdings(struct people *p, struct holdings *h, const char *mark)
{
	_cleanup_free_ char *name = xasprintf("{\"name\": \"%s\"}", mark);
	_cleanup_free_ char *title = xasprintf("{\"title\": \"%s\"}", mark);
	_cleanup_free_ char *box = xasprintf("{\"name\": \"%s\", \"driver\": \"sandbox\","
					     " \"config\": {\"provider\": \"fake\"}}",
					     mark);

	take_id(post(&p->api, 201, "/api/companies", name), h->company);
	make_at(p, h->environment, box, "/api/companies/%s/environments", h->company);
	make_at(p, h->agent, name, "/api/companies/%s/agents", h->company);
	make_at(p, h->project, name, "/api/companies/%s/projects", h->company);
	make_at(p, h->issue, title, "/api/companies/%s/issues", h->company);
	make_at(p, h->lease, "{}", "/api/environments/%s/leases", h->environment);

	_cleanup_free_ char *workspace = xasprintf(
		"{\"name\": \"%s\", \"projectId\": \"%s\", \"cwd\": \"/tmp\"}", mark, h->project);
	_cleanup_free_ char *run = xasprintf("{\"command\": [\"sleep\", \"60\"], \"agentId\": "
					     "\"%s\", \"environmentId\": \"%s\"}",
					     h->agent, h->environment);

	make_at(p, h->workspace, workspace, "/api/companies/%s/execution-workspaces", h->company);
	make_at(p, h->run, run, "/api/companies/%s/runs", h->company);
}

static inline char *token_of_run(struct people *p, const struct holdings *h)
{
	int64_t now = clock_now(&p->api.server->clock);
	struct run_claims claims = { .adapter_type = "process",
				     .issued_at = now,
				     .expires_at = now + 3600000 };

	id_copy(claims.agent_id, h->agent);
	id_copy(claims.company_id, h->company);
	id_copy(claims.run_id, h->run);
	return run_token_make(&p->api.server->run_key, &claims);
}

static inline int people_up(void **state)
{
	struct people *p = xcalloc(1, sizeof(*p));
	char creator[ID_SIZE], granted[ID_SIZE];

	make_dir(&p->api);
	server_begin(&p->api, true);
	make_holdings(p, &p->ours, "ours");
	make_holdings(p, &p->theirs, "theirs-only");
	make_user(p, INSTANCE_ADMIN, NULL, NULL);
	make_user(p, OWNER, p->ours.company, "{\"role\": \"owner\"}");
	make_user(p, ADMIN, p->ours.company, "{\"role\": \"admin\"}");
	make_user(p, OPERATOR, p->ours.company, "{\"role\": \"operator\"}");
	make_user(p, VIEWER, p->ours.company, "{\"role\": \"viewer\"}");
	make_user(p, SUSPENDED, p->ours.company,
		  "{\"role\": \"admin\", \"status\": \"suspended\"}");
	make_user(p, OUTSIDER, p->theirs.company, "{\"role\": \"owner\"}");
	make_user(p, SCRAPER, NULL, NULL);
	make_at(p, creator, "{\"name\": \"c\", \"permissions\": {\"canCreateAgents\": true}}",
		"/api/companies/%s/agents", p->ours.company);
	make_at(p, granted, "{\"name\": \"g\"}", "/api/companies/%s/agents", p->ours.company);

	PATH("/api/companies/%s/members/agent/%s", p->ours.company, granted);

	json_decref(call_json(&p->api, 200,
			      CALL("PUT", path, "{\"permissions\": [\"environments:manage\"]}")));
	make_key(p, AGENT, p->ours.agent);
	make_key(p, CREATOR, creator);
	make_key(p, GRANTED, granted);
	make_key(p, OUT_AGENT, p->theirs.agent);
	p->token[RUN] = token_of_run(p, &p->ours);
	p->token[BAD_TOKEN] = xstrdup("pcp_board_000000000000000000000000000000000000000000000000");
	*state = p;
	return 0;
}

static inline void end_run(struct people *p, const char *id)
{
	PATH("/api/runs/%s/cancel", id);
	_cleanup_free_ char *show = xasprintf("/api/runs/%s", id);
	bool ended = false;

	json_decref(call_json(&p->api, 200, CALL("POST", path)));
	WAIT_FOR(({
		_cleanup_json_ json_t *run = get(&p->api, show);

		ended = json_str(run, "finishedAt") != NULL;
		ended;
	}));
}

static inline int people_down(void **state)
{
	struct people *p = *state;

	snprintf(p->api.socket, sizeof(p->api.socket), "%s/berth.sock", p->api.data);
	end_run(p, p->ours.run);
	end_run(p, p->theirs.run);
	server_end(&p->api);
	remove_dir(&p->api);
	for (size_t i = 0; i < WHO_COUNT; i++)
		free(p->token[i]);
	free(p);
	return 0;
}

/* ---- paths with real ids in them ---- */

static const struct {
	const char *prefix;
	size_t offset;
} SUBJECTS[] = {
	{ "/api/companies/", offsetof(struct holdings, company) },
	{ "/api/environments/", offsetof(struct holdings, environment) },
	{ "/api/environment-leases/", offsetof(struct holdings, lease) },
	{ "/api/agents/", offsetof(struct holdings, agent) },
	{ "/api/runs/", offsetof(struct holdings, run) },
	{ "/api/heartbeat-runs/", offsetof(struct holdings, run) },
	{ "/api/execs/", offsetof(struct holdings, run) },
	{ "/api/projects/", offsetof(struct holdings, project) },
	{ "/api/issues/", offsetof(struct holdings, issue) },
	{ "/api/execution-workspaces/", offsetof(struct holdings, workspace) },
};
#define NO_ID "44444444-4444-4444-8444-444444444444"

/* Whether the path is about something of a company. */
static inline bool is_scoped(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(SUBJECTS); i++)
		if (str_starts(path, SUBJECTS[i].prefix))
			return true;
	return false;
}

/* The path with the holder's id for its first name; NULL: an id of nothing. */
static inline char *filled(const char *path, const struct holdings *h)
{
	_cleanup_buf_ struct buf out = { 0 };
	const char *subject = NO_ID;
	bool first = true;

	for (size_t i = 0; h && i < ARRAY_SIZE(SUBJECTS); i++)
		if (str_starts(path, SUBJECTS[i].prefix))
			subject = (const char *)h + SUBJECTS[i].offset;
	for (const char *at = path; *at;) {
		if (*at != ':') {
			buf_putc(&out, *at++);
			continue;
		}
		buf_puts(&out, first ? subject : str_starts(at, ":type") ? "user" : NO_ID);
		first = false;
		at += strcspn(at, "/");
	}
	return buf_steal(&out);
}

#define people_test(f) cmocka_unit_test_setup_teardown(f, people_up, people_down)

/* The status somebody gets; the answer is appended to `out` if given. */
static inline int ask(struct people *p, enum who who, const struct call *wanted, struct buf *out)
{
	_cleanup_buf_ struct buf ignored = { 0 };
	struct call call = *wanted;

	call.token = p->token[who];
	if (who == NOBODY)
		call.header = "X-Forwarded-For: 192.0.2.1";
	return call_raw(&p->api, &call, out ? out : &ignored);
}

#define assert_asked(p, status, who, call)                                                         \
	do {                                                                                       \
		_cleanup_buf_ struct buf _out = { 0 };                                             \
		int _got = ask((p), (who), (call), &_out);                                         \
		if (_got != (status))                                                              \
			fail_msg("%s: wanted %d, got %d %s", WHO[who], (status), _got,             \
				 buf_str(&_out));                                                  \
	} while (0)

/*
 * Tokens of people (/api/tokens) and of agents (/api/agents/:id/keys). A token's text is in the
 * answer that makes it and nowhere else.
 */
#include "api/answer.h"
#include "record/member.h"
#include "auth/token.h"
#include "base/text.h"

#define TTL_MAX_SECONDS (3650LL * 86400)

static int64_t ttl_ms(const json_t *body, int64_t fallback)
{
	if (json_state(body, "expiresInSeconds") == JSON_IS_ABSENT)
		return fallback;
	return json_int(body, "expiresInSeconds", 0) * 1000; /* null: no end */
}

static int answer_made(struct response *response, const struct token *token,
		       char text[TOKEN_TEXT_SIZE])
{
	json_t *json = token_json(token);

	json_put_str(json, "token", text);
	wipe(text, TOKEN_TEXT_SIZE);
	return answer(response, 201, json);
}

/* ---- people ---- */

/* Whose tokens: one's own, or for admins anybody's. */
static int whose(const struct request *request, const char *asked, const char **user_id,
		 struct error *err)
{
	const struct actor *actor = &request->actor;

	if (actor_is_agent(actor))
		return error_set(err, ERR_FORBIDDEN, "Board access required");
	*user_id = asked ? asked : actor->kind == ACTOR_USER ? actor->id : NULL;
	if (!actor->is_admin && !streq(*user_id, actor->id))
		return error_set(err, ERR_FORBIDDEN, "Instance admin access required");
	return 0;
}

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	const char *user_id = NULL;

	if (whose(request, request_query(request, "userId"), &user_id, err) < 0)
		return -1;
	return answer(response, 200, token_list(server->db, user_id, NULL, err));
}

static int check_permissions(const struct request *request, struct error *err)
{
	unsigned permissions;

	if (permissions_read(json_array_at(request->body, "permissions"), &permissions, err) < 0)
		return -1;
	/* Of all companies together, so no role has it. */
	if (permissions & PERMISSION_BIT(PERMISSION_METRICS_READ) && !request->actor.is_admin)
		return error_set(err, ERR_FORBIDDEN,
				 "only instance admins make tokens with metrics:read");
	return 0;
}

static int create(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_token_ struct token token = { 0 };
	struct token_request wish = { .name = json_str(request->body, "name"),
				      .ttl_ms = ttl_ms(request->body, BOARD_TOKEN_TTL_MS) };
	char text[TOKEN_TEXT_SIZE];

	if (whose(request, json_str(request->body, "userId"), &wish.user_id, err) < 0 ||
	    check_permissions(request, err) < 0)
		return -1;
	wish.permissions = json_array_at(request->body, "permissions");
	if (!wish.user_id)
		return error_set(err, ERR_UNPROCESSABLE, "userId is required: whose token it is");
	if (token_create(server->db, &server->clock, &request->actor, &wish, &token, text, err) < 0)
		return -1;
	return answer_made(response, &token, text);
}

static int revoke(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	const struct actor *actor = &request->actor;
	_cleanup_token_ struct token token = { 0 };

	if (token_get(server->db, request->param[0], &token, err) < 0)
		return -1;
	/* An agent's keys have a path of their own; another's token is none that one can see. */
	if (!id_is_set(token.user_id) ||
	    (!actor->is_admin && (actor_is_agent(actor) || !streq(token.user_id, actor->id))))
		return error_set(err, ERR_NOT_FOUND, "Token not found");
	if (token_revoke(server->db, &server->clock, actor, token.id, err) < 0)
		return -1;
	return answer(response, 200, token_json(&token));
}

/* ---- agents ---- */

/* An agent that could make keys would be every other agent of its company. */
static int people_only(const struct request *request, struct error *err)
{
	if (actor_is_agent(&request->actor))
		return error_set(err, ERR_FORBIDDEN, "Board access required");
	return 0;
}

static int list_keys(void *arg, struct request *request, struct response *response,
		     struct error *err)
{
	struct server *server = arg;
	_cleanup_(agent_clear) struct agent agent = { 0 };

	if (people_only(request, err) < 0 ||
	    agent_get(server->db, request->param[0], &agent, err) < 0)
		return -1;
	return answer(response, 200, token_list(server->db, NULL, request->param[0], err));
}

static int create_key(void *arg, struct request *request, struct response *response,
		      struct error *err)
{
	struct server *server = arg;
	_cleanup_token_ struct token token = { 0 };
	struct token_request wish = { .agent_id = request->param[0],
				      .name = json_str(request->body, "name"),
				      .ttl_ms = ttl_ms(request->body, 0) };
	char text[TOKEN_TEXT_SIZE];

	if (people_only(request, err) < 0 ||
	    token_create(server->db, &server->clock, &request->actor, &wish, &token, text, err) < 0)
		return -1;
	return answer_made(response, &token, text);
}

static int revoke_key(void *arg, struct request *request, struct response *response,
		      struct error *err)
{
	struct server *server = arg;
	_cleanup_token_ struct token token = { 0 };

	if (people_only(request, err) < 0 ||
	    token_get(server->db, request->param[1], &token, err) < 0)
		return -1;
	if (!streq(token.agent_id, request->param[0]))
		return error_set(err, ERR_NOT_FOUND, "Token not found");
	if (token_revoke(server->db, &server->clock, &request->actor, token.id, err) < 0)
		return -1;
	return answer(response, 200, token_json(&token));
}

#define NAME                                                                                       \
	{                                                                                          \
		.name = "name", .type = FIELD_STRING,                                              \
		.flags = FIELD_REQUIRED | FIELD_NONBLANK | FIELD_TRIM, .min = 1, .max = 100,       \
		.summary = "What it is for"                                                        \
	}
#define EXPIRES(text)                                                                              \
	{                                                                                          \
		.name = "expiresInSeconds", .type = FIELD_INT, .flags = FIELD_NULLABLE, .min = 1,  \
		.max = TTL_MAX_SECONDS, .summary = text                                            \
	}
static const struct field TOKEN_FIELDS[] = {
	NAME,
	EXPIRES("How long it is valid; default: 30 days; null: for ever"),
	{ .name = "userId",
	  .type = FIELD_UUID,
	  .summary = "Whose token; default: the caller's own; instance admins may name others" },
	{ .name = "permissions",
	  .type = FIELD_STRING_ARRAY,
	  .min = 1,
	  .max = PERMISSION_COUNT,
	  .summary = "The only permissions it has, of those of its owner; only instance admins may "
		     "give metrics:read. Default: all" },
	{ 0 },
};
static const struct field KEY_FIELDS[] = {
	NAME,
	EXPIRES("How long it is valid; default: for ever"),
	{ 0 },
};
static const struct field LIST_QUERY[] = {
	{ .name = "userId",
	  .type = FIELD_UUID,
	  .summary = "Tokens of another user; for instance admins" },
	{ 0 },
};

ROUTES(TOKEN_ROUTES, 230) = {
	{ HTTP_GET, "/api/tokens", .access = ACCESS_SIGNED_IN, .query = LIST_QUERY, .run = list,
	  .answer = "[Token]", .errors = "forbidden",
	  .summary = "The caller's tokens; local trust and instance admins see all" },
	{ HTTP_POST, "/api/tokens", .access = ACCESS_SIGNED_IN, .body = TOKEN_FIELDS, .run = create,
	  .answer = "201 Token", .errors = "forbidden unprocessable",
	  .summary = "A new token; its text is shown once" },
	{ HTTP_DELETE, "/api/tokens/:id", .access = ACCESS_SIGNED_IN, .run = revoke,
	  .answer = "Token", .summary = "Revokes a token at once" },
	{ HTTP_GET, "/api/agents/:id/keys", .access = ACCESS_AGENTS, .subject = SUBJECT_AGENT,
	  .run = list_keys, .answer = "[Token]", .summary = "The tokens of an agent" },
	{ HTTP_POST, "/api/agents/:id/keys", .access = ACCESS_AGENTS, .subject = SUBJECT_AGENT,
	  .body = KEY_FIELDS, .run = create_key, .answer = "201 Token", .errors = "conflict",
	  .summary = "A new token of an agent; its text is shown once" },
	{ HTTP_DELETE, "/api/agents/:id/keys/:keyId", .access = ACCESS_AGENTS,
	  .subject = SUBJECT_AGENT, .run = revoke_key, .answer = "Token",
	  .summary = "Revokes a token of an agent" },
	{ 0 },
};

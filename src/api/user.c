#include "api/answer.h"
#include "record/member.h"
#include "auth/user.h"
#include "base/text.h"

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	(void)request;

	return answer(response, 200, user_list(server->db, err));
}

static int create(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_user_ struct user user = { 0 };

	if (user_create(server->db, &server->clock, json_str(request->body, "name"),
			json_bool(request->body, "isInstanceAdmin", false), &user, err) < 0)
		return -1;
	return answer(response, 201, user_json(&user));
}

static int patch(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	const json_t *body = request->body;
	_cleanup_user_ struct user user = { 0 };
	bool disabled = json_bool(body, "disabled", false);
	bool is_admin = json_bool(body, "isInstanceAdmin", false);

	if (user_update(server->db, &server->clock, request->param[0],
			json_object_get(body, "disabled") ? &disabled : NULL,
			json_object_get(body, "isInstanceAdmin") ? &is_admin : NULL, &user,
			err) < 0)
		return -1;
	return answer(response, 200, user_json(&user));
}

/* ---- who one is oneself ---- */

static const char *source_name(enum actor_kind kind)
{
	static const char *const NAMES[] = {
		[ACTOR_NOBODY] = "none",    [ACTOR_LOCAL] = "local_implicit",
		[ACTOR_USER] = "board_key", [ACTOR_AGENT] = "agent_key",
		[ACTOR_RUN] = "agent_jwt",
	};

	return NAMES[kind];
}

static int put_user(struct server *server, const struct actor *actor, json_t *me, struct error *err)
{
	const struct principal self = { PRINCIPAL_USER, actor->id };
	_cleanup_user_ struct user user = { 0 };
	json_t *companies = membership_list_of(server->db, &self, err);

	json_put_new(me, "memberships", companies);
	if (!companies || user_get(server->db, actor->id, &user, err) < 0)
		return -1;
	json_put_str(me, "name", user.name);
	return 0;
}

static int put_agent(struct server *server, const struct actor *actor, json_t *me,
		     struct error *err)
{
	const struct principal self = { PRINCIPAL_AGENT, actor->agent_id };
	_cleanup_(agent_clear) struct agent agent = { 0 };
	json_t *companies = membership_list_of(server->db, &self, err);

	json_put_new(me, "memberships", companies);
	if (!companies || agent_get(server->db, actor->agent_id, &agent, err) < 0)
		return -1;
	json_put_str(me, "name", agent.name);
	json_put_str(me, "agentId", agent.id);
	json_put_str(me, "companyId", agent.company_id);
	json_put_new(me, "permissions", permissions_json(actor->permissions));
	return 0;
}

static int me(void *arg, struct request *request, struct response *response, struct error *err)
{
	const struct actor *actor = &request->actor;
	_cleanup_json_ json_t *json = json_object();

	json_put_str(json, "type", actor->type);
	json_put_str(json, "id", actor->id);
	json_put_str(json, "name", actor->id);
	json_put_str(json, "source", source_name(actor->kind));
	json_put_bool(json, "isInstanceAdmin", actor->is_admin);
	json_put_str(json, "runId", id_is_set(actor->run_id) ? actor->run_id : NULL);
	if (actor_is_agent(actor)
		    ? put_agent(arg, actor, json, err) < 0
		    : actor->kind == ACTOR_USER && put_user(arg, actor, json, err) < 0)
		return -1;
	return answer(response, 200, steal(json));
}

#define ADMIN                                                                                      \
	{                                                                                          \
		.name = "isInstanceAdmin", .type = FIELD_BOOL,                                     \
		.summary = "May do everything in every company"                                    \
	}
static const struct field USER_FIELDS[] = {
	{ .name = "name",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED | FIELD_NONBLANK | FIELD_TRIM,
	  .min = 1,
	  .max = 100,
	  .summary = "The person's name; unique" },
	ADMIN,
	{ 0 },
};
static const struct field PATCH_FIELDS[] = {
	ADMIN,
	{ .name = "disabled", .type = FIELD_BOOL, .summary = "The person's tokens are invalid" },
	{ 0 },
};

ROUTES(USER_ROUTES, 250) = {
	{ HTTP_GET, "/api/me", .access = ACCESS_SIGNED_IN, .run = me, .answer = "Me",
	  .summary = "Who the caller is" },
	{ HTTP_GET, "/api/users", .access = ACCESS_ADMIN, .run = list, .answer = "[User]",
	  .summary = "People who can have tokens" },
	{ HTTP_POST, "/api/users", .access = ACCESS_ADMIN, .body = USER_FIELDS, .run = create,
	  .answer = "201 User", .summary = "A new person" },
	{ HTTP_PATCH, "/api/users/:id", .access = ACCESS_ADMIN, .body = PATCH_FIELDS, .run = patch,
	  .answer = "User", .summary = "Changes the fields in the body" },
	{ 0 },
};

#include "api/server.h"

#include "record/member.h"
#include "auth/subject.h"
#include "auth/token.h"
#include "base/text.h"
#include "exec/execs.h"
#include "record/trust.h"

/* ---- who it is ---- */

static int unknown_caller(struct error *err)
{
	return error_set(err, ERR_UNAUTHENTICATED,
			 "the token is not valid: unknown, expired or revoked");
}

/* What an agent may do because of what it is (spec 01 F.1), besides what it was granted. */
static unsigned own_permissions(const struct agent *agent)
{
	if (!json_bool(agent->permissions, "canCreateAgents", false))
		return 0;
	return PERMISSION_BIT(PERMISSION_AGENTS_CREATE) |
	       PERMISSION_BIT(PERMISSION_ENVIRONMENTS_MANAGE);
}

static int become_agent(struct server *server, const char *agent_id, enum actor_kind kind,
			struct actor *actor, struct error *err)
{
	_cleanup_(agent_clear) struct agent agent = { 0 };
	_cleanup_error_ struct error why = { 0 };

	if (agent_get(server->db, agent_id, &agent, &why) < 0) {
		if (why.code == ERR_NOT_FOUND)
			return unknown_caller(err);
		error_move(err, &why);
		return -1;
	}
	if (!agent_may_act(&agent))
		return unknown_caller(err);
	*actor = (struct actor){
		.type = "agent",
		.kind = kind,
		.permissions = own_permissions(&agent),
		.by_token = true,
		.no_local = true, /* whatever people with tokens may */
	};
	snprintf(actor->id, sizeof(actor->id), "%s", agent.id);
	id_copy(actor->agent_id, agent.id);
	id_copy(actor->company_id, agent.company_id);
	return 0;
}

static void become_user(const struct server *server, const struct token_owner *owner,
			struct actor *actor)
{
	*actor = (struct actor){
		.type = "user",
		.kind = ACTOR_USER,
		.is_admin = owner->is_admin && !owner->is_limited,
		.is_limited = owner->is_limited,
		.permissions = owner->permissions,
		.by_token = true,
		.no_local = !server->options.allow_local_for_tokens,
	};
	snprintf(actor->id, sizeof(actor->id), "%s", owner->user_id);
}

/* The signature is not enough: a token ends with its run. */
static int become_run(struct server *server, const char *bearer, struct actor *actor,
		      struct error *err)
{
	_cleanup_error_ struct error why = { 0 };
	struct run_claims claims;
	struct subject run;

	if (run_token_verify(&server->run_key, bearer, clock_now(&server->clock), &claims, err) < 0)
		return -1;
	if (subject_get(server->db, OF_RUN, claims.run_id, &run, &why) < 0 &&
	    why.code != ERR_NOT_FOUND) {
		error_move(err, &why);
		return -1;
	}
	if (why.code == ERR_NOT_FOUND || run_status_is_final(run.status) ||
	    !streq(run.company_id, claims.company_id) || !streq(run.agent_id, claims.agent_id))
		return unknown_caller(err);
	if (become_agent(server, claims.agent_id, ACTOR_RUN, actor, err) < 0)
		return -1;
	id_copy(actor->run_id, claims.run_id);
	return 0;
}

int access_authenticate(void *arg, const char *bearer, struct actor *actor, struct error *err)
{
	struct server *server = arg;
	struct token_owner owner;

	if (run_token_is_shaped(bearer))
		return become_run(server, bearer, actor, err);
	if (!str_starts(bearer, "pcp_"))
		return unknown_caller(err);
	if (token_find(server->db, &server->clock, bearer, &owner, err) < 0)
		return -1;
	if (id_is_set(owner.agent_id))
		return become_agent(server, owner.agent_id, ACTOR_AGENT, actor, err);
	become_user(server, &owner, actor);
	return 0;
}

/* ---- what they are in a company ---- */

struct standing {
	bool inside;
	bool may_write;
	unsigned permissions;
};

static int find_membership(struct server *server, const struct actor *actor, const char *company_id,
			   struct membership *membership, bool *found, struct error *err)
{
	const struct principal principal = { actor_is_agent(actor) ? PRINCIPAL_AGENT
								   : PRINCIPAL_USER,
					     actor->id };
	_cleanup_error_ struct error why = { 0 };

	*found = membership_get(server->db, company_id, &principal, membership, &why) == 0;
	if (*found || why.code == ERR_NOT_FOUND)
		return 0;
	error_move(err, &why);
	return -1;
}

/* What is left of them when the token was made for a few. */
static unsigned limited(const struct actor *actor, unsigned permissions)
{
	return actor->is_limited ? permissions & actor->permissions : permissions;
}

static int find_standing(struct server *server, const struct actor *actor, const char *company_id,
			 struct standing *out, struct error *err)
{
	_cleanup_membership_ struct membership membership = { 0 };
	bool found;

	*out = (struct standing){ 0 };
	if (actor->is_admin) {
		*out = (struct standing){ true, true, limited(actor, PERMISSIONS_ALL) };
		return 0;
	}
	if (actor_is_agent(actor) && !streq(actor->company_id, company_id))
		return 0;
	if (find_membership(server, actor, company_id, &membership, &found, err) < 0)
		return -1;

	bool active = found && membership.status == MEMBER_ACTIVE;

	if (actor_is_agent(actor))
		*out = (struct standing){ !found || active, true,
					  actor->permissions | membership.permissions };
	else
		*out = (struct standing){ active, membership.role != ROLE_VIEWER,
					  limited(actor, membership.permissions) };
	return 0;
}

/* ---- what the path names ---- */

struct named {
	struct subject subject;
	enum subject_kind kind; /* what was looked up, and by which id */
	char id[ID_SIZE];
	bool in_lease; /* an exec that somebody started in a lease, not the command of a run */
};

static const enum subject_kind KIND_OF[] = {
	[SUBJECT_COMPANY] = OF_COMPANY,
	[SUBJECT_ENVIRONMENT] = OF_ENVIRONMENT,
	[SUBJECT_LEASE] = OF_LEASE,
	[SUBJECT_RUN] = OF_RUN,
	[SUBJECT_EXEC] = OF_RUN,
	[SUBJECT_AGENT] = OF_AGENT,
	[SUBJECT_PROJECT] = OF_PROJECT,
	[SUBJECT_ISSUE] = OF_ISSUE,
	[SUBJECT_WORKSPACE] = OF_WORKSPACE,
};

static int not_found(enum route_subject subject, struct error *err)
{
	return error_set(err, ERR_NOT_FOUND, "%s not found",
			 subject == SUBJECT_EXEC ? "Exec" : subject_label(KIND_OF[subject]));
}

static int find_subject(struct server *server, enum subject_kind kind, const char *id,
			struct named *named, struct error *err)
{
	named->kind = kind;
	snprintf(named->id, sizeof(named->id), "%s", id);
	return subject_get(server->db, kind, id, &named->subject, err);
}

/* An exec belongs to the company of its lease; the command of a run has the run's id. */
static int find_exec(struct server *server, const char *id, struct named *named, struct error *err)
{
	_cleanup_json_ json_t *record = execs_describe(server->execs, id, NULL);

	named->in_lease = record != NULL;
	return find_subject(server, record ? OF_LEASE : OF_RUN,
			    record ? json_str(record, "leaseId") : id, named, err);
}

/* Where only the company counts, which is everywhere but in places that may be this host. */
static bool is_remembered(struct server *server, const struct request *request, struct named *named)
{
	bool by_place = request->route->flags & ROUTE_IN_PLACE &&
			(!actor_is_trusted(&request->actor) || server->options.no_local);

	return !by_place && request->route->subject != SUBJECT_EXEC &&
	       company_cache_find(server->companies, (int)request->route->subject,
				  request->param[0], named->subject.company_id);
}

static void remember(struct server *server, const struct request *request,
		     const struct named *named)
{
	if (request->route->subject != SUBJECT_EXEC && id_is_valid(request->param[0]))
		company_cache_put(server->companies, (int)request->route->subject,
				  request->param[0], named->subject.company_id);
}

static int find_named(struct server *server, const struct request *request, struct named *named,
		      struct error *err)
{
	enum route_subject subject = request->route->subject;
	_cleanup_error_ struct error why = { 0 };

	if (is_remembered(server, request, named))
		return 0;

	int r = subject == SUBJECT_EXEC
			? find_exec(server, request->param[0], named, &why)
			: find_subject(server, KIND_OF[subject], request->param[0], named, &why);

	if (r == 0) {
		remember(server, request, named);
		return 0;
	}
	if (why.code == ERR_NOT_FOUND)
		return not_found(subject, err);
	error_move(err, &why);
	return -1;
}

/* ---- what they may do ---- */

static int missing(enum permission permission, struct error *err)
{
	return error_set(err, ERR_FORBIDDEN, "Missing permission: %s", permission_name(permission));
}

/* The permissions each of which opens a route; the first is named when none is there. */
static const struct {
	unsigned any_of;
	enum permission named;
} NEEDED[ACCESS_ADMIN + 1] = {
#define NEEDS(p) PERMISSION_BIT(PERMISSION_##p), PERMISSION_##p
	[ACCESS_AGENTS] = { NEEDS(AGENTS_CREATE) },
	[ACCESS_ENVIRONMENTS] = { NEEDS(ENVIRONMENTS_MANAGE) },
	[ACCESS_LEASES] = { PERMISSION_BIT(PERMISSION_ENVIRONMENTS_MANAGE) | NEEDS(LEASES_USE) },
	[ACCESS_MEMBERS] = { NEEDS(USERS_MANAGE) },
	[ACCESS_METRICS] = { NEEDS(METRICS_READ) },
#undef NEEDS
};

/* A token that was made for some permissions opens what they open, and nothing else. */
static int check_limits(const struct actor *actor, enum route_access access, struct error *err)
{
	_cleanup_json_ json_t *names = NULL;
	_cleanup_free_ char *text = NULL;

	if (!actor->is_limited || NEEDED[access].any_of & actor->permissions)
		return 0;
	names = permissions_json(actor->permissions);
	text = json_text(names);
	return error_set(err, ERR_FORBIDDEN, "this token is for %s only", text);
}

static int check_access(const struct request *request, enum route_access access,
			const struct standing *standing, struct error *err)
{
	bool for_people = access == ACCESS_BOARD || access == ACCESS_MEMBERS;
	bool changes =
		access == ACCESS_WRITE || access == ACCESS_BOARD || request->method != HTTP_GET;

	if (for_people && actor_is_agent(&request->actor))
		return error_set(err, ERR_FORBIDDEN, "Board access required");
	if (changes && !standing->may_write)
		return error_set(err, ERR_FORBIDDEN, "Viewer access is read-only");
	if (NEEDED[access].any_of && !(standing->permissions & NEEDED[access].any_of))
		return missing(NEEDED[access].named, err);
	return check_limits(&request->actor, access, err);
}

static int outside(const struct request *request, struct error *err)
{
	if (request->route->subject != SUBJECT_COMPANY)
		return not_found(request->route->subject, err);
	if (actor_is_agent(&request->actor))
		return error_set(err, ERR_FORBIDDEN, "Agent key cannot access another company");
	return error_set(err, ERR_FORBIDDEN, "User does not have access to this company");
}

/*
 * A place may have more of this host than the caller could have leased: whoever leased it did not
 * come with a token, or the server was started with other settings then.
 */
static int check_walls(struct server *server, const struct named *named, struct error *err)
{
	_cleanup_json_ json_t *config = NULL, *metadata = NULL;
	const struct allow_caller caller = { .allow = &server->options.allow,
					     .db = server->db,
					     .company_id = named->subject.company_id };
	struct place_needs needs;
	const json_t *mount;

	if (subject_place(server->db, named->kind, named->id, &config, &metadata, err) < 0)
		return -1;
	mount = json_object_at(metadata, PLACE_MOUNT);
	needs = maker_needs(&server->makers, named->subject.driver, config);
	if (allow_needs(&caller, &needs, NULL, err) < 0)
		return -1;
	if (!str_equal(json_str(mount, "how"), workspace_how_name(WORKSPACE_BIND)))
		return 0;
	if (allow_path(&caller, ALLOW_WORKSPACE, json_str(mount, "path"), NULL, err) < 0)
		return -1;
	return allow_switch(&caller, ALLOW_IN_PLACE, err);
}

/* A place of driver local is the server's own user: a token alone does not make one that. */
static int check_place(struct server *server, const struct request *request,
		       const struct named *named, struct error *err)
{
	bool local = named->subject.driver == DRIVER_LOCAL;

	if (!(request->route->flags & ROUTE_IN_PLACE) || named->subject.driver == DRIVER_KIND_COUNT)
		return 0;
	if (local && server->options.no_local)
		return refuse_host(err);
	if (local && request->actor.no_local)
		return refuse_local(err);
	return actor_is_trusted(&request->actor) ? 0 : check_walls(server, named, err);
}

/*
 * A path may have a company's name in place of its id. What looks like an id is one. A name that no
 * company has is refused like that of another's.
 */
static int take_company_name(struct server *server, struct request *request, struct error *err)
{
	_cleanup_(company_clear) struct company company = { 0 };
	_cleanup_error_ struct error why = { 0 };

	if (request->route->subject != SUBJECT_COMPANY || id_is_valid(request->param[0]))
		return 0;
	if (company_get_by_name(server->db, request->param[0], &company, &why) == 0) {
		id_copy(request->named_company, company.id);
		request->param[0] = request->named_company;
		return 0;
	}
	if (why.code == ERR_NOT_FOUND)
		return request->actor.is_admin ? not_found(SUBJECT_COMPANY, err)
					       : outside(request, err);
	error_move(err, &why);
	return -1;
}

static int authorize_subject(struct server *server, struct request *request, struct error *err)
{
	struct named named = { .subject.driver = DRIVER_KIND_COUNT };
	struct standing standing;
	enum route_access access = request->route->access;
	/* Whether the company of another exists is told to admins only. */
	bool blind = request->route->subject == SUBJECT_COMPANY && !request->actor.is_admin;

	if (take_company_name(server, request, err) < 0)
		return -1;
	if (blind)
		id_copy(named.subject.company_id, request->param[0]);
	else if (find_named(server, request, &named, err) < 0)
		return -1;
	if (find_standing(server, &request->actor, named.subject.company_id, &standing, err) < 0)
		return -1;
	if (!standing.inside)
		return outside(request, err);
	/* What goes on in a lease is for those who may have one, as the lease itself is. */
	if (named.in_lease)
		access = ACCESS_LEASES;
	id_copy(request->company_id, named.subject.company_id);
	request->permissions = standing.permissions;
	if (check_access(request, access, &standing, err) < 0)
		return -1;
	return check_place(server, request, &named, err);
}

static int authorize_instance(struct request *request, struct error *err)
{
	const struct actor *actor = &request->actor;
	enum route_access access = request->route->access;
	bool for_metrics = access == ACCESS_METRICS && actor->is_limited &&
			   actor->permissions & NEEDED[access].any_of;

	if (check_limits(actor, access, err) < 0)
		return -1;
	if ((access == ACCESS_ADMIN || access == ACCESS_METRICS) && !actor->is_admin &&
	    !for_metrics)
		return error_set(err, ERR_FORBIDDEN, "Instance admin access required");
	request->permissions = limited(actor, actor->is_admin ? PERMISSIONS_ALL : 0);
	return 0;
}

/* ---- on behalf of which run ---- */

static int bad_run_header(struct error *err)
{
	return error_set(err, ERR_UNPROCESSABLE,
			 "X-Paperclip-Run-Id names no run that this request could belong to");
}

/* What a header says goes into the activity, so it must be true. */
static int take_run_header(struct server *server, struct request *request, struct error *err)
{
	_cleanup_error_ struct error why = { 0 };
	struct actor *actor = &request->actor;
	struct standing standing;
	struct subject run;

	if (!request->run_header)
		return 0;
	if (actor->kind == ACTOR_RUN)
		return streq(request->run_header, actor->run_id) ? 0 : bad_run_header(err);
	if (!id_is_valid(request->run_header))
		return bad_run_header(err);
	if (subject_get(server->db, OF_RUN, request->run_header, &run, &why) < 0) {
		if (why.code == ERR_NOT_FOUND)
			return bad_run_header(err);
		error_move(err, &why);
		return -1;
	}
	if (id_is_set(request->company_id) && !streq(request->company_id, run.company_id))
		return bad_run_header(err);
	if (find_standing(server, actor, run.company_id, &standing, err) < 0)
		return -1;
	if (!standing.inside || (actor_is_agent(actor) && !streq(run.agent_id, actor->agent_id)))
		return bad_run_header(err);
	id_copy(actor->run_id, request->run_header);
	return 0;
}

int access_authorize(void *arg, struct request *request, struct error *err)
{
	struct server *server = arg;
	const struct route *route = request->route;

	if (route->access == ACCESS_PUBLIC)
		return 0;
	if ((route->subject == SUBJECT_NONE ? authorize_instance(request, err)
					    : authorize_subject(server, request, err)) < 0)
		return -1;
	return take_run_header(server, request, err);
}

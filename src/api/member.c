#include "api/answer.h"
#include "record/member.h"
#include "base/text.h"

/* /api/companies/:cid/members/:type/:id */
static int principal_of_path(const struct request *request, struct principal *out,
			     struct error *err)
{
	if (!principal_kind_parse(request->param[1], &out->kind))
		return error_set(err, ERR_NOT_FOUND, "members are of type user or agent");
	out->id = request->param[2];
	return 0;
}

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;

	return answer(response, 200, membership_list(server->db, request->company_id, err));
}

static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_membership_ struct membership membership = { 0 };
	struct principal principal;

	if (principal_of_path(request, &principal, err) < 0 ||
	    membership_get(server->db, request->company_id, &principal, &membership, err) < 0)
		return -1;
	return answer(response, 200, membership_json(&membership));
}

/* What it opens is of no company. */
static int check_grants(unsigned granted, struct error *err)
{
	if (granted & PERMISSION_BIT(PERMISSION_METRICS_READ))
		return error_set(err, ERR_VALIDATION,
				 "metrics:read cannot be granted to a member, because metrics are "
				 "of the whole server: an instance admin gives it to a token "
				 "(berth token create --only metrics:read)");
	return 0;
}

static int put(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	const json_t *body = request->body;
	const json_t *names = json_array_at(body, "permissions");
	_cleanup_membership_ struct membership membership = { 0 };
	struct membership_change change = { 0 };
	struct principal principal;
	enum member_role role;
	enum member_status status;
	unsigned granted;

	if (member_role_parse(json_str(body, "role"), &role))
		change.role = &role;
	if (member_status_parse(json_str(body, "status"), &status))
		change.status = &status;
	if (names)
		change.granted = &granted;
	if (principal_of_path(request, &principal, err) < 0 ||
	    permissions_read(names, &granted, err) < 0 || check_grants(granted, err) < 0 ||
	    membership_put(server->db, &server->clock, &request->actor, request->company_id,
			   &principal, &change, &membership, err) < 0)
		return -1;
	return answer(response, 200, membership_json(&membership));
}

static int destroy(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_membership_ struct membership membership = { 0 };
	struct principal principal;

	if (principal_of_path(request, &principal, err) < 0 ||
	    membership_get(server->db, request->company_id, &principal, &membership, err) < 0 ||
	    membership_delete(server->db, &server->clock, &request->actor, request->company_id,
			      &principal, err) < 0)
		return -1;
	return answer(response, 200, membership_json(&membership));
}

static const struct field MEMBER_FIELDS[] = {
	{ .name = "role",
	  .type = FIELD_STRING,
	  .one_of = member_role_names,
	  .summary = "Its rights: owner and admin manage, operator works, viewer reads" },
	{ .name = "status",
	  .type = FIELD_STRING,
	  .one_of = member_status_names,
	  .summary = "Only active members have access" },
	{ .name = "permissions",
	  .type = FIELD_STRING_ARRAY,
	  .max = PERMISSION_COUNT,
	  .summary = "Permissions besides the role's; replaces earlier grants" },
	{ 0 },
};

#define MEMBERS "/api/companies/:cid/members"
ROUTES(MEMBER_ROUTES, 240) = {
	{ HTTP_GET, MEMBERS, .access = ACCESS_READ, .subject = SUBJECT_COMPANY, .run = list,
	  .answer = "[Member]", .summary = "People of the company, and agents with grants" },
	{ HTTP_GET, MEMBERS "/:type/:id", .access = ACCESS_READ, .subject = SUBJECT_COMPANY,
	  .run = show, .answer = "Member", .summary = "One member" },
	{ HTTP_PUT, MEMBERS "/:type/:id", .access = ACCESS_MEMBERS, .subject = SUBJECT_COMPANY,
	  .body = MEMBER_FIELDS, .run = put, .answer = "Member",
	  .summary = "Adds a member, or changes the fields in the body" },
	{ HTTP_DELETE, MEMBERS "/:type/:id", .access = ACCESS_MEMBERS, .subject = SUBJECT_COMPANY,
	  .run = destroy, .answer = "Member", .errors = "conflict",
	  .summary = "Ends a membership, except the last owner's" },
	{ 0 },
};

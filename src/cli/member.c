#include "base/text.h"
#include "cli/api.h"
#include "cli/cli.h"

/* A member is a user, or with --agent an agent; both by name or id. */
static int member_path(struct cli *cli, struct api *api, const struct args *args, char **path,
		       struct error *err)
{
	bool is_agent = args_has(args, "agent");
	const char *name = args->positional[0];
	_cleanup_json_ json_t *users = NULL, *found = NULL;
	char company_id[ID_SIZE];

	if (api_company(cli, api, company_id, err) < 0)
		return -1;
	if (is_agent) {
		if (api_agent(api, company_id, name, &found, err) < 0)
			return -1;
		name = json_str(found, "id");
	} else if (!id_is_valid(name)) {
		/* Only admins see everybody; an id does without. */
		if (api_call(api, "GET", "/api/users", NULL, &users, err) < 0 ||
		    api_pick(users, name, "user", &found, err) < 0)
			return error_wrap(err, "user \"%s\"", name);
		name = json_str(found, "id");
	}
	*path = xasprintf("/api/companies/%s/members/%s/%s", company_id,
			  is_agent ? "agent" : "user", name);
	return 0;
}

static int member_set(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *now = NULL;
	_cleanup_api_ struct api *api = NULL;
	_cleanup_free_ char *path = NULL;

	if (args_has(args, "role"))
		json_put_str(body, "role", args_value(args, "role"));
	if (args_has(args, "status"))
		json_put_str(body, "status", args_value(args, "status"));
	if (args_has(args, "grant") || args_has(args, "no-grants")) {
		json_t *grants = json_array();
		const char *grant;

		for (size_t i = 0; (grant = args_nth(args, "grant", i)); i++)
			json_array_append_new(grants, json_string(grant));
		json_put_new(body, "permissions", grants);
	}
	if (api_connect(cli, true, &api, &err) < 0 ||
	    member_path(cli, api, args, &path, &err) < 0 ||
	    api_call(api, "PUT", path, body, &now, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(now);
	return 0;
}

static int member_rm(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *gone = NULL;
	_cleanup_api_ struct api *api = NULL;
	_cleanup_free_ char *path = NULL;

	if (api_connect(cli, true, &api, &err) < 0 ||
	    member_path(cli, api, args, &path, &err) < 0 ||
	    api_call(api, "DELETE", path, NULL, &gone, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(gone);
	return 0;
}

static int member_ls(struct cli *cli, const struct args *args)
{
	static const char *const COLUMNS[] = {
		"TYPE=principalType", "ID=principalId", "NAME=name", "ROLE=role",
		"STATUS=status",      "GRANTS=grants",  NULL
	};
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *list = NULL;
	_cleanup_api_ struct api *api = NULL;
	char company_id[ID_SIZE];

	(void)args;
	if (api_connect(cli, true, &api, &err) < 0 || api_company(cli, api, company_id, &err) < 0 ||
	    api_callf(api, "GET", NULL, &list, &err, "/api/companies/%s/members", company_id) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(list);
	else
		print_table(list, COLUMNS);
	return 0;
}

#define AGENT                                                                                      \
	{                                                                                          \
		"agent", 0, NULL, "NAME is the name of an agent", false                            \
	}
static const struct flag SET_FLAGS[] = {
	{ "role", 0, "ROLE", "owner, admin, operator, viewer or member", false },
	{ "status", 0, "STATUS", "active, suspended, pending or archived", false },
	{ "grant", 0, "PERMISSION", "leases:use, environments:manage, ...; replaces the grants",
	  true },
	{ "no-grants", 0, NULL, "remove all grants", false },
	AGENT,
	{ 0 },
};
static const struct flag RM_FLAGS[] = { AGENT, { 0 } };

VERB(MEMBER_SET, 500) = { .name = "member set",
			  .arguments = "NAME",
			  .flags = SET_FLAGS,
			  .min_args = 1,
			  .max_args = 1,
			  .summary = "add a member to the company, or change one",
			  .run = member_set };
VERB(MEMBER_LS, 501) = { .name = "member ls",
			 .arguments = "",
			 .summary = "list the company's members",
			 .run = member_ls };
VERB(MEMBER_RM, 502) = { .name = "member rm",
			 .arguments = "NAME",
			 .flags = RM_FLAGS,
			 .min_args = 1,
			 .max_args = 1,
			 .summary = "end a membership",
			 .run = member_rm };

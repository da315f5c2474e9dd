#include "base/text.h"
#include "cli/api.h"
#include "cli/cli.h"

static int user_add(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *made = NULL;
	_cleanup_api_ struct api *api = NULL;

	json_put_str(body, "name", args->positional[0]);
	if (args_has(args, "admin"))
		json_put_bool(body, "isInstanceAdmin", true);
	if (api_connect(cli, true, &api, &err) < 0 ||
	    api_call(api, "POST", "/api/users", body, &made, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(made);
	else
		puts(json_str(made, "id"));
	return 0;
}

static int user_ls(struct cli *cli, const struct args *args)
{
	static const char *const COLUMNS[] = { "ID=id",
					       "NAME=name",
					       "ADMIN=isInstanceAdmin",
					       "DISABLED=disabled",
					       "CREATED=createdAt",
					       NULL };
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *list = NULL;
	_cleanup_api_ struct api *api = NULL;

	(void)args;
	if (api_connect(cli, true, &api, &err) < 0 ||
	    api_call(api, "GET", "/api/users", NULL, &list, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(list);
	else
		print_table(list, COLUMNS);
	return 0;
}

/* --yes and --no of one thing; false when both were given. */
static bool put_choice(const struct args *args, const char *yes, const char *no, const char *key,
		       json_t *body)
{
	if (args_has(args, yes) && args_has(args, no))
		return false;
	if (args_has(args, yes) || args_has(args, no))
		json_put_bool(body, key, args_has(args, yes));
	return true;
}

static int user_set(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *users = NULL, *user = NULL, *now = NULL;
	_cleanup_api_ struct api *api = NULL;

	if (!put_choice(args, "admin", "no-admin", "isInstanceAdmin", body) ||
	    !put_choice(args, "disable", "enable", "disabled", body))
		return fprintf(stderr, "berth: these two flags contradict each other\n"),
		       EXIT_USAGE;
	if (api_connect(cli, true, &api, &err) < 0 ||
	    api_call(api, "GET", "/api/users", NULL, &users, &err) < 0 ||
	    api_pick(users, args->positional[0], "user", &user, &err) < 0 ||
	    api_callf(api, "PATCH", body, &now, &err, "/api/users/%s", json_str(user, "id")) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(now);
	return 0;
}

static int whoami(struct cli *cli, const struct args *args)
{
	static const char *const FIELDS[] = { "TYPE=type",
					      "ID=id",
					      "NAME=name",
					      "KNOWN BY=source",
					      "ADMIN=isInstanceAdmin",
					      "COMPANY=companyId",
					      "RUN=runId",
					      NULL };
	static const char *const COLUMNS[] = { "COMPANY=companyName", "ROLE=role",
					       "PERMISSIONS=permissions", NULL };
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *me = NULL;
	_cleanup_api_ struct api *api = NULL;

	(void)args;
	if (api_connect(cli, true, &api, &err) < 0 ||
	    api_call(api, "GET", "/api/me", NULL, &me, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json) {
		print_json(me);
		return 0;
	}
	print_fields(me, FIELDS);
	if (json_array_size(json_array_at(me, "memberships"))) {
		putchar('\n');
		print_table(json_array_at(me, "memberships"), COLUMNS);
	}
	return 0;
}

static const struct flag ADD_FLAGS[] = {
	{ "admin", 0, NULL, "may do everything in every company", false },
	{ 0 },
};
static const struct flag SET_FLAGS[] = {
	{ "admin", 0, NULL, "may do everything in every company", false },
	{ "no-admin", 0, NULL, "only what the person's memberships allow", false },
	{ "disable", 0, NULL, "make the person's tokens invalid", false },
	{ "enable", 0, NULL, "make them valid again", false },
	{ 0 },
};

VERB(USER_ADD, 480) = { .name = "user add",
			.arguments = "NAME",
			.flags = ADD_FLAGS,
			.min_args = 1,
			.max_args = 1,
			.summary = "add a person who can have tokens; prints the id",
			.run = user_add };
VERB(USER_LS,
     481) = { .name = "user ls", .arguments = "", .summary = "list people", .run = user_ls };
VERB(USER_SET, 482) = { .name = "user set",
			.arguments = "NAME",
			.flags = SET_FLAGS,
			.min_args = 1,
			.max_args = 1,
			.summary = "make a person an admin, or disable their tokens",
			.run = user_set };
VERB(WHOAMI, 520) = { .name = "whoami",
		      .arguments = "",
		      .summary = "show who you are to the server",
		      .run = whoami };

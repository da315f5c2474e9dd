/*
 * Tokens: making one prints its text, which is nowhere else, and nothing more.
 */
#include "base/text.h"
#include "cli/api.h"
#include "cli/cli.h"

/* Whose: --agent and --user by name or id, into the path of their tokens. */
static int tokens_path(struct cli *cli, struct api *api, const struct args *args, json_t *body,
		       char **path, struct error *err)
{
	const char *agent = args_value(args, "agent"), *user = args_value(args, "user");
	_cleanup_json_ json_t *found = NULL, *users = NULL;
	char company_id[ID_SIZE];

	if (agent && user)
		return error_set(err, ERR_BAD_REQUEST, "--agent and --user exclude each other");
	if (agent) {
		if (api_company(cli, api, company_id, err) < 0 ||
		    api_agent(api, company_id, agent, &found, err) < 0)
			return -1;
		*path = xasprintf("/api/agents/%s/keys", json_str(found, "id"));
		return 0;
	}
	if (user) {
		if (api_call(api, "GET", "/api/users", NULL, &users, err) < 0 ||
		    api_pick(users, user, "user", &found, err) < 0)
			return -1;
		if (body)
			json_put_str(body, "userId", json_str(found, "id"));
	}
	*path = found && !body ? xasprintf("/api/tokens?userId=%s", json_str(found, "id"))
			       : xstrdup("/api/tokens");
	return 0;
}

static int put_expiry(const struct args *args, json_t *body, struct error *err)
{
	const char *text = args_value(args, "expires");
	int64_t ms;

	if (!text)
		return 0;
	if (streq(text, "never")) {
		json_put_new(body, "expiresInSeconds", json_null());
		return 0;
	}
	if (!parse_duration_ms(text, &ms) || ms < 1000)
		return error_set(err, ERR_BAD_REQUEST,
				 "--expires wants a time like 30d or 12h, or never");
	json_put_int(body, "expiresInSeconds", ms / 1000);
	return 0;
}

static void put_permissions(const struct args *args, json_t *body)
{
	json_t *names = json_array();
	const char *name;

	for (size_t i = 0; (name = args_nth(args, "only", i)); i++)
		json_array_append_new(names, json_string(name));
	if (json_array_size(names) > 0)
		json_put_ref(body, "permissions", names);
	json_decref(names);
}

static int token_create(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *made = NULL;
	_cleanup_api_ struct api *api = NULL;
	_cleanup_free_ char *path = NULL;
	const char *name = args_value(args, "name");

	json_put_str(body, "name", name ? name : "cli");
	put_permissions(args, body);
	if (put_expiry(args, body, &err) < 0)
		return cli_fail(cli, &err, EXIT_USAGE);
	if (api_connect(cli, true, &api, &err) < 0 ||
	    tokens_path(cli, api, args, body, &path, &err) < 0 ||
	    api_call(api, "POST", path, body, &made, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(made);
	else
		puts(json_str(made, "token"));
	return 0;
}

static int token_ls(struct cli *cli, const struct args *args)
{
	static const char *const COLUMNS[] = {
		"ID=id",         "NAME=name",         "PREFIX=prefix",        "USER=userId",
		"AGENT=agentId", "EXPIRES=expiresAt", "LAST USED=lastUsedAt", NULL
	};
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *list = NULL;
	_cleanup_api_ struct api *api = NULL;
	_cleanup_free_ char *path = NULL;

	if (api_connect(cli, true, &api, &err) < 0 ||
	    tokens_path(cli, api, args, NULL, &path, &err) < 0 ||
	    api_call(api, "GET", path, NULL, &list, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(list);
	else
		print_table(list, COLUMNS);
	return 0;
}

static int token_revoke(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *gone = NULL;
	_cleanup_api_ struct api *api = NULL;
	_cleanup_free_ char *path = NULL, *id = NULL, *full = NULL;

	if (api_connect(cli, true, &api, &err) < 0 ||
	    tokens_path(cli, api, args, NULL, &path, &err) < 0)
		return cli_fail(cli, &err, 1);
	id = api_escape(api, args->positional[0]);
	full = xasprintf("%.*s/%s", (int)strcspn(path, "?"), path, id);
	if (api_call(api, "DELETE", full, NULL, &gone, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(gone);
	return 0;
}

#define WHOSE                                                                                      \
	{ "user", 0, "NAME", "of this user, by name or id", false },                               \
	{                                                                                          \
		"agent", 0, "NAME", "of this agent, by name or id", false                          \
	}
static const struct flag CREATE_FLAGS[] = {
	WHOSE,
	{ "name", 0, "NAME", "what it is for (\"cli\")", false },
	{ "expires", 0, "TIME", "how long it is valid: 30d, 12h or never (users 30d, agents never)",
	  false },
	{ "only", 0, "PERMISSION",
	  "limit the token to this permission: metrics:read, leases:use, ...", true },
	{ 0 },
};
static const struct flag WHOSE_FLAGS[] = { WHOSE, { 0 } };

VERB(TOKEN_CREATE, 460) = {
	.name = "token create",
	.arguments = "",
	.flags = CREATE_FLAGS,
	.summary = "make a token and print it, this once",
	.help = "Without --user and --agent the token is your own. A scraper of /metrics needs "
		"only\n--only metrics:read. Use the token in BERTH_TOKEN or in a file for "
		"--token-file.\nThe server keeps only a hash of it.",
	.run = token_create,
};
VERB(TOKEN_LS, 461) = { .name = "token ls",
			.arguments = "",
			.flags = WHOSE_FLAGS,
			.summary = "list tokens, without their text",
			.run = token_ls };
VERB(TOKEN_REVOKE, 462) = { .name = "token revoke",
			    .arguments = "ID",
			    .flags = WHOSE_FLAGS,
			    .min_args = 1,
			    .max_args = 1,
			    .summary = "revoke a token at once (--agent for an agent's)",
			    .run = token_revoke };

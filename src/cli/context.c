#include "base/text.h"
#include "cli/api.h"
#include "cli/verbs.h"

static int company_ls(struct cli *cli, const struct args *args)
{
	static const char *const COLUMNS[] = { "ID=id", "NAME=name", "CREATED=createdAt", NULL };
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *list = NULL;
	_cleanup_api_ struct api *api = NULL;

	(void)args;
	if (api_connect(cli, true, &api, &err) < 0 ||
	    api_call(api, "GET", "/api/companies", NULL, &list, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(list);
	else
		print_table(list, COLUMNS);
	return 0;
}

static int added(struct cli *cli, const json_t *answer)
{
	if (cli->json)
		print_json(answer);
	else
		puts(json_str(answer, "id"));
	return 0;
}

static int company_add(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *answer = NULL;
	_cleanup_api_ struct api *api = NULL;

	json_put_str(body, "name", args->positional[0]);
	if (api_connect(cli, true, &api, &err) < 0 ||
	    api_call(api, "POST", "/api/companies", body, &answer, &err) < 0)
		return cli_fail(cli, &err, 1);
	return added(cli, answer);
}

static int agent_ls(struct cli *cli, const struct args *args)
{
	static const char *const COLUMNS[] = { "ID=id", "NAME=name", "ADAPTER=adapterType",
					       "ENVIRONMENT=defaultEnvironmentId", NULL };
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *list = NULL;
	_cleanup_api_ struct api *api = NULL;
	char company_id[ID_SIZE];

	(void)args;
	if (api_connect(cli, true, &api, &err) < 0 || api_company(cli, api, company_id, &err) < 0 ||
	    api_callf(api, "GET", NULL, &list, &err, "/api/companies/%s/agents", company_id) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(list);
	else
		print_table(list, COLUMNS);
	return 0;
}

static int agent_add(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *answer = NULL, *environment = NULL;
	_cleanup_api_ struct api *api = NULL;
	char company_id[ID_SIZE];

	json_put_str(body, "name", args->positional[0]);
	if (args_has(args, "adapter"))
		json_put_str(body, "adapterType", args_value(args, "adapter"));
	if (api_connect(cli, true, &api, &err) < 0 || api_company(cli, api, company_id, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (args_has(args, "env")) {
		if (api_environment(api, company_id, args_value(args, "env"), &environment, &err) <
		    0)
			return cli_fail(cli, &err, 1);
		json_put_str(body, "defaultEnvironmentId", json_str(environment, "id"));
	}
	if (api_callf(api, "POST", body, &answer, &err, "/api/companies/%s/agents", company_id) < 0)
		return cli_fail(cli, &err, 1);
	return added(cli, answer);
}

static const struct flag AGENT_FLAGS[] = {
	{ "env", 0, "NAME", "environment its runs use when nothing else decides", false },
	{ "adapter", 0, "TYPE", "process (default), claude_local, codex_local, ...", false },
	{ 0 },
};

const struct verb VERB_COMPANY_LS = {
	.name = "company ls", .arguments = "", .summary = "list companies", .run = company_ls
};
const struct verb VERB_COMPANY_ADD = { .name = "company add",
				       .arguments = "NAME",
				       .min_args = 1,
				       .max_args = 1,
				       .summary = "add a company; prints its id",
				       .run = company_add };
const struct verb VERB_AGENT_LS = {
	.name = "agent ls", .arguments = "", .summary = "list agents", .run = agent_ls
};
const struct verb VERB_AGENT_ADD = { .name = "agent add",
				     .arguments = "NAME",
				     .flags = AGENT_FLAGS,
				     .min_args = 1,
				     .max_args = 1,
				     .summary = "add an agent; prints its id",
				     .run = agent_add };

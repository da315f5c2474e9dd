#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/api.h"
#include "cli/verbs.h"

static const char *const COLUMNS[] = { "ID=id",         "NAME=name",
				       "DRIVER=driver", "PROVIDER=config.provider",
				       "STATUS=status", NULL };
static const char *const FIELDS[] = { "id=id",
				      "name=name",
				      "description=description",
				      "driver=driver",
				      "status=status",
				      "config=config",
				      "metadata=metadata",
				      "created=createdAt",
				      "updated=updatedAt",
				      NULL };

/* JSON given on the command line, or @file. */
static json_t *json_argument(const char *text, struct error *err)
{
	_cleanup_buf_ struct buf file = { 0 };

	if (text[0] != '@')
		return json_parse(text, strlen(text), err);
	if (file_read(AT_FDCWD, text + 1, &file, 1 << 20, err) < 0)
		return NULL;
	return json_parse(buf_str(&file), file.len, err);
}

static int build_environment(const struct args *args, json_t *body, struct error *err)
{
	const char *config_text = args_value(args, "config");
	json_t *config = config_text ? json_argument(config_text, err) : json_object();
	int64_t max_leases = 0;

	if (!config)
		return error_wrap(err, "--config");
	json_put_new(body, "config", config);
	if (!json_is_object(config))
		return error_set(err, ERR_BAD_REQUEST, "--config wants a JSON object");
	json_put_str(body, "name", args->positional[0]);
	json_put_str(body, "driver",
		     args_has(args, "driver") ? args_value(args, "driver") : "sandbox");
	if (args_has(args, "description"))
		json_put_str(body, "description", args_value(args, "description"));
	if (args_has(args, "provider"))
		json_put_str(config, "provider", args_value(args, "provider"));
	if (args_has(args, "image"))
		json_put_str(config, "image", args_value(args, "image"));
	if (args_has(args, "reuse"))
		json_put_bool(config, "reuseLease", true);
	if (!args_int(args, "max-leases", 1, 1000000, &max_leases))
		return error_set(err, ERR_BAD_REQUEST, "--max-leases is not a number");
	if (max_leases > 0) {
		json_t *metadata = json_object();

		json_put_int(metadata, "maxLeases", max_leases);
		json_put_new(body, "metadata", metadata);
	}
	return 0;
}

static int env_add(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *answer = NULL;
	_cleanup_api_ struct api *api = NULL;
	char company_id[ID_SIZE];

	if (build_environment(args, body, &err) < 0 || api_connect(cli, true, &api, &err) < 0 ||
	    api_company(cli, api, company_id, &err) < 0 ||
	    api_callf(api, "POST", body, &answer, &err, "/api/companies/%s/environments",
		      company_id) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(answer);
	else
		puts(json_str(answer, "id"));
	return 0;
}

static int env_ls(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *list = NULL;
	_cleanup_api_ struct api *api = NULL;
	char company_id[ID_SIZE];

	(void)args;
	if (api_connect(cli, true, &api, &err) < 0 || api_company(cli, api, company_id, &err) < 0 ||
	    api_callf(api, "GET", NULL, &list, &err, "/api/companies/%s/environments", company_id) <
		    0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(list);
	else
		print_table(list, COLUMNS);
	return 0;
}

/* The environment named by the first argument, with a connection to its server. */
static int named(struct cli *cli, const struct args *args, struct api **api, json_t **environment,
		 struct error *err)
{
	char company_id[ID_SIZE];

	if (api_connect(cli, true, api, err) < 0 || api_company(cli, *api, company_id, err) < 0)
		return -1;
	return api_environment(*api, company_id, args->positional[0], environment, err);
}

static int env_show(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *environment = NULL;
	_cleanup_api_ struct api *api = NULL;

	if (named(cli, args, &api, &environment, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(environment);
	else
		print_fields(environment, FIELDS);
	return 0;
}

static int env_rm(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *environment = NULL, *removed = NULL;
	_cleanup_api_ struct api *api = NULL;

	if (named(cli, args, &api, &environment, &err) < 0 ||
	    api_callf(api, "DELETE", NULL, &removed, &err, "/api/environments/%s",
		      json_str(environment, "id")) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(removed);
	return 0;
}

static int env_probe(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *environment = NULL, *probe = NULL, *body = json_object();
	_cleanup_api_ struct api *api = NULL;

	if (named(cli, args, &api, &environment, &err) < 0 ||
	    api_callf(api, "POST", body, &probe, &err, "/api/environments/%s/probe",
		      json_str(environment, "id")) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json) {
		print_json(probe);
	} else {
		print_cell(stdout, json_str(probe, "summary") ? json_str(probe, "summary") : "");
		putchar('\n');
	}
	return json_bool(probe, "ok", false) ? 0 : 1;
}

static const struct flag ADD_FLAGS[] = {
	{ "driver", 0, "NAME", "local, sandbox (default), ssh or plugin", false },
	{ "provider", 0, "KEY", "who makes the sandbox", false },
	{ "image", 0, "NAME", "what the provider starts it from", false },
	{ "reuse", 0, NULL, "keep the place between leases of the same scope", false },
	{ "max-leases", 0, "N", "at most this many holders at once", false },
	{ "config", 0, "JSON|@FILE", "the whole config; the flags above add to it", false },
	{ "description", 0, "TEXT", "for people", false },
	{ 0 },
};

const struct verb VERB_ENV_ADD = { .name = "env add",
				   .arguments = "NAME",
				   .flags = ADD_FLAGS,
				   .summary = "add an environment; prints its id",
				   .min_args = 1,
				   .max_args = 1,
				   .run = env_add };
const struct verb VERB_ENV_LS = {
	.name = "env ls", .arguments = "", .summary = "list environments", .run = env_ls
};
const struct verb VERB_ENV_SHOW = { .name = "env show",
				    .arguments = "NAME",
				    .run = env_show,
				    .summary = "show one environment",
				    .min_args = 1,
				    .max_args = 1 };
const struct verb VERB_ENV_RM = { .name = "env rm",
				  .arguments = "NAME",
				  .run = env_rm,
				  .min_args = 1,
				  .max_args = 1,
				  .summary = "remove an environment that nothing depends on" };
const struct verb VERB_ENV_PROBE = { .name = "env probe",
				     .arguments = "NAME",
				     .run = env_probe,
				     .summary = "try whether it can be used",
				     .min_args = 1,
				     .max_args = 1 };

#include "base/text.h"
#include "cli/record.h"
#include "cli/cli.h"

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
static const char *const EDITABLE[] = { "name",   "description", "driver", "status",
					"config", "metadata",    NULL };
static const char *const REPLACED[] = { "config", "replaceConfig", NULL };

const struct record_kind ENVIRONMENT_KIND = { .noun = "env",
					      .called = "environment",
					      .segment = "environments",
					      .name_key = "name",
					      .columns = COLUMNS,
					      .fields = FIELDS,
					      .editable = EDITABLE,
					      .replaced = REPLACED };

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

/*
 * Before anything is kept: an environment whose places cannot be made would fail with its first
 * run. 0 when it works or was not to be tried.
 */
static int try_out(struct api *api, const char *company_id, const struct args *args,
		   const json_t *body, struct error *err)
{
	_cleanup_json_ json_t *draft = NULL, *probe = NULL;

	if (args_has(args, "no-probe"))
		return 0;
	draft = json_object();
	json_put_ref(draft, "name", json_object_get(body, "name"));
	json_put_ref(draft, "driver", json_object_get(body, "driver"));
	json_put_ref(draft, "config", json_object_get(body, "config"));
	if (api_callf(api, "POST", draft, &probe, err,
		      "/api/companies/%s/environments/probe-config", company_id) < 0)
		return error_wrap(err, "nothing was added (--no-probe skips this check)");
	if (json_bool(probe, "ok", false))
		return 0;
	return error_set(err, ERR_PROBE,
			 "nothing was added, because its places do not work (--no-probe skips this "
			 "check): %.300s",
			 json_str(probe, "summary") ? json_str(probe, "summary")
						    : "no reason given");
}

static int env_add(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object();
	_cleanup_api_ struct api *api = NULL;
	char company_id[ID_SIZE];

	if (build_environment(args, body, &err) < 0 ||
	    record_begin(cli, &api, company_id, &err) < 0 ||
	    try_out(api, company_id, args, body, &err) < 0)
		return cli_fail(cli, &err, 1);
	return record_add(cli, api, company_id, &ENVIRONMENT_KIND, body);
}

static int env_archive(struct cli *cli, const struct args *args)
{
	_cleanup_json_ json_t *body = json_object();

	json_put_str(body, "status", args_has(args, "undo") ? "active" : "archived");
	return record_patch(cli, args, &ENVIRONMENT_KIND, body);
}

/* Who has chosen it, and why it can or cannot be removed. */
static int env_usage(struct cli *cli, const struct args *args)
{
	static const char *const USAGE[] = { "can be removed=canDelete",
					     "in the way=deleteBlockedReasons",
					     "agents=selectedBy.agents.count",
					     "issues=selectedBy.issues.count",
					     "projects=selectedBy.projects.count",
					     "workspaces=selectedBy.executionWorkspaces.count",
					     NULL };
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *environment = NULL, *usage = NULL;
	_cleanup_api_ struct api *api = NULL;

	if (record_named(cli, args, &ENVIRONMENT_KIND, &api, &environment, &err) < 0 ||
	    api_callf(api, "GET", NULL, &usage, &err, "/api/environments/%s/usage",
		      json_str(environment, "id")) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(usage);
	else
		print_fields(usage, USAGE);
	return 0;
}

static int env_probe(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *environment = NULL, *probe = NULL, *body = json_object();
	_cleanup_api_ struct api *api = NULL;

	if (record_named(cli, args, &ENVIRONMENT_KIND, &api, &environment, &err) < 0 ||
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
	{ "provider", 0, "KEY", "provider that makes the sandbox: native (default) or fake",
	  false },
	{ "image", 0, "NAME", "image the provider starts it from", false },
	{ "reuse", 0, NULL, "keep the place between leases of the same scope", false },
	{ "max-leases", 0, "N", "most leases at a time", false },
	{ "config", 0, "JSON|@FILE", "config as JSON; the flags above add to it", false },
	{ "description", 0, "TEXT", "for people", false },
	{ "no-probe", 0, NULL, "save it without building a place first", false },
	{ 0 },
};

VERB(ENV_ADD, 300) = { .name = "env add",
		       .arguments = "NAME",
		       .flags = ADD_FLAGS,
		       .summary = "add an environment; prints its id",
		       .min_args = 1,
		       .max_args = 1,
		       .run = env_add };
RECORD_VERBS("env", "environment", ENVIRONMENT_KIND, 300);

static const struct flag ARCHIVE_FLAGS[] = {
	{ "undo", 0, NULL, "make it active again", false },
	{ 0 },
};
VERB(ENV_ARCHIVE, 304) = { .name = "env archive",
			   .arguments = "NAME",
			   .flags = ARCHIVE_FLAGS,
			   .run = env_archive,
			   .min_args = 1,
			   .max_args = 1,
			   .summary = "archive an environment: no new leases" };
VERB(ENV_USAGE,
     305) = { .name = "env usage",
	      .arguments = "NAME",
	      .run = env_usage,
	      .min_args = 1,
	      .max_args = 1,
	      .summary = "show what uses an environment, and whether it can be removed" };
VERB(ENV_PROBE, 310) = { .name = "env probe",
			 .arguments = "NAME",
			 .run = env_probe,
			 .summary = "build a place of the environment and test it",
			 .min_args = 1,
			 .max_args = 1 };

#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/api.h"
#include "cli/cli.h"

#define CONFIG_MAX (1 << 20)

json_t *config_argument(const char *text, struct error *err)
{
	_cleanup_buf_ struct buf file = { 0 };
	_cleanup_json_ json_t *config = NULL;

	if (text[0] == '@') {
		if (file_read(AT_FDCWD, text + 1, &file, CONFIG_MAX, err) < 0)
			return NULL;
		config = json_parse(buf_str(&file), file.len, err);
	} else {
		config = json_parse(text, strlen(text), err);
	}
	if (!config)
		return NULL;
	if (!json_is_object(config)) {
		error_set(err, ERR_BAD_REQUEST, "it wants a JSON object");
		return NULL;
	}
	return steal(config);
}

static const char *const COLUMNS[] = { "TYPE=adapterType",        "NAME=name",
				       "COMMAND=command",         "PROMPT=takesPrompt",
				       "SANDBOX=drivers.sandbox", "SSH=drivers.ssh",
				       "INSTALL=installHint",     NULL };

static int adapter_ls(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *list = NULL;
	_cleanup_api_ struct api *api = NULL;

	(void)args;
	if (api_connect(cli, true, &api, &err) < 0 ||
	    api_call(api, "GET", "/api/adapters", NULL, &list, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(list);
	else
		print_table(list, COLUMNS);
	return 0;
}

static int build_test(const struct args *args, struct api *api, const char *company_id,
		      json_t *body, struct error *err)
{
	_cleanup_json_ json_t *environment = NULL;
	const char *config = args_value(args, "config");

	if (config) {
		json_t *parsed = config_argument(config, err);

		if (!parsed)
			return error_wrap(err, "--config");
		json_put_new(body, "adapterConfig", parsed);
	}
	if (!args_has(args, "env"))
		return 0;
	if (api_environment(api, company_id, args_value(args, "env"), &environment, err) < 0)
		return -1;
	json_put_str(body, "environmentId", json_str(environment, "id"));
	return 0;
}

static void print_line(const char *indent, const char *text)
{
	if (!text)
		return;
	fputs(indent, stdout);
	print_cell(stdout, text);
	putchar('\n');
}

static void print_checks(const json_t *result)
{
	const json_t *check;
	size_t i;

	json_array_foreach (json_array_at(result, "checks"), i, check) {
		printf("%-5s  ", json_str(check, "level"));
		print_line("", json_str(check, "message"));
		print_line("       ", json_str(check, "detail"));
		print_line("       hint: ", json_str(check, "hint"));
	}
	printf("%s: %s\n", json_str(result, "adapterType"), json_str(result, "status"));
}

/* A warning can also mean that nothing was tried; a script wants to know whether it would run. */
static bool would_run(const json_t *result)
{
	const json_t *check;
	size_t i;

	if (str_equal(json_str(result, "status"), "fail"))
		return false;
	json_array_foreach (json_array_at(result, "checks"), i, check) {
		if (str_equal(json_str(check, "code"), "adapter_command_found"))
			return true;
	}
	return false;
}

static int adapter_test(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *result = NULL;
	_cleanup_api_ struct api *api = NULL;
	char company_id[ID_SIZE];

	if (api_connect(cli, true, &api, &err) < 0 || api_company(cli, api, company_id, &err) < 0 ||
	    build_test(args, api, company_id, body, &err) < 0 ||
	    api_callf(api, "POST", body, &result, &err,
		      "/api/companies/%s/adapters/%s/test-environment", company_id,
		      args->positional[0]) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(result);
	else
		print_checks(result);
	return would_run(result) ? 0 : 1;
}

static const struct flag TEST_FLAGS[] = {
	{ "env", 0, "NAME", "environment to look in; default: Local", false },
	{ "config", 0, "JSON|@FILE", "settings to try", false },
	{ 0 },
};

VERB(ADAPTER_LS, 440) = {
	.name = "adapter ls",
	.arguments = "",
	.summary = "list the tools that runs with a prompt can use",
	.run = adapter_ls,
};
VERB(ADAPTER_TEST, 441) = {
	.name = "adapter test",
	.arguments = "TYPE",
	.summary = "check that an adapter's tool is in the place",
	.help = "Leases a place, looks for the command, asks for its version and releases the "
		"place.\nExit code 0: the tool is there.",
	.flags = TEST_FLAGS,
	.min_args = 1,
	.max_args = 1,
	.run = adapter_test,
};

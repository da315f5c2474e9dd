#include <unistd.h>

#include "base/fault.h"
#include "base/path.h"
#include "base/text.h"
#include "cli/api.h"
#include "cli/cli.h"

static int audit(struct cli *cli, const struct args *args)
{
	static const char *const COLUMNS[] = { "KIND=kind", "ID=id", "WHERE=where", "REASON=reason",
					       NULL };
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *answer = NULL;
	_cleanup_api_ struct api *api = NULL;
	const json_t *items;

	(void)args;
	if (api_connect(cli, true, &api, &err) < 0 ||
	    api_call(api, "GET", "/api/audit", NULL, &answer, &err) < 0)
		return cli_fail(cli, &err, EXIT_USAGE);
	items = json_is_array(answer) ? answer : json_object_get(answer, "items");
	if (cli->json)
		print_json(items);
	else if (json_array_size(items) == 0)
		puts("nothing unexplained");
	else
		print_table(items, COLUMNS);
	return json_array_size(items) == 0 ? 0 : 1;
}

static int prune(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *answer = NULL;
	_cleanup_api_ struct api *api = NULL;
	int64_t age_ms = 30LL * 86400 * 1000;
	const char *kind, *before = args_has(args, "dry-run") ? "would prune" : "pruned";
	json_t *count;

	if (!args_duration_ms(args, "older-than", &age_ms))
		return EXIT_USAGE;
	json_put_int(body, "olderThanSeconds", age_ms / 1000);
	if (args_has(args, "dry-run"))
		json_put_bool(body, "dryRun", true);
	if (args_has(args, "only"))
		json_put_str(body, "only", args_value(args, "only"));
	if (api_connect(cli, true, &api, &err) < 0 ||
	    api_call(api, "POST", "/api/prune", body, &answer, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json) {
		print_json(answer);
		return 0;
	}
	json_object_foreach (answer, kind, count) {
		printf("%s %lld %s", before, (long long)json_integer_value(count), kind);
		before = ",";
	}
	putchar('\n');
	return 0;
}

static int backup(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *answer = NULL;
	_cleanup_api_ struct api *api = NULL;
	_cleanup_free_ char *here = getcwd(NULL, 0), *path = NULL;

	if (args->positionals > 0) {
		path = path_join(here ? here : "/", args->positional[0]);
		json_put_str(body, "path", path);
	}
	if (api_connect(cli, true, &api, &err) < 0 ||
	    api_call(api, "POST", "/api/backup", body, &answer, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(answer);
	else
		puts(json_str(answer, "path"));
	return 0;
}

static int version(struct cli *cli, const struct args *args)
{
	_cleanup_json_ json_t *about = json_object();

	(void)args;
	json_put_str(about, "version", BERTH_VERSION);
	if (cli->json)
		print_json(about);
	else
		puts("berth " BERTH_VERSION);
	return 0;
}

static int faults(struct cli *cli, const struct args *args)
{
	_cleanup_json_ json_t *names = json_array();

	for (size_t i = 0; i < fault_count(); i++) {
		if (args_has(args, "points") && fault_is_fence(i))
			continue;
		if (cli->json)
			json_array_append_new(names, json_string(fault_name(i)));
		else
			puts(fault_name(i));
	}
	if (cli->json)
		print_json(names);
	return 0;
}

static const struct flag FAULTS_FLAGS[] = {
	{ "points", 0, NULL, "only those that kill, fail or hang, not checks that can be skipped",
	  false },
	{ 0 },
};
static const struct flag PRUNE_FLAGS[] = {
	{ "older-than", 0, "TIME", "delete what ended longer ago than this (30d)", false },
	{ "only", 0, "KIND",
	  "only this kind: runs, leases, activity, events, keys, execs or workspaces", false },
	{ "dry-run", 0, NULL,
	  "only count what would be deleted: runs, leases, activity, workspaces", false },
	{ 0 },
};

VERB(AUDIT,
     620) = { .name = "audit",
	      .arguments = "",
	      .run = audit,
	      .summary = "list objects that no place explains; exit code 1 if there is one" };
VERB(PRUNE, 640) = { .name = "prune",
		     .arguments = "",
		     .flags = PRUNE_FLAGS,
		     .run = prune,
		     .help = "Whatever --older-than is, work that was not collected stays for 30 "
			     "days, and collected\nwork, with the files it displaced, for 7 days. "
			     "A run stays as long as its work.",
		     .summary = "delete finished history" };
VERB(BACKUP, 650) = { .name = "backup",
		      .arguments = "[FILE]",
		      .max_args = 1,
		      .run = backup,
		      .summary = "copy the database while it is in use; prints the copy's path" };
VERB(VERSION, 710) = { .name = "version",
		       .arguments = "",
		       .run = version,
		       .summary = "print the version of this program" };
VERB(FAULTS, 700) = { .name = "faults",
		      .arguments = "",
		      .flags = FAULTS_FLAGS,
		      .run = faults,
		      .summary = "list the names for BERTH_FAULT (for tests)" };

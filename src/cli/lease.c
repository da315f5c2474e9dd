#include "base/text.h"
#include "cli/api.h"
#include "cli/cli.h"

static const char *const COLUMNS[] = { "ID=id",
				       "STATUS=status",
				       "POLICY=leasePolicy",
				       "GEN=generation",
				       "PROVIDER=provider",
				       "RUN=heartbeatRunId",
				       "EXPIRES=expiresAt",
				       NULL };
static const char *const FIELDS[] = { "id=id",
				      "environment=environmentId",
				      "status=status",
				      "paused=paused",
				      "policy=leasePolicy",
				      "generation=generation",
				      "provider=provider",
				      "place=providerLeaseId",
				      "place state=placeState",
				      "fencing=fencing",
				      "run=heartbeatRunId",
				      "acquired=acquiredAt",
				      "last used=lastUsedAt",
				      "expires=expiresAt",
				      "released=releasedAt",
				      "failure=failureReason",
				      "cleanup=cleanupStatus",
				      "cleanup error=cleanupError",
				      "metadata=metadata",
				      NULL };

static int put_seconds(const struct args *args, const char *flag, const char *key, json_t *body,
		       struct error *err)
{
	int64_t ms = 0;

	if (!args_duration_ms(args, flag, &ms))
		return error_set(err, ERR_BAD_REQUEST, "--%s is not a duration", flag);
	if (ms > 0)
		json_put_int(body, key, (ms + 999) / 1000);
	return 0;
}

/* Which walls stand around the place, and which do not. */
static void print_boundary(const json_t *boundary)
{
	static const char *const parts[] = { "walls", "missing" };
	json_t *wall;
	size_t i;

	for (size_t part = 0; boundary && part < ARRAY_SIZE(parts); part++) {
		printf("%-14s ", parts[part]);
		json_array_foreach (json_array_at(boundary, parts[part]), i, wall) {
			if (i)
				putchar(' ');
			print_cell(stdout, json_string_value(wall));
		}
		putchar('\n');
	}
}

static int show(struct cli *cli, const json_t *lease)
{
	if (cli->json)
		print_json(lease);
	else
		print_fields(lease, FIELDS);
	if (!cli->json)
		print_boundary(json_object_at(json_object_at(lease, "metadata"), "boundary"));
	return 0;
}

static int lease_acquire_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *lease = NULL, *environment = NULL;
	_cleanup_api_ struct api *api = NULL;
	char company_id[ID_SIZE];

	if (args_has(args, "policy"))
		json_put_str(body, "policy", args_value(args, "policy"));
	if (put_seconds(args, "ttl", "ttlSeconds", body, &err) < 0 ||
	    put_seconds(args, "idle", "idleSeconds", body, &err) < 0 ||
	    put_seconds(args, "wait", "waitSeconds", body, &err) < 0 ||
	    put_seconds(args, "retain", "retainSeconds", body, &err) < 0 ||
	    api_connect(cli, true, &api, &err) < 0 || api_company(cli, api, company_id, &err) < 0 ||
	    api_environment(api, company_id, args->positional[0], &environment, &err) < 0 ||
	    api_callf(api, "POST", body, &lease, &err, "/api/environments/%s/leases",
		      json_str(environment, "id")) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		return show(cli, lease);
	printf("%s %lld\n", json_str(lease, "id"), (long long)json_int(lease, "generation", 0));
	if (!cli->quiet)
		fprintf(stderr,
			"berth: lease id and generation; `berth lease release` ends the lease, "
			"else it expires at %s\n",
			json_str(lease, "expiresAt") ? json_str(lease, "expiresAt") : "idleness");
	return 0;
}

static int lease_ls_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *leases = NULL, *environment = NULL;
	_cleanup_api_ struct api *api = NULL;
	const char *status = args_value(args, "status");
	char company_id[ID_SIZE];
	int called;

	if (api_connect(cli, true, &api, &err) < 0 || api_company(cli, api, company_id, &err) < 0 ||
	    api_environment(api, company_id, args->positional[0], &environment, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (status)
		called = api_callf(api, "GET", NULL, &leases, &err,
				   "/api/environments/%s/leases?status=%s",
				   json_str(environment, "id"), status);
	else
		called = api_callf(api, "GET", NULL, &leases, &err, "/api/environments/%s/leases",
				   json_str(environment, "id"));
	if (called < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(leases);
	else
		print_table(leases, COLUMNS);
	return 0;
}

static int lease_show_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *lease = NULL;
	_cleanup_api_ struct api *api = NULL;

	if (api_connect(cli, false, &api, &err) < 0 ||
	    api_callf(api, "GET", NULL, &lease, &err, "/api/environment-leases/%s",
		      args->positional[0]) < 0)
		return cli_fail(cli, &err, 1);
	return show(cli, lease);
}

static int put_generation(const struct args *args, json_t *body, struct error *err)
{
	int64_t generation = -1;

	if (!args_int(args, "generation", 0, INT64_MAX, &generation))
		return error_set(err, ERR_BAD_REQUEST, "--generation is not a number");
	if (generation >= 0)
		json_put_int(body, "generation", generation);
	return 0;
}

static int lease_renew_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *lease = NULL;
	_cleanup_api_ struct api *api = NULL;

	if (put_generation(args, body, &err) < 0 ||
	    put_seconds(args, "ttl", "ttlSeconds", body, &err) < 0 ||
	    api_connect(cli, false, &api, &err) < 0 ||
	    api_callf(api, "POST", body, &lease, &err, "/api/environment-leases/%s/renew",
		      args->positional[0]) < 0)
		return cli_fail(cli, &err, 1);
	return show(cli, lease);
}

static int lease_release_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *lease = NULL;
	_cleanup_api_ struct api *api = NULL;

	if (args_has(args, "status"))
		json_put_str(body, "status", args_value(args, "status"));
	if (put_generation(args, body, &err) < 0 || api_connect(cli, false, &api, &err) < 0 ||
	    api_callf(api, "POST", body, &lease, &err, "/api/environment-leases/%s/release",
		      args->positional[0]) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(lease);
	else
		puts(json_str(lease, "status"));
	return 0;
}

static int lease_destroy_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *lease = NULL;
	_cleanup_api_ struct api *api = NULL;

	if (put_generation(args, body, &err) < 0 || api_connect(cli, false, &api, &err) < 0 ||
	    api_callf(api, "POST", body, &lease, &err, "/api/environment-leases/%s/destroy",
		      args->positional[0]) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(lease);
	else
		puts("destroyed");
	return 0;
}

static int set_paused(struct cli *cli, const struct args *args, const char *verb)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = json_object(), *lease = NULL;
	_cleanup_api_ struct api *api = NULL;

	if (put_generation(args, body, &err) < 0 || api_connect(cli, false, &api, &err) < 0 ||
	    api_callf(api, "POST", body, &lease, &err, "/api/environment-leases/%s/%s",
		      args->positional[0], verb) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(lease);
	else
		puts(json_bool(lease, "paused", false) ? "paused" : json_str(lease, "status"));
	return 0;
}

static int lease_pause_verb(struct cli *cli, const struct args *args)
{
	return set_paused(cli, args, "pause");
}

static int lease_resume_verb(struct cli *cli, const struct args *args)
{
	return set_paused(cli, args, "resume");
}

static const struct flag ACQUIRE_FLAGS[] = {
	{ "ttl", 0, "TIME", "the lease expires after this long (1h)", false },
	{ "idle", 0, "TIME", "the lease expires when not used for this long", false },
	{ "wait", 0, "TIME", "wait this long for a free place; default: fail at once", false },
	{ "policy", 0, "NAME",
	  "ephemeral, reuse_by_environment, reuse_by_execution_workspace, retain_on_failure",
	  false },
	{ "retain", 0, "TIME", "with retain_on_failure: how long it is kept (24h)", false },
	{ 0 },
};
static const struct flag LS_FLAGS[] = {
	{ "status", 0, "NAME", "only leases in this status", false },
	{ 0 },
};
static const struct flag RENEW_FLAGS[] = {
	{ "generation", 0, "N", "generation of the lease", false },
	{ "ttl", 0, "TIME", "from now", false },
	{ 0 },
};
static const struct flag RELEASE_FLAGS[] = {
	{ "generation", 0, "N", "generation of the lease", false },
	{ "status", 0, "NAME", "released (default), failed or expired", false },
	{ 0 },
};

static const struct flag PAUSE_FLAGS[] = {
	{ "generation", 0, "N", "generation of the lease", false },
	{ 0 },
};

VERB(LEASE_ACQUIRE, 320) = { .name = "lease acquire",
			     .arguments = "ENVIRONMENT",
			     .flags = ACQUIRE_FLAGS,
			     .min_args = 1,
			     .max_args = 1,
			     .summary = "lease a place; prints the lease's id and generation",
			     .run = lease_acquire_verb };
VERB(LEASE_LS, 321) = { .name = "lease ls",
			.arguments = "ENVIRONMENT",
			.flags = LS_FLAGS,
			.min_args = 1,
			.max_args = 1,
			.summary = "list the leases of an environment",
			.run = lease_ls_verb };
VERB(LEASE_SHOW, 322) = { .name = "lease show",
			  .arguments = "LEASE",
			  .min_args = 1,
			  .max_args = 1,
			  .summary = "show one lease",
			  .run = lease_show_verb };
VERB(LEASE_RENEW, 323) = { .name = "lease renew",
			   .arguments = "LEASE",
			   .flags = RENEW_FLAGS,
			   .min_args = 1,
			   .max_args = 1,
			   .summary = "extend a lease",
			   .run = lease_renew_verb };
VERB(LEASE_PAUSE, 324) = { .name = "lease pause",
			   .arguments = "LEASE",
			   .flags = PAUSE_FLAGS,
			   .min_args = 1,
			   .max_args = 1,
			   .summary = "freeze all commands in the place",
			   .run = lease_pause_verb };
VERB(LEASE_RESUME, 325) = { .name = "lease resume",
			    .arguments = "LEASE",
			    .flags = PAUSE_FLAGS,
			    .min_args = 1,
			    .max_args = 1,
			    .summary = "continue a paused lease",
			    .run = lease_resume_verb };
VERB(LEASE_RELEASE, 326) = { .name = "lease release",
			     .arguments = "LEASE",
			     .flags = RELEASE_FLAGS,
			     .min_args = 1,
			     .max_args = 1,
			     .summary = "release the place",
			     .run = lease_release_verb };
VERB(LEASE_DESTROY,
     327) = { .name = "lease destroy",
	      .arguments = "LEASE",
	      .flags = PAUSE_FLAGS,
	      .min_args = 1,
	      .max_args = 1,
	      .summary = "end the lease and delete its place, even if retained or free",
	      .run = lease_destroy_verb };

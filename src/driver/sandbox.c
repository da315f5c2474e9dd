/*
 * Driver `sandbox`: places made by a provider. It translates between environments and places on one
 * side and the provider contract on the other, and it is the only caller of provider_*.
 *
 * What a provider says about a place is not to be mistaken for what Berth says about it: only a few
 * well-known keys are lifted to the top of the metadata, and host keys are written last.
 */
#include "driver/driver.h"

#include <string.h>
#include "base/text.h"
#include "driver/config.h"
#include "record/environment.h"

#define DEFAULT_PROVIDER "fake"

/* Keys of provider metadata that the rest of Berth reads, and the type each must have. */
static const struct {
	const char *key;
	enum { LIFT_TEXT, LIFT_NUMBER, LIFT_FLAG, LIFT_OBJECT } type;
} LIFTED[] = {
	{ "remoteCwd", LIFT_TEXT },    { "shellCommand", LIFT_TEXT }, { "sandboxId", LIFT_TEXT },
	{ "host", LIFT_TEXT },         { "port", LIFT_NUMBER },       { "username", LIFT_TEXT },
	{ "resumedLease", LIFT_FLAG }, { "boundary", LIFT_OBJECT },
};

static const struct field OPEN_FIELDS[] = {
	{ .name = "provider",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED,
	  .max = 255,
	  .summary = "key of the sandbox provider" },
	{ .name = "reuseLease", .type = FIELD_BOOL, .summary = "false if absent" },
	{ .name = "timeoutMs",
	  .type = FIELD_INT,
	  .min = 1,
	  .max = 86400000,
	  .summary = "how long the provider may take" },
	{ 0 },
};

static const char *refuse_odd_key(const json_t *value)
{
	return config_key_is_valid(json_string_value(value))
		       ? NULL
		       : "must be lower case letters, digits, dots, underscores and dashes";
}

static const struct config_rule OPEN_RULES[] = {
	{ .name = "provider", .how = CONFIG_TRIM, .refuse = refuse_odd_key },
	{ .name = "reuseLease", .fallback = "false" },
	{ .name = "timeoutMs", .how = CONFIG_NUMBER },
	{ 0 },
};

/* A provider of somebody else's: what its keys mean is its own business. */
static const struct config_schema OPEN_CONFIG = {
	.fields = OPEN_FIELDS,
	.rules = OPEN_RULES,
	.open = true,
};

/* Allocated. No provider, or nothing but white space, means fake. */
static char *provider_key(const json_t *config)
{
	const char *key = json_str_nonblank(config, "provider");

	return key ? str_trimmed(key) : xstrdup(DEFAULT_PROVIDER);
}

static int refuse_saving(const struct provider_host *providers, const char *key, struct error *err)
{
	if (streq(key, PROVIDER_FAKE.key) && !provider_host_allows_fake(providers))
		return error_set(
			err, ERR_UNPROCESSABLE,
			"The built-in fake sandbox provider is reserved for internal probes "
			"and cannot be saved.");
	if (!provider_find(key))
		return error_set(err, ERR_UNPROCESSABLE,
				 "Sandbox provider \"%.100s\" is not installed.", key);
	return 0;
}

static json_t *sandbox_normalize(struct driver_host *host, const json_t *config, bool saving,
				 struct error *err)
{
	_cleanup_free_ char *key = provider_key(config);
	const struct provider *provider = provider_find(key);
	_cleanup_json_ json_t *open = NULL;

	if (!provider)
		open = config_normalize(&OPEN_CONFIG, config, err);
	if (!provider && !open)
		return NULL;
	if (saving && refuse_saving(host->providers, key, err) < 0)
		return NULL;
	if (!provider)
		return steal(open);
	return provider->normalize(config, provider_host_allows_fake(host->providers), err);
}

static int sandbox_probe(struct driver_host *host, const struct environment *environment,
			 struct probe *out, struct error *err)
{
	_cleanup_json_ json_t *config = sandbox_normalize(host, environment->config, false, err);

	if (!config)
		return -1;

	const char *key = json_str(config, "provider");

	if (provider_find(key))
		return provider_probe(host->providers, config, out, err);
	*out = (struct probe){
		.driver = DRIVER_SANDBOX,
		.summary = xasprintf("Sandbox provider \"%s\" is not installed.", key),
		.details = json_object(),
	};
	json_put_str(out->details, "provider", key);
	return 0;
}

static struct provider_request request_for(const struct place_request *request)
{
	return (struct provider_request){
		.config = request->config ? request->config : request->environment->config,
		.environment_id = request->environment->id,
		.run_id = request->run_id,
		.lease_id = request->lease_id,
		.issue_id = request->issue_id,
		.deadline_ms = request->deadline_ms,
		.place_id = request->place_id,
		.generation = request->generation,
		.key = request->key,
		.keep_files = request->keep_files,
		.workspace = request->workspace,
		.bounds = request->bounds,
	};
}

static int sandbox_name(struct driver_host *host, const struct place_request *request,
			char **provider, char **provider_ref, struct error *err)
{
	struct provider_request wanted = request_for(request);
	const struct provider *maker = provider_require(json_str(wanted.config, "provider"), err);

	(void)host;
	if (!maker)
		return -1;
	*provider = xstrdup(maker->key);
	*provider_ref = maker->ref(&wanted);
	return 0;
}

static bool sandbox_reuses(const struct environment *environment)
{
	const struct provider *provider = provider_find(json_str(environment->config, "provider"));

	return provider && provider->supports_reuse &&
	       json_is_true(json_object_get(environment->config, "reuseLease"));
}

static bool sandbox_is_fleeting(const struct environment *environment)
{
	const struct provider *provider = provider_find(json_str(environment->config, "provider"));

	return provider && provider->fleeting;
}

static bool sandbox_mounts(const struct environment *environment)
{
	const struct provider *provider = provider_find(json_str(environment->config, "provider"));

	return provider && provider->mounts_workspace;
}

static void sandbox_needs(const json_t *config, struct place_needs *out)
{
	const struct provider *provider = provider_find(json_str(config, "provider"));

	if (provider && provider->needs)
		provider->needs(config, out);
}

static bool is_liftable(const char *key, const json_t *value)
{
	for (size_t i = 0; i < ARRAY_SIZE(LIFTED); i++) {
		if (!streq(LIFTED[i].key, key))
			continue;
		if (LIFTED[i].type == LIFT_TEXT)
			return !str_blank(json_string_value(value));
		if (LIFTED[i].type == LIFT_OBJECT)
			return json_is_object(value);
		return LIFTED[i].type == LIFT_NUMBER ? json_is_number(value)
						     : json_is_boolean(value);
	}
	return false;
}

/* For people, and for who looks for the place's work. */
static json_t *mount_json(const struct workspace_mount *mount)
{
	json_t *out = json_object();

	json_put_str(out, "path", mount->path);
	json_put_str(out, "how", workspace_how_name(mount->how));
	return out;
}

/*
 * Later writers win: the stored config (secrets are ids there), what is lifted from the provider,
 * and last what routes every later call.
 */
static json_t *place_metadata(const struct place_request *request, const char *provider,
			      const struct provider_lease *lease)
{
	json_t *said = lease->metadata;
	json_t *out = json_object(), *nested = json_object(), *value;
	const struct provider_request wanted = request_for(request);
	const char *key;

	json_object_foreach (request->environment->config, key, value) {
		if (!streq(key, "faults") && !streq(key, "env"))
			json_put_new(out, key, json_deep_copy(value));
	}
	json_object_foreach (said, key, value)
		json_put_ref(is_liftable(key, value) ? out : nested, key, value);
	/* The holding decides whether the place is kept, and may differ from the environment. */
	json_put_bool(out, "reuseLease",
		      json_is_true(json_object_get(wanted.config, "reuseLease")));
	json_put_str(out, "provider", provider);
	json_put_str(out, "driver", driver_kind_name(DRIVER_SANDBOX));
	json_put_str(out, "executionWorkspaceMode", request->workspace_mode);
	json_put_new(out, "providerMetadata", nested);
	if (lease->no_relay)
		json_put_bool(out, PLACE_NO_RELAY, true);
	else
		json_object_del(out, PLACE_NO_RELAY);
	if (request->workspace)
		json_put_new(out, PLACE_MOUNT, mount_json(request->workspace));
	else
		json_object_del(out, PLACE_MOUNT);
	return out;
}

static void fill_grant(const struct place_request *request, const struct provider *provider,
		       struct provider_lease *lease, struct place_grant *out)
{
	out->provider = xstrdup(provider->key);
	out->provider_ref = steal(lease->ref);
	out->metadata = place_metadata(request, provider->key, lease);
	out->expires_at = lease->expires_at;
	/* Where nothing of ours is in the place, nothing there refuses an earlier holder. */
	out->fencing = lease->no_relay && provider->fencing == FENCING_PLACE ? FENCING_SERVER
									     : provider->fencing;
	out->discoverable = provider->discoverable;
}

static int sandbox_acquire(struct driver_host *host, const struct place_request *request,
			   struct place_grant *out, struct error *err)
{
	_cleanup_(provider_lease_clear) struct provider_lease lease = { 0 };
	struct provider_request wanted = request_for(request);

	if (provider_acquire(host->providers, &wanted, &lease, err) < 0)
		return -1;
	fill_grant(request, provider_find(json_str(wanted.config, "provider")), &lease, out);
	return 0;
}

static int sandbox_resume(struct driver_host *host, const struct place_request *request,
			  const struct place *place, struct place_grant *out, struct error *err)
{
	_cleanup_(provider_lease_clear) struct provider_lease lease = { 0 };
	struct provider_request wanted = request_for(request);
	int r = provider_resume(host->providers, &wanted, place->provider_ref, &lease, err);

	if (r > 0)
		fill_grant(request, provider_find(json_str(wanted.config, "provider")), &lease,
			   out);
	return r;
}

/*
 * The config a place is finished with: the one recorded on it, whatever its environment says today.
 * A place without a usable one can still be ended by its provider and name.
 */
static json_t *recorded_config(const struct place *place)
{
	if (str_equal(json_str(place->config, "provider"), place->provider))
		return json_incref(place->config);

	json_t *config = provider_config_loose(place->metadata);

	if (config && str_equal(json_str(config, "provider"), place->provider))
		return config;
	json_decref(config);
	config = json_object();
	json_put_str(config, "provider", place->provider);
	return config;
}

json_t *place_config_stored(const json_t *config)
{
	json_t *stored;

	if (!config || json_object_size(json_object_at(config, "env")) == 0)
		return config ? json_incref((json_t *)config) : json_object();
	stored = json_copy((json_t *)config);
	json_object_del(stored, "env");
	json_put_bool(stored, PLACE_ENV_ELSEWHERE, true);
	return stored;
}

/* The config that a command is started with: with the values that are not stored with the place. */
static json_t *config_in_use(struct driver_host *host, const struct place *place, struct error *err)
{
	_cleanup_json_ json_t *config = recorded_config(place);
	_cleanup_environment_ struct environment environment = { 0 };
	json_t *whole;

	if (!json_bool(config, PLACE_ENV_ELSEWHERE, false))
		return steal(config);
	if (!host->db || !id_is_set(place->environment_id) ||
	    environment_get(host->db, place->environment_id, &environment, err) < 0) {
		if (err && err->code == ERR_NONE)
			error_set(
				err, ERR_ENV_NOT_FOUND,
				"the environment that has the values of this place's env is gone: "
				"release the lease");
		return NULL;
	}
	whole = json_copy(config);
	json_object_del(whole, PLACE_ENV_ELSEWHERE);
	json_put_ref(whole, "env", json_object_at(environment.config, "env"));
	return whole;
}

static int sandbox_release(struct driver_host *host, const struct place *place, const char *status,
			   struct error *err)
{
	_cleanup_json_ json_t *config = recorded_config(place);

	return provider_release(host->providers, config, place->provider_ref, status, err);
}

static int sandbox_destroy(struct driver_host *host, const struct place *place, struct error *err)
{
	_cleanup_json_ json_t *config = recorded_config(place);

	return provider_destroy(host->providers, config, place->provider_ref, err);
}

static int sandbox_inventory(struct driver_host *host, const char *provider,
			     struct provider_inventory *out, struct error *err)
{
	const struct provider *maker = provider_find(provider);

	if (!maker || !maker->discoverable)
		return 0;
	return provider_inventory_list(host->providers, provider, out, err) < 0 ? -1 : 1;
}

static int sandbox_realize(struct driver_host *host, const struct place *place,
			   const char *lease_id, const struct place_workspace *workspace,
			   struct place_realization *out, struct error *err)
{
	json_t *record = realization_record(place, lease_id, workspace, NULL);
	const char *remote = json_str(json_object_at(record, "remote"), "path");
	const char *local = json_str(json_object_at(record, "local"), "path");

	(void)host;
	(void)err;
	out->cwd = xstrdup(remote ? remote : local);
	out->metadata = json_object();
	json_put_new(out->metadata, "workspaceRealization", record);
	return 0;
}

/* Providers that make places on this host say where in their metadata, in words of their own. */
static int sandbox_open(struct driver_host *host, const struct place *place, struct error *err)
{
	const char *directory = json_str_nonblank(place->metadata, "remoteCwd");
	_cleanup_json_ json_t *config = recorded_config(place);
	struct exec_place here;
	int r;

	if (place_exec_fill(place, &here, err) < 0)
		return -1;
	r = provider_open(host->providers, place->provider, config, place->provider_ref, &here,
			  err);
	wipe(here.key, sizeof(here.key));
	if (r != 0)
		return r < 0 ? -1 : 0;
	if (!directory)
		return error_set(err, ERR_PROTOCOL,
				 "provider \"%s\" does not report where its place is",
				 place->provider);
	return place_exec_open(host, place, directory, directory, err);
}

static int sandbox_start(struct driver_host *host, const struct place *place,
			 const struct exec_spec *spec, struct exec **exec, struct error *err)
{
	_cleanup_json_ json_t *config = config_in_use(host, place, err);

	if (!config)
		return -1;
	return provider_start(host->providers, place->provider, config, place->provider_ref,
			      place->metadata, spec, exec, err);
}

static int sandbox_execute(struct driver_host *host, const struct place *place,
			   const struct one_shot_call *call, struct one_shot_result *result,
			   struct error *err)
{
	_cleanup_json_ json_t *config = config_in_use(host, place, err);

	if (!config)
		return -1;
	return provider_execute(host->providers, place->provider, config, place->provider_ref,
				place->metadata, call, result, err);
}

static int sandbox_stop(struct driver_host *host, const struct place *place, int64_t wait_ms,
			struct error *err)
{
	_cleanup_json_ json_t *config = recorded_config(place);

	return provider_stop(host->providers, place->provider, config, place->provider_ref,
			     place->id, wait_ms, err);
}

const struct driver DRIVER_SANDBOX_PROVIDER = {
	.kind = DRIVER_SANDBOX,
	.config = &OPEN_CONFIG,
	.normalize = sandbox_normalize,
	.probe = sandbox_probe,
	.name = sandbox_name,
	.reuses = sandbox_reuses,
	.fleeting = sandbox_is_fleeting,
	.mounts = sandbox_mounts,
	.needs = sandbox_needs,
	.acquire = sandbox_acquire,
	.resume = sandbox_resume,
	.release = sandbox_release,
	.destroy = sandbox_destroy,
	.inventory = sandbox_inventory,
	.realize = sandbox_realize,
	.open = sandbox_open,
	.start = sandbox_start,
	.execute = sandbox_execute,
	.stop = sandbox_stop,
};

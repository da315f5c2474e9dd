#include "driver/provider.h"

#include <string.h>
#include "base/text.h"

static const struct provider *const BUILT_IN[] = { &PROVIDER_FAKE, &PROVIDER_NATIVE, NULL };

void probe_clear(struct probe *probe)
{
	free(probe->summary);
	json_decref(probe->details);
	*probe = (struct probe){ 0 };
}

json_t *probe_json(const struct probe *probe)
{
	json_t *out = json_object();

	json_put_bool(out, "ok", probe->ok);
	json_put_str(out, "driver", driver_kind_name(probe->driver));
	json_put_str(out, "summary", probe->summary);
	json_put_ref(out, "details", probe->details);
	return out;
}

void provider_lease_clear(struct provider_lease *lease)
{
	free(lease->ref);
	json_decref(lease->metadata);
	*lease = (struct provider_lease){ 0 };
}

void provider_inventory_clear(struct provider_inventory *inventory)
{
	strv_free(inventory->refs);
	inventory->refs = NULL;
}

const struct provider *const *provider_list(void)
{
	return BUILT_IN;
}

const struct provider *provider_find(const char *key)
{
	for (size_t i = 0; key && BUILT_IN[i]; i++) {
		if (streq(BUILT_IN[i]->key, key))
			return BUILT_IN[i];
	}
	return NULL;
}

const struct provider *provider_require(const char *key, struct error *err)
{
	const struct provider *provider = provider_find(key);

	if (!provider)
		error_set(err, ERR_UNSUPPORTED_ENV,
			  "Sandbox provider \"%.100s\" is not registered as a built-in provider.",
			  key ? key : "");
	return provider;
}

/* The provider that `key` names, or the config when there is no key; the config must be for it. */
static const struct provider *provider_of(const char *key, const json_t *config, struct error *err)
{
	const char *asked = json_str(config, "provider");
	const struct provider *provider = provider_require(key ? key : asked, err);

	if (provider && !str_equal(asked, provider->key)) {
		error_set(err, ERR_UNPROCESSABLE,
			  "Sandbox provider \"%s\" was given a config for provider \"%.100s\".",
			  provider->key, asked ? asked : "");
		return NULL;
	}
	return provider;
}

int provider_probe(struct provider_host *host, const json_t *config, struct probe *out,
		   struct error *err)
{
	const struct provider *provider = provider_of(NULL, config, err);

	return provider ? provider->probe(host, config, out, err) : -1;
}

/* A place without the files that were asked for would be another place. */
static int refuse_workspace(const struct provider *provider, const struct provider_request *request,
			    struct error *err)
{
	if (!request->workspace || provider->mounts_workspace)
		return 0;
	return error_set(err, ERR_UNPROCESSABLE,
			 "places of provider \"%s\" cannot have a directory of this host mounted: "
			 "copy the workspace",
			 provider->key);
}

int provider_acquire(struct provider_host *host, const struct provider_request *request,
		     struct provider_lease *out, struct error *err)
{
	const struct provider *provider = provider_of(NULL, request->config, err);

	if (!provider || refuse_workspace(provider, request, err) < 0)
		return -1;
	return provider->acquire(host, request, out, err);
}

int provider_resume(struct provider_host *host, const struct provider_request *request,
		    const char *ref, struct provider_lease *out, struct error *err)
{
	const struct provider *provider = provider_of(NULL, request->config, err);

	if (!provider || refuse_workspace(provider, request, err) < 0)
		return -1;
	return provider->resume(host, request, ref, out, err);
}

int provider_release(struct provider_host *host, const json_t *config, const char *ref,
		     const char *status, struct error *err)
{
	const struct provider *provider = provider_of(NULL, config, err);

	return provider ? provider->release(host, config, ref, status, err) : -1;
}

int provider_destroy(struct provider_host *host, const json_t *config, const char *ref,
		     struct error *err)
{
	const struct provider *provider = provider_of(NULL, config, err);

	return provider ? provider->destroy(host, config, ref, err) : -1;
}

int provider_inventory_list(struct provider_host *host, const char *key,
			    struct provider_inventory *out, struct error *err)
{
	const struct provider *provider = provider_require(key, err);

	return provider ? provider->inventory(host, out, err) : -1;
}

int provider_start(struct provider_host *host, const char *key, const json_t *config,
		   const char *ref, const json_t *metadata, const struct exec_spec *spec,
		   struct exec **exec, struct error *err)
{
	const struct provider *provider = provider_of(key, config, err);

	return provider ? provider->start(host, config, ref, metadata, spec, exec, err) : -1;
}

int provider_execute(struct provider_host *host, const char *key, const json_t *config,
		     const char *ref, const json_t *metadata, const struct one_shot_call *call,
		     struct one_shot_result *result, struct error *err)
{
	const struct provider *provider = provider_of(key, config, err);

	if (!provider)
		return -1;
	if (!provider->execute)
		return error_set(err, ERR_UNSUPPORTED_ENV,
				 "Sandbox provider \"%s\" does not support one-shot execute.",
				 provider->key);
	return provider->execute(host, config, ref, metadata, call, result, err);
}

int provider_stop(struct provider_host *host, const char *key, const json_t *config,
		  const char *ref, const char *place_id, int64_t wait_ms, struct error *err)
{
	const struct provider *provider = provider_of(key, config, err);

	return provider ? provider->stop(host, config, ref, place_id, wait_ms, err) : -1;
}

int provider_open(struct provider_host *host, const char *key, const json_t *config,
		  const char *ref, struct exec_place *place, struct error *err)
{
	const struct provider *provider = provider_of(key, config, err);

	if (!provider)
		return -1;
	if (!provider->open)
		return 0;
	return provider->open(host, config, ref, place, err) < 0 ? -1 : 1;
}

json_t *provider_config_loose(const json_t *metadata)
{
	const char *key = json_str(metadata, "provider");

	if (!key || !*key)
		return NULL;

	const struct provider *provider = provider_find(key);

	if (provider)
		return provider->config_from_metadata(metadata);

	json_t *config = json_deep_copy(metadata);

	json_put_bool(config, "reuseLease", json_bool(metadata, "reuseLease", false));
	return config;
}

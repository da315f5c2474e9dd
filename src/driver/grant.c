/*
 * What a maker says about a place is not to be mistaken for what Berth says about it: only a few
 * well-known keys are lifted to the top of the metadata, and keys of the host are written last.
 */
#include "driver/maker.h"

#include "base/text.h"

/* Keys of a maker's metadata that the rest of Berth reads, and the type each must have. */
static const struct {
	const char *key;
	enum { LIFT_TEXT, LIFT_NUMBER, LIFT_FLAG, LIFT_OBJECT } type;
} LIFTED[] = {
	{ "remoteCwd", LIFT_TEXT },    { "shellCommand", LIFT_TEXT }, { "sandboxId", LIFT_TEXT },
	{ "host", LIFT_TEXT },         { "port", LIFT_NUMBER },       { "username", LIFT_TEXT },
	{ "resumedLease", LIFT_FLAG }, { "boundary", LIFT_OBJECT },
};

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

/* For people, and for the run that looks for the place's work. */
static json_t *mount_json(const struct workspace_mount *mount)
{
	json_t *out = json_object();

	json_put_str(out, "path", mount->path);
	json_put_str(out, "how", workspace_how_name(mount->how));
	return out;
}

/*
 * Of a sandbox. Later writers win: the stored config (secrets are ids there), what is lifted from
 * the maker, and last what routes every later call.
 */
static void put_sandbox(json_t *out, const struct maker *maker, const struct place_request *request,
			const struct made_place *made)
{
	struct stored_config config =
		request->config.json ? request->config
				     : (struct stored_config){ request->environment->config };
	json_t *nested = json_object(), *value;
	const char *key;

	json_object_foreach (request->environment->config, key, value) {
		if (!streq(key, "faults") && !streq(key, "env"))
			json_put_new(out, key, json_deep_copy(value));
	}
	json_object_foreach (made->metadata, key, value)
		json_put_ref(is_liftable(key, value) ? out : nested, key, value);
	/* The holding decides whether the place is kept, and may differ from the environment. */
	json_put_bool(out, "reuseLease", json_is_true(json_object_get(config.json, "reuseLease")));
	json_put_str(out, "provider", maker->key);
	json_put_new(out, "providerMetadata", nested);
	json_object_del(out, PLACE_NO_RELAY);
	json_object_del(out, PLACE_MOUNT);
	if (made->no_relay)
		json_put_bool(out, PLACE_NO_RELAY, true);
	if (request->workspace)
		json_put_new(out, PLACE_MOUNT, mount_json(request->workspace));
}

void place_grant_fill(const struct maker *maker, const struct place_request *request,
		      struct made_place *made, struct place_grant *out)
{
	json_t *metadata = json_object();

	if (maker->driver == DRIVER_SANDBOX)
		put_sandbox(metadata, maker, request, made);
	json_put_str(metadata, "driver", driver_kind_name(maker->driver));
	json_put_str(metadata, "executionWorkspaceMode", request->workspace_mode);
	*out = (struct place_grant){
		.provider = xstrdup(maker->key),
		.provider_ref = steal(made->ref),
		.ref_is_private = maker->traits.is_host,
		.metadata = metadata,
		.expires_at = made->expires_at,
		/* Where nothing of ours is in the place, nothing there refuses an earlier holder. */
		.fencing = made->no_relay && maker->traits.fencing == FENCING_PLACE
				   ? FENCING_SERVER
				   : maker->traits.fencing,
		.discoverable = maker->traits.lists,
	};
}

void place_grant_clear(struct place_grant *grant)
{
	free(grant->provider);
	free(grant->provider_ref);
	json_decref(grant->metadata);
	*grant = (struct place_grant){ 0 };
}

void made_place_clear(struct made_place *made)
{
	free(made->ref);
	json_decref(made->metadata);
	*made = (struct made_place){ 0 };
}

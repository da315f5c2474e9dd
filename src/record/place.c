#include "record/place.h"

#include "record/row.h"

const char *workspace_how_name(enum workspace_how how)
{
	return how == WORKSPACE_BIND ? "bind" : "overlay";
}

void place_clear(struct place *place)
{
	free(place->provider);
	free(place->provider_ref);
	free(place->scope);
	free(place->fingerprint);
	json_decref(place->config);
	json_decref(place->metadata);
	free(place->cleanup_action);
	free(place->cleanup_reason);
	*place = (struct place){ 0 };
}

/* Without the epoch, which only server and relay may know, and without the config. */
json_t *place_json(const struct place *place)
{
	json_t *o = json_object();

	json_put_str(o, "id", place->id);
	json_put_str(o, "companyId", place->company_id);
	json_put_id(o, "environmentId", place->environment_id);
	json_put_str(o, "driver", driver_kind_name(place->driver));
	json_put_str(o, "provider", place->provider);
	json_put_str(o, "providerRef", place->provider_ref);
	json_put_str(o, "state", place_state_name(place->state));
	json_put_id(o, "holderLeaseId", place->holder_lease);
	json_put_int(o, "generation", place->generation);
	json_put_str(o, "fencing", fencing_name(place->fencing));
	json_put_bool(o, "discoverable", place->discoverable);
	json_put_int(o, "absenceMs", place->absence_ms);
	json_put_id(o, "nodeId", place->node_id);
	json_put_ref(o, "metadata", place->metadata);
	json_put_str(o, "cleanupAction", place->cleanup_action);
	json_put_int(o, "cleanupAttempts", place->cleanup_attempts);
	json_put_time(o, "cleanupNextAt", place->cleanup_next_at);
	json_put_str(o, "cleanupReason", place->cleanup_reason);
	json_put_time(o, "retainUntil", place->retain_until);
	json_put_time(o, "createdAt", place->created_at);
	json_put_time(o, "updatedAt", place->updated_at);
	return o;
}

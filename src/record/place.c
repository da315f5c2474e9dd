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
	json_decref(place->config.json);
	json_decref(place->metadata);
	free(place->cleanup_action);
	free(place->cleanup_reason);
	*place = (struct place){ 0 };
}

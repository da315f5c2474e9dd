#include "record/record.h"

#include "base/text.h"
#include "record/kinds.h"

/*
 * Reading the config of an execution workspace (spec 01 E.9). Everything but environmentId is null
 * when it is not there. An environmentId is there only when something was chosen: left out it says
 * "ask the issue, the project, the agent", null says "this host". The reference confuses the two
 * and moves a workspace with nothing but a provision command to the host (I11).
 */

static bool put_environment(json_t *config, const json_t *stored)
{
	const char *start, *id = json_str(stored, "environmentId");
	size_t len = id ? str_trim(id, &start) : 0;

	if (json_state(stored, "environmentId") == JSON_IS_NULL) {
		json_put_str(config, "environmentId", NULL);
		return true;
	}
	if (len == 0)
		return false;
	json_put_new(config, "environmentId", json_stringn(start, len));
	return true;
}

static bool put_text(json_t *config, const json_t *stored, const char *key)
{
	const char *text = json_str_nonblank(stored, key);

	json_put_str(config, key, text);
	return text != NULL;
}

static bool put_desired_state(json_t *config, const json_t *stored)
{
	enum desired_state state;
	bool known = desired_state_parse(json_str(stored, "desiredState"), &state);

	json_put_str(config, "desiredState", known ? desired_state_name(state) : NULL);
	return known;
}

static bool put_service_states(json_t *config, const json_t *stored)
{
	_cleanup_json_ json_t *known = json_object();
	enum desired_state state;
	const char *service;
	json_t *value;

	json_object_foreach (json_object_at(stored, "serviceStates"), service, value) {
		if (desired_state_parse(json_string_value(value), &state))
			json_put_ref(known, service, value);
	}

	bool any = json_object_size(known) > 0;

	json_put_ref(config, "serviceStates", any ? known : NULL);
	return any;
}

json_t *workspace_config(const json_t *metadata)
{
	const json_t *stored = json_object_at(metadata, "config");
	_cleanup_json_ json_t *config = json_object();
	bool any = false;

	if (!stored)
		return NULL;
	any |= put_environment(config, stored);
	any |= put_text(config, stored, "provisionCommand");
	any |= put_text(config, stored, "teardownCommand");
	any |= put_text(config, stored, "cleanupCommand");

	json_t *runtime = json_object_at(stored, "workspaceRuntime");

	json_put_ref(config, "workspaceRuntime", runtime);
	any |= runtime != NULL;
	any |= put_desired_state(config, stored);
	any |= put_service_states(config, stored);
	return any ? steal(config) : NULL;
}

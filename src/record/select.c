#include "record/select.h"

#include "base/json.h"

/* The three states of an `environmentId` at one level. */
static bool level_decides(const json_t *value, const char *default_id, const char **id)
{
	if (!value)
		return false;
	if (json_is_null(value)) {
		*id = default_id;
		return true;
	}
	if (!json_is_string(value) || !json_string_value(value)[0])
		return false;
	*id = json_string_value(value);
	return true;
}

const char *select_environment(const struct selection *s, const char **source)
{
	const struct {
		const char *name;
		const json_t *value;
	} levels[] = {
		{ "request", s->requested },
		{ "workspace", json_object_get(s->workspace_config, "environmentId") },
		{ "issue", json_object_get(s->issue_settings, "environmentId") },
		{ "project", json_object_get(s->project_policy, "environmentId") },
	};
	const char *id = s->default_id;

	for (size_t i = 0; i < ARRAY_SIZE(levels); i++) {
		if (level_decides(levels[i].value, s->default_id, &id)) {
			*source = levels[i].name;
			return id;
		}
	}
	if (s->agent_default_id && s->agent_default_id[0]) {
		*source = "agent";
		return s->agent_default_id;
	}
	*source = "default";
	return s->default_id;
}

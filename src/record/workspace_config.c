#include "record/workspace.h"

#include "base/text.h"
#include "record/row.h"
#include "record/selection.h"
#include "record/trust.h"

/*
 * The config of an execution workspace (spec 01 E.9). Everything but environmentId is null
 * when it is not there. An environmentId is there only when something was chosen: left out it says
 * "ask the issue, the project, the agent", null says "the company's default". The reference
 * confuses the two and moves a workspace with nothing but a provision command to the host (I11).
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

static const char *const CONFIG_KEYS[] = { "environmentId",  "provisionCommand", "teardownCommand",
					   "cleanupCommand", "workspaceRuntime", "desiredState",
					   "serviceStates" };

json_t *workspace_config_merge(const json_t *metadata, const json_t *patch)
{
	json_t *merged = json_is_object(metadata) ? json_deep_copy(metadata) : json_object();
	_cleanup_json_ json_t *config = workspace_config(metadata);

	json_object_del(merged, "config");
	if (json_is_object(patch)) {
		if (!config)
			config = json_object();
		for (size_t i = 0; i < ARRAY_SIZE(CONFIG_KEYS); i++) {
			json_t *value = json_object_get(patch, CONFIG_KEYS[i]);

			if (json_is_null(value))
				json_object_del(config, CONFIG_KEYS[i]);
			else if (value)
				json_put_new(config, CONFIG_KEYS[i], json_deep_copy(value));
		}
		json_put_ref(merged, "config", config);

		/* Read back, so that what is stored has its usual shape, or is not there. */
		json_t *kept = workspace_config(merged);

		json_object_del(merged, "config");
		if (kept)
			json_put_new(merged, "config", kept);
	}
	if (json_object_size(merged) > 0)
		return merged;
	json_decref(merged);
	return NULL;
}

SQL(WORKSPACE_PUT_METADATA,
    "UPDATE execution_workspaces SET metadata = $2, updated_at = $3, trust = $4 WHERE id = $1");

int workspace_config_patch_tx(struct tx *tx, const struct writer *writer, int64_t now,
			      const char *id, const json_t *patch, struct error *err)
{
	_cleanup_workspace_ struct workspace_record row = { 0 };
	_cleanup_json_ json_t *before = NULL, *after = NULL, *body = json_object();
	_cleanup_free_ char *text = NULL, *trust = NULL;
	json_t *merged;

	if (workspace_record_get_tx(tx, id, &row, err) < 0)
		return -1;
	before = workspace_record_json(&row);
	merged = workspace_config_merge(row.metadata, patch);
	json_decref(row.metadata);
	row.metadata = merged;
	after = workspace_record_json(&row);
	if (deciding_check(writer, DECIDING_WORKSPACE, before, after, err) < 0 ||
	    selection_host_tx(tx, writer,
			      json_str(json_object_at(before, "config"), "environmentId"),
			      json_str(json_object_at(after, "config"), "environmentId"),
			      "config.environmentId", err) < 0)
		return -1;
	json_put_ref(body, "config", (json_t *)patch);
	deciding_note(writer->actor, DECIDING_WORKSPACE, before, body, after, &row.trust);
	text = json_column(row.metadata);
	trust = json_column(row.trust);
	return tx_exec(tx, &WORKSPACE_PUT_METADATA, err, B_TEXT(id), B_TEXT(text), B_INT(now),
		       B_TEXT(trust)) < 0
		       ? -1
		       : 0;
}

static json_t *nearest(const json_t *issue_settings, const json_t *project_policy, const char *key)
{
	json_t *own = json_object_at(issue_settings, key);

	return own ? own : json_object_at(project_policy, key);
}

json_t *workspace_snapshot(const char *environment_id, const json_t *issue_settings,
			   const json_t *project_policy)
{
	const json_t *strategy = nearest(issue_settings, project_policy, "workspaceStrategy");
	json_t *runtime = nearest(issue_settings, project_policy, "workspaceRuntime");
	json_t *config = json_object();

	if (environment_id)
		json_put_str(config, "environmentId", environment_id);
	if (strategy) {
		json_put_str(config, "provisionCommand", json_str(strategy, "provisionCommand"));
		json_put_str(config, "teardownCommand", json_str(strategy, "teardownCommand"));
	}
	if (runtime)
		json_put_ref(config, "workspaceRuntime", runtime);
	return config;
}

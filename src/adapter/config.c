/*
 * adapterConfig: what a table of fields can check, and what it cannot.
 */
#include "adapter/adapter.h"

#include <ctype.h>
#include <math.h>

#include "base/id.h"
#include "base/text.h"
#include "record/redact.h"

#define TIMEOUT_MAX_SECONDS (30.0 * 86400)
#define ENV_MAX 1000

static const struct field *key_field(const struct adapter *adapter, const char *name)
{
	for (const struct field *f = adapter->config; f && f->name; f++) {
		if (streq(f->name, name))
			return f;
	}
	return NULL;
}

json_t *adapter_config_unknown(const struct adapter *adapter, const json_t *config)
{
	json_t *names = json_array();
	const char *name;
	json_t *value;

	json_object_foreach ((json_t *)config, name, value) {
		if (!key_field(adapter, name))
			json_array_append_new(names, json_string(name));
	}
	return names;
}

/* One issue, in the form fields_check gives many. */
static int wrong(struct error *err, const char *key, const char *below, const char *message)
{
	_cleanup_json_ json_t *details = json_array();
	json_t *issue = json_object(), *path = json_array();

	json_array_append_new(path, json_string("adapterConfig"));
	json_array_append_new(path, json_string(key));
	if (below)
		json_array_append_new(path, json_string(below));
	json_put_new(issue, "path", path);
	json_put_str(issue, "message", message);
	json_array_append_new(details, issue);
	error_set(err, ERR_VALIDATION, "Validation error: adapterConfig.%s%s%.64s %s", key,
		  below ? "." : "", below ? below : "", message);
	error_set_details(err, json_text(details));
	return -1;
}

static int check_timeout(const json_t *value, struct error *err)
{
	if (!value || json_is_null(value))
		return 0;
	if (!json_is_number(value))
		return wrong(err, "timeoutSec", NULL, "must be a number of seconds");
	if (fabs(json_number_value(value)) > TIMEOUT_MAX_SECONDS)
		return wrong(err, "timeoutSec", NULL, "must be at most 30 days");
	return 0;
}

static bool is_variable(const char *name)
{
	if (!isalpha((unsigned char)name[0]) && name[0] != '_')
		return false;
	for (; *name; name++) {
		if (!isalnum((unsigned char)*name) && *name != '_')
			return false;
	}
	return true;
}

static bool is_binding(const json_t *value)
{
	const char *type = json_str(value, "type");

	if (json_is_string(value))
		return true;
	if (str_equal(type, "plain"))
		return json_str(value, "value") != NULL;
	return str_equal(type, "secret_ref") && id_is_valid(json_str(value, "secretId"));
}

static int check_env(const json_t *env, struct error *err)
{
	const char *name;
	json_t *value;

	if (!env || json_is_null(env))
		return 0;
	if (!json_is_object(env))
		return wrong(err, "env", NULL, "must be an object");
	if (json_object_size(env) > ENV_MAX)
		return wrong(err, "env", NULL, "must have at most 1000 entries");
	json_object_foreach ((json_t *)env, name, value) {
		const char *text =
			json_is_string(value) ? json_string_value(value) : json_str(value, "value");

		if (!is_variable(name))
			return wrong(err, "env", name, "is not a name of letters, digits and _");
		if (json_is_null(value))
			continue;
		if (!is_binding(value))
			return wrong(err, "env", name,
				     "must be text, {type: plain, value} or "
				     "{type: secret_ref, secretId}");
		if (str_equal(text, REDACTED))
			return wrong(err, "env", name,
				     "is a redacted view of a value: send the value itself");
	}
	return 0;
}

/* A value behind a flag, or a word of the command, that would be read as a flag itself. */
static int check_word(const json_t *config, const char *key, struct error *err)
{
	const char *word = json_str(config, key);

	if (word && word[0] == '-')
		return wrong(err, key, NULL, "must not begin with a dash");
	return 0;
}

static json_t *known_part(const struct adapter *adapter, const json_t *config)
{
	json_t *known = json_object();
	const char *name;
	json_t *value;

	json_object_foreach ((json_t *)config, name, value) {
		if (key_field(adapter, name))
			json_put_ref(known, name, value);
	}
	return known;
}

int adapter_config_check(const struct adapter *adapter, const json_t *config, bool strict,
			 struct error *err)
{
	static const struct field NONE[] = { { 0 } };
	const struct field table[] = {
		{ "adapterConfig", FIELD_OBJECT,
		  .fields = adapter->config ? adapter->config : NONE },
		{ 0 },
	};
	_cleanup_json_ json_t *around = json_object();
	const char *cwd = json_str_nonblank(config, "cwd");

	json_put_new(around, "adapterConfig",
		     strict ? json_incref((json_t *)config) : known_part(adapter, config));
	if (fields_check(table, around, err) < 0)
		return -1;
	if (!adapter->config)
		return 0;
	if (cwd && cwd[0] != '/')
		return wrong(err, "cwd", NULL, "must be an absolute path");
	if (check_timeout(json_object_get(config, "timeoutSec"), err) < 0 ||
	    check_env(json_object_get(config, "env"), err) < 0 ||
	    check_word(config, "model", err) < 0)
		return -1;
	return key_field(adapter, "agent") ? check_word(config, "agent", err) : 0;
}

/* Values are shared, not copied. */
static json_t *lay(const json_t *base, const json_t *over)
{
	json_t *out = json_object();
	const char *name;
	json_t *value;

	json_object_foreach ((json_t *)base, name, value) {
		if (!json_is_null(value))
			json_put_ref(out, name, value);
	}
	json_object_foreach ((json_t *)over, name, value) {
		if (json_is_null(value))
			json_object_del(out, name);
		else
			json_put_ref(out, name, value);
	}
	return out;
}

json_t *adapter_config_lay(const json_t *base, const json_t *over)
{
	json_t *out = lay(base, over);
	const json_t *below = json_object_at(base, "env"), *above = json_object_at(over, "env");

	if (json_object_at(out, "env"))
		json_put_new(out, "env", lay(below, above));
	return out;
}

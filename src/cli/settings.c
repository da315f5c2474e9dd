#include "cli/settings.h"

#include "server/config_environments.h"
#include <ctype.h>
#include "base/path.h"
#include "base/text.h"
#include "record/record.h"

#define SYSTEM_FILE "/etc/berth/berth.yaml"
#define VARIABLE_MAX 64

enum kind { TEXT, SWITCH, LIST, TIME, COUNT, WORD };

static const struct setting {
	const char *name;
	enum kind kind;
	size_t offset;
	const char *value; /* WORD: the choices */
	const char *usual;
} SETTINGS[] = {
#define X(name, letter, kind, member, value, usual, summary)                                       \
	{ name, kind, offsetof(struct settings, member), value, usual },
	SERVE_SETTINGS(X)
#undef X
};

const struct flag SERVE_FLAGS[] = {
	{ "config", 0, "FILE", "config file; default: berth.yaml in the data directory", false },
#define X(name, letter, kind, member, value, usual, summary)                                       \
	{ name, letter, value, summary, kind == LIST },
	SERVE_SETTINGS(X)
#undef X
		{ 0 },
};

/* One setting for four things: which of them was meant is for a person to say. */
#define FORMER_PATHS "allow-path"
const struct flag SERVE_FORMER_FLAGS[] = {
	{ FORMER_PATHS, 0, "DIR",
	  "was removed: use --allow-root, --allow-mount, --allow-mount-rw or --allow-workspace for "
	  "what callers with a token may use of this host, each as DIR or COMPANY=DIR; the "
	  "server's own user and root need none of them",
	  true },
	{ 0 },
};

const char *settings_defaults(const char *flag)
{
	for (size_t i = 0; i < ARRAY_SIZE(SETTINGS); i++)
		if (streq(SETTINGS[i].name, flag) && SETTINGS[i].kind != SWITCH)
			return SETTINGS[i].usual;
	return NULL;
}

static void variable_of(const struct setting *setting, char out[VARIABLE_MAX])
{
	size_t n = (size_t)snprintf(out, VARIABLE_MAX, "BERTH_");

	for (const char *p = setting->name; *p && n < VARIABLE_MAX - 1; p++)
		out[n++] = *p == '-' ? '_' : (char)toupper(*p);
	out[n] = '\0';
}

/* ---- one value, wherever it was said ---- */

static void *member(struct settings *settings, const struct setting *setting)
{
	return (char *)settings + setting->offset;
}

static const char *keep(struct settings *settings, const char *text)
{
	char *copy = xstrdup(text);

	strv_push(&settings->owned, copy);
	return copy;
}

static bool is_choice(const char *choices, const char *text)
{
	size_t len = strlen(text);

	for (const char *at = choices; at; at = strchr(at, '|')) {
		at += *at == '|';
		if (strcspn(at, "|") == len && strncmp(at, text, len) == 0)
			return true;
	}
	return false;
}

static int take_switch(bool *out, const char *text, struct error *err)
{
	if (!*text || streq(text, "true") || streq(text, "1"))
		*out = true;
	else if (streq(text, "false") || streq(text, "0"))
		*out = false;
	else
		return error_set(err, ERR_VALIDATION, "wants true or false, not \"%.100s\"", text);
	return 0;
}

static int take_text(struct settings *settings, const struct setting *setting, const char *text,
		     struct error *err)
{
	void *to = member(settings, setting);
	int64_t ms;

	switch (setting->kind) {
	case SWITCH:
		return take_switch(to, text, err);
	case TIME:
		if (!parse_duration_ms(text, &ms) || ms <= 0)
			return error_set(err, ERR_VALIDATION,
					 "wants a duration like 90s, 10m or 2h, not \"%.100s\"",
					 text);
		*(int64_t *)to = ms;
		return 0;
	case COUNT:
		if (!parse_i64(text, 0, 1000000000, to))
			return error_set(err, ERR_VALIDATION,
					 "wants a number from 0 to 1000000000, not \"%.100s\"",
					 text);
		return 0;
	case WORD:
		if (!is_choice(setting->value, text))
			return error_set(err, ERR_VALIDATION, "wants %s, not \"%.100s\"",
					 setting->value, text);
		*(const char **)to = keep(settings, text);
		return 0;
	case LIST:
		strv_push(to, xstrdup(text));
		return 0;
	case TEXT:
		if (!*text)
			return error_set(err, ERR_VALIDATION, "wants a value");
		*(const char **)to = keep(settings, text);
		return 0;
	}
	return 0;
}

/* ---- the three places ---- */

static char *value_text(const json_t *value)
{
	if (json_is_string(value))
		return xstrdup(json_string_value(value));
	if (json_is_boolean(value))
		return xstrdup(json_is_true(value) ? "true" : "false");
	if (json_is_integer(value))
		return xasprintf("%lld", (long long)json_integer_value(value));
	return NULL;
}

static int take_from_file(struct settings *settings, const struct setting *setting,
			  const struct config_value *said, struct error *err)
{
	const json_t *list = json_is_array(said->value) ? said->value : NULL;

	for (size_t i = 0; i < (list ? json_array_size(list) : 1); i++) {
		_cleanup_free_ char *text =
			value_text(list ? json_array_get(list, i) : said->value);

		if (!text || (list && setting->kind != LIST))
			error_set(err, ERR_VALIDATION, "wants %s",
				  setting->kind == LIST ? "a list of texts" : "one plain value");
		else if (take_text(settings, setting, text, err) == 0)
			continue;
		error_wrap(err, "%s", setting->name);
		return error_wrap(err, "%s:%d", settings->file.path, said->line);
	}
	return 0;
}

static int take_from_flags(struct settings *settings, const struct setting *setting,
			   const struct args *args, struct error *err)
{
	const char *text;

	for (size_t i = 0; (text = args_nth(args, setting->name, i)); i++)
		if (take_text(settings, setting, text, err) < 0)
			return error_wrap(err, "--%s", setting->name);
	return 0;
}

enum source { FROM_USUAL, FROM_FILE, FROM_VARIABLE, FROM_FLAG };

static enum source source_of(const struct settings *settings, const struct setting *setting,
			     const struct args *args)
{
	char variable[VARIABLE_MAX];

	variable_of(setting, variable);
	if (args && args->verb->flags == SERVE_FLAGS && args_value(args, setting->name))
		return FROM_FLAG;
	if (getenv(variable))
		return FROM_VARIABLE;
	if (settings->has_file && config_file_find(&settings->file, setting->name))
		return FROM_FILE;
	return FROM_USUAL;
}

static int take(struct settings *settings, const struct setting *setting, const struct args *args,
		struct error *err)
{
	char variable[VARIABLE_MAX];

	switch (source_of(settings, setting, args)) {
	case FROM_FLAG:
		return take_from_flags(settings, setting, args, err);
	case FROM_VARIABLE:
		variable_of(setting, variable);
		if (take_text(settings, setting, getenv(variable), err) < 0)
			return error_wrap(err, "%s", variable);
		return 0;
	case FROM_FILE:
		return take_from_file(settings, setting,
				      config_file_find(&settings->file, setting->name), err);
	case FROM_USUAL:
		return setting->usual ? take_text(settings, setting, setting->usual, err) : 0;
	}
	return 0;
}

/* ---- the file ---- */

static int open_file(struct settings *settings, const struct cli *cli, const struct args *args,
		     struct error *err)
{
	const char *wanted = args ? args_value(args, "config") : NULL;
	_cleanup_free_ char *own = path_join(cli->data_path, "berth.yaml");
	const char *const places[] = { own, SYSTEM_FILE };

	if (!wanted)
		wanted = getenv("BERTH_CONFIG");
	settings->has_file = true;
	if (wanted)
		return config_file_read(wanted, &settings->file, err);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		_cleanup_error_ struct error why = { 0 };

		if (config_file_read(places[i], &settings->file, &why) == 0)
			return 0;
		if (why.code != ERR_NOT_FOUND) {
			error_move(err, &why);
			return -1;
		}
	}
	settings->has_file = false;
	return 0;
}

/* 0 when the others are to be found, too; -1 when the first problem is the answer. */
static int go_on(const struct settings *settings, struct error *err)
{
	if (!settings->problems)
		return -1;
	json_array_append_new(settings->problems, json_string(err->message));
	error_clear(err);
	return 0;
}

static int check_former(const struct settings *settings, struct error *err)
{
	const char *sentence = SERVE_FORMER_FLAGS[0].summary;
	const struct config_value *said =
		settings->has_file ? config_file_find(&settings->file, FORMER_PATHS) : NULL;

	if (getenv("BERTH_ALLOW_PATH"))
		return error_set(err, ERR_VALIDATION, "BERTH_ALLOW_PATH %s", sentence);
	if (said)
		return error_set(err, ERR_VALIDATION, "%s:%d: " FORMER_PATHS " %s",
				 settings->file.path, said->line, sentence);
	return 0;
}

static int check_keys(const struct settings *settings, struct error *err)
{
	for (size_t i = 0; i < settings->file.count; i++) {
		const struct config_value *said = &settings->file.values[i];
		bool known = streq(said->key, "environments") || streq(said->key, FORMER_PATHS);

		for (size_t k = 0; k < ARRAY_SIZE(SETTINGS); k++)
			known |= streq(SETTINGS[k].name, said->key);
		if (known)
			continue;
		error_set(err, ERR_VALIDATION, "%s:%d: there is no setting %.100s",
			  settings->file.path, said->line, said->key);
		if (go_on(settings, err) < 0)
			return -1;
	}
	return 0;
}

static const struct field ENVIRONMENT_FIELDS[] = {
	{ .name = "company", .type = FIELD_STRING, .flags = FIELD_NONBLANK, .max = 200 },
	{ .name = "name",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED | FIELD_NONBLANK,
	  .max = 200 },
	{ .name = "description", .type = FIELD_STRING, .flags = FIELD_NULLABLE, .max = 2000 },
	{ .name = "driver",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED,
	  .one_of = driver_kind_names },
	{ .name = "status", .type = FIELD_STRING, .one_of = environment_status_names },
	{ .name = "config", .type = FIELD_OBJECT },
	{ .name = "metadata", .type = FIELD_OBJECT },
	{ 0 },
};

static bool is_same_environment(const json_t *a, const json_t *b)
{
	const char *of_a = json_str(a, "company"), *of_b = json_str(b, "company");

	return str_equal(json_str(a, "name"), json_str(b, "name")) &&
	       streq(of_a ? of_a : "", of_b ? of_b : "");
}

static int check_environment(const struct settings *settings, const struct config_value *said,
			     size_t i, struct error *err)
{
	const json_t *item = json_array_get(said->value, i);

	if (fields_check(ENVIRONMENT_FIELDS, item, err) < 0)
		return error_wrap(err, "%s:%d: environments", settings->file.path,
				  said->item_lines[i]);
	for (size_t k = 0; k < i; k++)
		if (is_same_environment(item, json_array_get(said->value, k)))
			return error_set(
				err, ERR_VALIDATION, "%s:%d: environment %.100s is given twice",
				settings->file.path, said->item_lines[i], json_str(item, "name"));
	return 0;
}

/* The config of an environment, as the server would take it; a problem of it stops no server. */
static void judge_config(const struct settings *settings, const struct config_value *said, size_t i)
{
	const json_t *item = json_array_get(said->value, i);
	_cleanup_error_ struct error err = { 0 };

	if (environment_declared_check(item, settings->server.allow_fake, &err) < 0)
		json_array_append_new(settings->problems,
				      json_sprintf("%s:%d: environment %s: %s", settings->file.path,
						   said->item_lines[i], json_str(item, "name"),
						   err.message));
}

static int check_environments(struct settings *settings, struct error *err)
{
	const struct config_value *said = config_file_find(&settings->file, "environments");

	if (!said)
		return 0;
	if (!json_is_array(said->value)) {
		error_set(err, ERR_VALIDATION, "%s:%d: environments wants a list",
			  settings->file.path, said->line);
		return go_on(settings, err);
	}
	for (size_t i = 0; i < json_array_size(said->value); i++) {
		if (check_environment(settings, said, i, err) == 0) {
			if (settings->problems)
				judge_config(settings, said, i);
		} else if (go_on(settings, err) < 0) {
			return -1;
		}
	}
	settings->server.environments = said->value;
	return 0;
}

/* ---- together ---- */

static int check_paths(const struct settings *settings, struct error *err)
{
	for (size_t list = 0; list < ALLOW_LISTS; list++) {
		char **entry = settings->server.allow.list[list];

		for (; entry && *entry; entry++)
			if (allow_entry_check(*entry, err) < 0)
				return error_wrap(err, "%s", ALLOW_LIST_FLAGS[list]);
	}
	return 0;
}

static int check_together(const struct settings *settings, struct error *err)
{
	if (check_paths(settings, err) < 0)
		return -1;
	/* Others take over from a node that misses a few beats. */
	if (settings->server.beat_ms > NODE_DEAD_MS / 3)
		return error_set(err, ERR_VALIDATION, "beat-every may be at most %ds",
				 NODE_DEAD_MS / 3000);
	if (!settings->server.tls_cert != !settings->server.tls_key)
		return error_set(err, ERR_VALIDATION, "tls-cert and tls-key go together");
	if ((settings->server.tls_cert || settings->server.insecure_http) &&
	    !settings->server.listen)
		return error_set(err, ERR_VALIDATION, "TLS and insecure-http need listen");
	return 0;
}

static int read_all(struct settings *settings, const struct cli *cli, const struct args *args,
		    json_t *problems, struct error *err)
{
	*settings = (struct settings){ .server = { .data_path = cli->data_path },
				       .problems = problems };
	if (open_file(settings, cli, args, err) < 0) {
		settings->has_file = false;
		return go_on(settings, err);
	}
	if ((check_former(settings, err) < 0 && go_on(settings, err) < 0) ||
	    check_keys(settings, err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(SETTINGS); i++)
		if (take(settings, &SETTINGS[i], args, err) < 0 && go_on(settings, err) < 0)
			return -1;
	if (check_environments(settings, err) < 0)
		return -1;
	return check_together(settings, err) < 0 ? go_on(settings, err) : 0;
}

int settings_read(struct settings *settings, const struct cli *cli, const struct args *args,
		  struct error *err)
{
	return read_all(settings, cli, args, NULL, err);
}

void settings_check(struct settings *settings, const struct cli *cli, const struct args *args,
		    json_t *problems)
{
	_cleanup_error_ struct error err = { 0 };

	read_all(settings, cli, args, problems, &err);
}

void settings_clear(struct settings *settings)
{
	for (size_t i = 0; i < ARRAY_SIZE(SETTINGS); i++)
		if (SETTINGS[i].kind == LIST)
			strv_free(*(char ***)member(settings, &SETTINGS[i]));
	strv_free(settings->owned);
	config_file_clear(&settings->file);
	*settings = (struct settings){ 0 };
}

static json_t *shown(const struct settings *settings, const struct setting *setting)
{
	const void *at = (const char *)settings + setting->offset;
	const char *text = NULL;
	char duration[32];
	int64_t ms;

	switch (setting->kind) {
	case SWITCH:
		return json_boolean(*(const bool *)at);
	case COUNT:
		return json_integer(*(const int64_t *)at);
	case TIME:
		ms = *(const int64_t *)at;
		if (ms % 1000)
			snprintf(duration, sizeof(duration), "%lldms", (long long)ms);
		else
			snprintf(duration, sizeof(duration), "%llds", (long long)ms / 1000);
		return json_string(duration);
	case LIST:
		return json_from_strv(*(char *const *const *)at);
	case WORD:
	case TEXT:
		text = *(const char *const *)at;
		break;
	}
	/* The password in a URL is for the database alone. */
	if (text && streq(setting->name, "database") && strchr(text, '@'))
		return json_sprintf("postgres://...@%s", strrchr(text, '@') + 1);
	return text ? json_string(text) : json_null();
}

json_t *settings_json(const struct settings *settings, const struct args *args)
{
	json_t *list = json_array();

	for (size_t i = 0; i < ARRAY_SIZE(SETTINGS); i++) {
		json_t *entry = json_object();
		char variable[VARIABLE_MAX];
		const struct config_value *said =
			config_file_find(&settings->file, SETTINGS[i].name);

		variable_of(&SETTINGS[i], variable);
		json_put_str(entry, "name", SETTINGS[i].name);
		json_put_new(entry, "value", shown(settings, &SETTINGS[i]));
		switch (source_of(settings, &SETTINGS[i], args)) {
		case FROM_FLAG:
			json_put_str(entry, "source", "flag");
			break;
		case FROM_VARIABLE:
			json_put_str(entry, "source", variable);
			break;
		case FROM_FILE:
			json_put_new(entry, "source",
				     json_sprintf("%s:%d", settings->file.path, said->line));
			break;
		case FROM_USUAL:
			json_put_str(entry, "source", "default");
			break;
		}
		json_array_append_new(list, entry);
	}
	return list;
}

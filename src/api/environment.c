#include "api/answer.h"
#include "base/text.h"

/* The environment of the first name in the path, or 404. */
static int environment_of_path(struct server *server, const struct request *request,
			       struct environment *environment, struct error *err)
{
	return environment_get(server->db, request->param[0], environment, err);
}

json_t *environment_viewed(const struct request *request, json_t *json)
{
	if (!json || request_may(request, "environments:manage"))
		return json;
	json_put_new(json, "config", json_object());
	json_put_str(json, "metadata", NULL);
	json_put_bool(json, "configRedacted", true);
	json_put_bool(json, "metadataRedacted", true);
	return json;
}

static json_t *viewed_list(const struct request *request, json_t *list)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		environment_viewed(request, json_array_get(list, i));
	return list;
}

static int list(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };

	if (company_of_path(server, request, &company, err) < 0)
		return -1;
	return answer(
		response, 200,
		viewed_list(request, environment_list(server->db, company.id,
						      request_query(request, "status"),
						      request_query(request, "driver"), err)));
}

/* What is absent is an empty config; the driver then says what it misses. */
static json_t *normalized(struct server *server, enum driver_kind driver, const json_t *config,
			  struct error *err)
{
	_cleanup_json_ json_t *empty = json_object();

	return maker_normalize(&server->makers, driver, config ? config : empty, true, err);
}

/*
 * An agent makes places that are as closed as the company's Sandbox: what opens one is decided by
 * people. The config is normalised.
 */
static int check_closed(const struct request *request, enum driver_kind driver,
			const json_t *config, struct error *err)
{
	static const struct {
		const char *key, *closed, *open; /* NULL: every other value is the opposite */
	} OPENINGS[] = {
		{ "network", "none", NULL }, { "mounts", NULL, NULL },  { "root", "host", NULL },
		{ "user", NULL, "root" },    { "sockets", NULL, NULL },
	};

	if (!actor_is_agent(&request->actor))
		return 0;
	for (size_t i = 0; driver == DRIVER_SANDBOX && i < ARRAY_SIZE(OPENINGS); i++) {
		const json_t *value = json_object_get(config, OPENINGS[i].key);
		const char *text = json_string_value(value), *open = OPENINGS[i].open;

		if (!value || json_is_null(value) || json_is_false(value) ||
		    (json_is_array(value) && json_array_size(value) == 0) ||
		    (OPENINGS[i].closed && str_equal(text, OPENINGS[i].closed)) ||
		    (open && !str_equal(text, open)))
			continue;
		return error_set(err, ERR_FORBIDDEN,
				 "agents may not open places: config.%s is for people to set",
				 OPENINGS[i].key);
	}
	return 0;
}

/* A caller with a token saves nothing that a lease would refuse them. */
static int check_host(struct server *server, const struct request *request, enum driver_kind driver,
		      const json_t *config, struct error *err)
{
	const struct place_needs needs = maker_needs(&server->makers, driver, config);
	const struct allow_caller caller = {
		.allow = &server->options.allow,
		.db = server->db,
		.company_id = request->company_id,
		.trusted = actor_is_trusted(&request->actor),
	};

	return allow_needs(&caller, &needs, NULL, err);
}

static json_t *make_environment(struct server *server, struct request *request, const char *id,
				bool resumed, void *company_id, struct error *err)
{
	_cleanup_environment_ struct environment made = { 0 };
	_cleanup_json_ json_t *config = NULL;
	struct environment wanted = {
		.name = (char *)json_str(request->body, "name"),
		.description = (char *)json_str(request->body, "description"),
		.metadata = json_object_at(request->body, "metadata"),
	};
	const char *status = json_str(request->body, "status");

	if (resumed && environment_get(server->db, id, &made, NULL) == 0)
		return environment_json(&made);
	driver_kind_parse(json_str(request->body, "driver"), &wanted.driver);
	if (status)
		environment_status_parse(status, &wanted.status);
	config = normalized(server, wanted.driver, json_object_at(request->body, "config"), err);
	if (!config || check_closed(request, wanted.driver, config, err) < 0 ||
	    check_host(server, request, wanted.driver, config, err) < 0)
		return NULL;
	wanted.config = config;
	id_copy(wanted.id, id);
	id_copy(wanted.company_id, company_id);
	if (environment_create(server->db, &server->clock, &request->actor, &wanted, &made, err) <
	    0)
		return NULL;
	return environment_json(&made);
}

static int create(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_company_ struct company company = { 0 };

	if (company_of_path(arg, request, &company, err) < 0)
		return -1;
	return answer_created(arg, request, response, company.id, make_environment, company.id,
			      err);
}

static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_environment_ struct environment environment = { 0 };

	/* Who may see all of it gets the row as it is. */
	if (request_may(request, "environments:manage")) {
		response->text = environment_text(server->db, request->param[0], err);
		return response->text ? 0 : -1;
	}
	if (environment_of_path(arg, request, &environment, err) < 0)
		return -1;
	return answer(response, 200, environment_viewed(request, environment_json(&environment)));
}

/*
 * The config a patch leads to, or NULL when it touches none: keys are laid over those there are as
 * long as the driver stays, unless the body says that its config is all; another driver starts from
 * nothing.
 */
static int patched_config(struct server *server, const json_t *body, const struct environment *now,
			  enum driver_kind driver, json_t **config, struct error *err)
{
	json_t *given = json_object_at(body, "config");
	_cleanup_json_ json_t *merged = NULL;

	*config = NULL;
	if (!given && driver == now->driver)
		return 0;
	merged = driver == now->driver && !json_bool(body, "replaceConfig", false)
			 ? json_deep_copy(now->config)
			 : json_object();
	if (given)
		json_object_update(merged, given);
	*config = normalized(server, driver, merged, err);
	return *config ? 0 : -1;
}

static int patch_once(struct server *server, struct request *request, struct environment *out,
		      struct error *err)
{
	const json_t *body = request->body;
	_cleanup_environment_ struct environment now = { 0 };
	_cleanup_json_ json_t *config = NULL;
	enum driver_kind driver;
	enum environment_status status;

	if (environment_of_path(server, request, &now, err) < 0)
		return -1;
	driver = now.driver;

	struct environment_patch patch = {
		.name = json_str(body, "name"),
		.description = json_object_get(body, "description"),
		.metadata = json_object_get(body, "metadata"),
	};

	if (json_str(body, "driver") && driver_kind_parse(json_str(body, "driver"), &driver))
		patch.driver = &driver;
	if (json_str(body, "status") && environment_status_parse(json_str(body, "status"), &status))
		patch.status = &status;
	if (patched_config(server, body, &now, driver, &config, err) < 0 ||
	    (config && check_host(server, request, driver, config, err) < 0))
		return -1;
	patch.config = config;
	patch.merged_with = config ? now.updated_at : 0;
	return environment_update(server->db, &server->clock, &request->actor, now.id, &patch, out,
				  err);
}

/* Two patches at once must both count: the later one is laid over what the first has made. */
#define PATCH_TRIES 5

static int patch(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_environment_ struct environment changed = { 0 };

	for (int tries = 1;; tries++) {
		_cleanup_error_ struct error why = { 0 };

		if (patch_once(arg, request, &changed, &why) == 0)
			return answer(response, 200, environment_json(&changed));
		if (why.code != ERR_CONFLICT || tries == PATCH_TRIES) {
			error_move(err, &why);
			return -1;
		}
	}
}

/* Free places wait for a holder that will not come: they do not stand in the way. */
static int retire_free_places(struct server *server, const char *id, struct error *err)
{
	_cleanup_json_ json_t *usage = environment_usage(server->db, id, err);
	const json_t *reasons = json_array_at(usage, "deleteBlockedReasons");

	if (!usage)
		return -1;
	if (json_array_size(reasons) != 1 ||
	    !str_equal(json_string_value(json_array_get(reasons, 0)), "live_places"))
		return 0;
	return leases_retire_environment(server->leases, id, err);
}

static int destroy(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_environment_ struct environment removed = { 0 };

	if (retire_free_places(server, request->param[0], err) < 0)
		return -1;
	if (environment_delete(server->db, &server->clock, &request->actor, request->param[0],
			       &removed, err) < 0)
		return -1;
	return answer(response, 200, environment_json(&removed));
}

static int usage(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;

	return answer(response, 200, environment_usage(server->db, request->param[0], err));
}

/* Of a config that was not saved its size is told, and no value. */
static int note_probe(struct server *server, const struct request *request,
		      const struct environment *environment, const struct probe *probe,
		      struct error *err)
{
	bool saved = id_is_set(environment->id);
	_cleanup_json_ json_t *details = json_object();
	struct activity activity = {
		.company_id = environment->company_id,
		.actor = &request->actor,
		.action = saved ? "environment.probed" : "environment.probed_unsaved",
		.entity_type = "environment",
		.entity_id = saved ? environment->id : "unsaved",
		.details = details,
	};

	json_put_str(details, "driver", driver_kind_name(environment->driver));
	json_put_bool(details, "ok", probe->ok);
	json_put_str(details, "summary", probe->summary);
	if (!saved)
		json_put_int(details, "configTopLevelKeyCount",
			     (int64_t)json_object_size(environment->config));
	return activity_write(server->db, &server->clock, &activity, err);
}

/* A place that cannot be reached is a finding (200, ok false), not an error. */
static int probe_and_note(struct server *server, const struct request *request,
			  const struct environment *environment, struct response *response,
			  struct error *err)
{
	_cleanup_(probe_clear) struct probe found = { 0 };

	if (check_host(server, request, environment->driver, environment->config, err) < 0)
		return -1;
	if (maker_probe(&server->makers, environment, &found, err) < 0) {
		if (err->code == ERR_UNSUPPORTED_ENV)
			return -1;
		error_wrap(err, "could not probe environment \"%s\" (%s)", environment->name,
			   driver_kind_name(environment->driver));
		return error_recode(err, ERR_PROBE);
	}
	if (note_probe(server, request, environment, &found, err) < 0)
		return -1;
	return answer(response, 200, probe_json(&found));
}

static int probe(void *arg, struct request *request, struct response *response, struct error *err)
{
	_cleanup_environment_ struct environment environment = { 0 };

	if (environment_of_path(arg, request, &environment, err) < 0)
		return -1;
	return probe_and_note(arg, request, &environment, response, err);
}

/* Nothing is kept of the config: neither a row nor a secret. */
static int probe_config(void *arg, struct request *request, struct response *response,
			struct error *err)
{
	struct server *server = arg;
	const json_t *body = request->body;
	const char *name = json_str_nonblank(body, "name");
	_cleanup_company_ struct company company = { 0 };
	_cleanup_environment_ struct environment draft = { 0 };
	_cleanup_json_ json_t *empty = json_object();
	const json_t *config = json_object_at(body, "config");

	if (company_of_path(server, request, &company, err) < 0)
		return -1;
	driver_kind_parse(json_str(body, "driver"), &draft.driver);
	draft.config =
		maker_normalize(&server->makers, draft.driver, config ? config : empty, false, err);
	if (!draft.config)
		return -1;
	id_copy(draft.company_id, company.id);
	draft.name = name ? str_trimmed(name) : xstrdup("Unsaved environment");
	return probe_and_note(server, request, &draft, response, err);
}

#define DESCRIPTION                                                                                \
	{                                                                                          \
		.name = "description", .type = FIELD_STRING, .flags = FIELD_NULLABLE, .max = 2000, \
		.summary = "For people"                                                            \
	}
#define CONFIG                                                                                     \
	{                                                                                          \
		.name = "config", .type = FIELD_OBJECT, .summary = "Settings of the driver"        \
	}
#define METADATA                                                                                   \
	{                                                                                          \
		.name = "metadata", .type = FIELD_OBJECT, .flags = FIELD_NULLABLE,                 \
		.summary = "Anything; maxLeases limits how many leases there may be at a time"     \
	}
#define STATUS                                                                                     \
	{                                                                                          \
		.name = "status", .type = FIELD_STRING, .one_of = environment_status_names,        \
		.summary = "Archived ones take no new leases"                                      \
	}
#define DRIVER                                                                                     \
	.name = "driver", .type = FIELD_STRING, .one_of = driver_kind_names,                       \
	.summary = "How its places are reached"
#define NAME                                                                                       \
	.name = "name", .type = FIELD_STRING, .min = 1, .max = 200, .summary = "What people call it"

static const struct field CREATE_FIELDS[] = {
	{ NAME, .flags = FIELD_REQUIRED | FIELD_NONBLANK },
	DESCRIPTION,
	{ DRIVER, .flags = FIELD_REQUIRED },
	STATUS,
	CONFIG,
	METADATA,
	{ 0 },
};
static const struct field PATCH_FIELDS[] = {
	{ NAME, .flags = FIELD_NONBLANK },
	DESCRIPTION,
	{ DRIVER },
	STATUS,
	CONFIG,
	{ .name = "replaceConfig",
	  .type = FIELD_BOOL,
	  .summary = "config is the whole of it, not keys to lay over those there are" },
	METADATA,
	{ 0 },
};
static const struct field PROBE_FIELDS[] = {
	{ NAME }, DESCRIPTION, { DRIVER, .flags = FIELD_REQUIRED }, CONFIG, METADATA, { 0 },
};
static const struct field LIST_QUERY[] = { STATUS, { DRIVER }, { 0 } };
static const struct field NO_FIELDS[] = { { 0 } };

ROUTES(ENVIRONMENT_ROUTES, 70) = {
	{ HTTP_GET, "/api/companies/:cid/environments", .access = ACCESS_READ,
	  .subject = SUBJECT_COMPANY, .query = LIST_QUERY, .run = list, .answer = "[Environment]",
	  .summary = "Where the company's runs can go" },
	{ HTTP_POST, "/api/companies/:cid/environments", ROUTE_IDEMPOTENT_KEY, CREATE_FIELDS,
	  .access = ACCESS_ENVIRONMENTS, .subject = SUBJECT_COMPANY, .run = create,
	  .answer = "201 Environment", .errors = "conflict unprocessable",
	  .summary = "A new environment" },
	{ HTTP_GET, "/api/environments/:id", .access = ACCESS_READ, .subject = SUBJECT_ENVIRONMENT,
	  .run = show, .answer = "Environment", .summary = "One environment" },
	{ HTTP_PATCH, "/api/environments/:id", .access = ACCESS_ENVIRONMENTS,
	  .subject = SUBJECT_ENVIRONMENT, .body = PATCH_FIELDS, .run = patch,
	  .answer = "Environment", .errors = "conflict unprocessable",
	  .summary = "Changes what the body names" },
	{ HTTP_DELETE, "/api/environments/:id", .access = ACCESS_ENVIRONMENTS,
	  .subject = SUBJECT_ENVIRONMENT, .run = destroy, .answer = "Environment",
	  .errors = "environment_in_use",
	  .summary = "Removes an environment that nothing needs any more" },
	{ HTTP_GET, "/api/environments/:id/usage", .access = ACCESS_ENVIRONMENTS,
	  .subject = SUBJECT_ENVIRONMENT, .run = usage, .answer = "EnvironmentUsage",
	  .summary = "Who has chosen it, and what stands in the way of removing it" },
	{ HTTP_POST, "/api/companies/:cid/environments/probe-config", .body = PROBE_FIELDS,
	  .access = ACCESS_ENVIRONMENTS, .subject = SUBJECT_COMPANY, .run = probe_config,
	  .answer = "Probe", .errors = "unprocessable unsupported_environment probe_failed",
	  .summary = "Tries a config without saving it" },
	{ HTTP_POST, "/api/environments/:id/probe", ROUTE_NO_BODY_OK, NO_FIELDS,
	  .access = ACCESS_ENVIRONMENTS, .subject = SUBJECT_ENVIRONMENT, .run = probe,
	  .answer = "Probe", .errors = "unsupported_environment probe_failed",
	  .summary = "Tries whether its places can be reached" },
	{ 0 },
};

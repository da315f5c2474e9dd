#include "api/server.h"
#include <ctype.h>
#include "api/answer.h"
#include "api/response_schemas.h"
#include "base/schema.h"
#include "base/text.h"
#include "http/router.h"

#define MAX_STATUSES 32

static const char *const ACCESS[] = {
	[ACCESS_UNSET] = "local trust",
	[ACCESS_PUBLIC] = "every caller that can connect",
	[ACCESS_SIGNED_IN] = "every authenticated caller",
	[ACCESS_READ] = "members and agents of the company",
	[ACCESS_WRITE] = "members of the company but viewers, and its agents",
	[ACCESS_BOARD] = "members of the company but viewers",
	[ACCESS_AGENTS] = "people and agents with `agents:create`",
	[ACCESS_ENVIRONMENTS] = "people and agents with `environments:manage`",
	[ACCESS_LEASES] = "people and agents with `leases:use` or `environments:manage`",
	[ACCESS_METRICS] = "instance admins, the server's own user, and tokens with `metrics:read`",
	[ACCESS_MEMBERS] = "people with `users:manage_permissions`",
	[ACCESS_ADMIN] = "instance admins and the server's own user",
};

/* ---- names ---- */

/* "/api/runs/:id/log" -> "/api/runs/{id}/log" */
static char *template_of(const char *path)
{
	_cleanup_buf_ struct buf out = { 0 };

	for (const char *p = path; *p; p++) {
		size_t len = *p == ':' ? strcspn(p + 1, "/") : 0;

		if (!len) {
			buf_putc(&out, *p);
			continue;
		}
		buf_printf(&out, "{%.*s}", (int)len, p + 1);
		p += len;
	}
	return buf_steal(&out);
}

/* GET /api/environments/:id -> getEnvironmentsById */
static char *operation_id(const struct route *route)
{
	_cleanup_buf_ struct buf out = { 0 };
	const char *path = str_starts(route->path, "/api") ? route->path + 4 : route->path;
	bool upper = false;

	for (const char *m = http_method_name(route->method); *m; m++)
		buf_putc(&out, (char)tolower(*m));
	for (const char *p = path; *p; p++) {
		if (*p == ':')
			buf_puts(&out, "By");
		if (isalnum((unsigned char)*p))
			buf_putc(&out, upper ? (char)toupper(*p) : *p);
		upper = !isalnum((unsigned char)*p);
	}
	return buf_steal(&out);
}

/* What a route is about: the collection below the company, or the first word of the path. */
static char *tag_of(const char *path)
{
	const char *word = str_starts(path, "/api/") ? path + 5 : path + 1;
	size_t len = strcspn(word, "/");

	if (str_starts(word, "companies/:")) {
		const char *below = strchr(word + strlen("companies/:"), '/');

		if (below) {
			word = below + 1;
			len = strcspn(word, "/");
		}
	}
	return xstrndup(word, len);
}

/* ---- parameters and bodies ---- */

static json_t *path_parameters(const struct route *route)
{
	json_t *list = json_array();

	for (const char *p = strchr(route->path, ':'); p; p = strchr(p + 1, ':')) {
		_cleanup_free_ char *name = xstrndup(p + 1, strcspn(p + 1, "/"));

		json_t *parameter = json_pack("{s:s,s:s,s:b,s:{s:s}}", "name", name, "in", "path",
					      "required", 1, "schema", "type", "string");

		if (route->subject == SUBJECT_COMPANY && !json_array_size(list))
			json_put_str(parameter, "description", "The company's id or its name");
		json_array_append_new(list, parameter);
	}
	return list;
}

static void add_query(json_t *parameters, const struct field *fields)
{
	_cleanup_json_ json_t *schema = fields_schema(fields);
	json_t *properties = json_object_at(schema, "properties");

	for (const struct field *field = fields; field->name; field++) {
		json_t *parameter = json_object();

		json_put_str(parameter, "name", field->name);
		json_put_str(parameter, "in", "query");
		if (field->flags & FIELD_REQUIRED)
			json_put_bool(parameter, "required", true);
		if (field->summary)
			json_put_str(parameter, "description", field->summary);
		json_put_ref(parameter, "schema", json_object_get(properties, field->name));
		json_array_append_new(parameters, parameter);
	}
}

static json_t *parameters_of(const struct route *route)
{
	json_t *list = path_parameters(route);

	if (route->query)
		add_query(list, route->query);
	if (route->flags & ROUTE_IDEMPOTENT_KEY)
		json_array_append_new(list,
				      json_pack("{s:s,s:s,s:s,s:{s:s,s:i,s:i}}", "name",
						"Idempotency-Key", "in", "header", "description",
						"Repeating the request with this key returns the "
						"first answer; kept for a day",
						"schema", "type", "string", "minLength", 1,
						"maxLength", 255));
	return list;
}

static json_t *content(const char *type, json_t *schema)
{
	return json_pack("{s:{s:o}}", type, "schema", schema);
}

static json_t *bytes_schema(void)
{
	return json_pack("{s:s,s:s}", "type", "string", "format", "binary");
}

static json_t *body_of(const struct route *route)
{
	json_t *body = json_object();

	if (route->flags & ROUTE_RAW_BODY) {
		json_put_new(body, "content", content("application/octet-stream", bytes_schema()));
		return body;
	}
	json_put_bool(body, "required", !(route->flags & ROUTE_NO_BODY_OK));
	json_put_new(body, "content", content("application/json", fields_schema(route->body)));
	return body;
}

/* ---- answers ---- */

/* "201 Lease" -> 201, "Lease" */
static int read_answer(const char *answer, const char **type)
{
	char *rest = NULL;
	long status = answer ? strtol(answer, &rest, 10) : 0;

	if (status < 100) {
		*type = answer;
		return 200;
	}
	*type = *rest == ' ' && rest[1] ? rest + 1 : NULL;
	return (int)status;
}

/*
 * A media type is given as it is; anything else is a shape. Streams have both media types, by the
 * Accept header, unless they are of events only.
 */
static json_t *answer_content(const struct route *route, const char *type)
{
	json_t *all = json_object();

	if (route->flags & ROUTE_STREAM && !(type && strchr(type, '/'))) {
		json_object_update_new(all, content("application/x-ndjson", bytes_schema()));
		if (!(route->flags & ROUTE_EVENTS))
			json_object_update_new(all,
					       content("application/octet-stream", bytes_schema()));
	}
	if (type && strchr(type, '/'))
		json_object_update_new(all, content(type, bytes_schema()));
	else if (type)
		json_object_update_new(all, content("application/json", shape_type_schema(type)));
	else if (!(route->flags & ROUTE_STREAM))
		json_object_update_new(all, content("application/json", json_object()));
	return all;
}

static void add_success(json_t *responses, const struct route *route)
{
	json_t *answer = json_object();
	const char *type;
	int status = read_answer(route->answer, &type);
	char key[8];

	if (route->flags & ROUTE_WEBSOCKET) {
		json_put_str(answer, "description", "The connection becomes a WebSocket");
		json_put_new(responses, "101", answer);
		return;
	}
	snprintf(key, sizeof(key), "%d", status);
	json_put_str(answer, "description",
		     type && shape_find(type) ? shape_find(type)->summary : "Done");
	json_put_new(answer, "content", answer_content(route, type));
	json_put_new(responses, key, answer);
}

/* ---- errors ---- */

/* Codes by status, so that a status is one response that names them all. */
struct refusals {
	json_t *by_status; /* "409" -> ["place_busy", ...] */
};

static void add_code(struct refusals *refusals, enum error_code code)
{
	char status[8];
	json_t *codes;

	snprintf(status, sizeof(status), "%d", error_http_status(code));
	codes = json_object_get(refusals->by_status, status);
	if (!codes) {
		codes = json_array();
		json_put_new(refusals->by_status, status, codes);
	}
	for (size_t i = 0; i < json_array_size(codes); i++)
		if (streq(json_string_value(json_array_get(codes, i)), error_code_name(code)))
			return;
	json_array_append_new(codes, json_string(error_code_name(code)));
}

/* What every route can answer stands once, in the response named Refused. */
static const enum error_code EVERYWHERE[] = {
	ERR_BAD_REQUEST,  ERR_BAD_PATH,  ERR_BAD_HOST, ERR_BAD_ORIGIN, ERR_METHOD,
	ERR_URI_TOO_LONG, ERR_DISK_FULL, ERR_DB,       ERR_DB_BUSY,    ERR_UNAVAILABLE,
};

static void add_own_codes(struct refusals *refusals, const struct route *route)
{
	_cleanup_free_ char *words = xstrdup(route->errors ? route->errors : "");
	char *at = NULL;

	for (char *word = strtok_r(words, " ", &at); word; word = strtok_r(NULL, " ", &at))
		add_code(refusals, error_code_from_name(word));
}

static void collect_codes(struct refusals *refusals, const struct route *route)
{
	bool body = route->body != NULL;

	if (body)
		add_code(refusals, ERR_INVALID_JSON);
	if (body || route->query)
		add_code(refusals, ERR_VALIDATION);
	/* A bad token is refused, also where none is needed. */
	add_code(refusals, ERR_UNAUTHENTICATED);
	add_code(refusals, ERR_TOO_MANY);
	/* X-Paperclip-Run-Id must name a run that the request can belong to. */
	if (route->access != ACCESS_PUBLIC)
		add_code(refusals, ERR_UNPROCESSABLE);
	/* A token can be made for some permissions only, so that any route may be closed to it. */
	if (route->access != ACCESS_PUBLIC)
		add_code(refusals, ERR_FORBIDDEN);
	if (strchr(route->path, ':'))
		add_code(refusals, ERR_NOT_FOUND);
	if (body)
		add_code(refusals, ERR_TOO_LARGE);
	if (body || route->flags & ROUTE_RAW_BODY)
		add_code(refusals, ERR_MEDIA_TYPE);
	if (route->flags & ROUTE_IDEMPOTENT_KEY) {
		add_code(refusals, ERR_IDEMPOTENCY);
		add_code(refusals, ERR_IDEMPOTENCY_BUSY);
	}
	add_own_codes(refusals, route);
}

static json_t *refusal(json_t *codes)
{
	_cleanup_buf_ struct buf words = { 0 };

	for (size_t i = 0; i < json_array_size(codes); i++)
		buf_printf(&words, "%s`%s`", i ? ", " : "",
			   json_string_value(json_array_get(codes, i)));
	return json_pack("{s:s,s:{s:{s:{s:[{s:s},{s:s,s:{s:{s:O}}}]}}}}", "description",
			 buf_str(&words), "content", "application/json", "schema", "allOf", "$ref",
			 "#/components/schemas/Error", "type", "object", "properties", "code",
			 "enum", codes);
}

static void add_refusals(json_t *responses, const struct route *route)
{
	_cleanup_json_ json_t *by_status = json_object();
	struct refusals refusals = { by_status };

	collect_codes(&refusals, route);
	for (int status = 400; status < 600; status++) {
		char key[8];
		json_t *codes;

		snprintf(key, sizeof(key), "%d", status);
		codes = json_object_get(by_status, key);
		if (codes)
			json_put_new(responses, key, refusal(codes));
	}
	json_put_new(responses, "default",
		     json_pack("{s:s}", "$ref", "#/components/responses/Refused"));
}

/* ---- the document ---- */

static json_t *operation(const struct route *route)
{
	json_t *o = json_object(), *responses = json_object();
	_cleanup_json_ json_t *parameters = parameters_of(route);
	_cleanup_free_ char *id = operation_id(route), *tag = tag_of(route->path);

	json_put_str(o, "operationId", id);
	json_put_str(o, "summary", route->summary);
	json_put_new(o, "tags", json_pack("[s]", tag));
	if (route->access == ACCESS_PUBLIC)
		json_put_new(o, "security", json_array());
	json_put_str(o, "x-berth-access", ACCESS[route->access]);
	if (route->flags & ROUTE_GATE)
		json_put_bool(o, "x-berth-gate", true);
	if (json_array_size(parameters))
		json_put_ref(o, "parameters", parameters);
	if (route->body || route->flags & ROUTE_RAW_BODY)
		json_put_new(o, "requestBody", body_of(route));
	add_success(responses, route);
	add_refusals(responses, route);
	json_put_new(o, "responses", responses);
	return o;
}

static void add_route(json_t *paths, const struct route *route)
{
	_cleanup_free_ char *path = template_of(route->path);
	json_t *item = json_object_get(paths, path);
	char method[16];
	size_t n = 0;

	if (!item) {
		item = json_object();
		json_put_new(paths, path, item);
	}
	for (const char *m = http_method_name(route->method); *m && n < sizeof(method) - 1; m++)
		method[n++] = (char)tolower(*m);
	method[n] = '\0';
	json_put_new(item, method, operation(route));
}

static json_t *error_schema(void)
{
	return json_pack("{s:s,s:s,s:[s,s],s:{s:{s:s,s:s},s:{s:s,s:s},s:{s:s}}}", "type", "object",
			 "description", "What every refusal looks like", "required", "error",
			 "code", "properties", "error", "type", "string", "description",
			 "For people", "code", "type", "string", "description",
			 "For programs; stable", "details", "description",
			 "More, by code; of validation_error an array of {path, message, code}");
}

static json_t *components(void)
{
	json_t *schemas = json_object(), *everywhere = json_array();
	json_t *bearer =
		json_pack("{s:s,s:s,s:s}", "type", "http", "scheme", "bearer", "description",
			  "A token of `berth token create`. The server's own user and "
			  "root need none on the unix socket and on loopback.");

	json_put_new(schemas, "Error", error_schema());
	for (const struct shape *shape = SHAPES; shape->name; shape++)
		json_put_new(schemas, shape->name, shape_schema(shape));
	for (size_t i = 0; i < ARRAY_SIZE(EVERYWHERE); i++)
		json_array_append_new(everywhere, json_string(error_code_name(EVERYWHERE[i])));

	json_t *refused = refusal(everywhere);

	json_decref(everywhere);
	return json_pack("{s:o,s:{s:o},s:{s:o}}", "schemas", schemas, "responses", "Refused",
			 refused, "securitySchemes", "bearer", bearer);
}

json_t *openapi_document(void)
{
	json_t *document = json_object(), *paths = json_object();

	json_put_str(document, "openapi", "3.1.0");
	json_put_new(document, "info",
		     json_pack("{s:s,s:s,s:s,s:{s:s,s:s}}", "title", "Berth", "version",
			       BERTH_VERSION, "description",
			       "Leased places to execute for AI agents. Times are ISO 8601 in UTC; "
			       "bodies are strict: a key that is not listed is refused.",
			       "license", "name", "Apache-2.0", "identifier", "Apache-2.0"));
	json_put_new(document, "servers", json_pack("[{s:s}]", "url", "/"));
	/* The empty one is local trust, which needs nothing. */
	json_put_new(document, "security", json_pack("[{s:[]},{}]", "bearer"));
	for (size_t t = 0; route_table_at(t); t++)
		for (const struct route *route = route_table_at(t); route->path; route++)
			add_route(paths, route);
	json_put_new(document, "paths", paths);
	json_put_new(document, "components", components());
	return document;
}

static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	(void)arg;
	(void)request;
	(void)err;
	return answer(response, 200, openapi_document());
}

ROUTES(OPENAPI_ROUTES, 210) = {
	{ HTTP_GET, "/api/openapi.json", .run = show, .answer = "object", .access = ACCESS_PUBLIC,
	  .summary = "This description" },
	{ 0 },
};

#include <string.h>
#include <strings.h>
#include "base/log.h"
#include "base/text.h"
#include "http/exchange.h"
#include "http/trust.h"
#include "http/websocket.h"

#define KEY_MAX 255

static const struct {
	const char *name;
	size_t offset;
	bool may_repeat;
} HEADERS[] = {
	{ "host", offsetof(struct headers, host), false },
	{ "origin", offsetof(struct headers, origin), false },
	{ "content-type", offsetof(struct headers, content_type), false },
	{ "content-length", offsetof(struct headers, content_length), false },
	{ "transfer-encoding", offsetof(struct headers, transfer_encoding), false },
	{ "expect", offsetof(struct headers, expect), false },
	{ "accept", offsetof(struct headers, accept), true },
	{ "x-request-id", offsetof(struct headers, request_id), true },
	{ "idempotency-key", offsetof(struct headers, idempotency_key), false },
	{ "range", offsetof(struct headers, range), false },
	{ "last-event-id", offsetof(struct headers, last_event_id), false },
	{ "connection", offsetof(struct headers, connection), true },
	{ "upgrade", offsetof(struct headers, upgrade), false },
	{ "sec-websocket-key", offsetof(struct headers, websocket_key), false },
	{ "sec-websocket-version", offsetof(struct headers, websocket_version), false },
	{ "authorization", offsetof(struct headers, authorization), false },
	{ "x-paperclip-run-id", offsetof(struct headers, run_id), false },
	/* What a proxy leaves behind. */
	{ "forwarded", offsetof(struct headers, forwarded), true },
	{ "via", offsetof(struct headers, forwarded), true },
	{ "x-forwarded-for", offsetof(struct headers, forwarded), true },
	{ "x-forwarded-host", offsetof(struct headers, forwarded), true },
	{ "x-forwarded-proto", offsetof(struct headers, forwarded), true },
	{ "x-real-ip", offsetof(struct headers, forwarded), true },
	{ "cf-connecting-ip", offsetof(struct headers, forwarded), true },
	{ "true-client-ip", offsetof(struct headers, forwarded), true },
	/* What a browser says of the page that asks. */
	{ "sec-fetch-site", offsetof(struct headers, fetch_site), false },
};

static bool is_token(const char *name)
{
	static const char TOKEN[] = "!#$%&'*+-.^_`|~0123456789"
				    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

	return *name && name[strspn(name, TOKEN)] == 0;
}

static bool is_plain(const char *value)
{
	for (; *value; value++)
		if (((unsigned char)*value < 0x20 && *value != '\t') || *value == 0x7f)
			return false;
	return true;
}

/*
 * Where headers are left as they arrived, a line begins two bytes behind the last byte of the one
 * before: CR and LF. A bare LF or CR, a NUL and a folded line each show as another distance.
 */
static void note_line(struct headers *headers, const char *name, const char *value)
{
	if (!is_token(name))
		headers->malformed = "the name of a header has a space or another letter that none "
				     "may have";
	else if (!is_plain(value))
		headers->malformed = "a header has a control character in it";
	else if (headers->shows_lines && name != headers->line_end + 2)
		headers->malformed = "each line must end with CR and LF, and none may be folded or "
				     "have a NUL in it";
	headers->line_end = value + strlen(value);
}

/* The last line and the empty one behind it; the library's buffer goes on beyond both. */
static void note_last_line(struct headers *headers)
{
	static const char ends[4];

	if (headers->shows_lines && !headers->malformed &&
	    memcmp(headers->line_end, ends, sizeof(ends)) != 0)
		headers->malformed = "each line must end with CR and LF";
}

static enum MHD_Result note_header(void *arg, enum MHD_ValueKind kind, const char *name,
				   const char *value)
{
	struct headers *headers = arg;
	(void)kind;

	note_line(headers, name, value ? value : "");
	for (size_t i = 0; i < ARRAY_SIZE(HEADERS); i++) {
		const char **slot = (const char **)((char *)headers + HEADERS[i].offset);

		if (strcasecmp(HEADERS[i].name, name) != 0)
			continue;
		if (*slot && !HEADERS[i].may_repeat)
			headers->repeated = true;
		else if (!*slot)
			*slot = value ? value : "";
	}
	return MHD_YES;
}

/* Two readers of these bytes must not come to two lengths. */
static int check_framing(struct exchange *exchange, struct error *err)
{
	const struct headers *headers = &exchange->headers;

	exchange->must_close = true;
	if (headers->malformed)
		return error_set(err, ERR_BAD_REQUEST, "%s", headers->malformed);
	if (headers->repeated)
		return error_set(err, ERR_BAD_REQUEST, "a header is given twice in the request");
	if (headers->content_length && headers->transfer_encoding)
		return error_set(err, ERR_BAD_REQUEST,
				 "Content-Length and Transfer-Encoding exclude each other");
	if (headers->transfer_encoding && strcasecmp(headers->transfer_encoding, "chunked") != 0)
		return error_set(err, ERR_BAD_REQUEST,
				 "the only Transfer-Encoding known here is chunked");
	exchange->must_close = false;
	return 0;
}

static int check_same_origin(const struct headers *headers, struct error *err)
{
	if (headers->origin && !origin_is_same(headers->origin, headers->host))
		return error_set(err, ERR_BAD_ORIGIN, "pages of other sites are not served here");
	return 0;
}

static int check_origin(const struct exchange *exchange, struct error *err)
{
	const struct http *http = exchange->connection->http;
	const struct headers *headers = &exchange->headers;
	bool wide = exchange->connection->is_wide;

	/* Browsers send it themselves; a page cannot leave it out or change it. */
	if (headers->fetch_site && strcasecmp(headers->fetch_site, "cross-site") == 0)
		return error_set(err, ERR_BAD_ORIGIN, "pages of other sites are not served here");
	if (wide && headers->host && host_is_address(headers->host))
		return check_same_origin(headers, err);
	/* No web page reaches a unix socket, so what stands in Host there is decoration. */
	if (!exchange->connection->is_unix &&
	    (!headers->host || !host_is_ours(headers->host, http->port, http->allowed_hosts)))
		return error_set(err, ERR_BAD_HOST,
				 "the Host header does not name this server; use localhost:%d or "
				 "127.0.0.1:%d, or start it with --allowed-host",
				 http->port, http->port);
	if (headers->origin && !origin_is_ours(headers->origin, http->port, http->allowed_hosts))
		return error_set(err, ERR_BAD_ORIGIN, "pages of other sites are not served here");
	return 0;
}

static int find_route(struct exchange *exchange, const char *method, size_t target_len,
		      struct error *err)
{
	struct request *request = &exchange->request;
	_cleanup_buf_ struct buf path = { 0 };
	size_t len = strlen(exchange->raw_url);

	/* What stands behind a NUL was said, but no C string shows it. */
	if (len <= HTTP_MAX_URL && len != target_len)
		return error_set(err, ERR_BAD_PATH, "the URL has a NUL in it");
	if (url_parse(exchange->raw_url, &exchange->url, err) < 0)
		return -1;
	for (size_t i = 0; i < exchange->url.segments; i++) {
		buf_putc(&path, '/');
		buf_puts(&path, exchange->url.segment[i]);
	}
	exchange->path = buf_steal(&path);
	request->path = exchange->path[0] ? exchange->path : "/";
	request->url = &exchange->url;
	if (!http_method_parse(method, &request->method))
		request->method = 0;
	request->route = router_find(exchange->connection->http->router, request->method,
				     &exchange->url, request->param, &exchange->allowed);
	if (request->route)
		return 0;
	if (exchange->allowed)
		return error_set(err, ERR_METHOD, "%.16s is not possible here", method);
	return error_set(err, ERR_NOT_FOUND, "there is no such path: %.200s", request->path);
}

/* A token counts for itself: a bad one is refused, whoever else its bearer may be. */
static int take_bearer(struct exchange *exchange, struct error *err)
{
	struct http *http = exchange->connection->http;
	const struct peer *peer = &exchange->connection->peer;
	const char *bearer = bearer_of(exchange->headers.authorization);

	exchange->retry_after_ms = failures_wait_ms(http->failures, peer);
	if (exchange->retry_after_ms)
		return error_set(err, ERR_TOO_MANY,
				 "too many bad tokens from this address; try again later");
	if (!bearer)
		error_set(err, ERR_UNAUTHENTICATED, "the Authorization header must be a bearer");
	else if (!http->access.authenticate)
		error_set(err, ERR_UNAUTHENTICATED, "no tokens are known here");
	else if (http->access.authenticate(http->server, bearer, &exchange->request.actor, err) ==
		 0)
		return 0;
	if (err->code == ERR_UNAUTHENTICATED)
		failures_note(http->failures, peer);
	return -1;
}

/*
 * Without a token there is only local trust. What came through a proxy is somebody else's request,
 * whatever user the proxy runs as.
 */
static int check_caller(struct exchange *exchange, struct error *err)
{
	struct request *request = &exchange->request;
	const struct headers *headers = &exchange->headers;
	const struct route *route = request->route;

	if (headers->authorization)
		return take_bearer(exchange, err);
	if (exchange->connection->trust == TRUST_YES)
		request->actor = (struct actor){
			.type = "user", .id = "local", .kind = ACTOR_LOCAL, .is_admin = true
		};
	else if (route && route->access == ACCESS_PUBLIC)
		request->actor = (struct actor){ .type = "public", .id = "anonymous" };
	else
		return error_set(err, ERR_UNAUTHENTICATED,
				 "without a token only the user this server runs as, and root, may "
				 "use it");
	return 0;
}

/*
 * Known callers may name their request, so that one name leads through their logs and ours. What
 * does not look like a name is not taken, and no error: the id is for people.
 */
static void take_request_id(struct exchange *exchange)
{
	static const char NAME[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	const char *wanted = exchange->headers.request_id;
	struct request *request = &exchange->request;

	if (!wanted || request->actor.kind == ACTOR_NOBODY)
		return;

	size_t len = strlen(wanted);

	if (len < 8 || len >= sizeof(request->id) || strspn(wanted, NAME) != len)
		return;
	snprintf(request->id, sizeof(request->id), "%s", wanted);
	log_set_request(request->id);
}

static json_t *query_value(const struct field *field, const char *text)
{
	int64_t number;

	if (field->type == FIELD_INT && parse_i64(text, INT64_MIN, INT64_MAX, &number))
		return json_integer(number);
	if (field->type == FIELD_BOOL && (streq(text, "1") || streq(text, "true")))
		return json_true();
	if (field->type == FIELD_BOOL && (streq(text, "0") || streq(text, "false")))
		return json_false();
	return json_string(text);
}

static int check_query(const struct exchange *exchange, struct error *err)
{
	static const struct field NONE[] = { { 0 } };
	const struct field *fields = exchange->request.route->query;
	_cleanup_json_ json_t *query = NULL;

	/* As most requests are. */
	if (!fields && !exchange->url.queries)
		return 0;
	query = json_object();
	fields = fields ? fields : NONE;
	for (size_t i = 0; i < exchange->url.queries; i++) {
		const struct field *field = fields;

		while (field->name && !streq(field->name, exchange->url.query_key[i]))
			field++;
		json_put_new(query, exchange->url.query_key[i],
			     query_value(field, exchange->url.query_value[i]));
	}
	if (fields_check(fields, query, err) < 0)
		return error_wrap(err, "query");
	return 0;
}

/* A media type, alone or with the one parameter it may have. */
static bool is_type(const char *header, const char *type, const char *parameter)
{
	size_t len = strlen(type);

	if (!header || strncasecmp(header, type, len) != 0)
		return false;

	const char *rest = header + len;

	rest += strspn(rest, " 	");
	if (!*rest)
		return true;
	if (*rest != ';')
		return false;
	rest += 1 + strspn(rest + 1, " 	");
	return !*rest || (parameter && strcasecmp(rest, parameter) == 0);
}

static bool is_json(const char *header)
{
	return is_type(header, "application/json", "charset=utf-8") ||
	       is_type(header, "application/json", "charset=\"utf-8\"");
}

int64_t exchange_declared_length(const struct exchange *exchange)
{
	int64_t length = 0;

	if (exchange->headers.transfer_encoding)
		return -1;
	if (exchange->headers.content_length &&
	    !parse_i64(exchange->headers.content_length, 0, INT64_MAX, &length))
		return INT64_MAX;
	return length;
}

static int check_body(const struct exchange *exchange, struct error *err)
{
	const struct http *http = exchange->connection->http;
	const struct route *route = exchange->request.route;
	int64_t length = exchange_declared_length(exchange);

	if (length == 0)
		return 0;
	if (route->flags & ROUTE_RAW_BODY) {
		if (!is_type(exchange->headers.content_type, "application/octet-stream", NULL))
			return error_set(err, ERR_MEDIA_TYPE,
					 "the body must be application/octet-stream");
		return 0;
	}
	if (!route->body)
		return error_set(err, ERR_BAD_REQUEST, "%s %s takes no body",
				 http_method_name(route->method), route->path);
	if (length > http->max_body)
		return error_set(err, ERR_TOO_LARGE, "the body is longer than %lld bytes",
				 (long long)http->max_body);
	if (!is_json(exchange->headers.content_type))
		return error_set(err, ERR_MEDIA_TYPE, "the body must be application/json");
	return 0;
}

static int check_key(const struct exchange *exchange, struct error *err)
{
	const char *key = exchange->headers.idempotency_key;

	if (!key)
		return 0;

	size_t len = strlen(key);

	if (!len || len > KEY_MAX)
		return error_set(err, ERR_BAD_REQUEST,
				 "Idempotency-Key must have 1 to %d characters", KEY_MAX);
	for (size_t i = 0; i < len; i++)
		if (key[i] < 0x20 || key[i] > 0x7e)
			return error_set(err, ERR_BAD_REQUEST,
					 "Idempotency-Key must be plain ASCII");
	return 0;
}

static int check_upgrade(const struct exchange *exchange, struct error *err)
{
	const struct headers *headers = &exchange->headers;

	if (!(exchange->request.route->flags & ROUTE_WEBSOCKET))
		return 0;
	if (!header_has_token(headers->connection, "upgrade") ||
	    !header_has_token(headers->upgrade, "websocket"))
		return error_set(err, ERR_BAD_REQUEST, "this path speaks WebSocket only");
	if (!str_equal(headers->websocket_version, "13"))
		return error_set(err, ERR_BAD_REQUEST,
				 "the only Sec-WebSocket-Version known here is 13");
	if (!headers->websocket_key || !websocket_key_is_valid(headers->websocket_key))
		return error_set(err, ERR_BAD_REQUEST,
				 "Sec-WebSocket-Key is not 16 bytes in base64");
	return 0;
}

int exchange_check(struct exchange *exchange, const char *method, size_t target_len,
		   struct error *err)
{
	struct request *request = &exchange->request;

	exchange->headers.line_end = exchange->line_end;
	exchange->headers.shows_lines = exchange->connection->http->shows_lines;
	MHD_get_connection_values(exchange->mhd, MHD_HEADER_KIND, note_header, &exchange->headers);
	note_last_line(&exchange->headers);
	/* Who else's requests come over it is the proxy's to know, so none of them is ours. */
	if (exchange->headers.forwarded)
		exchange->connection->trust = TRUST_NO;
	request->accept = exchange->headers.accept;
	request->range = exchange->headers.range;
	request->last_event_id = exchange->headers.last_event_id;
	request->idempotency_key = exchange->headers.idempotency_key;
	request->run_header = exchange->headers.run_id;
	if (check_framing(exchange, err) < 0 || check_origin(exchange, err) < 0)
		return -1;

	int found = find_route(exchange, method, target_len, err);

	/* A stranger learns nothing about which paths there are. */
	if (check_caller(exchange, err) < 0)
		return -1;
	if (request->actor.kind != ACTOR_NOBODY)
		connection_is_met(exchange->connection);
	take_request_id(exchange);
	if (found < 0)
		return -1;
	request->content_length = exchange_declared_length(exchange);
	if (check_query(exchange, err) < 0 || check_key(exchange, err) < 0 ||
	    check_upgrade(exchange, err) < 0)
		return -1;
	return check_body(exchange, err);
}

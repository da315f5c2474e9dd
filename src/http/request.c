#include "base/log.h"
#include "record/member.h"
#include "base/metric.h"
#include "base/text.h"
#include "http/exchange.h"

/* A refused body is read past up to here, so that its sender gets to read the answer. */
#define DISCARD_MAX (32 << 20)
#define BODY_BUDGET (128 << 20) /* bytes of bodies in memory at one time */
#define BODY_MS 120000          /* for the whole of one body */
#define SLOW_MS 5000            /* from here on a request is worth a line in the log */

METRIC_HISTOGRAM(
	REQUEST_SECONDS, "berth_http_request_seconds", "",
	"From the first line of a request to the last byte of its answer, streams left out");

const char *request_query(const struct request *request, const char *key)
{
	for (size_t i = 0; i < request->url->queries; i++)
		if (streq(request->url->query_key[i], key))
			return request->url->query_value[i];
	return NULL;
}

int request_query_int(const struct request *request, const char *key, int64_t min, int64_t max,
		      int64_t fallback, int64_t *out, struct error *err)
{
	const char *text = request_query(request, key);

	*out = fallback;
	if (text && !parse_i64(text, min, max, out))
		return error_set(err, ERR_VALIDATION,
				 "query: %s must be a number from %lld to %lld", key,
				 (long long)min, (long long)max);
	return 0;
}

bool request_query_flag(const struct request *request, const char *key, bool fallback)
{
	const char *text = request_query(request, key);

	return text ? streq(text, "1") || streq(text, "true") : fallback;
}

bool request_may(const struct request *request, const char *permission)
{
	enum permission wanted;

	return permission_parse(permission, &wanted) &&
	       request->permissions & PERMISSION_BIT(wanted);
}

/*
 * Every request passes here twice, so the lock is for the last one only, whom somebody may wait
 * for. The time comes before the count: who sees nobody busy sees since when.
 */
static void note_idle(struct http *http)
{
	atomic_store(&http->idle_since, clock_mono(http->clock));
	if (atomic_fetch_sub(&http->busy, 1) > 1)
		return;
	pthread_mutex_lock(&http->lock);
	pthread_cond_broadcast(&http->quiet);
	pthread_mutex_unlock(&http->lock);
}

/*
 * An id for people to find their way through logs: unlike its neighbours, but no secret, so the
 * kernel is asked for randomness once and not at every request.
 */
static void request_id(struct http *http, char out[ID_SIZE])
{
	uint64_t n = atomic_fetch_add_explicit(&http->requests, 1, memory_order_relaxed);
	uint64_t mixed[2];
	char hex[33];

	for (size_t i = 0; i < 2; i++) {
		uint64_t z = http->id_seed[i] + (n + 1) * 0x9e3779b97f4a7c15u;

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
		mixed[i] = z ^ (z >> 31);
	}
	hex_encode(hex, mixed, sizeof(mixed));
	memcpy(out, hex, 8);
	memcpy(out + 9, hex + 8, 4);
	memcpy(out + 14, hex + 12, 4);
	memcpy(out + 19, hex + 16, 4);
	memcpy(out + 24, hex + 20, 13);
	out[8] = out[13] = out[18] = out[23] = '-';
	out[14] = '8'; /* one's own way of making it */
	out[19] = 'a';
}

struct exchange *exchange_new(struct http_connection *connection, struct MHD_Connection *mhd,
			      const char *raw_url)
{
	struct exchange *exchange = xcalloc(1, sizeof(*exchange));

	exchange->connection = connection;
	exchange->mhd = mhd;
	exchange->raw_url = xstrndup(raw_url, HTTP_MAX_URL + 1);
	exchange->began = clock_mono(connection->http->clock);
	exchange->began_us = metric_now_us();
	exchange->request.connection = connection;
	exchange->request.http = connection->http;
	request_id(connection->http, exchange->request.id);
	log_set_request(exchange->request.id);
	atomic_fetch_add(&connection->http->busy, 1);
	return exchange;
}

/* What the request brought, in memory until the handler is done with it. */
static void drop_request(struct exchange *exchange)
{
	struct body_sink sink = exchange->sink;

	exchange->sink = (struct body_sink){ 0 };
	if (sink.close)
		sink.close(sink.arg);
	atomic_fetch_sub(&exchange->connection->http->body_bytes, (int64_t)exchange->body.len);
	buf_free(&exchange->body);
	json_decref(exchange->request.body);
	exchange->request.body = NULL;
	url_clear(&exchange->url);
}

/* Counts it, and writes it down: trouble for everybody, the rest for those who want to see all. */
static void note_end(const struct exchange *exchange)
{
	const struct request *request = &exchange->request;
	const struct route *route = request->route;
	int64_t us = metric_now_us() - exchange->began_us;
	bool streams = route && route->flags & (ROUTE_STREAM | ROUTE_WEBSOCKET);
	bool trouble = exchange->status >= 500 || (us / 1000 >= SLOW_MS && !streams);
	enum log_level level = trouble ? LOG_INFO_ : LOG_DEBUG_;

	router_count(exchange->connection->http->router, route, exchange->status);
	if (!streams)
		metric_observe_us(&REQUEST_SECONDS, us);
	if (log_wants(level))
		log_with(level, "request",
			 LOG_TEXT_FIELD("method", http_method_name(request->method)),
			 LOG_TEXT_FIELD("path", exchange->path ? exchange->path : "?"),
			 LOG_INT_FIELD("status", exchange->status), LOG_INT_FIELD("ms", us / 1000),
			 LOG_TEXT_FIELD("actor", request->actor.id));
}

void exchange_free(struct exchange *exchange)
{
	struct http *http = exchange->connection->http;

	note_end(exchange);
	drop_request(exchange);
	if (exchange->session.close)
		exchange->session.close(exchange->session.arg);
	error_clear(&exchange->err);
	free(exchange->path);
	free(exchange->raw_url);
	free(exchange);
	log_set_request(NULL);
	note_idle(http);
}

/* What a refusal says besides its body. */
static void put_error_headers(struct response *response, const struct exchange *exchange,
			      enum error_code code)
{
	char text[sizeof(response->header_value[0])];

	if (code == ERR_METHOD) {
		http_methods_text(exchange->allowed, text, sizeof(text));
		response_header(response, "Allow", text);
	} else if (code == ERR_UNAUTHENTICATED) {
		response_header(response, "WWW-Authenticate", "Bearer");
	} else if (code == ERR_TOO_MANY && exchange->retry_after_ms) {
		snprintf(text, sizeof(text), "%lld",
			 (long long)((exchange->retry_after_ms + 999) / 1000));
		response_header(response, "Retry-After", text);
	}
}

static enum MHD_Result send_error(struct exchange *exchange, struct error *err, bool raw)
{
	struct response response = { 0 };
	enum error_code code = err->code;

	exchange->status = error_http_status(err->code);
	if (exchange->status >= 500)
		log_warn("%s failed: %s (%s)", exchange->path ? exchange->path : "?", err->message,
			 error_code_name(err->code));
	response_error(&response, err);
	put_error_headers(&response, exchange, code);
	if (!raw)
		return response_send(&response, exchange);
	response_send_raw(&response, exchange);
	return MHD_NO;
}

/*
 * A request that cannot succeed is still read to its end where that is cheap: answering earlier
 * makes libmicrohttpd close the connection under the sender's hands. One that asked first (Expect)
 * is told at once, and one that is too long to read past gets the raw answer.
 */
static enum MHD_Result refuse(struct exchange *exchange)
{
	int64_t length = exchange_declared_length(exchange);

	exchange->refused = true;
	/* A stranger's body could drip for as long as it likes. */
	if (exchange->must_close || length > DISCARD_MAX ||
	    (length != 0 && !exchange->connection->is_known))
		return send_error(exchange, &exchange->err, true);
	if (length != 0 && exchange->headers.expect)
		return send_error(exchange, &exchange->err, false);
	return MHD_YES;
}

static int keep(struct exchange *exchange, const char *data, size_t len)
{
	struct http *http = exchange->connection->http;
	int64_t add = (int64_t)len;

	if (exchange->received > http->max_body)
		return error_set(&exchange->err, ERR_TOO_LARGE,
				 "the body is longer than %lld bytes", (long long)http->max_body);
	if (atomic_fetch_add(&http->body_bytes, add) + add > BODY_BUDGET) {
		atomic_fetch_sub(&http->body_bytes, add);
		return error_set(&exchange->err, ERR_UNAVAILABLE,
				 "too many large requests at one time; try again");
	}
	buf_append(&exchange->body, data, len);
	return 0;
}

static bool is_raw(const struct exchange *exchange)
{
	const struct route *route = exchange->request.route;

	return route && route->flags & ROUTE_RAW_BODY;
}

/*
 * The idle limit counts from the last byte on the wire, so it would cut off whatever took longer to
 * make. Setting it again from zero starts it anew.
 */
static void suspend_idle_limit(struct exchange *exchange)
{
	MHD_set_connection_option(exchange->mhd, MHD_CONNECTION_OPTION_TIMEOUT, 0U);
}

static void resume_idle_limit(struct exchange *exchange)
{
	MHD_set_connection_option(exchange->mhd, MHD_CONNECTION_OPTION_TIMEOUT,
				  exchange->connection->http->idle_seconds);
}

static int authorize(struct exchange *exchange, struct error *err)
{
	struct http *http = exchange->connection->http;
	struct request *request = &exchange->request;

	if (http->access.authorize)
		return http->access.authorize(http->server, request, err);
	request->permissions = request->actor.is_admin ? PERMISSIONS_ALL : 0;
	return 0;
}

static int open_sink(struct exchange *exchange, struct error *err)
{
	struct request *request = &exchange->request;

	if (!is_raw(exchange))
		return 0;
	request->sink = &exchange->sink;
	suspend_idle_limit(exchange);

	int r = authorize(exchange, err);

	if (r == 0)
		r = request->route->open(exchange->connection->http->server, request,
					 &exchange->sink, err);

	resume_idle_limit(exchange);
	return r;
}

static int pass_on(struct exchange *exchange, const char *data, size_t len)
{
	suspend_idle_limit(exchange);

	int r = exchange->sink.chunk(exchange->sink.arg, data, len, &exchange->err);

	resume_idle_limit(exchange);
	return r;
}

static enum MHD_Result take_upload(struct exchange *exchange, const char *data, size_t len)
{
	struct http *http = exchange->connection->http;
	bool raw = is_raw(exchange);

	exchange->received += (int64_t)len;
	if (!raw && clock_mono(http->clock) - exchange->began > BODY_MS) {
		error_set(&exchange->err, ERR_TIMEOUT, "the body took too long to arrive");
		return send_error(exchange, &exchange->err, true);
	}
	if (!exchange->refused &&
	    (raw ? pass_on(exchange, data, len) : keep(exchange, data, len)) < 0) {
		exchange->refused = true;
		drop_request(exchange);
	}
	if (exchange->refused && exchange->received > DISCARD_MAX)
		return send_error(exchange, &exchange->err, true);
	return MHD_YES;
}

static int read_body(struct exchange *exchange, struct error *err)
{
	struct request *request = &exchange->request;
	const struct route *route = request->route;
	const char *text = buf_str(&exchange->body);
	size_t len = exchange->body.len;

	request->raw_body = text;
	request->raw_body_len = len;
	if (!route->body)
		return 0;
	if (!len && !(route->flags & ROUTE_NO_BODY_OK))
		return error_set(err, ERR_INVALID_JSON, "a JSON body is needed");
	request->body = len ? body_parse(text, len, route->body, err)
			    : body_parse("{}", 2, route->body, err);
	return request->body ? 0 : -1;
}

static int run_handler(struct exchange *exchange, struct response *response, struct error *err)
{
	struct request *request = &exchange->request;

	if (read_body(exchange, err) < 0 || (!is_raw(exchange) && authorize(exchange, err) < 0))
		return -1;
	if (request->route->run(exchange->connection->http->server, request, response, err) == 0)
		return 0;
	if (err->code == ERR_NONE)
		error_set(err, ERR_INTERNAL, "the request failed without saying why");
	return -1;
}

static enum MHD_Result answer(struct exchange *exchange)
{
	struct response response = { 0 };
	_cleanup_error_ struct error err = { 0 };

	/* A stream that has nothing to say may take its time as well. */
	suspend_idle_limit(exchange);

	int result = run_handler(exchange, &response, &err);

	exchange->status = response.status ? response.status : MHD_HTTP_OK;
	drop_request(exchange);
	if (!response.stream.next || result < 0)
		resume_idle_limit(exchange);
	if (result == 0 && response.direct && exchange_is_plain(exchange)) {
		response_send_direct(&response, exchange);
		return MHD_NO;
	}
	if (result == 0 && response.stream.next_stretch && exchange->is_http_1_1 &&
	    exchange_is_plain(exchange)) {
		response_send_stretches(&response, exchange);
		return MHD_NO;
	}
	if (result == 0)
		return response_send(&response, exchange);
	response_clear(&response);
	return send_error(exchange, &err, false);
}

enum MHD_Result exchange_step(struct exchange *exchange, const char *method, size_t target_len,
			      const char *upload, size_t *upload_len)
{
	if (!exchange->opened) {
		exchange->opened = true;
		if (!connection_has_head(exchange->connection))
			return MHD_NO;
		if (exchange_check(exchange, method, target_len, &exchange->err) < 0 ||
		    open_sink(exchange, &exchange->err) < 0)
			return refuse(exchange);
		return MHD_YES;
	}
	if (*upload_len) {
		size_t len = *upload_len;

		*upload_len = 0;
		return take_upload(exchange, upload, len);
	}
	if (exchange->refused)
		return send_error(exchange, &exchange->err, false);
	return answer(exchange);
}

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include "base/text.h"
#include "http/exchange.h"
#include "http/tls.h"

#define LINGER_MS 2000
#define LINGER_BYTES (64 << 20)

void response_json(struct response *response, int status, json_t *json)
{
	json_decref(response->json);
	response->status = status;
	response->json = json;
}

void response_stream(struct response *response, const char *content_type,
		     const struct stream *stream)
{
	response->content_type = content_type;
	response->stream = *stream;
}

void response_websocket(struct response *response, const struct websocket_session *session)
{
	response->status = MHD_HTTP_SWITCHING_PROTOCOLS;
	response->session = *session;
}

void response_header(struct response *response, const char *name, const char *value)
{
	for (size_t i = 0; i < ARRAY_SIZE(response->header_name); i++) {
		if (response->header_name[i][0])
			continue;
		snprintf(response->header_name[i], sizeof(response->header_name[i]), "%s", name);
		snprintf(response->header_value[i], sizeof(response->header_value[i]), "%s", value);
		return;
	}
}

void response_error(struct response *response, struct error *err)
{
	json_t *body = json_object();

	response_clear(response);
	json_put_str(body, "error", err->message);
	json_put_str(body, "code", error_code_name(err->code));
	if (err->details)
		json_put_new(body, "details", json_parse(err->details, strlen(err->details), NULL));
	response_json(response, error_http_status(err->code), body);
}

void response_clear(struct response *response)
{
	json_decref(response->json);
	free(response->text);
	if (response->stream.close)
		response->stream.close(response->stream.arg);
	if (response->session.close)
		response->session.close(response->session.arg);
	*response = (struct response){ 0 };
}

/* The text of an answer that is no stream; the response no longer owns it. */
static char *take_text(struct response *response)
{
	char *text = steal(response->text);

	if (text)
		return text;
	return response->json ? json_text(response->json) : xstrdup("");
}

static const char *content_type(const struct response *response)
{
	return response->content_type ? response->content_type : "application/json";
}

size_t response_headers(const struct response *response, const struct exchange *exchange,
			struct header out[8])
{
	size_t n = 0;

	if (!response->session.run)
		out[n++] = (struct header){ "Content-Type", content_type(response) };
	out[n++] = (struct header){ "X-Request-Id", exchange->request.id };
	out[n++] = (struct header){ "Cache-Control", "no-store" };
	out[n++] = (struct header){ "X-Content-Type-Options", "nosniff" };
	out[n++] = (struct header){ "Cross-Origin-Resource-Policy", "same-origin" };
	for (size_t i = 0; i < ARRAY_SIZE(response->header_name); i++)
		if (response->header_name[i][0])
			out[n++] = (struct header){ response->header_name[i],
						    response->header_value[i] };
	return n;
}

enum MHD_Result response_send(struct response *response, struct exchange *exchange)
{
	unsigned status = response->status ? (unsigned)response->status : MHD_HTTP_OK;
	struct header headers[8];
	size_t count = response_headers(response, exchange, headers);
	struct MHD_Response *answer;

	if (response->session.run) {
		exchange->session = response->session;
		response->session = (struct websocket_session){ 0 };
		answer = upgrade_response(exchange);
	} else if (response->stream.next) {
		answer = stream_response(&response->stream,
					 response->has_length ? response->length : -1, exchange);
		response->stream = (struct stream){ 0 };
	} else {
		char *text = take_text(response);

		answer = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
		if (!answer)
			free(text);
	}

	enum MHD_Result queued = answer ? MHD_YES : MHD_NO;

	for (size_t i = 0; queued == MHD_YES && i < count; i++)
		queued = MHD_add_response_header(answer, headers[i].name, headers[i].value);
	if (queued == MHD_YES)
		queued = MHD_queue_response(exchange->mhd, status, answer);
	if (answer)
		MHD_destroy_response(answer);
	response_clear(response);
	return queued;
}

static void linger(const struct exchange *exchange)
{
	struct clock *clock = exchange->connection->http->clock;
	int64_t deadline = clock_mono(clock) + LINGER_MS;
	int fd = exchange->connection->fd;
	int64_t seen = 0;
	char rest[16 << 10];

	shutdown(fd, SHUT_WR);
	while (seen < LINGER_BYTES && clock_mono(clock) < deadline) {
		struct pollfd pollfd = { .fd = fd, .events = POLLIN };

		if (poll(&pollfd, 1, clock_poll_timeout(clock, deadline)) <= 0)
			return;

		ssize_t n = recv(fd, rest, sizeof(rest), MSG_DONTWAIT);

		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return;
		seen += n > 0 ? n : 0;
	}
}

void response_send_raw(struct response *response, struct exchange *exchange)
{
	_cleanup_free_ char *text = take_text(response);
	_cleanup_buf_ struct buf out = { 0 };
	struct header headers[8];
	size_t count = response_headers(response, exchange, headers);

	buf_printf(&out, "HTTP/1.1 %d %s\r\n", response->status,
		   MHD_get_reason_phrase_for((unsigned)response->status));
	for (size_t i = 0; i < count; i++)
		buf_printf(&out, "%s: %s\r\n", headers[i].name, headers[i].value);
	buf_printf(&out, "Content-Length: %zu\r\nConnection: close\r\n\r\n%s", strlen(text), text);
	if (exchange_is_plain(exchange) ? send(exchange->connection->fd, out.data, out.len,
					       MSG_NOSIGNAL | MSG_DONTWAIT) > 0
					: tls_send_last(exchange->mhd, out.data, out.len))
		linger(exchange);
	response_clear(response);
}

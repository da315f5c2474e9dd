#include "http/websocket.h"
#include <errno.h>
#include <openssl/evp.h>
#include <poll.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <wslay/wslay.h>
#include "base/buf.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/text.h"

/* Of one step, so that a peer that never stops sending cannot hold it. */
#define STEP_BYTES ((size_t)1 << 20)
#define PAYLOAD_OF_CLOSE 2

struct websocket {
	wslay_event_context_ptr wslay;
	int fd;
	struct buf early;
	size_t budget; /* bytes this step may still read */
	bool broken;
	int64_t heard;
	websocket_message_fn *message;
	void *arg;
	char reason[WEBSOCKET_REASON_SIZE];
};

static ssize_t take_early(struct websocket *ws, uint8_t *buf, size_t len)
{
	size_t n = MIN_OF(len, ws->early.len);

	memcpy(buf, ws->early.data, n);
	buf_consume(&ws->early, n);
	return (ssize_t)n;
}

static ssize_t receive(wslay_event_context_ptr wslay, uint8_t *buf, size_t len, int flags,
		       void *arg)
{
	struct websocket *ws = arg;
	ssize_t n;
	(void)flags;

	if (ws->early.len)
		return take_early(ws, buf, len);
	if (!ws->budget) {
		wslay_event_set_error(wslay, WSLAY_ERR_WOULDBLOCK);
		return -1;
	}
	do
		n = recv(ws->fd, buf, MIN_OF(len, ws->budget), MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		ws->budget -= (size_t)n;
		ws->heard = boottime_ms();
		return n;
	}
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
		wslay_event_set_error(wslay, WSLAY_ERR_WOULDBLOCK);
		return -1;
	}
	ws->broken = true;
	wslay_event_set_error(wslay, WSLAY_ERR_CALLBACK_FAILURE);
	return -1;
}

static ssize_t transmit(wslay_event_context_ptr wslay, const uint8_t *data, size_t len, int flags,
			void *arg)
{
	struct websocket *ws = arg;
	int more = flags & WSLAY_MSG_MORE ? MSG_MORE : 0;
	ssize_t n;

	do
		n = send(ws->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL | more);
	while (n < 0 && errno == EINTR);
	if (n >= 0)
		return n;
	if (errno == EAGAIN || errno == EWOULDBLOCK) {
		wslay_event_set_error(wslay, WSLAY_ERR_WOULDBLOCK);
		return -1;
	}
	ws->broken = true;
	wslay_event_set_error(wslay, WSLAY_ERR_CALLBACK_FAILURE);
	return -1;
}

static int new_mask(wslay_event_context_ptr wslay, uint8_t *buf, size_t len, void *arg)
{
	(void)wslay;
	(void)arg;
	random_bytes(buf, len);
	return 0;
}

static void took_message(wslay_event_context_ptr wslay,
			 const struct wslay_event_on_msg_recv_arg *message, void *arg)
{
	struct websocket *ws = arg;
	const char *data = (const char *)message->msg;
	(void)wslay;

	if (message->opcode == WSLAY_CONNECTION_CLOSE && message->msg_length > PAYLOAD_OF_CLOSE)
		snprintf(ws->reason, sizeof(ws->reason), "%.*s",
			 (int)(message->msg_length - PAYLOAD_OF_CLOSE), data + PAYLOAD_OF_CLOSE);
	if (message->opcode == WSLAY_TEXT_FRAME)
		ws->message(ws->arg, WEBSOCKET_TEXT, data ? data : "", message->msg_length);
	else if (message->opcode == WSLAY_BINARY_FRAME)
		ws->message(ws->arg, WEBSOCKET_BINARY, data ? data : "", message->msg_length);
}

static const struct wslay_event_callbacks CALLBACKS = {
	.recv_callback = receive,
	.send_callback = transmit,
	.genmask_callback = new_mask,
	.on_msg_recv_callback = took_message,
};

struct websocket *websocket_new(const struct websocket_options *options)
{
	struct websocket *ws = xcalloc(1, sizeof(*ws));
	int failed = options->is_server
			     ? wslay_event_context_server_init(&ws->wslay, &CALLBACKS, ws)
			     : wslay_event_context_client_init(&ws->wslay, &CALLBACKS, ws);

	if (failed)
		abort(); /* as every allocation that fails */
	wslay_event_config_set_max_recv_msg_length(ws->wslay, options->max_message);
	ws->fd = options->fd;
	ws->message = options->message;
	ws->arg = options->arg;
	ws->heard = boottime_ms();
	buf_append(&ws->early, options->early, options->early_len);
	return ws;
}

void websocket_free(struct websocket *ws)
{
	if (!ws)
		return;
	wslay_event_context_free(ws->wslay);
	buf_free(&ws->early);
	free(ws);
}

bool websocket_has_early(const struct websocket *ws)
{
	return ws->early.len > 0;
}

short websocket_events(struct websocket *ws, bool may_read)
{
	short events = POLLRDHUP;

	if (may_read && wslay_event_want_read(ws->wslay))
		events |= POLLIN;
	if (wslay_event_want_write(ws->wslay))
		events |= POLLOUT;
	return events;
}

bool websocket_step(struct websocket *ws, bool may_read)
{
	ws->budget = STEP_BYTES;
	if (may_read && wslay_event_want_read(ws->wslay) && wslay_event_recv(ws->wslay) < 0)
		ws->broken = true;
	if (wslay_event_want_write(ws->wslay) && wslay_event_send(ws->wslay) < 0)
		ws->broken = true;
	return !ws->broken &&
	       (wslay_event_want_read(ws->wslay) || wslay_event_want_write(ws->wslay));
}

static void queue(struct websocket *ws, uint8_t opcode, const void *data, size_t len)
{
	const struct wslay_event_msg message = { opcode, data, len };

	wslay_event_queue_msg(ws->wslay, &message);
}

void websocket_send(struct websocket *ws, enum websocket_type type, const void *data, size_t len)
{
	queue(ws, type == WEBSOCKET_TEXT ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME, data, len);
}

void websocket_ping(struct websocket *ws)
{
	queue(ws, WSLAY_PING, NULL, 0);
}

size_t websocket_queued(struct websocket *ws)
{
	return wslay_event_get_queued_msg_length(ws->wslay);
}

int64_t websocket_heard(const struct websocket *ws)
{
	return ws->heard;
}

/* Steps until `done` holds. False when the time has passed or the connection is over. */
static bool drive(struct websocket *ws, bool (*done)(struct websocket *), int64_t deadline)
{
	while (!done(ws)) {
		struct pollfd fd = { .fd = ws->fd };
		int64_t left = deadline - boottime_ms();

		if (!websocket_step(ws, true))
			return false;
		/* A peer that has shut down its half may still read what is queued. */
		fd.events = (short)(websocket_events(ws, true) & ~POLLRDHUP);
		if (!done(ws) && (left <= 0 || (poll(&fd, 1, (int)left) < 0 && errno != EINTR)))
			return false;
	}
	return true;
}

static bool is_flushed(struct websocket *ws)
{
	return !wslay_event_want_write(ws->wslay);
}

static bool is_over(struct websocket *ws)
{
	return wslay_event_get_close_received(ws->wslay) && is_flushed(ws);
}

/* libwslay sends control frames before all others, so the close must wait for what is queued. */
void websocket_close(struct websocket *ws, uint16_t code, const char *reason, int64_t wait_ms)
{
	int64_t deadline = boottime_ms() + wait_ms;

	drive(ws, is_flushed, deadline);
	wslay_event_queue_close(ws->wslay, code, (const uint8_t *)reason,
				MIN_OF(strlen(reason), WEBSOCKET_REASON_SIZE - 2));
	drive(ws, is_over, deadline);
}

uint16_t websocket_close_code(struct websocket *ws)
{
	return wslay_event_get_status_code_received(ws->wslay);
}

const char *websocket_close_reason(const struct websocket *ws)
{
	return ws->reason;
}

/* ---- the handshake ---- */

void websocket_key_new(char out[WEBSOCKET_KEY_SIZE])
{
	_cleanup_buf_ struct buf text = { 0 };
	unsigned char nonce[16];

	random_bytes(nonce, sizeof(nonce));
	base64_encode(&text, nonce, sizeof(nonce));
	snprintf(out, WEBSOCKET_KEY_SIZE, "%s", buf_str(&text));
}

bool websocket_key_is_valid(const char *key)
{
	_cleanup_buf_ struct buf nonce = { 0 };

	return strlen(key) == WEBSOCKET_KEY_SIZE - 1 &&
	       base64_decode(&nonce, key, WEBSOCKET_KEY_SIZE - 1) && nonce.len == 16;
}

void websocket_accept_for(const char *key, char out[WEBSOCKET_ACCEPT_SIZE])
{
	_cleanup_buf_ struct buf text = { 0 };
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned len = 0;

	buf_printf(&text, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
	if (!EVP_Digest(text.data, text.len, digest, &len, EVP_sha1(), NULL))
		abort();
	buf_reset(&text);
	base64_encode(&text, digest, len);
	snprintf(out, WEBSOCKET_ACCEPT_SIZE, "%s", buf_str(&text));
}

bool header_has_token(const char *header, const char *token)
{
	size_t want = strlen(token);

	while (header && *header) {
		header += strspn(header, ", \t");

		size_t len = strcspn(header, ",");
		size_t word = len;

		while (word && (header[word - 1] == ' ' || header[word - 1] == '\t'))
			word--;
		if (word == want && strncasecmp(header, token, word) == 0)
			return true;
		header += len;
	}
	return false;
}

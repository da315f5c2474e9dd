/*
 * One end of a WebSocket connection, for the server and for clients alike: messages over a socket
 * that never blocks here. The frames are libwslay's business; limits, the handshake's arithmetic
 * and the way a connection ends are ours.
 *
 * One thread drives it: poll the socket for websocket_events, then call websocket_step. Messages
 * come to the callback inside websocket_step.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct websocket;

enum websocket_type { WEBSOCKET_TEXT, WEBSOCKET_BINARY };
/* Text is valid UTF-8; neither is closed by a NUL. */
typedef void websocket_message_fn(void *arg, enum websocket_type type, const char *data,
				  size_t len);

struct websocket_options {
	int fd; /* borrowed */
	bool is_server;
	const void *early; /* bytes that came behind the handshake */
	size_t early_len;
	size_t max_message; /* longer ones end the connection with 1009 */
	websocket_message_fn *message;
	void *arg;
};
struct websocket *websocket_new(const struct websocket_options *options);
void websocket_free(struct websocket *ws);
static inline void websocket_freep(struct websocket **ws)
{
	websocket_free(*ws);
}
#define _cleanup_websocket_ _cleanup_(websocket_freep)

/* For poll; may_read false leaves what the other side sends in the socket. */
short websocket_events(struct websocket *ws, bool may_read);
/* Bytes that came with the handshake wait to be read: do not poll first. */
bool websocket_has_early(const struct websocket *ws);
/* Reads and writes what is possible now. False when the connection is over, in good order or not.
 */
bool websocket_step(struct websocket *ws, bool may_read);
/* Queued, sent by websocket_step. Ignored after websocket_close. */
void websocket_send(struct websocket *ws, enum websocket_type type, const void *data, size_t len);
void websocket_ping(struct websocket *ws);
size_t websocket_queued(struct websocket *ws);       /* bytes not sent yet */
int64_t websocket_heard(const struct websocket *ws); /* CLOCK_MONOTONIC ms of the last byte */

#define WEBSOCKET_REASON_SIZE 124
/*
 * Says why and waits until the other side has said so too, at most wait_ms. What is queued goes out
 * before it, and what the other side sent until then is still taken. The socket stays open.
 */
void websocket_close(struct websocket *ws, uint16_t code, const char *reason, int64_t wait_ms);
/* What the other side said at its close: 1006 when it said nothing. */
uint16_t websocket_close_code(struct websocket *ws);
const char *websocket_close_reason(const struct websocket *ws);

#define WEBSOCKET_KEY_SIZE 25
#define WEBSOCKET_ACCEPT_SIZE 29
void websocket_key_new(char out[WEBSOCKET_KEY_SIZE]);
bool websocket_key_is_valid(const char *key); /* base64 of 16 bytes */
/* What the server answers to a key (RFC 6455, 4.2.2). */
void websocket_accept_for(const char *key, char out[WEBSOCKET_ACCEPT_SIZE]);
/* Whether a header that is a list of words has this one, in any case. */
bool header_has_token(const char *header, const char *token);

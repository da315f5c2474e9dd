/*
 * Answers whose bytes are written to the socket by whoever makes them, instead of being pulled
 * through libmicrohttpd: the head is written here, and the connection ends with the answer. So one
 * thread can feed a thousand connections whose own threads sleep.
 */
#include <poll.h>
#include <sys/socket.h>
#include <errno.h>
#include "http/exchange.h"

#define HEAD_MS 10000

bool exchange_is_plain(const struct exchange *exchange)
{
	const union MHD_ConnectionInfo *tls =
		MHD_get_connection_info(exchange->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);

	return !tls || !tls->tls_session;
}

int socket_send(int fd, int stop_fd, const char *data, size_t len, int stall_ms)
{
	while (len) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0) {
			data += n;
			len -= (size_t)n;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			return -1;

		struct pollfd fds[] = {
			{ .fd = fd, .events = POLLOUT | POLLRDHUP },
			{ .fd = stop_fd, .events = POLLIN },
		};
		int ready = poll(fds, ARRAY_SIZE(fds), stall_ms);

		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0 || fds[0].revents != POLLOUT || fds[1].revents)
			return -1;
	}
	return 0;
}

void response_send_direct(struct response *response, struct exchange *exchange)
{
	struct http_connection *connection = exchange->connection;
	_cleanup_buf_ struct buf head = { 0 };
	struct header headers[8];
	size_t count = response_headers(response, exchange, headers);

	/* Without a length and without chunks the answer ends where the connection does. */
	buf_puts(&head, "HTTP/1.1 200 OK\r\n");
	for (size_t i = 0; i < count; i++)
		buf_printf(&head, "%s: %s\r\n", headers[i].name, headers[i].value);
	buf_puts(&head, "Connection: close\r\n\r\n");
	if (socket_send(connection->fd, connection->http->stop_fd, head.data, head.len, HEAD_MS) ==
	    0) {
		buf_free(&head);
		response->direct(response->stream.arg, connection->fd, connection->http->stop_fd);
	}
	response_clear(response);
}

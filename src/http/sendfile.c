/*
 * Streams that lie in files go from the page cache to the socket. libmicrohttpd can do that only
 * for answers whose length is known beforehand, and makes chunks of any other in the small memory
 * of its connection; so these answers are written here, and the connection ends with them.
 */
#include <errno.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include "http/exchange.h"

#define STRETCH ((int64_t)4 << 20)
#define STALL_MS 300000 /* a client that takes nothing for this long is gone */

/* 0 when the socket takes something again; -1: it never will. */
static int wait_for_room(struct http_connection *connection)
{
	struct pollfd fds[] = {
		{ .fd = connection->fd, .events = POLLOUT | POLLRDHUP },
		{ .fd = connection->http->stop_fd, .events = POLLIN },
	};
	int n;

	do
		n = poll(fds, ARRAY_SIZE(fds), STALL_MS);
	while (n < 0 && errno == EINTR);
	return n > 0 && fds[0].revents == POLLOUT && !fds[1].revents ? 0 : -1;
}

static int send_text(struct http_connection *connection, const char *text, size_t len, bool more)
{
	int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);

	while (len) {
		ssize_t n = send(connection->fd, text, len, flags);

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -1;
		if (n < 0 && errno == EAGAIN && wait_for_room(connection) < 0)
			return -1;
		text += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int send_stretch(struct http_connection *connection, const struct file_stretch *stretch)
{
	off_t at = (off_t)stretch->offset;
	int64_t left = stretch->len;
	char line[24];
	int n = snprintf(line, sizeof(line), "%llx\r\n", (unsigned long long)left);

	if (send_text(connection, line, (size_t)n, true) < 0)
		return -1;
	while (left) {
		ssize_t sent = sendfile(connection->fd, stretch->fd, &at, (size_t)left);

		/* Less than the chunk has announced cannot be made good. */
		if (sent == 0 || (sent < 0 && errno != EAGAIN && errno != EINTR))
			return -1;
		if (sent < 0 && errno == EAGAIN && wait_for_room(connection) < 0)
			return -1;
		left -= sent > 0 ? sent : 0;
	}
	return send_text(connection, "\r\n", 2, false);
}

static int send_head(const struct response *response, const struct exchange *exchange)
{
	_cleanup_buf_ struct buf head = { 0 };
	struct header headers[8];
	size_t count = response_headers(response, exchange, headers);
	unsigned status = response->status ? (unsigned)response->status : MHD_HTTP_OK;

	buf_printf(&head, "HTTP/1.1 %u %s\r\n", status, MHD_get_reason_phrase_for(status));
	for (size_t i = 0; i < count; i++)
		buf_printf(&head, "%s: %s\r\n", headers[i].name, headers[i].value);
	buf_printf(&head, "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
	return send_text(exchange->connection, head.data, head.len, false);
}

void response_send_stretches(struct response *response, struct exchange *exchange)
{
	const struct stream *stream = &response->stream;
	struct http_connection *connection = exchange->connection;
	struct file_stretch stretch;
	int r = send_head(response, exchange) < 0 ? -1 : 1;

	while (r > 0 && !atomic_load(&connection->http->stopping)) {
		r = stream->next_stretch(stream->arg, connection, STRETCH, &stretch);
		if (r > 0 && send_stretch(connection, &stretch) < 0)
			r = -1;
	}
	if (r == 0)
		send_text(connection, "0\r\n\r\n", 5, false);
	response_clear(response);
}

#include <errno.h>
#include <poll.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include "http/exchange.h"
#include "base/clock.h"

#define STREAM_BLOCK (16 << 10)
#define FILE_BLOCK (128 << 10)
#define TAKEN_AT_ONCE ((size_t)4 << 10) /* less than any socket has room for */

/*
 * libmicrohttpd does not look at the socket while a handler or a reader blocks, so every wait looks
 * itself. Bytes that arrive (a pipelined request) do not count, only the end of them.
 */
enum stream_event stream_wait(struct http_connection *connection, int fd, int timeout_ms)
{
	int64_t deadline = boottime_ms() + timeout_ms;

	for (;;) {
		struct pollfd fds[] = {
			{ .fd = connection->fd, .events = POLLRDHUP },
			{ .fd = connection->http->stop_fd, .events = POLLIN },
			{ .fd = fd, .events = POLLIN },
		};
		int64_t left = timeout_ms < 0 ? -1 : MAX_OF(deadline - boottime_ms(), 0);
		int n = poll(fds, ARRAY_SIZE(fds), (int)left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 || fds[0].revents || fds[1].revents)
			return STREAM_GONE;
		return fds[2].revents ? STREAM_READY : STREAM_TIMEOUT;
	}
}

/* An epoll set can itself be polled: it is readable exactly when one of its members has news. */
int request_gone_fd(const struct request *request, struct error *err)
{
	_cleanup_close_ int fd = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event client = { .events = EPOLLRDHUP }, stop = { .events = EPOLLIN };

	if (fd < 0 || epoll_ctl(fd, EPOLL_CTL_ADD, request->connection->fd, &client) < 0 ||
	    epoll_ctl(fd, EPOLL_CTL_ADD, request->http->stop_fd, &stop) < 0)
		return error_errno(err, errno, "cannot watch the connection");
	return steal_fd(&fd);
}

bool request_takes(const struct request *request, size_t bytes)
{
	int unread;

	return bytes <= TAKEN_AT_ONCE && ioctl(request->connection->fd, SIOCOUTQ, &unread) == 0 &&
	       unread == 0;
}

struct stream_state {
	struct stream stream;
	struct exchange *exchange; /* lasts as long as the stream is read */
};

static ssize_t stream_read(void *arg, uint64_t pos, char *buf, size_t max)
{
	struct stream_state *state = arg;
	struct http_connection *connection = state->exchange->connection;

	(void)pos;
	if (atomic_load(&connection->http->stopping))
		return MHD_CONTENT_READER_END_WITH_ERROR;

	ssize_t n = state->stream.next(state->stream.arg, connection, buf, max);

	if (n > 0)
		return n;
	return n == 0 ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void stream_close(void *arg)
{
	struct stream_state *state = arg;

	if (state->stream.close)
		state->stream.close(state->stream.arg);
	free(state);
}

struct MHD_Response *stream_response(const struct stream *stream, int64_t length,
				     struct exchange *exchange)
{
	struct stream_state *state = xcalloc(1, sizeof(*state));

	state->stream = *stream;
	state->exchange = exchange;

	/*
	 * Without a length the blocks are chunks made in the memory of the connection; with one
	 * they lie in a buffer of their own, that may be larger.
	 */
	struct MHD_Response *response =
		length < 0 ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK,
							       stream_read, state, stream_close)
			   : MHD_create_response_from_callback((uint64_t)length, FILE_BLOCK,
							       stream_read, state, stream_close);

	if (!response)
		stream_close(state);
	return response;
}

#include "cli/api.h"

#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>
#include "base/fd.h"

#define CONNECT_SECONDS 10L

/* Bytes on their way in one direction. */
struct load {
	char data[16 << 10];
	size_t at, len;
};

struct tunnel {
	CURL *curl;
	int far_fd; /* libcurl's */
	int fd;     /* ours; the other end is the caller's */
	struct load in, out;
};

static void tunnel_free(struct tunnel *tunnel)
{
	if (tunnel->curl)
		curl_easy_cleanup(tunnel->curl);
	close_fdp(&tunnel->fd);
	free(tunnel);
}

/* Each returns 1 when something moved, 0 when it would have to wait, -1 at the end. */

static int from_server(struct tunnel *t)
{
	CURLcode code;

	if (t->in.len)
		return 0;
	t->in.at = 0;
	code = curl_easy_recv(t->curl, t->in.data, sizeof(t->in.data), &t->in.len);
	if (code == CURLE_AGAIN)
		return 0;
	return code == CURLE_OK && t->in.len ? 1 : -1;
}

static int to_caller(struct tunnel *t)
{
	ssize_t n;

	if (!t->in.len)
		return 0;
	n = send(t->fd, t->in.data + t->in.at, t->in.len, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	t->in.at += (size_t)n;
	t->in.len -= (size_t)n;
	return 1;
}

static int from_caller(struct tunnel *t)
{
	ssize_t n;

	if (t->out.len)
		return 0;
	t->out.at = 0;
	n = recv(t->fd, t->out.data, sizeof(t->out.data), MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	t->out.len = (size_t)n;
	return n ? 1 : -1;
}

static int to_server(struct tunnel *t)
{
	size_t sent = 0;
	CURLcode code;

	if (!t->out.len)
		return 0;
	code = curl_easy_send(t->curl, t->out.data + t->out.at, t->out.len, &sent);
	if (code == CURLE_AGAIN)
		return 0;
	t->out.at += sent;
	t->out.len -= sent;
	return code == CURLE_OK ? 1 : -1;
}

static void wait_for_more(const struct tunnel *t)
{
	struct pollfd fds[] = {
		{ .fd = t->far_fd,
		  .events = (short)((t->in.len ? 0 : POLLIN) | (t->out.len ? POLLOUT : 0)) },
		{ .fd = t->fd,
		  .events = (short)((t->out.len ? 0 : POLLIN) | (t->in.len ? POLLOUT : 0)) },
	};

	poll(fds, ARRAY_SIZE(fds), -1);
}

static void *carry(void *arg)
{
	struct tunnel *t = arg;

	for (;;) {
		int received = from_server(t), delivered = to_caller(t);
		int taken = from_caller(t), sent = to_server(t);

		/* What has come is delivered before the end is told. */
		if (delivered < 0 || taken < 0 || sent < 0 || (received < 0 && !t->in.len))
			break;
		if (received <= 0 && !delivered && !taken && !sent)
			wait_for_more(t);
	}
	tunnel_free(t);
	return NULL;
}

static int connect_far(struct tunnel *t, const char *url, const char *ca_file, struct error *err)
{
	curl_socket_t far;
	CURLcode code;

	t->curl = curl_easy_init();
	if (!t->curl)
		return error_set(err, ERR_INTERNAL, "libcurl cannot be used");
	curl_easy_setopt(t->curl, CURLOPT_URL, url);
	curl_easy_setopt(t->curl, CURLOPT_CONNECT_ONLY, 1L);
	curl_easy_setopt(t->curl, CURLOPT_SSL_ENABLE_ALPN, 0L); /* no HTTP/2 */
	curl_easy_setopt(t->curl, CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS);
	curl_easy_setopt(t->curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(t->curl, CURLOPT_PROXY, "");
	if (ca_file)
		curl_easy_setopt(t->curl, CURLOPT_CAINFO, ca_file);
	code = curl_easy_perform(t->curl);
	if (code == CURLE_OK)
		code = curl_easy_getinfo(t->curl, CURLINFO_ACTIVESOCKET, &far);
	if (code != CURLE_OK)
		return error_set(err, ERR_UNAVAILABLE, "no connection to %s: %s", url,
				 curl_easy_strerror(code));
	t->far_fd = far;
	return 0;
}

int tunnel_open(const char *url, const char *ca_file, int *fd, struct error *err)
{
	struct tunnel *t = xcalloc(1, sizeof(*t));
	_cleanup_close_ int near = -1;
	int pair[2];
	pthread_t thread;

	t->fd = -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
		tunnel_free(t);
		return error_errno(err, errno, "cannot make a pair of sockets");
	}
	near = pair[0];
	t->fd = pair[1];
	if (connect_far(t, url, ca_file, err) < 0) {
		tunnel_free(t);
		return -1;
	}
	if (pthread_create(&thread, NULL, carry, t) != 0) {
		tunnel_free(t);
		return error_set(err, ERR_INTERNAL, "no thread for a connection");
	}
	pthread_detach(thread);
	*fd = steal_fd(&near);
	return 0;
}

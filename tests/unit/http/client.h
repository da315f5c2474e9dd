/*
 * A client that says exactly what it is told to, byte by byte, and a server to say it to. Libraries
 * would refuse to send most of what these tests are about.
 */
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <cmocka.h>
#include "base/fd.h"
#include "base/text.h"
#include "http/http.h"

#define CLIENT_MS 10000

struct test_server {
	struct clock clock;
	struct http *http;
	int port;
	int idle_seconds, head_seconds; /* set before server_up; 0: the usual */
	char dir[64];
	char socket_path[96];
};

__attribute__((unused)) static void server_up(struct test_server *server,
					      const struct route *const *tables, void *arg)
{
	_cleanup_error_ struct error err = { 0 };
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct http_options options = { .tables = tables,
					.server = arg,
					.clock = &server->clock,
					.idle_seconds = server->idle_seconds,
					.head_seconds = server->head_seconds };

	clock_init_system(&server->clock);
	snprintf(server->dir, sizeof(server->dir), "/tmp/berth-http-XXXXXX");
	assert_non_null(mkdtemp(server->dir));
	snprintf(server->socket_path, sizeof(server->socket_path), "%s/s", server->dir);
	memcpy(name.sun_path, server->socket_path, strlen(server->socket_path));
	options.unix_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(options.unix_fd, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(listen(options.unix_fd, 64), 0);
	if (http_bind("127.0.0.1:0", false, &options.tcp_fd, &server->port, &err) < 0 ||
	    http_start(&options, &server->http, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(http_port(server->http), server->port);
}

__attribute__((unused)) static void server_down(struct test_server *server)
{
	http_stop(server->http, 1000);
	unlink(server->socket_path);
	rmdir(server->dir);
}

__attribute__((unused)) static int dial(const struct test_server *server)
{
	struct sockaddr_in name = { .sin_family = AF_INET,
				    .sin_port = htons((uint16_t)server->port),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	return fd;
}

__attribute__((unused)) static int dial_unix(const struct test_server *server)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(name.sun_path, server->socket_path, strlen(server->socket_path));
	assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	return fd;
}

/* 1 when there is something to read (or the end), 0 when the time has passed. */
__attribute__((unused)) static int readable(int fd, int ms)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };

	return poll(&pollfd, 1, ms) > 0;
}

struct answer {
	int status;
	char *head, *body;
};

static inline void answer_free(struct answer *answer)
{
	free(answer->head);
	free(answer->body);
}
#define _cleanup_answer_ _cleanup_(answer_free)

/* Adds at most `max` bytes; 0 when the server has closed. */
static size_t read_some(int fd, struct buf *out, size_t max)
{
	char part[4096];

	if (!readable(fd, CLIENT_MS))
		fail_msg("no answer; so far: %s", buf_str(out));

	ssize_t n = recv(fd, part, MIN_OF(max, sizeof(part)), 0);

	buf_append(out, part, n > 0 ? (size_t)n : 0);
	return n > 0 ? (size_t)n : 0;
}

/* What arrives until `mark` is in it or the server closes. */
__attribute__((unused)) static void read_until(int fd, const char *mark, struct buf *out)
{
	while ((!mark || !strstr(buf_str(out), mark)) && read_some(fd, out, SIZE_MAX))
		;
}

/* One answer with a Content-Length, and not a byte of the next. */
__attribute__((unused)) static struct answer read_answer(int fd)
{
	_cleanup_buf_ struct buf head = { 0 }, body = { 0 };
	struct answer answer = { 0 };

	while (!str_ends(buf_str(&head), "\r\n\r\n") && read_some(fd, &head, 1))
		;

	const char *length = strstr(buf_str(&head), "Content-Length: ");

	if (!length)
		fail_msg("no whole answer: %s", buf_str(&head));

	size_t want = (size_t)atoi(length + 16);

	while (body.len < want && read_some(fd, &body, want - body.len))
		;
	assert_int_equal(body.len, want);
	answer.status = atoi(head.data + 9);
	answer.head = buf_steal(&head);
	answer.body = buf_steal(&body);
	return answer;
}

__attribute__((unused)) static void say(int fd, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void say(int fd, const char *fmt, ...)
{
	_cleanup_buf_ struct buf text = { 0 };
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	for (size_t sent = 0; sent < text.len;) {
		ssize_t n = send(fd, text.data + sent, text.len - sent, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		sent += (size_t)n;
	}
}

/* One request on a connection of its own; `head` are further header lines, `body` may be NULL. */
__attribute__((unused)) static struct answer ask(const struct test_server *server, const char *line,
						 const char *head, const char *body)
{
	_cleanup_close_ int fd = dial(server);

	say(fd, "%s HTTP/1.1\r\nHost: localhost:%d\r\n%s", line, server->port, head);
	if (body)
		say(fd, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
		    strlen(body), body);
	else
		say(fd, "\r\n");
	return read_answer(fd);
}

__attribute__((unused)) static void assert_answer(struct answer answer, int status,
						  const char *code)
{
	_cleanup_answer_ struct answer a = answer;
	_cleanup_json_ json_t *json = json_parse(a.body, strlen(a.body), NULL);

	if (a.status != status || (code && !str_equal(json_str(json, "code"), code)))
		fail_msg("wanted %d %s, got: %s%s", status, code ? code : "", a.head, a.body);
}

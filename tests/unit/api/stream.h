/*
 * Streams of events, as tests read them.
 */
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include "fixture.h"

/* The lines of a stream; every one must be JSON. */
static inline json_t *lines_of(const struct buf *text)
{
	json_t *lines = json_array();

	for (const char *p = buf_str(text); *p;) {
		size_t n = strcspn(p, "\n");
		json_t *line = json_parse(p, n, NULL);

		if (!line || p[n] != '\n')
			fail_msg("no line of JSON: %s", p);
		json_array_append_new(lines, line);
		p += n + 1;
	}
	return lines;
}

static inline json_t *run_stream_as(struct api_test *t, int status, const struct call *call)
{
	_cleanup_buf_ struct buf out = { 0 };

	assert_int_equal(call_raw(t, call, &out), status);
	return lines_of(&out);
}

static inline json_t *run_stream(struct api_test *t, const struct call *call)
{
	return run_stream_as(t, 200, call);
}

/* The bytes of one stream, put together again; offsets must fit. */
static inline void gather(const json_t *lines, const char *type, struct buf *out)
{
	for (size_t i = 0; i < json_array_size(lines); i++) {
		const json_t *line = json_array_get(lines, i);
		const char *data = json_str(line, "data");

		if (!str_equal(json_str(line, "type"), type))
			continue;
		assert_int_equal(json_int(line, "offset", -1), out->len);
		if (str_equal(json_str(line, "encoding"), "base64"))
			assert_true(base64_decode(out, data, strlen(data)));
		else
			buf_puts(out, data);
	}
}

static inline const json_t *last_of(const json_t *lines)
{
	return json_array_get(lines, json_array_size(lines) - 1);
}

/* Opens an exec stream by hand and returns its socket, once the start event was seen. */
static inline int open_stream(struct api_test *t, const char *path, const char *body,
			      const char *key)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	_cleanup_buf_ struct buf got = { 0 };
	_cleanup_free_ char *text = xasprintf(
		"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
		"%s%s\r\nContent-Length: %zu\r\n\r\n%s",
		path, key ? "Idempotency-Key: " : "X-None: ", key ? key : "", strlen(body), body);

	memcpy(name.sun_path, t->socket, strlen(t->socket));
	assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text), NULL), 0);
	while (!strstr(buf_str(&got), "\"start\"")) {
		char part[512];
		ssize_t n = recv(fd, part, sizeof(part), 0);

		assert_true(n > 0);
		buf_append(&got, part, (size_t)n);
	}
	return fd;
}

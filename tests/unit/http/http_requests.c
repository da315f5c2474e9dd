#include "client.h"
#include <sys/wait.h>

static int echo(void *server, struct request *request, struct response *response, struct error *err)
{
	json_t *json = json_object();
	(void)server;
	(void)err;

	json_put_str(json, "path", request->path);
	json_put_str(json, "id", request->param[0]);
	json_put_str(json, "actor", request->actor.id);
	json_put_bool(json, "trusted", request->actor.is_admin);
	json_put_ref(json, "body", request->body);
	json_put_int(json, "bodyBytes", (int64_t)request->raw_body_len);
	json_put_str(json, "key", request->idempotency_key);
	if (request->route->query) {
		json_put_str(json, "word", request_query(request, "word"));
		json_put_bool(json, "flag", request_query_flag(request, "flag", false));
	}
	response_json(response, 201, json);
	return 0;
}

static int fails(void *server, struct request *request, struct response *response,
		 struct error *err)
{
	(void)server;
	(void)request;
	response_json(response, 200, json_object());
	error_set(err, ERR_PLACE_BUSY, "somebody holds it");
	error_set_details(err, xstrdup("{\"waiting\": 3}"));
	return -1;
}

static const char *const WORDS[] = { "one", "two", NULL };
static const struct field BODY[] = {
	{ .name = "name", .type = FIELD_STRING },
	{ .name = "any", .type = FIELD_ANY },
	{ 0 },
};
static const struct field QUERY[] = {
	{ .name = "word", .type = FIELD_STRING, .one_of = WORDS },
	{ .name = "flag", .type = FIELD_BOOL },
	{ .name = "limit", .type = FIELD_INT, .min = 1, .max = 10 },
	{ 0 },
};
static const struct route ROUTES[] = {
	{ HTTP_GET, "/api/echo", .run = echo, .query = QUERY, .access = ACCESS_SIGNED_IN },
	{ HTTP_GET, "/api/echo/:id", .run = echo, .access = ACCESS_SIGNED_IN },
	{ HTTP_POST, "/api/echo", .run = echo, .body = BODY, .access = ACCESS_SIGNED_IN },
	{ HTTP_POST, "/api/relaxed", .run = echo, .body = BODY, .flags = ROUTE_NO_BODY_OK,
	  .access = ACCESS_SIGNED_IN },
	{ HTTP_POST, "/api/bare", .run = echo, .access = ACCESS_SIGNED_IN },
	{ HTTP_GET, "/api/public", .run = echo, .access = ACCESS_PUBLIC },
	{ HTTP_GET, "/api/fails", .run = fails, .access = ACCESS_SIGNED_IN },
	{ 0 },
};
static const struct route *const TABLES[] = { ROUTES, NULL };

static int up(void **state)
{
	struct test_server *server = xcalloc(1, sizeof(*server));

	server_up(server, TABLES, NULL);
	*state = server;
	return 0;
}

static int down(void **state)
{
	server_down(*state);
	free(*state);
	return 0;
}

static void a_checked_request_reaches_its_handler(void **state)
{
	_cleanup_answer_ struct answer a =
		ask(*state, "POST /api/echo", "Idempotency-Key: k1\r\n", "{\"name\": \"x\"}");

	assert_int_equal(a.status, 201);
	assert_non_null(strstr(a.body, "\"body\":{\"name\":\"x\"}"));
	assert_non_null(strstr(a.body, "\"actor\":\"local\""));
	assert_non_null(strstr(a.body, "\"key\":\"k1\""));
	assert_non_null(strstr(a.body, "\"bodyBytes\":13"));
}

static void every_answer_says_what_it_is(void **state)
{
	static const char *const lines[] = { "GET /api/echo", "GET /nowhere", "PATCH /api/echo" };

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		_cleanup_answer_ struct answer a = ask(*state, lines[i], "", NULL);

		assert_non_null(strstr(a.head, "Content-Type: application/json\r\n"));
		assert_non_null(strstr(a.head, "Cache-Control: no-store\r\n"));
		assert_non_null(strstr(a.head, "X-Content-Type-Options: nosniff\r\n"));
		assert_non_null(strstr(a.head, "Content-Length: "));

		const char *id = strstr(a.head, "X-Request-Id: ");

		assert_non_null(id);
		_cleanup_free_ char *text = xstrndup(id + 14, 36);
		assert_true(id_is_valid(text));
	}
}

static void a_handlers_error_carries_code_and_details(void **state)
{
	_cleanup_answer_ struct answer a = ask(*state, "GET /api/fails", "", NULL);

	assert_int_equal(a.status, 409);
	assert_string_equal(a.body, "{\"error\":\"somebody holds it\",\"code\":\"place_busy\","
				    "\"details\":{\"waiting\":3}}");
}

static void unknown_paths_and_methods_are_told_apart(void **state)
{
	assert_answer(ask(*state, "GET /api/nothing", "", NULL), 404, "not_found");
	assert_answer(ask(*state, "PATCH /api/echo", "", "{}"), 405, "method_not_allowed");
	assert_answer(ask(*state, "BREW /api/echo", "", NULL), 405, "method_not_allowed");

	_cleanup_answer_ struct answer a = ask(*state, "DELETE /api/echo", "", NULL);

	assert_non_null(strstr(a.head, "Allow: GET, POST\r\n"));
}

/* libmicrohttpd would hand these to us decoded; only the raw line shows what was asked. */
static void escapes_are_ours_to_decode(void **state)
{
	_cleanup_answer_ struct answer a = ask(*state, "GET /api/echo/a%20b", "", NULL);

	assert_non_null(strstr(a.body, "\"id\":\"a b\""));
	assert_answer(ask(*state, "GET /api%2Fecho", "", NULL), 400, "bad_path");
	assert_answer(ask(*state, "GET /api/echo/%2e%2e", "", NULL), 400, "bad_path");
	assert_answer(ask(*state, "GET /api/echo/..%2Fecho", "", NULL), 400, "bad_path");
	assert_answer(ask(*state, "GET /api/echo/%00", "", NULL), 400, "bad_path");
	assert_answer(ask(*state, "GET /api/echo/%ff", "", NULL), 400, "bad_path");
	assert_answer(ask(*state, "GET /api/echo/%252F", "", NULL), 201, NULL);

	/* Which word is the version is in doubt: the strict library hangs up. */
	_cleanup_close_ int fd = dial(*state);
	char rest[64];

	say(fd, "GET /api/echo/a b HTTP/1.1\r\nHost: localhost\r\n\r\n");
	assert_true(readable(fd, CLIENT_MS));
	assert_int_equal(recv(fd, rest, sizeof(rest), 0), 0);

	_cleanup_buf_ struct buf line = { 0 };

	buf_puts(&line, "GET /");
	for (int i = 0; i < HTTP_MAX_URL; i++)
		buf_putc(&line, 'a');
	assert_answer(ask(*state, buf_str(&line), "", NULL), 414, "uri_too_long");
}

static void a_nul_in_the_request_line_hides_nothing(void **state)
{
	const struct test_server *server = *state;
	static const char *const lines[] = { "GET /api/echo/a\1b HTTP/1.1",
					     "GET /api/echo\1 HTTP/1.1",
					     "GET /api/echo?flag=1\1&x HTTP/1.1" };

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		_cleanup_close_ int fd = dial(server);
		_cleanup_buf_ struct buf text = { 0 };

		buf_printf(&text, "%s\r\nHost: localhost:%d\r\n\r\n", lines[i], server->port);
		*strchr(text.data, 1) = '\0';
		assert_int_equal(send(fd, text.data, text.len, 0), text.len);
		assert_answer(read_answer(fd), 400, "bad_path");
	}
}

static void a_query_is_held_to_its_table(void **state)
{
	_cleanup_answer_ struct answer a =
		ask(*state, "GET /api/echo?word=two&flag=1&limit=10", "", NULL);

	assert_int_equal(a.status, 201);
	assert_non_null(strstr(a.body, "\"word\":\"two\",\"flag\":true"));
	assert_answer(ask(*state, "GET /api/echo?other=1", "", NULL), 400, "validation_error");
	assert_answer(ask(*state, "GET /api/echo?word=three", "", NULL), 400, "validation_error");
	assert_answer(ask(*state, "GET /api/echo?flag=maybe", "", NULL), 400, "validation_error");
	assert_answer(ask(*state, "GET /api/echo?limit=11", "", NULL), 400, "validation_error");
	assert_answer(ask(*state, "GET /api/echo?limit=x", "", NULL), 400, "validation_error");
	assert_answer(ask(*state, "GET /api/echo/7?word=one", "", NULL), 400, "validation_error");
	assert_answer(ask(*state, "GET /api/echo?flag=1&flag=0", "", NULL), 400, "bad_path");
}

static void bodies_stand_only_where_they_belong(void **state)
{
	assert_answer(ask(*state, "POST /api/bare", "", "{}"), 400, "bad_request");
	assert_answer(ask(*state, "GET /api/echo", "", "{}"), 400, "bad_request");
	assert_answer(ask(*state, "POST /api/bare", "Content-Length: 0\r\n", NULL), 201, NULL);
	assert_answer(ask(*state, "POST /api/echo", "Content-Length: 0\r\n", NULL), 400,
		      "invalid_json");

	_cleanup_answer_ struct answer a =
		ask(*state, "POST /api/relaxed", "Content-Length: 0\r\n", NULL);

	assert_int_equal(a.status, 201);
	assert_non_null(strstr(a.body, "\"body\":{}"));
}

static void only_json_is_taken(void **state)
{
	static const struct {
		const char *type;
		int status;
	} cases[] = {
		{ "application/json", 201 },
		{ "Application/JSON; charset=UTF-8", 201 },
		{ "application/json;", 201 },
		{ "text/plain", 415 },
		{ "application/x-www-form-urlencoded", 415 },
		{ "application/jsonp", 415 },
		{ "application/json; charset=latin1", 415 },
		{ "multipart/form-data; boundary=x", 415 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct test_server *server = *state;
		_cleanup_close_ int fd = dial(server);

		say(fd, "POST /api/echo HTTP/1.1\r\nHost: localhost:%d\r\nContent-Type: %s\r\n",
		    server->port, cases[i].type);
		say(fd, "Content-Length: 2\r\n\r\n{}");
		assert_answer(read_answer(fd), cases[i].status, NULL);
	}
	assert_answer(ask(*state, "POST /api/echo", "Content-Length: 2\r\n\r\n{}", NULL), 415,
		      "unsupported_media_type");
}

/* A sender that only writes and reads afterwards still gets to see the answer. */
static void a_long_body_is_refused_and_the_connection_lives(void **state)
{
	const struct test_server *server = *state;
	_cleanup_close_ int fd = dial(server);
	_cleanup_free_ char *body = xmalloc((10 << 20) + 1);

	memset(body, ' ', 10 << 20);
	body[10 << 20] = '\0';
	say(fd,
	    "POST /api/echo HTTP/1.1\r\nHost: localhost:%d\r\n"
	    "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
	    server->port, 10 << 20, body);
	assert_answer(read_answer(fd), 413, "payload_too_large");
	say(fd, "GET /api/echo HTTP/1.1\r\nHost: localhost:%d\r\n\r\n", server->port);
	assert_answer(read_answer(fd), 201, NULL);
}

static void a_sender_that_asks_first_need_not_send(void **state)
{
	assert_answer(ask(*state, "POST /api/echo",
			  "Content-Type: application/json\r\nContent-Length: 9999999\r\n"
			  "Expect: 100-continue\r\n",
			  NULL),
		      413, "payload_too_large");
}

static void a_declared_length_beyond_reason_is_answered_at_once(void **state)
{
	assert_answer(ask(*state, "POST /api/echo",
			  "Content-Type: application/json\r\nContent-Length: 99999999999\r\n",
			  NULL),
		      413, "payload_too_large");
}

/* Closing under the hands of somebody who writes first and reads later would cost him the answer.
 */
static void a_sender_of_too_much_can_finish_and_then_read(void **state)
{
	const struct test_server *server = *state;
	_cleanup_close_ int fd = dial(server);
	_cleanup_free_ char *part = xcalloc(1, 1 << 20);

	say(fd,
	    "POST /api/echo HTTP/1.1\r\nHost: localhost:%d\r\n"
	    "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n",
	    server->port, 40 << 20);
	for (int i = 0; i < 40; i++)
		assert_int_equal(send(fd, part, 1 << 20, MSG_NOSIGNAL), 1 << 20);
	assert_answer(read_answer(fd), 413, "payload_too_large");
}

static void chunks_without_end_are_cut_off(void **state)
{
	const struct test_server *server = *state;
	_cleanup_close_ int fd = dial(server);
	_cleanup_buf_ struct buf chunk = { 0 };
	size_t sent = 0;

	buf_puts(&chunk, "10000\r\n");
	for (int i = 0; i < 0x10000; i++)
		buf_putc(&chunk, ' ');
	buf_puts(&chunk, "\r\n");
	say(fd,
	    "POST /api/echo HTTP/1.1\r\nHost: localhost:%d\r\n"
	    "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
	    server->port);
	while (!readable(fd, 0) && sent < 200 << 20) {
		ssize_t n = send(fd, chunk.data, chunk.len, MSG_NOSIGNAL);

		if (n < 0)
			break;
		sent += (size_t)n;
	}
	assert_true(sent < 100 << 20);
	assert_answer(read_answer(fd), 413, "payload_too_large");
}

static void a_chunked_body_is_a_body(void **state)
{
	const struct test_server *server = *state;
	_cleanup_close_ int fd = dial(server);

	say(fd,
	    "POST /api/echo HTTP/1.1\r\nHost: localhost:%d\r\n"
	    "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	    "4\r\n{\"na\r\n8\r\nme\":\"y\"}\r\n0\r\n\r\n",
	    server->port);

	_cleanup_answer_ struct answer a = read_answer(fd);

	assert_int_equal(a.status, 201);
	assert_non_null(strstr(a.body, "\"body\":{\"name\":\"y\"}"));
}

static void doubtful_framing_ends_the_connection(void **state)
{
	static const char *const heads[] = {
		"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
		"Transfer-Encoding: gzip, chunked\r\n",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
	};
	const struct test_server *server = *state;

	for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
		_cleanup_close_ int fd = dial(server);
		char rest[64];

		say(fd,
		    "POST /api/echo HTTP/1.1\r\nHost: localhost:%d\r\n"
		    "Content-Type: application/json\r\n%s\r\n",
		    server->port, heads[i]);
		assert_answer(read_answer(fd), 400, "bad_request");
		shutdown(fd, SHUT_WR);
		assert_true(readable(fd, CLIENT_MS));
		assert_int_equal(recv(fd, rest, sizeof(rest), 0), 0);
	}
}

/* What two readers of the same bytes could read in two ways. A \1 stands for a NUL. */
static void lines_that_could_be_read_in_two_ways_are_refused(void **state)
{
	static const char *const requests[] = {
		"POST /api/echo HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\nabcde",
		"GET /api/echo HTTP/1.1\r\nHost: x\r\nA B: c\r\n\r\n",
		"GET /api/echo HTTP/1.1\r\nHost: x\r\n: c\r\n\r\n",
		"GET /api/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n chunked\r\n\r\n",
		"GET /api/echo HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\nD: e\r\n\r\n",
		"GET /api/echo HTTP/1.1\nHost: x\r\n\r\n",
		"GET /api/echo HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
		"GET /api/echo HTTP/1.1\r\nHost: x\r\nA: b\rC: d\r\n\r\n",
		"GET /api/echo HTTP/1.1\r\nHost: x\r\nA: b\1c\r\nD: e\r\n\r\n",
		"GET /api/echo HTTP/1.1\r\nHost: x\r\nA: b\1c\r\n\r\n",
		"GET /api/echo HTTP/1.1\r\nHost: x\r\nA: \x7f\r\n\r\n",
		"POST /api/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\n\r\n{}",
		"POST /api/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\n{}",
	};
	const struct test_server *server = *state;

	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		_cleanup_close_ int fd = dial_unix(server);
		_cleanup_buf_ struct buf text = { 0 };
		char *nul, rest[64];

		buf_puts(&text, requests[i]);
		nul = strchr(text.data, 1);
		if (nul)
			*nul = 0;
		assert_int_equal(send(fd, text.data, text.len, MSG_NOSIGNAL), text.len);
		assert_answer(read_answer(fd), 400, "bad_request");
		shutdown(fd, SHUT_WR);
		assert_true(readable(fd, CLIENT_MS));
		assert_int_equal(recv(fd, rest, sizeof(rest), 0), 0);
	}
}

static void long_and_many_headers_are_read(void **state)
{
	_cleanup_close_ int fd = dial_unix(*state);

	for (int round = 0; round < 3; round++) {
		_cleanup_buf_ struct buf text = { 0 };

		buf_puts(&text, "GET /api/echo HTTP/1.1\r\nHost: x\r\nEmpty:\r\nTrailing: a  \r\n");
		buf_puts(&text, "Latin: \xe9\r\nTab: a\tb\r\nLong: ");
		for (int i = 0; i < 16000; i++)
			buf_putc(&text, 'x');
		buf_puts(&text, "\r\n");
		for (int i = 0; i < 100; i++)
			buf_printf(&text, "X-%d: %d\r\n", i, i);
		buf_puts(&text, "\r\n");
		/* In two parts, the second of which makes the library's buffer grow. */
		say(fd, "%.*s", 5000, buf_str(&text));
		say(fd, "%s", buf_str(&text) + 5000);
		assert_answer(read_answer(fd), 201, NULL);
	}
}

static void a_proxys_mark_takes_local_trust_from_its_connection_for_good(void **state)
{
	static const char *const marks[] = { "X-Forwarded-For",  "X-Forwarded-Proto", "Forwarded",
					     "CF-Connecting-IP", "True-Client-IP",    "Via" };

	for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
		_cleanup_close_ int fd = dial_unix(*state);

		say(fd, "GET /api/echo HTTP/1.1\r\nHost: x\r\n\r\n");
		assert_answer(read_answer(fd), 201, NULL);
		say(fd, "GET /api/echo HTTP/1.1\r\nHost: x\r\n%s: 1\r\n\r\n", marks[i]);
		assert_answer(read_answer(fd), 401, "unauthenticated");
		say(fd, "GET /api/echo HTTP/1.1\r\nHost: x\r\n\r\n");
		assert_answer(read_answer(fd), 401, "unauthenticated");
	}
}

static void what_a_browser_calls_cross_site_is_refused(void **state)
{
	assert_answer(ask(*state, "GET /api/echo", "Sec-Fetch-Site: cross-site\r\n", NULL), 403,
		      "origin_not_allowed");
	assert_answer(ask(*state, "GET /api/echo", "Sec-Fetch-Site: same-origin\r\n", NULL), 201,
		      NULL);
	assert_answer(ask(*state, "GET /api/echo", "Sec-Fetch-Site: none\r\n", NULL), 201, NULL);
}

static void a_key_must_be_plain_and_short(void **state)
{
	_cleanup_buf_ struct buf head = { 0 };

	buf_puts(&head, "Idempotency-Key: ");
	for (int i = 0; i < 256; i++)
		buf_putc(&head, 'k');
	buf_puts(&head, "\r\n");
	assert_answer(ask(*state, "POST /api/echo", buf_str(&head), "{}"), 400, "bad_request");
	assert_answer(ask(*state, "POST /api/echo", "Idempotency-Key: \xc3\xa9\r\n", "{}"), 400,
		      "bad_request");
	assert_answer(
		ask(*state, "POST /api/echo", "Idempotency-Key: a\r\nIdempotency-Key: b\r\n", "{}"),
		400, "bad_request");
}

static void with_host(const struct test_server *server, const char *lines, int status,
		      const char *code)
{
	_cleanup_close_ int fd = dial(server);

	say(fd, "GET /api/echo HTTP/1.1\r\n%s\r\n", lines);
	assert_answer(read_answer(fd), status, code);
}

static void only_our_own_host_and_origin_are_served(void **state)
{
	const struct test_server *server = *state;
	char lines[256];

	snprintf(lines, sizeof(lines), "Host: 127.0.0.1:%d\r\n", server->port);
	with_host(server, lines, 201, NULL);
	with_host(server, "Host: evil.example\r\n", 403, "host_not_allowed");
	with_host(server, "Host: localhost\r\n", 403, "host_not_allowed");
	snprintf(lines, sizeof(lines), "Host: evil.example:%d\r\n", server->port);
	with_host(server, lines, 403, "host_not_allowed");
	snprintf(lines, sizeof(lines), "Host: localhost:%d\r\nOrigin: http://localhost:%d\r\n",
		 server->port, server->port);
	with_host(server, lines, 201, NULL);
	snprintf(lines, sizeof(lines), "Host: localhost:%d\r\nOrigin: https://evil.example\r\n",
		 server->port);
	with_host(server, lines, 403, "origin_not_allowed");
	snprintf(lines, sizeof(lines), "Host: localhost:%d\r\nOrigin: null\r\n", server->port);
	with_host(server, lines, 403, "origin_not_allowed");
	snprintf(lines, sizeof(lines), "Host: localhost:%d\r\nHost: evil.example\r\n",
		 server->port);
	with_host(server, lines, 400, "bad_request");

	_cleanup_close_ int fd = dial(server);

	say(fd, "GET /api/echo HTTP/1.0\r\n\r\n");
	assert_answer(read_answer(fd), 403, "host_not_allowed");
}

static void a_unix_socket_has_no_host_but_no_pages_either(void **state)
{
	_cleanup_close_ int fd = dial_unix(*state);

	say(fd, "GET /api/echo HTTP/1.1\r\nHost: anything\r\n\r\n");
	assert_answer(read_answer(fd), 201, NULL);
	say(fd, "GET /api/echo HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\n\r\n");
	assert_answer(read_answer(fd), 403, "origin_not_allowed");
}

/* One request by another user; its bytes come back over a socket that read_answer understands. */
static struct answer ask_as_nobody(const struct test_server *server, bool over_unix,
				   const char *path)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);

	pid_t pid = fork();

	if (pid == 0) {
		_cleanup_buf_ struct buf got = { 0 };

		if (setgid(65534) < 0 || setuid(65534) < 0)
			_exit(1);

		int fd = over_unix ? dial_unix(server) : dial(server);

		say(fd, "GET %s HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\n\r\n", path,
		    server->port);
		read_until(fd, NULL, &got);
		say(pair[1], "%s", buf_str(&got));
		_exit(0);
	}
	close(pair[1]);

	struct answer answer = read_answer(pair[0]);

	close(pair[0]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	return answer;
}

static void another_user_of_the_machine_is_refused(void **state)
{
	const struct test_server *server = *state;

	if (geteuid() != 0)
		skip();
	assert_int_equal(chmod(server->dir, 0755), 0);
	assert_int_equal(chmod(server->socket_path, 0666), 0);
	assert_answer(ask_as_nobody(server, false, "/api/echo"), 401, "unauthenticated");
	assert_answer(ask_as_nobody(server, true, "/api/echo"), 401, "unauthenticated");
	assert_answer(ask_as_nobody(server, false, "/api/nothing"), 401, "unauthenticated");

	_cleanup_answer_ struct answer a = ask_as_nobody(server, false, "/api/public");

	assert_int_equal(a.status, 201);
	assert_non_null(strstr(a.body, "\"trusted\":false"));
	assert_non_null(strstr(a.body, "\"actor\":\"anonymous\""));
}

static void many_requests_share_a_connection(void **state)
{
	const struct test_server *server = *state;
	_cleanup_close_ int fd = dial(server);

	for (int i = 0; i < 50; i++) {
		say(fd, "GET /api/echo/%d HTTP/1.1\r\nHost: localhost:%d\r\n\r\n", i, server->port);

		_cleanup_answer_ struct answer a = read_answer(fd);

		assert_int_equal(a.status, 201);
	}
	assert_int_equal(http_connections(server->http), 1);
	close(fd);
	fd = -1;
	for (int tries = 0; http_connections(server->http) || !http_idle_since(server->http);) {
		if (tries++ == 1000)
			fail_msg("the server still thinks somebody is there");
		poll(NULL, 0, 10);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_checked_request_reaches_its_handler, up, down),
		cmocka_unit_test_setup_teardown(every_answer_says_what_it_is, up, down),
		cmocka_unit_test_setup_teardown(a_handlers_error_carries_code_and_details, up,
						down),
		cmocka_unit_test_setup_teardown(unknown_paths_and_methods_are_told_apart, up, down),
		cmocka_unit_test_setup_teardown(escapes_are_ours_to_decode, up, down),
		cmocka_unit_test_setup_teardown(a_nul_in_the_request_line_hides_nothing, up, down),
		cmocka_unit_test_setup_teardown(a_query_is_held_to_its_table, up, down),
		cmocka_unit_test_setup_teardown(bodies_stand_only_where_they_belong, up, down),
		cmocka_unit_test_setup_teardown(only_json_is_taken, up, down),
		cmocka_unit_test_setup_teardown(a_long_body_is_refused_and_the_connection_lives, up,
						down),
		cmocka_unit_test_setup_teardown(a_sender_that_asks_first_need_not_send, up, down),
		cmocka_unit_test_setup_teardown(a_declared_length_beyond_reason_is_answered_at_once,
						up, down),
		cmocka_unit_test_setup_teardown(a_sender_of_too_much_can_finish_and_then_read, up,
						down),
		cmocka_unit_test_setup_teardown(chunks_without_end_are_cut_off, up, down),
		cmocka_unit_test_setup_teardown(a_chunked_body_is_a_body, up, down),
		cmocka_unit_test_setup_teardown(doubtful_framing_ends_the_connection, up, down),
		cmocka_unit_test_setup_teardown(lines_that_could_be_read_in_two_ways_are_refused,
						up, down),
		cmocka_unit_test_setup_teardown(long_and_many_headers_are_read, up, down),
		cmocka_unit_test_setup_teardown(
			a_proxys_mark_takes_local_trust_from_its_connection_for_good, up, down),
		cmocka_unit_test_setup_teardown(what_a_browser_calls_cross_site_is_refused, up,
						down),
		cmocka_unit_test_setup_teardown(a_key_must_be_plain_and_short, up, down),
		cmocka_unit_test_setup_teardown(only_our_own_host_and_origin_are_served, up, down),
		cmocka_unit_test_setup_teardown(a_unix_socket_has_no_host_but_no_pages_either, up,
						down),
		cmocka_unit_test_setup_teardown(another_user_of_the_machine_is_refused, up, down),
		cmocka_unit_test_setup_teardown(many_requests_share_a_connection, up, down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

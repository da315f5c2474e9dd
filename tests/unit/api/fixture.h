/*
 * A whole server in this process, in a directory of its own, and a client on its unix socket.
 */
#pragma once

#include <curl/curl.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <cmocka.h>
#include "api/server.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "../open_places.h"

#define CALL_SECONDS 60L
#define PATIENCE_MS 20000

struct api_test {
	char dir[64];
	char data[96], socket[128];
	struct server *server;
	char company[ID_SIZE], local[ID_SIZE], box[ID_SIZE];
};

static inline size_t collect(char *data, size_t size, size_t count, void *arg)
{
	buf_append(arg, data, size * count);
	return size * count;
}

struct call {
	const char *method, *path, *body, *key, *accept;
	const char *token;  /* bearer */
	const char *header; /* one more, as it stands */
	const char *type;   /* of the body; NULL: JSON */
	bool websocket;     /* asks for one */
};
/* CALL(method, path), CALL(method, path, body), CALL(method, path, body, key) */
#define CALL(...) CALL_(__VA_ARGS__, NULL, NULL, NULL)
#define CALL_(m, p, b, k, ...) (&(struct call){ .method = m, .path = p, .body = b, .key = k })

/*
 * Refusals that a test got from a real server, one a line, in the file that BERTH_REFUSALS names:
 * tests/openapi/refusals compares them with the document.
 */
static inline void note_refusal(const struct api_test *t, const struct call *call, long status,
				const char *answer)
{
	const char *file = getenv("BERTH_REFUSALS");
	_cleanup_json_ json_t *json = NULL;
	_cleanup_close_ int fd = -1;

	if (!file || status < 400 || !strstr(t->socket, "/berth.sock"))
		return;
	json = json_parse(answer, strlen(answer), NULL);
	fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	dprintf(fd, "%s %s %ld %s\n", call->method, call->path, status,
		json_str(json, "code") ? json_str(json, "code") : "-");
}

static inline struct curl_slist *websocket_headers(struct curl_slist *headers)
{
	headers = curl_slist_append(headers, "Connection: Upgrade");
	headers = curl_slist_append(headers, "Upgrade: websocket");
	headers = curl_slist_append(headers, "Sec-WebSocket-Version: 13");
	return curl_slist_append(headers, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==");
}

/* Returns the status; the answer's bytes are appended to `out`. */
static inline int call_raw(const struct api_test *t, const struct call *call, struct buf *out)
{
	CURL *curl = curl_easy_init();
	_cleanup_free_ char *url = xasprintf("http://localhost%s", call->path);
	_cleanup_free_ char *key = call->key ? xasprintf("Idempotency-Key: %s", call->key) : NULL;
	_cleanup_free_ char *accept = call->accept ? xasprintf("Accept: %s", call->accept) : NULL;
	_cleanup_free_ char *type =
		xasprintf("Content-Type: %s", call->type ? call->type : "application/json");
	struct curl_slist *headers = curl_slist_append(NULL, type);
	size_t before = out->len;
	long status = 0;

	if (key)
		headers = curl_slist_append(headers, key);
	if (accept)
		headers = curl_slist_append(headers, accept);
	if (call->token) {
		_cleanup_free_ char *bearer = xasprintf("Authorization: Bearer %s", call->token);

		headers = curl_slist_append(headers, bearer);
	}
	if (call->header)
		headers = curl_slist_append(headers, call->header);
	if (call->websocket)
		headers = websocket_headers(headers);
	headers = curl_slist_append(headers, "Expect:");
	curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, t->socket);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, CALL_SECONDS);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, out);
	if (call->body)
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call->body);

	CURLcode code = curl_easy_perform(curl);

	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	curl_slist_free_all(headers);
	curl_easy_cleanup(curl);
	if (code != CURLE_OK)
		fail_msg("%s %s: %s", call->method, call->path, curl_easy_strerror(code));
	note_refusal(t, call, status, buf_str(out) + before);
	return (int)status;
}

/* The answer as JSON, which must have this status. */
static inline json_t *call_json(const struct api_test *t, int status, const struct call *call)
{
	_cleanup_buf_ struct buf out = { 0 };
	int got = call_raw(t, call, &out);

	if (got != status)
		fail_msg("%s %s %s: wanted %d, got %d %s", call->method, call->path,
			 call->body ? call->body : "", status, got, buf_str(&out));

	json_t *json = json_parse(buf_str(&out), out.len, NULL);

	if (!json)
		fail_msg("%s is no JSON", buf_str(&out));
	return json;
}

#define PATH(...) _cleanup_free_ char *path = xasprintf(__VA_ARGS__)

static inline json_t *get(const struct api_test *t, const char *path)
{
	return call_json(t, 200, CALL("GET", path));
}

static inline json_t *post(const struct api_test *t, int status, const char *path, const char *body)
{
	return call_json(t, status, CALL("POST", path, body));
}

/* A refusal: its status, its code, and a part of its text (NULL: any). */
static inline void refused(const struct api_test *t, int status, const char *code, const char *text,
			   const struct call *call)
{
	_cleanup_json_ json_t *answer = call_json(t, status, call);

	assert_string_equal(json_str(answer, "code"), code);
	if (text && !strstr(json_str(answer, "error"), text))
		fail_msg("\"%s\" does not say \"%s\"", json_str(answer, "error"), text);
}

static inline void take_id(json_t *json, char out[ID_SIZE])
{
	id_copy(out, json_str(json, "id"));
	assert_true(id_is_valid(out));
	json_decref(json);
}

/* The server keeps SIGTERM for server_run; without that a test that hangs could not be ended. */
static inline void heed_sigterm(void)
{
	sigset_t term;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	pthread_sigmask(SIG_UNBLOCK, &term, NULL);
}

static inline void server_begin(struct api_test *t, bool allow_fake)
{
	_cleanup_error_ struct error err = { 0 };
	struct server_options options = { .data_path = t->data,
					  .allow_fake = allow_fake,
					  .default_environment = "Local",
					  .absence_ms = 20000 };

	use_built_programs();
	if (server_start(&options, &t->server, &err) < 0)
		fail_msg("%s", err.message);
	heed_sigterm();
}

static inline void server_end(struct api_test *t)
{
	server_free(t->server);
	t->server = NULL;
}

static inline void make_dir(struct api_test *t)
{
	log_set_level(LOG_ERROR_);
	snprintf(t->dir, sizeof(t->dir), "/tmp/berth-api-XXXXXX");
	assert_non_null(mkdtemp(t->dir));
	snprintf(t->data, sizeof(t->data), "%s/data", t->dir);
	snprintf(t->socket, sizeof(t->socket), "%s/berth.sock", t->data);
}

static inline void remove_dir(struct api_test *t)
{
	end_keeper(t->data);
	assert_int_equal(dir_remove_tree(AT_FDCWD, t->dir, NULL), 0);
}

/* The id of the environment of that name. */
static inline void environment_named(const struct api_test *t, const char *company,
				     const char *name, char out[ID_SIZE])
{
	PATH("/api/companies/%s/environments", company);
	_cleanup_json_ json_t *environments = get(t, path);
	json_t *item;
	size_t i;

	out[0] = '\0';
	json_array_foreach (environments, i, item)
		if (str_equal(json_str(item, "name"), name))
			id_copy(out, json_str(item, "id"));
	assert_true(id_is_valid(out));
}

/* A company "acme" with its Local environment, and "box", a fake sandbox with one reusable place.
 */
static inline int api_up(void **state)
{
	struct api_test *t = xcalloc(1, sizeof(*t));

	make_dir(t);
	server_begin(t, true);
	take_id(post(t, 201, "/api/companies", "{\"name\": \"acme\"}"), t->company);

	PATH("/api/companies/%s/environments", t->company);

	environment_named(t, t->company, "Local", t->local);
	take_id(post(t, 201, path,
		     "{\"name\": \"box\", \"driver\": \"sandbox\","
		     " \"config\": {\"provider\": \"fake\", \"reuseLease\": true}}"),
		t->box);
	*state = t;
	return 0;
}

static inline int api_down(void **state)
{
	struct api_test *t = *state;

	server_end(t);
	remove_dir(t);
	free(t);
	return 0;
}

#define api_unit_test(f) cmocka_unit_test_setup_teardown(f, api_up, api_down)

static inline json_t *acquire(const struct api_test *t, const char *environment, const char *body)
{
	PATH("/api/environments/%s/leases", environment);

	return post(t, 201, path, body);
}

/* Until `condition` holds; fails after a while. */
#define WAIT_FOR(condition)                                                                        \
	do {                                                                                       \
		int _left = PATIENCE_MS;                                                           \
		while (!(condition)) {                                                             \
			if ((_left -= 5) <= 0)                                                     \
				fail_msg("it never came to %s", #condition);                       \
			usleep(5000);                                                              \
		}                                                                                  \
	} while (0)

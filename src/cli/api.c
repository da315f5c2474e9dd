#include "cli/api.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "http/websocket.h"

#define ANSWER_MAX (64u << 20)
#define HEAD_MAX ((size_t)64 << 10)
#define HANDSHAKE_MS 15000
#define CALL_SECONDS 3700L /* a lease may wait an hour for its turn */

struct api {
	CURL *curl;
	char *base;        /* "http://localhost" or the URL, without a closing slash */
	char *socket_path; /* NULL over TCP */
	int data_dirfd;    /* keeps a short path to the socket alive; -1: none */
	struct curl_slist *headers;
	char *token; /* NULL: none */
	const char *ca_file;
};

/* From the file, else from the environment; never from the command line, which all can see. */
static int take_token(struct api *api, const struct cli *cli, struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };
	const char *token = getenv("BERTH_TOKEN");

	if (cli->token_file) {
		if (file_read(AT_FDCWD, cli->token_file, &text, TOKEN_MAX, err) < 0)
			return -1;
		token = buf_str(&text);
	}
	if (!token || (!cli->token_file && !token[0]))
		return 0;
	api->token = str_trimmed(token);
	if (text.data)
		wipe(text.data, text.cap);
	if (!api->token[0] || strpbrk(api->token, " \t\r\n"))
		return error_set(err, ERR_BAD_REQUEST, "%s has no token in it",
				 cli->token_file ? cli->token_file : "BERTH_TOKEN");
	return 0;
}

static bool is_loopback(const char *host)
{
	struct in_addr v4;

	if (streq(host, "localhost") || streq(host, "[::1]"))
		return true;
	return inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
}

/* On the way to another machine anybody reads what is not encrypted. */
static int guard_token(const struct api *api, const struct cli *cli, struct error *err)
{
	CURLU *url;
	char *host = NULL;
	bool near;

	if (!api->token || !cli->url || cli->insecure_http || !str_starts(api->base, "http://"))
		return 0;
	/* libcurl's own reading of it: it is libcurl that will connect. */
	url = curl_url();
	near = url && curl_url_set(url, CURLUPART_URL, api->base, 0) == CURLUE_OK &&
	       curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK && is_loopback(host);
	curl_free(host);
	curl_url_cleanup(url);
	if (near)
		return 0;
	return error_set(err, ERR_BAD_REQUEST,
			 "the token is not sent to %.200s: over plain http everybody on the way "
			 "reads it. Use https://, or --insecure-http if the network is yours",
			 api->base);
}

/* A socket's path may be longer than an address holds: /proc/self/fd/N/name is always short. */
static int socket_path(struct api *api, const char *data_path, bool may_start, struct error *err)
{
	_cleanup_free_ char *path = path_join(data_path, "berth.sock");

	api->data_dirfd = -1;
	if (strlen(path) < 100) {
		api->socket_path = steal(path);
		return 0;
	}
	/* The server that is about to start needs it too. */
	if (may_start && dir_make(AT_FDCWD, data_path, 0700, err) < 0)
		return -1;
	if (dir_open(AT_FDCWD, data_path, &api->data_dirfd, err) < 0)
		return -1;
	api->socket_path = xasprintf("/proc/self/fd/%d/berth.sock", api->data_dirfd);
	return 0;
}

void api_close(struct api *api)
{
	if (!api)
		return;
	curl_slist_free_all(api->headers);
	curl_easy_cleanup(api->curl);
	if (api->token)
		wipe(api->token, strlen(api->token));
	free(api->token);
	free(api->base);
	free(api->socket_path);
	if (api->data_dirfd >= 0)
		close(api->data_dirfd);
	free(api);
}

int api_open(struct cli *cli, bool may_start, struct api **out, struct error *err)
{
	_cleanup_api_ struct api *api = xcalloc(1, sizeof(*api));

	api->data_dirfd = -1;
	if (cli->url) {
		if (!str_starts(cli->url, "http://") && !str_starts(cli->url, "https://"))
			return error_set(err, ERR_BAD_REQUEST,
					 "\"%s\" is not an http:// or https:// URL", cli->url);
		api->base = xstrdup(cli->url);
		while (str_ends(api->base, "/"))
			api->base[strlen(api->base) - 1] = 0;
	} else {
		api->base = xstrdup("http://localhost");
		if (socket_path(api, cli->data_path, may_start, err) < 0)
			return -1;
	}
	if (take_token(api, cli, err) < 0 || guard_token(api, cli, err) < 0)
		return -1;
	api->ca_file = cli->ca_file;
	api->curl = curl_easy_init();
	if (!api->curl)
		return error_set(err, ERR_INTERNAL, "libcurl cannot be used");
	*out = steal(api);
	return 0;
}

/* Header list, URL, socket, method and body of one request. `text` outlives it. */
static void prepare(struct api *api, const char *method, const char *path, const char *text,
		    const char *accept, char **url)
{
	CURL *curl = api->curl;

	curl_easy_reset(curl);
	curl_slist_free_all(api->headers);
	api->headers = curl_slist_append(NULL, "Expect:");
	*url = xasprintf("%s%s", api->base, path);
	curl_easy_setopt(curl, CURLOPT_URL, *url);
	if (api->socket_path)
		curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, api->socket_path);
	curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 5L);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	if (api->ca_file)
		curl_easy_setopt(curl, CURLOPT_CAINFO, api->ca_file);
	if (api->token) {
		char *header = xasprintf("Authorization: Bearer %s", api->token);

		api->headers = curl_slist_append(api->headers, header);
		wipe(header, strlen(header));
		free(header);
	}
	if (text) {
		api->headers = curl_slist_append(api->headers, "Content-Type: application/json");
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, text);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)strlen(text));
	}
	if (accept) {
		_cleanup_free_ char *header = xasprintf("Accept: %s", accept);

		api->headers = curl_slist_append(api->headers, header);
	}
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, api->headers);
}

static size_t keep(char *data, size_t size, size_t count, void *arg)
{
	struct buf *answer = arg;

	buf_append(answer, data, size * count);
	return answer->overflow ? 0 : size * count;
}

/* The server's {error, code, details} as our own error. */
static int server_error(long status, const char *text, size_t len, struct error *err)
{
	_cleanup_json_ json_t *body = len ? json_parse(text, len, NULL) : NULL;
	const char *code = json_str(body, "code"), *message = json_str(body, "error");
	json_t *details = json_object_get(body, "details");

	if (!message)
		return error_set(err, ERR_PROTOCOL, "the server answered %ld without a reason",
				 status);
	error_set(err, code ? error_code_from_name(code) : ERR_INTERNAL, "%s", message);
	if (details && !json_is_null(details))
		error_set_details(err, json_text(details));
	return -1;
}

/* Somebody else's certificate is not the same as nobody there. */
static int no_answer(CURLcode code, struct error *err)
{
	if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
		return error_set(err, ERR_PROTOCOL,
				 "the server's certificate cannot be trusted (%s); --ca-file names "
				 "those to trust",
				 curl_easy_strerror(code));
	error_set(err, ERR_UNAVAILABLE, "no answer from the server: %s", curl_easy_strerror(code));
	/* Nothing was sent: nobody is there, or not yet. */
	if (err && code == CURLE_COULDNT_CONNECT)
		err->errnum = ECONNREFUSED;
	return -1;
}

int api_call(struct api *api, const char *method, const char *path, const json_t *body,
	     json_t **answer, struct error *err)
{
	_cleanup_free_ char *text = body ? json_text(body) : NULL, *url = NULL;
	_cleanup_buf_ struct buf got = { .max = ANSWER_MAX };
	long status = 0;
	CURLcode code;

	prepare(api, method, path, text, NULL, &url);
	curl_easy_setopt(api->curl, CURLOPT_TIMEOUT, CALL_SECONDS);
	curl_easy_setopt(api->curl, CURLOPT_WRITEFUNCTION, keep);
	curl_easy_setopt(api->curl, CURLOPT_WRITEDATA, &got);
	code = curl_easy_perform(api->curl);
	if (code != CURLE_OK)
		return no_answer(code, err);
	curl_easy_getinfo(api->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status < 200 || status > 299)
		return server_error(status, buf_str(&got), got.len, err);
	if (!answer)
		return 0;
	*answer = json_parse(buf_str(&got), got.len, err);
	return *answer ? 0 : error_wrap(err, "the server's answer is not JSON");
}

int api_callf(struct api *api, const char *method, const json_t *body, json_t **answer,
	      struct error *err, const char *format, ...)
{
	_cleanup_buf_ struct buf path = { 0 };
	va_list ap;

	va_start(ap, format);
	for (const char *p = format; *p; p++) {
		if (p[0] == '%' && p[1] == 's') {
			char *escaped = curl_easy_escape(api->curl, va_arg(ap, const char *), 0);

			buf_puts(&path, escaped);
			curl_free(escaped);
			p++;
		} else {
			buf_putc(&path, *p);
		}
	}
	va_end(ap);
	return api_call(api, method, buf_str(&path), body, answer, err);
}

/* ---- streams ---- */

struct flow {
	struct api *api;
	const struct api_stream *stream;
	struct buf refusal; /* body of an answer that is an error */
	bool stopped;
};

static size_t pass(char *data, size_t size, size_t count, void *arg)
{
	struct flow *flow = arg;
	long status = 0;

	curl_easy_getinfo(flow->api->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status < 200 || status > 299) {
		buf_append(&flow->refusal, data, size * count);
		return size * count;
	}
	if (flow->stream->on_data(flow->stream->arg, data, size * count))
		return size * count;
	flow->stopped = true;
	return 0;
}

static bool woken(const struct api_stream *stream)
{
	return stream->wake_fd >= 0 && latch_is_set(stream->wake_fd);
}

/* Drives the transfer while also watching wake_fd. */
static CURLcode drive(CURLM *multi, struct flow *flow)
{
	const struct api_stream *stream = flow->stream;
	int running = 1, queued;

	while (running) {
		struct curl_waitfd fd = { .fd = stream->wake_fd, .events = CURL_WAIT_POLLIN };
		CURLMsg *message;

		if (curl_multi_perform(multi, &running) != CURLM_OK)
			return CURLE_RECV_ERROR;
		while ((message = curl_multi_info_read(multi, &queued))) {
			if (message->msg == CURLMSG_DONE)
				return message->data.result;
		}
		if (running && curl_multi_poll(multi, &fd, stream->wake_fd >= 0 ? 1 : 0, 1000,
					       NULL) != CURLM_OK)
			return CURLE_RECV_ERROR;
		if (woken(stream) && !stream->on_wake(stream->arg)) {
			flow->stopped = true;
			return CURLE_OK;
		}
	}
	return CURLE_OK;
}

int api_stream(struct api *api, const struct api_stream *stream, struct error *err)
{
	_cleanup_free_ char *text = stream->body ? json_text(stream->body) : NULL, *url = NULL;
	struct flow flow = { .api = api, .stream = stream, .refusal = { .max = 1 << 20 } };
	CURLM *multi = curl_multi_init();
	long status = 0;
	CURLcode code;
	int result = 0;

	prepare(api, stream->method, stream->path, text, stream->accept, &url);
	curl_easy_setopt(api->curl, CURLOPT_WRITEFUNCTION, pass);
	curl_easy_setopt(api->curl, CURLOPT_WRITEDATA, &flow);
	curl_multi_add_handle(multi, api->curl);
	code = drive(multi, &flow);
	curl_easy_getinfo(api->curl, CURLINFO_RESPONSE_CODE, &status);
	curl_multi_remove_handle(multi, api->curl);
	curl_multi_cleanup(multi);
	if (flow.stopped)
		result = 0;
	else if (status >= 300)
		result = server_error(status, buf_str(&flow.refusal), flow.refusal.len, err);
	else if (code != CURLE_OK)
		result = error_set(err, ERR_UNAVAILABLE, "the stream broke: %s",
				   curl_easy_strerror(code));
	buf_free(&flow.refusal);
	return result;
}

/* ---- bytes to the server ---- */

static size_t feed(char *buf, size_t size, size_t count, void *arg)
{
	const struct api_upload *upload = arg;
	ssize_t n = upload->read(upload->arg, buf, size * count);

	return n < 0 ? CURL_READFUNC_ABORT : (size_t)n;
}

int api_upload(struct api *api, const struct api_upload *upload, json_t **answer, struct error *err)
{
	_cleanup_buf_ struct buf got = { .max = ANSWER_MAX };
	_cleanup_free_ char *url = NULL;
	long status = 0;

	prepare(api, upload->method, upload->path, NULL, NULL, &url);
	api->headers = curl_slist_append(api->headers, "Content-Type: application/octet-stream");
	curl_easy_setopt(api->curl, CURLOPT_HTTPHEADER, api->headers);
	curl_easy_setopt(api->curl, CURLOPT_UPLOAD, 1L);
	curl_easy_setopt(api->curl, CURLOPT_CUSTOMREQUEST, upload->method);
	curl_easy_setopt(api->curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)upload->length);
	curl_easy_setopt(api->curl, CURLOPT_UPLOAD_BUFFERSIZE, 512L << 10);
	curl_easy_setopt(api->curl, CURLOPT_READFUNCTION, feed);
	curl_easy_setopt(api->curl, CURLOPT_READDATA, (void *)upload);
	curl_easy_setopt(api->curl, CURLOPT_WRITEFUNCTION, keep);
	curl_easy_setopt(api->curl, CURLOPT_WRITEDATA, &got);

	CURLcode code = curl_easy_perform(api->curl);

	curl_easy_getinfo(api->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status >= 300)
		return server_error(status, buf_str(&got), got.len, err);
	if (code != CURLE_OK)
		return error_set(err, ERR_UNAVAILABLE, "the bytes did not reach the server: %s",
				 curl_easy_strerror(code));
	if (!answer)
		return 0;
	*answer = json_parse(buf_str(&got), got.len, err);
	return *answer ? 0 : error_wrap(err, "the server's answer is not JSON");
}

char *api_escape(struct api *api, const char *text)
{
	char *escaped = curl_easy_escape(api->curl, text, 0), *copy = xstrdup(escaped);

	curl_free(escaped);
	return copy;
}

/* ---- leaving HTTP ---- */

static int dial_local(const struct api *api, int *out, struct error *err)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(name.sun_path, sizeof(name.sun_path), "%s", api->socket_path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&name, sizeof(name)) < 0)
		return error_set(err, ERR_UNAVAILABLE, "no answer from the server: %s",
				 strerror(errno));
	*out = steal_fd(&fd);
	return 0;
}

/* "http://host:port": `host` gets the whole of it, as the Host header wants it. */
static int dial_url(const struct api *api, char **host, int *out, struct error *err)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
	_cleanup_free_ char *name = NULL;
	const char *port = "80";
	char *colon;

	const char *authority = strstr(api->base, "://") + 3;

	free(*host);
	*host = xstrndup(authority, strcspn(authority, "/"));
	if (str_starts(api->base, "https://"))
		return tunnel_open(api->base, api->ca_file, out, err);
	name = xstrdup(*host);
	colon = strrchr(name, ':');
	if (colon && !strchr(colon, ']')) {
		*colon = '\0';
		port = colon + 1;
	}

	bool bracket = name[0] == '[' && str_ends(name, "]");

	if (bracket)
		name[strlen(name) - 1] = '\0';
	if (getaddrinfo(name + bracket, port, &hints, &found) != 0)
		return error_set(err, ERR_UNAVAILABLE, "there is no host \"%s\"", name);
	*out = -1;
	for (const struct addrinfo *at = found; at && *out < 0; at = at->ai_next) {
		*out = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
		if (*out >= 0 && connect(*out, at->ai_addr, at->ai_addrlen) < 0)
			close_fdp(out);
	}
	freeaddrinfo(found);
	return *out < 0 ? error_set(err, ERR_UNAVAILABLE, "no server answers at %s", api->base) : 0;
}

/* The head of the answer, and what follows it as far as it has come. */
static int read_head(int fd, struct buf *head, struct buf *rest, struct error *err)
{
	char part[4096];
	char *end;

	while (!(end = strstr(buf_str(head), "\r\n\r\n"))) {
		struct pollfd pollfd = { .fd = fd, .events = POLLIN };

		if (head->len > HEAD_MAX || poll(&pollfd, 1, HANDSHAKE_MS) <= 0)
			return error_set(err, ERR_UNAVAILABLE, "no answer from the server");

		ssize_t n = recv(fd, part, sizeof(part), 0);

		if (n <= 0)
			return error_set(err, ERR_UNAVAILABLE, "the server hung up");
		buf_append(head, part, (size_t)n);
	}
	end += 4;
	buf_append(rest, end, head->len - (size_t)(end - head->data));
	*end = '\0';
	return 0;
}

/* The rest of a refusal, which says how long it is. */
static int read_refusal(int fd, const char *head, struct buf *body, struct error *err)
{
	const char *length = strcasestr(head, "\r\ncontent-length:");
	size_t want = length ? strtoul(length + 17, NULL, 10) : 0;
	char part[4096];
	long status = strtol(head + 9, NULL, 10);

	while (body->len < MIN_OF(want, HEAD_MAX)) {
		ssize_t n = recv(fd, part, sizeof(part), 0);

		if (n <= 0)
			break;
		buf_append(body, part, (size_t)n);
	}
	return server_error(status, buf_str(body), body->len, err);
}

int api_websocket(struct api *api, const char *path, int *out, struct buf *early, struct error *err)
{
	_cleanup_close_ int fd = -1;
	_cleanup_free_ char *host = xstrdup("localhost"), *accepted = NULL;
	_cleanup_buf_ struct buf request = { 0 }, head = { 0 };
	char key[WEBSOCKET_KEY_SIZE], accept[WEBSOCKET_ACCEPT_SIZE];

	if ((api->socket_path ? dial_local(api, &fd, err) : dial_url(api, &host, &fd, err)) < 0)
		return -1;
	websocket_key_new(key);
	websocket_accept_for(key, accept);
	buf_printf(&request,
		   "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		   "Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n",
		   path, host, key);
	if (api->token)
		buf_printf(&request, "Authorization: Bearer %s\r\n", api->token);
	buf_puts(&request, "\r\n");
	if (fd_write_all(fd, request.data, request.len, NULL) < 0)
		return error_set(err, ERR_UNAVAILABLE, "the server hung up");
	if (read_head(fd, &head, early, err) < 0)
		return -1;
	if (!str_starts(head.data, "HTTP/1.1 101"))
		return read_refusal(fd, head.data, early, err);
	accepted = xasprintf("\r\nSec-WebSocket-Accept: %s\r\n", accept);
	if (!strcasestr(head.data, accepted))
		return error_set(err, ERR_PROTOCOL, "the address is not a WebSocket server");
	*out = steal_fd(&fd);
	return 0;
}

/* ---- finding the server and what the verb is about ---- */

int api_connect(struct cli *cli, bool may_start, struct api **out, struct error *err)
{
	_cleanup_api_ struct api *api = NULL;

	if (api_open(cli, may_start, &api, err) < 0)
		return -1;
	if (api_call(api, "GET", "/api/health", NULL, NULL, err) < 0) {
		if (err->code != ERR_UNAVAILABLE)
			return -1;
		if (cli->url)
			return error_set(err, ERR_UNAVAILABLE, "no server answers at %s", cli->url);
		if (!may_start)
			return error_set(err, ERR_UNAVAILABLE,
					 "no server runs on %s: start one with `berth "
					 "serve --data %s`",
					 cli->data_path, cli->data_path);
		error_clear(err);
		if (autostart(cli, api, err) < 0)
			return -1;
	}
	*out = steal(api);
	return 0;
}

int api_pick(const json_t *list, const char *name, const char *what, json_t **out,
	     struct error *err)
{
	json_t *item, *found = NULL;
	size_t i;

	json_array_foreach (list, i, item) {
		if (str_equal(json_str(item, "id"), name)) {
			*out = json_incref(item);
			return 0;
		}
		if (!str_equal(json_str(item, "name"), name))
			continue;
		if (found)
			return error_set(err, ERR_CONFLICT,
					 "there are several %ss called \"%s\": use the id", what,
					 name);
		found = item;
	}
	if (!found)
		return error_set(err, ERR_NOT_FOUND,
				 "there is no %s \"%s\"; `berth %s ls` lists them", what, name,
				 streq(what, "environment") ? "env" : what);
	*out = json_incref(found);
	return 0;
}

int api_company(struct cli *cli, struct api *api, char out[ID_SIZE], struct error *err)
{
	_cleanup_json_ json_t *list = NULL, *found = NULL, *body = NULL;
	const char *name = cli->company ? cli->company : "default";

	if (api_call(api, "GET", "/api/companies", NULL, &list, err) < 0)
		return -1;
	if (api_pick(list, name, "company", &found, err) < 0) {
		if (err->code != ERR_NOT_FOUND || cli->company)
			return -1;
		if (api->token && json_array_size(list) == 1) {
			error_clear(err);
			id_copy(out, json_str(json_array_get(list, 0), "id"));
			return 0;
		}
		error_clear(err);
		body = json_object();
		json_put_str(body, "name", name);
		if (api_call(api, "POST", "/api/companies", body, &found, err) < 0) {
			/* Somebody else's first use at the same moment. */
			if (err->code != ERR_CONFLICT)
				return -1;
			error_clear(err);
			json_decref(list);
			list = NULL;
			if (api_call(api, "GET", "/api/companies", NULL, &list, err) < 0 ||
			    api_pick(list, name, "company", &found, err) < 0)
				return -1;
		}
	}
	id_copy(out, json_str(found, "id"));
	return 0;
}

int api_environment(struct api *api, const char *company_id, const char *name, json_t **out,
		    struct error *err)
{
	_cleanup_json_ json_t *list = NULL;

	if (api_callf(api, "GET", NULL, &list, err, "/api/companies/%s/environments", company_id) <
	    0)
		return -1;
	return api_pick(list, name, "environment", out, err);
}

int api_agent(struct api *api, const char *company_id, const char *name, json_t **out,
	      struct error *err)
{
	_cleanup_json_ json_t *list = NULL;

	if (api_callf(api, "GET", NULL, &list, err, "/api/companies/%s/agents", company_id) < 0)
		return -1;
	return api_pick(list, name, "agent", out, err);
}

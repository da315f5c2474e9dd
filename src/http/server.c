#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "base/text.h"
#include "http/exchange.h"
#include "http/tls.h"
#include "http/trust.h"

#define DEFAULT_CONNECTIONS 4096
#define DEFAULT_PER_PEER 3000
#define DEFAULT_IDLE_SECONDS 60
#define DEFAULT_HEAD_SECONDS 10
#define DEFAULT_BAD_TOKENS 10
#define BAD_TOKEN_MS 6000 /* until one of them is forgotten */
#define PRIORITIES "SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"
/*
 * Of one connection, and the most that headers may take. Just above 32 kB, from where on
 * libmicrohttpd maps it: a connection that never asks touches a page or two of it, and what one
 * leaves behind goes back to the system. All of it is written once a request has been answered.
 */
#define CONNECTION_MEMORY ((size_t)36 << 10)
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
	__has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define THREAD_STACK ((size_t)2 << 20) /* instrumented frames are large */
#else
#define THREAD_STACK ((size_t)256 << 10)
#endif

static void connection_changed(void *arg, struct MHD_Connection *mhd, void **context,
			       enum MHD_ConnectionNotificationCode what)
{
	struct listener *listener = arg;
	struct http *http = listener->http;
	struct http_connection *connection = *context;

	if (what == MHD_CONNECTION_NOTIFY_STARTED) {
		connection = xcalloc(1, sizeof(*connection));
		connection->http = http;
		connection->is_unix = listener->is_unix;
		connection->is_wide = listener->is_wide;
		connection->fd =
			MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
		*context = connection;
		connection_join(connection);
		return;
	}
	connection_leave(connection);
	*context = NULL;
	free(connection);
}

/* The only place that sees the URI as it was sent; what it returns becomes the exchange. */
static void *request_began(void *arg, const char *uri, struct MHD_Connection *mhd)
{
	struct http_connection *connection =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
	(void)arg;

	if (!connection)
		return NULL;
	connection_reads_head(connection);
	return exchange_new(connection, mhd, uri);
}

/*
 * `url` and `version` point into the same request line, one byte apart from where the first ends;
 * their distance is the only trace of a NUL in between.
 */
static enum MHD_Result request_step(void *arg, struct MHD_Connection *mhd, const char *url,
				    const char *method, const char *version, const char *upload,
				    size_t *upload_len, void **context)
{
	(void)arg;
	(void)mhd;
	if (!*context || version <= url)
		return MHD_NO;
	((struct exchange *)*context)->is_http_1_1 = streq(version, "HTTP/1.1");
	((struct exchange *)*context)->line_end = version + strlen(version);
	return exchange_step(*context, method, (size_t)(version - url) - 1, upload, upload_len);
}

static void request_ended(void *arg, struct MHD_Connection *mhd, void **context,
			  enum MHD_RequestTerminationCode why)
{
	struct listener *listener = arg;
	struct http_connection *connection =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
	(void)why;

	/* A stream switched the idle limit off; what follows on this connection has it again. */
	MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, listener->http->idle_seconds);
	if (*context)
		exchange_free(*context);
	*context = NULL;
	if (connection)
		connection_rests(connection);
}

static size_t leave_escaped(void *arg, struct MHD_Connection *mhd, char *text)
{
	(void)arg;
	(void)mhd;
	return strlen(text);
}

static void log_library(void *arg, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));
static void log_library(void *arg, const char *fmt, va_list ap)
{
	_cleanup_buf_ struct buf text = { 0 };
	(void)arg;

	buf_vprintf(&text, fmt, ap);
	log_debug("libmicrohttpd: %s", buf_str(&text));
}

/*
 * Up to 0.9.76 the library parses in place: it writes a NUL over each byte of a line's end and
 * moves nothing but folded lines. Later ones refuse by themselves, when strict, what that is needed
 * for.
 */
static bool library_shows_lines(void)
{
	int major, minor, patch;

	return sscanf(MHD_get_version(), "%d.%d.%d", &major, &minor, &patch) == 3 && major == 0 &&
	       minor == 9 && patch <= 76;
}

static int listener_start(struct listener *listener, int fd, const struct http_options *options,
			  struct error *err)
{
	unsigned limit = (unsigned)listener->http->max_connections;
	unsigned per_peer =
		(unsigned)(options->max_per_peer ? options->max_per_peer : DEFAULT_PER_PEER);

	bool secure = listener->http->tls && !listener->is_unix;
	struct MHD_OptionItem items[] = {
		/* first, so that it hears of everything that follows */
		{ MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)log_library, NULL },
		{ MHD_OPTION_LISTEN_SOCKET, fd, NULL },
		{ MHD_OPTION_STRICT_FOR_CLIENT, 1, NULL },
		{ MHD_OPTION_CONNECTION_LIMIT, limit, NULL },
		{ MHD_OPTION_PER_IP_CONNECTION_LIMIT, listener->is_wide ? per_peer : 0, NULL },
		{ MHD_OPTION_CONNECTION_TIMEOUT, listener->http->idle_seconds, NULL },
		{ MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY, NULL },
		{ MHD_OPTION_THREAD_STACK_SIZE, THREAD_STACK, NULL },
		{ MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)connection_changed, listener },
		{ MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)request_began, listener },
		{ MHD_OPTION_UNESCAPE_CALLBACK, (intptr_t)leave_escaped, NULL },
		{ MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)request_ended, listener },
		{ MHD_OPTION_END, 0, NULL },
	};
	struct MHD_OptionItem tls_items[] = {
		{ MHD_OPTION_HTTPS_CERT_CALLBACK, 0, tls_callback() },
		{ MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(intptr_t)PRIORITIES },
		{ MHD_OPTION_END, 0, NULL },
	};
	struct MHD_OptionItem no_items[] = { { MHD_OPTION_END, 0, NULL } };
	unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
			 MHD_USE_POLL | MHD_USE_ITC | MHD_USE_ERROR_LOG | MHD_ALLOW_UPGRADE |
			 (secure ? MHD_USE_TLS : 0);

	listener->daemon = MHD_start_daemon(flags, 0, NULL, NULL, request_step, listener,
					    MHD_OPTION_ARRAY, items, MHD_OPTION_ARRAY,
					    secure ? tls_items : no_items, MHD_OPTION_END);
	if (!listener->daemon) {
		close(fd);
		return error_set(err, ERR_IO, "cannot start the HTTP server");
	}
	return 0;
}

static int socket_port(int fd)
{
	struct sockaddr_storage address = { 0 };
	socklen_t len = sizeof(address);

	if (getsockname(fd, (struct sockaddr *)&address, &len) < 0)
		return 0;
	if (address.ss_family == AF_INET6)
		return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
	return address.ss_family == AF_INET ? ntohs(((struct sockaddr_in *)&address)->sin_port) : 0;
}

static bool socket_is_loopback(int fd)
{
	struct sockaddr_storage address = { 0 };
	socklen_t len = sizeof(address);

	return getsockname(fd, (struct sockaddr *)&address, &len) == 0 &&
	       address_is_loopback(&address);
}

static void http_free(struct http *http)
{
	router_free(http->router);
	failures_free(http->failures);
	tls_free(http->tls);
	close_fdp(&http->stop_fd);
	pthread_cond_destroy(&http->quiet);
	pthread_cond_destroy(&http->overdue);
	pthread_mutex_destroy(&http->lock);
	free(http);
}

int http_start(const struct http_options *options, struct http **out, struct error *err)
{
	_cleanup_close_ int tcp_fd = options->tcp_fd, unix_fd = options->unix_fd;
	struct http *http = xcalloc(1, sizeof(*http));

	pthread_mutex_init(&http->lock, NULL);
	cond_init(&http->quiet);
	cond_init(&http->overdue);
	http->server = options->server;
	random_bytes(http->id_seed, sizeof(http->id_seed));
	http->clock = options->clock;
	http->access = options->access;
	http->allowed_hosts = options->allowed_hosts;
	http->max_body = options->max_body ? options->max_body : HTTP_MAX_BODY;
	http->idle_seconds =
		(unsigned)(options->idle_seconds ? options->idle_seconds : DEFAULT_IDLE_SECONDS);
	http->head_ms = 1000 * (int64_t)(options->head_seconds ? options->head_seconds
							       : DEFAULT_HEAD_SECONDS);
	http->max_connections =
		(size_t)(options->max_connections ? options->max_connections : DEFAULT_CONNECTIONS);
	atomic_store(&http->watched_until, INT64_MAX);
	atomic_store(&http->idle_since, clock_mono(http->clock));
	http->failures = failures_new(
		http->clock, options->max_bad_tokens ? options->max_bad_tokens : DEFAULT_BAD_TOKENS,
		BAD_TOKEN_MS);
	http->shows_lines = library_shows_lines();
	http->port = tcp_fd >= 0 ? socket_port(tcp_fd) : 0;
	http->tcp = (struct listener){ .http = http,
				       .is_wide = tcp_fd >= 0 && !socket_is_loopback(tcp_fd) };
	http->local = (struct listener){ .http = http, .is_unix = true };
	http->stop_fd = latch_new(err);
	if (http->stop_fd < 0 || router_new(options->tables, &http->router, err) < 0 ||
	    (options->tls_cert &&
	     tls_new(options->tls_cert, options->tls_key, http->clock, &http->tls, err) < 0)) {
		http_free(http);
		return -1;
	}
	/* Before the first listener: a handler may ask for it while the second one still starts. */
	*out = http;
	if (connections_watch(http, err) < 0 ||
	    (tcp_fd >= 0 && listener_start(&http->tcp, steal_fd(&tcp_fd), options, err) < 0) ||
	    (unix_fd >= 0 && listener_start(&http->local, steal_fd(&unix_fd), options, err) < 0)) {
		*out = NULL;
		http_stop(http, 0);
		return -1;
	}
	return 0;
}

int http_reload_tls(struct http *http, struct error *err)
{
	if (!http->tls)
		return error_set(err, ERR_CONFLICT, "this server has no certificate");
	return tls_reload(http->tls, err);
}

int http_port(const struct http *http)
{
	return http->port;
}

bool http_is_stopping(const struct http *http)
{
	return atomic_load(&((struct http *)http)->stopping);
}

size_t http_connections(const struct http *http)
{
	struct http *h = (struct http *)http;

	pthread_mutex_lock(&h->lock);
	size_t count = h->connection_count;
	pthread_mutex_unlock(&h->lock);
	return count;
}

void http_metrics(const struct http *http, struct buf *out)
{
	router_metrics(http->router, out);
}

int64_t http_idle_since(const struct http *http)
{
	struct http *h = (struct http *)http;

	return atomic_load(&h->busy) ? 0 : atomic_load(&h->idle_since);
}

static void wait_until_quiet(struct http *http, int64_t wait_ms)
{
	int64_t until = boottime_ms() + wait_ms;

	pthread_mutex_lock(&http->lock);
	while (atomic_load(&http->busy) && cond_wait_until(&http->quiet, &http->lock, until))
		;

	size_t busy = atomic_load(&http->busy);

	if (busy)
		log_warn("stopping with %zu requests under way", busy);
	for (struct http_connection *c = http->connections; c; c = c->next)
		shutdown(c->fd, SHUT_RDWR);
	/* MHD_stop_daemon would wait for ever for a connection that has left HTTP. */
	while (http->upgraded)
		pthread_cond_wait(&http->quiet, &http->lock);
	pthread_mutex_unlock(&http->lock);
}

static void stop_accepting(struct listener *listener)
{
	int fd = listener->daemon ? MHD_quiesce_daemon(listener->daemon) : -1;

	close_fdp(&fd);
}

void http_stop(struct http *http, int64_t wait_ms)
{
	if (!http)
		return;
	atomic_store(&http->stopping, true);
	latch_set(http->stop_fd);
	stop_accepting(&http->tcp);
	stop_accepting(&http->local);
	wait_until_quiet(http, wait_ms);
	if (http->tcp.daemon)
		MHD_stop_daemon(http->tcp.daemon);
	if (http->local.daemon)
		MHD_stop_daemon(http->local.daemon);
	connections_unwatch(http);
	http_free(http);
}

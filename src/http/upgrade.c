/*
 * Connections that leave HTTP: the session has the connection's own thread until it returns.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include "base/log.h"
#include "http/exchange.h"
#include "http/websocket.h"

#define ASIDE_STACK ((size_t)2 << 20)

static void count_upgraded(struct http *http, bool more)
{
	pthread_mutex_lock(&http->lock);
	if (more)
		http->upgraded++;
	else if (--http->upgraded == 0)
		pthread_cond_broadcast(&http->quiet);
	pthread_mutex_unlock(&http->lock);
}

/* One that goes on beside the connection's thread, with all it needs. */
struct aside {
	struct http *http;
	struct websocket_session session;
	struct MHD_UpgradeResponseHandle *handle;
	int fd;
	struct buf early;
};

static void end_aside(struct aside *aside)
{
	struct http *http = aside->http;

	if (aside->session.close)
		aside->session.close(aside->session.arg);
	MHD_upgrade_action(aside->handle, MHD_UPGRADE_ACTION_CLOSE);
	buf_free(&aside->early);
	free(aside);
	count_upgraded(http, false);
}

static void *run_aside(void *arg)
{
	struct aside *aside = arg;

	aside->session.run(aside->session.arg, aside->fd, buf_str(&aside->early), aside->early.len,
			   aside->http->stop_fd);
	end_aside(aside);
	return NULL;
}

/*
 * Over TLS the connection's thread has to carry bytes between the socket and `fd`, which is one end
 * of a pair; it begins to do so when this has returned.
 */
static void start_aside(const struct aside *wanted, const char *early, size_t early_len)
{
	struct aside *aside = xcalloc(1, sizeof(*aside));
	pthread_attr_t attr;
	pthread_t thread;

	*aside = *wanted;
	buf_append(&aside->early, early, early_len);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, ASIDE_STACK);
	if (pthread_create(&thread, &attr, run_aside, aside) != 0) {
		log_warn("no thread for a session: it ends");
		end_aside(aside);
	}
	pthread_attr_destroy(&attr);
}

static void run_session(void *arg, struct MHD_Connection *mhd, void *context, const char *early,
			size_t early_len, MHD_socket fd, struct MHD_UpgradeResponseHandle *handle)
{
	struct exchange *exchange = arg;
	struct http *http = exchange->connection->http;
	struct websocket_session session = exchange->session;
	int on = 1;
	(void)mhd;
	(void)context;

	exchange->session = (struct websocket_session){ 0 };
	exchange->connection->left_http = true;
	count_upgraded(http, true);
	/* A key stroke and its echo are one small packet each. */
	if (!exchange->connection->is_unix)
		setsockopt(exchange->connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!exchange_is_plain(exchange)) {
		start_aside(&(struct aside){ http, session, handle, fd, { 0 } }, early, early_len);
		return;
	}
	session.run(session.arg, fd, early, early_len, http->stop_fd);
	if (session.close)
		session.close(session.arg);
	MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
	count_upgraded(http, false);
}

struct MHD_Response *upgrade_response(struct exchange *exchange)
{
	struct MHD_Response *response = MHD_create_response_for_upgrade(run_session, exchange);
	char accept[WEBSOCKET_ACCEPT_SIZE];

	if (!response)
		return NULL;
	websocket_accept_for(exchange->headers.websocket_key, accept);
	if (MHD_add_response_header(response, "Upgrade", "websocket") != MHD_YES ||
	    MHD_add_response_header(response, "Sec-WebSocket-Accept", accept) != MHD_YES) {
		MHD_destroy_response(response);
		return NULL;
	}
	return response;
}

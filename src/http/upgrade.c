/*
 * Connections that leave HTTP: the session has the connection's own thread until it returns.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include "http/exchange.h"
#include "http/websocket.h"

static void count_upgraded(struct http *http, bool more)
{
	pthread_mutex_lock(&http->lock);
	if (more)
		http->upgraded++;
	else if (--http->upgraded == 0)
		pthread_cond_broadcast(&http->quiet);
	pthread_mutex_unlock(&http->lock);
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
	count_upgraded(http, true);
	/* A key stroke and its echo are one small packet each. */
	if (!exchange->connection->is_unix)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
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

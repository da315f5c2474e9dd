/*
 * What the files of this room share: the server, its connections, and the exchange, which is one
 * request from its first line to the last byte of its answer.
 */
#pragma once

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include "base/fd.h"
#include "http/auth.h"
#include "http/http.h"
#include "http/router.h"

struct listener {
	struct http *http;
	struct MHD_Daemon *daemon; /* NULL: not listening */
	bool is_unix;
	bool is_wide; /* bound beyond loopback: nobody there is trusted without a token */
};

struct http {
	void *server;
	struct clock *clock;
	struct router *router;
	const char *const *allowed_hosts;
	struct http_access access;
	struct failures *failures; /* of peers that came with bad tokens */
	struct tls *tls;           /* of the TCP listener; NULL: it speaks plain HTTP */
	int64_t max_body;
	unsigned idle_seconds;
	int64_t head_ms;        /* for the head of a request, whoever sends it */
	size_t max_connections; /* of each listener */
	int port;
	struct listener tcp, local;
	bool shows_lines; /* the library leaves headers where they arrived: checks.c can see ends */
	int stop_fd;      /* latch; set once, wakes everything that waits for a client */
	atomic_bool stopping;
	uint64_t id_seed[2]; /* of the ids of requests */
	_Atomic(uint64_t) requests;
	_Atomic(int64_t) body_bytes; /* held by all requests together */
	_Atomic(size_t) busy;        /* requests under way */
	_Atomic(int64_t) idle_since; /* the end of the last one */

	_Atomic(int64_t) watched_until; /* earlier deadlines have to wake the watcher */
	pthread_t watcher;
	bool is_watched;

	pthread_mutex_t lock;   /* the rest; a leaf, nothing blocks under it */
	pthread_cond_t quiet;   /* busy became 0 */
	pthread_cond_t overdue; /* the watcher has to look again */
	struct http_connection *connections;
	size_t connection_count;
	size_t upgraded; /* connections that left HTTP and have not ended */
};

struct http_connection {
	struct http *http;
	struct http_connection *prev, *next;
	int fd; /* libmicrohttpd's */
	bool is_unix, is_wide;
	bool left_http; /* it was upgraded */
	bool is_known;  /* trusted, or has brought a good token; written under the lock */
	enum { TRUST_YES, TRUST_NO } trust;
	struct peer peer;
	_Atomic(int64_t) due; /* connections.c */
};

/* connections.c */
#define STRANGERS_PER_PEER 64
void connection_join(struct http_connection *connection);
void connection_leave(struct http_connection *connection);
void connection_reads_head(struct http_connection *connection); /* its first line is there */
/* All of it is there. False: too late, it is being closed. */
bool connection_has_head(struct http_connection *connection);
void connection_is_met(struct http_connection *connection); /* no stranger any more */
void connection_rests(struct http_connection *connection);  /* the answer is out */
int connections_watch(struct http *http, struct error *err);
void connections_unwatch(struct http *http); /* `stopping` is set */

/* Header fields we look at; they live as long as the exchange. */
struct headers {
	const char *host, *origin, *content_type, *content_length, *transfer_encoding, *expect;
	const char *accept, *idempotency_key, *range, *last_event_id;
	const char *connection, *upgrade, *websocket_key, *websocket_version;
	const char *authorization, *run_id, *forwarded, *request_id, *fetch_site;
	bool repeated; /* one that may stand only once stood twice */
	/* While they are read: where the line before ended, and what was wrong. */
	const char *line_end, *malformed;
	bool shows_lines;
};

struct exchange {
	struct http_connection *connection;
	struct MHD_Connection *mhd;
	char *raw_url;
	const char *line_end; /* of the request line, in the library's buffer */
	struct url url;
	char *path;
	struct headers headers;
	struct request request;
	unsigned allowed; /* methods of the path, for 405 */
	struct buf body;
	int64_t received; /* bytes of body, kept or not */
	int64_t began, began_us;
	int status;                       /* of the answer; 0: none was sent */
	int64_t retry_after_ms;           /* with ERR_TOO_MANY: when to come again; 0: not said */
	struct body_sink sink;            /* until the request is dropped */
	struct websocket_session session; /* until it has run */
	bool is_http_1_1;
	bool opened;     /* the headers were looked at */
	bool refused;    /* `err` is the answer, once the body has been read past */
	bool must_close; /* where the next request would begin is in doubt */
	struct error err;
};

/* request.c */
struct exchange *exchange_new(struct http_connection *connection, struct MHD_Connection *mhd,
			      const char *raw_url);
void exchange_free(struct exchange *exchange);
/* `target_len` is how many bytes the request line has between method and version. */
enum MHD_Result exchange_step(struct exchange *exchange, const char *method, size_t target_len,
			      const char *upload, size_t *upload_len);

/* checks.c: everything that can be said from the first line and the headers alone. */
int exchange_check(struct exchange *exchange, const char *method, size_t target_len,
		   struct error *err);
int64_t exchange_declared_length(const struct exchange *exchange); /* -1: chunked, 0: none */

/* response.c */
void response_error(struct response *response, struct error *err); /* takes what err holds */
void response_clear(struct response *response);
struct header {
	const char *name, *value;
};
size_t response_headers(const struct response *response, const struct exchange *exchange,
			struct header out[8]);
/* Queues it; the response is empty afterwards. MHD_NO when that is impossible. */
enum MHD_Result response_send(struct response *response, struct exchange *exchange);
/*
 * libmicrohttpd takes no answer in the middle of an upload. This writes one to the socket itself
 * and reads on for a moment, since a close with unread bytes would reset the connection and take
 * the answer away from the client. The connection must be dropped afterwards.
 */
void response_send_raw(struct response *response, struct exchange *exchange);

/* stream.c: wraps a stream for libmicrohttpd; takes it over. length < 0: not known. */
struct MHD_Response *stream_response(const struct stream *stream, int64_t length,
				     struct exchange *exchange);

/*
 * sendfile.c: writes the whole answer to the socket itself, on this thread. The connection must be
 * dropped afterwards.
 */
void response_send_stretches(struct response *response, struct exchange *exchange);

/* direct.c: the same for answers with `direct`; only where exchange_is_plain. */
bool exchange_is_plain(const struct exchange *exchange);
void response_send_direct(struct response *response, struct exchange *exchange);

/* upgrade.c: runs exchange->session on the connection once the answer is out. */
struct MHD_Response *upgrade_response(struct exchange *exchange);

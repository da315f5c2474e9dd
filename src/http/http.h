/*
 * The HTTP server: libmicrohttpd, one thread per connection, one route table. Handlers run blocking
 * on the connection's thread; everything they are given has been checked: the raw URI is decoded by
 * our own parser into segments, Host and Origin are ours, the caller is known or refused, the body
 * is within its limit, valid JSON and within the route's table of fields, and the caller may do
 * what the route is for. In this order: URL, Host and Origin; who it is (401); the body (400); what
 * they may do (403, 404).
 *
 * Errors travel as {error, code, details?} with the status of base/error.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/clock.h"
#include "base/json.h"
#include "record/record.h"

#define HTTP_MAX_SEGMENTS 12
#define HTTP_MAX_BODY (4 << 20)

#define HTTP_METHODS(X)                                                                            \
	X(HTTP_GET, "GET", 1)                                                                      \
	X(HTTP_POST, "POST", 2)                                                                    \
	X(HTTP_PUT, "PUT", 4)                                                                      \
	X(HTTP_PATCH, "PATCH", 8)                                                                  \
	X(HTTP_DELETE, "DELETE", 16)
enum http_method {
#define X(name, wire, bit) name = bit,
	HTTP_METHODS(X)
#undef X
};

struct http_connection; /* the transport below a request */

/* Lives until the handler returns; a stream that outlives it keeps only the connection. */
struct request {
	enum http_method method;
	char id[ID_SIZE]; /* request id, also in the X-Request-Id answer header */
	struct actor actor;
	char named_company[ID_SIZE]; /* its id stands in param[0] when the path has its name */
	char company_id[ID_SIZE]; /* of what the path names; filled by authorization, "" for none */
	unsigned permissions;     /* the caller's in that company; ask request_may */
	const struct route *route;
	const char *path;      /* the decoded path, rebuilt from its segments */
	const struct url *url; /* read it through param and request_query */
	const char *param[4];  /* values of the :names in the route's path, in order */
	json_t *body;          /* object, or NULL when the route takes none or none was sent */
	const char *raw_body;  /* exactly what was sent; "" when none */
	size_t raw_body_len;
	int64_t content_length;      /* as announced; -1: it was not */
	struct body_sink *sink;      /* ROUTE_RAW_BODY: what the route's `open` left there */
	const char *idempotency_key; /* NULL for none */
	const char *accept;          /* NULL for none */
	const char *range;           /* NULL for none */
	const char *last_event_id;   /* NULL for none */
	const char *run_header; /* X-Paperclip-Run-Id, checked by authorization; NULL for none */
	struct http_connection *connection;
	struct http *http;
};
/* Whether the caller has the permission in the company of the subject: "environments:manage". */
bool request_may(const struct request *request, const char *permission);
/* Decoded query value, or NULL; a query key the route does not list was refused already. */
const char *request_query(const struct request *request, const char *key);
/* Integer query value within [min, max]; absent gives fallback; else ERR_VALIDATION. */
int request_query_int(const struct request *request, const char *key, int64_t min, int64_t max,
		      int64_t fallback, int64_t *out, struct error *err);
bool request_query_flag(const struct request *request, const char *key,
			bool fallback); /* 0|1|true|false */

/*
 * A descriptor that becomes readable once the client has gone or the server stops, for calls that
 * block on the handler's thread and take something to give up on. Close it.
 */
int request_gone_fd(const struct request *request, struct error *err);
/* Whether an answer's first bytes are sent without waiting: the client has read all before them. */
bool request_takes(const struct request *request, size_t bytes);

struct file_stretch {
	int fd; /* borrowed until the next call */
	int64_t offset, len;
};

/* Streams pull: `next` fills buf, may block in stream_wait, returns bytes, 0 at the end, -1 to
 * break off. */
struct stream {
	ssize_t (*next)(void *arg, struct http_connection *connection, char *buf, size_t max);
	void (*close)(void *arg);
	void *arg;
	/*
	 * For streams that lie in files: used instead of `next` where the kernel can send them
	 * without copying. At most max bytes; 1, 0 at the end, -1 to break off.
	 */
	int (*next_stretch)(void *arg, struct http_connection *connection, int64_t max,
			    struct file_stretch *out);
};
enum stream_event { STREAM_READY, STREAM_TIMEOUT, STREAM_GONE };
/*
 * Waits for fd (-1: none) to become readable, the client to go (or the server to stop), or the time
 * to pass (-1: no end). A client that closes only its sending half counts as gone.
 */
enum stream_event stream_wait(struct http_connection *connection, int fd, int timeout_ms);

/*
 * A body that is bytes, taken as it arrives: on the connection's thread, in parts, and the sender
 * is not read further while `chunk` blocks. A failed chunk is the request's answer; the rest of the
 * body is read past. `close` comes after the route's run, or instead of it when the body ended
 * early.
 */
struct body_sink {
	int (*chunk)(void *arg, const char *data, size_t len, struct error *err);
	void (*close)(void *arg);
	void *arg;
};

/*
 * What a request becomes that asked for a WebSocket: `run` has the connection's thread until it
 * returns; it must notice stop_fd (readable when the server stops) and a peer that has gone.
 * `close` comes afterwards, or instead of `run` when the client went before.
 */
struct websocket_session {
	void (*run)(void *arg, int fd, const void *early, size_t early_len, int stop_fd);
	void (*close)(void *arg);
	void *arg;
};

struct response {
	int status;               /* 0: 200 */
	json_t *json;             /* owned */
	char *text;               /* owned; already encoded JSON (replays) or with content_type */
	const char *content_type; /* static; NULL: application/json */
	struct stream stream;     /* used when stream.next is set */
	bool has_length; /* the stream has exactly `length` bytes; breaking off is an error */
	int64_t length;
	/*
	 * Used instead of stream.next where the socket carries plain bytes: has the connection's
	 * thread and its socket, which does not block, until it returns; the head is out. It gets
	 * the stream's arg, must notice stop_fd and a peer that has gone, and only HTTP 200 is
	 * possible.
	 */
	void (*direct)(void *arg, int fd, int stop_fd);
	struct websocket_session session; /* used when session.run is set */
	char header_name[2][40];          /* up to two more headers */
	char header_value[2][160];
};
void response_json(struct response *response, int status, json_t *json); /* takes ownership */
void response_stream(struct response *response, const char *content_type,
		     const struct stream *stream);
/* For `direct`: all of it, or -1: the peer or the server has gone, or nothing went for stall_ms. */
int socket_send(int fd, int stop_fd, const char *data, size_t len, int stall_ms);
/* Only on ROUTE_WEBSOCKET: the connection leaves HTTP. */
void response_websocket(struct response *response, const struct websocket_session *session);
/* A header of one's own; at most two. */
void response_header(struct response *response, const char *name, const char *value);

typedef int route_fn(void *server, struct request *request, struct response *response,
		     struct error *err);

enum route_flags {
	ROUTE_IDEMPOTENT_KEY = 1, /* honours Idempotency-Key (the handler does it) */
	ROUTE_GATE = 2,           /* may be called from a place through the gate */
	ROUTE_NO_BODY_OK = 4,     /* a POST/PATCH without a body counts as {} */
	ROUTE_IN_PLACE = 8,       /* acts inside the place of the lease or exec it names */
	ROUTE_STREAM = 16,        /* answers with a stream; never compressed, no length */
	ROUTE_RAW_BODY = 32,      /* the body is application/octet-stream and goes to a sink */
	ROUTE_WEBSOCKET = 64,     /* the request must be a WebSocket handshake */
	ROUTE_EVENTS = 128,       /* its stream is of events, whatever the client accepts */
};

/* What a caller must be to use a route; refused with 401 (nobody known), 403, or for subjects named
 * by id 404 when it belongs to another company. */
enum route_access {
	ACCESS_UNSET,        /* a mistake: the router refuses a table with it */
	ACCESS_PUBLIC,       /* anybody who can connect */
	ACCESS_SIGNED_IN,    /* any known caller */
	ACCESS_READ,         /* sees the subject's company: any member, any of its agents */
	ACCESS_WRITE,        /* changes things there: members but viewers, its agents */
	ACCESS_BOARD,        /* the same, people only */
	ACCESS_AGENTS,       /* people or agents with agents:create */
	ACCESS_ENVIRONMENTS, /* people or agents with environments:manage */
	ACCESS_LEASES,       /* people or agents with leases:use, or environments:manage */
	ACCESS_MEMBERS,      /* people with users:manage_permissions */
	ACCESS_METRICS,      /* as ACCESS_ADMIN, and tokens with metrics:read */
	ACCESS_ADMIN,        /* instance admins and local trust */
};
/* What the first :name of the path names, so that one function can find its company. */
enum route_subject {
	SUBJECT_NONE,
	SUBJECT_COMPANY,
	SUBJECT_ENVIRONMENT,
	SUBJECT_LEASE,
	SUBJECT_RUN,
	SUBJECT_EXEC,
	SUBJECT_AGENT,
	SUBJECT_PROJECT,
	SUBJECT_ISSUE,
	SUBJECT_WORKSPACE,
};

struct route {
	enum http_method method;
	const char *path; /* "/api/environments/:id" */
	unsigned flags;
	const struct field *body; /* NULL: no body allowed */
	const struct field
		*query; /* NULL: no query allowed; FIELD_STRING / FIELD_INT / FIELD_BOOL */
	route_fn *run;
	const char *summary;
	/* ROUTE_RAW_BODY: called before the body; fills the sink or refuses. May block. */
	int (*open)(void *server, struct request *request, struct body_sink *sink,
		    struct error *err);
	enum route_access access;
	enum route_subject subject;
	const char *answer; /* what it answers, see api/response_schemas.h; NULL with streams */
	const char
		*errors; /* codes of its own besides what its shape implies; by spaces, or NULL */
};

/*
 * A listening TCP socket for "127.0.0.1:7411", "[::1]:7411" or "localhost:7411"; port 0 picks one.
 * Addresses beyond loopback only with `wide`: on such a socket nobody is trusted without a token.
 * Clients may connect at once; they are answered when http_start has been given the socket.
 */
int http_bind(const char *address, bool wide, int *fd, int *port, struct error *err);

/*
 * Who is asking and what they may do, known only to rooms above this one. Without them there is
 * local trust and nothing else: it may use every route, and every bearer is refused.
 */
struct http_access {
	/* The actor behind a bearer token; ERR_UNAUTHENTICATED when nobody is. May block. */
	int (*authenticate)(void *server, const char *bearer, struct actor *actor,
			    struct error *err);
	/*
	 * After the body was checked: fills company_id and permissions of the request, or refuses.
	 * ROUTE_RAW_BODY: before `open`.
	 */
	int (*authorize)(void *server, struct request *request, struct error *err);
};

struct http_options {
	int tcp_fd;  /* from http_bind; -1: none. Taken over, also on failure */
	int unix_fd; /* listening unix socket; -1: none. Taken over, also on failure */
	const struct route *const
		*tables; /* NULL-terminated list of tables, each ended by path NULL */
	void *server;    /* passed to handlers */
	struct clock *clock;
	struct http_access access;
	int max_connections;            /* 0: 4096 */
	int max_per_peer;               /* per client address, beyond loopback; 0: 3000 */
	const char *tls_cert, *tls_key; /* PEM files: TCP speaks TLS; both or none */
	int max_bad_tokens;             /* per client at one time; 0: 10 */
	int64_t max_body;               /* 0: HTTP_MAX_BODY */
	int idle_seconds; /* a connection between two requests or in the middle of one; 0: 60 */
	int head_seconds; /* for the head of a request, however its bytes drip; 0: 10 */
	const char *const
		*allowed_hosts; /* besides localhost names and loopback addresses; may be NULL */
};
struct http;
int http_start(const struct http_options *options, struct http **http, struct error *err);
/* Reads certificate and key again. On failure the old ones stay; without TLS it is ERR_CONFLICT. */
int http_reload_tls(struct http *http, struct error *err);
int http_port(const struct http *http); /* the TCP port in use, 0 for none */
bool http_is_stopping(const struct http *http);
size_t http_connections(const struct http *http);
/* Requests by route and status, as Prometheus text. */
void http_metrics(const struct http *http, struct buf *out);
int64_t http_idle_since(
	const struct http *http); /* clock_mono of the last request's end; 0: busy now */
/*
 * Stops accepting, wakes streams, WebSocket sessions and whatever waits for request_gone_fd, waits
 * up to wait_ms for the requests under way, then closes their connections. A handler in the middle
 * of a blocking call is waited for even then, since it uses what the caller is about to free; such
 * calls have deadlines.
 */
void http_stop(struct http *http, int64_t wait_ms);

/*
 * The URL parser, separate for fuzzing: raw path and query of the request line. Refuses
 * (ERR_BAD_PATH) NUL and other control bytes, encoded slashes, dots-only segments, bad escapes,
 * invalid UTF-8, empty segments, too many segments, a query key given twice. Longer than
 * HTTP_MAX_URL is ERR_URI_TOO_LONG.
 */
#define HTTP_MAX_URL 8192
#define HTTP_MAX_QUERIES 16
struct url {
	char *segment[HTTP_MAX_SEGMENTS];
	size_t segments;
	char *query_key[HTTP_MAX_QUERIES], *query_value[HTTP_MAX_QUERIES];
	size_t queries;
};
int url_parse(const char *raw, struct url *out, struct error *err);
void url_clear(struct url *url);
/*
 * The body reader's last step, separate for fuzzing: bytes to a checked object. More than
 * HTTP_MAX_BODY_VALUES values are refused, since a parsed value takes many times its text.
 */
#define HTTP_MAX_BODY_VALUES 100000
json_t *body_parse(const char *data, size_t len, const struct field *fields, struct error *err);

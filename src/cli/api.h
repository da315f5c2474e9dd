/*
 * The HTTP client of the command line: libcurl over the unix socket of a data directory, or a URL.
 */
#pragma once

#include "base/id.h"
#include "cli/cli.h"

struct api;

#define TOKEN_MAX 4096

/*
 * Finds a server: --url, else the socket in the data directory; with `may_start` and none there,
 * starts `berth serve --idle-exit` in the background and waits until it is healthy.
 */
int api_connect(struct cli *cli, bool may_start, struct api **api, struct error *err);
/* Without asking whether a server is there: a call that finds none is ERR_UNAVAILABLE with errnum
 * ECONNREFUSED. */
int api_open(struct cli *cli, bool may_start, struct api **api, struct error *err);
void api_close(struct api *api);
static inline void api_closep(struct api **api)
{
	api_close(*api);
}
#define _cleanup_api_ _cleanup_(api_closep)

/*
 * One call. Errors of the server come back with their code and message; no server is
 * ERR_UNAVAILABLE. *answer is a new reference; NULL in is fine.
 */
int api_call(struct api *api, const char *method, const char *path, const json_t *body,
	     json_t **answer, struct error *err);
/* Path from a format, each %s of it escaped as one segment. */
int api_callf(struct api *api, const char *method, const json_t *body, json_t **answer,
	      struct error *err, const char *format, ...) __attribute__((format(printf, 6, 7)));

/*
 * A streamed answer. on_data returns false to stop. wake_fd (or -1): when it becomes readable
 * on_wake is called; it returns false to stop. 0 at the stream's end or a stop, ERR_UNAVAILABLE
 * when it broke.
 */
struct api_stream {
	const char *method, *path, *accept;
	const json_t *body;
	bool (*on_data)(void *arg, const char *data, size_t len);
	int wake_fd;
	bool (*on_wake)(void *arg);
	void *arg;
};
int api_stream(struct api *api, const struct api_stream *stream, struct error *err);

/* Bytes to the server, as they are read. */
struct api_upload {
	const char *method, *path;
	int64_t length;                                    /* -1: not known */
	ssize_t (*read)(void *arg, char *buf, size_t max); /* 0 at the end, -1 breaks it off */
	void *arg;
};
int api_upload(struct api *api, const struct api_upload *upload, json_t **answer,
	       struct error *err);
/* The text as one value in a query; free it. */
char *api_escape(struct api *api, const char *text);
/*
 * A connection that has become a WebSocket at that path. `early` gets what came behind the answer.
 * A refusal of the server comes back with its code and message.
 */
int api_websocket(struct api *api, const char *path, int *fd, struct buf *early, struct error *err);

/* The one of a list whose id or name that is; new reference. `what` is for the message. */
int api_pick(const json_t *list, const char *name, const char *what, json_t **out,
	     struct error *err);
/*
 * The company the verb is about: --company, else "default", made on first use. Who comes with a
 * token gets the only company it opens instead, if it opens one. Id into out.
 */
int api_company(struct cli *cli, struct api *api, char out[ID_SIZE], struct error *err);
/* An environment by name or id within the company; new reference. */
int api_environment(struct api *api, const char *company_id, const char *name, json_t **out,
		    struct error *err);
/* An agent by name or id; new reference. */
int api_agent(struct api *api, const char *company_id, const char *name, json_t **out,
	      struct error *err);

/*
 * `berth run` with no server: start one in the background that ends by itself when nobody needs it.
 * Returns when the server answers; on failure the error carries the end of its log.
 */
int autostart(struct cli *cli, struct api *api, struct error *err);

/*
 * A TLS connection as a plain descriptor, for what leaves HTTP: libcurl makes the connection and
 * checks the certificate, a thread carries the bytes until either side is closed.
 * `url` is https; ca_file NULL: the system's certificates.
 */
int tunnel_open(const char *url, const char *ca_file, int *fd, struct error *err);

/*
 * This program's standard input to a command far away, as it comes and however long it is: begins
 * a thread that reads until the end of the input or of the command. Nobody waits for it: a
 * read from a terminal may never return, and the program ends when the command does.
 */
int feed_stdin(struct cli *cli, const char *exec_id, struct error *err);

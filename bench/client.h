/*
 * A keep-alive HTTP client over a unix socket, as thin as it can be, so that it measures the
 * server.
 */
#pragma once

#include "base/buf.h"
#include "base/json.h"

struct client {
	int fd;
	struct buf in;
};

void client_open(struct client *c, const char *socket_path);
void client_close(struct client *c);
/* Returns the status; the body is in *body (owned by the client, until the next call). */
int client_call(struct client *c, const char *method, const char *path, const char *json,
		const char **body);
/* The same, parsed; ends the program when the status is not `want`. New reference. */
json_t *client_json(struct client *c, const char *method, const char *path, const char *json,
		    int want);
/* A lease of the default Local environment. */
void client_acquire_local(struct client *c, char lease_id[160]);
void client_release(struct client *c, const char *lease_id);
/* Reads a streamed answer to its end; returns the bytes, *peak_kb the server's memory at most. */
long long client_drain(const char *socket_path, const char *path, long *peak_kb, int server);
/* Default company's id, and a fake environment in it. */
void client_setup_fake(struct client *c, bool reuse, char environment_id[40], char company_id[40]);

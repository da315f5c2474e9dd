/*
 * Following a company's events from the command line: server-sent events over the API, taken up
 * again where they broke off.
 */
#pragma once

#include "cli/api.h"

struct sse {
	struct cli *cli;
	struct api *api; /* replaced when the server comes back; the caller closes it */
	char company_id[ID_SIZE];
	const char *types; /* by commas; NULL: all */
	int64_t last_id;   /* the last one had; -1: from now on */
	bool follow;
	/* False ends it. `data` is JSON. Also "reset" and "dropped". */
	bool (*on_event)(void *arg, const char *type, const char *data, size_t len);
	int wake_fd; /* as in api_stream; -1: none */
	bool (*on_wake)(void *arg);
	void *arg;
};
/* 0 when it was ended, or all events there are were had; -1 when the server does not come back. */
int sse_run(struct sse *sse, struct error *err);

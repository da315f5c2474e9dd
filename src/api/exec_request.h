/*
 * A command as a request asks for it: from its JSON to exec/execs.h.
 */
#pragma once

#include "api/server.h"
#include "exec/execs.h"

/* Of a command in a lease that is held, and of one that is asked for together with its lease. */
extern const struct field EXEC_FIELDS[], FIRST_EXEC_FIELDS[];

struct exec_request {
	const json_t *body; /* borrowed; checked against one of these */
	char **argv, **env;
	struct buf input;
	bool has_input, has_terminal;
	struct exec_terminal terminal;
};
/* What the table of fields cannot say, and the command in the form place/exec.h wants. */
int exec_request_read(struct exec_request *request, const json_t *body, struct error *err);
void exec_request_clear(struct exec_request *request);
#define _cleanup_exec_request_ _cleanup_(exec_request_clear)

struct exec_start {
	const char *id;
	const char *lease_id;
	const struct place *place;
	int64_t generation; /* the lease's: a place that somebody else has by now refuses it */
	/* As of exec_order. */
	bool kept, unannounced, first_words;
};
int exec_request_start(const struct exec_request *request, struct server *server,
		       const struct exec_start *start, struct live_exec **live, struct error *err);

/*
 * The events of a command that was just started, as an answer (exec.c).
 */
#pragma once

#include "api/server.h"
#include "exec/execs.h"

/* Takes the reference to `live`, and what is in `preface`, the lines before its own. */
int exec_answer(struct server *server, const char *id, struct live_exec *live, struct buf *preface,
		struct request *request, struct response *response, struct error *err);
/* Nobody will hear of it. Takes the reference; NULL is fine. */
void exec_let_go(struct server *server, const char *id, struct live_exec *live);

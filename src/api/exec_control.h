/*
 * Acting on an exec that is going: shared by the routes and the terminal's control messages.
 */
#pragma once

#include "api/server.h"

/* {signal: "INT", target: "process"|"group"|"tree"} */
extern const struct field SIGNAL_FIELDS[];
int exec_signal(struct server *server, const char *id, const json_t *body, struct error *err);
/* {rows, cols} */
extern const struct field RESIZE_FIELDS[];
int exec_resize(struct server *server, const char *id, const json_t *body, struct error *err);
/* Says whether an exec that no open place knows has ended or never was. Returns -1. */
int exec_not_going(struct server *server, const char *id, struct error *err);

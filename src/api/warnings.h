/* What is wrong with the machine or the config file, in sentences for people. */
#pragma once

#include "api/server.h"

/* Array of sentences: disk nearly full, clock moved, ... Empty when all is well. */
json_t *server_warnings(struct server *server);
#define WARNINGS_COUNT 3
/* Logs each when it comes up, not each time it is asked. `logged` is the caller's memory of that. */
void server_log_warnings(struct server *server, bool logged[WARNINGS_COUNT]);

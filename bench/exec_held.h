/* `true` through the HTTP API in a place that is held, against bare posix_spawn and wait. */
#pragma once

#include "client.h"

void exec_held(int argc, char **argv, const char *name,
	       void (*acquire)(struct client *c, char lease_id[160]));

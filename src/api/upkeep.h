/*
 * What the server does beside answering: its heartbeat, keeping history within its retention,
 * noticing trouble of the machine, and ending when nobody needs it (--idle-exit).
 */
#pragma once

#include "api/server.h"

int upkeep_start(struct server *server, struct error *err);
void upkeep_stop(struct server *server);
/* Forgets what finished before the time: {runs, leases, activity, execs, keys}; NULL on error. */
json_t *upkeep_prune(struct server *server, int64_t before_ms, struct error *err);
/* Array of sentences for people: disk nearly full, clock moved. Empty when all is well. */
json_t *upkeep_warnings(struct server *server);

/*
 * What the server does beside answering: its heartbeat, keeping history within its retention, and
 * noticing trouble of the machine. Its thread goes on while the server stops, since runs that are
 * waited for would otherwise be taken over by other nodes as those of a dead one.
 */
#pragma once

#include "api/server.h"

int maintenance_start(struct server *server, struct error *err);
void maintenance_stop(struct server *server);
/* Nothing runs, nobody asks, and nothing is left whose end this server would have to see to. */
bool maintenance_is_idle(struct server *server);

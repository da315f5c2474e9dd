/*
 * What the server does beside answering: its heartbeat, keeping history within its retention, and
 * noticing trouble of the machine. Its thread goes on while the server stops, since runs that are
 * waited for would otherwise be taken over by other nodes as those of a dead one.
 */
#pragma once

#include "api/server.h"

int upkeep_start(struct server *server, struct error *err);
void upkeep_stop(struct server *server);
struct prune_request {
	int64_t before_ms; /* what finished before this */
	const char *only;  /* one of PRUNE_KINDS; NULL: all */
	bool dry_run;      /* counts what can be counted (upkeep_counts), and removes nothing */
};
extern const char *const PRUNE_KINDS[]; /* NULL-terminated */
bool upkeep_counts(const char *kind);   /* whether it is worth asking how many would go */
/*
 * Forgets history, in small transactions: killed in the middle, it has forgotten some and the next
 * one goes on. How many rows went (or would go) by kind; NULL on error.
 */
json_t *upkeep_prune(struct server *server, const struct prune_request *request, struct error *err);
/* Array of sentences for people: disk nearly full, clock moved. Empty when all is well. */
json_t *upkeep_warnings(struct server *server);
/* Nothing runs, nobody asks, and nothing is left whose end this server would have to see to. */
bool upkeep_is_idle(struct server *server);

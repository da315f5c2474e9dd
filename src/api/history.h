/*
 * History that has served its time: what `berth prune`, its route and the server's maintenance
 * delete, each kind with the room that owns it.
 */
#pragma once

#include "api/server.h"

struct prune_request {
	int64_t before_ms; /* what finished before this */
	const char *only;  /* one of PRUNE_KINDS; NULL: all */
	bool dry_run;      /* counts what can be counted (history_counts), and deletes nothing */
};
extern const char *const PRUNE_KINDS[]; /* NULL-terminated */
bool history_counts(const char *kind);  /* whether it is worth asking how many would go */
/*
 * Deletes history, in small transactions: killed in the middle, it has deleted some and the next
 * one goes on. Returns the number of rows that went (or would go) by kind; NULL on error.
 */
json_t *history_prune(struct server *server, const struct prune_request *request,
		      struct error *err);
/*
 * Deletes env, stdin and prompts of runs that failed a day ago, and of those that had just ended
 * when a server died.
 */
int history_delete_secrets(struct server *server, struct error *err);

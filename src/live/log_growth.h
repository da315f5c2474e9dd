/*
 * Which logs of runs have grown since the last look: the source of heartbeat.run.log. Looking costs
 * the writers of logs nothing; the event says how far the log reaches, and whoever wants the output
 * reads it from the offset it has got to. Used by one thread.
 */
#pragma once

#include "record/event.h"
#include "runlog/runlog.h"

struct growth;
struct growth *growth_new(struct db *db, struct runlog_store *logs);
void growth_free(struct growth *growth);

typedef void growth_fn(void *arg, const char *company_id, const struct event_row *row);
/* Calls fn for every run whose log has grown; of a log seen for the first time too. */
void growth_look(struct growth *growth, int64_t now_ms, growth_fn *fn, void *arg);
/* The next look begins anew. */
void growth_forget(struct growth *growth);

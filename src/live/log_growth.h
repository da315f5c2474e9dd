/*
 * Which logs of runs have grown since the last look: the source of heartbeat.run.log. Looking costs
 * the writers of logs nothing; the event says how far the log reaches, and whoever wants the output
 * reads it from the offset it has got to. Used by one thread.
 */
#pragma once

#include "record/event.h"
#include "runlog/runlog.h"

struct log_growth;
struct log_growth *log_growth_new(struct db *db, struct runlog_store *logs);
void log_growth_free(struct log_growth *growth);

typedef void log_growth_fn(void *arg, const char *company_id, const struct event_row *row);
/* Calls fn for every run whose log has grown; of a log seen for the first time too. */
void log_growth_look(struct log_growth *growth, int64_t now_ms, log_growth_fn *fn, void *arg);
/* The next look begins anew. */
void log_growth_forget(struct log_growth *growth);

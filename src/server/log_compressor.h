/*
 * The thread that compresses logs at rest, behind everything else the machine has to do.
 */
#pragma once

#include "run/run.h"

struct log_compressor;
/* period_ms 0: a minute. */
int log_compressor_start(struct runs *runs, struct runlog_store *logs, struct clock *clock,
			 int64_t period_ms, struct log_compressor **compressor, struct error *err);
void log_compressor_stop(struct log_compressor *compressor); /* and frees it; NULL is fine */

/*
 * The thread that compresses logs at rest, behind everything else the machine has to do.
 */
#pragma once

#include "run/run.h"

struct packer;
/* period_ms 0: a minute. */
int packer_start(struct runs *runs, struct runlog_store *logs, struct clock *clock,
		 int64_t period_ms, struct packer **packer, struct error *err);
void packer_stop(struct packer *packer); /* and frees it; NULL is fine */

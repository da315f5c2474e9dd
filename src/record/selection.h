/*
 * Who has chosen an environment, and what may be chosen. When an environment goes, choices of it
 * are taken back: the key is removed and not set to null, since null would be another choice, the
 * company's default (spec 01 E.8, I11, I12). The absence has the trust of the actor.
 */
#pragma once

#include "record/record.h"

struct selection_counts {
	int64_t agents, issues, projects, workspaces;
};
int selection_clear_tx(struct tx *tx, int64_t now, const struct actor *actor,
		       const char *company_id, const char *environment_id,
		       struct selection_counts *counts, struct error *err);
/*
 * {agents: {count, first: [{id, name}, ...]}, issues, projects, executionWorkspaces}: who would be
 * touched by that. At most SELECTION_SHOWN of each kind are named. NULL on error.
 */
#define SELECTION_SHOWN 20
json_t *selection_report_tx(struct tx *tx, const char *company_id, const char *environment_id,
			    struct error *err);

/* Sets of drivers: bit n is driver n. */
#define DRIVERS_FOR_WORK (1u << DRIVER_LOCAL | 1u << DRIVER_SSH | 1u << DRIVER_SANDBOX)
/* Those an agent with this adapter can be sent to. */
unsigned drivers_for_adapter(const struct writer *writer, const char *adapter_type);
/*
 * That an environment can be chosen (NULL or "": none is): it is of the company, active, of an
 * allowed driver that this server can use, and not the fake provider's where that is refused. Else
 * ERR_UNPROCESSABLE.
 */
int selection_guard_tx(struct tx *tx, const struct writer *writer, const char *company_id,
		       const char *environment_id, unsigned allowed, struct error *err);
/*
 * That the writer may choose it in place of `former` (NULL or "": nothing): driver local is chosen
 * by those who may use it. ERR_FORBIDDEN names `path`.
 */
int selection_host_tx(struct tx *tx, const struct writer *writer, const char *former,
		      const char *chosen, const char *path, struct error *err);

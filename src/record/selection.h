/*
 * Who has chosen an environment. When it goes, their choice is taken back: the key is removed and
 * not set to null, since null would be another choice, "this host" (spec 01 E.8, I11, I12).
 */
#pragma once

#include "record/record.h"

struct selection_counts {
	int64_t agents, issues, projects, workspaces;
};
int selection_clear_tx(struct tx *tx, int64_t now, const char *company_id,
		       const char *environment_id, struct selection_counts *counts,
		       struct error *err);

/*
 * The company's default environment: where a run goes for which nothing nearer chooses, or
 * something chose null. It is the company's Sandbox unless the server was started with another
 * name, and this host only when that name is Local's.
 */
#pragma once

#include "record/environment.h"

struct default_place {
	const char *name;      /* name or id; NULL: Sandbox */
	const json_t *sandbox; /* config of a Sandbox that is not there yet; NULL: none is made */
};
/* ERR_ENV_NOT_FOUND when the company has none of that name. */
int default_environment(struct db *db, struct clock *clock, const struct default_place *place,
			const char *company_id, struct environment *out, struct error *err);

/*
 * Environments that the config file wants: made at start, changed in place when the file says
 * something else than the row, never deleted. They carry metadata.managedBy = "config-file". Their
 * ids derive from company and name, so that two nodes with the same file make one environment, and
 * a start that was killed in the middle is finished by the next.
 */
#pragma once

#include "api/server.h"

/*
 * The company that every server begins with: made, with its environments, when there is none at
 * all. Another node may be making it at the same time.
 */
int default_company_ensure(struct server *server, struct error *err);

/*
 * Sentences about what could not be done (a name somebody else uses, a change that is refused) and
 * what the file no longer wants; also logged. None of it keeps the server from starting.
 */
json_t *environments_ensure(struct server *server, const json_t *wanted);

/* Whether a server would take the config of an item of the file; nothing is made. */
int environment_declared_check(const json_t *item, bool allow_fake, struct error *err);

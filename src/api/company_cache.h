/*
 * Which company a record belongs to, remembered. Every request about a record asks this first, and
 * the answer never changes: records do not move and ids are not used twice. That a record is gone
 * is for its own route to say. A fixed table without ends: a newer record takes an older one's
 * slot.
 */
#pragma once

#include <stdbool.h>
#include "base/id.h"

struct homes;
struct homes *homes_new(void);
void homes_free(struct homes *homes);
/* False: not known. `kind` keeps apart what the ids name. */
bool homes_find(struct homes *homes, int kind, const char *id, char company_id[ID_SIZE]);
void homes_put(struct homes *homes, int kind, const char *id, const char *company_id);

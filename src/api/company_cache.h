/*
 * Which company a record belongs to, remembered. Every request about a record asks this first, and
 * the answer never changes: records do not move and ids are not used twice. That a record is gone
 * is for its own route to say. A fixed table without ends: a newer record takes an older one's
 * slot.
 */
#pragma once

#include <stdbool.h>
#include "base/id.h"

struct company_cache;
struct company_cache *company_cache_new(void);
void company_cache_free(struct company_cache *homes);
/* False: not known. `kind` keeps apart what the ids name. */
bool company_cache_find(struct company_cache *homes, int kind, const char *id,
			char company_id[ID_SIZE]);
void company_cache_put(struct company_cache *homes, int kind, const char *id,
		       const char *company_id);

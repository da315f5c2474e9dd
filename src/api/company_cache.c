#include "api/server.h"
#include <pthread.h>
#include <stdint.h>
#include "base/mem.h"
#include "base/text.h"

#define SLOTS 4096
#define LOCKS 16 /* of the slots in turn, so that readers seldom meet */

struct home {
	int kind;
	char id[ID_SIZE], company_id[ID_SIZE];
};

struct company_cache {
	pthread_mutex_t locks[LOCKS];
	struct home slots[SLOTS];
};

struct company_cache *company_cache_new(void)
{
	struct company_cache *companies = xcalloc(1, sizeof(*companies));

	for (size_t i = 0; i < LOCKS; i++)
		pthread_mutex_init(&companies->locks[i], NULL);
	return companies;
}

void company_cache_free(struct company_cache *companies)
{
	for (size_t i = 0; companies && i < LOCKS; i++)
		pthread_mutex_destroy(&companies->locks[i]);
	free(companies);
}

/* FNV-1a; whoever chooses ids to collide loses only the remembering. */
static size_t slot_of(int kind, const char *id)
{
	uint32_t hash = 2166136261u ^ (uint32_t)kind;

	for (; *id; id++)
		hash = (hash ^ (unsigned char)*id) * 16777619u;
	return hash % SLOTS;
}

bool company_cache_find(struct company_cache *companies, int kind, const char *id,
			char company_id[ID_SIZE])
{
	size_t slot = slot_of(kind, id);
	const struct home *home = &companies->slots[slot];

	pthread_mutex_lock(&companies->locks[slot % LOCKS]);
	bool found = home->kind == kind && streq(home->id, id);

	if (found)
		id_copy(company_id, home->company_id);
	pthread_mutex_unlock(&companies->locks[slot % LOCKS]);
	return found;
}

void company_cache_put(struct company_cache *companies, int kind, const char *id,
		       const char *company_id)
{
	size_t slot = slot_of(kind, id);

	pthread_mutex_lock(&companies->locks[slot % LOCKS]);
	companies->slots[slot].kind = kind;
	id_copy(companies->slots[slot].id, id);
	id_copy(companies->slots[slot].company_id, company_id);
	pthread_mutex_unlock(&companies->locks[slot % LOCKS]);
}

#include "api/company_cache.h"
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

struct homes {
	pthread_mutex_t locks[LOCKS];
	struct home slots[SLOTS];
};

struct homes *homes_new(void)
{
	struct homes *homes = xcalloc(1, sizeof(*homes));

	for (size_t i = 0; i < LOCKS; i++)
		pthread_mutex_init(&homes->locks[i], NULL);
	return homes;
}

void homes_free(struct homes *homes)
{
	for (size_t i = 0; homes && i < LOCKS; i++)
		pthread_mutex_destroy(&homes->locks[i]);
	free(homes);
}

/* FNV-1a; whoever chooses ids to collide loses only the remembering. */
static size_t slot_of(int kind, const char *id)
{
	uint32_t hash = 2166136261u ^ (uint32_t)kind;

	for (; *id; id++)
		hash = (hash ^ (unsigned char)*id) * 16777619u;
	return hash % SLOTS;
}

bool homes_find(struct homes *homes, int kind, const char *id, char company_id[ID_SIZE])
{
	size_t slot = slot_of(kind, id);
	const struct home *home = &homes->slots[slot];

	pthread_mutex_lock(&homes->locks[slot % LOCKS]);
	bool found = home->kind == kind && streq(home->id, id);

	if (found)
		id_copy(company_id, home->company_id);
	pthread_mutex_unlock(&homes->locks[slot % LOCKS]);
	return found;
}

void homes_put(struct homes *homes, int kind, const char *id, const char *company_id)
{
	size_t slot = slot_of(kind, id);

	pthread_mutex_lock(&homes->locks[slot % LOCKS]);
	homes->slots[slot].kind = kind;
	id_copy(homes->slots[slot].id, id);
	id_copy(homes->slots[slot].company_id, company_id);
	pthread_mutex_unlock(&homes->locks[slot % LOCKS]);
}

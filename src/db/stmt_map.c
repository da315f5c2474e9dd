#include "db/stmt_map.h"

#include <stdint.h>
#include "base/mem.h"

static struct stmt_slot *slot_of(const struct stmt_map *map, const struct sql *sql)
{
	/* Neighbouring statements differ in the lower bits only, above those that are always 0. */
	size_t i = ((uintptr_t)sql >> 4) * 0x9e3779b97f4a7c15u >> 32;
	for (;; i++) {
		struct stmt_slot *slot = &map->slots[i & (map->size - 1)];
		if (!slot->sql || slot->sql == sql)
			return slot;
	}
}

void *stmt_map_get(const struct stmt_map *map, const struct sql *sql)
{
	return map->size ? slot_of(map, sql)->statement : NULL;
}

static void grow(struct stmt_map *map)
{
	struct stmt_map bigger = { .size = map->size ? map->size * 2 : 32, .used = map->used };
	bigger.slots = xcalloc(bigger.size, sizeof(*bigger.slots));
	for (size_t i = 0; i < map->size; i++) {
		if (map->slots[i].sql)
			*slot_of(&bigger, map->slots[i].sql) = map->slots[i];
	}
	free(map->slots);
	*map = bigger;
}

void stmt_map_put(struct stmt_map *map, const struct sql *sql, void *statement)
{
	/* Kept half empty, so that a search for a missing one ends soon. */
	if (map->used * 2 >= map->size)
		grow(map);
	struct stmt_slot *slot = slot_of(map, sql);
	if (!slot->sql)
		map->used++;
	*slot = (struct stmt_slot){ sql, statement };
}

void stmt_map_clear(struct stmt_map *map, void (*drop)(void *statement))
{
	for (size_t i = 0; i < map->size; i++) {
		if (map->slots[i].sql)
			drop(map->slots[i].statement);
	}
	free(map->slots);
	*map = (struct stmt_map){ 0 };
}

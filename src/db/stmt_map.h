/*
 * The prepared statements of one connection, found by the address of their SQL. Statements are
 * static data, so the map is bounded by the program; nothing is ever dropped from it singly.
 */
#pragma once

#include <stddef.h>

struct sql;

struct stmt_map {
	struct stmt_slot {
		const struct sql *sql;
		void *statement;
	} * slots;
	size_t size; /* a power of two, or 0 */
	size_t used;
};

void *stmt_map_get(const struct stmt_map *map, const struct sql *sql); /* NULL: not there */
void stmt_map_put(struct stmt_map *map, const struct sql *sql, void *statement);
/* Calls drop on every statement and empties the map. */
void stmt_map_clear(struct stmt_map *map, void (*drop)(void *statement));

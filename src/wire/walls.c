#include "wire/walls.h"

#include <stdio.h>
#include <string.h>

static const char *const WALLS[] = {
#define X(name, text) text,
	WIRE_WALLS(X)
#undef X
};

const char *wall_name(unsigned wall)
{
	return wall < WALL_COUNT ? WALLS[wall] : NULL;
}

unsigned wall_find(const char *name)
{
	unsigned wall = 0;

	while (wall < WALL_COUNT && strcmp(WALLS[wall], name) != 0)
		wall++;
	return wall;
}

void walls_print(uint64_t walls, char *out, unsigned long size)
{
	unsigned long used = 0;

	out[0] = 0;
	for (unsigned wall = 0; wall < WALL_COUNT && used < size; wall++)
		if (walls & WALL_BIT(wall))
			used += (unsigned long)snprintf(out + used, size - used, "%s%s",
							used ? ", " : "", WALLS[wall]);
}

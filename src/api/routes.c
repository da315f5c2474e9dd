#include <string.h>
#include "api/server.h"

/* Where the section of ROUTES begins and ends. */
extern const struct route_table *const __start_berth_routes[], *const __stop_berth_routes[];

static bool is_before(const struct route_table *a, const struct route_table *b)
{
	if (a->order != b->order)
		return a->order < b->order;
	return strcmp(a->routes->path, b->routes->path) < 0;
}

const struct route *route_table_at(size_t index)
{
	const struct route_table *const *from = __start_berth_routes, *const *to =
									      __stop_berth_routes;

	for (const struct route_table *const *table = from; table < to; table++) {
		size_t before = 0;

		for (const struct route_table *const *other = from; other < to; other++)
			before += is_before(*other, *table);
		if (before == index)
			return (*table)->routes;
	}
	return NULL;
}

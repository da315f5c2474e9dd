/* For tests that change what a maker of theirs does. */
#pragma once

#include "base/text.h"
#include "driver/maker.h"

/* The instance, which is the test's own. */
static inline struct maker *maker_to_change(const struct makers *makers, enum driver_kind driver,
					    const char *provider)
{
	struct maker *found = NULL;

	for (size_t i = 0; i < makers->count; i++)
		if (makers->items[i]->driver == driver &&
		    (driver != DRIVER_SANDBOX || streq(makers->items[i]->key, provider)))
			found = makers->items[i];
	return found;
}

/* As one whose makers are all gone but those of a driver. */
static inline void makers_keep_only(struct makers *makers, enum driver_kind driver)
{
	size_t kept = 0;

	for (size_t i = 0; i < makers->count; i++) {
		if (makers->items[i]->driver == driver)
			makers->items[kept++] = makers->items[i];
		else
			free(makers->items[i]);
	}
	makers->count = kept;
}

/*
 * The fault seam. Wrappers around everything that can be interrupted (a database write, a provider
 * call, a keeper verb, a channel send) own a point before and a point after the act. BERTH_FAULT
 * arms points by name:
 *
 *     BERTH_FAULT=point:action[,point:action...]      point may end in @N: only the Nth hit (from
 * 1)
 *
 *     kill    SIGKILL to this process        error   the wrapper fails with ERR_FAULT
 *     hang    blocks the calling thread      skip    the guarded check is left out (fences only)
 *
 * Points register themselves in a linker section, so the list is what the program contains and
 * never what somebody remembered to write down: `berth faults` prints it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

struct fault_point {
	const char *name;
};

#define FAULT_POINT_REGISTER(ident, text)                                                          \
	static const struct fault_point ident = { text };                                          \
	static const struct fault_point *const ident##_ref                                         \
		__attribute__((used, section("berth_faults"))) = &ident

/* Reads BERTH_FAULT once; a malformed value or an unknown point is an error. Call it from main. */
int fault_init(const char *spec, struct error *err);

/* 0 to go on, -1 with ERR_FAULT. May not return at all. Cheap when nothing is armed. */
int fault_hit(const struct fault_point *point, struct error *err);
/* For fences: true when the point is armed with `skip`. */
bool fault_skips(const struct fault_point *point);

/* A point in the middle of a function, outside the wrappers. */
#define FAULT_HERE(text, err)                                                                      \
	({                                                                                         \
		FAULT_POINT_REGISTER(_fault_here, text);                                           \
		fault_hit(&_fault_here, (err));                                                    \
	})
#define FENCE_OFF(text)                                                                            \
	({                                                                                         \
		FAULT_POINT_REGISTER(_fault_fence, text);                                          \
		fault_skips(&_fault_fence);                                                        \
	})

size_t fault_count(void);
const char *fault_name(size_t index); /* sorted, unique */

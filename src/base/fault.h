/*
 * The fault seam. Wrappers around everything that can be interrupted (a database write, a provider
 * call, a keeper verb, a channel send) own a point before and a point after the act. BERTH_FAULT
 * arms points by name:
 *
 *     BERTH_FAULT=point:action[,point:action...]
 *
 *     point may end in @N: only the Nth hit (from 1)
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
	bool fence; /* guards a check: takes `skip` and nothing else */
};

#define FAULT_REGISTER_(ident, text, is_fence)                                                     \
	static const struct fault_point ident = { text, is_fence };                                \
	static const struct fault_point *const ident##_ref                                         \
		__attribute__((used, section("berth_faults"))) = &ident
#define FAULT_POINT_REGISTER(ident, text) FAULT_REGISTER_(ident, text, false)
#define FAULT_FENCE_REGISTER(ident, text) FAULT_REGISTER_(ident, text, true)

/*
 * Arms what the text (the value of BERTH_FAULT; NULL or empty: nothing) says, instead of what was
 * armed before. A malformed text, an unknown point, `skip` for a point that is no fence and
 * anything else for a fence are errors, and then nothing is armed. Call it from main, before other
 * threads exist.
 */
int fault_init(const char *spec, struct error *err);

/*
 * From here on the name of every point that is hit is appended to the file, a line each (the value
 * of BERTH_FAULT_TRACE; NULL: nothing is written). How a test knows that it got where it meant to.
 */
int fault_trace(const char *path, struct error *err);

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
		FAULT_FENCE_REGISTER(_fault_fence, text);                                          \
		fault_skips(&_fault_fence);                                                        \
	})

size_t fault_count(void);
const char *fault_name(size_t index); /* sorted, unique; NULL past the end */
bool fault_is_fence(size_t index);

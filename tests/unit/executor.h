/*
 * An executor for tests: the keeper and relay of this very build, a short absence, so that what a
 * test leaves behind ends by itself soon after it.
 */
#pragma once

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "channel/exec.h"

/* The build directory is above wherever the test program is. */
static inline const char *built_program(const char *name, char out[PATH_MAX])
{
	char dir[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", dir, sizeof(dir) - 1);

	dir[len > 0 ? len : 0] = '\0';
	for (char *slash; (slash = strrchr(dir, '/')); *slash = '\0') {
		*slash = '\0';
		if (snprintf(out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX &&
		    access(out, X_OK) == 0)
			return out;
		*slash = '/';
	}
	return NULL;
}

/* For a server that looks for them itself. */
static inline void use_built_programs(void)
{
	char path[PATH_MAX];

	if (built_program("berth-keeper", path))
		setenv("BERTH_KEEPER", path, 1);
	if (built_program("berth-relay", path))
		setenv("BERTH_RELAY", path, 1);
}

static inline int test_executor_new(struct clock *clock, const char *owner, int64_t boot_epoch,
				    const char *dir, struct executor **executor, struct error *err)
{
	char keeper[PATH_MAX], relay[PATH_MAX];
	_cleanup_free_ char *runtime = xasprintf("%s/keeper", dir);
	const struct executor_options options = {
		.clock = clock,
		.owner = owner,
		.boot_epoch = boot_epoch,
		.runtime_path = runtime,
		.keeper_path = built_program("berth-keeper", keeper),
		.relay_path = built_program("berth-relay", relay),
		.absence_ms = 20000,
	};

	return executor_new(&options, executor, err);
}

/* With a key made of the generation: the same holder opens the same place again. */
static inline int test_open_place(struct executor *executor, const char *place_id,
				  int64_t generation, const char *root)
{
	struct exec_place place = { .place_id = place_id, .generation = generation, .root = root };

	memset(place.key, (int)generation, sizeof(place.key));
	return executor_open_place(executor, &place, NULL);
}

/*
 * An places for tests: the keeper and relay of this very build. What a test started ends with it;
 * for one that crashes there is a short absence.
 */
#pragma once

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/spawn.h"
#include "place/exec.h"

#define KEEPER_PATIENCE_MS 20000

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

static inline int test_places_new(struct clock *clock, const char *owner, int64_t boot_epoch,
				  const char *dir, struct places **places, struct error *err)
{
	char keeper[PATH_MAX], relay[PATH_MAX];
	_cleanup_free_ char *runtime = xasprintf("%s/keeper", dir);
	const struct places_options options = {
		.clock = clock,
		.owner = owner,
		.boot_epoch = boot_epoch,
		.runtime_path = runtime,
		.keeper_path = built_program("berth-keeper", keeper),
		.relay_path = built_program("berth-relay", relay),
		.absence_ms = 20000,
	};

	return places_new(&options, places, err);
}

static inline bool process_ends(pid_t pid, unsigned long long start_time)
{
	for (int ms = 0; process_is(pid, start_time); ms += 5) {
		if (ms > KEEPER_PATIENCE_MS)
			return false;
		poll(NULL, 0, 5);
	}
	/* It may be a child of ours. */
	waitpid(pid, NULL, WNOHANG);
	return true;
}

/*
 * Ends every place that the servers of a directory left running, as they should, and the keeper
 * with what it keeps ready. Only when all of those servers are gone.
 */
static inline void end_keeper(const char *dir)
{
	_cleanup_free_ char *below = xasprintf("%s/keeper/places", dir);
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *health = NULL;
	unsigned long long start_time;
	struct places *places;
	struct clock clock;
	pid_t keeper;

	if (access(below, F_OK) < 0)
		return;
	clock_init_system(&clock);
	if (test_places_new(&clock, "end-of-the-test", 1, dir, &places, &err) < 0 ||
	    places_reap(places, NULL, 0, &err) < 0)
		fail_msg("%s", err.message);
	health = places_health(places);
	keeper = (pid_t)json_int(json_object_at(health, "keeper"), "pid", 0);
	start_time = keeper > 0 ? process_start_time(keeper) : 0;
	places_free(places);
	if (start_time == 0)
		return;
	kill(keeper, SIGTERM);
	assert_true(process_ends(keeper, start_time));
}

/* With a key made of the generation: the same holder opens the same place again. */
static inline int test_open_place(struct places *places, const char *place_id, int64_t generation,
				  const char *root)
{
	struct exec_place place = { .place_id = place_id, .generation = generation, .root = root };

	memset(place.key, (int)generation, sizeof(place.key));
	return places_open(places, &place, NULL);
}

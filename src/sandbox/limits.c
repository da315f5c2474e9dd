/*
 * Limits by cgroup: what stops a fork bomb, a memory hog or a busy loop from taking the host and
 * the other places with it. Where the machine has v1 controllers they are used, beneath the cgroup
 * that the keeper itself is in, so that a place never gets more than Berth was given; only execs
 * enter them, the relay stays outside and can report what happened. Where the controllers are in
 * the v2 tree, the place's own v2 cgroup carries the limits, the relay included.
 */
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"

#define V1_ROOT "/sys/fs/cgroup"
#define PERIOD_US 100000

static const char *const CONTROLLERS[LIMITS] = { "memory", "pids", "cpu" };
static const unsigned WALLS[LIMITS] = { WALL_MEMORY, WALL_PIDS, WALL_CPU };

static bool lists(const char *list, const char *name, char end)
{
	size_t len = strlen(name);

	for (const char *p = list; *p && *p != end;
	     p += strcspn(p, ", :\n"), p += *p == ',' || *p == ' ')
		if (strncmp(p, name, len) == 0 && strchr(",: \n", p[len]))
			return true;
	return false;
}

/* The cgroup of this process in the hierarchy of a controller; "/" when it is not told. */
static char *own_cgroup(const char *controller)
{
	_cleanup_buf_ struct buf text = { 0 };
	char *rest, *line;

	if (file_read(AT_FDCWD, "/proc/self/cgroup", &text, 65536, NULL) < 0)
		return xstrdup("");
	rest = text.data;
	while (rest && (line = strsep(&rest, "\n"))) {
		char *names = strchr(line, ':');
		char *path = names ? strchr(names + 1, ':') : NULL;

		if (path && lists(names + 1, controller, ':'))
			return xstrdup(strcmp(path + 1, "/") == 0 ? "" : path + 1);
	}
	return xstrdup("");
}

static char *v1_base(const char *controller, const char *tag)
{
	_cleanup_free_ char *own = own_cgroup(controller);
	_cleanup_free_ char *there = xasprintf(V1_ROOT "/%s%s/cgroup.procs", controller, own);
	_cleanup_free_ char *base = NULL;

	/* A container may see its own cgroup as the root of the mount. */
	if (access(there, W_OK) < 0)
		own[0] = 0;
	base = xasprintf(V1_ROOT "/%s%s/berth-%s", controller, own, tag);
	free(steal(there));
	there = xasprintf(V1_ROOT "/%s/tasks", controller);
	if (access(there, F_OK) < 0 || (mkdir(base, 0755) < 0 && errno != EEXIST))
		return NULL;
	return steal(base);
}

static int write_value(const char *dir, const char *file, const char *value)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, file);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value) ? 0 : -1;
}

static bool v2_has_controllers(const char *v2_base)
{
	_cleanup_free_ char *path = v2_base ? xasprintf("%s/cgroup.controllers", v2_base) : NULL;
	_cleanup_buf_ struct buf text = { 0 };

	if (!path || file_read(AT_FDCWD, path, &text, 4096, NULL) < 0)
		return false;
	for (int i = 0; i < LIMITS; i++)
		if (!lists(buf_str(&text), CONTROLLERS[i], '\n'))
			return false;
	return write_value(v2_base, "cgroup.subtree_control", "+memory +pids +cpu") == 0;
}

void limit_bases_find(struct limit_bases *bases, const char *tag, const char *v2_base)
{
	*bases = (struct limit_bases){ 0 };
	if (geteuid() != 0)
		return;
	bases->unified = v2_has_controllers(v2_base);
	for (int i = 0; i < LIMITS && !bases->unified; i++)
		bases->v1[i] = v1_base(CONTROLLERS[i], tag);
}

void limit_bases_remove(struct limit_bases *bases)
{
	for (int i = 0; i < LIMITS; i++) {
		if (bases->v1[i])
			rmdir(bases->v1[i]);
		free(steal(bases->v1[i]));
	}
}

void limit_set_init(struct limit_set *set)
{
	*set = (struct limit_set){ .oom_fd = -1, .enter_fd = { -1, -1, -1 } };
}

void limit_set_clear(struct limit_set *set)
{
	for (int i = 0; i < LIMITS; i++) {
		close_fdp(&set->enter_fd[i]);
		free(steal(set->v1[i]));
	}
	close_fdp(&set->oom_fd);
}

static bool wants(const struct sandbox_spec *spec, int limit)
{
	switch (limit) {
	case LIMIT_MEMORY:
		return spec->memory_bytes != 0;
	case LIMIT_PIDS:
		return spec->pids != 0;
	default:
		return spec->cpu_percent != 0;
	}
}

void limits_soften(const struct limit_bases *bases, struct sandbox_spec *spec)
{
	if (bases->unified)
		return;
	if ((spec->soft_limits & WIRE_SOFT_MEMORY) && !bases->v1[LIMIT_MEMORY])
		spec->memory_bytes = 0;
	if ((spec->soft_limits & WIRE_SOFT_PIDS) && !bases->v1[LIMIT_PIDS])
		spec->pids = 0;
}

int limits_plan(const struct limit_bases *bases, const struct sandbox_spec *spec, const char *id,
		struct limit_set *set, struct error *err)
{
	for (int i = 0; i < LIMITS; i++) {
		if (!wants(spec, i) || bases->unified)
			continue;
		if (!bases->v1[i])
			return error_set(
				err, ERR_UNAVAILABLE,
				"a limit of %s was asked for, and there is no %s controller that "
				"this user may use: leave the limit out, or run the server as root",
				CONTROLLERS[i], CONTROLLERS[i]);
		set->v1[i] = xasprintf("%s/%s", bases->v1[i], id);
	}
	return 0;
}

static int set_v1(const struct sandbox_spec *spec, int limit, const char *dir)
{
	char value[32];

	switch (limit) {
	case LIMIT_MEMORY:
		snprintf(value, sizeof(value), "%llu", (unsigned long long)spec->memory_bytes);
		if (write_value(dir, "memory.limit_in_bytes", value) < 0)
			return -1;
		/* Memory and swap together: without it the hog would only move to the swap. */
		write_value(dir, "memory.memsw.limit_in_bytes", value);
		return 0;
	case LIMIT_PIDS:
		snprintf(value, sizeof(value), "%u", spec->pids);
		return write_value(dir, "pids.max", value);
	default:
		snprintf(value, sizeof(value), "%d", PERIOD_US);
		if (write_value(dir, "cpu.cfs_period_us", value) < 0)
			return -1;
		snprintf(value, sizeof(value), "%llu",
			 (unsigned long long)spec->cpu_percent * (PERIOD_US / 100));
		return write_value(dir, "cpu.cfs_quota_us", value);
	}
}

static int set_v2(const struct sandbox_spec *spec, int limit, const char *dir)
{
	char value[64];

	switch (limit) {
	case LIMIT_MEMORY:
		snprintf(value, sizeof(value), "%llu", (unsigned long long)spec->memory_bytes);
		write_value(dir, "memory.swap.max", "0");
		return write_value(dir, "memory.max", value);
	case LIMIT_PIDS:
		snprintf(value, sizeof(value), "%u", spec->pids);
		return write_value(dir, "pids.max", value);
	default:
		snprintf(value, sizeof(value), "%llu %d",
			 (unsigned long long)spec->cpu_percent * (PERIOD_US / 100), PERIOD_US);
		return write_value(dir, "cpu.max", value);
	}
}

static int open_in(const char *dir, const char *file, int flags)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, file);

	return open(path, flags | O_CLOEXEC);
}

static int make_one(const struct limit_bases *bases, const struct sandbox_spec *spec, int limit,
		    const char *v2_cgroup, struct limit_set *set, struct error *err)
{
	const char *dir = bases->unified ? v2_cgroup : set->v1[limit];

	if (!bases->unified && mkdir(dir, 0755) < 0 && errno != EEXIST)
		return error_errno(err, errno, "making %s", dir);
	if (!FENCE_OFF("sandbox.wall.limits") &&
	    (bases->unified ? set_v2(spec, limit, dir) : set_v1(spec, limit, dir)) < 0)
		return error_errno(err, errno, "limiting %s by %s", CONTROLLERS[limit], dir);
	if (limit == LIMIT_MEMORY) {
		set->oom_fd = open_in(dir, bases->unified ? "memory.events" : "memory.oom_control",
				      O_RDONLY);
		if (set->oom_fd < 0)
			return error_errno(err, errno, "watching %s", dir);
	}
	if (bases->unified)
		return 0;
	/*
	 * Who enters has one thread and writes of itself. By this file the kernel then does without
	 * the lock that keeps every fork on the machine out, and with it without the milliseconds
	 * that `cgroup.procs` waits for it.
	 */
	set->enter_fd[limit] = open_in(dir, "tasks", O_WRONLY);
	return set->enter_fd[limit] < 0 ? error_errno(err, errno, "opening %s", dir) : 0;
}

int limits_make(const struct limit_bases *bases, const struct sandbox_spec *spec,
		const char *v2_cgroup, struct limit_set *set, uint64_t *walls, struct error *err)
{
	for (int i = 0; i < LIMITS; i++) {
		if (!wants(spec, i))
			continue;
		if (make_one(bases, spec, i, v2_cgroup, set, err) < 0)
			return -1;
		*walls |= WALL_BIT(WALLS[i]);
	}
	return 0;
}

int limit_cgroup_remove(const char *path)
{
	return rmdir(path) < 0 && errno != ENOENT ? -1 : 0;
}

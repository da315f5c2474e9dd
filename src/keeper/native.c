/*
 * Native places: what the keeper does for a sandbox before and after sandbox/ builds it. Everything
 * is named in the recipe before it is made; the uid range is free again when no file of it is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "keeper/keeper.h"

void native_start_keeping(struct keeper *keeper, uint32_t uid_base)
{
	_cleanup_error_ struct error err = { 0 };
	uint8_t digest[SHA256_SIZE];
	char tag[9];
	const char *slash = strrchr(keeper->dir, '/');
	char real[PATH_MAX];

	/* All of the data directory, of which the keeper's own is one part; as other paths, real.
	 */
	keeper->policy.secret = slash && slash != keeper->dir
					? xstrndup(keeper->dir, (size_t)(slash - keeper->dir))
					: xstrdup(keeper->dir);
	if (realpath(keeper->policy.secret, real)) {
		free((char *)(uintptr_t)keeper->policy.secret);
		keeper->policy.secret = xstrdup(real);
	}
	sha256_once(keeper->dir, strlen(keeper->dir), digest);
	hex_encode(tag, digest, 4);
	limit_bases_find(&keeper->limits, tag, keeper->cgroup);
	keeper->ranges.registry_fd = -1;
	if (geteuid() == 0)
		keeper->has_ranges =
			range_book_open(&keeper->ranges, uid_base, keeper->dir, &err) == 0;
	snprintf(keeper->ranges_why, sizeof(keeper->ranges_why), "%s", err.message);
	if (geteuid() == 0 && !keeper->has_ranges)
		log_warn("no native places: %s", err.message);
	store_load_all(keeper);
	trash_load_all(keeper);
	net_start_keeping(keeper);
}

static bool range_is_used(uint32_t number, void *arg)
{
	const struct keeper *keeper = arg;

	for (const struct place *p = keeper->places; p; p = p->next)
		if (p->range == number + 1)
			return true;
	return store_uses_range(keeper, number + 1) || trash_uses_range(keeper, number + 1);
}

void native_adopted(struct keeper *keeper)
{
	if (keeper->has_ranges)
		range_give_back_unused(&keeper->ranges, range_is_used, keeper);
}

void native_range_left(struct keeper *keeper, uint32_t range)
{
	if (range && keeper->has_ranges && !range_is_used(range - 1, keeper))
		range_give_back(&keeper->ranges, range - 1);
}

static int take_range(struct place *place, struct error *err)
{
	struct keeper *keeper = place->keeper;
	uint32_t number;

	if (geteuid() != 0)
		return 0;
	/* Ids that somebody else has would give the sandbox that somebody's files. */
	if (!keeper->has_ranges)
		return error_set(err, ERR_UNAVAILABLE, "%s", keeper->ranges_why);
	if (range_take(&keeper->ranges, range_is_used, keeper, &number, err) < 0)
		return -1;
	place->range = number + 1;
	return 0;
}

static int choose_store(struct place *place, const char *name, struct error *err)
{
	struct store *store = store_find(place->keeper, name);

	for (const struct place *p = place->keeper->places; p; p = p->next)
		if (p != place && p->store && strcmp(p->store, name) == 0)
			return error_set(err, ERR_CONFLICT, "place %s uses the store", p->id);
	if (store && store->removing)
		return error_set(err, ERR_CONFLICT, "the store is being removed");
	if (!store) {
		if (take_range(place, err) < 0)
			return -1;
		store = store_make(place->keeper, name, place->label, place->range, err);
		if (!store)
			return -1;
	}
	place->range = store->range;
	place->store = xstrdup(name);
	return 0;
}

int native_fill(struct place *place, const struct wire_place_make *m, struct sandbox_spec *spec,
		struct error *err)
{
	struct keeper *keeper = place->keeper;
	struct limit_set set;
	int r;

	place->root = xstrdup("/");
	if (sandbox_spec_read(&m->sandbox, &keeper->policy, spec, err) < 0)
		return -1;
	place->overlaid = spec->workspace.source_fd >= 0 && spec->workspace.overlay;
	limit_set_init(&set);
	limits_soften(&keeper->limits, spec);
	r = limits_plan(&keeper->limits, spec, place->id, &set, err);
	for (int i = 0; i < LIMITS; i++)
		place->limits[i] = steal(set.v1[i]);
	if (r < 0)
		return -1;
	return spec->store ? choose_store(place, spec->store, err) : take_range(place, err);
}

uid_t native_base(const struct place *place)
{
	return place->range ? range_uid(&place->keeper->ranges, place->range - 1) : 0;
}

static int own(int fd, uid_t base, const char *what, struct error *err)
{
	return base && fchown(fd, base, base) < 0
		       ? error_errno(err, errno, "giving %s to the sandbox", what)
		       : 0;
}

/*
 * Each holding begins with a layer of its own: an older one would hide what the host's files have
 * become since. It goes with the place, because removing it takes its time.
 */
static int put_layers_aside(int files_fd, int place_fd, struct error *err)
{
	static const char *const layers[] = { SANDBOX_UPPER, SANDBOX_WORK };

	for (size_t i = 0; i < ARRAY_SIZE(layers); i++) {
		char name[32];

		snprintf(name, sizeof(name), "stale-%s", layers[i]);
		if (renameat(files_fd, layers[i], place_fd, name) < 0 && errno != ENOENT)
			return error_errno(err, errno, "putting an older layer aside");
	}
	return 0;
}

static int open_files(struct place *place, const struct sandbox_spec *spec, int place_fd, int *fd,
		      struct error *err)
{
	if (spec->tmpfs)
		return 0;
	if (place->store) {
		if (store_files(store_find(place->keeper, place->store), fd, err) < 0 ||
		    put_layers_aside(*fd, place_fd, err) < 0)
			return -1;
	} else {
		if (mkdirat(place_fd, PLACE_FILES_NAME, 0700) < 0 && errno != EEXIST)
			return error_errno(err, errno, "making the place's files");
		if (dir_open(place_fd, PLACE_FILES_NAME, fd, err) < 0)
			return -1;
	}
	return own(*fd, native_base(place), "its files", err);
}

/* The relay makes a cgroup per exec in it, and must be allowed to put children there. */
static int open_cgroup(struct place *place, int *fd, struct error *err)
{
	static const char *const given[] = { "cgroup.procs", "cgroup.kill" };
	uid_t base = native_base(place);

	if (!place->cgroup)
		return 0;
	if (cgroup_make(place->cgroup, err) < 0)
		return -1;
	*fd = cgroup_open(place->cgroup);
	if (*fd < 0 || own(*fd, base, "its cgroup", err) < 0)
		return error_errno(err, errno, "opening %s", place->cgroup);
	for (size_t i = 0; i < ARRAY_SIZE(given); i++)
		if (fchownat(*fd, given[i], base, base, 0) < 0)
			return error_errno(err, errno, "giving %s to the sandbox", given[i]);
	return 0;
}

/*
 * What the host's /etc was like when this keeper first needed one. Places of an earlier keeper go
 * on with theirs.
 */
static const char *current_etc(const struct place *place)
{
	struct keeper *keeper = place->keeper;
	bool alone = true;

	if (keeper->etc_tag[0])
		return keeper->etc_tag;
	etc_tag(keeper->etc_tag);
	for (const struct place *p = keeper->places; p; p = p->next)
		alone &= p == place || p->kind != PLACE_NATIVE;
	if (alone)
		etc_forget(keeper->dir_fd, keeper->etc_tag);
	return keeper->etc_tag;
}

struct entering {
	const struct place *place;
	struct birth *b;
};

/* Inside, with all walls built: what is still open of the host is closed, or meant for the relay.
 */
static void enter(void *arg)
{
	struct entering *e = arg;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int image = fcntl(e->place->keeper->relay_image, F_DUPFD_CLOEXEC, RELAY_FD_END);

	setsid();
	if (null < 0 || image < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
		return;
	*birth_fd(e->b, RELAY_FD_ROOT) = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*birth_fd(e->b, RELAY_FD_ROOT) < 0 || birth_arrange(e->b) < 0)
		return;
	/* Stops: a descriptor of the host that somebody forgot (CVE-2024-21626). */
	image = dup3(image, RELAY_FD_END, O_CLOEXEC) < 0 ? -1 : RELAY_FD_END;
	if (image < 0 || (!FENCE_OFF("sandbox.wall.close_fds") &&
			  syscall(SYS_close_range, RELAY_FD_END + 1, ~0u, 0u) < 0))
		return;
	relay_exec(e->place, image);
}

static void hand_limits(struct limit_set *set, struct birth *b)
{
	int next = RELAY_FD_LIMIT;

	for (int i = 0; i < LIMITS; i++)
		if (set->enter_fd[i] >= 0)
			*birth_fd(b, next++) = steal_fd(&set->enter_fd[i]);
	*birth_fd(b, RELAY_FD_OOM) = steal_fd(&set->oom_fd);
}

int native_start(struct place *place, const struct sandbox_spec *spec, struct birth *b,
		 int place_fd, pid_t *pid, struct error *err)
{
	struct keeper *keeper = place->keeper;
	_cleanup_close_ int files = -1, etc = -1;
	_cleanup_(limit_set_clear) struct limit_set set;
	struct entering entering = { place, b };
	struct sandbox_birth birth = {
		.spec = spec,
		.base = native_base(place),
		.net_fd = spec->host_network ? -1 : net_take(place),
		.home_net_fd = keeper->home_net_fd,
		.lock_fd = keeper->lock_fd,
		.report_fd = *birth_fd(b, RELAY_FD_CONFIG),
		.enter = enter,
		.arg = &entering,
	};

	limit_set_init(&set);
	for (int i = 0; i < LIMITS; i++)
		set.v1[i] = xstrdup(place->limits[i]);
	if (open_files(place, spec, place_fd, &files, err) < 0 ||
	    own(*birth_fd(b, RELAY_FD_SPOOL), birth.base, "its spool", err) < 0 ||
	    open_cgroup(place, birth_fd(b, RELAY_FD_CGROUP), err) < 0 ||
	    limits_make(&keeper->limits, spec, place->cgroup, &set, &birth.walls, err) < 0)
		return -1;
	if (spec->root_fd < 0 && etc_open(keeper->dir_fd, current_etc(place), spec->user, spec->uid,
					  spec->host_network, &etc, err) < 0)
		return -1;
	hand_limits(&set, b);
	birth.files_fd = files;
	birth.etc_fd = etc;
	birth.cgroup_fd = *birth_fd(b, RELAY_FD_CGROUP);
	return sandbox_start(&birth, pid, err);
}

bool native_clean(struct place *place)
{
	bool clean = true;

	for (int i = 0; i < LIMITS; i++)
		if (place->limits[i] && limit_cgroup_remove(place->limits[i]) < 0)
			clean = false;
	return clean;
}

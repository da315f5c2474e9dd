#include "driver/native/native_config.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/path.h"
#include "base/text.h"
#include "wire/message.h"
#include "wire/walls.h"

#define MIB (1024ull * 1024)
#define PIDS_DEFAULT 4096
#define OPEN_FILES_DEFAULT 16384

static const char *const OWN_KEY[] = { NATIVE_KEY, NULL };
static const char *const WRITABLES[] = { "overlay", "tmpfs", NULL };
static const char *const NETWORKS[] = { "none", "host", NULL };

static const struct field LIMIT_FIELDS[] = {
	{ .name = "memoryMb",
	  .type = FIELD_INT,
	  .min = 0,
	  .max = 1 << 24,
	  .summary = "memory of all processes together; three quarters of the machine's if it is "
		     "not said, 0 is no limit" },
	{ .name = "pids",
	  .type = FIELD_INT,
	  .min = 0,
	  .max = 4194304,
	  .summary = "processes and threads; 4096 if it is not said, 0 is no limit" },
	{ .name = "cpus", .type = FIELD_ANY, .summary = "processors, 0.5 is half of one" },
	{ .name = "diskMb",
	  .type = FIELD_INT,
	  .min = 1,
	  .max = 1 << 24,
	  .summary = "what it may write; needs writable tmpfs" },
	{ .name = "openFiles",
	  .type = FIELD_INT,
	  .min = 0,
	  .max = 1048576,
	  .summary = "open files of each process; 16384 if it is not said, 0 is no limit" },
	{ .name = "wallSeconds",
	  .type = FIELD_INT,
	  .min = 0,
	  .max = 31536000,
	  .summary = "how long one command may take; a run's has 4 hours if it is not said, 0 is "
		     "no limit" },
	{ 0 },
};

/* One that is taken and one that is made meanwhile. */
#define POOL_DEFAULT 2

static const struct field POOL_FIELDS[] = {
	{ .name = "size",
	  .type = FIELD_INT,
	  .min = 0,
	  .max = 16,
	  .summary = "places kept ready; 0 is none, 2 if it is not said" },
	{ 0 },
};

static const struct field FIELDS[] = {
	{ .name = "provider", .type = FIELD_STRING, .one_of = OWN_KEY, .summary = "always native" },
	{ .name = "root",
	  .type = FIELD_STRING,
	  .flags = FIELD_NONBLANK,
	  .max = 4095,
	  .summary = "host: programs of this host; or the path of an unpacked root" },
	{ .name = "writable",
	  .type = FIELD_STRING,
	  .one_of = WRITABLES,
	  .summary = "where writes go: overlay (disk) or tmpfs (memory)" },
	{ .name = "network",
	  .type = FIELD_STRING,
	  .one_of = NETWORKS,
	  .summary = "none (loopback only) or host" },
	{ .name = "limits",
	  .type = FIELD_OBJECT,
	  .fields = LIMIT_FIELDS,
	  .summary = "what it may use" },
	{ .name = "mounts",
	  .type = FIELD_ANY,
	  .summary = "[{source, target, readOnly}]: directories of the host, beneath those the "
		     "operator allows" },
	{ .name = "sockets",
	  .type = FIELD_BOOL,
	  .summary = "true leaves unix sockets that lie in mounts or in an in_place workspace in "
		     "reach; they are covered otherwise" },
	{ .name = "user",
	  .type = FIELD_STRING,
	  .flags = FIELD_NONBLANK,
	  .max = 32,
	  .summary = "name of the user inside; root is root of the place only" },
	{ .name = "env",
	  .type = FIELD_STRING_MAP,
	  .max = 256,
	  .summary = "environment of every command" },
	{ .name = "leasePolicy",
	  .type = FIELD_STRING,
	  .one_of = lease_policy_names,
	  .summary = "what becomes of a place after its lease, unless a lease or run says so; "
		     "counts more than reuseLease" },
	{ .name = "reuseLease", .type = FIELD_BOOL, .summary = "keep the files between leases" },
	{ .name = "warmPool",
	  .type = FIELD_OBJECT,
	  .fields = POOL_FIELDS,
	  .summary = "places made ahead of use" },
	{ .name = "require",
	  .type = FIELD_STRING_ARRAY,
	  .max = 64,
	  .summary = "walls without which no lease is given" },
	{ 0 },
};

static const char *refuse_root(const json_t *value)
{
	const char *root = json_string_value(value);

	return streq(root, "host") || (path_is_absolute(root) && path_is_clean(root))
		       ? NULL
		       : "must be host or a clean absolute path";
}

static const char *refuse_user(const json_t *value)
{
	const char *user = json_string_value(value);

	return *user >= 'a' && *user <= 'z' &&
			       strspn(user, "abcdefghijklmnopqrstuvwxyz0123456789_-") ==
				       strlen(user)
		       ? NULL
		       : "must be lower case letters, digits, dashes and underscores";
}

static bool is_between(const json_t *limits, const char *key, int64_t low, int64_t high)
{
	int64_t number = json_int(limits, key, 0);

	return number >= low && number <= high;
}

static const char *refuse_limits(const json_t *value)
{
	const json_t *cpus = json_object_get(value, "cpus");
	double number = json_number_value(cpus);

	if (cpus && (!json_is_number(cpus) || number < 0.01 || number > 1024))
		return "cpus must be a number from 0.01 to 1024";
	if (is_between(value, "memoryMb", 1, 7))
		return "memoryMb must be 0 for no limit, or at least 8";
	if (is_between(value, "openFiles", 1, 15))
		return "openFiles must be 0 for no limit, or at least 16";
	return NULL;
}

static const struct field MOUNT_FIELDS[] = {
	{ .name = "source", .type = FIELD_STRING, .flags = FIELD_REQUIRED, .max = 4095 },
	{ .name = "target", .type = FIELD_STRING, .flags = FIELD_REQUIRED, .max = 4095 },
	{ .name = "readOnly", .type = FIELD_BOOL },
	{ 0 },
};

static const char *refuse_mounts(const json_t *value)
{
	if (!json_is_array(value) || json_array_size(value) > PLACE_MOUNTS_MAX)
		return "must be an array of at most 32 mounts";
	for (size_t i = 0; i < json_array_size(value); i++) {
		const json_t *mount = json_array_get(value, i);
		const char *source = json_str(mount, "source"), *target = json_str(mount, "target");

		if (!json_is_object(mount) || fields_check(MOUNT_FIELDS, mount, NULL) < 0)
			return "must be objects {source, target, readOnly}";
		if (!path_is_absolute(source) || !path_is_clean(source) ||
		    !path_is_absolute(target) || !path_is_clean(target))
			return "must have clean absolute paths";
	}
	return NULL;
}

static const char *refuse_require(const json_t *value)
{
	for (size_t i = 0; i < json_array_size(value); i++)
		if (wall_find(json_string_value(json_array_get(value, i))) == WALL_COUNT)
			return "names a wall that does not exist; `berth doctor --sandbox` lists "
			       "them";
	return NULL;
}

static const struct config_schema LIMIT_CONFIG = { .fields = LIMIT_FIELDS };
static const struct config_schema POOL_CONFIG = { .fields = POOL_FIELDS };

static const struct config_rule RULES[] = {
	{ .name = "provider", .how = CONFIG_TRIM, .fallback = "\"" NATIVE_KEY "\"" },
	{ .name = "root", .how = CONFIG_TRIM, .fallback = "\"host\"", .refuse = refuse_root },
	{ .name = "writable", .fallback = "\"overlay\"" },
	{ .name = "network", .fallback = "\"none\"" },
	{ .name = "limits", .nested = &LIMIT_CONFIG, .refuse = refuse_limits },
	{ .name = "mounts", .refuse = refuse_mounts },
	{ .name = "user", .how = CONFIG_TRIM, .refuse = refuse_user },
	{ .name = "reuseLease", .fallback = "false" },
	{ .name = "warmPool", .nested = &POOL_CONFIG },
	{ .name = "require", .refuse = refuse_require },
	{ 0 },
};

const struct config_schema NATIVE_CONFIG = { .fields = FIELDS, .rules = RULES };

static int refuse(struct error *err, const char *why)
{
	return error_set(err, ERR_UNPROCESSABLE, "Invalid environment config: %s", why);
}

/* What goes together only in some ways. */
static int check_whole(const json_t *config, struct error *err)
{
	const json_t *limits = json_object_at(config, "limits");
	bool tmpfs = str_equal(json_str(config, "writable"), "tmpfs");

	if (json_object_get(limits, "diskMb") && !tmpfs)
		return refuse(err,
			      "limits.diskMb needs writable \"tmpfs\": there is no way to limit "
			      "what is written to the host's disk");
	if (tmpfs && native_is_reusable(config))
		return refuse(
			err,
			"reuseLease needs writable \"overlay\": what is in memory is not kept");
	return 0;
}

json_t *native_normalize(const struct maker *self, const json_t *config, bool saving,
			 struct error *err)
{
	_cleanup_json_ json_t *normal = config_normalize(&NATIVE_CONFIG, config, err);

	(void)self;
	(void)saving;
	return normal && check_whole(normal, err) == 0 ? steal(normal) : NULL;
}

bool native_is_reusable(const json_t *config)
{
	return json_is_true(json_object_get(config, "reuseLease"));
}

uint32_t native_pool(const json_t *config)
{
	return (uint32_t)json_int(json_object_at(config, "warmPool"), "size", POOL_DEFAULT);
}

static bool is_read_only(const json_t *mount)
{
	return json_bool(mount, "readOnly", true);
}

bool native_shares(const json_t *config, const struct workspace_mount *workspace)
{
	const json_t *mounts = json_array_at(config, "mounts");

	if (workspace && workspace->how == WORKSPACE_BIND)
		return true;
	for (size_t i = 0; i < json_array_size(mounts); i++)
		if (!is_read_only(json_array_get(mounts, i)))
			return true;
	return false;
}

void native_needs(const json_t *config, struct place_needs *out)
{
	const json_t *mounts = json_array_at(config, "mounts");
	const char *root = json_str(config, "root");

	out->root = root && !streq(root, "host") ? root : NULL;
	out->host_network = str_equal(json_str(config, "network"), "host");
	out->sockets = json_is_true(json_object_get(config, "sockets"));
	out->root_user = str_equal(json_str(config, "user"), "root");
	for (size_t i = 0; i < json_array_size(mounts) && i < PLACE_MOUNTS_MAX; i++) {
		const json_t *mount = json_array_get(mounts, i);

		out->mounts[out->mount_count].source = json_str(mount, "source");
		out->mounts[out->mount_count++].writable = !is_read_only(mount);
	}
}

static uint64_t required(const json_t *config)
{
	const json_t *names = json_array_at(config, "require");
	uint64_t walls = 0;

	for (size_t i = 0; i < json_array_size(names); i++) {
		unsigned wall = wall_find(json_string_value(json_array_get(names, i)));

		walls |= wall < WALL_COUNT ? WALL_BIT(wall) : 0;
	}
	return walls;
}

/*
 * Limits that nobody asked for: one place cannot take the machine from all the others. The keeper
 * of an ordinary user can have no cgroups, so none of theirs are sent.
 */
static int64_t default_memory_mb(void)
{
	int64_t pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

	if (geteuid() != 0 || pages <= 0 || size <= 0)
		return 0;
	return MAX_OF(pages / 4 * 3 / ((int64_t)MIB / size), 8);
}

static int64_t default_pids(void)
{
	return geteuid() == 0 ? PIDS_DEFAULT : 0;
}

/* No more than this host's own: it cannot be raised everywhere. */
static int64_t default_open_files(void)
{
	struct rlimit own;

	if (getrlimit(RLIMIT_NOFILE, &own) < 0 || own.rlim_max == RLIM_INFINITY)
		return OPEN_FILES_DEFAULT;
	return (int64_t)MIN_OF(own.rlim_max, (rlim_t)OPEN_FILES_DEFAULT);
}

static uint32_t soft_limits(const json_t *limits)
{
	return (json_object_get(limits, "memoryMb") ? 0 : WIRE_SOFT_MEMORY) |
	       (json_object_get(limits, "pids") ? 0 : WIRE_SOFT_PIDS);
}

/* One for the root, if it has one, then one for each mount: as wire/message.h wants them. */
static void put_within(const struct place_needs *needs, const struct place_bounds *bounds,
		       const char *words[PLACE_MOUNTS_MAX + 2], struct wire_strv *out)
{
	if (!bounds)
		return;
	if (needs->root)
		words[out->count++] = bounds->root;
	for (size_t i = 0; i < needs->mount_count; i++)
		words[out->count++] = bounds->mounts[i];
	out->v = words;
}

int native_sandbox(const struct place_view *wanted, const char *store, const char *closed,
		   const struct seccomp_filter *filter, struct buf *out, struct error *err)
{
	const json_t *config = wanted->config.json;
	const struct workspace_mount *workspace = wanted->workspace;
	const json_t *limits = json_object_at(config, "limits");
	const json_t *mounts = json_array_at(config, "mounts");
	const char *user = json_str(config, "user");
	const char *within[PLACE_MOUNTS_MAX + 2] = { 0 };
	struct place_needs needs = { 0 };
	const char *words[3 * PLACE_MOUNTS_MAX + 1] = { 0 };
	struct wire_sandbox m = {
		.tmpfs = str_equal(json_str(config, "writable"), "tmpfs"),
		.memory_bytes = (uint64_t)json_int(limits, "memoryMb", default_memory_mb()) * MIB,
		.pids = (uint32_t)json_int(limits, "pids", default_pids()),
		.soft_limits = soft_limits(limits),
		.cpu_percent =
			(uint32_t)(json_number_value(json_object_get(limits, "cpus")) * 100 + 0.5),
		.disk_bytes = (uint64_t)json_int(limits, "diskMb", 0) * MIB,
		.open_files = (uint32_t)json_int(limits, "openFiles", default_open_files()),
		.user = user,
		.seccomp = { filter->whole.data, (uint32_t)filter->whole.len },
		.seccomp_base = { filter->base.data, (uint32_t)filter->base.len },
		.seccomp_exec = { filter->exec.data, (uint32_t)filter->exec.len },
		.require = required(config),
		.store = store,
		.closed = { &closed, closed ? 1 : 0 },
	};

	native_needs(config, &needs);
	m.root = needs.root;
	m.host_network = needs.host_network;
	m.sockets = needs.sockets;
	if (workspace) {
		m.workspace = workspace->path;
		m.overlay = workspace->how == WORKSPACE_OVERLAY;
		m.masks = m.overlay ? workspace->masks : NULL;
	}
	for (size_t i = 0; i < json_array_size(mounts) && i < PLACE_MOUNTS_MAX; i++) {
		const json_t *mount = json_array_get(mounts, i);

		words[m.mounts.count++] = is_read_only(mount) ? "ro" : "rw";
		words[m.mounts.count++] = json_str(mount, "source");
		words[m.mounts.count++] = json_str(mount, "target");
	}
	m.mounts.v = words;
	put_within(&needs, wanted->bounds, within, &m.within);
	return wire_encode(out, 0, WIRE_SANDBOX, &m, err);
}

json_t *native_boundary(uint64_t walls)
{
	json_t *out = json_object(), *standing = json_array(), *missing = json_array();

	for (unsigned wall = 0; wall < WALL_COUNT; wall++)
		json_array_append_new(walls & WALL_BIT(wall) ? standing : missing,
				      json_string(wall_name(wall)));
	json_put_new(out, "walls", standing);
	json_put_new(out, "missing", missing);
	return out;
}

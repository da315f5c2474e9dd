/*
 * What of ours is on this machine, and what of it nobody explains.
 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "place/places.h"

#define ASK_WAIT_MS 10000
#define REAP_WAIT_MS 30000
#define ENVIRON_MAX ((size_t)4 << 20)
#define MOUNTS_MAX ((size_t)16 << 20)
#define V1_DEPTH 6
#define KEEPER_CGROUP_PREFIX "berth-"

static const char *const V1_CONTROLLERS[] = { "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids",
					      "/sys/fs/cgroup/cpu" };

struct audit {
	struct places *places;
	const char *const *ids;
	size_t count;
	struct relay_place_list relays;
	json_t *found;
};

static bool explained(const struct audit *a, const char *place_id)
{
	for (size_t i = 0; i < a->count; i++)
		if (streq(a->ids[i], place_id))
			return true;
	return false;
}

static void add(struct audit *a, const char *kind, const char *id, const char *where,
		const char *reason)
{
	json_t *object = json_object();

	json_put_str(object, "kind", kind);
	json_put_str(object, "id", id);
	json_put_str(object, "where", where);
	json_put_str(object, "reason", reason);
	json_array_append_new(a->found, object);
}

static void audit_relays(struct audit *a)
{
	for (size_t i = 0; i < a->relays.count; i++) {
		const struct relay_place *r = &a->relays.items[i];
		_cleanup_free_ char *where = NULL;

		if (r->pooled || explained(a, r->id))
			continue;
		where = r->pid > 0 ? xasprintf("pid %d", (int)r->pid) : xstrdup(r->ended);
		add(a, "relay", r->id, where,
		    r->state == PLACE_ALIVE ? "no place holds it" : "not torn down yet");
	}
}

/* By its name, or by the cgroup it has: a place of the pool keeps that when it gets a name. */
static bool has_relay(const struct audit *a, const char *name)
{
	for (size_t i = 0; i < a->relays.count; i++) {
		const struct relay_place *r = &a->relays.items[i];
		const char *slash = r->cgroup ? strrchr(r->cgroup, '/') : NULL;

		if (streq(r->id, name) || (slash && streq(slash + 1, name)))
			return true;
	}
	return false;
}

/* Entries of a directory that are named after places nobody knows. */
static void audit_directory(struct audit *a, const char *path, const char *kind)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		_cleanup_free_ char *where = NULL;

		if (entry->d_name[0] == '.' || entry->d_type != DT_DIR ||
		    explained(a, entry->d_name) || has_relay(a, entry->d_name))
			continue;
		where = path_join(path, entry->d_name);
		add(a, kind, entry->d_name, where, "no place and no relay has it");
	}
	if (dir)
		closedir(dir);
}

/* What is in trash/ is in teardown: the keeper removes it, and marks what it could not remove. */
static void audit_trash(struct audit *a)
{
	_cleanup_free_ char *path = path_join(a->places->dir, TRASH_NAME);
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		_cleanup_free_ char *where = NULL;

		if (!str_ends(entry->d_name, TRASH_STUCK))
			continue;
		where = path_join(path, entry->d_name);
		add(a, "directory", entry->d_name, where,
		    "its place is gone, but it could not be removed: the keeper's log says why, "
		    "and the keeper tries again");
	}
	if (dir)
		closedir(dir);
}

/*
 * Limits of a place are in v1 controllers beneath the cgroup that its keeper was started in, which
 * may have been another one than ours: `name` is looked for everywhere, but not in others of its
 * kind.
 */
static void audit_limits(struct audit *a, const char *path, const char *name, unsigned depth)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		_cleanup_free_ char *child = NULL;

		if (entry->d_name[0] == '.' || entry->d_type != DT_DIR)
			continue;
		child = path_join(path, entry->d_name);
		if (streq(entry->d_name, name))
			audit_directory(a, child, "cgroup");
		else if (depth > 0 && !str_starts(entry->d_name, KEEPER_CGROUP_PREFIX))
			audit_limits(a, child, name, depth - 1);
	}
	if (dir)
		closedir(dir);
}

/* A place is called there as in v2: without that, names of the pool's could not be told. */
static void audit_cgroups(struct audit *a)
{
	_cleanup_free_ char *base = keeper_cgroup(a->places->dir);

	if (!base)
		return;
	audit_directory(a, base, "cgroup");
	for (size_t i = 0; i < ARRAY_SIZE(V1_CONTROLLERS); i++)
		audit_limits(a, V1_CONTROLLERS[i], strrchr(base, '/') + 1, V1_DEPTH);
}

/* The value of a variable in /proc/PID/environ, or NULL. */
static const char *variable(const struct buf *text, const char *name)
{
	size_t len = strlen(name);

	for (size_t pos = 0; pos < text->len;) {
		const char *entry = text->data + pos;
		size_t item = strnlen(entry, text->len - pos);

		if (item > len && memcmp(entry, name, len) == 0 && entry[len] == '=')
			return entry + len + 1;
		pos += item + 1;
	}
	return NULL;
}

/* A process that waits to be reaped is gone: it has no environment any more. */
static void audit_process(struct audit *a, int proc_fd, const char *pid)
{
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_free_ char *path = xasprintf("%s/environ", pid);
	const char *owner, *place;

	if (file_read(proc_fd, path, &text, ENVIRON_MAX, NULL) < 0 || text.len == 0)
		return;
	owner = variable(&text, MARK_OWNER);
	place = variable(&text, RELAY_MARK_PLACE);
	if (!owner || !streq(owner, a->places->owner) || (place && explained(a, place)))
		return;
	add(a, "process", pid, place, "no place explains it");
}

static void audit_processes(struct audit *a)
{
	_cleanup_close_ int proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = opendir("/proc");
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (isdigit((unsigned char)entry->d_name[0]) && atoi(entry->d_name) != getpid())
			audit_process(a, proc_fd, entry->d_name);
	if (dir)
		closedir(dir);
}

/* Field five of mountinfo is where it is mounted. Names in trash/ are no place's. */
static void audit_mounts(struct audit *a, const char *name)
{
	_cleanup_free_ char *below = xasprintf("%s/%s/", a->places->dir, name);
	_cleanup_buf_ struct buf text = { 0 };
	char *rest, *line;

	if (file_read(AT_FDCWD, "/proc/self/mountinfo", &text, MOUNTS_MAX, NULL) < 0)
		return;
	rest = text.data;
	while (rest && (line = strsep(&rest, "\n"))) {
		char *field = NULL;

		for (int i = 0; i < 5 && line; i++)
			field = strsep(&line, " ");
		if (!field || !str_starts(field, below))
			continue;

		_cleanup_free_ char *id =
			xstrndup(field + strlen(below), strcspn(field + strlen(below), "/"));

		if (!explained(a, id))
			add(a, "mount", id, field, "no place explains it");
	}
}

/* Only the keeper's own socket belongs into the directory itself. */
static void audit_sockets(struct audit *a)
{
	DIR *dir = opendir(a->places->dir);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		_cleanup_free_ char *where = NULL;

		if (entry->d_type != DT_SOCK || str_starts(entry->d_name, KEEPER_SOCKET_NAME))
			continue;
		where = path_join(a->places->dir, entry->d_name);
		add(a, "socket", entry->d_name, where, "nothing of ours is called so");
	}
	if (dir)
		closedir(dir);
}

json_t *places_audit(struct places *places, const char *const *place_ids, size_t count,
		     struct error *err)
{
	struct audit a = { .places = places, .ids = place_ids, .count = count };
	_cleanup_free_ char *below = path_join(places->dir, "places");

	if (keeper_list(places->keeper, boottime_ms() + ASK_WAIT_MS, &a.relays, err) < 0)
		return NULL;
	a.found = json_array();
	audit_relays(&a);
	audit_directory(&a, below, "directory");
	audit_trash(&a);
	audit_cgroups(&a);
	audit_processes(&a);
	audit_mounts(&a, "places");
	audit_mounts(&a, TRASH_NAME);
	audit_sockets(&a);
	relay_place_list_clear(&a.relays);
	return a.found;
}

int places_reap(struct places *places, const char *const *place_ids, size_t count,
		struct error *err)
{
	struct audit a = { .places = places, .ids = place_ids, .count = count };
	int ended = 0, rc = 0;

	if (keeper_list(places->keeper, boottime_ms() + ASK_WAIT_MS, &a.relays, err) < 0)
		return -1;
	for (size_t i = 0; i < a.relays.count; i++) {
		if (a.relays.items[i].pooled || explained(&a, a.relays.items[i].id))
			continue;
		/* One that does not go does not keep the others. */
		if (places_stop(places, a.relays.items[i].id, EXEC_LEASE_LOST, REAP_WAIT_MS, err) <
		    0)
			rc = -1;
		else
			ended++;
	}
	relay_place_list_clear(&a.relays);
	return rc < 0 ? -1 : ended;
}

static size_t count_links(struct places *places)
{
	size_t count = 0;

	pthread_mutex_lock(&places->lock);
	for (size_t i = 0; i < PLACES_BUCKETS; i++) {
		for (struct open_place *p = places->open[i]; p; p = p->next) {
			pthread_mutex_lock(&p->lock);
			count += p->link && link_is_up(p->link);
			pthread_mutex_unlock(&p->lock);
		}
	}
	pthread_mutex_unlock(&places->lock);
	return count;
}

json_t *places_health(struct places *places)
{
	_cleanup_free_ char *program = keeper_relay_program(places->keeper);
	bool there = access(program, R_OK) == 0;
	json_t *health = json_object(), *relay = json_object();

	json_put_bool(relay, "ok", there);
	json_put_str(relay, "program", program);
	json_put_int(relay, "protocol", WIRE_VERSION);
	json_put_int(relay, "connected", (int64_t)count_links(places));
	if (!there)
		json_put_str(relay, "error", "the relay program cannot be read");
	json_put_new(health, "keeper", keeper_health(places->keeper, boottime_ms() + ASK_WAIT_MS));
	json_put_new(health, "relay", relay);
	return health;
}

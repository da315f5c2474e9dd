/*
 * Trash: what places and stores that are gone left on the disk. Removing it is nobody's wait.
 *
 *     DIR/places/<id>    --- rename --->  DIR/trash/<id>.<tag>.<range>  --- a child ---> nothing
 *     DIR/stores/<name>      |                 |            ^ |
 *                        it is gone,           | the child  | | the child fails again:
 *                        its name is free      v fails      | v tried later and later
 *                                         DIR/trash/<...>.stuck
 *
 * The name in trash/ is used once: a child that outlives its keeper removes what the next keeper
 * removes as well, and nothing else. It tells the range of user ids that the files belong to, since
 * the recipe inside may be removed before them. The range is another place's only after the last
 * file. Names that end in .stuck are what `berth audit` prints.
 *
 * With the directory goes what the kernel takes long to end, or the keeper to look at: mount and
 * network namespace. All of it begins a moment after the rename, so that the client which was
 * answered does not have to share the processors with it.
 *
 * A full disk may refuse even the rename. Then a child removes the directory where it is, and the
 * place or store is gone when that is done.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "keeper/keeper.h"

/* What earlier keepers kept empty directories in. */
#define SPARES_NAME "spares"
#define PATH_SIZE 160
#define TAG_SIZE 17

/* A child waits for the disk most of the time. */
#define REMOVERS_MAX 4u
#define BATCH_MAX 64u
#define NAMESPACES_AFTER_MS 2
#define BEGIN_AFTER_MS 250
#define RETRY_MIN_MS 1000
#define RETRY_MAX_MS (60 * 1000)
/* Children give way to commands unless so much waits; beyond the bound places wait for them. */
#define MANY 64u
#define WAITING_MAX 1024u

struct trash {
	struct trash *next;
	char path[PATH_SIZE]; /* below DIR */
	uint32_t range;       /* as a place's */
	int mounts_fd, net_fd;
	pid_t remover; /* 0: none is at work */
	int64_t due_ms;
	int retry_ms; /* 0: no removal has failed */
	/* It could not be moved to trash/: what is gone when it is removed; or NULL. */
	struct place *place;
	struct store *store;
};

static void trash_due(struct timer *timer);

static unsigned count_waiting(const struct keeper *keeper)
{
	unsigned n = 0;

	for (const struct trash *t = keeper->trash; t; t = t->next)
		n += t->retry_ms == 0;
	return n;
}

bool trash_is_waiting(const struct keeper *keeper)
{
	return count_waiting(keeper) > 0;
}

bool trash_uses_range(const struct keeper *keeper, uint32_t range)
{
	for (const struct trash *t = keeper->trash; t; t = t->next)
		if (t->range == range)
			return true;
	return false;
}

static bool has_namespaces(const struct trash *t)
{
	return t->mounts_fd >= 0 || t->net_fd >= 0;
}

/* When all children are at work, a new one can begin when one of them ends. */
static void schedule(struct keeper *keeper)
{
	int64_t now = boottime_ms(), first = INT64_MAX;
	bool may_begin = keeper->remover_count < REMOVERS_MAX;

	for (const struct trash *t = keeper->trash; t; t = t->next)
		if (t->remover == 0 && (may_begin || has_namespaces(t)))
			first = MIN_OF(first, t->due_ms);
	if (first == INT64_MAX)
		loop_disarm(&keeper->loop, &keeper->trash_timer);
	else
		loop_arm(&keeper->loop, &keeper->trash_timer, MAX_OF(first - now, (int64_t)0));
}

static struct trash *trash_new(struct keeper *keeper, const char *path, int64_t after_ms)
{
	struct trash *t = xcalloc(1, sizeof(*t)), **last = &keeper->trash;

	snprintf(t->path, sizeof(t->path), "%s", path);
	t->mounts_fd = t->net_fd = -1;
	t->due_ms = boottime_ms() + after_ms;
	while (*last)
		last = &(*last)->next;
	*last = t;
	keeper->trash_timer.due = trash_due;
	keeper_check_idle(keeper);
	return t;
}

static void trash_free(struct keeper *keeper, struct trash *trash)
{
	for (struct trash **t = &keeper->trash; *t; t = &(*t)->next) {
		if (*t == trash) {
			*t = trash->next;
			break;
		}
	}
	mounts_drop(keeper, &trash->mounts_fd);
	close_fdp(&trash->net_fd);
	native_range_left(keeper, trash->range);
	free(trash);
	keeper_check_idle(keeper);
}

static bool exists(const struct keeper *keeper, const char *path)
{
	return faccessat(keeper->dir_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
}

/* Moves a directory to trash/ under a name that was never used. */
static int move_in(struct keeper *keeper, const char *from, const char *name, const char *tag,
		   uint32_t range, char to[PATH_SIZE], struct error *err)
{
	uint8_t random[8];
	char made[TAG_SIZE];

	if (!tag[0]) {
		random_bytes(random, sizeof(random));
		hex_encode(made, random, sizeof(random));
		tag = made;
	}
	snprintf(to, PATH_SIZE, TRASH_NAME "/%.64s.%.16s.%u", name, tag, range);
	if (FAULT_HERE("keeper.trash.moving", err) < 0)
		return -1;
	if (renameat(keeper->dir_fd, from, keeper->dir_fd, to) == 0)
		return FAULT_HERE("keeper.trash.moved", NULL), 0;
	/* Most likely trash/ itself is missing. */
	if (errno == ENOENT && dir_make(keeper->dir_fd, TRASH_NAME, 0700, err) == 0 &&
	    renameat(keeper->dir_fd, from, keeper->dir_fd, to) == 0)
		return 0;
	return error_errno(err, errno, "moving %s to " TRASH_NAME, from);
}

bool trash_place(struct place *place)
{
	struct keeper *keeper = place->keeper;
	_cleanup_error_ struct error err = { 0 };
	char from[PATH_SIZE], to[PATH_SIZE];
	struct trash *t;

	assert(place->phase == PHASE_ENDING && place->pid == 0);
	if (count_waiting(keeper) >= WAITING_MAX)
		return false;
	snprintf(from, sizeof(from), "places/%s", place->id);
	if (move_in(keeper, from, place->id, place->tag, place->range, to, &err) == 0) {
		t = trash_new(keeper, to, BEGIN_AFTER_MS);
		t->range = place->range;
		t->mounts_fd = steal_fd(&place->mounts_fd);
		t->net_fd = steal_fd(&place->net_fd);
		if (has_namespaces(t))
			t->due_ms += NAMESPACES_AFTER_MS - BEGIN_AFTER_MS;
		place->range = 0;
		place_gone(place);
	} else if (!exists(keeper, from)) {
		/* It was not made before something failed. */
		place_gone(place);
	} else {
		log_warn("place %s is removed where it is: %s", place->id, err.message);
		mounts_drop(keeper, &place->mounts_fd);
		net_keep(keeper, &place->net_fd);
		trash_new(keeper, from, 0)->place = place;
	}
	schedule(keeper);
	return true;
}

bool trash_store(struct store *store)
{
	struct keeper *keeper = store->keeper;
	_cleanup_error_ struct error err = { 0 };
	char from[PATH_SIZE], to[PATH_SIZE];
	bool moved;

	snprintf(from, sizeof(from), STORES_NAME "/%s", store->name);
	moved = move_in(keeper, from, store->name, "", store->range, to, &err) == 0;
	if (moved) {
		trash_new(keeper, to, BEGIN_AFTER_MS)->range = store->range;
	} else {
		log_warn("store %s is removed where it is: %s", store->name, err.message);
		trash_new(keeper, from, 0)->store = store;
	}
	schedule(keeper);
	return moved;
}

/* Ending the mounts waits for all processors, and so for the last of what is in the network. */
static void end_namespaces(struct keeper *keeper, struct trash *t)
{
	mounts_drop(keeper, &t->mounts_fd);
	net_keep(keeper, &t->net_fd);
}

void trash_give_nets(struct keeper *keeper)
{
	for (struct trash *t = keeper->trash; t && keeper->net_count == 0; t = t->next)
		if (t->net_fd >= 0)
			end_namespaces(keeper, t);
}

/* In a child. One that outlives a killed keeper must not hold the next one's lock or its socket. */
static _Noreturn void remove_batch(struct keeper *keeper, struct trash *const *batch,
				   unsigned count, bool many)
{
	int dir_fd = dup2(keeper->dir_fd, 3), status = 0;

	syscall(SYS_close_range, 4u, ~0u, 0u);
	if (!many)
		setpriority(PRIO_PROCESS, 0, 10);
	for (unsigned i = 0; i < count; i++) {
		_cleanup_error_ struct error err = { 0 };

		if (FAULT_HERE("keeper.trash.removing", &err) == 0 &&
		    dir_remove_tree(dir_fd, batch[i]->path, &err) == 0)
			continue;
		log_error("%s: %s", batch[i]->path, err.message);
		status = 1;
	}
	_exit(status);
}

/* False: nothing is due. */
static bool start_remover(struct keeper *keeper)
{
	struct trash *batch[BATCH_MAX];
	int64_t now = boottime_ms();
	unsigned count = 0;
	pid_t pid;

	for (struct trash *t = keeper->trash; t && count < BATCH_MAX; t = t->next)
		if (t->remover == 0 && t->due_ms <= now)
			batch[count++] = t;
	if (count == 0)
		return false;
	pid = fork();
	if (pid == 0)
		remove_batch(keeper, batch, count, count_waiting(keeper) > MANY);
	if (pid < 0)
		log_error("no process to remove files with: %s", strerror(errno));
	for (unsigned i = 0; i < count; i++) {
		if (pid > 0)
			batch[i]->remover = pid;
		else
			batch[i]->due_ms = now + RETRY_MIN_MS;
	}
	keeper->remover_count += pid > 0;
	return pid > 0;
}

static void trash_due(struct timer *timer)
{
	struct keeper *keeper = container_of(timer, struct keeper, trash_timer);
	int64_t now = boottime_ms();

	/* Not kept for as long as children take: descriptors are scarce. */
	for (struct trash *t = keeper->trash; t; t = t->next) {
		if (t->due_ms > now || !has_namespaces(t))
			continue;
		end_namespaces(keeper, t);
		t->due_ms = now + BEGIN_AFTER_MS;
	}
	while (keeper->remover_count < REMOVERS_MAX && start_remover(keeper))
		;
	schedule(keeper);
}

static void removed(struct keeper *keeper, struct trash *t)
{
	struct place *place = t->place;
	struct store *store = t->store;

	if (t->retry_ms > 0)
		log_info("%s: removed at last", t->path);
	trash_free(keeper, t);
	if (place)
		place_gone(place);
	if (store)
		store_removed(store);
}

/* Its new name tells `berth audit`; what is still in places/ or stores/ is told of as it is. */
static void mark_stuck(struct keeper *keeper, struct trash *t)
{
	char stuck[PATH_SIZE];

	if (t->place || t->store || strlen(t->path) + sizeof(TRASH_STUCK) > sizeof(stuck))
		return;
	snprintf(stuck, sizeof(stuck), "%.150s" TRASH_STUCK, t->path);
	if (renameat(keeper->dir_fd, t->path, keeper->dir_fd, stuck) == 0)
		memcpy(t->path, stuck, sizeof(stuck));
}

static void not_removed(struct keeper *keeper, struct trash *t)
{
	if (t->retry_ms == 0 && !str_ends(t->path, TRASH_STUCK))
		mark_stuck(keeper, t);
	t->retry_ms = t->retry_ms ? MIN_OF(t->retry_ms * 2, RETRY_MAX_MS) : RETRY_MIN_MS;
	t->due_ms = boottime_ms() + t->retry_ms;
	log_error("%s: could not be removed; tried again in %d s", t->path, t->retry_ms / 1000);
	if (t->store)
		store_not_removed(t->store);
	keeper_check_idle(keeper);
}

bool trash_reaped(struct keeper *keeper, pid_t pid)
{
	struct trash *next;
	bool ours = false;

	for (struct trash *t = keeper->trash; t; t = next) {
		next = t->next;
		if (t->remover != pid)
			continue;
		ours = true;
		t->remover = 0;
		if (exists(keeper, t->path))
			not_removed(keeper, t);
		else
			removed(keeper, t);
	}
	if (ours) {
		keeper->remover_count--;
		schedule(keeper);
	}
	return ours;
}

/* Empty directories that an earlier keeper would have used again. */
static void take_spares(struct keeper *keeper)
{
	_cleanup_error_ struct error err = { 0 };
	char path[PATH_SIZE];

	if (!exists(keeper, SPARES_NAME))
		return;
	/* One that cannot be moved is tried again by the next keeper. */
	if (move_in(keeper, SPARES_NAME, SPARES_NAME, "", 0, path, &err) < 0)
		log_warn("%s", err.message);
}

static uint32_t range_of(const struct keeper *keeper, const char *name)
{
	size_t len = strlen(name) - (str_ends(name, TRASH_STUCK) ? strlen(TRASH_STUCK) : 0);
	_cleanup_free_ char *whole = xstrndup(name, len);
	const char *dot = strrchr(whole, '.');
	int64_t range = 0;

	return dot && parse_i64(dot + 1, 0, keeper->ranges.count, &range) ? (uint32_t)range : 0;
}

static void load(struct keeper *keeper, const char *name)
{
	char path[PATH_SIZE];
	struct trash *t;

	if (snprintf(path, sizeof(path), TRASH_NAME "/%s", name) >= (int)sizeof(path)) {
		log_warn("%.80s: nothing of ours is called so", path);
		return;
	}
	t = trash_new(keeper, path, 0);
	t->range = range_of(keeper, name);
	if (t->range && keeper->has_ranges)
		range_keep(&keeper->ranges, t->range - 1);
}

void trash_load_all(struct keeper *keeper)
{
	_cleanup_error_ struct error err = { 0 };
	struct dirent *entry;
	DIR *dir = NULL;
	int fd;

	if (dir_make(keeper->dir_fd, TRASH_NAME, 0700, &err) < 0)
		log_warn("%s", err.message);
	take_spares(keeper);
	fd = openat(keeper->dir_fd, TRASH_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		dir = fdopendir(fd);
	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			load(keeper, entry->d_name);
	if (dir)
		closedir(dir);
	schedule(keeper);
}

void trash_end(struct keeper *keeper)
{
	unlinkat(keeper->dir_fd, TRASH_NAME, AT_REMOVEDIR);
}

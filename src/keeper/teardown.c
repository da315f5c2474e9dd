#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/spawn.h"
#include "keeper/keeper.h"
#include "wire/proc.h"

#define RETRY_MAX_MS 200
#define TIDY_AFTER_MS 2
/* After this long the failure is told, and retried slowly for as long as it takes. */
#define CLEANING_PATIENCE_MS 10000
#define SLOW_RETRY_MS 5000

static void place_step(struct place *place);

static void step_due(struct timer *timer)
{
	place_step(container_of(timer, struct place, timer));
}

struct place *place_find(struct keeper *keeper, const char *id)
{
	for (struct place *p = keeper->places; p; p = p->next)
		if (strcmp(p->id, id) == 0)
			return p;
	return NULL;
}

struct place *place_new(struct keeper *keeper, const char *id)
{
	struct place *place = xcalloc(1, sizeof(*place));

	place->keeper = keeper;
	snprintf(place->id, sizeof(place->id), "%s", id);
	place->pidfd = place->ready_fd = place->handed_fd = place->listener = -1;
	place->net_fd = place->mounts_fd = -1;
	place->death.fd = place->ready.fd = -1;
	place->timer.due = step_due;
	place->next = keeper->places;
	keeper->places = place;
	keeper_check_idle(keeper);
	return place;
}

void place_hold_mounts(struct place *place)
{
	struct keeper *keeper = place->keeper;
	char path[64];

	if (place->mounts_fd >= 0 || keeper->mounts_count == MOUNTS_MAX)
		return;
	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)place->pid);
	place->mounts_fd = open(path, O_RDONLY | O_CLOEXEC);
	keeper->mounts_count += place->mounts_fd >= 0;
}

/* The kernel takes its time, in which it waits for all processors; nobody waits for it any more. */
static void drop_mounts(struct place *place)
{
	place->keeper->mounts_count -= place->mounts_fd >= 0;
	close_fdp(&place->mounts_fd);
}

void place_free(struct place *place)
{
	struct keeper *keeper = place->keeper;

	for (struct place **p = &keeper->places; *p; p = &(*p)->next) {
		if (*p == place) {
			*p = place->next;
			break;
		}
	}
	loop_unwatch(&keeper->loop, &place->death);
	loop_unwatch(&keeper->loop, &place->ready);
	loop_disarm(&keeper->loop, &place->timer);
	close_fdp(&place->pidfd);
	close_fdp(&place->ready_fd);
	close_fdp(&place->handed_fd);
	close_fdp(&place->net_fd);
	drop_mounts(place);
	spare_drop_listener(place);
	free(place->root);
	free(place->cgroup);
	free(place->label);
	free(place->store);
	for (int i = 0; i < LIMITS; i++)
		free(place->limits[i]);
	free(place);
	keeper_check_idle(keeper);
}

void place_describe(const struct place *place, struct place_paths *paths,
		    struct wire_place_state *out)
{
	bool alive = place->phase == PLACE_MAKING || place->phase == PLACE_IS_ALIVE;
	const char *dir = place->keeper->dir;

	snprintf(paths->socket, sizeof(paths->socket), "%s/places/%s/" PLACE_SOCKET_NAME, dir,
		 place->id);
	snprintf(paths->upper, sizeof(paths->upper), "%s/%s/%s/" PLACE_FILES_NAME "/" SANDBOX_UPPER,
		 dir, place->store ? STORES_NAME : "places",
		 place->store ? place->store : place->id);
	*out = (struct wire_place_state){
		.place_id = place->id,
		.state = alive            ? PLACE_ALIVE
			 : place->destroy ? PLACE_ENDING
					  : PLACE_DEAD,
		.socket = paths->socket,
		.upper = place->overlaid ? paths->upper : NULL,
		.pid = alive ? (uint32_t)place->pid : 0,
		.start_time = alive ? place->start_time : 0,
		.kind = place->kind,
		.root = place->root,
		.cgroup = place->cgroup,
		.ended = alive ? NULL : place->ended,
		.walls = place->walls,
		.label = place->label,
		.pool = place->pooled + (place->pooled && place->warm),
		.handed = place->handed,
	};
}

static int remove_work(const struct place *place)
{
	_cleanup_error_ struct error err = { 0 };

	/* The recipe goes with the directory, after everything it speaks of. */
	if (place->made_root && dir_remove_tree(AT_FDCWD, place->root, &err) < 0) {
		log_error("place %s: %s", place->id, err.message);
		return 1;
	}
	if (FAULT_HERE("keeper.destroy.root-removed", &err) < 0)
		return 1;
	if (dir_remove_tree(place->keeper->places_fd, place->id, &err) < 0) {
		log_error("place %s: %s", place->id, err.message);
		return 1;
	}
	return 0;
}

/* A child that outlives a killed keeper must not hold the next one's lock, nor the socket. */
static void leave_the_keeper(const struct place *place)
{
	int *places_fd = &place->keeper->places_fd;

	if (*places_fd != 3)
		*places_fd = dup2(*places_fd, 3);
	syscall(SYS_close_range, 4u, ~0u, 0u);
}

static void place_gone(struct place *place)
{
	native_freed(place);
	client_place_gone(place);
	place_free(place);
}

/*
 * Who was told that it is gone does not ask for it again. A keeper that finds it must know, or it
 * would keep what it has of exits for that one.
 */
static bool give_up(struct place *place)
{
	_cleanup_close_ int place_fd = -1;

	place->told = true;
	return dir_open(place->keeper->places_fd, place->id, &place_fd, NULL) == 0 &&
	       recipe_write(place, place_fd, NULL) == 0;
}

/* Removing a big tree takes long; other places do not wait for it. */
static void start_removing(struct place *place)
{
	pid_t pid;

	/*
	 * Who waits for its end need not wait for the tidying up of empty directories. Sleeping
	 * first lets the one who was told go on at once, on this processor.
	 */
	if (place->destroyer.client && spare_is_left(place) && give_up(place)) {
		client_place_gone(place);
		place->phase = PLACE_REMOVING;
		loop_arm(&place->keeper->loop, &place->timer,
			 FAULT_HERE("keeper.destroy.told", NULL) < 0 ? SLOW_RETRY_MS
								     : TIDY_AFTER_MS);
		return;
	}
	drop_mounts(place);
	net_keep(place);
	if (spare_keep(place)) {
		place_gone(place);
		return;
	}
	pid = fork();
	if (pid == 0) {
		leave_the_keeper(place);
		_exit(remove_work(place));
	}
	place->phase = PLACE_REMOVING;
	if (pid > 0)
		place->remover = pid;
	else
		loop_arm(&place->keeper->loop, &place->timer, SLOW_RETRY_MS);
}

void place_tidy_all(struct keeper *keeper)
{
	struct place *next;

	for (struct place *p = keeper->places; p; p = next) {
		next = p->next;
		if (p->phase == PLACE_REMOVING && p->remover == 0) {
			loop_disarm(&keeper->loop, &p->timer);
			start_removing(p);
		}
	}
}

static bool relay_is_gone(struct place *place)
{
	if (place->pid == 0)
		return true;
	if (!place->is_child && !process_is(place->pid, place->start_time))
		place->pid = 0;
	/* A child of ours is gone when it was reaped. */
	return place->pid == 0;
}

/* One round of ending what runs. True when nothing does any more. */
static bool clean_round(struct place *place)
{
	_cleanup_free_ char *mark = xasprintf(RELAY_MARK_PLACE "=%s", place->id);

	if (place->pid > 0 && (place->is_child || process_is(place->pid, place->start_time)))
		kill(place->pid, SIGKILL);
	if (place->cgroup) {
		bool empty = relay_is_gone(place) && cgroup_is_empty(place->cgroup);

		if (!empty)
			cgroup_kill(place->cgroup);
		return empty && cgroup_remove(place->cgroup) == 0 && native_clean(place);
	}
	/* Without a cgroup the marks are all there is, and only of processes that still carry them.
	 */
	return proc_signal_marked(mark, SIGKILL) == 0 && relay_is_gone(place) &&
	       native_clean(place);
}

static void clean_step(struct place *place)
{
	struct keeper *keeper = place->keeper;
	bool late = boottime_ms() - place->cleaning_since > CLEANING_PATIENCE_MS;

	if (clean_round(place)) {
		place->pid = 0;
		if (place->destroy) {
			start_removing(place);
		} else {
			place->phase = PLACE_IS_DEAD;
			loop_arm(&keeper->loop, &place->timer, (int64_t)place->absence_ms);
		}
		return;
	}
	if (late && place->retry_ms < SLOW_RETRY_MS) {
		log_error("place %s: something of it does not die", place->id);
		place->retry_ms = SLOW_RETRY_MS;
	}
	loop_arm(&keeper->loop, &place->timer, place->retry_ms);
	if (place->retry_ms < RETRY_MAX_MS)
		place->retry_ms *= 2;
}

static void start_cleaning(struct place *place)
{
	loop_unwatch(&place->keeper->loop, &place->ready);
	loop_unwatch(&place->keeper->loop, &place->death);
	close_fdp(&place->ready_fd);
	close_fdp(&place->handed_fd);
	close_fdp(&place->pidfd);
	/* Who looks for a relay that died shall be refused, not kept waiting. */
	if (!place->destroy)
		spare_drop_listener(place);
	place->timer.due = step_due;
	place->phase = PLACE_CLEANING;
	place->cleaning_since = boottime_ms();
	place->retry_ms = 1;
	clean_step(place);
}

static void place_step(struct place *place)
{
	switch (place->phase) {
	case PLACE_CLEANING:
		clean_step(place);
		break;
	case PLACE_IS_DEAD:
		/* Nobody asked for its remains in all that time. */
		place->destroy = true;
		start_removing(place);
		break;
	case PLACE_REMOVING:
		start_removing(place);
		break;
	case PLACE_MAKING:
	case PLACE_IS_ALIVE:
		break;
	}
}

void place_destroy(struct place *place)
{
	place->destroy = true;
	if (place->ended[0] == 0)
		snprintf(place->ended, sizeof(place->ended), "destroyed");
	switch (place->phase) {
	case PLACE_MAKING:
		/* Whoever had it made would wait for a relay that never comes. */
		client_place_failed(place, WERR_ENDING, "the place was ended meanwhile");
		start_cleaning(place);
		break;
	case PLACE_IS_ALIVE:
		start_cleaning(place);
		break;
	case PLACE_IS_DEAD:
		loop_disarm(&place->keeper->loop, &place->timer);
		start_removing(place);
		break;
	case PLACE_CLEANING:
	case PLACE_REMOVING:
		break;
	}
}

void place_end_processes(struct place *place)
{
	if (place->phase != PLACE_IS_ALIVE)
		return;
	snprintf(place->ended, sizeof(place->ended), "a command outlived its deadline");
	log_warn("place %s: its processes are ended: %s", place->id, place->ended);
	start_cleaning(place);
}

/* The relay's own word on why it ended; without one it did not mean to. */
static void read_ended(struct place *place, const char *otherwise)
{
	_cleanup_free_ char *path =
		xasprintf("%s/" PLACE_SPOOL_NAME "/" RELAY_ENDED_FILE, place->id);
	_cleanup_buf_ struct buf text = { 0 };

	if (file_read(place->keeper->places_fd, path, &text, sizeof(place->ended) - 1, NULL) == 0)
		snprintf(place->ended, sizeof(place->ended), "%s", buf_str(&text));
	else
		snprintf(place->ended, sizeof(place->ended), "%s", otherwise);
}

void place_died(struct place *place, const char *why)
{
	bool was_making = place->phase == PLACE_MAKING;

	place->pid = 0;
	if (place->phase == PLACE_REMOVING)
		return;
	if (place->phase == PLACE_CLEANING) {
		/* The last of it, more often than not: no need to wait for the next round. */
		loop_disarm(&place->keeper->loop, &place->timer);
		clean_step(place);
		return;
	}
	pool_lost(place);
	read_ended(place, why);
	log_info("place %s: its relay ended: %s", place->id, place->ended);
	/* Nobody is there who could ask for what an absent server left. */
	place->destroy |= strcmp(place->ended, RELAY_ENDED_ABSENCE) == 0 || was_making;
	if (was_making) {
		const char *said = NULL;
		bool unsuited;

		/* Its death may be known before its last words. */
		if (place->ready_fd >= 0)
			place_await(place);
		sandbox_report_read(place->report, &said, &unsuited);
		client_place_failed(place, unsuited ? WERR_UNSUPPORTED : WERR_START,
				    said ? said : place->ended);
	}
	start_cleaning(place);
}

static void describe_status(int status, char *out, size_t size)
{
	if (WIFSIGNALED(status))
		snprintf(out, size, "relay killed by signal %d", WTERMSIG(status));
	else
		snprintf(out, size, "relay exited with %d", WEXITSTATUS(status));
}

static void remover_ended(struct place *place, int status)
{
	place->remover = 0;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		loop_arm(&place->keeper->loop, &place->timer, SLOW_RETRY_MS);
		return;
	}
	place_gone(place);
}

bool place_reaped(struct keeper *keeper, pid_t pid, int status)
{
	for (struct place *p = keeper->places; p; p = p->next) {
		char why[64];

		if (p->remover == pid) {
			remover_ended(p, status);
			return true;
		}
		if (p->pid != pid || !p->is_child)
			continue;
		describe_status(status, why, sizeof(why));
		place_died(p, why);
		return true;
	}
	return false;
}

static void death_ready(struct watch *watch, uint32_t events)
{
	struct place *place = container_of(watch, struct place, death);

	(void)events;
	loop_unwatch(&place->keeper->loop, watch);
	place_died(place, "relay ended");
}

static bool adopt_relay(struct place *place)
{
	if (!process_is(place->pid, place->start_time))
		return false;
	place->pidfd = (int)syscall(SYS_pidfd_open, place->pid, 0);
	/* Looked at again behind the pidfd, it cannot be another process with the same number. */
	if (place->pidfd < 0 || !process_is(place->pid, place->start_time))
		return false;
	place->death.ready = death_ready;
	return loop_watch(&place->keeper->loop, &place->death, place->pidfd, EPOLLIN, NULL) == 0;
}

static pid_t find_relay(struct place *place)
{
	return proc_find_command(
		(char *[]){ (char[]){ RELAY_PROGRAM_NAME }, place->id, place->tag, NULL });
}

static bool has_exits(int place_fd)
{
	struct stat st;

	return fstatat(place_fd, PLACE_SPOOL_NAME "/" RELAY_JOURNAL_FILE, &st,
		       AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_size > 0;
}

static void adopt(struct keeper *keeper, const char *id)
{
	_cleanup_close_ int place_fd = -1;
	_cleanup_error_ struct error err = { 0 };
	char boot[ID_SIZE];
	struct place *place;

	if (!place_id_is_valid(id) || dir_open(keeper->places_fd, id, &place_fd, &err) < 0)
		return;
	place = place_new(keeper, id);
	snprintf(place->ended, sizeof(place->ended), "found without its relay");
	boot_id(boot);
	if (recipe_read(place, place_fd, &err) == 0) {
		if (place->range && keeper->has_ranges)
			range_keep(&keeper->ranges, place->range - 1);
	} else {
		/* The recipe comes first: without one nothing else was made. */
		log_warn("place %s: %s", id, err.message);
		place->destroy = true;
		start_removing(place);
		return;
	}
	if (!place->pooled && strcmp(boot, place->boot) == 0 && relay_read(place, place_fd) &&
	    adopt_relay(place)) {
		place->phase = PLACE_IS_ALIVE;
		log_info("place %s: adopted, relay %d", id, (int)place->pid);
		return;
	}
	/*
	 * Exits that nobody took are kept for the server, as when a keeper sees the relay die, and
	 * so is work that nobody collected.
	 */
	place->destroy = place->pooled || strcmp(boot, place->boot) != 0 ||
			 (!has_exits(place_fd) && !place->overlaid);
	/* The keeper died between starting the relay and writing it down. */
	if (!place->pooled || !relay_read(place, place_fd) ||
	    !process_is(place->pid, place->start_time))
		place->pid = strcmp(boot, place->boot) == 0 ? find_relay(place) : 0;
	place->start_time = place->pid ? process_start_time(place->pid) : 0;
	start_cleaning(place);
}

void place_adopt_all(struct keeper *keeper)
{
	int fd = openat(keeper->places_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			adopt(keeper, entry->d_name);
	if (dir)
		closedir(dir);
}

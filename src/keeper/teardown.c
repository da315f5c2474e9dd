#include <assert.h>
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
/* After this long the failure is told, and retried slowly for as long as it takes. */
#define CLEANING_PATIENCE_MS 10000
#define SLOW_RETRY_MS 5000

void place_gone(struct place *place)
{
	struct keeper *keeper = place->keeper;
	uint32_t range = place->range;

	assert(place->phase == PHASE_ENDING);
	client_place_gone(place);
	place->range = 0;
	place_free(place);
	native_range_left(keeper, range);
}

static bool relay_is_gone(struct place *place)
{
	if (place->pid == 0)
		return true;
	/* A child of ours is gone when it was reaped. */
	if (place->pidfd >= 0 && !process_is(place->pid, place->start_time))
		place->pid = 0;
	return place->pid == 0;
}

/* One round of ending what runs. True when nothing does any more. */
static bool clean_round(struct place *place)
{
	_cleanup_free_ char *mark = xasprintf(RELAY_MARK_PLACE "=%s", place->id);

	if (place->pid > 0 && (place->pidfd < 0 || process_is(place->pid, place->start_time)))
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

	assert(place->phase == PHASE_DYING || place->phase == PHASE_ENDING);
	if (clean_round(place)) {
		place->pid = 0;
		if (place->phase == PHASE_DYING) {
			place_move(place, PHASE_DEAD);
			loop_arm(&keeper->loop, &place->timer, (int64_t)place->absence_ms);
		} else if (!trash_place(place)) {
			loop_arm(&keeper->loop, &place->timer, RETRY_MAX_MS);
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

static void step_due(struct timer *timer)
{
	struct place *place = container_of(timer, struct place, timer);

	/* Nobody asked for its remains in all that time. */
	if (place->phase == PHASE_DEAD)
		place_move(place, PHASE_ENDING);
	clean_step(place);
}

/* To DYING or ENDING. */
static void start_cleaning(struct place *place, enum place_phase phase)
{
	loop_unwatch(&place->keeper->loop, &place->ready);
	loop_unwatch(&place->keeper->loop, &place->death);
	close_fdp(&place->ready_fd);
	close_fdp(&place->handed_fd);
	place_move(place, phase);
	place->timer.due = step_due;
	place->cleaning_since = boottime_ms();
	place->retry_ms = 1;
	clean_step(place);
}

void place_destroy(struct place *place)
{
	if (place->ended[0] == 0)
		snprintf(place->ended, sizeof(place->ended), "destroyed");
	switch (place->phase) {
	case PHASE_MAKING:
		/* Whoever had it made would wait for a relay that never comes. */
		client_place_failed(place, WERR_ENDING, "the place was ended meanwhile");
		start_cleaning(place, PHASE_ENDING);
		break;
	case PHASE_FOUND:
	case PHASE_POOLED:
	case PHASE_WARM:
	case PHASE_ALIVE:
	case PHASE_DEAD:
		start_cleaning(place, PHASE_ENDING);
		break;
	case PHASE_DYING:
		/* Its next round is under way. */
		place_move(place, PHASE_ENDING);
		break;
	case PHASE_ENDING:
		break;
	}
}

void place_end_processes(struct place *place)
{
	if (place->phase != PHASE_ALIVE)
		return;
	snprintf(place->ended, sizeof(place->ended), "a command outlived its deadline");
	log_warn("place %s: its processes are ended: %s", place->id, place->ended);
	start_cleaning(place, PHASE_DYING);
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
	bool was_alive = place->phase == PHASE_ALIVE, gone;

	place->pid = 0;
	if (place->phase == PHASE_DYING || place->phase == PHASE_ENDING) {
		/* The last of it, more often than not: no need to wait for the next round. */
		loop_disarm(&place->keeper->loop, &place->timer);
		clean_step(place);
		return;
	}
	assert(place_is_up(place));
	pool_lost(place);
	read_ended(place, why);
	log_info("place %s: its relay ended: %s", place->id, place->ended);
	/* Nobody is there who could ask for what an absent server left. */
	gone = !was_alive || strcmp(place->ended, RELAY_ENDED_ABSENCE) == 0;
	if (!was_alive) {
		const char *said = NULL;
		bool unsuited;

		/* Its death may be known before its last words. */
		if (place->ready_fd >= 0)
			place_await(place);
		sandbox_report_read(place->report, &said, &unsuited);
		client_place_failed(place, unsuited ? WERR_UNSUPPORTED : WERR_START,
				    said ? said : place->ended);
	}
	start_cleaning(place, gone ? PHASE_ENDING : PHASE_DYING);
}

static void describe_status(int status, char *out, size_t size)
{
	if (WIFSIGNALED(status))
		snprintf(out, size, "relay killed by signal %d", WTERMSIG(status));
	else
		snprintf(out, size, "relay exited with %d", WEXITSTATUS(status));
}

bool place_reaped(struct keeper *keeper, pid_t pid, int status)
{
	for (struct place *p = keeper->places; p; p = p->next) {
		char why[64];

		if (p->pid != pid || p->pidfd >= 0)
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

/* True: it is the relay, and `pidfd` is its. One that cannot be watched so is killed. */
static bool hold_relay(struct place *place)
{
	if (place->pid > 0 && process_is(place->pid, place->start_time))
		place->pidfd = (int)syscall(SYS_pidfd_open, place->pid, 0);
	/* Looked at again behind the pidfd, it cannot be another process with the same number. */
	if (place->pid > 0 && process_is(place->pid, place->start_time)) {
		if (place->pidfd >= 0)
			return true;
		kill(place->pid, SIGKILL);
	}
	close_fdp(&place->pidfd);
	place->pid = 0;
	return false;
}

static bool watch_relay(struct place *place)
{
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
	bool unowned, known, same_boot;
	char boot[ID_SIZE];
	struct place *place;

	if (!place_id_is_valid(id) || dir_open(keeper->places_fd, id, &place_fd, &err) < 0)
		return;
	place = place_new(keeper, id, PHASE_FOUND);
	snprintf(place->ended, sizeof(place->ended), "found without its relay");
	if (recipe_read(place, place_fd, &unowned, &err) < 0) {
		/* The recipe comes first: without one nothing else was made. */
		log_warn("place %s: %s", id, err.message);
		place_destroy(place);
		return;
	}
	if (place->range && keeper->has_ranges)
		range_keep(&keeper->ranges, place->range - 1);
	boot_id(boot);
	same_boot = strcmp(boot, place->boot) == 0;
	known = same_boot && relay_read(place, place_fd) && hold_relay(place);
	if (known && !unowned && watch_relay(place)) {
		place_move(place, PHASE_ALIVE);
		log_info("place %s: adopted, relay %d", id, (int)place->pid);
		return;
	}
	/* The keeper died between starting the relay and writing it down. */
	if (same_boot && !known) {
		place->pid = find_relay(place);
		place->start_time = place->pid ? process_start_time(place->pid) : 0;
		hold_relay(place);
	}
	/*
	 * Exits that nobody took are kept for the server, as when a keeper sees the relay die, and
	 * so is work that nobody collected.
	 */
	start_cleaning(place, unowned || !same_boot || (!has_exits(place_fd) && !place->overlaid)
				      ? PHASE_ENDING
				      : PHASE_DYING);
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

#include "relay/procs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "relay/exec.h"
#include "wire/place.h"

/* Making a cgroup costs more than using one again, so a few empty ones are kept. */
#define POOL_MAX 4
#define CHECK_MAX_MS 20
#define EMPTY_WAIT_MS 10000
#define PROCS_MAX (1u << 20)

struct slot {
	struct slot *next;
	unsigned number;
	int dir_fd;
	int events_fd;
	int64_t killed_at;
	bool frozen; /* was told to */
};

struct pool {
	struct slot *free;
	unsigned count;
	unsigned next_number;
};

static void slot_name(unsigned number, char out[24])
{
	snprintf(out, 24, "e%u", number);
}

static void slot_destroy(struct slot *slot)
{
	char name[24];

	slot_name(slot->number, name);
	close(slot->events_fd);
	close(slot->dir_fd);
	/* Busy while a killed process is still on its way out: the keeper removes the rest. */
	unlinkat(RELAY_FD_CGROUP, name, AT_REMOVEDIR);
	free(slot);
}

static struct slot *slot_new(struct pool *pool, struct error *err)
{
	struct slot *slot = xcalloc(1, sizeof(*slot));
	char name[24];

	slot->dir_fd = slot->events_fd = -1;
	slot->number = ++pool->next_number;
	slot_name(slot->number, name);
	if (mkdirat(RELAY_FD_CGROUP, name, 0755) < 0) {
		error_errno(err, errno, "making a cgroup");
		free(slot);
		return NULL;
	}
	slot->dir_fd = openat(RELAY_FD_CGROUP, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (slot->dir_fd >= 0)
		slot->events_fd = openat(slot->dir_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
	if (slot->events_fd < 0) {
		error_errno(err, errno, "opening a cgroup");
		slot_destroy(slot);
		return NULL;
	}
	return slot;
}

/* What cannot be read is as if the line were there. */
static bool slot_says(const struct slot *slot, const char *line)
{
	char text[128];
	ssize_t n = pread(slot->events_fd, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return true;
	text[n] = 0;
	return strstr(text, line) != NULL;
}

static bool slot_is_empty(const struct slot *slot)
{
	return slot_says(slot, "populated 0");
}

static int init(struct relay *relay, struct error *err)
{
	if (!relay->given_cgroup || !launch_knows_cgroups())
		return error_set(err, ERR_UNAVAILABLE, "no cgroup was given");
	/* Kernels before 5.14 have no cgroup.kill, and the tree may be mounted for reading only. */
	if (faccessat(RELAY_FD_CGROUP, "cgroup.kill", W_OK, 0) < 0 ||
	    faccessat(RELAY_FD_CGROUP, ".", W_OK, 0) < 0)
		return error_errno(err, errno, "the place's cgroup");
	relay->tree_state = xcalloc(1, sizeof(struct pool));
	return 0;
}

static void pool_put(struct pool *pool, struct slot *slot)
{
	slot->next = pool->free;
	pool->free = slot;
	pool->count++;
}

static void prepare(struct relay *relay)
{
	struct pool *pool = relay->tree_state;
	struct slot *slot = slot_new(pool, NULL);

	/* Without it the first exec says what is wrong. */
	if (slot)
		pool_put(pool, slot);
}

/* How often the place's own memory limit killed something; 0 without a limit. */
static uint64_t place_oom_kills(const struct relay *relay)
{
	char text[512];
	ssize_t n = relay->given_oom ? pread(RELAY_FD_OOM, text, sizeof(text) - 1, 0) : 0;
	const char *line;

	if (n <= 0)
		return 0;
	text[n] = 0;
	line = strstr(text, "oom_kill ");
	return line ? strtoul(line + strlen("oom_kill "), NULL, 10) : 0;
}

static int start(struct exec *exec, struct launch *l)
{
	struct pool *pool = exec->relay->tree_state;
	_cleanup_error_ struct error err = { 0 };
	struct slot *slot = pool->free;

	if (slot) {
		pool->free = slot->next;
		pool->count--;
	} else {
		slot = slot_new(pool, &err);
	}
	if (!slot) {
		l->failed_step = STEP_CLONE;
		l->failed_errno = errno;
		log_error("exec %s: %s", exec->id_text, err.message);
		return -1;
	}
	slot->next = NULL;
	slot->killed_at = 0;
	exec->tree.slot = slot;
	exec->oom_kills = place_oom_kills(exec->relay);
	return launch(l, exec->relay->launch_stack, slot->dir_fd, &exec->pid);
}

static void kill_all(struct exec *exec)
{
	struct slot *slot = exec->tree.slot;
	int fd;

	if (!slot)
		return;
	fd = openat(slot->dir_fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "1", 1) != 1)
		log_error("exec %s: cgroup.kill: %s", exec->id_text, strerror(errno));
	if (fd >= 0)
		close(fd);
	if (slot->killed_at == 0)
		slot->killed_at = boottime_ms();
}

static int freeze(struct exec *exec, bool frozen)
{
	struct slot *slot = exec->tree.slot;
	int fd, r = 0;

	if (!slot || slot->frozen == frozen)
		return 0;
	fd = openat(slot->dir_fd, "cgroup.freeze", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, frozen ? "1" : "0", 1) != 1)
		r = -errno;
	else
		slot->frozen = frozen;
	if (fd >= 0)
		close(fd);
	return r;
}

static bool is_frozen(struct exec *exec)
{
	const struct slot *slot = exec->tree.slot;

	return !slot || slot_says(slot, "frozen 1") || slot_is_empty(slot);
}

static int signal_tree(const struct slot *slot, int signal)
{
	_cleanup_buf_ struct buf text = { 0 };
	char *rest, *line;

	if (file_read(slot->dir_fd, "cgroup.procs", &text, PROCS_MAX, NULL) < 0)
		return -EIO;
	rest = text.data;
	while (rest && (line = strsep(&rest, "\n"))) {
		pid_t pid = (pid_t)strtol(line, NULL, 10);

		if (pid > 0)
			kill(pid, signal);
	}
	return 0;
}

static int send_signal(struct exec *exec, unsigned target, int signal)
{
	if (target == WIRE_TO_TREE && signal == SIGKILL) {
		kill_all(exec);
		return 0;
	}
	if (target == WIRE_TO_TREE)
		return signal_tree(exec->tree.slot, signal);
	if (exec->main_ended)
		return -ESRCH;
	/* The relay is the parent and has not reaped it: the pid cannot be another's. */
	if (kill(target == WIRE_TO_GROUP ? -exec->pid : exec->pid, signal) < 0)
		return -errno;
	return 0;
}

static void check_due(struct timer *timer)
{
	struct exec *exec = container_of(timer, struct exec, tree.check);
	struct slot *slot = exec->tree.slot;

	if (slot_is_empty(slot)) {
		exec_procs_emptied(exec);
		return;
	}
	if (boottime_ms() - slot->killed_at > EMPTY_WAIT_MS) {
		log_error("exec %s: processes survive a kill, probably inside the kernel",
			  exec->id_text);
		exec_procs_emptied(exec);
		return;
	}
	kill_all(exec);
	exec->tree.check_ms = MIN_OF(exec->tree.check_ms * 2, CHECK_MAX_MS);
	loop_arm(&exec->relay->loop, timer, exec->tree.check_ms);
}

static void await_due(struct timer *timer)
{
	struct exec *exec = container_of(timer, struct exec, tree.check);

	if (slot_is_empty(exec->tree.slot)) {
		exec_procs_emptied(exec);
		return;
	}
	exec->tree.check_ms = MIN_OF(exec->tree.check_ms * 2, CHECK_MAX_MS);
	loop_arm(&exec->relay->loop, timer, exec->tree.check_ms);
}

static void await_empty(struct exec *exec)
{
	if (!exec->tree.slot || slot_is_empty(exec->tree.slot)) {
		exec_procs_emptied(exec);
		return;
	}
	exec->tree.check.due = await_due;
	exec->tree.check_ms = 1;
	loop_arm(&exec->relay->loop, &exec->tree.check, exec->tree.check_ms);
}

static void finish(struct exec *exec)
{
	if (!exec->tree.slot || slot_is_empty(exec->tree.slot)) {
		exec_procs_emptied(exec);
		return;
	}
	kill_all(exec);
	exec->tree.check.due = check_due;
	exec->tree.check_ms = 1;
	loop_arm(&exec->relay->loop, &exec->tree.check, exec->tree.check_ms);
}

static void release(struct exec *exec)
{
	struct pool *pool = exec->relay->tree_state;
	struct slot *slot = exec->tree.slot;

	loop_disarm(&exec->relay->loop, &exec->tree.check);
	exec->tree.slot = NULL;
	if (!slot)
		return;
	/*
	 * A cgroup that was killed once is not used again: kernels since 6.14 compare its kill
	 * count with the one of the parent's cgroup at clone time, and kill the newborn. One that
	 * is frozen would keep a newborn from becoming the program, and the relay waits for that.
	 */
	if (pool->count >= POOL_MAX || slot->killed_at != 0 || slot->frozen || !exec->tree_empty) {
		slot_destroy(slot);
		return;
	}
	pool_put(pool, slot);
}

static bool ran_out_of_memory(struct exec *exec)
{
	_cleanup_buf_ struct buf text = { 0 };
	const char *line;

	if (place_oom_kills(exec->relay) > exec->oom_kills)
		return true;

	/* Absent where v2 has no memory controller; the count is of this cgroup's whole life. */
	if (!exec->tree.slot ||
	    file_read(exec->tree.slot->dir_fd, "memory.events", &text, 4096, NULL) < 0)
		return false;
	line = strstr(buf_str(&text), "oom_kill ");
	return line && strtoul(line + strlen("oom_kill "), NULL, 10) > 0;
}

static bool reaped(struct relay *relay, pid_t pid, int status, uint64_t user_us, uint64_t sys_us,
		   uint64_t max_rss_kb)
{
	for (struct exec *e = relay->execs; e; e = e->next) {
		if (e->pid != pid || e->main_ended)
			continue;
		exec_main_ended(e, status, user_us, sys_us, max_rss_kb);
		return true;
	}
	return false;
}

const struct procs_kind procs_cgroup = {
	.name = "cgroup",
	.feature = WIRE_FEATURE_TREE_CGROUP,
	.init = init,
	.prepare = prepare,
	.start = start,
	.signal = send_signal,
	.kill = kill_all,
	.await = await_empty,
	.finish = finish,
	.release = release,
	.freeze = freeze,
	.is_frozen = is_frozen,
	.ran_out_of_memory = ran_out_of_memory,
	.reaped = reaped,
};

/*
 * berth-relay PLACE-ID [TAG], started as wire/place.h says.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "relay/background.h"
#include "relay/exec.h"
#include "relay/session.h"
#include "wire/place.h"

#define END_WAIT_MS 15000
#define END_STEP_MS 5
#define LAST_CAPABILITY 63

/*
 * The payload may have the relay's uid: it must not read its memory (the key), take its descriptors
 * or send it signals that do anything. Blocked is better than ignored, which the payload would
 * inherit.
 */
static int harden(struct error *err)
{
	static const uint64_t all_signals = ~0ull;
	struct rlimit no_core = { 0, 0 };

	if (!FENCE_OFF("relay.wall.dumpable") && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return error_errno(err, errno, "PR_SET_DUMPABLE");
	prctl(PR_SET_NAME, "berth-relay");
	/* Not through libc, whose sets leave out the signals it keeps for itself. */
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all_signals, NULL, sizeof(all_signals));
	setrlimit(RLIMIT_CORE, &no_core);
	/* Orphans of the execs come here instead of to some init that is not ours. */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		return error_errno(err, errno, "PR_SET_CHILD_SUBREAPER");
	umask(077);
	return 0;
}

/*
 * The relay executes nothing but the payload, and the bounding set is for what is executed: emptied
 * once, it is empty in every command. An ordinary user may not, and has none to lose.
 */
static int empty_bounding_set(struct relay *relay, struct error *err)
{
	if (relay->confined || FENCE_OFF("relay.wall.confine"))
		return 0;
	for (unsigned long cap = 0; cap <= LAST_CAPABILITY; cap++) {
		/* Asking is cheaper than dropping, and a sandbox has left few. */
		if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 0 ||
		    prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
			continue;
		/* Beyond the last one the kernel knows, or not ours to give up. */
		if (errno == EINVAL || errno == EPERM)
			break;
		return error_errno(err, errno, "dropping capability %lu", cap);
	}
	relay->confined = true;
	return 0;
}

/* Where every config says `confine`. */
static bool is_in_sandbox(void)
{
	return getpid() == 1 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
}

static int settle_fds(struct relay *relay, struct error *err)
{
	/* First: the number of one that was not given is the next to be given away. */
	for (int fd = RELAY_FD_LISTEN; fd < RELAY_FD_END; fd++) {
		bool given = fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;

		if (!given && fd < RELAY_FD_CGROUP)
			return error_set(err, ERR_VALIDATION, "descriptor %d was not given", fd);
		relay->given_cgroup |= given && fd == RELAY_FD_CGROUP;
		relay->given_oom |= given && fd == RELAY_FD_OOM;
	}
	relay->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	/* Standard descriptors are always taken, so that no pipe of an exec gets their numbers. */
	while (relay->null_fd >= 0 && relay->null_fd <= 2)
		relay->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (relay->null_fd < 0)
		return error_errno(err, errno, "/dev/null");
	return 0;
}

void relay_reap(struct relay *relay)
{
	struct rusage usage;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
		uint64_t user_us = (uint64_t)usage.ru_utime.tv_sec * 1000000 +
				   (uint64_t)usage.ru_utime.tv_usec;
		uint64_t sys_us = (uint64_t)usage.ru_stime.tv_sec * 1000000 +
				  (uint64_t)usage.ru_stime.tv_usec;

		if (!relay->tree->reaped(relay, pid, status, user_us, sys_us,
					 (uint64_t)usage.ru_maxrss))
			background_reaped(relay, pid, status);
	}
}

static void signals_ready(struct watch *watch, uint32_t events)
{
	struct relay *relay = container_of(watch, struct relay, signals);
	struct signalfd_siginfo info;

	(void)events;
	if (read(watch->fd, &info, sizeof(info)) > 0)
		relay_reap(relay);
}

static int watch_children(struct relay *relay, struct error *err)
{
	sigset_t children;
	int fd;

	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return error_errno(err, errno, "signalfd");
	relay->signals.ready = signals_ready;
	return loop_watch(&relay->loop, &relay->signals, fd, EPOLLIN, err);
}

static void choose_tree(struct relay *relay)
{
	_cleanup_error_ struct error err = { 0 };

	relay->tree = &procs_cgroup;
	if (relay->tree->init(relay, &err) == 0)
		return;
	if (relay->given_cgroup)
		log_warn("the cgroup cannot be used: %s", err.message);
	relay->tree = &procs_shim;
	relay->tree->init(relay, NULL);
}

static bool all_exited(const struct relay *relay)
{
	for (const struct exec *e = relay->execs; e; e = e->next)
		if (e->phase != WIRE_EXEC_EXITED)
			return false;
	return true;
}

/* Bounded: whatever does not die is left to the keeper, which has the cgroup. */
static void end_due(struct timer *timer)
{
	struct relay *relay = container_of(timer, struct relay, end_timer);
	_cleanup_error_ struct error err = { 0 };

	if (!all_exited(relay) && boottime_ms() < relay->end_until) {
		loop_arm(&relay->loop, timer, END_STEP_MS);
		return;
	}
	if (file_replace(RELAY_FD_SPOOL, RELAY_ENDED_FILE, RELAY_ENDED_ABSENCE,
			 strlen(RELAY_ENDED_ABSENCE), 0600, &err) < 0)
		log_warn("%s", err.message);
	relay->loop.stop = true;
}

void relay_end(struct relay *relay)
{
	if (relay->ending)
		return;
	log_info("the place ends: " RELAY_ENDED_ABSENCE);
	relay->ending = true;
	relay->end_until = boottime_ms() + END_WAIT_MS;
	relay->end_timer.due = end_due;
	for (struct exec *e = relay->execs; e; e = e->next) {
		/* Nobody will take the rest of the output. */
		output_close(e);
		exec_kill(e, REASON_LEASE_LOST);
	}
	loop_arm(&relay->loop, &relay->end_timer, 0);
}

/* The place is kept ready for somebody to come. */
static bool is_ahead_of_use(void)
{
	struct pollfd config = { .fd = RELAY_FD_CONFIG, .events = POLLIN };

	return poll(&config, 1, 0) == 0;
}

/* All that the config has no say in; who takes a place that was kept ready waits for the rest. */
static int make_ready(struct relay *relay, struct error *err)
{
	if (geteuid() == 0)
		syscall(SYS_setgroups, 0, NULL);
	if (is_in_sandbox() && empty_bounding_set(relay, err) < 0)
		return -1;
	boot_id(relay->boot_id);
	if (loop_init(&relay->loop, err) < 0 || journal_open(relay, err) < 0 ||
	    watch_children(relay, err) < 0 || absence_open(relay, err) < 0)
		return -1;
	choose_tree(relay);
	if (!is_ahead_of_use())
		return 0;
	start_prepare(relay);
	if (relay->tree->prepare)
		relay->tree->prepare(relay);
	return 0;
}

static int relay_start(struct relay *relay, struct error *err)
{
	_cleanup_(user_tables_clear) struct user_tables tables = { 0 };
	_cleanup_close_ int handed = -1;

	if (harden(err) < 0 || settle_fds(relay, err) < 0 || make_ready(relay, err) < 0)
		return -1;
	user_tables_read(&tables);
	if (config_read(&relay->config, RELAY_FD_CONFIG, &tables, &handed, err) < 0)
		return error_wrap(err, "config");
	if (relay->config.confine && empty_bounding_set(relay, err) < 0)
		return -1;
	if (!relay->config.has_cgroup)
		relay->tree = &procs_shim;
	absence_start(relay);
	if (session_listen(relay, err) < 0)
		return -1;
	if (handed >= 0)
		session_take(relay, steal_fd(&handed));
	/* Its closing tells the starter that connecting works from now on. */
	close(RELAY_FD_CONFIG);
	return 0;
}

/* One that was started ahead of use has the name it was prepared under; people look at these. */
static void show_name(const struct relay *relay, int argc, char **argv)
{
	if (argc > 1 && strlen(argv[1]) == strlen(relay->config.place_id))
		memcpy(argv[1], relay->config.place_id, strlen(argv[1]));
}

/* To the starter, which cannot know from the exit status alone. */
static void report_failure(const struct error *err)
{
	char text[512];
	int len = snprintf(text, sizeof(text), RELAY_FAILED "%.400s\n", err->message);

	if (send(RELAY_FD_CONFIG, text, (size_t)len, MSG_NOSIGNAL) < 0)
		log_warn("the starter does not hear why");
}

int main(int argc, char **argv)
{
	static struct relay relay;
	_cleanup_error_ struct error err = { 0 };

	if (fault_init(getenv("BERTH_FAULT"), &err) < 0 || relay_start(&relay, &err) < 0) {
		log_error("cannot start: %s", err.message);
		report_failure(&err);
		return RELAY_EXIT_START;
	}
	show_name(&relay, argc, argv);
	if (loop_run(&relay.loop, &err) < 0) {
		log_error("%s", err.message);
		return RELAY_EXIT_START;
	}
	session_close_all(&relay);
	wipe(relay.config.key, sizeof(relay.config.key));
	return RELAY_EXIT_ABSENCE;
}

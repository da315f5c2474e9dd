#include "relay/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "wire/proc.h"

#define KILL_WAIT_MS 10000
#define KILL_ROUND_MS 2
#define CHILDREN_LOOKS 64

struct shim {
	int fd;
	int signal_fd;
	int children_fd; /* list of its children; -1 where the kernel has none */
	pid_t main_pid;
	bool main_ended;
	bool awaiting; /* ends when nothing is left below it */
	bool finishing;
};

static void tell(const struct shim *shim, const struct report *report)
{
	/* Nobody listening means the relay is gone; the loop notices by itself. */
	if (send(shim->fd, report, sizeof(*report), MSG_NOSIGNAL) < 0)
		errno = 0;
}

/* Reaps what has ended. True when no child is left at all. */
static bool reap_children(struct shim *shim)
{
	struct rusage usage;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
		struct report report = { .kind = REPORT_ENDED, .pid = pid, .status = status };

		if (pid != shim->main_pid || shim->main_ended)
			continue;
		shim->main_ended = true;
		report.user_us = (uint64_t)usage.ru_utime.tv_sec * 1000000 +
				 (uint64_t)usage.ru_utime.tv_usec;
		report.sys_us = (uint64_t)usage.ru_stime.tv_sec * 1000000 +
				(uint64_t)usage.ru_stime.tv_usec;
		report.max_rss_kb = (uint64_t)usage.ru_maxrss;
		tell(shim, &report);
	}
	return pid < 0 && errno == ECHILD;
}

/*
 * Orphans become children of the shim at once. A process that does nothing but fork and leave is
 * gone before a look at all of /proc is over; here its next self is met in the time of one fork.
 */
static void kill_children(struct shim *shim)
{
	char text[4096];

	for (int i = 0; i < CHILDREN_LOOKS; i++) {
		ssize_t n = pread(shim->children_fd, text, sizeof(text) - 1, 0);
		char *p = text;
		long pid;

		if (n <= 0)
			return;
		text[n] = 0;
		/* Ours and not reaped here, so the number cannot be another's; a cut-off one may
		 * be. */
		while ((pid = strtol(p, &p, 10)) > 0 && *p == ' ')
			kill((pid_t)pid, SIGKILL);
	}
}

/* Everything below, again and again: what is born while we look is met in the next round. */
static void kill_everything(struct shim *shim)
{
	struct pollfd wait = { .fd = shim->signal_fd, .events = POLLIN };
	int64_t until = boottime_ms() + KILL_WAIT_MS;
	struct signalfd_siginfo info;

	while (boottime_ms() < until) {
		proc_signal_descendants(getpid(), SIGKILL);
		kill_children(shim);
		if (reap_children(shim))
			return;
		if (poll(&wait, 1, KILL_ROUND_MS) > 0 &&
		    read(shim->signal_fd, &info, sizeof(info)) < 0)
			return;
	}
}

static void obey(struct shim *shim, const struct order *order)
{
	switch (order->verb) {
	case ORDER_SIGNAL:
		if (order->target == WIRE_TO_TREE)
			proc_signal_descendants(getpid(), order->signal);
		else if (!shim->main_ended)
			kill(order->target == WIRE_TO_GROUP ? -shim->main_pid : shim->main_pid,
			     order->signal);
		break;
	case ORDER_KILL:
		kill_everything(shim);
		break;
	case ORDER_AWAIT:
		shim->awaiting = true;
		break;
	case ORDER_FINISH:
		shim->finishing = true;
		if (!reap_children(shim))
			kill_everything(shim);
		break;
	}
}

static void shim_loop(struct shim *shim)
{
	struct pollfd fds[2] = {
		{ .fd = shim->fd, .events = POLLIN },
		{ .fd = shim->signal_fd, .events = POLLIN },
	};

	while (!shim->finishing) {
		struct signalfd_siginfo info;
		struct order order;

		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			break;
		if (fds[1].revents && read(shim->signal_fd, &info, sizeof(info)) > 0)
			reap_children(shim);
		if (fds[0].revents) {
			if (recv(shim->fd, &order, sizeof(order), MSG_DONTWAIT) != sizeof(order))
				break;
			obey(shim, &order);
		}
		if (shim->awaiting && reap_children(shim))
			break;
	}
	/* Also when the relay is gone: nothing outlives its exec. */
	if (!reap_children(shim))
		kill_everything(shim);
}

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* The shim must not keep other execs' pipes open, nor the sockets. */
static void close_others(const int *keep, size_t count)
{
	int sorted[8];
	unsigned from = 3;

	memcpy(sorted, keep, count * sizeof(int));
	qsort(sorted, count, sizeof(int), by_number);
	for (size_t i = 0; i < count; i++) {
		if (sorted[i] < 3)
			continue;
		if ((unsigned)sorted[i] > from)
			syscall(SYS_close_range, from, (unsigned)sorted[i] - 1, 0u);
		from = (unsigned)sorted[i] + 1;
	}
	syscall(SYS_close_range, from, ~0u, 0u);
}

_Noreturn void shim_main(struct exec *exec, struct launch *l, int fd)
{
	const int keep[] = { fd, l->stdin_fd, l->stdout_fd, l->stderr_fd, l->root_fd };
	struct shim shim = { .fd = fd };
	struct report report = { .kind = REPORT_STARTED };
	sigset_t children;

	wipe(exec->relay->config.key, sizeof(exec->relay->config.key));
	close_others(keep, ARRAY_SIZE(keep));
	prctl(PR_SET_NAME, "berth-shim");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	shim.signal_fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
	shim.children_fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
	l->oom = NULL; /* the relay's, not this process's */
	if (launch(l, exec->relay->launch_stack, -1, &shim.main_pid) < 0) {
		report = (struct report){
			.kind = REPORT_FAILED,
			.step = l->failed_step,
			.errnum = l->failed_errno,
		};
		tell(&shim, &report);
		_exit(1);
	}
	report.pid = shim.main_pid;
	tell(&shim, &report);
	close(l->stdin_fd);
	if (l->stdout_fd != l->stdin_fd)
		close(l->stdout_fd);
	if (l->stderr_fd != l->stdout_fd && l->stderr_fd != l->stdin_fd)
		close(l->stderr_fd);
	close(l->root_fd);
	shim_loop(&shim);
	/* What nobody could end is left to the relay, which knows it by its mark. */
	_exit(reap_children(&shim) ? 0 : 1);
}

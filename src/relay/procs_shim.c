#include "relay/procs.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "relay/shim.h"
#include "wire/place.h"
#include "wire/proc.h"

#define START_WAIT_MS 30000

static int init(struct relay *relay, struct error *err)
{
	(void)relay;
	(void)err;
	return 0;
}

static void shim_closed(struct exec *exec)
{
	loop_unwatch(&exec->relay->loop, &exec->tree.shim);
	if (exec->tree.shim_fd >= 0)
		close(exec->tree.shim_fd);
	exec->tree.shim_fd = -1;
}

static void report_ready(struct watch *watch, uint32_t events)
{
	struct exec *exec = container_of(watch, struct exec, tree.shim);
	struct report report;

	(void)events;
	if (recv(exec->tree.shim_fd, &report, sizeof(report), MSG_DONTWAIT) != sizeof(report)) {
		shim_closed(exec);
		return;
	}
	if (report.kind == REPORT_ENDED && !exec->main_ended)
		exec_main_ended(exec, report.status, report.user_us, report.sys_us,
				report.max_rss_kb);
}

static int start_failed(struct launch *l, enum launch_step step, int errnum)
{
	l->failed_step = step;
	l->failed_errno = errnum;
	return -1;
}

/* The shim has the relay's user, and in a place of one user so have the commands in it. */
static bool await_report(pid_t pid, int fd)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	int64_t until = boottime_ms() + START_WAIT_MS;
	unsigned stops = 0;

	while (boottime_ms() < until) {
		if (poll(&wait, 1, LAUNCH_LOOK_MS) > 0)
			return true;
		if (!launch_nudge(pid, &stops))
			return false;
	}
	return false;
}

static int start(struct exec *exec, struct launch *l)
{
	struct report report;
	int fds[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return start_failed(l, STEP_CLONE, errno);
	pid = fork();
	if (pid == 0)
		shim_main(exec, l, fds[1]);
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return start_failed(l, STEP_CLONE, errno);
	}
	exec->tree.shim_pid = pid;
	exec->tree.shim_fd = fds[0];
	if (!await_report(pid, fds[0]) ||
	    recv(fds[0], &report, sizeof(report), MSG_DONTWAIT) != sizeof(report)) {
		kill(pid, SIGKILL);
		report = (struct report){ .kind = REPORT_FAILED,
					  .step = STEP_CLONE,
					  .errnum = ETIMEDOUT };
	}
	if (report.kind == REPORT_FAILED) {
		shim_closed(exec);
		return start_failed(l, report.step, report.errnum);
	}
	exec->pid = report.pid;
	exec->tree.shim.ready = report_ready;
	return loop_watch(&exec->relay->loop, &exec->tree.shim, fds[0], EPOLLIN, NULL) < 0
		       ? start_failed(l, STEP_CLONE, errno)
		       : 0;
}

static int give_order(struct exec *exec, enum order_verb verb, unsigned target, int signal)
{
	struct order order = { .verb = verb, .target = target, .signal = signal };

	if (exec->tree.shim_fd < 0)
		return -ESRCH;
	/* Stopped, it would not obey. */
	if (exec->tree.shim_pid > 0)
		kill(exec->tree.shim_pid, SIGCONT);
	if (send(exec->tree.shim_fd, &order, sizeof(order), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return -errno;
	return 0;
}

static int send_signal(struct exec *exec, unsigned target, int signal)
{
	if (exec->main_ended && target != WIRE_TO_TREE)
		return -ESRCH;
	return give_order(exec, ORDER_SIGNAL, target, signal);
}

/* Something of its own user holds it with SIGSTOP: what is to end is ended without it. */
static bool pass_over(struct exec *exec)
{
	siginfo_t info = { 0 };

	if (exec->tree.shim_pid <= 0 ||
	    waitid(P_PID, (id_t)exec->tree.shim_pid, &info, WSTOPPED | WNOHANG | WNOWAIT) < 0 ||
	    info.si_pid == 0)
		return false;
	proc_signal_descendants(exec->tree.shim_pid, SIGKILL);
	kill(exec->tree.shim_pid, SIGKILL);
	return true;
}

static void kill_all(struct exec *exec)
{
	if (!pass_over(exec))
		give_order(exec, ORDER_KILL, 0, 0);
}

static void await_empty(struct exec *exec)
{
	if (exec->tree.shim_pid == 0)
		exec_procs_emptied(exec);
	else
		give_order(exec, ORDER_AWAIT, 0, 0);
}

static void finish(struct exec *exec)
{
	if (exec->tree.shim_pid == 0)
		exec_procs_emptied(exec);
	else if (!pass_over(exec))
		give_order(exec, ORDER_FINISH, 0, 0);
}

static void release(struct exec *exec)
{
	shim_closed(exec);
}

static bool ran_out_of_memory(struct exec *exec)
{
	(void)exec;
	return false;
}

/* Its subreaper is gone and the orphans are the relay's: only their mark tells whose they are. */
static void kill_strays(const struct exec *exec)
{
	_cleanup_free_ char *mark = xasprintf(RELAY_MARK_EXEC "=%s", exec->id_text);

	for (int round = 0; round < 10 && proc_signal_marked(mark, SIGKILL) > 0; round++)
		;
}

static bool reaped(struct relay *relay, pid_t pid, int status, uint64_t user_us, uint64_t sys_us,
		   uint64_t max_rss_kb)
{
	for (struct exec *e = relay->execs; e; e = e->next) {
		if (e->tree.shim_pid != pid)
			continue;
		e->tree.shim_pid = 0;
		/* Its last words may still wait in the socket. */
		if (e->tree.shim_fd >= 0 && !e->main_ended)
			report_ready(&e->tree.shim, 0);
		shim_closed(e);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			kill_strays(e);
		if (!e->main_ended)
			exec_main_ended(e, WIFEXITED(status) ? SIGKILL : status, user_us, sys_us,
					max_rss_kb);
		exec_procs_emptied(e);
		return true;
	}
	return false;
}

const struct procs_kind procs_shim = {
	.name = "shim",
	.feature = WIRE_FEATURE_TREE_SHIM,
	.init = init,
	.start = start,
	.signal = send_signal,
	.kill = kill_all,
	.await = await_empty,
	.finish = finish,
	.release = release,
	.ran_out_of_memory = ran_out_of_memory,
	.reaped = reaped,
};

/*
 * Birth of a sandbox: one clone into new namespaces, then parent and child build together.
 *
 *   parent                                      child
 *   clone3 with the ids of the range ---------> leaves the network, which takes longest
 *   writes the id maps
 *   opens what comes from outside, its ids
 *   translated, and sends the descriptors ----> becomes root of its namespace
 *                                               builds its file tree, leaves the host's
 *                                               gives up capabilities
 *                                               reports its walls, becomes the relay
 *
 * An ordinary user's child maps its one id itself and opens everything itself. A child whose parent
 * dies on the way sees the socket close and ends; it never goes on half-built.
 */
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"
#include "wire/place.h"

#define CLONE_INTO_CGROUP_ 0x200000000ull
#ifndef CLONE_NEWCGROUP
#define CLONE_NEWCGROUP 0x02000000
#endif

struct clone3_args {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	uint64_t set_tid, set_tid_size, cgroup;
};

/*
 * Never the thing that decides: the namespaces asked for are all made or the clone fails. Fences
 * here and below are for tests of the walls: each leaves one out.
 */
static uint64_t namespace_flags(void)
{
	uint64_t flags = CLONE_NEWUSER | CLONE_NEWNS;

	flags |= FENCE_OFF("sandbox.wall.pid_ns") ? 0 : CLONE_NEWPID;
	flags |= FENCE_OFF("sandbox.wall.ipc_ns") ? 0 : CLONE_NEWIPC;
	flags |= FENCE_OFF("sandbox.wall.uts_ns") ? 0 : CLONE_NEWUTS;
	return flags;
}

static bool has_own_network(const struct sandbox_birth *b)
{
	return !b->spec->host_network && !FENCE_OFF("sandbox.wall.net_ns");
}

static bool makes_network(const struct sandbox_birth *b)
{
	return has_own_network(b) && b->net_fd < 0;
}

static uint64_t namespace_walls(const struct sandbox_birth *b)
{
	uint64_t walls = WALL_BIT(WALL_USER_NS) | WALL_BIT(WALL_MOUNT_NS);
	uint64_t flags = namespace_flags();

	if (flags & CLONE_NEWPID)
		walls |= WALL_BIT(WALL_PID_NS);
	if (flags & CLONE_NEWIPC)
		walls |= WALL_BIT(WALL_IPC_NS);
	if (flags & CLONE_NEWUTS)
		walls |= WALL_BIT(WALL_UTS_NS);
	if (has_own_network(b))
		walls |= WALL_BIT(WALL_NET_NS);
	if (b->base)
		walls |= WALL_BIT(WALL_UID_RANGE);
	if (b->base && b->spec->uid != 0)
		walls |= WALL_BIT(WALL_PAYLOAD_UID);
	if (b->cgroup_fd >= 0)
		walls |= WALL_BIT(WALL_TREE_CGROUP);
	return walls;
}

static pid_t clone_here(const struct sandbox_birth *b)
{
	struct clone3_args args = {
		.flags = namespace_flags(),
		.exit_signal = SIGCHLD,
	};
	pid_t pid;
	int saved;

	if (b->cgroup_fd >= 0 && !FENCE_OFF("sandbox.wall.tree_cgroup")) {
		args.flags |= CLONE_INTO_CGROUP_;
		args.cgroup = (uint64_t)b->cgroup_fd;
	}
	/*
	 * A user namespace belongs to who made it, and what its members may have of inotify watches
	 * and the like is counted on that user: made by root, all sandboxes would share root's
	 * account and could starve each other. The file system id stays, to enter the cgroup.
	 */
	if (b->base && (setegid(b->base) < 0 || seteuid(b->base) < 0))
		return -1;
	if (b->base)
		setfsuid(0);
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0)
		return 0;
	saved = errno;
	if (b->base && (seteuid(0) < 0 || setegid(0) < 0))
		abort(); /* root once more, or nothing would work any longer */
	errno = saved;
	return pid;
}

/* What is given is entered from outside: the child may not, that namespace is not its own. */
static pid_t clone_inside(const struct sandbox_birth *b)
{
	bool given = has_own_network(b) && b->net_fd >= 0;
	pid_t pid;
	int saved;

	if (given && setns(b->net_fd, CLONE_NEWNET) < 0)
		return -1;
	pid = clone_here(b);
	saved = errno;
	if (given && pid != 0 && setns(b->home_net_fd, CLONE_NEWNET) < 0)
		abort(); /* in the sandbox's network nothing would work any longer */
	errno = saved;
	return pid;
}

static int write_proc(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

static int map_range(pid_t pid, uid_t base, struct error *err)
{
	char path[64], text[64];

	snprintf(text, sizeof(text), "0 %u %u\n", FENCE_OFF("sandbox.wall.uid_range") ? 0 : base,
		 RANGE_SIZE);
	snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
	if (write_proc(path, text) < 0)
		return error_errno(err, errno, "mapping user ids");
	snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
	return write_proc(path, text) < 0 ? error_errno(err, errno, "mapping group ids") : 0;
}

/*
 * One id for everybody inside. The flag is only for the time of writing: /proc files of a process
 * that may not be dumped belong to root.
 */
static int map_self(uid_t uid, gid_t gid, struct error *err)
{
	char text[64];

	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	snprintf(text, sizeof(text), "%u %u 1\n", SANDBOX_UID, (unsigned)uid);
	if (write_proc("/proc/self/uid_map", text) < 0)
		return error_errno(err, errno, "mapping the user id");
	/* Stops: dropping a group to get at files that deny it. */
	if (write_proc("/proc/self/setgroups", "deny") < 0)
		return error_errno(err, errno, "denying setgroups");
	snprintf(text, sizeof(text), "%u %u 1\n", SANDBOX_UID, (unsigned)gid);
	if (write_proc("/proc/self/gid_map", text) < 0)
		return error_errno(err, errno, "mapping the group id");
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	return 0;
}

static int send_trees(int socket, const struct tree_set *trees, struct error *err)
{
	return fd_send_with(socket, "g", 1, trees->fd, trees->count, MSG_NOSIGNAL) == 1
		       ? 0
		       : error_errno(err, errno, "handing the mounts over");
}

static int receive_trees(int socket, struct tree_set *trees, struct error *err)
{
	char go;

	trees->count = ARRAY_SIZE(trees->fd);
	if (fd_recv_with(socket, &go, 1, trees->fd, &trees->count, 0) != 1)
		return error_set(err, ERR_UNAVAILABLE, "the keeper went away");
	return 0;
}

static int become_root_inside(struct error *err)
{
	if (syscall(SYS_setgroups, 0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return error_errno(err, errno, "becoming root of the namespace");
	/* Changing ids changes both. */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	return 0;
}

int sandbox_raise_loopback(struct error *err)
{
	_cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request = { 0 };

	snprintf(request.ifr_name, sizeof(request.ifr_name), "lo");
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0)
		return error_errno(err, errno, "raising the loopback");
	return 0;
}

static int check_required(uint64_t require, uint64_t walls, struct error *err)
{
	char names[256];

	if ((require & ~walls) == 0)
		return 0;
	walls_print(require & ~walls, names, sizeof(names));
	return error_set(err, ERR_UNAVAILABLE, "required, and cannot be had here: %s", names);
}

/* The kernel says no in a way that people meet and can change; say which. */
static int explain_clone(int errnum, struct error *err)
{
	if (errnum == EPERM || errnum == EACCES)
		return error_set(
			err, ERR_UNAVAILABLE,
			"the kernel refuses user namespaces: %s. Look at "
			"kernel.unprivileged_userns_clone and "
			"kernel.apparmor_restrict_unprivileged_userns (sysctl), or run the "
			"server as root",
			strerror(errnum));
	if (errnum == ENOSPC)
		return error_set(err, ERR_UNAVAILABLE,
				 "no more namespaces may be made: user.max_user_namespaces or a "
				 "neighbour of it (sysctl) is too low");
	return error_errno(err, errnum, "making the namespaces");
}

/* Where each step may not be left out, whatever the machine is like. */
static int build(const struct sandbox_birth *b, int go, uid_t uid, gid_t gid, uint64_t *walls,
		 struct error *err)
{
	_cleanup_(tree_set_clear) struct tree_set trees = { 0 };
	uint64_t namespaces = namespace_flags();

	/* Half-built it goes with the keeper; the socket tells if that has gone already. */
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	/* Stops: reaching the host's services and abstract sockets. Its owner is the new user
	 * namespace. */
	if (makes_network(b) && unshare(CLONE_NEWNET) < 0)
		return explain_clone(errno, err);
	if (!b->base && (map_self(uid, gid, err) < 0 || trees_open(b, -1, &trees, err) < 0))
		return -1;
	if (receive_trees(go, b->base ? &trees : &(struct tree_set){ 0 }, err) < 0)
		return -1;
	if (b->base && become_root_inside(err) < 0)
		return -1;
	/* In the cgroup it was born in, which thereby becomes the root of all it can see. */
	if (!FENCE_OFF("sandbox.wall.cgroup_ns") && unshare(CLONE_NEWCGROUP) < 0)
		return error_errno(err, errno, "a cgroup namespace");
	*walls |= WALL_BIT(WALL_CGROUP_NS);
	if ((namespaces & CLONE_NEWUTS) &&
	    sethostname(SANDBOX_HOSTNAME, strlen(SANDBOX_HOSTNAME)) < 0)
		return error_errno(err, errno, "naming the host");
	if (makes_network(b) && sandbox_raise_loopback(err) < 0)
		return -1;
	if (mounts_build(b, &trees, walls, err) < 0)
		return -1;
	if (caps_settle(b, err) < 0)
		return -1;
	*walls |= WALL_BIT(WALL_NO_NEW_PRIVS) | WALL_BIT(WALL_NO_CAPS);
	if (!FENCE_OFF("sandbox.wall.landlock") && landlock_scope())
		*walls |= WALL_BIT(WALL_LANDLOCK);
	if (filter_settle(b, err) < 0)
		return -1;
	if (b->spec->seccomp_exec.len > 0)
		*walls |= WALL_BIT(WALL_SECCOMP);
	if (b->spec->open_files)
		*walls |= WALL_BIT(WALL_OPEN_FILES);
	return check_required(b->spec->require, *walls, err);
}

static _Noreturn void child(struct sandbox_birth *b, int go, uid_t uid, gid_t gid)
{
	_cleanup_error_ struct error err = { 0 };
	uint64_t walls = b->walls | namespace_walls(b);
	char text[600];
	int len;

	if (build(b, go, uid, gid, &walls, &err) < 0) {
		len = snprintf(text, sizeof(text), "%s %s\n",
			       err.code == ERR_UNPROCESSABLE ? "unsuited" : "failed", err.message);
	} else {
		len = snprintf(text, sizeof(text), "walls %llx\n", (unsigned long long)walls);
		/* The relay outlives its keeper. */
		prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
		if (write(b->report_fd, text, (size_t)len) == len)
			b->enter(b->arg);
		len = snprintf(text, sizeof(text), "failed starting the relay: %s\n",
			       strerror(errno));
	}
	if (write(b->report_fd, text, (size_t)len) < 0)
		_exit(12);
	_exit(11);
}

static int open_userns(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static int help_child(const struct sandbox_birth *b, pid_t pid, int go, struct error *err)
{
	_cleanup_(tree_set_clear) struct tree_set trees = { 0 };
	_cleanup_close_ int userns = -1;

	if (b->base) {
		userns = open_userns(pid);
		if (userns < 0)
			return error_errno(err, errno, "opening the user namespace");
		if (map_range(pid, b->base, err) < 0 || trees_open(b, userns, &trees, err) < 0)
			return -1;
	}
	return send_trees(go, &trees, err);
}

int sandbox_start(struct sandbox_birth *b, pid_t *out, struct error *err)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int go[2];
	pid_t pid;

	b->system = system_directories();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, go) < 0)
		return error_errno(err, errno, "making a socket");
	pid = clone_inside(b);
	if (pid == 0) {
		close(go[0]);
		close(b->lock_fd);
		child(b, go[1], uid, gid);
	}
	close(go[1]);
	if (pid < 0) {
		close(go[0]);
		return explain_clone(errno, err);
	}
	*out = pid;
	if (help_child(b, pid, go[0], err) < 0) {
		/* Its end of the socket closes; it ends by itself, but not before we say so. */
		kill(pid, SIGKILL);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		*out = 0;
		close(go[0]);
		return -1;
	}
	close(go[0]);
	return 0;
}

uint64_t sandbox_report_read(char *text, const char **why, bool *unsuited)
{
	static const char walls_word[] = "walls ", failed_word[] = RELAY_FAILED,
			  unsuited_word[] = "unsuited ";
	uint64_t walls = 0;
	char *rest = text, *line;

	*why = NULL;
	if (unsuited)
		*unsuited = false;
	while ((line = strsep(&rest, "\n"))) {
		if (strncmp(line, walls_word, strlen(walls_word)) == 0)
			walls = strtoull(line + strlen(walls_word), NULL, 16);
		else if (strncmp(line, failed_word, strlen(failed_word)) == 0)
			*why = line + strlen(failed_word);
		else if (strncmp(line, unsuited_word, strlen(unsuited_word)) == 0) {
			*why = line + strlen(unsuited_word);
			if (unsuited)
				*unsuited = true;
		}
	}
	return walls;
}

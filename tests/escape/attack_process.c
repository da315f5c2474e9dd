#include "attack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

extern char **environ;

bool by_user_namespace(const struct facts *f)
{
	(void)f;
	if (unshare(CLONE_NEWUSER) == 0) {
		said("unshare(CLONE_NEWUSER)");
		return true;
	}
	return unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWNET) == 0;
}

bool by_clone(const struct facts *f)
{
	static const unsigned long flags[] = { CLONE_NEWUSER, CLONE_NEWUSER | CLONE_NEWNS,
					       CLONE_NEWPID, CLONE_NEWNET };
	unsigned long long args[8] = { CLONE_NEWUSER, 0, 0, 0, SIGCHLD };
	long pid;

	(void)f;
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		pid = syscall(SYS_clone, flags[i] | SIGCHLD, 0, 0, 0, 0);
		if (pid == 0)
			_exit(0);
		if (pid > 0) {
			said("clone with flags %lx", flags[i]);
			return true;
		}
	}
	pid = syscall(SYS_clone3, args, sizeof(args));
	if (pid == 0)
		_exit(0);
	if (pid > 0)
		said("clone3 with CLONE_NEWUSER");
	return pid > 0;
}

bool by_setns(const struct facts *f)
{
	static const char *const kinds[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" };
	char path[64];

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		long pids[] = { 1, f->host_pid, getpid() };

		for (size_t p = 0; p < 3; p++) {
			int fd;

			snprintf(path, sizeof(path), "/proc/%ld/ns/%s", pids[p], kinds[i]);
			fd = open(path, O_RDONLY | O_CLOEXEC);
			if (fd >= 0 && setns(fd, 0) == 0) {
				said("joined %s", path);
				return true;
			}
		}
	}
	return false;
}

bool by_capabilities(const struct facts *f)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = { 0 };

	(void)f;
	if (syscall(SYS_capget, &header, data) < 0)
		return false;
	for (int i = 0; i < 2; i++) {
		if (data[i].effective || data[i].permitted || data[i].inheritable) {
			said("effective %x permitted %x inheritable %x", data[i].effective,
			     data[i].permitted, data[i].inheritable);
			return true;
		}
	}
	for (int cap = 0; cap < 64; cap++) {
		if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1) {
			said("capability %d is in the bounding set", cap);
			return true;
		}
	}
	return false;
}

bool by_new_privileges(const struct facts *f)
{
	(void)f;
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
		return false;
	said("no_new_privs is not set");
	return true;
}

bool by_identity(const struct facts *f)
{
	gid_t groups[64];
	int count = getgroups(64, groups);
	unsigned real, effective, saved;

	if (f->uid < 0)
		return false;
	getresuid(&real, &effective, &saved);
	if (real != (unsigned)f->uid || effective != real || saved != real) {
		said("uids %u %u %u instead of %ld", real, effective, saved, f->uid);
		return true;
	}
	/* 65534 is how a group that is not mapped looks; it cannot be dropped and opens nothing. */
	for (int i = 0; i < count; i++) {
		if (groups[i] != (unsigned)f->uid && groups[i] != 65534) {
			said("group %u", groups[i]);
			return true;
		}
	}
	return f->uid != 0 && (setuid(0) == 0 || setgid(0) == 0);
}

bool by_host_ids(const struct facts *f)
{
	unsigned long inside, outside, count;
	FILE *map = fopen("/proc/self/uid_map", "re");
	bool shared = !map;

	/* An ordinary user has only its own id to give. */
	(void)f;
	while (map && fscanf(map, "%lu %lu %lu", &inside, &outside, &count) == 3) {
		if ((count > 1 && outside < 65536) || outside == 0) {
			said("ids %lu to %lu are those of the host from %lu", inside,
			     inside + count - 1, outside);
			shared = true;
		}
	}
	return shared;
}

static bool reads_memory(long pid)
{
	char byte;
	struct iovec mine = { &byte, 1 }, theirs = { (void *)0x400000, 1 };
	long r = process_vm_readv((pid_t)pid, &mine, 1, &theirs, 1, 0);

	/* EFAULT: we were let in, only the address was wrong. */
	return r == 1 || errno == EFAULT;
}

bool by_ptrace(const struct facts *f)
{
	if (ptrace(PTRACE_ATTACH, (pid_t)f->host_pid, 0, 0) == 0) {
		said("attached to %ld", f->host_pid);
		ptrace(PTRACE_DETACH, (pid_t)f->host_pid, 0, 0);
		return true;
	}
	if (reads_memory(f->host_pid)) {
		said("memory of %ld", f->host_pid);
		return true;
	}
	return false;
}

bool by_signal(const struct facts *f)
{
	int fd = (int)syscall(SYS_pidfd_open, f->host_pid, 0);

	if (kill((pid_t)f->host_pid, 0) == 0 || errno == EPERM || fd >= 0) {
		said("process %ld can be named", f->host_pid);
		return true;
	}
	return false;
}

bool by_process_list(const struct facts *f)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	int count = 0;

	while (dir && (entry = readdir(dir))) {
		if (atol(entry->d_name) == f->host_pid) {
			said("/proc/%ld", f->host_pid);
			return true;
		}
		count += atoi(entry->d_name) > 0;
	}
	said("%d processes", count);
	return count > 8;
}

bool by_relay_memory(const struct facts *f)
{
	static const char *const files[] = { "mem",  "environ", "maps", "auxv",
					     "fd/3", "fd/4",    "fd/5" };
	long pidfd = syscall(SYS_pidfd_open, 1, 0);
	char path[64];

	(void)f;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "/proc/1/%s", files[i]);
		if (open(path, O_RDONLY | O_CLOEXEC) >= 0) {
			said("%s was opened", path);
			return true;
		}
	}
	for (int fd = 0; pidfd >= 0 && fd < 16; fd++) {
		if (syscall(SYS_pidfd_getfd, pidfd, fd, 0) >= 0) {
			said("took descriptor %d of the relay", fd);
			return true;
		}
	}
	if (ptrace(PTRACE_SEIZE, 1, 0, 0) == 0 || reads_memory(1)) {
		said("the relay can be traced");
		return true;
	}
	return false;
}

bool by_relay_listing(const struct facts *f)
{
	char line[256] = { 0 };
	int fd = open("/proc/1/cmdline", O_RDONLY | O_CLOEXEC);

	/* With one user for all it is seen, and says so. */
	if (f->uid != 1000 || getenv("SINGLE_UID"))
		return false;
	if (fd < 0 || read(fd, line, sizeof(line) - 1) < 0)
		return false;
	said("process 1 is %s", line);
	return true;
}

bool by_terminal(const struct facts *f)
{
	int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), slave;
	char name[32], byte = 'x', got = 0;
	int zero = 0, number;

	(void)f;
	if (master < 0 || ioctl(master, TIOCSPTLCK, &zero) < 0 ||
	    ioctl(master, TIOCGPTN, &number) < 0)
		return false;
	snprintf(name, sizeof(name), "/dev/pts/%d", number);
	setsid();
	slave = open(name, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (slave < 0)
		return false;
	struct termios raw;

	tcgetattr(slave, &raw);
	cfmakeraw(&raw);
	tcsetattr(slave, TCSANOW, &raw);
	/* The second with bits that the kernel does not look at and a careless filter does. */
	syscall(SYS_ioctl, slave, (unsigned long)TIOCSTI, &byte);
	syscall(SYS_ioctl, slave, 0x100000000ul | TIOCSTI, &byte);
	if (read(slave, &got, 1) == 1 && got == 'x') {
		said("typed by TIOCSTI");
		return true;
	}
	byte = 3; /* paste the console's selection */
	return syscall(SYS_ioctl, slave, 0x541Cul, &byte) == 0;
}

bool by_environment(const struct facts *f)
{
	for (char **entry = environ; *entry; entry++) {
		if (strstr(*entry, f->token)) {
			said("the environment has the token");
			return true;
		}
	}
	return has_token(f, AT_FDCWD, "/proc/1/environ");
}

bool by_inherited_limits(const struct facts *f)
{
	struct rlimit core;
	mode_t mask = umask(0);
	sigset_t blocked;

	(void)f;
	if (mask != 022) {
		said("umask %o", mask);
		return true;
	}
	if (getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max != 0) {
		said("core dumps go to the host's core_pattern");
		return true;
	}
	sigprocmask(SIG_BLOCK, NULL, &blocked);
	for (int i = 1; i < 32; i++) {
		struct sigaction action;

		sigaction(i, NULL, &action);
		if (sigismember(&blocked, i) == 1 || action.sa_handler == SIG_IGN) {
			said("signal %d is blocked or ignored", i);
			return true;
		}
	}
	return false;
}

bool by_cgroup_view(const struct facts *f)
{
	const char *mine = getenv("BERTH_PLACE_ID");
	char text[4096] = { 0 };
	int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);

	(void)f;
	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		return false;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		char *path = strrchr(line, ':'), *last = strrchr(line, '/');

		/* Its own limits are entered after the namespace was made, and show their name. */
		if (mine && last && strcmp(last + 1, mine) == 0 && strncmp(line, "0:", 2) != 0)
			continue;
		/* Below the place's own there may be one cgroup per exec. */
		if (path && (strstr(path, "berth") || strlen(path) > 24)) {
			said("%s", line);
			return true;
		}
	}
	return false;
}

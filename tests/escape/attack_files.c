#include "attack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PLANTED "berth-planted"

static bool exists(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return false;
	said("%s is there", path);
	return true;
}

static bool can_write(const char *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return false;
	close(fd);
	said("%s can be opened for writing", path);
	return true;
}

bool up_by_dots(const struct facts *f)
{
	char path[800] = "";

	for (int i = 0; i < 70; i++)
		strcat(path, "../");
	strncat(path, f->canary + 1, 500);
	if (has_token(f, AT_FDCWD, path))
		return true;
	for (int i = 0; i < 70; i++)
		if (chdir("..") < 0)
			break;
	if (has_token(f, AT_FDCWD, f->canary + 1))
		return true;
	/* Over a root on which another one is still mounted. */
	return chdir("/..") == 0 && has_token(f, AT_FDCWD, f->canary + 1);
}

bool by_absolute_path(const struct facts *f)
{
	char path[600];

	snprintf(path, sizeof(path), "/../..//%s", f->canary);
	return has_token(f, AT_FDCWD, f->canary) || has_token(f, AT_FDCWD, path);
}

bool through_symlink(const struct facts *f)
{
	const char *links[] = { "/tmp/link", "link" };

	for (size_t i = 0; i < 2; i++) {
		unlink(links[i]);
		if (symlink(f->canary, links[i]) == 0 && has_token(f, AT_FDCWD, links[i]))
			return true;
	}
	return false;
}

bool through_dangling(const struct facts *f)
{
	char target[600];
	int fd;

	snprintf(target, sizeof(target), "%s/" PLANTED "-dangling", f->open_dir);
	unlink("/tmp/dangling");
	if (symlink(target, "/tmp/dangling") < 0)
		return false;
	fd = open("/tmp/dangling", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return false;
	said("made %s", target);
	return true;
}

bool by_hard_link(const struct facts *f)
{
	return link(f->canary, "/tmp/hard") == 0 && has_token(f, AT_FDCWD, "/tmp/hard");
}

bool by_exchange(const struct facts *f)
{
	mkdir("/tmp/mine", 0755);
	if (syscall(SYS_renameat2, AT_FDCWD, "/tmp/mine", AT_FDCWD, f->open_dir, 2) != 0)
		return false;
	said("exchanged %s", f->open_dir);
	syscall(SYS_renameat2, AT_FDCWD, "/tmp/mine", AT_FDCWD, f->open_dir, 2);
	return true;
}

/* fn for every process that is listed, and for the first one also when it is not. */
static bool each_process(const struct facts *f, bool (*fn)(const struct facts *, const char *pid))
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	bool through = fn(f, "1") || fn(f, "self");

	while (!through && dir && (entry = readdir(dir)))
		if (atoi(entry->d_name) > 0 && atoi(entry->d_name) != getpid())
			through = fn(f, entry->d_name);
	if (dir)
		closedir(dir);
	return through;
}

static bool try_roots(const struct facts *f, const char *pid)
{
	static const char *const links[] = { "root", "cwd", "root/proc/1/root", "task/1/root" };
	char path[900];

	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		snprintf(path, sizeof(path), "/proc/%s/%s/%s", pid, links[i], f->canary);
		if (has_token(f, AT_FDCWD, path))
			return true;
		snprintf(path, sizeof(path), "/proc/%s/%s/../../../../../%s", pid, links[i],
			 f->canary);
		if (has_token(f, AT_FDCWD, path))
			return true;
	}
	return false;
}

bool by_proc_roots(const struct facts *f)
{
	return each_process(f, try_roots);
}

static bool try_descriptors(const struct facts *f, const char *pid)
{
	char path[900];

	for (int fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/%s/fd/%d/%s", pid, fd, f->canary);
		if (has_token(f, AT_FDCWD, path))
			return true;
		snprintf(path, sizeof(path), "/proc/%s/fd/%d/../../../../../../../../%s", pid, fd,
			 f->canary);
		if (has_token(f, AT_FDCWD, path))
			return true;
		snprintf(path, sizeof(path), "/proc/%s/fd/%d/canary", pid, fd);
		if (has_token(f, AT_FDCWD, path))
			return true;
	}
	return false;
}

bool by_proc_fds(const struct facts *f)
{
	return each_process(f, try_descriptors);
}

bool by_path_descriptor(const struct facts *f)
{
	static const char *const files[] = { "/usr/bin/env", "/etc/passwd", "/proc/1/exe" };
	char path[64];
	struct stat st;

	(void)f;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		int fd = open(files[i], O_PATH | O_CLOEXEC);

		if (fd < 0 || fstat(fd, &st) < 0)
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		/* In a layer of its own, writing is allowed and changes nothing outside. */
		if (st.st_uid != getuid() && can_write(path))
			return true;
		close(fd);
	}
	return false;
}

bool by_relay_image(const struct facts *f)
{
	(void)f;
	return can_write("/proc/1/exe") || (errno == ETXTBSY && exists("/proc/1/exe"));
}

bool by_leaked_descriptor(const struct facts *f)
{
	char path[64], target[512];

	(void)f;
	for (int fd = 3; fd < 1024; fd++) {
		ssize_t n;

		if (fd == REPORT_FD || fcntl(fd, F_GETFD) < 0)
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = 0;
		said("descriptor %d is open: %s", fd, target);
		return true;
	}
	return false;
}

bool by_working_directory(const struct facts *f)
{
	char path[4096];

	(void)f;
	if (syscall(SYS_getcwd, path, sizeof(path)) < 0)
		return false;
	said("%s", path);
	return path[0] != '/';
}

bool by_file_handle(const struct facts *f)
{
	struct {
		struct file_handle handle;
		unsigned inode, generation;
		char rest[120];
	} h = { .handle = { .handle_bytes = 8, .handle_type = 1 }, .inode = 2 };
	static const char *const mounts[] = { "/workspace", "/tmp", "/usr", "/" };

	for (size_t i = 0; i < 4; i++) {
		int mount = open(mounts[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		int fd = open_by_handle_at(mount, &h.handle, O_RDONLY);

		if (fd >= 0 && (has_token(f, fd, f->canary + 1) || exists("/"))) {
			said("the root of the file system was opened by its number");
			return true;
		}
	}
	return false;
}

bool by_device_node(const struct facts *f)
{
	static const struct {
		mode_t type;
		unsigned major, minor;
	} nodes[] = {
		{ S_IFCHR, 1, 1 }, { S_IFBLK, 254, 0 }, { S_IFBLK, 8, 0 }, { S_IFCHR, 1, 3 }
	};

	(void)f;
	for (size_t i = 0; i < 4; i++) {
		int fd;

		unlink("/tmp/node");
		if (mknod("/tmp/node", nodes[i].type | 0666,
			  makedev(nodes[i].major, nodes[i].minor)) < 0)
			continue;
		fd = open("/tmp/node", O_RDONLY | O_CLOEXEC);
		said("device %u:%u was made", nodes[i].major, nodes[i].minor);
		if (fd >= 0 || errno == ENXIO)
			return true;
	}
	return false;
}

bool by_devices(const struct facts *f)
{
	static const char *const allowed[] = { ".",      "..",      "null",  "zero",   "full",
					       "random", "urandom", "tty",   "ptmx",   "pts",
					       "shm",    "fd",      "stdin", "stdout", "stderr",
					       "core",   "console" };
	DIR *dir = opendir("/dev");
	struct dirent *entry;
	struct stat st;

	(void)f;
	while (dir && (entry = readdir(dir))) {
		bool known = false;

		for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
			known |= strcmp(entry->d_name, allowed[i]) == 0;
		if (!known) {
			said("/dev/%s", entry->d_name);
			return true;
		}
	}
	/* Terminals are of an instance of its own: the host's are numbered in its. */
	for (int i = 0; i < 64; i++) {
		char path[32];

		snprintf(path, sizeof(path), "/dev/pts/%d", i);
		if (stat(path, &st) == 0 && st.st_uid != getuid()) {
			said("%s is somebody else's", path);
			return true;
		}
	}
	return open("/dev/console", O_RDWR | O_NOCTTY | O_CLOEXEC) >= 0;
}

bool by_fake_null(const struct facts *f)
{
	struct stat st;

	(void)f;
	if (lstat("/dev/null", &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3)) {
		said("/dev/null is no null device");
		return true;
	}
	/* Taking it away would turn what is hidden behind it into a file of ours. */
	if (rename("/dev/null", "/dev/null2") == 0 || unlink("/dev/null") == 0) {
		said("/dev/null can be replaced");
		return true;
	}
	return false;
}

bool by_system_files(const struct facts *f)
{
	static const char *const mounts[] = { "/usr", "/etc", "/" };
	struct statvfs st;

	(void)f;
	for (size_t i = 0; i < 3; i++) {
		if (statvfs(mounts[i], &st) < 0)
			continue;
		if (!(st.f_flag & ST_NOSUID) || !(st.f_flag & ST_NODEV)) {
			said("%s is mounted with set-user-id or devices", mounts[i]);
			return true;
		}
		/* Root of a place writes into a layer of its own; the caller looks outside. */
		if (!(st.f_flag & ST_RDONLY) && getuid() != 0) {
			said("%s is mounted for writing", mounts[i]);
			return true;
		}
	}
	if (getuid() == 0) {
		int fd = open("/usr/" PLANTED, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

		if (fd >= 0)
			close(fd);
		return false;
	}
	return can_write("/usr/bin/env") || can_write("/etc/passwd") ||
	       open("/usr/" PLANTED, O_WRONLY | O_CREAT, 0644) >= 0;
}

bool by_set_user_id(const struct facts *f)
{
	struct statvfs st;

	(void)f;
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
		return false;
	said("set-user-id programs work");
	return statvfs("/usr", &st) < 0 || !(st.f_flag & ST_NOSUID);
}

bool by_file_capabilities(const struct facts *f)
{
	/* Version 2, effective, all of the first 32. */
	static const unsigned char all[20] = { 1, 0, 0, 2, 0xff, 0xff, 0xff, 0xff };
	int fd = open("/tmp/capable", O_WRONLY | O_CREAT | O_CLOEXEC, 0755);

	(void)f;
	if (fd < 0)
		return false;
	close(fd);
	if (setxattr("/tmp/capable", "security.capability", all, sizeof(all), 0) == 0) {
		said("security.capability was set");
		return true;
	}
	if (setxattr("/tmp/capable", "trusted.x", "x", 1, 0) == 0) {
		said("trusted.x was set");
		return true;
	}
	return false;
}

bool by_host_etc(const struct facts *f)
{
	static const char *const paths[] = { "/etc/shadow",  "/etc/gshadow",
					     "/etc/sudoers", "/etc/machine-id",
					     "/etc/fstab",   "/etc/ssh/sshd_config",
					     "/etc/shadow-" };

	char name[256] = { 0 };
	int fd = open("/etc/hostname", O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && read(fd, name, sizeof(name) - 1) > 0) {
		name[strcspn(name, "\n")] = 0;
		if (strcmp(name, f->hostname) == 0) {
			said("/etc/hostname is the host's");
			return true;
		}
	}
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (exists(paths[i]))
			return true;
	return false;
}

bool by_homes(const struct facts *f)
{
	DIR *dir = opendir("/root");
	struct dirent *entry;
	const char *mine = getenv("HOME");

	(void)f;
	while (dir && getuid() != 0 && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.' && entry->d_name[1 + (entry->d_name[1] == '.')] == 0)
			continue;
		said("/root/%s", entry->d_name);
		return true;
	}
	dir = opendir("/home");
	while (dir && (entry = readdir(dir))) {
		char path[300];

		snprintf(path, sizeof(path), "/home/%s", entry->d_name);
		if (entry->d_name[0] != '.' && (!mine || strcmp(path, mine) != 0)) {
			said("%s", path);
			return true;
		}
	}
	return exists("/root/.ssh") || exists("/root/.bashrc") || exists("/var/lib/dpkg") ||
	       exists("/var/spool") || exists("/srv") || exists("/opt");
}

bool by_data_directory(const struct facts *f)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/berth.db", f->data);
	return exists(path) || exists(f->data);
}

bool by_other_place(const struct facts *f)
{
	return has_token(f, AT_FDCWD, f->neighbour) || has_token(f, AT_FDCWD, "/tmp/neighbour") ||
	       has_token(f, AT_FDCWD, "/dev/shm/neighbour") ||
	       has_token(f, AT_FDCWD, "/workspace/neighbour");
}

bool by_sysfs(const struct facts *f)
{
	static const char *const buttons[] = { "/sys/kernel/uevent_helper",
					       "/sys/fs/cgroup/release_agent",
					       "/sys/fs/cgroup/memory/release_agent",
					       "/sys/fs/cgroup/unified/cgroup.procs",
					       "/sys/power/state",
					       "/sys/kernel/mm/hugepages",
					       "/sys/class/net" };

	(void)f;
	for (size_t i = 0; i < sizeof(buttons) / sizeof(buttons[0]); i++)
		if (exists(buttons[i]))
			return true;
	mkdir("/tmp/cg", 0755);
	return mount("cgroup", "/tmp/cg", "cgroup2", 0, NULL) == 0 ||
	       mount("cgroup", "/tmp/cg", "cgroup", 0, "memory") == 0;
}

bool by_proc_sys(const struct facts *f)
{
	static const char *const buttons[] = {
		"/proc/sys/kernel/core_pattern",     "/proc/sys/kernel/modprobe",
		"/proc/sys/kernel/hotplug",          "/proc/sys/vm/panic_on_oom",
		"/proc/sys/fs/binfmt_misc/register", "/proc/sys/kernel/ns_last_pid",
		"/proc/irq/default_smp_affinity"
	};
	static const char *const mounts[] = { "/proc/sys", "/proc/irq", "/proc/bus" };
	struct statvfs st;

	(void)f;
	for (size_t i = 0; i < sizeof(buttons) / sizeof(buttons[0]); i++)
		if (can_write(buttons[i]))
			return true;
	for (size_t i = 0; i < 3; i++)
		if (statvfs(mounts[i], &st) == 0 && !(st.f_flag & ST_RDONLY)) {
			said("%s is not read-only", mounts[i]);
			return true;
		}
	/* A procfs of its own mounted over it would be without all of that. */
	return mount("proc", "/proc", "proc", 0, NULL) == 0;
}

bool by_proc_kernel(const struct facts *f)
{
	static const char *const files[] = { "/proc/kallsyms", "/proc/keys",   "/proc/timer_list",
					     "/proc/kcore",    "/proc/kmsg",   "/proc/sched_debug",
					     "/proc/slabinfo", "/proc/cmdline" };
	char byte;

	(void)f;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		int fd = open(files[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC);

		if (fd >= 0 && read(fd, &byte, 1) == 1) {
			said("%s can be read", files[i]);
			return true;
		}
		if (fd >= 0)
			close(fd);
	}
	return false;
}

bool by_mount(const struct facts *f)
{
	mkdir("/tmp/m", 0755);
	if (mount(f->open_dir, "/tmp/m", NULL, MS_BIND, NULL) == 0) {
		said("bound %s", f->open_dir);
		return true;
	}
	if (mount("none", "/tmp/m", "tmpfs", 0, NULL) == 0) {
		said("mounted a tmpfs");
		return true;
	}
	if (mount(NULL, "/usr", NULL, MS_REMOUNT | MS_BIND, NULL) == 0) {
		said("remounted /usr");
		return true;
	}
	if (umount2("/proc/sys", MNT_DETACH) == 0) {
		said("took /proc/sys away");
		return true;
	}
	return false;
}

bool by_mount_api(const struct facts *f)
{
	long fd = syscall(SYS_fsopen, "tmpfs", 0);
	unsigned long long attributes[4] = { 0, 1, 0, 0 };

	(void)f;
	if (fd >= 0) {
		said("fsopen");
		return true;
	}
	fd = syscall(SYS_open_tree, AT_FDCWD, "/", 1);
	if (fd >= 0) {
		said("open_tree with clone");
		return true;
	}
	if (syscall(SYS_mount_setattr, AT_FDCWD, "/usr", 0, attributes, sizeof(attributes)) == 0) {
		said("mount_setattr on /usr");
		return true;
	}
	return false;
}

bool by_new_root(const struct facts *f)
{
	(void)f;
	mkdir("/tmp/jail", 0755);
	if (chroot("/tmp/jail") == 0) {
		said("chroot");
		return true;
	}
	return syscall(SYS_pivot_root, "/tmp/jail", "/tmp/jail") == 0;
}

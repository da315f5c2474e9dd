/*
 * A list of what is refused, not of what is allowed: places run compilers, browsers, databases and
 * whatever comes next year. Refused is what no ordinary program needs and what most kernel exploits
 * and escapes were made of; it fails with EPERM, or ENOSYS where a libc then takes another way.
 *
 * Other ABIs (i386 by int 0x80, x32) number calls differently and would walk past every rule: a
 * process that uses one is killed.
 */
#include "driver/native/native_seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include "base/fd.h"

#define PROGRAM_MAX 16384u
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#ifndef TIOCLINUX
#define TIOCLINUX 0x541C
#endif

/* EPERM. One line a reason. */
static const char *const DENIED[] = {
	/* the file tree: new mounts, new roots, and files by handle past every directory's mode */
	"mount",
	"umount",
	"umount2",
	"pivot_root",
	"chroot",
	"move_mount",
	"open_tree",
	"open_tree_attr",
	"mount_setattr",
	"fsopen",
	"fsconfig",
	"fsmount",
	"fspick",
	"statmount",
	"listmount",
	"open_by_handle_at",
	"name_to_handle_at",
	"quotactl",
	"quotactl_fd",
	"swapon",
	"swapoff",
	"fanotify_init",
	/* namespaces */
	"setns",
	/* keyrings are not namespaced: keys of the user outside, and memory accounted to it */
	"add_key",
	"request_key",
	"keyctl",
	/* large and young parts of the kernel, first in every list of local exploits */
	"bpf",
	"perf_event_open",
	"userfaultfd",
	"io_uring_setup",
	"io_uring_enter",
	"io_uring_register",
	"lookup_dcookie",
	"vmsplice",
	"move_pages",
	"mbind",
	"migrate_pages",
	"set_mempolicy",
	"set_mempolicy_home_node",
	"kcmp",
	"lsm_set_self_attr",
	/* the machine itself */
	"kexec_load",
	"kexec_file_load",
	"reboot",
	"init_module",
	"finit_module",
	"delete_module",
	"create_module",
	"iopl",
	"ioperm",
	"syslog",
	"acct",
	"settimeofday",
	"clock_settime",
	"clock_settime64",
	"clock_adjtime",
	"clock_adjtime64",
	"adjtimex",
	"stime",
	"sethostname",
	"setdomainname",
	"vhangup",
	"nfsservctl",
	"uselib",
	"_sysctl",
	"sysfs",
	"ustat",
	"modify_ldt",
};

/* ENOSYS: programs have a second way. */
static const char *const MISSING[] = { "pidfd_getfd", "process_madvise", "cachestat" };

/* A place has its own loopback and unix sockets; and what asks for addresses and routes. */
static const unsigned FAMILIES[] = { AF_UNIX, AF_INET, AF_INET6, AF_NETLINK };

/* Kernels are newer than libraries. These have the same number on every machine. */
static const struct {
	const char *name;
	int number;
} YOUNG[] = {
	{ "cachestat", 451 },         { "statmount", 457 },      { "listmount", 458 },
	{ "lsm_set_self_attr", 460 }, { "open_tree_attr", 467 },
};

static int number_of(const char *name)
{
	int number = seccomp_syscall_resolve_name(name);

	for (size_t i = 0; number == __NR_SCMP_ERROR && i < sizeof(YOUNG) / sizeof(YOUNG[0]); i++)
		if (strcmp(YOUNG[i].name, name) == 0)
			number = YOUNG[i].number;
	return number;
}

static int add(scmp_filter_ctx ctx, uint32_t action, const char *name, struct error *err)
{
	int number = number_of(name);
	int r;

	/* Not on this machine. */
	if (number == __NR_SCMP_ERROR || number < 0)
		return 0;
	r = seccomp_rule_add(ctx, action, number, 0);
	return r < 0 ? error_errno(err, -r, "filtering %s", name) : 0;
}

static int add_if(scmp_filter_ctx ctx, int error_number, int number, struct scmp_arg_cmp cmp,
		  struct error *err)
{
	int r = seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO((uint32_t)error_number), number, 1,
				       &cmp);

	return r < 0 ? error_errno(err, -r, "filtering call %d", number) : 0;
}

/* Stops: a user namespace in which the payload is root once more, with all of the kernel open. */
static int add_namespaces(scmp_filter_ctx ctx, struct error *err)
{
	static const unsigned flags[] = { CLONE_NEWUSER, CLONE_NEWNS,  CLONE_NEWPID,   CLONE_NEWNET,
					  CLONE_NEWIPC,  CLONE_NEWUTS, CLONE_NEWCGROUP };

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		/* On s390 the flags are the second argument; libseccomp knows no such machine of
		 * ours. */
		if (add_if(ctx, EPERM, SCMP_SYS(clone),
			   SCMP_A0(SCMP_CMP_MASKED_EQ, flags[i], flags[i]), err) < 0 ||
		    add_if(ctx, EPERM, SCMP_SYS(unshare),
			   SCMP_A0(SCMP_CMP_MASKED_EQ, flags[i], flags[i]), err) < 0)
			return -1;
	}
	return add_if(ctx, EPERM, SCMP_SYS(unshare),
		      SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_NEWTIME, CLONE_NEWTIME), err);
}

/*
 * Stops: typing into the terminal of whoever started the place (CVE-2017-5226), and its console
 * twin (CVE-2023-1523). The kernel looks at 32 bits of the request, so only these are compared
 * (CVE-2019-10063).
 */
static int add_ioctls(scmp_filter_ctx ctx, struct error *err)
{
	static const unsigned long requests[] = { TIOCSTI, TIOCLINUX, TIOCSETD };

	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
		if (add_if(ctx, EPERM, SCMP_SYS(ioctl),
			   SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffffu, requests[i]), err) < 0)
			return -1;
	return 0;
}

/*
 * `count` families from `first` on, a power of two of them and aligned to it. Where all are refused
 * one comparison does for the whole block: the kernel compiles the program anew for every command,
 * and a comparison for each family would be most of it.
 */
static int refuse_families(scmp_filter_ctx ctx, int call, unsigned first, unsigned count,
			   struct error *err)
{
	bool allowed = false;

	for (size_t i = 0; i < sizeof(FAMILIES) / sizeof(FAMILIES[0]); i++)
		allowed |= FAMILIES[i] >= first && FAMILIES[i] - first < count;
	if (!allowed)
		return add_if(ctx, EAFNOSUPPORT, call,
			      SCMP_A0(SCMP_CMP_MASKED_EQ, ~(scmp_datum_t)(count - 1), first), err);
	if (count == 1)
		return 0;
	if (refuse_families(ctx, call, first, count / 2, err) < 0)
		return -1;
	return refuse_families(ctx, call, first + count / 2, count / 2, err);
}

/* Stops: vsock to a hypervisor, packet and raw-protocol families, the kernel's crypto and more. */
static int add_families(scmp_filter_ctx ctx, struct error *err)
{
	const unsigned last = 64; /* above every family there is */
	int calls[] = { SCMP_SYS(socket), SCMP_SYS(socketpair) };

	for (size_t c = 0; c < 2; c++)
		if (refuse_families(ctx, calls[c], 0, last, err) < 0 ||
		    add_if(ctx, EAFNOSUPPORT, calls[c], SCMP_A0(SCMP_CMP_GE, last, 0), err) < 0)
			return -1;
	/* Of netlink only routes: the others configure the kernel. */
	struct scmp_arg_cmp netlink[] = { SCMP_A0(SCMP_CMP_EQ, AF_NETLINK, 0),
					  SCMP_A2(SCMP_CMP_NE, 0, 0) };
	int r = seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 2,
				       netlink);

	return r < 0 ? error_errno(err, -r, "filtering netlink") : 0;
}

/* Stops: device nodes, whatever the file system says. */
static int add_nodes(scmp_filter_ctx ctx, struct error *err)
{
	static const unsigned types[] = { S_IFCHR, S_IFBLK };

	for (size_t i = 0; i < 2; i++)
		if (add_if(ctx, EPERM, SCMP_SYS(mknod),
			   SCMP_A1(SCMP_CMP_MASKED_EQ, S_IFMT, types[i]), err) < 0 ||
		    add_if(ctx, EPERM, SCMP_SYS(mknodat),
			   SCMP_A2(SCMP_CMP_MASKED_EQ, S_IFMT, types[i]), err) < 0)
			return -1;
	return 0;
}

/* Stops: a set-user-id program left in a directory of the host, for somebody outside to run. */
static int add_setuid(scmp_filter_ctx ctx, struct error *err)
{
	static const unsigned bits[] = { S_ISUID, S_ISGID };
	int second[] = { SCMP_SYS(chmod), SCMP_SYS(fchmod), SCMP_SYS(mkdir), SCMP_SYS(creat),
			 SCMP_SYS(mknod) };
	int third[] = { SCMP_SYS(fchmodat), SCMP_SYS(mkdirat), SCMP_SYS(mknodat), SCMP_SYS(open) };
	int fchmodat2 = seccomp_syscall_resolve_name("fchmodat2");

	for (size_t b = 0; b < 2; b++) {
		for (size_t i = 0; i < sizeof(second) / sizeof(second[0]); i++)
			if (second[i] >= 0 &&
			    add_if(ctx, EPERM, second[i],
				   SCMP_A1(SCMP_CMP_MASKED_EQ, bits[b], bits[b]), err) < 0)
				return -1;
		for (size_t i = 0; i < sizeof(third) / sizeof(third[0]); i++)
			if (third[i] >= 0 &&
			    add_if(ctx, EPERM, third[i],
				   SCMP_A2(SCMP_CMP_MASKED_EQ, bits[b], bits[b]), err) < 0)
				return -1;
		if (add_if(ctx, EPERM, SCMP_SYS(openat),
			   SCMP_A3(SCMP_CMP_MASKED_EQ, bits[b], bits[b]), err) < 0)
			return -1;
	}
	/* A library that does not know its name cannot filter it by name; its number is everywhere
	 * 452. */
	if (fchmodat2 == __NR_SCMP_ERROR)
		fchmodat2 = 452;
	return add_if(ctx, ENOSYS, fchmodat2, SCMP_A0(SCMP_CMP_GE, 0, 0), err) < 0
		       ? -1
		       /* openat2 has its mode in memory, where no filter sees it. */
		       : add(ctx, SCMP_ACT_ERRNO(ENOSYS), "openat2", err);
}

/* What neither a command nor the relay of its place needs. */
static int add_base(scmp_filter_ctx ctx, struct error *err)
{
	for (size_t i = 0; i < sizeof(DENIED) / sizeof(DENIED[0]); i++)
		if (add(ctx, SCMP_ACT_ERRNO(EPERM), DENIED[i], err) < 0)
			return -1;
	for (size_t i = 0; i < sizeof(MISSING) / sizeof(MISSING[0]); i++)
		if (add(ctx, SCMP_ACT_ERRNO(ENOSYS), MISSING[i], err) < 0)
			return -1;
	return add_namespaces(ctx, err) < 0 || add_ioctls(ctx, err) < 0 ||
			       add_families(ctx, err) < 0 || add_nodes(ctx, err) < 0
		       ? -1
		       : 0;
}

/*
 * What the relay does and a command must not: it gives birth to commands in their cgroups, and it
 * opens files and sets their modes for whoever asks through the server.
 */
static int add_exec(scmp_filter_ctx ctx, enum seccomp_kind kind, struct error *err)
{
	/* clone3 has its flags in memory, where no filter sees them; programs have a second way. */
	if (add(ctx, SCMP_ACT_ERRNO(ENOSYS), "clone3", err) < 0)
		return -1;
	return kind == SECCOMP_SHARED ? add_setuid(ctx, err) : 0;
}

static int export_program(scmp_filter_ctx ctx, struct seccomp_program *out, struct error *err)
{
	_cleanup_close_ int fd = memfd_create("seccomp", MFD_CLOEXEC);
	_cleanup_buf_ struct buf bytes = { 0 };
	int r = fd < 0 ? -errno : seccomp_export_bpf(ctx, fd);

	if (r < 0)
		return error_errno(err, -r, "compiling the system call filter");
	if (lseek(fd, 0, SEEK_SET) < 0 || fd_read_all(fd, &bytes, PROGRAM_MAX, err) < 0)
		return error_wrap(err, "compiling the system call filter");
	out->len = bytes.len;
	out->data = xmalloc(bytes.len);
	memcpy(out->data, bytes.data, bytes.len);
	return 0;
}

enum part { PART_BASE = 1, PART_EXEC = 2 };

static int compile(unsigned parts, enum seccomp_kind kind, struct seccomp_program *out,
		   struct error *err)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int r = 0;

	if (!ctx)
		return error_set(err, ERR_UNAVAILABLE, "libseccomp does not work here");
	/* One comparison per call in the middle of a tree, instead of a walk through all. */
	seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (parts & PART_BASE)
		r = add_base(ctx, err);
	if (r == 0 && (parts & PART_EXEC))
		r = add_exec(ctx, kind, err);
	if (r == 0)
		r = export_program(ctx, out, err);
	seccomp_release(ctx);
	return r;
}

int seccomp_compile(enum seccomp_kind kind, struct seccomp_filter *out, struct error *err)
{
	*out = (struct seccomp_filter){ 0 };
	if (compile(PART_BASE | PART_EXEC, kind, &out->whole, err) == 0 &&
	    compile(PART_BASE, kind, &out->base, err) == 0 &&
	    compile(PART_EXEC, kind, &out->exec, err) == 0)
		return 0;
	seccomp_filter_clear(out);
	return -1;
}

void seccomp_filter_clear(struct seccomp_filter *filter)
{
	free(filter->whole.data);
	free(filter->base.data);
	free(filter->exec.data);
	*filter = (struct seccomp_filter){ 0 };
}

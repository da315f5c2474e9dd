#include "attack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool got(long result, const char *what)
{
	if (!came_through(result))
		return false;
	said("%s: %s", what, result >= 0 ? "worked" : strerror(errno));
	return true;
}

#if defined(__x86_64__)
bool by_i386(const struct facts *f)
{
	long result;

	(void)f;
	/* 20 is getpid there. */
	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(20L)
			 : "memory", "r8", "r9", "r10", "r11");
	if (result != getpid())
		return false;
	said("int 0x80 works");
	return true;
}

bool by_x32(const struct facts *f)
{
	long result = syscall(0x40000000L | SYS_getpid);

	(void)f;
	if (result != getpid())
		return false;
	said("x32 calls work");
	return true;
}
#else
bool by_i386(const struct facts *f)
{
	(void)f;
	return false;
}
bool by_x32(const struct facts *f)
{
	(void)f;
	return false;
}
#endif

bool by_io_uring(const struct facts *f)
{
	char parameters[256] = { 0 };

	(void)f;
	return got(syscall(SYS_io_uring_setup, 4, parameters), "io_uring_setup");
}

bool by_bpf(const struct facts *f)
{
	char attributes[64] = { 0 };

	(void)f;
	return got(syscall(SYS_bpf, 0, attributes, sizeof(attributes)), "bpf");
}

bool by_keyring(const struct facts *f)
{
	(void)f;
	return got(syscall(SYS_keyctl, 0, -3, 0, 0, 0), "keyctl") ||
	       got(syscall(SYS_add_key, "user", "berth", "x", 1, -2), "add_key");
}

bool by_userfaultfd(const struct facts *f)
{
	(void)f;
	/* 1: faults of user space only, which the kernel gives to everybody. */
	return got(syscall(SYS_userfaultfd, O_CLOEXEC | 1), "userfaultfd");
}

bool by_perf(const struct facts *f)
{
	struct {
		unsigned type, size;
		unsigned long long config[14];
	} attributes = { .type = 1, .size = sizeof(attributes) };

	(void)f;
	return got(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0), "perf_event_open");
}

bool by_modules(const struct facts *f)
{
	(void)f;
	return got(syscall(SYS_finit_module, -1, "", 0), "finit_module") ||
	       got(syscall(SYS_delete_module, "nothing", 0), "delete_module") ||
	       got(syscall(SYS_kexec_load, 0, 0, 0, 0), "kexec_load");
}

bool by_kernel_log(const struct facts *f)
{
	char text[64];

	(void)f;
	return got(klogctl(3, text, sizeof(text)), "syslog");
}
